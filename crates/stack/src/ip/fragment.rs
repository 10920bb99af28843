//! Reassembly of IP fragments (RFC 791, RFC 8200 section 4.5).
//!
//! It is bounded in packets, bytes and time. Fragments that overlap others end their reassembly
//! (RFC 5722): nobody honest sends them. Exact duplicates are ignored. What is complete is handed
//! back as one payload.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plimsoll_tcp::{Duration, Instant};

use crate::limits::{MAX_REASSEMBLIES, MAX_REASSEMBLY_BYTES};
use crate::timed::Deadlines;

/// What fragments of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FragmentKey {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ident: u32,
    /// The protocol field of IPv4; zero for IPv6, where it is not part of the identity.
    pub(crate) protocol: u8,
}

/// What became of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is kept; more are missing.
    Kept,
    /// It was dropped, perhaps with others of its packet; how many reassemblies failed.
    Failed(usize),
    /// The packet is complete: its payload, and the protocol that its first fragment names.
    Complete(Vec<u8>, u8),
}

struct Reassembly {
    began: Instant,
    /// By offset.
    parts: BTreeMap<usize, Vec<u8>>,
    bytes: usize,
    /// The length of the whole payload, known from the last fragment.
    total: Option<usize>,
    /// Named by the first fragment.
    protocol: u8,
}

#[derive(Default)]
pub(crate) struct Reassembler {
    packets: BTreeMap<FragmentKey, Reassembly>,
    bytes: usize,
}

impl Reassembler {
    /// Takes a fragment: `data` belongs at `offset`; `more` says whether others follow it.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        key: FragmentKey,
        protocol: u8,
        (offset, more): (usize, bool),
        data: &[u8],
    ) -> Outcome {
        let end = offset + data.len();
        if data.is_empty() || end > 65_535 || (more && !data.len().is_multiple_of(8)) {
            return Outcome::Failed(1);
        }
        let failed = self.make_room(data.len(), &key);
        let packet = self.packets.entry(key).or_insert_with(|| Reassembly {
            began: now,
            parts: BTreeMap::new(),
            bytes: 0,
            total: None,
            protocol,
        });
        if packet.parts.get(&offset).is_some_and(|there| there == data) {
            return Outcome::Kept;
        }
        if !packet.fits(offset, end, more) {
            self.drop_packet(&key);
            return Outcome::Failed(failed + 1);
        }
        if !more {
            packet.total = Some(end);
        }
        if offset == 0 {
            packet.protocol = protocol;
        }
        packet.bytes += data.len();
        self.bytes += data.len();
        packet.parts.insert(offset, data.to_vec());
        if packet.total == Some(packet.bytes) {
            let protocol = packet.protocol;
            let payload = packet.parts.values().flatten().copied().collect();
            self.drop_packet(&key);
            return Outcome::Complete(payload, protocol);
        }
        if failed > 0 { Outcome::Failed(failed) } else { Outcome::Kept }
    }

    /// Drops the oldest packets until there is room for `bytes` more of the packet `key`. Returns
    /// how many went.
    fn make_room(&mut self, bytes: usize, key: &FragmentKey) -> usize {
        let mut dropped = 0;
        while self.bytes + bytes > MAX_REASSEMBLY_BYTES
            || (self.packets.len() >= MAX_REASSEMBLIES && !self.packets.contains_key(key))
        {
            let oldest = self.packets.iter().min_by_key(|(_, packet)| packet.began);
            let Some((&oldest, _)) = oldest else { break };
            self.drop_packet(&oldest);
            dropped += 1;
        }
        dropped
    }

    fn drop_packet(&mut self, key: &FragmentKey) {
        if let Some(packet) = self.packets.remove(key) {
            self.bytes -= packet.bytes;
        }
    }

    /// When the oldest packet began that is not complete.
    fn oldest(&self) -> Option<Instant> {
        self.packets.values().map(|packet| packet.began).min()
    }

    /// Drops what has waited for `patience` and returns how many packets.
    pub(crate) fn expire(&mut self, now: Instant, patience: Duration) -> usize {
        let before = self.packets.len();
        if before == 0 {
            return 0;
        }
        let bytes = &mut self.bytes;
        self.packets.retain(|_, packet| {
            let waits = packet.began + patience > now;
            if !waits {
                *bytes -= packet.bytes;
            }
            waits
        });
        before - self.packets.len()
    }
}

/// The published time is when the oldest began: how long that is waited for is a setting.
impl Deadlines for Reassembler {
    fn next(&self) -> Option<Instant> {
        self.oldest()
    }
}

impl Reassembly {
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

    fn key(ident: u32) -> FragmentKey {
        let ip = IpAddr::from([10, 0, 0, 1]);
        FragmentKey { src: ip, dst: ip, ident, protocol: 6 }
    }

    #[test]
    fn any_order() {
        let mut reassembler = Reassembler::default();
        let now = Instant::ZERO;
        let mut put = |place, data: &[u8]| reassembler.insert(now, key(1), 6, place, data);
        assert_eq!(put((16, false), b"end"), Outcome::Kept);
        assert_eq!(put((0, true), b"01234567"), Outcome::Kept);
        assert_eq!(put((0, true), b"01234567"), Outcome::Kept, "a duplicate");
        let whole = b"01234567abcdefghend".to_vec();
        assert_eq!(put((8, true), b"abcdefgh"), Outcome::Complete(whole, 6));
        assert_eq!(reassembler.bytes, 0);
    }

    #[test]
    fn overlaps_and_lies_fail() {
        let mut reassembler = Reassembler::default();
        let now = Instant::ZERO;
        let mut put = |place, data: &[u8]| reassembler.insert(now, key(1), 6, place, data);
        assert_eq!(put((0, true), b"0123456789abcdef"), Outcome::Kept);
        assert_eq!(put((8, true), b"XXXXXXXX"), Outcome::Failed(1));
        assert_eq!(put((8, false), b"end"), Outcome::Kept);
        assert_eq!(put((16, false), b"end"), Outcome::Failed(1));
        assert_eq!(put((0, true), b"012"), Outcome::Failed(1), "not a multiple of 8");
        assert_eq!(put((65_528, false), b"0123456789"), Outcome::Failed(1));
        assert_eq!(reassembler.bytes, 0);
    }

    #[test]
    fn bounded_in_packets_and_time() {
        let mut reassembler = Reassembler::default();
        for ident in 0..MAX_REASSEMBLIES as u32 {
            let now = Instant::from_millis(u64::from(ident));
            assert_eq!(reassembler.insert(now, key(ident), 6, (8, true), &[0; 8]), Outcome::Kept);
        }
        let now = Instant::from_millis(1000);
        assert_eq!(reassembler.insert(now, key(999), 6, (8, true), &[0; 8]), Outcome::Failed(1));
        assert_eq!(reassembler.expire(now, Duration::from_millis(1)), MAX_REASSEMBLIES - 1);
        assert_eq!((reassembler.packets.len(), reassembler.bytes), (1, 8));
    }
}
