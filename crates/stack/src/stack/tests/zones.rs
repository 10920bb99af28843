//! Link-local addresses on two links (RFC 4007): the same ones on both, so that only the zone
//! distinguishes the links.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_tcp::{ConnectionError, Duration, Instant, Md5Key, Options, State};
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::ipv6::{FragmentHeader, Ipv6Repr};
use plimsoll_wire::{ipv6, protocol};

use super::harness::*;
use crate::device::memory_link::{self, LinkConfig};
use crate::{
    InterfaceConfig, Listener, Md5Keys, RawTransmit, Received, SocketError, Stack, StackConfig,
    TcpSocket, UdpSocket, UdpTransmit, zone,
};

const A: &str = "fe80::1";
const B: &str = "fe80::2";
const SOON: Duration = Duration::from_millis(100);

/// A stack with `own` on two interfaces, the first of which has a global address as well.
fn on_both(
    devices: [crate::device::Device; 2],
    own: &str,
    global: &str,
    sysctls: &[(&str, &str)],
) -> Arc<Stack> {
    let globals = [vec![(ip(global), 64)], Vec::new()];
    let interfaces = devices.into_iter().zip(globals).map(|(device, mut addresses)| {
        addresses.push((ip(own), 64));
        InterfaceConfig { device, addresses, mtu: None }
    });
    let sysctls =
        sysctls.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let (interfaces, secret) = (interfaces.collect(), [global.as_bytes()[global.len() - 1]; 32]);
    Stack::new(StackConfig { interfaces, sysctls, secret, seed: 7, ..StackConfig::default() })
        .unwrap()
}

/// `fe80::1` and `fe80::2`, on two links.
fn pair(sysctls: &[(&str, &str)]) -> Pair {
    let link = LinkConfig { offloads: false, ..LinkConfig::default() };
    let (near, far) = memory_link::pair(link.clone());
    let (other_near, other_far) = memory_link::pair(link);
    Pair {
        a: on_both([near, other_near], A, A6, sysctls),
        b: on_both([far, other_far], B, "2001:db8:b::2", sysctls),
        now: Instant::from_millis(1000),
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn to(text: &str) -> UdpTransmit {
    UdpTransmit::default().to(Some(at(text)))
}

/// How many packets a stack has sent on each of the two links.
fn sent(stack: &Stack) -> [u64; 2] {
    let stats = stack.device_stats();
    [stats[0].1.packets, stats[1].1.packets]
}

fn open(pair: &mut Pair, listener: &Listener, remote: &str) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let client = pair.a.connect(pair.now, at(remote), None, Options::default()).unwrap();
    accepted(pair, listener, client)
}

fn accepted(
    pair: &mut Pair,
    listener: &Listener,
    client: Arc<TcpSocket>,
) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    pair.run(SOON);
    assert_eq!(client.state(), State::Established);
    let (server, peer) = listener.accept(pair.now).unwrap().expect("it was accepted");
    assert_eq!(peer, server.peer_addr());
    (client, server)
}

/// Sends both ways, and checks that all arrives.
fn talk(pair: &mut Pair, one: &TcpSocket, other: &TcpSocket) {
    for (from, to) in [(one, other), (other, one)] {
        let data = pattern(100_000, 3);
        let (mut at, mut got) = (0, Vec::new());
        let done = pair.run_until(Duration::from_secs(5), |pair| {
            feed(from, pair.now, &data, &mut at);
            drain(to, pair.now, &mut got);
            got.len() == data.len()
        });
        assert!(done && got == data, "every byte arrives");
    }
}

fn recv(socket: &UdpSocket, now: Instant) -> Result<(Vec<u8>, Received), SocketError> {
    let mut buf = [0; 9000];
    let received = socket.recv(now, &mut buf)?;
    Ok((buf[..received.len].to_vec(), received))
}

