//! The one plan for data that was never sent.
//!
//! # Theory of operation
//!
//! [`plan`] evaluates a [`PlanView`] once. Either a packet leaves; then the plan is its [`Cut`]:
//! its length, the limit of its length, and the treatment of the tail. Or it is held; then the plan
//! is a [`Wait`]: the hold, and the event that ends it. Sending, the log of decisions, the timers
//! and corked writes use this value, and none of them computes it again.

use super::cut::{Cut, cut};
use super::gate::{packet_held, sender_held};
use super::hold::{Hold, Refusal, Restart};
use super::tso_defer::{Limiter, limiter};
use super::view::PlanView;
use crate::context::Context;
use crate::time::{Instant, Nanos};
use crate::timer::Timer;

/// The plan for new data now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// A packet leaves.
    Send(Cut),
    /// Something holds it.
    Wait(Wait),
}

/// The hold on new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The reason.
    pub(crate) hold: Hold,
    /// The event that ends it.
    pub(crate) restart: Restart,
    /// Whose window would have let more leave, if that is why it waits.
    pub(crate) limiter: Option<Limiter>,
    /// A write of fewer bytes changes nothing of this plan.
    pub(crate) room: u32,
}

/// How long an ACK that was refused, or data for which there was no memory, waits for its next
/// offer.
const OFFER_AGAIN: Nanos = Nanos::from_millis(10);

/// The time at which such a packet, refused at `now`, is offered again.
pub(super) fn offer_again(now: Instant) -> Instant {
    now + OFFER_AGAIN
}

impl Wait {
    /// The layer below refused a packet.
    pub(crate) fn refused(cx: &Context, refusal: Refusal) -> Wait {
        let completes = cx.below.completions && cx.below.bytes > 0;
        let restart = match refusal {
            Refusal::QueueFull if completes => Restart::Completion,
            Refusal::QueueFull => Restart::Space,
            Refusal::NoMemory => Restart::Timer(Timer::Pacing, offer_again(cx.now)),
        };
        Wait { hold: Hold::Refused, restart, limiter: None, room: 0 }
    }
}

/// The plan for the state in `view`. This and all functions that it calls are inlined into its one
/// caller, so that the view need not be written to memory.
#[inline(always)]
pub(crate) fn plan(view: &PlanView) -> Plan {
    if let Some(held) = sender_held(view) {
        return Plan::Wait(wait(view, held));
    }
    let cut = cut(view);
    match packet_held(view, &cut) {
        Some(held) => Plan::Wait(wait(view, held)),
        None => Plan::Send(cut),
    }
}

#[inline(always)]
fn wait(view: &PlanView, (hold, restart): (Hold, Restart)) -> Wait {
    Wait {
        hold,
        restart,
        limiter: match hold {
            Hold::Rwnd | Hold::SillyWindow => Some(Limiter::Rwnd),
            Hold::TsoDefer => Some(limiter(view)),
            _ => None,
        },
        room: match hold {
            Hold::Autocork => view.goal - view.unsent,
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests;
