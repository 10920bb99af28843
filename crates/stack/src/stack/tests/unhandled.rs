//! Packets that no socket accepts: the hook, the receiver, and the treatment without either.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::Ipv6Repr;
use plimsoll_wire::udp::UdpRepr;
use plimsoll_wire::{icmpv4, icmpv6, ipv6, protocol, udp};

use super::harness::*;
use super::icmp::{Bare, icmp4, icmp6, v4, v4_fragment, v6};
use crate::packet::{ChecksumState, Gso, Packet};
use crate::{
    Disposition, RawTransmit, SocketError, Unhandled, UnhandledConfig, UnhandledKind, Unreachable,
};

/// An address that no stack here has.
pub(super) const OTHER4: &str = "198.51.100.7";
pub(super) const OTHER6: &str = "2001:db8:9::7";

/// A packet from the peer to any address.
pub(super) fn to(dst: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    from_to((if dst.contains(':') { B6 } else { B4 }, dst), protocol, payload)
}

/// A packet between any two addresses.
pub(super) fn from_to((src, dst): (&str, &str), protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    let len = match dst.parse::<Ipv4Addr>() {
        Ok(dst) => Ipv4Repr {
            src: src.parse().unwrap(),
            dst,
            protocol,
            ttl: 64,
            tos: 0,
            ident: 77,
            dont_frag: false,
            more_frags: false,
            frag_offset: 0,
            payload_len: payload.len(),
        }
        .emit(&mut bytes),
        Err(_) => Ipv6Repr {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            next_header: protocol,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len: payload.len(),
        }
        .emit(&mut bytes),
    };
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes
}

fn ping4(ident: u16) -> Vec<u8> {
    icmp4(&Icmpv4Repr::EchoRequest { ident, seq: 1, data: b"ahoy" })
}

fn ping6(dst: &str) -> Vec<u8> {
    let message = Icmpv6Repr::EchoRequest { ident: 1, seq: 1, data: b"ahoy" };
    let mut bytes = vec![0; message.len()];
    message.emit(B6.parse().unwrap(), dst.parse().unwrap(), &mut bytes);
    bytes
}

/// A datagram of UDP, without a checksum.
fn datagram(port: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; udp::HEADER_LEN];
    UdpRepr { src_port: 5, dst_port: port, payload_len: data.len() }.emit(&mut bytes);
    bytes.extend_from_slice(data);
    bytes
}

/// Records the kinds that a hook gets, and answers as configured.
#[derive(Default)]
struct Notes(Mutex<Vec<UnhandledKind>>);

impl Notes {
    fn note(self: &Arc<Notes>, answer: Disposition) -> impl Fn(&Unhandled) -> Disposition + use<> {
        let notes = self.clone();
        move |packet| {
            notes.0.lock().unwrap().push(packet.kind());
            answer
        }
    }

