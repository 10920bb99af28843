//! How often strangers are answered: token buckets, for all together and for each host.

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Mutex;

use plimsoll_tcp::{Duration, Instant};
use siphasher::sip::SipHasher13;

use crate::flow::write_ip;
use crate::limits::ICMP_HOSTS;
use crate::sync::lock;

/// Messages that one host may get at once (Linux: `XRLIM_BURST_FACTOR`).
const HOST_BURST: u32 = 6;

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

/// The sender of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpSender {
    Host,
    Router,
}

/// A bucket for each host. Hosts whose addresses have the same hash share one, so no entry can be
/// evicted. A flood from many addresses empties buckets of random hosts, which the attacker cannot
/// choose.
#[derive(Debug, Default)]
struct Hosts(Mutex<Vec<HostBucket>>);

#[derive(Clone, Copy, Debug, Default)]
struct HostBucket {
    /// How long ago it would have been empty, had nothing been taken since.
    saved: Duration,
    last: Option<Instant>,
}

impl HostBucket {
    fn take(&mut self, now: Instant, gap: Duration) -> bool {
        let most = gap * HOST_BURST;
        let gained = self.last.map_or(most, |last| now.since(last));
        self.saved = self.saved.saturating_add(gained).min(most);
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        let enough = self.saved >= gap;
        if enough {
            self.saved -= gap;
        }
        enough
    }
}

/// The buckets of a stack.
#[derive(Debug, Default)]
pub(crate) struct IcmpLimits {
    hosts: Hosts,
    errors: Bucket,
    echoes: Bucket,
    resets: Bucket,
}

impl IcmpLimits {
    /// Whether `sender` may send one more message to `host`, one per `gap` in the long run. `key`
    /// is the key of the hashes.
    pub(crate) fn allows_host(
        &self,
        now: Instant,
        (host, sender, key): (IpAddr, IcmpSender, &[u8; 16]),
        gap: Duration,
    ) -> bool {
        if gap.is_zero() {
            return true;
        }
        let mut hasher = SipHasher13::new_with_key(key);
        write_ip(host, &mut hasher);
        hasher.write_u8(sender as u8);
        let place = hasher.finish() as usize % ICMP_HOSTS;
        let mut buckets = lock(&self.hosts.0);
        if buckets.is_empty() {
            buckets.resize(ICMP_HOSTS, HostBucket::default());
        }
        buckets[place].take(now, gap)
    }

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
    fn each_host_has_a_bucket() {
        let limits = IcmpLimits::default();
        let take = |host: u8, millis, gap| {
            let host = IpAddr::from([192, 0, 2, host]);
            let (now, gap) = (Instant::from_millis(millis), Duration::from_millis(gap));
            (0..20)
                .filter(|_| limits.allows_host(now, (host, IcmpSender::Host, &[7; 16]), gap))
                .count()
        };
        assert_eq!((take(1, 1000, 100), take(2, 1000, 100)), (6, 6));
        assert_eq!((take(1, 1099, 100), take(1, 1100, 100), take(1, 1301, 100)), (0, 1, 2));
        assert_eq!(take(1, 9000, 100), 6, "no more than a burst is saved");
        assert_eq!(take(1, 8000, 100), 0, "time does not run backwards");
        assert_eq!(take(1, 8000, 0), 20, "no limit");
    }

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
