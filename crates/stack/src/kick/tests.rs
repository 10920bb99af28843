//! Tests of the hand-over: against the system, and all interleavings under loom.

#[cfg(not(loom))]
mod system {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::super::*;

    fn readable(kick: &Kick) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(kick.fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).unwrap() == 1
    }

    #[test]
    fn kicking_a_running_poller_costs_nothing() {
        let kick = Kick::new().unwrap();
        kick.kick();
        assert!(!readable(&kick));
        assert_eq!(kick.wakes(), 0);
    }

    #[test]
    fn a_sleeping_poller_is_woken_once() {
        let kick = Kick::new().unwrap();
        kick.announce(None);
        kick.clone().kick();
        kick.kick();
        assert!(readable(&kick));
        assert_eq!(kick.wakes(), 1);
        kick.awake(true);
        assert!(!readable(&kick));
    }

    #[test]
    fn a_kick_survives_a_second_announcement() {
        let kick = Kick::new().unwrap();
        kick.announce(None);
        kick.kick();
        kick.announce(Some(Instant::from_millis(5)));
        assert!(readable(&kick));
        kick.awake(true);
        kick.kick();
        assert_eq!(kick.wakes(), 1);
    }

    #[test]
    fn a_timer_wakes_only_who_would_sleep_longer() {
        let kick = Kick::new().unwrap();
        kick.announce(Some(Instant::from_millis(5)));
        kick.kick_before(Instant::from_millis(5));
        kick.kick_before(Instant::from_millis(6));
        assert_eq!(kick.wakes(), 0);
        kick.kick_before(Instant::from_millis(4));
        assert_eq!(kick.wakes(), 1);
    }

    #[test]
    fn arrivals_do_not_kick_while_another_thread_looks_after_them() {
        let kick = Kick::new().unwrap();
        kick.announce(None);
        kick.set_quiet(true);
        kick.kick_for_arrival();
        assert!(!readable(&kick));
        kick.set_quiet(false);
        kick.kick_for_arrival();
        assert!(readable(&kick));
        kick.awake(true);
        kick.announce(None);
        kick.set_quiet(true);
        kick.kick();
        assert!(readable(&kick), "other kicks do");
    }

    #[test]
    fn a_wake_up_that_comes_late_only_ends_one_sleep_early() {
        let kick = Kick::new().unwrap();
        kick.announce(None);
        assert!(kick.0.sleep.must_wake(Instant::ZERO));
        kick.awake(false);
        // The kicker was slow: it writes now.
        kick.0.event.set();
        kick.announce(None);
        assert!(readable(&kick));
        kick.awake(true);
        assert!(!readable(&kick));
    }
}

#[cfg(loom)]
mod model {
    //! The eventfd is a flag under a mutex. A poller that goes to sleep ends its thread; when all
    //! kickers are done, the flag must be set, or it would have slept for ever. Each model is run
    //! as it is and with one part taken out.

    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::super::*;

    struct World {
        sleep: Sleep,
        event: Mutex<bool>,
        /// Bit n is set when worker n has work for the poller.
        work: AtomicUsize,
    }

    impl World {
        fn new() -> Arc<World> {
            let (sleep, event) = (Sleep::new(), Mutex::new(false));
            Arc::new(World { sleep, event, work: AtomicUsize::new(0) })
        }

        fn ring(&self) {
            *self.event.lock().unwrap() = true;
        }

        fn rung(&self) -> bool {
            std::mem::take(&mut *self.event.lock().unwrap())
        }

        fn seen(&self) -> usize {
            self.work.load(Ordering::Relaxed)
        }
    }

    #[derive(Clone, Copy)]
    struct Parts {
        kicker_fence: bool,
        poller_fence: bool,
        poller_re_reads: bool,
        awake_fence: bool,
    }

    const WHOLE: Parts =
        Parts { kicker_fence: true, poller_fence: true, poller_re_reads: true, awake_fence: true };

    fn kicker(world: &World, parts: Parts, worker: usize) {
        world.work.fetch_or(1 << worker, Ordering::Relaxed);
        let wake = if parts.kicker_fence {
            world.sleep.must_wake(Instant::ZERO)
        } else {
            world.sleep.0.load(Ordering::Relaxed) >= ASLEEP
        };
        if wake {
            world.ring();
        }
    }

    fn announce(world: &World, parts: Parts) {
        if parts.poller_fence {
            world.sleep.announce(None);
        } else {
            world.sleep.0.store(u64::MAX, Ordering::Relaxed);
        }
    }

    fn awake(world: &World, parts: Parts) {
        if parts.awake_fence {
            world.sleep.awake();
        } else {
            world.sleep.0.swap(AWAKE, Ordering::Relaxed);
        }
    }

    /// Runs until all work was seen, or until it goes to sleep with no wake-up in sight.
    fn sleeps(world: &World, parts: Parts, all: usize) -> bool {
        loop {
            if world.seen() == all {
                return false;
            }
            announce(world, parts);
            if parts.poller_re_reads && world.seen() == all {
                awake(world, parts);
                return false;
            }
            if !world.rung() {
                return true;
            }
            awake(world, parts);
        }
    }

