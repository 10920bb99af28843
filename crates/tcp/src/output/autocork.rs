//! `Hold::Autocork`: automatic corking.
//!
//! A write that has not filled its packet may wait for the completion of its connection's packets
//! below: that comes soon, needs no timer, and until then further writes fill the packet. It is
//! checked before the gate and only for a write. An acknowledgement, a timer or an option also ends
//! the wait, and goes straight to the gate. So does the completion: Nagle's algorithm and a cork
//! hold then as usual.

use super::view::PlanView;

/// Whether the one unit that waits is left to the next completion. TCP_NODELAY does not matter, as
/// on Linux.
#[inline]
pub(crate) fn autocork_holds(now: &PlanView) -> bool {
    let below = &now.below;
    now.written
        && now.autocork
        && below.completions
        // The first packet of a burst never waits, and an acknowledgement below is no reason.
        && below.in_flight > 0
        && below.bytes > 0
        // A packet that may still grow, up to many segments.
        && now.open
        && now.unsent < now.goal
        && !now.behind
        && !now.fin
        && !now.urgent
        && !now.short_write
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::small_queue::HostQueue;

    #[test]
    fn a_write_waits_for_the_packet_before_it() {
        let below = HostQueue { completions: true, bytes: 128, in_flight: 1, ..Default::default() };
        let all = PlanView {
            written: true,
            autocork: true,
            open: true,
            unsent: 128,
            goal: 64_000,
            below,
            ..PlanView::default()
        };
        let cases = [
            (all, true, "a small write"),
            (PlanView { nodelay: true, ..all }, true, "NODELAY does not matter"),
            (PlanView { corked: true, ..all }, true, "nor does a cork"),
            (PlanView { unsent: 63_999, ..all }, true, "many segments, but not all"),
            (PlanView { unsent: 64_000, ..all }, false, "a full packet"),
            (PlanView { written: false, ..all }, false, "an ACK, a timer, a completion"),
            (PlanView { autocork: false, ..all }, false, "switched off"),
            (PlanView { open: false, ..all }, false, "the end of a record"),
            (PlanView { behind: true, ..all }, false, "more behind it"),
            (PlanView { fin: true, ..all }, false, "a FIN"),
            (PlanView { urgent: true, ..all }, false, "urgent data"),
            (PlanView { short_write: true, ..all }, false, "a writer waits for space"),
        ];
        for (now, held, name) in cases {
            assert_eq!(autocork_holds(&now), held, "{name}");
        }
        let cases = [
            (HostQueue { completions: false, ..below }, "nothing completes"),
            (HostQueue { bytes: 0, ..below }, "only ACKs are below"),
            (HostQueue { in_flight: 0, ..below }, "the first packet"),
        ];
        for (below, name) in cases {
            assert!(!autocork_holds(&PlanView { below, ..all }), "{name}");
        }
    }
}
