//! A word of atomic state, and the threads that sleep until it changes.
//!
//! The threads sleep in the queues of `parking_lot_core`, which are found by the address of the
//! word: a word that no thread waits for costs four bytes. Under loom a mutex and a condition
//! variable replace those queues.
//!
//! A thread reads the word again under the lock of its queue, and only then sleeps
//! ([`Word::sleep`]). A thread that wakes another changes the word under the same lock
//! ([`Word::wake_one`]). So a thread either sees the change or is in the queue by then: no wake-up
//! is lost.

#[cfg(all(loom, test))]
use loom::sync::atomic::AtomicU32;
#[cfg(not(all(loom, test)))]
use std::sync::atomic::AtomicU32;

#[cfg(not(all(loom, test)))]
use parking_lot_core::{
    DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult, UnparkToken, park, unpark_one,
};

/// The state, and the sleeping threads.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) state: AtomicU32,
    #[cfg(all(loom, test))]
    queue: model::Queue,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Read the word again.
    Again,
    /// The thread was handed the resource that it waited for.
    Handed,
}

/// The thread that is about to be woken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleeper {
    /// Others sleep as well.
    pub(super) others: bool,
    /// It is time to hand over: otherwise the sleeping threads might never find the word free.
    pub(super) in_turn: bool,
}

#[cfg(not(all(loom, test)))]
const HANDED: UnparkToken = UnparkToken(1);

#[cfg(not(all(loom, test)))]
impl Word {
    pub(super) const fn new(state: u32) -> Word {
        Word { state: AtomicU32::new(state) }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.state).addr()
    }

    /// Sleeps if `still` returns true. `still` only reads the word.
    pub(super) fn sleep(&self, still: impl FnOnce() -> bool) -> Woken {
        // SAFETY: the key is a local address, at which no other code parks. `still` reads an
        // atomic; it neither panics nor parks, and the other two do nothing.
        let parked = unsafe { park(self.key(), still, || {}, |_, _| {}, DEFAULT_PARK_TOKEN, None) };
        if parked == ParkResult::Unparked(HANDED) { Woken::Handed } else { Woken::Again }
    }

    /// Wakes one thread, if one sleeps. `change` gets that sleeper and changes the word; it returns
    /// how that thread wakes.
    pub(super) fn wake_one(&self, change: impl FnOnce(Option<Sleeper>) -> Woken) {
        // SAFETY: the key is as in `sleep`. `change` only writes an atomic; it neither panics nor
        // parks.
        unsafe {
            unpark_one(self.key(), |found| {
                let sleeper = (found.unparked_threads > 0)
                    .then_some(Sleeper { others: found.have_more_threads, in_turn: found.be_fair });
                match change(sleeper) {
                    Woken::Handed => HANDED,
                    Woken::Again => DEFAULT_UNPARK_TOKEN,
                }
            });
        }
    }
}

#[cfg(all(loom, test))]
mod model {
    //! The queues under loom.

    use std::collections::VecDeque;

    use loom::sync::{Condvar, Mutex};

    use super::{AtomicU32, Sleeper, Woken, Word};

    #[derive(Debug)]
    pub(super) struct Queue {
        threads: Mutex<Threads>,
        woken: Condvar,
        in_turn: bool,
    }

    #[derive(Debug, Default)]
    struct Threads {
        next: u32,
        asleep: VecDeque<u32>,
        woken: Vec<(u32, Woken)>,
    }

    impl Word {
        pub(in super::super) fn new(state: u32) -> Word {
            Word::fair(state, false)
        }

        /// A word that is always, or never, handed over.
        pub(in super::super) fn fair(state: u32, in_turn: bool) -> Word {
            let queue =
                Queue { threads: Mutex::new(Threads::default()), woken: Condvar::new(), in_turn };
            Word { state: AtomicU32::new(state), queue }
        }

        pub(in super::super) fn sleep(&self, still: impl FnOnce() -> bool) -> Woken {
            let Some(me) = self.lie_down(still) else { return Woken::Again };
            let mut threads = self.queue.threads.lock().unwrap();
            loop {
                if let Some(at) = threads.woken.iter().position(|&(thread, _)| thread == me) {
                    return threads.woken.swap_remove(at).1;
                }
                threads = self.queue.woken.wait(threads).unwrap();
            }
        }

        /// Enters the queue if `still` returns true.
        pub(in super::super) fn lie_down(&self, still: impl FnOnce() -> bool) -> Option<u32> {
            let mut threads = self.queue.threads.lock().unwrap();
            if !still() {
                return None;
            }
            let me = threads.next;
            threads.next += 1;
            threads.asleep.push_back(me);
            Some(me)
        }

        /// Whether a thread is in the queue.
        pub(in super::super) fn is_in(&self, thread: u32) -> bool {
            self.queue.threads.lock().unwrap().asleep.contains(&thread)
        }

        pub(in super::super) fn wake_one(&self, change: impl FnOnce(Option<Sleeper>) -> Woken) {
            let mut threads = self.queue.threads.lock().unwrap();
            let thread = threads.asleep.pop_front();
            let others = !threads.asleep.is_empty();
            let sleeper = thread.map(|_| Sleeper { others, in_turn: self.queue.in_turn });
            let how = change(sleeper);
            if let Some(thread) = thread {
                threads.woken.push((thread, how));
                self.queue.woken.notify_all();
            }
        }
    }
}
