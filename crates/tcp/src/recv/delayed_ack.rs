//! The one place where it is decided when an acknowledgement leaves.
//!
//! Every room tells [`DelayedAck`] what happened; it answers with an [`AckDecision`], which is only
//! recorded. `output/` sends the ACK if no data took it along.
//!
//! The rules are those of RFC 9293, section 3.8.6.3, and RFC 5681, section 4.2, with Linux's
//! figures: an ACK for every second full-sized segment, at once for anything out of order, at once
//! while the connection is young (the peer is in slow start and counts on ACKs), else after the ACK
//! timeout (ATO), which follows the gaps between arrivals within 40 ms to 200 ms.

use crate::config::{Config, Options};
use crate::connection::Context;
use crate::counters::Counter;
use crate::limits::MAX_DUP_ACKS;
use crate::time::{Duration, Instant};

/// When the next acknowledgement leaves if no data takes it along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckDecision {
    /// At once.
    Now(AckReason),
    /// At this point (the delayed-ACK timer).
    Delay(Instant),
    /// At this point, together with other duplicate ACKs.
    Compress(Instant),
    /// Nothing is to be acknowledged.
    #[default]
    None,
}

/// Why an acknowledgement leaves at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckReason {
    /// More than one full-sized segment is unacknowledged.
    SecondSegment,
    /// The connection is young or asked for it (TCP_QUICKACK).
    Quick,
    /// A segment arrived out of order, or twice.
    OutOfOrder,
    /// A segment filled a hole.
    HoleFilled,
    /// The peer's FIN.
    Fin,
    /// The ACK that ends the handshake.
    Handshake,
    /// Reading opened the window.
    WindowUpdate,
    /// The segment was outside of the window.
    Unacceptable,
    /// The delayed-ACK timer fired.
    Timer,
    /// The peer says that it has reduced its congestion window.
    Congestion,
}

impl AckReason {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            AckReason::SecondSegment => "more than one full segment is unacknowledged",
            AckReason::Quick => "quick, the connection is young or asks for it",
            AckReason::OutOfOrder => "out of order, or twice",
            AckReason::HoleFilled => "a hole was filled",
            AckReason::Fin => "the peer's FIN",
            AckReason::Handshake => "the end of the handshake",
            AckReason::WindowUpdate => "reading opened the window",
            AckReason::Unacceptable => "the segment was outside of the window",
            AckReason::Timer => "the delay has passed",
            AckReason::Congestion => "the peer has reduced its congestion window",
        }
    }
}

/// Segments that are acknowledged at once when a connection is young (Linux: `TCP_MAX_QUICKACKS`).
const MAX_QUICK_ACKS: u8 = 16;

/// Duplicate ACKs after which a sender takes a segment for lost (RFC 5681, section 3.2).
const FIRST_DUPLICATES: u16 = 3;

/// How long the ACK of a FIN waits if no data came before it (Linux: until the next tick).
const FIN_ALONE_DELAY: Duration = Duration::from_millis(1);

/// What an arrived in-order data segment means for the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Bytes that are received and not acknowledged.
    pub(crate) unacked: u32,
    pub(crate) rcv_mss: u32,
    /// The window that we offer, in bytes.
    pub(crate) window: u32,
    /// It was one segment, full and with PSH: probably the end of a write.
    pub(crate) full_push: bool,
    /// Whether the segment filled a hole, wholly or in part, or holes remain.
    pub(crate) hole: bool,
    /// Our retransmission timeout: a longer gap ends what was learnt of the peer's rhythm.
    pub(crate) rto: Duration,
}

/// The state behind the decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayedAck {
    decision: AckDecision,
    /// Duplicate ACKs to be sent one by one.
    pub(crate) dup_acks: u16,
    /// ACKs that leave at once before delaying begins.
    quick: u8,
    /// Nothing is ever delayed: the route says so.
    always: bool,
    /// The application answers what it receives: delaying pays.
    pingpong: bool,
    /// Zero until the first data arrives.
    ato: Duration,
    last_data: Instant,
    /// Duplicate ACKs since RCV.NXT last moved, as far as they matter.
    dup_run: u8,
    /// A full segment that ended a write came and was to be acknowledged at once.
    pushed: bool,
}

impl DelayedAck {
    /// TCP_QUICKACK may have been set before the open.
    pub(crate) fn new(config: &Config, options: &Options) -> DelayedAck {
        let mut acks = DelayedAck { always: options.route_quickack, ..DelayedAck::default() };
        if let Some(quick) = options.quickack {
            acks.set_quick(quick, config);
        }
        acks
    }

