//! The memory of all connections, and the limit on it (`net.ipv4.tcp_mem`).
//!
//! # Theory of operation
//!
//! Whenever a connection has received a segment or is settled, the memory of its queues is compared
//! with its charge. The account changes by the difference, in units of [`QUANTUM`] bytes. A
//! connection is never charged less than it holds. It may be charged a little more, so that the
//! account, which all threads share, is not written for every packet.
//!
//! Above the second of the three numbers there is *pressure*, until the use has fallen to the
//! first. Each call passes [`MemoryRoom`] to the engine: whether there is pressure, and how much
//! more the connection may take. Under pressure that is the rest up to the second number, but no
//! more than the connection's share: the amount that each would have if all holders held the same.
//! So a few connections that are not read do not starve the others. The rest between the second
//! number and the limit is reserved for connections that hold little: each may take its share of
//! it, as long as it holds no more. New connections never use that up, however many are not read.
//! At the limit a transfer would get the minimum, and need ten times as many packets.
//!
//! *The limit is exceeded* only by the minimum that every connection may always have (the first
//! numbers of `tcp_rmem` and `tcp_wmem` and one segment), and by one chunk per thread.
//!
//! *Waking.* A writer that finds no memory has queued data, so an acknowledgement will call it
//! again; but other connections may free memory earlier. The same holds for a window that was
//! closed because data was dropped: memory may be free before the peer probes it. Both kinds of
//! connections enter a list. The list has one threshold for all: the use at which they are woken. A
//! thread that reduces a charge checks the threshold, and passes the whole list to the poller as
//! sockets that may continue. A connection that still finds no memory enters the list again with a
//! lower threshold, so the list is not walked for every packet. A connection under several accounts
//! enters the list of the account that leaves it least. A writer enters, sets the threshold and
//! then reads the use; the other side changes the use and then reads the threshold. So at least one
//! of them sees the other's write.

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

/// Bytes that a connection may be charged above its holdings while there is no pressure.
const SURPLUS: usize = 4 * QUANTUM;

/// The list of waiting connections is walked again when this fraction of the limit has been freed.
const WAKE_STEPS: usize = 64;

/// The memory of all connections' queues in a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Bytes in use: received and not read, out of order, written and not acknowledged, and free or
    /// outdated parts of their buffers.
    pub bytes: usize,
    /// The highest value of `bytes` so far.
    pub peak: usize,
    /// Bytes of free buffers that are kept for later. With `bytes` they hardly exceed the use at
    /// which pressure begins.
    pub pooled: usize,
    /// Connections that use some of it.
    pub holders: usize,
    /// Whether memory is short.
    pub pressure: bool,
    /// `net.ipv4.tcp_mem` in bytes: the use at which pressure ends, the use at which it begins, and
    /// the limit.
    pub thresholds: [usize; 3],
}

/// The account.
pub(crate) struct MemoryAccount {
    /// The use and the number of users, in one word; see [`Level`].
    level: CachePadded<AtomicU64>,
    peak: AtomicUsize,
    pressure: AtomicBool,
    /// At this use or less, waiting connections are called again; zero if none waits.
    wake_at: AtomicUsize,
    /// Counts how often the list was taken.
    round: AtomicU32,
    waiting: Mutex<Waiting>,
    ready: Arc<Completions>,
}

/// Bits of the word of [`Level`] that count holders.
const HOLDER_BITS: u32 = 24;
const _: () = assert!(MAX_CONNECTIONS < 1 << HOLDER_BITS);

/// The bytes in use, and the number of connections that use them. Both change together, by one
/// addition to one word: quanta in the upper bits, holders in the lower.
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

/// Connections that wait for memory.
#[derive(Default)]
struct Waiting {
    ids: Vec<ConnectionId>,
    /// The number of them that have ended since.
    ended: usize,
}

/// Converts a number of `tcp_mem` to bytes.
#[inline]
fn in_bytes(pages: u64) -> usize {
    usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(QUANTUM)
}

/// The part of `room` for one of `holders` connections, which is charged `charged` bytes, under
/// pressure.
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

    /// The room to pass to the engine for a connection that is charged `charged` bytes.
    pub(crate) fn room(&self, tcp_mem: &[u64; 3], charged: u32) -> MemoryRoom {
        let Level { used, holders } = self.level();
        let bytes = in_bytes(tcp_mem[2]).saturating_sub(used);
        let room = MemoryRoom { pressure: false, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
        if self.is_pressed() { pressed_room(tcp_mem, used, (holders, charged), room) } else { room }
    }

    /// Bytes that free buffers may use: the rest up to the pressure.
    pub(crate) fn room_for_pools(&self, tcp_mem: &[u64; 3]) -> usize {
        in_bytes(tcp_mem[1]).saturating_sub(self.level().used)
    }

    /// Bytes that connections were charged for.
    pub(crate) fn used(&self) -> usize {
        self.level().used
    }

    /// Updates the charge of a connection from `charged` to `held` bytes. Returns whether that has
    /// made memory short.
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

    /// Puts a connection on the waiting list, unless it is there by its `ticket`.
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

    /// Calls all waiters again, if there are any and `used` is at or below their threshold.
    fn wake_at_mark(&self, used: usize) {
        let mark = self.wake_at.load(Ordering::SeqCst);
        if mark != 0 && used <= mark {
            self.wake();
        }
    }

    /// Called when a connection has ended that may be on the list, by its `ticket`. When most of
    /// the list have ended, the rest are called again, so that the list does not grow with
    /// connections that come and go.
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

    /// Makes all waiting connections try again.
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
    /// How often waiting connections were called again.
    pub(crate) fn wakes(&self) -> u32 {
        self.round.load(Ordering::Relaxed) - 1
    }
}

impl MemoryAccount {
    /// The state of the account, with the limits of `tcp_mem` (pages).
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
            // The live connection is called from time to time, and enters again.
            account.wait(id(0), &mut alive, &[1, 2, 3]);
        }
        account.forget(0);
        assert!(lock(&account.waiting).ids.contains(&id(0)));
    }
}
