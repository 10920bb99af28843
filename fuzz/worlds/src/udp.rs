//! UDP sockets, the hook for packets that nobody wants, and raw sends, under arbitrary packets,
//! calls and time.
//!
//! Packets are raw bytes, datagrams of some peer, whole or in two fragments, maybe as a train that
//! a device has put together, ICMP messages and other protocols, with any TTL, and ICMP errors that
//! quote what the stack sent. Calls are those of sockets, also for any address, and of listeners
//! for any address, and those that set a hook, read its queue, and send packets of the
//! application's own.
//!
//! Oracles: nothing panics; every packet that leaves has an IP header that parses and fits the
//! device, and a datagram that is no fragment has a right checksum; what a socket reads came from
//! somebody, is no longer than it was sent, and its train is cut evenly; what the hook gets is of a
//! kind that it asked for, and, unless it is no IP, as long as its header says, no fragment, and of
//! a right checksum; a packet of the application's own leaves or is refused with an error; and when
//! all sockets are dropped, the account of memory is at zero.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use arbitrary::Arbitrary;
use plimsoll_stack::device::channel::{Channel, ChannelConfig, ChannelOffloads, channel};
use plimsoll_stack::offload::checksum;
use plimsoll_stack::packet::{ChecksumState, Gso, Packet};
use plimsoll_stack::{
    Disposition, Duration, Instant, InterfaceConfig, PathMtuDiscovery, RawTransmit, SocketError,
    Stack, StackConfig, UdpFlowConfig, UdpListener, UdpSocket, UdpTransmit, Unhandled,
    UnhandledConfig, UnhandledHook, UnhandledKind, UnhandledReceiver,
};
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::{FragmentHeader, Ipv6Repr};
use plimsoll_wire::udp::{self, UdpRepr};
use plimsoll_wire::{checksum as sums, protocol};

const MAX_STEPS: usize = 300;
const MAX_SOCKETS: usize = 16;
const MTUS: [u16; 4] = [1500, 1280, 576, 9000];
const ADVANCES: [u64; 6] = [1, 1_000, 10_000, 31_000, 121_000, 3_600_000];

/// How a forged datagram looks.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Shape {
    v6: bool,
    src_port: u8,
    dst_port: u8,
    /// To which address: ours, a stranger's, a group, a broadcast address.
    dst: u8,
    len: u16,
    tos: u8,
    /// No checksum, a broken one, in fragments, as a train: one bit each.
    switches: u8,
    cut: u16,
}

/// One thing that happens.
#[derive(Arbitrary, Clone, Debug)]
pub enum Step {
    Raw(Vec<u8>),
    Datagram(Shape),
    /// An ICMP error that quotes what was sent last: code, MTU, quoted bytes.
    Error(u8, u16, u8),
    Bind(bool, bool, u8),
    Connect(u8, bool, u8, u8),
    /// Socket, destination, length, segment size, what else is asked for.
    Send(u8, u8, u16, u16, u8),
    Receive(u8, u8, u16),
    Options(u8, u8, u16),
    Group(u8, bool, u8),
    Drop(u8),
    Listen(u8, u8),
    Accept,
    Unlisten,
    Memory(u8),
    Take(u8),
    Advance(u8),
    /// Version, protocol, destination, TTL, bytes: a packet that is right but for its payload.
    Protocol(bool, u8, u8, u8, Vec<u8>),
    /// A function or a queue for packets that nobody wants: which kinds, how many bytes.
    Hook(bool, u8, u16),
    Unhook,
    /// Takes from the queue; with `true` it is refused later.
    Unhandled(bool),
    /// Raw bytes, by an interface.
    SendRaw(Vec<u8>, u8),
    /// A packet that is right: version, source, destination, length, other header fields.
    SendOwn(bool, u8, u8, u16, u8),
    Setting(u8, bool),
}

/// One input.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    mtu: u8,
    offloads: u8,
    steps: Vec<Step>,
}

struct World {
    now: Instant,
    stack: Arc<Stack>,
    line: Channel,
    mtu: usize,
    sockets: Vec<Arc<UdpSocket>>,
    listener: Option<Arc<UdpListener>>,
    hook: Option<UnhandledHook>,
    receiver: Option<UnhandledReceiver>,
    /// The kinds that the queue gets.
    asked: UnhandledConfig,
    sent: Vec<u8>,
    /// The application has sent bytes of its own, whose checksums are its business.
    raw: bool,
}

