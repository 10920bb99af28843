//! The consequences of a panic: of a poller, in a waker, in application code during a poll. And the
//! threads that may wait for a stack.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use plimsoll_tcp::{ConnectionError, Options, State};

use super::harness::*;
use crate::{Interest, SocketError, StackError, WaitKey};

#[test]
fn a_panic_of_a_poller_is_told_to_all_who_wait() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let own = pair.a.listen(addr(A4, 80), 16, Options::default()).unwrap();
    let (client, _server) = pair.open(B4, &listener);
    let (orphan, _its_peer) = pair.open(B4, &listener);
    let opening = pair.a.connect(pair.now, addr("192.0.2.77", 80), None, Options::default());
    let opening = opening.unwrap();
    while client.write(pair.now, &[0; 100_000]).is_ok() {}
    let wakers = [0; 6].map(|_| CountingWaker::new());
    let key = WaitKey::new();
    assert!(client.poll_readable(&wakers[0].1).is_pending());
    assert!(client.wait_readable(WaitKey::new(), &wakers[1].1).is_pending());
    assert!(client.wait_writable(WaitKey::new(), &wakers[2].1).is_pending());
    assert!(own.wait_acceptable(WaitKey::new(), &wakers[3].1).is_pending());
    assert!(opening.poll_connected(&wakers[4].1).is_pending());
    while orphan.write(pair.now, &[0; 100_000]).is_ok() {}
    orphan.close(pair.now);
    assert_eq!(pair.a.orphan_count(), 1, "it has data to deliver");
    assert!(pair.a.wait_quiet(key, &wakers[5].1).is_pending());

    let panics = || -> Result<(), StackError> { panic!("something is broken") };
    let error = pair.a.guarded(pair.now, panics).unwrap_err();
    let StackError::Panicked { thread, message } = &error else { panic!("{error:?}") };
    assert_eq!(message, "something is broken");
    assert_eq!(Some(thread.as_str()), std::thread::current().name());
    assert_eq!(pair.a.error(), Some(&error));
    assert_eq!(pair.a.poll(pair.now, 64), Err(error), "and so does every further poll");
    for (place, (count, _)) in wakers.iter().enumerate() {
        assert_eq!(count.count(), 1, "waker {place}");
    }

    let down = SocketError::Connection(ConnectionError::DeviceGone);
    assert_eq!(client.read(pair.now, &mut [0; 8]), Err(down));
    assert_eq!(client.state(), State::Closed);
    assert_eq!(own.accept(pair.now).err(), Some(SocketError::NetworkDown));
    assert!(matches!(opening.poll_connected(Waker::noop()), Poll::Ready(Err(_))));
    // No thread would wake a waiter from now on.
    assert!(client.wait_readable(key, Waker::noop()).is_ready());
    assert!(client.wait_writable(key, Waker::noop()).is_ready());
    assert!(own.poll_acceptable(Waker::noop()).is_ready());
    assert!(pair.a.wait_quiet(key, Waker::noop()).is_ready());
    pair.a.wait(pair.now, None).expect("it does not sleep");
}

/// Panics when it is woken.
struct Rude;

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        panic!("woken, as the test wants it");
    }
}

#[test]
fn a_waker_that_panics_harms_neither_the_others_nor_the_stack() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let (first, last) = (CountingWaker::new(), CountingWaker::new());
    assert!(server.poll_readable(&first.1).is_pending());
    let rude = Waker::from(Arc::new(Rude));
    assert!(server.wait_readable(WaitKey::new(), &rude).is_pending());
    assert!(server.wait_readable(WaitKey::new(), &last.1).is_pending());
    client.write(pair.now, b"ahoy").unwrap();
    pair.settle();
    assert_eq!((first.0.count(), last.0.count()), (1, 1));
    assert_eq!(pair.b.counter("plimsoll.WakerPanics"), Some(1));
    let mut buf = [0; 8];
    assert_eq!(server.read(pair.now, &mut buf), Ok(4));
    server.write(pair.now, b"ahoy").unwrap();
    pair.settle();
    assert_eq!(client.read(pair.now, &mut buf), Ok(4));
}

#[test]
fn a_panic_in_the_middle_of_a_poll_is_the_applications_own() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    client.write(pair.now, b"ahoy").unwrap();
    let poll = || pair.b.poll_with(pair.now, 64, &mut || panic!("as the test wants it"));
    let thrown = catch_unwind(AssertUnwindSafe(poll)).expect_err("it goes on");
    assert_eq!(thrown.downcast_ref::<&str>(), Some(&"as the test wants it"));
    assert_eq!(pair.b.error(), None);
    assert_eq!(server.read(pair.now, &mut [0; 8]), Ok(4));
    pair.settle();
    assert_eq!(client.send_queue_len(), 0, "it is acknowledged");
}

#[test]
fn those_who_gave_up_leave_no_waker_behind() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, _server) = pair.open(B4, &listener);
    let (count, waker) = CountingWaker::new();
    let before = Arc::strong_count(&count);
    for _ in 0..10_000 {
        let key = WaitKey::new();
        assert!(client.wait_readable(key, &waker).is_pending());
        assert!(listener.wait_acceptable(key, &waker).is_pending());
        client.cancel_wait(Interest::Read, key);
        listener.cancel_wait(key);
    }
    for _ in 0..10_000 {
        // A waiter without a key replaces itself.
        assert!(client.poll_readable(&waker).is_pending());
        assert!(listener.poll_acceptable(&waker).is_pending());
    }
    assert_eq!(Arc::strong_count(&count), before + 2);
    client.close(pair.now);
    listener.close(pair.now);
    assert_eq!(Arc::strong_count(&count), before);
}

#[test]
fn one_thread_at_a_time_waits() {
    let pair = Pair::new();
    let waiter = pair.a.queue_waiter(0).expect("nobody waits");
    let refused = Err(StackError::AlreadyWaited { queue: 0 });
    assert_eq!(pair.a.wait(pair.now, Some(pair.now)), refused);
    assert_eq!(pair.a.queue_waiter(0).err(), refused.clone().err());
    let none = StackError::NoSuchQueue { queue: 1, count: 1 };
    assert_eq!(pair.a.queue_waiter(1).err(), Some(none));
    drop(waiter);
    let inside = || {
        // This one has announced that it sleeps.
        assert_eq!(pair.a.wait(pair.now, None), refused);
        true
    };
    pair.a.wait_unless(pair.now, None, inside).expect("nobody else waits");
    pair.a.wait(pair.now, Some(pair.now)).expect("nor any more");
}

/// The callback before the poller sleeps is application code.
#[test]
fn a_panic_of_what_is_asked_ends_the_wait_and_not_the_stack() {
    let pair = Pair::new();
    for own_queue in [false, true] {
        let thrown = catch_unwind(AssertUnwindSafe(|| {
            let ready = || panic!("the application's own");
            match own_queue {
                true => pair.a.queue_waiter(0).unwrap().wait(pair.now, None, ready),
                false => pair.a.wait_unless(pair.now, None, ready),
            }
        }));
        assert!(thrown.is_err());
        assert!(pair.a.error().is_none());
        let limit = Some(pair.now);
        pair.a.wait(pair.now, limit).expect("the roles were given back");
    }
}
