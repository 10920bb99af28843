//! Tests of ownership: the order of calls, and all interleavings under loom.

#[cfg(not(loom))]
mod order {
    use super::super::*;

    #[test]
    fn what_is_left_with_an_owner_keeps_it_the_owner() {
        let socket = SocketLock::new(0);
        let guard = socket.own();
        assert!(socket.try_own().is_none());
        assert!(socket.leave(BACKLOG).is_none());
        assert!(socket.leave(TIMER).is_none());
        let guard = socket.release(guard).expect("something was left");
        assert!(socket.try_own().is_none());
        assert_eq!(socket.take_left(), BACKLOG | TIMER);
        assert_eq!(socket.take_left(), 0);
        assert!(socket.release(guard).is_none());
        assert!(socket.try_own().is_some());
    }

    #[test]
    fn who_leaves_something_with_nobody_is_the_owner() {
        let socket = SocketLock::new(0);
        let guard = socket.leave(SETTLE).expect("nobody owns it");
        assert!(socket.leave(TIMER).is_none());
        assert_eq!(socket.take_left(), SETTLE | TIMER);
        assert!(socket.release(guard).is_none());
    }

    #[test]
    fn marks_of_who_gave_up_are_for_the_next_owner() {
        let socket = SocketLock::new(0);
        let guard = socket.own();
        assert!(!socket.abandon(guard));
        let guard = socket.leave(COMPLETION).expect("nobody owns it");
        assert!(socket.abandon(guard));
        let guard = socket.own();
        let guard = socket.release(guard).expect("the mark is still there");
        assert_eq!(socket.take_left(), COMPLETION);
        assert!(socket.release(guard).is_none());
    }

    #[test]
    fn threads_wait_for_each_other() {
        let socket = std::sync::Arc::new(SocketLock::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let socket = socket.clone();
                std::thread::spawn(move || {
                    for _ in 0..1000 {
                        let mut guard = socket.own();
                        *guard += 1;
                        assert!(socket.release(guard).is_none());
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*socket.own(), 4000);
    }
}

#[cfg(loom)]
mod model {
    //! Every model is run as it is and with one part taken out.

    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::super::*;

    #[derive(Clone, Copy)]
    struct Parts {
        /// Letting go and looking are one step.
        owner_looks: bool,
        /// Leaving a mark and asking for an owner are one step.
        poller_takes_over: bool,
        /// What was left is settled, even if the owner itself has nothing to settle.
        settles_for_others: bool,
        /// A poller that finds the socket owned at the end of its batch leaves a mark.
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

    impl Socket {
        fn new(parts: Parts) -> Arc<Socket> {
            let lock = SocketLock::new(Connection::default());
            Arc::new(Socket { lock, backlog: Mutex::default(), parts })
        }

        fn let_go<'a>(
            &'a self,
            guard: OwnedGuard<'a, Connection>,
        ) -> Option<OwnedGuard<'a, Connection>> {
            if self.parts.owner_looks {
                return self.lock.release(guard);
            }
            // Looks, and lets go after that.
            if self.lock.state.load(Ordering::Acquire) != OWNED {
                return Some(guard);
            }
            let _ = self.lock.abandon(guard);
            None
        }

        fn leave(&self, marks: u8) -> Option<OwnedGuard<'_, Connection>> {
            if self.parts.poller_takes_over {
                return self.lock.leave(marks);
            }
            self.lock.state.fetch_or(marks, Ordering::AcqRel);
            None
        }

        /// Does what was left; returns whether there was anything.
        fn run_left(&self, connection: &mut Connection) -> bool {
            let left = self.lock.take_left();
            if left & BACKLOG != 0 {
                for segment in std::mem::take(&mut *self.backlog.lock().unwrap()) {
                    connection.worked_on.push(segment);
                    connection.owes_ack = true;
                }
            }
            left != 0
        }

        /// As `Work::release`, without a bound.
        fn release<'a>(&'a self, mut guard: OwnedGuard<'a, Connection>, mut settles: bool) {
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

        /// What an application does that only looks.
        fn call(&self) {
            let guard = self.lock.own();
            self.release(guard, false);
        }

        /// As `call`, but does not wait for another owner: loom cannot follow threads that do.
        fn try_call(&self) {
            if let Some(guard) = self.lock.try_own() {
                self.release(guard, false);
            }
        }

        /// A poller has a segment.
        fn arrive(&self, segment: u32) {
            match self.lock.try_own() {
                Some(mut guard) => {
                    self.run_left(&mut guard);
                    guard.worked_on.push(segment);
                    guard.owes_ack = true;
                    // The batch goes on: nothing is settled yet.
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
            match self.lock.try_own() {
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
                .map(|caller| {
                    let socket = socket.clone();
                    thread::spawn(
                        move || if caller == 0 { socket.call() } else { socket.try_call() },
                    )
                })
                .collect();
            (0..segments).for_each(|segment| socket.arrive(segment));
            socket.end_batch();
            for thread in threads {
                thread.join().unwrap();
            }
            let connection = socket.lock.own();
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
            let connection = socket.lock.own();
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
}