    fn run(parts: Parts, workers: usize) {
        loom::model(move || {
            let world = World::new();
            let all = (1 << workers) - 1;
            let threads: Vec<_> = (0..workers)
                .map(|worker| {
                    let world = world.clone();
                    thread::spawn(move || kicker(&world, parts, worker))
                })
                .collect();
            let asleep = sleeps(&world, parts, all);
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(!asleep || world.rung(), "the wake-up is lost");
        });
    }

    #[test]
    fn no_wake_up_is_lost() {
        run(WHOLE, 1);
    }

    #[test]
    fn no_wake_up_is_lost_with_two_kickers() {
        run(WHOLE, 2);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_the_fence_of_the_kicker_it_is_lost() {
        run(Parts { kicker_fence: false, ..WHOLE }, 1);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_the_fence_of_the_poller_it_is_lost() {
        run(Parts { poller_fence: false, ..WHOLE }, 1);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_reading_again_it_is_lost() {
        run(Parts { poller_re_reads: false, ..WHOLE }, 1);
    }

    /// A kicker that finds the poller already about to be woken relies only on the poller's reading
    /// its work when it is awake again.
    fn second_kicker(parts: Parts) {
        loom::model(move || {
            let world = World::new();
            world.sleep.announce(None);
            assert!(world.sleep.must_wake(Instant::ZERO));
            let late = world.clone();
            let thread = thread::spawn(move || {
                late.work.store(1, Ordering::Relaxed);
                late.sleep.must_wake(Instant::ZERO);
                fence(Ordering::SeqCst);
                late.sleep.0.load(Ordering::Relaxed)
            });
            awake(&world, parts);
            let seen = world.seen();
            let state = thread.join().unwrap();
            assert!(state != KICKED || seen == 1, "the wake-up is lost");
        });
    }

    #[test]
    fn a_second_kicker_may_rely_on_the_first() {
        second_kicker(WHOLE);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_the_fence_after_waking_it_may_not() {
        second_kicker(Parts { awake_fence: false, ..WHOLE });
    }

    /// A packet arrives while the time ends in which devices do not wake the poller.
    fn quiet_ends(device_fence: bool, poller_fence: bool) {
        loom::model(move || {
            let world = World::new();
            let quiet = Arc::new(Quiet::new());
            quiet.0.store(true, Ordering::Relaxed);
            let device = {
                let (world, quiet) = (world.clone(), quiet.clone());
                thread::spawn(move || {
                    world.work.store(1, Ordering::Relaxed);
                    let holds =
                        if device_fence { quiet.holds() } else { quiet.0.load(Ordering::Relaxed) };
                    if !holds {
                        world.ring();
                    }
                })
            };
            if poller_fence {
                quiet.set(false);
            } else {
                quiet.0.store(false, Ordering::Relaxed);
            }
            let asleep = world.seen() == 0;
            device.join().unwrap();
            assert!(!asleep || world.rung(), "the wake-up is lost");
        });
    }

    #[test]
    fn what_arrives_while_quiet_ends_is_seen() {
        quiet_ends(true, true);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_the_fence_of_the_device_it_is_not() {
        quiet_ends(false, true);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_the_fence_after_quiet_it_is_not() {
        quiet_ends(true, false);
    }

    /// A timer that is armed while the poller goes from its first announcement to one with a
    /// deadline is either seen or wakes it.
    #[test]
    fn an_earlier_timer_is_never_missed() {
        loom::model(|| {
            let world = World::new();
            let armed = world.clone();
            let thread = thread::spawn(move || {
                armed.work.store(1, Ordering::Relaxed);
                if armed.sleep.must_wake(Instant::from_nanos(100)) {
                    armed.ring();
                }
            });
            world.sleep.announce(None);
            let asleep = world.seen() == 0;
            if asleep {
                world.sleep.announce(Some(Instant::from_nanos(200)));
            }
            thread.join().unwrap();
            assert!(!asleep || world.rung(), "the wake-up is lost");
        });
    }

    /// A flag that a waker puts up.
    #[derive(Default)]
    struct Flag(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Flag {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A poller that is a task sleeps, is polled again for another reason and by another waker, and
    /// sleeps again, while work comes. Either it sees the work, or the waker of its last sleep is
    /// woken: the waker of the earlier sleep may be obsolete.
    #[test]
    fn a_task_that_changes_its_waker_misses_nothing() {
        loom::model(|| {
            let (world, waker) = (World::new(), Arc::new(TaskWaker::new()));
            let flags = [(); 2].map(|()| std::sync::Arc::new(Flag::default()));
            let kicker = {
                let (world, waker) = (world.clone(), waker.clone());
                thread::spawn(move || {
                    world.work.store(1, Ordering::Relaxed);
                    if world.sleep.must_wake(Instant::ZERO) {
                        waker.get().expect("a task that sleeps has a waker").wake();
                    }
                })
            };
            let sleeps_by = |flag: &std::sync::Arc<Flag>| {
                waker.set(Some(&Waker::from(flag.clone())));
                world.sleep.announce(None);
                world.seen() == 0
            };
            let mut asleep = sleeps_by(&flags[0]);
            if asleep {
                world.sleep.awake();
                asleep = world.seen() == 0 && sleeps_by(&flags[1]);
            }
            kicker.join().unwrap();
            let woken = flags[1].0.load(Ordering::Relaxed);
            assert!(!asleep || woken, "the wake-up is lost");
        });
    }
}
