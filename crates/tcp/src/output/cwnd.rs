//! `Hold::Cwnd`: the congestion window is full.

use super::view::PlanView;

/// Whether cwnd leaves no room for a segment. One that is not full, and a FIN alone, take as much
/// room as a full one. An idle sender is never held: cwnd holds one segment at least.
#[inline]
pub(crate) fn cwnd_holds(now: &PlanView) -> bool {
    now.quota < now.mss
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_a_segment() {
        // Room, unsent, held.
        let cases = [
            (1000, 5000, false, "a segment fits"),
            (999, 5000, true, "no segment fits"),
            (0, 1, true, "nothing fits"),
            (0, 0, true, "a FIN alone"),
            (1000, 0, false, "a FIN alone"),
        ];
        for (quota, unsent, held, name) in cases {
            let now = PlanView { mss: 1000, quota, unsent, ..PlanView::default() };
            assert_eq!(cwnd_holds(&now), held, "{name}");
        }
    }
}
