//! The sender: everything that RFC 9293 calls `SND.*`, and the application's writes.
//!
//! # Theory of operation
//!
//! A written byte is copied once, into a chunk of the pool, and waits in the [`write_queue`]. It is
//! cut into packets only when it leaves ([`segmentation`]), at [`units`] at the latest; from then
//! on it lies in the [`retransmit_queue`] until it is acknowledged, and the [`scoreboard`] knows
//! what has become of it. Both queues together are bounded by the send buffer ([`memory`]), which
//! grows with the congestion window unless SO_SNDBUF was set.
//!
//! [`window`] answers what the peer's window lets go, [`zero_window_probe`] asks a peer again that
//! closed it.
//!
//! `snd.nxt` is always `snd.max`: what is sent again comes out of the retransmit queue by its own
//! numbers and never moves `snd.nxt` back.

mod corked;
pub(crate) mod error_queue;
pub(crate) mod limited;
pub(crate) mod memory;
pub(crate) mod retransmit_queue;
pub(crate) mod scoreboard;
pub(crate) mod segmentation;
pub(crate) mod units;
pub(crate) mod window;
mod write;
pub(crate) mod write_queue;
mod zero_window_probe;

use alloc::boxed::Box;

use plimsoll_buf::MAX_CHUNK;
use plimsoll_wire::SeqNum;

use crate::config::{Config, Options};
use crate::limits::MIN_SENT_RANGES;
use crate::recv::window::MAX_BUFFER;
use crate::time::Instant;
use error_queue::ErrorQueue;
use limited::Limited;
use retransmit_queue::RetransmitQueue;
use scoreboard::{Arrivals, Delivered, KNOWN_RANGE_BYTES, Scoreboard};
use units::Units;
pub use write::WriteFlags;
use write_queue::WriteQueue;
use zero_window_probe::Probing;

/// How far our FIN is.
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
    /// The peer has it.
    Acked,
}

/// The send sequence space and the queues behind it.
#[derive(Debug)]
pub(crate) struct Sender {
    /// ISS.
    pub(crate) iss: SeqNum,
    /// SND.UNA.
    pub(crate) una: SeqNum,
    /// SND.NXT.
    pub(crate) nxt: SeqNum,
    /// One behind the highest number ever sent.
    pub(crate) max: SeqNum,
    /// SND.WND in bytes, already scaled.
    pub(crate) wnd: u32,
    /// SND.WL1.
    pub(crate) wl1: SeqNum,
    /// SND.WL2.
    pub(crate) wl2: SeqNum,
    /// The largest window that the peer ever offered.
    pub(crate) max_wnd: u32,
    /// The shift of the peer's windows.
    pub(crate) wscale: u8,
    /// Payload bytes of a full segment, the timestamp option already taken off.
    pub(crate) mss: u16,
    /// Minshall's mark: the end of the last packet that was not a multiple of the MSS.
    pub(crate) sml: SeqNum,
    /// SND.UP: one behind the last urgent byte, while it is not acknowledged.
    pub(crate) up: Option<SeqNum>,
    /// The last byte before this will carry PSH or has done so.
    pub(crate) pushed: SeqNum,
    /// Accepted, never sent.
    pub(crate) queue: WriteQueue,
    /// Where packets of it end at the latest.
    pub(crate) units: Units,
    /// Sent, not acknowledged: the bytes.
    pub(crate) rtx: RetransmitQueue,
    /// The same: what has become of them.
    pub(crate) scoreboard: Scoreboard,
    /// The send buffer, as [`memory`] counts.
    pub(crate) buf_limit: usize,
    /// At the last write it counted data only (`plimsoll.tcp_sndbuf_raw`).
    pub(crate) raw: bool,
    /// The last write has more to come (MSG_MORE): its tail waits, until an ACK arrives.
    pub(crate) more: bool,
    /// The tail of what is written now leaves whatever Nagle's rule or a cork says.
    pub(crate) push_now: bool,
    /// The same, until output is done, because the last write was cut short by the send buffer.
    pub(crate) short_write: bool,
    /// Whether nothing was unacknowledged when output began, until it is done or something
    /// happens.
    pub(crate) was_idle: Option<bool>,
    /// Units may be marked as leaving.
    pub(crate) cut_leaving: bool,
    /// A writer met a full buffer and waits for space (Linux: `SOCK_NOSPACE`).
    pub(crate) nospace: bool,
    /// A write was cut short for want of memory.
    pub(crate) no_memory: bool,
    /// Memory was short at the last write.
    pub(crate) tight: bool,
    /// Nothing has happened since the last write that ends automatic corking, and the write allows
    /// it.
    pub(crate) written: bool,
    /// When the next packet may leave if the connection is paced.
    pub(crate) departure: Instant,
    /// An ACK arrived: once output is done, see whether there is space for who waits.
    pub(crate) check_space: bool,
    /// How long it was busy, and what it waited for.
    pub(crate) limited: Limited,
    /// The error queue, if the socket uses it.
    pub(crate) errors: Option<Box<ErrorQueue>>,
    /// How far our FIN is.
    pub(crate) fin: Fin,
    /// What is known while the peer's window holds everything back.
    pub(crate) probing: Probing,
}

