//! The one place that decides when an acknowledgement leaves.
//!
//! All callers report events to [`DelayedAck`], which returns an [`AckDecision`]. That decision is
//! only recorded. `output/` sends the ACK if no data carried it.
//!
//! The rules are those of RFC 9293, section 3.8.6.3, and RFC 5681, section 4.2, with Linux's
//! figures. An ACK leaves for every second full-sized segment, and at once for any segment out of
//! order. It also leaves at once while the connection is young (the peer is in slow start and needs
//! ACKs). Otherwise it leaves after the ACK timeout (ATO), which follows the gaps between arrivals
//! within 40 ms to 200 ms. The end of a write that was read is acknowledged at once, unless an
//! answer may carry the ACK.
//!
//! One rule is Plimsoll's own: the ACK of a request of several segments that wakes a blocked reader
//! waits for the answer, if earlier answers came quickly ([`READER_DELAY`]). A reader that returns
//! and finds no data has no answer yet: the peer may hold the rest of the request until it has this
//! ACK (Nagle), so the ACK does not wait for the ATO. A task that polls may answer all the same, so
//! its ACK waits for `READER_DELAY`.

use crate::config::{Config, Options};
use crate::context::Context;
use crate::counters::Counter;
use crate::limits::MAX_DUP_ACKS;
use crate::recv::ack_reason::AckReason;
use crate::time::{Instant, Nanos};

/// The time at which the next acknowledgement leaves if no data carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckDecision {
    /// At once.
    Now(AckReason),
    /// At this point (the delayed-ACK timer).
    Delay(Instant),
    /// At this point, together with other duplicate ACKs.
    Compress(Instant),
    /// No acknowledgement is due.
    #[default]
    None,
}

/// Whether a thread or task waits for data to read. The ACK of data for such a reader may wait for
/// the reader's next call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reader {
    /// No thread waits.
    #[default]
    Absent,
    /// A thread that only waits: if it then finds nothing to read, it has no answer yet.
    Waiting,
    /// A task that has left a waker. It may read until it finds nothing, and answer after that.
    Polling,
}

/// Segments that are acknowledged at once when a connection is young (Linux: `TCP_MAX_QUICKACKS`).
const MAX_QUICK_ACKS: u8 = 16;

/// The time allowed for the answer of a reader that was woken by a whole request: much longer than
/// a wake-up and a short computation, and much shorter than a noticeable stall.
pub(crate) const READER_DELAY: Nanos = Nanos::from_micros(500);

/// ACKs that may be left to readers that do not answer in time, before this is no longer done.
const MAX_UNANSWERED: u8 = 2;

/// Duplicate ACKs after which a sender takes a segment for lost (RFC 5681, section 3.2).
const FIRST_DUPLICATES: u16 = 3;

/// The value of `tcp_pingpong` with which ACKs of more than a segment are not left to the reader.
const LIKE_LINUX: u8 = 2;

/// How long the ACK of a FIN waits if no data came before it (Linux: until the next tick).
const FIN_ALONE_DELAY: Nanos = Nanos::from_millis(1);

/// The effect of an arrived in-order data segment on the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Bytes that are received and not acknowledged.
    pub(super) unacked: u32,
    pub(super) rcv_mss: u32,
    /// The window that we offer, in bytes.
    pub(super) window: u32,
    /// It was one segment, full and with PSH: probably the end of a write.
    pub(super) full_push: bool,
    /// The waiting reader, if the segment had PSH and satisfies its read.
    pub(super) wakes: Reader,
    /// Whether the segment filled a hole, fully or in part, or holes remain.
    pub(super) hole: bool,
    /// It ended beyond the window that was offered.
    pub(super) overruns: bool,
    /// Our retransmission timeout: a longer gap resets the estimate of the peer's rhythm.
    pub(super) rto: Nanos,
}

