//! The language of the tests: traces of one connection, and two connections on a virtual path.
//!
//! A [`Trace`] has one connection under test; the other end is played by lines in the style of
//! tcpdump, with sequence numbers relative to the initial ones:
//!
//! ```text
//! let mut t = Trace::established(Setup::default());
//! t.write(500);
//! t.expect("P. 1:501 ack 1");
//! t.at(40);
//! t.recv(". 1:1 ack 501 win 5000");
//! t.expect_nothing();
//! ```
//!
//! A line is: flags (`S F R P U E W A`, `.` for ACK, `-` for none), `start:end` of the data, then
//! any of `ack N`, `win N`, `urg N`, `sack A:B`, and, for expectations, `xN` (the number of wire
//! segments). `win` is in bytes as in the field. Parts that an expectation does not name are not
//! compared, except the segment count, which is 1 unless named.
//!
//! [`pair::Pair`] joins two connections.

mod below;
mod counters;
pub(crate) mod pair;
mod traces;

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{FastOpenOption, SackBlock, TcpFlags, TcpRepr};

use crate::config::{Config, Options};
use crate::connection::Connection;
use crate::connection::input::{Arrival, Input};
use crate::context::Context;
use crate::counters::{Counter, Counters};
use crate::handshake::fast_open_client::FastOpen;
use crate::handshake::fast_open_server::FastOpenAnswer;
use crate::info::Info;
use crate::open_params::OpenParams;
use crate::output::Hold;
use crate::recv::Reader;
use crate::route::PathMtu;
use crate::segment::{Below, Ecn, Segment, Transmit};
use crate::serial::Serial;
use crate::state::State;
use crate::time::{Duration, Instant};

/// Our initial number and the peer's; both wrap within a test.
pub(crate) const ISS: SeqNum = SeqNum(u32::MAX - 700);
pub(crate) const IRS: SeqNum = SeqNum(u32::MAX - 300);

/// How often a test repeats itself, or how much it moves: `full`, or `few` under Miri, which is
/// thousands of times slower. Its repetitions there are of the same kinds, and fewer of each.
pub(crate) const fn under_miri<T: Copy>(full: T, few: T) -> T {
    if cfg!(miri) { few } else { full }
}

/// How a trace begins.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) options: Options,
    /// The MSS that the peer announces.
    pub(crate) mss: u16,
    /// The window of the peer's first segments.
    pub(crate) win: u16,
    /// Largest packet passed down.
    pub(crate) largest: usize,
    pub(crate) mtu: PathMtu,
    /// The SYN waits for `begin`.
    pub(crate) deferred: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            config: Config {
                tcp_timestamps: false,
                tcp_window_scaling: false,
                // Most traces are about other subjects.
                tcp_early_retrans: 0,
                ..Config::default()
            },
            options: Options::default(),
            mss: 1000,
            win: 60_000,
            largest: 0,
            mtu: 1500.into(),
            deferred: false,
        }
    }
}

impl Setup {
    /// With super-segments.
    pub(crate) fn tso() -> Setup {
        Setup { largest: 65_000, ..Setup::default() }
    }

    pub(crate) fn nodelay(mut self) -> Setup {
        self.options.nodelay = true;
        self
    }

    pub(crate) fn win(mut self, win: u16) -> Setup {
        self.win = win;
        self
    }

    fn params(&self, pool: &Pool) -> OpenParams {
        OpenParams {
            local_port: 1000,
            remote_port: 2000,
            iss: ISS,
            ts_offset: 0,
            seed: 1,
            mtu: self.mtu,
            ip_header_len: 20,
            max_super_segment: self.largest,
            options: self.options.clone().into(),
            pool: pool.clone(),
        }
    }
}

/// One line, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    flags: TcpFlags,
    start: u32,
    end: u32,
    ack: Option<u32>,
    win: Option<u16>,
    urg: Option<u16>,
    sack: Vec<(u32, u32)>,
    segs: u16,
}

fn number(word: Option<&str>) -> u32 {
    word.and_then(|word| word.parse().ok()).expect("a number")
}

fn range(word: Option<&str>) -> (u32, u32) {
    let (left, right) = word.and_then(|word| word.split_once(':')).expect("start:end");
    (number(Some(left)), number(Some(right)))
}

