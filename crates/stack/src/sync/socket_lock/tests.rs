//! Tests of ownership: the order of calls, and all interleavings under loom.

#[cfg(not(loom))]
mod order {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::super::*;

    /// A number behind the lock, and the releases of its owners.
    #[derive(Default)]
    struct Number {
        lock: SocketLock<u32>,
        handed_on: AtomicU32,
    }

    impl Default for SocketLock<u32> {
        fn default() -> SocketLock<u32> {
            SocketLock::new(0)
        }
    }

    impl Number {
        fn handed_on(&self) -> u32 {
            self.handed_on.swap(0, Ordering::Relaxed)
        }
    }

    impl Place for Number {
        type Value = u32;

        fn socket(&self) -> &SocketLock<u32> {
            &self.lock
        }

        fn hand_on(&self) {
            self.handed_on.fetch_add(1, Ordering::Relaxed);
        }

        fn owner_unwinds(&self, value: &mut u32) {
            *value = 99;
        }
    }

    #[test]
    fn what_is_left_with_an_owner_keeps_it_the_owner() {
        let number = Number::default();
        let owned = Owned::wait(&number);
        assert!(Owned::try_own(&number).is_none());
        assert!(Owned::leave(&number, BACKLOG).is_none());
        assert!(Owned::leave(&number, TIMER).is_none());
        let owned = owned.release().expect("something was left");
        assert!(Owned::try_own(&number).is_none());
        assert_eq!(owned.take_left(), BACKLOG | TIMER);
        assert_eq!(owned.take_left(), 0);
        assert!(owned.release().is_none());
        assert!(Owned::try_own(&number).is_some());
        assert_eq!(number.handed_on(), 0);
    }

    #[test]
    fn who_leaves_something_with_nobody_is_the_owner() {
        let number = Number::default();
        let owned = Owned::leave(&number, SETTLE).expect("nobody owns it");
        assert!(Owned::leave(&number, TIMER).is_none());
        assert_eq!(owned.take_left(), SETTLE | TIMER);
        assert!(owned.release().is_none());
    }

    #[test]
    fn marks_of_who_gave_up_are_for_the_next_owner() {
        let number = Number::default();
        drop(Owned::wait(&number));
        assert_eq!(number.handed_on(), 0);
        drop(Owned::leave(&number, COMPLETION).expect("nobody owns it"));
        assert_eq!(number.handed_on(), 1, "somebody must come");
        let owned = Owned::wait(&number).release().expect("the mark is still there");
        assert_eq!(owned.take_left(), COMPLETION);
        assert!(owned.release().is_none());
    }

