//! The receive half: everything that RFC 9293 calls `RCV.*`.
//!
//! # Theory of operation
//!
//! In-order bytes go to the [`receive_queue`], others to [`reassembly`]; both hold slices of shared
//! buffers. The application's read copies each byte out once. [`window`] offers the free part of
//! the buffer and never takes an offer back. [`delayed_ack`] is the only place that decides when an
//! acknowledgement leaves; it only records, and `output/` sends; [`ack_defer`] says which of them
//! may not wait for the end of a batch of segments. [`autotune`] grows the buffer with what the
//! application reads per round trip. [`sack_blocks`] reports the holes.

pub(crate) mod ack_defer;
pub(crate) mod autotune;
pub(crate) mod delayed_ack;
pub(crate) mod low_water;
mod memory;
pub(crate) mod reassembly;
pub(crate) mod receive_queue;
mod sack_blocks;
mod store;
mod text;
pub(crate) mod urgent;
pub(crate) mod window;

use plimsoll_buf::{MAX_CHUNK, Pool, Slices};
use plimsoll_wire::SeqNum;

use crate::config::{Config, Options};
use crate::connection::Context;
use crate::segment::Segment;
use crate::time::Instant;

pub use ack_defer::FlushReason;
use autotune::Autotune;
pub(crate) use autotune::Echo;
use delayed_ack::DelayedAck;
pub use delayed_ack::{AckDecision, AckReason};
use reassembly::{Inserted, Reassembly};
use receive_queue::ReceiveQueue;
use sack_blocks::SackHistory;
pub(crate) use text::{Text, TextEffects, TextView};
use urgent::Urgent;

/// What has arrived in the life of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecvStats {
    /// Segments with data.
    pub(crate) segs: u64,
    /// Bytes that RCV.NXT has moved over.
    pub(crate) bytes: u64,
    /// Segments that arrived out of order.
    pub(crate) out_of_order: u32,
    /// When data last arrived; when the connection opened, if none did.
    pub(crate) last_data: Instant,
}

impl RecvStats {
    fn on_segments(&mut self, now: Instant, segs: u16) {
        self.segs += u64::from(segs);
        self.last_data = now;
    }
}

/// The receive sequence space and the queues behind it.
#[derive(Debug)]
pub(crate) struct RecvSide {
    /// IRS.
    pub(crate) irs: SeqNum,
    /// RCV.NXT.
    pub(crate) nxt: SeqNum,
    /// The right edge that we have advertised: RCV.NXT + RCV.WND.
    pub(crate) adv: SeqNum,
    /// Bytes that our SYN or SYN-ACK offers, once that is chosen.
    offered: Option<u32>,
    /// SEG.ACK of the last segment we sent (Linux: `rcv_wup`; RFC 7323: `Last.ACK.sent`).
    pub(crate) ack_sent: SeqNum,
    /// The shift of the windows that we send.
    pub(crate) wscale: u8,
    /// SACK is in use.
    pub(crate) sack_ok: bool,
    /// Whether the last window we sent was zero.
    pub(crate) sent_zero_window: bool,
    /// The application will not read any more.
    pub(crate) closed: bool,
    /// Somebody waits for data to read.
    pub(crate) reader_waiting: bool,
    /// The sequence number of the peer's FIN, once it is known.
    pub(crate) fin: Option<SeqNum>,
    /// What the peer seems to use as MSS.
    pub(crate) rcv_mss: u32,
    /// The length of the last full-looking segment.
    pub(crate) last_seg_len: u32,
    /// The MSS that we announced.
    pub(crate) advmss: u32,
    /// SO_RCVBUF or what autotuning made of it: bytes that the queues may hold.
    pub(crate) buf_limit: usize,
    /// What the queue may hold while memory is short, by the state of the last call.
    pub(crate) memory_cap: u32,
    /// Data in order was dropped for lack of memory, and there was none since.
    starved: bool,
    pub(crate) queue: ReceiveQueue,
    pub(crate) acks: DelayedAck,
    pub(crate) autotune: Autotune,
    pub(crate) urgent: Urgent,
    /// Out-of-order data.
    pub(crate) reassembly: Reassembly,
    pub(crate) sack: SackHistory,
    stats: RecvStats,
}

