//! `Hold::TsoDefer`: a super-segment that the windows would cut short waits for the ACK that opens
//! them, so that it leaves whole.
//!
//! An ACK that opens the window by two segments would otherwise let a packet of two segments go,
//! its ACK the next one of two, and so on: the whole stream would move in small packets for ever.
//! Waiting is right only if the ACK is about to come, so that the pipe never runs dry. Data is not
//! held back
//!
//! - if a full packet may leave, or all that waits while more waits behind it;
//! - if a good part of the window is free (`tcp_tso_win_divisor`);
//! - in recovery, where every ACK counts;
//! - if it is the end of a record or of the stream and all of it may leave: nothing will join it;
//! - if nothing left for [`LONGEST`]: then the burst is over, and the ACKs no longer come in a row;
//! - if the next ACK is expected only after half a round trip, or more than [`LONGEST`] from now. A
//!   flow over a long path would lose its turn again and again and its window would not grow;
//! - with nothing in flight, since no ACK would come.
//!
//! Linux leaves it at that: an ACK restarts what was held. But the ACK may not come when it is
//! expected: it is lost, or the peer delays it, because it waits for a second segment or for its
//! application, and then the data would wait for a delayed ACK, up to 200 ms, or for the timeout.
//! [`Timer::TsoDefer`](crate::Timer) therefore ends the wait [`LONGEST`] after data last left. This
//! is the point from which on Linux itself would no longer hold, if something made it look.
//!
//! Where departure times are kept below us, the time counts from when the next packet may depart,
//! as on Linux: handed down before that, it would only wait there. So the wait lasts for the time
//! that the packet before it takes at the pacing rate, and [`LONGEST`] more.

use super::situation::Situation;
use crate::connection::{Connection, Context};
use crate::recovery::Phase;
use crate::time::{Duration, Instant};

/// Nothing is held longer than this after it may depart, or for an ACK further away.
const LONGEST: Duration = Duration::from_millis(1);

/// Segments that a window must let go if `tcp_tso_win_divisor` is zero: the peer acknowledges every
/// other one, so that more than three mean that an ACK is missing.
const MOST_DEFERRED_SEGS: u32 = 3;

/// What would have let more leave. Decides whether cwnd counts as used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    /// The congestion window.
    Cwnd,
    /// The peer's window.
    Rwnd,
    /// The application, which may write more.
    Application,
}

/// What only this rule looks at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deferral {
    /// Waiting is allowed at all: it is switched on, and this is neither recovery nor a probe, nor
    /// what a write sends while it goes on.
    pub(crate) allowed: bool,
    /// `tcp_tso_win_divisor`.
    pub(crate) divisor: u32,
    /// SND.WND.
    pub(crate) wnd: u32,
    /// A record ends where the first unit ends.
    pub(crate) record: bool,
    /// Since data last left, or since the next packet may depart if that is later.
    pub(crate) since_sent: Duration,
    /// Since the oldest data in flight left; nothing is in flight if there is none.
    pub(crate) age: Option<Duration>,
    /// The smoothed round trip; zero before the first sample.
    pub(crate) srtt: Duration,
}

impl Deferral {
    /// Whether the next ACK is about to come.
    fn ack_is_near(&self) -> bool {
        let far = self.age.map(|age| self.srtt.saturating_sub(age));
        far.is_some_and(|far| far <= LONGEST.min(self.srtt / 2))
    }
}

/// Whether what waits, more than one segment, is held until an ACK opens the windows further, and
/// what its limit is.
pub(crate) fn tso_defer_holds(now: &Situation) -> Option<Limiter> {
    let facts = &now.deferral;
    if !facts.allowed || facts.since_sent >= LONGEST {
        return None;
    }
    let limit = now.usable.min(now.quota);
    let full = now.largest.max(now.mss);
    let all = now.unsent <= limit;
    let complete = all && (now.behind || now.fin || facts.record);
    if limit >= full - full % now.mss || complete {
        return None;
    }
    let worth_it = match facts.divisor {
        0 => limit > MOST_DEFERRED_SEGS * now.mss,
        divisor => limit >= facts.wnd.min(now.cwnd) / divisor,
    };
    if worth_it || !facts.ack_is_near() {
        return None;
    }
    Some(if now.unsent < limit {
        Limiter::Application
    } else if now.quota < now.usable {
        Limiter::Cwnd
    } else {
        Limiter::Rwnd
    })
}

