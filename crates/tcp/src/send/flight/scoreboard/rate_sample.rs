//! The rate at which the path delivers (draft-ietf-ccwg-bbr, section 4.1: delivery rate samples).
//!
//! # Theory of operation
//!
//! When a range leaves, it records the total delivered so far and the time of that ([`SentState`]).
//! Of all ranges that an ACK delivers, the one that left last gives the sample: the amount
//! delivered since then, and the time that took. That is the longer of two times. One is the time
//! in which the data was sent, so that ACKs that come in a burst do not make the path look faster
//! than it is; the other is the time in which it was acknowledged.
//!
//! While the application limits the data in flight, a sample measures the application, not the
//! path: such samples are marked ([`RateSampler::mark_app_limited`]), until all data in flight then
//! has been delivered.
//!
//! No rate is computed here: the caller divides (`Scoreboard::delivery_rate`).
//!
//! All values count wire segments. The draft restarts the clock when nothing is in flight by its
//! estimate; here it restarts when nothing is outstanding, since the estimate is wrong after a
//! spurious timeout, and the interval would be too short.

use plimsoll_buf::Leased;
use plimsoll_wire::SeqNum;

use super::range::{SentRange, SentState, XmitOrder};
use crate::time::{Instant, Nanos};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The path's sample from an ACK (`RS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateSample {
    /// Segments that had been delivered when the newest range left (`RS.prior_delivered`).
    pub(crate) prior_delivered: u32,
    /// Segments delivered since (`RS.delivered`).
    pub(crate) delivered: u32,
    /// The time in which they were (`RS.interval`). None if it is shorter than the least round
    /// trip, and so no measure of the path.
    pub(crate) interval: Option<Nanos>,
    /// The time in which they were sent (`RS.send_elapsed`), and in which they were acknowledged
    /// (`RS.ack_elapsed`).
    pub(crate) send_elapsed: Nanos,
    pub(crate) ack_elapsed: Nanos,
    /// Segments marked lost since the newest range left (`RS.lost`).
    pub(crate) lost: u32,
    /// Segments in flight when it left, with it (`RS.tx_in_flight`).
    pub(crate) tx_in_flight: u32,
    /// The application limited them (`RS.is_app_limited`).
    pub(crate) is_app_limited: bool,
}

impl RateSample {
    /// Bytes per second (`RS.delivery_rate`), with segments of `mss` bytes.
    pub(crate) fn rate(&self, mss: u32) -> Option<u64> {
        rate(self.delivered, self.interval?.as_nanos(), mss)
    }
}

fn rate(delivered: u32, nanos: u64, mss: u32) -> Option<u64> {
    let bytes = u128::from(delivered) * u128::from(mss);
    let rate = (bytes * NANOS_PER_SECOND).checked_div(u128::from(nanos))?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// The rate that TCP_INFO reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measured {
    delivered: u32,
    app_limited: bool,
    nanos: u64,
}

/// The values of an ACK once all its marks are set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckTotals {
    /// The time now.
    pub(crate) now: Instant,
    /// Wire segments delivered so far (`C.delivered`), and how many of them by this ACK.
    pub(crate) delivered: u32,
    pub(crate) newly_delivered: u32,
    /// The least round trip, if there is a sample.
    pub(crate) min_rtt: Option<Nanos>,
}

/// A range that was marked lost, for a controller that requires each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostRange {
    /// First sequence number, and one after the last.
    pub(crate) start: SeqNum,
    pub(crate) end: SeqNum,
    /// Wire segments.
    pub(crate) segs: u32,
    /// When it had left (`P.send_time`).
    pub(crate) sent_at: Instant,
    /// Segments that had been delivered then (`P.delivered`).
    pub(crate) delivered: u32,
    /// Segments marked lost since it left, its own counted (`RS.lost`).
    pub(crate) lost: u32,
    /// Segments in flight when it left, with it (`P.tx_in_flight`).
    pub(crate) tx_in_flight: u32,
    /// The application limited them (`P.is_app_limited`).
    pub(crate) is_app_limited: bool,
}

impl LostRange {
    /// Of a range, when `lost` segments were marked lost, its own counted.
    pub(super) fn new(range: &SentRange, lost: u32) -> LostRange {
        LostRange {
            start: range.start,
            end: range.end,
            segs: range.segs(),
            sent_at: range.sent_at,
            delivered: range.delivered,
            lost: lost.wrapping_sub(range.state.lost),
            tx_in_flight: range.state.tx_in_flight.segs(),
            is_app_limited: range.state.tx_in_flight.is_app_limited(),
        }
    }
}

/// The state per connection (`C`).
#[derive(Debug, Default)]
pub(super) struct RateSampler {
    /// State that only data in flight needs; made with the first departure, and freed when the
    /// connection rests.
    flight: Option<Leased<InFlight>>,
    /// Samples are limited by the application until more than this is delivered (`C.app_limited`).
    app_limited: Option<u32>,
    /// The last rate that was not limited by the application, or a higher one that was.
    measured: Measured,
}

