//! A panic while a connection is worked on aborts only that connection.

use std::sync::Arc;

use plimsoll_buf::Slice;
use plimsoll_tcp::{ConnectionError, Duration, Instant, Md5Key, Options, State, WriteFlags};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::endpoint::Site;
use crate::stack::work::Work;
use crate::sync::lock;
use crate::sync::socket_lock::{COMPLETION, TIMER};
use crate::{Interest, Listener, Md5Keys, SocketError, TcpSocket};

const PANICKED: SocketError = SocketError::Connection(ConnectionError::Panicked);
const RESET: SocketError = SocketError::Connection(ConnectionError::Reset);

/// The final result of reading a socket.
fn reset(socket: &TcpSocket, now: Instant) -> Result<usize, SocketError> {
    while socket.read(now, &mut [0; 50_000])? > 0 {}
    Ok(0)
}

/// Two connections. The stack is to panic at the server's side of the first.
struct Two {
    pair: Pair,
    _listener: Arc<Listener>,
    /// The client's side of both, and the server's.
    clients: [Arc<TcpSocket>; 2],
    servers: [Arc<TcpSocket>; 2],
    victim: Arc<Endpoint>,
    readers: [Arc<CountingWaker>; 2],
    writer: Arc<CountingWaker>,
}

impl Two {
    fn open() -> Two {
        let mut pair = Pair::new();
        let listener = pair.listen(B4, 16);
        let (first, second) = (pair.open(B4, &listener), pair.open(B4, &listener));
        let victim = pair.b.tables.connections().all().remove(0);
        assert_eq!(victim.key.remote_addr(), first.1.peer_addr());
        let readers = [&first.1, &second.1].map(|server| {
            let (counting, waker) = CountingWaker::new();
            assert!(server.poll_readable(&waker).is_pending());
            counting
        });
        let (writer, waker) = CountingWaker::new();
        let endpoint = &victim;
        let mut waker = Some(waker);
        pair.b.inspect(endpoint, |inner| {
            assert!(inner.wakers.answer(false, Interest::Write, None, &mut waker).is_none());
        });
        Two {
            pair,
            _listener: listener,
            clients: [first.0, second.0],
            servers: [first.1, second.1],
            victim,
            readers,
            writer,
        }
    }

    fn set(&self, site: Site) {
        *lock(&self.victim.trap) = Some(site);
    }

    /// Leaves `marks` with a read-only thread.
    fn leave(&self, marks: u32) {
        let owned = self.victim.own();
        assert!(self.victim.leave(marks).is_none());
        drop(owned);
    }

    /// The trap has sprung on the poller: only the victim is gone.
    fn check_polled(mut self) {
        self.pair.settle();
        assert_eq!(self.servers[0].write(self.pair.now, b"x"), Err(PANICKED));
        self.check();
    }

    /// The trap has sprung, and a call got the error.
    fn check(mut self) {
        self.pair.settle();
        assert_eq!(*lock(&self.victim.trap), None, "the stack has panicked");
        let [client, other] = &self.clients;
        let [server, bystander] = &self.servers;
        let now = self.pair.now;
        assert_eq!(self.readers[0].count(), 1, "the reader was woken");
        assert_eq!(self.writer.count(), 1, "so was the writer");
        assert_eq!(server.state(), State::Closed);
        assert_eq!(server.write(now, b"x"), Err(SocketError::Closed), "the error was reported");
        assert_eq!(reset(client, now), Err(RESET), "the peer was reset");
        assert_eq!(self.pair.counter("plimsoll.ConnectionPanics"), (0, 1));
        // A walk through all sockets finds nothing wrong.
        assert_eq!(self.pair.b.connection_memory().connections, 1);
        assert_eq!(self.pair.b.sockets().len(), 2);
        server.info(now);
        server.readiness();
        server.set_option(now, plimsoll_tcp::SetOption::NoDelay(true));
        assert_eq!(self.victim.backlog().bytes(), 0);
        // The other connection carries data in both directions.
        other.write(now, b"ping").unwrap();
        bystander.write(now, b"pong").unwrap();
        self.pair.settle();
        let (mut there, mut here) = (Vec::new(), Vec::new());
        drain(bystander, now, &mut there);
        drain(other, now, &mut here);
        assert!(there.ends_with(b"ping") && here.ends_with(b"pong"));
        assert!(self.readers[1].count() > 0);
        self.servers.iter().for_each(|server| server.close(now));
        self.clients.iter().for_each(|client| client.close(now));
        self.pair.run(Duration::from_secs(61));
        assert_eq!(self.pair.b.connection_memory().connections, 0);
        assert_eq!(self.pair.b.orphan_count(), 0);
        assert_eq!(self.pair.b.memory().bytes, 0);
        assert_eq!(self.pair.b.memory().holders, 0);
        assert_eq!(self.pair.b.bytes_below(), 0);
        assert_eq!(self.pair.b.next_deadline(), None, "no timer is left");
    }
}

