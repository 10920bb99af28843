//! Tests of the hand-over: of its bounds and order, and all interleavings under loom.

#[cfg(not(loom))]
mod bounds {
    use super::super::*;

    const DUE: Instant = Instant::from_millis(150);

    fn offer(queue: &mut Prequeue<usize>, packet: usize, alone: bool) -> Offer<usize> {
        queue.offer(packet, 10, alone, 1000, DUE)
    }

    #[test]
    fn nothing_waits_without_a_reader() {
        let mut queue = Prequeue::default();
        assert_eq!(offer(&mut queue, 1, true), Offer::Refused(1));
        queue.block();
        assert_eq!(offer(&mut queue, 2, true), Offer::Queued { first: true });
        queue.unblock();
        // It has not been processed yet: order comes first.
        assert_eq!(offer(&mut queue, 3, true), Offer::Queued { first: false });
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(2), Some(3), None));
        assert_eq!(offer(&mut queue, 4, true), Offer::Refused(4));
    }

    #[test]
    fn a_pure_ack_waits_behind_others_only() {
        let mut queue = Prequeue::default();
        queue.block();
        assert_eq!(offer(&mut queue, 1, false), Offer::Refused(1));
        assert_eq!(offer(&mut queue, 2, true), Offer::Queued { first: true });
        assert_eq!(offer(&mut queue, 3, false), Offer::Queued { first: false });
    }

    #[test]
    fn it_is_bounded_in_number_and_bytes() {
        let mut queue = Prequeue::default();
        queue.block();
        for packet in 0..PREQUEUE_LEN {
            let first = packet == 0;
            assert_eq!(offer(&mut queue, packet, true), Offer::Queued { first });
        }
        assert_eq!(offer(&mut queue, 99, false), Offer::Full(99));
        while queue.pop().is_some() {}
        assert_eq!(queue.offer(1, 1001, true, 1000, DUE), Offer::Refused(1), "nothing waits");
        assert_eq!(queue.offer(2, 600, true, 1000, DUE), Offer::Queued { first: true });
        assert_eq!(queue.offer(3, 401, true, 1000, DUE), Offer::Full(3));
        assert_eq!(queue.offer(4, 400, true, 1000, DUE), Offer::Queued { first: false });
    }

    #[test]
    fn the_first_packet_says_how_long() {
        let mut queue = Prequeue::default();
        queue.block();
        assert_eq!(queue.due(), Instant::FAR_FUTURE);
        offer(&mut queue, 1, true);
        queue.offer(2, 1, true, 1000, Instant::from_millis(200));
        assert_eq!(queue.due(), DUE);
        queue.pop();
        assert_eq!(queue.due(), DUE, "the second has waited almost as long");
        queue.pop();
        assert_eq!(queue.due(), Instant::FAR_FUTURE);
    }
}

#[cfg(loom)]
mod model {
    //! A reader that goes to sleep ends its thread; when the poller is done, the reader must have
    //! been woken, or it would have slept for ever. Each model is run as it is and with one part
    //! taken out.

    use std::sync::Arc as StdArc;
    use std::task::{Wake, Waker};

    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::super::*;
    use crate::sockets::wakers::{Interest, WaitKey, WakeList, WakerSet};

    /// A thread's token: set when it is unparked.
    struct Token(Mutex<bool>);

