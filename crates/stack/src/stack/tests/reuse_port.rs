//! Several listeners on one address and port (SO_REUSEPORT).

use std::sync::Arc;
use std::task::Poll;

use plimsoll_tcp::{ConnectionError, Duration, Options, State};

use super::harness::*;
use crate::{GateConfig, ListenConfig, ListenOn, Listener, SocketError, TcpSocket};

fn sharing(pair: &Pair, on: ListenOn) -> Arc<Listener> {
    let config = ListenConfig { reuse_port: true, ..ListenConfig::default() };
    pair.b.listen_with(on, config).unwrap()
}

fn here() -> ListenOn {
    ListenOn::Address(addr(B4, 80))
}

fn accepted(pair: &Pair, listener: &Listener) -> Vec<Arc<TcpSocket>> {
    let next = || listener.accept(pair.now).unwrap().map(|(socket, _)| socket);
    std::iter::from_fn(next).collect()
}

#[test]
fn connections_are_dealt_out_to_all_of_a_group() {
    let mut pair = Pair::new();
    let group: Vec<_> = (0..4).map(|_| sharing(&pair, here())).collect();
    let alone = pair.b.listen(addr(B4, 80), 8, Options::default());
    assert_eq!(alone.err(), Some(SocketError::AddrInUse), "it does not share");
    let wakers: Vec<_> = group.iter().map(|_| CountingWaker::new()).collect();
    for (listener, (_, waker)) in group.iter().zip(&wakers) {
        assert_eq!(listener.poll_acceptable(waker), Poll::Pending);
    }
    let clients: Vec<_> = (0..400).map(|_| pair.connect(B4)).collect();
    pair.settle();
    assert!(clients.iter().all(|client| client.state() == State::Established));
    let queued: Vec<_> = group.iter().map(|listener| listener.queue_lengths().0).collect();
    assert_eq!(queued.iter().sum::<usize>(), 400);
    assert!(queued.iter().all(|&count| (60..=140).contains(&count)), "about even: {queued:?}");
    assert!(wakers.iter().all(|(woken, _)| woken.count() == 1));
    let servers: Vec<_> = group.iter().flat_map(|listener| accepted(&pair, listener)).collect();
    for server in &servers {
        server.write(pair.now, b"ahoy").unwrap();
    }
    pair.settle();
    assert!(clients.iter().all(|client| client.read(pair.now, &mut [0; 9]) == Ok(4)));
}

#[test]
fn datagrams_of_a_peer_go_to_one_of_a_group_and_those_of_many_to_all() {
    let mut pair = Pair::new();
    let group: Vec<_> = (0..4).map(|_| pair.b.bind_udp_shared(addr(B4, 9)).unwrap()).collect();
    assert_eq!(pair.b.bind_udp(addr(B4, 9)).err(), Some(SocketError::AddrInUse));
    let how = crate::UdpTransmit { to: Some(addr(B4, 9)), ..Default::default() };
    for _ in 0..400 {
        let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
        for _ in 0..2 {
            client.send(pair.now, &how, &[b"ahoy"]).unwrap();
        }
        pair.settle();
    }
    let queued: Vec<_> = group.iter().map(|socket| socket.queued()).collect();
    assert_eq!(queued.iter().sum::<usize>(), 800);
    let even = |&count: &usize| count % 2 == 0 && (120..=280).contains(&count);
    assert!(queued.iter().all(even), "each peer is one socket's, about even: {queued:?}");
}

