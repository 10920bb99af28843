//! Sequence numbers: 32-bit, compared modulo 2^32.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number (RFC 9293, section 3.4). Ordering is modulo 2^32: `a < b` if `b` lies
/// within the 2^31 numbers behind `a`. It is a total order only within such a window, which is what
/// a connection ever compares.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Bytes from `earlier` to `self`, modulo 2^32. Meaningful if `earlier <= self`.
    #[inline]
    pub const fn since(self, earlier: SeqNum) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Where `self` lies seen from `other`: below zero if before it.
    #[inline]
    const fn offset_from(self, other: SeqNum) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The later of the two.
    #[must_use]
    pub fn max(self, other: SeqNum) -> SeqNum {
        if self < other { other } else { self }
    }

    /// The earlier of the two.
    #[must_use]
    pub fn min(self, other: SeqNum) -> SeqNum {
        if self < other { self } else { other }
    }

    /// Whether `self` lies in the half-open window `[start, end)`.
    pub fn is_within(self, start: SeqNum, end: SeqNum) -> bool {
        self.since(start) < end.since(start)
    }
}

impl PartialOrd for SeqNum {
    #[inline]
    fn partial_cmp(&self, other: &SeqNum) -> Option<Ordering> {
        Some(self.offset_from(*other).cmp(&0))
    }

    // One comparison each, and not one with three outcomes.

    #[inline]
    fn lt(&self, other: &SeqNum) -> bool {
        self.offset_from(*other) < 0
    }

    #[inline]
    fn le(&self, other: &SeqNum) -> bool {
        self.offset_from(*other) <= 0
    }

    #[inline]
    fn gt(&self, other: &SeqNum) -> bool {
        self.offset_from(*other) > 0
    }

    #[inline]
    fn ge(&self, other: &SeqNum) -> bool {
        self.offset_from(*other) >= 0
    }
}

impl Add<u32> for SeqNum {
    type Output = SeqNum;
    fn add(self, bytes: u32) -> SeqNum {
        SeqNum(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNum {
    type Output = SeqNum;
    fn sub(self, bytes: u32) -> SeqNum {
        SeqNum(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
