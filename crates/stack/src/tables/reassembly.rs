//! Reassembly of IP fragments (RFC 791, RFC 8200 section 4.5).
//!
//! It is limited in packets, memory and time, for all sources together and for each source. Memory
//! counts a fragment's bytes and its bookkeeping: tiny fragments cost more than they carry. A
//! source beyond its share loses its own oldest packet. When all shares together are too much, the
//! source that holds the most loses its oldest: the most memory if memory is short, the most
//! packets if there are too many (among equals, the one with the oldest packet). So a flooding
//! source evicts only its own fragments, and many sources that hold next to nothing do not evict
//! one large datagram.
//!
//! Fragments that overlap others end their reassembly (RFC 5722): no honest host sends them. Exact
//! duplicates are ignored. A complete datagram is returned as one payload.
//!
//! The order of arrival does not matter. A datagram takes the header fields of its first fragment,
//! the one with offset 0 ([`FirstFragment`]). Only its ECN field depends on all of them (RFC 3168,
//! section 5.3): one mark marks the datagram, and fragments that a sender cannot have sent together
//! end the reassembly.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr};

use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::Ipv6Repr;

use crate::limits::{
    MAX_REASSEMBLIES, MAX_REASSEMBLIES_PER_SOURCE, MAX_REASSEMBLY_MEMORY,
    MAX_REASSEMBLY_MEMORY_PER_SOURCE,
};
use crate::sync::timed::Deadlines;

/// Memory of a fragment in addition to its bytes: its place in a tree that is half full, and the
/// allocator's overhead.
const PART_OVERHEAD: usize = 2 * size_of::<(usize, Vec<u8>)>() + 32;
/// Memory of a packet in addition to its fragments: its place and its source's in trees that are
/// half full, and the first node of its own tree.
const PACKET_OVERHEAD: usize = 2 * size_of::<(FragmentKey, Reassembly)>()
    + 2 * size_of::<(IpAddr, Share)>()
    + 11 * size_of::<(usize, Vec<u8>)>()
    + 64;

/// The key that all fragments of one packet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FragmentKey {
    /// First, so that the packets of a source are neighbours.
    src: IpAddr,
    dst: IpAddr,
    ident: u32,
    /// The protocol field of IPv4; zero for IPv6, where it is not part of the identity.
    protocol: u8,
    /// The interface whose link an IPv6 address is valid on, if it is valid on one link only (RFC
    /// 4007, section 6). Zero for all other addresses.
    zone: u8,
}

impl FragmentKey {
    /// Of IPv4.
    pub(crate) fn v4(repr: &Ipv4Repr) -> FragmentKey {
        FragmentKey {
            src: IpAddr::V4(repr.src),
            dst: IpAddr::V4(repr.dst),
            ident: u32::from(repr.ident),
            protocol: repr.protocol,
            zone: 0,
        }
    }

    /// Of IPv6, whose identification comes from the fragment header. `interface` is the one that
    /// the fragment came in by.
    pub(crate) fn v6(repr: &Ipv6Repr, ident: u32, interface: u8) -> FragmentKey {
        let of_one_link = repr.src.is_unicast_link_local()
            || repr.dst.is_unicast_link_local()
            || repr.dst.is_multicast();
        FragmentKey {
            src: IpAddr::V6(repr.src),
            dst: IpAddr::V6(repr.dst),
            ident,
            protocol: 0,
            zone: if of_one_link { interface } else { 0 },
        }
    }
}

/// The facts about a fragment that its datagram takes over if the fragment is the first one: that
/// with offset 0 (RFC 791, section 3.2; RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstFragment {
    /// The protocol of its data.
    pub(crate) protocol: u8,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    /// Zero for IPv4.
    pub(crate) flow_label: u32,
    /// "Don't fragment" of IPv4.
    pub(crate) dont_frag: bool,
    /// The interface that it came in by.
    pub(crate) interface: u8,
}

/// The ECN field in `tos`.
const ECN: u8 = 0b11;
/// Codepoints of the ECN field (RFC 3168, section 5), as bits of a set.
const NOT_ECT: u8 = 1 << 0b00;
const CE: u8 = 1 << 0b11;