/// Runs an input to its end.
pub fn run(input: &Input) {
    let mtu = MTUS[usize::from(input.mtu) % MTUS.len()];
    let offloads = match input.offloads % 3 {
        0 => ChannelOffloads::None,
        1 => ChannelOffloads::Checksum,
        _ => ChannelOffloads::Segmentation,
    };
    let config = ChannelConfig::with_mtu(mtu).offloads(offloads);
    let (device, line) = channel(config).expect("the configuration is right");
    let addresses = vec![(ours(false), 24), (ours(true), 64)];
    let interfaces = vec![InterfaceConfig { device, addresses, mtu: None }];
    let config = StackConfig { interfaces, secret: [7; 32], ..StackConfig::default() };
    let stack = Stack::new(config).expect("the configuration is right");
    let now = Instant::from_millis(1);
    let (sockets, sent) = (Vec::new(), Vec::new());
    let mtu = usize::from(mtu);
    let (listener, hook, receiver, asked) = (None, None, None, UnhandledConfig::default());
    let mut world =
        World { now, stack, line, mtu, sockets, listener, hook, receiver, asked, sent, raw: false };
    for step in input.steps.iter().take(MAX_STEPS) {
        crate::trace!("{step:?}");
        world.step(step);
        world.poll();
    }
    world.let_go();
}

fn ours(v6: bool) -> IpAddr {
    let text = if v6 { "2001:db8::1" } else { "192.0.2.1" };
    text.parse().expect("an address")
}

fn peer(v6: bool) -> IpAddr {
    let text = if v6 { "2001:db8::2" } else { "192.0.2.2" };
    text.parse().expect("an address")
}

fn place(v6: bool, choice: u8) -> IpAddr {
    let text = match (v6, choice % 6) {
        (_, 0 | 1) => return ours(v6),
        (false, 2) => "198.51.100.9",
        (true, 2) => "2001:db8:9::9",
        (false, 3) => "239.0.0.1",
        (true, 3) => "ff05::1",
        (false, 4) => "192.0.2.255",
        (true, 4) => "::1",
        (false, _) => "127.0.0.1",
        (true, _) => return peer(v6),
    };
    text.parse().expect("an address")
}

fn port(choice: u8) -> u16 {
    50 + u16::from(choice % 4)
}

impl World {
    fn socket(&self, choice: u8) -> Option<&Arc<UdpSocket>> {
        let len = self.sockets.len();
        (len > 0).then(|| &self.sockets[usize::from(choice) % len])
    }

    fn keep(&mut self, socket: Arc<UdpSocket>) {
        if self.sockets.len() < MAX_SOCKETS {
            self.sockets.push(socket);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Raw(ref bytes) => self.arrive(bytes.clone().into()),
            Step::Datagram(shape) => self.datagram(shape),
            Step::Error(code, mtu, len) => self.error(code, mtu, len),
            Step::Bind(v6, only, choice) => self.bind(v6, only, choice),
            Step::Connect(socket, v6, to, at) => {
                let remote =
                    SocketAddr::new(if to & 1 == 0 { peer(v6) } else { place(v6, to) }, port(at));
                let _ = self.socket(socket).map(|socket| socket.connect(self.now, remote));
            }
            Step::Send(socket, to, len, size, other) => self.send(socket, to, (len, size), other),
            Step::Receive(socket, how, space) => self.receive(socket, how, space),
            Step::Options(socket, which, value) => self.options(socket, which, value),
            Step::Group(socket, join, group) => {
                let group = place(group & 1 != 0, 3);
                let _ = self.socket(socket).map(|socket| match join {
                    true => socket.join_group(group),
                    false => socket.leave_group(group),
                });
            }
            Step::Drop(socket) if !self.sockets.is_empty() => {
                let at = usize::from(socket) % self.sockets.len();
                self.sockets.swap_remove(at);
            }
            Step::Drop(_) => {}
            Step::Listen(most, backlog) => {
                let config = UdpFlowConfig::default()
                    .max_flows(usize::from(most))
                    .backlog(usize::from(backlog))
                    .rcvbuf(4096);
                if let Ok(listener) = self.stack.listen_udp_any(0, config) {
                    self.listener = Some(listener);
                }
            }
            Step::Accept => {
                let accepted = self.listener.as_ref().map(|listener| listener.accept(self.now));
                if let Some(Ok(Some(flow))) = accepted {
                    assert!(flow.peer_addr().is_some(), "a flow has a peer");
                    self.keep(flow);
                }
            }
            Step::Unlisten => self.listener = None,
            Step::Memory(pages) => {
                let value = format!("1 1 {}", u32::from(pages) + 1);
                let _ = self.stack.set_sysctl(self.now, "net.ipv4.udp_mem", &value);
            }
            Step::Take(count) => {
                for _ in 0..count {
                    let Ok(packet) = self.line.try_recv() else { break };
                    self.judge(&packet);
                }
            }
            Step::Advance(choice) => {
                self.now += Duration::from_millis(ADVANCES[usize::from(choice) % ADVANCES.len()]);
            }
            ref other => self.step_beside(other),
        }
    }

