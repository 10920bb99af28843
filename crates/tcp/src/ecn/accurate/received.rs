//! Our reports to the peer of the marks on its packets (RFC 9768, sections 3.2.1 and 3.2.3): the
//! counters `r.cep`, `r.ceb`, `r.e0b` and `r.e1b`, and when they leave.

use plimsoll_wire::tcp::{AccEcnCounters, AccEcnOption, AccEcnOrder};

use crate::ecn::negotiation::handshake_ace;
use crate::segment::Ecn;
use crate::time::{Instant, Nanos};

/// r.cep and s.cep begin here (section 3.2.1), so that an ACE field of zero is seldom a true one.
pub(crate) const FIRST_CEP: u32 = 5;
/// r.e0b, r.e1b and the values that they are compared with begin here, so a zero was written by a
/// middlebox.
pub(crate) const FIRST_BYTES: u32 = 1;
/// An option is due when a counter has grown by so much: well below half of its range.
const MOST_UNREPORTED: u32 = 1 << 22;
/// Options that follow a change of the codepoint: the first may be lost.
const AFTER_CHANGE: u8 = 2;
/// CE marks for which an ACK is due at once, on data and on packets without (section 3.2.2.5.1).
const MOST_ON_DATA: u32 = 2;
const MOST_ON_BARE: u32 = 3;

/// Counters before anything has come.
pub(super) const FIRST_COUNTERS: AccEcnCounters =
    AccEcnCounters { e0b: FIRST_BYTES, ceb: 0, e1b: FIRST_BYTES };

/// How much of the option is sent: `tcp_ecn_option`, and the beacon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionPolicy {
    /// 0 to 3.
    pub(crate) level: u8,
    /// Options per round trip at least, 0 is none.
    pub(crate) beacon: u8,
    pub(crate) now: Instant,
    /// The round trip; zero if unknown.
    pub(crate) srtt: Nanos,
}

/// Whether the next packet has an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// It has none.
    None,
    /// If there is space for one.
    IfItFits,
    /// A separate ACK leaves for it if a packet with data has no space.
    Due,
}

/// The counters of arrived packets, and the values reported to the peer.
#[derive(Debug)]
pub(crate) struct Received {
    /// r.cep: CE packets, modulo 2^32.
    cep: u32,
    /// r.ceb, r.e0b, r.e1b, modulo 2^32.
    counters: AccEcnCounters,
    /// The counters in the last option.
    reported: AccEcnCounters,
    /// When that left.
    reported_at: Instant,
    /// The codepoint of the last data, if it was counted.
    last: Ecn,
    /// CE packets since an ACK last left.
    unacknowledged: u32,
    /// Options that are due, independently of changes.
    due: u8,
    /// The marks to report with the next ACK cannot wait for the end of a batch.
    urgent: bool,
    /// The codepoint of the peer's last SYN or SYN-ACK.
    handshake: Ecn,
    /// One of them was marked, and is counted.
    handshake_counts: bool,
    /// That was a SYN-ACK, and nothing has answered it yet.
    answers: bool,
}

impl Received {
    pub(super) fn new() -> Received {
        Received {
            cep: FIRST_CEP,
            counters: FIRST_COUNTERS,
            reported: FIRST_COUNTERS,
            reported_at: Instant::ZERO,
            last: Ecn::NotEct,
            unacknowledged: 0,
            due: 0,
            urgent: false,
            handshake: Ecn::NotEct,
            handshake_counts: false,
            answers: false,
        }
    }

    /// The peer's SYN or SYN-ACK came with this codepoint. The bytes of its data count.
    pub(super) fn on_syn(&mut self, codepoint: Ecn, len: u32) {
        self.on_handshake_again(codepoint);
        self.count_bytes(codepoint, len);
    }

    /// It came again. We report the last one (section 3.1.5), and of several marked ones only one
    /// counts (section 3.2.2.2).
    pub(super) fn on_handshake_again(&mut self, codepoint: Ecn) {
        self.handshake = codepoint;
        if codepoint == Ecn::Ce && !core::mem::replace(&mut self.handshake_counts, true) {
            self.cep = self.cep.wrapping_add(1);
        }
    }

    /// It was a SYN-ACK: the next ACK, if it has no data, reports its codepoint. An option shows
    /// the peer whether the path lets it through.
    pub(super) fn answer_syn_ack(&mut self) {
        self.answers = true;
        self.due = 1;
    }

