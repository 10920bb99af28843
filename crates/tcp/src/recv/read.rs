//! Reading: the part of the receive queue that a reader gets, and the stop at the urgent byte.

use plimsoll_buf::Slices;

use crate::recv::RecvSide;

impl RecvSide {
    /// Copies data in order to `out` and removes it from the queue. A read stops before the urgent
    /// byte; out of line, the next one continues after it.
    pub(crate) fn copy_out(&mut self, out: &mut [u8], oobinline: bool) -> usize {
        let count = self.begin_read(out.len(), oobinline);
        self.queue.read(&mut out[..count])
    }

    /// As [`copy_out`](Self::copy_out), but returns the queue's own slices.
    pub(crate) fn take_out(&mut self, max: usize, oobinline: bool) -> Slices {
        let count = self.begin_read(max, oobinline);
        self.queue.take(count)
    }

    /// Steps over the urgent byte if a read begins at it. Returns how many of `max` bytes a read
    /// gets at most.
    fn begin_read(&mut self, max: usize, oobinline: bool) -> usize {
        if self.urgent.is_at(self.queue.start()) && !self.queue.is_empty() {
            if !oobinline {
                self.queue.skip(1);
            }
            self.urgent.pass();
        }
        max.min(self.urgent.read_limit(self.queue.start(), self.queue.len()))
    }

    /// Bytes that reads find, without an urgent byte that is not part of the stream.
    pub(crate) fn readable(&self, oobinline: bool) -> usize {
        let (start, len) = (self.queue.start(), self.queue.len());
        let apart = !oobinline && self.urgent.is_between(start, start + len as u32);
        len - usize::from(apart)
    }

    /// As [`copy_out`](Self::copy_out), but the bytes stay.
    pub(crate) fn peek(&self, out: &mut [u8], oobinline: bool) -> usize {
        let (skip, limit) = self.next_read(oobinline);
        let count = out.len().min(limit);
        self.queue.peek(skip, &mut out[..count])
    }

    /// As [`take_out`](Self::take_out), but the bytes stay.
    pub(crate) fn peek_shared(&self, max: usize, oobinline: bool) -> Slices {
        let (skip, limit) = self.next_read(oobinline);
        self.queue.peek_shared(skip, max.min(limit))
    }

    /// How many bytes the next read steps over, and how many it gets at most.
    fn next_read(&self, oobinline: bool) -> (usize, usize) {
        let at_mark = self.urgent.is_at(self.queue.start()) && !self.queue.is_empty();
        let skip = usize::from(at_mark && !oobinline);
        let limit = if at_mark {
            self.queue.len() - skip
        } else {
            self.urgent.read_limit(self.queue.start(), self.queue.len())
        };
        (skip, limit)
    }
}
