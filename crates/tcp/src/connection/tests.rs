//! Two connections talk to each other over a path that loses, repeats and reorders.

use std::collections::VecDeque;
use std::format;
use std::vec::Vec;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;

use super::*;
use crate::algorithm::CongestionAlgorithm;
use crate::config::Config;
use crate::counters::Counters;
use crate::event::WriteError;
use crate::segment::{Below, Ecn, MemoryRoom};
use crate::send::WriteFlags;
use crate::send::error_queue::TxTimestamps;
use crate::serial::Serial;
use crate::testing::pair::{Dice, to_segment};
use crate::testing::{Setup, Trace, under_miri};
use crate::time::Nanos;

/// The faults of the path, in percent.
#[derive(Clone, Copy)]
struct PathFaults {
    loss: u64,
    reorder: u64,
    duplicate: u64,
}

struct World {
    ends: [Connection; 2],
    wires: [VecDeque<(Instant, Segment)>; 2],
    config: Config,
    counters: Counters,
    now: Instant,
    dice: Dice,
    faults: PathFaults,
    serials: [u64; 2],
}

const DELAY: Nanos = Nanos::from_millis(5);

fn params(port: u16, iss: u32, max_super_segment: usize, options: Options) -> OpenParams {
    OpenParams {
        local_port: port,
        remote_port: 3 - port,
        iss: SeqNum(iss),
        ts_offset: iss,
        seed: 0,
        mtu: 1500.into(),
        ip_header_len: 20,
        max_super_segment,
        options: options.into(),
        pool: Pool::new(),
    }
}

impl World {
    fn open(config: Config, faults: PathFaults, seed: u64, options: Options) -> World {
        let counters = Counters::new();
        let now = Instant::from_millis(1);
        let cx = Context { now, below: Below::default(), config: &config, counters: &counters };
        let size = if seed.is_multiple_of(2) { 0 } else { 65_000 };
        let mut client =
            Connection::connect(&cx, params(1, u32::MAX - 5000, size, options.clone()));
        let syn = client.poll_transmit(&cx).expect("a SYN");
        let server =
            Connection::accept(&cx, params(2, u32::MAX - 9, size, options), &to_segment(&syn));
        World {
            ends: [client, server],
            wires: [VecDeque::new(), VecDeque::new()],
            config,
            counters,
            now,
            dice: Dice::new(seed),
            faults,
            serials: [0; 2],
        }
    }

    fn call<T>(&mut self, end: usize, call: impl FnOnce(&mut Connection, &Context) -> T) -> T {
        let below = Below { bytes: 0, completed: Serial(self.serials[end]), ..Below::default() };
        let cx = Context { now: self.now, below, config: &self.config, counters: &self.counters };
        call(&mut self.ends[end], &cx)
    }

    fn transmit(&mut self, end: usize) {
        while let Some(packet) = self.call(end, |conn, cx| conn.poll_transmit(cx)) {
            if let Some(serial) = packet.serial {
                self.serials[end] = serial.0;
            }
            let seg = to_segment(&packet);
            if self.dice.roll(100) < self.faults.loss {
                continue;
            }
            let late = self.dice.roll(100) < self.faults.reorder;
            let delay = if late { DELAY * 3 } else { DELAY };
            let at = self.now + delay;
            let wire = &mut self.wires[end];
            let place = wire.partition_point(|(other, _)| *other <= at);
            wire.insert(place, (at, seg.clone()));
            if self.dice.roll(100) < self.faults.duplicate {
                wire.push_back((at + DELAY * 3, seg));
                wire.make_contiguous().sort_by_key(|(at, _)| *at);
            }
        }
    }