#[test]
fn of_a_segment_in_a_poll() {
    let mut two = Two::open();
    two.set(Site::Segment);
    // Both are in one batch.
    two.clients[0].write(two.pair.now, b"first").unwrap();
    two.clients[1].write(two.pair.now, b"second").unwrap();
    two.pair.settle();
    assert_eq!(two.servers[1].readable_bytes(), 6);
    assert_eq!(two.servers[0].read(two.pair.now, &mut [0; 8]), Err(PANICKED));
    two.check();
}

#[test]
fn of_a_segment_in_a_call() {
    let mut two = Two::open();
    let owned = two.victim.own();
    two.clients[0].write(two.pair.now, b"first").unwrap();
    two.pair.settle();
    drop(owned);
    two.set(Site::Segment);
    assert_eq!(two.servers[0].read(two.pair.now, &mut [0; 8]), Err(PANICKED));
    two.check();
}

#[test]
fn of_a_timer_in_a_poll() {
    let two = Two::open();
    two.set(Site::Timer);
    two.leave(TIMER);
    two.check_polled();
}

#[test]
fn of_a_timer_that_the_wheel_calls() {
    let mut two = Two::open();
    two.set(Site::Timer);
    two.servers[0].write(two.pair.now, b"lost").unwrap();
    two.pair.now += Duration::from_secs(10);
    two.pair.b.poll(two.pair.now, 64).unwrap();
    two.check_polled();
}

#[test]
fn of_a_timer_in_a_call() {
    let two = Two::open();
    two.set(Site::Timer);
    two.leave(TIMER);
    assert_eq!(two.servers[0].write(two.pair.now, b"x"), Err(PANICKED));
    two.check();
}

#[test]
fn of_a_completion_in_a_poll() {
    let two = Two::open();
    two.set(Site::Completion);
    two.leave(COMPLETION);
    two.check_polled();
}

#[test]
fn of_a_completion_in_a_call() {
    let two = Two::open();
    two.set(Site::Completion);
    two.leave(COMPLETION);
    assert_eq!(two.servers[0].write(two.pair.now, b"x"), Err(PANICKED));
    two.check();
}

#[test]
fn of_settling_in_a_poll() {
    let mut two = Two::open();
    two.set(Site::Settle);
    two.clients[0].write(two.pair.now, b"first").unwrap();
    two.pair.settle();
    two.check_polled();
}

#[test]
fn of_settling_in_a_call() {
    let two = Two::open();
    two.set(Site::Settle);
    assert_eq!(two.servers[0].write(two.pair.now, b"x"), Err(PANICKED));
    two.check();
}

#[test]
fn of_a_write() {
    let two = Two::open();
    two.set(Site::Write);
    assert_eq!(two.servers[0].write(two.pair.now, b"x"), Err(PANICKED));
    two.check();
}

#[test]
fn of_a_read() {
    for shared in [false, true] {
        let two = Two::open();
        two.set(Site::Read);
        let server = &two.servers[0];
        let read = match shared {
            true => server.read_shared(two.pair.now, 8).map(|slices| slices.len()),
            false => server.read(two.pair.now, &mut [0; 8]),
        };
        assert_eq!(read, Err(PANICKED));
        two.check();
    }
}

#[test]
fn of_a_look() {
    let two = Two::open();
    two.set(Site::Look);
    assert_eq!(two.servers[0].state(), State::Closed);
    two.check_polled();
}

#[test]
fn of_a_walk_through_all_sockets() {
    let two = Two::open();
    two.set(Site::Look);
    assert_eq!(two.pair.b.sockets().len(), 3);
    two.check_polled();
}

#[test]
fn of_closing() {
    for site in [Site::Settle, Site::Segment] {
        let mut two = Two::open();
        let owned = two.victim.own();
        two.clients[0].write(two.pair.now, b"unread").unwrap();
        two.pair.settle();
        drop(owned);
        two.set(site);
        two.servers[0].close(two.pair.now);
        two.check_polled();
    }
}

#[test]
fn of_one_that_is_not_accepted_yet() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let client = pair.connect(B4);
    pair.b.poll(pair.now, 64).unwrap();
    let endpoint = pair.b.tables.connections().all().remove(0);
    assert_eq!(listener.inner().lengths().1, 1, "it is half open");
    *lock(&endpoint.trap) = Some(Site::Segment);
    pair.settle();
    assert_eq!(listener.inner().lengths(), (0, 0, 16));
    assert_eq!(client.read(pair.now, &mut [0; 8]), Err(RESET));
    assert_eq!(pair.b.connection_memory().connections, 0);
    assert_eq!(pair.counter("plimsoll.ConnectionPanics"), (0, 1));
}

