//! The reference count of a shared chunk, which finds the last holder.
//!
//! This is the only hand-over between threads in this crate, and it is verified with loom. All
//! accesses of other holders happen before the last holder has the chunk to itself.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicUsize, Ordering, fence};

/// More holders than this cannot exist unless some were forgotten on purpose.
const MOST: usize = isize::MAX as usize;

/// A count of holders.
pub(crate) struct RefCount(AtomicUsize);

impl RefCount {
    /// A count without holders.
    pub(crate) fn new() -> RefCount {
        RefCount(AtomicUsize::new(0))
    }

    /// The caller, who owns the whole exclusively, becomes the first holder.
    #[inline]
    pub(crate) fn start(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Adds a holder. The caller is one.
    ///
    /// # Panics
    /// If holders were forgotten (`core::mem::forget`) until the count is about to wrap.
    #[inline]
    pub(crate) fn retain(&self) {
        // Relaxed is enough: the caller's own hold keeps the count above zero.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(before < MOST, "too many references to one chunk");
    }

    /// Whether the caller is the only holder. If so, all accesses of others happen before the
    /// return. Only a holder can add one, so it stays so while the caller lends its hold to no
    /// other thread.
    #[inline]
    pub(crate) fn is_only(&self) -> bool {
        let only = self.0.load(Ordering::Relaxed) == 1;
        if only {
            fence(Ordering::Acquire);
        }
        only
    }

    /// Takes the caller's hold away. If it returns true, there is no other holder any more, and all
    /// that they did happens before the return.
    #[inline]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        let last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if last {
            fence(Ordering::Acquire);
        }
        last
    }
}

#[cfg(all(loom, test))]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::RefCount;

    struct Shared {
        refs: RefCount,
        bytes: UnsafeCell<u8>,
    }

    /// Reads the bytes as a slice does, releases its hold, and writes them if it was the last
    /// holder. loom fails the test if a read and a write may overlap, or unless exactly one holder
    /// was last.
    fn read_and_let_go(shared: &Shared) -> u32 {
        shared.bytes.with(|bytes| {
            // SAFETY: loom checks that no other thread writes meanwhile.
            assert_eq!(unsafe { *bytes }, 7);
        });
        if !shared.refs.release() {
            return 0;
        }
        shared.bytes.with_mut(|bytes| {
            // SAFETY: loom checks that no other thread reads or writes meanwhile.
            unsafe { *bytes = 8 };
        });
        1
    }

    #[test]
    fn an_only_holder_may_write() {
        loom::model(|| {
            let shared = Arc::new(Shared { refs: RefCount::new(), bytes: UnsafeCell::new(7) });
            shared.refs.start();
            shared.refs.retain();
            let other = shared.clone();
            let reader = thread::spawn(move || read_and_let_go(&other));
            if shared.refs.is_only() {
                shared.bytes.with_mut(|bytes| {
                    // SAFETY: loom checks that no other thread reads or writes meanwhile.
                    unsafe { *bytes = 9 };
                });
            }
            assert_eq!(reader.join().unwrap(), 0);
        });
    }

    #[test]
    fn the_last_holder_is_alone() {
        loom::model(|| {
            let shared = Arc::new(Shared { refs: RefCount::new(), bytes: UnsafeCell::new(7) });
            shared.refs.start();
            shared.refs.retain();
            shared.refs.retain();
            let others: [_; 2] = core::array::from_fn(|_| {
                let shared = shared.clone();
                thread::spawn(move || read_and_let_go(&shared))
            });
            let mut last = read_and_let_go(&shared);
            for other in others {
                last += other.join().unwrap();
            }
            assert_eq!(last, 1);
        });
    }

    #[test]
    fn a_holder_may_pass_its_hold_on() {
        loom::model(|| {
            let shared = Arc::new(Shared { refs: RefCount::new(), bytes: UnsafeCell::new(7) });
            shared.refs.start();
            shared.refs.retain();
            let passed = shared.clone();
            let other = thread::spawn(move || {
                passed.refs.retain();
                let clone = passed.clone();
                let third = thread::spawn(move || read_and_let_go(&clone));
                read_and_let_go(&passed) + third.join().unwrap()
            });
            let last = read_and_let_go(&shared) + other.join().unwrap();
            assert_eq!(last, 1);
        });
    }
}
