//! Loss recovery: what is in flight, what is lost, and when to send it again.
//!
//! # Theory of operation
//!
//! What was sent is in the scoreboard (`send/scoreboard/`), each range with its marks: SACKed,
//! lost, sent again. An ACK changes the marks (`input/ack.rs`); time says what is lost ([`rack`]),
//! or a timeout does ([`rto`]). Nothing is sent from here: output asks
//! [`Connection::next_retransmit`] before it looks at new data, and reports what left by
//! [`Connection::on_retransmitted`].
//!
//! [`pipe`](Connection::pipe) is the number of segments in flight. Everything that counts against
//! the congestion window counts segments, as on Linux. Without SACK each duplicate ACK stands for
//! one delivered segment, which is what the window inflation of RFC 5681 and RFC 6582 amounts to,
//! and needs no rule of its own for limited transmit (RFC 3042).
//!
//! [`states`] holds the phases. *Open*: all is well. *Disorder*: something is out of order, and it
//! is not known whether anything is lost. *Cwr*: the window is reduced, because ECN or a tail loss
//! probe ([`tlp`]) said so. *Recovery*: something is lost. Both reduce the window step by step
//! ([`prr`]). *Loss*: a timeout; what was not SACKed goes out again in slow start. A reduction that
//! turns out to have been for nothing is undone ([`spurious`]).
//!
//! One timer waits for the retransmission timeout, the tail loss probe, or the reordering window,
//! whichever is due: [`XmitTimer`] tells which.

pub(crate) mod judge;
pub(crate) mod prr;
pub(crate) mod rack;
mod reordering;
pub(crate) mod rto;
pub(crate) mod rtt;
pub(crate) mod spurious;
pub(crate) mod states;
pub(crate) mod tlp;
mod windowed_min;

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;

use crate::config::Config;
use crate::congestion::Event;
use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::send::scoreboard::{Resent, SentRange, SentState};
use crate::serial::Serial;
use crate::state::State;
use crate::time::{Duration, Instant};
use crate::timer::Timer;
use prr::Prr;
use rack::Rack;
use rtt::Rtt;
use spurious::Undo;
use tlp::{Probe, Tlp};

/// How far the recovery of losses is: TCP_CA_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No loss is known, and nothing is out of order.
    Open,
    /// Duplicates or SACK: something may be lost.
    Disorder,
    /// The window is reduced without a loss.
    Cwr,
    /// Fast recovery, until `high_seq` is acknowledged.
    Recovery,
    /// After a timeout, until `high_seq` is acknowledged.
    Loss,
}

/// What [`Timer::Retransmit`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XmitTimer {
    /// The retransmission timeout.
    Rto,
    /// A tail loss probe.
    LossProbe,
    /// The end of RACK's reordering window.
    Reordering,
}

/// What may leave before new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rexmit {
    /// What is lost.
    Lost,
    /// F-RTO: new data first; if there is none, what is lost.
    New,
    /// Only new data, until the next ACK.
    Nothing,
}

/// The state of loss recovery.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// Round-trip time and the timeout that follows from it.
    pub(crate) rtt: Rtt,
    /// How far recovery is.
    pub(crate) phase: Phase,
    /// What the timer waits for.
    pub(crate) xmit_timer: XmitTimer,
    /// What may leave before new data.
    pub(crate) rexmit: Rexmit,
    /// F-RTO is trying whether the timeout was spurious.
    pub(crate) frto: bool,
    /// Exponent of the timer's backoff; window probes share it.
    pub(crate) backoff: u8,
    /// Timeouts since SND.UNA last moved.
    pub(crate) retries: u8,
    /// SND.NXT when the phase began (RFC 6582: `recover`, RFC 6675: RecoveryPoint).
    pub(crate) high_seq: SeqNum,
    /// As many segments as may overtake another one without its being lost.
    pub(crate) reordering: u16,
    /// Segments of new data that left since output last came to its end.
    burst: u16,
    /// Data was held back because cwnd let too little of it go.
    pub(crate) cwnd_limited: bool,
    /// How often something arrived late.
    pub(crate) reord_seen: u32,
    /// What of the scoreboard's `relost_ever` the counters have.
    relost_counted: u32,
    /// The proportional rate reduction.
    pub(crate) prr: Prr,
    /// What is lost by time.
    pub(crate) rack: Rack,
    /// The tail loss probe.
    pub(crate) tlp: Tlp,
    /// What an undo needs.
    pub(crate) undo: Undo,
    /// The timestamp that the last ACK echoed.
    pub(crate) echo: Option<u32>,
    /// When the first retransmission since SND.UNA last moved was due.
    pub(crate) retrying_since: Option<Instant>,
    /// The packet that was last found to be below us still when it was to be sent again, so that
    /// it is counted once.
    pub(crate) found_below: Serial,
    /// What is to be sent again next is below us still.
    pub(crate) waits_below: bool,
    /// When data last left.
    pub(crate) last_sent: Instant,
}

