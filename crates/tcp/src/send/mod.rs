//! The sender: everything that RFC 9293 calls `SND.*`, and the application's writes.
//!
//! # Theory of operation
//!
//! A written byte is copied once, into a chunk of the pool, and waits in the [`write_queue`]. It is
//! cut into packets only when it leaves ([`segmentation`]); from then on it lies in the
//! [`retransmit_queue`] until it is acknowledged. Both queues together are bounded by the send
//! buffer, which grows with the congestion window unless SO_SNDBUF was set.
//!
//! [`window`] answers what the peer's window lets go, [`zero_window_probe`] asks a peer again that
//! closed it.
//!
//! `snd.nxt` is always `snd.max`: what is sent again comes out of the retransmit queue by its own
//! numbers and never moves `snd.nxt` back.

pub(crate) mod retransmit_queue;
pub(crate) mod segmentation;
pub(crate) mod window;
pub(crate) mod write_queue;
mod zero_window_probe;

use plimsoll_wire::SeqNum;

use crate::config::{Config, Options};
use crate::connection::{Connection, Context};
use crate::event::WriteError;
use crate::recv::window::MAX_BUFFER;
use crate::state::State;
use retransmit_queue::RetransmitQueue;
use write_queue::WriteQueue;
use zero_window_probe::Probing;

/// What Linux charges a segment beside its payload when it sizes the send buffer: the largest
/// headers, and what holds them.
const SEGMENT_OVERHEAD: usize = 640;

/// The same for the record of a segment.
const RECORD_OVERHEAD: usize = 256;

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
    /// The end of the last write call: a packet that ends there carries PSH.
    pub(crate) push: SeqNum,
    /// The end of the last packet that carried PSH.
    pub(crate) pushed: SeqNum,
    /// Accepted, never sent.
    pub(crate) queue: WriteQueue,
    /// Sent, not acknowledged.
    pub(crate) rtx: RetransmitQueue,
    /// Bytes that both queues may hold.
    pub(crate) buf_limit: usize,
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
            push: iss,
            pushed: iss,
            queue: WriteQueue::new(),
            rtx: RetransmitQueue::new(),
            buf_limit: options.sndbuf.unwrap_or(config.tcp_wmem[1]).clamp(1, MAX_BUFFER),
            fin: Fin::None,
            probing: Probing::default(),
        }
    }

    /// Bytes of heap that the queues hold, without the chunks themselves.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.heap_bytes() + self.rtx.heap_bytes()
    }

    /// Gives the memory back: the connection is CLOSED.
    pub(crate) fn clear(&mut self) {
        self.queue = WriteQueue::new();
        self.rtx = RetransmitQueue::new();
    }

    /// Whether anything waits that was never sent, a FIN counted.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || self.fin == Fin::Queued
    }

    /// Whether an earlier packet that was not a multiple of the MSS is unacknowledged (Minshall).
    pub(crate) fn small_unacked(&self) -> bool {
        self.una < self.sml && self.sml <= self.nxt
    }

    /// Marks that SND.UNA has passed move along with it or go: 2 GiB later they would look as if
    /// they were ahead.
    pub(crate) fn forget_old_marks(&mut self) {
        self.sml = self.sml.max(self.una);
        self.up = self.urgent();
    }

    /// SND.UP while it is ahead of what is acknowledged.
    pub(crate) fn urgent(&self) -> Option<SeqNum> {
        self.up.filter(|&up| self.una < up)
    }

    /// Checks what must hold between two calls.
    pub(crate) fn check_invariants(&self) {
        self.queue.check_invariants();
        assert_eq!(self.nxt, self.max, "nothing moves snd.nxt back");
        assert!(!self.queue.is_empty() || self.push <= self.nxt, "a push mark without data");
        assert!(self.una <= self.sml && self.sml <= self.nxt, "Minshall's mark is outdated");
        assert!(self.up.is_none_or(|up| self.una < up), "the urgent mark is outdated");
        let sent = matches!(self.fin, Fin::Sent { .. } | Fin::Acked);
        assert!(!sent || self.queue.is_empty(), "data waits behind a FIN that was sent");
    }
}

