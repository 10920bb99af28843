//! Peers whose address is proven: it has completed a handshake.
//!
//! # Theory of operation
//!
//! While a flood of SYNs is shed (`pollers/syn_share.rs`), SYNs of such peers are still answered,
//! within their own share. Linux has the same notion (`tcp_peer_is_proven`), for a SYN queue that
//! is three quarters full without cookies.
//!
//! The table has a fixed size and consists of sets of [`WAYS`]. An entry is one atomic word: a part
//! of the hash of the address, and the second in which the peer was proven last. No call locks or
//! allocates. Two threads that write to one set at once may lose an entry, which that peer's next
//! segment restores. In a full set, the oldest entry is replaced.
//!
//! The hash is keyed with the stack's secret, so that no peer can aim at another's entry. An
//! attacker can only complete handshakes from very many addresses; IPv6 addresses count by their
//! first 64 bits, since one host may use any of the other 64. Two addresses whose hashes agree
//! count as one: one pair in 2^30, and it costs no more than the share.
//!
//! An entry is valid for [`PROVEN_FOR`]. It is made when a handshake completes, whichever side
//! began it. While SYNs are shed, segments of established connections renew it.

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use plimsoll_tcp::Instant;
use portable_atomic::AtomicU64;
use siphasher::sip::SipHasher13;

use crate::limits::{MAX_PROVEN_PEERS, PROVEN_FOR};

/// Entries of a set: half a cache line.
const WAYS: usize = 4;

const _: () = assert!((MAX_PROVEN_PEERS / WAYS).is_power_of_two());

/// Addresses that have completed a handshake.
pub(crate) struct ProvenPeers {
    key: [u8; 16],
    sets: Box<[[AtomicU64; WAYS]]>,
}

/// A peer that is proven, as far as shares are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProvenPeer(u32);

impl ProvenPeers {
    /// An empty table. The hash is keyed with `key`.
    pub(crate) fn new(key: [u8; 16]) -> ProvenPeers {
        let set = |_| [const { AtomicU64::new(0) }; WAYS];
        ProvenPeers { key, sets: (0..MAX_PROVEN_PEERS / WAYS).map(set).collect() }
    }

    /// A connection with `remote` is established.
    pub(crate) fn note(&self, remote: IpAddr, now: Instant) {
        let (tag, set) = self.place(remote);
        let entry = Entry { tag, second: second(now) };
        let oldest_first = |way: &&AtomicU64| {
            let old = Entry::of(way);
            (old.tag != tag, old.second)
        };
        let Some(way) = set.iter().min_by_key(oldest_first) else { return };
        let old = Entry::of(way);
        // An entry that is up to date is not written: its cache line stays shared by all CPUs.
        if old.tag != tag || old.second < entry.second {
            way.store(entry.word(), Ordering::Relaxed);
        }
    }

    /// The peer at `remote`, if it was proven not long ago.
    pub(crate) fn find(&self, remote: IpAddr, now: Instant) -> Option<ProvenPeer> {
        let (tag, set) = self.place(remote);
        let too_old = second(now).saturating_sub(PROVEN_FOR.as_secs() as u32);
        let known = |entry: Entry| entry.tag == tag && entry.second > too_old;
        set.iter().map(Entry::of).any(known).then_some(ProvenPeer(tag))
    }

    /// The part of an address's hash that distinguishes it from others of its set, and the set.
    fn place(&self, remote: IpAddr) -> (u32, &[AtomicU64; WAYS]) {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        match remote {
            IpAddr::V4(ip) => hasher.write_u32(ip.to_bits()),
            IpAddr::V6(ip) => hasher.write_u64((ip.to_bits() >> 64) as u64),
        }
        let hash = hasher.finish();
        ((hash >> 32) as u32, &self.sets[hash as usize % self.sets.len()])
    }
}

/// The contents of an entry. All zeroes are no entry: it is too old.
#[derive(Clone, Copy)]
struct Entry {
    tag: u32,
    second: u32,
}

impl Entry {
    fn of(way: &AtomicU64) -> Entry {
        let word = way.load(Ordering::Relaxed);
        Entry { tag: (word >> 32) as u32, second: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.second)
    }
}

/// The second that `now` is in, counted from 1.
fn second(now: Instant) -> u32 {
    (now.as_millis() / 1000) as u32 + 1
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use plimsoll_tcp::Duration;

    use super::*;

    const NOW: Instant = Instant::from_millis(5_000);

    fn host(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_noted_peer_is_known_for_a_while() {
        let peers = ProvenPeers::new([7; 16]);
        assert_eq!(peers.find(host(1), NOW), None);
        peers.note(host(1), NOW);
        assert!(peers.find(host(1), NOW).is_some());
        assert_eq!(peers.find(host(2), NOW), None);
        let end = NOW + PROVEN_FOR;
        let before = NOW + (PROVEN_FOR - Duration::from_secs(1));
        assert!(peers.find(host(1), before).is_some());
        assert_eq!(peers.find(host(1), end), None);
        peers.note(host(1), before);
        assert!(peers.find(host(1), end).is_some(), "renewed");
    }

    #[test]
    fn no_peer_is_known_at_first_at_any_time() {
        let peers = ProvenPeers::new([7; 16]);
        for now in [Instant::ZERO, NOW, NOW + PROVEN_FOR] {
            assert!((0..10_000).all(|number| peers.find(host(number), now).is_none()));
        }
    }

    #[test]
    fn hosts_of_an_ipv6_network_count_as_one() {
        let peers = ProvenPeers::new([7; 16]);
        let [one, other, elsewhere] =
            ["2001:db8:0:1::1", "2001:db8:0:1:aaaa::2", "2001:db8:0:2::1"]
                .map(|text| text.parse::<IpAddr>().unwrap());
        peers.note(one, NOW);
        assert_eq!(peers.find(other, NOW), peers.find(one, NOW));
        assert!(peers.find(one, NOW).is_some() && peers.find(elsewhere, NOW).is_none());
    }

    #[test]
    fn the_oldest_is_replaced() {
        let peers = ProvenPeers::new([7; 16]);
        let many = 10 * MAX_PROVEN_PEERS as u32;
        for number in 0..many {
            peers.note(host(number), NOW + Duration::from_secs(u64::from(number) / 64));
        }
        let now = NOW + Duration::from_secs(u64::from(many) / 64);
        let known = |range: std::ops::Range<u32>| {
            range.filter(|&number| peers.find(host(number), now).is_some()).count()
        };
        assert!(known(0..many) <= MAX_PROVEN_PEERS);
        let latest = MAX_PROVEN_PEERS as u32 / 8;
        assert!(known(many - latest..many) > latest as usize * 9 / 10);
        assert_eq!(known(0..latest), 0);
    }

    /// With another secret, other addresses share a set.
    #[test]
    fn which_peers_share_a_set_depends_on_the_secret() {
        let places = |key| {
            let peers = ProvenPeers::new([key; 16]);
            let first = peers.place(host(0)).1.as_ptr();
            let beside = |number: &u32| std::ptr::eq(peers.place(host(*number)).1.as_ptr(), first);
            (0..100_000).filter(beside).collect::<Vec<u32>>()
        };
        assert_ne!(places(1), places(2));
    }
}
