//! Receive autotuning (Linux: dynamic right-sizing).
//!
//! Once per round trip the buffer is enlarged to twice the amount that the application read in that
//! time. While the rate grows, it is enlarged to up to twice of that again, so that our window
//! never limits a sender in slow start. Unread data in the queue is subtracted: a reader that is
//! slower than the sender needs no larger buffer. The buffer only grows, up to the data share of
//! `tcp_rmem[2]`, and not while memory is short.
//!
//! The round trip as the receiver sees it is measured in two ways: by the time in which one window
//! of data arrives, and by the timestamps that the peer echoes in full segments. Both are too long
//! for a peer that does not always have data, or whose data waits for our reader to make room. So
//! the first only ever shortens the estimate. The second may lengthen it, smoothed, but only by
//! samples that found the queue empty. With a round trip that is too long, a large batch would look
//! like a fast stream. The sender's own measurement is used only as long as there is no other. For
//! one-way data it is that of the handshake, and does not include a queue that has grown since.
//!
//! Below [`LOW_RTT`] a batch easily exceeds the data of a round trip. There the extra room for a
//! growing rate is proportional to the round trip.

use plimsoll_wire::SeqNum;

use crate::context::Context;
use crate::recv::RecvSide;
use crate::recv::data_share;
use crate::time::{Instant, Nanos};

/// Segments that a sender may begin with: the initial value of the bytes read per round trip.
const INITIAL_SEGMENTS: u32 = 10;

/// Shorter round trips get less than the full room for growth (Linux: `tcp_rcvbuf_low_rtt`).
const LOW_RTT: Nanos = Nanos::from_millis(1);

/// The resolution of the timestamp clock: a sample may be too long by this.
const RESOLUTION: Nanos = Nanos::from_millis(1);

/// The state of autotuning.
#[derive(Clone, Debug)]
pub(crate) struct Autotune {
    /// Bytes that the application read, or that arrived after a hole, in the best round trip so
    /// far.
    space: u32,
    /// Bytes read since `since`, less those that were after a hole then: they have been counted.
    copied: i32,
    since: Instant,
    /// The round trip as the receiver measures it; zero before the first sample.
    rtt: Nanos,
    /// When all bytes before `rtt_seq` have arrived, one window has.
    rtt_seq: SeqNum,
    /// The last timestamp that was echoed; each is a sample once.
    echoed: u32,
    rtt_since: Instant,
}

/// Our timestamp that a segment echoes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    value: u32,
    age: Nanos,
}

impl Echo {
    /// The timestamp `value`, which left `age` ago.
    pub(crate) fn new(value: u32, age: Nanos) -> Echo {
        Echo { value, age }
    }
}

/// The reader's progress, and the unread rest.
#[derive(Clone, Copy, Debug)]
struct Taken {
    now: Instant,
    /// Bytes read.
    count: usize,
    /// Bytes that are left in the queue.
    left: usize,
    /// Bytes after a hole.
    behind: usize,
    /// The sender's round trip; zero if unknown.
    srtt: Nanos,
}

impl Autotune {
    pub(crate) fn new(buf_limit: usize) -> Autotune {
        Autotune {
            space: u32::try_from(buf_limit / 2).unwrap_or(u32::MAX).max(1),
            copied: 0,
            since: Instant::ZERO,
            rtt: Nanos::ZERO,
            rtt_seq: SeqNum(0),
            echoed: 0,
            rtt_since: Instant::ZERO,
        }
    }

    /// The connection begins, with the peer's number and our MSS.
    pub(crate) fn start(&mut self, nxt: SeqNum, advmss: u32) {
        self.rtt_seq = nxt;
        self.space = self.space.min(INITIAL_SEGMENTS * advmss).max(1);
    }

    /// Bytes that the application reads per round trip.
    pub(crate) fn space(&self) -> usize {
        self.space as usize
    }

    /// The round trip as the receiver measures it.
    pub(crate) fn rtt(&self) -> Nanos {
        self.rtt
    }

    /// Data up to `nxt` has arrived; the peer may send up to `adv`.
    pub(crate) fn on_data(&mut self, now: Instant, nxt: SeqNum, adv: SeqNum) {
        if nxt < self.rtt_seq {
            return;
        }
        if self.rtt_since != Instant::ZERO {
            self.shorten(now.nanos_since(self.rtt_since));
        }
        self.rtt_since = now;
        self.rtt_seq = adv;
    }