    impl Wake for Token {
        fn wake(self: StdArc<Self>) {
            *self.0.lock().unwrap() = true;
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Packet {
        number: usize,
        data: bool,
    }

    #[derive(Default)]
    struct Socket {
        prequeue: Prequeue<Packet>,
        readers: WakerSet,
        /// The number of the last packet that was processed.
        done: usize,
        /// Data that can be read.
        readable: usize,
    }

    impl Socket {
        fn work_on(&mut self, packet: Packet) {
            assert_eq!(packet.number, self.done + 1, "the order is lost");
            self.done = packet.number;
            self.readable += usize::from(packet.data);
        }

        fn drain(&mut self) {
            while let Some(packet) = self.prequeue.pop() {
                self.work_on(packet);
            }
        }
    }

    struct World {
        socket: Mutex<Socket>,
        token: StdArc<Token>,
    }

    #[derive(Clone, Copy)]
    struct Parts {
        /// The prequeue is on.
        prequeue: bool,
        /// The reader looks again in the ownership in which it registers.
        re_checks: bool,
        /// The poller takes the wakers when it queues, or when the socket becomes readable.
        wakes: bool,
        /// A pure ACK waits after the waiting packets.
        keeps_order: bool,
    }

    const WHOLE: Parts = Parts { prequeue: true, re_checks: true, wakes: true, keeps_order: true };

    fn deliver(world: &World, parts: Parts, packet: Packet) {
        let mut wakers = WakeList::default();
        let mut guard = world.socket.lock().unwrap();
        let socket = &mut *guard;
        let skips = !parts.keeps_order && !packet.data;
        let offer = if skips || !parts.prequeue {
            Offer::Refused(packet)
        } else {
            socket.prequeue.offer(packet, 1, packet.data, 10, Instant::ZERO)
        };
        let wake = match offer {
            Offer::Queued { first } => first,
            Offer::Refused(packet) => {
                socket.work_on(packet);
                socket.readable > 0
            }
            Offer::Full(_) => unreachable!("few packets"),
        };
        if wake && parts.wakes {
            socket.readers.take(Interest::Read, &mut wakers);
        }
        drop(guard);
        assert_eq!(wakers.fire(), 0);
    }

    /// Reads until `all` pieces of data have come, or until it sleeps with no wake-up in sight.
    fn sleeps(world: &World, parts: Parts, all: usize) -> bool {
        let waker = Waker::from(world.token.clone());
        let key = WaitKey::new();
        let mut got = 0;
        loop {
            let mut socket = world.socket.lock().unwrap();
            socket.drain();
            got += std::mem::take(&mut socket.readable);
            if got == all {
                return false;
            }
            drop(socket);
            let mut guard = world.socket.lock().unwrap();
            let socket = &mut *guard;
            if parts.re_checks {
                socket.drain();
                if socket.readable > 0 {
                    socket.prequeue.unblock();
                    continue;
                }
            }
            if socket.prequeue.is_empty() {
                socket.prequeue.block();
            }
            let replaced = socket.readers.register(Interest::Read, Some(key), waker.clone());
            drop(guard);
            drop(replaced);
            if !std::mem::take(&mut *world.token.0.lock().unwrap()) {
                return true;
            }
        }
    }

    fn run(parts: Parts, packets: &'static [bool]) {
        loom::model(move || {
            let token = StdArc::new(Token(Mutex::new(false)));
            let world = Arc::new(World { socket: Mutex::default(), token });
            let poller = {
                let world = world.clone();
                thread::spawn(move || {
                    for (at, &data) in packets.iter().enumerate() {
                        deliver(&world, parts, Packet { number: at + 1, data });
                    }
                })
            };
            let all = packets.iter().filter(|&&data| data).count();
            let asleep = sleeps(&world, parts, all);
            poller.join().unwrap();
            let woken = *world.token.0.lock().unwrap();
            assert!(!asleep || woken, "the wake-up is lost");
        });
    }

    #[test]
    fn a_reader_sleeps_only_while_nothing_waits() {
        run(WHOLE, &[true]);
        run(WHOLE, &[true, true]);
    }

    #[test]
    fn acks_keep_their_place() {
        run(WHOLE, &[false, true, false]);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_looking_again_it_sleeps_for_ever() {
        run(Parts { re_checks: false, ..WHOLE }, &[true]);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn without_the_wake_up_it_sleeps_for_ever() {
        run(Parts { wakes: false, ..WHOLE }, &[true]);
    }

    #[test]
    #[should_panic(expected = "the order is lost")]
    fn acks_that_pass_what_waits_lose_the_order() {
        run(Parts { keeps_order: false, ..WHOLE }, &[true, false]);
    }

    /// Wake-ups without a prequeue: the waker that a reader leaves with the socket.
    const REGISTRATION: Parts = Parts { prequeue: false, ..WHOLE };

    #[test]
    fn a_registered_waker_fires() {
        run(REGISTRATION, &[true, true]);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn registered_without_looking_again_it_is_too_late() {
        run(Parts { re_checks: false, ..REGISTRATION }, &[true]);
    }

    #[test]
    #[should_panic(expected = "the wake-up is lost")]
    fn a_waker_that_is_not_taken_does_not_fire() {
        run(Parts { wakes: false, ..REGISTRATION }, &[true]);
    }
}
