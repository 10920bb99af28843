//! BBR's measurements: round trips as packets count them, the highest rate of delivery, the least
//! round trip, and the burstiness of ACKs (draft-ietf-ccwg-bbr, "Updating Network Path Model
//! Parameters").

use super::units::is_at_or_after;
use crate::time::{Instant, Nanos};

/// Cycles of ProbeBW that the highest rate is taken from (`MaxBwFilterLen`).
const MAX_BW_FILTER_LEN: usize = 2;

/// How long a round trip counts as the least (`MinRTTFilterLen`).
const MIN_RTT_FILTER_LEN: Nanos = Nanos::from_secs(10);

/// The time without a new least round trip after which BBR probes for one (`ProbeRTTInterval`).
const PROBE_RTT_INTERVAL: Nanos = Nanos::from_secs(5);

/// Rounds that the excess of ACKs is taken from, once the path is full (`ExtraAckedFilterLen`).
const EXTRA_ACKED_FILTER_LEN: usize = 10;

/// Packet-timed round trips: one ends when something is delivered that left after it began.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// `BBR.round_count`.
    count: u32,
    /// `BBR.next_round_delivered`.
    next_delivered: u32,
    /// `BBR.round_start`.
    started: bool,
}

impl Rounds {
    /// An ACK came, of something that left when `prior_delivered` segments had been delivered.
    pub(super) fn on_ack(&mut self, prior_delivered: Option<u32>, delivered: u32) {
        let end = self.next_delivered;
        self.started = prior_delivered.is_some_and(|prior| is_at_or_after(prior, end));
        if self.started {
            self.count = self.count.wrapping_add(1);
            self.begin(delivered);
        }
    }

    /// A round trip begins now, independently of the last one.
    pub(super) fn begin(&mut self, delivered: u32) {
        self.next_delivered = delivered;
    }

    /// Whether this ACK began a round trip.
    pub(super) fn started(&self) -> bool {
        self.started
    }

    /// Round trips so far.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

/// The highest rate of delivery of this cycle of ProbeBW and the one before (`BBR.MaxBwFilter`),
/// in bytes per second.
#[derive(Clone, Debug, Default)]
pub(super) struct MaxBw {
    /// The cycle of now comes last.
    cycles: [u64; MAX_BW_FILTER_LEN],
}

impl MaxBw {
    /// `BBR.max_bw`; zero before the first sample.
    pub(super) fn get(&self) -> u64 {
        self.cycles[0].max(self.cycles[1])
    }

    /// Takes a sample. One that the application limited counts only if it is not lower than the
    /// known rate.
    pub(super) fn on_sample(&mut self, rate: u64, app_limited: bool) {
        if !app_limited || rate >= self.get() {
            self.cycles[1] = self.cycles[1].max(rate);
        }
    }

    /// A cycle has ended. One without a sample does not count.
    pub(super) fn advance(&mut self) {
        if self.cycles[1] > 0 {
            self.cycles = [self.cycles[1], 0];
        }
    }
}

/// The least round trip, and the time of the next probe for one. In nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct MinRtt {
    /// `BBR.min_rtt` and `BBR.min_rtt_stamp`.
    min_rtt: Option<u64>,
    stamp: Instant,
    /// `BBR.probe_rtt_min_delay` and `BBR.probe_rtt_min_stamp`.
    probe_min_delay: Option<u64>,
    probe_min_stamp: Instant,
    /// `BBR.probe_rtt_expired`.
    probe_expired: bool,
}

impl MinRtt {
    /// With the smoothed round trip of before, if there is one.
    pub(super) fn new(now: Instant, srtt: Nanos) -> MinRtt {
        MinRtt {
            min_rtt: Some(srtt.as_nanos()).filter(|&rtt| rtt > 0),
            stamp: now,
            probe_min_delay: None,
            probe_min_stamp: now,
            probe_expired: false,
        }
    }

    /// `BBR.min_rtt`, if there was a sample.
    pub(super) fn get(&self) -> Option<u64> {
        self.min_rtt
    }

