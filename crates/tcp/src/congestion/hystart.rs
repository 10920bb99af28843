//! HyStart++ (RFC 9406): leaves slow start when the RTT rises, before loss says so.

use plimsoll_wire::SeqNum;

use super::AckSample;
use crate::time::Duration;

/// MIN_RTT_THRESH of RFC 9406, section 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
/// MAX_RTT_THRESH.
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// MIN_RTT_DIVISOR.
const MIN_RTT_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE.
const N_RTT_SAMPLE: u32 = 8;
/// CSS_GROWTH_DIVISOR.
pub(crate) const CSS_GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const CSS_ROUNDS: u32 = 5;

/// What slow start shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Grow as slow start does.
    SlowStart,
    /// Grow a quarter as fast and look on (Conservative Slow Start).
    Conservative,
    /// Slow start is over.
    Exit,
}

/// The state of RFC 9406, section 4.2.
#[derive(Clone, Debug, Default)]
pub(crate) struct HyStart {
    /// `windowEnd`.
    round_end: Option<SeqNum>,
    last_round_min: Option<Duration>,
    current_round_min: Option<Duration>,
    rtt_samples: u32,
    /// `cssBaselineMinRtt`; in Conservative Slow Start while there is one.
    css_baseline: Option<Duration>,
    /// Rounds begun in Conservative Slow Start.
    css_rounds: u32,
}

impl HyStart {
    /// Takes an ACK in slow start.
    pub(crate) fn on_ack(&mut self, sample: &AckSample) -> Verdict {
        let new_round = self.round_end.is_none_or(|end| end <= sample.una);
        if new_round {
            self.start_round(sample.nxt);
            if self.css_baseline.is_some() {
                self.css_rounds += 1;
                if self.css_rounds > CSS_ROUNDS {
                    return Verdict::Exit;
                }
            }
        }
        if let Some(rtt) = sample.rtt {
            self.current_round_min =
                Some(self.current_round_min.map_or(rtt, |least| least.min(rtt)));
            self.rtt_samples += 1;
        }
        self.judge()
    }

    /// Whether slow start is in its conservative form.
    pub(crate) fn is_conservative(&self) -> bool {
        self.css_baseline.is_some()
    }

    fn start_round(&mut self, nxt: SeqNum) {
        self.last_round_min = self.current_round_min.take();
        self.rtt_samples = 0;
        self.round_end = Some(nxt);
    }

    fn judge(&mut self) -> Verdict {
        if self.rtt_samples >= N_RTT_SAMPLE {
            match (self.css_baseline, self.current_round_min, self.last_round_min) {
                (Some(baseline), Some(current), _) if current < baseline => {
                    // The rise was a fluke: slow start again.
                    self.css_baseline = None;
                }
                (None, Some(current), Some(last)) => {
                    let thresh = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                    if current >= last + thresh {
                        self.css_baseline = Some(current);
                        self.css_rounds = 0;
                    }
                }
                _ => {}
            }
        }
        match self.css_baseline {
            Some(_) => Verdict::Conservative,
            None => Verdict::SlowStart,
        }
    }
}
