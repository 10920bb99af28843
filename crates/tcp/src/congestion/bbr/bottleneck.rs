//! A simulation of a sender, a bottleneck and a receiver, on virtual time: a link with a rate, a
//! delay and a drop-tail queue. The link may lose segments at random or periodically, reorder them,
//! and delay ACKs. A policer may be before it. The sender uses BBR unless configured otherwise. A
//! seed determines each run.

use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{SackBlock, TcpFlags, TcpRepr};

use super::path::{OVERHEAD, Path};
use super::phases::{self, Phase, Row, Seen};
use super::state::{BbrModel, BbrState};
use crate::algorithm::CongestionAlgorithm;
use crate::config::{Config, Options, SetOption};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::{Counter, Counters};
use crate::info::Info;
use crate::open_params::OpenParams;
use crate::segment::{Below, Ecn, Segment, Transmit};
use crate::serial::Serial;
use crate::testing::pair::Dice;
use crate::time::{Duration, Instant, Nanos};

const ISS: SeqNum = SeqNum(1_000_000);
const IRS: SeqNum = SeqNum(5_000_000);
const SHIFT: u8 = 14;

/// The behaviour of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Always has more.
    Bulk,
    /// Writes this many bytes at intervals.
    Chunks {
        /// Bytes of each.
        bytes: usize,
        /// Time between two.
        every: Duration,
    },
    /// Writes nothing.
    Silent,
}

/// A policer: since when it has put tokens aside.
struct Tokens(Instant);

impl Tokens {
    /// Takes those for a segment of `len` bytes at the time `at`, if there are enough.
    fn take(&mut self, (rate, burst): (u64, u64), at: Instant, len: u64) -> bool {
        let time = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / rate);
        let aside = at.since(self.0).min(time(burst));
        let enough = time(len) <= aside;
        let left = if enough { aside - time(len) } else { aside };
        self.0 = Instant::from_nanos(at.as_nanos() - Nanos::from(left).as_nanos());
        enough
    }
}

/// The state of the receiver.
#[derive(Default)]
struct Receiver {
    next: u32,
    /// Ranges beyond, by their start.
    held: BTreeMap<u32, u32>,
    last: u32,
    /// A segment that it had already (DSACK, RFC 2883).
    duplicate: Option<(u32, u32)>,
}

impl Receiver {
    /// Takes a segment. Returns whether it came in order and filled no hole.
    fn take(&mut self, start: u32, end: u32) -> bool {
        self.last = start;
        let before = self.held.range(..=start).next_back();
        if end <= self.next || before.is_some_and(|(_, &reach)| end <= reach) {
            self.duplicate = Some((start, end));
            return false;
        }
        if start > self.next {
            let (mut left, mut right) = (start, end);
            if let Some((&before, &reach)) = self.held.range(..=left).next_back()
                && left <= reach
            {
                (left, right) = (before, right.max(reach));
            }
            while let Some((&at, &reach)) = self.held.range(left..=right).next() {
                right = right.max(reach);
                self.held.remove(&at);
            }
            self.held.insert(left, right);
            return false;
        }
        let plain = self.held.is_empty();
        self.next = end;
        while let Some((&left, &right)) = self.held.first_key_value() {
            if self.next < left {
                break;
            }
            self.held.remove(&left);
            self.next = self.next.max(right);
        }
        plain
    }

    fn blocks(&mut self) -> Vec<(u32, u32)> {
        let duplicate = self.duplicate.take();
        let newest = self.held.range(..=self.last).next_back().map(|(&left, &right)| (left, right));
        let newest = newest.filter(|&(_, right)| self.last < right);
        let others = self.held.iter().rev().map(|(&left, &right)| (left, right));
        let mut blocks: Vec<_> = duplicate.into_iter().chain(newest).collect();
        blocks.extend(others.filter(|&block| Some(block) != newest).take(3 - blocks.len().min(3)));
        blocks
    }
}

