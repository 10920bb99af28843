//! Output: the only place from which anything leaves.
//!
//! # Theory of operation
//!
//! [`Connection::poll_transmit`] asks in one fixed order what may leave, and returns one packet
//! at a time:
//!
//! 1. a reset;
//! 2. a SYN or SYN-ACK;
//! 3. a challenge ACK, or a duplicate ACK that the peer must be able to count;
//! 4. what recovery wants sent again;
//! 5. new data and the FIN, through the [`gate`];
//! 6. a window probe or a keepalive probe;
//! 7. a pure ACK, if one is due and nothing above took it along.
//!
//! Every packet with ACK takes the acknowledgement and the window along and so settles what the
//! receiver had recorded. A connection that is held says by what ([`Connection::hold`]); whatever
//! ends the hold is an event after which the caller polls again.

mod autocork;
mod build;
mod cork;
mod cwnd;
mod explain;
pub(crate) mod gate;
mod nagle;
mod pacing;
mod rwnd;
mod silly_window;
pub(crate) mod situation;
mod small_queue;
pub(crate) mod tso_defer;
mod tso_size;
pub(crate) mod tso_tail;

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::connection::{Connection, Context};
use crate::counters::Counter;
use crate::limits::MAX_SUPER_SEGMENT;
use crate::segment::{SendKind, Transmit};
use crate::send::Fin;
use crate::send::limited::Limit;
use crate::send::memory;
use crate::send::segmentation::most_whole;
use crate::state::State;
use crate::timer::Timer;
use crate::why::Causes;
use build::Parts;
pub use gate::Hold;
use situation::Situation;
use small_queue::{HostQueue, small_queue_holds};
use tso_defer::{Deferral, Limiter, tso_defer_holds};

impl Connection {
    /// The next packet that leaves now, if one does. Call until it returns `None`.
    pub fn poll_transmit(&mut self, cx: &Context) -> Option<Transmit> {
        self.debug_invariants();
        let packet = self.next_packet(cx);
        self.debug_invariants();
        packet
    }

    /// The device is done with something that was below us; `cx.below` says what is left. What was
    /// left to this moment is left no longer, but the gate decides about it as about anything else.
    /// The caller polls.
    pub(crate) fn handle_completion(&mut self, cx: &Context) {
        self.debug_invariants();
        self.causes.add(Causes::COMPLETION);
        self.snd.written = false;
        if cx.below.completions && self.awaits_completion() {
            // MSG_MORE binds the push of its own write only.
            self.snd.more = false;
        }
    }

    /// Whether the connection waits for a completion, so that
    /// [`Input::Completion`](crate::Input::Completion) must be told after one: data is held by
    /// [`Hold::Autocork`] or [`Hold::SmallQueue`], or what shall be sent again is still below us.
    pub fn awaits_completion(&self) -> bool {
        let held = matches!(self.last_hold, Some(Hold::Autocork | Hold::SmallQueue));
        held || (self.recovery.waits_below && !self.snd.scoreboard.is_empty())
    }

    /// What holds the data that waits, if anything does.
    pub fn hold(&self) -> Option<Hold> {
        self.last_hold
    }

    fn next_packet(&mut self, cx: &Context) -> Option<Transmit> {
        if let Some(rst) = self.pending.rst.take() {
            return Some(self.build_rst(cx, rst));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived => {
                if let Some((repr, kind)) = self.take_syn(cx) {
                    return Some(self.count_syn(cx, repr, kind));
                }
            }
            _ => {}
        }
        if self.state == State::SynSent {
            return None;
        }
        if core::mem::take(&mut self.pending.challenge_ack) {
            return Some(self.build_bare(cx, self.snd.acceptable_seq(), SendKind::ChallengeAck));
        }
        if self.rcv.dup_ack_due() {
            return Some(self.build_ack(cx));
        }
        if (self.state != State::SynReceived || self.is_early())
            && let Some(packet) = self.send_data(cx)
        {
            return Some(packet);
        }
        if self.rcv.ack_due(cx.now).is_some() {
            return Some(self.build_ack(cx));
        }
        self.snd.was_idle = None;
        self.snd.short_write = false;
        if core::mem::take(&mut self.snd.cut_leaving) {
            self.snd.units.settle();
        }
        self.end_output(cx);
        self.end_burst(cx);
        self.release_if_idle();
        self.wake_writer(cx);
        None
    }

