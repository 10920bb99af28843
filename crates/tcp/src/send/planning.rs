//! From the state of the send half to a plan, and from an executed plan back to the state.
//!
//! [`SendSide::plan`] gathers the [`PlanView`]; the rules in `output/` make the plan. Building a
//! packet from it does not change the state: [`SendSide::commit`] does, once the layer below has
//! taken the packet.

use plimsoll_buf::Slices;
use plimsoll_wire::SeqNum;

use super::flight::RecoveryState;
use super::limited::Limit;
use super::segmentation::Windows;
use super::{Fin, LastInput, SendSide, memory};
use crate::config::Options;
use crate::context::Context;
use crate::output::cut::Cut;
use crate::output::hold::{Hold, Restart};
use crate::output::nagle::nagle_ends;
use crate::output::plan::{Plan, Wait, plan};
use crate::output::small_queue::{HostQueue, small_queue_holds};
use crate::output::tso_defer::{Limiter, deferring_ends};
use crate::output::view::{Deferral, MtuProbeView, PlanView};
use crate::time::Instant;
use crate::timer::Timer;

/// The least window in segments with which the path MTU is probed, as on Linux: after the loss of a
/// probe, enough data must follow to distinguish the loss from a timeout.
const LEAST_CWND_OF_PROBES: u32 = 11;

/// A packet of sent data that leaves again. Nothing moves until it is committed.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    /// SEG.SEQ.
    pub(crate) start: SeqNum,
    /// One after the last number, that of a FIN included.
    pub(crate) end: SeqNum,
    /// The bytes.
    pub(crate) payload: Slices,
    /// Our FIN leaves with it.
    pub(crate) fin: bool,
    /// It carries PSH.
    pub(crate) push: bool,
    /// Payload of each of its segments but the last.
    pub(crate) mss: u32,
}

impl SendSide {
    /// Output has ended: state that belongs to one burst is cleared.
    pub(crate) fn end_output(&mut self) {
        self.was_idle = None;
        self.short_write = false;
        if core::mem::take(&mut self.cut_leaving) {
            self.units.settle();
        }
        // An idle connection holds no chunk.
        if self.queue.is_empty() && self.flight.board().is_empty() {
            self.queue.release();
            self.units.release();
        }
    }

    /// The plan for data that was never sent; `fin` if our FIN may follow it. In any case the
    /// window restarts after idle time, and the first unit is filled from those after it. `probe`
    /// is the number of payload bytes that a probe of the path MTU would have.
    pub(crate) fn plan(
        &mut self,
        cx: &Context,
        options: &Options,
        fin: bool,
        probe: Option<u32>,
    ) -> Plan {
        if self.usable_window() > 0 {
            self.flight.restart_after_idle(cx);
        }
        let idle = !self.has_unacked();
        self.was_idle.get_or_insert(idle);
        let rate = self.pacing_rate(cx.config, options);
        let largest = self.largest_packet(rate, cx.config);
        let windows = self.windows();
        let probe = probe.and_then(|len| self.mtu_probe(len, &windows));
        let fill = windows.next_packet(largest).max(probe.map_or(0, |probe| probe.len));
        self.units.top_up(self.nxt, fill);
        let last_departure = self.last_departure(cx, options);
        let unit = self.units.front();
        let unsent = unit.map_or(0, |unit| unit.end.since(self.nxt));
        let probe = probe.filter(|probe| self.probe_is_one_packet(probe, unsent));
        let most = largest.max(windows.mss).min(unsent);
        let least_rtt = self.flight.rtt().min_rtt().filter(|_| cx.config.tcp_nagle_bound);
        let nagle_ends = least_rtt.map(|rtt| nagle_ends(last_departure, rtt));
        let small_unacked = self.small_unacked() && nagle_ends.is_none_or(|end| cx.now < end);
        let written = self.last_input != LastInput::Event;
        let view = PlanView {
            mss: windows.mss,
            unsent,
            behind: (unsent as usize) < self.queue.len(),
            fin,
            cwnd: windows.cwnd,
            quota: windows.quota,
            usable: windows.usable,
            force: self.probing.force,
            largest,
            contiguous: self.queue.contiguous(most as usize) as u32,
            urgent: self.urgent().is_some(),
            nodelay: options.nodelay,
            corked: options.cork || self.more,
            push_now: self.push_now || self.sends_new_at_once(),
            short_write: self.short_write,
            policy: options.tso_tail.unwrap_or(cx.config.tcp_tso_tail),
            was_idle: self.was_idle.unwrap_or(true),
            small_unacked: small_unacked.then(|| self.sml.since(self.iss)),
            nagle_ends: nagle_ends.filter(|&end| cx.now < end),
            departs: self.waits_to_depart(cx, options),
            below: self.host_queue(cx, options, rate),
            written,
            autocork: options.autocork.unwrap_or(cx.config.tcp_autocorking),
            open: unit.is_some_and(|unit| unit.takes_more()),
            goal: match written {
                true => memory::unit_goal(windows.mss, self.max_wnd, self.largest_unit()),
                false => 0,
            },
            probe,
            deferral: match unsent > windows.mss && probe.is_none() {
                true => self.deferral(cx, last_departure),
                false => Deferral::default(),
            },
        };
        plan(&view)
    }

