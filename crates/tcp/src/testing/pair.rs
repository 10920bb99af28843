//! Two connections on a path that delays, loses, repeats and reorders, on virtual time.

use std::collections::VecDeque;
use std::vec::Vec;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;

use super::{pattern, under_miri};
use crate::config::{Config, Options};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::{Counter, Counters};
use crate::event::WriteError;
use crate::open_params::OpenParams;
use crate::segment::{Below, Ecn, MemoryRoom, Segment, Transmit};
use crate::send::WriteFlags;
use crate::serial::Serial;
use crate::state::State;
use crate::time::{Duration, Instant};

/// A small generator: each seed is one history.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides` (xorshift64*).
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }
}

/// The path, the ends, and the work.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) options: Options,
    pub(crate) mtu: u16,
    pub(crate) largest: usize,
    /// In percent.
    pub(crate) loss: u64,
    pub(crate) reorder: u64,
    pub(crate) duplicate: u64,
    /// Of ECN-capable packets.
    pub(crate) mark: u64,
    pub(crate) delay: Duration,
    /// How long a packet stays below the sender.
    pub(crate) below: Duration,
    /// The ends get completions.
    pub(crate) completions: bool,
    /// The layer below keeps departure times.
    pub(crate) keeps_departures: bool,
    /// The device sends this many bytes per second.
    pub(crate) rate: Option<u64>,
    /// Bytes from client to server and back.
    pub(crate) bytes: [usize; 2],
    /// Most bytes of one write and of one read.
    pub(crate) write: usize,
    pub(crate) read: usize,
    /// Readers sleep this long between reads.
    pub(crate) read_pause: Duration,
    /// Memory is short, of all calls in percent; how short differs from call to call.
    pub(crate) short: u64,
    pub(crate) seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            config: Config::default(),
            options: Options::default(),
            mtu: 1500,
            largest: 65_000,
            loss: 0,
            reorder: 0,
            duplicate: 0,
            mark: 0,
            delay: Duration::from_millis(5),
            below: Duration::ZERO,
            completions: false,
            keeps_departures: false,
            rate: None,
            bytes: [1_000_000, 0],
            write: 65_536,
            read: 65_536,
            read_pause: Duration::ZERO,
            short: 0,
            seed: 1,
        }
    }
}

struct End {
    conn: Connection,
    written: usize,
    read: usize,
    eof: bool,
    next_read: Instant,
    /// Packets below: the time at which each completes.
    below: VecDeque<(Instant, Serial, u32)>,
    completed: Serial,
}

/// A packet on its way. `order` keeps equal times apart.
struct OnWire {
    at: Instant,
    order: u64,
    to: usize,
    seg: Segment,
}

/// Two ends and the path between them.
pub(crate) struct Pair {
    plan: Plan,
    ends: [End; 2],
    wire: Vec<OnWire>,
    pub(crate) counters: Counters,
    pub(crate) now: Instant,
    dice: Dice,
    order: u64,
    /// Wire segments that left, of both ends.
    pub(crate) segments: u64,
}

fn params(plan: &Plan, port: u16) -> OpenParams {
    OpenParams {
        local_port: port,
        remote_port: 3 - port,
        // So that the numbers wrap within the streams.
        iss: SeqNum(u32::MAX - under_miri(50_000, 2000) * u32::from(port)),
        ts_offset: 0,
        seed: plan.seed,
        mtu: plan.mtu.into(),
        ip_header_len: 20,
        max_super_segment: plan.largest,
        options: plan.options.clone().into(),
        pool: Pool::new(),
    }
}

/// `packet` as the other end receives it.
pub(crate) fn to_segment(packet: &Transmit) -> Segment {
    let payload = packet.payload.clone();
    Segment { repr: packet.repr.clone(), payload, segs: packet.segs, ecn: Ecn::NotEct }
}

impl End {
    fn new(conn: Connection, now: Instant) -> End {
        End {
            conn,
            written: 0,
            read: 0,
            eof: false,
            next_read: now,
            below: VecDeque::new(),
            completed: Serial(0),
        }
    }
}

impl Pair {
    /// Opens a connection; the SYN has arrived.
    pub(crate) fn open(plan: Plan) -> Pair {
        let counters = Counters::new();
        let now = Instant::from_millis(1000);
        let cx =
            Context { now, below: Below::default(), config: &plan.config, counters: &counters };
        let mut client = Connection::connect(&cx, params(&plan, 1));
        let syn = client.poll_transmit(&cx).expect("a SYN");
        let server = Connection::accept(&cx, params(&plan, 2), &to_segment(&syn));
        let dice = Dice::new(plan.seed);
        let ends = [End::new(client, now), End::new(server, now)];
        Pair { plan, ends, wire: Vec::new(), counters, now, dice, order: 0, segments: 0 }
    }