    /// Steps 4 to 6.
    fn send_data(&mut self, cx: &Context) -> Option<Transmit> {
        let mut held = None;
        if !self.snd.scoreboard.is_empty() && !self.is_early() {
            match self.retransmit(cx) {
                Ok(None) => {}
                Ok(packet) => return packet,
                Err(hold) => held = Some(hold),
            }
        }
        if let Some(hold) = held {
            // New data does not overtake what is lost.
            self.note_hold(cx, hold);
        } else if !self.snd.queue.is_empty() || self.fin_is_due() {
            if let Some(packet) = self.send_new(cx) {
                return Some(packet);
            }
        } else if self.last_hold.is_some() {
            self.end_hold(cx);
        }
        if self.end_new_first() {
            match self.retransmit(cx) {
                Ok(None) => {}
                Ok(packet) => return packet,
                Err(hold) => self.note_hold(cx, hold),
            }
        }
        let before_window = self.snd.una - 1;
        if core::mem::take(&mut self.pending.window_probe) {
            cx.counters.bump(Counter::TcpWinProbe);
            return Some(self.build_bare(cx, before_window, SendKind::WindowProbe));
        }
        if core::mem::take(&mut self.pending.keepalive) {
            return Some(self.build_bare(cx, before_window, SendKind::Keepalive));
        }
        None
    }

    /// Sends again what recovery asks for, unless something holds it.
    fn retransmit(&mut self, cx: &Context) -> Result<Option<Transmit>, Hold> {
        let Some((start, end)) = self.next_retransmit(cx) else { return Ok(None) };
        if let Some(hold) = self.retransmission_held(cx, end.since(start)) {
            return Err(hold);
        }
        let probe = self.recovery.tlp.due.is_some();
        let mut packet = self.send_again(cx, start, end);
        if self.explains(cx) {
            self.explain_again(cx, probe, &mut packet);
        }
        Ok(Some(packet))
    }

    /// What holds a packet of `len` bytes that is sent again. Nothing holds a tail loss probe.
    fn retransmission_held(&self, cx: &Context, len: u32) -> Option<Hold> {
        if self.recovery.tlp.due.is_some() {
            None
        } else if self.pacing_holds(cx) {
            Some(Hold::Pacing)
        } else {
            let below = self.host_queue(cx, self.pacing_rate(cx.config));
            small_queue_holds(&below, len, true).then_some(Hold::SmallQueue)
        }
    }

    /// Sends `[start, end)` again, or a front part of it.
    fn send_again(&mut self, cx: &Context, start: SeqNum, mut end: SeqNum) -> Transmit {
        let mss = self.snd.effective_mss();
        if self.snd.urgent().is_some_and(|up| start < up) {
            // The urgent pointer is right for one wire segment only.
            end = end.min(start + mss);
        }
        let data_end = self.snd.scoreboard.data_end();
        let wanted = end.min(data_end).max(start).since(start);
        let mut payload = self.snd.rtx.payload(start, start + wanted);
        let held = payload.len() as u32;
        let mut fin = data_end < end;
        if held < wanted {
            // More slices than a packet holds; the rest follows in the next one.
            fin = false;
            let whole = if held > mss { held - held % mss } else { held };
            payload.truncate(whole as usize);
        }
        let len = payload.len() as u32;
        debug_assert!(len > 0 || fin, "an empty retransmission");
        end = start + len + u32::from(fin);
        let flags = if fin { TcpFlags::ACK | TcpFlags::FIN } else { TcpFlags::ACK };
        let pushed = self.snd.scoreboard.is_pushed(end - u32::from(fin));
        let flags = if len > mss || pushed { flags | TcpFlags::PSH } else { flags };
        let parts = Parts { seq: start, flags, payload, mss, kind: SendKind::Retransmit };
        let packet = self.build_data(cx, parts);
        let segs = u64::from(packet.segs);
        cx.counters.add(Counter::RetransSegs, segs);
        self.stats.bytes_retrans += u64::from(len);
        self.stats.total_retrans = self.stats.total_retrans.saturating_add(packet.segs.into());
        if let Some(serial) = packet.serial {
            self.on_retransmitted(cx, start, end, (serial, packet.departure));
        }
        packet
    }