impl Line {
    fn parse(text: &str) -> Line {
        let mut words = text.split_whitespace();
        let mut line = Line { segs: 1, ..Line::default() };
        for letter in words.next().expect("flags").chars() {
            line.flags |= match letter {
                'S' => TcpFlags::SYN,
                'F' => TcpFlags::FIN,
                'R' => TcpFlags::RST,
                'P' => TcpFlags::PSH,
                'U' => TcpFlags::URG,
                'E' => TcpFlags::ECE,
                'W' => TcpFlags::CWR,
                'A' => TcpFlags::AE,
                '.' => TcpFlags::ACK,
                '-' => TcpFlags::default(),
                other => panic!("no flag {other}"),
            };
        }
        (line.start, line.end) = range(words.next());
        while let Some(word) = words.next() {
            match word {
                "ack" => line.ack = Some(number(words.next())),
                "win" => line.win = Some(number(words.next()) as u16),
                "urg" => line.urg = Some(number(words.next()) as u16),
                "sack" => line.sack.push(range(words.next())),
                other => line.segs = number(other.strip_prefix('x')) as u16,
            }
        }
        line
    }
}

/// A packet as a line.
pub(crate) fn show(packet: &Transmit) -> String {
    let repr = &packet.repr;
    let mut text = String::new();
    let letters = [
        (TcpFlags::SYN, 'S'),
        (TcpFlags::FIN, 'F'),
        (TcpFlags::RST, 'R'),
        (TcpFlags::PSH, 'P'),
        (TcpFlags::URG, 'U'),
        (TcpFlags::ECE, 'E'),
        (TcpFlags::CWR, 'W'),
        (TcpFlags::AE, 'A'),
        (TcpFlags::ACK, '.'),
    ];
    for (flag, letter) in letters {
        if repr.flags.contains(flag) {
            text.push(letter);
        }
    }
    let start = repr.seq.since(ISS);
    text += &format!(" {start}:{}", start.wrapping_add(packet.payload.len() as u32));
    if repr.flags.contains(TcpFlags::ACK) {
        text += &format!(" ack {}", repr.ack.since(IRS));
    }
    text += &format!(" win {}", repr.window);
    if repr.flags.contains(TcpFlags::URG) {
        text += &format!(" urg {}", repr.urgent);
    }
    for block in repr.options.sack() {
        text += &format!(" sack {}:{}", block.left.since(IRS), block.right.since(IRS));
    }
    if packet.segs > 1 {
        text += &format!(" x{}", packet.segs);
    }
    text
}

/// One connection, and its environment.
pub(crate) struct Trace {
    pub(crate) conn: Connection,
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) now: Instant,
    pub(crate) pool: Pool,
    /// The packets below; everything is completed at once unless a test sets it otherwise.
    pub(crate) below: Below,
    /// Whether a reader waits for data.
    pub(crate) reader: Reader,
    started: Instant,
    window: u16,
    /// Bytes written so far: the stream is a pattern of its offsets.
    written: usize,
}

/// The byte at `offset` of every stream in the tests.
pub(crate) fn pattern(offset: usize) -> u8 {
    (offset.wrapping_mul(31) ^ (offset >> 8)) as u8
}

impl Trace {
    fn open(setup: Setup) -> Trace {
        let counters = Counters::new();
        let now = Instant::from_millis(1000);
        let pool = Pool::new();
        let below = Below { bytes: 0, completed: Serial(u64::MAX), ..Below::default() };
        let cx = Context { now, below, config: &setup.config, counters: &counters };
        let conn = if setup.deferred {
            Connection::connect_deferred(&cx, setup.params(&pool))
        } else {
            Connection::connect(&cx, setup.params(&pool))
        };
        let (config, window) = (setup.config, setup.win);
        Trace {
            conn,
            config,
            counters,
            now,
            pool,
            below,
            reader: Reader::Absent,
            started: now,
            window,
            written: 0,
        }
    }

    /// In SYN-SENT; the SYN has left.
    pub(crate) fn syn_sent(setup: Setup) -> Trace {
        let mut trace = Trace::open(setup);
        trace.expect("S 0:0");
        trace
    }

    /// In SYN-SENT; the SYN left as in `line`.
    pub(crate) fn syn_sent_any(setup: Setup, line: &str) -> Trace {
        let mut trace = Trace::open(setup);
        trace.expect(line);
        trace
    }

    /// In SYN-SENT; the SYN waits for [`begin`](Self::begin).
    pub(crate) fn deferred(setup: Setup) -> Trace {
        Trace::open(Setup { deferred: true, ..setup })
    }

    /// In SYN-RECEIVED, by a SYN like `line` with an MSS of 1000 and SACK-permitted; the SYN-ACK
    /// has not left yet.
    pub(crate) fn passive(setup: Setup, line: &str, answer: FastOpenAnswer) -> Trace {
        Trace::passive_marked(setup, line, answer, Ecn::NotEct)
    }

