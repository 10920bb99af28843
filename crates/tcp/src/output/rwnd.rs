//! `Hold::Rwnd`: the peer's window takes nothing.

use super::situation::Situation;

/// Whether the window is used up. A FIN has a sequence number of its own and needs room for it.
pub(crate) fn rwnd_holds(now: &Situation) -> bool {
    now.usable == 0
}
