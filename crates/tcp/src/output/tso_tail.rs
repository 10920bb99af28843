//! The one decision about tails: whether a fraction of a segment is sent at the end of a packet.
//!
//! A packet that would empty the write queue ends where the application's data ends, and so usually
//! in a fraction of a segment. There are four policies ([`TsoTail`]) for this tail.
//!
//! - `nagle`, the refined split, is the default: the tail stays in the packet unless Nagle's
//!   algorithm with Minshall's condition holds it. A request of three segments leaves as one
//!   packet.
//! - `split` cuts the tail off and sends it in a separate packet, at once unless the same rule
//!   holds it. Linux did this before 3.14, also with TCP_NODELAY.
//! - `empty`: the tail stays in the packet, without Nagle's algorithm. FreeBSD does this.
//! - `trim`: the tail is held back as long as data may follow that fills it, unless TCP_NODELAY is
//!   set. The held tail is checked again, by itself, in the same call.
//!
//! With `empty` and `trim`, a tail that is all the data waits while anything is unacknowledged (RFC
//! 896). That is sampled once, when output begins: the tail that `trim` holds back does not wait
//! for the segments that left just before it.
//!
//! No policy is best for every workload. `trim` fills the segments of bulk data written in odd
//! pieces, and can delay the end of a response until a delayed ACK; `nagle` and `empty` send a
//! response whole, and bulk data with more segments than needed.
//!
//! A cork holds the tail under every policy, because the application has set it. Trimming may leave
//! nothing, so that the tail is all the data, or one segment, so that the packet is no
//! super-segment.

use super::cork::cork_holds;
use super::hold::Hold;
use super::nagle::{NagleRule, nagle_holds};
use super::view::PlanView;
use crate::config::TsoTail;
use crate::why::Tail;

/// The number of `most` bytes that are sent, and the treatment of the tail. If the tail is all the
/// data and waits, none are.
#[inline(always)]
pub(super) fn cut_tail(view: &PlanView, most: u32) -> (u32, Tail) {
    // A packet that leaves data behind ends where a limit cut it, not where the writer did.
    let remainder = if most == view.unsent { most % view.mss } else { 0 };
    if remainder == 0 {
        return (most, Tail::None);
    }
    let whole = most - remainder;
    let hold = tail_holds(view, whole == 0);
    if hold.is_some() || (whole > 0 && is_cut_off(view)) {
        let small = view.small_unacked.unwrap_or(0);
        return (whole, Tail::Kept { len: remainder, hold, small });
    }
    let tail = if whole > 0 { Tail::Along { len: remainder } } else { Tail::None };
    (most, tail)
}

/// The hold on the tail. The tail may be all the data.
#[inline(always)]
fn tail_holds(now: &PlanView, alone: bool) -> Option<Hold> {
    let (rule, asked) = match now.policy {
        TsoTail::Nagle => (NagleRule::Minshall, true),
        TsoTail::Split => (NagleRule::Minshall, alone),
        TsoTail::Empty | TsoTail::Trim => (NagleRule::Rfc896, alone),
    };
    let tail = now.small_tail(rule);
    if asked && nagle_holds(rule, &tail) {
        Some(Hold::Nagle)
    } else if cork_holds(&tail) {
        Some(Hold::Cork)
    } else {
        None
    }
}

/// Whether a tail that need not wait leaves in a separate packet all the same.
#[inline]
fn is_cut_off(now: &PlanView) -> bool {
    match now.policy {
        // Data after the tail cannot join it.
        _ if now.behind => false,
        TsoTail::Split => true,
        TsoTail::Trim => !now.nodelay && !now.fin,
        TsoTail::Empty | TsoTail::Nagle => false,
    }
}

#[cfg(test)]
mod tests;