    /// Updates the round trip from an ACK.
    pub(super) fn on_ack(&mut self, now: Instant, rtt: Option<Nanos>) {
        self.probe_expired = now.nanos_since(self.probe_min_stamp) > PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt.map(Nanos::as_nanos)
            && (self.probe_expired || self.probe_min_delay.is_none_or(|least| rtt < least))
        {
            self.probe_min_delay = Some(rtt);
            self.probe_min_stamp = now;
        }
        let expired = now.nanos_since(self.stamp) > MIN_RTT_FILTER_LEN;
        let Some(least) = self.probe_min_delay else { return };
        if expired || self.min_rtt.is_none_or(|known| least < known) {
            self.min_rtt = Some(least);
            self.stamp = self.probe_min_stamp;
        }
    }

    /// Whether no round trip as short was measured for so long that BBR should probe for it.
    pub(super) fn is_probe_due(&self) -> bool {
        self.probe_expired
    }

    /// ProbeRTT is over: the next one is due after a whole interval.
    pub(super) fn on_probed(&mut self, now: Instant) {
        self.probe_min_stamp = now;
        self.probe_expired = false;
    }
}

/// The number of segments that ACKs deliver beyond the expected number: receivers and links that
/// hold ACKs back and then send them in a burst would leave the sender without window in between.
#[derive(Clone, Debug)]
pub(super) struct AckAggregation {
    /// `BBR.extra_acked_interval_start`.
    interval_start: Instant,
    /// `BBR.extra_acked_delivered`.
    delivered: u32,
    /// The most of each of the last rounds (`BBR.ExtraACKedFilter`), by round modulo its length.
    rounds: [u32; EXTRA_ACKED_FILTER_LEN],
    /// The round of the newest of them.
    newest: u32,
    /// `BBR.extra_acked`.
    extra: u32,
}

/// The inputs of [`AckAggregation`].
#[derive(Clone, Copy, Debug)]
pub(super) struct AckedView {
    pub(super) now: Instant,
    /// `RS.newly_acked`.
    pub(super) newly_acked: u32,
    /// `BBR.round_count`.
    pub(super) round: u32,
    /// `BBR.full_bw_reached`.
    pub(super) full_bw_reached: bool,
    /// `C.cwnd`, the limit of the count.
    pub(super) cwnd: u32,
}

impl AckAggregation {
    pub(super) fn new(now: Instant) -> AckAggregation {
        AckAggregation {
            interval_start: now,
            delivered: 0,
            rounds: [0; EXTRA_ACKED_FILTER_LEN],
            newest: 0,
            extra: 0,
        }
    }

    /// `BBR.extra_acked` in segments.
    pub(super) fn get(&self) -> u32 {
        self.extra
    }

    /// Data leaves after an idle time, which reveals nothing about ACKs.
    pub(super) fn restart(&mut self, now: Instant) {
        self.interval_start = now;
        self.delivered = 0;
    }

    /// How long the interval has lasted.
    pub(super) fn interval(&self, now: Instant) -> Nanos {
        now.nanos_since(self.interval_start)
    }

    /// An ACK came. The path would have delivered `expected` segments in the
    /// [`interval`](Self::interval).
    pub(super) fn on_ack(&mut self, view: &AckedView, expected: u32) {
        let mut expected = expected;
        if self.delivered <= expected {
            self.restart(view.now);
            expected = 0;
        }
        self.delivered = self.delivered.saturating_add(view.newly_acked);
        let extra = (self.delivered - expected).min(view.cwnd);
        self.forget_rounds_before(view.round);
        let place = view.round as usize % EXTRA_ACKED_FILTER_LEN;
        self.rounds[place] = self.rounds[place].max(extra);
        self.extra = match view.full_bw_reached {
            true => self.rounds.iter().copied().max().unwrap_or(0),
            false => self.rounds[place],
        };
    }

    fn forget_rounds_before(&mut self, round: u32) {
        let passed = round.wrapping_sub(self.newest) as usize;
        for step in 1..=passed.min(EXTRA_ACKED_FILTER_LEN) {
            self.rounds[(self.newest as usize + step) % EXTRA_ACKED_FILTER_LEN] = 0;
        }
        self.newest = round;
    }