    /// A full segment echoed our timestamp, `sample` after we sent it. `idle` is whether the reader
    /// has read everything.
    fn on_echo(&mut self, echoed: u32, sample: Nanos, idle: bool) {
        if core::mem::replace(&mut self.echoed, echoed) == echoed {
            return;
        }
        let rtt = self.rtt();
        if !rtt.is_zero() && idle && sample > rtt + RESOLUTION {
            self.rtt = (rtt * 7 + sample) / 8;
        } else {
            self.shorten(sample);
        }
    }

    fn shorten(&mut self, sample: Nanos) {
        let rtt = self.rtt();
        if !sample.is_zero() && (rtt.is_zero() || sample < rtt) {
            self.rtt = sample;
        }
    }

    /// The application has read. Returns the buffer that it deserves, if that grew.
    fn on_read(&mut self, taken: Taken) -> Option<usize> {
        self.copied = self.copied.saturating_add(bytes(taken.count));
        let rtt = if self.rtt().is_zero() { taken.srtt } else { self.rtt() };
        if rtt.is_zero() || taken.now.nanos_since(self.since) < rtt {
            return None;
        }
        self.since = taken.now;
        let behind = bytes(taken.behind);
        let copied = core::mem::replace(&mut self.copied, -behind);
        let copied = copied.saturating_add(behind).saturating_sub(bytes(taken.left));
        let copied = u32::try_from(copied).unwrap_or(0);
        let before = self.space;
        self.space = before.max(copied);
        (copied > before).then(|| wanted(u64::from(copied), u64::from(before), rtt))
    }
}

/// As many as fit into the type; no buffer is larger.
fn bytes(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The buffer for a reader that read `copied` bytes in the last round trip, after at most `before`.
fn wanted(copied: u64, before: u64, rtt: Nanos) -> usize {
    // The measured amount is a round trip old.
    let window = 2 * copied;
    let growth = (2 * window).saturating_mul(copied - before) / before;
    let most = if rtt < LOW_RTT {
        let (part, whole) = (rtt.as_nanos(), LOW_RTT.as_nanos());
        window.saturating_mul(part) / whole
    } else {
        window
    };
    usize::try_from(window + growth.min(most)).unwrap_or(usize::MAX)
}

impl RecvSide {
    /// The application read `count` bytes: the buffer may grow, unless SO_RCVBUF has `fixed` it.
    /// `srtt` is the round trip as the sender measures it; zero if unknown.
    pub(crate) fn autotune(&mut self, cx: &Context, count: usize, srtt: Nanos, fixed: bool) {
        if fixed || !cx.config.tcp_moderate_rcvbuf || cx.below.memory.pressure {
            return;
        }
        let (left, behind) = (self.queue.len(), self.reassembly.charge());
        let taken = Taken { now: cx.now, count, left, behind, srtt };
        let Some(want) = self.autotune.on_read(taken) else { return };
        // Data that arrived after a hole takes room until the hole is filled.
        let behind = self.reassembly.end().map_or(0, |end| end.since(self.nxt));
        let most = data_share(cx.config.tcp_rmem[2]);
        self.buf_limit = self.buf_limit.max((want + behind as usize).min(most));
    }

    /// `len` bytes of data are about to enter the queue: the timestamp that they echo may give the
    /// round trip.
    pub(crate) fn measure_rtt(&mut self, len: usize, echo: Option<Echo>) {
        if let Some(echo) = echo
            && len >= self.rcv_mss as usize
        {
            self.autotune.on_echo(echo.value, echo.age, self.queue.is_empty());
        }
    }

    /// The shorter of the round trips of sender and receiver: that of the receiver is too long if
    /// the peer does not always have data. Zero if neither is known.
    pub(crate) fn shorter_rtt(&self, srtt: Nanos) -> Nanos {
        let ours = self.autotune.rtt();
        if srtt.is_zero() || ours.is_zero() { srtt.max(ours) } else { srtt.min(ours) }
    }
}

#[cfg(test)]
mod tests;
