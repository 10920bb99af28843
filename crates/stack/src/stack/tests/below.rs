//! Bytes below are counted exactly once. All bytes that were passed down either were completed by
//! the device or are still in the queueing discipline, on their way into the device or in the
//! device's ring. The test decides which packets a device completes, and when.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use plimsoll_tcp::{Duration, Instant, SetOption};
use proptest::prelude::*;

use super::harness::{A4, A6, B4, B6, Pair, drain, pattern, stack};
use crate::device::memory_link::{self, LinkConfig};
use crate::device::{
    Caps, Device, DeviceError, DeviceStats, DeviceTx, TxProgress, TxStatus, WaitSource,
};
use crate::packet::Packet;
use crate::sync::lock;
use crate::{Stack, TcpSocket};

/// A device with a ring in front of another device.
struct Ring {
    inner: Box<dyn DeviceTx>,
    packets: VecDeque<Packet>,
    room: usize,
    /// Data bytes of completed packets.
    completed: u64,
    now: Instant,
}

impl Ring {
    /// The bytes that are charged for the packets in the ring.
    fn charged(&self) -> u64 {
        self.packets.iter().filter_map(|packet| packet.charge.as_ref()).map(charge).sum()
    }

    /// The device is done with the first `count` packets.
    fn complete(&mut self, count: usize) {
        let mut out = VecDeque::new();
        for packet in self.packets.drain(..count.min(self.packets.len())) {
            out.push_back(packet.share());
            if let Some(charge) = &packet.charge {
                assert_eq!(charge.bytes() as usize, packet.payload.len());
                self.completed += u64::from(charge.bytes());
            } else {
                assert!(packet.payload.is_empty(), "data without a charge");
            }
        }
        self.inner.transmit(self.now, &mut out).unwrap();
    }
}

fn charge(charge: &crate::packet::Charge) -> u64 {
    u64::from(charge.bytes())
}

struct RingTx(Arc<Mutex<Ring>>, Caps);