    /// A probe of the path MTU with `len` bytes of payload, if one may leave or wait now (RFC 4821,
    /// section 7.4; bounds as on Linux): the data after it would reveal its loss, which would not
    /// be mistaken for another.
    fn mtu_probe(&self, len: u32, windows: &Windows) -> Option<MtuProbeView> {
        let follows = (self.flight.dup_thresh() + 1).saturating_mul(windows.mss);
        let needed = len.saturating_add(follows);
        let fits = self.queue.len() >= needed as usize && self.wnd >= needed;
        // A tail loss probe leaves as it is: it must not wait, nor be a packet that the path may
        // drop.
        let quiet = self.flight.state() == RecoveryState::Open
            && self.urgent().is_none()
            && !self.sends_new_at_once();
        let may = fits && quiet && self.flight.cc().cwnd() >= LEAST_CWND_OF_PROBES;
        may.then_some(MtuProbeView { len, needed })
    }

    /// Whether the waiting data can leave as that probe: `unsent` bytes may be of one packet.
    fn probe_is_one_packet(&self, probe: &MtuProbeView, unsent: u32) -> bool {
        unsent >= probe.len && self.queue.contiguous(probe.len as usize) >= probe.len as usize
    }

    /// The inputs of deferring only.
    fn deferral(&self, cx: &Context, last_departure: Instant) -> Deferral {
        let unit = self.units.front();
        let state = self.flight.state();
        let recovering = matches!(state, RecoveryState::Recovery | RecoveryState::Loss);
        let front = self.flight.board().front().filter(|_| self.pipe() > 0);
        Deferral {
            allowed: cx.config.tcp_tso_defer
                && !recovering
                && !self.sends_new_at_once()
                && unit.is_some_and(|unit| !unit.leaving),
            divisor: cx.config.tcp_tso_win_divisor.into(),
            wnd: self.wnd,
            record: unit.is_some_and(|unit| unit.record),
            since_sent: cx.now.nanos_since(last_departure),
            ends: deferring_ends(last_departure),
            age: front.map(|range| cx.now.nanos_since(range.sent_at)),
            srtt: self.flight.rtt().srtt().unwrap_or_default(),
        }
    }

    /// The packets below, and their limit.
    fn host_queue(&self, cx: &Context, options: &Options, rate: u64) -> HostQueue {
        let below = &cx.below;
        HostQueue {
            completions: below.completions,
            bytes: below.bytes,
            packets: (self.next_serial.0 - 1).saturating_sub(below.completed.0),
            in_flight: self.flight.board().len(),
            rate,
            cap: (!self.is_paced(below, options)).then_some(cx.config.tcp_limit_output_bytes),
        }
    }

    /// Notes why new data waits, or that it does not: the stopwatches of the windows.
    pub(crate) fn note_limits(&mut self, cx: &Context, limiter: Option<Limiter>) {
        self.cwnd_limited |= limiter == Some(Limiter::Cwnd);
        if limiter == Some(Limiter::Rwnd) {
            self.limited.start(Limit::Rwnd, cx.now);
            self.flight.on_rwnd_limited();
        } else {
            self.limited.stop(Limit::Rwnd, false, cx.now);
        }
    }

    /// The plan is that new data waits.
    pub(crate) fn on_wait(&mut self, wait: &Wait) {
        if self.last_input != LastInput::Event {
            // If the buffer counts only bytes, each write is checked by itself.
            let corked = wait.hold == Hold::Autocork && !self.raw;
            self.last_input = match corked {
                true => LastInput::Corked { room: wait.room as usize },
                false => LastInput::Write,
            };
        }
    }

