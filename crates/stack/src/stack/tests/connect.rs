//! Opening, refusing, listening, ports.

use std::task::{Poll, Waker};

use plimsoll_tcp::{ConnectionError, Duration, Options, State};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::{SocketError, StackError};

#[test]
fn connects_over_both_families() {
    for server in [B4, B6] {
        let mut pair = Pair::new();
        let listener = pair.listen(if server == B4 { "0.0.0.0" } else { "::" }, 16);
        let (woken, waker) = CountingWaker::new();
        assert_eq!(listener.poll_acceptable(&waker), Poll::Pending);
        let client = pair.connect(server);
        let (connected_woken, connected_waker) = CountingWaker::new();
        assert_eq!(client.poll_connected(&connected_waker), Poll::Pending);
        pair.settle();
        assert_eq!((woken.count(), connected_woken.count()), (1, 1));
        assert_eq!(connected(&client), Poll::Ready(Ok(())));
        let (socket, peer) = listener.accept(pair.now).unwrap().unwrap();
        assert_eq!(peer, client.local_addr());
        assert_eq!(socket.local_addr(), addr(server, 80));
        assert_eq!(client.peer_addr(), addr(server, 80));
        assert_eq!(pair.counter("TcpActiveOpens"), (1, 0));
        assert_eq!(pair.counter("TcpPassiveOpens"), (0, 1));
        let (v4, v6) = (pair.a.counter("IpOutRequests"), pair.a.counter("Ip6OutRequests"));
        let sent = if server == B4 { (Some(2), Some(0)) } else { (Some(0), Some(2)) };
        assert_eq!((v4, v6), sent, "SYN and ACK");
    }
}

#[test]
fn a_dual_stack_listener_takes_both() {
    let mut pair = Pair::new();
    let listener = pair.listen("::", 16);
    pair.open(B4, &listener);
    pair.open(B6, &listener);
}

#[test]
fn a_closed_port_refuses() {
    for server in [B4, B6] {
        let mut pair = Pair::new();
        let client = pair.connect(server);
        pair.settle();
        let refused = SocketError::Connection(ConnectionError::Refused);
        assert_eq!(connected(&client), Poll::Ready(Err(refused)));
        assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(pair.counter("TcpOutRsts"), (0, 1));
        assert_eq!(pair.counter("TcpAttemptFails"), (1, 0));
    }
}

#[test]
fn nobody_answers() {
    let link = LinkConfig { loss: 1.0, ..LinkConfig::default() };
    let mut pair = Pair::with(link, &[("net.ipv4.tcp_syn_retries", "2")]);
    let client = pair.connect(B4);
    pair.run(Duration::from_secs(60));
    let timed_out = SocketError::Connection(ConnectionError::TimedOut);
    assert_eq!(connected(&client), Poll::Ready(Err(timed_out)));
    assert_eq!(pair.a.connection_memory().connections, 0);
}

#[test]
fn a_full_accept_queue_drops_and_recovers() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 1);
    let clients: Vec<_> = (0..4).map(|_| pair.connect(B4)).collect();
    pair.settle();
    let (_, overflows) = pair.counter("TcpExtListenOverflows");
    let (_, drops) = pair.counter("TcpExtListenDrops");
    // Two fit (the backlog and one). The others believe that they are connected, but their ACKs
    // were dropped.
    assert_eq!((overflows, drops), (2, 2));
    let accepted = (0..2).map(|_| listener.accept(pair.now).unwrap().unwrap()).collect::<Vec<_>>();
    assert!(listener.accept(pair.now).unwrap().is_none());
    // A SYN finds room again; the two that were left out send data, again and again.
    for client in &clients {
        client.write(pair.now, b"hello").unwrap();
    }
    let mut late = Vec::new();
    let all = pair.run_until(Duration::from_secs(20), |pair| {
        late.extend(listener.accept(pair.now).unwrap());
        late.len() == 2
    });
    assert!(all, "the dropped handshakes complete");
    pair.run(Duration::from_secs(5));
    for (socket, _) in accepted.iter().chain(&late) {
        let mut data = Vec::new();
        drain(socket, pair.now, &mut data);
        assert_eq!(data, b"hello");
    }
}

#[test]
fn a_full_accept_queue_drops_syns() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 0);
    let _first = pair.connect(B4);
    pair.settle();
    let late = pair.connect(B4);
    pair.settle();
    assert_eq!(late.state(), State::SynSent);
    assert_eq!(pair.counter("TcpExtListenOverflows"), (0, 1));
    listener.accept(pair.now).unwrap().unwrap();
    pair.run(Duration::from_secs(2));
    assert_eq!(late.state(), State::Established, "the SYN came again");
}

