//! The rule for a window that the application does not use: by RFC 2861 it decays, as on Linux; by
//! RFC 7661 it is kept for a while.

use alloc::boxed::Box;

use super::validation::Validation;
use super::{AckSample, Window};
use crate::config::Config;
use crate::time::{Instant, Nanos};

/// One of the two ways, chosen when the connection is made.
#[derive(Clone, Debug)]
pub(super) enum Unused {
    /// RFC 2861.
    Decays {
        /// The most that was in flight since the window was last used up.
        used: u32,
        /// When that was, or when an ACK last might have opened it.
        used_at: Instant,
    },
    /// RFC 7661.
    Kept(Box<Validation>),
}

impl Unused {
    pub(super) fn new(config: &Config) -> Unused {
        match config.tcp_rfc7661 {
            true => Unused::Kept(Box::default()),
            false => Unused::Decays { used: 0, used_at: Instant::ZERO },
        }
    }

    /// The state of RFC 7661, if that is the way.
    pub(super) fn validation(&mut self) -> Option<&mut Validation> {
        match self {
            Unused::Decays { .. } => None,
            Unused::Kept(validation) => Some(validation),
        }
    }

    /// Whether the window is larger than the amount that the path has carried recently (RFC 7661).
    pub(super) fn is_nonvalidated(&self) -> bool {
        matches!(self, Unused::Kept(validation) if validation.is_nonvalidated())
    }

    /// The handshake is complete.
    pub(super) fn on_established(&mut self, now: Instant) {
        match self {
            Unused::Decays { used_at, .. } => *used_at = now,
            Unused::Kept(validation) => validation.on_established(now),
        }
    }

    /// When the path last carried something, as far as is known.
    pub(super) fn used_at(&self) -> Instant {
        match self {
            Unused::Decays { used_at, .. } => *used_at,
            Unused::Kept(validation) => validation.sampled_at(),
        }
    }

    /// An ACK came; `may_grow` if it might open the window.
    pub(super) fn on_ack(&mut self, window: &mut Window, sample: &AckSample, may_grow: bool) {
        match self {
            // The path has just shown that it delivers: the window is no old one.
            Unused::Decays { used_at, .. } if may_grow => *used_at = sample.now,
            Unused::Decays { .. } => {}
            Unused::Kept(validation) => {
                let delivered = sample.rate.map(|rate| rate.delivered);
                let time = (sample.now, sample.srtt);
                validation.on_ack(window, time, delivered, sample.grows);
            }
        }
    }

    /// Output has ended with `packets` outstanding.
    pub(super) fn on_output_end(&mut self, packets: u32) {
        if let Unused::Decays { used, .. } = self {
            *used = (*used).max(packets);
        }
    }

    /// Whether less than the window was used for an RTO, in which no ACK might have opened it
    /// either. `limited` if the sender uses it now.
    pub(super) fn is_starving(&mut self, limited: bool, now: Instant, rto: Nanos) -> bool {
        let Unused::Decays { used, used_at } = self else { return false };
        if limited {
            (*used, *used_at) = (0, now);
        }
        now.nanos_since(*used_at) >= rto
    }

    /// Less than the window was used for an RTO: it shrinks half way to the used part (RFC 2861).
    pub(super) fn on_application_limited(&mut self, window: &mut Window, now: Instant) {
        let Unused::Decays { used, used_at } = self else { return };
        let least = (*used).max(window.initial);
        if least < window.cwnd() {
            window.ssthresh = window.remembered_ssthresh();
            window.allowed.cwnd = u32::midpoint(window.cwnd(), least);
        }
        (*used, *used_at) = (0, now);
    }

    /// Nothing was sent for `idle`: the window halves for each RTO, down to the initial window
    /// (RFC 5681, section 4.1, in the gradual form of RFC 2861). ssthresh remembers three quarters.
    pub(super) fn on_idle(
        &mut self,
        window: &mut Window,
        now: Instant,
        (idle, rto): (Nanos, Nanos),
    ) {
        let (used, used_at) = match self {
            Unused::Decays { used, used_at } => (used, used_at),
            Unused::Kept(validation) => return validation.look(window, now),
        };
        window.ssthresh = window.remembered_ssthresh();
        let cwnd = &mut window.allowed.cwnd;
        let floor = window.initial.min(*cwnd);
        let mut left = idle;
        while left > rto && *cwnd > floor {
            left = left - rto;
            *cwnd /= 2;
        }
        *cwnd = (*cwnd).max(floor);
        (*used, *used_at) = (0, now);
    }

    /// Bytes of heap held.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Unused::Decays { .. } => 0,
            Unused::Kept(_) => size_of::<Validation>(),
        }
    }
}