impl Recovery {
    pub(crate) fn new(config: &Config) -> Recovery {
        Recovery {
            rtt: Rtt::new(),
            phase: Phase::Open,
            xmit_timer: XmitTimer::Rto,
            rexmit: Rexmit::Lost,
            frto: false,
            backoff: 0,
            retries: 0,
            high_seq: SeqNum(0),
            reordering: u16::from(config.tcp_reordering).max(1),
            burst: 0,
            cwnd_limited: false,
            reord_seen: 0,
            relost_counted: 0,
            prr: Prr::default(),
            rack: Rack::new(),
            tlp: Tlp::default(),
            undo: Undo::default(),
            echo: None,
            retrying_since: None,
            found_below: Serial(0),
            waits_below: false,
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
        syn_lost: bool,
    ) {
        self.cc.on_established(cx.now, self.snd.nxt, syn_lost, cx.config);
        match rtt {
            Some(rtt) => {
                let bounds = (self.snd.una, self.snd.nxt);
                self.recovery.rtt.on_sample(rtt, rtt, cx.now, bounds, cx.config);
            }
            // Also if nobody knows how long it took: data starts as carefully then.
            None => self.recovery.rtt.on_syn_lost(),
        }
        self.recovery.high_seq = self.snd.una;
        self.recovery.last_sent = cx.now;
    }

    /// `snd.mss` has changed. If packets in flight are too big for the path now, they will not
    /// arrive: they are sent again at once, and this says nothing about congestion (Linux:
    /// `tcp_simple_retransmit`).
    pub(crate) fn on_mss_changed(&mut self, cx: &Context, too_big: bool) {
        self.cc.on_event(Event::Mss(self.snd.mss));
        if !too_big || !self.snd.scoreboard.mark_lost_above_mss(self.snd.mss) {
            return;
        }
        self.enter_loss_without_congestion(cx);
    }

    /// To be asked before new data is gated: slow start after idle (RFC 5681, section 4.1).
    pub(crate) fn restart_after_idle(&mut self, cx: &Context) {
        if !self.snd.scoreboard.is_empty() || !cx.config.tcp_slow_start_after_idle {
            return;
        }
        let idle = cx.now.since(self.recovery.last_sent);
        let rto = self.recovery.rtt.rto(cx.config);
        if idle > rto {
            self.cc.on_event(Event::Idle { now: cx.now, idle, rto });
            self.recovery.last_sent = cx.now;
        }
    }

    /// New data or a FIN, `[start, end)`, has left in the packet `serial`, which departs at
    /// `sent_at`. `end` is one beyond the data if a FIN left with it.
    pub(crate) fn on_data_sent(
        &mut self,
        cx: &Context,
        start: SeqNum,
        end: SeqNum,
        (serial, sent_at): (Serial, Instant),
        data: &Slices,
    ) {
        let range = SentRange {
            start,
            end,
            sent_at,
            serial,
            mss: self.snd.segment_size(),
            retransmissions: 0,
            sacked: false,
            lost: false,
            resent: false,
            push: false,
            fin: end.since(start) as usize > data.len(),
            eor: false,
            delivered: self.stats.delivered,
            state: SentState::default(),
        };
        let prior = (self.pipe(), self.recovery.last_sent);
        let first = self.snd.scoreboard.is_empty();
        self.recovery.burst = self.recovery.burst.saturating_add(range.segs() as u16);
        self.snd.scoreboard.on_sent(range);
        self.snd.rtx.on_sent(start, data);
        self.tell_sent(cx, sent_at, range.segs(), prior, false);
        self.recovery.last_sent = cx.now;
        if self.recovery.tlp.due == Some(Probe::New) {
            self.on_probe_sent(cx, false);
        }
        let probing = self.recovery.xmit_timer == XmitTimer::LossProbe;
        if first || probing || !self.timers.is_armed(Timer::Retransmit) {
            self.rearm_rto(cx);
        }
    }

    /// Nothing more leaves now: what this burst says about the use of the window, and a probe in
    /// case that nothing comes back.
    pub(crate) fn end_burst(&mut self, cx: &Context) {
        let sent = u32::from(core::mem::take(&mut self.recovery.burst));
        self.recovery.tlp.due = None;
        let full =
            core::mem::take(&mut self.recovery.cwnd_limited) || self.pipe() >= self.cc.cwnd();
        if sent == 0 && !(full && self.snd.has_unsent()) {
            return;
        }
        let bounds = (self.snd.una, self.snd.nxt);
        self.cc.validate(full, self.snd.scoreboard.packets_out(), bounds);
        if self.cc.is_starving(cx.now, self.recovery.rto(cx.config)) {
            let may_shrink = cx.config.tcp_slow_start_after_idle
                && self.recovery.phase == Phase::Open
                && !self.snd.nospace;
            self.cc.on_application_limited(may_shrink, cx.now);
        }
        if sent > 0 {
            if self.in_reduction() {
                self.recovery.prr.on_sent(sent);
            }
            if self.recovery.tlp.end != Some(self.snd.nxt) {
                self.schedule_loss_probe(cx, false);
            }
        }
    }

    /// `[start, end)`, which [`next_retransmit`](Self::next_retransmit) gave (or a front part of
    /// it), has left again.
    pub(crate) fn on_retransmitted(
        &mut self,
        cx: &Context,
        start: SeqNum,
        end: SeqNum,
        (serial, sent_at): (Serial, Instant),
    ) {
        let prior = (self.pipe(), self.recovery.last_sent);
        self.recovery.last_sent = cx.now;
        self.recovery.retrying_since.get_or_insert(cx.now);
        let probe = matches!(self.recovery.tlp.due, Some(Probe::Last(_)));
        let segs = self.snd.scoreboard.on_resent(&Resent {
            start,
            end,
            sent_at,
            serial,
            mss: self.snd.segment_size(),
            delivered: self.stats.delivered,
            counted: !probe,
        });
        self.tell_sent(cx, sent_at, segs, prior, true);
        if probe {
            self.on_probe_sent(cx, true);
            return;
        }
        self.recovery.undo.on_retransmitted(segs, cx.now);
        match self.recovery.phase {
            Phase::Loss => cx.counters.add(Counter::TcpSlowStartRetrans, segs.into()),
            _ => cx.counters.add(Counter::TcpFastRetrans, segs.into()),
        }
        if self.in_reduction() {
            self.recovery.prr.on_sent(segs);
        }
        let reordering = self.recovery.xmit_timer == XmitTimer::Reordering;
        let armed = self.timers.is_armed(Timer::Retransmit);
        if (start == self.snd.una && !reordering) || !armed {
            self.arm_retransmit(cx);
        }
    }

    /// The range to send again now, within cwnd and the peer's window. Its bytes are
    /// `snd.rtx.payload(start, end)`, which may be fewer.
    pub(crate) fn next_retransmit(&mut self, cx: &Context) -> Option<(SeqNum, SeqNum)> {
        self.recovery.waits_below = false;
        let mss = self.snd.effective_mss();
        if let Some(Probe::Last(start)) = self.recovery.tlp.due {
            let end = self.snd.max;
            return (self.snd.una <= start && start < end).then_some((start, end));
        }
        if self.recovery.rexmit != Rexmit::Lost {
            return None;
        }
        let mut range = self.snd.scoreboard.first_lost()?;
        if cx.below.completed < range.serial {
            self.note_below(cx, range.serial);
            return None;
        }
        let quota = self.cwnd_quota();
        if quota == 0 {
            return None;
        }
        if range.data_len() < mss && self.snd.urgent().is_none() {
            range = self.join_small(cx, range, mss);
        }
        // One segment may always leave, and with the largest MTU it is longer than a super-segment.
        let largest = self.largest_packet(cx.config).max(mss);
        let data = range.data_len();
        let mut len = data.min(quota).min(largest);
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
        if len == data {
            return Some((range.start, range.end));
        }
        if mss < len {
            len -= len % mss;
        }
        Some((range.start, range.start + len))
    }

    /// What is less than a segment leaves again together with what follows it.
    fn join_small(&mut self, cx: &Context, range: SentRange, mss: u32) -> SentRange {
        let edge = self.snd.una + self.snd.wnd;
        if edge <= range.start {
            return range;
        }
        let room = mss.min(edge.since(range.start));
        self.snd.scoreboard.collapse(range.start, room, cx.below.completed).unwrap_or(range)
    }

    /// F-RTO let new data go first. Returns whether there was none, so that what is lost leaves.
    pub(crate) fn end_new_first(&mut self) -> bool {
        if self.recovery.rexmit != Rexmit::New {
            return false;
        }
        let none = self.snd.nxt <= self.recovery.high_seq;
        self.recovery.frto &= !none;
        self.recovery.rexmit = if none { Rexmit::Lost } else { Rexmit::Nothing };
        none
    }

    /// The last copy of what is to be sent again has not even left this machine.
    pub(crate) fn note_below(&mut self, cx: &Context, serial: Serial) {
        self.recovery.waits_below = true;
        if self.recovery.found_below != serial {
            self.recovery.found_below = serial;
            cx.counters.bump(Counter::TcpSpuriousRtxHostQueues);
        }
    }

    /// Whether unsent data lies within the peer's window.
    fn has_new_data(&self) -> bool {
        self.unsent_len() > 0 && self.snd.nxt < self.snd.una + self.snd.wnd
    }

    /// Segments taken to be in flight.
    pub(crate) fn pipe(&self) -> u32 {
        self.snd.scoreboard.pipe()
    }

    /// Bytes that cwnd lets go now: whole segments. Limited transmit (RFC 3042) is part of it: what
    /// duplicate ACKs say has arrived is not in the pipe.
    pub(crate) fn cwnd_quota(&self) -> u32 {
        let segs = self.cc.cwnd().saturating_sub(self.pipe());
        let probe = self.recovery.tlp.due == Some(Probe::New);
        segs.max(u32::from(probe)).saturating_mul(self.snd.effective_mss())
    }

    /// The congestion window in bytes.
    pub(crate) fn cwnd_bytes(&self) -> u32 {
        self.cc.cwnd().saturating_mul(self.snd.effective_mss())
    }

    /// Whether what leaves now is a tail loss probe with new data.
    pub(crate) fn is_probing_with_new_data(&self) -> bool {
        self.recovery.tlp.due == Some(Probe::New) || self.recovery.rexmit == Rexmit::New
    }

    /// Checks what must hold between two calls.
    pub(crate) fn check_recovery_invariants(&self) {
        self.snd.scoreboard.check_invariants();
        self.cc.check_invariants();
        let scoreboard = &self.snd.scoreboard;
        if let Some(first) = scoreboard.front() {
            // While our SYN is not acknowledged, it stands before the data.
            let opening = matches!(self.state, State::SynSent | State::SynReceived);
            let una = self.snd.una + u32::from(opening && self.snd.una == self.snd.iss);
            assert_eq!(first.start, una, "the scoreboard begins at SND.UNA");
            assert_eq!(
                first.start + scoreboard.outstanding().0,
                self.snd.max,
                "and ends at SND.MAX"
            );
            assert!(self.timers.is_armed(Timer::Retransmit), "data in flight has a timer");
        }
    }
}
