//! The memory of all connections, and the limit on it (`net.ipv4.tcp_mem`).
//!
//! # Theory of operation
//!
//! Whenever a connection has got a segment or is settled, what its queues bind is compared with
//! what it was charged for, and the account changes by the difference, in units of [`QUANTUM`]
//! bytes. A connection is never charged for less than it holds; it may be charged for a little
//! more, so that the account, which all threads share, is not written for every packet.
//!
//! Above the second of the three numbers there is *pressure*, until no more than the first is in
//! use. The engine is told with every call ([`MemoryRoom`]) whether there is pressure and how much
//! more may be taken; what it does then is its business. Under pressure, that is what is missing to
//! the second number, but no connection may take more than its share of it: what all would have if
//! those that hold something held the same. So a few that are not read do not starve the others.
//! What is left between the second number and the limit is kept for those who hold little: each may
//! have its share of it, as long as it holds no more. Newcomers never use that up, however many are
//! not read. At the limit a transfer would have the least that there is, and take ten times the
//! packets.
//!
//! *The limit is exceeded* only by what every connection may always have, the first numbers of
//! `tcp_rmem` and `tcp_wmem` and one segment, and per thread by one chunk.
//!
//! *Waking.* A writer that finds no memory has something queued, so an acknowledgement has it asked
//! again; but others may give memory back before. So may they before the peer asks about a window
//! that was closed because data was dropped. Both enter a list, with a mark for all that are in
//! it: how far the use must fall. Whoever charges less looks for the mark, and hands the whole list
//! to the poller as sockets that may go on. Who still finds nothing enters the list again with a
//! lower mark, so the list is not gone through for every packet. Who is bounded by several accounts
//! enters the list of the one that leaves it least. A writer enters, sets the mark and
//! then looks at the use; the other side changes the use and then looks at the mark. So one of the
//! two sees the other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;
use plimsoll_tcp::MemoryRoom;
use portable_atomic::AtomicU64;

use crate::connection_id::ConnectionId;
use crate::limits::MAX_CONNECTIONS;
use crate::pollers::completion::Completions;
use crate::sync::lock;

/// The unit of the account, and of `tcp_mem`: bytes.
pub(crate) const QUANTUM: usize = 4096;

/// What a connection may be charged for above what it holds while there is no pressure, in bytes.
const SURPLUS: usize = 4 * QUANTUM;

/// The list of those who wait is gone through again when so much of the limit has been given back.
const WAKE_STEPS: usize = 64;

/// What the queues of all connections of a stack hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Bytes of memory that they bind: received and not read, out of order, written and not
    /// acknowledged, and what of their buffers is free or outdated.
    pub bytes: usize,
    /// The most that it ever was.
    pub peak: usize,
    /// Bytes of free buffers that are kept for later. With `bytes` they are never much more than
    /// what begins the pressure.
    pub pooled: usize,
    /// Connections that hold some of it.
    pub holders: usize,
    /// Whether memory is short.
    pub pressure: bool,
    /// `net.ipv4.tcp_mem` in bytes: where pressure ends, where it begins, and the limit.
    pub thresholds: [usize; 3],
}

/// The account.
pub(crate) struct MemoryAccount {
    /// What is used and by how many, in one word; see [`Level`].
    level: CachePadded<AtomicU64>,
    peak: AtomicUsize,
    pressure: AtomicBool,
    /// At this use or less those who wait are asked again; zero if no thread waits.
    wake_at: AtomicUsize,
    /// Counts how often the list was taken.
    round: AtomicU32,
    waiting: Mutex<Waiting>,
    ready: Arc<Completions>,
}

/// Bits of the word of [`Level`] that count holders.
const HOLDER_BITS: u32 = 24;
const _: () = assert!(MAX_CONNECTIONS < 1 << HOLDER_BITS);

/// What is used, in bytes, and how many connections use it. Both change together, by one addition
/// to one word: quanta above, holders below.
#[derive(Clone, Copy, Debug)]
struct Level {
    used: usize,
    holders: usize,
}

impl Level {
    fn of(word: u64) -> Level {
        let used = (word >> HOLDER_BITS) as usize * QUANTUM;
        Level { used, holders: (word & ((1 << HOLDER_BITS) - 1)) as usize }
    }

