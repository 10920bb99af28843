//! The memory of [`Leased`](crate::Leased) values and of the smallest chunks.
//!
//! # Theory of operation
//!
//! A *region* is one allocation of [`REGION`] bytes. It is divided into *slabs* of [`SLAB`] bytes,
//! which begin at multiples of their size. A slab holds *blocks* of one size class, and a head in
//! front of them. Rounding the address of a block down gives the address of its head.
//!
//! A class lists those of its slabs that have a free block, and hands out blocks of the slab that
//! was listed last. A slab whose last block comes back is empty: the system takes its pages, and
//! any class may take the slab from its region. A region whose last slab is empty goes back to the
//! allocator. A class keeps its last slab with free blocks even when it is empty. So a value that
//! comes and goes needs neither the region nor the allocator, and a class has at most one empty
//! slab.
//!
//! A lock for each class guards its slabs, including heads and free blocks. One lock guards the
//! regions and is taken with the lock of a class held. Code under a lock does nothing beyond the
//! steps above.

use alloc::alloc::{alloc, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::chunk::SMALLEST_CHUNK;

/// Bytes of a slab, and what its address is a multiple of. It is a few pages, so that one block
/// that stays in use keeps little of them.
const SLAB: usize = 16 * 1024;

/// Slabs of a region.
const SLABS_PER_REGION: usize = 16;

/// Bytes of a region.
const REGION: usize = SLABS_PER_REGION * SLAB;

/// Blocks begin at multiples of this, and are multiples of it long.
const GRAIN: usize = 16;

/// Classes for values; the longest have so many times [`GRAIN`].
const VALUE_CLASSES: usize = 8;

/// All classes: those, and that of chunks.
const CLASSES: usize = VALUE_CLASSES + 1;

/// Where the first block of a slab begins.
const FIRST_BLOCK: usize = size_of::<Slab>().next_multiple_of(GRAIN);

/// All slabs of the process.
pub(crate) static SLABS: Slabs = Slabs::new();

/// A size of blocks, by its number.
#[derive(Clone, Copy)]
pub(crate) struct Class(usize);

impl Class {
    /// The class that holds the smallest chunks.
    pub(crate) const CHUNK: Class = Class(VALUE_CLASSES);

    /// The class that holds a value of `layout`; none if it is too large or has to be aligned more.
    pub(crate) const fn of(layout: Layout) -> Option<Class> {
        let grains = layout.size().div_ceil(GRAIN);
        let fits = 0 < grains && grains <= VALUE_CLASSES && layout.align() <= GRAIN;
        if fits { Some(Class(grains - 1)) } else { None }
    }

    /// Bytes of a block.
    const fn size(self) -> usize {
        if self.0 == Class::CHUNK.0 {
            SMALLEST_CHUNK.next_multiple_of(GRAIN)
        } else {
            (self.0 + 1) * GRAIN
        }
    }
}

/// The head at the front of a slab.
struct Slab {
    /// The first block that came back. Its first word leads to the next one.
    free: *mut u8,
    /// Where the blocks begin that were never taken, from the front of the slab. Their pages have
    /// not been touched.
    fresh: usize,
    /// Blocks in use.
    used: usize,
    /// Where it is in [`Open::slabs`], while it has a free block.
    place: usize,
    region: NonNull<Region>,
}

impl Slab {
    fn is_full(&self, class: Class) -> bool {
        self.free.is_null() && self.fresh + class.size() > SLAB
    }
}

/// The slabs of one class.
struct Open {
    /// Those with a free block.
    slabs: Vec<NonNull<Slab>>,
    /// All of them: the list has room for so many, so that giving back does not allocate.
    count: usize,
}

// SAFETY: slabs belong to their class, and to whoever holds its lock.
unsafe impl Send for Open {}

impl Open {
    const fn new() -> Open {
        Open { slabs: Vec::new(), count: 0 }
    }

    /// Lists a slab with a free block.
    fn list(&mut self, slab: NonNull<Slab>) {
        // SAFETY: the slab is one of this class, whose lock is held.
        unsafe { (*slab.as_ptr()).place = self.slabs.len() };
        self.slabs.push(slab);
    }

    /// The slab at `place` of the list is given back.
    fn forget(&mut self, place: usize) {
        self.slabs.swap_remove(place);
        if let Some(moved) = self.slabs.get(place) {
            // SAFETY: as above.
            unsafe { (*moved.as_ptr()).place = place };
        }
        self.count -= 1;
        shrink(&mut self.slabs, self.count);
    }
}

/// Memory from the allocator.
struct Region {
    memory: NonNull<u8>,
    /// Which slabs are empty, one bit each.
    empty: u16,
    /// Where it is in [`Regions::open`], while it has an empty slab.
    place: usize,
}

/// Each slab of a region.
const ALL: u16 = u16::MAX;
const _: () = assert!(SLABS_PER_REGION == u16::BITS as usize);

const fn region_layout() -> Layout {
    match Layout::from_size_align(REGION, SLAB) {
        Ok(layout) => layout,
        Err(_) => panic!("a region is smaller than the address space"),
    }
}

/// The regions.
struct Regions {
    /// Those with an empty slab.
    open: Vec<NonNull<Region>>,
    /// All of them: the list has room for so many.
    count: usize,
}

// SAFETY: regions belong to whoever holds the lock.
unsafe impl Send for Regions {}

impl Regions {
    const fn new() -> Regions {
        Regions { open: Vec::new(), count: 0 }
    }

    /// Takes an empty slab, whose head is yet to be written.
    fn take(&mut self) -> (NonNull<Slab>, NonNull<Region>) {
        let region = self.open.last().copied().unwrap_or_else(|| self.make());
        // SAFETY: a region lives while a slab of it is used or it is listed; the lock is held.
        let inner = unsafe { &mut *region.as_ptr() };
        let index = inner.empty.trailing_zeros() as usize;
        inner.empty &= inner.empty - 1;
        if inner.empty == 0 {
            self.open.pop();
        }
        // SAFETY: the region is that long.
        (unsafe { inner.memory.add(index * SLAB) }.cast(), region)
    }

    fn make(&mut self) -> NonNull<Region> {
        // SAFETY: the layout is not of size zero.
        let memory = unsafe { alloc(region_layout()) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(region_layout()) };
        let place = self.open.len();
        let region = NonNull::from(Box::leak(Box::new(Region { memory, empty: ALL, place })));
        self.open.reserve(self.count + 1 - place);
        self.count += 1;
        self.open.push(region);
        region
    }

    /// Takes an empty slab back: its pages go to the system, and the region to the allocator if it
    /// was the last one.
    ///
    /// # Safety
    /// The slab came from `region`, and none of its memory is in use.
    unsafe fn give_back(&mut self, slab: NonNull<Slab>, region: NonNull<Region>) {
        // SAFETY: none of the slab's memory is in use; its region lives, and the lock is held.
        let inner = unsafe {
            discard(slab.cast());
            &mut *region.as_ptr()
        };
        let index = (slab.addr().get() - inner.memory.addr().get()) / SLAB;
        if inner.empty == 0 {
            inner.place = self.open.len();
            self.open.push(region);
        }
        inner.empty |= 1 << index;
        if inner.empty != ALL {
            return;
        }
        let (memory, place) = (inner.memory, inner.place);
        self.open.swap_remove(place);
        if let Some(moved) = self.open.get(place) {
            // SAFETY: listed regions live.
            unsafe { (*moved.as_ptr()).place = place };
        }
        self.count -= 1;
        shrink(&mut self.open, self.count);
        // SAFETY: no slab is used, and both were made by `make`.
        unsafe {
            dealloc(memory.as_ptr(), region_layout());
            drop(Box::from_raw(region.as_ptr()));
        }
    }
}

/// Releases the pages of a slab to the system.
///
/// # Safety
/// The contents of the slab are not needed any more.
unsafe fn discard(slab: NonNull<u8>) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if SLAB.is_multiple_of(rustix::param::page_size()) {
        use rustix::mm::{Advice, madvise};
        // SAFETY: the pages belong to this slab, and their content is not needed. If the system
        // refuses, they stay.
        let _ = unsafe { madvise(slab.as_ptr().cast(), SLAB, Advice::LinuxDontNeed) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = slab;
}

/// Gives back most of what a list has room for beyond `count` entries.
fn shrink<T>(list: &mut Vec<T>, count: usize) {
    if list.capacity() > 4 * count {
        list.shrink_to(2 * count);
    }
}

/// See the module.
pub(crate) struct Slabs {
    classes: [Mutex<Open>; CLASSES],
    regions: Mutex<Regions>,
}

/// A panic under a lock is one of the allocator, before anything has changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slabs {
    const fn new() -> Slabs {
        Slabs {
            classes: [const { Mutex::new(Open::new()) }; CLASSES],
            regions: Mutex::new(Regions::new()),
        }
    }

    /// Takes a block of `class`. Its content is undefined.
    pub(crate) fn take(&self, class: Class) -> NonNull<u8> {
        let mut open = lock(&self.classes[class.0]);
        let slab = open.slabs.last().copied().unwrap_or_else(|| self.begin(&mut open));
        // SAFETY: a listed slab lives; its head belongs to who holds the lock. Blocks are made from
        // the pointer to the slab, and lie behind the head.
        let (block, full) = unsafe {
            let head = &mut *slab.as_ptr();
            let block = match NonNull::new(head.free) {
                Some(block) => {
                    head.free = block.cast::<*mut u8>().read();
                    block
                }
                None => {
                    let block = slab.cast::<u8>().add(head.fresh);
                    head.fresh += class.size();
                    block
                }
            };
            head.used += 1;
            (block, head.is_full(class))
        };
        if full {
            open.slabs.pop();
        }
        block
    }

    /// Makes a slab of a class that has none with a free block.
    #[cold]
    fn begin(&self, open: &mut Open) -> NonNull<Slab> {
        open.slabs.reserve(open.count + 1);
        let (slab, region) = lock(&self.regions).take();
        let head = Slab { free: ptr::null_mut(), fresh: FIRST_BLOCK, used: 0, place: 0, region };
        // SAFETY: the slab is ours, aligned, and longer than its head.
        unsafe { slab.write(head) };
        open.count += 1;
        open.list(slab);
        slab
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// It came from [`take`](Self::take) of the same class, and is not in use any more.
    pub(crate) unsafe fn give_back(&self, class: Class, block: NonNull<u8>) {
        let slab = block.as_ptr().map_addr(|at| at & !(SLAB - 1)).cast::<Slab>();
        // SAFETY: a block is inside of its slab, which begins at a multiple of its size.
        let slab = unsafe { NonNull::new_unchecked(slab) };
        let mut open = lock(&self.classes[class.0]);
        // SAFETY: a slab with a block in use lives; the holder of the lock may use its head, and
        // owns the block now.
        let (used, place, region, was_full) = unsafe {
            let head = &mut *slab.as_ptr();
            let was_full = head.is_full(class);
            block.cast::<*mut u8>().write(head.free);
            head.free = block.as_ptr();
            head.used -= 1;
            (head.used, head.place, head.region, was_full)
        };
        if was_full {
            return open.list(slab);
        }
        if used == 0 && open.slabs.len() > 1 {
            open.forget(place);
            // SAFETY: none of its blocks is in use, and its class does not list it any more.
            unsafe { lock(&self.regions).give_back(slab, region) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SMALL: Class = Class(3);
    const LARGE: Class = Class(7);

    impl Slabs {
        /// Slabs in use, and regions.
        fn count(&self) -> (usize, usize) {
            let slabs = self.classes.iter().map(|open| lock(open).count).sum();
            (slabs, lock(&self.regions).count)
        }

        /// Frees the unused memory that is kept of a class.
        fn end(&self, class: Class) {
            let mut open = lock(&self.classes[class.0]);
            for slab in core::mem::take(&mut open.slabs) {
                open.count -= 1;
                // SAFETY: no block of the class is in use.
                unsafe { lock(&self.regions).give_back(slab, slab.as_ref().region) };
            }
        }
    }

    fn take(slabs: &Slabs, class: Class, count: usize) -> Vec<NonNull<u8>> {
        let fill = |index: usize| {
            let block = slabs.take(class);
            // SAFETY: the block is ours and that long.
            unsafe { block.write_bytes(index as u8, class.size()) };
            block
        };
        (0..count).map(fill).collect()
    }

    fn give_back(slabs: &Slabs, class: Class, blocks: impl IntoIterator<Item = NonNull<u8>>) {
        // SAFETY: they come from `take`.
        blocks.into_iter().for_each(|block| unsafe { slabs.give_back(class, block) });
    }

    #[test]
    fn blocks_lie_side_by_side_and_apart_from_one_another() {
        let slabs = Slabs::new();
        let blocks = take(&slabs, LARGE, 300);
        let mut places: Vec<_> = blocks.iter().map(|block| block.addr().get()).collect();
        places.sort_unstable();
        assert!(places.is_sorted_by(|one, next| next - one >= LARGE.size()));
        assert!(places.iter().all(|place| place % GRAIN == 0));
        for (index, block) in blocks.iter().enumerate() {
            // SAFETY: the block is ours and that long.
            let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), LARGE.size()) };
            assert!(bytes.iter().all(|&byte| byte == index as u8));
        }
        assert_eq!(slabs.count(), (300_usize.div_ceil((SLAB - FIRST_BLOCK) / 128), 1));
        give_back(&slabs, LARGE, blocks);
        let chunks = take(&slabs, Class::CHUNK, 100);
        assert_eq!(
            slabs.count().0,
            1 + 100_usize.div_ceil((SLAB - FIRST_BLOCK) / Class::CHUNK.size())
        );
        give_back(&slabs, Class::CHUNK, chunks);
        slabs.end(LARGE);
        slabs.end(Class::CHUNK);
        assert_eq!(slabs.count(), (0, 0));
    }

    #[test]
    fn an_empty_slab_goes_back_and_one_is_kept() {
        let slabs = Slabs::new();
        // More than a region of one class, and some of another.
        let small = take(&slabs, SMALL, SLABS_PER_REGION * SLAB / SMALL.size());
        let large = take(&slabs, LARGE, 10);
        assert_eq!(slabs.count(), (SLABS_PER_REGION + 2, 2));
        // One block in the middle keeps its slab.
        let (last, rest) = small.split_at(small.len() / 2).1.split_first().unwrap();
        give_back(&slabs, SMALL, rest.iter().copied());
        give_back(&slabs, SMALL, small[..small.len() / 2].iter().copied());
        assert_eq!(slabs.count().0, 2, "the one that is used is the one that is kept");
        give_back(&slabs, SMALL, [*last]);
        give_back(&slabs, LARGE, large);
        assert_eq!(slabs.count().0, 2, "one of each class");
        let again = take(&slabs, SMALL, 3);
        assert_eq!(slabs.count().0, 2, "nothing new is needed");
        give_back(&slabs, SMALL, again);
        slabs.end(SMALL);
        slabs.end(LARGE);
        assert_eq!(slabs.count(), (0, 0));
    }

    #[test]
    fn free_blocks_are_taken_before_new_ones() {
        let slabs = Slabs::new();
        let per_slab = (SLAB - FIRST_BLOCK) / SMALL.size();
        let mut blocks = take(&slabs, SMALL, 3 * per_slab);
        assert_eq!(slabs.count(), (3, 1));
        // A full slab gets a free block, which is the next one.
        let freed = blocks.swap_remove(per_slab + 5);
        give_back(&slabs, SMALL, [freed]);
        assert_eq!(take(&slabs, SMALL, 1), [freed]);
        blocks.push(freed);
        assert_eq!(slabs.count(), (3, 1));
        // In another order than they were taken.
        let (even, odd): (Vec<_>, Vec<_>) = (0..blocks.len()).partition(|index| index % 2 == 0);
        give_back(&slabs, SMALL, even.iter().chain(odd.iter().rev()).map(|&index| blocks[index]));
        assert_eq!(slabs.count(), (1, 1));
        slabs.end(SMALL);
        assert_eq!(slabs.count(), (0, 0));
    }

    #[test]
    fn classes_hold_what_they_are_for() {
        let class =
            |size, align| Class::of(Layout::from_size_align(size, align).unwrap()).map(Class::size);
        assert_eq!([class(1, 1), class(16, 8), class(17, 8)], [Some(16), Some(16), Some(32)]);
        assert_eq!([class(128, 16), class(129, 8)], [Some(128), None]);
        assert_eq!([class(0, 1), class(32, 32)], [None, None]);
        assert!((SMALLEST_CHUNK..SMALLEST_CHUNK + GRAIN).contains(&Class::CHUNK.size()));
    }
}