impl Connection {
    /// Takes bytes from the application: copies them and queues them. Returns how many; fewer than
    /// asked for if the send buffer is short.
    ///
    /// # Errors
    /// [`WriteError::WouldBlock`] if there is no space (or no connection yet),
    /// [`WriteError::Closed`] after a shutdown, [`WriteError::Failed`] once if the connection has
    /// failed.
    pub fn write(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.debug_invariants();
        let taken = self.append(cx, data);
        self.debug_invariants();
        taken
    }

    /// As [`write`](Self::write); the last byte taken is marked urgent (MSG_OOB). The urgent
    /// pointer names the byte behind it, as RFC 6093 recommends and all stacks do.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_urgent(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.debug_invariants();
        let taken = self.append(cx, data);
        if taken.is_ok_and(|count| count > 0) {
            self.snd.up = Some(self.snd.push);
        }
        self.debug_invariants();
        taken
    }

    fn append(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.may_write()?;
        if data.is_empty() {
            return Ok(0);
        }
        self.snd.buf_limit = self.send_limit(cx.config);
        let count = data.len().min(self.send_room(cx.config));
        if count == 0 {
            return Err(WriteError::WouldBlock);
        }
        let unacked = self.snd.rtx.bytes();
        self.snd.queue.append(&self.pool, &data[..count], unacked);
        self.snd.push = self.snd.nxt + self.snd.queue.len() as u32;
        Ok(count)
    }

    /// Whether the state lets the application write.
    fn may_write(&mut self) -> Result<(), WriteError> {
        if let Some(error) = self.error
            && !self.error_taken
        {
            // As on Linux, the error is reported once and then it is a broken pipe.
            self.error_taken = true;
            return Err(WriteError::Failed(error));
        }
        if self.snd.fin != Fin::None {
            return Err(WriteError::Closed);
        }
        match self.state {
            State::SynSent | State::SynReceived => Err(WriteError::WouldBlock),
            State::Established | State::CloseWait => Ok(()),
            _ => Err(WriteError::Closed),
        }
    }

    /// What the send buffer may hold now: SO_SNDBUF, or what fits the congestion window twice over
    /// by Linux's accounting, between the default and the maximum of `tcp_wmem`.
    fn send_limit(&self, config: &Config) -> usize {
        if let Some(limit) = self.options.sndbuf {
            return limit.clamp(1, MAX_BUFFER);
        }
        let mss = usize::from(self.snd.mss).max(1);
        let per_segment = (mss + SEGMENT_OVERHEAD).next_power_of_two() + RECORD_OVERHEAD;
        let segs = (self.cc.cwnd() as usize / mss)
            .max(config.initcwnd as usize)
            .max(usize::from(config.tcp_reordering) + 1);
        let wanted = segs.saturating_mul(2 * per_segment).min(config.tcp_wmem[2]);
        self.snd.buf_limit.max(wanted).min(MAX_BUFFER)
    }

    fn notsent_lowat(&self, config: &Config) -> usize {
        self.options.notsent_lowat.unwrap_or(config.tcp_notsent_lowat) as usize
    }

    /// Bytes that a write takes now. With TCP_NOTSENT_LOWAT a segment may go above the mark, so
    /// that a low mark does not make small segments.
    fn send_room(&self, config: &Config) -> usize {
        let free = self.send_limit(config).saturating_sub(self.send_queue_len());
        let unsent = self.snd.queue.len();
        let lowat = self.notsent_lowat(config);
        if unsent >= lowat {
            return 0;
        }
        free.min((lowat - unsent).max(usize::from(self.snd.mss)))
    }

    /// Free send space as a waiting writer sees it: zero until a third of the buffer is free and
    /// less than half of TCP_NOTSENT_LOWAT is unsent, so that it is not woken for every ACK.
    pub fn writable(&self, config: &Config) -> usize {
        if self.snd.fin != Fin::None || !matches!(self.state, State::Established | State::CloseWait)
        {
            return 0;
        }
        let limit = self.send_limit(config);
        let free = limit.saturating_sub(self.send_queue_len());
        let low = self.snd.queue.len().saturating_mul(2) < self.notsent_lowat(config);
        if low && free * 3 >= limit { self.send_room(config) } else { 0 }
    }
}

#[cfg(test)]
mod tests;
