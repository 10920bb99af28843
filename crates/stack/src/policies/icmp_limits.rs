//! How often strangers are answered: token buckets.

use std::sync::Mutex;

use plimsoll_tcp::Instant;

use crate::sync::lock;

/// A token bucket.
#[derive(Debug, Default)]
pub(crate) struct Bucket(Mutex<BucketState>);

#[derive(Debug, Default)]
struct BucketState {
    /// In thousand-millionths of a message.
    tokens: u64,
    last: Option<Instant>,
}

impl Bucket {
    /// Whether one more message may leave, with `rate` per second in bursts of `burst`.
    pub(crate) fn take(&self, now: Instant, rate: u32, burst: u32) -> bool {
        const WHOLE: u64 = 1_000_000_000;
        let mut state = lock(&self.0);
        let most = u64::from(burst.max(1)) * WHOLE;
        let gained = match state.last {
            Some(last) => {
                let nanos = u64::try_from(now.since(last).as_nanos()).unwrap_or(u64::MAX);
                nanos.saturating_mul(u64::from(rate))
            }
            None => most,
        };
        state.tokens = state.tokens.saturating_add(gained).min(most);
        state.last = Some(state.last.map_or(now, |last| last.max(now)));
        let enough = state.tokens >= WHOLE;
        if enough {
            state.tokens -= WHOLE;
        }
        enough
    }
}

/// The buckets of a stack.
#[derive(Debug, Default)]
pub(crate) struct IcmpLimits {
    errors: Bucket,
    echoes: Bucket,
    resets: Bucket,
}

impl IcmpLimits {
    /// For ICMP errors.
    pub(crate) fn errors(&self) -> &Bucket {
        &self.errors
    }

    /// For answers to echo requests.
    pub(crate) fn echoes(&self) -> &Bucket {
        &self.echoes
    }

    /// For resets that answer segments of no connection.
    pub(crate) fn resets(&self) -> &Bucket {
        &self.resets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_bounds_burst_and_rate() {
        let bucket = Bucket::default();
        let burst = |now| (0..100).filter(|_| bucket.take(now, 10, 5)).count();
        assert_eq!(burst(Instant::from_millis(1000)), 5);
        assert_eq!(burst(Instant::from_millis(1099)), 0);
        assert_eq!(burst(Instant::from_millis(1100)), 1);
        assert_eq!(burst(Instant::from_millis(9000)), 5);
        assert_eq!(burst(Instant::from_millis(8000)), 0, "time does not run backwards");
    }
}