    /// Segments have another length from now on: counts are rescaled to the same bytes.
    pub(super) fn rescale(&mut self, rescaled: impl Fn(u32) -> u32) {
        for segs in self.rounds.iter_mut().chain([&mut self.extra, &mut self.delivered]) {
            *segs = rescaled(*segs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn rtt(millis: u64) -> Option<Nanos> {
        Some(Nanos::from_millis(millis))
    }

    #[test]
    fn a_round_ends_when_what_left_after_its_start_is_delivered() {
        let mut rounds = Rounds::default();
        rounds.on_ack(Some(0), 10);
        assert!(rounds.started(), "the first ACK begins the first round");
        rounds.on_ack(Some(9), 12);
        assert!(!rounds.started());
        rounds.on_ack(Some(10), 20);
        assert!(rounds.started());
        rounds.on_ack(None, 20);
        assert!(!rounds.started(), "an ACK that delivers nothing says nothing");
        assert_eq!(rounds.count(), 2);
        rounds.begin(u32::MAX);
        rounds.on_ack(Some(3), 9);
        assert!(rounds.started(), "the sum of what is delivered wraps");
    }

    /// "BBR.max_bw: Estimated Maximum Bandwidth".
    #[test]
    fn the_highest_rate_is_that_of_two_cycles() {
        let mut max_bw = MaxBw::default();
        max_bw.on_sample(100, false);
        max_bw.on_sample(90, false);
        max_bw.on_sample(95, true);
        assert_eq!(max_bw.get(), 100);
        max_bw.on_sample(110, true);
        assert_eq!(max_bw.get(), 110, "the path is as fast, although the application is slow");
        max_bw.advance();
        max_bw.on_sample(50, false);
        assert_eq!(max_bw.get(), 110);
        max_bw.advance();
        assert_eq!(max_bw.get(), 50);
        max_bw.advance();
        assert_eq!(max_bw.get(), 50, "a cycle without a sample says nothing");
    }

    /// "BBR.min_rtt: Estimated Minimum Round-Trip Time".
    #[test]
    fn the_least_round_trip_is_that_of_ten_seconds() {
        let mut min_rtt = MinRtt::new(at(0), Nanos::from_millis(50));
        assert_eq!(min_rtt.get(), Some(50_000_000), "that of the handshake");
        min_rtt.on_ack(at(10), rtt(40));
        min_rtt.on_ack(at(20), rtt(60));
        assert_eq!(min_rtt.get(), Some(40_000_000));
        min_rtt.on_ack(at(5010), rtt(60));
        assert!(!min_rtt.is_probe_due(), "five seconds are not too long");
        min_rtt.on_ack(at(5011), rtt(60));
        assert!(min_rtt.is_probe_due());
        assert_eq!(min_rtt.get(), Some(40_000_000));
        min_rtt.on_probed(at(5300));
        assert!(!min_rtt.is_probe_due());
        min_rtt.on_ack(at(10_011), rtt(70));
        assert_eq!(min_rtt.get(), Some(60_000_000), "the path has become longer");
        let mut unknown = MinRtt::new(at(0), Nanos::ZERO);
        unknown.on_ack(at(1), None);
        assert_eq!(unknown.get(), None);
    }

    fn acked(now: u64, newly_acked: u32, round: u32) -> AckedView {
        AckedView { now: at(now), newly_acked, round, full_bw_reached: true, cwnd: 50 }
    }

    /// "BBR.extra_acked: Estimated Data Volume of ACK Aggregation".
    #[test]
    fn what_acks_deliver_beyond_the_rate_is_remembered_for_ten_rounds() {
        let mut extra = AckAggregation::new(at(0));
        extra.on_ack(&acked(0, 10, 1), 0);
        assert_eq!(extra.get(), 10, "nothing was expected yet");
        extra.on_ack(&acked(5, 10, 1), 5);
        assert_eq!(extra.get(), 15, "20 in the time of 5");
        extra.on_ack(&acked(40, 5, 2), 40);
        assert_eq!(extra.get(), 15, "the interval began again");
        extra.on_ack(&acked(41, 90, 10), 0);
        assert_eq!(extra.get(), 50, "a window at most");
        extra.on_ack(&acked(400, 1, 11), 1000);
        assert_eq!(extra.get(), 50);
        extra.on_ack(&acked(500, 1, 20), 1000);
        assert_eq!(extra.get(), 1, "ten rounds later it is forgotten");
        let early = AckedView { full_bw_reached: false, ..acked(600, 2, 21) };
        extra.on_ack(&early, 1000);
        assert_eq!(extra.get(), 2, "in Startup one round counts");
    }
}
