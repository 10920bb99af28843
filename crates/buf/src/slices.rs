//! A short list of slices: the payload of one packet.
//!
//! Nearly every payload is one range, or two or three where it crosses from one chunk into the
//! next. A list has room for those itself. One that gets longer moves to the heap: a packet is
//! passed on by value many times on its way, and the others would all pay for its room.

use smallvec::SmallVec;

use crate::copying::copy;
use crate::slice::Slice;

/// How many ranges one packet may consist of (Linux: `MAX_SKB_FRAGS`). Neighbouring ranges of one
/// chunk count as one.
pub const MAX_SLICES: usize = 8;

/// The list already holds [`MAX_SLICES`] ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySlices;

/// Ranges that a list holds without an allocation.
const INLINE: usize = 3;

/// The payload of one packet: up to [`MAX_SLICES`] ranges in order. Three cost no allocation.
#[derive(Clone, Default, Debug)]
pub struct Slices {
    parts: SmallVec<[Slice; INLINE]>,
    len: usize,
}

impl Slices {
    /// An empty payload.
    pub const fn new() -> Slices {
        Slices { parts: SmallVec::new_const(), len: 0 }
    }

    /// Length in bytes of all ranges together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a range; merges it with the last one if they are neighbours. An empty range is
    /// dropped.
    ///
    /// # Errors
    /// [`TooManySlices`] if the list is full; it is unchanged then.
    pub fn push(&mut self, slice: Slice) -> Result<(), TooManySlices> {
        if slice.is_empty() {
            return Ok(());
        }
        let len = slice.len();
        let merged = self.parts.last_mut().is_some_and(|last| last.try_merge(&slice));
        if !merged {
            match self.parts.len() {
                MAX_SLICES => return Err(TooManySlices),
                // One allocation, and not one for each doubling.
                INLINE => self.parts.reserve_exact(MAX_SLICES - INLINE),
                _ => {}
            }
            self.parts.push(slice);
        }
        self.len += len;
        Ok(())
    }

    /// Moves all ranges of `other` behind those that are here, as by [`push`](Self::push).
    ///
    /// # Errors
    /// [`TooManySlices`] if they do not all find room; both are unchanged then.
    pub fn append(&mut self, other: &mut Slices) -> Result<(), TooManySlices> {
        let room = MAX_SLICES - self.parts.len();
        if other.parts.len() > room {
            // One more has room only if it is the neighbour of our last.
            let joins = other.parts.len() == room + 1
                && match (self.parts.last_mut(), other.parts.first()) {
                    (Some(last), Some(first)) => last.try_merge(first),
                    _ => false,
                };
            if !joins {
                return Err(TooManySlices);
            }
            self.len += other.parts[0].len();
            other.advance(other.parts[0].len());
        }
        other.drain().try_for_each(|slice| self.push(slice))
    }

    /// The ranges, in order.
    #[inline]
    pub fn parts(&self) -> &[Slice] {
        &self.parts
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// If `count` exceeds the length.
    pub fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "cannot advance past the end of a payload");
        self.len -= count;
        if let Some(first) = self.parts.first_mut()
            && count < first.len()
        {
            first.advance(count);
            return;
        }
        let whole = self
            .parts
            .iter()
            .take_while(|part| {
                let drop = part.len() <= count;
                if drop {
                    count -= part.len();
                }
                drop
            })
            .count();
        self.parts.drain(..whole);
        if count > 0 {
            self.parts[0].advance(count);
        }
    }

    /// Takes the first `count` bytes out.
    ///
    /// # Panics
    /// If `count` exceeds the length.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Slices {
        match self.parts.first_mut() {
            Some(first) if count < first.len() => {
                self.len -= count;
                first.split_to(count).into()
            }
            _ => {
                let taken = self.range(0, count);
                self.advance(count);
                taken
            }
        }
    }

    /// Keeps the first `len` bytes; no effect if it is shorter already.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        while self.len > len {
            let excess = self.len - len;
            let last = self.parts.last_mut().expect("a payload of positive length has a range");
            if last.len() <= excess {
                self.len -= last.len();
                self.parts.pop();
            } else {
                last.truncate(last.len() - excess);
                self.len = len;
            }
        }
    }

    /// The part from `start` (inclusive) to `end` (exclusive).
    ///
    /// # Panics
    /// If the range is not within the payload.
    pub fn range(&self, start: usize, end: usize) -> Slices {
        assert!(start <= end && end <= self.len, "range outside of the payload");
        let mut part = self.clone();
        part.truncate(end);
        part.advance(start);
        part
    }

    /// Copies all bytes to the front of `out` and returns how many there were.
    ///
    /// # Panics
    /// If `out` is shorter than the payload.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        for part in &self.parts {
            copy(&mut out[at..at + part.len()], part);
            at += part.len();
        }
        at
    }

    /// Takes the ranges out, in order, and leaves the list empty.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Slice> + '_ {
        self.len = 0;
        self.parts.drain(..)
    }
}

impl From<Slice> for Slices {
    fn from(slice: Slice) -> Slices {
        let mut slices = Slices::new();
        // An empty list has room for one.
        let _ = slices.push(slice);
        slices
    }
}