    /// Advances to the next event. Returns whether there is one.
    fn step(&mut self) -> bool {
        self.transmit(0);
        self.transmit(1);
        let arrivals = self.wires.iter().filter_map(|wire| wire.front().map(|(at, _)| *at));
        let timeouts = self.ends.iter().filter_map(Connection::poll_timeout);
        let Some(next) = arrivals.chain(timeouts).min() else { return false };
        self.now = self.now.max(next);
        for end in [0, 1] {
            let now = self.now;
            while let Some((_, mut seg)) = self.wires[end].pop_front_if(|(at, _)| *at <= now) {
                self.call(1 - end, |conn, cx| conn.handle_segment(cx, &mut seg));
            }
            self.call(end, |conn, cx| conn.handle_timeout(cx));
        }
        true
    }
}

fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + salt) as u8).collect()
}

/// Both ends write `len` bytes in pieces, read all, and close; every byte arrives once, in order.
fn exchange(world: &mut World, len: usize) {
    let data = [pattern(len, 1), pattern(len, 2)];
    let mut written = [0; 2];
    let mut got = [Vec::new(), Vec::new()];
    for step in 0.. {
        assert!(
            step < 200_000,
            "no end: {:?}",
            world.ends.each_ref().map(|conn| conn.info(&world.config))
        );
        for end in [0, 1] {
            let piece = 1 + world.dice.roll(9000) as usize;
            let rest = &data[end][written[end]..];
            let rest = &rest[..rest.len().min(piece)];
            match world.call(end, |conn, cx| conn.write(cx, rest)) {
                Ok(count) => written[end] += count,
                Err(WriteError::WouldBlock | WriteError::Closed) => {}
                Err(error) => panic!("{error:?}"),
            }
            if written[end] == len {
                world.call(end, |conn, cx| conn.shutdown(cx));
            }
            let mut out = std::vec![0; 1 + world.dice.roll(20_000) as usize];
            if let Ok(count) = world.call(end, |conn, cx| conn.read(cx, &mut out)) {
                got[end].extend_from_slice(&out[..count]);
            }
        }
        if !world.step() {
            break;
        }
    }
    for end in [0, 1] {
        let mut out = std::vec![0; 200_000];
        while let Ok(count) = world.call(end, |conn, cx| conn.read(cx, &mut out)) {
            got[end].extend_from_slice(&out[..count]);
            if count == 0 {
                break;
            }
        }
    }
    let lengths = got.each_ref().map(Vec::len);
    let infos = world.ends.each_ref().map(|conn| (conn.error(), conn.info(&world.config)));
    assert!(got[1] == data[0] && got[0] == data[1], "bytes differ: {lengths:?} {infos:?}");
    for conn in &world.ends {
        assert_eq!((conn.state(), conn.error()), (State::Closed, None));
    }
}

#[test]
fn a_clean_path() {
    let faults = PathFaults { loss: 0, reorder: 0, duplicate: 0 };
    for seed in 0..under_miri(4, 2) {
        let mut world = World::open(Config::default(), faults, seed, Options::default());
        exchange(&mut world, under_miri(300_000, 8000));
        assert_eq!(world.counters.get(Counter::RetransSegs), 0);
        assert_eq!(world.counters.get(Counter::TcpTimeouts), 0);
    }
}

#[test]
fn a_bad_path() {
    let faults = PathFaults { loss: 5, reorder: 5, duplicate: 3 };
    for seed in 0..under_miri(40_u64, 2) {
        let algorithm = CongestionAlgorithm::ALL[seed as usize / 3 % 3];
        let config = Config {
            tcp_sack: !seed.is_multiple_of(3),
            tcp_timestamps: !seed.is_multiple_of(5),
            tcp_window_scaling: !seed.is_multiple_of(7),
            tcp_congestion_control: algorithm,
            ..Config::default()
        };
        let mut world = World::open(config, faults, seed, Options::default());
        exchange(&mut world, under_miri(100_000, 8000));
    }
}

#[test]
fn small_buffers_on_a_bad_path() {
    let faults = PathFaults { loss: 8, reorder: 10, duplicate: 5 };
    for seed in 0..under_miri(20, 2) {
        let options = Options { rcvbuf: Some(3000), sndbuf: Some(5000), ..Options::default() };
        let mut world = World::open(Config::default(), faults, seed, options);
        exchange(&mut world, under_miri(30_000, 4000));
    }
}

