//! Queueing disciplines, which decide the order in which packets leave an interface, and which
//! packets are refused.
//!
//! A discipline is between `ip/output` and a device. It is a leaf: its owner locks it, puts packets
//! in or takes them out, and unlocks. A refused packet is returned to the caller. A connection
//! keeps its data and sends it later; other packets are counted and dropped.

pub mod fifo;
pub mod fq;
mod kind;

use std::collections::VecDeque;

use plimsoll_tcp::Instant;

use crate::packet::Packet;
use fq::FqStats;
pub use kind::{Kind, KindError};

/// The statistics and contents of a discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QdiscStats {
    /// Packets queued so far.
    pub enqueued: u64,
    /// Packets dequeued so far.
    pub dequeued: u64,
    /// Packets refused so far.
    pub dropped: u64,
    /// Packets held now.
    pub len: usize,
    /// Bytes held now.
    pub bytes: usize,
    /// Bytes dequeued so far.
    pub sent_bytes: u64,
    /// The most packets ever held.
    pub max_len: usize,
}

/// A queueing discipline.
pub trait Qdisc: Send {
    /// The discipline and its parameters.
    fn kind(&self) -> Kind;

    /// Queues a packet at `now`.
    ///
    /// # Errors
    /// The packet itself, if there is no space for it. It has been counted as dropped.
    #[expect(
        clippy::result_large_err,
        reason = "the packet goes back to its owner, not up a stack"
    )]
    fn enqueue(&mut self, now: Instant, packet: Packet) -> Result<(), Packet>;

    /// Gives out the packet that is to leave next, if one may leave by `now`.
    fn dequeue(&mut self, now: Instant) -> Option<Packet>;

    /// Gives out a packet whenever it may leave, in an order that keeps that of each connection:
    /// for a change to another discipline.
    fn take_any(&mut self) -> Option<Packet>;

    /// Moves up to `max` packets that may leave by `now` to the end of `out`; returns how many.
    fn dequeue_batch(&mut self, now: Instant, max: usize, out: &mut VecDeque<Packet>) -> usize {
        let before = out.len();
        out.extend((0..max).map_while(|_| self.dequeue(now)));
        out.len() - before
    }

    /// Called when the stack has been idle for a second: frees memory that only packets need.
    fn on_idle(&mut self) {}

    /// When a packet that is held may leave at the earliest; `None` if there is none.
    fn next_event(&self) -> Option<Instant>;

    /// Packets held.
    fn len(&self) -> usize;

    /// Whether there are no packets.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The statistics so far.
    fn stats(&self) -> QdiscStats;

    /// The statistics that only fair queueing has.
    fn fq_stats(&self) -> Option<FqStats> {
        None
    }
}
