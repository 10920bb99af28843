//! `Hold::Rwnd`: the peer's window takes nothing.

use super::view::PlanView;

/// Whether the window is used up. A FIN has its own sequence number and needs room for it.
#[inline]
pub(crate) fn rwnd_holds(now: &PlanView) -> bool {
    now.usable == 0
}