/// The state behind the decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayedAck {
    decision: AckDecision,
    /// Duplicate ACKs to be sent one by one.
    dup_acks: u16,
    /// ACKs that leave at once before delaying begins.
    quick: u8,
    /// No ACK is ever delayed, because of the route.
    always: bool,
    /// The application answers received data: delaying pays.
    pingpong: bool,
    /// The ACK timeout; zero until the first data arrives.
    ato_micros: u32,
    last_data: Instant,
    /// Duplicate ACKs since RCV.NXT last moved, as far as they matter.
    dup_run: u8,
    /// Out-of-order segments since the last ACK that required none of their own.
    compressed: u8,
    /// A full segment that ended a write came and was to be acknowledged at once.
    pushed: bool,
    /// Writes of the peer that ended since the last ACK, as far as they matter.
    pushes: u8,
    /// The woken reader to which the ACK is left, if it is.
    left: Reader,
    /// The ACK waits for `READER_DELAY`, not for the ATO.
    short: bool,
    /// Consecutive ACKs that were left to a reader that did not answer in time.
    unanswered: u8,
}

/// The state in which an out-of-order segment arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disorder {
    /// SACK is in use: one ACK can report many segments.
    pub(super) sack: bool,
    /// The shorter of the round trips that sender and receiver have measured; zero if neither has.
    pub(super) rtt: Nanos,
    /// Two other ranges have grown last. The next one leaves no place for the third of them in an
    /// ACK with timestamps.
    pub(super) third: bool,
}

impl DelayedAck {
    /// TCP_QUICKACK may have been set before the open.
    pub(crate) fn new(config: &Config, options: &Options) -> DelayedAck {
        // A reader is not relied on before it has answered in time, even with TCP_QUICKACK.
        let (always, unanswered) = (options.route.quickack, MAX_UNANSWERED);
        let mut acks = DelayedAck { always, unanswered, ..DelayedAck::default() };
        if let Some(quick) = options.quickack {
            acks.set_quick(quick, config);
        }
        acks
    }

    /// The last decision.
    pub(crate) fn decision(&self) -> AckDecision {
        self.decision
    }

    /// Duplicate ACKs that wait to leave one by one.
    pub(super) fn duplicates(&self) -> u16 {
        self.dup_acks
    }

    /// Whether a duplicate ACK waits that the peer must be able to count.
    pub(super) fn owes_duplicate(&self) -> bool {
        self.dup_acks > 0
    }

    /// Whether the peer waits for one of the duplicates that it needs to see a loss (RFC 5681,
    /// section 3.2).
    pub(crate) fn owes_first_duplicates(&self) -> bool {
        self.dup_acks > 0 && u16::from(self.dup_run) < self.dup_acks + FIRST_DUPLICATES
    }

    /// Whether the ACK that is due is that of a full segment that ended a write.
    pub(crate) fn owes_push(&self) -> bool {
        self.pushed
    }

