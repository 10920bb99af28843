//! The search for the path MTU by probes (RFC 4821; the packet-layer part of RFC 8899).
//!
//! No router report is needed: a probe is a segment that is longer than the others, and its
//! acknowledgement shows that the path carries it. The state is a range, [`MtuSearch`]: packets of
//! `low` bytes arrive, those above `high` do not. A probe halves it. Below a width of
//! `tcp_probe_threshold` the search rests, and begins again after `tcp_probe_interval`, in case the
//! path has changed.
//!
//! With `tcp_mtu_probing` = 1 there is no search until timeouts suggest a black hole; it then
//! begins at `tcp_base_mss`, and each further timeout halves that. With 2 it begins with the
//! connection.
//!
//! [`output`](crate::output) decides when a probe leaves, [`recovery`](crate::send::flight)
//! whether it was lost.

use plimsoll_wire::SeqNum;

use crate::config::Config;
use crate::time::{Instant, Nanos};

/// A probe that has left. Its MTUs count bytes of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MtuProbe {
    /// Its first sequence number.
    pub(crate) start: SeqNum,
    /// One after its last.
    pub(crate) end: SeqNum,
    /// The packet that carries it.
    pub(crate) mtu: u16,
    /// The longest other packets when it left.
    pub(crate) base: u16,
}

/// The outcome of a probe, shown by an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    /// It has arrived.
    Carried,
    /// It was lost, and the data after it was not.
    TooLong,
}

/// The known bounds of the path MTU. All values are bytes of IP packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MtuSearch {
    /// The largest packet that is known to arrive, which packets other than probes keep to.
    low: u16,
    /// No packet above this is expected to arrive.
    high: u16,
    /// The start of the search, the first or a later one.
    since: Instant,
    /// The probe that is outstanding, if one is and its answer will mean something.
    probe: Option<MtuProbe>,
}

impl MtuSearch {
    /// Begins with packets of `low` bytes; no probe will be longer than `high`.
    pub(super) fn new(low: u16, high: u16, now: Instant) -> MtuSearch {
        MtuSearch { low: low.min(high), high, since: now, probe: None }
    }

    /// The largest packet that is sent, except probes.
    pub(super) fn low(&self) -> u16 {
        self.low
    }

    /// The probe that is outstanding.
    pub(super) fn probe(&self) -> Option<MtuProbe> {
        self.probe
    }

    /// The length of the next probe, while none is outstanding: the middle of the range. `current`
    /// is the present packet length, `ceiling` the limit of peer and link; a search that rested for
    /// long enough begins again between them.
    pub(super) fn next(
        &mut self,
        now: Instant,
        (current, ceiling): (u16, u16),
        config: &Config,
    ) -> Option<u16> {
        if self.probe.is_some() {
            return None;
        }
        if self.high.saturating_sub(self.low) >= config.tcp_probe_threshold.max(1) {
            return Some(self.low + (self.high - self.low) / 2).filter(|&next| next > current);
        }
        if now.nanos_since(self.since) >= Nanos::from(config.tcp_probe_interval) {
            *self = MtuSearch::new(current, ceiling.max(current), now);
        }
        None
    }

    /// A probe has left.
    pub(super) fn on_sent(&mut self, probe: MtuProbe) {
        self.probe = Some(probe);
    }

    /// Data was retransmitted while a probe is outstanding, so its answer is not usable.
    pub(super) fn forget_probe(&mut self) {
        self.probe = None;
    }

    /// The outcome of the probe is known.
    pub(super) fn on_outcome(&mut self, outcome: ProbeOutcome) {
        let Some(probe) = self.probe.take() else { return };
        match outcome {
            ProbeOutcome::Carried => self.low = self.low.max(probe.mtu).min(self.high),
            ProbeOutcome::TooLong => self.high = (probe.mtu - 1).max(self.low),
        }
    }

    /// The path is known to carry at most `mtu` bytes.
    pub(super) fn on_bound(&mut self, mtu: u16) {
        self.high = self.high.min(mtu);
        self.low = self.low.min(mtu);
    }

    /// Nothing is known any more that would forbid packets of up to `mtu` bytes.
    pub(super) fn on_raised(&mut self, mtu: u16) {
        self.high = self.high.max(mtu);
    }

    /// Timeouts continue with packets of `low` bytes: the path drops even those. Segments become
    /// half as long, and not longer than `tcp_base_mss`; a segment has `overhead` bytes of headers
    /// and options.
    pub(super) fn descend(&mut self, overhead: u16, config: &Config) {
        let half = self.low.saturating_sub(overhead) / 2;
        let floor = config.tcp_mtu_probe_floor.max(config.tcp_min_snd_mss);
        let mss = half.min(config.tcp_base_mss).max(floor);
        self.low = mss.saturating_add(overhead).min(self.low);
        self.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::time::Nanos;

    const START: Instant = Instant::from_millis(1000);

    fn probe(mtu: u16) -> MtuProbe {
        MtuProbe { start: SeqNum(1), end: SeqNum(1) + u32::from(mtu), mtu, base: 1064 }
    }

    /// Searches for a path of `path` bytes, and returns the probed lengths.
    fn search(mut search: MtuSearch, path: u16) -> (Vec<u16>, MtuSearch) {
        let mut tried = Vec::new();
        while let Some(mtu) = search.next(START, (search.low(), 1500), &Config::default()) {
            search.on_sent(probe(mtu));
            assert_eq!(search.next(START, (search.low(), 1500), &Config::default()), None);
            let carried = mtu <= path;
            search.on_outcome(match carried {
                true => ProbeOutcome::Carried,
                false => ProbeOutcome::TooLong,
            });
            tried.push(mtu);
        }
        (tried, search)
    }

    #[test]
    fn halves_the_range() {
        let (tried, found) = search(MtuSearch::new(1064, 1500, START), 1500);
        assert_eq!(tried, [1282, 1391, 1445, 1472, 1486, 1493]);
        assert_eq!(found.low(), 1493, "as near as the threshold asks");
        let (tried, found) = search(MtuSearch::new(1064, 1500, START), 1190);
        assert_eq!(tried, [1282, 1172, 1226, 1198, 1184, 1190]);
        assert_eq!(found.low(), 1190);
        let (tried, _) = search(MtuSearch::new(1493, 1500, START), 1500);
        assert!(tried.is_empty(), "nothing to be gained");
    }

    #[test]
    fn begins_anew_after_an_interval() {
        let config = Config::default();
        let (_, mut found) = search(MtuSearch::new(1064, 1500, START), 1190);
        let later = START + Nanos::from(config.tcp_probe_interval);
        let before = START + Nanos::from_secs(599);
        assert_eq!(found.next(before, (1190, 1500), &config), None);
        assert_eq!(found.next(later, (1190, 1500), &config), None, "begins");
        assert_eq!(found.next(later, (1190, 1500), &config), Some(1345));
    }

    #[test]
    fn descends_to_the_floor() {
        let config = Config { tcp_mtu_probe_floor: 200, ..Config::default() };
        let mut found = MtuSearch::new(1500, 1500, START);
        let lows: Vec<u16> = (0..5)
            .map(|_| {
                found.descend(40, &config);
                found.low()
            })
            .collect();
        assert_eq!(lows, [770, 405, 240, 240, 240]);
    }

    #[test]
    fn bounds_and_probes_that_say_nothing() {
        let mut found = MtuSearch::new(1064, 1500, START);
        found.on_sent(probe(1282));
        found.on_bound(1000);
        found.forget_probe();
        found.on_outcome(ProbeOutcome::Carried);
        assert_eq!((found.low(), found.high), (1000, 1000));
    }
}