    fn take(&self) -> Vec<UnhandledKind> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn a_hook_gets_the_kinds_that_it_asks_for() {
    let mut bare = Bare::new(&[]);
    bare.a.take_any_address();
    let notes = Arc::new(Notes::default());
    let reply = icmp4(&Icmpv4Repr::EchoReply { ident: 9, seq: 1, data: b"" });
    let timestamp = {
        let mut bytes = icmp4(&Icmpv4Repr::EchoReply { ident: 9, seq: 1, data: &[0; 12] });
        // Type 13; the reply's is 0, so the checksum moves by as much.
        bytes[0] = 13;
        bytes[2] -= 13;
        bytes
    };
    let kinds = [
        (v4(99, b"what"), UnhandledKind::Protocol(99)),
        (v6(protocol::ICMP, b"what"), UnhandledKind::Protocol(protocol::ICMP)),
        (v4(protocol::ICMP, &reply), UnhandledKind::Icmp { message: 0, code: 0 }),
        (v4(protocol::ICMP, &timestamp), UnhandledKind::Icmp { message: 13, code: 0 }),
        (to(OTHER4, protocol::ICMP, &ping4(1)), UnhandledKind::EchoRequest),
        (to(OTHER6, protocol::ICMPV6, &ping6(OTHER6)), UnhandledKind::EchoRequest),
        (to(OTHER4, protocol::UDP, &datagram(53, b"who?")), UnhandledKind::Datagram),
        (vec![0x21, 1, 2, 3], UnhandledKind::NotIp),
    ];
    let hook = bare.a.on_unhandled(UnhandledConfig::all(), notes.note(Disposition::Taken)).unwrap();
    for (packet, kind) in &kinds {
        assert!(bare.exchange(packet).is_empty(), "{kind:?}: it was taken");
        assert_eq!(notes.take(), [*kind]);
    }
    assert_eq!(bare.count("plimsoll.Unhandled"), kinds.len() as u64);
    drop(hook);
    // Only the selected kinds.
    let hook =
        bare.a.on_unhandled(UnhandledConfig::default(), notes.note(Disposition::Taken)).unwrap();
    let answers: Vec<usize> = kinds.iter().map(|(packet, _)| bare.exchange(packet).len()).collect();
    assert_eq!(answers, [0, 0, 0, 0, 1, 1, 1, 0]);
    assert_eq!(notes.take(), kinds[..4].iter().map(|(_, kind)| *kind).collect::<Vec<_>>());
    // Pings to local addresses, and packets with a socket, do not reach the hook.
    let _socket = bare.a.bind_udp(addr(A4, 53)).unwrap();
    assert_eq!(bare.exchange(&v4(protocol::ICMP, &ping4(1))).len(), 1);
    assert!(bare.exchange(&v4(protocol::UDP, &datagram(53, b"ours"))).is_empty());
    assert!(notes.take().is_empty());
    drop(hook);
    assert_eq!(bare.exchange(&kinds[0].0).len(), 1, "as without a hook");
    assert!(notes.take().is_empty());
}

#[test]
fn a_hook_that_does_not_take_a_packet_leaves_it_to_the_stack() {
    let mut bare = Bare::new(&[]);
    bare.a.take_any_address();
    let notes = Arc::new(Notes::default());
    let packets = [
        v4(99, b"what"),
        v6(99, b"what"),
        to(OTHER4, protocol::UDP, &datagram(53, b"who?")),
        to(OTHER4, protocol::ICMP, &ping4(1)),
        to(OTHER6, protocol::ICMPV6, &ping6(OTHER6)),
        v4(protocol::ICMP, &icmp4(&Icmpv4Repr::EchoReply { ident: 9, seq: 1, data: b"" })),
        vec![0x21, 1, 2, 3],
    ];
    let without: Vec<_> = packets.iter().map(|packet| bare.exchange(packet)).collect();
    let _hook = bare.a.on_unhandled(UnhandledConfig::all(), notes.note(Disposition::Default));
    let with: Vec<_> = packets.iter().map(|packet| bare.exchange(packet)).collect();
    assert_eq!(with, without);
    assert_eq!(notes.take().len(), packets.len());
    assert_eq!(without.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 0, 0]);
    let code = icmpv4::CODE_PROTOCOL_UNREACHABLE;
    let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: &packets[0] };
    assert_eq!(Icmpv4Repr::parse(&with[0][0][20..]), Ok(error));
    let code = icmpv6::CODE_UNKNOWN_NEXT_HEADER;
    let error = Icmpv6Repr::ParameterProblem { code, pointer: 6, packet: &packets[1] };
    let (src, dst) = (A6.parse().unwrap(), B6.parse().unwrap());
    assert_eq!(Icmpv6Repr::parse(src, dst, &with[1][0][40..]), Ok(error));
    assert_eq!(bare.count("IcmpOutEchoReps"), 2);
}