/// Bytes after which a stream repeats itself, so that any part of it can be compared at once.
const PERIOD: usize = 1 << 16;

/// A stream that is too long to be kept.
struct LongStream {
    /// Two periods.
    bytes: Vec<u8>,
    written: u64,
    read: u64,
}

impl LongStream {
    fn new(salt: usize) -> LongStream {
        let bytes = pattern(PERIOD, salt).repeat(2);
        LongStream { bytes, written: 0, read: 0 }
    }

    fn part(&self, at: u64, len: usize) -> &[u8] {
        let start = at as usize % PERIOD;
        &self.bytes[start..start + len]
    }

    /// End `from` writes until it has written `total` bytes, and the other end reads them all.
    fn pour(&mut self, world: &mut World, from: usize, total: u64) {
        let mut out = std::vec![0; PERIOD];
        while self.read < total {
            while self.written < total {
                let len = PERIOD.min((total - self.written) as usize);
                let data = self.part(self.written, len);
                match world.call(from, |conn, cx| conn.write(cx, data)) {
                    Ok(count) => self.written += count as u64,
                    Err(WriteError::WouldBlock) => break,
                    Err(error) => panic!("{error:?}"),
                }
            }
            assert!(world.step(), "nothing will ever happen");
            while let Ok(count) = world.call(1 - from, |conn, cx| conn.read(cx, &mut out)) {
                assert!(out[..count] == *self.part(self.read, count), "at byte {}", self.read);
                self.read += count as u64;
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "it is about 5 GiB alone")]
fn everything_holds_over_more_than_4_gib() {
    // No mark of either end may be compared after the numbers have moved half of their range away
    // from it: old marks (small, urgent, lost) must not become valid again. The invariants are
    // checked in every call.
    const GIB: u64 = 1 << 30;
    let clean = PathFaults { loss: 0, reorder: 0, duplicate: 0 };
    let bad = PathFaults { loss: 2, reorder: 5, duplicate: 2 };
    let options = Options { oobinline: true, ..Options::default() };
    let mut world = World::open(Config::default(), clean, 1, options);
    let mut there = LongStream::new(1);
    let mut back = LongStream::new(2);
    // Where the stream is met by loss, an urgent byte and some bytes against it.
    for halt in [0, GIB / 2, 3 * GIB, 4 * GIB + GIB / 4, 5 * GIB] {
        there.pour(&mut world, 0, halt.max(1));
        world.faults = bad;
        there.pour(&mut world, 0, halt + 3_000_001);
        let byte = there.part(there.written, 1);
        let urgent = world.call(0, |conn, cx| conn.write_urgent(cx, byte));
        assert_eq!(urgent, Ok(1));
        there.written += 1;
        there.pour(&mut world, 0, halt + 3_000_100);
        back.pour(&mut world, 1, back.read + 200_001);
        world.faults = clean;
    }
    assert!(world.ends.iter().all(|conn| conn.snd.urgent().is_none()));
    assert_eq!(there.read, 5 * GIB + 3_000_100);
    assert_eq!(world.ends[1].info(&world.config).bytes_received, there.read);
}

/// A segment near everything that the connection cares about.
fn strange_segment(dice: &mut Dice, conn: &Connection, pool: &Pool) -> Segment {
    use plimsoll_wire::tcp::{SackBlock, TcpFlags, TcpRepr, Timestamps};
    let near = |dice: &mut Dice, points: &[SeqNum]| {
        let point = points[dice.roll(points.len() as u64) as usize];
        let offsets = [0, 0, 0, 0, 1, 2, 1000, 70_000, u32::MAX, u32::MAX - 1000];
        point + offsets[dice.roll(offsets.len() as u64) as usize]
    };
    let rcv = [conn.rcv.nxt(), conn.rcv.adv(), conn.rcv.irs(), conn.rcv.ack_sent()];
    let snd = [conn.snd.una(), conn.snd.nxt(), conn.snd.nxt(), conn.snd.iss()];
    let mut flags = TcpFlags::default();
    for (flag, odds) in [
        (TcpFlags::ACK, 90),
        (TcpFlags::FIN, 8),
        (TcpFlags::SYN, 6),
        (TcpFlags::RST, 2),
        (TcpFlags::PSH, 30),
        (TcpFlags::URG, 10),
    ] {
        if dice.roll(100) < odds {
            flags |= flag;
        }
    }
    let mut repr = TcpRepr {
        seq: near(dice, &rcv),
        ack: near(dice, &snd),
        flags,
        window: [0, 1, 500, 65_535][dice.roll(4) as usize],
        urgent: dice.roll(2000) as u16,
        ..TcpRepr::default()
    };
    if dice.roll(2) == 0 {
        let val = conn.ts.recent.wrapping_add(dice.roll(3) as u32).wrapping_sub(1);
        repr.options.timestamps = Some(Timestamps { val, ecr: dice.roll(5000) as u32 });
    }
    for _ in 0..dice.roll(4) {
        let block = SackBlock { left: near(dice, &snd), right: near(dice, &snd) };
        repr.options.sack_mut().push(block);
    }
    if dice.roll(10) == 0 {
        repr.options.syn_mut().window_scale = Some(dice.roll(20) as u8);
        repr.options.syn_mut().mss = Some(dice.roll(2000) as u16);
        repr.options.syn_mut().sack_permitted = true;
    }
    let len = [0, 0, 1, 2, 1000, 5000][dice.roll(6) as usize];
    let payload = pool.copy_from(&std::vec![3; len]).into();
    Segment { repr, payload, segs: 1 + dice.roll(3) as u16, ecn: Ecn::NotEct }
}

/// A write with any flags, of parts of any size.
fn strange_write(dice: &mut Dice, conn: &mut Connection, cx: &Context) {
    let bytes = std::vec![1; dice.roll(100_000) as usize];
    let parts: Vec<&[u8]> = bytes.chunks(1 + dice.roll(5000) as usize).collect();
    let mut flag = || dice.roll(2) == 0;
    let flags = WriteFlags { more: flag(), eor: flag(), urgent: false, zerocopy: flag() };
    let _ = conn.write_with(cx, &parts, flags);
    let _ = conn.take_report();
}

/// An option that changes which packets are sent, and when.
fn strange_send_option(dice: &mut Dice, conn: &mut Connection, cx: &Context) {
    let on = dice.roll(2) == 0;
    let number = dice.roll(20_000);
    let stamps = TxTimestamps { sched: on, software: true, ack: !on, opt_id: on };
    conn.set_option(
        cx,
        match dice.roll(6) {
            0 => SetOption::Cork(on),
            1 => SetOption::NoDelay(on),
            2 => SetOption::ZeroCopy(on),
            3 => SetOption::TxTimestamps(stamps),
            4 => SetOption::SndBuf(number as usize),
            _ => SetOption::NotsentLowat(number as u32),
        },
    );
}

/// One call of any kind.
fn strange_call(dice: &mut Dice, conn: &mut Connection, cx: &Context, pool: &Pool) {
    let mut out = [0; 700];
    match dice.roll(43) {
        0..20 => conn.handle_segment(cx, &mut strange_segment(dice, conn, pool)),
        20..24 => drop(conn.write(cx, &out[..dice.roll(700) as usize])),
        24 => strange_write(dice, conn, cx),
        25..30 => drop(conn.read(cx, &mut out)),
        30 => drop(conn.write_urgent(cx, b"!")),
        31 => drop(conn.read_urgent()),
        32 => drop(conn.peek(&mut out)),
        33 if dice.roll(5) == 0 => conn.shutdown(cx),
        34 if dice.roll(9) == 0 => conn.close(cx),
        35 => conn.handle_path_event(cx, PathEvent::Mtu(dice.roll(1600) as u16)),
        36 => conn.set_option(cx, SetOption::RcvBuf(dice.roll(100_000) as usize)),
        37 => conn.set_option(cx, SetOption::KeepAlive(dice.roll(2) == 0)),
        38 => conn.set_option(cx, SetOption::QuickAck(dice.roll(2) == 0)),
        39 => strange_send_option(dice, conn, cx),
        40 => drop(conn.read_shared(cx, dice.roll(9000) as usize)),
        41 => conn.handle_memory(cx),
        _ => conn.handle_timeout(cx),
    }
}

#[test]
fn nothing_breaks_the_invariants() {
    let (config, counters, pool) = (Config::default(), Counters::new(), Pool::new());
    for seed in 0..SEEDS {
        let mut dice = Dice::new(seed);
        let mut now = Instant::from_millis(1);
        let mut serial = 0;
        let cx = Context { now, below: Below::default(), config: &config, counters: &counters };
        let options = Options { keepalive: dice.roll(2) == 0, ..Options::default() };
        let mut conn = Connection::connect(&cx, params(1, u32::MAX - 700, 65_000, options.clone()));
        if dice.roll(10) > 0 {
            let syn = conn.poll_transmit(&cx).expect("a SYN");
            let server = params(2, u32::MAX - 300, 0, options);
            let mut server = Connection::accept(&cx, server, &to_segment(&syn));
            let answer = server.poll_transmit(&cx).expect("a SYN-ACK");
            conn.handle_segment(&cx, &mut to_segment(&answer));
            assert_eq!(conn.state(), State::Established);
        }
        for _ in 0..150 {
            now += Nanos::from_millis([0, 1, 50, 3000][dice.roll(4) as usize]);
            let memory = match dice.roll(3) {
                0 => MemoryRoom { pressure: dice.roll(4) > 0, bytes: dice.roll(9000) as u32 },
                _ => MemoryRoom::default(),
            };
            let below = Below { bytes: 0, completed: Serial(serial), memory, ..Below::default() };
            let cx = Context { now, below, config: &config, counters: &counters };
            strange_call(&mut dice, &mut conn, &cx, &pool);
            let mut count = 0;
            while let Some(packet) = conn.poll_transmit(&cx) {
                serial = packet.serial.map_or(serial, |serial| serial.0);
                count += 1;
                assert!(count < 5000, "output never ends");
            }
            let _ = (conn.poll_event(), conn.info(&config), conn.memory_bytes());
        }
    }
}

/// How many histories each run plays; more were played while this was written.
const SEEDS: u64 = under_miri(300, 2);

#[test]
fn an_idle_second_gives_back_what_only_data_needs() {
    let mut t = Trace::established(Setup::default());
    t.at(1000);
    let fresh = t.conn.memory_bytes();
    assert_eq!(fresh, size_of::<Connection>(), "what the handshake needed is given back");
    assert_eq!(t.conn.releases_at(), None, "nothing has been sent");
    for round in 0..5 {
        t.write(1000);
        t.drain();
        assert_eq!(t.conn.releases_at(), None, "data is in flight");
        t.at(10 * round + 1010);
        let (data, ack) = (100 * round as u32, 1000 * round as u32 + 1001);
        t.recv(&format!("P. {}:{} ack {ack}", data + 1, data + 101));
        assert_eq!(t.conn.releases_at(), None, "data waits to be read");
        assert_eq!(t.call(|conn, cx| conn.read(cx, &mut [0; 200])), Ok(100));
        t.drain();
    }
    let used = t.conn.memory_bytes();
    assert_eq!(t.conn.releases_at(), Some(t.now + Nanos::from_secs(1)));
    t.at(2049);
    assert_eq!(t.conn.memory_bytes(), used, "not yet");
    t.at(2050);
    assert_eq!(t.conn.memory_bytes(), fresh, "{used} before");
    assert_eq!(t.conn.releases_at(), None);
    t.write(1000);
    t.expect("P. 5001:6001 ack 501");
}