#[test]
fn a_full_accept_queue_may_reset() {
    let mut pair = Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_abort_on_overflow", "1")]);
    let _listener = pair.listen(B4, 0);
    let clients = [pair.connect(B4), pair.connect(B4)];
    pair.settle();
    let reset = clients.iter().filter(|client| client.state() == State::Closed).count();
    assert_eq!(reset, 1);
}

/// How many of four SYNs that come at once are answered, how many are dropped, and how many of the
/// latter because the queue is full.
fn syns(sysctls: &[(&str, &str)], backlog: usize) -> (u64, u64, u64) {
    let mut pair = Pair::with(LinkConfig::default(), sysctls);
    let _listener = pair.listen(B4, backlog);
    let _clients: Vec<_> = (0..4).map(|_| pair.connect(B4)).collect();
    // `b` sees all SYNs before any ACK.
    pair.b.poll(pair.now, 64).unwrap();
    let count = |name| pair.b.counter(name).unwrap();
    let told = (count("TcpOutSegs"), count("TcpExtListenDrops"), count("TcpExtTCPReqQFullDrop"));
    pair.settle();
    told
}

#[test]
fn the_syn_queue_is_bounded() {
    let none = ("net.ipv4.tcp_syncookies", "0");
    assert_eq!(syns(&[none], 100), (4, 0, 0));
    assert_eq!(syns(&[none], 1), (2, 2, 2));
    // The last quarter stays free.
    assert_eq!(syns(&[none, ("net.ipv4.tcp_max_syn_backlog", "4")], 100), (4, 0, 0));
    assert_eq!(syns(&[none, ("net.ipv4.tcp_max_syn_backlog", "2")], 100), (3, 1, 0));
    assert_eq!(syns(&[("net.ipv4.tcp_max_syn_backlog", "2")], 100), (4, 0, 0));
    assert_eq!(syns(&[], 1), (4, 0, 0), "cookies");
}

#[test]
fn closing_a_listener_resets_what_waits() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let client = pair.connect(B4);
    pair.settle();
    listener.close(pair.now);
    pair.settle();
    assert_eq!(client.state(), State::Closed);
    assert_eq!(client.take_error(), Some(ConnectionError::Reset));
    assert!(listener.accept(pair.now).is_err());
    assert_eq!(pair.b.connection_memory().connections, 0);
    let again = pair.b.listen(addr(B4, 80), 16, Options::default());
    assert!(again.is_ok(), "the address is free again");
}

#[test]
fn addresses_in_use_and_not_ours() {
    let pair = Pair::new();
    let _listener = pair.listen("0.0.0.0", 16);
    let listen = |text, port| pair.b.listen(addr(text, port), 1, Options::default()).err();
    assert_eq!(listen(B4, 80), Some(SocketError::AddrInUse));
    assert_eq!(listen("192.0.2.77", 81), Some(SocketError::AddrNotAvailable));
    let any = pair.b.listen(addr(B4, 0), 1, Options::default()).unwrap();
    assert!((32_768..=60_999).contains(&any.local_addr().port()));
    let connect = |local| {
        let remote = addr(B4, 80);
        pair.a.connect(pair.now, remote, Some(local), Options::default()).err()
    };
    assert_eq!(connect(addr("192.0.2.9", 0)), Some(SocketError::AddrNotAvailable));
    assert_eq!(connect(addr(A6, 0)).map(|error| error.errno()), Some(libc::EINVAL));
    assert_eq!(connect(addr("0.0.0.0", 5000)), None);
    let first = pair.a.connect(pair.now, addr(B4, 80), Some(addr(A4, 6000)), Options::default());
    assert_eq!(first.as_ref().map(|socket| socket.local_addr().port()), Ok(6000));
    assert_eq!(connect(addr(A4, 6000)), Some(SocketError::AddrInUse));
    let remote = addr("255.255.255.255", 80);
    let error = pair.a.connect(pair.now, remote, None, Options::default()).err();
    assert_eq!(error, Some(SocketError::NetworkUnreachable));
}