#[test]
fn a_hook_may_use_the_stack_and_panic() {
    let mut bare = Bare::new(&[]);
    bare.a.take_any_address();
    let panics = Arc::new(AtomicBool::new(false));
    let (stack, now, flag) = (Arc::downgrade(&bare.a), bare.now, panics.clone());
    let hook = bare.a.on_unhandled(UnhandledConfig::all(), move |packet| {
        assert!(!flag.load(Ordering::Relaxed), "on purpose");
        let stack = stack.upgrade().unwrap();
        // The request comes back with source and destination exchanged.
        let mut bytes = packet.to_vec();
        bytes[12..20].rotate_left(4);
        stack.send_raw(now, &RawTransmit::default(), &bytes).unwrap();
        let socket = stack.bind_udp(addr(A4, 0)).unwrap();
        assert_eq!(socket.local_addr().ip(), ip(A4));
        Disposition::Taken
    });
    let _hook = hook.unwrap();
    let answers = bare.exchange(&to(OTHER4, 99, b"what"));
    assert_eq!(answers, [from_to((OTHER4, B4), 99, b"what")]);
    panics.store(true, Ordering::Relaxed);
    let answers = bare.exchange(&to(OTHER4, 99, b"what"));
    let error = Icmpv4Repr::parse(&answers[0][20..]).unwrap();
    assert!(matches!(error, Icmpv4Repr::Unreachable { .. }), "{error:?}: the default");
    assert_eq!(bare.count("plimsoll.UnhandledPanics"), 1);
    assert!(bare.a.error().is_none(), "the stack goes on");
}

#[test]
fn there_is_one_hook() {
    let bare = Bare::new(&[]);
    let config = UnhandledConfig::default();
    let receiver = bare.a.unhandled(config).unwrap();
    assert_eq!(bare.a.unhandled(config).unwrap_err(), SocketError::AddrInUse);
    let hook = bare.a.on_unhandled(config, |_| Disposition::Taken);
    assert_eq!(hook.unwrap_err(), SocketError::AddrInUse);
    drop(receiver);
    let _hook = bare.a.on_unhandled(config, |_| Disposition::Taken).unwrap();
    let none = UnhandledConfig::default().protocols(false).icmp(false);
    for (config, text) in [
        (none, "invalid argument: no kind of packet is asked for"),
        (config.rcvbuf(0), "invalid argument: rcvbuf: it must be 1 at least"),
    ] {
        assert_eq!(bare.a.unhandled(config).unwrap_err().to_string(), text);
    }
}

#[test]
fn a_receiver_is_woken_and_bounded() {
    let mut bare = Bare::new(&[]);
    // Each costs 128 bytes in addition to its own.
    let config = UnhandledConfig::default().rcvbuf(2 * (24 + 128));
    let receiver = bare.a.unhandled(config).unwrap();
    let (woken, waker) = CountingWaker::new();
    assert_eq!(receiver.poll_readable(&waker), Poll::Pending);
    for number in 0..3 {
        assert!(bare.exchange(&v4(99, &[number; 4])).is_empty());
    }
    assert_eq!(woken.count(), 1);
    assert_eq!(receiver.poll_readable(Waker::noop()), Poll::Ready(()));
    assert_eq!(bare.count("plimsoll.UnhandledDropped"), 1);
    let got: Vec<_> = std::iter::from_fn(|| receiver.recv(bare.now).unwrap()).collect();
    let bytes: Vec<_> = got.iter().map(Unhandled::to_vec).collect();
    assert_eq!(bytes, [v4(99, &[0; 4]), v4(99, &[1; 4])]);
    assert_eq!((got[0].source(), got[0].destination()), (Some(ip(B4)), Some(ip(A4))));
    assert_eq!((got[0].transport_at(), got[0].interface()), (Some(20), 0));
    // A packet that was taken may be refused later.
    bare.a.refuse_unhandled(bare.now, &got[0]);
    let answers = bare.take();
    let code = icmpv4::CODE_PROTOCOL_UNREACHABLE;
    let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: &bytes[0] };
    assert_eq!(Icmpv4Repr::parse(&answers[0][20..]), Ok(error));
    // A packet that costs more than all there is to be had fits an empty queue.
    let large = v4(99, &[7; 1000]);
    bare.exchange(&large);
    assert_eq!(receiver.recv(bare.now).unwrap().unwrap().to_vec(), large);
    // Waiters are notified of the end.
    let (woken, waker) = CountingWaker::new();
    assert_eq!(receiver.poll_readable(&waker), Poll::Pending);
    bare.a.end(bare.now, crate::StackError::ShutDown);
    assert_eq!(woken.count(), 1);
    assert_eq!(receiver.recv(bare.now).unwrap_err(), SocketError::NetworkDown);
}

