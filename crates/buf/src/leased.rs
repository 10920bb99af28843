//! A value that lives among others of its kind, apart from what stays.

#[cfg(feature = "std")]
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use alloc::boxed::Box;

#[cfg(feature = "std")]
use crate::slab::{self, SLABS};

/// Owns a value on the heap, as a box does, for state that many owners take for a while and give
/// back.
///
/// A general allocator puts such values between those that stay. When ten thousand connections
/// become idle, what they give back lies in holes between what they keep, and the process keeps the
/// pages. With the feature `std`, small values therefore lie in memory that holds nothing else, and
/// so do the smallest chunks of pools. On Linux its pages are given back as soon as 16 KiB of it
/// are empty, elsewhere 256 KiB at a time. Values of more than 128 bytes, those aligned to more
/// than 16, and all of them without that feature, are ordinary boxes.
///
/// Taking and giving back needs a lock that all values of about the same size share. So this is for
/// what is kept while it is in use, and not for what comes and goes with every packet.
pub struct Leased<T> {
    value: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: it owns its value alone, as a box does.
unsafe impl<T: Send> Send for Leased<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Leased<T> {}

impl<T> Leased<T> {
    /// The size class of the value, unless it is in a box.
    #[cfg(feature = "std")]
    const CLASS: Option<slab::Class> = slab::Class::of(Layout::new::<T>());

    /// Puts `value` on the heap.
    pub fn new(value: T) -> Leased<T> {
        #[cfg(feature = "std")]
        if let Some(class) = Self::CLASS {
            let place = SLABS.take(class).cast::<T>();
            // SAFETY: the block is ours alone, and of a class that holds a `T`.
            unsafe { place.write(value) };
            return Leased { value: place, owns: PhantomData };
        }
        let raw = Box::into_raw(Box::new(value));
        // SAFETY: a box is never null.
        Leased { value: unsafe { NonNull::new_unchecked(raw) }, owns: PhantomData }
    }
}

impl<T> Drop for Leased<T> {
    fn drop(&mut self) {
        #[cfg(feature = "std")]
        if let Some(class) = Self::CLASS {
            // SAFETY: the value is ours and is not used any more; its block came from this class.
            unsafe {
                self.value.drop_in_place();
                SLABS.give_back(class, self.value.cast());
            }
            return;
        }
        // SAFETY: `new` made it of a box.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

impl<T> Deref for Leased<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as `self`, who owns it alone.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for Leased<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T: Default> Default for Leased<T> {
    fn default() -> Leased<T> {
        Leased::new(T::default())
    }
}

impl<T: Clone> Clone for Leased<T> {
    fn clone(&self) -> Leased<T> {
        Leased::new((**self).clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Leased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn values_are_kept_changed_and_dropped() {
        let text = |index: usize| alloc::format!("{index:08}");
        // More than a slab holds.
        let count = if cfg!(miri) { 600 } else { 3000 };
        let mut all: Vec<_> = (0..count).map(|index| Leased::new((index, text(index)))).collect();
        // Every third one goes, and others take the places.
        let mut index = 0;
        all.retain(|_| {
            index += 1;
            index % 3 != 0
        });
        let others = count..count + count / 3;
        all.extend(others.map(|index| Leased::new((index, text(index)))));
        for value in &mut all {
            value.0 += 1;
        }
        assert!(all.iter().all(|value| value.1 == text(value.0 - 1)));
        assert_eq!(all.len(), count);
    }

    #[test]
    fn large_and_aligned_values_are_in_boxes() {
        #[repr(align(64))]
        struct Aligned(u8);
        let large = Leased::new([7_u64; 40]);
        let aligned = Leased::new(Aligned(9));
        assert_eq!(large.iter().sum::<u64>(), 280);
        let at = core::ptr::from_ref::<Aligned>(&aligned);
        assert_eq!((at.addr() % 64, aligned.0), (0, 9));
    }

    #[test]
    fn a_copy_is_another_value() {
        let one = Leased::new(String::from("one"));
        let mut two = one.clone();
        two.push('!');
        assert_eq!((one.as_str(), two.as_str()), ("one", "one!"));
        assert_eq!(size_of::<Option<Leased<String>>>(), size_of::<usize>());
    }

    #[test]
    fn another_thread_gives_values_back() {
        let values: Vec<_> = (0..500_u64).map(Leased::new).collect();
        let sum = std::thread::spawn(move || values.iter().map(|value| **value).sum::<u64>());
        let more: Vec<_> = (0..500_u64).map(Leased::new).collect();
        assert_eq!(sum.join().expect("no panic"), 124_750);
        assert_eq!(more.iter().map(|value| **value).sum::<u64>(), 124_750);
    }
}