    /// Sends new data, and the FIN behind the last of it, if the gate lets them go.
    fn send_new(&mut self, cx: &Context) -> Option<Transmit> {
        if self.snd.usable_window() > 0 {
            self.restart_after_idle(cx);
        }
        let idle = !self.has_unacked();
        self.snd.was_idle.get_or_insert(idle);
        let rate = self.pacing_rate(cx.config);
        let largest = self.largest_at(rate, cx.config);
        let quota =
            most_whole(self.snd.effective_mss(), self.cwnd_bytes(), self.cwnd_quota(), largest);
        self.snd.units.top_up(self.snd.nxt, quota);
        let now = self.situation(cx, largest, rate);
        let asked = gate::ask(&now);
        let deferred = asked.err().filter(|&hold| hold == Hold::TsoDefer);
        let limiter = deferred.and_then(|_| tso_defer_holds(&now));
        self.recovery.cwnd_limited |= limiter == Some(Limiter::Cwnd);
        let rwnd = matches!(asked, Err(Hold::Rwnd | Hold::SillyWindow));
        self.time_rwnd(cx, rwnd || limiter == Some(Limiter::Rwnd));
        match asked {
            Ok(len) => {
                let released = self.end_hold(cx);
                let mut packet = self.send_cut(cx, &now, len);
                if self.explains(cx) {
                    self.explain_new(cx, &now, released, &mut packet);
                }
                self.writes = 0;
                Some(packet)
            }
            Err(hold) => {
                self.note_hold(cx, hold);
                None
            }
        }
    }

    /// What lies below, and how much may.
    fn host_queue(&self, cx: &Context, rate: u64) -> HostQueue {
        HostQueue {
            completions: cx.below.completions,
            bytes: cx.below.bytes,
            packets: (self.next_serial.0 - 1).saturating_sub(cx.below.completed.0),
            in_flight: self.snd.scoreboard.len(),
            rate,
            cap: (!self.is_paced(cx)).then_some(cx.config.tcp_limit_output_bytes),
        }
    }

    /// Everything that the gate looks at.
    fn situation(&self, cx: &Context, largest: u32, rate: u64) -> Situation {
        let snd = &self.snd;
        let mss = snd.effective_mss();
        let queued = snd.queue.len();
        let unsent = snd.units.front().map_or(0, |unit| unit.end.since(snd.nxt)) as usize;
        let contiguous = snd.queue.contiguous((largest.max(mss) as usize).min(unsent));
        Situation {
            mss,
            unsent: unsent as u32,
            behind: unsent < queued,
            fin: self.fin_is_due(),
            cwnd: self.cwnd_bytes(),
            quota: self.cwnd_quota(),
            usable: snd.usable_window(),
            force: snd.probing.force,
            largest,
            contiguous: contiguous as u32,
            urgent: snd.urgent().is_some(),
            nodelay: self.options.nodelay,
            corked: self.options.cork || snd.more,
            push_now: snd.push_now || self.is_probing_with_new_data(),
            short_write: snd.short_write,
            policy: self.options.tso_tail.unwrap_or(cx.config.tcp_tso_tail),
            was_idle: snd.was_idle.unwrap_or(true),
            small_unacked: snd.small_unacked()
                && self.nagle_ends(cx).is_none_or(|end| cx.now < end),
            early: self.pacing_holds(cx),
            below: self.host_queue(cx, rate),
            written: snd.written,
            autocork: self.options.autocork.unwrap_or(cx.config.tcp_autocorking),
            open: snd.units.front().is_some_and(|unit| unit.takes_more()),
            goal: memory::unit_goal(mss, snd.max_wnd, MAX_SUPER_SEGMENT as u32),
            deferral: match unsent > mss as usize {
                true => self.deferral(cx),
                false => Deferral::default(),
            },
        }
    }

