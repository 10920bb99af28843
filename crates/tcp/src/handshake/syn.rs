//! The state of a handshake's SYN or SYN-ACK: its retransmission, and the round trip of its answer.

use plimsoll_wire::tcp::TcpFlags;

use super::{Handshake, INITIAL_RTO, TimestampState};
use crate::config::Config;
use crate::segment::Segment;
use crate::send::flight::time_of_timeouts;
use crate::state::State;
use crate::time::{Instant, Nanos};

/// The first timeouts of an active open do not double (Linux: tcp_syn_linear_timeouts), nor do they
/// count against the limit.
pub(super) fn linear_timeouts(state: State, config: &Config) -> u8 {
    if state == State::SynSent { config.tcp_syn_linear_timeouts } else { 0 }
}

impl Handshake {
    /// Whether the peer began the open.
    pub(crate) fn is_passive(&self) -> bool {
        self.passive
    }

    /// Whether an application has taken it from the queue of its listener.
    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// The timeout of the SYN or SYN-ACK, `most` at most.
    pub(super) fn rto(&self, state: State, config: &Config, most: Nanos) -> Nanos {
        let doublings = self.retries.saturating_sub(linear_timeouts(state, config));
        let factor = 1_u32 << u32::from(doublings).min(16);
        (INITIAL_RTO * factor).min(most)
    }

    /// As on Linux, an active open ends at the latest after the time that `retries` doubling
    /// timeouts of `most` at most take, also if not all of them double.
    pub(super) fn takes_too_long(&self, now: Instant, retries: u8, most: Nanos) -> bool {
        let limit = || time_of_timeouts(INITIAL_RTO, retries, most);
        self.retries > 0 && now.nanos_since(self.started) >= limit()
    }

    /// Whether the listener waits for data first (TCP_DEFER_ACCEPT), for `timeouts`, and `seg` has
    /// none. A connection that a SYN cookie opened does not wait: it has no SYN-ACK whose timer
    /// would end the wait.
    pub(super) fn defers(&self, seg: &Segment, timeouts: u8) -> bool {
        self.passive
            && self.sent > 0
            && self.retries < timeouts
            && seg.payload.is_empty()
            && !seg.repr.flags.contains(TcpFlags::FIN)
    }

    /// Whether the SYN-ACK need not leave again: its ACK is here, and only data is awaited, for
    /// `timeouts`. The last time before that ends it does leave, so that the peer answers.
    pub(super) fn awaits_data_only(&self, timeouts: u8) -> bool {
        self.deferred && self.retries < timeouts.saturating_sub(1)
    }

    /// The round trip measured by the answer `seg`, unless it is ambiguous (Karn): we answered
    /// twice because of the timer or a repeated SYN of the peer, or our SYN-ACK `crossed` the one
    /// that acknowledges our SYN.
    pub(super) fn round_trip(
        &self,
        now: Instant,
        ts: &TimestampState,
        (seg, crossed): (&Segment, bool),
    ) -> Option<Nanos> {
        if self.sent == 1 && !crossed {
            return Some(now.nanos_since(self.sent_at));
        }
        let echo = seg.repr.options.timestamps.filter(|_| ts.enabled)?;
        Some(ts.elapsed(now, echo.ecr))
    }

    /// Whether the timer has sent our SYN or SYN-ACK again more than once, and had to: one loss is
    /// forgiven (RFC 6298 made its timeout a short one), and so is any number if the peer
    /// echoes the timestamp of the first copy (as on Linux).
    pub(super) fn is_syn_lost(&self, ts: &TimestampState, seg: &Segment) -> bool {
        let echo = seg.repr.options.timestamps.filter(|stamps| ts.enabled && stamps.ecr != 0);
        let again = ts.val(self.started + INITIAL_RTO);
        let first = echo.is_some_and(|stamps| (stamps.ecr.wrapping_sub(again) as i32) < 0);
        self.retries > 1 && !first
    }

    /// RFC 7323, section 3.2: a SYN-ACK must echo a timestamp that we sent in this open.
    pub(super) fn rejects_echo(&self, now: Instant, ts: &TimestampState, seg: &Segment) -> bool {
        let echo = seg.repr.options.timestamps.filter(|stamps| stamps.ecr != 0);
        let Some(stamps) = echo else { return false };
        let first = ts.val(self.started);
        let window = ts.val(now).wrapping_sub(first);
        stamps.ecr.wrapping_sub(first) > window
    }
}