impl RecvSide {
    pub(crate) fn new(config: &Config, options: &Options, advmss: u16) -> RecvSide {
        let buf_limit = window::initial_buffer(config, options).min(window::MAX_BUFFER);
        RecvSide {
            irs: SeqNum(0),
            nxt: SeqNum(0),
            adv: SeqNum(0),
            offered: None,
            ack_sent: SeqNum(0),
            wscale: 0,
            sack_ok: false,
            sent_zero_window: false,
            closed: false,
            reader_waiting: false,
            fin: None,
            rcv_mss: u32::from(advmss).min(536),
            last_seg_len: 0,
            advmss: u32::from(advmss),
            buf_limit,
            memory_cap: u32::MAX,
            starved: false,
            queue: ReceiveQueue::new(),
            acks: DelayedAck::new(config, options),
            autotune: Autotune::new(buf_limit),
            urgent: Urgent::default(),
            reassembly: Reassembly::new(),
            sack: SackHistory::default(),
            stats: RecvStats::default(),
        }
    }

    /// Takes the peer's initial sequence number.
    pub(crate) fn start(&mut self, irs: SeqNum) {
        self.irs = irs;
        self.nxt = irs + 1;
        self.promise_first_window();
        self.ack_sent = self.nxt;
        self.autotune.start(self.nxt, self.advmss);
    }

    /// What our SYN or SYN-ACK offers: the buffer as it is when this is first asked. Each copy of
    /// it says the same (Linux: `rsk_rcv_wnd`), or else one of them would promise more than is
    /// remembered.
    pub(crate) fn first_window(&mut self) -> u32 {
        let all = u32::try_from(self.buf_limit).unwrap_or(u32::MAX);
        *self.offered.get_or_insert(all)
    }

    /// Sets the right edge that our SYN or SYN-ACK promises. As on Linux it counts as if the
    /// window had been scaled already: what the peer could not be told yet is not news for a
    /// segment of its own.
    pub(crate) fn promise_first_window(&mut self) {
        self.adv = self.nxt + self.first_window().min(65_535 << self.wscale);
    }

    /// The connection is open.
    pub(crate) fn on_open(&mut self, now: Instant) {
        self.stats.last_data = now;
    }

    /// Takes data that came with a SYN. The SYN-ACK acknowledges it and promises the first window
    /// behind it. Returns whether there was any.
    pub(crate) fn take_syn_data(&mut self, now: Instant, pool: &Pool, syn: &Segment) -> bool {
        self.on_open(now);
        let mut data = syn.payload.clone();
        data.truncate(usize::from(window::initial_window(self.first_window() as usize)));
        let len = data.len() as u32;
        if len > 0 {
            self.queue.push(pool, data);
            self.nxt += len;
            self.stats.on_segments(now, syn.segs);
            self.stats.bytes += u64::from(len);
        }
        self.promise_first_window();
        self.ack_sent = self.nxt;
        len > 0
    }

    /// What has arrived in all.
    pub(crate) fn stats(&self) -> &RecvStats {
        &self.stats
    }

    /// RCV.WND as the peer knows it.
    pub(crate) fn wnd(&self) -> u32 {
        self.adv.since(self.nxt)
    }

    /// Something else than text wants an acknowledgement at once.
    pub(crate) fn acknowledge_now(&mut self, reason: AckReason) {
        self.acks.now(reason);
    }

    /// Bytes that are received and not acknowledged.
    pub(crate) fn unacked(&self) -> u32 {
        self.nxt.since(self.ack_sent)
    }

    /// When the next acknowledgement leaves if no data takes it along.
    pub(crate) fn ack_decision(&self) -> AckDecision {
        self.acks.decision()
    }

    /// Why a pure ACK should leave now, if it should.
    pub(crate) fn ack_due(&self, now: Instant) -> Option<AckReason> {
        self.acks.due(now)
    }

    /// Whether a duplicate ACK waits that the peer must be able to count.
    pub(crate) fn dup_ack_due(&self) -> bool {
        self.acks.dup_acks > 0
    }

    /// Data (not a pure ACK) leaves: an answer soon after input marks an interactive connection.
    pub(crate) fn note_data_sent(&mut self, cx: &Context) {
        self.acks.on_data_sent(cx.now, cx.config);
    }

    /// An acknowledgement left, alone or with data.
    pub(crate) fn on_ack_sent(&mut self, cx: &Context) {
        self.ack_sent = self.nxt;
        self.acks.on_sent(cx);
        self.sack.on_ack_sent();
    }