    /// `segs` packets with `len` bytes of data together came with this codepoint. Returns whether
    /// an ACK is due at once.
    pub(super) fn on_packets(&mut self, codepoint: Ecn, segs: u32, len: u32) -> bool {
        let before = self.unacknowledged;
        if codepoint == Ecn::Ce {
            self.cep = self.cep.wrapping_add(segs);
            self.unacknowledged = self.unacknowledged.saturating_add(segs);
        }
        let most = if len > 0 { MOST_ON_DATA } else { MOST_ON_BARE };
        let many = before < self.unacknowledged && self.unacknowledged >= most;
        let changed = len > 0 && self.last != codepoint && self.last != Ecn::NotEct;
        let began = len > 0 && codepoint == Ecn::Ce && self.last != Ecn::Ce;
        if changed && codepoint != Ecn::NotEct {
            self.due = self.due.max(AFTER_CHANGE);
        }
        if len > 0 {
            self.last = codepoint;
            self.count_bytes(codepoint, len);
        }
        let now = many || began || (changed && codepoint != Ecn::NotEct);
        self.urgent |= now;
        now
    }

    fn count_bytes(&mut self, codepoint: Ecn, len: u32) {
        let counter = match codepoint {
            Ecn::NotEct => return,
            Ecn::Ect0 => &mut self.counters.e0b,
            Ecn::Ect1 => &mut self.counters.e1b,
            Ecn::Ce => &mut self.counters.ceb,
        };
        *counter = counter.wrapping_add(len);
    }

    /// The ACE field of the next packet.
    pub(super) fn ace(&self, bare: bool) -> u8 {
        if bare && self.answers { self.handshake_ace() } else { (self.cep & 7) as u8 }
    }

    /// The ACE field of the answer to the peer's SYN or SYN-ACK.
    pub(super) fn handshake_ace(&self) -> u8 {
        handshake_ace(self.handshake)
    }

    /// Whether the next packet has an option.
    pub(super) fn wants_option(&self, policy: &OptionPolicy) -> Want {
        let grown = self.grown();
        let most = grown.e0b.max(grown.ceb).max(grown.e1b);
        if policy.level == 0 {
            Want::None
        } else if self.due > 0 || most >= MOST_UNREPORTED {
            Want::Due
        } else if policy.level > 1 || grown.ceb > 0 || self.is_beacon_due(policy) {
            Want::IfItFits
        } else {
            Want::None
        }
    }

    fn is_beacon_due(&self, policy: &OptionPolicy) -> bool {
        let beacon = u32::from(policy.beacon);
        beacon > 0 && policy.now.nanos_since(self.reported_at) >= policy.srtt / beacon
    }

    /// By how much the counters have grown since an option last reported them.
    fn grown(&self) -> AccEcnCounters {
        let (now, then) = (self.counters, self.reported);
        AccEcnCounters {
            e0b: now.e0b.wrapping_sub(then.e0b),
            ceb: now.ceb.wrapping_sub(then.ceb),
            e1b: now.e1b.wrapping_sub(then.e1b),
        }
    }

    /// The option with as many counters as find space; `None` if those that have changed do not.
    pub(super) fn option(&self, space: usize) -> Option<AccEcnOption> {
        let grown = self.grown();
        // All of them, in the order in which Linux sends them.
        let (order, changed) = if space >= AccEcnOption::MOST_COUNTERS || grown.e0b == 0 {
            (AccEcnOrder::Ect1First, [grown.e1b, grown.ceb, grown.e0b])
        } else {
            (AccEcnOrder::Ect0First, [grown.e0b, grown.ceb, grown.e1b])
        };
        let needed = changed.iter().rposition(|&bytes| bytes > 0).map_or(0, |last| last + 1);
        (needed <= space && space > 0).then(|| AccEcnOption::new(order, space, self.counters))
    }

    /// A packet with ACK has left, with an option or without.
    pub(super) fn on_sent(&mut self, now: Instant, option: Option<&AccEcnOption>) {
        self.unacknowledged = 0;
        self.urgent = false;
        self.answers = false;
        if option.is_some() {
            self.due = self.due.saturating_sub(1);
            self.reported = self.counters;
            self.reported_at = now;
        }
    }

    /// The marks to report with the next ACK cannot wait for the end of a batch.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// CE packets that have come, modulo 2^32 (`tcpi_received_ce`).
    pub(super) fn ce_packets(&self) -> u32 {
        self.cep.wrapping_sub(FIRST_CEP)
    }

    /// Bytes that have come, by codepoint, modulo 2^32.
    pub(super) fn bytes(&self) -> AccEcnCounters {
        let AccEcnCounters { e0b, ceb, e1b } = self.counters;
        AccEcnCounters {
            e0b: e0b.wrapping_sub(FIRST_BYTES),
            ceb,
            e1b: e1b.wrapping_sub(FIRST_BYTES),
        }
    }
}