    #[test]
    fn an_owner_that_unwinds_says_so() {
        let number = Number::default();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut owned = Owned::wait(&number);
            *owned = 7;
            panic!("half changed");
        }));
        assert!(unwound.is_err());
        assert_eq!(number.handed_on(), 1);
        assert_eq!(*Owned::try_own(&number).expect("it was let go"), 99);
    }

    #[test]
    fn an_owner_that_cleans_up_after_a_panic_is_as_any_other() {
        struct CleanUp<'a>(&'a Number);
        impl Drop for CleanUp<'_> {
            fn drop(&mut self) {
                *Owned::wait(self.0) = 7;
            }
        }
        let number = Number::default();
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _clean_up = CleanUp(&number);
            panic!("elsewhere");
        }));
        assert!(unwound.is_err());
        assert_eq!(number.handed_on(), 0);
        assert_eq!(*Owned::wait(&number), 7);
    }

    #[test]
    fn threads_wait_for_each_other() {
        let number = Arc::new(Number::default());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let number = number.clone();
                thread::spawn(move || {
                    for _ in 0..1000 {
                        let mut owned = Owned::wait(&*number);
                        *owned += 1;
                        assert!(owned.release().is_none());
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*Owned::wait(&*number), 4000);
    }

    /// An owner that comes back at once, again and again, does so until the other had its turn.
    #[test]
    fn a_waiting_thread_gets_its_turn() {
        let number = Arc::new(Number::default());
        let waiting = {
            let number = number.clone();
            thread::spawn(move || (0..20).for_each(|_| *Owned::wait(&*number) += 1))
        };
        loop {
            let owned = Owned::wait(&*number);
            if *owned == 20 {
                break;
            }
            std::hint::black_box((0..1000).sum::<u32>());
            assert!(owned.release().is_none());
        }
        waiting.join().unwrap();
    }
}

#[cfg(loom)]
mod model {
    //! Every model is run as it is and with one part taken out.

    use loom::cell::Cell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::super::{
        AWAITED, BACKLOG, MARKS, OWNED, Ordering, Owned, Place, SETTLE, SocketLock, UnsafeCell,
        Word,
    };

    #[derive(Clone, Copy)]
    struct Parts {
        /// Releasing and checking are one step.
        owner_looks: bool,
        /// Setting a flag and checking for an owner are one step.
        poller_takes_over: bool,
        /// Work that others left is settled, even if the owner itself has nothing to settle.
        settles_for_others: bool,
        /// A poller that finds the socket owned at the end of its batch sets a flag.
        marks_the_end: bool,
    }

    const WHOLE: Parts = Parts {
        owner_looks: true,
        poller_takes_over: true,
        settles_for_others: true,
        marks_the_end: true,
    };

    /// A connection of which only the order of its segments and the owed ACK matter.
    #[derive(Default)]
    struct Connection {
        worked_on: Vec<u32>,
        owes_ack: bool,
    }

    struct Socket {
        lock: SocketLock<Connection>,
        backlog: Mutex<Vec<u32>>,
        parts: Parts,
    }

    impl Place for Socket {
        type Value = Connection;

        fn socket(&self) -> &SocketLock<Connection> {
            &self.lock
        }

        fn hand_on(&self) {}

        fn owner_unwinds(&self, _: &mut Connection) {}
    }

    impl Socket {
        fn new(parts: Parts) -> Arc<Socket> {
            let lock = SocketLock::new(Connection::default());
            Arc::new(Socket { lock, backlog: Mutex::default(), parts })
        }

        fn let_go<'a>(&self, owned: Owned<'a, Socket>) -> Option<Owned<'a, Socket>> {
            if self.parts.owner_looks {
                return owned.release();
            }
            // Checks, and releases after that.
            if self.lock.word.state.load(Ordering::Acquire) & MARKS != 0 {
                return Some(owned);
            }
            drop(owned);
            None
        }

        fn leave(&self, marks: u32) -> Option<Owned<'_, Socket>> {
            if self.parts.poller_takes_over {
                return Owned::leave(self, marks);
            }
            self.lock.word.state.fetch_or(marks, Ordering::AcqRel);
            None
        }

        /// Does the work that was left; returns whether there was any.
        fn run_left(&self, connection: &mut Owned<'_, Socket>) -> bool {
            let left = connection.take_left();
            if left & BACKLOG != 0 {
                for segment in std::mem::take(&mut *self.backlog.lock().unwrap()) {
                    connection.worked_on.push(segment);
                    connection.owes_ack = true;
                }
            }
            left != 0
        }

        /// As `Work::release`, without a bound.
        fn release(&self, mut guard: Owned<'_, Socket>, mut settles: bool) {
            loop {
                let left = self.run_left(&mut guard);
                settles |= left && self.parts.settles_for_others;
                if std::mem::take(&mut settles) {
                    guard.owes_ack = false;
                }
                match self.let_go(guard) {
                    Some(again) => guard = again,
                    None => return,
                }
            }
        }

        /// A read-only call of an application.
        fn call(&self) {
            let guard = Owned::wait(self);
            self.release(guard, false);
        }

        /// A poller has a segment.
        fn arrive(&self, segment: u32) {
            match Owned::try_own(self) {
                Some(mut guard) => {
                    self.run_left(&mut guard);
                    guard.worked_on.push(segment);
                    guard.owes_ack = true;
                    // The batch continues: nothing is settled yet.
                    let again = self.let_go(guard);
                    if let Some(guard) = again {
                        self.release(guard, false);
                    }
                }
                None => {
                    self.backlog.lock().unwrap().push(segment);
                    if let Some(guard) = self.leave(BACKLOG) {
                        self.release(guard, false);
                    }
                }
            }
        }

        /// The batch of the poller ends.
        fn end_batch(&self) {
            match Owned::try_own(self) {
                Some(guard) => self.release(guard, true),
                None if self.parts.marks_the_end => {
                    if let Some(guard) = self.leave(SETTLE) {
                        self.release(guard, false);
                    }
                }
                None => {}
            }
        }
    }

    /// A poller has `segments` for a socket with which `callers` work.
    fn segments(parts: Parts, segments: u32, callers: usize) {
        loom::model(move || {
            let socket = Socket::new(parts);
            let threads: Vec<_> = (0..callers)
                .map(|_| {
                    let socket = socket.clone();
                    thread::spawn(move || socket.call())
                })
                .collect();
            (0..segments).for_each(|segment| socket.arrive(segment));
            socket.end_batch();
            for thread in threads {
                thread.join().unwrap();
            }
            let connection = Owned::wait(&*socket);
            let expected: Vec<u32> = (0..segments).collect();
            assert_eq!(connection.worked_on, expected, "a segment is left behind");
            assert!(!connection.owes_ack, "an ACK is owed for ever");
        });
    }

    #[test]
    fn no_segment_is_left_behind_and_the_order_stays() {
        segments(WHOLE, 2, 1);
    }

    #[test]
    fn no_segment_is_left_behind_between_two_callers() {
        segments(WHOLE, 1, 2);
    }

    #[test]
    #[should_panic(expected = "the segment is left behind")]
    fn an_owner_that_lets_go_after_looking_leaves_it() {
        one_segment(Parts { owner_looks: false, ..WHOLE });
    }

    #[test]
    #[should_panic(expected = "the segment is left behind")]
    fn a_poller_that_does_not_take_over_leaves_it() {
        one_segment(Parts { poller_takes_over: false, ..WHOLE });
    }

    #[test]
    fn one_segment_is_worked_on() {
        one_segment(WHOLE);
    }

    /// As `segments`, but nothing comes behind the segment that would help it along.
    fn one_segment(parts: Parts) {
        loom::model(move || {
            let socket = Socket::new(parts);
            let caller = {
                let socket = socket.clone();
                thread::spawn(move || socket.call())
            };
            socket.arrive(0);
            caller.join().unwrap();
            let connection = Owned::wait(&*socket);
            assert_eq!(connection.worked_on, [0], "the segment is left behind");
        });
    }

    #[test]
    fn a_deferred_ack_leaves() {
        segments(WHOLE, 1, 1);
    }

    #[test]
    #[should_panic(expected = "an ACK is owed for ever")]
    fn an_owner_that_does_not_settle_for_others_owes_it() {
        segments(Parts { settles_for_others: false, ..WHOLE }, 1, 1);
    }

    #[test]
    #[should_panic(expected = "an ACK is owed for ever")]
    fn a_batch_whose_end_is_not_marked_owes_it() {
        segments(Parts { marks_the_end: false, ..WHOLE }, 1, 1);
    }

    /// A count behind the lock. Loom detects two threads that use it without one having seen the
    /// other's writes.
    struct Count(SocketLock<Cell<u32>>);

    impl Count {
        /// With a lock that is always, or never, handed to a thread that waits.
        fn new(in_turn: bool) -> Arc<Count> {
            let word = Word::fair(0, in_turn);
            Arc::new(Count(SocketLock { word, value: UnsafeCell::new(Cell::new(0)) }))
        }

        fn add(&self) {
            let owned = Owned::wait(self);
            owned.set(owned.get() + 1);
            assert!(owned.release().is_none(), "nobody leaves anything");
        }
    }

    impl Place for Count {
        type Value = Cell<u32>;

        fn socket(&self) -> &SocketLock<Cell<u32>> {
            &self.0
        }

        fn hand_on(&self) {}

        fn owner_unwinds(&self, _: &mut Cell<u32>) {}
    }

    /// As many threads as `others`, and this one, own the socket once each.
    fn owners(in_turn: bool, others: usize) {
        loom::model(move || {
            let count = Count::new(in_turn);
            let threads: Vec<_> = (0..others)
                .map(|_| {
                    let count = count.clone();
                    thread::spawn(move || count.add())
                })
                .collect();
            count.add();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(Owned::wait(&*count).get(), others as u32 + 1);
        });
    }

    #[test]
    fn who_waits_is_woken() {
        owners(false, 1);
    }

    #[test]
    fn who_waits_is_handed_the_socket() {
        owners(true, 1);
    }

    #[test]
    fn two_who_wait_both_get_it() {
        owners(false, 2);
    }

    #[test]
    fn two_who_wait_are_both_handed_the_socket() {
        owners(true, 2);
    }

    /// A thread finds an owner and goes to sleep, and stays so unless it is woken. (A thread that
    /// really slept for ever would end the model as a deadlock, which the test cannot expect.)
    fn sleeper(looks_again: bool, owner_wakes: bool) {
        loom::model(move || {
            let count = Count::new(false);
            let owner = {
                let count = count.clone();
                thread::spawn(move || {
                    assert!(owner_wakes || count.0.try_own());
                    if owner_wakes {
                        count.add();
                    } else {
                        count.0.word.state.fetch_and(!OWNED, Ordering::Release);
                    }
                })
            };
            let word = &count.0.word;
            let mut bed = None;
            if word.state.fetch_or(AWAITED, Ordering::Relaxed) & OWNED != 0 {
                bed = word.lie_down(|| !looks_again || count.0.is_awaited());
            }
            owner.join().unwrap();
            assert!(bed.is_none_or(|bed| !word.is_in(bed)), "the wake-up is lost");
        });
    }

    #[test]
    fn who_sleeps_is_woken() {
        sleeper(true, true);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn who_sleeps_without_looking_again_is_not_woken() {
        sleeper(false, true);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn an_owner_that_wakes_nobody_leaves_it_asleep() {
        sleeper(true, false);
    }

    /// Work that is left while a thread is woken is done by that thread, if not by the owner.
    #[test]
    fn what_is_left_while_a_thread_is_woken_is_done() {
        loom::model(|| {
            let socket = Socket::new(WHOLE);
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let socket = socket.clone();
                    thread::spawn(move || socket.call())
                })
                .collect();
            socket.arrive(0);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(Owned::wait(&*socket).worked_on, [0], "the segment is left behind");
        });
    }
}