#[test]
fn ports_run_out() {
    let range = ("net.ipv4.ip_local_port_range", "5000 5002");
    let mut pair = Pair::with(LinkConfig::default(), &[range]);
    let _listener = pair.listen(B4, 16);
    let sockets: Vec<_> = (0..3).map(|_| pair.connect(B4)).collect();
    let mut ports: Vec<_> = sockets.iter().map(|socket| socket.local_addr().port()).collect();
    ports.sort_unstable();
    assert_eq!(ports, [5000, 5001, 5002]);
    let error = pair.a.connect(pair.now, addr(B4, 80), None, Options::default()).err();
    assert_eq!(error, Some(SocketError::AddrNotAvailable));
    // Another peer is another space of ports.
    assert!(pair.a.connect(pair.now, addr(B6, 80), None, Options::default()).is_ok());
    pair.settle();
}

#[test]
fn over_loopback() {
    let mut pair = Pair::new();
    for (listen, ip) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), (A4, A4), (A6, A6)] {
        let listener = pair.a.listen(addr(listen, 90), 16, Options::default()).unwrap();
        let client = pair.a.connect(pair.now, addr(ip, 90), None, Options::default()).unwrap();
        pair.settle();
        let (server, _) = listener.accept(pair.now).unwrap().unwrap();
        let data = pattern(100_000, 1);
        let (mut at, mut got) = (0, Vec::new());
        let done = pair.run_until(Duration::from_secs(5), |pair| {
            feed(&client, pair.now, &data, &mut at);
            drain(&server, pair.now, &mut got);
            got.len() == data.len()
        });
        assert!(done && got == data, "{ip}");
    }
    assert_eq!(pair.counter("IpInReceives").1, 0, "nothing left the stack");
}

#[test]
fn configuration_errors_name_the_field() {
    use crate::device::memory_link;
    use crate::{InterfaceConfig, RouteConfig, Stack, StackConfig};
    let build = |change: &dyn Fn(&mut StackConfig)| {
        let (device, _) = memory_link::pair(LinkConfig::default());
        let addresses = vec![(ip(A4), 24)];
        let mut config = StackConfig {
            interfaces: vec![InterfaceConfig { device, addresses, mtu: None }],
            ..StackConfig::default()
        };
        change(&mut config);
        Stack::new(config).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(build(&|_| {}), Ok(()));
    let error = build(&|config| config.interfaces[0].mtu = Some(9000)).unwrap_err();
    assert_eq!(error, "interfaces[0].mtu: 9000 is not between 576 and the device's 1500");
    let error = build(&|config| config.interfaces[0].addresses[0].1 = 33).unwrap_err();
    assert_eq!(error, "interfaces[0].addresses: the prefix length of 192.0.2.1/33 is too large");
    let route = RouteConfig {
        prefix: ip("1.2.3.0"),
        prefix_len: 24,
        interface: 7,
        metrics: Default::default(),
    };
    let error = build(&|config| config.routes.push(route)).unwrap_err();
    assert_eq!(error, "routes[0].interface: there is no such interface");
    let error = build(&|config| config.sysctls.push(("net.x".into(), "1".into()))).unwrap_err();
    assert_eq!(error, "net.x: no such setting");
    let error = StackError::DeviceGone { name: "tun0".into(), reason: "gone".into() };
    assert_eq!(error.to_string(), "device tun0 has gone: gone");
}

#[test]
fn wakers_fire_for_readers_and_writers() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let (woken, waker) = CountingWaker::new();
    assert_eq!(server.poll_readable(&waker), Poll::Pending);
    client.write(pair.now, b"x").unwrap();
    assert_eq!(woken.count(), 0, "not before the poll");
    pair.settle();
    assert_eq!(woken.count(), 1);
    assert_eq!(server.poll_readable(Waker::noop()), Poll::Ready(()));
    let mut at = 0;
    let data = vec![0; 64 << 20];
    feed(&client, pair.now, &data, &mut at);
    pair.settle();
    feed(&client, pair.now, &data, &mut at);
    let (writer_woken, writer) = CountingWaker::new();
    assert_eq!(client.poll_writable(&writer), Poll::Pending);
    pair.settle();
    let before = writer_woken.count();
    let mut got = Vec::new();
    pair.run_until(Duration::from_secs(5), |pair| {
        drain(&server, pair.now, &mut got);
        writer_woken.count() > before
    });
    assert_eq!(writer_woken.count(), 1);
    // By the time that all has been read, a write does not block.
    pair.run_until(Duration::from_secs(5), |pair| {
        drain(&server, pair.now, &mut got);
        got.len() == at
    });
    assert_eq!(client.poll_writable(Waker::noop()), Poll::Ready(()));
}