    /// What was decided last.
    pub(crate) fn decision(&self) -> AckDecision {
        self.decision
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
    pub(crate) fn deferred(&self) -> Option<Instant> {
        match self.decision {
            AckDecision::Delay(at) | AckDecision::Compress(at) => Some(at),
            AckDecision::Now(_) | AckDecision::None => None,
        }
    }

    /// The ACK timeout as it is now.
    pub(crate) fn ato(&self) -> Duration {
        self.ato
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
        self.pingpong &= config.tcp_pingpong;
        self.measure(now, config, arrival);
        self.dup_run = 0;
        self.pushed = arrival.full_push && self.is_quick();
        let more_than_one = arrival.unacked > arrival.rcv_mss;
        if arrival.hole {
            self.now(AckReason::HoleFilled);
        } else if more_than_one {
            self.now(AckReason::SecondSegment);
        } else if self.is_quick() {
            self.now(AckReason::Quick);
        } else {
            self.delay(now, config);
        }
    }

    /// Adapts the ATO to the gap since the data before.
    fn measure(&mut self, now: Instant, config: &Config, arrival: Arrival) {
        let min = config.tcp_delack_min;
        if self.ato.is_zero() {
            self.enter_quick(arrival.window, arrival.rcv_mss);
            self.ato = min;
        } else {
            let gap = now.since(self.last_data);
            if gap <= min / 2 {
                self.ato = self.ato / 2 + min / 2;
            } else if gap < self.ato {
                self.ato = (self.ato / 2 + gap).min(arrival.rto);
            } else if gap > arrival.rto {
                // The peer starts slowly again after such a pause, and counts on ACKs.
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
        self.ato = Duration::ZERO;
    }

    fn is_quick(&self) -> bool {
        self.always || (self.quick > 0 && !self.pingpong)
    }

    /// The peer's FIN is here and we have not sent ours: as on Linux its ACK waits a little,
    /// because most applications close when they see it, and our FIN then takes the ACK along.
    pub(crate) fn on_fin(&mut self, config: &Config) {
        self.pingpong = config.tcp_pingpong;
    }

    /// The FIN that [`on_fin`](Self::on_fin) told of has been taken. It counts as a byte.
    pub(crate) fn delay_fin(&mut self, now: Instant, config: &Config, more_than_one: bool) {
        if more_than_one {
            self.now(AckReason::SecondSegment);
        } else if self.always {
            self.now(AckReason::Quick);
        } else if self.ato.is_zero() && self.decision == AckDecision::None {
            // There was no data, whose rhythm would say how long.
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

    /// Something else wants an answer at once.
    pub(crate) fn now(&mut self, reason: AckReason) {
        if !matches!(self.decision, AckDecision::Now(_)) {
            self.decision = AckDecision::Now(reason);
        }
    }

    fn delay(&mut self, now: Instant, config: &Config) {
        // Not `clamp`: nobody keeps the two settings in order.
        let timeout = self.ato.max(config.tcp_delack_min).min(config.tcp_delack_max);
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
        self.ato = config.tcp_delack_min;
        self.last_data = now;
        self.decision = AckDecision::Delay(now + config.tcp_delack_max);
    }

    /// The application took data out.
    pub(crate) fn on_read(&mut self, unacked: u32, rcv_mss: u32, drained: bool) {
        let scheduled = matches!(self.decision, AckDecision::Delay(_));
        if scheduled && (unacked > rcv_mss || (drained && unacked > 0 && self.is_quick())) {
            self.now(AckReason::SecondSegment);
        }
    }

    /// An acknowledgement left.
    pub(crate) fn on_sent(&mut self) {
        self.quick = self.quick.saturating_sub(1);
        self.pushed = false;
        self.dup_acks = self.dup_acks.saturating_sub(1);
        // A waiting duplicate keeps its reason, so that the next one leaves too.
        if self.dup_acks == 0 {
            self.decision = AckDecision::None;
        }
    }

    /// Data left.
    pub(crate) fn on_data_sent(&mut self, now: Instant, config: &Config) {
        if !self.ato.is_zero() && now.since(self.last_data) < self.ato {
            self.pingpong = config.tcp_pingpong;
        }
    }

    /// The delayed-ACK timer fired.
    pub(crate) fn on_timeout(&mut self, cx: &Context) {
        if !matches!(self.decision, AckDecision::Delay(_) | AckDecision::Compress(_)) {
            return;
        }
        if self.pingpong {
            // The application did not answer in time: no longer interactive.
            self.pingpong = false;
            self.ato = cx.config.tcp_delack_min;
        } else {
            self.ato = (self.ato * 2).min(cx.config.tcp_delack_max);
        }
        cx.counters.bump(Counter::DelayedAcks);
        self.decision = AckDecision::Now(AckReason::Timer);
    }

    /// TCP_QUICKACK.
    pub(crate) fn set_quick(&mut self, quick: bool, config: &Config) {
        self.pingpong = !quick && config.tcp_pingpong;
        if quick {
            self.quick = MAX_QUICK_ACKS;
            if matches!(self.decision, AckDecision::Delay(_)) {
                self.decision = AckDecision::Now(AckReason::Quick);
            }
        } else {
            self.quick = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn arrival(unacked: u32) -> Arrival {
        Arrival {
            unacked,
            rcv_mss: MSS,
            window: 65_535,
            full_push: false,
            hole: false,
            rto: Duration::from_millis(300),
        }
    }

    fn settled() -> DelayedAck {
        DelayedAck { ato: Config::default().tcp_delack_min, ..DelayedAck::default() }
    }

    #[test]
    fn young_connections_are_answered_at_once() {
        let mut acks = DelayedAck::default();
        for _ in 0..MAX_QUICK_ACKS {
            acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
            assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
            acks.on_sent();
            assert_eq!(acks.decision(), AckDecision::None);
        }
        acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
        assert!(matches!(acks.decision(), AckDecision::Delay(_)));
    }

    #[test]
    fn decisions_on_data() {
        let cases = [
            (arrival(10), "small: delayed", None),
            (arrival(MSS), "one segment: delayed", None),
            (arrival(MSS + 1), "more than one: now", Some(AckReason::SecondSegment)),
            (Arrival { hole: true, ..arrival(1) }, "hole: now", Some(AckReason::HoleFilled)),
        ];
        for (arrival, name, expected) in cases {
            let mut acks = settled();
            acks.on_data(Instant::ZERO, &Config::default(), arrival);
            assert_eq!(acks.due(Instant::ZERO), expected, "{name}");
        }
    }

    #[test]
    fn duplicates_are_counted_one_by_one() {
        let mut acks = settled();
        acks.on_out_of_order();
        acks.on_out_of_order();
        acks.on_sent();
        assert_eq!(acks.due(Instant::ZERO), Some(AckReason::OutOfOrder));
        acks.on_sent();
        assert_eq!(acks.due(Instant::ZERO), None);
    }

    #[test]
    fn a_delay_keeps_the_earlier_deadline() {
        let mut acks = settled();
        acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
        acks.on_data(Instant::from_millis(30), &Config::default(), arrival(20));
        assert_eq!(acks.decision(), AckDecision::Delay(Instant::from_millis(40)));
        assert_eq!(acks.due(Instant::from_millis(40)), Some(AckReason::Timer));
    }

    #[test]
    fn a_changed_setting_counts_at_once() {
        let mut acks = settled();
        let millis = Duration::from_millis(5);
        let config = Config { tcp_delack_min: millis, tcp_delack_max: millis, ..Config::default() };
        acks.on_data(Instant::ZERO, &config, arrival(10));
        assert_eq!(acks.decision(), AckDecision::Delay(Instant::from_millis(5)));
    }

    #[test]
    fn answering_makes_it_interactive_and_stops_quick_acks() {
        let mut acks = DelayedAck::default();
        acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
        acks.on_data_sent(Instant::ZERO, &Config::default());
        acks.on_sent();
        acks.on_data(Instant::from_millis(1), &Config::default(), arrival(10));
        assert!(matches!(acks.decision(), AckDecision::Delay(_)));
        acks.set_quick(true, &Config::default());
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
    }

    #[test]
    fn a_route_may_ask_for_quick_acks_for_ever() {
        let options = Options { route_quickack: true, ..Options::default() };
        let mut acks = DelayedAck::new(&Config::default(), &options);
        acks.set_quick(false, &Config::default());
        for _ in 0..100 {
            acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
            assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
            acks.on_data_sent(Instant::ZERO, &Config::default());
            acks.on_sent();
        }
        acks.on_fin(&Config::default());
        acks.delay_fin(Instant::ZERO, &Config::default(), false);
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
    }

    #[test]
    fn interactive_mode_can_be_switched_off() {
        let config = Config { tcp_pingpong: false, ..Config::default() };
        let mut acks = DelayedAck::default();
        acks.on_data(Instant::ZERO, &config, arrival(10));
        acks.on_data_sent(Instant::ZERO, &config);
        acks.on_sent();
        acks.on_data(Instant::ZERO, &config, arrival(10));
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
    }

    #[test]
    fn reading_makes_a_waiting_ack_due() {
        let mut acks = settled();
        acks.on_data(Instant::ZERO, &Config::default(), arrival(10));
        acks.on_read(10, MSS, true);
        assert!(matches!(acks.decision(), AckDecision::Delay(_)));
        acks.on_read(MSS + 1, MSS, false);
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::SecondSegment));
    }

    #[test]
    fn after_a_pause_the_peer_is_answered_at_once_again() {
        let config = Config::default();
        let mut acks = settled();
        acks.on_data(Instant::ZERO, &config, arrival(10));
        assert!(matches!(acks.decision(), AckDecision::Delay(_)));
        acks.on_sent();
        acks.on_data(Instant::from_millis(299), &config, arrival(10));
        assert!(matches!(acks.decision(), AckDecision::Delay(_)), "no pause");
        acks.on_sent();
        acks.on_data(Instant::from_millis(600), &config, arrival(10));
        assert_eq!(acks.decision(), AckDecision::Now(AckReason::Quick));
    }
}
