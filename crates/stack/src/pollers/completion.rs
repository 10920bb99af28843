//! Bytes below: bytes that a connection has passed down and the device has not completed, and how a
//! connection that waits for completions continues.
//!
//! # Theory of operation
//!
//! A data packet is charged once, when it enters the queueing discipline, and released once, when
//! the device has finished with it or it was dropped. Any thread that drains the device, or takes
//! packets from the other end of a link, may complete packets. So the count is atomic, and a
//! completion never touches the connection.
//!
//! A connection that the engine holds until a packet completes is *throttled*. Its owner sets a
//! flag, fences, and reads the count again. A completion lowers the count, fences, and checks the
//! flag. So at least one of them sees the other's write. Either the owner sees that the count has
//! fallen and calls the engine again. Or the completion takes the flag and puts the socket's number
//! into the queue of the [`Completions`]. A flag that stays set from one call to the next needs no
//! second fence: it is older than every count that the later call reads.
//!
//! Only a thread that owns no socket takes numbers out of the queue, one socket at a time. A thread
//! that has drained a device does so when it has released everything, and the poller in every poll.
//! So no thread ever owns a second socket because it completed that socket's packet. A completion
//! by a thread that will read the queue itself wakes no thread; any other wakes the poller, which
//! costs a system call only if it sleeps.
//!
//! A number is in the queue at most once: it enters only if the socket was not *queued*, and the
//! flag is cleared before its taker reads the count.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

#[cfg(all(loom, test))]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(all(loom, test)))]
use portable_atomic::AtomicU64;
#[cfg(not(all(loom, test)))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, fence},
};

use arrayvec::ArrayVec;

use crate::connection_id::ConnectionId;
use crate::kick::Kick;

/// The socket waits for a completion.
const THROTTLED: u8 = 1;
/// The socket is in the queue of sockets that may continue.
const QUEUED: u8 = 2;

/// Sockets that are taken from the queue under one lock.
pub(crate) const BATCH: usize = 32;

/// The bytes and packets below of one connection.
#[derive(Debug, Default)]
pub(crate) struct BelowUs {
    completed: AtomicU64,
    bytes: AtomicU32,
    marks: AtomicU8,
    /// It waits for space in the queueing discipline. Written under the lock of that.
    waits_for_space: AtomicBool,
}

impl BelowUs {
    /// Adds a packet with `bytes` of data.
    pub(crate) fn charge(&self, bytes: u32) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes a packet off that was refused.
    pub(crate) fn refuse(&self, bytes: u32) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes whether it waits for space in the queueing discipline. Returns whether it did.
    pub(crate) fn set_waits_for_space(&self, waits: bool) -> bool {
        self.waits_for_space.swap(waits, Ordering::Relaxed)
    }

    /// Whether it waits for space in the queueing discipline.
    pub(crate) fn waits_for_space(&self) -> bool {
        self.waits_for_space.load(Ordering::Relaxed)
    }

