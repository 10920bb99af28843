//! What output tells about itself: how long holds last, the log, the notes that packets carry.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::gate::Hold;
use super::situation::Situation;
use super::tso_tail::tail_holds;
use crate::connection::{Connection, Context};
use crate::recovery::Phase;
use crate::recv::AckReason;
use crate::segment::{SendKind, Transmit};
use crate::send::segmentation::{most_bytes, most_whole};
use crate::time::{Duration, Instant};
use crate::why::{Bound, Causes, Decision, HoldTimes, Note, Record, Released, Resend, Tail};

/// How many reasons there are.
const HOLDS: usize = Hold::ALL.len();

impl Connection {
    /// The last decisions, the oldest first: empty unless
    /// [`SetOption::DecisionLog`](crate::SetOption::DecisionLog) is set.
    pub fn decisions(&self) -> Vec<Record> {
        self.decisions.iter().flat_map(|log| log.records().copied()).collect()
    }

    /// Readers or writers that waited were woken: for the log, if there is one.
    #[inline]
    pub(crate) fn handle_wake(&mut self, at: Instant, readers: bool, writers: bool) {
        self.log_decision(at, Decision::Woke { readers, writers });
    }

    #[inline]
    fn log_decision(&mut self, at: Instant, decision: Decision) {
        if let Some(log) = &mut self.decisions {
            log.push(at, decision);
        }
    }

    /// Whether anybody wants to know.
    #[inline]
    pub(super) fn explains(&self, cx: &Context) -> bool {
        cx.below.takes_notes || self.decisions.is_some()
    }

    /// `hold` begins to hold, perhaps in place of another.
    pub(super) fn begin_hold(&mut self, cx: &Context, hold: Hold) {
        if let Some(released) = self.end_hold(cx) {
            self.log_decision(cx.now, Decision::Released(released));
        }
        self.last_hold = Some(hold);
        let times = self.hold_times.get_or_insert_with(|| {
            let (met, nanos) = ([0; HOLDS], [0; HOLDS]);
            Box::new(HoldTimes { since: cx.now, met, nanos })
        });
        times.since = cx.now;
        let met = &mut times.met[hold as usize];
        *met = met.saturating_add(1);
        if self.decisions.is_some() {
            let bytes = self.snd.queue.len() as u32;
            self.log_decision(cx.now, Decision::Held { hold, bytes });
        }
    }

    /// What holds, holds no longer.
    pub(super) fn end_hold(&mut self, cx: &Context) -> Option<Released> {
        let hold = self.last_hold.take()?;
        let times = self.hold_times.as_mut()?;
        let after = cx.now.since(times.since);
        let nanos = &mut times.nanos[hold as usize];
        *nanos = nanos.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        Some(Released { hold, after, by: self.causes, writes: self.writes })
    }

    /// How long the hold of now has lasted; how often each was met, and how long in all.
    pub(crate) fn held(&self, now: Instant) -> (Duration, [u64; HOLDS], [Duration; HOLDS]) {
        let Some(times) = &self.hold_times else {
            return (Duration::ZERO, [0; HOLDS], [Duration::ZERO; HOLDS]);
        };
        let (met, mut all) = (times.met.map(u64::from), times.nanos.map(Duration::from_nanos));
        let Some(hold) = self.last_hold else { return (Duration::ZERO, met, all) };
        let lasting = now.since(times.since);
        all[hold as usize] += lasting;
        (lasting, met, all)
    }

    /// Output has come to its end.
    pub(super) fn end_output(&mut self, cx: &Context) {
        self.causes = Causes::NONE;
        let Some(log) = &mut self.decisions else { return };
        let Some(at) = self.rcv.ack_waits_until() else { return };
        if log.deferred != at {
            log.deferred = at;
            log.push(cx.now, Decision::AckDeferred(at.since(cx.now)));
        }
    }

    /// Puts a decision about `packet` into the log and onto the packet.
    fn explain(
        &mut self,
        cx: &Context,
        packet: &mut Transmit,
        released: Option<Released>,
        decision: Decision,
    ) {
        if let Some(released) = released {
            self.log_decision(cx.now, Decision::Released(released));
        }
        self.log_decision(cx.now, decision);
        if cx.below.takes_notes {
            packet.note = Some(Box::new(Note { released, decision }));
        }
    }

    /// New data leaves in `packet`, as `now` was.
    pub(super) fn explain_new(
        &mut self,
        cx: &Context,
        now: &Situation,
        released: Option<Released>,
        packet: &mut Transmit,
    ) {
        let len = packet.payload.len() as u32;
        let small = self.snd.sml.since(self.snd.iss);
        let (bound, tail) = (bound_of(now, len), tail_of(now, len, small));
        let decision = Decision::Cut { len, segs: packet.segs, bound, tail };
        self.explain(cx, packet, released, decision);
    }

    /// Data leaves again.
    pub(super) fn explain_again(&mut self, cx: &Context, probe: bool, packet: &mut Transmit) {
        let reason = match self.recovery.phase {
            _ if probe => Resend::LossProbe,
            Phase::Loss => Resend::Timeout,
            _ if self.handshake.sack => Resend::Lost,
            _ => Resend::DuplicateAcks,
        };
        let len = packet.payload.len() as u32;
        self.explain(cx, packet, None, Decision::Resent { len, reason });
    }

    /// A packet without data leaves, because of `reason` if it is a plain acknowledgement.
    pub(super) fn explain_bare(
        &mut self,
        cx: &Context,
        reason: Option<AckReason>,
        packet: &mut Transmit,
    ) {
        let decision = match reason {
            Some(reason) if packet.kind == SendKind::Ack => Decision::Ack(reason),
            _ => Decision::Bare(packet.kind),
        };
        self.explain(cx, packet, None, decision);
    }
}

/// What bounds a packet of `len` bytes.
fn bound_of(now: &Situation, len: u32) -> Bound {
    let largest = if now.urgent { now.mss } else { now.largest.max(now.mss) };
    let whole = most_whole(now.mss, now.cwnd, now.quota, largest);
    if len == now.unsent {
        if now.behind { Bound::Unit } else { Bound::Queue }
    } else if most_bytes(now) > len {
        Bound::Tail
    } else if now.usable < whole.min(now.contiguous) {
        Bound::PeerWindow
    } else if now.contiguous < whole {
        Bound::Ranges
    } else if now.urgent {
        Bound::Urgent
    } else if whole < largest - largest % now.mss {
        Bound::Cwnd
    } else {
        Bound::Size
    }
}

/// What becomes of the tail of what waits when `len` bytes of it leave.
fn tail_of(now: &Situation, len: u32, small: u32) -> Tail {
    let remainder = now.unsent % now.mss;
    if remainder == 0 || now.unsent < now.mss {
        return Tail::None;
    }
    if len == now.unsent {
        return Tail::Along { len: remainder };
    }
    if most_bytes(now) <= len {
        // A window cut it before anybody looked at the tail.
        return Tail::None;
    }
    let small = if now.small_unacked { small } else { 0 };
    Tail::Kept { len: now.unsent - len, hold: tail_holds(now, false), small }
}

#[cfg(test)]
mod tests;