#[test]
fn connections_stay_on_their_link() {
    let mut pair = pair(&[]);
    let everywhere = pair.b.listen(at("[::]:80"), 8, Options::default()).unwrap();
    for (scope, idle) in [(2, 0), (1, 1)] {
        let before = [sent(&pair.a), sent(&pair.b)];
        let remote = format!("[fe80::2%{scope}]:80");
        let (client, server) = open(&mut pair, &everywhere, &remote);
        talk(&mut pair, &client, &server);
        assert_eq!((client.peer_addr(), server.local_addr()), (at(&remote), at(&remote)));
        assert_eq!(client.local_addr(), server.peer_addr());
        assert!(client.local_addr().to_string().starts_with(&format!("[fe80::1%{scope}]:")));
        let after = [sent(&pair.a), sent(&pair.b)];
        assert_eq!([before[0][idle], before[1][idle]], [after[0][idle], after[1][idle]]);
        let shown = pair.b.sockets().into_iter().find_map(|socket| socket.remote);
        assert_eq!(shown, Some(server.peer_addr()));
        client.close(pair.now);
        server.close(pair.now);
        pair.run(SOON);
    }
    pair.run(Duration::from_secs(70));
    assert_eq!((pair.a.time_wait_count(), pair.b.time_wait_count()), (0, 0));
}

#[test]
fn the_same_four_tuple_is_two_connections() {
    let mut pair = pair(&[]);
    let listeners = ["[fe80::2%1]:80", "[fe80::2%2]:80"]
        .map(|local| pair.b.listen(at(local), 8, Options::default()).unwrap());
    let [first, second] = [1, 2].map(|scope| {
        let (local, remote) = (format!("[fe80::1%{scope}]:5000"), format!("[fe80::2%{scope}]:80"));
        pair.a.connect(pair.now, at(&remote), Some(at(&local)), Options::default()).unwrap()
    });
    let (first, first_server) = accepted(&mut pair, &listeners[0], first);
    let (second, second_server) = accepted(&mut pair, &listeners[1], second);
    assert_eq!(first_server.peer_addr(), at("[fe80::1%1]:5000"));
    assert_eq!(second_server.peer_addr(), at("[fe80::1%2]:5000"));
    assert_eq!(listeners[1].local_addr(), at("[fe80::2%2]:80"));
    first.write(pair.now, b"first").unwrap();
    second.write(pair.now, b"second").unwrap();
    pair.run(SOON);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    drain(&first_server, pair.now, &mut one);
    drain(&second_server, pair.now, &mut other);
    assert_eq!((&one[..], &other[..]), (&b"first"[..], &b"second"[..]));
    // One of them goes into TIME-WAIT and leaves the other alone.
    first.close(pair.now);
    first_server.close(pair.now);
    pair.run(SOON);
    assert_eq!(pair.a.time_wait_count(), 1);
    talk(&mut pair, &second, &second_server);
}

#[test]
fn cookies_and_signatures_are_over_the_addresses_of_the_wire() {
    let mut pair = pair(&[("net.ipv4.tcp_syncookies", "2")]);
    let listener = pair.b.listen(at("[::]:80"), 8, Options::default()).unwrap();
    let (client, server) = open(&mut pair, &listener, "[fe80::2%2]:80");
    talk(&mut pair, &client, &server);
    assert_eq!(pair.counter("TcpExtSyncookiesRecv"), (0, 1));
    let mut keys = Md5Keys::default();
    keys.set(ip(A), 128, Md5Key::new(b"secret"));
    listener.set_md5_keys(keys);
    let options = Options::default().md5_key(Md5Key::new(b"secret"));
    let client = pair.a.connect(pair.now, at("[fe80::2%2]:80"), None, options).unwrap();
    let (client, server) = accepted(&mut pair, &listener, client);
    talk(&mut pair, &client, &server);
    assert_eq!(pair.counter("TcpExtTCPMD5Failure"), (0, 0));
}

