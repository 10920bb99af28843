//! Datagrams and echo requests to groups and broadcast addresses, and their receivers.

use std::net::IpAddr;
use std::sync::Arc;

use plimsoll_tcp::Instant;
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::udp::UdpRepr;
use plimsoll_wire::{checksum, ipv4, ipv6, protocol, udp};

use super::harness::*;
use super::icmp::{Bare, icmp4, v4, v6};
use crate::{Stack, UdpFlowConfig, UdpSocket, UdpTransmit};

const ALL_HOSTS: &str = "224.0.0.1";
const ALL_NODES: &str = "ff02::1";

fn bind(stack: &Arc<Stack>, text: &str) -> Arc<UdpSocket> {
    stack.bind_udp(text.parse().unwrap()).unwrap()
}

fn send(pair: &mut Pair, from: &UdpSocket, to: &str, port: u16, data: &[u8]) {
    from.send(pair.now, &UdpTransmit::default().to(Some(addr(to, port))), &[data]).unwrap();
    pair.settle();
}

/// All that waits to be read.
fn texts(socket: &UdpSocket, now: Instant) -> Vec<String> {
    let mut buf = [0; 100];
    std::iter::from_fn(|| {
        let read = socket.recv(now, &mut buf).ok()?;
        Some(String::from_utf8_lossy(&buf[..read.len]).into_owned())
    })
    .collect()
}