struct AckOnWire {
    at: Instant,
    ack: u32,
    blocks: Vec<(u32, u32)>,
}

/// The sender, the path and the receiver.
pub(crate) struct Bottleneck {
    pub(crate) conn: Connection,
    pub(crate) now: Instant,
    pub(crate) path: Path,
    pub(crate) source: Source,
    /// The states so far.
    pub(crate) phases: Vec<Phase>,
    /// Segments that the queue had no place for, and that were lost on the way.
    pub(crate) dropped: [u64; 2],
    /// Segments that have left, and when one of them was lost for its number.
    pub(crate) carried: u64,
    pub(crate) drops: Vec<Instant>,
    /// Segments in transit, where they may overtake each other, by their arrival.
    transit: BTreeMap<(Instant, u64), (u32, u32)>,
    config: Config,
    counters: Counters,
    dice: Dice,
    receiver: Receiver,
    acks: VecDeque<AckOnWire>,
    tokens: Tokens,
    /// Until when the link is busy.
    busy: Instant,
    next_write: Instant,
    /// The ACKs carry ECE.
    pub(crate) ece: bool,
    /// The queueing discipline keeps departure times.
    keeps_departures: bool,
    /// The contents of the queue: departure, number, bytes.
    below: VecDeque<(Instant, Serial, u32)>,
    completed: Serial,
}

impl Bottleneck {
    /// Opens a connection over `path`.
    pub(crate) fn open(path: Path, source: Source, seed: u64) -> Bottleneck {
        Bottleneck::open_with(path, source, seed, false)
    }

    /// A connection with another algorithm.
    pub(crate) fn open_by(algorithm: CongestionAlgorithm, path: Path, seed: u64) -> Bottleneck {
        Bottleneck::connect(algorithm, path, Source::Bulk, seed, false)
    }

    /// The same; the queueing discipline of the sender keeps departure times, or not.
    pub(crate) fn open_with(
        path: Path,
        source: Source,
        seed: u64,
        keeps_departures: bool,
    ) -> Bottleneck {
        Bottleneck::connect(CongestionAlgorithm::Bbr, path, source, seed, keeps_departures)
    }

