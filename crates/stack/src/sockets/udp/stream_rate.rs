//! How fast the application reads and sends on a socket.

use plimsoll_tcp::Instant;

use crate::limits::{STREAM_BYTES, STREAM_SPAN};

/// Counts read and sent bytes, in spans of [`STREAM_SPAN`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamRate {
    /// When the present span began.
    since: Option<Instant>,
    /// Bytes read and sent in it.
    bytes: usize,
    /// The span before it brought a stream.
    streamed: bool,
}

impl StreamRate {
    /// Records that `bytes` were read, including each datagram's overhead, or sent.
    pub(crate) fn note(&mut self, now: Instant, bytes: usize) {
        if self.since.is_none_or(|since| now.since(since) >= STREAM_SPAN) {
            self.streamed = self.bytes >= STREAM_BYTES && self.is_current(now);
            self.since = Some(now);
            self.bytes = 0;
        }
        self.bytes += bytes;
    }

    /// Whether it carries a stream: [`STREAM_BYTES`] or more in a span that ended recently.
    pub(crate) fn is_stream(&self, now: Instant) -> bool {
        self.streamed && self.is_current(now)
    }

    /// Whether the span is, or has just been, the present one.
    fn is_current(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.since(since) < STREAM_SPAN * 2)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_tcp::Duration;

    use super::*;

    /// The rate after reads of `bytes` each, a quarter of a span apart, and the time.
    fn read(rate: &mut StreamRate, now: &mut Instant, bytes: usize) {
        for _ in 0..12 {
            *now += STREAM_SPAN / 4;
            rate.note(*now, bytes);
        }
    }

    #[test]
    fn a_stream_begins_with_its_rate_and_ends_with_it() {
        let (mut rate, mut now) = (StreamRate::default(), Instant::from_millis(1000));
        assert!(!rate.is_stream(now));
        read(&mut rate, &mut now, STREAM_BYTES / 4);
        assert!(rate.is_stream(now));
        read(&mut rate, &mut now, STREAM_BYTES / 5);
        assert!(!rate.is_stream(now), "it has become slow");
        read(&mut rate, &mut now, STREAM_BYTES / 4);
        assert!(rate.is_stream(now));
        assert!(!rate.is_stream(now + STREAM_SPAN * 2), "it has ended");
    }

    #[test]
    fn what_waited_for_long_is_no_stream() {
        let (mut rate, mut now) = (StreamRate::default(), Instant::from_millis(1000));
        for _ in 0..8 {
            rate.note(now, STREAM_BYTES * 4);
            assert!(!rate.is_stream(now));
            now += Duration::from_millis(50);
        }
    }
}
