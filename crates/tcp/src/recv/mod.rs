//! The receive half: everything that RFC 9293 calls `RCV.*`.
//!
//! # Theory of operation
//!
//! In-order bytes go to the [`receive_queue`], others to [`reassembly`]; both hold slices of shared
//! buffers. The application's read copies each byte out once. [`window`] offers the free part of
//! the buffer and never takes an offer back. [`delayed_ack`] is the only place that decides when an
//! acknowledgement leaves; it only records, and `output/` sends; [`ack_defer`] lists those that
//! must not wait for the end of a batch of segments. [`autotune`] grows the buffer with the amount
//! that the application reads per round trip. [`sack_blocks`] reports the holes.

mod ack_defer;
pub(crate) mod ack_reason;
mod autotune;
mod control;
mod delayed_ack;
mod low_water;
mod memory;
mod position;
mod read;
mod reassembly;
mod receive_queue;
mod sack_blocks;
mod store;
mod text;
mod urgent;
pub(crate) mod window;

use core::num::NonZeroU32;

use plimsoll_buf::Pool;
use plimsoll_wire::SeqNum;

use crate::config::{Config, Options};
use crate::context::Context;
use crate::limits::MAX_BUFFER;
use crate::segment::Segment;
use crate::time::{Instant, Nanos};

pub use ack_defer::{Batch, FlushReason};
pub use ack_reason::AckReason;
use autotune::Autotune;
pub(crate) use autotune::Echo;
use delayed_ack::DelayedAck;
pub use delayed_ack::{AckDecision, Reader};
use reassembly::Reassembly;
use receive_queue::ReceiveQueue;
use sack_blocks::SackHistory;
pub(crate) use text::{Text, TextEffects, TextView};
use urgent::Urgent;

/// Whether the application reads arriving data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    /// It has shut the read side (SHUT_RD). As on Linux, that takes effect with our FIN.
    Shut,
    /// It has closed.
    Closed,
}

/// Totals of arrived segments in the life of a connection.
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

/// The data share of `bytes` of `tcp_rmem`: half, the other half is for overhead.
pub(crate) fn data_share(bytes: usize) -> usize {
    (bytes / 2).min(MAX_BUFFER)
}

/// The receive sequence space and the queues behind it.
#[derive(Debug)]
pub(crate) struct RecvSide {
    /// IRS.
    irs: SeqNum,
    /// RCV.NXT.
    nxt: SeqNum,
    /// The right edge that we have advertised: RCV.NXT + RCV.WND.
    adv: SeqNum,
    /// The furthest right edge that any of our segments has advertised: beyond `adv` while a window
    /// is taken back.
    furthest: SeqNum,
    /// The buffer that our SYN or SYN-ACK offers, in bytes, once one has been chosen.
    offered: Option<NonZeroU32>,
    /// SEG.ACK of the last segment we sent (RFC 7323: `Last.ACK.sent`).
    ack_sent: SeqNum,
    /// The shift of the windows that we send.
    wscale: u8,
    /// SACK is in use.
    sack_ok: bool,
    /// Whether the last window we sent was zero.
    sent_zero_window: bool,
    /// Whether the application will read.
    reading: Reading,
    /// The waiter for data to read.
    reader: Reader,
    /// The sequence number of the peer's FIN, once it is known.
    fin: Option<SeqNum>,
    /// The MSS that the peer seems to use.
    rcv_mss: u32,
    /// The length of the last full-looking segment.
    last_seg_len: u16,
    /// The MSS that we announced.
    advmss: u16,
    /// The length of the segments that windows are counted in, in bytes.
    window_mss: u16,
    /// SO_RCVBUF or autotuning's value: bytes that the queues may hold.
    buf_limit: usize,
    /// TCP_WINDOW_CLAMP: the most bytes that are offered.
    window_clamp: u32,
    /// The same by `initrwnd` of the route, as long as little has arrived.
    initial_cap: u32,
    /// The limit of the queue while memory is short, as of the last call.
    memory_cap: u32,
    /// Data in order was dropped for lack of memory, and there was none since.
    starved: bool,
    queue: ReceiveQueue,
    acks: DelayedAck,
    autotune: Autotune,
    urgent: Urgent,
    /// Out-of-order data.
    reassembly: Reassembly,
    sack: SackHistory,
    stats: RecvStats,
}