/// The packet `bytes` to another destination.
fn redirected(mut bytes: Vec<u8>, to: &str) -> Vec<u8> {
    match ip(to) {
        IpAddr::V4(to) => {
            bytes[16..20].copy_from_slice(&to.octets());
            bytes[10..12].fill(0);
            let sum = checksum::sum(&bytes[..ipv4::HEADER_LEN]).finish();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        IpAddr::V6(to) => bytes[24..40].copy_from_slice(&to.octets()),
    }
    bytes
}

/// An echo request from the peer to a group.
fn echo_v6(to: &str) -> Vec<u8> {
    let request = Icmpv6Repr::EchoRequest { ident: 1, seq: 2, data: b"anybody?" };
    let mut message = vec![0; request.len()];
    request.emit(B6.parse().unwrap(), to.parse().unwrap(), &mut message);
    redirected(v6(protocol::ICMPV6, &message), to)
}

/// A datagram from the peer's port 7 to port 9 of a group of IPv6.
fn datagram_v6(to: &str) -> Vec<u8> {
    let mut bytes = vec![0; udp::HEADER_LEN];
    UdpRepr { src_port: 7, dst_port: 9, payload_len: 3 }.emit(&mut bytes);
    bytes.extend_from_slice(b"all");
    let (src, dst) = (B6.parse().unwrap(), to.parse().unwrap());
    let pseudo = checksum::pseudo_header_v6(src, dst, protocol::UDP, bytes.len() as u32);
    udp::fill_checksum(pseudo, &mut bytes);
    redirected(v6(protocol::UDP, &bytes), to)
}

#[test]
fn the_groups_of_all_hosts_need_not_be_joined() {
    let mut pair = Pair::new();
    let (b, now) = (pair.b.clone(), pair.now);
    let wild = [bind(&b, "0.0.0.0:7"), b.bind_udp_only_v6(addr("::", 7)).unwrap()];
    let both = bind(&b, "[::]:8");
    let own = [bind(&b, &format!("{B4}:9")), bind(&b, &format!("[{B6}]:9"))];
    let group = [bind(&b, "224.0.0.1:10"), bind(&b, "[ff02::1]:10")];
    let friend = bind(&b, "0.0.0.0:11");
    friend.connect(now, addr("192.0.2.77", 1)).unwrap();
    let client = bind(&pair.a, "[::]:0");
    let neighbour = bind(&pair.a, "0.0.0.0:7");
    for to in [ALL_HOSTS, ALL_NODES] {
        for port in 7..=12 {
            send(&mut pair, &client, to, port, to.as_bytes());
        }
    }
    assert_eq!(wild.each_ref().map(|each| texts(each, now)), [[ALL_HOSTS], [ALL_NODES]]);
    assert_eq!(texts(&both, now), [ALL_NODES], "as on Linux, a socket of IPv6 hears its own only");
    assert_eq!(own.each_ref().map(|each| texts(each, now).len()), [0, 0]);
    assert_eq!(group.each_ref().map(|each| texts(each, now)), [[ALL_HOSTS], [ALL_NODES]]);
    assert!(texts(&friend, now).is_empty(), "it is connected to somebody else");
    // Ports 8, 9, 11 and 12 of IPv4, 9, 11 and 12 of IPv6.
    assert_eq!((pair.counter("UdpIgnoredMulti").1, pair.counter("Udp6IgnoredMulti").1), (4, 3));
    // The sender's own stack is in the groups as well.
    assert_eq!(texts(&neighbour, now), [ALL_HOSTS]);
    assert_eq!((pair.counter("UdpIgnoredMulti").0, pair.counter("Udp6IgnoredMulti").0), (5, 6));
    assert_eq!((pair.counter("UdpNoPorts"), pair.counter("Udp6NoPorts")), ((0, 0), (0, 0)));
    // Other groups are for members.
    send(&mut pair, &client, "224.0.0.2", 7, b"routers");
    send(&mut pair, &client, "ff02::2", 7, b"routers");
    assert!(wild.iter().all(|each| texts(each, now).is_empty()));
    assert_eq!((pair.counter("IpInAddrErrors").1, pair.counter("Ip6InAddrErrors").1), (1, 1));
}

#[test]
fn an_echo_request_to_all_nodes_is_answered_from_our_own_address() {
    let mut bare = Bare::new(&[]);
    let answers = bare.exchange(&echo_v6(ALL_NODES));
    assert_eq!(answers.len(), 1);
    let (ours, peer) = (A6.parse().unwrap(), B6.parse().unwrap());
    let message = Icmpv6Repr::parse(ours, peer, &answers[0][ipv6::HEADER_LEN..]).unwrap();
    assert_eq!(message, Icmpv6Repr::EchoReply { ident: 1, seq: 2, data: b"anybody?" });
    let (src, dst) = (&answers[0][8..24], &answers[0][24..40]);
    assert_eq!((src, dst), (&ours.octets()[..], &peer.octets()[..]));
    for group in ["ff02::2", "ff02::fb", "ff05::1", "ff01::1"] {
        assert!(bare.exchange(&echo_v6(group)).is_empty(), "{group} is answered");
    }
    assert_eq!((bare.count("Icmp6InEchos"), bare.count("Ip6InAddrErrors")), (1, 4));
    let member = bare.a.bind_udp(addr("::", 5353)).unwrap();
    member.join_group(ip("ff02::fb")).unwrap();
    assert_eq!(bare.exchange(&echo_v6("ff02::fb")).len(), 1, "a socket is in the group");
    // An echo request to an IPv4 group or a broadcast address is not answered (RFC 1122, section
    // 3.2.2.6).
    let echo = icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data: b"anybody?" });
    for to in [ALL_HOSTS, "192.0.2.255", "255.255.255.255"] {
        assert!(bare.exchange(&redirected(v4(protocol::ICMP, &echo), to)).is_empty(), "{to}");
    }
    assert_eq!((bare.count("IcmpOutMsgs"), bare.count("IpInAddrErrors")), (0, 3));
}

#[test]
fn a_stack_for_any_address_answers_for_the_groups_that_it_is_in() {
    let mut bare = Bare::new(&[]);
    let _any = bare.a.bind_udp_any(0).unwrap();
    assert_eq!(bare.exchange(&echo_v6(ALL_NODES)).len(), 1);
    assert!(bare.exchange(&echo_v6("ff05::99")).is_empty());
}