impl Sender {
    pub(crate) fn new(iss: SeqNum, mss: u16, config: &Config, options: &Options) -> Sender {
        Sender {
            iss,
            una: iss,
            nxt: iss,
            max: iss,
            wnd: 0,
            wl1: iss,
            wl2: iss,
            max_wnd: 0,
            wscale: 0,
            mss,
            sml: iss,
            up: None,
            pushed: iss + 1,
            queue: WriteQueue::new(),
            units: Units::new(),
            rtx: RetransmitQueue::new(),
            scoreboard: Scoreboard::new(),
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
            written: false,
            departure: Instant::ZERO,
            check_space: false,
            limited: Limited::default(),
            errors: None,
            fin: Fin::None,
            probing: Probing::default(),
        }
    }

    /// Bytes of heap that the queues hold, without the chunks themselves.
    pub(crate) fn heap_bytes(&self) -> usize {
        let errors = self.errors.as_ref().map_or(0, |_| size_of::<ErrorQueue>());
        self.room_bytes() + errors
    }

    /// Bytes of heap that only data needs that waits or is outstanding.
    pub(crate) fn room_bytes(&self) -> usize {
        let sent = self.rtx.heap_bytes() + self.scoreboard.heap_bytes();
        self.queue.heap_bytes() + self.units.heap_bytes() + sent
    }

    /// Nothing waits and nothing is outstanding.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.scoreboard.is_empty()
    }

    /// Gives back all that only data needs that waits or is outstanding.
    pub(crate) fn release_all(&mut self) {
        self.queue.release_all();
        self.units.release_all();
        self.rtx.release_all();
        self.scoreboard.release_all();
    }

    /// Bytes of memory that the queues bind: all that they hold, the front of the first chunk, of
    /// which the peer has acknowledged a part, what the last one still takes, and what is known of
    /// that many ranges in flight.
    pub(crate) fn held(&self) -> usize {
        let first = self.rtx.first_slice().or_else(|| self.queue.front());
        let before = first.map_or(0, |slice| slice.offset().min(MAX_CHUNK));
        let ranges = self.rtx.charge() + self.scoreboard.charge();
        self.rtx.bytes() + self.queue.len() + before + self.queue.spare() + ranges
    }

    /// Ranges that SACK may cut the scoreboard to.
    pub(crate) fn most_ranges(&self) -> usize {
        let each = usize::from(self.mss).max(KNOWN_RANGE_BYTES);
        (self.buf_limit / each).max(MIN_SENT_RANGES)
    }

    /// Everything below `ack` is acknowledged.
    pub(crate) fn take_acked(&mut self, ack: SeqNum, arrivals: &mut impl Arrivals) -> Delivered {
        self.rtx.release(ack);
        self.scoreboard.on_cumulative_ack(ack, arrivals)
    }

    /// Gives the memory back: the connection is CLOSED.
    pub(crate) fn clear(&mut self) {
        self.queue = WriteQueue::new();
        self.units = Units::new();
        self.rtx = RetransmitQueue::new();
        self.scoreboard = Scoreboard::new();
    }

    /// One behind the last byte that was written.
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

    /// Marks that SND.UNA has passed move along with it or go: 2 GiB later they would look as if
    /// they were ahead.
    pub(crate) fn forget_old_marks(&mut self) {
        self.sml = self.sml.max(self.una);
        self.pushed = self.pushed.max(self.una);
        self.up = self.urgent();
    }

    /// SND.UP while it is ahead of what is acknowledged.
    pub(crate) fn urgent(&self) -> Option<SeqNum> {
        self.up.filter(|&up| self.una < up)
    }

    /// Checks what must hold between two calls.
    pub(crate) fn check_invariants(&self) {
        self.queue.check_invariants();
        self.rtx.check_invariants();
        self.scoreboard.check_invariants();
        let (numbers, fin) = self.scoreboard.outstanding();
        assert_eq!(numbers as usize, self.rtx.bytes() + usize::from(fin), "bytes and ranges");
        assert_eq!(self.nxt, self.max, "nothing moves snd.nxt back");
        self.units.check_invariants(self.nxt, self.write_end());
        assert!(self.una <= self.sml && self.sml <= self.nxt, "Minshall's mark is outdated");
        assert!(self.up.is_none_or(|up| self.una < up), "the urgent mark is outdated");
        let sent = matches!(self.fin, Fin::Sent { .. } | Fin::Acked);
        assert!(!sent || self.queue.is_empty(), "data waits behind a FIN that was sent");
    }
}

#[cfg(test)]
mod tests;