impl RecvSide {
    pub(crate) fn new(config: &Config, options: &Options, advmss: u16) -> RecvSide {
        let buf_limit = window::initial_buffer(config, options).min(MAX_BUFFER);
        RecvSide {
            irs: SeqNum(0),
            nxt: SeqNum(0),
            adv: SeqNum(0),
            furthest: SeqNum(0),
            offered: None,
            ack_sent: SeqNum(0),
            wscale: 0,
            sack_ok: false,
            sent_zero_window: false,
            reading: Reading::Open,
            reader: Reader::Absent,
            fin: None,
            rcv_mss: u32::from(advmss).min(536),
            last_seg_len: 0,
            advmss,
            window_mss: advmss,
            buf_limit,
            window_clamp: window::most_offered(options),
            initial_cap: window::initial_cap(options, advmss),
            memory_cap: u32::MAX,
            starved: false,
            queue: ReceiveQueue::new(),
            acks: DelayedAck::new(config, options),
            autotune: Autotune::new(buf_limit),
            urgent: Urgent::default(),
            reassembly: Reassembly::new(),
            sack: SackHistory::new(),
            stats: RecvStats::default(),
        }
    }

    /// Takes the peer's initial sequence number.
    pub(crate) fn start(&mut self, irs: SeqNum) {
        self.irs = irs;
        self.nxt = irs + 1;
        self.queue.set_start(self.nxt);
        self.promise_first_window();
        self.ack_sent = self.nxt;
        self.autotune.start(self.nxt, u32::from(self.advmss));
    }

    /// The window that our SYN or SYN-ACK offers, from the buffer and its limits at the first call.
    /// Each copy of the segment has the same value: otherwise one of them would promise more than
    /// is recorded.
    pub(crate) fn first_window(&mut self) -> u32 {
        let all = u32::try_from(self.buf_limit).unwrap_or(u32::MAX).min(self.offer_cap());
        let first = NonZeroU32::new(all).unwrap_or(NonZeroU32::MIN);
        let offered = self.offered.get_or_insert(first).get();
        window::whole_segments(offered as usize, self.window_mss) as u32
    }

    /// Timestamps were agreed on before our SYN-ACK leaves: each segment of the peer has so much
    /// less room for data.
    pub(crate) fn count_timestamps(&mut self, options: &Options) {
        self.window_mss = window::mss_with_timestamps(self.window_mss);
        self.initial_cap = window::initial_cap(options, self.window_mss);
        // In segments, that bound is the same; in bytes it is less than before.
        let less = NonZeroU32::new(self.initial_cap).unwrap_or(NonZeroU32::MIN);
        self.offered = self.offered.map(|offered| offered.min(less));
        self.promise_first_window();
    }