    fn connect(
        algorithm: CongestionAlgorithm,
        path: Path,
        source: Source,
        seed: u64,
        keeps_departures: bool,
    ) -> Bottleneck {
        let config = Config { tcp_congestion_control: algorithm, ..Config::default() };
        let window = 6 * (path.bdp() as usize + 60) * usize::from(path.mss);
        let options = Options { sndbuf: Some(window), ..Options::default() };
        let now = Instant::from_millis(1000);
        let counters = Counters::new();
        let cx = Context { now, below: Below::default(), config: &config, counters: &counters };
        let params = OpenParams {
            local_port: 1,
            remote_port: 2,
            iss: ISS + seed as u32,
            ts_offset: 0,
            seed,
            mtu: path.mtu().into(),
            ip_header_len: 20,
            max_super_segment: 65_000,
            options: options.into(),
            pool: Pool::new(),
        };
        let mut conn = Connection::connect(&cx, params);
        conn.poll_transmit(&cx).expect("a SYN");
        let mut this = Bottleneck {
            conn,
            now: now + path.rtt,
            path,
            source,
            phases: Vec::new(),
            dropped: [0; 2],
            carried: 0,
            drops: Vec::new(),
            transit: BTreeMap::new(),
            config,
            counters,
            dice: Dice::new(seed),
            receiver: Receiver::default(),
            acks: VecDeque::new(),
            tokens: Tokens(Instant::ZERO),
            busy: now,
            next_write: now,
            ece: false,
            keeps_departures,
            below: VecDeque::new(),
            completed: Serial(0),
        };
        let mut syn_ack = this.header(TcpFlags::SYN | TcpFlags::ACK, 0);
        syn_ack.seq = IRS;
        syn_ack.window = u16::MAX;
        syn_ack.options.syn_mut().mss = Some(path.mss);
        syn_ack.options.syn_mut().sack_permitted = true;
        syn_ack.options.syn_mut().window_scale = Some(SHIFT);
        this.arrive(syn_ack);
        this
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Connection, &Context) -> T) -> T {
        let below = Below {
            bytes: self.below.iter().map(|entry| entry.2).sum(),
            completed: self.completed,
            completions: true,
            keeps_departures: self.keeps_departures,
            ..Below::default()
        };
        let (config, counters) = (&self.config, &self.counters);
        call(&mut self.conn, &Context { now: self.now, below, config, counters })
    }

    /// A header of the peer that acknowledges `ack` bytes of data.
    fn header(&self, flags: TcpFlags, ack: u32) -> TcpRepr {
        TcpRepr {
            src_port: 2,
            dst_port: 1,
            seq: IRS + 1,
            ack: self.conn.snd.iss() + 1 + ack,
            flags,
            window: self.path.window,
            ..TcpRepr::default()
        }
    }

    fn arrive(&mut self, repr: TcpRepr) {
        let mut seg =
            Segment { repr, payload: Pool::new().copy_from(&[]).into(), segs: 1, ecn: Ecn::NotEct };
        self.call(|conn, cx| conn.handle_segment(cx, &mut seg));
    }

    /// `TCP_INFO`.
    pub(crate) fn info(&self) -> Info {
        self.conn.info_at(&self.config, self.now)
    }

    /// BBR's model.
    pub(crate) fn model(&self) -> BbrModel {
        self.conn.snd.flight.cc().model().expect("BBR has begun")
    }

    /// The connection keeps its decisions from now on.
    pub(crate) fn log_decisions(&mut self) {
        self.call(|conn, cx| conn.set_option(cx, SetOption::DecisionLog(65_536)));
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// Bytes of data that the receiver has in order.
    pub(crate) fn received(&self) -> u64 {
        self.receiver.next.into()
    }

    /// Bytes in the queue of the link.
    pub(crate) fn queued(&self) -> u64 {
        let busy = self.busy.since(self.now);
        (busy.as_nanos() * u128::from(self.path.rate) / 1_000_000_000) as u64
    }

    /// The states without the times.
    pub(crate) fn states(&self) -> Vec<BbrState> {
        self.phases.iter().map(|phase| phase.state).collect()
    }

    fn state(&self) -> Option<BbrState> {
        self.phases.last().map(|phase| phase.state)
    }

    fn write(&mut self) {
        static ZEROS: [u8; 65_536] = [0; 65_536];
        match self.source {
            Source::Silent => {}
            Source::Bulk => {
                while self.conn.snd.unsent_len() < ZEROS.len()
                    && self.call(|conn, cx| conn.write(cx, &ZEROS)).is_ok()
                {}
            }
            Source::Chunks { bytes, every } => {
                if self.next_write <= self.now {
                    let chunk = &ZEROS[..bytes.min(ZEROS.len())];
                    let _ = self.call(|conn, cx| conn.write(cx, chunk));
                    self.next_write = self.now + every;
                }
            }
        }
    }

    fn transmit(&mut self) {
        while let Some(packet) = self.call(|conn, cx| conn.poll_transmit(cx)) {
            if let Some(serial) = packet.serial {
                let len = packet.payload.len() as u32;
                self.below.push_back((packet.departure, serial, len));
            }
            self.carry(&packet);
            self.complete();
        }
        self.note_state();
    }

    /// Departed packets are no longer below the connection.
    fn complete(&mut self) {
        let before = self.completed;
        while let Some((_, serial, _)) = self.below.pop_front_if(|entry| entry.0 <= self.now) {
            self.completed = serial;
        }
        if before < self.completed && self.conn.awaits_completion() {
            self.call(Connection::handle_completion);
        }
    }

    /// A packet leaves: its segments enter the queue one by one.
    fn carry(&mut self, packet: &Transmit) {
        let first = packet.repr.seq.since(self.conn.snd.iss() + 1);
        let (len, size) = (packet.payload.len() as u32, u32::from(packet.segment_size));
        let mut waits = false;
        for start in (first..first + len).step_by(size.max(1) as usize) {
            let end = (first + len).min(start + size);
            let Some(arrival) = self.forward(packet.departure, u64::from(end - start)) else {
                continue;
            };
            if self.path.reorder.0 > 0 {
                let (share, delay) = self.path.reorder;
                let late = self.dice.roll(1_000_000) < share;
                let arrival = if late { arrival + delay } else { arrival };
                self.transit.insert((arrival, self.carried), (start, end));
                continue;
            }
            let plain = self.receiver.take(start, end);
            // A coalescing receiver acknowledges consecutive segments together.
            if plain && end < first + len {
                waits = true;
                continue;
            }
            waits = false;
            self.acknowledge(arrival);
        }
        if waits {
            let arrival = self.busy + self.path.rtt / 2;
            self.acknowledge(arrival);
        }
    }

    /// A segment with `len` bytes enters the queue. Returns when it arrives, if it does.
    fn forward(&mut self, at: Instant, len: u64) -> Option<Instant> {
        self.carried += 1;
        if self.path.drop_every > 0 && self.carried.is_multiple_of(self.path.drop_every) {
            self.dropped[1] += 1;
            self.drops.push(at);
            return None;
        }
        if self.dice.roll(1_000_000) < self.path.loss {
            self.dropped[1] += 1;
            return None;
        }
        if let Some(policer) = self.path.policer
            && !self.tokens.take(policer, at, len + OVERHEAD)
        {
            self.dropped[0] += 1;
            return None;
        }
        let start = self.busy.max(at);
        let queued = start.since(at).as_nanos() * u128::from(self.path.rate) / 1_000_000_000;
        if queued > u128::from(self.path.buffer) {
            self.dropped[0] += 1;
            return None;
        }
        let takes = (len + OVERHEAD) * 1_000_000_000 / self.path.rate;
        self.busy = start + Duration::from_nanos(takes);
        Some(self.busy + self.path.rtt / 2)
    }

    /// Packets in transit arrive.
    fn receive(&mut self) {
        while let Some(first) = self.transit.first_entry()
            && first.key().0 <= self.now
        {
            let ((arrival, _), (start, end)) = first.remove_entry();
            self.receiver.take(start, end);
            self.acknowledge(arrival);
        }
    }

    fn acknowledge(&mut self, arrival: Instant) {
        let every = self.path.ack_every.as_nanos() as u64;
        let back = arrival + self.path.rtt / 2;
        let at = match every {
            0 => back,
            every => Instant::from_nanos(back.as_nanos().div_ceil(every) * every),
        };
        let at = self.acks.back().map_or(at, |last| last.at.max(at));
        let ack = AckOnWire { at, ack: self.receiver.next, blocks: self.receiver.blocks() };
        self.acks.push_back(ack);
    }

    fn note_state(&mut self) {
        let Some(model) = self.conn.snd.flight.cc().model() else { return };
        if self.phases.last().is_none_or(|last| !last.is_same(&model)) {
            if let Some(last) = self.phases.last_mut() {
                last.close(self.now);
            }
            self.phases.push(Phase::new(self.now, &model, self.path));
        }
        let seen = Seen {
            in_flight: self.conn.snd.pipe().into(),
            queued: self.queued(),
            lost: self.dropped.iter().sum(),
        };
        if let Some(last) = self.phases.last_mut() {
            last.look(self.now, &model, &self.path, seen);
        }
    }

    /// Advances to the next event, at `end` at the latest.
    fn step(&mut self, end: Instant) {
        self.write();
        self.transmit();
        let ack = self.acks.front().map_or(Instant::FAR_FUTURE, |ack| ack.at);
        let timeout = self.conn.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        let write = match self.source {
            Source::Chunks { .. } => self.next_write,
            _ => Instant::FAR_FUTURE,
        };
        let departure = self.below.front().map_or(Instant::FAR_FUTURE, |first| first.0);
        let arrival = self.transit.first_key_value().map_or(Instant::FAR_FUTURE, |(key, _)| key.0);
        let next = ack.min(timeout).min(write).min(departure).min(arrival);
        self.now = self.now.max(next.min(end));
        self.complete();
        self.receive();
        while let Some(ack) = self.acks.pop_front_if(|ack| ack.at <= self.now) {
            let flags = if self.ece { TcpFlags::ACK | TcpFlags::ECE } else { TcpFlags::ACK };
            let mut repr = self.header(flags, ack.ack);
            let base = self.conn.snd.iss() + 1;
            for (left, right) in ack.blocks {
                repr.options.sack_mut().push(SackBlock { left: base + left, right: base + right });
            }
            self.arrive(repr);
            self.note_state();
        }
        self.call(|conn, cx| conn.handle_timeout(cx));
        self.check();
    }

    /// The invariants.
    fn check(&mut self) {
        let allowance = *self.conn.snd.flight.cc().allowance();
        let paced = allowance.pacing_rate.is_some() || !self.conn.snd.flight.cc().paces();
        assert!(allowance.cwnd >= 1 && paced, "{allowance:?}");
        self.note_state();
    }

    /// Lets `time` pass.
    pub(crate) fn run(&mut self, time: Duration) -> &mut Bottleneck {
        let end = self.now + time;
        while self.now < end {
            self.step(end);
        }
        self
    }

    /// Lets time pass until `state` begins, `most` at most.
    #[track_caller]
    pub(crate) fn run_until(&mut self, state: BbrState, most: Duration) -> &mut Bottleneck {
        self.run_while(self.now + most, |bench| bench.state() != Some(state));
        let found = self.state() == Some(state);
        assert!(found, "{state:?} never begins:\n{}", phases::text(&self.phases));
        self
    }

    /// Advances time while `goes_on` returns true, until `end` at most.
    pub(crate) fn run_while(&mut self, end: Instant, goes_on: impl Fn(&Bottleneck) -> bool) {
        while self.now < end && goes_on(self) {
            self.step(end);
        }
    }

    /// Bytes of data per second that arrive in order in the next `time`.
    pub(crate) fn measure(&mut self, time: Duration) -> u64 {
        let before = self.received();
        self.run(time);
        let bytes = u128::from(self.received() - before);
        (bytes * 1_000_000_000 / time.as_nanos()) as u64
    }
}

impl Path {
    fn mtu(&self) -> u16 {
        // The timestamp option is not in use: the peer does not offer it.
        self.mss + 40
    }
}

impl Bottleneck {
    /// Lets time pass while the states are those of `rows`, one after the other. The first row is
    /// of the state of now. Ends at the beginning of the state that follows the last one.
    #[track_caller]
    pub(crate) fn follow(&mut self, rows: &[Row]) -> &mut Bottleneck {
        // The SYN was acknowledged, and nothing has left yet.
        while self.phases.is_empty() {
            self.run(Duration::from_nanos(1));
        }
        let first = self.phases.len() - 1;
        for (number, row) in rows.iter().enumerate() {
            let most = Duration::from_millis(*row.2.end() + 1);
            let number = first + number;
            let limit = self.phases[number].begin + most + Duration::from_millis(1);
            self.run_while(limit, |bench| bench.phases.len() == number + 1);
            let phase = &self.phases[number];
            if let Some(what) = phase.differs(row) {
                panic!("line {} of this trace: {what}\n{}", number + 1, phases::text(&self.phases));
            }
        }
        self
    }
}
