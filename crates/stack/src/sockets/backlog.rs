//! The backlog of a socket: segments that arrived while a thread owned it.
//!
//! The code that fills and empties it is in `stack/backlog.rs`.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_tcp::Segment;

use crate::limits::MAX_SPARE_BACKLOGS;
use crate::offload::gro::{PureAcks, coalesce};
use crate::sync::lock;

/// Bytes of a segment in addition to its data.
pub(crate) const OVERHEAD: u32 = size_of::<Segment>() as u32;
/// Bytes that every socket's backlog may hold in addition to its share of the buffers.
const ALWAYS: usize = 64 * 1024;

/// The bytes that a segment counts for.
pub(crate) fn counted(segment: &Segment) -> u32 {
    segment.payload.len() as u32 + OVERHEAD
}

/// Segments in the order of their arrival.
pub(crate) type Queue = VecDeque<Segment>;

/// Empty queues that sockets take and give back, so that an idle one has none.
#[derive(Default)]
pub(crate) struct SpareQueues(
    #[allow(clippy::vec_box, reason = "boxes move between here and the sockets")]
    Mutex<Vec<Box<Queue>>>,
);

impl SpareQueues {
    pub(crate) fn take(&self) -> Box<Queue> {
        lock(&self.0).pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, queue: Box<Queue>) {
        debug_assert!(queue.is_empty());
        let mut spare = lock(&self.0);
        if spare.len() < MAX_SPARE_BACKLOGS {
            spare.push(queue);
        }
    }
}

/// Segments that arrived while the socket was owned.
#[derive(Debug)]
pub(crate) struct Backlog {
    #[allow(clippy::box_collection, reason = "a deque would add 24 bytes to every idle socket")]
    queue: Mutex<Option<Box<Queue>>>,
    /// Bytes that are in the queue or wait to be processed.
    bytes: AtomicU32,
    limit: AtomicU32,
}

impl Default for Backlog {
    fn default() -> Backlog {
        let limit = AtomicU32::new(ALWAYS as u32);
        Backlog { queue: Mutex::default(), bytes: AtomicU32::default(), limit }
    }
}

/// How much a backlog may hold, and what counts (`plimsoll.tcp_backlog_limit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Linux's limit before 6.10: the receive buffer, half the send buffer and 64 KiB. Unread data
    /// counts too, and processed data counts until the backlog is empty.
    Once = 1,
    /// Linux's limit since 6.10, with twice the receive buffer. Only data in the backlog counts
    /// here.
    Twice = 2,
}

impl Rule {
    /// The limit in bytes of an empty backlog, of a socket with buffers as SO_RCVBUF and SO_SNDBUF
    /// count them, and with `unread` bytes of data.
    pub(crate) fn limit(self, (rcvbuf, sndbuf): (usize, usize), unread: usize) -> usize {
        let extra = (sndbuf / 2).saturating_add(ALWAYS);
        match self {
            // Linux counts memory. Half of the receive buffer is for data, and of a full segment's
            // memory 85 % are data.
            Rule::Once => (rcvbuf / 2 + extra / 100 * 85).saturating_sub(unread),
            Rule::Twice => rcvbuf.saturating_mul(2).saturating_add(extra),
        }
    }
}

/// The outcome of adding a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It waits.
    Queued,
    /// It was merged with the one before.
    Coalesced,
    /// There was no room for it.
    Dropped,
}

impl Backlog {
    /// Puts a segment in.
    pub(crate) fn push(&self, spare: &SpareQueues, segment: Segment) -> Pushed {
        let data = segment.payload.len() as u32;
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes.saturating_add(data) >= self.limit.load(Ordering::Relaxed) {
            return Pushed::Dropped;
        }
        let mut queue = lock(&self.queue);
        let queue = queue.get_or_insert_with(|| spare.take());
        let left = match queue.back_mut() {
            Some(last) => match coalesce(last, segment, PureAcks::Merge) {
                Ok(()) => {
                    self.bytes.fetch_add(data, Ordering::Relaxed);
                    return Pushed::Coalesced;
                }
                Err(segment) => segment,
            },
            None => segment,
        };
        self.bytes.fetch_add(data + OVERHEAD, Ordering::Relaxed);
        queue.push_back(left);
        Pushed::Queued
    }

    /// Takes all that is in.
    pub(crate) fn take(&self) -> Option<Box<Queue>> {
        lock(&self.queue).take()
    }

    /// Takes the whole contents, which will not be processed, nor will those taken before.
    pub(crate) fn clear(&self) -> Option<Box<Queue>> {
        let mut queue = lock(&self.queue);
        self.bytes.store(0, Ordering::Relaxed);
        queue.take()
    }

    /// A segment that counted for `bytes` is being processed.
    pub(crate) fn done(&self, bytes: u32) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that it holds, including those that an owner has taken and not processed yet.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Called by an owner: leaves less room, by so many bytes.
    pub(crate) fn lower_limit(&self, bytes: u32) {
        // Only owners change it.
        let limit = self.limit.load(Ordering::Relaxed);
        self.limit.store(limit.saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Called by an owner: sets the limit, in bytes.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(u32::try_from(limit).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}
