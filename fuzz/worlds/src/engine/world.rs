//! The world: two sides, what is on its way between them, and time.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use plimsoll_buf::{Pool, Slice, Slices};
use plimsoll_tcp::{
    Arrival, Batch, Below, Config, Connection, ConnectionError, Context, Counter, Counters,
    Duration, Ecn, Events, Hold, Info, Input, Instant, Md5Key, MemoryRoom, OpenParams, Options,
    OutputDue, PathEvent, Reader, Segment, State, Transmit,
};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

use super::device::{Device, Flight};
use super::forge::Forgery;
use super::oracle::Seen;
use super::step::{Host, OptionChoice, PathChoice, Step, Writing};
use super::{Opening, Setup};
use crate::trace;

/// Packets that one side may hand down without anything new happening.
const MAX_BURST: usize = 20_000;
/// Deadlines that may pass in one step before time jumps.
const MAX_FIRINGS: usize = 200;
/// Rounds until everything must have settled.
const MAX_ROUNDS: usize = 20_000;
/// Bytes that each side writes at most.
const MAX_WRITTEN: u64 = 1 << 20;
/// Segments that each side has queued at most: after each call the invariants look at them all.
const MAX_SEGMENTS: usize = 1024;
/// Packets on their way from each side at most; more are lost.
const MAX_FLIGHT: usize = 4096;

const PORTS: [u16; 2] = [4000, 80];
const MTUS: [u16; 6] = [1500, 576, 9000, 1280, 128, 65_535];
const DURATIONS_US: [u64; 12] = [
    1,
    100,
    1_000,
    10_000,
    40_000,
    200_000,
    500_000,
    1_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
    7_200_000_000,
];

/// One side.
struct Side {
    conn: Option<Connection>,
    params: OpenParams,
    seen: Seen,
    /// Packets on their way from here.
    flight: VecDeque<Flight>,
    /// What was handed down and has not completed.
    device: Device,
    /// Whether somebody waits for data to read.
    reader: Reader,
    /// Memory is short at times.
    short: bool,
    written: u64,
    read: u64,
    /// The application said that it sends no more.
    ended: bool,
    /// The application let go.
    closed: bool,
}

/// The world.
pub struct World {
    /// The time.
    pub now: Instant,
    config: Config,
    counters: Counters,
    pool: Pool,
    sides: [Side; 2],
    opening: Opening,
    hostile: bool,
    /// Bytes need not arrive unchanged any more: something was forged, or taken out of the stream.
    tainted: bool,
    /// Not everything written must arrive: somebody let go, aborted or was told an error.
    excused: bool,
    /// It differs from others in what must not matter; see [`World::varied`].
    varied: bool,
    /// Packets, events and reports since the last [`World::observed`], if a caller compares them.
    log: Option<Vec<String>>,
}

/// The byte at an offset of the stream from a side.
fn pattern(side: usize, offset: u64) -> u8 {
    (offset ^ (offset >> 8).wrapping_mul(31) ^ (offset >> 16)) as u8 ^ (side as u8 * 0x55)
}

/// What can be observed of both connections.
#[derive(Debug, PartialEq, Eq)]
pub struct Observed {
    /// Packets, events and reports.
    log: Vec<String>,
    ends: [Option<End>; 2],
    counters: Vec<u64>,
}

/// What can be observed of one connection.
#[derive(Debug, PartialEq, Eq)]
struct End {
    timeout: Option<Instant>,
    info: Info,
    /// Bytes that were written, read, may be written, are queued, unsent, held, may be read.
    amounts: [usize; 7],
    /// What else it says.
    words: String,
}

/// All of a packet but the note that explains it.
fn shown(packet: &Transmit) -> String {
    let mut bytes = vec![0; packet.payload.len()];
    packet.payload.copy_to(&mut bytes);
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let (bytes, packet) = (hasher.finish(), Transmit { note: None, ..packet.clone() });
    format!("{packet:?} {bytes:x}")
}

