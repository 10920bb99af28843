//! Path MTUs learnt from ICMP (RFC 1191, RFC 8201), per destination.
//!
//! A message lowers the MTU, never raises it. It is valid for `net.ipv4.route.mtu_expires`; then
//! connections begin with the interface's MTU again, and open ones send with it.
//!
//! An IPv4 message without an MTU, or with one below `net.ipv4.route.min_pmtu`, locks the MTU for
//! that time: routers may fragment packets, and their reports are ignored.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use plimsoll_tcp::{Instant, LearntMtu};

use crate::limits::MAX_PMTU_ENTRIES;

#[derive(Default)]
pub(crate) struct PmtuCache {
    entries: BTreeMap<IpAddr, LearntMtu>,
    /// Destinations in the order in which they were learnt first.
    order: VecDeque<IpAddr>,
}

impl PmtuCache {
    /// The learnt MTU to `remote`, if it is still valid.
    pub(crate) fn get(&self, remote: IpAddr, now: Instant) -> Option<LearntMtu> {
        self.entries.get(&remote).filter(|learnt| learnt.until > now).copied()
    }

    /// Stores a learnt MTU while it is valid.
    pub(crate) fn learn(&mut self, remote: IpAddr, learnt: LearntMtu) {
        if self.entries.insert(remote, learnt).is_some() {
            return;
        }
        self.order.push_back(remote);
        if self.order.len() > MAX_PMTU_ENTRIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_expiring() {
        let mut cache = PmtuCache::default();
        let ip = |n: u32| IpAddr::from(n.to_be_bytes());
        let learnt = LearntMtu { mtu: 1400, until: Instant::from_millis(5), locked: false };
        for n in 0..=MAX_PMTU_ENTRIES as u32 {
            cache.learn(ip(n), learnt);
        }
        assert_eq!(cache.get(ip(0), Instant::ZERO), None, "the oldest went");
        assert_eq!(cache.get(ip(1), Instant::ZERO), Some(learnt));
        assert_eq!(cache.get(ip(1), learnt.until), None);
    }
}