#[test]
fn of_one_that_waits_to_be_accepted() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let client = pair.connect(B4);
    pair.settle();
    let endpoint = pair.b.tables.connections().all().remove(0);
    *lock(&endpoint.trap) = Some(Site::Look);
    let (server, _) = listener.accept(pair.now).unwrap().expect("as on Linux");
    assert_eq!(server.read(pair.now, &mut [0; 8]), Err(PANICKED));
    pair.settle();
    assert_eq!(client.read(pair.now, &mut [0; 8]), Err(RESET));
}

#[test]
fn of_an_orphan() {
    let mut two = Two::open();
    two.servers[0].close(two.pair.now);
    assert_eq!(two.pair.b.orphan_count(), 1);
    two.set(Site::Segment);
    two.clients[0].write(two.pair.now, b"late").unwrap();
    two.pair.settle();
    assert_eq!(two.pair.b.orphan_count(), 0);
    assert_eq!(two.pair.b.connection_memory().connections, 1);
    assert_eq!(two.pair.b.memory().holders, 0);
}

#[test]
fn the_reset_is_signed() {
    let mut pair = Pair::with(LinkConfig::default(), &[]);
    let listener = pair.listen(B4, 16);
    let md5_key = Md5Key::new(b"secret");
    let mut keys = Md5Keys::default();
    keys.set(ip(A4), 32, md5_key.clone());
    listener.set_md5_keys(keys);
    let options = Options::default().md5_key(md5_key);
    let client = pair.a.connect(pair.now, addr(B4, 80), None, options).unwrap();
    pair.settle();
    let endpoint = pair.b.tables.connections().all().remove(0);
    *lock(&endpoint.trap) = Some(Site::Segment);
    client.write(pair.now, b"x").unwrap();
    pair.settle();
    assert_eq!(client.read(pair.now, &mut [0; 8]), Err(RESET));
    assert_eq!(pair.counter("TcpExtTCPMD5NotFound"), (0, 0));
}

#[test]
fn data_that_is_in_flight_when_it_happens_ends_all_the_same() {
    let two = Two::open();
    // The client has not received the last packet: the reset is ahead of the expected number, so it
    // sends an ACK, which matches no connection.
    two.servers[0].write(two.pair.now, &[1; 500]).unwrap();
    {
        let kick = two.pair.a.pollers.queue(0).waiter().handle();
        let mut lost = Vec::new();
        let (around, interface) = ((two.pair.now, &kick), two.pair.a.interfaces.get(0));
        interface.receive(around, two.pair.a.pool(), &mut lost, 10).unwrap();
        assert_eq!(lost.len(), 1);
    }
    two.set(Site::Look);
    two.servers[0].state();
    two.check_polled();
}

#[test]
fn other_than_of_a_connection_goes_on() {
    let two = Two::open();
    let mut work = Work::begin(&two.pair.b, two.pair.now);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        work.contain(&two.victim, |_| panic!("nobody owns anything"));
    }));
    assert!(unwound.is_err());
    assert_eq!(two.servers[0].state(), State::Established);
}

/// Bytes whose drop panics.
struct Bomb(Vec<u8>);

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the application's own drop");
    }
}

fn bomb() -> Slice {
    Slice::from_owner(Bomb(vec![7; 20_000]))
}

/// Bytes that an application has written by reference run its code when dropped; if that panics, no
/// connection is affected.
#[test]
fn of_a_buffer_that_is_dropped() {
    let mut two = Two::open();
    let parts = [bomb(), bomb(), bomb()];
    let written = two.servers[0].write_shared(two.pair.now, &parts, WriteFlags::default());
    let written = written.unwrap();
    assert!(written > 40_000, "a part of the last");
    parts.into_iter().for_each(crate::sockets::panics::drop_caught);
    let mut got = Vec::new();
    let done = two.pair.run_until(Duration::from_secs(5), |pair| {
        drain(&two.clients[0], pair.now, &mut got);
        got.len() == written
    });
    assert!(done, "everything arrives");
    two.pair.settle();
    assert_eq!(two.servers[0].send_queue_len(), 0, "it is acknowledged");
    assert_eq!(two.pair.counter("plimsoll.ConnectionPanics"), (0, 0));
    // Also if several are left when the stack panics.
    let parts = [bomb(), bomb(), bomb()];
    two.servers[0].write_shared(two.pair.now, &parts, WriteFlags::default()).unwrap();
    parts.into_iter().for_each(crate::sockets::panics::drop_caught);
    two.set(Site::Look);
    two.servers[0].state();
    two.check_polled();
}