impl FirstFragment {
    /// The same for the whole datagram, whose fragments had the ECN codepoints `seen`. `None` if
    /// they do not belong together (RFC 3168, section 5.3): a sender sets ECT on all fragments of a
    /// datagram or on none, and no router marks a packet without ECT.
    fn with_ecn(self, seen: u8) -> Option<FirstFragment> {
        let ce = match seen {
            NOT_ECT => 0,
            _ if seen & NOT_ECT != 0 => return None,
            _ if seen & CE != 0 => ECN,
            _ => 0,
        };
        Some(FirstFragment { tos: self.tos | ce, ..self })
    }
}

/// Bytes of the headers before the first fragment's data that are kept for an error. The longest
/// error quotes no more of a packet (RFC 4443, section 2.4).
const MAX_KEPT_HEADERS: usize = 1280;

/// A datagram that was given up because its time was over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// The first fragment's facts, if it has arrived.
    pub(crate) first: Option<FirstFragment>,
    /// The front of the first fragment as it arrived: headers, then data.
    pub(crate) front: Vec<u8>,
    /// Where the data begins in it.
    pub(crate) data_at: usize,
}

impl Expired {
    fn new(key: &FragmentKey, mut packet: Reassembly) -> Expired {
        let data_at = packet.headers.len();
        let mut front = packet.headers;
        if let (Some(_), Some(data)) = (packet.first, packet.parts.remove(&0)) {
            front.extend_from_slice(&data[..data.len().min(MAX_KEPT_HEADERS)]);
        }
        Expired { src: key.src, dst: key.dst, first: packet.first, front, data_at }
    }
}

/// The outcome of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is kept; more are missing.
    Kept,
    /// It was dropped, perhaps with others of its packet; how many reassemblies failed.
    Failed(usize),
    /// The packet is complete: its payload, and its header fields.
    Complete(Vec<u8>, FirstFragment),
}

struct Reassembly {
    began: Instant,
    /// By offset.
    parts: BTreeMap<usize, Vec<u8>>,
    bytes: usize,
    /// The length of the whole payload, known from the last fragment.
    total: Option<usize>,
    first: Option<FirstFragment>,
    /// The bytes in front of the first fragment's data.
    headers: Vec<u8>,
    /// The ECN codepoints of all fragments: bit `i` is codepoint `i`.
    ecn: u8,
}

/// The packets and memory of a source, or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    packets: usize,
    memory: usize,
}

#[derive(Default)]
pub(crate) struct Reassembler {
    packets: BTreeMap<FragmentKey, Reassembly>,
    sources: BTreeMap<IpAddr, Share>,
    all: Share,
}

