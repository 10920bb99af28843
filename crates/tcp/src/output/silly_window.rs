//! `Hold::SillyWindow`: the peer's window takes too little to be worth a segment.

use super::view::PlanView;

/// Sender silly-window avoidance (RFC 9293, section 3.8.6.2.1): data leaves if a full segment does,
/// or all that waits, or half of the largest window. The last is part of `mss`, which it limits.
/// The Persist timer overrides.
#[inline]
pub(crate) fn silly_window_holds(now: &PlanView) -> bool {
    now.usable < now.unsent && now.usable < now.mss && !now.force
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_rfc() {
        // Usable window, unsent, timer fired, held.
        let cases = [
            (1000, 5000, false, false, "a full segment"),
            (999, 5000, false, true, "less than a segment of more"),
            (999, 999, false, false, "all that waits"),
            (998, 999, false, true, "not quite all that waits"),
            (1, 5000, true, false, "the timer overrides"),
            (1, 0, false, false, "a FIN alone"),
        ];
        for (usable, unsent, force, held, name) in cases {
            let now = PlanView { mss: 1000, usable, unsent, force, ..PlanView::default() };
            assert_eq!(silly_window_holds(&now), held, "{name}");
        }
    }
}
