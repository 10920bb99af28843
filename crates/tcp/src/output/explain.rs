//! What output tells about itself: how long holds last, the log, the notes that packets carry.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::hold::Hold;
use super::plan::Wait;
use crate::congestion::bbr::state::{BbrCause, BbrState};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::segment::{SendKind, Transmit};
use crate::send::recovery::RecoveryState;
use crate::time::{Instant, Nanos};
use crate::why::{Decision, HoldTimes, Note, Record, Released, Resend};

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

    /// `wait` begins, perhaps in place of another.
    pub(super) fn begin_hold(&mut self, cx: &Context, wait: &Wait) {
        let hold = wait.hold;
        if let Some(released) = self.end_hold(cx) {
            self.log_decision(cx.now, Decision::Released(released));
        }
        let times = self.hold_times.get_or_insert_with(|| {
            let (met, nanos) = ([0; HOLDS], [0; HOLDS]);
            Box::new(HoldTimes { since: cx.now, met, nanos })
        });
        times.since = cx.now;
        let met = &mut times.met[hold as usize];
        *met = met.saturating_add(1);
        if self.decisions.is_some() {
            let bytes = self.snd.unsent_len() as u32;
            self.log_decision(cx.now, Decision::Held { hold, bytes });
        }
    }

    /// What holds, holds no longer.
    pub(super) fn end_hold(&mut self, cx: &Context) -> Option<Released> {
        let released = self.released(cx);
        self.snd.end_hold();
        if let (Some(released), Some(times)) = (released, &mut self.hold_times) {
            let nanos = &mut times.nanos[released.hold as usize];
            *nanos = nanos.saturating_add(cx.now.nanos_since(times.since).as_nanos());
        }
        released
    }

    /// How long the hold of now has lasted; how often each was met, and how long in all.
    pub(crate) fn held(&self, now: Instant) -> (Nanos, [u64; HOLDS], [Nanos; HOLDS]) {
        let Some(times) = &self.hold_times else {
            return (Nanos::ZERO, [0; HOLDS], [Nanos::ZERO; HOLDS]);
        };
        let (met, mut all) = (times.met.map(u64::from), times.nanos.map(Nanos::from_nanos));
        let Some(hold) = self.snd.hold() else { return (Nanos::ZERO, met, all) };
        let lasting = now.nanos_since(times.since);
        all[hold as usize] += lasting;
        (lasting, met, all)
    }

    /// An ACK that waits goes into the log, if there is one.
    pub(super) fn log_deferred_ack(&mut self, cx: &Context) {
        let Some(log) = &mut self.decisions else { return };
        let Some(at) = self.rcv.ack_waits_until() else { return };
        if log.deferred != at {
            log.deferred = at;
            log.push(cx.now, Decision::AckDeferred(at.since(cx.now)));
        }
    }

    /// What holds until now, and would hold no longer if a packet left.
    pub(super) fn released(&self, cx: &Context) -> Option<Released> {
        let (hold, times) = (self.snd.hold()?, self.hold_times.as_ref()?);
        let after = cx.now.since(times.since);
        Some(Released { hold, after, by: self.causes, writes: self.writes })
    }

    /// Writes the decision that made `packet` on it, for who takes notes.
    pub(super) fn note(&self, cx: &Context, packet: &mut Transmit, note: Note) {
        if cx.below.takes_notes {
            packet.note = Some(Box::new(note));
        }
    }

    /// The congestion controller may have gone to other states: they are counted, and go into the
    /// log, if there is one.
    #[inline]
    pub(crate) fn note_model(&mut self, cx: &Context) {
        if self.snd.has_model_changed() {
            self.note_model_changes(cx);
        }
    }

    #[cold]
    fn note_model_changes(&mut self, cx: &Context) {
        for model in self.snd.take_model_changes() {
            match model.state {
                BbrState::ProbeBwUp => cx.counters.bump(Counter::BbrProbeUp),
                BbrState::ProbeRtt => cx.counters.bump(Counter::BbrProbeRtt),
                _ if model.cause == BbrCause::ExcessLoss => {
                    cx.counters.bump(Counter::BbrExcessLoss);
                }
                _ => {}
            }
            self.log_decision(cx.now, Decision::Bbr(model));
        }
    }

    /// Puts a decision that was carried out into the log.
    pub(super) fn log(&mut self, cx: &Context, note: Note) {
        if let Some(released) = note.released {
            self.log_decision(cx.now, Decision::Released(released));
        }
        self.log_decision(cx.now, note.decision);
    }

    /// Why data leaves again.
    pub(super) fn resend_reason(&self) -> Resend {
        match self.snd.recovery().state() {
            _ if self.snd.recovery().due_probe().is_some() => Resend::LossProbe,
            RecoveryState::Loss => Resend::Timeout,
            _ if self.handshake.sack => Resend::Lost,
            _ => Resend::DuplicateAcks,
        }
    }

    /// Why a packet without data leaves.
    fn bare_decision(&self, cx: &Context, kind: SendKind) -> Decision {
        match self.rcv.ack_due(cx.now) {
            Some(reason) if kind == SendKind::Ack => Decision::Ack(reason),
            _ => Decision::Bare(kind),
        }
    }

    /// A packet without data leaves: its note.
    pub(super) fn note_bare(&self, cx: &Context, packet: &mut Transmit) {
        let decision = self.bare_decision(cx, packet.kind);
        self.note(cx, packet, Note { released: None, decision });
    }

    /// The same for the log.
    pub(super) fn log_bare(&mut self, cx: &Context, kind: SendKind) {
        let decision = self.bare_decision(cx, kind);
        self.log_decision(cx.now, decision);
    }
}

#[cfg(test)]
mod tests;
