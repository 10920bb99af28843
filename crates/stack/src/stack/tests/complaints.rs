//! The most frequent complaints about other user-space stacks, as traffic that must not show them:
//! downloads that stall or are corrupted, a reverse test that stops with a closed window or where
//! sequence numbers wrap, bursts that overflow the ring of a guest, fragments that are dropped, an
//! MTU that is not the path's.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll_tcp::{Duration, Instant, Options, State};
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::protocol;

use super::harness::*;
use super::icmp::{Bare, icmp4, v4};
use super::unhandled::from_to;
use crate::device::channel::{Channel, ChannelConfig, channel};
use crate::device::memory_link::LinkConfig;
use crate::flow::FlowKey;
use crate::packet::Packet;
use crate::{
    Listener, PathMtuDiscovery, RawTransmit, SocketError, Stack, TcpSocket, UdpTransmit,
    UnhandledConfig,
};

const MIB: usize = 1 << 20;

/// A connection whose server's sequence numbers wrap after 4 to 8 MiB: the client's port is chosen
/// so.
fn open_before_the_wrap(pair: &mut Pair, listener: &Listener) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let wraps_soon = |&port: &u16| {
        let key = FlowKey { local: ip(B4), remote: ip(A4), local_port: 80, remote_port: port };
        let left = u32::MAX - pair.b.policies.secrets().isn(&key, pair.now).0;
        (4 * MIB..8 * MIB).contains(&(left as usize))
    };
    let port = (1024..u16::MAX).find(wraps_soon).expect("one port in a thousand is like that");
    let local = Some(addr(A4, port));
    let client = pair.a.connect(pair.now, addr(B4, 80), local, Options::default()).unwrap();
    let mut server = None;
    let opened = pair.run_until(Duration::from_secs(30), |pair| {
        server = server.take().or_else(|| listener.accept(pair.now).unwrap().map(|(it, _)| it));
        server.is_some() && client.state() == State::Established
    });
    assert!(opened);
    (client, server.unwrap())
}

/// tun2proxy's issue 269: large downloads stick, or arrive damaged.
#[test]
fn a_large_download_over_a_bad_path_is_whole() {
    const LEN: usize = 24 * MIB;
    let link = LinkConfig {
        delay: Duration::from_millis(2),
        loss: 0.01,
        reorder: 0.02,
        duplicate: 0.01,
        offloads: false,
        ..LinkConfig::default()
    };
    let mut pair = Pair::with(link, &[]);
    let listener = pair.listen(B4, 8);
    let (client, server) = open_before_the_wrap(&mut pair, &listener);
    let (data, mut at, mut got) = (pattern(LEN, 11), 0, Vec::new());
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        feed(&server, pair.now, &data, &mut at);
        drain(&client, pair.now, &mut got);
        got.len() == LEN
    });
    assert!(done, "it sticks after {} bytes", got.len());
    assert!(got == data, "it is damaged");
    assert!(pair.b.counter("TcpRetransSegs").unwrap() > 100, "the path was bad");
}

/// ipstack's issue 56: the server sends, the client's window closes, and nothing moves any more;
/// the same where sequence numbers wrap.
#[test]
fn a_reverse_transfer_survives_closed_windows_and_the_wrap() {
    const LEN: usize = 24 * MIB;
    const PAUSES: usize = 6;
    let link = LinkConfig {
        delay: Duration::from_millis(1),
        loss: 0.02,
        offloads: false,
        ..LinkConfig::default()
    };
    // A buffer that does not grow, so that every pause closes the window.
    let sysctls = [("net.ipv4.tcp_rmem", "4096 65536 65536")];
    let mut pair = Pair::with(link, &sysctls);
    let listener = pair.listen(B4, 8);
    let (client, server) = open_before_the_wrap(&mut pair, &listener);
    let (data, mut at, mut got) = (pattern(LEN, 12), 0, Vec::new());
    for pause in 1..=PAUSES {
        let goal = LEN / PAUSES * pause;
        let done = pair.run_until(Duration::from_secs(600), |pair| {
            feed(&server, pair.now, &data, &mut at);
            let mut buf = vec![0; (goal - got.len()).min(16_384)];
            if let Ok(count) = client.read(pair.now, &mut buf) {
                got.extend_from_slice(&buf[..count]);
            }
            got.len() == goal
        });
        assert!(done, "it stops after {} bytes, in stretch {pause}", got.len());
        let probes = pair.b.counter("TcpExtTCPWinProbe").unwrap();
        // Long enough for probes, and for any update that is lost.
        pair.run(Duration::from_secs(20));
        assert!(pause == PAUSES || pair.b.counter("TcpExtTCPWinProbe").unwrap() > probes);
    }
    assert!(got == data);
}