#[test]
fn an_echo_request_is_rejected_with_an_error_and_an_error_is_not() {
    let mut bare = Bare::new(&[]);
    bare.a.take_any_address();
    let receiver = bare.a.unhandled(UnhandledConfig::all()).unwrap();
    let mut rejected = |packet: Vec<u8>, how| {
        assert!(bare.exchange(&packet).is_empty());
        let got = receiver.recv(bare.now).unwrap().unwrap();
        bare.a.reject_unhandled(bare.now, &got, how);
        bare.take()
    };
    let four = to(OTHER4, protocol::ICMP, &ping4(1));
    let answers = rejected(four.clone(), Unreachable::Prohibited);
    let (ip, at) = Ipv4Repr::parse(&answers[0]).unwrap();
    assert_eq!(ip.dst.to_string(), B4);
    let error = Icmpv4Repr::Unreachable { code: 13, next_hop_mtu: 0, packet: &four };
    assert_eq!(Icmpv4Repr::parse(&answers[0][at..]), Ok(error));
    let answers = rejected(to(OTHER6, protocol::ICMPV6, &ping6(OTHER6)), Unreachable::Host);
    assert_eq!(answers[0][40..42], [1, icmpv6::CODE_ADDRESS_UNREACHABLE]);
    let mut error = vec![0; Icmpv4Repr::TimeExceeded { code: 0, packet: &four }.len()];
    Icmpv4Repr::TimeExceeded { code: 0, packet: &four }.emit(&mut error);
    let error = to(OTHER4, protocol::ICMP, &error);
    assert!(rejected(error, Unreachable::Host).is_empty());
}

#[test]
fn a_packet_in_fragments_is_handed_out_whole() {
    let mut bare = Bare::new(&[]);
    let receiver = bare.a.unhandled(UnhandledConfig::default()).unwrap();
    let data = pattern(3000, 5);
    bare.exchange(&v4_fragment(99, &data[..1400], 0, true));
    assert!(receiver.recv(bare.now).unwrap().is_none());
    bare.exchange(&v4_fragment(99, &data[1400..], 1400, false));
    let packet = receiver.recv(bare.now).unwrap().unwrap();
    assert_eq!(packet.to_vec(), v4(99, &data));
}

/// Work that a device left undone (checksum, segmentation, removal of padding) is done when the
/// hook gets the packet.
#[test]
fn what_the_hook_gets_could_go_on_a_wire() {
    let mut bare = Bare::new(&[]);
    let receiver = bare.a.unhandled(UnhandledConfig::default().datagrams(true)).unwrap();
    let whole = v4(protocol::UDP, &datagram(53, b"aaaabbbbcc"));
    let mut train = Packet::from(whole.clone());
    train.gso = Some(Gso { size: 4, segs: 3 });
    train.csum = ChecksumState::Verified;
    let mut padded = whole.clone();
    padded.extend_from_slice(b"padding");
    bare.give(train);
    bare.give(Packet::from(padded));
    let got: Vec<_> = std::iter::from_fn(|| receiver.recv(bare.now).unwrap()).collect();
    assert_eq!(got.len(), 4);
    for (packet, data) in got.iter().zip([b"aaaa".as_slice(), b"bbbb", b"cc"]) {
        let bytes = packet.to_vec();
        let (ip, at) = Ipv4Repr::parse(&bytes).unwrap();
        assert_eq!((at + ip.payload_len, &bytes[at + 8..]), (bytes.len(), data));
        let packet = Packet { csum: ChecksumState::Unverified, ..Packet::from(bytes.clone()) };
        assert!(crate::offload::checksum::verify(&packet));
        assert_ne!(bytes[at + 6..at + 8], [0, 0], "it has a checksum");
    }
    assert_eq!(got[3].to_vec(), whole);
}