    pub(crate) fn call<T>(
        &mut self,
        end: usize,
        call: impl FnOnce(&mut Connection, &Context) -> T,
    ) -> T {
        let memory = self.memory();
        let this = &mut self.ends[end];
        let bytes = this.below.iter().map(|entry| entry.2).sum();
        // Every packet below is charged exactly once.
        let packets = this.conn.snd.next_serial().0 - 1 - this.completed.0;
        assert_eq!(packets, this.below.len() as u64, "the charge of a packet is lost");
        let Plan { completions, keeps_departures, .. } = self.plan;
        let completed = this.completed;
        let below =
            Below { bytes, completed, completions, keeps_departures, memory, ..Below::default() };
        let (config, counters) = (&self.plan.config, &self.counters);
        call(&mut this.conn, &Context { now: self.now, below, config, counters })
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.dice.roll(100) < percent
    }

    /// The available memory.
    fn memory(&mut self) -> MemoryRoom {
        if self.plan.short == 0 || !self.chance(self.plan.short) {
            return MemoryRoom::default();
        }
        let bytes = [0, 0, 700, 5000, 100_000][self.dice.roll(5) as usize];
        MemoryRoom { pressure: bytes == 0 || self.chance(80), bytes }
    }

    fn transmit(&mut self, end: usize) {
        let mut count = 0;
        while let Some(packet) = self.call(end, |conn, cx| conn.poll_transmit(cx)) {
            count += 1;
            assert!(count < 10_000, "output never ends");
            self.check_packet(&packet);
            self.segments += u64::from(packet.segs);
            let left = self.leaves(end, &packet);
            if let Some(serial) = packet.serial {
                self.ends[end].below.push_back((left, serial, packet.payload.len() as u32));
            }
            self.complete(end);
            let copies = 1 + usize::from(self.chance(self.plan.duplicate));
            for _ in 0..copies {
                if self.chance(self.plan.loss) {
                    continue;
                }
                let late = if self.chance(self.plan.reorder) {
                    self.plan.delay * 2
                } else {
                    Duration::ZERO
                };
                self.order += 1;
                let at = left + self.plan.delay + late;
                let marked =
                    self.plan.mark > 0 && packet.ecn != Ecn::NotEct && self.chance(self.plan.mark);
                let ecn = if marked { Ecn::Ce } else { packet.ecn };
                let seg = Segment { ecn, ..to_segment(&packet) };
                self.wire.push(OnWire { at, order: self.order, to: 1 - end, seg });
            }
        }
    }

    /// When the device is done with `packet`.
    fn leaves(&self, end: usize, packet: &Transmit) -> Instant {
        if self.plan.keeps_departures {
            assert!(self.now <= packet.departure, "it departs in the past");
        } else {
            assert_eq!(packet.departure, self.now, "nothing below keeps its departure");
        }
        let free = self.ends[end].below.back().map_or(self.now, |last| last.0);
        let takes = match self.plan.rate {
            Some(rate) => {
                let bytes = packet.payload.len() as u64 + 40;
                Duration::from_nanos(bytes * 1_000_000_000 / rate)
            }
            None => Duration::ZERO,
        };
        (packet.departure + self.plan.below).max(free) + takes
    }

    /// The invariants of every packet.
    fn check_packet(&self, packet: &Transmit) {
        let (len, size) = (packet.payload.len(), usize::from(packet.segment_size));
        assert_eq!(len.div_ceil(size).max(1), usize::from(packet.segs));
        assert!(packet.segs == 1 || len <= self.plan.largest, "too much for one packet");
        let options = 12 * usize::from(packet.repr.options.timestamps.is_some());
        let mtu = usize::from(self.plan.mtu);
        assert!(size.min(len) + 40 + options <= mtu, "a segment beyond the MTU");
    }

    fn complete(&mut self, end: usize) {
        let now = self.now;
        let this = &mut self.ends[end];
        let before = this.completed;
        while let Some((_, serial, _)) = this.below.pop_front_if(|entry| entry.0 <= now) {
            this.completed = serial;
        }
        if before < self.ends[end].completed && self.ends[end].conn.awaits_completion() {
            self.call(end, Connection::handle_completion);
        }
    }

    /// The applications read and write as far as possible.
    fn applications(&mut self) {
        for end in [0, 1] {
            self.write(end);
            self.read(end);
        }
    }

