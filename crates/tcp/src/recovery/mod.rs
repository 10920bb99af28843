//! Loss recovery: what is in flight, what is lost, and when to send it again.
//!
//! # Theory of operation
//!
//! Sent data lies in the retransmit queue, each range with its marks: SACKed, lost, sent again. An
//! ACK changes the marks (`input/ack.rs`, [`scoreboard`]); a timeout marks everything lost
//! ([`rto`]). Nothing is sent from here: output asks [`Connection::next_retransmit`] before it
//! looks at new data, and reports what left by [`Connection::on_retransmitted`].
//!
//! [`pipe`](Connection::pipe) is RFC 6675's estimate of the bytes in flight, kept as three sums.
//! The same formula serves connections without SACK: each duplicate ACK then stands for one
//! delivered segment (`reno_sacked`), which is what the window inflation of RFC 5681 and RFC 6582
//! amounts to, and gives limited transmit (RFC 3042) for nothing.
//!
//! Three phases. *Open*: no loss is known. *Recovery*: entered by duplicate ACKs or SACK; the
//! window was reduced once; it ends when `recover` is acknowledged. *Loss*: entered by a
//! timeout; everything not SACKed counts as lost and goes out again in slow start.
//!
//! What it does not do yet: RACK-TLP, PRR, undo of spurious recoveries. A retransmission that is
//! lost again is found by the timeout only.

pub(crate) mod rto;
pub(crate) mod rtt;
pub(crate) mod scoreboard;

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;

use crate::config::Config;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::segment::Serial;
use crate::send::retransmit_queue::SentRange;
use crate::state::State;
use crate::time::{Duration, Instant};
use crate::timer::Timer;
use rtt::Rtt;

/// How far the recovery of losses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No loss is known.
    Open,
    /// Fast recovery, until `recover` is acknowledged.
    Recovery,
    /// After a timeout, until `recover` is acknowledged.
    Loss,
}

/// The state of loss recovery.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// Round-trip time and the timeout that follows from it.
    pub(crate) rtt: Rtt,
    /// How far recovery is.
    pub(crate) phase: Phase,
    /// RFC 6582's `recover`, RFC 6675's RecoveryPoint: SND.MAX when the phase began.
    pub(crate) recover: SeqNum,
    /// Without SACK, no fast retransmit until more than `recover` is acknowledged.
    pub(crate) guarded: bool,
    /// Duplicate ACKs in a row.
    pub(crate) dupacks: u32,
    /// Without SACK: bytes that duplicate ACKs say have arrived.
    pub(crate) reno_sacked: u32,
    /// Exponent of the timer's backoff; window probes share it.
    pub(crate) backoff: u8,
    /// Timeouts since SND.UNA last moved.
    pub(crate) retries: u8,
    /// The next retransmission leaves whatever cwnd says.
    pub(crate) force: bool,
    /// The rescue retransmission of this recovery has left (RFC 6675, NextSeg rule 4).
    pub(crate) rescued: bool,
    /// When the first retransmission since SND.UNA last moved was due.
    pub(crate) retrying_since: Option<Instant>,
    /// The packet that was last found to be below us still when it was to be sent again, so that
    /// it is counted once.
    pub(crate) found_below: Serial,
    /// When data last left.
    pub(crate) last_sent: Instant,
}

impl Recovery {
    pub(crate) fn new(_config: &Config) -> Recovery {
        Recovery {
            rtt: Rtt::new(),
            phase: Phase::Open,
            recover: SeqNum(0),
            guarded: false,
            dupacks: 0,
            reno_sacked: 0,
            backoff: 0,
            retries: 0,
            force: false,
            rescued: false,
            retrying_since: None,
            found_below: Serial(0),
            last_sent: Instant::ZERO,
        }
    }

    /// Bytes of heap held.
    pub(crate) const fn heap_bytes(&self) -> usize {
        0
    }
}