#[test]
fn errors_are_handed_out_if_they_quote_nothing_of_ours() {
    let mut bare = Bare::new(&[]);
    let receiver = bare.a.unhandled(UnhandledConfig::default()).unwrap();
    let socket = bare.a.bind_udp(addr(A4, 700)).unwrap();
    for (port, handed_out) in [(700, false), (701, true), (702, true)] {
        // A socket for any address and port does not record its destinations.
        let any = (port == 702).then(|| bare.a.bind_udp_any(0).unwrap());
        let mut quoted = vec![0; udp::HEADER_LEN];
        UdpRepr { src_port: port, dst_port: 9, payload_len: 0 }.emit(&mut quoted);
        let quoted = from_to((A4, B4), protocol::UDP, &quoted);
        let error = Icmpv4Repr::TimeExceeded { code: 0, packet: &quoted };
        let error = v4(protocol::ICMP, &icmp4(&error));
        bare.exchange(&error);
        let got = receiver.recv(bare.now).unwrap();
        assert_eq!(got.map(|packet| packet.to_vec()), handed_out.then_some(error));
        drop(any);
    }
    assert_eq!(socket.local_addr().port(), 700);
    let reply =
        v6(protocol::ICMPV6, &icmp6(&Icmpv6Repr::EchoReply { ident: 1, seq: 2, data: b"" }));
    bare.exchange(&reply);
    let got = receiver.recv(bare.now).unwrap().unwrap();
    assert_eq!(got.kind(), UnhandledKind::Icmp { message: 129, code: 0 });
}

#[test]
fn pings_to_any_address_are_answered_unless_a_setting_forbids_it() {
    let mut bare = Bare::new(&[]);
    let four = to(OTHER4, protocol::ICMP, &ping4(1));
    let six = to(OTHER6, protocol::ICMPV6, &ping6(OTHER6));
    assert!(bare.exchange(&four).is_empty(), "not our address");
    assert!(bare.exchange(&six).is_empty(), "not our address");
    bare.a.take_any_address();
    let answers = bare.exchange(&four);
    let (ip, at) = Ipv4Repr::parse(&answers[0]).unwrap();
    assert_eq!((ip.src.to_string().as_str(), ip.dst.to_string().as_str()), (OTHER4, B4));
    let reply = Icmpv4Repr::EchoReply { ident: 1, seq: 1, data: b"ahoy" };
    assert_eq!(Icmpv4Repr::parse(&answers[0][at..]), Ok(reply));
    let answers = bare.exchange(&six);
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (OTHER6.parse().unwrap(), B6.parse().unwrap());
    let reply = Icmpv6Repr::EchoReply { ident: 1, seq: 1, data: b"ahoy" };
    assert_eq!(Icmpv6Repr::parse(src, dst, &answers[0][40..]), Ok(reply));
    bare.a.sysctl().set("plimsoll.icmp_echo_any", "0").unwrap();
    assert!(bare.exchange(&four).is_empty());
    assert!(bare.exchange(&six).is_empty());
    assert_eq!(bare.exchange(&v4(protocol::ICMP, &ping4(1))).len(), 1, "ours is");
}

