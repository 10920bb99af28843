//! The sender: everything that RFC 9293 calls `SND.*`, and the application's writes.
//!
//! # Theory of operation
//!
//! A written byte is copied once, into a chunk of the pool, and waits in the [`write_queue`]. It is
//! cut into packets only when it leaves ([`segmentation`]), at [`units`] at the latest. From then
//! on it is in the [`retransmit_queue`] until it is acknowledged, and [`flight`] owns its state:
//! the scoreboard, the recovery of losses and the window. The send buffer limits both queues
//! together ([`memory`]); it grows with the congestion window unless SO_SNDBUF was set.
//!
//! [`window`] computes what the peer's window allows; [`zero_window_probe`] probes a peer that
//! closed it.
//!
//! The next packet is one plan ([`planning`]), made of all of this by the rules in `output/`; no
//! state changes until the plan is committed. [`pacing`] computes a packet's departure time,
//! [`tso_size`] its largest size.
//!
//! `snd.nxt` never goes back, so nothing was ever sent beyond it: retransmitted data comes out of
//! the retransmit queue with its own numbers.

mod conn_parts;
pub(crate) mod error_queue;
mod events;
pub(crate) mod flight;
mod limited;
pub(crate) mod memory;
pub(crate) mod pacing;
mod planning;
mod progress;
mod retransmit_queue;
pub(crate) mod segmentation;
mod tso_size;
mod units;
mod window;
mod write;
mod write_queue;
mod zero_window_probe;

use alloc::boxed::Box;

use plimsoll_buf::MAX_CHUNK;
use plimsoll_wire::SeqNum;

use crate::config::{Config, Options};
use crate::limits::{MAX_BUFFER, MIN_SENT_RANGES};
use crate::output::hold::Hold;
use crate::send::tso_size::Longest;
use crate::serial::Serial;
use crate::time::Instant;
pub(crate) use conn_parts::ConnParts;
use error_queue::ErrorQueue;
use flight::Flight;
use flight::scoreboard::KNOWN_RANGE_BYTES;
use limited::Limited;
use retransmit_queue::RetransmitQueue;
use units::Units;
pub use write::WriteFlags;
pub(crate) use write::{Piece, WriteView};
use write_queue::WriteQueue;
pub(crate) use zero_window_probe::Persist;
use zero_window_probe::Probing;

/// The state of our FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    /// The application may still write.
    None,
    /// It follows the last byte of the write queue.
    Queued,
    /// It left with the number `seq`.
    Sent {
        /// The number of the FIN.
        seq: SeqNum,
    },
    /// The peer has acknowledged it.
    Acked,
}

/// The events since output was last polled for new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastInput {
    /// An ACK, a timer, a completion, an option: the events that end automatic corking.
    Event,
    /// A write that automatic corking may hold.
    Write,
    /// Writes that it holds. It would hold less than `room` further bytes in the same way.
    Corked {
        /// In bytes.
        room: usize,
    },
}

/// Totals of sent and acknowledged data in the life of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendStats {
    pub(crate) bytes_acked: u64,
    /// Each byte once.
    pub(crate) bytes_sent: u64,
    pub(crate) data_segs_out: u64,
}