impl Reassembler {
    /// Inserts a fragment: `data`, which `headers` precede, belongs at `offset`; `more` is whether
    /// others follow it.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        key: FragmentKey,
        facts: FirstFragment,
        (offset, more): (usize, bool),
        (headers, data): (&[u8], &[u8]),
    ) -> Outcome {
        let end = offset + data.len();
        if data.is_empty() || end > 65_535 || (more && !data.len().is_multiple_of(8)) {
            return Outcome::Failed(1);
        }
        if let Some(packet) = self.packets.get(&key) {
            if packet.parts.get(&offset).is_some_and(|there| there == data) {
                return Outcome::Kept;
            }
            if !packet.fits(offset, end, more) {
                self.drop_packet(&key);
                return Outcome::Failed(1);
            }
        }
        let kept_headers = if offset == 0 { headers.len().min(MAX_KEPT_HEADERS) } else { 0 };
        let memory = kept_headers + data.len() + PART_OVERHEAD;
        let failed = self.make_room(memory, &key);
        let source = self.sources.entry(key.src).or_default();
        let packet = self.packets.entry(key).or_insert_with(|| {
            for share in [&mut *source, &mut self.all] {
                share.packets += 1;
                share.memory += PACKET_OVERHEAD;
            }
            Reassembly::new(now)
        });
        if !more {
            packet.total = Some(end);
        }
        if offset == 0 {
            packet.first = Some(facts);
            packet.headers = headers[..kept_headers].to_vec();
        }
        packet.ecn |= 1 << (facts.tos & ECN);
        packet.bytes += data.len();
        packet.parts.insert(offset, data.to_vec());
        source.memory += memory;
        self.all.memory += memory;
        if let Some(first) = packet.first.filter(|_| packet.total == Some(packet.bytes)) {
            let outcome = match first.with_ecn(packet.ecn) {
                Some(whole) => Outcome::Complete(packet.payload(), whole),
                None => Outcome::Failed(1),
            };
            self.drop_packet(&key);
            return outcome;
        }
        if failed > 0 { Outcome::Failed(failed) } else { Outcome::Kept }
    }

    /// Drops packets until there is room for a fragment of the packet `key` that takes `memory`.
    /// Returns how many went.
    fn make_room(&mut self, memory: usize, key: &FragmentKey) -> usize {
        let mut dropped = 0;
        loop {
            let new = !self.packets.contains_key(key);
            let more = Share {
                packets: usize::from(new),
                memory: memory + if new { PACKET_OVERHEAD } else { 0 },
            };
            let own = self.sources.get(&key.src).copied().unwrap_or_default();
            let share = Share {
                packets: MAX_REASSEMBLIES_PER_SOURCE,
                memory: MAX_REASSEMBLY_MEMORY_PER_SOURCE,
            };
            let most = Share { packets: MAX_REASSEMBLIES, memory: MAX_REASSEMBLY_MEMORY };
            let victim = if !own.has_room(more, share) {
                self.oldest_of(key.src)
            } else if self.all.packets + more.packets > most.packets {
                self.oldest_of_the_most(key.src)
            } else if !self.all.has_room(more, most) {
                // The new fragment counts as its source's.
                let with = |(&src, held): (&IpAddr, &Share)| match src == key.src {
                    true => (own.memory + more.memory, own.packets + more.packets, src),
                    false => (held.memory, held.packets, src),
                };
                self.sources.iter().map(with).max().and_then(|(_, _, src)| self.oldest_of(src))
            } else {
                return dropped;
            };
            let Some(oldest) = victim else { return dropped };
            self.drop_packet(&oldest);
            dropped += 1;
        }
    }

    /// The oldest packet of the sources with the most packets. The one that is to come counts as
    /// `src`'s.
    fn oldest_of_the_most(&self, src: IpAddr) -> Option<FragmentKey> {
        let packets = |of: IpAddr| {
            let held = self.sources.get(&of).map_or(0, |share| share.packets);
            held + usize::from(of == src)
        };
        let rank =
            |(key, packet): &(&FragmentKey, &Reassembly)| (packets(key.src), Reverse(packet.began));
        self.packets.iter().max_by_key(rank).map(|(&key, _)| key)
    }

    fn oldest_of(&self, src: IpAddr) -> Option<FragmentKey> {
        // The least address there is.
        let dst = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let first = FragmentKey { src, dst, ident: 0, protocol: 0, zone: 0 };
        let own = self.packets.range(first..).take_while(|(key, _)| key.src == src);
        own.min_by_key(|(_, packet)| packet.began).map(|(&key, _)| key)
    }

    fn drop_packet(&mut self, key: &FragmentKey) -> Option<Reassembly> {
        let packet = self.packets.remove(key)?;
        let memory = packet.memory();
        self.all.packets -= 1;
        self.all.memory -= memory;
        if let Some(source) = self.sources.get_mut(&key.src) {
            source.packets -= 1;
            source.memory -= memory;
            if source.packets == 0 {
                self.sources.remove(&key.src);
            }
        }
        Some(packet)
    }

    /// When the oldest packet began that is not complete.
    fn oldest(&self) -> Option<Instant> {
        self.packets.values().map(|packet| packet.began).min()
    }

    /// Removes and returns the packets that have waited for `patience`.
    pub(crate) fn expire(&mut self, now: Instant, patience: Duration) -> Vec<Expired> {
        if self.packets.is_empty() {
            return Vec::new();
        }
        let waited = |(_, packet): &(&FragmentKey, &Reassembly)| packet.began + patience <= now;
        let expired: Vec<_> = self.packets.iter().filter(waited).map(|(&key, _)| key).collect();
        let drop = |key: &FragmentKey| Some(Expired::new(key, self.drop_packet(key)?));
        expired.iter().filter_map(drop).collect()
    }
}

