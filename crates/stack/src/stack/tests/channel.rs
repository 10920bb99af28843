//! Stacks on channel devices, between which the test carries the packets by hand.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::task::{Context, Waker};

use plimsoll_tcp::{Duration, Instant, Options};
use proptest::prelude::*;

use super::harness::*;
use crate::device::channel::{Channel, ChannelConfig, ChannelOffloads, TryRecvError, channel};
use crate::packet::Packet;
use crate::{Stack, StackError};

/// A [`Pair`] whose link is two channels.
pub(super) struct Bridged {
    pub(super) pair: Pair,
    a: Channel,
    b: Channel,
    /// Packets carried so far, and the longest.
    carried: usize,
    longest: usize,
    /// Connections whose IPv4 packets are lost: the port of `a`, and the address that it talks to.
    pub(super) lost: BTreeSet<(u16, Ipv4Addr)>,
}

impl Bridged {
    pub(super) fn new(config: &ChannelConfig) -> Bridged {
        let (left, a) = channel(config.clone()).unwrap();
        let (right, b) = channel(config.clone()).unwrap();
        let pair = Pair {
            a: stack(left, A4, A6, &[]),
            b: stack(right, B4, B6, &[]),
            now: Instant::from_millis(1000),
        };
        Bridged { pair, a, b, carried: 0, longest: 0, lost: BTreeSet::new() }
    }

    /// Carries all packets; `false` if there were none.
    fn carry(&mut self) -> bool {
        let before = self.carried;
        let Bridged { a, b, carried, longest, lost, .. } = self;
        let mut pass = |from: &mut Channel, to: &mut Channel| {
            while let Ok(packet) = from.try_recv() {
                *carried += 1;
                *longest = packet.len().max(*longest);
                if !lost.is_empty() && ends(&packet).iter().any(|end| lost.contains(end)) {
                    continue;
                }
                to.try_send(packet).unwrap();
            }
        };
        pass(a, b);
        pass(b, a);
        self.carried > before
    }

    /// Until neither side has anything to do now.
    pub(super) fn settle(&mut self) {
        loop {
            self.pair.settle();
            if !self.carry() {
                return;
            }
        }
    }

    /// Lets `time` pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.pair.now + time;
        loop {
            self.settle();
            let deadlines = [&self.pair.a, &self.pair.b].map(|stack| stack.next_deadline());
            match deadlines.into_iter().flatten().min() {
                Some(at) if at < end => self.pair.now = self.pair.now.max(at),
                _ => break,
            }
        }
        self.pair.now = end;
        self.settle();
    }

    /// Advances time until `done` returns true; at most a minute.
    fn run_until(&mut self, mut done: impl FnMut(&mut Bridged) -> bool) {
        let end = self.pair.now + Duration::from_secs(60);
        loop {
            self.settle();
            if done(self) {
                return;
            }
            let deadlines = [&self.pair.a, &self.pair.b].map(|stack| stack.next_deadline());
            let next = deadlines.into_iter().flatten().min().unwrap_or(end);
            assert!(next < end, "it comes to no end");
            self.pair.now = self.pair.now.max(next);
        }
    }
}

/// For each of the two ends of an IPv4 packet its port, and the address of the other.
fn ends(packet: &Packet) -> [(u16, Ipv4Addr); 2] {
    let Some(ends) = packet.headers().get(12..24) else { return [(0, Ipv4Addr::UNSPECIFIED); 2] };
    let address = |at: usize| Ipv4Addr::from([ends[at], ends[at + 1], ends[at + 2], ends[at + 3]]);
    let port = |at: usize| u16::from_be_bytes([ends[at], ends[at + 1]]);
    [(port(8), address(4)), (port(10), address(0))]
}

/// Carries `len` bytes through a connection; returns the world after that.
fn transfer(config: &ChannelConfig, len: usize) -> Bridged {
    let mut world = Bridged::new(config);
    let listener = world.pair.listen(B4, 16);
    let client = world.pair.connect(B4);
    let (data, mut at, mut got, mut server) = (pattern(len, 5), 0, Vec::new(), None);
    world.run_until(|world| {
        let now = world.pair.now;
        if connected(&client).is_ready() {
            feed(&client, now, &data, &mut at);
        }
        if server.is_none() {
            server = listener.accept(now).unwrap().map(|(socket, _)| socket);
        }
        if let Some(server) = &server {
            drain(server, now, &mut got);
        }
        got.len() == len
    });
    assert!(got == data, "every byte, in order");
    world
}

#[test]
fn without_offloads_every_packet_is_a_segment_that_fits() {
    let world = transfer(&ChannelConfig::with_mtu(1280), 300_000);
    assert_eq!(world.longest, 1280);
    assert_eq!(world.pair.counter("TcpRetransSegs"), (0, 0));
}