/// The send half of a connection: the send sequence space, its queues, and the state that decides
/// when they leave.
#[derive(Debug)]
pub(crate) struct SendSide {
    /// ISS.
    iss: SeqNum,
    /// SND.UNA.
    una: SeqNum,
    /// SND.NXT.
    nxt: SeqNum,
    /// SND.WND in bytes, already scaled.
    wnd: u32,
    /// SND.WL1.
    wl1: SeqNum,
    /// SND.WL2.
    wl2: SeqNum,
    /// The largest window that the peer ever offered.
    max_wnd: u32,
    /// The shift of the peer's windows.
    wscale: u8,
    /// Payload bytes of a full segment, the timestamp option already taken off.
    mss: u16,
    /// The same towards this peer, derived from `mss` and `max_wnd`.
    smss: u16,
    /// Payload bytes of the largest packet that the layer below accepts.
    longest: Longest,
    /// Minshall's variable: the end of the last packet that was not a multiple of the MSS.
    sml: SeqNum,
    /// SND.UP: one after the last urgent byte, while it is not acknowledged.
    up: Option<SeqNum>,
    /// The last byte before this will carry PSH or has done so.
    pushed: SeqNum,
    /// Accepted, never sent.
    queue: WriteQueue,
    /// Where packets of it end at the latest.
    units: Units,
    /// Sent, not acknowledged: the bytes.
    rtx: RetransmitQueue,
    /// The send buffer, as [`memory`] counts.
    buf_limit: usize,
    /// At the last write it counted data only (`plimsoll.tcp_sndbuf_raw`).
    raw: bool,
    /// The last write has more to come (MSG_MORE): its tail waits, until an ACK arrives.
    more: bool,
    /// The tail of the present write leaves in spite of Nagle's algorithm or a cork.
    push_now: bool,
    /// The same, until output is done, because the last write was cut short by the send buffer.
    short_write: bool,
    /// Whether nothing was unacknowledged when output began, until it is done or something
    /// happens.
    was_idle: Option<bool>,
    /// Units may be marked as leaving.
    cut_leaving: bool,
    /// A writer met a full buffer and waits for space (Linux: `SOCK_NOSPACE`).
    nospace: bool,
    /// A write was cut short for lack of memory.
    no_memory: bool,
    /// Memory was short at the last write.
    tight: bool,
    /// The input that automatic corking checks.
    last_input: LastInput,
    /// When the next packet may leave if the connection is paced.
    departure: Instant,
    /// An ACK arrived: once output is done, check whether there is space for a waiting writer.
    check_space: bool,
    /// How long it was busy, and its reasons for waiting.
    limited: Limited,
    /// The error queue, if the socket uses it.
    errors: Option<Box<ErrorQueue>>,
    /// How far our FIN is.
    fin: Fin,
    /// The state of probing while the peer's window is closed.
    probing: Probing,
    /// The hold on the last attempt to send new data, or to retransmit, if there was one.
    hold: Option<Hold>,
    /// A completion ends that.
    held_below: bool,
    /// The number of the next packet that is charged as below.
    next_serial: Serial,
    /// All sent data: its state, the recovery of losses, and the window.
    pub(crate) flight: Flight,
    /// Sums.
    stats: SendStats,
    /// Data was held back because cwnd let too little of it go.
    cwnd_limited: bool,
}

impl SendSide {
    /// `largest` is the number of bytes that the largest packet passed down may hold.
    pub(crate) fn new(
        iss: SeqNum,
        (mss, largest): (u16, usize),
        config: &Config,
        options: &Options,
    ) -> SendSide {
        SendSide {
            iss,
            una: iss,
            nxt: iss,
            wnd: 0,
            wl1: iss,
            wl2: iss,
            max_wnd: 0,
            wscale: 0,
            mss,
            smss: mss.max(1),
            longest: Longest::of(largest),
            sml: iss,
            up: None,
            pushed: iss + 1,
            queue: WriteQueue::new(),
            units: Units::new(),
            rtx: RetransmitQueue::new(),
            buf_limit: match options.sndbuf {
                Some(asked) if config.tcp_sndbuf_raw > 0 => memory::raw_sndbuf(asked),
                Some(asked) => memory::sndbuf(asked),
                None => config.tcp_wmem[1].clamp(1, MAX_BUFFER),
            },
            raw: false,
            more: false,
            push_now: false,
            short_write: false,
            was_idle: None,
            cut_leaving: false,
            nospace: false,
            no_memory: false,
            tight: false,
            last_input: LastInput::Event,
            departure: Instant::ZERO,
            check_space: false,
            limited: Limited::default(),
            errors: None,
            fin: Fin::None,
            probing: Probing::default(),
            hold: None,
            held_below: false,
            next_serial: Serial(1),
            flight: Flight::new(config, options),
            stats: SendStats::default(),
            cwnd_limited: false,
        }
    }

    /// Bytes of heap that the queues hold, without the chunks themselves.
    pub(crate) fn heap_bytes(&self) -> usize {
        let errors = self.errors.as_ref().map_or(0, |_| size_of::<ErrorQueue>());
        self.room_bytes() + errors + self.flight.cc().heap_bytes()
    }

    /// Bytes of heap that only data needs that waits or is outstanding.
    pub(crate) fn room_bytes(&self) -> usize {
        let sent = self.rtx.heap_bytes() + self.flight.board().heap_bytes();
        self.queue.heap_bytes() + self.units.heap_bytes() + sent
    }

