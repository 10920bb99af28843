//! The outcome of a path MTU probe, from ACKs (RFC 4821, sections 7.6 and 7.7; section 4 of
//! docs/recovery.md, "Probes of the path MTU").

use super::Flight;
use super::run::Run;
use crate::counters::Counter;
use crate::mtu::search::{MtuProbe, ProbeOutcome};

impl Run<'_> {
    /// The whole probe is acknowledged: segments get longer, and cwnd, which counts segments,
    /// smaller, so that no more bytes are in flight.
    pub(super) fn take_carried_mtu_probe(&mut self) {
        let arrived = |probe: &MtuProbe| probe.end <= self.facts.una;
        let Some(probe) = self.conn.mtu_probe.filter(arrived) else { return };
        self.cx.counters.bump(Counter::TcpMtupSuccess);
        self.facts.mtu_probe = Some(ProbeOutcome::Carried);
        let cwnd = u64::from(self.cwnd()) * u64::from(probe.base) / u64::from(probe.mtu.max(1));
        let remembered = self.remembered_ssthresh();
        self.set_ssthresh(remembered);
        self.set_cwnd(u32::try_from(cwnd).unwrap_or(u32::MAX).max(1));
    }

    /// The probe, if it is the first that is outstanding.
    pub(super) fn lost_mtu_probe(&self) -> Option<MtuProbe> {
        self.conn.mtu_probe.filter(|probe| probe.start == self.facts.una)
    }

    /// A segment is lost, and first of all the probe: that shows the limit of a packet's length,
    /// and is no sign of congestion.
    pub(super) fn fail_mtu_probe(&mut self) {
        self.cx.counters.bump(Counter::TcpMtupFail);
        self.facts.mtu_probe = Some(ProbeOutcome::TooLong);
        // The amount that was subtracted for its length.
        let cwnd = self.cwnd().saturating_add(1);
        self.set_cwnd(cwnd);
        self.flight.board.mark_lost_above_mss(self.conn.mss);
        self.lose_without_congestion();
    }
}

impl Flight {
    /// A probe of the path MTU has left. It takes the place of two segments in the window, since it
    /// is longer than others, until its answer is there.
    pub(crate) fn on_mtu_probe_sent(&mut self) {
        self.board.mark_mtu_probe();
        self.cc.set_cwnd(self.cc.cwnd().saturating_sub(1).max(1));
    }
}
