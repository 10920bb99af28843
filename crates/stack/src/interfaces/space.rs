//! Sockets that wait for space in a full queueing discipline.
//!
//! A connection enters the list when its packet is refused and it has no packet below whose
//! completion would restart it. A UDP socket enters when its datagram is refused. That happens
//! under the discipline's lock, and so does waking them when packets have left, so no socket misses
//! the space. As many sockets are woken as packets have left, in the order of entry, and all of
//! them once the discipline is empty. A socket that is refused again enters at the end.

use std::collections::VecDeque;
use std::sync::Arc;

/// A socket whose packet was refused.
pub(crate) trait SpaceWaiter: Send + Sync {
    /// It waits for space of the interface with this index from now on. Returns whether it did not
    /// before.
    fn begin_wait(&self, interface: u8) -> bool;

    /// It waits for this interface no longer. Returns whether it did until now.
    fn end_wait(&self, interface: u8) -> bool;

    /// Whether it waits for this interface.
    fn is_waiting(&self, interface: u8) -> bool;

    /// There is space: it is to be called soon. No lock of the interface is held.
    fn go_on(&self);
}

/// The sockets that wait for one interface, in order, each at most once. A socket that has ended
/// stays in the list until its turn comes, or until half of the list has ended. So ending a wait
/// takes constant time.
pub(crate) struct SpaceWaiters {
    interface: u8,
    list: VecDeque<Arc<dyn SpaceWaiter>>,
    /// How many in the list have ended.
    ended: usize,
}

impl SpaceWaiters {
    /// No thread waits for the interface with the index `interface`.
    pub(crate) fn new(interface: u8) -> SpaceWaiters {
        SpaceWaiters { interface, list: VecDeque::new(), ended: 0 }
    }

    /// Whether no thread waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Appends `waiter`, unless it waits already.
    pub(crate) fn push<W: SpaceWaiter + 'static>(&mut self, waiter: &Arc<W>) {
        if waiter.begin_wait(self.interface) {
            self.list.push_back(waiter.clone());
        }
    }

    /// Removes the first `count` sockets, which the caller must wake.
    #[must_use]
    pub(crate) fn take(&mut self, count: usize) -> Vec<Arc<dyn SpaceWaiter>> {
        let mut taken = Vec::with_capacity(count.min(self.list.len()));
        while taken.len() < count
            && let Some(waiter) = self.list.pop_front()
        {
            if waiter.end_wait(self.interface) {
                taken.push(waiter);
            } else {
                self.ended -= 1;
            }
        }
        if self.list.is_empty() {
            self.list = VecDeque::new();
        }
        taken
    }

    /// Takes one out that ends. It does not enter again.
    pub(crate) fn forget<W: SpaceWaiter>(&mut self, waiter: &Arc<W>) {
        if waiter.end_wait(self.interface) {
            self.ended += 1;
        }
        if self.ended > self.list.len() / 2 {
            self.list.retain(|waiter| waiter.is_waiting(self.interface));
            self.ended = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Waiter(AtomicBool);

    impl SpaceWaiter for Waiter {
        fn begin_wait(&self, interface: u8) -> bool {
            assert_eq!(interface, 3);
            !self.0.swap(true, Ordering::Relaxed)
        }

        fn end_wait(&self, interface: u8) -> bool {
            assert_eq!(interface, 3);
            self.0.swap(false, Ordering::Relaxed)
        }

        fn is_waiting(&self, _interface: u8) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn go_on(&self) {}
    }

    #[test]
    fn each_waits_once_and_they_go_on_in_order() {
        let all: Vec<Arc<Waiter>> = (0..4).map(|_| Arc::default()).collect();
        let mut waiters = SpaceWaiters::new(3);
        for _ in 0..2 {
            all.iter().for_each(|waiter| waiters.push(waiter));
        }
        waiters.forget(&all[1]);
        let taken = waiters.take(2);
        let expected = [&all[0], &all[2]];
        assert_eq!(taken.len(), 2);
        for (taken, expected) in taken.iter().zip(expected) {
            assert!(std::ptr::addr_eq(Arc::as_ptr(taken), Arc::as_ptr(expected)));
        }
        waiters.push(&all[0]);
        assert_eq!((waiters.take(9).len(), waiters.take(9).len()), (2, 0));
        assert!(waiters.is_empty() && all.iter().all(|waiter| !waiter.0.load(Ordering::Relaxed)));
    }

    #[test]
    fn who_has_ended_is_passed_over_and_let_go() {
        let all: Vec<Arc<Waiter>> = (0..8).map(|_| Arc::default()).collect();
        let mut waiters = SpaceWaiters::new(3);
        all.iter().for_each(|waiter| waiters.push(waiter));
        all[..3].iter().for_each(|waiter| waiters.forget(waiter));
        assert_eq!(waiters.take(2).len(), 2, "the fourth and the fifth");
        waiters.forget(&all[5]);
        waiters.forget(&all[6]);
        assert_eq!(Arc::strong_count(&all[5]), 1, "most of the list had ended");
        assert_eq!((waiters.take(9).len(), waiters.is_empty()), (1, true));
        assert!(all.iter().all(|waiter| Arc::strong_count(waiter) == 1));
    }
}