/// State that data in flight needs.
#[derive(Debug, Default)]
struct InFlight {
    /// When the newest delivered range had left (`C.first_send_time`).
    first_sent: Instant,
    /// When something was last delivered (`C.delivered_time`).
    delivered_at: Instant,
    /// Of the ranges delivered since the last sample, the one that left last.
    newest: Option<Newest>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    order: XmitOrder,
    delivered: u32,
    state: SentState,
}

impl RateSampler {
    pub(super) const fn new() -> RateSampler {
        let measured = Measured { delivered: 0, app_limited: false, nanos: 0 };
        RateSampler { flight: None, app_limited: None, measured }
    }

    /// Whether it holds room, be it in use or not.
    pub(super) fn is_leased(&self) -> bool {
        self.flight.is_some()
    }

    /// Bytes of heap held.
    pub(super) fn heap_bytes(&self) -> usize {
        self.flight.as_ref().map_or(0, |_| size_of::<InFlight>())
    }

    /// Nothing is in flight, and nothing will be for a while.
    pub(super) fn release(&mut self) {
        self.flight = None;
    }

    /// Something leaves at `sent_at` while nothing is outstanding: the clock starts.
    pub(super) fn start(&mut self, sent_at: Instant) {
        let flight = self.flight.get_or_insert_default();
        flight.first_sent = sent_at;
        flight.delivered_at = sent_at;
    }

    /// The state to record for a range that leaves at `sent_at`, with which `segs` segments are in
    /// flight after `lost` were lost.
    pub(super) fn state(&self, sent_at: Instant, segs: u32, lost: u32) -> SentState {
        let times = self.flight.as_ref().map_or((sent_at, sent_at, sent_at), |flight| {
            (flight.first_sent, flight.delivered_at, sent_at)
        });
        SentState::new(times, lost, (segs, self.is_app_limited()))
    }

    /// The peer has a range.
    pub(super) fn on_delivered(&mut self, range: &SentRange) {
        let order = range.xmit_order();
        let flight = self.flight.get_or_insert_default();
        if flight.newest.is_none_or(|newest| newest.order < order) {
            let (delivered, state) = (range.delivered, range.state);
            flight.newest = Some(Newest { order, delivered, state });
        }
    }

    /// The application has no more data to send, and nothing else holds back: the data delivered up
    /// to now, `delivered`, and the data in flight measure the application.
    pub(super) fn mark_app_limited(&mut self, delivered: u32, in_flight: u32) {
        self.app_limited = Some(delivered.wrapping_add(in_flight));
    }

    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited.is_some()
    }

    /// The sample of an ACK; none if it delivered no range.
    pub(super) fn on_ack(&mut self, ack: &AckTotals, lost: u32) -> Option<RateSample> {
        if self.app_limited.is_some_and(|end| (ack.delivered.wrapping_sub(end) as i32) > 0) {
            self.app_limited = None;
        }
        let flight = self.flight.as_deref_mut()?;
        if ack.newly_delivered > 0 {
            flight.delivered_at = ack.now;
        }
        let Newest { order, delivered: prior_delivered, state } = flight.newest.take()?;
        flight.first_sent = order.sent_at;
        let since_sent = ack.now.nanos_since(order.sent_at);
        let spans = (state.send_elapsed.nanos(), state.since_delivered.nanos());
        let known = spans.0.is_some() && spans.1.is_some();
        let send_elapsed = Nanos::from_nanos(spans.0.unwrap_or(u64::MAX));
        let ack_elapsed = Nanos::from_nanos(spans.1.unwrap_or_default()) + since_sent;
        let interval = Some(send_elapsed.max(ack_elapsed))
            .filter(|&interval| known && ack.min_rtt.is_some_and(|least| least <= interval));
        let sample = RateSample {
            prior_delivered,
            delivered: ack.delivered.wrapping_sub(prior_delivered),
            interval,
            send_elapsed,
            ack_elapsed,
            lost: lost.wrapping_sub(state.lost),
            tx_in_flight: state.tx_in_flight.segs(),
            is_app_limited: state.tx_in_flight.is_app_limited(),
        };
        self.measure(&sample);
        Some(sample)
    }

    /// A sample that the application limited counts only if it is higher than the last one.
    fn measure(&mut self, sample: &RateSample) {
        let Some(interval) = sample.interval else { return };
        let nanos = interval.as_nanos();
        let last = &self.measured;
        let higher = u128::from(sample.delivered) * u128::from(last.nanos)
            >= u128::from(last.delivered) * u128::from(nanos);
        if !sample.is_app_limited || higher {
            let app_limited = sample.is_app_limited;
            self.measured = Measured { delivered: sample.delivered, app_limited, nanos };
        }
    }

    /// `tcpi_delivery_rate` in bytes per second, zero before the first sample, with segments of
    /// `mss` bytes, and `tcpi_delivery_rate_app_limited`.
    pub(super) fn measured(&self, mss: u32) -> (u64, bool) {
        let Measured { delivered, app_limited, nanos } = self.measured;
        (rate(delivered, nanos, mss).unwrap_or(0), app_limited)
    }
}

#[cfg(test)]
mod tests;