/// The connections in a listener's queue are reset when it ends; no other listener gets them, as on
/// Linux.
#[test]
fn a_listener_that_leaves_its_group_takes_what_it_has_along() {
    let mut pair = Pair::new();
    let group: Vec<_> = (0..2).map(|_| sharing(&pair, here())).collect();
    let clients: Vec<_> = (0..40).map(|_| pair.connect(B4)).collect();
    pair.settle();
    let (first, second) = (group[0].queue_lengths().0, group[1].queue_lengths().0);
    assert_eq!(first + second, 40);
    group[0].close(pair.now);
    pair.settle();
    let reset = clients.iter().filter(|client| client.state() == State::Closed).count();
    assert_eq!((reset, group[1].queue_lengths().0), (first, second));
    let error = SocketError::Connection(ConnectionError::Reset);
    let told = |client: &&Arc<TcpSocket>| client.read(pair.now, &mut [0; 1]) == Err(error);
    assert_eq!(clients.iter().filter(told).count(), first);
    // All that comes from now on is the other's.
    let more: Vec<_> = (0..20).map(|_| pair.connect(B4)).collect();
    pair.settle();
    assert_eq!(group[1].queue_lengths().0, second + 20);
    group[1].close(pair.now);
    pair.settle();
    assert!(more.iter().all(|client| client.state() == State::Closed));
    let refused = pair.connect(B4);
    pair.settle();
    let nobody = SocketError::Connection(ConnectionError::Refused);
    assert_eq!(connected(&refused), Poll::Ready(Err(nobody)));
    pair.b.listen(addr(B4, 80), 8, Options::default()).unwrap();
}

#[test]
fn a_half_open_connection_stays_with_its_listener_when_others_come() {
    let mut pair = Pair::new();
    let first = sharing(&pair, here());
    let client = pair.connect(B4);
    pair.a.poll(pair.now, 64).unwrap();
    pair.b.poll(pair.now, 64).unwrap();
    assert_eq!(first.budget_use().half_open, 1);
    let others: Vec<_> = (0..8).map(|_| sharing(&pair, here())).collect();
    pair.settle();
    assert_eq!((client.state(), accepted(&pair, &first).len()), (State::Established, 1));
    assert!(others.iter().all(|other| other.queue_lengths().0 == 0));
}

#[test]
fn gates_share_any_address_as_well() {
    let mut pair = Pair::new();
    let gate = Some(GateConfig::default());
    let config = ListenConfig { gate, reuse_port: true, ..ListenConfig::default() };
    let listen = || pair.b.listen_with(ListenOn::Everything, config.clone());
    let group = [listen().unwrap(), listen().unwrap()];
    let alone = ListenConfig { gate, ..ListenConfig::default() };
    assert!(pair.b.listen_with(ListenOn::Everything, alone).is_err());
    let clients: Vec<_> = (0..40).map(|_| pair.connect("198.51.100.7")).collect();
    pair.settle();
    let waiting = group.each_ref().map(|listener| listener.waiting());
    assert!(waiting.iter().all(|&count| count > 5) && waiting.iter().sum::<usize>() == 40);
    // A retransmitted SYN joins the waiting one, at the same listener.
    pair.run(Duration::from_millis(1500));
    assert_eq!(group.each_ref().map(|listener| listener.waiting()), waiting);
    for listener in &group {
        while let Some(incoming) = listener.take_incoming(pair.now).unwrap() {
            incoming.accept(pair.now).unwrap().close(pair.now);
        }
    }
    pair.settle();
    assert!(clients.iter().all(|client| client.state() == State::CloseWait));
}

/// A free port is one without a listener, not one that a listener would share.
#[test]
fn port_zero_joins_no_group() {
    let range = [("net.ipv4.ip_local_port_range", "40000 40003")];
    let pair = Pair::with(Default::default(), &range);
    let any = || {
        let config = ListenConfig { reuse_port: true, ..ListenConfig::default() };
        pair.b.listen_with(ListenOn::Address(addr(B4, 0)), config)
    };
    let group: Vec<_> = (0..4).map(|_| any().unwrap()).collect();
    let mut ports: Vec<_> = group.iter().map(|listener| listener.local_addr().port()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [40_000, 40_001, 40_002, 40_003]);
    assert_eq!(any().err(), Some(SocketError::AddrInUse), "none is left");
    let member = sharing(&pair, ListenOn::Address(group[0].local_addr()));
    assert_eq!(member.local_addr(), group[0].local_addr(), "by its number it is shared");
}
