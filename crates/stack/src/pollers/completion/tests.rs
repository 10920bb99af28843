//! Tests of the hand-over: of the order of calls, and all interleavings under loom.

#[cfg(not(loom))]
mod order {
    use super::super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    fn taken(completions: &Completions) -> Vec<u32> {
        let mut out = ArrayVec::new();
        completions.take(&mut out);
        out.iter().map(|id| id.slot).collect()
    }

    #[test]
    fn a_completion_takes_the_mark_once() {
        let below = BelowUs::default();
        below.charge(300);
        assert!(!below.release(100, 1), "nobody waits");
        assert!(!below.throttle(200), "nothing has completed since");
        assert!(below.release(100, 2));
        assert!(!below.release(50, 3), "the mark is gone");
        assert_eq!(below.get(), (50, 3));
    }

    #[test]
    fn what_completed_before_the_mark_is_seen() {
        let below = BelowUs::default();
        below.charge(300);
        assert!(!below.release(100, 1));
        assert!(below.throttle(300), "the count has fallen");
        assert!(below.release(100, 2), "the mark stays");
        assert!(!below.release(100, 3));
        assert!(below.throttle(0), "nothing is below: no completion will come");
    }

    #[test]
    fn a_socket_is_queued_once() {
        let below = BelowUs::default();
        below.charge(300);
        assert!(!below.throttle(300));
        assert!(below.release(100, 1));
        assert!(!below.throttle(200));
        assert!(!below.release(100, 2), "it is queued already");
        below.take_up();
        assert!(!below.throttle(100));
        assert!(below.release(100, 3));
    }

    #[test]
    fn an_idle_queue_keeps_no_room_and_loses_nothing() {
        let completions = Completions::new(Kick::new().unwrap());
        (0..100).for_each(|slot| completions.push(id(slot)));
        completions.on_idle();
        let mut seen = Vec::new();
        while !completions.is_empty() {
            seen.extend(taken(&completions));
        }
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert!(completions.queue.lock().capacity() >= 100);
        completions.on_idle();
        assert_eq!(completions.queue.lock().capacity(), 0);
    }

    #[test]
    fn an_old_mark_is_harmless() {
        let below = BelowUs::default();
        below.charge(300);
        assert!(!below.throttle(300));
        below.end_throttle();
        assert!(!below.release(100, 1));
        assert!(!below.throttle(200));
        assert!(!below.throttle(200), "marked already");
        below.end_throttle();
        below.end_throttle();
        assert!(!below.release(200, 2));
    }

    #[test]
    fn who_attends_is_not_kicked() {
        let kick = Kick::new().expect("an eventfd");
        let completions = Completions::new(kick.clone());
        let other = Completions::new(kick.clone());
        kick.announce(None);
        {
            let _attending = completions.attend();
            completions.push(id(1));
            assert_eq!(kick.wakes(), 0);
            let _inner = other.attend();
            other.push(id(2));
            assert_eq!(kick.wakes(), 0);
            completions.push(id(3));
            assert_eq!(kick.wakes(), 1, "attending to another queue is not enough");
        }
        assert_eq!((taken(&completions), taken(&other)), (vec![1, 3], vec![2]));
        kick.awake(true);
        kick.announce(None);
        completions.push(id(4));
        assert_eq!(kick.wakes(), 2);
        assert!(!completions.is_empty());
        assert_eq!(taken(&completions), [4]);
        assert!(completions.is_empty());
    }

    #[test]
    fn many_are_taken_in_turns() {
        let completions = Completions::new(Kick::new().expect("an eventfd"));
        (0..BATCH as u32 + 3).for_each(|slot| completions.push(id(slot)));
        assert_eq!(taken(&completions).len(), BATCH);
        assert!(!completions.is_empty());
        assert_eq!(taken(&completions).len(), 3);
        assert!(completions.is_empty());
    }
}

#[cfg(loom)]
mod model {
    //! Every model is run as it is and with one part taken out.