/// Settling panics again and again: the second time nothing is sent, but everything is given back.
#[test]
fn that_repeats_at_every_end() {
    for orphan in [false, true] {
        let mut two = Two::open();
        if orphan {
            two.servers[0].close(two.pair.now);
        }
        two.set(Site::EverySettle);
        two.clients[0].write(two.pair.now, b"first").unwrap();
        two.pair.settle();
        if !orphan {
            assert_eq!(two.servers[0].read(two.pair.now, &mut [0; 8]), Err(PANICKED));
            assert_eq!(two.readers[0].count(), 1, "the reader was woken");
        }
        let b = &two.pair.b;
        assert_eq!(b.connection_memory().connections, 1);
        assert_eq!((b.orphan_count(), b.memory().holders), (0, 0));
        assert_eq!(two.pair.counter("plimsoll.ConnectionPanics"), (0, 1));
        two.clients[1].write(two.pair.now, b"ping").unwrap();
        two.pair.settle();
        assert_eq!(two.servers[1].readable_bytes(), 4);
    }
}

#[test]
fn of_its_removal() {
    let mut two = Two::open();
    two.servers[0].close(two.pair.now);
    two.set(Site::Remove);
    two.clients[0].abort(two.pair.now);
    two.pair.settle();
    assert_eq!(*lock(&two.victim.trap), None, "the stack has panicked");
    assert_eq!((two.pair.b.orphan_count(), two.pair.b.memory().holders), (0, 0));
    assert_eq!(two.pair.b.connection_memory().connections, 1);
}

#[test]
fn of_a_half_open_connection_and_its_end() {
    let pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let _client = pair.connect(B4);
    pair.b.poll(pair.now, 64).unwrap();
    let endpoint = pair.b.tables.connections().all().remove(0);
    *lock(&endpoint.trap) = Some(Site::EverySettle);
    let owned = endpoint.own();
    assert!(endpoint.leave(TIMER).is_none());
    drop(owned);
    pair.b.poll(pair.now, 64).unwrap();
    assert_eq!(listener.inner().lengths(), (0, 0, 16));
    assert_eq!(pair.b.connection_memory().connections, 0);
}

/// The answer to a SYN, the connection of a cookie, and its place in the table.
#[test]
fn of_a_cookie() {
    for site in 1..=3 {
        let mut pair = Pair::new();
        pair.b.set_sysctl(pair.now, "net.ipv4.tcp_syncookies", "2").unwrap();
        let listener = pair.listen(B4, 16);
        crate::sockets::panics::COOKIE_TRAP.set(site);
        let client = pair.connect(B4);
        pair.settle();
        assert_eq!(crate::sockets::panics::COOKIE_TRAP.get(), 0, "the stack has panicked");
        assert_eq!(pair.counter("plimsoll.ConnectionPanics"), (0, 1), "site {site}");
        assert_eq!(listener.inner().lengths(), (0, 0, 16), "site {site}");
        assert_eq!(pair.b.connection_memory().connections, 0);
        // The client retransmits.
        pair.run(Duration::from_secs(2));
        client.write(pair.now, b"again").unwrap();
        pair.settle();
        let (server, _) = listener.accept(pair.now).unwrap().expect("it is open");
        assert_eq!(server.readable_bytes(), 5, "site {site}");
    }
}

/// Remains that an earlier panic has left do not make another one a connection's.
#[test]
fn other_than_of_this_connection_goes_on() {
    let two = Two::open();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _owned = two.victim.own();
        panic!("nobody contains this");
    }));
    assert!(unwound.is_err());
    let other = two.pair.b.tables.connections().all().remove(1);
    let mut work = Work::begin(&two.pair.b, two.pair.now);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        work.contain(&other, |_| panic!("nobody owns anything"));
    }));
    assert!(unwound.is_err());
    work.finish();
    assert_eq!(two.servers[1].state(), State::Established);
    two.check_polled();
}

/// The stack ends while a thread reads: no thread polls any more, and the report is still
/// processed.
#[test]
fn who_lets_go_of_a_stack_that_has_ended_sees_to_what_was_left() {
    let two = Two::open();
    let owned = two.victim.own();
    let error = crate::StackError::ShutDown;
    two.pair.b.end(two.pair.now, error);
    assert_eq!(two.readers[0].count(), 0);
    drop(owned);
    two.pair.b.look_again(&two.victim);
    assert_eq!(two.readers[0].count(), 1, "the reader hears of the end");
    assert_eq!(two.servers[0].state(), State::Closed);
}