impl Connection {
    /// When data last left; if it is paced, when what follows may depart, if that is later.
    pub(super) fn last_departure(&self, cx: &Context) -> Instant {
        let last = self.snd.recovery.last_sent;
        if self.is_paced(cx) { last.max(self.snd.departure) } else { last }
    }

    /// When waiting is over.
    pub(crate) fn deferring_ends(&self, cx: &Context) -> Instant {
        self.last_departure(cx) + LONGEST
    }

    /// What [`tso_defer_holds`] asks about.
    pub(crate) fn deferral(&self, cx: &Context) -> Deferral {
        let unit = self.snd.units.front();
        let front = self.snd.scoreboard.front().filter(|_| self.pipe() > 0);
        Deferral {
            allowed: cx.config.tcp_tso_defer
                && self.snd.recovery.phase < Phase::Recovery
                && !self.is_probing_with_new_data()
                && unit.is_some_and(|unit| !unit.leaving),
            divisor: cx.config.tcp_tso_win_divisor.into(),
            wnd: self.snd.wnd,
            record: unit.is_some_and(|unit| unit.record),
            since_sent: cx.now.since(self.last_departure(cx)),
            age: front.map(|range| cx.now.since(range.sent_at)),
            srtt: self.srtt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of window, eight in flight, and an ACK that is due: two could leave.
    fn waiting() -> Situation {
        let micros = Duration::from_micros;
        Situation {
            mss: 1000,
            unsent: 20_000,
            cwnd: 10_000,
            quota: 2000,
            usable: 50_000,
            largest: 65_000,
            deferral: Deferral {
                allowed: true,
                divisor: 3,
                wnd: 60_000,
                record: false,
                since_sent: micros(300),
                age: Some(micros(400)),
                srtt: micros(500),
            },
            ..Situation::default()
        }
    }

    fn with(change: fn(&mut Deferral)) -> Situation {
        let mut now = waiting();
        change(&mut now.deferral);
        now
    }

    #[test]
    fn what_holds_and_what_does_not() {
        let base = waiting();
        let micros = Duration::from_micros;
        let held = Some(Limiter::Cwnd);
        let few = Situation { unsent: 1500, ..base };
        let far = |age, srtt| {
            let facts = Deferral { age: Some(micros(age)), srtt: micros(srtt), ..base.deferral };
            Situation { deferral: facts, ..base }
        };
        let cases = [
            (base, held, "an ACK is near"),
            (with(|facts| facts.allowed = false), None, "off, recovery, a probe"),
            (with(|facts| facts.since_sent = LONGEST), None, "nothing left for too long"),
            (with(|facts| facts.age = None), None, "nothing in flight"),
            (Situation { quota: 4000, ..base }, None, "a third of the window"),
            (with(|facts| facts.divisor = 0), held, "at most three segments"),
            (Situation { quota: 4000, ..with(|facts| facts.divisor = 0) }, None, "more than three"),
            (Situation { largest: 2000, ..base }, None, "a full packet"),
            (Situation { usable: 1500, ..base }, Some(Limiter::Rwnd), "the peer's window"),
            (few, Some(Limiter::Application), "the application may write more"),
            (Situation { behind: true, ..few }, None, "nothing joins it"),
            (Situation { fin: true, ..few }, None, "the end of the stream"),
            (Situation { fin: true, ..base }, held, "the end is not reached"),
            (far(100, 500), None, "less than half of the round trip has passed"),
            (far(250, 500), held, "half of it"),
            (far(700, 500), held, "the ACK is late"),
            (far(8_000, 10_000), None, "it is more than a millisecond away"),
            (far(9_000, 10_000), held, "a millisecond"),
            (far(0, 0), held, "nobody knows"),
        ];
        for (now, expected, name) in cases {
            assert_eq!(tso_defer_holds(&now), expected, "{name}");
        }
        let mut record = few;
        record.deferral.record = true;
        assert_eq!(tso_defer_holds(&record), None, "the end of a record");
    }
}