    fn write(&mut self, end: usize) {
        let total = self.plan.bytes[end];
        while self.ends[end].written < total {
            let at = self.ends[end].written;
            let len = 1 + self.dice.roll(self.plan.write as u64) as usize;
            let data: Vec<u8> = (at..total.min(at + len)).map(pattern).collect();
            let mut flag = || self.dice.roll(8) == 0;
            let flags = WriteFlags { more: flag(), eor: flag(), urgent: false, zerocopy: false };
            match self.call(end, |conn, cx| conn.write_with(cx, &[&data], flags)) {
                Ok(count) => self.ends[end].written += count,
                Err(WriteError::WouldBlock) => return,
                Err(error) => panic!("{error:?}: {:?}", self.ends[end].conn.error()),
            }
            self.transmit(end);
        }
        if self.ends[end].conn.state() != State::SynSent {
            self.call(end, |conn, cx| conn.shutdown(cx));
        }
    }

    fn read(&mut self, end: usize) {
        let mut out = std::vec![0; 1 + self.dice.roll(self.plan.read as u64) as usize];
        while self.ends[end].next_read <= self.now && !self.ends[end].eof {
            let shared = self.plan.short > 0 && self.chance(50);
            let read = self.call(end, |conn, cx| {
                if !shared {
                    return conn.read(cx, &mut out);
                }
                conn.read_shared(cx, out.len()).map(|slices| slices.copy_to(&mut out))
            });
            let Ok(count) = read else { return };
            for &byte in &out[..count] {
                assert_eq!(byte, pattern(self.ends[end].read), "byte {}", self.ends[end].read);
                self.ends[end].read += 1;
            }
            self.ends[end].eof = count == 0;
            self.ends[end].next_read = self.now + self.plan.read_pause;
            self.transmit(end);
        }
    }

    /// Advances to the next event; `false` if there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.applications();
        self.transmit(0);
        self.transmit(1);
        let arrival = self.wire.iter().map(|packet| packet.at).min();
        let timeouts = self.ends.iter().filter_map(|end| end.conn.poll_timeout());
        let completions = self.ends.iter().filter_map(|end| end.below.front().map(|first| first.0));
        let readers = self
            .ends
            .iter()
            .filter(|end| end.conn.readable() > 0 && end.next_read > self.now)
            .map(|end| end.next_read);
        let next = arrival.into_iter().chain(timeouts).chain(completions).chain(readers).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        self.deliver();
        for end in [0, 1] {
            self.complete(end);
            self.call(end, |conn, cx| conn.handle_timeout(cx));
        }
        true
    }

    fn deliver(&mut self) {
        loop {
            let now = self.now;
            let due = |packet: &&OnWire| packet.at <= now;
            let first = self.wire.iter().filter(due).map(|packet| (packet.at, packet.order)).min();
            let Some(first) = first else { return };
            let place = self.wire.iter().position(|packet| (packet.at, packet.order) == first);
            let mut packet = self.wire.swap_remove(place.expect("it was just found"));
            self.call(packet.to, |conn, cx| conn.handle_segment(cx, &mut packet.seg));
        }
    }

    /// Runs until both ends are closed. Fails if that takes more than `limit` of virtual time, or
    /// if a byte is missing. Returns the virtual time that it took.
    #[track_caller]
    pub(crate) fn run(&mut self, limit: Duration) -> Duration {
        let start = self.now;
        let done = |pair: &Pair| {
            pair.ends.iter().all(|end| matches!(end.conn.state(), State::Closed | State::TimeWait))
        };
        while !done(self) {
            assert!(self.now.since(start) < limit, "no end: {}", self.describe());
            assert!(self.step(), "nothing will ever happen: {}", self.describe());
        }
        // Arrived data is still to be read.
        for _ in 0..100_000 {
            if self.ends.iter().all(|end| end.eof) {
                break;
            }
            self.now += self.plan.read_pause;
            self.applications();
        }
        for end in [0, 1] {
            assert_eq!(self.ends[end].conn.error(), None, "{}", self.describe());
            assert_eq!(self.ends[1 - end].read, self.plan.bytes[end], "{}", self.describe());
            assert!(self.ends[end].eof);
        }
        self.now.since(start)
    }

    fn describe(&self) -> std::string::String {
        std::format!(
            "seed {} at {:?}: {:?}",
            self.plan.seed,
            self.now,
            self.ends.each_ref().map(|end| (
                end.written,
                end.read,
                end.conn.info(&self.plan.config)
            ))
        )
    }

    /// The path of both directions carries less from now on.
    pub(crate) fn lower_mtu(&mut self, mtu: u16) {
        self.plan.mtu = mtu;
        // Packets that are too big are lost, and both ends are notified.
        self.wire.retain(|packet| packet.seg.payload.is_empty());
        for end in [0, 1] {
            let event = crate::mtu::PathEvent::Mtu(mtu);
            self.call(end, |conn, cx| conn.handle_path_event(cx, event));
        }
    }

    /// TCP_INFO of one end.
    pub(crate) fn info(&self, end: usize) -> crate::Info {
        self.ends[end].conn.info(&self.plan.config)
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }
}
