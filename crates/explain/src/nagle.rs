//! Waits by Nagle's rule: a piece below one MSS stays until the one before it is acknowledged
//! (RFC 9293, section 3.7.4).

use plimsoll_wire::SeqNum;

use crate::Options;
use crate::direction::Paths;
use crate::kinds::Kind;
use crate::tally::{Mark, Tallies, Tally};

/// Times that a wait has to be seen for one that did not happen although the rule asks for it.
const WAITS_PER_BREACH: u64 = 4;

/// A wait of one round trip below this is none that anybody notices, in nanoseconds.
const NOTICEABLE: u64 = 2_000_000;

/// What hosts add to a handshake on a short path, in nanoseconds.
const JITTER: u64 = 200_000;

/// A segment that is not full and not acknowledged yet.
#[derive(Clone, Copy, Debug)]
struct Small {
    mark: Mark,
    end: SeqNum,
    /// It began its message.
    first: bool,
}

/// Whether the sender follows the rule, as far as its packets tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Unknown,
    /// It waited.
    On,
    /// It sent small segments one behind the other, without an ACK between them.
    Off,
}

/// The waits of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    small: Option<Small>,
    /// A small segment whose ACK has come, and when.
    released: Option<(Small, u64)>,
    /// Waits, and those of the second piece of a message among them.
    waits: u64,
    behind_first: u64,
    /// Small segments behind an ACK that did not wait for it.
    late: u64,
    /// Small segments that did not wait for an ACK.
    breaches: u64,
    /// The shortest and the longest time between ACK and data where the way of both is not known.
    gaps: Option<(u64, u64)>,
    /// A wait for one round trip in the current message, which matters if somebody waits for its
    /// end.
    round_trip: Option<(Mark, u64)>,
}

impl Waits {
    /// Whether this side follows the rule.
    pub(crate) fn rule(&self) -> Rule {
        if self.breaches * WAITS_PER_BREACH > self.waits {
            Rule::Off
        } else if self.waits >= 2 {
            Rule::On
        } else {
            Rule::Unknown
        }
    }

    /// Whether most waits were those of the second piece of a message.
    pub(crate) fn are_behind_first(&self) -> bool {
        self.behind_first * 2 >= self.waits && self.waits > 0
    }

    /// A message begins, and the one before was `answered`.
    pub(crate) fn message(&mut self, answered: bool, found: &mut Tallies) {
        self.released = None;
        if let Some((mark, nanos)) = self.round_trip.take().filter(|_| answered) {
            found.of(Kind::NagleRoundTrip).add(mark, 0.0, nanos);
        }
    }

    /// A segment that ends with less than an MSS leaves at `mark`; it is `less` than one.
    pub(crate) fn small(&mut self, mark: Mark, end: SeqNum, first: bool, less: bool) {
        self.breaches += u64::from(less && self.small.is_some());
        self.small = Some(Small { mark, end, first });
    }

    /// The other side acknowledges up to `ack`, without data if `pure`.
    pub(crate) fn acknowledged(&mut self, ack: SeqNum, pure: bool, time: u64) {
        if let Some(small) = self.small.filter(|small| small.end <= ack) {
            self.small = None;
            self.released = pure.then_some((small, time));
        }
    }

    /// What is known of sequence numbers is forgotten.
    pub(crate) fn forget(&mut self) {
        (self.small, self.released, self.round_trip) = (None, None, None);
    }

    /// Data below one MSS leaves at `mark`, in the same message: did it wait for the ACK before
    /// it?
    ///
    /// The ACK came from the one end, and the data from the other, each as soon as it could, but
    /// for the time by which the ACK was delayed. Data that comes sooner than the ACK can have
    /// reached its sender did not wait for it.
    pub(crate) fn data(
        &mut self,
        mark: Mark,
        paths: Paths,
        options: &Options,
        found: &mut Tallies,
    ) {
        let Some((small, acked)) = self.released.take() else { return };
        let gap = mark.time.saturating_sub(acked);
        let earliest = (paths.least_behind - paths.least_behind / 5).saturating_sub(JITTER);
        let latest = options.soon.saturating_add(paths.behind + paths.behind / 2);
        if !(earliest..=latest).contains(&gap) {
            self.late += 1;
            return;
        }
        let waited = acked.saturating_sub(small.mark.time);
        let delay = waited.saturating_sub(paths.beyond);
        let lost = mark.time.saturating_sub(small.mark.time);
        if (options.stall_least..=options.stall_most).contains(&delay) {
            found.of(Kind::Stall).add(mark, 0.0, lost);
        } else if delay < options.stall_least && lost >= NOTICEABLE {
            let before = self.round_trip.map_or(0, |(_, nanos)| nanos);
            let nanos = before.saturating_add(lost);
            self.round_trip = Some((mark, nanos));
        } else {
            return;
        }
        if paths.least_behind == 0 {
            let (least, most) = self.gaps.unwrap_or((gap, gap));
            self.gaps = Some((least.min(gap), most.max(gap)));
        }
        self.waits += 1;
        self.behind_first += u64::from(small.first);
    }

    /// Data of one MSS or more leaves, which the rule does not hold.
    pub(crate) fn passed(&mut self) {
        self.released = None;
    }

    /// The flow ends: what was found stands, if it was the rule and not a chance.
    pub(crate) fn end(&self, options: &Options, found: &mut Tallies) {
        // The way of ACK and data takes the same time again and again; a program that thinks does
        // not.
        let vary = |(least, most): (u64, u64)| most > least + least / 2 + options.soon;
        let varies = self.gaps.is_some_and(vary);
        let by_chance = varies || self.rule() == Rule::Off || self.late > 2 * self.waits;
        let round_trips = std::mem::take(found.of(Kind::NagleRoundTrip));
        if by_chance {
            *found.of(Kind::Stall) = Tally::default();
        } else if found.get(Kind::Stall).count > 0 {
            // One cause: the same writes met an ACK that was not delayed.
            found.of(Kind::Stall).join(&round_trips);
        } else {
            *found.of(Kind::NagleRoundTrip) = round_trips;
        }
    }
}
