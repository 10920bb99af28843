//! What is allocated: the system's allocator, and a count of what lives by size.
#![allow(unsafe_code, reason = "what it calls is unsafe")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

/// Sizes that are told apart, in bytes. Longer allocations are counted together.
pub(crate) const SIZES: usize = 4096;

/// Allocations that live, by size. The last entry counts the longer ones.
static LIVE: [AtomicI64; SIZES + 1] = [const { AtomicI64::new(0) }; SIZES + 1];

/// Bytes of the longer ones.
static LONG_BYTES: AtomicI64 = AtomicI64::new(0);

/// The allocator of this program.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(size: usize, by: i64) {
    LIVE[size.min(SIZES)].fetch_add(by, Ordering::Relaxed);
    if size >= SIZES {
        LONG_BYTES.fetch_add(by * size as i64, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above; it came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(size, 1);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What lives at a moment.
#[derive(Clone)]
pub(crate) struct Live {
    /// How many allocations there are of each size; at the end the longer ones.
    pub(crate) counts: Vec<i64>,
    /// Bytes that were asked for.
    pub(crate) bytes: i64,
    /// Bytes that the allocator has given out, its headers and rounding counted.
    pub(crate) in_use: i64,
    /// Bytes that it keeps free.
    pub(crate) free: i64,
}

/// What lives now. The counts go to `counts`, which is empty.
pub(crate) fn live(mut counts: Vec<i64>) -> Live {
    counts.extend(LIVE.iter().map(|count| count.load(Ordering::Relaxed)));
    let short: i64 = counts[..SIZES].iter().enumerate().map(|(size, n)| size as i64 * n).sum();
    let bytes = short + LONG_BYTES.load(Ordering::Relaxed);
    // SAFETY: it takes nothing and fills a value.
    let said = unsafe { libc::mallinfo2() };
    Live { counts, bytes, in_use: (said.uordblks + said.hblkhd) as i64, free: said.fordblks as i64 }
}

/// Has the allocator give back what it keeps free.
pub(crate) fn trim() {
    // SAFETY: it takes no pointer.
    unsafe { libc::malloc_trim(0) };
}