    /// What is no business of UDP's.
    fn step_beside(&mut self, step: &Step) {
        match *step {
            Step::Protocol(v6, number, dst, ttl, ref bytes) => {
                let ips = (peer(v6), place(v6, dst));
                let mut packet = enveloped(ips, (number, 0), bytes, None);
                set_ttl(&mut packet, ttl);
                self.arrive(packet.into());
            }
            Step::Hook(queue, kinds, rcvbuf) => self.set_hook(queue, kinds, rcvbuf),
            Step::Unhook => (self.hook, self.receiver) = (None, None),
            Step::Unhandled(refused) => self.unhandled(refused),
            Step::SendRaw(ref bytes, interface) => {
                let how = RawTransmit::default()
                    .interface((interface & 0x80 != 0).then_some(usize::from(interface & 3)));
                self.raw |= self.stack.send_raw(self.now, &how, bytes).is_ok();
            }
            Step::SendOwn(v6, src, dst, len, other) => self.send_own(v6, (src, dst), len, other),
            Step::Setting(which, on) => {
                let name = ["plimsoll.icmp_echo_any", "plimsoll.any_address_hop"];
                let name = name[usize::from(which) % name.len()];
                let _ = self.stack.set_sysctl(self.now, name, if on { "1" } else { "0" });
            }
            _ => unreachable!("a step of UDP's"),
        }
    }

    fn set_hook(&mut self, queue: bool, kinds: u8, rcvbuf: u16) {
        let config = UnhandledConfig::default()
            .protocols(kinds & 1 != 0)
            .icmp(kinds & 2 != 0)
            .echo_requests(kinds & 4 != 0)
            .datagrams(kinds & 8 != 0)
            .not_ip(kinds & 16 != 0)
            .rcvbuf(usize::from(rcvbuf));
        if queue {
            if let Ok(receiver) = self.stack.unhandled(config) {
                (self.receiver, self.asked) = (Some(receiver), config);
            }
            return;
        }
        let (stack, now) = (Arc::downgrade(&self.stack), self.now);
        // What it sends to ourselves comes back to it.
        let left = AtomicU8::new(u8::MAX);
        let answer = if kinds & 32 == 0 { Disposition::Taken } else { Disposition::Default };
        let hook = self.stack.on_unhandled(config, move |packet| {
            check_unhandled(packet, &config);
            let may_send = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
            if kinds & 64 != 0
                && may_send
                && let Some(stack) = stack.upgrade()
            {
                let _ = stack.send_raw(now, &RawTransmit::default(), &packet.to_vec());
                let _ = stack.bind_udp(SocketAddr::new(ours(false), 0));
            }
            answer
        });
        if let Ok(hook) = hook {
            self.hook = Some(hook);
            // It sends what has arrived, whose checksum nobody may have looked at.
            self.raw |= kinds & 64 != 0;
        }
    }

    fn unhandled(&mut self, refused: bool) {
        let Some(receiver) = &self.receiver else { return };
        let _ = receiver.poll_readable(Waker::noop());
        while let Ok(Some(packet)) = receiver.recv(self.now) {
            check_unhandled(&packet, &self.asked);
            if refused {
                self.stack.refuse_unhandled(self.now, &packet);
            }
        }
    }

