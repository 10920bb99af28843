//! The waker for the parts that one task polls.
//!
//! The parts of a task wake each other all the time: a packet for the stack wakes the driver, and
//! one that the stack sends wakes the writer. Through the task's own waker, each wake-up would
//! schedule the task again behind the poll in which it happens. Tokio would then wake another of
//! its threads to share the work: two threads would pass the task to and fro, a context switch for
//! every few packets. So the parts get a waker that only sets a flag while the task is being
//! polled, and the task checks the flag before its poll ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Wakes the task, or sets a flag while the task is being polled.
pub(crate) struct InnerWaker {
    task: Mutex<Waker>,
    polled: AtomicBool,
    marked: AtomicBool,
}

impl InnerWaker {
    pub(crate) fn new() -> Arc<InnerWaker> {
        Arc::new(InnerWaker {
            task: Mutex::new(Waker::noop().clone()),
            polled: AtomicBool::new(false),
            marked: AtomicBool::new(false),
        })
    }

    /// The task is being polled from now on, and is woken through `task` afterwards.
    pub(crate) fn enter(&self, task: &Waker) {
        let mut kept = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let before = (!kept.will_wake(task)).then(|| std::mem::replace(&mut *kept, task.clone()));
        drop(kept);
        // It is code of the runtime, so it is dropped without the lock.
        drop(before);
        self.polled.store(true, Ordering::SeqCst);
    }

    /// Clears the flag. Returns whether a part was woken since the last call.
    pub(crate) fn take_mark(&self) -> bool {
        self.marked.swap(false, Ordering::SeqCst)
    }

    /// Whether the flag is set.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked.load(Ordering::SeqCst)
    }

    /// The poll is over. A part that was woken meanwhile has the task polled again.
    pub(crate) fn leave(&self) {
        self.polled.store(false, Ordering::SeqCst);
        // A part that set the flag since it was cleared has seen the poll going on, and has not
        // woken the task.
        if self.take_mark() {
            self.wake_task();
        }
    }

    fn wake_task(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.wake();
    }
}

impl Wake for InnerWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The flag is set first: either `leave` sees it, or this call sees that the poll is over.
        self.marked.store(true, Ordering::SeqCst);
        if !self.polled.load(Ordering::SeqCst) && self.take_mark() {
            self.wake_task();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// A task's waker that counts.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_mark_stands_for_the_task_while_it_is_polled() {
        let (inner, count) = (InnerWaker::new(), Arc::new(Count::default()));
        let (task, part) = (Waker::from(count.clone()), Waker::from(inner.clone()));
        inner.enter(&task);
        part.wake_by_ref();
        part.wake_by_ref();
        assert!(inner.take_mark());
        assert!(!inner.take_mark());
        inner.leave();
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        part.wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "nobody polls it");
        inner.enter(&task);
        assert!(!inner.take_mark(), "the task has been woken for it");
        part.wake_by_ref();
        inner.leave();
        assert_eq!(count.0.load(Ordering::SeqCst), 2, "the mark was left behind");
    }

    #[test]
    fn no_wake_up_is_lost_between_threads() {
        const ROUNDS: usize = 2_000;
        let (inner, count) = (InnerWaker::new(), Arc::new(Count::default()));
        let (task, part) = (Waker::from(count.clone()), Waker::from(inner.clone()));
        for _ in 0..ROUNDS {
            let before = count.0.load(Ordering::SeqCst);
            let mut seen = false;
            thread::scope(|scope| {
                inner.enter(&task);
                // Spawning costs more than the race lasts, so the poll goes on for a moment.
                let waking = scope.spawn(|| part.wake_by_ref());
                while !seen && !waking.is_finished() {
                    seen = inner.take_mark();
                }
                inner.leave();
            });
            let woken = count.0.load(Ordering::SeqCst) - before;
            assert!(seen || woken > 0, "the wake-up was lost");
        }
    }
}
