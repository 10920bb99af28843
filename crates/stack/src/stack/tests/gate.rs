//! Listeners for any address, and listeners that ask before they answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_tcp::{ConnectionError, Duration, Options, State};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr, Timestamps};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::flow::FlowKey;
use crate::stack::work::Work;
use crate::{
    Cancelled, GateConfig, Incoming, ListenOn, Listener, Reject, SocketError, Stack, TcpSocket,
    Unreachable,
};

const FAR4: &str = "198.51.100.7";
const FAR6: &str = "2001:db8:ffff::7";

fn listen(stack: &Arc<Stack>, on: ListenOn, gate: Option<GateConfig>) -> Arc<Listener> {
    stack.listen_on(on, 64, Options::default(), gate).unwrap()
}

fn gated(pair: &Pair, gate: GateConfig) -> Arc<Listener> {
    listen(&pair.b, ListenOn::Everything, Some(gate))
}

fn connect(pair: &Pair, to: SocketAddr) -> Arc<TcpSocket> {
    pair.a.connect(pair.now, to, None, Options::default()).unwrap()
}

fn next(pair: &mut Pair, listener: &Listener) -> Incoming {
    pair.settle();
    listener.take_incoming(pair.now).unwrap().expect("an attempt waits")
}

/// The outcome of the peer's connect.
fn outcome(pair: &mut Pair, socket: &TcpSocket) -> Poll<Result<(), SocketError>> {
    pair.settle();
    connected(socket)
}

/// Sends a segment from an address of `a`'s network to the gate.
fn segment(pair: &mut Pair, from: (IpAddr, u16), flags: TcpFlags, seq: u32, times: Option<u32>) {
    let key = FlowKey { local: from.0, remote: ip(FAR4), local_port: from.1, remote_port: 443 };
    let options = TcpOptions {
        timestamps: times.map(|val| Timestamps { val, ecr: 0 }),
        ..TcpOptions::default()
    };
    let repr = TcpRepr {
        src_port: from.1,
        dst_port: 443,
        seq: SeqNum(seq),
        flags,
        window: 1000,
        options,
        ..TcpRepr::default()
    };
    let mut work = Work::begin(&pair.a, pair.now);
    work.send_segment(&key, &repr, None, 0);
    work.finish();
    pair.settle();
}

#[test]
fn a_listener_for_any_address_takes_what_others_do_not() {
    let mut pair = Pair::new();
    let own = pair.listen(B4, 8);
    let port = listen(&pair.b, ListenOn::AnyAddress(443), None);
    for (to, listener) in [
        (addr(FAR4, 443), &port),
        (addr(FAR6, 443), &port),
        (addr(B4, 443), &port),
        (addr(B4, 80), &own),
    ] {
        let client = connect(&pair, to);
        pair.settle();
        let (server, peer) = listener.accept(pair.now).unwrap().expect("it is open");
        assert_eq!(server.local_addr(), to, "what the client wanted");
        assert_eq!(peer, client.local_addr());
        server.write(pair.now, b"ahoy").unwrap();
        pair.settle();
        let mut buf = [0; 9];
        assert_eq!(client.read(pair.now, &mut buf), Ok(4));
    }
    // No socket listens there: that very address refuses.
    for to in [addr(FAR4, 80), addr(FAR6, 9)] {
        let client = connect(&pair, to);
        let refused = SocketError::Connection(ConnectionError::Refused);
        assert_eq!(outcome(&mut pair, &client), Poll::Ready(Err(refused)));
    }
    let all = listen(&pair.b, ListenOn::Everything, None);
    let client = connect(&pair, addr(FAR4, 80));
    assert_eq!(outcome(&mut pair, &client), Poll::Ready(Ok(())));
    assert!(all.accept(pair.now).unwrap().is_some());
    let taken = pair.b.listen_on(ListenOn::Everything, 8, Options::default(), None);
    assert_eq!(taken.err(), Some(SocketError::AddrInUse));
    // Its own connections are not in its way.
    let out = pair.b.connect(pair.now, addr(A4, 9), None, Options::default());
    assert!(out.is_ok());
}