/// A server and a guest on channels. The way to the guest is a ring of few places that the guest
/// empties at its own pace; packets without a place are lost without a report.
struct Guest {
    server: Arc<Stack>,
    guest: Arc<Stack>,
    ends: [Channel; 2],
    ring: VecDeque<Packet>,
    lost: usize,
    now: Instant,
}

/// Places of the ring.
const RING: usize = 24;
/// Packets that the guest takes out of it every millisecond.
const PACE: usize = 8;

impl Guest {
    fn new() -> Guest {
        let (left, a) = channel(ChannelConfig::default()).unwrap();
        let (right, b) = channel(ChannelConfig::default()).unwrap();
        Guest {
            server: stack(left, A4, A6, &[]),
            guest: stack(right, B4, B6, &[]),
            ends: [a, b],
            ring: VecDeque::new(),
            lost: 0,
            now: Instant::from_millis(1000),
        }
    }

    /// One millisecond.
    fn pass(&mut self) {
        let Guest { server, guest, ends: [a, b], ring, lost, now } = self;
        let until = *now + Duration::from_millis(1);
        for packet in ring.drain(..PACE.min(ring.len())) {
            b.try_send(packet).unwrap();
        }
        loop {
            while server.poll(*now, 256).unwrap().worked || guest.poll(*now, 256).unwrap().worked {}
            let mut moved = false;
            while let Ok(packet) = a.try_recv() {
                moved = true;
                match ring.len() < RING {
                    true => ring.push_back(packet),
                    false => *lost += 1,
                }
            }
            while let Ok(packet) = b.try_recv() {
                moved = true;
                a.try_send(packet).unwrap();
            }
            let next = server.next_deadline().into_iter().chain(guest.next_deadline()).min();
            match next {
                _ if moved => {}
                Some(at) if at < until => *now = at.max(*now),
                _ => break,
            }
        }
        *now = until;
    }
}

/// tailscale's pull request 20416: a burst overflows the guest's ring, and from then on one or two
/// segments leave per 200 ms.
#[test]
fn a_burst_that_overflows_a_ring_is_repaired_within_round_trips() {
    const LEN: usize = 8 * MIB;
    let mut world = Guest::new();
    let listener = world.guest.listen(addr(B4, 80), 8, Options::default()).unwrap();
    let sender = world.server.connect(world.now, addr(B4, 80), None, Options::default()).unwrap();
    let (data, mut at, mut got, mut reader) = (pattern(LEN, 13), 0, Vec::new(), None);
    let mut millis = 0;
    while got.len() < LEN {
        world.pass();
        millis += 1;
        reader = reader.or_else(|| listener.accept(world.now).unwrap().map(|(it, _)| it));
        if connected(&sender).is_ready() {
            feed(&sender, world.now, &data, &mut at);
        }
        if let Some(reader) = &reader {
            drain(reader, world.now, &mut got);
        }
        assert!(millis < 60_000, "it sticks after {} bytes", got.len());
    }
    assert!(got == data);
    assert!(world.lost > 20, "{} were lost: the ring has overflowed", world.lost);
    // The most that the guest takes in that time; two segments per 200 ms would be ten minutes.
    let ideal = LEN / 1448 / PACE;
    assert!(millis < 4 * ideal, "{millis} ms of virtual time, where {ideal} would do");
    let timeouts = world.server.counter("TcpExtTCPTimeouts").unwrap();
    assert!(timeouts <= 2, "{timeouts} timeouts: losses are found by acknowledgements and probes");
}