#[test]
fn a_closed_port_refuses_on_the_link_of_the_question() {
    let mut pair = pair(&[]);
    let remote = at("[fe80::2%2]:81");
    let client = pair.a.connect(pair.now, remote, None, Options::default()).unwrap();
    let datagrams = pair.a.bind_udp(at("[::]:0")).unwrap();
    datagrams.connect(pair.now, remote).unwrap();
    // The same host, as far as its address says, on the other link.
    let other = pair.a.bind_udp(at("[::]:0")).unwrap();
    other.connect(pair.now, at("[fe80::2%1]:81")).unwrap();
    datagrams.send(pair.now, &UdpTransmit::default(), &[b"ahoy"]).unwrap();
    pair.run(SOON);
    let refused = SocketError::Connection(ConnectionError::Refused);
    assert_eq!(client.take_error(), Some(ConnectionError::Refused));
    assert_eq!(recv(&datagrams, pair.now).unwrap_err(), refused);
    assert_eq!(recv(&other, pair.now).unwrap_err(), SocketError::WouldBlock);
    assert_eq!(sent(&pair.b), [0, 2]);
}

#[test]
fn datagrams_are_answered_on_their_link() {
    let mut pair = pair(&[]);
    let server = pair.b.bind_udp(at("[::]:9")).unwrap();
    let client = pair.a.bind_udp(at("[::]:7")).unwrap();
    // One packet, and one that leaves in fragments.
    for len in [4, 4000] {
        for scope in [2, 1] {
            let data = pattern(len, 5);
            let remote = format!("[fe80::2%{scope}]:9");
            client.send(pair.now, &to(&remote), &[&data]).unwrap();
            pair.run(SOON);
            let (got, received) = recv(&server, pair.now).unwrap();
            assert_eq!(got, data);
            assert_eq!(received.info.from, at(&format!("[fe80::1%{scope}]:7")));
            assert_eq!((received.info.to, received.info.interface), (ip(B), scope - 1));
            let how =
                UdpTransmit::default().to(Some(received.info.from)).from(Some(received.info.to));
            server.send(pair.now, &how, &[&got]).unwrap();
            pair.run(SOON);
            let (got, received) = recv(&client, pair.now).unwrap();
            assert_eq!((got, received.info.from), (data, at(&remote)));
        }
    }
    assert_eq!(sent(&pair.a), sent(&pair.b));
    assert_eq!(sent(&pair.a)[0], sent(&pair.a)[1]);
}

#[test]
fn sockets_of_one_port_are_apart_in_their_zones() {
    let mut pair = pair(&[]);
    let [first, second] = ["[fe80::2%1]:9", "[fe80::2%2]:9"].map(|local| {
        let socket = pair.b.bind_udp(at(local)).unwrap();
        assert_eq!(socket.local_addr(), at(local));
        socket
    });
    let client = pair.a.bind_udp(at("[fe80::1%2]:0")).unwrap();
    // The zone of the socket's own address counts.
    client.connect(pair.now, at("[fe80::2]:9")).unwrap();
    assert_eq!(client.peer_addr(), Some(at("[fe80::2%2]:9")));
    client.send(pair.now, &UdpTransmit::default(), &[b"ahoy"]).unwrap();
    pair.run(SOON);
    assert_eq!(recv(&first, pair.now).unwrap_err(), SocketError::WouldBlock);
    assert_eq!(recv(&second, pair.now).unwrap().0, b"ahoy");
    let sockets = pair.b.udp_sockets();
    assert!(sockets.iter().any(|socket| socket.local == at("[fe80::2%2]:9")), "{sockets:?}");
}