    fn word(self) -> u64 {
        debug_assert!(self.used.is_multiple_of(QUANTUM), "the account is in quanta");
        ((self.used / QUANTUM) as u64) << HOLDER_BITS | self.holders as u64
    }
}

/// Those who wait for memory.
#[derive(Default)]
struct Waiting {
    ids: Vec<ConnectionId>,
    /// So many of them have ended since.
    ended: usize,
}

/// A number of `tcp_mem` in bytes.
#[inline]
fn in_bytes(pages: u64) -> usize {
    usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(QUANTUM)
}

/// What is left of `room` for one of `holders` connections, which was charged for `charged` bytes,
/// since pressure began.
#[cold]
fn pressed_room(
    tcp_mem: &[u64; 3],
    used: usize,
    (holders, charged): (usize, u32),
    room: MemoryRoom,
) -> MemoryRoom {
    let [low, high, limit] = tcp_mem.map(in_bytes);
    if used <= low {
        return room;
    }
    let (holders, charged) = (holders.max(1), charged as usize);
    let share = (high / holders).saturating_sub(charged).min(high.saturating_sub(used));
    let kept = (limit.saturating_sub(used.max(high)) / holders).saturating_sub(charged);
    let bytes = u32::try_from(share.max(kept)).unwrap_or(u32::MAX);
    MemoryRoom { pressure: true, bytes: room.bytes.min(bytes) }
}

impl MemoryAccount {
    pub(crate) fn new(ready: Arc<Completions>) -> MemoryAccount {
        MemoryAccount {
            level: CachePadded::new(AtomicU64::new(0)),
            peak: AtomicUsize::new(0),
            pressure: AtomicBool::new(false),
            wake_at: AtomicUsize::new(0),
            round: AtomicU32::new(1),
            waiting: Mutex::default(),
            ready,
        }
    }

    fn level(&self) -> Level {
        Level::of(self.level.load(Ordering::SeqCst))
    }

