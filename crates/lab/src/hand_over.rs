//! Hands connections over between the loops of a stack with several queues.
//!
//! The loop whose queue a connection belongs to works for it: its packets come there. So a loop
//! that has accepted a connection of another, or one whose connection has moved, puts it into the
//! [`HandOver`] of that loop, and wakes the task that looks there.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Where one loop takes connections from the others.
pub struct HandOver<T> {
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    waiting: VecDeque<T>,
    /// Of the task that looks here, if it found nothing.
    waker: Option<Waker>,
}

impl<T> Default for HandOver<T> {
    fn default() -> HandOver<T> {
        HandOver::new()
    }
}

impl<T> HandOver<T> {
    /// Nothing waits.
    pub fn new() -> HandOver<T> {
        HandOver { inner: Mutex::new(Inner { waiting: VecDeque::new(), waker: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // The queue is whole at every point where a thread could panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves something for the loop.
    pub fn leave(&self, thing: T) {
        let mut inner = self.lock();
        inner.waiting.push_back(thing);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the task that looks here, if it found nothing.
    pub fn wake(&self) {
        let waker = self.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes all that waits.
    pub fn take_all(&self) -> VecDeque<T> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Takes what waits. If nothing does, `waker` is woken when something comes.
    pub fn take(&self, waker: &Waker) -> Option<T> {
        let mut inner = self.lock();
        let thing = inner.waiting.pop_front();
        if thing.is_none() {
            inner.waker = Some(waker.clone());
        }
        thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_found_nothing_is_woken_once() {
        let (hand_over, woken) = (HandOver::new(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let times = || woken.0.load(Ordering::Relaxed);
        hand_over.leave(1);
        assert_eq!((hand_over.take(&waker), times()), (Some(1), 0));
        assert_eq!(hand_over.take(&waker), None);
        hand_over.leave(2);
        hand_over.leave(3);
        assert_eq!(times(), 1);
        assert_eq!((hand_over.take(&waker), hand_over.take(&waker)), (Some(2), Some(3)));
        assert_eq!((hand_over.take(&waker), times()), (None, 1));
    }
}