    /// Records what holds the data, and makes sure that something will end it.
    fn note_hold(&mut self, cx: &Context, hold: Hold) {
        if self.last_hold != Some(hold) {
            cx.counters.bump(hold.counter());
            self.begin_hold(cx, hold);
        }
        match hold {
            Hold::Rwnd | Hold::SillyWindow | Hold::Cork => self.arm_persist(cx),
            Hold::Pacing => self.timers.arm(Timer::Pacing, self.snd.departure),
            Hold::Nagle => {
                if let Some(end) = self.nagle_ends(cx).filter(|&end| cx.now < end) {
                    self.timers.arm(Timer::TsoDefer, end);
                }
            }
            Hold::TsoDefer => self.timers.arm(Timer::TsoDefer, self.deferring_ends(cx)),
            _ => {}
        }
        if self.snd.scoreboard.is_empty() && cx.below.bytes == 0 {
            let timer = match hold {
                Hold::Rwnd | Hold::SillyWindow | Hold::Cork => Some(Timer::Persist),
                Hold::Pacing => Some(Timer::Pacing),
                _ => None,
            };
            debug_assert!(
                timer.is_some_and(|timer| self.timers.is_armed(timer)),
                "{hold:?} holds an idle sender and nothing will end it"
            );
        }
    }

    /// Sends the next `len` bytes.
    fn send_cut(&mut self, cx: &Context, now: &Situation, len: u32) -> Transmit {
        let start = self.snd.nxt;
        let payload = self.snd.queue.take(len as usize);
        debug_assert_eq!(payload.len(), len as usize);
        let data_end = start + len;
        let fin = now.fin && len == now.unsent && !now.behind && len < now.usable;
        let unit = self.snd.units.on_sent(data_end);
        let mut flags = TcpFlags::ACK;
        if fin {
            flags |= TcpFlags::FIN;
            self.snd.fin = Fin::Sent { seq: data_end };
        }
        // What is forced into a small window asks for an answer. A super-segment always carries
        // PSH, so that a receiver does not wait to coalesce more; a part of it that leaves again
        // does not.
        let push = unit.is_some_and(|unit| unit.push) || now.force;
        if push || len > now.mss {
            flags |= TcpFlags::PSH;
        }
        if !len.is_multiple_of(now.mss) {
            self.snd.sml = data_end;
        }
        let kind = SendKind::New;
        let packet = self.build_data(cx, Parts { seq: start, flags, payload, mss: now.mss, kind });
        let end = data_end + u32::from(fin);
        self.snd.nxt = end;
        self.snd.max = end;
        // One push asks once; a write that fills several packets, only about the last of them.
        self.snd.written &= now.behind;
        self.end_persist();
        self.timers.stop(Timer::TsoDefer);
        if let Some(serial) = packet.serial {
            self.on_data_sent(cx, start, end, (serial, packet.departure), &packet.payload);
            if push {
                self.snd.scoreboard.mark_pushed();
            }
            if unit.is_some_and(|unit| unit.record) {
                self.snd.scoreboard.mark_record();
            }
        }
        self.report_sent(cx);
        self.time_sndbuf(cx);
        cx.counters.add(Counter::TcpOrigDataSent, u64::from(packet.segs));
        self.stats.bytes_sent += u64::from(len);
        packet
    }

    /// Notes whether the peer's window is what holds new data.
    fn time_rwnd(&mut self, cx: &Context, holds: bool) {
        if holds {
            self.snd.limited.start(Limit::Rwnd, cx.now);
        } else {
            self.snd.limited.stop(Limit::Rwnd, false, cx.now);
        }
    }

    /// New data has left: a writer that waits for space could have sent more.
    fn time_sndbuf(&mut self, cx: &Context) {
        if self.snd.nospace && self.snd.queue.is_empty() && self.pipe() < self.cc.cwnd() {
            self.snd.limited.start(Limit::Sndbuf, cx.now);
        }
    }

    /// An idle connection holds no chunk.
    fn release_if_idle(&mut self) {
        if self.snd.queue.is_empty() && self.snd.scoreboard.is_empty() {
            self.snd.queue.release();
            self.snd.units.release();
        }
    }
}

/// No bytes.
const NOTHING: Slices = Slices::new();

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