impl Side {
    fn new(setup: &Setup, index: usize, pool: &Pool, varied: bool) -> Side {
        let bit = |bit: u16| setup.switches & (1 << bit) != 0;
        let mtu = MTUS[usize::from(setup.mtu[index]) % MTUS.len()];
        let ip_header_len = if bit(8) && mtu >= 1280 { 40 } else { 20 };
        let max_super_segment = if bit(9 + index as u16) { 0 } else { 65_415 };
        let iss = SeqNum(0_u32.wrapping_sub(setup.iss[index].into()));
        let options = Options::default()
            .nodelay(bit(11 + index as u16))
            .oobinline(bit(13))
            .keepalive(bit(14))
            .keep_idle(Some(Duration::from_secs(5)))
            .zerocopy(true)
            .decision_log(varied.then_some(16))
            .md5_key(if bit(7) { Md5Key::new(b"fuzz") } else { None });
        let params = OpenParams {
            local_port: PORTS[index],
            remote_port: PORTS[1 - index],
            iss,
            ts_offset: 0_u32.wrapping_sub(setup.ts_offset[index].into()),
            seed: setup.iss[index].into(),
            mtu: mtu.into(),
            ip_header_len,
            max_super_segment,
            options: options.into(),
            pool: pool.clone(),
        };
        let mut seen = Seen::new(mtu.into(), ip_header_len.into(), max_super_segment, iss);
        seen.short = bit(15);
        Side {
            conn: None,
            seen,
            params,
            flight: VecDeque::new(),
            device: Device::new(setup.devices[index], bit(index as u16) != varied),
            reader: Reader::Absent,
            short: bit(15),
            written: 0,
            read: 0,
            ended: false,
            closed: false,
        }
    }

    fn below(&self, now: Instant) -> Below {
        let memory = match now.as_millis() % 8 {
            bytes @ 0..4 if self.short => {
                MemoryRoom { pressure: bytes < 3, bytes: bytes as u32 * 900 }
            }
            _ => MemoryRoom::default(),
        };
        self.device.below(memory)
    }

    /// Packets leave this side.
    fn depart(&mut self, flights: impl IntoIterator<Item = Flight>) {
        let room = MAX_FLIGHT.saturating_sub(self.flight.len());
        self.flight.extend(flights.into_iter().take(room));
    }
}

impl World {
    /// A world at its beginning.
    pub fn new(setup: &Setup) -> World {
        World::unopened(setup, false).open(setup)
    }

    /// Two worlds for the same steps. They differ in what must not change what a connection does:
    /// the second one keeps a log of decisions and releases memory as soon as it may. It puts notes
    /// on packets where the input does not ask for them, and none where it does.
    pub fn pair(setup: &Setup) -> [World; 2] {
        [false, true].map(|varied| {
            let mut world = World::unopened(setup, varied);
            // After a release it takes the next round for its first one.
            world.config.tcp_hystart_plus_plus = false;
            world.log = Some(Vec::new());
            world.open(setup)
        })
    }

    fn unopened(setup: &Setup, varied: bool) -> World {
        let pool = Pool::new();
        let alone = matches!(setup.opening, Opening::Alone | Opening::AlonePassive);
        World {
            now: Instant::from_millis(1),
            config: setup.settings.config(),
            counters: Counters::default(),
            sides: [0, 1].map(|index| Side::new(setup, index, &pool, varied)),
            pool,
            opening: setup.opening,
            hostile: setup.hostile || alone,
            tainted: alone,
            excused: alone,
            varied,
            log: None,
        }
    }

    fn open(mut self, setup: &Setup) -> World {
        match setup.opening {
            Opening::Normal | Opening::Alone => self.connect(0),
            Opening::Simultaneous => {
                self.connect(0);
                self.connect(1);
            }
            Opening::AlonePassive => {
                let peer = SeqNum(u32::from(setup.iss[1]));
                let syn = Forgery::opening_syn(peer, setup.switches, (PORTS[1], PORTS[0]));
                self.deliver(0, syn);
            }
        }
        self
    }

    fn connect(&mut self, index: usize) {
        let params = self.sides[index].params.clone();
        let cx = self.context(index);
        let conn = Connection::connect(&cx, params);
        self.sides[index].conn = Some(conn);
        self.pump(index);
    }

