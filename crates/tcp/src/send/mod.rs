//! The sender: everything that RFC 9293 calls `SND.*`, and what the application writes.
//!
//! # Theory of operation
//!
//! A write copies its bytes once, into the [`write_queue`]. Nothing is cut there: how much leaves in
//! one packet is decided when it leaves ([`segmentation`]). What leaves moves to the
//! [`retransmit_queue`] and stays there until it is acknowledged. The two together are what
//! SO_SNDBUF bounds.
//!
//! Without SO_SNDBUF the bound follows the congestion window: twice cwnd, so that one window can be
//! in flight while the application writes the next, within `tcp_wmem` (Linux: `tcp_sndbuf_expand`).

pub(crate) mod retransmit_queue;
pub(crate) mod segmentation;
pub(crate) mod window;
pub(crate) mod write_queue;
pub(crate) mod zero_window_probe;

use plimsoll_wire::SeqNum;

use crate::config::Config;
use crate::connection::{Connection, Context};
use crate::event::WriteError;
use crate::state::State;
use retransmit_queue::RetransmitQueue;
use write_queue::WriteQueue;

/// How far our FIN is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    /// The application may still write.
    None,
    /// It follows the last byte of the write queue.
    Queued,
    /// It left with this number.
    Sent {
        /// Its sequence number.
        seq: SeqNum,
    },
    /// The peer acknowledged it.
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
    /// The highest number sent, plus one. Equal to `nxt`: what a timeout sends again is marked in
    /// the retransmit queue, `nxt` does not move back.
    pub(crate) max: SeqNum,
    /// SND.WND in bytes.
    pub(crate) wnd: u32,
    /// SND.WL1.
    pub(crate) wl1: SeqNum,
    /// SND.WL2.
    pub(crate) wl2: SeqNum,
    /// The largest window the peer ever offered, in bytes.
    pub(crate) max_wnd: u32,
    /// The shift of the windows that the peer sends.
    pub(crate) wscale: u8,
    /// Payload bytes of a full segment, the timestamp option taken off.
    pub(crate) mss: u16,
    /// SND.UP: one behind the urgent byte, until it is acknowledged.
    pub(crate) up: Option<SeqNum>,
    /// End of the last segment that was not full (Minshall's mark; Linux: `snd_sml`).
    pub(crate) sml: SeqNum,
    /// Silly-window avoidance has waited long enough.
    pub(crate) override_silly_window: bool,
    pub(crate) queue: WriteQueue,
    pub(crate) rtx: RetransmitQueue,
    /// Bytes that both queues may hold; zero until the first write.
    pub(crate) buf_limit: usize,
    pub(crate) fin: Fin,
}

impl Sender {
    pub(crate) const fn new(iss: SeqNum, mss: u16) -> Sender {
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
            up: None,
            sml: iss,
            override_silly_window: false,
            queue: WriteQueue::new(),
            rtx: RetransmitQueue::new(),
            buf_limit: 0,
            fin: Fin::None,
        }
    }

    /// Bytes of heap held, without the chunks that slices refer to.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.queue.heap_bytes() + self.rtx.heap_bytes()
    }

    /// The connection has ended: nothing will be sent any more.
    pub(crate) fn clear(&mut self) {
        self.queue = WriteQueue::new();
        self.rtx = RetransmitQueue::new();
        self.up = None;
    }
}

impl Connection {
    /// Takes bytes to send and returns how many fitted. They leave with `poll_transmit`.
    ///
    /// # Errors
    /// [`WriteError::WouldBlock`] if the send buffer is full or the connection is not established
    /// yet; [`WriteError::Failed`], once, if the connection ended with an error;
    /// [`WriteError::Closed`] after a shutdown or the end of the connection.
    pub fn write(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        self.debug_invariants();
        self.may_write()?;
        if data.is_empty() {
            return Ok(0);
        }
        self.grow_send_buffer(cx.config);
        let free = self.writable(cx.config);
        if free == 0 {
            return Err(WriteError::WouldBlock);
        }
        let count = data.len().min(free);
        self.snd.queue.append(&self.pool, &data[..count]);
        self.debug_invariants();
        Ok(count)
    }

    /// As [`write`](Self::write); the last byte is urgent (MSG_OOB).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_urgent(&mut self, cx: &Context, data: &[u8]) -> Result<usize, WriteError> {
        let count = self.write(cx, data)?;
        if count > 0 {
            self.snd.up = Some(self.snd.nxt + self.snd.queue.len() as u32);
        }
        Ok(count)
    }

    fn may_write(&mut self) -> Result<(), WriteError> {
        if let Some(error) = self.error.filter(|_| !self.error_taken) {
            self.error_taken = true;
            return Err(WriteError::Failed(error));
        }
        match self.state {
            _ if self.snd.fin != Fin::None => Err(WriteError::Closed),
            State::SynSent | State::SynReceived => Err(WriteError::WouldBlock),
            State::Established | State::CloseWait => Ok(()),
            _ => Err(WriteError::Closed),
        }
    }

    /// Send autotuning. A buffer that SO_SNDBUF fixed stays.
    pub(crate) fn grow_send_buffer(&mut self, config: &Config) {
        let [_, default, most] = config.tcp_wmem;
        self.snd.buf_limit = match self.options.sndbuf {
            Some(bytes) => bytes.max(1),
            None => {
                let wanted = (2 * self.cc.cwnd() as usize).clamp(default, most.max(default));
                self.snd.buf_limit.max(wanted)
            }
        };
    }

    /// Free bytes of the send buffer as a writer may use them: zero while TCP_NOTSENT_LOWAT holds
    /// writers back, or when nothing may be written.
    pub fn writable(&self, config: &Config) -> usize {
        let open = matches!(self.state, State::Established | State::CloseWait);
        let lowat = self.options.notsent_lowat.unwrap_or(config.tcp_notsent_lowat);
        if !open || self.snd.fin != Fin::None || self.snd.queue.len() >= lowat as usize {
            return 0;
        }
        let limit = if self.snd.buf_limit == 0 {
            self.options.sndbuf.unwrap_or(config.tcp_wmem[1]).max(1)
        } else {
            self.snd.buf_limit
        };
        limit.saturating_sub(self.send_queue_len())
    }
}