impl Connection {
    /// The handshake is complete and `snd.mss` known. `rtt` is its round trip, unless ambiguous.
    pub(crate) fn on_handshake_done(
        &mut self,
        cx: &Context,
        rtt: Option<Duration>,
        syn_retransmitted: bool,
    ) {
        self.cc.on_established(u32::from(self.snd.mss), syn_retransmitted, cx.config);
        match rtt {
            Some(rtt) => {
                let bounds = (self.snd.una, self.snd.nxt);
                self.recovery.rtt.on_sample(rtt, cx.now, bounds, cx.config);
            }
            // Also if nobody knows how long it took: data starts as carefully then.
            None => self.recovery.rtt.on_syn_lost(),
        }
        self.recovery.recover = self.snd.una;
        self.recovery.last_sent = cx.now;
    }

    /// `snd.mss` has changed. If packets in flight are too big for the path now, they will not
    /// arrive: they are sent again at once, and this says nothing about congestion (Linux:
    /// `tcp_simple_retransmit`).
    pub(crate) fn on_mss_changed(&mut self, _cx: &Context, too_big: bool) {
        self.cc.set_mss(u32::from(self.snd.mss));
        if !too_big {
            return;
        }
        if !self.snd.rtx.mark_lost_above_mss(self.snd.mss) || self.recovery.phase != Phase::Open {
            return;
        }
        self.recovery.phase = Phase::Recovery;
        self.recovery.recover = self.snd.max;
        self.recovery.force = true;
        self.recovery.rescued = false;
    }

    /// To be asked before new data is gated: slow start after idle (RFC 5681, section 4.1).
    pub(crate) fn restart_after_idle(&mut self, cx: &Context) {
        if !self.snd.rtx.is_empty() {
            return;
        }
        self.cc.on_start(cx.now);
        if !cx.config.tcp_slow_start_after_idle {
            return;
        }
        let idle = cx.now.since(self.recovery.last_sent);
        let rto = self.recovery.rtt.rto(cx.config);
        if idle > rto {
            self.cc.on_idle_restart(idle, rto);
            self.recovery.last_sent = cx.now;
        }
    }

    /// New data or a FIN, `[start, end)`, has left in the packet `serial`. `end` is one beyond the
    /// data if a FIN left with it.
    pub(crate) fn on_data_sent(
        &mut self,
        cx: &Context,
        start: SeqNum,
        end: SeqNum,
        serial: Serial,
        data: &Slices,
    ) {
        let range = SentRange {
            start,
            end,
            sent_at: cx.now,
            serial,
            mss: self.snd.segment_size(),
            retransmissions: 0,
            sacked: false,
            lost: false,
            resent: false,
            push: false,
        };
        self.snd.rtx.on_sent(range, data);
        self.recovery.last_sent = cx.now;
        if !self.timers.is_armed(Timer::Retransmit) {
            self.arm_retransmit(cx);
        }
    }

    /// `[start, end)`, which [`next_retransmit`](Self::next_retransmit) gave (or a front part of
    /// it), has left again.
    pub(crate) fn on_retransmitted(
        &mut self,
        cx: &Context,
        start: SeqNum,
        end: SeqNum,
        serial: Serial,
    ) {
        let mss = self.snd.segment_size();
        let index = self.snd.rtx.index_of(start);
        let guess = self.snd.rtx.ranges.get(index).is_some_and(|range| !range.lost);
        self.recovery.rescued |= guess && self.snd.rtx.highest_sacked <= start;
        self.snd.rtx.on_resent((start, end), cx.now, serial, mss);
        let segs = u64::from(end.since(start).div_ceil(u32::from(mss.max(1))));
        match self.recovery.phase {
            Phase::Loss => cx.counters.add(Counter::TcpSlowStartRetrans, segs),
            _ => cx.counters.add(Counter::TcpFastRetrans, segs),
        }
        self.recovery.force = false;
        self.recovery.last_sent = cx.now;
        self.recovery.retrying_since.get_or_insert(cx.now);
        if start == self.snd.una || !self.timers.is_armed(Timer::Retransmit) {
            self.arm_retransmit(cx);
        }
    }

