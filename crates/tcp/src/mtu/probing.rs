//! Probes of the path MTU, from the path's side: the search gives the length of the next one, and
//! its outcome limits the MSS. The send half decides whether a probe may leave.
//!
//! `option` is the length of the options that every segment carries.

use plimsoll_wire::SeqNum;

use super::Path;
use super::search::{MtuProbe, MtuSearch, ProbeOutcome};
use crate::context::Context;

/// The value of `tcp_mtu_probing` with which every connection is probed from its beginning.
const ALWAYS: u8 = 2;

impl Path {
    /// The handshake is complete. With `tcp_mtu_probing` = 2 a search begins; returns whether one
    /// does.
    pub(crate) fn on_established(&mut self, cx: &Context, option: u16) -> bool {
        let searches = cx.config.tcp_mtu_probing >= ALWAYS;
        if searches {
            self.begin_search(cx, option);
        }
        searches
    }

    /// The link, or the route, carries longer packets than before: a search continues up to the new
    /// limit. Returns whether there is one.
    pub(super) fn raise_search(&mut self) -> bool {
        let ceiling = self.ceiling();
        self.search_mut().map(|search| search.on_raised(ceiling)).is_some()
    }

    /// Timeouts have lasted for as long as `tcp_retries1` of them take: perhaps the path drops long
    /// packets without a report (RFC 4821, section 7.7). Returns whether the MSS may change.
    pub(crate) fn on_black_hole(&mut self, cx: &Context, option: u16) -> bool {
        if cx.config.tcp_mtu_probing == 0 {
            return false;
        }
        let overhead = self.overhead(option);
        match self.search_mut() {
            Some(search) => search.descend(overhead, cx.config),
            None => self.begin_search(cx, option),
        }
        true
    }

    fn begin_search(&mut self, cx: &Context, option: u16) {
        let low = cx.config.tcp_base_mss.saturating_add(self.overhead(option));
        let search = MtuSearch::new(low, self.ceiling(), cx.now);
        self.learnt().search = Some(search);
    }

    /// Bytes that a packet has in addition to its payload.
    fn overhead(&self, option: u16) -> u16 {
        self.headers() + option
    }

    /// The longest packet that the peer and the path's reports allow.
    fn ceiling(&self) -> u16 {
        self.most().saturating_add(self.headers()).min(self.mtu)
    }

    /// Whether the path MTU is searched for.
    pub(crate) fn is_searched(&self) -> bool {
        self.search().is_some()
    }

    /// Payload bytes of the probe that would leave next, if one is to leave at all. Full segments
    /// have `mss` of them now.
    pub(crate) fn next_probe(&mut self, cx: &Context, option: u16, mss: u16) -> Option<u32> {
        let overhead = self.overhead(option);
        let bounds = (mss.saturating_add(overhead), self.ceiling());
        let mtu = self.search_mut()?.next(cx.now, bounds, cx.config)?;
        Some(u32::from(mtu - overhead))
    }

    /// The outstanding probe, for the send half.
    pub(crate) fn probe(&self) -> Option<MtuProbe> {
        self.search()?.probe()
    }

    /// A probe from `start` to `end` has left. Full segments have `mss` bytes. Returns whether that
    /// is looked at.
    pub(crate) fn on_probe_sent(
        &mut self,
        (start, end): (SeqNum, SeqNum),
        option: u16,
        mss: u16,
    ) -> bool {
        let overhead = self.overhead(option);
        let mtu = (end.since(start) as u16).saturating_add(overhead);
        let base = mss.saturating_add(overhead);
        let probe = MtuProbe { start, end, mtu, base };
        self.search_mut().map(|search| search.on_sent(probe)).is_some()
    }

    /// Data was retransmitted: any answer is no longer about the probe alone.
    pub(crate) fn forget_probe(&mut self) {
        if let Some(search) = self.search_mut() {
            search.forget_probe();
        }
    }

    /// An ACK decided the outcome of the probe, if `outcome` is given. Returns whether the MSS may
    /// change.
    pub(crate) fn on_probe_outcome(&mut self, outcome: Option<ProbeOutcome>) -> bool {
        let Some(outcome) = outcome else { return false };
        self.search_mut().map(|search| search.on_outcome(outcome)).is_some()
    }
}
