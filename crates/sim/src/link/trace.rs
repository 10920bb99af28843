//! Traces of a link whose rate changes: the times at which it can send a packet.

use std::fmt;
use std::sync::Arc;

use plimsoll_tcp::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// Bytes that leave at one opportunity.
const OPPORTUNITY: u64 = 1500;
/// Nanoseconds of the unit of a trace.
const MILLI: u64 = 1_000_000;
/// The latest time of a trace: a year.
const LATEST_MS: u64 = 366 * 24 * 3600 * 1000;

/// The opportunities of a link to send, as mahimahi records them: each is a time in milliseconds at
/// which 1500 bytes leave. After the last one the trace begins again. Small packets share an
/// opportunity, and the rest of a packet waits for the next one. An opportunity at which no packet
/// waits is lost.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Trace(Arc<[u64]>);

impl TryFrom<Vec<u64>> for Trace {
    type Error = String;

    fn try_from(times: Vec<u64>) -> Result<Trace, String> {
        if let Some(at) = times.windows(2).position(|pair| matches!(pair, [a, b] if a > b)) {
            return Err(format!("time {} is earlier than the one before it", at + 2));
        }
        match times.last() {
            None => Err("it has no time".to_owned()),
            Some(0) => Err("its last time is 0, but a trace has a length".to_owned()),
            Some(&last) if last > LATEST_MS => Err(format!("{last} ms is longer than a year")),
            Some(_) => Ok(Trace(times.into())),
        }
    }
}

impl From<Trace> for Vec<u64> {
    fn from(trace: Trace) -> Vec<u64> {
        trace.0.to_vec()
    }
}

impl std::str::FromStr for Trace {
    type Err = String;

    /// Reads a time in milliseconds from each line.
    fn from_str(text: &str) -> Result<Trace, String> {
        let number = |(at, line): (usize, &str)| {
            let line = line.trim();
            line.parse::<u64>()
                .map_err(|_| format!("line {}: '{line}' is no number of milliseconds", at + 1))
        };
        text.lines().enumerate().map(number).collect::<Result<Vec<_>, _>>()?.try_into()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} opportunities in {} ms)", self.0.len(), self.period())
    }
}

impl Trace {
    /// Its length in milliseconds, after which it begins again.
    fn period(&self) -> u64 {
        self.0.last().copied().unwrap_or(1)
    }

    /// Bits per second, over the whole trace.
    pub fn mean_rate(&self) -> f64 {
        self.0.len() as f64 * OPPORTUNITY as f64 * 8e3 / self.period() as f64
    }
}

/// The place of a link in its trace.
#[derive(Debug, Default)]
pub(super) struct Opportunities {
    /// When the trace began: with the first packet.
    origin: Option<Instant>,
    /// How often the trace has begun again, and the next opportunity in it.
    next: (u64, usize),
    /// The latest opportunity that was used, and the bytes that it has left.
    at: Instant,
    left: u64,
}

impl Opportunities {
    /// When the last of `bytes` leaves, if the wire takes them at `now`.
    pub(super) fn send(&mut self, trace: &Trace, now: Instant, mut bytes: u64) -> Instant {
        let origin = *self.origin.get_or_insert(now);
        if self.at < now {
            self.left = 0;
            self.next = self.next.max(first_from(trace, now.since(origin)));
        }
        while bytes > self.left {
            bytes -= self.left;
            let (cycle, index) = self.next;
            let millis = cycle * trace.period() + trace.0.get(index).copied().unwrap_or(0);
            self.at = origin + Duration::from_nanos(millis.saturating_mul(MILLI));
            self.left = OPPORTUNITY;
            self.next = if index + 1 < trace.0.len() { (cycle, index + 1) } else { (cycle + 1, 0) };
        }
        self.left -= bytes;
        self.at
    }
}

/// The first opportunity that is not before a time of the trace.
fn first_from(trace: &Trace, elapsed: Duration) -> (u64, usize) {
    let millis = (elapsed.as_nanos() as u64).div_ceil(MILLI);
    // The end of a cycle is still in it.
    let cycle = millis.saturating_sub(1) / trace.period();
    let within = millis - cycle * trace.period();
    (cycle, trace.0.partition_point(|&time| time < within))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn packets_leave_at_opportunities() {
        let trace: Trace = "2\n2\n5\n10\n".parse().unwrap();
        let mut place = Opportunities::default();
        let mut send = |now, bytes| place.send(&trace, at(now), bytes);
        // The trace begins with the first packet, here at 100 ms.
        assert_eq!(send(100, 1500), at(102));
        // Two small packets share the second opportunity, and a third has its rest in the next one.
        assert_eq!(send(102, 700), at(102));
        assert_eq!(send(102, 700), at(102));
        assert_eq!(send(102, 700), at(105));
        // The rest of an opportunity is lost, as is one at which nothing waits.
        assert_eq!(send(106, 100), at(110));
        assert_eq!(send(113, 3000), at(120));
        assert_eq!(send(120, 1500), at(122));
        // Much later, at the very end of a cycle.
        assert_eq!(send(1100, 1500), at(1100));
        assert_eq!(send(1100, 1500), at(1102));
        assert!((trace.mean_rate() - 4.8e6).abs() < 1.0);
    }

    #[test]
    fn traces_that_make_no_sense() {
        for (text, named) in [
            ("", "no time"),
            ("0\n0\n", "last time is 0"),
            ("3\n2\n", "time 2 is earlier"),
            ("3\nsoon\n", "line 2: 'soon'"),
            ("99999999999999\n", "longer than a year"),
        ] {
            let error = text.parse::<Trace>().unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