#[test]
fn groups_of_link_local_scope_are_those_of_one_link() {
    let mut pair = pair(&[]);
    let member = pair.b.bind_udp(at("[::]:5353")).unwrap();
    member.join_group(ip("ff02::fb")).unwrap();
    let bound = pair.b.bind_udp(at("[ff02::fb%1]:5354")).unwrap();
    bound.join_group(ip("ff02::fb")).unwrap();
    let client = pair.a.bind_udp(at("[::]:0")).unwrap();
    client.send(pair.now, &to("[ff02::fb%2]:5353"), &[b"who"]).unwrap();
    client.send(pair.now, &to("[ff02::fb%2]:5354"), &[b"not you"]).unwrap();
    client.send(pair.now, &to("[ff02::fb%1]:5354"), &[b"you"]).unwrap();
    pair.run(SOON);
    let (got, received) = recv(&member, pair.now).unwrap();
    assert_eq!((&got[..], received.info.to), (&b"who"[..], ip("ff02::fb")));
    let SocketAddr::V6(from) = received.info.from else { panic!("{received:?}") };
    assert_eq!((from.ip(), from.scope_id()), (&A.parse().unwrap(), 2));
    assert_eq!(recv(&bound, pair.now).unwrap().0, b"you");
    assert_eq!(recv(&bound, pair.now).unwrap_err(), SocketError::WouldBlock);
    member.send(pair.now, &UdpTransmit::default().to(Some(from.into())), &[b"me"]).unwrap();
    pair.run(SOON);
    assert_eq!(recv(&client, pair.now).unwrap().0, b"me");
}