    /// A read found nothing.
    pub(crate) fn after_empty_read(&mut self, now: Instant) {
        self.acks.on_empty_read(now, self.unacked());
    }

    /// The delayed-ACK timer fired.
    pub(crate) fn on_ack_timeout(&mut self, cx: &Context) {
        self.acks.on_timeout(cx);
    }

    /// Tells whether somebody waits for data to read.
    pub(crate) fn set_reader_waiting(&mut self, waiting: bool) {
        self.reader_waiting = waiting;
    }

    /// Takes what the SYNs have negotiated: the shift of the windows that we send, and whether SACK
    /// is in use.
    pub(crate) fn negotiate(&mut self, wscale: u8, sack_ok: bool) {
        self.wscale = wscale;
        self.sack_ok = sack_ok;
        self.promise_first_window();
    }

    /// Learns the peer's MSS from a data segment that consisted of `segs` on the wire.
    pub(crate) fn measure_mss(&mut self, len: usize, segs: u16, pushed: bool) {
        let len = (len as u32).div_ceil(u32::from(segs.max(1)));
        if len >= self.rcv_mss {
            self.rcv_mss = len.min(self.advmss).max(1);
            if pushed {
                self.acks.on_push(false);
            }
        } else if !pushed && len >= 88 && len == self.last_seg_len {
            // The same shorter length twice without a push: the path has become narrower.
            self.rcv_mss = len;
        } else {
            self.acks.on_push(true);
        }
        self.last_seg_len = len;
    }

    /// Bytes of heap that the queues hold, without the chunks themselves.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.heap_bytes() + self.reassembly.heap_bytes()
    }

    /// Whether the receive queue holds the last byte before the peer's FIN, and it was taken.
    pub(crate) fn fin_taken(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt == fin + 1)
    }

    /// Copies what is in order to `out` and takes it from the queue. A read stops before the urgent
    /// byte; out of line, the next one goes on behind it.
    pub(crate) fn copy_out(&mut self, out: &mut [u8], oobinline: bool) -> usize {
        let count = self.begin_read(out.len(), oobinline);
        self.queue.read(&mut out[..count])
    }

    /// As [`copy_out`](Self::copy_out), but hands the queue's own slices out.
    pub(crate) fn take_out(&mut self, max: usize, oobinline: bool) -> Slices {
        let count = self.begin_read(max, oobinline);
        self.queue.take(count)
    }

    /// Steps over the urgent byte if a read begins at it. Returns how many of `max` bytes a read
    /// gets at most.
    fn begin_read(&mut self, max: usize, oobinline: bool) -> usize {
        if self.urgent.mark == Some(self.queue.start()) && !self.queue.is_empty() {
            if !oobinline {
                self.queue.skip(1);
            }
            self.urgent.mark = None;
        }
        max.min(self.urgent.read_limit(self.queue.start(), self.queue.len()))
    }

    /// Bytes that reads find, without an urgent byte that is not part of the stream.
    pub(crate) fn readable(&self, oobinline: bool) -> usize {
        let (start, len) = (self.queue.start(), self.queue.len());
        let apart = !oobinline
            && self.urgent.mark.is_some_and(|mark| mark.is_within(start, start + len as u32));
        len - usize::from(apart)
    }

    /// As [`copy_out`](Self::copy_out), but the bytes stay.
    pub(crate) fn peek(&self, out: &mut [u8], oobinline: bool) -> usize {
        let at_mark = self.urgent.mark == Some(self.queue.start()) && !self.queue.is_empty();
        let skip = usize::from(at_mark && !oobinline);
        let limit = if at_mark {
            self.queue.len() - skip
        } else {
            self.urgent.read_limit(self.queue.start(), self.queue.len())
        };
        let count = out.len().min(limit);
        self.queue.peek(skip, &mut out[..count])
    }

    /// Takes the data of a segment that is not next in order. What would bind much more memory than
    /// the buffer is dropped (Linux: `tcp_prune_ofo_queue`); the segment that fills the hole is in
    /// order and always gets through.
    fn insert_out_of_order(&mut self, pool: &Pool, text: &Text) -> Inserted {
        if self.reassembly.charge() >= 2 * self.buf_limit.max(MAX_CHUNK / 16) {
            return Inserted::Full;
        }
        self.reassembly.insert(pool, text.seq, &text.payload)
    }
}

#[cfg(test)]
mod shared_tests;
