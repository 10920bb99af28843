//! The write queue: accepted from the application, never sent.
//!
//! Bytes are copied once, into chunks that grow with the backlog: a lone small write takes a small
//! chunk; a thread that writes 128 bytes at a time soon fills large ones, and its writes merge into
//! one range. A queue that is empty, with nothing in flight either, holds no chunk.

use alloc::collections::VecDeque;

use plimsoll_buf::{ChunkWriter, Pool, Slice, Slices};

/// The largest chunk that a writer takes, in bytes: about one super-segment.
const LARGEST_CHUNK: usize = 65_536;

/// Ranges that an empty queue keeps room for.
const KEPT: usize = 8;

/// Accepted and not yet sent.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    slices: VecDeque<Slice>,
    len: usize,
    writer: Option<ChunkWriter>,
}

impl WriteQueue {
    pub(crate) const fn new() -> WriteQueue {
        WriteQueue { slices: VecDeque::new(), len: 0, writer: None }
    }

    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of heap held, without the chunks.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.slices.capacity() * size_of::<Slice>()
    }

    /// Copies `data` behind what is there.
    pub(crate) fn append(&mut self, pool: &Pool, mut data: &[u8]) {
        while !data.is_empty() {
            let slice = self.writer(pool, data.len()).append(data);
            data = &data[slice.len()..];
            self.push(slice);
        }
    }

    fn push(&mut self, slice: Slice) {
        self.len += slice.len();
        let merged = self.slices.back_mut().is_some_and(|last| last.try_merge(&slice));
        if !merged {
            self.slices.push_back(slice);
        }
    }

    /// The writer to go on with; a new one if the last is full. A chunk that was filled while the
    /// connection was busy is followed by a larger one.
    fn writer(&mut self, pool: &Pool, wanted: usize) -> &mut ChunkWriter {
        let full = self.writer.take_if(|writer| writer.remaining() == 0);
        let next = full.map_or(wanted, |full| (full.capacity() + 1).max(wanted));
        self.writer.get_or_insert_with(|| pool.chunk(next.min(LARGEST_CHUNK)))
    }

    /// Takes up to `count` bytes off the front. It may be fewer, since a payload holds only so many
    /// ranges, but never fewer than `least` (or what there is): small ranges are copied together.
    pub(crate) fn take(&mut self, pool: &Pool, count: usize, least: usize) -> Slices {
        debug_assert!(least <= count && count <= self.len);
        let mut taken = Slices::new();
        while taken.len() < count {
            let Some(first) = self.slices.front_mut() else { break };
            let room = count - taken.len();
            let whole = first.len() <= room;
            let part = if whole { first.clone() } else { first.range(0, room) };
            let len = part.len();
            if taken.push(part).is_err() {
                break;
            }
            if whole {
                self.slices.pop_front();
            } else {
                first.advance(len);
            }
        }
        self.len -= taken.len();
        if taken.len() < least {
            return self.gather(pool, taken, least);
        }
        taken
    }

    /// Puts `taken` and what follows it into one chunk. Only a run of many tiny ranges needs this.
    fn gather(&mut self, pool: &Pool, taken: Slices, least: usize) -> Slices {
        let mut writer = pool.chunk(least);
        let mut joined = Slices::new();
        for part in taken.parts() {
            // All parts come from one chunk and merge.
            let _ = joined.push(writer.append(part));
        }
        while joined.len() < least {
            let Some(first) = self.slices.front_mut() else { break };
            let len = first.len().min(least - joined.len());
            let _ = joined.push(writer.append(&first[..len]));
            first.advance(len);
            if first.is_empty() {
                self.slices.pop_front();
            }
            self.len -= len;
        }
        joined
    }

    /// Puts back what [`take`](Self::take) gave and did not leave after all.
    pub(crate) fn put_back(&mut self, payload: Slices) {
        self.len += payload.len();
        for part in payload.parts().iter().rev() {
            self.slices.push_front(part.clone());
        }
    }

    /// Nothing is queued or in flight: lets the chunk and spare capacity go.
    pub(crate) fn release_idle(&mut self) {
        debug_assert_eq!(self.len, 0);
        self.writer = None;
        self.slices.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(payload: &Slices) -> alloc::vec::Vec<u8> {
        let mut out = alloc::vec![0; payload.len()];
        payload.copy_to(&mut out);
        out
    }

    #[test]
    fn small_writes_merge_and_chunks_grow() {
        let (pool, mut queue) = (Pool::new(), WriteQueue::new());
        for _ in 0..1000 {
            queue.append(&pool, &[7; 128]);
        }
        assert_eq!(queue.len(), 128_000);
        assert!(queue.slices.len() <= 5, "{} ranges", queue.slices.len());
        let taken = queue.take(&pool, 65_000, 1448);
        assert_eq!(taken.len(), 65_000);
    }

    #[test]
    fn many_tiny_ranges_are_copied_together() {
        let (pool, mut queue) = (Pool::new(), WriteQueue::new());
        for value in 0..100 {
            queue.append(&pool, &[value; 10]);
            queue.writer = None;
        }
        let taken = queue.take(&pool, 900, 500);
        assert_eq!(taken.len(), 500);
        assert_eq!(queue.len(), 500);
        assert!(bytes(&taken).iter().enumerate().all(|(at, &byte)| usize::from(byte) == at / 10));
        let rest = queue.take(&pool, 80, 0);
        assert_eq!(bytes(&rest)[..11], [50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 51]);
    }

    #[test]
    fn an_idle_queue_holds_no_chunk() {
        let (pool, mut queue) = (Pool::new(), WriteQueue::new());
        queue.append(&pool, b"hello");
        let taken = queue.take(&pool, 5, 5);
        queue.put_back(taken);
        assert_eq!(queue.len(), 5);
        drop(queue.take(&pool, 5, 5));
        queue.release_idle();
        assert_eq!(pool.stats().in_use_bytes, 0);
    }
}
