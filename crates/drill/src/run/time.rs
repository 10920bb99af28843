//! When events happen, and whether they did.

use plimsoll_tcp::{Duration, Instant};

use crate::config::Config;
use crate::lang::ast::{Event, Time};
use crate::packet::show::seconds;

/// The longest that a script may last, in microseconds.
pub(super) const LONGEST: i64 = 24 * 3600 * 1_000_000;

/// How a time was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Any,
    Exact,
    Range,
}

/// When an event is due, in microseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) kind: Kind,
    pub(super) at: i64,
    /// The end of a range.
    pub(super) end: i64,
    /// What relative times count from.
    pub(super) origin: i64,
}

impl Due {
    /// When `event` is due if relative times count from `origin`. `None` if that is beyond what a
    /// script may last.
    pub(super) fn of(event: &Event, origin: i64) -> Option<Due> {
        let (kind, at, end) = match event.time.node {
            Time::Any => (Kind::Any, origin, origin),
            Time::Relative(delta) => {
                let at = origin.checked_add(delta)?;
                (Kind::Exact, at, at)
            }
            Time::Absolute(at) => (Kind::Exact, at, at),
            Time::AbsoluteRange(from, to) => (Kind::Range, from, to),
            Time::RelativeRange(from, to) => {
                (Kind::Range, origin.checked_add(from)?, origin.checked_add(to)?)
            }
        };
        let fits = (-LONGEST..=LONGEST).contains(&at) && (-LONGEST..=LONGEST).contains(&end);
        fits.then_some(Due { kind, at, end, origin })
    }

    /// Whether something that happened at `actual` came in time. The text of an error says how it
    /// did not. `since` is the time of the event before, which widens the tolerance.
    pub(super) fn check(
        &self,
        config: &Config,
        slack: i64,
        since: Option<i64>,
        actual: i64,
        what: &str,
    ) -> Result<(), String> {
        if self.kind == Kind::Any {
            return Ok(());
        }
        let delta = since.map_or(0, |since| self.at - since);
        let tolerance = tolerance(config, delta) + slack;
        if (self.at - tolerance..=self.end + tolerance).contains(&actual) {
            return Ok(());
        }
        let expected = match self.kind {
            Kind::Range => format!("between {} and {}", seconds(self.at), seconds(self.end)),
            _ => format!("at {}", seconds(self.at)),
        };
        let actual = seconds(actual);
        let tolerance = seconds(tolerance);
        Err(format!("{what} expected {expected} but happened at {actual} (tolerance {tolerance})"))
    }
}

/// How far an event may be off that comes `delta` microseconds after the one before.
pub(super) fn tolerance(config: &Config, delta: i64) -> i64 {
    let share = (config.tolerance_percent / 100.0 * delta as f64) as i64;
    config.tolerance_usecs.max(share)
}

/// Microseconds since the start.
pub(super) fn micros(at: Instant) -> i64 {
    i64::try_from(at.as_nanos() / 1000).unwrap_or(i64::MAX)
}

/// The point so many microseconds after the start.
pub(super) fn instant(micros: i64) -> Instant {
    Instant::from_micros(u64::try_from(micros.clamp(0, 2 * LONGEST)).unwrap_or(0))
}

/// A duration in microseconds.
pub(super) fn length(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lang::ast::{Action, Spanned};

    fn due(time: Time) -> Due {
        let event = Event {
            time: Spanned { node: time, span: 0..0 },
            action: Spanned { node: Action::Command(String::new()), span: 0..0 },
        };
        Due::of(&event, 1_000_000).unwrap()
    }

    #[test]
    fn tolerances() {
        let config = Config::default();
        let check = |due: Due, since, actual| due.check(&config, 0, since, actual, "it").is_ok();
        let exact = due(Time::Relative(100_000));
        assert!(check(exact, None, 1_104_000) && check(exact, None, 1_096_000));
        assert!(!check(exact, None, 1_104_001) && !check(exact, None, 1_095_999));
        assert!(check(exact, Some(1_000_000), 1_112_500), "an eighth of the time between");
        let range = due(Time::RelativeRange(100_000, 200_000));
        assert!(check(range, None, 1_204_000) && !check(range, None, 1_205_000));
        assert!(check(due(Time::Any), None, 77));
        let error = exact.check(&config, 0, None, 2_000_000, "the packet was").unwrap_err();
        assert_eq!(
            error,
            "the packet was expected at 1.100000 but happened at 2.000000 (tolerance 0.004000)"
        );
    }
}