#[test]
fn what_is_for_a_group_of_the_host_does_not_leave_or_enter_it() {
    let mut bare = Bare::new(&[]);
    let socket = bind(&bare.a, "[::]:9");
    let joined = bind(&bare.a, "[::]:10");
    joined.join_group(ip("ff01::5")).unwrap();
    for to in ["ff01::1", "ff01::5", "ff00::1"] {
        assert!(bare.exchange(&datagram_v6(to)).is_empty());
    }
    assert!(texts(&socket, bare.now).is_empty());
    assert_eq!(bare.count("Ip6InAddrErrors"), 3);
    let how = UdpTransmit::default().to(Some(addr("ff01::1", 9)));
    joined.send(bare.now, &how, &[b"inside"]).unwrap();
    joined.send(bare.now, &how.to(Some(addr("ff01::5", 10))), &[b"joined"]).unwrap();
    assert!(bare.take().is_empty(), "nothing leaves");
    assert_eq!(texts(&socket, bare.now), ["inside"]);
    assert_eq!(texts(&joined, bare.now), ["joined"]);
}

#[test]
fn flows_hear_groups_and_broadcasts_beside_the_members() {
    let mut pair = Pair::new();
    let client = bind(&pair.a, &format!("{A4}:1000"));
    client.change_options(|options| options.broadcast = true).unwrap();
    send(&mut pair, &client, "239.255.255.250", 1900, b"unheard");
    let member = bind(&pair.b, "0.0.0.0:1900");
    member.join_group(ip("239.255.255.250")).unwrap();
    let listener = pair.b.listen_udp_any(0, UdpFlowConfig::default()).unwrap();
    let now = pair.now;
    let there = ["239.255.255.250", "224.0.0.1", "255.255.255.255", "192.0.2.255"];
    for to in there {
        send(&mut pair, &client, to, 1900, b"first");
        send(&mut pair, &client, to, 1900, b"second");
        let flow = listener.accept(now).unwrap().unwrap();
        assert!(listener.accept(now).unwrap().is_none(), "{to}: both are of one flow");
        assert_eq!(flow.local_addr(), addr(to, 1900));
        assert_eq!(texts(&flow, now), ["first", "second"]);
        assert_eq!(texts(&member, now), ["first", "second"]);
        // A group is no source.
        flow.send(now, &UdpTransmit::default(), &[b"here"]).unwrap();
        pair.settle();
        let mut buf = [0; 9];
        assert_eq!(client.recv(now, &mut buf).unwrap().info.from, addr(B4, 1900));
    }
    assert_eq!(pair.counter("UdpIgnoredMulti").1, 0);
}

#[test]
fn a_flow_of_a_group_outlives_its_listener() {
    let mut pair = Pair::new();
    let client = bind(&pair.a, &format!("[{A6}]:1000"));
    let listener = pair.b.listen_udp_any(5353, UdpFlowConfig::default()).unwrap();
    send(&mut pair, &client, "ff05::fb", 5353, b"one");
    send(&mut pair, &client, "ff05::fb", 5354, b"another port");
    let now = pair.now;
    let flow = listener.accept(now).unwrap().unwrap();
    listener.close(now);
    send(&mut pair, &client, "ff05::fb", 5353, b"two");
    send(&mut pair, &client, "ff05::99", 5353, b"no flow");
    assert_eq!(texts(&flow, now), ["one", "two"]);
    assert_eq!(pair.counter("Udp6IgnoredMulti"), (0, 2));
    drop(flow);
    send(&mut pair, &client, "ff05::fb", 5353, b"three");
    assert_eq!(pair.counter("Ip6InAddrErrors"), (0, 1));
}

#[test]
fn a_full_backlog_refuses_flows_of_groups() {
    let mut pair = Pair::new();
    let client = bind(&pair.a, &format!("{A4}:1000"));
    let config = UdpFlowConfig { backlog: 1, ..UdpFlowConfig::default() };
    let listener = pair.b.listen_udp_any(0, config).unwrap();
    for host in 1..=3 {
        send(&mut pair, &client, &format!("239.0.0.{host}"), 9, b"x");
    }
    assert_eq!(pair.counter("plimsoll.UdpFlowsRefused").1, 2);
    assert!(listener.accept(pair.now).unwrap().is_some());
}
