//! The chunks that came back last, newest first, so that the next writer gets memory that is still
//! in the cache. A queue would hand out the coldest chunk of all.
//!
//! A thread that finds the stack in use does not wait: it uses the cold list instead. So no thread
//! ever spins, even if another one is preempted.

#[cfg(not(all(loom, test)))]
use core::cell::UnsafeCell;
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicBool, Ordering};
#[cfg(all(loom, test))]
use loom::cell::UnsafeCell;
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;

/// A bounded stack that one thread at a time uses, without waiting.
pub(crate) struct WarmStack<T, const N: usize> {
    taken: AtomicBool,
    items: UnsafeCell<ArrayVec<T, N>>,
}

// SAFETY: `items` is only touched by the thread that turned `taken` from false to true.
unsafe impl<T: Send, const N: usize> Sync for WarmStack<T, N> {}

impl<T, const N: usize> WarmStack<T, N> {
    pub(crate) fn new() -> WarmStack<T, N> {
        WarmStack { taken: AtomicBool::new(false), items: UnsafeCell::new(ArrayVec::new()) }
    }

    /// The newest item, unless there is none or another thread is here.
    pub(crate) fn pop(&self) -> Option<T> {
        self.with(ArrayVec::pop).flatten()
    }

    /// Keeps `item`, or gives it back if the stack is full or another thread is here.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut item = Some(item);
        self.with(|items| {
            if !items.is_full() {
                items.extend(item.take());
            }
        });
        item.map_or(Ok(()), Err)
    }

    fn with<R>(&self, work: impl FnOnce(&mut ArrayVec<T, N>) -> R) -> Option<R> {
        // Acquire pairs with the release below: what the last user did to the items is visible.
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        #[cfg(not(all(loom, test)))]
        // SAFETY: the exchange made this thread the only one here.
        let result = work(unsafe { &mut *self.items.get() });
        #[cfg(all(loom, test))]
        // SAFETY: the exchange made this thread the only one here.
        let result = self.items.with_mut(|items| work(unsafe { &mut *items }));
        self.taken.store(false, Ordering::Release);
        Some(result)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::WarmStack;

    #[test]
    fn the_newest_comes_first_and_a_full_stack_refuses() {
        let stack = WarmStack::<u8, 2>::new();
        assert_eq!(stack.pop(), None);
        assert_eq!(stack.push(1), Ok(()));
        assert_eq!(stack.push(2), Ok(()));
        assert_eq!(stack.push(3), Err(3));
        assert_eq!((stack.pop(), stack.pop(), stack.pop()), (Some(2), Some(1), None));
    }
}

#[cfg(all(loom, test))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::WarmStack;

    /// Nothing is lost and nothing comes out twice, whoever meets whom.
    #[test]
    fn loom_items_are_neither_lost_nor_doubled() {
        loom::model(|| {
            let stack = Arc::new(WarmStack::<u8, 2>::new());
            let other = stack.clone();
            let pusher = thread::spawn(move || other.push(1).err());
            let popped = stack.pop();
            let refused = pusher.join().expect("the other thread ends");
            let left = stack.pop();
            let seen = [popped, refused, left].into_iter().flatten().count();
            assert_eq!(seen, 1, "{popped:?} {refused:?} {left:?}");
        });
    }
}
