//! The memory of the receive queues of all UDP sockets, and the limit on it (`net.ipv4.udp_mem`).
//!
//! A socket is charged in units of [`QUANTUM`] bytes: never less than its queue uses, which is
//! whole chunks. While it is in use it is charged a few quanta more, so that the account, which all
//! threads share, is not written for every datagram. At the limit datagrams are dropped and counted
//! (`UdpMemErrors`), but each socket always gets one of up to [`UDP_MINIMUM`] bytes, so that none
//! starves. So all queues together use no more than the limit, and that minimum for each socket.
//!
//! [`UDP_MINIMUM`]: crate::limits::UDP_MINIMUM

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use crate::policies::memory::QUANTUM;

/// The bytes by which a socket's charge may exceed its queue's memory.
const SURPLUS: usize = 4 * QUANTUM;

/// The account.
#[derive(Debug, Default)]
pub(crate) struct UdpMemory {
    used: CachePadded<AtomicUsize>,
}

/// The memory that the receive queues of all UDP sockets of a stack use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpMemoryUse {
    /// Bytes: the buffers that unread data keeps alive, counted whole, and
    /// [`DATAGRAM_OVERHEAD`](crate::limits::DATAGRAM_OVERHEAD) for each datagram.
    pub bytes: usize,
    /// The limit: the third number of `net.ipv4.udp_mem`, in bytes.
    pub limit: usize,
}

impl UdpMemory {
    /// A socket that was charged `charged` bytes is about to pin `pins`. Returns its new charge, or
    /// `None` if the limit does not allow that.
    pub(crate) fn grow(&self, charged: usize, pins: usize, limit: usize) -> Option<usize> {
        if pins <= charged {
            return Some(charged);
        }
        let wanted = pins.next_multiple_of(QUANTUM);
        let more = wanted - charged;
        let before = self.used.fetch_add(more, Ordering::Relaxed);
        if before + more > limit {
            self.used.fetch_sub(more, Ordering::Relaxed);
            return None;
        }
        Some(wanted)
    }

    /// A socket that was charged `charged` bytes pins `pins`. Returns its new charge.
    pub(crate) fn shrink(&self, charged: usize, pins: usize) -> usize {
        let wanted = pins.next_multiple_of(QUANTUM);
        let kept = if pins == 0 { 0 } else { wanted + SURPLUS };
        if charged <= kept {
            return charged;
        }
        self.used.fetch_sub(charged - wanted, Ordering::Relaxed);
        wanted
    }

    /// Bytes that all sockets are charged for.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// The limit in bytes.
pub(crate) fn limit_of(udp_mem: &[u64; 3]) -> usize {
    usize::try_from(udp_mem[2]).unwrap_or(usize::MAX).saturating_mul(QUANTUM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_what_was_taken() {
        let memory = UdpMemory::default();
        let limit = 8 * QUANTUM;
        let charged = memory.grow(0, 5000, limit).unwrap();
        assert_eq!((charged, memory.used()), (2 * QUANTUM, 2 * QUANTUM));
        assert_eq!(memory.grow(charged, 6000, limit), Some(charged), "covered already");
        assert_eq!(memory.grow(charged, 9 * QUANTUM, limit), None);
        let charged = memory.grow(charged, 8 * QUANTUM, limit).unwrap();
        assert_eq!(memory.shrink(charged, 5 * QUANTUM), 8 * QUANTUM, "a little more is kept");
        assert_eq!(memory.shrink(charged, 100), QUANTUM);
        assert_eq!((memory.shrink(QUANTUM, 0), memory.used()), (0, 0));
    }
}