#[test]
fn addresses_come_and_go_while_connections_are_open() {
    let mut pair = Pair::new();
    let listener = pair.listen("0.0.0.0", 8);
    let extra = "192.0.2.200";
    let client = connect(&pair, addr(extra, 80));
    assert_eq!(outcome(&mut pair, &client), Poll::Pending, "it is nobody's yet");
    pair.b.add_address(0, ip(extra), 24).unwrap();
    pair.run(Duration::from_secs(2));
    assert_eq!(outcome(&mut pair, &client), Poll::Ready(Ok(())));
    let (server, _) = listener.accept(pair.now).unwrap().unwrap();
    assert_eq!(server.local_addr().ip(), ip(extra));
    assert!(pair.b.interfaces()[0].addresses.contains(&(ip(extra), 24)));
    pair.b.remove_address(0, ip(extra)).unwrap();
    assert!(!pair.b.addresses().contains(&ip(extra)));
    client.write(pair.now, b"ahoy").unwrap();
    pair.settle();
    assert_eq!(server.readable_bytes(), 0, "nothing arrives");
    pair.b.add_address(0, ip(extra), 24).unwrap();
    pair.run(Duration::from_secs(2));
    assert_eq!(server.readable_bytes(), 4, "it is back");
}

#[test]
fn what_makes_no_sense_is_named() {
    let pair = Pair::new();
    let refused = |on, backlog, gate| match pair.b.listen_on(on, backlog, Options::default(), gate)
    {
        Err(SocketError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    };
    let none = GateConfig { waiting: 0, ..GateConfig::default() };
    assert!(refused(ListenOn::Everything, 8, Some(none)).contains("gate.waiting"));
    assert!(refused(ListenOn::AnyAddress(0), 8, None).contains("port 0"));
    let foreign = ListenOn::Address(addr(FAR4, 80));
    let denied = pair.b.listen_on(foreign, 8, Options::default(), None);
    assert_eq!(denied.err(), Some(SocketError::AddrNotAvailable));
    pair.b.take_any_address();
    pair.b.listen_on(foreign, 8, Options::default(), None).unwrap();
}

#[test]
fn a_backlog_of_zero_lets_one_connection_wait() {
    let mut pair = Pair::new();
    let on = |port| ListenOn::Address(addr(B4, port));
    let first = pair.b.listen(addr(B4, 80), 0, Options::default()).unwrap();
    let second = pair.b.listen_on(on(81), 0, Options::default(), None).unwrap();
    for listener in [&first, &second] {
        let clients: Vec<_> = (0..3).map(|_| connect(&pair, listener.local_addr())).collect();
        pair.settle();
        assert_eq!(listener.queue_lengths(), (1, 0));
        assert!(listener.accept(pair.now).unwrap().is_some());
        drop(clients);
    }
}

/// The peer's SYN is retransmitted before a decision; that is one attempt, and its wait is in no
/// round-trip time.
#[test]
fn nothing_is_answered_before_the_application_accepts() {
    let mut pair = Pair::new();
    let listener = gated(&pair, GateConfig::default());
    let (woken, waker) = CountingWaker::new();
    assert_eq!(listener.poll_acceptable(&waker), Poll::Pending);
    let client = connect(&pair, addr(FAR4, 443));
    pair.settle();
    assert_eq!((woken.count(), listener.poll_acceptable(&waker)), (1, Poll::Ready(())));
    let incoming = next(&mut pair, &listener);
    assert_eq!(incoming.destination(), addr(FAR4, 443));
    assert_eq!((incoming.peer(), incoming.syns()), (client.local_addr(), 1));
    let options = incoming.options();
    assert_eq!((options.mss, options.sack, options.timestamps), (Some(1460), true, true));
    pair.run(Duration::from_millis(3500));
    assert_eq!(pair.counter("TcpRetransSegs").0, 3, "after one second, two and three");
    assert_eq!(pair.counter("TcpOutSegs").1, 0, "not a word");
    assert!(listener.take_incoming(pair.now).unwrap().is_none(), "they have joined");
    assert_eq!((woken.count(), incoming.cancelled()), (1, None));
    assert_eq!(incoming.syns(), 4);
    let server = incoming.accept(pair.now).unwrap();
    assert_eq!(server.state(), State::SynReceived);
    assert_eq!(outcome(&mut pair, &client), Poll::Ready(Ok(())));
    assert_eq!(connected(&server), Poll::Ready(Ok(())));
    assert_eq!(server.local_addr(), addr(FAR4, 443));
    let ours = server.info(pair.now).min_rtt.expect("it is measured");
    assert!(ours < Duration::from_micros(1), "from the SYN-ACK on: {ours:?}");
    let theirs = client.info(pair.now).rtt;
    assert!(theirs < Duration::from_secs(1), "the newest timestamp is echoed: {theirs:?}");
    assert_eq!(listener.waiting(), 0);
    drop(listener);
    pair.settle();
    assert_eq!(client.state(), State::Established, "it is the application's");
    server.write(pair.now, b"ahoy").unwrap();
    pair.settle();
    assert_eq!(client.read(pair.now, &mut [0; 9]), Ok(4));
}

#[test]
fn the_peer_hears_why_it_is_refused() {
    let mut pair = Pair::new();
    let listener = gated(&pair, GateConfig::default());
    let icmp = Reject::Icmp;
    for (far, how, expected) in [
        (FAR4, Reject::Rst, ConnectionError::Refused),
        (FAR6, Reject::Rst, ConnectionError::Refused),
        (FAR4, icmp(Unreachable::Port), ConnectionError::Refused),
        (FAR4, icmp(Unreachable::Host), ConnectionError::HostUnreachable),
        (FAR4, icmp(Unreachable::Network), ConnectionError::NetworkUnreachable),
        (FAR4, icmp(Unreachable::Prohibited), ConnectionError::HostUnreachable),
        (FAR6, icmp(Unreachable::Port), ConnectionError::Refused),
        (FAR6, icmp(Unreachable::Host), ConnectionError::HostUnreachable),
        (FAR6, icmp(Unreachable::Network), ConnectionError::NetworkUnreachable),
        (FAR6, icmp(Unreachable::Prohibited), ConnectionError::Prohibited),
    ] {
        let client = connect(&pair, addr(far, 443));
        next(&mut pair, &listener).reject(pair.now, how);
        let refused = Poll::Ready(Err(SocketError::Connection(expected)));
        assert_eq!(outcome(&mut pair, &client), refused, "{far} {how:?}");
    }
    let client = connect(&pair, addr(FAR4, 443));
    drop(next(&mut pair, &listener));
    let refused = SocketError::Connection(ConnectionError::Refused);
    assert_eq!(outcome(&mut pair, &client), Poll::Ready(Err(refused)), "dropped");
}

#[test]
fn an_attempt_that_is_ignored_is_a_new_one_when_it_comes_again() {
    let mut pair = Pair::new();
    let listener = gated(&pair, GateConfig::default());
    let client = connect(&pair, addr(FAR4, 443));
    next(&mut pair, &listener).ignore(pair.now);
    assert_eq!(outcome(&mut pair, &client), Poll::Pending);
    assert_eq!(listener.waiting(), 0);
    pair.run(Duration::from_millis(1500));
    next(&mut pair, &listener).accept(pair.now).unwrap();
    assert_eq!(outcome(&mut pair, &client), Poll::Ready(Ok(())));
}

#[test]
fn nobody_wakes_for_the_time_of_an_attempt_that_has_ended() {
    let mut pair = Pair::new();
    let wait = Duration::from_secs(5);
    let listener = gated(&pair, GateConfig { wait, ..GateConfig::default() });
    let from = |port| (ip("192.0.2.77"), port);
    segment(&mut pair, from(1), TcpFlags::SYN, 100, None);
    let first = next(&mut pair, &listener);
    assert!(pair.b.next_deadline().is_some());
    pair.run(Duration::from_secs(1));
    segment(&mut pair, from(2), TcpFlags::SYN, 100, None);
    let second = next(&mut pair, &listener);
    first.ignore(pair.now);
    assert!(pair.b.next_deadline().is_some(), "the second one's time");
    second.ignore(pair.now);
    assert_eq!(pair.b.next_deadline(), None);
    // A new attempt has its full time, whatever is recorded of the earlier ones.
    segment(&mut pair, from(3), TcpFlags::SYN, 100, None);
    let third = next(&mut pair, &listener);
    pair.run(Duration::from_secs(6));
    assert_eq!(third.cancelled(), Some(Cancelled::TimedOut));
    assert_eq!(pair.b.next_deadline(), None);
}

#[test]
fn an_attempt_ends_by_reset_by_another_by_time_and_with_the_listener() {
    let mut pair = Pair::new();
    let wait = Duration::from_secs(5);
    let listener = gated(&pair, GateConfig { wait, ..GateConfig::default() });
    let from = (ip("192.0.2.77"), 999);
    let begin = |pair: &mut Pair, seq| {
        segment(pair, from, TcpFlags::SYN, seq, Some(seq));
        let incoming = next(pair, &listener);
        let (woken, waker) = CountingWaker::new();
        assert_eq!(incoming.poll_cancelled(None, &waker), Poll::Pending);
        (incoming, woken)
    };
    let (incoming, woken) = begin(&mut pair, 100);
    segment(&mut pair, from, TcpFlags::RST, 55, None);
    assert_eq!((incoming.cancelled(), woken.count()), (None, 0), "not its sequence number");
    segment(&mut pair, from, TcpFlags::RST, 101, None);
    assert_eq!((incoming.cancelled(), woken.count()), (Some(Cancelled::Reset), 1));
    let reset = SocketError::Connection(ConnectionError::Reset);
    assert_eq!(incoming.accept(pair.now).err(), Some(reset));
    let (first, woken) = begin(&mut pair, 200);
    let (second, other) = begin(&mut pair, 300);
    assert_eq!((first.cancelled(), woken.count()), (Some(Cancelled::NewAttempt), 1));
    let sent = pair.counter("TcpOutSegs").1;
    drop(first);
    assert_eq!(pair.counter("TcpOutSegs").1, sent, "nothing is left to refuse");
    pair.run(Duration::from_millis(4900));
    assert_eq!(second.cancelled(), None);
    pair.run(Duration::from_millis(200));
    assert_eq!((second.cancelled(), other.count()), (Some(Cancelled::TimedOut), 1));
    assert_eq!(listener.waiting(), 0);
    let (third, woken) = begin(&mut pair, 400);
    drop(listener);
    assert_eq!((third.cancelled(), woken.count()), (Some(Cancelled::Closed), 1));
    pair.run(Duration::from_secs(6));
    assert_eq!(pair.b.next_deadline(), None, "no timer is left behind");
}

/// Spoofed SYNs cost a bounded number of places and no answer; a peer that comes when they have
/// gone is served.
#[test]
fn a_flood_at_the_gate_is_bounded_and_never_answered() {
    let mut pair = Pair::new();
    let (wait, waiting, per_source) = (Duration::from_secs(5), 100, 10);
    let listener = gated(&pair, GateConfig { waiting, per_source, wait, ..GateConfig::default() });
    for number in 0..4000_u32 {
        let source = IpAddr::from([192, 0, 2, 10 + (number % 5) as u8]);
        segment(&mut pair, (source, 1000 + number as u16), TcpFlags::SYN, number, None);
    }
    assert_eq!(listener.waiting(), 50, "ten of each of five sources");
    for number in 0..4000_u32 {
        let source = IpAddr::from([192, 0, 2, 10 + (number % 200) as u8]);
        segment(&mut pair, (source, 9000 + number as u16), TcpFlags::SYN, number, None);
    }
    assert_eq!(listener.waiting(), 100);
    assert_eq!(pair.counter("TcpOutSegs").1, 0, "no cookie, no reset");
    assert_eq!(pair.counter("TcpExtSyncookiesSent").1, 0);
    assert_eq!(pair.counter("TcpExtListenDrops").1, 7900);
    assert_eq!(pair.b.connection_memory().connections, 0);
    let honest = connect(&pair, addr(FAR4, 443));
    pair.run(Duration::from_millis(7500));
    let incoming = loop {
        let incoming = next(&mut pair, &listener);
        if incoming.peer() == honest.local_addr() {
            break incoming;
        }
        incoming.ignore(pair.now);
    };
    incoming.accept(pair.now).unwrap();
    assert_eq!(outcome(&mut pair, &honest), Poll::Ready(Ok(())));
}

#[test]
fn many_connects_at_once_all_get_through() {
    let mut pair = Pair::new();
    let listener = gated(&pair, GateConfig { per_source: 1024, ..GateConfig::default() });
    let clients: Vec<_> = (0..1000).map(|port| connect(&pair, addr(FAR4, 1 + port))).collect();
    pair.settle();
    assert_eq!(listener.waiting(), 1000);
    let mut servers = Vec::new();
    while let Some(incoming) = listener.take_incoming(pair.now).unwrap() {
        servers.push(incoming.accept(pair.now).unwrap());
    }
    pair.settle();
    assert!(clients.iter().all(|client| client.state() == State::Established));
    assert!(servers.iter().all(|server| server.state() == State::Established));
    assert_eq!((servers.len(), pair.counter("TcpOutRsts")), (1000, (0, 0)));
}

#[test]
fn a_budget_of_connections_is_kept_and_says_so() {
    let mut pair = Pair::new();
    let listener = gated(&pair, GateConfig::default());
    pair.b.set_sysctl(pair.now, "plimsoll.max_connections", "3").unwrap();
    assert!(pair.b.set_sysctl(pair.now, "plimsoll.max_connections", "0").is_err());
    let clients: Vec<_> = (0..5).map(|port| connect(&pair, addr(FAR4, 1 + port))).collect();
    let mut servers = Vec::new();
    for _ in 0..5 {
        let incoming = next(&mut pair, &listener);
        servers.push(incoming.accept(pair.now));
    }
    pair.settle();
    let open = |client: &Arc<TcpSocket>| client.state() == State::Established;
    assert_eq!(clients.iter().map(open).collect::<Vec<_>>(), [true, true, true, false, false]);
    for refused in &servers[3..] {
        assert_eq!(refused.as_ref().err(), Some(&SocketError::TooManyConnections));
    }
    let refused = SocketError::Connection(ConnectionError::Refused);
    assert_eq!(outcome(&mut pair, &clients[4]), Poll::Ready(Err(refused)), "it hears of it");
    let full = pair.b.connect(pair.now, addr(A4, 9), None, Options::default()).err();
    assert_eq!(full, Some(SocketError::TooManyConnections));
    assert!(full.is_some_and(|error| error.to_string().contains("plimsoll.max_connections")));
    servers.clear();
    drop(clients);
    pair.run(Duration::from_secs(120));
    let client = connect(&pair, addr(FAR4, 443));
    next(&mut pair, &listener).accept(pair.now).unwrap();
    assert_eq!(outcome(&mut pair, &client), Poll::Ready(Ok(())), "there is a place again");
}

#[test]
fn data_of_a_fast_open_waits_with_its_syn() {
    let mut pair = Pair::with(Default::default(), &[("net.ipv4.tcp_fastopen", "0x607")]);
    let listener = gated(&pair, GateConfig::default());
    let (client, taken) = pair
        .a
        .connect_with_data(pair.now, addr(FAR4, 443), None, Options::default(), &[b"hello"])
        .unwrap();
    assert_eq!(taken, 5);
    let incoming = next(&mut pair, &listener);
    assert_eq!(incoming.options().data, 5);
    assert_eq!(client.state(), State::SynSent);
    let server = incoming.accept(pair.now).unwrap();
    let mut buf = [0; 9];
    assert_eq!(server.read(pair.now, &mut buf), Ok(5), "before the handshake is over");
    server.write(pair.now, b"ahoy").unwrap();
    pair.settle();
    assert_eq!((client.state(), server.state()), (State::Established, State::Established));
    assert_eq!(client.read(pair.now, &mut buf), Ok(4));
}

/// Peers that complete the handshake and are never decided on: as many as the gate has places for,
/// and no longer than it says. Spoofed SYNs take no place at all.
#[test]
fn a_flood_at_a_gate_that_verifies_is_bounded() {
    let sysctls = [("net.ipv4.tcp_synack_retries", "1")];
    let mut pair =
        Pair::with(LinkConfig { queue_limit: 20_000, ..LinkConfig::default() }, &sysctls);
    let (wait, waiting, per_source) = (Duration::from_secs(5), 12, 8);
    let gate = GateConfig { waiting, per_source, wait, verify_source: true };
    let listener = gated(&pair, gate);
    for number in 0..4000_u32 {
        let source = IpAddr::from([192, 0, 2, 10 + (number % 200) as u8]);
        segment(&mut pair, (source, 9000 + number as u16), TcpFlags::SYN, number, None);
    }
    assert_eq!((listener.waiting(), pair.b.connection_memory().connections), (0, 0));
    // One that exists, and never frees its places.
    let greedy: Vec<_> = (0..20).map(|_| connect(&pair, addr(FAR4, 443))).collect();
    pair.settle();
    assert_eq!(listener.waiting(), per_source, "the share of a source");
    assert_eq!(pair.b.connection_memory().connections, per_source);
    assert_eq!(pair.counter("TcpExtListenOverflows").1, 12);
    assert_eq!(listener.budget_use().half_open, per_source);
    let taken = next(&mut pair, &listener);
    assert_eq!(listener.waiting(), per_source, "handed out, and not decided");
    let (woken, waker) = CountingWaker::new();
    assert_eq!(taken.poll_cancelled(None, &waker), Poll::Pending);
    // Another source has its share.
    pair.a.add_address(0, ip("192.0.2.201"), 24).unwrap();
    let from = Some(addr("192.0.2.201", 0));
    let honest = pair.a.connect(pair.now, addr(FAR4, 443), from, Options::default()).unwrap();
    pair.settle();
    let others = per_source + 1;
    assert_eq!((listener.waiting(), honest.state()), (others, State::Established));
    let mut undecided = Vec::new();
    let honest_is_served = loop {
        let incoming = next(&mut pair, &listener);
        if incoming.peer() == honest.local_addr() {
            break incoming.accept(pair.now);
        }
        undecided.push(incoming);
    };
    let server = honest_is_served.unwrap();
    server.write(pair.now, b"ahoy").unwrap();
    pair.settle();
    assert_eq!(honest.read(pair.now, &mut [0; 9]), Ok(4));
    // The time of the undecided attempts is over: they are reset, taken or not.
    pair.run(Duration::from_secs(6));
    assert_eq!((listener.waiting(), listener.budget_use().half_open), (0, 0));
    assert_eq!((taken.cancelled(), woken.count()), (Some(Cancelled::TimedOut), 1));
    let late = SocketError::Connection(ConnectionError::TimedOut);
    assert_eq!(taken.accept(pair.now).err(), Some(late));
    assert_eq!(pair.b.connection_memory().connections, 1, "the one that was accepted");
    assert!(greedy.iter().filter(|peer| peer.state() == State::Closed).count() >= per_source);
    drop((greedy, server, honest, undecided));
    pair.run(Duration::from_secs(200));
    assert!(listener.take_incoming(pair.now).unwrap().is_none());
    assert_eq!((pair.b.connection_memory().connections, pair.b.memory().bytes), (0, 0));
    assert_eq!(pair.b.next_deadline(), None, "no timer is left behind");
}

/// Attempts that wait at a gate with verification end with its listener, including those passed to
/// the application.
#[test]
fn a_gate_that_verifies_resets_what_waits_when_it_ends() {
    let mut pair = Pair::new();
    let gate = GateConfig { verify_source: true, ..GateConfig::default() };
    let listener = gated(&pair, gate);
    let clients: Vec<_> = (0..2).map(|_| connect(&pair, addr(FAR4, 443))).collect();
    clients[0].write(pair.now, b"early").ok();
    let taken = next(&mut pair, &listener);
    drop(listener);
    pair.settle();
    assert_eq!(taken.cancelled(), Some(Cancelled::Closed));
    assert!(taken.accept(pair.now).is_err());
    assert!(clients.iter().all(|client| client.state() == State::Closed));
    pair.run(Duration::from_secs(1));
    assert_eq!((pair.b.connection_memory().connections, pair.b.memory().bytes), (0, 0));
    assert_eq!(pair.b.budget_use().half_open, 0);
}

/// The application accepts between the end of an attempt and the reset that the poller sends for
/// it: the peer gets a reset, not an orderly end.
#[test]
fn a_verified_attempt_that_is_accepted_too_late_is_reset() {
    let mut pair = Pair::new();
    let gate = GateConfig { verify_source: true, ..GateConfig::default() };
    let listener = gated(&pair, gate);
    let client = connect(&pair, addr(FAR4, 443));
    let incoming = next(&mut pair, &listener);
    let mut work = Work::begin(&pair.b, pair.now + Duration::from_secs(61));
    let timed_out = pair.b.tables.listeners().expire_gates(work.now, work.wakers());
    work.finish();
    assert_eq!(timed_out.len(), 1);
    let late = SocketError::Connection(ConnectionError::TimedOut);
    assert_eq!(incoming.accept(pair.now).err(), Some(late));
    pair.settle();
    let reset = SocketError::Connection(ConnectionError::Reset);
    assert_eq!(client.read(pair.now, &mut [0; 9]), Err(reset));
    assert_eq!(pair.b.connection_memory().connections, 0);
}

/// A poller that has found a listener may give it a SYN, or a cookie, after it has ended.
#[test]
fn nothing_waits_at_a_gate_that_has_ended() {
    for verify_source in [false, true] {
        let mut pair = Pair::new();
        let gate = GateConfig { verify_source, ..GateConfig::default() };
        let listener = gated(&pair, gate);
        // It stays in its table, as when a stack ends.
        let mut work = Work::begin(&pair.b, pair.now);
        let left = listener.inner().end(SocketError::NetworkDown, work.wakers());
        work.finish();
        assert!(left.is_empty());
        let client = connect(&pair, addr(FAR4, 443));
        client.write(pair.now, b"early").ok();
        pair.settle();
        assert_eq!((listener.waiting(), pair.b.budget_use().half_open), (0, 0));
        assert!(listener.take_incoming(pair.now).is_err());
        assert_eq!(pair.b.connection_memory().connections, 0);
        assert!(pair.counter("TcpExtListenDrops").1 > 0);
        assert_eq!(pair.b.next_deadline(), None, "no timer for what does not wait");
    }
}

#[test]
fn with_verify_source_only_peers_that_exist_are_asked_for() {
    let mut pair = Pair::with(Default::default(), &[("net.ipv4.tcp_syncookies", "0")]);
    let gate = GateConfig { verify_source: true, ..GateConfig::default() };
    let listener = gated(&pair, gate);
    for number in 0..100 {
        segment(&mut pair, (ip("192.0.2.77"), 1000 + number), TcpFlags::SYN, 5, None);
    }
    assert!(listener.take_incoming(pair.now).unwrap().is_none());
    assert_eq!(pair.b.connection_memory().connections, 0, "nothing is remembered");
    let client = connect(&pair, addr(FAR4, 443));
    assert_eq!(outcome(&mut pair, &client), Poll::Ready(Ok(())), "the peer takes it for open");
    client.write(pair.now, b"early").unwrap();
    let incoming = next(&mut pair, &listener);
    assert_eq!((incoming.peer(), incoming.destination()), (client.local_addr(), addr(FAR4, 443)));
    assert_eq!(incoming.poll_cancelled(None, Waker::noop()), Poll::Pending);
    let server = incoming.accept(pair.now).unwrap();
    assert_eq!(server.read(pair.now, &mut [0; 9]), Ok(5));
    let reset = SocketError::Connection(ConnectionError::Reset);
    for how in [Some(Reject::Rst), Some(Reject::Icmp(Unreachable::Host)), None] {
        let client = connect(&pair, addr(FAR4, 443));
        let incoming = next(&mut pair, &listener);
        match how {
            Some(how) => incoming.reject(pair.now, how),
            None => drop(incoming),
        }
        pair.settle();
        assert_eq!(client.read(pair.now, &mut [0; 9]), Err(reset), "{how:?}");
    }
    let client = connect(&pair, addr(FAR4, 443));
    let incoming = next(&mut pair, &listener);
    let (woken, waker) = CountingWaker::new();
    assert_eq!(incoming.poll_cancelled(None, &waker), Poll::Pending);
    client.abort(pair.now);
    pair.settle();
    assert_eq!((incoming.cancelled(), woken.count()), (Some(Cancelled::Reset), 1));
    let client = connect(&pair, addr(FAR4, 443));
    let rsts = pair.counter("TcpOutRsts").1;
    next(&mut pair, &listener).ignore(pair.now);
    pair.settle();
    assert_eq!(pair.counter("TcpOutRsts").1, rsts, "not a word");
    assert_eq!(client.state(), State::Established);
    client.write(pair.now, b"anybody?").unwrap();
    pair.settle();
    let again = next(&mut pair, &listener).accept(pair.now).unwrap();
    assert_eq!(again.read(pair.now, &mut [0; 9]), Ok(8), "what it sends brings its cookie again");
}