/// A packet of IPv6.
fn packet((src, dst): (&str, &str), next_header: u8, payload: &[u8]) -> Vec<u8> {
    let repr = Ipv6Repr {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        next_header,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len(),
    };
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    repr.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn icmp((src, dst): (&str, &str), message: &Icmpv6Repr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(src.parse().unwrap(), dst.parse().unwrap(), &mut bytes);
    packet((src, dst), protocol::ICMPV6, &bytes)
}

fn by(interface: usize) -> RawTransmit {
    RawTransmit::default().interface(Some(interface))
}

#[test]
fn a_ping_is_answered_on_its_link() {
    let mut pair = pair(&[]);
    let ping = Icmpv6Repr::EchoRequest { ident: 1, seq: 2, data: b"ahoy" };
    pair.a.send_raw(pair.now, &by(1), &icmp((A, B), &ping)).unwrap();
    pair.run(SOON);
    assert_eq!((sent(&pair.a), sent(&pair.b)), ([0, 1], [0, 1]));
    assert_eq!(pair.a.counter("Icmp6InEchoReplies"), Some(1));
    // From outside the link, a packet to an address of the link is answered over the link too.
    let far = "2001:db8:b::2";
    pair.b.send_raw(pair.now, &by(1), &icmp((far, A), &ping)).unwrap();
    pair.run(SOON);
    assert_eq!((sent(&pair.a), sent(&pair.b)), ([0, 2], [0, 2]));
    assert_eq!(pair.b.counter("Icmp6InEchoReplies"), Some(1));
    // To a local address it goes by loopback.
    let refused = pair.a.send_raw(pair.now, &RawTransmit::default(), &icmp((A, A), &ping));
    assert!(matches!(refused, Err(SocketError::Invalid(_))), "{refused:?}: in which zone?");
    assert_eq!(sent(&pair.a), [0, 2]);
}

#[test]
fn fragments_that_stay_alone_are_reported_on_their_link() {
    let mut pair = pair(&[]);
    let header = FragmentHeader { next_header: protocol::UDP, offset: 0, more: true, ident: 9 };
    let mut bytes = vec![0; 8];
    header.emit(&mut bytes);
    bytes.extend([0, 7, 0, 9, 0, 100, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    pair.b.send_raw(pair.now, &by(1), &packet((B, A), protocol::IPV6_FRAGMENT, &bytes)).unwrap();
    pair.run(Duration::from_secs(61));
    assert_eq!(pair.a.counter("Icmp6OutTimeExcds"), Some(1));
    assert_eq!(sent(&pair.a), [0, 1]);
}

#[test]
fn a_path_mtu_is_that_of_one_zone() {
    let mut pair = pair(&[]);
    let socket = pair.a.bind_udp(at("[::]:7")).unwrap();
    socket.connect(pair.now, at("[fe80::2%2]:9")).unwrap();
    let quoted = packet((A, B), protocol::UDP, &[0, 7, 0, 9, 5, 0, 0, 0]);
    let too_big = Icmpv6Repr::PacketTooBig { mtu: 1300, packet: &quoted };
    pair.b.send_raw(pair.now, &by(0), &icmp((B, A), &too_big)).unwrap();
    pair.run(SOON);
    let known = |pair: &Pair, zone| {
        pair.a.policies.learnt_mtu(zone::within(ip(B), zone), pair.now).map(|learnt| learnt.mtu)
    };
    assert_eq!((known(&pair, 0), known(&pair, 1)), (None, None), "of another link");
    pair.b.send_raw(pair.now, &by(1), &icmp((B, A), &too_big)).unwrap();
    pair.run(SOON);
    assert_eq!((known(&pair, 0), known(&pair, 1)), (None, Some(1300)));
}

#[test]
fn a_packet_names_no_zone() {
    let mut pair = pair(&[]);
    let server = pair.b.bind_udp(at("[::]:9")).unwrap();
    let datagram = [0, 7, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];
    for ends in [("fe80:1::1", B), ("fe80:2::1", B), (A, "fe80:1::2"), (A, "ff02:1::1")] {
        let named = packet(ends, protocol::UDP, &datagram);
        let refused = pair.a.send_raw(pair.now, &by(1), &named);
        assert!(matches!(refused, Err(SocketError::Invalid(_))), "{ends:?}: {refused:?}");
    }
    // From the link, where this stack's check on sending does not apply.
    let link = LinkConfig { offloads: false, ..LinkConfig::default() };
    let (near, mut far) = memory_link::pair(link);
    pair.b.replace_device(pair.now, 1, near).unwrap();
    for ends in [("fe80:1::1", B), ("fe80:2::1", B), (A, "fe80:1::2"), (A, "ff02:1::1")] {
        let bytes = packet(ends, protocol::UDP, &datagram);
        far.tx.transmit(pair.now, &mut [crate::packet::Packet::from(bytes)].into()).unwrap();
    }
    pair.run(SOON);
    assert_eq!(pair.b.counter("Ip6InAddrErrors"), Some(4));
    assert_eq!(recv(&server, pair.now).unwrap_err(), SocketError::WouldBlock);
}

#[test]
fn our_own_addresses_are_reached_in_their_zones() {
    let mut pair = pair(&[]);
    let listeners = ["[fe80::1%1]:80", "[fe80::1%2]:80"]
        .map(|local| pair.a.listen(at(local), 8, Options::default()).unwrap());
    for (listener, remote) in listeners.iter().zip(["[fe80::1%1]:80", "[fe80::1%2]:80"]) {
        let (client, server) = open(&mut pair, listener, remote);
        talk(&mut pair, &client, &server);
        assert_eq!(client.peer_addr(), at(remote));
        assert_eq!(client.local_addr().ip(), ip(A));
    }
    let sockets = ["[fe80::1%1]:9", "[fe80::1%2]:9"].map(|at_| pair.a.bind_udp(at(at_)).unwrap());
    // The second is longer than loopback carries.
    for len in [100, 65_500] {
        let data = pattern(len, 9);
        sockets[1].send(pair.now, &to("[fe80::1]:9"), &[&data]).unwrap();
        pair.run(SOON);
        let mut buf = vec![0; 66_000];
        let received = sockets[1].recv(pair.now, &mut buf).unwrap();
        assert!(buf[..received.len] == data, "{len}");
        assert_eq!(received.info.from, at("[fe80::1%2]:9"));
        assert_eq!(recv(&sockets[0], pair.now).unwrap_err(), SocketError::WouldBlock);
    }
    assert_eq!(sent(&pair.a), [0, 0]);
}

#[test]
fn a_call_that_names_no_zone_is_refused_where_two_are_possible() {
    let mut pair = pair(&[]);
    let invalid = |error: Option<SocketError>| {
        assert!(matches!(error, Some(SocketError::Invalid(_))), "{error:?}");
    };
    let connect = |pair: &Pair, local: Option<&str>, remote: &str| {
        let local = local.map(at);
        pair.a.connect(pair.now, at(remote), local, Options::default()).err()
    };
    invalid(connect(&pair, None, "[fe80::2]:80"));
    invalid(connect(&pair, Some("[fe80::1%1]:0"), "[fe80::2%2]:80"));
    invalid(connect(&pair, Some("[fe80::1%9]:0"), "[fe80::2%2]:80"));
    let none = Some(SocketError::NetworkUnreachable);
    assert_eq!(connect(&pair, None, "[fe80::2%9]:80"), none);
    assert_eq!(connect(&pair, Some("[fe80::1%2]:0"), "[fe80::2]:80"), None);
    invalid(pair.a.listen(at("[fe80::1]:80"), 8, Options::default()).err());
    invalid(pair.a.bind_udp(at("[fe80::1]:0")).err());
    invalid(pair.a.bind_udp(at("[ff02::fb]:0")).err());
    let not_ours = Some(SocketError::AddrNotAvailable);
    assert_eq!(pair.a.bind_udp(at("[fe80::7%2]:0")).err(), not_ours);
    let socket = pair.a.bind_udp(at("[::]:0")).unwrap();
    invalid(socket.connect(pair.now, at("[fe80::2]:9")).err());
    invalid(socket.send(pair.now, &to("[fe80::2]:9"), &[b"ahoy"]).err());
    assert_eq!(socket.send(pair.now, &to("[fe80::2%9]:9"), &[b"ahoy"]).err(), none);
    socket.send(pair.now, &to("[ff02::fb]:9"), &[b"as the routes say"]).unwrap();
    pair.run(SOON);
    assert_eq!(pair.a.counter("Ip6OutRequests"), Some(2), "the SYN and the datagram");
}

#[test]
fn addresses_are_added_and_removed_on_one_link() {
    let pair = pair(&[]);
    let addresses = |pair: &Pair| {
        [0, 1].map(|at| pair.a.interfaces()[at].addresses.iter().filter(|a| a.0 == ip(A)).count())
    };
    assert_eq!(addresses(&pair), [1, 1]);
    assert_eq!(pair.a.addresses().iter().filter(|&&own| own == ip(A)).count(), 2);
    let twice = pair.a.add_address(1, ip(A), 64).unwrap_err().to_string();
    assert_eq!(twice, "interfaces[1].addresses: fe80::1 is an address of interface 1 already");
    pair.a.remove_address(0, ip(A)).unwrap();
    assert_eq!(addresses(&pair), [0, 1]);
    // The choice is unambiguous now.
    let bound = pair.a.bind_udp(at("[fe80::1]:9")).unwrap();
    assert_eq!(bound.local_addr(), at("[fe80::1%2]:9"));
    assert!(pair.a.add_address(0, ip("fe80:1::1"), 64).is_err());
}

#[test]
fn with_one_link_no_scope_id_is_needed() {
    let mut pair = Pair::new();
    pair.a.add_address(0, ip(A), 64).unwrap();
    pair.b.add_address(0, ip(B), 64).unwrap();
    let listener = pair.b.listen(at("[fe80::2]:80"), 8, Options::default()).unwrap();
    for remote in ["[fe80::2]:80", "[fe80::2%1]:80"] {
        let (client, server) = open(&mut pair, &listener, remote);
        talk(&mut pair, &client, &server);
        assert_eq!(client.local_addr().ip(), ip(A));
    }
    let server = pair.b.bind_udp(at("[fe80::2]:9")).unwrap();
    let client = pair.a.bind_udp(at("[fe80::1]:7")).unwrap();
    client.send(pair.now, &to("[fe80::2]:9"), &[b"ahoy"]).unwrap();
    pair.run(SOON);
    let (_, received) = recv(&server, pair.now).unwrap();
    server.send(pair.now, &UdpTransmit::default().to(Some(received.info.from)), &[b"a"]).unwrap();
    pair.run(SOON);
    assert_eq!(recv(&client, pair.now).unwrap().0, b"a");
}
