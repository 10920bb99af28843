//! How well a link in real time keeps its rate and its delay.

use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll::Instant;
use serde::Serialize;

/// By how much packets left later than the link said.
#[derive(Debug)]
pub(super) struct Lateness {
    nanos: Histogram<u64>,
    /// Bytes after the first packet, and when the first and the last left.
    bytes: u64,
    first: Option<Instant>,
    last: Instant,
}

/// The same in figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Error {
    /// Packets that were looked at.
    pub(super) packets: u64,
    /// Microseconds by which the middle one came late.
    pub(super) late_us_p50: f64,
    /// Of a hundred, the second latest.
    pub(super) late_us_p99: f64,
    /// The latest.
    pub(super) late_us_max: f64,
}

impl Lateness {
    pub(super) fn new() -> Lateness {
        let nanos = Histogram::new(3).unwrap_or_else(|_| unreachable!("0 to 5 digits are taken"));
        Lateness { nanos, bytes: 0, first: None, last: Instant::ZERO }
    }

    /// A packet of `bytes` that was due at `due` leaves at `now`.
    pub(super) fn note(&mut self, due: Instant, now: Instant, bytes: usize) {
        // The histogram grows by itself: nothing is out of its range.
        let _ = self.nanos.record(now.since(due).as_nanos() as u64);
        match self.first {
            None => self.first = Some(now),
            Some(_) => self.bytes += bytes as u64,
        }
        self.last = now;
    }

    pub(super) fn error(&self) -> Error {
        let at = |nanos: u64| nanos as f64 / 1e3;
        Error {
            packets: self.nanos.len(),
            late_us_p50: at(self.nanos.value_at_quantile(0.5)),
            late_us_p99: at(self.nanos.value_at_quantile(0.99)),
            late_us_max: at(self.nanos.max()),
        }
    }

    /// Bits per second at which packets left. `None` if there were too few to measure.
    pub(super) fn rate(&self) -> Option<f64> {
        let time = self.last.since(self.first?);
        (time > Duration::ZERO).then(|| self.bytes as f64 * 8.0 / time.as_secs_f64())
    }
}

impl Error {
    /// The median as a share of `delay`, in percent. `None` without a delay.
    pub(super) fn of_delay(&self, delay: Duration) -> Option<f64> {
        let micros = delay.as_secs_f64() * 1e6;
        (micros > 0.0).then(|| self.late_us_p50 / micros * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_lateness_are_those_of_the_packets() {
        let at = |micros: u64| Instant::ZERO + Duration::from_micros(micros);
        let mut late = Lateness::new();
        assert!(late.rate().is_none());
        for packet in 0..11 {
            let due = packet * 1000;
            late.note(at(due), at(due + 50 + packet), 1250);
        }
        // 12,500 bytes in 10.01 ms.
        let rate = late.rate().unwrap();
        assert!((rate - 9_990_010.0).abs() < 10.0, "{rate}");
        let error = late.error();
        assert_eq!(error.packets, 11);
        assert!((error.late_us_p50 - 55.0).abs() < 0.2, "{error:?}");
        assert!((error.late_us_max - 60.0).abs() < 0.2, "{error:?}");
        let share = error.of_delay(Duration::from_millis(10)).unwrap();
        assert!((share - 0.55).abs() < 0.01, "{share}");
        assert!(error.of_delay(Duration::ZERO).is_none());
    }
}
