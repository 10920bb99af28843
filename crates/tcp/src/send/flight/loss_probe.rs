//! Tail loss probes (RFC 8985 section 7; section 8 of docs/recovery.md).

use plimsoll_wire::SeqNum;

use crate::time::Nanos;

/// How much later than two round trips a probe leaves at least.
const LEAST_DELAY: Nanos = Nanos::from_millis(2);

/// When a probe leaves if there is no round trip yet.
const PTO_WITHOUT_SRTT: Nanos = Nanos::from_secs(1);

/// The contents of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Data that was never sent.
    New,
    /// The last segment again.
    Old,
}

/// A probe that is out.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// TLP.end_seq.
    end_seq: SeqNum,
    /// TLP.is_retrans is [`Probe::Old`].
    kind: Probe,
    /// Its [`ProbeFlight`], in the bytes that the kind leaves: more segments than a number of two
    /// bytes holds are as many as that.
    app_limited: bool,
    segs: u16,
}

/// The data in flight when a probe left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbeFlight {
    /// Segments, the one that the probe may repair counted.
    pub(super) segs: u32,
    /// The application limited them.
    pub(super) app_limited: bool,
}

/// The values of an ACK that a probe needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeAck {
    /// SEG.ACK.
    pub(super) ack: SeqNum,
    /// A DSACK names the probe.
    pub(super) named: bool,
    /// It is a duplicate that SACKs nothing new.
    pub(super) plain_duplicate: bool,
}

/// The probe of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossProbe {
    /// The timer has fired: a probe leaves next.
    due: Option<Probe>,
    out: Option<Out>,
}

impl LossProbe {
    /// The probe that leaves next, if one does.
    pub(super) fn due(&self) -> Option<Probe> {
        self.due
    }

    /// The timer has fired.
    pub(super) fn set_due(&mut self, probe: Probe) {
        self.due = Some(probe);
    }

    /// A probe that was due cannot leave.
    pub(super) fn cancel(&mut self) {
        self.due = None;
    }

    /// The same, if it is one of new data. Returns whether it is.
    pub(super) fn cancel_new(&mut self) -> bool {
        let new = self.due == Some(Probe::New);
        if new {
            self.due = None;
        }
        new
    }

    /// A packet that ends at `end_seq` left while `flight` was in flight. Returns whether it was
    /// the probe that was due.
    pub(super) fn on_sent(&mut self, kind: Probe, end_seq: SeqNum, flight: ProbeFlight) -> bool {
        let sent = self.due == Some(kind);
        if sent {
            self.due = None;
            let segs = u16::try_from(flight.segs).unwrap_or(u16::MAX);
            self.out = Some(Out { end_seq, kind, app_limited: flight.app_limited, segs });
        }
        sent
    }

    /// TLP.end_seq, if a probe is out.
    pub(super) fn end_seq(&self) -> Option<SeqNum> {
        self.out.map(|out| out.end_seq)
    }

    /// Whether a retransmission is out as a probe (RFC 8985: `TLP.is_retrans`).
    pub(super) fn is_retrans(&self) -> bool {
        self.out.is_some_and(|out| out.kind == Probe::Old)
    }

    /// Recovery begins: no thread waits for the answer of the probe any more.
    pub(super) fn end(&mut self) {
        self.out = None;
    }

    /// An ACK came (RFC 8985, section 7.4). Returns the state with which the probe left if it
    /// repaired a loss.
    #[inline]
    pub(super) fn on_ack(&mut self, ack: ProbeAck) -> Option<ProbeFlight> {
        let out = self.out.filter(|out| out.end_seq <= ack.ack)?;
        let repaired = out.kind == Probe::Old && !ack.named && out.end_seq < ack.ack;
        if out.kind == Probe::New || ack.named || repaired || ack.plain_duplicate {
            self.out = None;
        }
        let flight = ProbeFlight { segs: out.segs.into(), app_limited: out.app_limited };
        repaired.then_some(flight)
    }
}

/// PTO before its bound, for `outstanding` segments (RFC 8985, section 7.2).
pub(super) fn pto(srtt: Option<Nanos>, outstanding: u32, rto_min: Nanos) -> Nanos {
    let Some(srtt) = srtt else { return PTO_WITHOUT_SRTT };
    // A peer may delay the ACK of one segment.
    srtt * 2 + if outstanding == 1 { rto_min } else { LEAST_DELAY }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: SeqNum = SeqNum(100);
    const FLIGHT: ProbeFlight = ProbeFlight { segs: 7, app_limited: false };

    fn out(kind: Probe) -> LossProbe {
        let mut probe = LossProbe::default();
        probe.set_due(kind);
        assert!(probe.on_sent(kind, END, FLIGHT));
        assert_eq!(probe.due(), None);
        probe
    }

    #[test]
    fn answers() {
        use Probe::{New, Old};
        let above = ProbeAck { ack: SeqNum(101), named: false, plain_duplicate: false };
        let at = ProbeAck { ack: END, ..above };
        // The probe, the ACK, whether a loss was repaired, whether the probe is still out.
        let cases = [
            (New, at, false, false, "the probe was new"),
            (New, ProbeAck { ack: SeqNum(99), ..at }, false, true, "not there yet"),
            (Old, at, false, true, "the ACK of the first copy, or of the second"),
            (Old, ProbeAck { named: true, ..at }, false, false, "a DSACK names it"),
            (Old, ProbeAck { named: true, ..above }, false, false, "also above"),
            (Old, ProbeAck { plain_duplicate: true, ..at }, false, false, "both copies arrived"),
            (Old, above, true, false, "one of the copies was lost"),
        ];
        for (kind, ack, repaired, stays, name) in cases {
            let mut probe = out(kind);
            assert_eq!(probe.on_ack(ack), repaired.then_some(FLIGHT), "{name}");
            assert_eq!(probe.end_seq().is_some(), stays, "{name}");
        }
    }

    #[test]
    fn only_what_is_due_is_a_probe() {
        let mut probe = LossProbe::default();
        assert!(!probe.on_sent(Probe::New, END, FLIGHT));
        probe.set_due(Probe::Old);
        assert!(!probe.on_sent(Probe::New, END, FLIGHT));
        assert!(!probe.cancel_new());
        probe.cancel();
        assert_eq!(probe.due(), None);
        assert!(
            !probe.is_retrans() && out(Probe::Old).is_retrans() && !out(Probe::New).is_retrans()
        );
    }

    #[test]
    fn probe_timeouts() {
        let rto_min = Nanos::from_millis(200);
        let srtt = Some(Nanos::from_millis(50));
        let cases = [(None, 5, 1000), (srtt, 1, 300), (srtt, 2, 102)];
        for (srtt, outstanding, millis) in cases {
            assert_eq!(pto(srtt, outstanding, rto_min).as_millis(), millis);
        }
    }
}