    use loom::sync::Arc;
    use loom::thread;

    use super::super::*;
    use crate::kick::Sleep;

    const ID: ConnectionId = ConnectionId { slot: 0, generation: 0 };

    #[derive(Clone, Copy)]
    struct Parts {
        owner_fence: bool,
        owner_re_reads: bool,
        completion_fence: bool,
    }

    const WHOLE: Parts = Parts { owner_fence: true, owner_re_reads: true, completion_fence: true };

    fn release(below: &BelowUs, parts: Parts, serial: u64) -> bool {
        if parts.completion_fence {
            return below.release(1, serial);
        }
        below.bytes.fetch_sub(1, Ordering::Release);
        // A load, not a read-modify-write, which would never be stale.
        below.marks.load(Ordering::Relaxed) & THROTTLED != 0
    }

    fn throttle(below: &BelowUs, parts: Parts, seen: u32) -> bool {
        if parts.owner_fence && parts.owner_re_reads {
            return below.throttle(seen);
        }
        below.marks.store(THROTTLED, Ordering::Relaxed);
        if parts.owner_fence {
            fence(Ordering::SeqCst);
        }
        parts.owner_re_reads && below.bytes.load(Ordering::Relaxed) < seen
    }

    /// The owner is held by the one packet below it, which completes.
    fn throttled_mark(parts: Parts) {
        loom::model(move || {
            let below = Arc::new(BelowUs::default());
            below.charge(1);
            let device = {
                let below = below.clone();
                thread::spawn(move || release(&below, parts, 1))
            };
            let again = throttle(&below, parts, 1);
            let told = device.join().unwrap();
            assert!(again || told, "the socket waits for ever");
        });
    }

    #[test]
    fn a_throttled_socket_goes_on() {
        throttled_mark(WHOLE);
    }

    #[test]
    #[should_panic(expected = "the socket waits for ever")]
    fn without_the_fence_of_the_owner_it_waits() {
        throttled_mark(Parts { owner_fence: false, ..WHOLE });
    }

    #[test]
    #[should_panic(expected = "the socket waits for ever")]
    fn without_the_fence_of_the_completion_it_waits() {
        throttled_mark(Parts { completion_fence: false, ..WHOLE });
    }

    #[test]
    #[should_panic(expected = "the socket waits for ever")]
    fn without_reading_again_it_waits() {
        throttled_mark(Parts { owner_re_reads: false, ..WHOLE });
    }

    /// A socket with one write that automatic corking may hold.
    struct Socket {
        below: BelowUs,
        /// Bytes that were written and have not left.
        corked: Mutex<u32>,
    }

    impl Socket {
        fn new(below: u32) -> Arc<Socket> {
            let socket = Socket { below: BelowUs::default(), corked: Mutex::new(0) };
            socket.below.charge(below);
            Arc::new(socket)
        }

        /// Writes; holds it if something is below, as a write does.
        fn write(&self, parts: Parts) {
            let mut corked = self.corked.lock().unwrap();
            *corked += 1;
            let (seen, _) = self.below.get();
            if seen == 0 || throttle(&self.below, parts, seen) {
                *corked = 0;
            }
        }

        /// Continues the socket after a completion.
        fn go_on(&self) {
            self.below.take_up();
            *self.corked.lock().unwrap() = 0;
        }
    }

    /// A thread writes while the packets below complete, one on each of `devices` threads.
    fn cork(parts: Parts, writes: usize, devices: u32) {
        loom::model(move || {
            let socket = Socket::new(devices);
            let threads: Vec<_> = (0..devices)
                .map(|_| {
                    let socket = socket.clone();
                    thread::spawn(move || {
                        if release(&socket.below, parts, 1) {
                            socket.go_on();
                        }
                    })
                })
                .collect();
            (0..writes).for_each(|_| socket.write(parts));
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(*socket.corked.lock().unwrap(), 0, "the write is corked for ever");
        });
    }

    #[test]
    fn a_corked_write_leaves() {
        cork(WHOLE, 1, 1);
    }