    fn context(&self, index: usize) -> Context<'_> {
        Context {
            now: self.now,
            below: self.sides[index].below(self.now),
            config: &self.config,
            counters: &self.counters,
        }
    }

    /// Calls into the connection of a side, if it has one, and pumps it.
    fn with<T>(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut Connection, &Context) -> T,
    ) -> Option<T> {
        let mut conn = self.sides[index].conn.take()?;
        if self.varied {
            self.release_early(index, &mut conn);
        }
        let result = call(&mut conn, &self.context(index));
        conn.check_invariants();
        self.sides[index].conn = Some(conn);
        self.pump(index);
        Some(result)
    }

    /// Releases memory that only data needs, unless a timer is due, which would fire as well.
    fn release_early(&self, index: usize, conn: &mut Connection) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        if due(conn.releases_at()) && !due(conn.poll_timeout()) {
            let _ = conn.handle(&self.context(index), Input::Timeout);
        }
    }

    /// Everything that can be observed of both connections since the last call.
    pub fn observed(&mut self) -> Observed {
        let ends = self.sides.each_ref().map(|side| {
            let (conn, config) = (side.conn.as_ref()?, &self.config);
            let amounts = [
                side.written as usize,
                side.read as usize,
                conn.writable(config),
                conn.send_queue_len(),
                conn.unsent_len(),
                conn.memory_held(),
                conn.readable(),
            ];
            let words = format!(
                "{:?} {:?} {:?} {} {} {}",
                conn.urgent_byte(),
                conn.error(),
                conn.ack_cannot_wait(),
                conn.is_readable(),
                conn.awaits_completion(),
                conn.awaits_memory(),
            );
            let mut info = conn.info_at(config, self.now);
            // A timeout at rest marks the sample of a FIN that leaves next, which is the last one.
            (info.delivery_rate, info.delivery_rate_app_limited) = (0, false);
            Some(End { timeout: conn.poll_timeout(), info, amounts, words })
        });
        Observed {
            log: self.log.as_mut().map(std::mem::take).unwrap_or_default(),
            ends,
            counters: Counter::ALL.iter().map(|&counter| self.counters.get(counter)).collect(),
        }
    }

    fn log(&mut self, index: usize, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:?} {index} {}", self.now, line()));
        }
    }

    /// Takes out of a connection what it wants to send and to tell.
    fn pump(&mut self, index: usize) {
        let Some(mut conn) = self.sides[index].conn.take() else { return };
        let honest = !self.tainted;
        let mut burst = 0;
        while let Some(transmit) = conn.poll_transmit(&self.context(index)) {
            burst += 1;
            assert!(burst < MAX_BURST, "a connection does not stop sending");
            trace!(
                "    {:?} sends {:?} {} bytes {:?}",
                index,
                transmit.kind,
                transmit.payload.len(),
                transmit.repr
            );
            let side = &mut self.sides[index];
            if !honest {
                let info = conn.info(&self.config);
                side.seen.trusted_shifts = Some((info.rcv_wscale, info.snd_wscale));
            }
            side.seen.judge(&transmit, honest);
            if transmit.repr.flags.contains(TcpFlags::RST) {
                self.excused = true;
            }
            self.log(index, || shown(&transmit));
            let side = &mut self.sides[index];
            let at_once = side.device.push(transmit, self.now);
            side.depart(at_once);
        }
        conn.check_invariants();
        let events = conn.poll_event();
        self.log(index, || format!("{events:?}"));
        if events.contains(Events::CLOSED) {
            assert_eq!(conn.state(), State::Closed, "told to be closed and is not");
        }
        if conn.state() == State::Closed {
            assert_eq!(conn.poll_timeout(), None, "a closed connection has a timer");
        }
        self.excused |= conn.error().is_some();
        self.judge_hold(index, &conn);
        while let Some(report) = conn.take_report() {
            self.log(index, || format!("{report:?}"));
        }
        let _ = (conn.info(&self.config), conn.memory_bytes(), conn.writable(&self.config));
        self.sides[index].conn = Some(conn);
    }

    /// What holds data back is ended by something that will come.
    fn judge_hold(&self, index: usize, conn: &Connection) {
        let Some(hold) = conn.hold() else { return };
        let side = &self.sides[index];
        let comes = match hold {
            Hold::Autocork | Hold::SmallQueue => {
                conn.awaits_completion() && !side.device.is_empty()
            }
            _ => conn.poll_timeout().is_some(),
        };
        assert!(comes || conn.state() == State::Closed, "nothing will end {hold:?}");
    }

    /// The device of a side takes up to `count` packets.
    fn complete(&mut self, index: usize, count: usize) {
        let side = &mut self.sides[index];
        let leaves = side.device.complete(self.now, count);
        side.depart(leaves);
        // A completion may let something go that was held.
        let waits = side.conn.as_ref().is_some_and(Connection::awaits_completion);
        if waits {
            self.with(index, |conn, cx| conn.handle(cx, Input::Completion));
        } else {
            self.pump(index);
        }
    }

    /// Hands a segment to a side.
    fn deliver(&mut self, index: usize, mut segment: Segment) {
        trace!("    {index} gets {} bytes {:?}", segment.payload.len(), segment.repr);
        self.sides[index].seen.deliver(&segment.repr);
        let gone =
            self.sides[index].conn.as_ref().is_some_and(|conn| conn.state() == State::Closed);
        if gone {
            // A stack would answer with a reset; the other side must then live with an error.
            self.answer_stray(index, &segment);
            return;
        }
        if self.sides[index].conn.is_some() {
            let arrival = Arrival { batch: None, reader: self.sides[index].reader };
            let arrived = Input::Segment(&mut segment, arrival);
            self.with(index, |conn, cx| conn.handle(cx, arrived));
            return;
        }
        let flags = segment.repr.flags;
        let listening = index == 1 || self.opening == Opening::AlonePassive;
        let fresh = flags.contains(TcpFlags::SYN)
            && !flags.intersects(TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN);
        if listening && fresh {
            let params = self.sides[index].params.clone();
            let conn = Connection::accept(&self.context(index), params, &segment);
            self.sides[index].conn = Some(conn);
            self.pump(index);
        }
    }

    fn answer_stray(&mut self, index: usize, segment: &Segment) {
        if segment.repr.flags.contains(TcpFlags::RST) {
            return;
        }
        self.excused = true;
        let with_ack = segment.repr.flags.contains(TcpFlags::ACK);
        let repr = TcpRepr {
            src_port: segment.repr.dst_port,
            dst_port: segment.repr.src_port,
            seq: if with_ack { segment.repr.ack } else { SeqNum(0) },
            ack: segment.repr.seq + segment.seq_len(),
            flags: if with_ack { TcpFlags::RST } else { TcpFlags::RST | TcpFlags::ACK },
            ..TcpRepr::default()
        };
        let flight = Flight { repr, payload: Slices::new(), segment_size: 0, ecn: Ecn::NotEct };
        self.sides[index].flight.push_back(flight);
    }

    /// Runs one step.
    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Write(host, len) => self.write(host.index(), len.into(), Writing::default()),
            Step::WriteWith(host, len, how) => self.write(host.index(), len.into(), how),
            Step::ReadShared(host, len) => self.read_shared(host.index(), len.into()),
            Step::Waiting(host, waits) => {
                self.sides[host.index()].reader = match waits {
                    true => Reader::Waiting,
                    false => Reader::Absent,
                };
            }
            Step::Woken(host) => {
                let woken = Input::Woken { readers: true, writers: true };
                self.with(host.index(), |conn, cx| conn.handle(cx, woken));
            }
            Step::Memory(host) => {
                self.with(host.index(), |conn, cx| conn.handle(cx, Input::Memory));
            }
            Step::WriteUrgent(host) => {
                self.tainted = true;
                let written = self.with(host.index(), |conn, cx| conn.write_urgent(cx, b"!"));
                if let Some(Ok(count)) = written {
                    self.sides[host.index()].written += count as u64;
                }
            }
            Step::Read(host, len) => self.read(host.index(), usize::from(len)),
            Step::Peek(host, len) => self.peek(host.index(), usize::from(len)),
            Step::ReadUrgent(host) => {
                self.with(host.index(), |conn, _| conn.read_urgent());
            }
            Step::Shutdown(host) => {
                self.sides[host.index()].ended |= self.sides[host.index()].conn.is_some();
                self.with(host.index(), |conn, cx| conn.shutdown(cx));
            }
            Step::Close(host) => self.let_go(host.index(), false),
            Step::Abort(host) => self.let_go(host.index(), true),
            Step::Option(host, choice) => self.set_option(host.index(), choice),
            Step::Path(host, choice) => self.path(host.index(), choice),
            Step::Forge(host, ref forgery) => self.forge(host, forgery),
            _ => self.step_network(step),
        }
    }

    fn step_network(&mut self, step: &Step) {
        match *step {
            Step::Deliver(host, which, split) => self.arrive(host, which, split),
            Step::DeliverAll(host) => self.arrive_all(host),
            Step::Lose(host, which) => {
                let flight = &mut self.sides[host.index()].flight;
                if !flight.is_empty() {
                    flight.remove(usize::from(which) % flight.len());
                }
            }
            Step::Repeat(host, which) => {
                let flight = &mut self.sides[host.index()].flight;
                if !flight.is_empty() && flight.len() < MAX_FLIGHT {
                    let again = flight[usize::from(which) % flight.len()].clone();
                    flight.push_back(again);
                }
            }
            Step::Mark(host, which) => {
                let flight = &mut self.sides[host.index()].flight;
                if !flight.is_empty() {
                    let at = usize::from(which) % flight.len();
                    flight[at].mark();
                }
            }
            Step::DeliverBatch(host, count) => self.arrive_as_batch(host, count.into()),
            Step::Complete(host, count) => self.complete(host.index(), count.into()),
            Step::Drop(host, which) => self.sides[host.index()].device.lose(which),
            Step::Set(setting) => {
                setting.apply(&mut self.config);
                // A stack asks its connections again.
                (0..2).for_each(|index| self.pump(index));
            }
            Step::Advance(which) => {
                let micros = DURATIONS_US[usize::from(which) % DURATIONS_US.len()];
                self.advance_to(self.now + Duration::from_micros(micros));
            }
            Step::Fire(host) => {
                let conn = self.sides[host.index()].conn.as_ref();
                if let Some(deadline) = conn.and_then(Connection::poll_timeout) {
                    self.advance_to(deadline.max(self.now));
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, index: usize, len: usize, how: Writing) {
        let start = self.sides[index].written;
        let room = self.sides[index].conn.as_ref().map_or(0, |conn| {
            (usize::from(conn.mss()) * MAX_SEGMENTS).saturating_sub(conn.send_queue_len())
        });
        let len = (len.min(room) as u64).min(MAX_WRITTEN - start.min(MAX_WRITTEN));
        let data: Vec<u8> = (start..start + len).map(|offset| pattern(index, offset)).collect();
        let below = !self.sides[index].device.below(MemoryRoom::default()).completions
            || self.sides[index].device.is_empty();
        let flags = how.flags();
        let taken = self.with(index, |conn, cx| {
            if how.corked && !below && conn.write_corked(&data) {
                return data.len();
            }
            let middle = data.len() / 2;
            let taken = match how.shared {
                true => {
                    let whole = Slice::from_owner(data.clone());
                    let (front, back) = (whole.range(0, middle), whole.range(middle, data.len()));
                    conn.write_shared(cx, &[front, back], flags)
                }
                false => conn.write_with(cx, &[&data[..middle], &data[middle..]], flags),
            };
            taken.unwrap_or(0)
        });
        let Some(count) = taken else { return };
        assert!(count <= data.len());
        self.sides[index].written += count as u64;
    }

    fn read(&mut self, index: usize, len: usize) {
        let mut buffer = vec![0; len];
        let result = self.with(index, |conn, cx| {
            let readable = conn.readable();
            let result = conn.read(cx, &mut buffer);
            if let Ok(count) = result {
                assert!(count <= readable, "more was read than was readable");
                // An urgent byte out of line leaves with what was read.
                assert!(conn.readable() <= readable - count);
            }
            result
        });
        let Some(Ok(count)) = result else { return };
        self.check_bytes(index, &buffer[..count]);
        self.sides[index].read += count as u64;
    }

    fn read_shared(&mut self, index: usize, len: usize) {
        let result = self.with(index, |conn, cx| conn.read_shared(cx, len));
        let Some(Ok(slices)) = result else { return };
        assert!(slices.len() <= len, "more was read than was asked for");
        let mut bytes = vec![0; slices.len()];
        slices.copy_to(&mut bytes);
        self.check_bytes(index, &bytes);
        self.sides[index].read += bytes.len() as u64;
    }

    fn read_all(&mut self, index: usize) {
        let readable =
            |world: &World| world.sides[index].conn.as_ref().map_or(0, Connection::readable);
        while readable(self) > 0 {
            let before = self.sides[index].read;
            self.read(index, 1 << 16);
            assert!(self.sides[index].read > before, "readable bytes cannot be read");
        }
    }

    fn peek(&mut self, index: usize, len: usize) {
        let mut buffer = vec![0; len];
        let result = self.with(index, |conn, _| conn.peek(&mut buffer));
        if let Some(Ok(count)) = result {
            self.check_bytes(index, &buffer[..count]);
        }
    }

    fn check_bytes(&self, index: usize, bytes: &[u8]) {
        if self.tainted {
            return;
        }
        let start = self.sides[index].read;
        for (offset, &byte) in (start..).zip(bytes) {
            assert_eq!(byte, pattern(1 - index, offset), "wrong byte at offset {offset}");
        }
    }

    fn let_go(&mut self, index: usize, abort: bool) {
        if self.sides[index].conn.is_none() || self.sides[index].closed {
            return;
        }
        self.sides[index].closed = true;
        self.excused = true;
        self.with(index, |conn, cx| if abort { conn.abort(cx) } else { conn.close(cx) });
    }

    fn set_option(&mut self, index: usize, choice: OptionChoice) {
        let option = choice.into();
        self.with(index, |conn, cx| conn.set_option(cx, option));
    }

    fn path(&mut self, index: usize, choice: PathChoice) {
        let event = match choice {
            PathChoice::Mtu(mtu) => PathEvent::Mtu(mtu),
            PathChoice::Soft => PathEvent::SoftError(ConnectionError::HostUnreachable),
            PathChoice::Hard => PathEvent::HardError(ConnectionError::DeviceGone),
        };
        self.with(index, |conn, cx| conn.handle(cx, Input::Path(event)));
    }

    fn forge(&mut self, to: Host, forgery: &Forgery) {
        if !self.hostile {
            return;
        }
        self.tainted = true;
        self.excused = true;
        let ports = (PORTS[to.other()], PORTS[to.index()]);
        let segment = forgery.segment(&self.sides[to.index()].seen, &self.pool, ports);
        self.deliver(to.index(), segment);
    }

    fn arrive(&mut self, from: Host, which: u8, split: bool) {
        let flight = &mut self.sides[from.index()].flight;
        if flight.is_empty() {
            return;
        }
        let at = usize::from(which) % flight.len();
        let part = if split { flight[at].split_first() } else { None };
        let segment = match part {
            Some(part) => part,
            None => match flight.remove(at) {
                Some(flight) => flight.whole(),
                None => return,
            },
        };
        self.deliver(from.other(), segment);
    }

    fn arrive_all(&mut self, from: Host) {
        let flight = core::mem::take(&mut self.sides[from.index()].flight);
        for packet in flight {
            self.deliver(from.other(), packet.whole());
        }
    }

    /// Up to `count` packets arrive as one batch: the owner asks for output at its end, or when an
    /// ACK cannot wait.
    fn arrive_as_batch(&mut self, from: Host, count: usize) {
        let to = from.other();
        for _ in 0..count {
            let Some(packet) = self.sides[from.index()].flight.pop_front() else { break };
            let mut segment = packet.whole();
            let open = |conn: &Connection| conn.state() != State::Closed;
            if !self.sides[to].conn.as_ref().is_some_and(open) {
                self.deliver(to, segment);
                continue;
            }
            self.sides[to].seen.deliver(&segment.repr);
            let Some(mut conn) = self.sides[to].conn.take() else { return };
            let cx = self.context(to);
            let batch = self.config.tcp_backlog_ack_defer.then_some(Batch::Backlog);
            let arrival = Arrival { batch, reader: self.sides[to].reader };
            let due = conn.handle(&cx, Input::Segment(&mut segment, arrival));
            conn.check_invariants();
            self.sides[to].conn = Some(conn);
            if due == OutputDue::Now {
                self.pump(to);
            }
        }
        self.pump(to);
    }

    /// Lets time pass, and every deadline on the way.
    fn advance_to(&mut self, until: Instant) {
        for _ in 0..MAX_FIRINGS {
            let next = self.next_deadline().filter(|&(deadline, _)| deadline <= until);
            let Some((deadline, index)) = next else { break };
            self.now = self.now.max(deadline);
            self.fire(index);
        }
        self.now = self.now.max(until);
    }

    fn next_deadline(&self) -> Option<(Instant, usize)> {
        (0..2)
            .filter_map(|index| {
                let conn = self.sides[index].conn.as_ref()?;
                Some((conn.poll_timeout()?, index))
            })
            .min_by_key(|&(deadline, _)| deadline)
    }

    /// Tells a side that its deadline has passed. What fires must not be due again at once.
    fn fire(&mut self, index: usize) {
        for _ in 0..8 {
            trace!("    {:?} timer of {index}", self.now);
            self.with(index, |conn, cx| conn.handle(cx, Input::Timeout));
            let conn = self.sides[index].conn.as_ref();
            if conn.and_then(Connection::poll_timeout).is_none_or(|next| next > self.now) {
                return;
            }
        }
        panic!("a timer is due again and again");
    }

    /// From here on the network loses nothing and the applications read. Unless there is an excuse,
    /// everything written must arrive and every end of a stream must be seen.
    pub fn settle(&mut self) {
        if self.excused || self.tainted {
            return;
        }
        for _ in 0..MAX_ROUNDS {
            for host in [Host::A, Host::B] {
                self.complete(host.index(), usize::MAX);
                self.read_all(host.index());
                self.arrive_all(host);
            }
            if self.excused || self.is_settled() {
                return;
            }
            if self.sides.iter().all(|side| side.flight.is_empty()) {
                self.pass_time();
            }
        }
        panic!("does not come to an end: {}", self.state_of_affairs());
    }

    /// Nothing is on its way: time passes until the next departure or deadline.
    fn pass_time(&mut self) {
        let departures = self.sides.iter().filter_map(|side| side.device.next_departure(self.now));
        let departure = departures.min();
        match (self.next_deadline(), departure) {
            (Some((deadline, _)), Some(departure)) if departure <= deadline => self.now = departure,
            (None, Some(departure)) => self.now = departure,
            (Some((deadline, index)), _) => {
                self.now = self.now.max(deadline);
                self.fire(index);
            }
            (None, None) => panic!("deadlock: {}", self.state_of_affairs()),
        }
    }

    fn is_settled(&self) -> bool {
        (0..2).all(|index| {
            let (from, to) = (&self.sides[index], &self.sides[1 - index]);
            let ended = to.conn.as_ref().is_some_and(Connection::read_closed);
            to.read == from.written && (!from.ended || ended)
        })
    }

    fn state_of_affairs(&self) -> String {
        let side = |index: usize| {
            let side = &self.sides[index];
            let state = side.conn.as_ref().map(Connection::state);
            format!("{state:?} wrote {} read {} ended {}", side.written, side.read, side.ended)
        };
        format!("{}; {}", side(0), side(1))
    }
}