    /// Releases a packet. Returns whether the caller must put the socket into the queue of sockets
    /// that may continue.
    #[must_use]
    pub(crate) fn release(&self, bytes: u32, serial: u64) -> bool {
        // The serial is published before the bytes are released, so that a thread that sees no
        // bytes below also sees the last packet completed.
        self.completed.fetch_max(serial, Ordering::Release);
        self.bytes.fetch_sub(bytes, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.marks.load(Ordering::Relaxed) & THROTTLED == 0 {
            return false;
        }
        let take = |marks| (marks & THROTTLED != 0).then_some(QUEUED);
        // Acquire and release: a thread that takes the socket up sees this count.
        let before = self.marks.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        before.is_ok_and(|marks| marks & QUEUED == 0)
    }

    /// Bytes below, and the number of the last packet completed.
    pub(crate) fn get(&self) -> (u32, u64) {
        let bytes = self.bytes.load(Ordering::Acquire);
        (bytes, self.completed.load(Ordering::Acquire))
    }

    /// Called by the owner: the engine, which was given `seen` bytes, waits for a completion. Sets
    /// the flag, and returns whether a packet has completed in the meantime, so that the engine
    /// must be called again. In either case the flag stays until a completion takes it.
    #[must_use]
    pub(crate) fn throttle(&self, seen: u32) -> bool {
        if self.marks.load(Ordering::Relaxed) & THROTTLED != 0 {
            return false;
        }
        self.marks.fetch_or(THROTTLED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes < seen || bytes == 0
    }

    /// For the owner: whether the socket is marked, and something is below it that will complete
    /// and see that.
    pub(crate) fn will_complete(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & THROTTLED != 0
            && self.bytes.load(Ordering::Relaxed) > 0
    }

    /// For the owner: the engine waits for no completion.
    pub(crate) fn end_throttle(&self) {
        if self.marks.load(Ordering::Relaxed) & THROTTLED != 0 {
            self.marks.fetch_and(!THROTTLED, Ordering::Relaxed);
        }
    }

    /// Called by a thread with work on the socket for the next poll. Returns whether the caller
    /// must put it into the queue.
    #[must_use]
    pub(crate) fn enqueue(&self) -> bool {
        self.marks.fetch_or(QUEUED, Ordering::AcqRel) & QUEUED == 0
    }

    /// Called by the thread that has taken the socket from the queue, before it reads the bytes
    /// below.
    pub(crate) fn take_up(&self) {
        self.marks.fetch_and(!QUEUED, Ordering::AcqRel);
    }
}

/// The sockets that waited for a completion and may continue.
#[derive(Default)]
struct Queue {
    ids: Mutex<VecDeque<ConnectionId>>,
    /// Whether there is anything, to be read without the lock.
    filled: AtomicBool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<ConnectionId>> {
        // It is whole at every point where a thread could panic.
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, id: ConnectionId) {
        let mut ids = self.lock();
        ids.push_back(id);
        self.filled.store(true, Ordering::Release);
    }

    /// Gives back the room that bursts have needed, if nothing waits.
    fn shrink(&self) {
        let mut ids = self.lock();
        if ids.is_empty() {
            *ids = VecDeque::new();
        }
    }

    fn is_empty(&self) -> bool {
        !self.filled.load(Ordering::Acquire)
    }

    fn take(&self, out: &mut ArrayVec<ConnectionId, BATCH>) {
        if self.is_empty() {
            return;
        }
        let mut ids = self.lock();
        let count = out.remaining_capacity().min(ids.len());
        out.extend(ids.drain(..count));
        self.filled.store(!ids.is_empty(), Ordering::Release);
    }
}

/// The queue of a stack, and the kick to call when a socket has entered it.
pub(crate) struct Completions {
    queue: Queue,
    kick: Kick,
}

/// Those of all queues, by number. A connection that moves to another queue finds its there.
pub(crate) type CompletionsByQueue = Arc<Box<[Arc<Completions>]>>;

thread_local! {
    /// The queue that this thread is about to read.
    static ATTENDING: Cell<*const Completions> = const { Cell::new(std::ptr::null()) };
}

/// While this guard exists, its thread will read the queue once more.
pub(crate) struct Attending(*const Completions);

impl Drop for Attending {
    fn drop(&mut self) {
        ATTENDING.set(self.0);
    }
}

impl Completions {
    /// An empty queue, with the poller's kick.
    pub(crate) fn new(kick: Kick) -> Completions {
        Completions { queue: Queue::default(), kick }
    }

    /// The queue of the stack is idle: frees memory that only bursts need.
    pub(crate) fn on_idle(&self) {
        self.queue.shrink();
    }

    /// This thread will take the queued sockets after it has dropped the result.
    #[must_use]
    pub(crate) fn attend(&self) -> Attending {
        Attending(ATTENDING.replace(self))
    }

    /// Whether this thread will read the queue and has not done so yet.
    pub(crate) fn is_attended_here(&self) -> bool {
        std::ptr::eq(ATTENDING.get(), self)
    }

    /// Puts a socket in. Called if [`BelowUs::release`] has returned true.
    pub(crate) fn push(&self, id: ConnectionId) {
        self.queue.push(id);
        if !self.is_attended_here() {
            self.kick.kick();
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes some sockets out.
    pub(crate) fn take(&self, out: &mut ArrayVec<ConnectionId, BATCH>) {
        self.queue.take(out);
    }
}

#[cfg(test)]
mod tests;