/// With a TTL of 1 a packet comes as far as the stack, which is a router in front of any address.
#[test]
fn a_packet_for_a_host_behind_us_that_may_go_no_further_ends_here() {
    let mut bare = Bare::new(&[]);
    let with_ttl = |mut packet: Vec<u8>, ttl: u8| {
        match packet[0] >> 4 {
            4 => {
                // The checksum moves by as much.
                let sum = u16::from_be_bytes([packet[10], packet[11]]);
                let by = u16::from(packet[8] - ttl) << 8;
                let (sum, carry) = sum.overflowing_add(by);
                packet[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
                packet[8] = ttl;
            }
            _ => packet[7] = ttl,
        }
        packet
    };
    let six = with_ttl(to(OTHER6, protocol::ICMPV6, &ping6(OTHER6)), 1);
    let four = [
        with_ttl(to(OTHER4, protocol::ICMP, &ping4(1)), 1),
        with_ttl(to(OTHER4, protocol::UDP, &datagram(33_434, b"probe")), 1),
        with_ttl(to(OTHER4, 99, b"what"), 0),
    ];
    bare.a.take_any_address();
    for packet in &four {
        let answers = bare.exchange(packet);
        let (ip, at) = Ipv4Repr::parse(&answers[0]).unwrap();
        assert_eq!((ip.src.to_string().as_str(), ip.dst.to_string().as_str()), (A4, B4));
        let error = Icmpv4Repr::TimeExceeded { code: 0, packet };
        assert_eq!(Icmpv4Repr::parse(&answers[0][at..]), Ok(error));
    }
    let answers = bare.exchange(&six);
    let error = Icmpv6Repr::TimeExceeded { code: 0, packet: &six };
    let (src, dst) = (A6.parse().unwrap(), B6.parse().unwrap());
    assert_eq!(Icmpv6Repr::parse(src, dst, &answers[0][40..]), Ok(error));
    assert_eq!((bare.count("IcmpOutTimeExcds"), bare.count("Icmp6OutTimeExcds")), (3, 1));
    assert_eq!((bare.count("IpInHdrErrors"), bare.count("Ip6InHdrErrors")), (3, 1));
    // No error answers an error, and nothing but the first fragment is answered.
    let error = icmp4(&Icmpv4Repr::TimeExceeded { code: 0, packet: &four[0] });
    assert!(bare.exchange(&with_ttl(to(OTHER4, protocol::ICMP, &error), 1)).is_empty());
    let mut later = v4_fragment(99, b"later...", 8, false);
    later[16..20].copy_from_slice(&OTHER4.parse::<Ipv4Addr>().unwrap().octets());
    later[10..12].fill(0);
    let sum = plimsoll_wire::checksum::sum(&later[..20]).finish();
    later[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(bare.exchange(&with_ttl(later, 1)).is_empty());
    assert_eq!(bare.count("IpReasmReqds"), 0);
    // To us it is far enough, and so it is to any host without the setting.
    assert_eq!(bare.exchange(&with_ttl(v4(protocol::ICMP, &ping4(1)), 1)).len(), 1);
    bare.a.sysctl().set("plimsoll.any_address_hop", "0").unwrap();
    for packet in &four[..2] {
        let answers = bare.exchange(packet);
        assert_eq!(answers[0][12..16], OTHER4.parse::<Ipv4Addr>().unwrap().octets());
    }
    assert_eq!(bare.count("IcmpOutTimeExcds"), 3);
}

/// RFC 7600, section 4.8.
#[test]
fn a_stack_without_an_address_is_192_0_0_8() {
    let (device, mut line) = crate::device::channel(Default::default()).unwrap();
    let interface = crate::InterfaceConfig { device, addresses: vec![], mtu: None };
    let interfaces = vec![interface];
    let config = crate::StackConfig { interfaces, ..crate::StackConfig::default() };
    let stack = crate::Stack::new(config).unwrap();
    stack.take_any_address();
    let now = crate::Instant::from_millis(1);
    for packet in [to(OTHER4, 99, b"what"), to(OTHER6, 99, b"what")] {
        let (mut bytes, v4) = (packet, OTHER4.parse::<Ipv4Addr>().unwrap().octets());
        match bytes[16..20] == v4 {
            true => {
                bytes[8] = 1;
                bytes[10..12].fill(0);
                let sum = plimsoll_wire::checksum::sum(&bytes[..20]).finish();
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            false => bytes[7] = 1,
        }
        line.try_send(bytes).unwrap();
        while stack.poll(now, 64).unwrap().worked {}
    }
    let answer = line.try_recv().unwrap().to_vec();
    assert_eq!((&answer[12..16], answer[20]), ([192, 0, 0, 8].as_slice(), 11));
    assert!(line.try_recv().is_err(), "there is no such address of IPv6");
}