    /// A packet of the application's own with nothing wrong in it but perhaps its source.
    fn send_own(&mut self, v6: bool, (src, dst): (u8, u8), len: u16, other: u8) {
        let ips = (place(v6, src), place(v6, dst));
        let mut bytes = enveloped(ips, (253, other), &vec![other; usize::from(len) % 9000], None);
        if !v6 && other & 1 != 0 {
            bytes[6] |= 0x40;
        }
        match self.stack.send_raw(self.now, &RawTransmit::default(), &bytes) {
            Ok(()) => {}
            Err(SocketError::MessageTooLong) => {
                assert!(!v6 && other & 1 != 0 && bytes.len() > 552, "it could be cut");
            }
            Err(
                SocketError::AddrNotAvailable
                | SocketError::NetworkUnreachable
                | SocketError::NoBufferSpace,
            ) => {}
            Err(error) => panic!("{error}: there is nothing wrong with the packet"),
        }
    }

    fn bind(&mut self, v6: bool, only: bool, choice: u8) {
        let wild = if v6 { "[::]:0" } else { "0.0.0.0:0" };
        let mut local: SocketAddr = wild.parse().expect("an address");
        local.set_port(if choice & 0x80 == 0 { port(choice) } else { 0 });
        if choice & 0x40 != 0 {
            local.set_ip(place(v6, choice >> 2));
        }
        let bound = match only {
            _ if choice & 0x60 == 0x20 => self.stack.bind_udp_any(local.port()),
            true => self.stack.bind_udp_only_v6(local),
            false => self.stack.bind_udp(local),
        };
        if let Ok(socket) = bound {
            self.keep(socket);
        }
    }

    fn arrive(&mut self, packet: Packet) {
        // A full line is no fault of the stack's.
        let _ = self.line.try_send(packet);
    }

