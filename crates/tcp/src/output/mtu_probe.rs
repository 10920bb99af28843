//! `Hold::MtuProbe`: a probe of the path MTU leaves with the data that must follow it, or waits.
//!
//! If it left without, only a timeout would detect its loss. Other data does not leave in its
//! place: it would use the part of the windows that the probe waits for (RFC 4821, section 7.4).

use super::view::PlanView;

/// Segments of the congestion window that must be free: the probe, and one to follow it.
const FREE_SEGS: u32 = 2;

/// Whether a probe is due and the windows do not let it go yet. Something is in flight then: with
/// nothing in flight both windows are free as a whole, and a probe is due only if they suffice.
#[inline]
pub(super) fn mtu_probe_holds(view: &PlanView) -> bool {
    view.probe.is_some_and(|probe| {
        view.usable < probe.needed || view.quota < FREE_SEGS.saturating_mul(view.mss)
    })
}

#[cfg(test)]
mod tests {
    use super::super::view::MtuProbeView;
    use super::*;

    #[test]
    fn waits_for_both_windows() {
        let probe = Some(MtuProbeView { len: 1200, needed: 5200 });
        let view = PlanView { mss: 1000, quota: 2000, usable: 5200, probe, ..PlanView::default() };
        assert!(!mtu_probe_holds(&view));
        assert!(mtu_probe_holds(&PlanView { quota: 1000, ..view }), "cwnd");
        assert!(mtu_probe_holds(&PlanView { usable: 5199, ..view }), "the peer's window");
        assert!(!mtu_probe_holds(&PlanView { probe: None, quota: 0, ..view }), "no probe is due");
    }
}
