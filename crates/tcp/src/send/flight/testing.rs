//! A sender that is nothing but the scoreboard, the controller and recovery, for traces.
//!
//! Numbers in traces are relative: 1 is the first byte of data, as in the scripts. The numbers on
//! the wire wrap within the first segments.

use std::format;
use std::string::String;
use std::vec::Vec;

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

use super::scoreboard::SentRange;
use super::view::TimerEffects;
use super::*;
use crate::context::Context;
use crate::counters::{Counter, Counters};
use crate::handshake::TimestampState;
use crate::segment::Below;
use crate::state::State;

/// The number before the first byte of data.
const ISS: SeqNum = SeqNum(u32::MAX - 2499);

pub(super) const MSS: u32 = 1000;

/// A connection with one segment size, a large window and SACK, and nothing outstanding.
pub(super) fn conn_view() -> ConnView {
    ConnView {
        state: State::Established,
        una: ISS + 1,
        nxt: ISS + 1,
        wnd: 65_536,
        max_wnd: 65_536,
        smss: MSS as u16,
        mss: MSS as u16,
        sack: true,
        mtu_probe: None,
        ts: TimestampState::new(0),
        ecn: false,
        unsent: 0,
        unsent_fin: false,
        urgent: false,
        pacing_delay: Nanos::ZERO,
        paced: false,
        writer_waits: false,
        most_ranges: 1024,
        peer: PeerView::default(),
    }
}

/// An ACK to come.
#[derive(Clone)]
pub(super) struct Ack {
    ack: u32,
    blocks: Vec<(u32, u32)>,
    tsecr: Option<u32>,
    window: Option<u32>,
    marks: Marks,
    text: bool,
    segs: u16,
}

/// One that acknowledges everything below `ack`.
pub(super) fn ack(ack: u32) -> Ack {
    Ack {
        ack,
        blocks: Vec::new(),
        tsecr: None,
        window: None,
        marks: Marks::None,
        text: false,
        segs: 1,
    }
}

impl Ack {
    pub(super) fn sack(mut self, left: u32, right: u32) -> Ack {
        self.blocks.push((left, right));
        self
    }

    pub(super) fn tsecr(self, tsecr: u32) -> Ack {
        Ack { tsecr: Some(tsecr), ..self }
    }

    pub(super) fn window(self, bytes: u32) -> Ack {
        Ack { window: Some(bytes), ..self }
    }

    pub(super) fn ece(self) -> Ack {
        Ack { marks: Marks::Echo, ..self }
    }

    pub(super) fn with_data(self) -> Ack {
        Ack { text: true, ..self }
    }

    pub(super) fn merged(self, segs: u16) -> Ack {
        Ack { segs, ..self }
    }
}

/// The sender.
pub(super) struct Sender {
    pub(super) config: Config,
    pub(super) counters: Counters,
    pub(super) conn: ConnView,
    pub(super) flight: Flight,
    pub(super) now: Instant,
    /// Packets up to this one have left the machine.
    pub(super) completed: Serial,
    pub(super) cwr: Option<Cwr>,
    /// The peer was given up.
    pub(super) gave_up: bool,
    next_serial: Serial,
    /// All rows that applied.
    rows: Vec<&'static str>,
}

/// One that has just opened, with SACK and a round trip of 100 ms, at 100 ms.
pub(super) fn sender() -> Sender {
    Sender::with(Config::default(), conn_view())
}

/// The same without SACK.
pub(super) fn sender_without_sack() -> Sender {
    Sender::with(Config::default(), ConnView { sack: false, ..conn_view() })
}

/// The same with timestamps, whose clock shows the milliseconds of the trace.
pub(super) fn sender_with_timestamps() -> Sender {
    let ts = TimestampState { enabled: true, ..TimestampState::new(0) };
    Sender::with(Config::default(), ConnView { ts, ..conn_view() })
}

/// The same with SACK and without probes.
pub(super) fn sender_without_probes() -> Sender {
    Sender::with(Config { tcp_early_retrans: 0, ..Config::default() }, conn_view())
}

impl Sender {
    pub(super) fn with(config: Config, conn: ConnView) -> Sender {
        let mut sender = Sender {
            flight: Flight::new(&config, &Options::default()),
            counters: Counters::new(),
            conn,
            now: Instant::from_millis(100),
            completed: Serial(u64::MAX),
            cwr: None,
            gave_up: false,
            next_serial: Serial(1),
            rows: Vec::new(),
            config,
        };
        let sample = (Some(Nanos::from_millis(100)), false);
        sender.call(|flight, cx, conn| flight.on_established(cx, conn, sample));
        sender
    }

    /// Calls recovery with all its arguments.
    pub(super) fn call<R>(
        &mut self,
        call: impl FnOnce(&mut Flight, &Context, &ConnView) -> R,
    ) -> R {
        let below = Below { completed: self.completed, completions: true, ..Below::default() };
        let cx = Context { now: self.now, below, config: &self.config, counters: &self.counters };
        let result = call(&mut self.flight, &cx, &self.conn);
        self.rows.append(&mut self.flight.rows);
        self.flight.check_invariants();
        result
    }