impl Share {
    /// Whether `more` fits below `most`.
    fn has_room(self, more: Share, most: Share) -> bool {
        self.packets + more.packets <= most.packets && self.memory + more.memory <= most.memory
    }
}

/// The published time is when the oldest began: how long that is waited for is a setting.
impl Deadlines for Reassembler {
    fn next(&self) -> Option<Instant> {
        self.oldest()
    }
}

impl Reassembly {
    /// One without fragments.
    fn new(began: Instant) -> Reassembly {
        Reassembly {
            began,
            parts: BTreeMap::new(),
            bytes: 0,
            total: None,
            first: None,
            headers: Vec::new(),
            ecn: 0,
        }
    }

    /// The bytes of all fragments.
    fn payload(&self) -> Vec<u8> {
        self.parts.values().flatten().copied().collect()
    }

    /// Memory that it takes.
    fn memory(&self) -> usize {
        PACKET_OVERHEAD + self.headers.len() + self.bytes + self.parts.len() * PART_OVERHEAD
    }

    /// Whether a fragment from `offset` to `end` overlaps none and contradicts no length.
    fn fits(&self, offset: usize, end: usize, more: bool) -> bool {
        let before = self.parts.range(..end).next_back();
        let free = before.is_none_or(|(&at, part)| at + part.len() <= offset);
        let known_end = self.parts.last_key_value().map_or(0, |(&at, part)| at + part.len());
        let consistent = match self.total {
            Some(total) => end <= total && (more || end == total),
            None => more || end >= known_end,
        };
        free && consistent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: FirstFragment = FirstFragment {
        protocol: 6,
        ttl: 64,
        tos: 0,
        flow_label: 0,
        dont_frag: false,
        interface: 0,
    };

    const HEADERS: &[u8] = &[9; 20];

    fn key(ident: u32) -> FragmentKey {
        from(1, ident)
    }

    fn from(host: u16, ident: u32) -> FragmentKey {
        let [high, low] = host.to_be_bytes();
        let src = IpAddr::from([10, 0, high, low]);
        FragmentKey { src, dst: IpAddr::from([10, 9, 0, 1]), ident, protocol: 6, zone: 0 }
    }

    #[test]
    fn any_order() {
        let mut reassembler = Reassembler::default();
        let now = Instant::ZERO;
        let mut put =
            |place, data: &[u8]| reassembler.insert(now, key(1), FACTS, place, (HEADERS, data));
        assert_eq!(put((16, false), b"end"), Outcome::Kept);
        assert_eq!(put((0, true), b"01234567"), Outcome::Kept);
        assert_eq!(put((0, true), b"01234567"), Outcome::Kept, "a duplicate");
        let whole = b"01234567abcdefghend".to_vec();
        assert_eq!(put((8, true), b"abcdefgh"), Outcome::Complete(whole, FACTS));
        assert_eq!(reassembler.all, Share::default());
        assert!(reassembler.sources.is_empty());
    }

    #[test]
    fn overlaps_and_lies_fail() {
        let mut reassembler = Reassembler::default();
        let now = Instant::ZERO;
        let mut put =
            |place, data: &[u8]| reassembler.insert(now, key(1), FACTS, place, (HEADERS, data));
        assert_eq!(put((0, true), b"0123456789abcdef"), Outcome::Kept);
        assert_eq!(put((8, true), b"XXXXXXXX"), Outcome::Failed(1));
        assert_eq!(put((8, false), b"end"), Outcome::Kept);
        assert_eq!(put((16, false), b"end"), Outcome::Failed(1));
        assert_eq!(put((0, true), b"012"), Outcome::Failed(1), "not a multiple of 8");
        assert_eq!(put((65_528, false), b"0123456789"), Outcome::Failed(1));
        assert_eq!(reassembler.all, Share::default());
        assert!(reassembler.sources.is_empty());
    }

    /// RFC 3168, section 5.3, as on Linux: for each set of codepoints, the outcome of a datagram
    /// whose first fragment has the least of them.
    #[test]
    fn ecn_of_all_fragments() {
        const NOT_ECT: u8 = 0b00;
        const ECT_1: u8 = 0b01;
        const ECT_0: u8 = 0b10;
        const CE: u8 = 0b11;
        let table: [(&[u8], Option<u8>); 15] = [
            (&[NOT_ECT], Some(NOT_ECT)),
            (&[ECT_1], Some(ECT_1)),
            (&[ECT_0], Some(ECT_0)),
            (&[CE], Some(CE)),
            (&[NOT_ECT, ECT_1], None),
            (&[NOT_ECT, ECT_0], None),
            (&[NOT_ECT, CE], None),
            (&[ECT_1, ECT_0], Some(ECT_1)),
            (&[ECT_1, CE], Some(CE)),
            (&[ECT_0, CE], Some(CE)),
            (&[NOT_ECT, ECT_1, ECT_0], None),
            (&[NOT_ECT, ECT_1, CE], None),
            (&[NOT_ECT, ECT_0, CE], None),
            (&[ECT_1, ECT_0, CE], Some(CE)),
            (&[NOT_ECT, ECT_1, ECT_0, CE], None),
        ];
        for (marks, expected) in table {
            let mut reassembler = Reassembler::default();
            let mut outcome = Outcome::Kept;
            // The first fragment comes last.
            for (number, mark) in marks.iter().enumerate().rev() {
                let facts = FirstFragment { tos: 0xb8 | mark, ..FACTS };
                let place = (8 * number, number + 1 < marks.len());
                outcome =
                    reassembler.insert(Instant::ZERO, key(1), facts, place, (HEADERS, &[7; 8]));
            }
            let expected = match expected {
                Some(ecn) => Outcome::Complete(
                    vec![7; 8 * marks.len()],
                    FirstFragment { tos: 0xb8 | ecn, ..FACTS },
                ),
                None => Outcome::Failed(1),
            };
            assert_eq!(outcome, expected, "{marks:?}");
            assert_eq!(reassembler.all, Share::default(), "{marks:?}");
        }
    }

    #[test]
    fn addresses_of_one_link_keep_links_apart() {
        let repr = |src: &str, dst: &str| Ipv6Repr {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            next_header: 44,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len: 16,
        };
        for (src, dst, same) in [
            ("2001:db8::1", "2001:db8::2", true),
            ("fe80::1", "2001:db8::2", false),
            ("fe80::1", "fe80::2", false),
            ("2001:db8::1", "ff02::1", false),
        ] {
            let repr = repr(src, dst);
            let keys = [1, 2].map(|interface| FragmentKey::v6(&repr, 7, interface));
            assert_eq!(keys[0] == keys[1], same, "{src} {dst}");
        }
    }

    #[test]
    fn bounded_in_packets_and_time() {
        let mut reassembler = Reassembler::default();
        let most = MAX_REASSEMBLIES_PER_SOURCE as u32;
        for ident in 0..most {
            let now = Instant::from_millis(u64::from(ident));
            assert_eq!(
                reassembler.insert(now, key(ident), FACTS, (8, true), (HEADERS, &[0; 8])),
                Outcome::Kept
            );
        }
        let now = Instant::from_millis(1000);
        assert_eq!(
            reassembler.insert(now, key(999), FACTS, (8, true), (HEADERS, &[0; 8])),
            Outcome::Failed(1)
        );
        assert!(!reassembler.packets.contains_key(&key(0)), "the oldest has gone");
        let left = MAX_REASSEMBLIES_PER_SOURCE - 1;
        assert_eq!(reassembler.expire(now, Duration::from_millis(1)).len(), left);
        let one = Share { packets: 1, memory: PACKET_OVERHEAD + PART_OVERHEAD + 8 };
        assert_eq!((reassembler.packets.len(), reassembler.all), (1, one));
    }

    #[test]
    fn what_expires_has_its_first_fragment_if_that_has_arrived() {
        let mut reassembler = Reassembler::default();
        let at = |ms| Instant::from_millis(ms);
        let mut put = |ms, key, place, data: &[u8]| {
            assert_eq!(
                reassembler.insert(at(ms), key, FACTS, place, (HEADERS, data)),
                Outcome::Kept
            );
        };
        put(0, key(1), (8, true), &[1; 8]);
        put(1, key(2), (8, true), &[1; 8]);
        put(2, key(2), (0, true), &[2; 8]);
        put(3, key(3), (0, true), &[3; 8]);
        let expired = reassembler.expire(at(31), Duration::from_millis(30));
        let seen: Vec<_> = expired.iter().map(|one| (one.first, one.data_at)).collect();
        assert_eq!(seen, [(None, 0), (Some(FACTS), 20)]);
        assert_eq!((expired[0].front.len(), &expired[1].front[20..]), (0, &[2; 8][..]));
        let memory = PACKET_OVERHEAD + PART_OVERHEAD + HEADERS.len() + 8;
        assert_eq!(reassembler.all, Share { packets: 1, memory });
        assert_eq!(reassembler.expire(at(33), Duration::from_millis(30)).len(), 1);
        assert_eq!(reassembler.all, Share::default());
    }

    #[test]
    fn flooding_source_evicts_only_its_own_fragments() {
        let mut reassembler = Reassembler::default();
        let mut put = |key, place, data: &[u8]| {
            reassembler.insert(Instant::ZERO, key, FACTS, place, (HEADERS, data))
        };
        assert_eq!(put(from(1, 7), (0, true), &[1; 8]), Outcome::Kept);
        for ident in 0..10_000 {
            put(from(2, ident), (0, true), &[2; 4000]);
            put(from(3, ident), (8 * ident as usize % 4000, true), &[3; 8]);
            put(from(4, ident / 1000), (8 * (ident as usize % 1000), true), &[4; 8]);
        }
        assert!(matches!(put(from(1, 7), (8, false), &[1; 8]), Outcome::Complete(..)));
        assert!(reassembler.all.memory <= MAX_REASSEMBLY_MEMORY);
        assert!(reassembler.sources.values().all(|share| {
            share.memory <= MAX_REASSEMBLY_MEMORY_PER_SOURCE
                && share.packets <= MAX_REASSEMBLIES_PER_SOURCE
        }));
    }

    #[test]
    fn many_sources_displace_those_that_hold_more() {
        let mut reassembler = Reassembler::default();
        let mut put = |key, place, data: &[u8]| {
            reassembler.insert(Instant::ZERO, key, FACTS, place, (HEADERS, data))
        };
        assert_eq!(put(from(1, 7), (0, true), &[1; 8]), Outcome::Kept);
        for ident in 0..20 {
            for host in 2..12 {
                put(from(host, ident), (0, true), &[2; 60_000]);
            }
        }
        assert!(matches!(put(from(1, 7), (8, false), &[1; 8]), Outcome::Complete(..)));
    }

    /// The large datagram holds the most memory, but memory is not short.
    #[test]
    fn many_sources_of_tiny_fragments_do_not_displace_a_large_datagram() {
        let mut reassembler = Reassembler::default();
        let mut put = |ms, key, place, data: &[u8]| {
            reassembler.insert(Instant::from_millis(ms), key, FACTS, place, (HEADERS, data))
        };
        for host in 2..=301 {
            put(u64::from(host), from(host, 1), (0, true), &[2; 8]);
            match host {
                100 => put(100, from(1, 7), (0, true), &[1; 30_000]),
                200 => put(200, from(1, 7), (30_000, true), &[1; 8_000]),
                _ => Outcome::Kept,
            };
        }
        let whole = put(400, from(1, 7), (38_000, false), &[1; 100]);
        assert!(matches!(whole, Outcome::Complete(..)), "{whole:?}");
    }

    #[test]
    fn tiny_fragments_count_as_what_they_take() {
        let mut reassembler = Reassembler::default();
        let mut most = 0;
        for ident in 0..MAX_REASSEMBLIES_PER_SOURCE as u32 {
            for place in 0..4000 {
                let place = (16 * place, true);
                reassembler.insert(Instant::ZERO, key(ident), FACTS, place, (HEADERS, &[0; 8]));
                let parts = reassembler.packets.values().map(|packet| packet.parts.len());
                most = most.max(parts.sum::<usize>());
            }
        }
        assert!(most * (8 + PART_OVERHEAD) <= MAX_REASSEMBLY_MEMORY_PER_SOURCE);
        assert!(most > 1000, "{most} parts");
    }
}