    /// Whether [`release_all`](Self::release_all) would free any memory at rest.
    pub(crate) fn is_releasable(&self) -> bool {
        self.queue.is_leased()
            || self.units.is_leased()
            || self.rtx.is_leased()
            || self.flight.is_releasable()
    }

    /// Nothing waits and nothing is outstanding.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.flight.board().is_empty()
    }

    /// Gives back all that only data needs that waits or is outstanding.
    pub(crate) fn release_all(&mut self) {
        self.queue.release_all();
        self.units.release_all();
        self.rtx.release_all();
        self.flight.release();
    }

    /// Bytes of memory that the queues use: their contents, the acknowledged front of the first
    /// chunk, the free rest of the last one, and the records of that many ranges in flight.
    pub(crate) fn held(&self) -> usize {
        if self.rtx.bytes() + self.queue.len() == 0 && self.flight.board().is_empty() {
            // Empty lists keep no more memory than any connection may.
            return self.queue.spare();
        }
        let first = self.rtx.first_slice().or_else(|| self.queue.front());
        let before = first.map_or(0, |slice| slice.offset().min(MAX_CHUNK));
        let ranges = self.rtx.charge() + self.flight.board().charge();
        self.rtx.bytes() + self.queue.len() + before + self.queue.spare() + ranges
    }

    /// Ranges that SACK may cut the scoreboard to.
    pub(crate) fn most_ranges(&self) -> usize {
        let each = usize::from(self.mss).max(KNOWN_RANGE_BYTES);
        (self.buf_limit / each).max(MIN_SENT_RANGES)
    }

    /// Frees the memory: the connection is CLOSED.
    pub(crate) fn clear(&mut self) {
        self.queue = WriteQueue::new();
        self.units = Units::new();
        self.rtx = RetransmitQueue::new();
        self.flight.clear();
    }

    /// One after the last byte that was written.
    pub(crate) fn write_end(&self) -> SeqNum {
        self.nxt + self.queue.len() as u32
    }

    /// Whether anything waits that was never sent, a FIN counted.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || self.fin == Fin::Queued
    }

    /// Whether more than half of the peer's largest window was written since the last PSH.
    pub(crate) fn must_push(&self) -> bool {
        self.write_end().since(self.pushed) > self.max_wnd / 2
    }

    /// Whether an earlier packet that was not a multiple of the MSS is unacknowledged (Minshall).
    pub(crate) fn small_unacked(&self) -> bool {
        self.una < self.sml && self.sml <= self.nxt
    }

    /// Variables that SND.UNA has passed move along with it or are cleared: 2 GiB later they would
    /// seem to be ahead.
    pub(crate) fn forget_old_marks(&mut self) {
        self.sml = self.sml.max(self.una);
        self.pushed = self.pushed.max(self.una);
        self.up = self.urgent();
    }

    /// SND.UP while it is ahead of the acknowledged data.
    pub(crate) fn urgent(&self) -> Option<SeqNum> {
        self.up.filter(|&up| self.una < up)
    }

    /// Checks the invariants between two calls.
    pub(crate) fn check_invariants(&self) {
        self.queue.check_invariants();
        self.rtx.check_invariants();
        self.flight.check_invariants();
        let (numbers, fin) = self.flight.board().outstanding();
        assert_eq!(numbers as usize, self.rtx.bytes() + usize::from(fin), "bytes and ranges");
        if let Some(first) = self.flight.board().front() {
            // While our SYN is not acknowledged, it is before the data.
            let after_syn = self.una == self.iss && first.start == self.iss + 1;
            assert!(first.start == self.una || after_syn, "the scoreboard begins at SND.UNA");
            assert_eq!(first.start + numbers, self.nxt, "and ends at SND.NXT");
        }
        assert!(self.una <= self.nxt, "snd.una <= snd.nxt");
        self.units.check_invariants(self.nxt, self.write_end());
        assert!(self.una <= self.sml && self.sml <= self.nxt, "Minshall's mark is outdated");
        assert!(self.up.is_none_or(|up| self.una < up), "the urgent mark is outdated");
        let sent = matches!(self.fin, Fin::Sent { .. } | Fin::Acked);
        assert!(!sent || self.queue.is_empty(), "data waits behind a FIN that was sent");
    }
}

#[cfg(test)]
mod tests;
