//! Nothing hangs: panics, threads that wait at once, futures that are dropped, handles that are
//! dropped anywhere, and several loops for one stack.
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::device::{Device, DeviceError, DeviceRx, DeviceStats};
use plimsoll::{Connector, QueueLoop, ReadyQueue, Stack, StackError, TcpListener, TcpStream};
use plimsoll_buf::Pool;
use plimsoll_stack::packet::Packet;
use plimsoll_tcp::Instant;

/// Longer than any test takes that does not hang.
const GUARD: Duration = Duration::from_secs(60);

/// A device that does something before each look for packets.
struct Before<F>(Box<dyn DeviceRx>, F);

impl<F: FnMut() + Send> DeviceRx for Before<F> {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        self.1();
        self.0.receive(now, pool, out, max)
    }

    fn next_event(&self) -> Option<Instant> {
        self.0.next_event()
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

/// Both ends of a link; the first does `before` each look for packets.
fn devices(before: impl FnMut() + Send + 'static) -> (Device, Device) {
    let (here, there) = memory_link::pair(LinkConfig::default());
    (Device { rx: Box::new(Before(here.rx, before)), ..here }, there)
}

fn build(device: Device, address: &str) -> Stack {
    Stack::builder().device(device).address(address).build().unwrap()
}

struct Count(AtomicBool);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_panic_of_the_only_device_is_told_to_who_is_blocked() {
    let broken = Arc::new(AtomicBool::new(false));
    let flag = broken.clone();
    let (here, there) =
        devices(move || assert!(!flag.load(Ordering::SeqCst), "the cable is on fire"));
    let (client, server) = (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"));
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let own = TcpListener::bind(&client, "192.0.2.1:7").unwrap();
    let mut stream = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    // An error is reported once for each socket, so reader and writer have one each.
    let mut other = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let _other_peer = listener.accept().unwrap();
    let woken = Arc::new(Count(AtomicBool::new(false)));
    assert!(!stream.poll_readable(&Waker::from(woken.clone())));
    let blocked = [
        thread::spawn(move || {
            loop {
                // The byte of the peer may come first.
                if let Err(error) = stream.read(&mut [0; 8]) {
                    return error;
                }
            }
        }),
        thread::spawn(move || {
            loop {
                // The other end does not read.
                if let Err(error) = other.write_all(&[0; 100_000]) {
                    return error;
                }
            }
        }),
        thread::spawn(move || own.accept().unwrap_err()),
    ];
    broken.store(true, Ordering::SeqCst);
    // Have the thread look.
    let _ = peer.write(b"x");
    client.kick();
    let why = "device link0 has gone: it panicked: the cable is on fire";
    for thread in blocked {
        assert_eq!(thread.join().unwrap().to_string(), why);
    }
    assert!(woken.0.load(Ordering::SeqCst));
    assert_eq!(client.error().unwrap().to_string(), why);
    assert_eq!(client.poll().ended, client.error());
    let again = TcpStream::connect(&client, "192.0.2.2:7").unwrap_err();
    assert_eq!((again.kind(), again.to_string()), (ErrorKind::NetworkDown, why.to_owned()));
    assert!(client.shutdown(GUARD).is_delivered(), "nothing is left to wait for");
}

#[test]
fn a_panic_of_the_only_device_ends_a_loop_of_ones_own() {
    let broken = Arc::new(AtomicBool::new(false));
    let flag = broken.clone();
    let (here, _there) = devices(move || assert!(!flag.load(Ordering::SeqCst), "on fire"));
    let builder = Stack::builder().device(here).address("192.0.2.1/24");
    let stack = builder.build_without_thread().unwrap();
    assert_eq!(stack.poll().ended, None);
    broken.store(true, Ordering::SeqCst);
    let ended = stack.poll().ended.unwrap();
    assert_eq!(ended.to_string(), "device link0 has gone: it panicked: on fire");
    assert_eq!(stack.error(), Some(ended));
    stack.wait(None, || false).unwrap();
}

#[test]
fn only_one_thread_waits_for_a_stack() {
    let (here, there) = memory_link::pair(LinkConfig::default());
    let with_thread = build(here, "192.0.2.1/24");
    let refused = StackError::AlreadyWaited { queue: 0 };
    assert_eq!(with_thread.wait(None, || false), Err(refused.clone()));
    assert_eq!(with_thread.queue(0).err(), Some(refused.clone()));

    let builder = Stack::builder().device(there).address("192.0.2.2/24");
    let stack = builder.build_without_thread().unwrap();
    let second = || {
        // The first has published that it sleeps.
        let stack = stack.clone();
        let other = thread::spawn(move || stack.wait(None, || false));
        assert_eq!(other.join().unwrap(), Err(refused.clone()));
        true
    };
    stack.wait(None, second).unwrap();
    let own = stack.queue(0).unwrap();
    assert_eq!(stack.wait(None, || true), Err(refused.clone()));
    // The loop takes the role along to another thread, and gives it back at its end.
    thread::spawn(move || drop(own)).join().unwrap();
    stack.wait(None, || true).unwrap();
    let none = StackError::NoSuchQueue { queue: 1, count: 1 };
    assert_eq!(stack.queue(1).err(), Some(none));
}

#[test]
fn futures_that_are_dropped_leave_nothing_behind() {
    let (here, there) = memory_link::pair(LinkConfig::default());
    let (client, server) = (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"));
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let stream = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let woken = Arc::new(Count(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let before = Arc::strong_count(&woken);
    for _ in 0..10_000 {
        assert!(pin!(stream.readable()).poll(&mut context).is_pending());
        assert!(pin!(listener.acceptable()).poll(&mut context).is_pending());
    }
    assert_eq!(Arc::strong_count(&woken), before);
    // One that is left is woken, and was not replaced by the others.
    let mut kept = stream.readable();
    assert!(kept.poll_ready(&waker).is_pending());
    assert!(pin!(stream.readable()).poll(&mut context).is_pending());
    peer.write_all(b"x").unwrap();
    while kept.poll_ready(&waker).is_pending() {
        thread::yield_now();
    }
    assert_eq!(kept.poll_ready(&waker), Poll::Ready(()));
    drop(kept);
    // The thread of the stack may be about to wake it.
    while Arc::strong_count(&woken) > before {
        thread::yield_now();
    }
    // A read that gives up takes its waker out as well.
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    (&stream).read_exact(&mut [0]).unwrap();
    assert_eq!((&stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn dropping_the_last_handle_waits_for_nobody() {
    let (entered, is_inside) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (was_released, outcome) = mpsc::channel();
    let (here, _there) = devices(move || {
        // The first look lasts until the handle has been dropped, or until the test has failed.
        if entered.send(()).is_ok() {
            let _ = was_released.send(released.recv_timeout(GUARD).is_ok());
        }
    });
    let stack = build(here, "192.0.2.1/24");
    is_inside.recv().unwrap();
    drop(is_inside);
    // As the task of an executor would do: the thread of the stack is busy.
    let mut dropping = pin!(async move { drop(stack) });
    let polled = dropping.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(()));
    release.send(()).unwrap();
    assert!(outcome.recv().unwrap(), "the drop has waited for the thread");
}

#[test]
fn draining_waits_for_what_was_closed_and_shutting_down_for_the_threads() {
    let (here, there) = memory_link::pair(LinkConfig::default());
    let (client, server) = (build(here, "192.0.2.1/24"), build(there, "192.0.2.2/24"));
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let mut near = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    assert!(client.drain(GUARD), "nothing was closed");
    near.write_all(b"last words").unwrap();
    drop(near);
    assert!(!client.drain(Duration::ZERO), "the peer has not closed");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        text
    });
    assert!(client.drain(GUARD));
    assert_eq!(reader.join().unwrap(), "last words");
    let left = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
    let report = client.shutdown(GUARD);
    assert!(report.is_delivered());
    assert_eq!((report.open, report.cut_off, report.unacknowledged_bytes), (1, 0, 0));
    let error = (&left).read(&mut [0]).unwrap_err();
    assert_eq!(error.to_string(), "the stack was shut down");
}

/// Only the call itself polls, although a loop of the same thread has the right to wait.
#[test]
fn a_drain_beside_a_loop_of_the_same_thread_polls() {
    let (here, there) = memory_link::pair(LinkConfig::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24");
    let client = client.build_without_thread().unwrap();
    let server = build(there, "192.0.2.2/24");
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    let mut own = client.queue(0).unwrap();
    let near = Connector::new(&client).start("192.0.2.2:7".parse().unwrap()).unwrap();
    while near.poll_connected(Waker::noop()).is_pending() {
        own.poll();
    }
    (&near).write_all(b"last words").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    drop(near);
    let reader = thread::spawn(move || {
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        text
    });
    assert!(client.drain(GUARD));
    assert_eq!(reader.join().unwrap(), "last words");
    drop(own);
}

/// Two stacks with two queues each, joined by a link for each pair of queues.
fn two_queues() -> (Stack, Stack) {
    let links = [0; 2].map(|_| memory_link::pair(LinkConfig::default()));
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for (here, there) in links {
        near.push(here);
        far.push(there);
    }
    let build = |devices: Vec<Device>, address| {
        let mut devices = devices.into_iter();
        let builder = Stack::builder().device(devices.next().unwrap()).more_queues(devices);
        builder.address(address).queues(2).build_without_thread().unwrap()
    };
    (build(near, "192.0.2.1/24"), build(far, "192.0.2.2/24"))
}

#[test]
fn every_queue_has_a_loop_of_its_own() {
    let (client, server) = two_queues();
    assert_eq!((client.queue_count(), server.queue_count()), (2, 2));
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address: SocketAddr = "192.0.2.2:7".parse().unwrap();
    let near: Vec<_> = (0..32).map(|_| Connector::new(&client).start(address).unwrap()).collect();
    let mut loops: Vec<QueueLoop> =
        [&client, &server].iter().flat_map(|s| [0, 1].map(|q| s.queue(q).unwrap())).collect();
    assert_eq!(client.wait(None, || true), Err(StackError::AlreadyWaited { queue: 0 }));
    let mut pump = |only: Option<usize>| {
        let mine = |each: &&mut QueueLoop| only.is_none_or(|queue| each.queue() == queue);
        while loops.iter_mut().filter(mine).fold(false, |any, each| each.poll().worked | any) {}
    };
    pump(None);
    let far: Vec<_> = std::iter::from_fn(|| listener.accept().ok()).map(|(far, _)| far).collect();
    assert_eq!(far.len(), near.len());
    let of_second = far.iter().filter(|stream| stream.queue() == 1).count();
    assert!((1..far.len()).contains(&of_second), "both queues have some: {of_second}");
    for stream in &far {
        stream.set_nonblocking(true).unwrap();
        (&*stream).write_all(b"x").unwrap();
    }
    // Flows of the second queue's loops do not need the first queue's loops.
    pump(Some(1));
    let got = near.iter().filter(|stream| (&**stream).read(&mut [0]).is_ok()).count();
    let home = near.iter().filter(|stream| stream.queue() == 1).count();
    assert_eq!((got, home), (of_second, of_second));
    pump(Some(0));
    let rest = near.iter().filter(|stream| (&**stream).read(&mut [0]).is_ok()).count();
    assert_eq!(got + rest, near.len());
}

#[test]
fn loops_on_threads_of_their_own_are_woken_each() {
    let (client, server) = two_queues();
    let (stop, listener) =
        (Arc::new(AtomicBool::new(false)), TcpListener::bind(&server, "192.0.2.2:7").unwrap());
    let mut threads = Vec::new();
    let mut kickers = Vec::new();
    for stack in [&client, &server] {
        for queue in 0..2 {
            let mut own = stack.queue(queue).unwrap();
            let stop = stop.clone();
            kickers.push(own.kicker());
            threads.push(thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let polled = own.poll();
                    if !polled.worked {
                        own.wait(polled.next, || stop.load(Ordering::SeqCst)).unwrap();
                    }
                }
            }));
        }
    }
    for round in 0..20_u8 {
        let mut near = TcpStream::connect(&client, "192.0.2.2:7").unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[round]).unwrap();
        let mut got = [0];
        far.read_exact(&mut got).unwrap();
        far.write_all(&got).unwrap();
        near.read_exact(&mut got).unwrap();
        assert_eq!(got, [round]);
    }
    stop.store(true, Ordering::SeqCst);
    kickers.iter().for_each(|kicker| kicker.kick());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn one_loop_waits_for_all_queues() {
    let (client, server) = two_queues();
    let (ready, waker) = (ReadyQueue::new(&server), ReadyQueue::new(&client).waker(0));
    let listener = TcpListener::bind(&server, "192.0.2.2:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address: SocketAddr = "192.0.2.2:7".parse().unwrap();
    // A thread runs the client, and this one the server, each with one loop for both queues.
    let runner = thread::spawn(move || {
        let near: Vec<_> =
            (0..8).map(|_| Connector::new(&client).start(address).unwrap()).collect();
        while near.iter().any(|stream| stream.poll_connected(&waker).is_pending()) {
            if !client.poll().worked {
                client.wait(Some(plimsoll::now() + Duration::from_millis(50)), || false).unwrap();
            }
        }
        near
    });
    let waker = ready.waker(1);
    let mut far = Vec::new();
    while far.len() < 8 {
        let polled = server.poll();
        match listener.accept() {
            Ok((stream, _)) => far.push(stream),
            Err(_) if polled.worked || listener.poll_acceptable(&waker) => {}
            Err(_) => server.wait(polled.next, || !ready.is_empty()).unwrap(),
        }
        ready.take(&mut Vec::new());
    }
    while !runner.is_finished() {
        server.poll();
        thread::yield_now();
    }
    assert_eq!(runner.join().unwrap().len(), 8);
}

#[test]
fn an_interface_is_added_to_stacks_that_sleep() {
    let stack = |address| {
        let (device, peer) = memory_link::pair(LinkConfig::default());
        (Stack::builder().device(device).address(address).build().unwrap(), peer)
    };
    let ((client, _left), (server, _right)) = (stack("192.0.2.1/24"), stack("192.0.2.2/24"));
    for _ in 0..3 {
        let (here, there) = memory_link::pair(LinkConfig::default());
        let near = client.add_interface(here, &["198.51.100.1/24"]).unwrap();
        let far = server.add_interface(there, &["198.51.100.2/24"]).unwrap();
        let listener = TcpListener::bind(&server, "198.51.100.2:7").unwrap();
        let mut stream = TcpStream::connect(&client, "198.51.100.2:7").unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(b"ahoy").unwrap();
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"ahoy");
        // A blocked read ends with an error.
        let reading = thread::spawn(move || stream.read(&mut [0; 4]).map_err(|e| e.kind()));
        client.remove_interface(near).unwrap();
        assert!(reading.join().unwrap().is_err());
        server.remove_interface(far).unwrap();
        assert!(accepted.write_all(b"ahoy").is_err());
    }
}

#[test]
fn threads_have_names_and_say_when_they_start() {
    let (one, _other) = devices(|| ());
    let (two, _another) = devices(|| ());
    let (sender, started) = mpsc::channel();
    let stack = Stack::builder()
        .device(one)
        .more_queues([two])
        .address("192.0.2.1/24")
        .name("packets")
        .queues(2)
        .on_thread_start(move |queue| {
            let name = thread::current().name().unwrap().to_owned();
            sender.send((queue, name)).unwrap();
        })
        .build()
        .unwrap();
    let mut all = [started.recv().unwrap(), started.recv().unwrap()];
    all.sort();
    assert_eq!(all, [(0, "packets".to_owned()), (1, "packets/1".to_owned())]);
    assert!(stack.error().is_none());
}

#[test]
fn a_panic_when_a_thread_starts_ends_the_stack() {
    let (device, _other) = devices(|| ());
    let stack = Stack::builder()
        .device(device)
        .address("192.0.2.1/24")
        .on_thread_start(|_| panic!("no such CPU"))
        .build()
        .unwrap();
    let connected = TcpStream::connect(&stack, "192.0.2.2:7").unwrap_err();
    assert_eq!(connected.kind(), ErrorKind::NetworkDown);
    let error = stack.error().unwrap().to_string();
    assert!(error.contains("softirq") && error.contains("no such CPU"), "{error}");
}