    fn datagram(&mut self, shape: Shape) {
        let (src, dst) = (peer(shape.v6), place(shape.v6, shape.dst));
        let len = usize::from(shape.len) % 3000;
        let repr = UdpRepr {
            src_port: port(shape.src_port),
            dst_port: port(shape.dst_port),
            payload_len: len,
        };
        let mut bytes = vec![shape.tos; udp::HEADER_LEN + len];
        repr.emit(&mut bytes);
        let total = bytes.len() as u32;
        let pseudo = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                sums::pseudo_header_v4(src, dst, protocol::UDP, total)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                sums::pseudo_header_v6(src, dst, protocol::UDP, total)
            }
            _ => return,
        };
        if shape.switches & 1 == 0 {
            udp::fill_checksum(pseudo, &mut bytes);
        }
        if shape.switches & 2 != 0 {
            let at = usize::from(shape.cut) % bytes.len();
            bytes[at] ^= 1;
        }
        if shape.switches & 4 != 0 {
            let at = (usize::from(shape.cut) % bytes.len()) & !7;
            let (front, back) = bytes.split_at(at);
            let front = around((src, dst), shape.tos, front, Some((0, true)));
            let back = around((src, dst), shape.tos, back, Some((at as u16, false)));
            self.arrive(front.into());
            return self.arrive(back.into());
        }
        let mut packet = Packet::from(around((src, dst), shape.tos, &bytes, None));
        if shape.switches & 8 != 0 {
            let size = shape.cut.max(1);
            packet.gso = Some(Gso { size, segs: len.div_ceil(usize::from(size)).max(1) as u16 });
            packet.csum = ChecksumState::Verified;
        }
        self.arrive(packet);
    }

    fn error(&mut self, code: u8, mtu: u16, len: u8) {
        let packet = &self.sent[..self.sent.len().min(usize::from(len) * 4)];
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let (src, dst) = (peer(v6), ours(v6));
        let message = match (src, dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let error = match code & 1 {
                    0 => Icmpv6Repr::Unreachable { code: code >> 1, packet },
                    _ => Icmpv6Repr::PacketTooBig { mtu: u32::from(mtu), packet },
                };
                let mut out = vec![0; error.len()];
                error.emit(src, dst, &mut out);
                out
            }
            _ => {
                let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: mtu, packet };
                let mut out = vec![0; error.len()];
                error.emit(&mut out);
                out
            }
        };
        let number = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
        let packet = enveloped((src, dst), (number, 0), &message, None);
        self.arrive(packet.into());
    }

    fn send(&mut self, socket: u8, to: u8, (len, size): (u16, u16), other: u8) {
        let Some(socket) = self.socket(socket) else { return };
        let to = (to & 0x80 == 0).then(|| {
            let v6 = to & 1 != 0;
            let ip = if to & 2 == 0 { peer(v6) } else { place(v6, to >> 2) };
            SocketAddr::new(ip, port(to >> 5))
        });
        let how = UdpTransmit::default()
            .to(to)
            .from((other & 1 != 0).then(|| place(other & 2 != 0, other >> 4)))
            .from_port((other & 0x10 != 0).then(|| port(other >> 5)))
            .tos((other & 4 != 0).then_some(other))
            .ttl((other & 8 != 0).then_some(other))
            .segment_size((size & 1 != 0).then_some(usize::from(size >> 1)));
        let data = vec![other; usize::from(len)];
        let (front, back) = data.split_at(data.len() / 2);
        match socket.send(self.now, &how, &[front, back]) {
            Ok(count) => assert_eq!(count, data.len(), "a datagram leaves whole"),
            Err(SocketError::WouldBlock) => {
                let _ = socket.poll_writable(Waker::noop());
            }
            Err(_) => {}
        }
    }

    fn receive(&mut self, socket: u8, how: u8, space: u16) {
        let Some(socket) = self.socket(socket) else { return };
        let waits = socket.queued();
        let mut buf = vec![0; usize::from(space)];
        let read = match how % 4 {
            0 => socket.recv(self.now, &mut buf),
            1 => socket.recv_train(self.now, &mut buf),
            2 => socket.peek(&mut buf),
            _ => socket.recv_shared(self.now).map(|(data, read)| {
                assert_eq!(data.len(), read.len);
                read
            }),
        };
        let Ok(read) = read else { return };
        assert!(waits > 0, "nothing waited");
        let count = match read.stride {
            0 => 1,
            stride => read.len.div_ceil(stride).max(1),
        };
        let left = if how % 4 == 2 { waits } else { waits - count };
        assert_eq!(socket.queued(), left, "what was read is gone");
        assert!(how % 4 == 3 || read.len <= buf.len());
        if let Some(peer) = socket.peer_addr().filter(|_| socket.idle_timeout().is_some()) {
            assert_eq!(read.info.from, peer, "a flow has one peer");
        }
    }

    fn options(&mut self, socket: u8, which: u8, value: u16) {
        let Some(socket) = self.socket(socket) else { return };
        let _ = socket.change_options(|options| match which % 7 {
            0 => options.ttl = value as u8,
            1 => options.tos = value as u8,
            2 => options.broadcast = value & 1 != 0,
            3 => options.multicast_loop = value & 1 != 0,
            4 => {
                options.path_mtu_discovery = [
                    PathMtuDiscovery::Fragment,
                    PathMtuDiscovery::DontFragment,
                    PathMtuDiscovery::Probe,
                    PathMtuDiscovery::Never,
                ][usize::from(value % 4)];
            }
            5 => options.rcvbuf = usize::from(value),
            _ => options.sndbuf = usize::from(value),
        });
        let _ = socket.set_idle_timeout(Duration::from_millis(u64::from(value)));
        let _ = socket.take_error();
    }

    fn poll(&mut self) {
        for _ in 0..1000 {
            match self.stack.poll(self.now, 64) {
                Ok(polled) if polled.worked => {}
                _ => return,
            }
        }
        panic!("polls go on for ever");
    }

    /// Looks at a packet that has left.
    fn judge(&mut self, packet: &Packet) {
        let mut whole = packet.share();
        let bytes = whole.to_vec();
        assert!(packet.gso.is_some() || bytes.len() <= self.mtu, "it fits the device");
        match bytes.first().map(|first| first >> 4) {
            Some(4) => assert_eq!(
                Ipv4Repr::parse(&bytes).map(|(ip, at)| at + ip.payload_len),
                Ok(bytes.len())
            ),
            Some(6) => assert_eq!(
                Ipv6Repr::parse(&bytes).map(|(ip, at)| at + ip.payload_len),
                Ok(bytes.len())
            ),
            _ => panic!("no IP"),
        }
        if packet.gso.is_none() && !self.raw {
            assert!(checksum::fill(&mut whole));
            whole.csum = ChecksumState::Unverified;
            assert!(checksum::verify(&whole), "a wrong checksum left: {bytes:02x?}");
        }
        self.sent = bytes;
    }

    fn let_go(mut self) {
        self.listener = None;
        (self.hook, self.receiver) = (None, None);
        self.sockets.clear();
        while let Ok(packet) = self.line.try_recv() {
            self.judge(&packet);
            self.poll();
        }
        self.now += Duration::from_secs(7200);
        self.poll();
        assert_eq!(self.stack.udp_memory().bytes, 0, "memory is left");
    }
}