    /// Whether memory is short.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressure.load(Ordering::Relaxed)
    }

    /// What the engine is told for a connection that was charged for `charged` bytes.
    pub(crate) fn room(&self, tcp_mem: &[u64; 3], charged: u32) -> MemoryRoom {
        let Level { used, holders } = self.level();
        let bytes = in_bytes(tcp_mem[2]).saturating_sub(used);
        let room = MemoryRoom { pressure: false, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
        if self.is_pressed() { pressed_room(tcp_mem, used, (holders, charged), room) } else { room }
    }

    /// Bytes that free buffers may have: what is missing to the pressure.
    pub(crate) fn room_for_pools(&self, tcp_mem: &[u64; 3]) -> usize {
        in_bytes(tcp_mem[1]).saturating_sub(self.level().used)
    }

    /// Bytes that connections were charged for.
    pub(crate) fn used(&self) -> usize {
        self.level().used
    }

    /// A connection that was charged for `charged` bytes holds `held`. Returns whether memory has
    /// become short by that.
    #[inline]
    pub(crate) fn charge(&self, charged: &mut u32, held: usize, tcp_mem: &[u64; 3]) -> bool {
        let old = *charged as usize;
        let most = held + if self.is_pressed() { QUANTUM } else { SURPLUS };
        let exact = (held == 0) == (old == 0);
        let fits = exact && held <= old && old <= most;
        !fits && self.change(charged, held.next_multiple_of(QUANTUM), tcp_mem)
    }

    fn change(&self, charged: &mut u32, new: usize, tcp_mem: &[u64; 3]) -> bool {
        let old = *charged as usize;
        let new = new.min(u32::MAX as usize / QUANTUM * QUANTUM);
        *charged = new as u32;
        let [low, high, _] = tcp_mem.map(in_bytes);
        let word = |bytes: usize| Level { used: bytes, holders: usize::from(bytes > 0) }.word();
        let change = word(new).wrapping_sub(word(old));
        let before = self.level.fetch_add(change, Ordering::SeqCst);
        let used = Level::of(before.wrapping_add(change)).used;
        if new > old {
            if used > self.peak.load(Ordering::Relaxed) {
                self.peak.fetch_max(used, Ordering::Relaxed);
            }
            used > high && !self.is_pressed() && !self.pressure.swap(true, Ordering::Relaxed)
        } else {
            if used <= low && self.is_pressed() {
                self.pressure.store(false, Ordering::Relaxed);
            }
            self.wake_at_mark(used);
            false
        }
    }

    /// Puts a connection on the list of those who wait, unless it is there by its `ticket`.
    pub(crate) fn wait(&self, id: ConnectionId, ticket: &mut u32, tcp_mem: &[u64; 3]) {
        {
            let mut waiting = lock(&self.waiting);
            let round = self.round.load(Ordering::Relaxed);
            if *ticket == round {
                return;
            }
            *ticket = round;
            waiting.ids.push(id);
            let [low, _, limit] = tcp_mem.map(in_bytes);
            let used = self.level().used;
            let mark = used.saturating_sub((limit / WAKE_STEPS).max(1)).max(low);
            let mark = if mark < used { mark } else { used.saturating_sub(1) }.max(1);
            self.wake_at.fetch_max(mark, Ordering::SeqCst);
        }
        self.wake_at_mark(self.level().used);
    }

    /// Asks all waiters again, if there are any and at most as much as they wait for is `used`.
    fn wake_at_mark(&self, used: usize) {
        let mark = self.wake_at.load(Ordering::SeqCst);
        if mark != 0 && used <= mark {
            self.wake();
        }
    }

    /// A connection has ended that may be on the list, by its `ticket`. When most of the list have
    /// ended, those who are left are asked again, so that it does not grow with connections that
    /// come and go.
    pub(crate) fn forget(&self, ticket: u32) {
        if ticket != self.round.load(Ordering::Relaxed) {
            return;
        }
        let mostly_ended = {
            let mut waiting = lock(&self.waiting);
            if ticket != self.round.load(Ordering::Relaxed) {
                return;
            }
            waiting.ended += 1;
            2 * waiting.ended > waiting.ids.len()
        };
        if mostly_ended {
            self.wake();
        }
    }

    /// Has all who wait asked again.
    #[cold]
    pub(crate) fn wake(&self) {
        let list = {
            let mut waiting = lock(&self.waiting);
            self.wake_at.store(0, Ordering::SeqCst);
            self.round.fetch_add(1, Ordering::Relaxed);
            std::mem::take(&mut *waiting)
        };
        list.ids.into_iter().for_each(|id| self.ready.push(id));
    }
}

#[cfg(test)]
impl MemoryAccount {
    /// How often those who waited were asked again.
    pub(crate) fn wakes(&self) -> u32 {
        self.round.load(Ordering::Relaxed) - 1
    }
}

impl MemoryAccount {
    /// What the account says, with the limits of `tcp_mem` (pages).
    pub(crate) fn usage(&self, tcp_mem: &[u64; 3], pooled: usize) -> MemoryUse {
        let thresholds = tcp_mem.map(in_bytes);
        let Level { used: bytes, holders } = self.level();
        MemoryUse {
            bytes,
            pooled,
            peak: self.peak.load(Ordering::Relaxed),
            holders,
            pressure: self.is_pressed() && bytes > thresholds[0],
            thresholds,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kick::Kick;

    #[test]
    fn the_list_of_those_who_wait_does_not_grow_with_those_who_have_ended() {
        let ready = Arc::new(Completions::new(Kick::new().expect("a descriptor")));
        let account = MemoryAccount::new(ready);
        let level = Level { used: 100 << 20, holders: 1 };
        account.level.store(level.word(), Ordering::Relaxed);
        let id = |slot| ConnectionId { slot, generation: 0 };
        let mut alive = 0;
        account.wait(id(0), &mut alive, &[1, 2, 3]);
        for slot in 1..10_000 {
            let mut ticket = 0;
            account.wait(id(slot), &mut ticket, &[1, 2, 3]);
            account.forget(ticket);
            assert!(lock(&account.waiting).ids.len() <= 3);
            // The one that lives is asked now and then, and enters again.
            account.wait(id(0), &mut alive, &[1, 2, 3]);
        }
        account.forget(0);
        assert!(lock(&account.waiting).ids.contains(&id(0)));
    }
}