    /// The same, by a SYN with this codepoint.
    pub(crate) fn passive_marked(
        setup: Setup,
        line: &str,
        answer: FastOpenAnswer,
        ecn: Ecn,
    ) -> Trace {
        let params = |pool: &Pool| setup.params(pool);
        let mut trace = Trace::open(setup.clone());
        let line = Line::parse(line);
        let mut repr = trace.repr(&line);
        repr.options.syn_mut().mss = Some(setup.mss);
        repr.options.syn_mut().sack_permitted = true;
        let data: Vec<u8> = (line.start..line.end).map(|at| pattern(at as usize + 1)).collect();
        let payload = trace.pool.copy_from(&data).into();
        let syn = Segment { repr, payload, segs: 1, ecn };
        let params = params(&trace.pool);
        trace.counters = Counters::new();
        trace.conn = trace.call(|_, cx| Connection::accept_with(cx, params, &syn, answer));
        trace
    }

    /// Opens with Fast Open and the next `len` bytes of the stream; returns how many were taken.
    pub(crate) fn begin(&mut self, known: FastOpen, len: usize) -> usize {
        let data: Vec<u8> = (0..len).map(pattern).collect();
        let halves = data.split_at(len / 2);
        let taken = self.call(|conn, cx| conn.begin_fast_open(cx, known, &[halves.0, halves.1]));
        self.written += taken;
        taken
    }

    /// The peer sends a SYN-ACK with an MSS of 1000, SACK-permitted, and `option`.
    pub(crate) fn recv_syn_ack(&mut self, line: &str, option: Option<FastOpenOption>) {
        let line = Line::parse(line);
        let mut repr = self.repr(&line);
        repr.options.syn_mut().mss = Some(1000);
        repr.options.syn_mut().sack_permitted = true;
        repr.options.syn_mut().fast_open = option;
        let data: Vec<u8> = (line.start..line.end).map(|at| pattern(at as usize)).collect();
        self.input(repr, &data);
    }

    /// As if the handshake had taken `millis`.
    pub(crate) fn set_round_trip(&mut self, millis: u64) {
        let rtt = Duration::from_millis(millis);
        self.call(|conn, cx| {
            let parts = conn.conn_parts(cx);
            conn.snd.set_round_trip(cx, &parts, rtt.into());
        });
    }

    /// TCP_INFO.
    pub(crate) fn info(&self) -> Info {
        self.conn.info_at(&self.config, self.now)
    }

    /// In ESTABLISHED; the handshake is over.
    pub(crate) fn established(setup: Setup) -> Trace {
        let mss = setup.mss;
        let mut trace = Trace::syn_sent(setup);
        let mut repr = trace.repr(&Line::parse("S. 0:0 ack 1"));
        repr.options.syn_mut().mss = Some(mss);
        repr.options.syn_mut().sack_permitted = true;
        trace.input(repr, &[]);
        trace.expect(". 1:1 ack 1");
        assert_eq!(trace.conn.state(), State::Established);
        let _ = trace.conn.poll_event();
        trace
    }

    /// In FIN-WAIT-1: we have shut down, and our FIN (number 1) has left.
    pub(crate) fn fin_wait_1(setup: Setup) -> Trace {
        let mut trace = Trace::established(setup);
        trace.call(|conn, cx| conn.shutdown(cx));
        trace.expect("F. 1:1 ack 1");
        trace
    }

    /// In CLOSE-WAIT: the peer has shut down.
    pub(crate) fn close_wait(setup: Setup) -> Trace {
        let mut trace = Trace::established(setup);
        trace.recv("F. 1:1 ack 1");
        trace.expect_nothing();
        trace.sleep();
        trace.expect(". 1:1 ack 2");
        trace
    }

    /// Eight segments of a window of ten are in flight; five more wait for the first ACK, so that
    /// they leave together. It is one millisecond after the start, half a round trip.
    pub(crate) fn deferring(setup: Setup) -> Trace {
        let mut trace = Trace::established(setup);
        trace.set_round_trip(2);
        trace.write(4000);
        trace.expect("P. 1:4001 ack 1 x4");
        trace.expect_nothing();
        trace.at(1);
        trace.write(4000);
        trace.expect("P. 4001:8001 ack 1 x4");
        trace.write(5000);
        trace.expect_nothing();
        assert_eq!(trace.conn.hold(), Some(Hold::TsoDefer));
        trace
    }

    pub(crate) fn call<T>(&mut self, call: impl FnOnce(&mut Connection, &Context) -> T) -> T {
        let cx = Context {
            now: self.now,
            below: self.below,
            config: &self.config,
            counters: &self.counters,
        };
        call(&mut self.conn, &cx)
    }

