//! Path MTUs learnt from ICMP (RFC 1191, RFC 8201), per destination.
//!
//! A message lowers the MTU, never raises it. It is believed for `net.ipv4.route.mtu_expires`;
//! then connections begin with the interface's MTU again, and those that were opened meanwhile send
//! with it.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use plimsoll_tcp::Instant;

use crate::limits::MAX_PMTU_ENTRIES;

/// The sizes that RFC 1191, section 7 suggests to a host whose router does not tell.
const PLATEAUS: [u16; 8] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576];

#[derive(Default)]
pub(crate) struct PmtuCache {
    entries: BTreeMap<IpAddr, Entry>,
    /// Destinations in the order in which they were learnt first.
    order: VecDeque<IpAddr>,
}

struct Entry {
    mtu: u16,
    expires: Instant,
}

impl PmtuCache {
    /// The MTU to `remote`, if one was learnt and has not expired, and when it does.
    pub(crate) fn get(&self, remote: IpAddr, now: Instant) -> Option<(u16, Instant)> {
        let entry = self.entries.get(&remote).filter(|entry| entry.expires > now)?;
        Some((entry.mtu, entry.expires))
    }

    /// Remembers `mtu` until `expires`.
    pub(crate) fn learn(&mut self, remote: IpAddr, mtu: u16, expires: Instant) {
        if self.entries.insert(remote, Entry { mtu, expires }).is_some() {
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

/// The next lower usual MTU for a packet of `total_len` bytes that was too big.
pub(crate) fn plateau_below(total_len: u16) -> u16 {
    PLATEAUS.into_iter().find(|&plateau| plateau < total_len).unwrap_or(576)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_expiring() {
        let mut cache = PmtuCache::default();
        let ip = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..=MAX_PMTU_ENTRIES as u32 {
            cache.learn(ip(n), 1400, Instant::from_millis(5));
        }
        assert_eq!(cache.get(ip(0), Instant::ZERO), None, "the oldest went");
        let expires = Instant::from_millis(5);
        assert_eq!(cache.get(ip(1), Instant::ZERO), Some((1400, expires)));
        assert_eq!(cache.get(ip(1), expires), None);
        assert_eq!((plateau_below(1500), plateau_below(500)), (1492, 576));
    }
}
