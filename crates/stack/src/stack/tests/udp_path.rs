//! ICMP errors about datagrams: refused ports, path MTUs, and errors that must be ignored.

use plimsoll_tcp::{ConnectionError, Duration};
use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::icmpv6::{self, Icmpv6Repr};
use plimsoll_wire::protocol;

use super::harness::*;
use super::icmp::{Bare, icmp4, icmp6, v4, v6};
use crate::{PathMtuDiscovery, SocketError, UdpTransmit};

const REFUSED: SocketError = SocketError::Connection(ConnectionError::Refused);

#[test]
fn a_connected_socket_hears_that_a_port_is_closed() {
    for theirs in [B4, B6] {
        let mut pair = Pair::new();
        let socket = pair.a.bind_udp("[::]:0".parse().unwrap()).unwrap();
        let how = UdpTransmit { to: Some(addr(theirs, 9)), ..UdpTransmit::default() };
        socket.send(pair.now, &how, &[b"unconnected"]).unwrap();
        pair.settle();
        assert_eq!(socket.take_error(), None, "it could not tell what it is about");
        socket.connect(pair.now, addr(theirs, 9)).unwrap();
        let (counting, waker) = CountingWaker::new();
        assert!(socket.poll_readable(&waker).is_pending());
        for _ in 0..2 {
            socket.send(pair.now, &UdpTransmit::default(), &[b"hello"]).unwrap();
            pair.settle();
            pair.now += Duration::from_secs(1);
            assert_eq!(socket.recv(pair.now, &mut [0; 9]), Err(REFUSED));
            assert_eq!(socket.recv(pair.now, &mut [0; 9]), Err(SocketError::WouldBlock), "once");
        }
        assert_eq!(counting.count(), 1);
        socket.send(pair.now, &UdpTransmit::default(), &[b"hello"]).unwrap();
        pair.settle();
        assert_eq!(socket.send(pair.now, &UdpTransmit::default(), &[b"x"]), Err(REFUSED));
        let name = if ip(theirs).is_ipv4() { "UdpNoPorts" } else { "Udp6NoPorts" };
        assert_eq!(pair.counter(name), (0, 4));
    }
}

#[test]
fn a_quote_of_another_flow_is_not_believed() {
    let mut bare = Bare::new(&[]);
    let socket = bare.a.bind_udp(addr(A4, 700)).unwrap();
    socket.connect(bare.now, addr(B4, 9)).unwrap();
    socket.send(bare.now, &UdpTransmit::default(), &[b"hello"]).unwrap();
    let sent = bare.take().remove(0);
    let unreachable = |packet: &[u8]| {
        let code = icmpv4::CODE_PORT_UNREACHABLE;
        v4(protocol::ICMP, &icmp4(&Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet }))
    };
    // Another local port, another remote port, another peer, and no ports at all.
    for (place, other) in [(21, 0), (23, 1), (19, 99)] {
        let mut quoted = sent.clone();
        quoted[place] ^= other | 1;
        bare.exchange(&unreachable(&quoted));
        assert_eq!(socket.take_error(), None, "byte {place}");
    }
    bare.exchange(&unreachable(&sent[..24]));
    assert_eq!((socket.take_error(), bare.count("IcmpInErrors")), (None, 4));
    bare.exchange(&unreachable(&sent));
    assert_eq!(socket.take_error(), Some(REFUSED));
    // An unreachable host may be reachable the next moment.
    let code = icmpv4::CODE_HOST_UNREACHABLE;
    let host = Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: &sent };
    bare.exchange(&v4(protocol::ICMP, &icmp4(&host)));
    assert_eq!(socket.take_error(), None);
}

#[test]
fn packets_too_big_lower_the_path_mtu() {
    let mut bare = Bare::new(&[]);
    for (ours, theirs, mtu) in [(A4, B4, 1000_u16), (A6, B6, 1300)] {
        let socket = bare.a.bind_udp(addr(ours, 0)).unwrap();
        socket.connect(bare.now, addr(theirs, 9)).unwrap();
        let data = [1; 1400];
        let headers = if ip(ours).is_ipv4() { 28 } else { 48 };
        socket.send(bare.now, &UdpTransmit::default(), &[&data]).unwrap();
        let sent = bare.take();
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1400 + headers]);
        let packet = &sent[0][..100];
        bare.exchange(&match ip(ours).is_ipv4() {
            true => {
                let code = icmpv4::CODE_FRAGMENTATION_NEEDED;
                let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: mtu, packet };
                v4(protocol::ICMP, &icmp4(&error))
            }
            false => {
                let error = Icmpv6Repr::PacketTooBig { mtu: u32::from(mtu), packet };
                v6(protocol::ICMPV6, &icmp6(&error))
            }
        });
        assert_eq!(socket.take_error(), None, "it may fragment");
        socket.send(bare.now, &UdpTransmit::default(), &[&data]).unwrap();
        let lens: Vec<_> = bare.take().iter().map(Vec::len).collect();
        assert!(lens.len() == 2 && lens.iter().all(|&len| len <= usize::from(mtu)), "{lens:?}");
        // A quote of the first fragment counts as well.
        let discovery = PathMtuDiscovery::DontFragment;
        socket.change_options(|options| options.path_mtu_discovery = discovery).unwrap();
        let send = |len| socket.send(bare.now, &UdpTransmit::default(), &[&vec![0; len][..]]);
        assert_eq!(send(usize::from(mtu) - headers + 1), Err(SocketError::MessageTooLong));
        assert!(send(usize::from(mtu) - headers).is_ok());
        bare.take();
        socket
            .change_options(|options| options.path_mtu_discovery = PathMtuDiscovery::Probe)
            .unwrap();
        assert!(socket.send(bare.now, &UdpTransmit::default(), &[&data]).is_ok(), "a probe");
        bare.take();
    }
}

#[test]
fn with_dont_fragment_a_packet_too_big_is_an_error() {
    let mut bare = Bare::new(&[]);
    let socket = bare.a.bind_udp(addr(A6, 0)).unwrap();
    let discovery = PathMtuDiscovery::DontFragment;
    socket.change_options(|options| options.path_mtu_discovery = discovery).unwrap();
    socket.connect(bare.now, addr(B6, 9)).unwrap();
    socket.send(bare.now, &UdpTransmit::default(), &[&[1; 1400]]).unwrap();
    let sent = bare.take().remove(0);
    let error = Icmpv6Repr::PacketTooBig { mtu: 1280, packet: &sent[..200] };
    bare.exchange(&v6(protocol::ICMPV6, &icmp6(&error)));
    assert_eq!(socket.take_error(), Some(SocketError::MessageTooLong));
    let closed =
        Icmpv6Repr::Unreachable { code: icmpv6::CODE_PORT_UNREACHABLE, packet: &sent[..200] };
    bare.exchange(&v6(protocol::ICMPV6, &icmp6(&closed)));
    assert_eq!(socket.take_error(), Some(REFUSED));
}
