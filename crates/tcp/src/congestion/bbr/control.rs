//! BBR's control parameters: the pacing rate, the send quantum, the window (draft-ietf-ccwg-bbr,
//! "Updating Control Parameters").

use core::num::{NonZeroU32, NonZeroU64};

use super::bounds::INFINITE;
use super::state::BbrState;
use super::units::ratio;
use super::{Bbr, MIN_PIPE_CWND, Rs};
use crate::congestion::Window;
use crate::time::Nanos;

/// The margin of pacing below the rate of the path, in percent, so that a queue runs empty
/// (`PacingMarginPercent`).
pub(super) const PACING_MARGIN: u64 = 1;

/// The divisor for two factors in percent.
pub(super) const PERCENT_SQUARED: u64 = 10_000;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The round trip that is assumed for a connection without a sample.
const NOMINAL_RTT: Nanos = Nanos::from_millis(1);

/// Most bytes of one packet.
const MAX_QUANTUM: u64 = 64 * 1024;

/// Packets of the largest size that may be on their way through both ends.
const OFFLOAD_QUANTA: u64 = 3;

/// Segments that UP has in flight beyond the gain's, so that it grows at any rate.
const UP_SEGS: u32 = 2;

/// The rate before there is a sample (`BBRInitPacingRate`): the initial window of `initial`
/// segments of `mss` bytes in a round trip, times the gain of Startup. In bytes per second.
pub(crate) fn initial_rate(initial: u32, mss: u16, srtt: Nanos) -> u64 {
    let rtt = if srtt.is_zero() { NOMINAL_RTT } else { srtt };
    let window = u64::from(initial) * u64::from(mss.max(1));
    ratio(window * BbrState::Startup.pacing_gain(), NANOS_PER_SECOND / 100, rtt.as_nanos().max(1))
}

impl Bbr {
    /// `BBR.bw`, from which the rates are derived, in bytes per second.
    pub(super) fn bw(&self) -> u64 {
        self.max_bw.get().min(self.bounds.bw_shortterm())
    }

    /// Segments that the path holds without a queue, times `gain` percent; the initial window as
    /// long as the round trip is not known.
    pub(super) fn bdp(&self, gain: u64) -> u32 {
        self.bdp_of(self.bw(), gain)
    }

    /// The same at a rate of `bw`.
    pub(super) fn bdp_of(&self, bw: u64, gain: u64) -> u32 {
        let Some(min_rtt) = self.min_rtt.get() else { return self.initial };
        let bytes = ratio(bw, min_rtt, NANOS_PER_SECOND);
        let segs = ratio(bytes, gain, 100 * u64::from(self.mss.max(1)));
        u32::try_from(segs).unwrap_or(INFINITE)
    }

    /// Segments in flight for `gain` percent of the path's volume, and enough for both ends to work
    /// on.
    pub(super) fn inflight(&self, gain: u64) -> u32 {
        self.with_quantization_budget(self.bdp(gain))
    }

    fn with_quantization_budget(&self, segs: u32) -> u32 {
        let segs = segs.max(self.offload_budget).max(MIN_PIPE_CWND);
        let more = if self.state == BbrState::ProbeBwUp { UP_SEGS } else { 0 };
        segs.saturating_add(more)
    }

    /// Sets everything after an ACK.
    pub(super) fn update_control(&mut self, window: &mut Window, rs: &Rs) {
        self.set_pacing_rate(window, self.state.pacing_gain());
        self.set_send_quantum(window);
        self.set_cwnd(window, rs);
    }

    /// The pacing rate for `gain` percent. Before the path is known to be full, it only rises.
    pub(super) fn set_pacing_rate(&self, window: &mut Window, gain: u64) {
        let bw = self.bw();
        if bw == 0 {
            return;
        }
        let rate = ratio(bw, gain * (100 - PACING_MARGIN), PERCENT_SQUARED);
        // A timeout comes a second later at the latest: one segment leaves until then.
        let rate = rate.max(self.mss.into());
        let before = window.allowed.pacing_rate.map_or(0, NonZeroU64::get);
        if self.full_pipe.is_reached() || rate > before {
            window.allowed.pacing_rate = NonZeroU64::new(rate);
        }
    }

    /// The largest packet: a millisecond at the pacing rate.
    pub(super) fn set_send_quantum(&mut self, window: &mut Window) {
        let rate = window.allowed.pacing_rate.map_or(0, NonZeroU64::get);
        let mss = u64::from(self.mss.max(1));
        let quantum = (rate / 1000).min(MAX_QUANTUM).max(2 * mss);
        window.allowed.send_quantum = NonZeroU32::new(quantum as u32);
        self.offload_budget = (OFFLOAD_QUANTA * quantum).div_ceil(mss) as u32;
    }

    fn set_cwnd(&mut self, window: &mut Window, rs: &Rs) {
        let most = self.bdp(self.state.cwnd_gain()).saturating_add(self.aggregation.get());
        let max_inflight = self.with_quantization_budget(most);
        let mut cwnd = self.modulate_cwnd(window.cwnd(), rs);
        if !self.conserves_packets() {
            if self.full_pipe.is_reached() {
                cwnd = cwnd.saturating_add(rs.newly_acked).min(max_inflight);
            } else if cwnd < max_inflight || rs.c_delivered < self.initial {
                cwnd = cwnd.saturating_add(rs.newly_acked);
            }
            cwnd = cwnd.max(MIN_PIPE_CWND);
        }
        if self.state == BbrState::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_cwnd());
        }
        window.set_cwnd(cwnd.min(self.inflight_bound()));
    }

    /// The most that the bounds allow.
    fn inflight_bound(&self) -> u32 {
        let longterm = match self.state {
            BbrState::ProbeBwCruise | BbrState::ProbeRtt => self.bounds.inflight_with_headroom(),
            state if state.is_probe_bw() => self.bounds.inflight_longterm(),
            _ => INFINITE,
        };
        longterm.min(self.bounds.inflight_shortterm()).max(MIN_PIPE_CWND)
    }
}
