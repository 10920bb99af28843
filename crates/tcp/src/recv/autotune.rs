//! Receive autotuning (Linux: dynamic right-sizing).
//!
//! Once per round trip the buffer is made large enough for twice of what the application read in
//! that time, so that a sender in slow start is never held by our window. It only grows, up to the
//! part of `tcp_rmem[2]` that is for data.
//!
//! The round trip as the receiver sees it is the time in which one window of data arrives; the
//! sender's own measure is taken if it is shorter.

use plimsoll_wire::SeqNum;

use crate::connection::{Connection, Context};
use crate::recv::window::data_share;
use crate::time::{Duration, Instant};

/// The state of autotuning.
#[derive(Clone, Debug)]
pub(crate) struct Autotune {
    /// Bytes that the application read in the best round trip so far.
    space: u32,
    /// Bytes read since `since`.
    copied: u32,
    since: Instant,
    /// The round trip as the receiver measures it; zero before the first sample.
    rtt: Duration,
    /// When all bytes before `rtt_seq` have arrived, one window has.
    rtt_seq: SeqNum,
    rtt_since: Instant,
}

impl Autotune {
    pub(crate) fn new(buf_limit: usize) -> Autotune {
        Autotune {
            space: u32::try_from(buf_limit / 2).unwrap_or(u32::MAX),
            copied: 0,
            since: Instant::ZERO,
            rtt: Duration::ZERO,
            rtt_seq: SeqNum(0),
            rtt_since: Instant::ZERO,
        }
    }

    pub(crate) fn start(&mut self, nxt: SeqNum) {
        self.rtt_seq = nxt;
    }

    /// What the application reads per round trip, in bytes.
    pub(crate) fn space(&self) -> usize {
        self.space as usize
    }

    /// The round trip as the receiver measures it.
    pub(crate) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Data up to `nxt` has arrived; the peer may send up to `adv`.
    pub(crate) fn on_data(&mut self, now: Instant, nxt: SeqNum, adv: SeqNum) {
        if nxt < self.rtt_seq {
            return;
        }
        if self.rtt_since != Instant::ZERO {
            let sample = now.since(self.rtt_since);
            let shorter = self.rtt.is_zero() || sample < self.rtt;
            self.rtt = if shorter { sample } else { (self.rtt * 7 + sample) / 8 };
        }
        self.rtt_since = now;
        self.rtt_seq = adv;
    }

    /// The application read `count` bytes. Returns the buffer that it deserves, if it grew.
    fn on_read(&mut self, now: Instant, count: usize, srtt: Duration, mss: usize) -> Option<usize> {
        self.copied = self.copied.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        let rtt = match (self.rtt.is_zero(), srtt.is_zero()) {
            (true, _) => srtt,
            (false, true) => self.rtt,
            (false, false) => self.rtt.min(srtt),
        };
        if rtt.is_zero() || now.since(self.since) < rtt {
            return None;
        }
        let copied = core::mem::take(&mut self.copied);
        self.since = now;
        if copied <= self.space {
            return None;
        }
        // Twice for slow start, some segments for the start itself, and the growth once more.
        let growth = 2 * (copied - self.space) as usize;
        self.space = copied;
        let copied = copied as usize;
        Some(2 * copied + 16 * mss + growth)
    }
}

impl Connection {
    /// The application read `count` bytes: the buffer may grow.
    pub(crate) fn autotune(&mut self, cx: &Context, count: usize) {
        if !cx.config.tcp_moderate_rcvbuf || self.options.rcvbuf.is_some() {
            return;
        }
        let srtt = self.srtt();
        let mss = self.rcv.advmss as usize;
        if let Some(want) = self.rcv.autotune.on_read(cx.now, count, srtt, mss) {
            if cx.below.memory.pressure {
                return;
            }
            let most = data_share(cx.config.tcp_rmem[2]);
            self.rcv.buf_limit = self.rcv.buf_limit.max(want.min(most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_what_is_read_per_round_trip() {
        let mut tune = Autotune::new(65_536);
        let rtt = Duration::from_millis(10);
        assert_eq!(tune.on_read(Instant::from_millis(5), 60_000, rtt, 1000), None, "too early");
        let want = tune.on_read(Instant::from_millis(11), 1000, rtt, 1000);
        assert!(want.is_some_and(|want| want >= 2 * 61_000));
        assert_eq!(tune.on_read(Instant::from_millis(30), 30_000, rtt, 1000), None, "less");
    }
}