    fn repr(&mut self, line: &Line) -> TcpRepr {
        self.window = line.win.unwrap_or(self.window);
        let mut repr = TcpRepr {
            src_port: 2000,
            dst_port: 1000,
            seq: IRS + line.start,
            ack: line.ack.map_or(SeqNum(0), |ack| ISS + ack),
            flags: line.flags,
            window: self.window,
            urgent: line.urg.unwrap_or(0),
            ..TcpRepr::default()
        };
        for &(left, right) in &line.sack {
            repr.options.sack_mut().push(SackBlock { left: ISS + left, right: ISS + right });
        }
        repr
    }

    fn input(&mut self, repr: TcpRepr, data: &[u8]) {
        self.input_marked(repr, data, Ecn::NotEct);
    }

    fn input_marked(&mut self, repr: TcpRepr, data: &[u8], ecn: Ecn) {
        let payload = self.pool.copy_from(data).into();
        let mut seg = Segment { repr, payload, segs: 1, ecn };
        let arrival = Arrival { reader: self.reader, ..Arrival::default() };
        self.call(|conn, cx| conn.handle(cx, Input::Segment(&mut seg, arrival)));
    }

    /// The peer sends a segment. The window is the last one named unless the line names one.
    pub(crate) fn recv(&mut self, line: &str) {
        self.recv_marked(line, Ecn::NotEct);
    }

    /// The same, with a codepoint in the IP header and the changes of `edit` to the header.
    pub(crate) fn recv_edited(&mut self, line: &str, ecn: Ecn, edit: impl FnOnce(&mut TcpRepr)) {
        let line = Line::parse(line);
        let mut repr = self.repr(&line);
        edit(&mut repr);
        let data: Vec<u8> = (line.start..line.end).map(|at| pattern(at as usize)).collect();
        self.input_marked(repr, &data, ecn);
    }

    /// The same, with a codepoint in the IP header.
    pub(crate) fn recv_marked(&mut self, line: &str, ecn: Ecn) {
        let line = Line::parse(line);
        let repr = self.repr(&line);
        let data: Vec<u8> = (line.start..line.end).map(|at| pattern(at as usize)).collect();
        self.input_marked(repr, &data, ecn);
    }

    /// The application writes the next `len` bytes of the stream and all are taken.
    #[track_caller]
    pub(crate) fn write(&mut self, len: usize) {
        let data: Vec<u8> = (self.written..self.written + len).map(pattern).collect();
        assert_eq!(self.call(|conn, cx| conn.write(cx, &data)), Ok(len));
        self.written += len;
    }

    /// The next packet, if one leaves. Its bytes are those that were written.
    pub(crate) fn next(&mut self) -> Option<Transmit> {
        let packet = self.call(|conn, cx| conn.poll_transmit(cx))?;
        let syn = u32::from(packet.repr.flags.contains(TcpFlags::SYN));
        let start = (packet.repr.seq + syn).since(ISS + 1) as usize;
        let mut at = start;
        for part in packet.payload.parts() {
            for &byte in part.iter() {
                assert_eq!(byte, pattern(at), "byte {at} of {}", show(&packet));
                at += 1;
            }
        }
        Some(packet)
    }

    /// The next packet is this one.
    #[track_caller]
    pub(crate) fn expect(&mut self, line: &str) -> Transmit {
        let want = Line::parse(line);
        let Some(packet) = self.next() else { panic!("nothing left, expected {line}") };
        let mut got = Line::parse(&show(&packet));
        got.ack = want.ack.and(got.ack);
        got.win = want.win.and(got.win);
        got.urg = want.urg.and(got.urg);
        assert_eq!(got, want, "{} left, expected {line}", show(&packet));
        packet
    }

    /// Nothing leaves now.
    #[track_caller]
    pub(crate) fn expect_nothing(&mut self) {
        let packet = self.next();
        assert!(packet.is_none(), "left: {}", packet.as_ref().map(show).unwrap_or_default());
    }

    /// Everything that leaves now, as lines.
    pub(crate) fn drain(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(packet) = self.next() {
            all.push(show(&packet).to_string());
            assert!(all.len() < 10_000, "output never ends");
        }
        all
    }

    /// It is `millis` after the start; timers on the way have fired.
    #[track_caller]
    pub(crate) fn at(&mut self, millis: u64) {
        let then = self.started + Duration::from_millis(millis);
        assert!(self.now <= then, "time does not run backwards");
        self.now = then;
        self.call(|conn, cx| conn.handle(cx, Input::Timeout));
    }

    /// Sleeps until the next deadline and returns the milliseconds since the start.
    #[track_caller]
    pub(crate) fn sleep(&mut self) -> u64 {
        self.now = self.conn.poll_timeout().expect("something is awaited");
        self.call(|conn, cx| conn.handle(cx, Input::Timeout));
        self.now.since(self.started).as_millis() as u64
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }
}
