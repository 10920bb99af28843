//! Output's explanations: the times of holds, the log, the notes that packets carry.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::hold::Hold;
use super::plan::Wait;
use crate::congestion::bbr::state::{BbrCause, BbrState};
use crate::context::Context;
use crate::counters::Counter;
use crate::recv::ack_reason::AckReason;
use crate::segment::{SendKind, Transmit};
use crate::send::SendSide;
use crate::send::flight::RecoveryState;
use crate::time::{Instant, Nanos};
use crate::why::{Causes, Decision, Decisions, HoldTimes, Note, Record, Released, Resend};

/// How many reasons there are.
const HOLDS: usize = Hold::ALL.len();

/// The record of a connection's decisions. It decides nothing itself.
#[derive(Debug)]
pub(crate) struct Explanation {
    /// The events since output last ended.
    causes: Causes,
    /// Writes since new data last left.
    writes: u32,
    /// The times of holds, once there was one.
    hold_times: Option<Box<HoldTimes>>,
    /// The log, if it is on.
    log: Option<Box<Decisions>>,
}

impl Explanation {
    /// With a log of the last `entries` decisions; without one if that is zero.
    pub(crate) fn new(entries: u32) -> Explanation {
        let log = Decisions::new(entries);
        Explanation { causes: Causes::NONE, writes: 0, hold_times: None, log }
    }

    /// A log of the last `entries` decisions begins, in place of another.
    pub(crate) fn set_log(&mut self, entries: u32) {
        self.log = Decisions::new(entries);
    }

    /// The log, the oldest decision first.
    pub(crate) fn records(&self) -> Vec<Record> {
        self.log.iter().flat_map(|log| log.records().copied()).collect()
    }

    /// Records an event after which output is polled.
    pub(crate) fn add_cause(&mut self, cause: Causes) {
        self.causes.add(cause);
    }

    /// Nothing more leaves now.
    pub(super) fn end_output(&mut self) {
        self.causes = Causes::NONE;
    }

    /// The application has written.
    pub(crate) fn on_write(&mut self) {
        self.writes = self.writes.saturating_add(1);
    }

    /// Writes since new data last left.
    #[cfg(test)]
    pub(super) fn writes(&self) -> u32 {
        self.writes
    }

    /// New data has left.
    pub(super) fn on_new_data(&mut self) {
        self.writes = 0;
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.hold_times.as_ref().map_or(0, |_| size_of::<HoldTimes>())
            + self.log.as_ref().map_or(0, |log| log.heap_bytes())
    }

    /// Whether decisions are written down.
    pub(super) fn is_logging(&self) -> bool {
        self.log.is_some()
    }

    /// A decision goes into the log, if there is one.
    #[inline]
    pub(crate) fn log(&mut self, at: Instant, decision: Decision) {
        if let Some(log) = &mut self.log {
            log.push(at, decision);
        }
    }

    /// `wait` begins, perhaps in place of `held`; `unsent` bytes wait.
    pub(super) fn begin_hold(
        &mut self,
        cx: &Context,
        wait: &Wait,
        held: Option<Hold>,
        unsent: usize,
    ) {
        if let Some(released) = self.end_hold(cx, held) {
            self.log(cx.now, Decision::Released(released));
        }
        let times = self.hold_times.get_or_insert_with(|| {
            let (met, nanos) = ([0; HOLDS], [0; HOLDS]);
            Box::new(HoldTimes { since: cx.now, met, nanos })
        });
        times.since = cx.now;
        let met = &mut times.met[wait.hold as usize];
        *met = met.saturating_add(1);
        self.log(cx.now, Decision::Held { hold: wait.hold, bytes: unsent as u32 });
    }

    /// Ends the present hold, if it was `held`.
    pub(super) fn end_hold(&mut self, cx: &Context, held: Option<Hold>) -> Option<Released> {
        let released = self.released(cx, held);
        if let (Some(released), Some(times)) = (released, &mut self.hold_times) {
            let nanos = &mut times.nanos[released.hold as usize];
            *nanos = nanos.saturating_add(cx.now.nanos_since(times.since).as_nanos());
        }
        released
    }

    /// The present hold, which would end if a packet left.
    pub(super) fn released(&self, cx: &Context, held: Option<Hold>) -> Option<Released> {
        let (hold, times) = (held?, self.hold_times.as_ref()?);
        let after = cx.now.since(times.since);
        Some(Released { hold, after, by: self.causes, writes: self.writes })
    }

    /// How long the hold of now has lasted; how often each was met, and how long in all.
    pub(crate) fn held(
        &self,
        now: Instant,
        held: Option<Hold>,
    ) -> (Nanos, [u64; HOLDS], [Nanos; HOLDS]) {
        let Some(times) = &self.hold_times else {
            return (Nanos::ZERO, [0; HOLDS], [Nanos::ZERO; HOLDS]);
        };
        let (met, mut all) = (times.met.map(u64::from), times.nanos.map(Nanos::from_nanos));
        let Some(hold) = held else { return (Nanos::ZERO, met, all) };
        let lasting = now.nanos_since(times.since);
        all[hold as usize] += lasting;
        (lasting, met, all)
    }

    /// An ACK waits until `at`: that goes into the log once, if there is one.
    pub(super) fn log_deferred_ack(&mut self, cx: &Context, at: Option<Instant>) {
        let (Some(log), Some(at)) = (&mut self.log, at) else { return };
        if log.deferred != at {
            log.deferred = at;
            log.push(cx.now, Decision::AckDeferred(at.since(cx.now)));
        }
    }

    /// The congestion controller may have gone to other states: they are counted, and go into the
    /// log, if there is one.
    #[inline]
    pub(crate) fn note_model(&mut self, cx: &Context, snd: &mut SendSide) {
        if snd.flight.cc().has_changed() {
            self.note_model_changes(cx, snd);
        }
    }

    #[cold]
    fn note_model_changes(&mut self, cx: &Context, snd: &mut SendSide) {
        for model in snd.flight.take_model_changes() {
            match model.state {
                BbrState::ProbeBwUp => cx.counters.bump(Counter::BbrProbeUp),
                BbrState::ProbeRtt => cx.counters.bump(Counter::BbrProbeRtt),
                _ if model.cause == BbrCause::ExcessLoss => {
                    cx.counters.bump(Counter::BbrExcessLoss);
                }
                _ => {}
            }
            self.log(cx.now, Decision::Bbr(model));
        }
    }

    /// Puts a decision that was carried out into the log.
    pub(super) fn log_note(&mut self, cx: &Context, note: Note) {
        if let Some(released) = note.released {
            self.log(cx.now, Decision::Released(released));
        }
        self.log(cx.now, note.decision);
    }
}

/// Attaches the decision that made `packet` to it, for a device that takes notes.
pub(super) fn note(cx: &Context, packet: &mut Transmit, note: Note) {
    if cx.below.takes_notes {
        packet.note = Some(Box::new(note));
    }
}

/// Why data leaves again.
pub(super) fn resend_reason(snd: &SendSide, sack: bool) -> Resend {
    match snd.flight.state() {
        _ if snd.flight.due_probe().is_some() => Resend::LossProbe,
        RecoveryState::Loss => Resend::Timeout,
        _ if sack => Resend::Lost,
        _ => Resend::DuplicateAcks,
    }
}

/// Why a packet without data leaves, when an ACK is due for this reason.
pub(super) fn bare_decision(kind: SendKind, due: Option<AckReason>) -> Decision {
    match due {
        Some(reason) if kind == SendKind::Ack => Decision::Ack(reason),
        _ => Decision::Bare(kind),
    }
}

#[cfg(test)]
mod tests;
