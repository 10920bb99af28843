//! How large segments and writes are, learnt from what goes by.

use crate::report::MssSource;

/// Sizes that are counted at once.
const SLOTS: usize = 8;

/// A payload above this is a super-segment for sure (jumbo frames have up to about 9000 bytes).
const LARGEST: u32 = 9216;

/// Below this a common size is that of the program's writes, not of full segments.
const SMALLEST: u32 = 1000;

/// A path whose packets hold less than this is none (IPv6 needs packets of 1280 bytes).
const SMALLEST_PATH: u32 = 1200;

/// Segments that tell the size that a path takes.
const ENOUGH: u32 = 8;

/// The payload of a full segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) size: u32,
    /// What the SYNs said, less the options of each segment.
    pub(crate) said: Option<u32>,
    pub(crate) source: MssSource,
}

impl Full {
    /// Whether `len` bytes end with a segment that is surely not full.
    pub(crate) fn is_partial(&self, len: u32) -> bool {
        !len.is_multiple_of(self.size) && self.is_certain(len)
    }

    /// Whether `len` bytes are surely less than a segment.
    pub(crate) fn is_less(&self, len: u32) -> bool {
        len < self.size && self.is_certain(len)
    }

    /// The size is known, not only taken from the sizes that occur: with offloads, these may all be
    /// of several segments.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.source, MssSource::Syn | MssSource::Path)
    }

    /// Segments that `len` bytes take on the wire, as far as it is known.
    pub(crate) fn segments(&self, len: u32) -> u32 {
        let assumed = self.source == MssSource::Assumed;
        if assumed && len <= LARGEST { 1 } else { len.div_ceil(self.size) }
    }

    fn is_certain(&self, len: u32) -> bool {
        self.is_known() || len < SMALLEST
    }
}

/// The size of segments on a path that takes less than the SYNs said (RFC 8201, RFC 4821): data
/// that has more right behind it comes in this size or multiples of it.
///
/// A program that writes records of one size without Nagle's rule looks the same, but for PSH: a
/// sender sets it where its queue ends (RFC 9293, section 3.9.1.2), which is at the end of each
/// such record, and inside of bulk data only now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathSize {
    size: u32,
    /// Those that fit less those that do not.
    fits: u32,
    /// Of those that fit, how many do not end what was queued.
    inside: u32,
    adopted: bool,
}

impl PathSize {
    /// The size, if there is one below what the SYNs said.
    pub(crate) fn get(&self) -> Option<u32> {
        self.adopted.then_some(self.size)
    }

    /// Data of `len` bytes, which ends what was queued if `pushed`, had more behind it, and the
    /// SYNs `said` so much; whether this makes the size known.
    pub(crate) fn add(&mut self, len: u32, pushed: bool, said: u32) -> bool {
        let segments = len.div_ceil(said).max(1);
        if len.is_multiple_of(said) {
            self.fits = self.fits.saturating_sub(ENOUGH / 2);
        } else if self.size > 0 && len.is_multiple_of(self.size) {
            self.fits = (self.fits + 1).min(8 * ENOUGH);
            self.inside = self.inside.saturating_add(u32::from(!pushed));
        } else if self.fits > 0 {
            self.fits -= 1;
        } else if len.is_multiple_of(segments) && len / segments >= SMALLEST_PATH {
            (self.size, self.fits, self.inside) = (len / segments, 1, u32::from(!pushed));
        }
        let known = self.adopted;
        let enough = self.fits >= ENOUGH && self.inside >= ENOUGH / 4;
        self.adopted = enough || known && self.fits > 0;
        self.adopted && !known
    }
}

/// The payload sizes that occur most, in constant space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    slots: [(u32, u32); SLOTS],
    seen: u32,
}

impl Sizes {
    pub(crate) fn add(&mut self, len: u32) {
        if !(SMALLEST..=LARGEST).contains(&len) {
            return;
        }
        self.seen = self.seen.saturating_add(1);
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.0 == len) {
            slot.1 = slot.1.saturating_add(1);
        } else if let Some(least) = self.slots.iter_mut().min_by_key(|slot| slot.1) {
            // The newcomer takes over the count of the one that it displaces, so that a size that
            // comes often enough ends up with a place.
            *least = (len, least.1.saturating_add(1));
        }
    }

    /// The payload of a full segment: the largest common size that is not a multiple of another.
    pub(crate) fn full(&self) -> Option<u32> {
        let common = |slot: &&(u32, u32)| slot.0 > 0 && slot.1 >= 4 && slot.1 >= self.seen / 20;
        let is_multiple = |len: u32| {
            self.slots
                .iter()
                .filter(common)
                .any(|other| other.0 < len && len.is_multiple_of(other.0))
        };
        let sizes = self.slots.iter().filter(common).map(|slot| slot.0);
        sizes.filter(|&len| !is_multiple(len)).max()
    }
}

/// Where writes end, which is where segments end that are not full.
///
/// Proportions decide, not extremes: one short write does not make a program one of short writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteEnds {
    seen: u32,
    /// Distances below a segment.
    short: u32,
    /// A size that distances have been multiples of, how many were, and how many were not since.
    divisor: u32,
    multiples: u32,
    misses: u32,
}

/// A common divisor below this is that of some format, not of writes: ciphers have blocks of 16.
const LEAST_WRITE: u32 = 64;

impl WriteEnds {
    /// Two such ends follow each other at this distance, in bytes; a full segment has `mss`.
    pub(crate) fn distance(&mut self, bytes: u32, mss: u32) {
        if bytes == 0 {
            return;
        }
        self.seen = self.seen.saturating_add(1);
        self.short = self.short.saturating_add(u32::from(bytes < mss));
        let divisor = gcd(self.divisor, bytes);
        if divisor >= LEAST_WRITE {
            self.divisor = divisor;
            self.multiples = self.multiples.saturating_add(1);
        } else {
            self.misses = self.misses.saturating_add(1);
            if self.misses > self.multiples {
                (self.divisor, self.multiples, self.misses) = (bytes, 1, 0);
            }
        }
    }

    /// Whether the program writes in pieces below `mss`: most ends lie that close, or nearly all
    /// distances are multiples of such a size.
    pub(crate) fn are_small(&self, mss: u32) -> bool {
        let near = self.seen >= 2 && self.short >= self.seen.div_ceil(2);
        near || self.size().is_some_and(|size| size < mss)
    }

    /// The size of writes, if nearly all distances are multiples of one.
    pub(crate) fn size(&self) -> Option<u32> {
        let nearly_all = self.multiples >= self.seen - self.seen / 10;
        (self.multiples >= 8 && nearly_all).then_some(self.divisor)
    }
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
