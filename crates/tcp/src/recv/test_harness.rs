//! A receive half without a connection, for tests. Sequence numbers are relative to the peer's ISN,
//! so that the first byte has number 1.

use std::vec::Vec;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{SackBlock, TcpFlags, TcpRepr};

use super::{AckDecision, RecvSide, Text, TextEffects, TextView};
use crate::config::{Config, Options};
use crate::context::Context;
use crate::counters::{Counter, Counters};
use crate::segment::{Below, Ecn, Segment};
use crate::testing::pattern;
use crate::time::{Instant, Nanos};

/// The peer's initial sequence number, so that numbers wrap early.
const IRS: SeqNum = SeqNum(u32::MAX - 2000);

/// The MSS that we announce.
const ADVMSS: u16 = 1000;

pub(super) struct Alone {
    pub(super) rcv: RecvSide,
    pub(super) now: Instant,
    pub(super) config: Config,
    pub(super) options: Options,
    pub(super) below: Below,
    pub(super) pool: Pool,
    pub(super) fin_may_wait: bool,
    counters: Counters,
}

impl Alone {
    /// One that has the peer's SYN, with SACK.
    pub(super) fn new(config: Config, options: Options) -> Alone {
        let mut rcv = RecvSide::new(&config, &options, ADVMSS);
        rcv.start(IRS);
        rcv.negotiate(7, true);
        Alone {
            rcv,
            now: Instant::ZERO + Nanos::from_secs(1),
            config,
            options,
            below: Below::default(),
            pool: Pool::new(),
            fin_may_wait: true,
            counters: Counters::new(),
        }
    }

    /// With the default settings.
    pub(super) fn open() -> Alone {
        Alone::new(Config::default(), Options::default())
    }

    /// RCV.NXT.
    pub(super) fn next(&self) -> u32 {
        self.rcv.nxt().since(IRS)
    }

    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// Calls `f` with a context.
    pub(super) fn with<T>(&mut self, f: impl FnOnce(&mut RecvSide, &Context) -> T) -> T {
        let Alone { now, below, ref config, ref counters, .. } = *self;
        f(&mut self.rcv, &Context { now, below, config, counters })
    }

    /// A segment with the bytes of the stream from `start` to `end`.
    pub(super) fn segment(&self, start: u32, end: u32) -> Segment {
        let data: Vec<u8> = (start..end).map(|at| pattern(at as usize)).collect();
        let repr = TcpRepr { seq: IRS + start, ..TcpRepr::default() };
        let payload = self.pool.copy_from(&data).into();
        Segment { repr, payload, segs: 1, ecn: Ecn::NotEct }
    }

    /// Its text arrives.
    pub(super) fn take(&mut self, mut segment: Segment) -> TextEffects {
        let Alone { now, below, ref config, ref counters, .. } = *self;
        let cx = Context { now, below, config, counters };
        let view = TextView {
            options: &self.options,
            pool: &self.pool,
            echo: None,
            srtt: Nanos::ZERO,
            rto: Nanos::from_secs(1),
            quick_acks: false,
            fin_may_wait: self.fin_may_wait,
        };
        let effects = self.rcv.on_text(&cx, &view, Text::of(&mut segment));
        self.rcv.check_invariants(true);
        effects
    }

    /// The bytes from `start` to `end` arrive in one segment.
    pub(super) fn recv(&mut self, start: u32, end: u32) -> TextEffects {
        self.take(self.segment(start, end))
    }

    /// A FIN after the bytes from `start` to `end`.
    pub(super) fn recv_fin(&mut self, start: u32, end: u32) -> TextEffects {
        let mut segment = self.segment(start, end);
        segment.repr.flags |= TcpFlags::FIN;
        self.take(segment)
    }

    /// The blocks of the next ACK, which leaves, and its acknowledgement number.
    pub(super) fn ack(&mut self) -> (u32, Vec<(u32, u32)>) {
        let block = |block: &SackBlock| (block.left.since(IRS), block.right.since(IRS));
        let blocks = self.rcv.sack_blocks().iter().map(block).collect();
        self.acknowledge();
        (self.next(), blocks)
    }

    /// An ACK leaves. Returns its window field.
    pub(super) fn acknowledge(&mut self) -> u16 {
        self.with(|rcv, cx| {
            let offer = rcv.next_window(cx);
            rcv.promise(cx, offer);
            rcv.on_ack_sent(cx);
            offer.field
        })
    }

    /// Reads all data, which must be the stream from `start` on.
    pub(super) fn read(&mut self, start: u32) -> usize {
        let mut out = [0; 1 << 17];
        let count = self.rcv.copy_out(&mut out, false);
        let good = |(at, &byte): (usize, &u8)| byte == pattern(start as usize + at);
        assert!(out[..count].iter().enumerate().all(good), "other bytes than were sent");
        count
    }

    pub(super) fn decision(&self) -> AckDecision {
        self.rcv.ack_decision()
    }
}