    #[test]
    fn a_corked_write_leaves_after_two_completions() {
        cork(WHOLE, 1, 2);
    }

    #[test]
    fn a_second_write_relies_on_the_mark_of_the_first() {
        cork(WHOLE, 2, 1);
    }

    #[test]
    #[should_panic(expected = "the write is corked for ever")]
    fn without_the_fence_of_the_writer_it_does_not() {
        cork(Parts { owner_fence: false, ..WHOLE }, 1, 1);
    }

    #[test]
    #[should_panic(expected = "the write is corked for ever")]
    fn without_the_fence_of_the_device_it_does_not() {
        cork(Parts { completion_fence: false, ..WHOLE }, 1, 1);
    }

    #[test]
    #[should_panic(expected = "the write is corked for ever")]
    fn without_reading_again_it_does_not() {
        cork(Parts { owner_re_reads: false, ..WHOLE }, 1, 1);
    }

    /// A sleeping poller is woken for a socket that may continue, and reads the count as the
    /// completion left it.
    struct Poller {
        below: BelowUs,
        queue: Queue,
        sleep: Sleep,
        event: Mutex<bool>,
    }

    #[derive(Clone, Copy)]
    struct Order {
        /// The queue is read again after the poller has announced that it sleeps.
        reads_again: bool,
        /// The socket stops being queued before the count is read, not after it is marked again.
        takes_up_first: bool,
    }

    impl Poller {
        /// A completion on another thread.
        fn complete(&self, serial: u64) {
            if self.below.release(1, serial) {
                self.queue.push(ID);
                if self.sleep.must_wake(plimsoll_tcp::Instant::ZERO) {
                    *self.event.lock().unwrap() = true;
                }
            }
        }

        /// Runs the queue; returns the bytes below then, if there was a socket.
        fn run(&self, order: Order) -> Option<u32> {
            let mut out = ArrayVec::new();
            self.queue.take(&mut out);
            assert!(out.len() < 2, "a socket is in the queue twice");
            out.first()?;
            if order.takes_up_first {
                self.below.take_up();
            }
            let (mut left, _) = self.below.get();
            // The engine waits for the rest.
            if left > 0 && self.below.throttle(left) {
                left = self.below.get().0;
            }
            if !order.takes_up_first {
                self.below.take_up();
            }
            Some(left)
        }
    }

    /// Two packets complete, each on its own thread, while the poller goes to sleep. If it sleeps
    /// for ever, the engine must have seen both completions.
    fn hand_over(order: Order) {
        loom::model(move || {
            let poller = Arc::new(Poller {
                below: BelowUs::default(),
                queue: Queue::default(),
                sleep: Sleep::new(),
                event: Mutex::new(false),
            });
            poller.below.charge(2);
            let _ = poller.below.throttle(2);
            let devices: Vec<_> = (1..3)
                .map(|serial| {
                    let poller = poller.clone();
                    thread::spawn(move || poller.complete(serial))
                })
                .collect();
            let mut known = 2;
            let asleep = loop {
                poller.sleep.announce(None);
                if !order.reads_again || poller.queue.is_empty() {
                    break !*poller.event.lock().unwrap();
                }
                poller.sleep.awake();
                known = poller.run(order).unwrap_or(known);
            };
            for device in devices {
                device.join().unwrap();
            }
            let woken = *poller.event.lock().unwrap();
            assert!(!asleep || woken || known == 0, "a completion is lost");
        });
    }

    #[test]
    fn no_completion_is_lost() {
        hand_over(Order { reads_again: true, takes_up_first: true });
    }

    #[test]
    #[should_panic(expected = "a completion is lost")]
    fn without_reading_the_queue_again_one_is_lost() {
        hand_over(Order { reads_again: false, takes_up_first: true });
    }

    #[test]
    #[should_panic(expected = "a completion is lost")]
    fn taken_up_too_late_one_is_lost() {
        hand_over(Order { reads_again: true, takes_up_first: false });
    }
}