/// A frame above the MTU that is to be cut by the device is no packet above the MTU.
#[test]
fn a_super_segment_above_the_mtu_is_judged_by_its_segment_size() {
    let offloads = ChannelOffloads::Segmentation;
    let config = ChannelConfig { offloads, ..ChannelConfig::with_mtu(1400) };
    let world = transfer(&config, 1_000_000);
    assert!(world.longest > 10 * 1400, "super-segments travel whole: {}", world.longest);
    assert_eq!(world.pair.counter("TcpRetransSegs"), (0, 0));
    assert_eq!(world.pair.b.counter("IpInDiscards").unwrap_or(0), 0);
    let wire = 1_000_000_usize.div_ceil(1348);
    assert!(world.carried < wire / 2, "{} packets for {wire} segments", world.carried);
}

/// A caller that polls only when it is woken, and counts, for the length of a transfer.
#[test]
fn a_caller_that_polls_only_when_woken_polls_no_more_than_it_finds() {
    let mut world = Bridged::new(&ChannelConfig { to_caller: 32, ..ChannelConfig::default() });
    let listener = world.pair.listen(B4, 16);
    let client = world.pair.connect(B4);
    let (data, mut at, mut got, mut server) = (pattern(400_000, 5), 0, Vec::new(), None);
    let tasks = [CountingWaker::new(), CountingWaker::new()];
    let (mut polls, mut idle, mut packets) = (0, 0, 0);
    let mut seen = [usize::MAX; 2];
    let end = world.pair.now + Duration::from_secs(60);
    while got.len() < data.len() {
        world.pair.settle();
        let now = world.pair.now;
        let mut moved = false;
        for (index, (count, waker)) in tasks.iter().enumerate() {
            if seen[index] == count.count() {
                continue;
            }
            seen[index] = count.count();
            moved = true;
            let (from, to) = match index {
                0 => (&mut world.a, &mut world.b),
                _ => (&mut world.b, &mut world.a),
            };
            let mut cx = Context::from_waker(waker);
            let mut found = 0;
            let mut batch = Vec::new();
            loop {
                polls += 1;
                if from.receiver().poll_recv_many(&mut cx, &mut batch, 64).is_pending() {
                    break;
                }
                found += batch.len();
                let mut queue: VecDeque<Packet> = batch.drain(..).collect();
                assert!(to.sender().poll_send_many(&mut cx, &mut queue).is_ready());
                assert!(queue.is_empty(), "the other stack keeps up");
            }
            packets += found;
            idle += usize::from(found == 0);
        }
        if connected(&client).is_ready() {
            feed(&client, now, &data, &mut at);
        }
        if server.is_none() {
            server = listener.accept(now).unwrap().map(|(socket, _)| socket);
        }
        if let Some(server) = &server {
            drain(server, now, &mut got);
        }
        if !moved {
            let next = [&world.pair.a, &world.pair.b].map(|stack| stack.next_deadline());
            world.pair.now = now.max(next.into_iter().flatten().min().unwrap_or(end));
            assert!(world.pair.now < end, "somebody was not woken");
        }
    }
    assert_eq!(idle, 1, "the server's side, before anything was sent");
    assert!(polls <= 2 * packets, "{polls} polls for {packets} packets");
    // At rest no waker fires.
    world.pair.settle();
    while tasks.iter().zip(seen).any(|((count, _), seen)| count.count() != seen) {
        for (index, (count, waker)) in tasks.iter().enumerate() {
            seen[index] = count.count();
            let from = if index == 0 { &mut world.a } else { &mut world.b };
            let mut cx = Context::from_waker(waker);
            while from.poll_recv(&mut cx).is_ready() {}
        }
        world.pair.settle();
    }
    let before: Vec<usize> = tasks.iter().map(|(count, _)| count.count()).collect();
    for _ in 0..100 {
        world.pair.settle();
    }
    assert_eq!(tasks.iter().map(|(count, _)| count.count()).collect::<Vec<_>>(), before);
}