    /// Sets the right edge that our SYN or SYN-ACK promises. As on Linux it counts as if the window
    /// had been scaled already: an edge that could not be advertised yet is not worth a separate
    /// segment.
    fn promise_first_window(&mut self) {
        self.adv = self.nxt + self.first_window().min(65_535 << self.wscale);
        self.furthest = self.adv;
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
            self.queue.push(pool, &mut data);
            self.nxt += len;
            self.stats.on_segments(now, syn.segs);
            self.stats.bytes += u64::from(len);
        }
        self.promise_first_window();
        self.ack_sent = self.nxt;
        len > 0
    }

    /// The totals of arrived segments.
    pub(crate) fn stats(&self) -> &RecvStats {
        &self.stats
    }

    /// IRS.
    pub(crate) fn irs(&self) -> SeqNum {
        self.irs
    }

    /// RCV.NXT.
    pub(crate) fn nxt(&self) -> SeqNum {
        self.nxt
    }

    /// The right edge of the advertised window: RCV.NXT + RCV.WND.
    #[cfg(test)]
    pub(crate) fn adv(&self) -> SeqNum {
        self.adv
    }

    /// The furthest right edge that any of our segments has advertised.
    pub(crate) fn furthest(&self) -> SeqNum {
        self.furthest
    }

    /// SEG.ACK of the last segment we sent (RFC 7323: `Last.ACK.sent`).
    pub(crate) fn ack_sent(&self) -> SeqNum {
        self.ack_sent
    }

    /// The shift of the windows that we send.
    pub(crate) fn wscale(&self) -> u8 {
        self.wscale
    }

    /// The MSS that the peer seems to use, in bytes.
    pub(crate) fn rcv_mss(&self) -> u32 {
        self.rcv_mss
    }

    /// SO_RCVBUF or autotuning's value: bytes of data that the queues may hold.
    pub(crate) fn buffer(&self) -> usize {
        self.buf_limit
    }

    /// Bytes that data behind a hole takes of the window.
    pub(crate) fn out_of_order(&self) -> usize {
        self.reassembly.charge()
    }

    /// The ACK timeout as it is now.
    pub(crate) fn ato(&self) -> Nanos {
        self.acks.ato()
    }

    /// The round trip as the receiver measures it; zero before the first sample.
    pub(crate) fn rtt(&self) -> Nanos {
        self.autotune.rtt()
    }

    /// Bytes that the application reads per round trip.
    pub(crate) fn space(&self) -> usize {
        self.autotune.space()
    }

    /// Whether nothing is out of the ordinary: no hole, and no FIN is known.
    pub(crate) fn is_plain(&self) -> bool {
        self.reassembly.is_empty() && self.fin.is_none()
    }

    /// Whether the peer's FIN is known and was not taken, for lack of the data before it.
    pub(crate) fn awaits_data_before_fin(&self) -> bool {
        self.fin.is_some_and(|fin| fin != self.nxt) && !self.fin_taken()
    }

    /// Whether the application will not read any more, or no data follows the readable bytes.
    pub(crate) fn has_ended(&self) -> bool {
        self.fin_taken() || self.reading == Reading::Closed
    }

    /// RCV.WND as last advertised to the peer.
    pub(crate) fn wnd(&self) -> u32 {
        self.adv.since(self.nxt)
    }

    /// The application will not read any more. Returns whether something was left unread.
    pub(crate) fn close(&mut self) -> bool {
        self.reading = Reading::Closed;
        let unread = !self.queue.is_empty();
        self.queue.clear();
        unread
    }

    /// The application has shut the read side.
    pub(crate) fn shut(&mut self) {
        if self.reading == Reading::Open {
            self.reading = Reading::Shut;
        }
    }

    /// The connection is aborted: nothing is left to read.
    pub(crate) fn discard(&mut self) {
        self.queue.clear();
    }

    /// The application has closed and our FIN is acknowledged: data that waits after a hole will
    /// not be read, and later ACKs have no SACK blocks, neither for that nor for duplicates.
    pub(crate) fn forget_out_of_order(&mut self) {
        self.reassembly.clear();
        self.sack = SackHistory::new();
        self.sack_ok = false;
    }

    /// The connection is closed: nothing arrives and nothing is acknowledged any more.
    pub(crate) fn end(&mut self) {
        self.acks.reset();
        self.reassembly.clear();
    }

    /// SO_RCVBUF: `bytes` of data.
    pub(crate) fn set_buffer(&mut self, bytes: usize) {
        self.buf_limit = bytes.clamp(256, MAX_BUFFER);
    }

    /// TCP_QUICKACK.
    pub(crate) fn set_quick(&mut self, quick: bool, config: &Config) {
        self.acks.set_quick(quick, config);
    }

    /// The handshake is complete, and data that is about to leave takes its ACK along.
    pub(crate) fn leave_ack_to_data(&mut self, cx: &Context) {
        self.acks.wait_for_data(cx.now, cx.config);
    }

    /// An event apart from text requires an acknowledgement at once.
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

    /// Until when the ACK that is due waits, if it does.
    pub(crate) fn ack_waits_until(&self) -> Option<Instant> {
        self.acks.waits_until()
    }

    /// The reason why a pure ACK should leave now, if it should.
    #[inline]
    pub(crate) fn ack_due(&self, now: Instant) -> Option<AckReason> {
        self.acks.due(now)
    }

    /// Whether a duplicate ACK waits that the peer must be able to count.
    pub(crate) fn dup_ack_due(&self) -> bool {
        self.acks.owes_duplicate()
    }

    /// Data (not a pure ACK) leaves: an answer soon after input makes the connection interactive.
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

    /// Sets whether a thread or task waits for data to read.
    pub(crate) fn set_reader(&mut self, reader: Reader) {
        self.reader = reader;
    }

    /// Applies the negotiated options of the SYNs: the shift of the windows that we send, and
    /// whether SACK is in use.
    pub(crate) fn negotiate(&mut self, wscale: u8, sack_ok: bool) {
        self.wscale = wscale;
        self.sack_ok = sack_ok;
        self.promise_first_window();
    }

    /// Estimates the peer's MSS from a data segment that consisted of `segs` on the wire.
    pub(crate) fn measure_mss(&mut self, len: usize, segs: u16, pushed: bool) {
        let len = (len as u32).div_ceil(u32::from(segs.max(1)));
        if len >= self.rcv_mss {
            self.rcv_mss = len.min(u32::from(self.advmss)).max(1);
            if pushed {
                self.acks.on_push(false);
            }
        } else if !pushed && len >= 88 && len == u32::from(self.last_seg_len) {
            // The same shorter length twice without a push: the path has become narrower.
            self.rcv_mss = len;
        } else {
            self.acks.on_push(true);
        }
        // Only lengths below the MSS that we announced are compared.
        self.last_seg_len = u16::try_from(len).unwrap_or(u16::MAX);
    }

    /// No data waits to be read, or for earlier data.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.reassembly.is_empty()
    }

    /// Whether [`release_all`](Self::release_all) would free any memory at rest.
    pub(crate) fn is_releasable(&self) -> bool {
        self.queue.is_leased() || self.sack.is_releasable()
    }

    /// Gives back all that only data needs that waits to be read.
    pub(crate) fn release_all(&mut self) {
        self.queue.release_all();
        self.sack.release();
    }

    /// Bytes of heap that the queues hold, without the chunks themselves.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.heap_bytes() + self.sack.heap_bytes() + self.reassembly.heap_bytes()
    }

    /// Whether the receive queue holds the last byte before the peer's FIN, and it was taken.
    pub(crate) fn fin_taken(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt == fin + 1)
    }

    /// Panics if something does not hold that must hold between two calls. Before the peer's SYN
    /// came, and after the end of the connection, there is only the queue.
    pub(crate) fn check_invariants(&self, open: bool) {
        self.queue.check();
        if !open {
            return;
        }
        assert!(self.nxt <= self.adv, "the window has a negative size");
        assert!(self.ack_sent <= self.nxt, "we acknowledged what we do not have");
        assert!(self.fin.is_none_or(|fin| self.nxt <= fin + 1), "bytes behind the FIN");
        self.reassembly.check(self.nxt);
        let end = self.queue.start() + self.queue.len() as u32 + u32::from(self.fin_taken());
        assert_eq!(end, self.nxt, "the receive queue ends at rcv.nxt");
    }
}

#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod test_harness;