    /// Until when the ACK waits, if one does.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        match self.decision {
            AckDecision::Delay(at) | AckDecision::Compress(at) => Some(at),
            AckDecision::Now(_) | AckDecision::None => None,
        }
    }

    /// The ACK timeout as it is now.
    pub(crate) fn ato(&self) -> Nanos {
        Nanos::from_micros(self.ato_micros.into())
    }

    /// A timeout is only zero if it is exactly that.
    fn set_ato(&mut self, ato: Nanos) {
        let micros = u32::try_from(ato.as_nanos().div_ceil(1000));
        self.ato_micros = micros.unwrap_or(u32::MAX);
    }

    /// Nothing is to be acknowledged any more.
    pub(crate) fn reset(&mut self) {
        self.decision = AckDecision::None;
        self.dup_acks = 0;
    }

    /// Why an ACK leaves now, if one does.
    pub(crate) fn due(&self, now: Instant) -> Option<AckReason> {
        if self.dup_acks > 0 {
            return Some(AckReason::OutOfOrder);
        }
        match self.decision {
            AckDecision::Now(reason) => Some(reason),
            AckDecision::Delay(at) | AckDecision::Compress(at) if at <= now => {
                Some(AckReason::Timer)
            }
            _ => None,
        }
    }

    /// An in-order data segment arrived.
    pub(crate) fn on_data(&mut self, now: Instant, config: &Config, arrival: Arrival) {
        self.pingpong &= config.tcp_pingpong > 0;
        self.measure(now, config, arrival);
        // Duplicates that have not left would repeat an acknowledgement that is new.
        (self.dup_acks, self.dup_run) = (0, 0);
        self.pushed = arrival.full_push && self.is_quick();
        let more_than_one = arrival.unacked > arrival.rcv_mss;
        if arrival.hole {
            self.now(AckReason::HoleFilled);
        } else if config.tcp_pingpong < LIKE_LINUX && self.may_leave(arrival) {
            self.leave_to_reader(now, config, arrival.wakes, more_than_one);
        } else if arrival.overruns {
            // The ACK would close the window, which the reader may open within this time.
            self.delay(now, config);
        } else if more_than_one {
            self.now(AckReason::SecondSegment);
        } else if self.is_quick() {
            self.now(AckReason::Quick);
        } else {
            self.delay(now, config);
        }
    }

    /// Whether the ACK may be left to the answer of the woken reader. This must not apply to a pure
    /// receiver, nor to a peer that needs the ACK to continue sending: up to a quarter of the
    /// window may be left, and only while answers come in time.
    fn may_leave(&self, arrival: Arrival) -> bool {
        let offered = arrival.window.saturating_add(arrival.unacked);
        arrival.wakes != Reader::Absent
            && self.pingpong
            && !self.always
            && self.unanswered < MAX_UNANSWERED
            && arrival.unacked <= offered / 4
    }

    /// Removes the reasons within this batch of segments that arriving data caused; other reasons
    /// remain.
    fn leave_to_reader(
        &mut self,
        now: Instant,
        config: &Config,
        reader: Reader,
        more_than_one: bool,
    ) {
        if matches!(self.decision, AckDecision::Now(AckReason::SecondSegment | AckReason::Quick)) {
            self.decision = AckDecision::None;
        }
        // One segment waits for the answer as long as on Linux.
        self.delay(now, config);
        if more_than_one {
            self.shorten(now);
        }
        self.left = reader;
    }

    /// Whether the ACK is left to a reader.
    fn is_left(&self) -> bool {
        self.left != Reader::Absent
    }

    /// An ACK that waits does not wait for longer than `READER_DELAY`.
    fn shorten(&mut self, now: Instant) {
        if let AckDecision::Delay(at) = self.decision {
            self.decision = AckDecision::Delay(at.min(now + READER_DELAY));
            self.short = true;
        }
    }

    /// Adapts the ATO to the gap since the data before.
    fn measure(&mut self, now: Instant, config: &Config, arrival: Arrival) {
        let min = Nanos::from(config.tcp_delack_min);
        if self.ato().is_zero() {
            self.enter_quick(arrival.window, arrival.rcv_mss);
            self.set_ato(min);
        } else {
            let gap = now.nanos_since(self.last_data);
            if gap <= min / 2 {
                self.set_ato(self.ato() / 2 + min / 2);
            } else if gap < self.ato() {
                self.set_ato((self.ato() / 2 + gap).min(arrival.rto));
            } else if gap > arrival.rto {
                // The peer starts slowly again after such a pause, and needs ACKs.
                self.enter_quick(arrival.window, arrival.rcv_mss);
            }
        }
        self.last_data = now;
    }

    /// The next segments are acknowledged at once, as many as half the window holds, within limits.
    pub(crate) fn enter_quick(&mut self, window: u32, rcv_mss: u32) {
        let segs = (window / (2 * rcv_mss.max(1))).clamp(2, u32::from(MAX_QUICK_ACKS));
        self.quick = self.quick.max(segs as u8);
    }

    /// At least the next `segs` segments are acknowledged at once.
    pub(crate) fn at_least_quick(&mut self, segs: u8) {
        self.quick = self.quick.max(segs);
        self.pingpong = false;
        self.set_ato(Nanos::ZERO);
    }

    fn is_quick(&self) -> bool {
        self.always || (self.quick > 0 && !self.pingpong)
    }

    /// The peer's FIN is here and we have not sent ours: as on Linux its ACK waits a little,
    /// because most applications close when they see it, and our FIN then takes the ACK along.
    pub(crate) fn on_fin(&mut self, config: &Config) {
        self.pingpong = config.tcp_pingpong > 0;
    }

    /// The FIN reported by [`on_fin`](Self::on_fin) has been accepted. It counts as a byte.
    pub(crate) fn delay_fin(&mut self, now: Instant, config: &Config, more_than_one: bool) {
        if more_than_one {
            self.now(AckReason::SecondSegment);
        } else if self.always {
            self.now(AckReason::Quick);
        } else if self.ato().is_zero() && self.decision == AckDecision::None {
            // There was no data whose rhythm would give a delay.
            self.decision = AckDecision::Delay(now + FIN_ALONE_DELAY);
        } else {
            self.delay(now, config);
        }
    }

    /// A segment arrived out of order or twice: the peer must be able to count the answer.
    pub(crate) fn on_out_of_order(&mut self) {
        self.dup_acks = self.dup_acks.saturating_add(1).min(MAX_DUP_ACKS);
        self.dup_run = self.dup_run.saturating_add(1);
        self.now(AckReason::OutOfOrder);
    }

    /// Data arrived that is not next: the peer counts duplicates until it detects a loss. After
    /// that, with SACK, one ACK after a moment reports as much as many (Linux: compressed ACKs), as
    /// long as the blocks of one ACK have room for all ranges that have grown.
    pub(crate) fn on_disorder(&mut self, now: Instant, config: &Config, disorder: Disorder) {
        let share = disorder.rtt * config.tcp_comp_sack_rtt_percent / 100;
        let delay = share.min(Nanos::from(config.tcp_comp_sack_delay));
        let compresses = disorder.sack
            && !self.is_quick()
            && u16::from(self.dup_run) >= FIRST_DUPLICATES
            && self.compressed < config.tcp_comp_sack_nr
            && !(disorder.third && self.compressed > 0)
            && !delay.is_zero();
        if !compresses {
            return self.on_out_of_order();
        }
        self.dup_run = self.dup_run.saturating_add(1);
        self.compressed += 1;
        self.decision = match self.decision {
            AckDecision::Now(reason) => AckDecision::Now(reason),
            AckDecision::Compress(at) => AckDecision::Compress(at),
            AckDecision::Delay(at) => AckDecision::Compress(at.min(now + delay)),
            AckDecision::None => AckDecision::Compress(now + delay),
        };
    }

    /// Another event requires an ACK at once.
    pub(crate) fn now(&mut self, reason: AckReason) {
        if !matches!(self.decision, AckDecision::Now(_)) {
            self.decision = AckDecision::Now(reason);
        }
    }

    fn delay(&mut self, now: Instant, config: &Config) {
        // Not `clamp`: the order of the two settings is not checked.
        let timeout = self
            .ato()
            .max(Nanos::from(config.tcp_delack_min))
            .min(Nanos::from(config.tcp_delack_max));
        let at = now + timeout;
        self.decision = match self.decision {
            AckDecision::Now(reason) => AckDecision::Now(reason),
            AckDecision::Delay(earlier) => AckDecision::Delay(earlier.min(at)),
            AckDecision::Compress(_) | AckDecision::None => AckDecision::Delay(at),
        };
    }

    /// The handshake is complete, and data that is about to leave takes its ACK along.
    pub(crate) fn wait_for_data(&mut self, now: Instant, config: &Config) {
        self.quick = MAX_QUICK_ACKS;
        self.pingpong = false;
        self.set_ato(Nanos::from(config.tcp_delack_min));
        self.last_data = now;
        self.decision = AckDecision::Delay(now + Nanos::from(config.tcp_delack_max));
    }

    /// The application took data out.
    pub(crate) fn on_read(&mut self, unacked: u32, rcv_mss: u32, drained: bool) {
        let scheduled = matches!(self.decision, AckDecision::Delay(_));
        // A write that came after the reader was woken does not wait for the reader's answer.
        if !scheduled || (self.is_left() && self.pushes <= 1) {
            return;
        }
        // The peer's writer may wait for the ACK of pushed data; an answer would carry it.
        let pushed = self.pushes > 1 || (self.pushes > 0 && !self.pingpong);
        if unacked > rcv_mss {
            self.now(AckReason::SecondSegment);
        } else if drained && unacked > 0 && pushed {
            self.now(AckReason::Drained);
        }
    }

    /// The application tried to read and found nothing, while `unacked` bytes are unacknowledged. A
    /// blocking reader that was woken for them sleeps again, so there is no answer. Other readers
    /// may be in a loop that reads until no data is left and answers then, as tasks do that check
    /// for the end of the stream; they get a little time for it.
    pub(crate) fn on_empty_read(&mut self, now: Instant, unacked: u32) {
        if !matches!(self.decision, AckDecision::Delay(_)) || unacked == 0 {
            return;
        }
        match self.left {
            Reader::Waiting => {
                self.unanswered = self.unanswered.saturating_add(u8::from(self.short));
                self.now(AckReason::NoAnswer);
            }
            Reader::Polling => self.shorten(now),
            Reader::Absent if self.pushes > 0 => self.shorten(now),
            Reader::Absent => {}
        }
    }

    /// A segment with data ended a write, as far as one can see (as on Linux): it
    /// was short, or full and had PSH.
    pub(crate) fn on_push(&mut self, short: bool) {
        self.pushes = if short { self.pushes.saturating_add(1) } else { self.pushes.max(1) };
    }

    /// An acknowledgement left.
    pub(crate) fn on_sent(&mut self, cx: &Context) {
        // Only ACKs with new information help a peer in slow start.
        if self.decision != AckDecision::None {
            self.quick = self.quick.saturating_sub(1);
        }
        if self.compressed > 0 {
            cx.counters.add(Counter::TcpAckCompressed, self.compressed.into());
        }
        self.compressed = 0;
        self.pushes = 0;
        (self.pushed, self.left, self.short) = (false, Reader::Absent, false);
        self.dup_acks = self.dup_acks.saturating_sub(1);
        // A waiting duplicate keeps its reason, so that the next one leaves too.
        if self.dup_acks == 0 {
            self.decision = AckDecision::None;
        }
    }

    /// Data left.
    pub(crate) fn on_data_sent(&mut self, now: Instant, config: &Config) {
        let since = now.nanos_since(self.last_data);
        if !self.ato().is_zero() && since < self.ato() {
            self.pingpong = config.tcp_pingpong > 0;
        }
        if since <= READER_DELAY {
            self.unanswered = 0;
        }
    }

    /// The delayed-ACK timer fired.
    pub(crate) fn on_timeout(&mut self, cx: &Context) {
        match self.decision {
            AckDecision::Delay(_) => {}
            AckDecision::Compress(_) => {
                // This ACK leaves after all.
                self.compressed = self.compressed.saturating_sub(1);
                self.decision = AckDecision::Now(AckReason::Timer);
                return;
            }
            AckDecision::Now(_) | AckDecision::None => return,
        }
        cx.counters.bump(match self.short {
            true => Counter::AckReaderLate,
            false => Counter::DelayedAcks,
        });
        if self.short {
            // An application that computes for a millisecond is interactive all the same, and its
            // rhythm reveals nothing about the ATO. If it often takes this long, no more ACKs are
            // left to it until it is quicker again.
            self.unanswered = self.unanswered.saturating_add(u8::from(self.is_left()));
        } else if self.pingpong {
            // The application did not answer in time: no longer interactive.
            self.pingpong = false;
            self.set_ato(Nanos::from(cx.config.tcp_delack_min));
        } else {
            self.set_ato((self.ato() * 2).min(Nanos::from(cx.config.tcp_delack_max)));
        }
        self.decision = AckDecision::Now(AckReason::Timer);
    }

    /// TCP_QUICKACK.
    pub(crate) fn set_quick(&mut self, quick: bool, config: &Config) {
        self.pingpong = !quick && config.tcp_pingpong > 0;
        if quick {
            self.quick = MAX_QUICK_ACKS;
            if matches!(self.decision, AckDecision::Delay(_)) {
                self.decision = AckDecision::Now(AckReason::Quick);
            }
        } else if config.tcp_pingpong == 0 {
            // Nothing else keeps ACKs from being quick.
            self.quick = 0;
        }
    }
}

#[cfg(test)]
mod tests;