#[test]
fn connections_follow_the_mtu_down_and_up() {
    let mut world = Bridged::new(&ChannelConfig::with_mtu(9000));
    let listener = world.pair.listen(B4, 16);
    let client = world.pair.connect(B4);
    let mut server = None;
    world.run_until(|world| {
        server = listener.accept(world.pair.now).unwrap().map(|(socket, _)| socket);
        server.is_some()
    });
    let server = server.unwrap();
    let longest_of = |world: &mut Bridged, len: usize| {
        let (data, mut at, mut got) = (pattern(len, 3), 0, Vec::new());
        world.longest = 0;
        world.run_until(|world| {
            feed(&client, world.pair.now, &data, &mut at);
            drain(&server, world.pair.now, &mut got);
            got.len() == len
        });
        assert!(got == data);
        world.longest
    };
    assert_eq!(longest_of(&mut world, 200_000), 9000);
    world.a.set_mtu(1280).unwrap();
    assert_eq!(longest_of(&mut world, 200_000), 1280, "the device says so");
    assert_eq!(world.pair.a.interfaces()[0].mtu, 1280);
    world.a.set_mtu(4000).unwrap();
    assert_eq!(longest_of(&mut world, 200_000), 4000, "and up again");
    world.pair.a.set_mtu(world.pair.now, 0, 2000).unwrap();
    assert_eq!(longest_of(&mut world, 200_000), 2000, "the stack says so");
    world.pair.a.set_mtu(world.pair.now, 0, 3000).unwrap();
    assert_eq!(longest_of(&mut world, 200_000), 3000);
    let refused = |index, mtu| world.pair.a.set_mtu(world.pair.now, index, mtu).unwrap_err();
    assert!(refused(0, 4001).to_string().contains("4001 is not between 576 and the device's 4000"));
    assert!(refused(0, 575).to_string().contains("interfaces[0].mtu"));
    assert!(refused(1, 1000).to_string().contains("no interface"), "loopback");
}

#[test]
fn a_channel_that_ends_takes_its_interface_down_and_says_why() {
    let mut world = transfer(&ChannelConfig::default(), 1000);
    let listener = world.pair.listen(B4, 1);
    let now = world.pair.now;
    std::mem::replace(&mut world.b, channel(ChannelConfig::default()).unwrap().1)
        .close("the tunnel was shut");
    let ended = world.pair.b.poll(now, 64).unwrap_err();
    let StackError::DeviceGone { name, reason } = &ended else { panic!("{ended:?}") };
    assert_eq!((name.as_str(), reason.as_str()), ("channel", "the tunnel was shut"));
    assert!(listener.accept(now).is_err());
}

#[test]
fn a_stack_that_ends_ends_the_stream_of_packets() {
    let (device, mut end) = channel(ChannelConfig::default()).unwrap();
    let alone = stack(device, A4, A6, &[]);
    let socket = alone.connect(Instant::from_millis(1), addr(B4, 80), None, Options::default());
    alone.poll(Instant::from_millis(1), 64).unwrap();
    drop((socket, alone));
    assert!(end.try_recv().is_ok(), "the SYN");
    while let Ok(_packet) = end.try_recv() {}
    assert!(matches!(end.try_recv(), Err(TryRecvError::Closed(_))));
}

/// Feeds a stack with bytes that a caller sends: it may only count them.
fn feed_junk(packets: Vec<(Vec<u8>, Option<u16>, bool)>) -> Arc<Stack> {
    let (device, mut end) = channel(ChannelConfig::default()).unwrap();
    let target = stack(device, A4, A6, &[]);
    let _listener = target.listen(addr(A4, 80), 8, Options::default()).unwrap();
    let mut now = Instant::from_millis(1);
    for (bytes, cut, partial) in packets {
        let mut packet = Packet::from(bytes);
        packet.gso = cut.map(|size| crate::packet::Gso { size, segs: 3 });
        if partial {
            packet.csum = crate::packet::ChecksumState::Partial;
        }
        let _ = end.try_send(packet);
        now += Duration::from_millis(10);
        target.poll(now, 64).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut buf = [0; 2000];
        while end.receiver().poll_read_packet(&mut cx, &mut buf).is_ready() {}
    }
    target
}

/// A packet that begins like one for the listener, and continues with random bytes.
fn almost_a_packet() -> impl Strategy<Value = Vec<u8>> {
    let header = |flags: u8, data_offset: u8| {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1];
        bytes.extend([0x10, 0, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, data_offset << 4, flags, 1, 0, 0, 0]);
        bytes.extend([0, 0]);
        bytes
    };
    (any::<u8>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..120)).prop_map(
        move |(flags, data_offset, rest)| {
            let mut bytes = header(flags, data_offset);
            bytes.extend(rest);
            let len = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            let sum = plimsoll_wire::checksum::sum(&bytes[..20]).finish();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packets_of_any_bytes_harm_nobody(
        packets in proptest::collection::vec(
            (
                prop_oneof![almost_a_packet(), proptest::collection::vec(any::<u8>(), 0..200)],
                proptest::option::of(any::<u16>()),
                any::<bool>(),
            ),
            1..12,
        ),
    ) {
        let count = packets.iter().filter(|(bytes, ..)| !bytes.is_empty()).count() as u64;
        let target = feed_junk(packets);
        let seen = |name| target.counter(name).unwrap();
        prop_assert_eq!(seen("IpInReceives") + seen("Ip6InReceives"), count);
        prop_assert_eq!(seen("plimsoll.ConnectionPanics"), 0);
    }
}