/// A ping and a datagram of 8,000 bytes need six fragments each way.
#[test]
fn fragments_of_pings_and_datagrams_are_answered_whole() {
    let mut pair = Pair::new();
    let data = pattern(8000, 3);
    for (here, there) in [(A4, B4), (A6, B6)] {
        let (v6, now) = (there == B6, pair.now);
        let receiver = pair.a.unhandled(UnhandledConfig::default()).unwrap();
        let (ident, seq, data) = (1, 2, data.as_slice());
        let (number, request) = match v6 {
            false => (protocol::ICMP, icmp4(&Icmpv4Repr::EchoRequest { ident, seq, data })),
            true => {
                let request = Icmpv6Repr::EchoRequest { ident, seq, data };
                let mut bytes = vec![0; request.len()];
                request.emit(A6.parse().unwrap(), B6.parse().unwrap(), &mut bytes);
                (protocol::ICMPV6, bytes)
            }
        };
        let ping = from_to((here, there), number, &request);
        pair.a.send_raw(now, &RawTransmit::default(), &ping).unwrap();
        pair.settle();
        let reply = receiver.recv(now).unwrap().expect("a reply").to_vec();
        match v6 {
            false => {
                let reply = Icmpv4Repr::parse(&reply[20..]);
                assert_eq!(reply, Ok(Icmpv4Repr::EchoReply { ident, seq, data }));
            }
            true => {
                let (src, dst) = (B6.parse().unwrap(), A6.parse().unwrap());
                let reply = Icmpv6Repr::parse(src, dst, &reply[40..]);
                assert_eq!(reply, Ok(Icmpv6Repr::EchoReply { ident, seq, data }));
            }
        }

        let server = pair.b.bind_udp(addr(there, 53)).unwrap();
        let client = pair.a.bind_udp(addr(here, 0)).unwrap();
        client.connect(now, addr(there, 53)).unwrap();
        client.send(now, &UdpTransmit::default(), &[data]).unwrap();
        pair.settle();
        let mut buf = vec![0; 9000];
        let got = server.recv(now, &mut buf).unwrap();
        let how = UdpTransmit::default().to(Some(got.info.from));
        server.send(now, &how, &[&buf[..got.len]]).unwrap();
        pair.settle();
        let mut buf = vec![0; 9000];
        let got = client.recv(now, &mut buf).unwrap();
        assert!(buf[..got.len] == *data);
        let (created, whole) = match v6 {
            false => ("IpFragCreates", "IpReasmOKs"),
            true => ("Ip6FragCreates", "Ip6ReasmOKs"),
        };
        assert_eq!((pair.counter(created), pair.counter(whole)), ((12, 12), (2, 2)));
    }
}

/// Packets sent from then on fit the new MTU: datagrams, pings, the application's own packets, and
/// the MSS announced by later connections. Open connections:
/// `connections_follow_the_mtu_down_and_up`.
#[test]
fn everything_follows_the_mtu_of_the_interface() {
    let mut bare = Bare::new(&[]);
    let socket = bare.a.bind_udp(addr(A4, 700)).unwrap();
    let send = |bare: &Bare, len: usize| {
        let how = UdpTransmit::default().to(Some(addr(B4, 9)));
        socket.send(bare.now, &how, &[&vec![0; len]])
    };
    let discovery = |mode| socket.change_options(|options| options.path_mtu_discovery = mode);
    let ping = |len: usize| {
        let data = &vec![0; len];
        v4(protocol::ICMP, &icmp4(&Icmpv4Repr::EchoRequest { ident: 1, seq: 2, data }))
    };
    let raw = |bare: &Bare, len: usize| {
        let mut packet = from_to((A4, B4), 99, &vec![0; len]);
        packet[6] |= 0x40;
        bare.a.send_raw(bare.now, &RawTransmit::default(), &packet)
    };
    for mtu in [1500, 1450] {
        bare.a.set_mtu(bare.now, 0, mtu).unwrap();
        let most = usize::from(mtu) - 28;
        discovery(PathMtuDiscovery::DontFragment).unwrap();
        assert_eq!(send(&bare, most), Ok(most));
        assert_eq!(send(&bare, most + 1), Err(SocketError::MessageTooLong));
        discovery(PathMtuDiscovery::Fragment).unwrap();
        assert_eq!(send(&bare, most + 1), Ok(most + 1));
        assert_eq!(bare.take().len(), 3);
        assert_eq!(bare.exchange(&ping(most)).len(), 1);
        assert_eq!(bare.exchange(&ping(most + 1)).len(), 2);
        assert_eq!(raw(&bare, most + 8), Ok(()));
        assert_eq!(raw(&bare, most + 9), Err(SocketError::MessageTooLong));
        assert_eq!(bare.take().len(), 1);
        let remote = addr(B4, 80);
        let _client = bare.a.connect(bare.now, remote, None, Options::default()).unwrap();
        let syn = bare.take();
        // The MSS is the first option.
        assert_eq!(syn[0][40..44], [2, 4, ((mtu - 40) >> 8) as u8, (mtu - 40) as u8]);
    }
}