    /// The range to send again now, within cwnd and the peer's window. Its bytes are
    /// `snd.rtx.payload(start, end)`, which may be fewer.
    pub(crate) fn next_retransmit(&mut self, cx: &Context) -> Option<(SeqNum, SeqNum)> {
        let range = self.retransmission_candidate(cx)?;
        if cx.below.completed < range.serial {
            self.note_below(cx, range.serial);
            return None;
        }
        let mss = self.snd.effective_mss();
        let quota =
            if self.recovery.force { self.cwnd_quota().max(mss) } else { self.cwnd_quota() };
        if quota < range.len().min(mss) {
            return None;
        }
        // One segment may always leave, and with the largest MTU it is longer than a super-segment.
        let largest = self.largest_packet(cx.config).max(mss);
        let mut len = range.len().min(quota).min(largest);
        if self.snd.una < range.start || self.snd.wnd > 0 {
            let edge = self.snd.una + self.snd.wnd;
            if edge <= range.start {
                return None;
            }
            len = len.min(edge.since(range.start));
        } else {
            // The peer has closed its window over data it was sent: one segment asks for more.
            len = len.min(mss);
        }
        if mss < len && len < range.len() {
            len -= len % mss;
        }
        Some((range.start, range.start + len))
    }

    /// The last copy of what is to be sent again has not even left this machine.
    fn note_below(&mut self, cx: &Context, serial: Serial) {
        if self.recovery.found_below != serial {
            self.recovery.found_below = serial;
            cx.counters.bump(Counter::TcpSpuriousRtxHostQueues);
        }
    }

    /// NextSeg of RFC 6675: what is lost; if no new data may leave, what lies below the highest
    /// SACKed number; at last one segment at the end, so that the ACKs do not dry up, but not
    /// before its own ACK could have come.
    fn retransmission_candidate(&self, cx: &Context) -> Option<SentRange> {
        let rtx = &self.snd.rtx;
        if let Some(range) = rtx.first_lost() {
            return Some(range);
        }
        if self.recovery.phase != Phase::Recovery || rtx.sacked() == 0 || self.has_new_data() {
            return None;
        }
        if let Some(range) = rtx.first_guess() {
            return Some(range);
        }
        let last = *rtx.ranges.back()?;
        let late = cx.now.since(last.sent_at) > self.recovery.rtt.srtt().unwrap_or_default();
        (late && !self.recovery.rescued && !last.sacked && !last.resent).then(|| {
            let start = last.end - last.len().min(self.snd.effective_mss());
            SentRange { start, ..last }
        })
    }

    /// Whether unsent data lies within the peer's window.
    fn has_new_data(&self) -> bool {
        self.unsent_len() > 0 && self.snd.nxt < self.snd.una + self.snd.wnd
    }

    /// RFC 6675's pipe: bytes taken to be in flight.
    pub(crate) fn pipe(&self) -> u32 {
        let rtx = &self.snd.rtx;
        let gone = rtx.sacked() + rtx.lost() + self.recovery.reno_sacked;
        (rtx.in_queue() + rtx.retransmitted()).saturating_sub(gone)
    }

    /// Bytes that cwnd lets go now. Limited transmit (RFC 3042) is part of it: what duplicate ACKs
    /// say has arrived is not in the pipe.
    pub(crate) fn cwnd_quota(&self) -> u32 {
        self.cc.cwnd().saturating_sub(self.pipe())
    }

    /// Checks what must hold between two calls.
    pub(crate) fn check_recovery_invariants(&self) {
        self.snd.rtx.check_invariants();
        self.cc.check_invariants();
        let rtx = &self.snd.rtx;
        if let Some(first) = rtx.front() {
            // While our SYN is not acknowledged, it stands before the data.
            let opening = matches!(self.state, State::SynSent | State::SynReceived);
            let una = self.snd.una + u32::from(opening && self.snd.una == self.snd.iss);
            assert_eq!(first.start, una, "the retransmit queue begins at SND.UNA");
            assert_eq!(rtx.end(), self.snd.max, "the retransmit queue ends at SND.MAX");
            assert!(self.timers.is_armed(Timer::Retransmit), "data in flight has a timer");
        }
        assert!(self.recovery.reno_sacked <= rtx.in_queue(), "more arrived than was sent");
    }
}