impl DeviceTx for RingTx {
    fn caps(&self) -> &Caps {
        &self.1
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        let mut ring = lock(&self.0);
        ring.now = now;
        let count = queue.len().min(ring.room.saturating_sub(ring.packets.len()));
        ring.packets.extend(queue.drain(..count));
        let status = if queue.is_empty() { TxStatus::Done } else { TxStatus::Busy };
        Ok(TxProgress { status, ..TxProgress::done(count) })
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

struct World {
    pair: Pair,
    ring: Arc<Mutex<Ring>>,
    sockets: Vec<[Arc<TcpSocket>; 2]>,
    written: Vec<usize>,
    read: Vec<Vec<u8>>,
    data: Vec<u8>,
}

impl World {
    fn new(flows: usize, sysctls: &[(&str, &str)]) -> World {
        let (left, right) = memory_link::pair(LinkConfig::default());
        let caps = left.tx.caps().clone();
        let packets = VecDeque::new();
        let (room, completed, now) = (usize::MAX, 0, Instant::ZERO);
        let ring = Arc::new(Mutex::new(Ring { inner: left.tx, packets, room, completed, now }));
        let tx = Box::new(RingTx(ring.clone(), caps));
        let left = Device { tx, rx: left.rx, wait: WaitSource::default() };
        let pair = Pair {
            a: stack(left, A4, A6, sysctls),
            b: stack(right, B4, B6, sysctls),
            now: Instant::from_millis(1000),
        };
        let data = pattern(200_000, 5);
        let mut world = World {
            pair,
            ring,
            sockets: Vec::new(),
            written: vec![0; flows],
            read: vec![Vec::new(); flows],
            data,
        };
        let listener = world.pair.listen(B4, 16);
        for _ in 0..flows {
            let client = world.pair.connect(B4);
            let server = (0..10).find_map(|_| {
                lock(&world.ring).complete(usize::MAX);
                world.pair.settle();
                listener.accept(world.pair.now).unwrap()
            });
            world.sockets.push([client, server.expect("a connection").0]);
        }
        lock(&world.ring).complete(usize::MAX);
        world.pair.settle();
        world
    }

    /// Everything that was handed down is completed or below.
    fn check(&self) {
        let sent = |[client, _]: &[Arc<TcpSocket>; 2]| client.info(self.pair.now).bytes_sent;
        let sent: u64 = self.sockets.iter().map(sent).sum();
        let ring = lock(&self.ring);
        let below = self.pair.a.bytes_below();
        assert_eq!(sent, ring.completed + below, "a charge was lost or counted twice");
        assert!(ring.charged() <= below);
    }

    fn poll(&self, stack: &Stack) {
        stack.poll(self.pair.now, 256).unwrap();
    }

    fn step(&mut self, step: &Step) {
        let flows = self.sockets.len();
        let now = self.pair.now;
        match *step {
            Step::Write(flow, len) => {
                let flow = flow % flows;
                let start = self.written[flow];
                let data = &self.data[start..self.data.len().min(start + len)];
                let socket = &self.sockets[flow][0];
                if socket.write_corked(data) {
                    self.written[flow] += data.len();
                } else if let Ok(count) = socket.write(now, data) {
                    self.written[flow] += count;
                }
            }
            Step::Complete(count) => lock(&self.ring).complete(count),
            Step::Room(room) => lock(&self.ring).room = room,
            Step::PollA => self.poll(&self.pair.a),
            Step::PollB => self.poll(&self.pair.b),
            Step::Read(flow) => {
                let flow = flow % flows;
                drain(&self.sockets[flow][1], now, &mut self.read[flow]);
            }
            Step::Wait(millis) => self.pair.now += Duration::from_millis(millis),
            Step::Option(flow, ref option) => {
                self.sockets[flow % flows][0].set_option(now, option.clone());
            }
        }
        self.check();
    }

    /// Everything that was written arrives once the device completes, and nothing stays below.
    fn finish(&mut self) {
        lock(&self.ring).room = usize::MAX;
        for _ in 0..10_000 {
            if self.read.iter().map(Vec::len).eq(self.written.iter().copied()) {
                break;
            }
            self.poll(&self.pair.a);
            lock(&self.ring).complete(usize::MAX);
            self.pair.settle();
            for (sockets, read) in self.sockets.iter().zip(&mut self.read) {
                drain(&sockets[1], self.pair.now, read);
            }
            let next = [&self.pair.a, &self.pair.b].map(|stack| stack.next_deadline());
            let next = next.into_iter().flatten().min().unwrap_or(self.pair.now);
            self.pair.now = next.max(self.pair.now);
            self.check();
        }
        for (written, read) in self.written.iter().zip(&self.read) {
            assert!(self.data[..*written] == read[..], "{} of {written} bytes", read.len());
        }
        lock(&self.ring).complete(usize::MAX);
        assert_eq!(self.pair.a.bytes_below(), 0);
        self.check();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    Complete(usize),
    Room(usize),
    PollA,
    PollB,
    Read(usize),
    Wait(u64),
    Option(usize, SetOption),
}

fn any_step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![6 => 1..400_usize, 2 => 1000..4000_usize, 1 => 4000..70_000_usize];
    let option = prop_oneof![
        any::<bool>().prop_map(SetOption::NoDelay),
        any::<bool>().prop_map(SetOption::Cork),
        any::<Option<bool>>().prop_map(SetOption::Autocork),
    ];
    prop_oneof![
        12 => (0..3_usize, len).prop_map(|(flow, len)| Step::Write(flow, len)),
        5 => (1..5_usize).prop_map(Step::Complete),
        1 => (0..5_usize).prop_map(Step::Room),
        3 => Just(Step::PollA),
        3 => Just(Step::PollB),
        3 => (0..3_usize).prop_map(Step::Read),
        2 => (0..300_u64).prop_map(Step::Wait),
        1 => (0..3_usize, option).prop_map(|(flow, option)| Step::Option(flow, option)),
    ]
}

fn run(steps: &[Step], limit: &str, qdisc: &str) {
    let limit = ("net.ipv4.tcp_limit_output_bytes", limit);
    let mut world = World::new(3, &[limit, ("net.core.default_qdisc", qdisc)]);
    for step in steps {
        world.step(step);
    }
    // A cork has a ceiling, but this test is not about it.
    for sockets in &world.sockets {
        sockets[0].set_option(world.pair.now, SetOption::Cork(false));
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn charges_are_what_lies_below(
        steps in prop::collection::vec(any_step(), 1..150),
        limit in prop::sample::select(vec!["1", "3000", "1048576"]),
        qdisc in prop::sample::select(vec!["pfifo", "fq"]),
    ) {
        run(&steps, limit, qdisc);
    }
}

/// The bytes that an unanswered connection had passed down are still below after its removal, and
/// their completion has no effect.
#[test]
fn a_connection_that_ends_leaves_no_charge() {
    let mut world = World::new(1, &[]);
    world.step(&Step::Write(0, 60_000));
    world.step(&Step::PollA);
    assert!(world.pair.a.bytes_below() > 0);
    world.sockets[0][0].abort(world.pair.now);
    lock(&world.ring).complete(usize::MAX);
    assert_eq!(world.pair.a.bytes_below(), 0);
    world.pair.settle();
}

/// A lone write leaves on the caller's thread; one after it stays queued, and is below us, until
/// the stack is polled.
#[test]
fn the_caller_sends_a_lone_write_only() {
    let mut world = World::new(1, &[]);
    world.sockets[0][0].set_option(world.pair.now, SetOption::NoDelay(true));
    world.step(&Step::Option(0, SetOption::Autocork(Some(false))));
    world.step(&Step::Write(0, 100));
    assert_eq!(lock(&world.ring).packets.len(), 1, "on its way without a poll");
    world.step(&Step::Write(0, 100));
    assert_eq!((lock(&world.ring).packets.len(), world.pair.a.bytes_below()), (1, 200));
    world.step(&Step::PollA);
    assert_eq!(lock(&world.ring).packets.len(), 2);
    world.finish();
    assert_eq!(world.pair.a.counter("TcpExtTCPAutoCorking"), Some(0));
}

/// Small writes behind a packet in the ring wait for its completion, and leave as one packet.
#[test]
fn a_device_that_is_done_releases_a_cork() {
    let mut world = World::new(1, &[]);
    world.sockets[0][0].set_option(world.pair.now, SetOption::NoDelay(true));
    for _ in 0..20 {
        world.step(&Step::Write(0, 128));
        world.step(&Step::PollA);
    }
    assert_eq!((lock(&world.ring).packets.len(), world.pair.a.bytes_below()), (1, 128));
    assert_eq!(world.pair.a.counter("TcpExtTCPAutoCorking"), Some(1));
    world.step(&Step::Complete(1));
    assert_eq!(world.pair.a.bytes_below(), 0);
    world.step(&Step::PollA);
    assert_eq!((lock(&world.ring).packets.len(), world.pair.a.bytes_below()), (1, 19 * 128));
    world.finish();
}

/// A thread that writes a little at a time makes no system call for each write: the device is left
/// alone, and a poller that sleeps is woken once.
#[test]
fn many_small_writes_cost_one_wake_up() {
    for autocork in [false, true] {
        let mut world = World::new(1, &[]);
        let option = |option| Step::Option(0, option);
        world.step(&option(SetOption::NoDelay(true)));
        world.step(&option(SetOption::Autocork(Some(autocork))));
        let wakes = world.pair.a.wait_handle().wakes();
        world.pair.a.wait_handle().handle().announce(None);
        for _ in 0..100 {
            world.step(&Step::Write(0, 128));
        }
        assert_eq!(lock(&world.ring).packets.len(), 1, "the first one");
        assert!(world.pair.a.wait_handle().wakes() - wakes <= 1);
        world.pair.a.wait_handle().handle().awake(true);
        world.finish();
    }
}
