//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! A [`Sum`] is a one's-complement sum that remembers whether it covers an odd number of bytes, so
//! that the pieces of a packet can be added one by one wherever they were cut.
//!
//! Words are added in the byte order of the machine and swapped once at the end, which the sum
//! allows (RFC 1071, section 2 (B)). Short inputs go through a loop over 32-bit words; long ones
//! through a loop over many independent 16-bit lanes, which compilers turn into vector code.

use core::net::{Ipv4Addr, Ipv6Addr};

/// From this many bytes on, the lane loop is faster than the word loop.
const LANES_FROM: usize = 128;
/// Bytes that the lane loop takes at a time.
const BLOCK: usize = 64;
/// Bytes after which the 32-bit lanes are emptied. Each takes at most 65535 per block of the input,
/// so they could hold four MiB.
const LANES_HOLD: usize = 1 << 20;

/// A one's-complement sum, in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Sum of the words in the machine's byte order, folded to 17 bits or fewer between calls.
    words: u32,
    /// Whether an odd number of bytes has been added.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    pub const fn new() -> Sum {
        Sum { words: 0, odd: false }
    }

    /// Adds bytes that follow those added before.
    #[inline]
    pub fn add_bytes(&mut self, data: &[u8]) {
        let words = raw(data);
        self.add_raw(words, data.len() % 2 == 1);
    }

    /// Adds a sum over bytes that follow those added before.
    #[inline]
    pub fn add(&mut self, following: Sum) {
        self.add_raw(fold(u64::from(following.words)), following.odd);
    }

    /// Adds a 16-bit field. The bytes before it must be even in number.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        debug_assert!(!self.odd, "a field is added behind an odd number of bytes");
        self.add_raw(value.to_be(), false);
    }

    /// Adds a 32-bit field. The bytes before it must be even in number.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        self.add_u16((value >> 16) as u16);
        self.add_u16(value as u16);
    }

    #[inline]
    fn add_raw(&mut self, words: u16, odd: bool) {
        // A word that begins at an odd offset has its bytes swapped, and so has the sum of such.
        let words = if self.odd { words.swap_bytes() } else { words };
        self.words = u32::from(fold(u64::from(self.words) + u64::from(words)));
        self.odd ^= odd;
    }

    /// The sum itself, not complemented: what a checksum field holds before a device completes it.
    #[inline]
    pub fn folded(self) -> u16 {
        u16::from_be(fold(u64::from(self.words)))
    }

    /// The checksum: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.folded()
    }

    /// Whether this sum, taken over data together with its checksum, says that the data is intact.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The folded sum of `data` in the machine's byte order, as if it began at an even offset.
#[inline]
fn raw(data: &[u8]) -> u16 {
    if data.len() < LANES_FROM { raw_words(data) } else { raw_lanes(data) }
}

#[inline]
fn raw_words(data: &[u8]) -> u16 {
    let (words, rest) = data.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
    // Pad the rest with zeros at the end, whatever its length.
    let last = match *rest {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    };
    sum += u64::from(u32::from_ne_bytes(last));
    fold(sum)
}

fn raw_lanes(data: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for part in data.chunks(LANES_HOLD) {
        let (blocks, rest) = part.as_chunks::<BLOCK>();
        let mut lanes = [0_u32; BLOCK / 2];
        for block in blocks {
            let (words, _) = block.as_chunks::<2>();
            for (lane, &word) in lanes.iter_mut().zip(words) {
                *lane += u32::from(u16::from_ne_bytes(word));
            }
        }
        sum += lanes.iter().map(|&lane| u64::from(lane)).sum::<u64>();
        sum += u64::from(raw_words(rest));
    }
    fold(sum)
}

/// The sum of `data`.
#[inline]
pub fn sum(data: &[u8]) -> Sum {
    let mut sum = Sum::new();
    sum.add_bytes(data);
    sum
}

/// The sum of the pseudo-header of RFC 9293, section 3.1: `len` is the length of transport header
/// and payload.
#[inline]
pub fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::new();
    sum.add_u32(src.to_bits());
    sum.add_u32(dst.to_bits());
    sum.add_u16(u16::from(protocol));
    sum.add_u32(len);
    sum
}

/// The sum of the pseudo-header of RFC 8200, section 8.1: `len` is the length of transport header
/// and payload.
#[inline]
pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = sum(&src.octets());
    sum.add_bytes(&dst.octets());
    sum.add_u16(u16::from(protocol));
    sum.add_u32(len);
    sum
}

/// Whether `data`, a transport header and its payload, agrees with the checksum in it. `pseudo` is
/// the sum of the pseudo-header.
#[inline]
pub fn verify(mut pseudo: Sum, data: &[u8]) -> bool {
    pseudo.add_bytes(data);
    pseudo.is_valid()
}

/// Computes the checksum of `data`, a transport header and its payload, and writes it at `at`
/// (where zero or anything else may be before).
///
/// # Panics
/// If `data` is shorter than `at + 2`.
pub fn fill(mut pseudo: Sum, data: &mut [u8], at: usize) {
    data[at..at + 2].fill(0);
    pseudo.add_bytes(data);
    data[at..at + 2].copy_from_slice(&pseudo.finish().to_be_bytes());
}

/// The checksum after a 16-bit field under it has changed (RFC 1624, equation 3).
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    !(sum as u16)
}

/// The checksum after a 32-bit field at an even offset under it has changed.
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let checksum = update_u16(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update_u16(checksum, old as u16, new as u16)
}

#[cfg(test)]
mod tests;
