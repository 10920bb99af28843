//! The states of BBR, each with its gains (draft-ietf-ccwg-bbr, "State Machine" and "Summary of
//! Control Behavior in the State Machine"), and the causes of state changes.

use core::fmt;
use core::num::NonZeroU32;

use crate::time::Duration;

/// The state of BBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BbrState {
    /// Doubles the rate each round trip until the path is full.
    Startup,
    /// Lets the queue that Startup made run empty.
    Drain,
    /// ProbeBW_DOWN: sends slower than the path delivers, so that queues shrink and others find
    /// space.
    ProbeBwDown,
    /// ProbeBW_CRUISE: sends as fast as the path delivers.
    ProbeBwCruise,
    /// ProbeBW_REFILL: fills the path for one round trip, without the short-term bounds.
    ProbeBwRefill,
    /// ProbeBW_UP: probes for more bandwidth.
    ProbeBwUp,
    /// Sends little for a moment, to see how short the round trip is without a queue.
    ProbeRtt,
}

impl BbrState {
    /// The name in logs: that of the draft, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            BbrState::Startup => "startup",
            BbrState::Drain => "drain",
            BbrState::ProbeBwDown => "probe_bw_down",
            BbrState::ProbeBwCruise => "probe_bw_cruise",
            BbrState::ProbeBwRefill => "probe_bw_refill",
            BbrState::ProbeBwUp => "probe_bw_up",
            BbrState::ProbeRtt => "probe_rtt",
        }
    }

    /// `BBR.pacing_gain` in percent.
    pub const fn pacing_gain(self) -> u64 {
        match self {
            BbrState::Startup => 277,
            BbrState::Drain => 50,
            BbrState::ProbeBwDown => 90,
            BbrState::ProbeBwUp => 125,
            BbrState::ProbeBwCruise | BbrState::ProbeBwRefill | BbrState::ProbeRtt => 100,
        }
    }

    /// `BBR.cwnd_gain` in percent.
    pub const fn cwnd_gain(self) -> u64 {
        match self {
            BbrState::ProbeBwUp => 225,
            BbrState::ProbeRtt => 50,
            _ => 200,
        }
    }

    /// Whether it is one of the four of ProbeBW.
    pub(super) const fn is_probe_bw(self) -> bool {
        matches!(
            self,
            BbrState::ProbeBwDown
                | BbrState::ProbeBwCruise
                | BbrState::ProbeBwRefill
                | BbrState::ProbeBwUp
        )
    }

    /// Whether this state probes for more bandwidth, so that it causes its losses itself.
    pub(super) const fn is_probing_bw(self) -> bool {
        matches!(self, BbrState::Startup | BbrState::ProbeBwRefill | BbrState::ProbeBwUp)
    }
}

/// The reason for BBR's last state change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BbrCause {
    /// It begins, or begins again.
    Start,
    /// The rate of delivery grew by less than a quarter in three round trips.
    FullPipe,
    /// More than 2 % of a flight was lost.
    ExcessLoss,
    /// An ECN echo, or a full queue below the connection.
    Congestion,
    /// The data in flight has fallen to the path's volume.
    Drained,
    /// Draining took more than three round trips.
    DrainTooLong,
    /// The data in flight has fallen to the long-term bound less its headroom.
    Headroom,
    /// Two to three seconds have passed since bandwidth was last probed.
    ProbeWait,
    /// A Reno flow would by now have grown its window back since the last loss.
    RenoRounds,
    /// The path was filled for one round trip.
    Refilled,
    /// For five seconds no round trip was as short as the shortest known one.
    MinRttExpired,
    /// The least round trip was measured.
    MinRttMeasured,
    /// The packets whose loss had changed the state were not lost after all.
    Undo,
}

impl fmt::Display for BbrCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BbrCause::Start => "start",
            BbrCause::FullPipe => "the rate does not grow any more",
            BbrCause::ExcessLoss => "more than 2 % lost",
            BbrCause::Congestion => "congestion without a loss",
            BbrCause::Drained => "no more in flight than the path holds",
            BbrCause::DrainTooLong => "three round trips of draining",
            BbrCause::Headroom => "headroom is free",
            BbrCause::ProbeWait => "time to probe",
            BbrCause::RenoRounds => "round trips in which Reno would probe",
            BbrCause::Refilled => "the path was filled for a round trip",
            BbrCause::MinRttExpired => "no round trip as short for 5 s",
            BbrCause::MinRttMeasured => "least round trip measured",
            BbrCause::Undo => "nothing was lost after all",
        })
    }
}

/// BBR's model of the path, and the limits derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BbrModel {
    /// The state.
    pub state: BbrState,
    /// The reason for that state.
    pub cause: BbrCause,
    /// `BBR.bw` in bytes per second, from which the rates are derived; zero before the first
    /// sample.
    pub bw: u64,
    /// `BBR.min_rtt` in microseconds; none before the first sample.
    pub min_rtt_us: Option<NonZeroU32>,
    /// `BBR.inflight_longterm` in segments, if there is one.
    pub inflight_longterm: Option<NonZeroU32>,
    /// `BBR.inflight_shortterm` in segments, if there is one.
    pub inflight_shortterm: Option<NonZeroU32>,
    /// The congestion window in segments.
    pub cwnd: u32,
}

impl BbrModel {
    /// `BBR.min_rtt`.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt_us.map(|micros| Duration::from_micros(micros.get().into()))
    }
}

impl fmt::Display for BbrModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bbr {}: {}; bw {} B/s", self.state.name(), self.cause, self.bw)?;
        if let Some(micros) = self.min_rtt_us {
            write!(f, ", min_rtt {micros} us")?;
        }
        write!(f, ", cwnd {}", self.cwnd)?;
        if let Some(segs) = self.inflight_longterm {
            write!(f, ", inflight_longterm {segs}")?;
        }
        if let Some(segs) = self.inflight_shortterm {
            write!(f, ", inflight_shortterm {segs}")?;
        }
        Ok(())
    }
}
