//! The cut: the part of the waiting data that one packet takes, and its limit.
//!
//! A packet ends with the first unit of the write queue at the latest. Unless it holds the rest of
//! a unit, it is a whole number of segments, except if the peer's window is less than one segment.
//! [`tso_tail`](super::tso_tail) decides whether a fraction of a segment is sent.

use super::hold::Hold;
use super::tso_tail::cut_tail;
use super::view::PlanView;
use crate::why::{Bound, Tail};

/// A packet of new data. Lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Bytes that leave from the front of the write queue: zero for a FIN alone.
    pub(crate) len: u32,
    /// Our FIN leaves with it.
    pub(crate) fin: bool,
    /// Payload of each of its segments but the last.
    pub(crate) mss: u32,
    /// It is forced into a small window and requires an answer.
    pub(crate) force: bool,
    /// More data waits after its unit.
    pub(crate) behind: bool,
    /// The limit of its length.
    pub(crate) bound: Bound,
    /// The treatment of the tail of the waiting data.
    pub(crate) tail: Tail,
}

impl Cut {
    /// The reason why the tail waits, if it is all the data and waits.
    #[inline]
    pub(super) fn waits(&self) -> Option<Hold> {
        match self.tail {
            Tail::Kept { hold, .. } if self.len == 0 => hold,
            _ => None,
        }
    }
}

/// The packet that would leave.
#[inline(always)]
pub(super) fn cut(view: &PlanView) -> Cut {
    if let Some(probe) = view.probe {
        return mtu_probe(view, probe.len);
    }
    let (most, bound) = most_bytes(view);
    let (len, tail) = cut_tail(view, most);
    Cut {
        len,
        fin: view.fin && len == view.unsent && !view.behind && len < view.usable,
        mss: view.mss,
        force: view.force,
        behind: view.behind,
        bound: if len < most { Bound::Tail } else { bound },
        tail,
    }
}

/// A probe of the path MTU: one segment, longer than others. More follows it.
#[inline]
fn mtu_probe(view: &PlanView, len: u32) -> Cut {
    let (fin, force, behind) = (false, false, view.behind || view.unsent > len);
    Cut { len, fin, mss: len, force, behind, bound: Bound::MtuProbe, tail: Tail::None }
}

/// The most that the next packet may hold, and the limit that applies.
#[inline(always)]
fn most_bytes(view: &PlanView) -> (u32, Bound) {
    let mss = view.mss;
    // The urgent pointer is right for one wire segment only.
    let largest = if view.urgent { mss } else { view.largest.max(mss) };
    let whole = view.windows().next_packet(largest);
    let fits = whole.min(view.contiguous);
    let most = fits.min(view.usable).min(view.unsent);
    if most == view.unsent {
        return (most, if view.behind { Bound::Unit } else { Bound::Queue });
    }
    let bound = if view.usable < fits {
        Bound::PeerWindow
    } else if view.contiguous < whole {
        Bound::Ranges
    } else if view.urgent {
        Bound::Urgent
    } else if whole + mss <= largest {
        Bound::Cwnd
    } else {
        Bound::Size
    };
    (if most < mss { most } else { most - most % mss }, bound)
}
