//! ProbeRTT: little in flight for a moment, so that the queue runs empty and the round trip shows
//! the length of the path (draft-ietf-ccwg-bbr, "ProbeRTT").

use super::state::{BbrCause, BbrState};
use super::{Bbr, MIN_PIPE_CWND, Rs};
use crate::congestion::Window;
use crate::time::{Instant, Nanos};

/// How long little is in flight (`ProbeRTTDuration`), and for one round trip at least.
const PROBE_RTT_DURATION: Nanos = Nanos::from_millis(200);

/// The variables of a ProbeRTT.
#[derive(Clone, Debug, Default)]
pub(super) struct ProbeRtt {
    /// `BBR.probe_rtt_done_stamp`, once little is in flight.
    done: Option<Instant>,
    /// `BBR.probe_rtt_round_done`.
    round_done: bool,
}

impl Bbr {
    /// The window of ProbeRTT: half of the path's volume.
    pub(super) fn probe_rtt_cwnd(&self) -> u32 {
        self.bdp(BbrState::ProbeRtt.cwnd_gain()).max(MIN_PIPE_CWND)
    }

    /// An ACK came: begins, continues or ends a ProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, rs: &Rs, window: &mut Window) {
        if self.state != BbrState::ProbeRtt && self.min_rtt.is_probe_due() && !self.idle_restart {
            self.save_cwnd(window.cwnd());
            self.probe_rtt = ProbeRtt::default();
            self.cycle.stop_probe();
            self.rounds.begin(self.delivered);
            self.enter(BbrState::ProbeRtt, BbrCause::MinRttExpired);
        }
        if self.state == BbrState::ProbeRtt {
            self.continue_probe_rtt(rs, window);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn continue_probe_rtt(&mut self, rs: &Rs, window: &mut Window) {
        if self.probe_rtt.done.is_none() {
            if rs.c_inflight <= self.probe_rtt_cwnd() {
                self.probe_rtt.done = Some(rs.now + PROBE_RTT_DURATION);
                self.probe_rtt.round_done = false;
                self.rounds.begin(self.delivered);
            }
            return;
        }
        self.probe_rtt.round_done |= self.rounds.started();
        if self.probe_rtt.round_done {
            self.check_probe_rtt_done(rs.now, window, rs.c_inflight);
        }
    }

    /// Whether ProbeRTT has lasted long enough. Checked at each ACK, and when data leaves after an
    /// idle time. `in_flight` segments are in flight.
    pub(super) fn check_probe_rtt_done(
        &mut self,
        now: Instant,
        window: &mut Window,
        in_flight: u32,
    ) {
        if self.probe_rtt.done.is_some_and(|done| done < now) {
            self.min_rtt.on_probed(now);
            self.restore_cwnd(window);
            self.exit_probe_rtt(now);
            self.loss.skip_until(self.delivered.wrapping_add(in_flight));
        }
    }

    fn exit_probe_rtt(&mut self, now: Instant) {
        self.bounds.reset_shortterm();
        if self.full_pipe.is_reached() {
            // DOWN has nothing to do here: the queue is empty. Its clock of the next probe runs.
            self.start_down(now, BbrCause::MinRttMeasured);
            self.start_cruise(BbrCause::MinRttMeasured);
        } else {
            self.enter_startup(BbrCause::MinRttMeasured);
        }
    }
}
