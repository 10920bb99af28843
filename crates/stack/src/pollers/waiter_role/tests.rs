//! Tests of the role: that there is one holder, and all interleavings of a hand-over under loom.

#[cfg(not(loom))]
mod order {
    use super::super::*;

    #[test]
    fn one_at_a_time_has_it() {
        let role = WaiterRole::default();
        let held = role.hold().expect("nobody has it");
        assert!(role.hold().is_none());
        assert!(!role.take());
        drop(held);
        assert!(role.take(), "given back");
        assert!(role.hold().is_none());
        role.give_back();
        assert!(role.hold().is_some());
    }
}

#[cfg(loom)]
mod model {
    //! Two threads wait, the second only for a moment, while a third calls the kick once. A thread
    //! that goes to sleep keeps the role and ends; when all are done, the event must be set then,
    //! or it would have slept for ever. Each model is run as it is and with one part taken out.

    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::super::*;
    use crate::Instant;
    use crate::kick::Sleep;

    #[derive(Clone, Copy)]
    struct Parts {
        /// A waiting thread has the role.
        role: bool,
        /// A thread that has taken the role reads the work before it sleeps.
        looks: bool,
    }

    const WHOLE: Parts = Parts { role: true, looks: true };

    struct World {
        role: WaiterRole,
        sleep: Sleep,
        event: Mutex<bool>,
        work: AtomicUsize,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Outcome {
        /// The work was seen.
        Seen,
        /// It sleeps.
        Asleep,
        /// Another thread has the role.
        Refused,
    }

    impl World {
        fn new() -> Arc<World> {
            let (role, sleep, event) = (WaiterRole::default(), Sleep::new(), Mutex::new(false));
            Arc::new(World { role, sleep, event, work: AtomicUsize::new(0) })
        }

        fn kick(&self) {
            self.work.store(1, Ordering::Relaxed);
            if self.sleep.must_wake(Instant::ZERO) {
                *self.event.lock().unwrap() = true;
            }
        }

        fn take(&self, parts: Parts) -> bool {
            !parts.role || self.role.take()
        }

        fn give_back(&self, parts: Parts) {
            self.sleep.awake();
            if parts.role {
                self.role.give_back();
            }
        }

        fn rung(&self) -> bool {
            std::mem::take(&mut *self.event.lock().unwrap())
        }

        /// Waits until there is work.
        fn wait(&self, parts: Parts) -> Outcome {
            while self.take(parts) {
                self.sleep.announce(None);
                let seen = parts.looks && self.work.load(Ordering::Relaxed) == 1;
                if !seen && !self.rung() {
                    return Outcome::Asleep;
                }
                self.give_back(parts);
                if self.work.load(Ordering::Relaxed) == 1 {
                    return Outcome::Seen;
                }
            }
            Outcome::Refused
        }

        /// Waits until a time that has passed, consumes a wake-up, and leaves the work to others.
        fn wait_for_a_moment(&self, parts: Parts) {
            if self.take(parts) {
                self.sleep.announce(None);
                self.rung();
                self.give_back(parts);
            }
        }
    }

    fn hand_over(parts: Parts) {
        loom::model(move || {
            let world = World::new();
            let kicker = {
                let world = world.clone();
                thread::spawn(move || world.kick())
            };
            let other = {
                let world = world.clone();
                thread::spawn(move || world.wait_for_a_moment(parts))
            };
            let mut last = world.wait(parts);
            kicker.join().unwrap();
            other.join().unwrap();
            if last == Outcome::Refused {
                // The call was refused; now the other thread has released the role.
                last = world.wait(parts);
            }
            assert!(last == Outcome::Seen || world.rung(), "the wake-up is lost");
        });
    }

    #[test]
    fn a_hand_over_loses_no_kick() {
        hand_over(WHOLE);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn two_at_a_time_lose_kicks() {
        hand_over(Parts { role: false, ..WHOLE });
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn a_new_holder_that_does_not_look_loses_kicks() {
        hand_over(Parts { looks: false, ..WHOLE });
    }
}