    /// The rows that have applied since the last call.
    pub(super) fn rows(&mut self) -> Vec<&'static str> {
        core::mem::take(&mut self.rows)
    }

    /// `millis` milliseconds pass.
    pub(super) fn wait(&mut self, millis: u64) {
        self.now += Nanos::from_millis(millis);
    }

    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// State, cwnd and ssthresh.
    pub(super) fn window(&self) -> (RecoveryState, u32, u32) {
        (self.flight.state(), self.flight.cc.cwnd(), self.flight.cc.ssthresh())
    }

    /// Milliseconds until the timer fires.
    pub(super) fn timer(&self) -> Option<(Waits, u128)> {
        let until = self.flight.deadline()?;
        Some((self.flight.waits_for()?, until.since(self.now).as_millis()))
    }

    pub(super) fn relative(&self, seq: SeqNum) -> u32 {
        seq.since(ISS)
    }

    /// The application writes, and the data that may leave does.
    pub(super) fn write(&mut self, bytes: u32) -> Vec<String> {
        self.conn.unsent += bytes;
        self.output()
    }

    /// An ACK comes. Departures are checked by [`output`](Self::output).
    pub(super) fn take(&mut self, ack: &Ack) -> AckEffects {
        let closed = self.conn.wnd == 0;
        let absolute = ISS + ack.ack;
        if let Some(window) = ack.window {
            self.conn.wnd = window;
            self.conn.max_wnd = self.conn.max_wnd.max(window);
        }
        let blocks: Vec<SackBlock> = ack
            .blocks
            .iter()
            .map(|&(left, right)| SackBlock { left: ISS + left, right: ISS + right })
            .collect();
        let view = AckView {
            ack: absolute,
            blocks: &blocks,
            tsecr: ack.tsecr,
            brings_window: self.conn.una < absolute || ack.window.is_some(),
            window_was_closed: closed,
            has_text: ack.text,
            marks: ack.marks,
            segs: ack.segs,
        };
        let effects = self.call(|flight, cx, conn| flight.on_ack(cx, conn, &view));
        self.conn.una = self.conn.una.max(absolute);
        self.cwr = effects.cwr.or(self.cwr);
        effects
    }

    /// An ACK comes, and the data that may leave does.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Vec<String> {
        self.take(ack);
        self.output()
    }

    /// Waits for the timer and lets it fire. Nothing leaves yet.
    pub(super) fn fire(&mut self) -> TimerEffects {
        let until = self.flight.deadline().expect("a timer runs");
        self.now = self.now.max(until);
        let effects = self.call(|flight, cx, conn| flight.on_timer(cx, conn));
        self.gave_up |= effects.give_up;
        effects
    }

    /// The same, and the data that may leave does.
    pub(super) fn on_timer(&mut self) -> Vec<String> {
        self.fire();
        self.output()
    }

    /// Sends the data that may leave: `R` lost data, `P` a probe of old data, `N` new data.
    pub(super) fn output(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        loop {
            while let Some(text) = self.retransmit() {
                left.push(text);
            }
            while let Some(text) = self.send_new() {
                left.push(text);
            }
            if !self.call(|flight, _, conn| flight.end_new_first(conn)) {
                break;
            }
        }
        self.call(|flight, cx, conn| flight.on_output_end(cx, conn, false));
        left
    }

    fn depart(&mut self, start: SeqNum, end: SeqNum) -> Departure {
        let serial = self.next_serial;
        self.next_serial.0 += 1;
        let fin = self.flight.board.outstanding().1
            && self.flight.board.back().is_some_and(|l| l.end == end);
        let (mss, departs) = (self.conn.smss, self.now + self.conn.pacing_delay);
        Departure { start, end, fin, mss, serial, departs }
    }

    fn retransmit(&mut self) -> Option<String> {
        // Small ranges that are joined may change pipe after it was read.
        let full = self.flight.cc.cwnd() <= self.flight.board.pipe();
        let next = self.call(|flight, cx, conn| flight.next_retransmission(cx, conn, 65_000));
        let (kind, start, end) = match next {
            NextRetransmission::None | NextRetransmission::Below => return None,
            NextRetransmission::Lost { start, end } => {
                let waits = |r: &SentRange| r.start == start && r.wants_retransmission();
                assert!(self.flight.board.iter().any(waits), "only what is lost leaves again");
                assert!(!full, "cwnd holds what is lost");
                assert!(
                    end <= self.flight.board.iter().find(|r| waits(r)).map_or(start, |r| r.end)
                );
                ('R', start, end)
            }
            NextRetransmission::Probe { start, end } => ('P', start, end),
        };
        let left = self.depart(start, end);
        self.call(|flight, cx, conn| flight.on_retransmitted(cx, conn, &left));
        Some(format!("{kind} {}:{}", self.relative(start), self.relative(end)))
    }

    fn send_new(&mut self) -> Option<String> {
        let quota = self.call(|flight, _, _| flight.new_data_quota());
        let end = self.conn.una + self.conn.wnd;
        let usable = if self.conn.nxt < end { end.since(self.conn.nxt) } else { 0 };
        let len = self.conn.unsent.min(quota.saturating_mul(MSS)).min(usable);
        (len > 0).then(|| {
            let probe = self.flight.due_probe() == Some(Probe::New);
            assert!(
                probe || self.flight.board.pipe() < self.flight.cc.cwnd(),
                "cwnd holds new data"
            );
            self.conn.unsent -= len;
            self.send_now(len)
        })
    }

    /// A packet of `len` bytes leaves, independently of cwnd.
    pub(super) fn send_now(&mut self, len: u32) -> String {
        let start = self.conn.nxt;
        let left = Departure { fin: false, ..self.depart(start, start + len) };
        self.conn.nxt += len;
        self.call(|flight, cx, conn| flight.on_new_data(cx, conn, &left));
        format!("N {}:{}", self.relative(left.start), self.relative(left.end))
    }

    /// A FIN leaves after the data.
    pub(super) fn send_fin(&mut self) {
        let start = self.conn.nxt;
        let left = Departure { fin: true, ..self.depart(start, start + 1) };
        self.conn.nxt += 1;
        self.call(|flight, cx, conn| flight.on_new_data(cx, conn, &left));
    }
}