/// Looks at a packet that the hook got.
fn check_unhandled(packet: &Unhandled, config: &UnhandledConfig) {
    let asked = match packet.kind() {
        UnhandledKind::NotIp => config.not_ip,
        UnhandledKind::Protocol(_) => config.protocols,
        UnhandledKind::Icmp { .. } => config.icmp,
        UnhandledKind::EchoRequest => config.echo_requests,
        UnhandledKind::Datagram => config.datagrams,
        _ => true,
    };
    assert!(asked, "{packet:?} was not asked for");
    let bytes = packet.to_vec();
    let len = match (packet.kind(), bytes.first().map(|first| first >> 4)) {
        (UnhandledKind::NotIp, version) => {
            assert!(!matches!(version, Some(4 | 6)), "it is IP");
            return assert_eq!((packet.source(), packet.transport_at()), (None, None));
        }
        (_, Some(4)) => Ipv4Repr::parse(&bytes).map(|(ip, at)| {
            assert!(!ip.is_fragment(), "a fragment");
            assert_eq!(packet.source(), Some(ip.src.into()));
            assert_eq!(packet.transport_at(), Some(at));
            at + ip.payload_len
        }),
        _ => Ipv6Repr::parse(&bytes).map(|(ip, at)| {
            assert_eq!(packet.source(), Some(ip.src.into()));
            at + ip.payload_len
        }),
    };
    assert_eq!(len, Ok(bytes.len()), "the length is not what the header says");
    assert!(packet.packet().gso.is_none(), "a train");
    let whole = Packet { csum: ChecksumState::Unverified, ..packet.packet().share() };
    assert!(checksum::verify(&whole), "a wrong checksum");
}

/// Changes the TTL or the hop limit of a packet, and what follows from it.
fn set_ttl(packet: &mut [u8], ttl: u8) {
    if packet[0] >> 4 == 6 {
        packet[7] = ttl;
        return;
    }
    packet[8] = ttl;
    packet[10..12].fill(0);
    let sum = sums::sum(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn around(ips: (IpAddr, IpAddr), tos: u8, data: &[u8], place: Option<(u16, bool)>) -> Vec<u8> {
    enveloped(ips, (protocol::UDP, tos), data, place)
}

/// `data` behind an IP header, maybe as a fragment.
fn enveloped(
    ips: (IpAddr, IpAddr),
    (number, tos): (u8, u8),
    data: &[u8],
    place: Option<(u16, bool)>,
) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    let len = match ips {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Ipv4Repr {
            src,
            dst,
            protocol: number,
            ttl: 64,
            tos,
            ident: 7,
            dont_frag: false,
            more_frags: place.is_some_and(|(_, more)| more),
            frag_offset: place.map_or(0, |(at, _)| at),
            payload_len: data.len(),
        }
        .emit(&mut bytes),
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let extra = if place.is_some() { 8 } else { 0 };
            let ip = Ipv6Repr {
                src,
                dst,
                next_header: if place.is_some() { protocol::IPV6_FRAGMENT } else { number },
                hop_limit: 64,
                traffic_class: tos,
                flow_label: 0,
                payload_len: data.len() + extra,
            };
            let at = ip.emit(&mut bytes);
            match place {
                Some((offset, more)) => {
                    let header = FragmentHeader { next_header: number, offset, more, ident: 7 };
                    at + header.emit(&mut bytes[at..])
                }
                None => at,
            }
        }
        _ => 0,
    };
    bytes.truncate(len);
    bytes.extend_from_slice(data);
    bytes
}
