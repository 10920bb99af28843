//! Probes of the path MTU: the wiring between the search, which says how long the next one is, the
//! send half, which says whether it may leave and what became of it, and the MSS.

use super::search::{MtuProbe, MtuSearch, ProbeOutcome};
use crate::connection::Connection;
use crate::context::Context;
use crate::send::Committed;

/// The value of `tcp_mtu_probing` with which every connection is probed from its beginning.
const ALWAYS: u8 = 2;

impl Connection {
    /// The handshake is complete, and so the MSS is known. With `tcp_mtu_probing` = 2 a search
    /// begins. The active side sends small segments then; the passive side goes on with what the
    /// SYNs have agreed on until a probe or timeouts tell more (as on Linux).
    pub(crate) fn settle_mss(&mut self, cx: &Context) {
        self.sync_mss(cx);
        if cx.config.tcp_mtu_probing >= ALWAYS {
            self.begin_mtu_search(cx);
            if !self.is_passive() {
                self.sync_mss(cx);
            }
        }
    }

    /// The link, or the route, carries longer packets than before: a search goes on up to what it
    /// carries now.
    pub(super) fn raise_search(&mut self) {
        let ceiling = self.mtu_ceiling();
        if let Some(search) = self.path.search_mut() {
            search.on_raised(ceiling);
        }
    }

    /// Timeouts have gone on for as long as `tcp_retries1` of them take: perhaps the path swallows
    /// long packets and nobody tells (RFC 4821, section 7.7).
    pub(crate) fn on_black_hole(&mut self, cx: &Context) {
        if cx.config.tcp_mtu_probing == 0 {
            return;
        }
        let overhead = self.segment_overhead();
        match self.path.search_mut() {
            Some(search) => search.descend(overhead, cx.config),
            None => self.begin_mtu_search(cx),
        }
        self.sync_mss(cx);
        self.snd.tell_mss();
    }

    fn begin_mtu_search(&mut self, cx: &Context) {
        let low = cx.config.tcp_base_mss.saturating_add(self.segment_overhead());
        let search = MtuSearch::new(low, self.mtu_ceiling(), cx.now);
        self.path.learnt().search = Some(search);
    }

    /// Bytes that a packet has beside its payload.
    fn segment_overhead(&self) -> u16 {
        self.path.headers() + self.every_option()
    }

    /// The longest packet that the peer and what was told of the path allow.
    fn mtu_ceiling(&self) -> u16 {
        self.path.most().saturating_add(self.path.headers()).min(self.path.mtu)
    }

    /// Payload bytes of the probe that would leave next, if one is to leave at all. Options that
    /// not every segment has would make it longer, so there are no SACK blocks to be sent.
    pub(crate) fn next_mtu_probe(&mut self, cx: &Context) -> Option<u32> {
        self.path.search()?;
        if self.rcv.has_sack_blocks() {
            return None;
        }
        let overhead = self.segment_overhead();
        let bounds = (self.snd.mss().saturating_add(overhead), self.mtu_ceiling());
        let mtu = self.path.search_mut()?.next(cx.now, bounds, cx.config)?;
        Some(u32::from(mtu - overhead))
    }

    /// The probe that is outstanding, as the send half looks at it.
    pub(crate) fn mtu_probe(&self) -> Option<MtuProbe> {
        self.path.search()?.probe()
    }

    /// A probe has left.
    pub(crate) fn on_mtu_probe_sent(&mut self, committed: &Committed) {
        let overhead = self.segment_overhead();
        let Committed { start, end, .. } = *committed;
        let mtu = (end.since(start) as u16).saturating_add(overhead);
        let base = self.snd.mss().saturating_add(overhead);
        if let Some(search) = self.path.search_mut() {
            search.on_sent(MtuProbe { start, end, mtu, base });
            self.snd.on_mtu_probe_sent();
        }
    }

    /// Something left again: whatever the answer, it is not about the probe alone.
    pub(crate) fn forget_mtu_probe(&mut self) {
        if let Some(search) = self.path.search_mut() {
            search.forget_probe();
        }
    }

    /// An ACK told what has become of the probe.
    pub(crate) fn on_mtu_probe_outcome(&mut self, cx: &Context, outcome: Option<ProbeOutcome>) {
        let Some(outcome) = outcome else { return };
        if let Some(search) = self.path.search_mut() {
            search.on_outcome(outcome);
            self.sync_mss(cx);
            self.snd.tell_mss();
        }
    }
}