    /// The bytes of a packet. They stay in the queue until it is committed.
    pub(crate) fn payload(&self, cut: &Cut) -> Slices {
        self.queue.peek(cut.len as usize)
    }

    /// Whether the packet carries PSH: a write ended in it, or it requires an answer. A
    /// super-segment always does, so that a receiver does not wait to coalesce more; a
    /// retransmitted part of it does not.
    pub(crate) fn pushes(&self, cut: &Cut) -> bool {
        let ends = self.units.front().filter(|unit| unit.end == self.nxt + cut.len);
        ends.is_some_and(|unit| unit.push) || cut.force
    }

    /// A packet of new data has left: its bytes move after SND.NXT, and wait there to be
    /// acknowledged. Returns its numbers.
    pub(crate) fn commit(&mut self, cut: &Cut) -> Committed {
        let start = self.nxt;
        let data_end = start + cut.len;
        let push = self.pushes(cut);
        let unit = self.units.on_sent(data_end);
        if cut.fin {
            self.fin = Fin::Sent { seq: data_end };
        }
        if !cut.len.is_multiple_of(cut.mss) {
            self.sml = data_end;
        }
        let end = data_end + u32::from(cut.fin);
        let (rtx, mut at) = (&mut self.rtx, start);
        self.queue.take(cut.len as usize, |slice| at = rtx.push(at, slice));
        self.nxt = end;
        // One push is checked once; for a write that fills several packets, only at the last of
        // them.
        if !cut.behind {
            self.end_autocork();
        }
        self.stats.bytes_sent += u64::from(cut.len);
        let mss = u16::try_from(cut.mss).unwrap_or(u16::MAX);
        let record = unit.is_some_and(|unit| unit.record);
        Committed { start, end, fin: cut.fin, mss, push, record }
    }

    /// Flags the range that has just been entered into the scoreboard.
    pub(super) fn mark_committed(&mut self, cx: &Context, committed: &Committed) {
        if committed.push {
            self.flight.mark_pushed();
        }
        if committed.record {
            self.flight.mark_record();
        }
        // A writer that waits for space could have sent more.
        if self.nospace && self.queue.is_empty() && self.pipe() < self.flight.cc().cwnd() {
            self.limited.start(Limit::Sndbuf, cx.now);
        }
    }

    /// A packet with `[start, end)`, which was sent, or with a front part of it.
    pub(crate) fn again(&self, start: SeqNum, mut end: SeqNum) -> Again {
        let mss = self.effective_mss();
        if self.urgent().is_some_and(|up| start < up) {
            // The urgent pointer is right for one wire segment only.
            end = end.min(start + mss);
        }
        let data_end = self.flight.board().data_end();
        let wanted = end.min(data_end).max(start).since(start);
        let mut payload = self.rtx.payload(start, start + wanted);
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
        let end = start + len + u32::from(fin);
        let push = self.flight.board().is_pushed(end - u32::from(fin)) || len > mss;
        Again { start, end, payload, fin, push, mss }
    }

    /// The hold on a retransmitted packet of `len` bytes.
    pub(crate) fn again_waits(&self, cx: &Context, options: &Options, len: u32) -> Option<Wait> {
        let (hold, restart) = if let Some(at) = self.waits_to_depart(cx, options) {
            (Hold::Pacing, Restart::Timer(Timer::Pacing, at))
        } else {
            let below = self.host_queue(cx, options, self.pacing_rate(cx.config, options));
            if !small_queue_holds(&below, len, true) {
                return None;
            }
            (Hold::SmallQueue, Restart::Completion)
        };
        Some(Wait { hold, restart, limiter: None, room: 0 })
    }
}

/// The numbers of a packet that has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// SEG.SEQ.
    pub(crate) start: SeqNum,
    /// One after the last number, that of a FIN included.
    pub(crate) end: SeqNum,
    /// The last number is our FIN.
    pub(crate) fin: bool,
    /// Payload of each of its segments but the last.
    pub(crate) mss: u16,
    push: bool,
    record: bool,
}

#[cfg(test)]
impl Committed {
    /// Of `[start, end)`.
    pub(super) fn of(start: SeqNum, end: SeqNum, mss: u16) -> Committed {
        Committed { start, end, fin: false, mss, push: false, record: false }
    }
}
