//! Datagrams that have arrived and are not read yet.
//!
//! Consecutive datagrams of one sender with the same TTL, DSCP and ECN share one entry, a *train*:
//! one range of bytes, cut every `stride` bytes; only the last of a train may be shorter. So a
//! burst costs one entry, and a reader can take the whole train at once (UDP_GRO on Linux). For a
//! reader that takes one datagram at a time the boundaries stay.
//!
//! A datagram is copied into a chunk of the queue, since a small datagram would keep a device's
//! large chunk alive. One that fills an eighth of its chunk is not copied. Neither is a burst that
//! arrived as one packet, since a device reads several of those into one chunk.
//!
//! SO_RCVBUF limits the queue in bytes; each datagram costs [`DATAGRAM_OVERHEAD`] in addition to
//! its data ([`ReceiveQueue::cost`]). As on Linux, a datagram is accepted as long as the limit has
//! not been reached, so a datagram of any size fits an empty queue.
//!
//! The queue *pins* more memory than that: whole chunks, even if little of one is unread
//! ([`ReceiveQueue::pinned`]). The socket is charged for this in the account of all sockets
//! (`udp_mem`). Otherwise a peer could pin a chunk with every few bytes. A chunk is counted with
//! the first train in the queue that uses it; trains of one chunk that are not adjacent count it
//! twice. A chunk used by several sockets counts for each.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use plimsoll_buf::{CLASS_SIZES, ChunkWriter, MAX_CHUNK, Pool, Slice, Slices};

use crate::limits::DATAGRAM_OVERHEAD;

/// The largest chunk that datagrams are copied into, in bytes. A queue takes a chunk as large as
/// its waiting data: few small datagrams pin little, and a burst needs few chunks.
const BURST_CHUNK: usize = 65_536;
/// The longest train, in bytes, for which a reader needs space.
const LONGEST_TRAIN: usize = 65_535;
/// A datagram that fills at least this part of its chunk is not copied.
const LARGE: usize = 8;
/// Datagrams of one train, at most.
const MOST_OF_A_TRAIN: usize = 64;

/// A datagram's IP header fields and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramInfo {
    /// The sender. An IPv4 address stays one, also on a socket that is bound to `[::]`. A
    /// link-local address has the scope id of the interface.
    pub from: SocketAddr,
    /// The destination address.
    pub to: IpAddr,
    /// The destination port.
    pub to_port: u16,
    /// TOS or traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// TTL or hop limit, as it arrived.
    pub ttl: u8,
    /// The interface on which it arrived, as its position in
    /// [`Stack::interfaces`](crate::Stack::interfaces).
    pub interface: usize,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Bytes written into the buffer.
    pub len: usize,
    /// Bytes of each datagram of a train except the last, which may be shorter. For one datagram,
    /// its whole length, even if the buffer was shorter.
    pub stride: usize,
    /// The header fields and origin of the datagrams.
    pub info: DatagramInfo,
}

#[derive(Debug)]
struct Train {
    info: DatagramInfo,
    data: Slice,
    stride: usize,
    count: usize,
    /// The size of its chunk, if the train before it in the queue has another one; otherwise 0.
    pins: usize,
    /// It was copied to where the queue copies to.
    copied: bool,
}

/// The place of a payload.
enum Place<'a> {
    /// Where it is.
    There(&'a Slice),
    /// After the data copied last.
    Behind,
    /// In a new chunk of this size.
    New(usize),
}

impl Train {
    fn cost(&self) -> usize {
        self.data.len() + self.count * DATAGRAM_OVERHEAD
    }

    /// Bytes of its first datagram.
    fn first_len(&self) -> usize {
        self.stride.min(self.data.len())
    }

    /// Whether a datagram of `len` bytes may follow its last.
    fn goes_on(&self, info: &DatagramInfo, len: usize) -> bool {
        let full = self.data.len() == self.count * self.stride;
        full && len > 0
            && len <= self.stride
            && self.count < MOST_OF_A_TRAIN
            && self.data.len() + len <= LONGEST_TRAIN
            && self.info == *info
    }
}

/// The length and the number of datagrams in `len` bytes that are cut every `stride` bytes, if they
/// are.
fn cut(len: usize, stride: Option<usize>) -> (usize, usize) {
    match stride.filter(|&stride| stride > 0 && stride < len) {
        Some(stride) => (stride, len.div_ceil(stride)),
        None => (len, 1),
    }
}

/// The cost of a datagram of `len` bytes, or of a train that is cut every `stride` bytes, in a
/// queue.
pub(crate) fn cost_of(len: usize, stride: Option<usize>) -> usize {
    len + cut(len, stride).1 * DATAGRAM_OVERHEAD
}

/// The queue of one socket.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    trains: VecDeque<Train>,
    /// Where the next datagram is copied to.
    writer: Option<ChunkWriter>,
    datagrams: usize,
    cost: usize,
    /// The sum of the memory that the trains pin.
    chunks: usize,
}

impl ReceiveQueue {
    /// Datagrams that wait.
    pub(crate) fn len(&self) -> usize {
        self.datagrams
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// The cost of the queued datagrams, in bytes.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// Bytes of the datagram that is read next.
    pub(crate) fn next_len(&self) -> Option<usize> {
        self.trains.front().map(Train::first_len)
    }

    /// Bytes of memory that they pin: whole chunks, and the stack's record of each datagram.
    pub(crate) fn pinned(&self) -> usize {
        self.chunks + self.datagrams * DATAGRAM_OVERHEAD
    }

    /// The value of [`pinned`](Self::pinned) after `payload` is queued.
    pub(crate) fn pinned_with(&self, payload: &Slices, stride: Option<usize>) -> usize {
        let more = match self.place(payload) {
            Place::There(slice) => self.chunk_of(slice),
            Place::Behind if self.trains.back().is_some_and(|tail| tail.copied) => 0,
            Place::Behind => self.writer.as_ref().map_or(0, ChunkWriter::capacity),
            Place::New(size) => size,
        };
        self.pinned() + more + cut(payload.len(), stride).1 * DATAGRAM_OVERHEAD
    }

    /// The memory that `data` pins if it follows the last train.
    fn chunk_of(&self, data: &Slice) -> usize {
        match self.trains.back() {
            Some(tail) if tail.data.shares_chunk(data) => 0,
            _ => data.chunk_size(),
        }
    }

    fn place<'a>(&self, payload: &'a Slices) -> Place<'a> {
        match payload.parts() {
            [only] if only.len() * LARGE >= only.chunk_size() => Place::There(only),
            _ => self.place_for_copy(payload.len()),
        }
    }

    fn place_for_copy(&self, len: usize) -> Place<'static> {
        if self.writer.as_ref().is_some_and(|writer| writer.remaining() >= len) {
            return Place::Behind;
        }
        let wanted = self.cost.min(BURST_CHUNK).max(len);
        Place::New(CLASS_SIZES.into_iter().find(|&size| size >= wanted).unwrap_or(MAX_CHUNK))
    }

    /// Takes `payload` in, which is one datagram, or a train of datagrams of `stride` bytes. The
    /// caller has seen to it that there is space.
    pub(crate) fn push(
        &mut self,
        info: &DatagramInfo,
        payload: &Slices,
        stride: Option<usize>,
        pool: &Pool,
    ) {
        match self.place(payload) {
            Place::There(slice) => self.add(info, slice.clone(), stride, false),
            place => self.push_copied(place, (info, payload, stride), pool),
        }
    }

    /// As [`push`](Self::push), into an empty queue and by a copy into the smallest chunk that it
    /// fits.
    pub(crate) fn push_smallest(
        &mut self,
        info: &DatagramInfo,
        payload: &Slices,
        stride: Option<usize>,
        pool: &Pool,
    ) {
        self.push_copied(self.place_for_copy(payload.len()), (info, payload, stride), pool);
    }

    fn push_copied(
        &mut self,
        place: Place<'_>,
        (info, payload, stride): (&DatagramInfo, &Slices, Option<usize>),
        pool: &Pool,
    ) {
        let len = payload.len();
        let writer = match (&mut self.writer, place) {
            (Some(writer), Place::Behind) => writer,
            (slot, Place::New(size)) => slot.insert(pool.chunk(size)),
            (slot, _) => slot.insert(pool.chunk(len)),
        };
        payload.copy_to(writer.spare_mut());
        let data = writer.freeze(len);
        if let Some(tail) = self.trains.back_mut()
            && cut(len, stride).1 == 1
            && tail.goes_on(info, len)
            && tail.data.try_merge(&data)
        {
            tail.count += 1;
            self.datagrams += 1;
            self.cost += len + DATAGRAM_OVERHEAD;
            return;
        }
        self.add(info, data, stride, true);
    }

    fn add(&mut self, info: &DatagramInfo, data: Slice, stride: Option<usize>, copied: bool) {
        let (stride, count) = cut(data.len(), stride);
        let pins = self.chunk_of(&data);
        self.datagrams += count;
        self.cost += data.len() + count * DATAGRAM_OVERHEAD;
        self.chunks += pins;
        self.trains.push_back(Train { info: *info, data, stride, count, pins, copied });
    }

    /// Copies the first datagram to `buf`, as much of it as fits, without removing it.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> Option<Received> {
        let train = self.trains.front()?;
        let whole = train.first_len();
        let len = whole.min(buf.len());
        buf[..len].copy_from_slice(&train.data[..len]);
        Some(Received { len, stride: whole, info: train.info })
    }

    /// Removes the first datagram. Bytes that do not fit `buf` are lost.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Option<Received> {
        let read = self.peek(buf)?;
        self.take_front(1);
        Some(read)
    }

    /// Takes as many datagrams of the first train out as `buf` has space for, and the first one in
    /// any case, cut off as by [`read`](Self::read).
    pub(crate) fn read_train(&mut self, buf: &mut [u8]) -> Option<Received> {
        let train = self.trains.front()?;
        if train.count == 1 || buf.len() < 2 * train.stride {
            return self.read(buf);
        }
        let (stride, info) = (train.stride, train.info);
        let count = if buf.len() >= train.data.len() { train.count } else { buf.len() / stride };
        let len = train.data.len().min(count * stride);
        buf[..len].copy_from_slice(&train.data[..len]);
        self.take_front(count);
        Some(Received { len, stride, info })
    }

    /// Takes the first train out as it is, without a copy.
    pub(crate) fn take_train(&mut self) -> Option<(Slice, Received)> {
        let (stride, info, count) =
            self.trains.front().map(|train| (train.stride, train.info, train.count))?;
        let data = self.trains.front().map(|train| train.data.clone())?;
        self.take_front(count);
        Some((data.clone(), Received { len: data.len(), stride, info }))
    }

    /// Takes the first `count` datagrams out of the first train.
    fn take_front(&mut self, count: usize) {
        let Some(train) = self.trains.front_mut() else { return };
        let before = train.cost();
        self.datagrams -= count;
        if count >= train.count {
            self.cost -= before;
            self.drop_front();
            return;
        }
        train.data.advance(count * train.stride);
        train.count -= count;
        self.cost -= before - train.cost();
    }

    /// Takes the first train out, of which all was read.
    fn drop_front(&mut self) {
        let Some(train) = self.trains.pop_front() else { return };
        match self.trains.front_mut() {
            Some(next) if next.data.shares_chunk(&train.data) => next.pins = train.pins,
            Some(_) => {
                self.chunks -= train.pins;
                if train.copied {
                    // A chunk that only the writer keeps is charged to no socket.
                    self.writer = None;
                }
            }
            None => {
                // An idle socket holds no chunk, nor the places of a long queue.
                self.chunks = 0;
                self.writer = None;
                if self.trains.capacity() > KEPT_PLACES {
                    self.trains = VecDeque::new();
                }
            }
        }
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        *self = ReceiveQueue::default();
    }
}

/// Places that an empty queue keeps.
const KEPT_PLACES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn info(port: u16) -> DatagramInfo {
        let ip = IpAddr::from([192, 0, 2, 1]);
        DatagramInfo {
            from: SocketAddr::new(ip, port),
            to: ip,
            to_port: 9,
            tos: 0,
            ttl: 64,
            interface: 0,
        }
    }

    fn push(queue: &mut ReceiveQueue, from: u16, data: &[u8]) {
        // As a device passes them: in a chunk that is much larger.
        let pool = Pool::new();
        let payload = pool.chunk(65_536).append(data).into();
        queue.push(&info(from), &payload, None, &pool);
    }

    #[test]
    fn boundaries_stay_and_a_train_is_one_read() {
        let pool = Pool::new();
        let mut queue = ReceiveQueue::default();
        let mut add = |from, data: &[u8]| {
            let payload = pool.chunk(65_536).append(data).into();
            queue.push(&info(from), &payload, None, &pool);
        };
        for data in [&b"aaaa"[..], b"bbbb", b"cccc", b"dd", b"eeee"] {
            add(7, data);
        }
        add(8, b"ffff");
        add(8, b"");
        assert_eq!((queue.len(), queue.cost()), (7, 22 + 7 * DATAGRAM_OVERHEAD));
        let mut buf = [0; 64];
        let first = queue.read(&mut buf[..2]).unwrap();
        assert_eq!((first.len, first.stride, &buf[..2]), (2, 4, &b"aa"[..]));
        let rest = queue.read_train(&mut buf).unwrap();
        assert_eq!((rest.len, rest.stride), (10, 4), "a shorter one ends the train");
        assert_eq!(&buf[..10], b"bbbbccccdd");
        let all: Vec<_> = std::iter::from_fn(|| queue.read_train(&mut buf))
            .map(|read| (read.len, read.stride, read.info.from.port()))
            .collect();
        assert_eq!(all, [(4, 4, 7), (4, 4, 8), (0, 0, 8)]);
        assert_eq!((queue.len(), queue.cost(), queue.next_len()), (0, 0, None));
        assert!(queue.writer.is_none());
    }

    #[test]
    fn a_small_buffer_takes_whole_datagrams_of_a_train() {
        let pool = Pool::new();
        let mut queue = ReceiveQueue::default();
        let train = pool.copy_from(&[5; 1000]).into();
        queue.push(&info(1), &train, Some(300), &pool);
        assert_eq!((queue.len(), queue.cost()), (4, 1000 + 4 * DATAGRAM_OVERHEAD));
        let mut buf = [0; 700];
        assert_eq!(
            queue.read_train(&mut buf).map(|read| (read.len, read.stride)),
            Some((600, 300))
        );
        let (data, read) = queue.take_train().unwrap();
        assert_eq!((data.len(), read.stride), (400, 300));
        assert!(queue.is_empty() && queue.cost() == 0);
    }

    #[test]
    fn other_marks_are_another_train() {
        let pool = Pool::new();
        let mut queue = ReceiveQueue::default();
        for tos in [0, 0, 3, 3] {
            let payload = pool.chunk(65_536).append(b"data").into();
            queue.push(&DatagramInfo { tos, ..info(1) }, &payload, None, &pool);
        }
        let mut buf = [0; 64];
        let mut next = || queue.read_train(&mut buf).map(|read| (read.len, read.info.tos));
        assert_eq!([next(), next(), next()], [Some((8, 0)), Some((8, 3)), None]);
    }

    #[test]
    fn a_small_datagram_keeps_no_large_chunk() {
        let mut queue = ReceiveQueue::default();
        push(&mut queue, 1, b"small");
        assert!(queue.trains[0].data.chunk_size() <= 512);
        push(&mut queue, 1, &[1; 20_000]);
        assert_eq!(queue.trains[1].data.chunk_size(), 65_536);
        queue.clear();
        assert_eq!(queue.cost(), 0);
    }

    #[test]
    fn a_burst_that_arrived_as_one_packet_is_not_copied() {
        let pool = Pool::new();
        let mut queue = ReceiveQueue::default();
        // As the first of several in the chunk that a device reads into.
        let mut chunk = pool.chunk(MAX_CHUNK);
        for len in [64_800, 14_520] {
            let burst = chunk.append(&vec![7; len]).into();
            queue.push(&info(1), &burst, Some(1200), &pool);
        }
        let sizes: Vec<_> = queue.trains.iter().map(|train| train.data.chunk_size()).collect();
        assert_eq!(sizes, [MAX_CHUNK, 65_536]);
    }

    #[test]
    fn a_train_pins_its_chunk_as_long_as_anything_of_it_is_unread() {
        let pool = Pool::new();
        let mut queue = ReceiveQueue::default();
        let mut chunk = pool.chunk(MAX_CHUNK);
        let overhead = |count| count * DATAGRAM_OVERHEAD;
        let mut burst = |queue: &mut ReceiveQueue, len: usize| {
            let burst = chunk.append(&vec![7; len]).into();
            let promised = queue.pinned_with(&burst, Some(1200));
            queue.push(&info(1), &burst, Some(1200), &pool);
            assert_eq!(queue.pinned(), promised);
        };
        burst(&mut queue, 48_000);
        assert_eq!(queue.pinned(), MAX_CHUNK + overhead(40));
        burst(&mut queue, 36_000);
        assert_eq!(queue.pinned(), MAX_CHUNK + overhead(70), "two of one chunk");
        let mut buf = [0; 1200];
        (0..69).for_each(|_| assert!(queue.read(&mut buf).is_some()));
        assert_eq!((queue.cost(), queue.pinned()), (1200 + overhead(1), MAX_CHUNK + overhead(1)));
        push(&mut queue, 1, b"small");
        assert_eq!(queue.pinned(), MAX_CHUNK + 4096 + overhead(2));
        queue.read(&mut buf);
        assert_eq!(queue.pinned(), 4096 + overhead(1));
        queue.read(&mut buf);
        assert_eq!(queue.pinned(), 0);
    }

    #[test]
    fn few_small_datagrams_pin_little() {
        let mut queue = ReceiveQueue::default();
        for from in 1..=40 {
            push(&mut queue, from, b"x");
            assert!(queue.pinned() <= 16 * queue.cost() + 512, "{} datagrams", queue.len());
        }
    }

    proptest::proptest! {
        /// The charge is at least the memory of all chunks that the queue keeps alive.
        #[test]
        fn what_is_pinned_is_known(
            steps in proptest::collection::vec((0_usize..40_000, 0_u16..3, 0_usize..3), 1..60),
        ) {
            let (device, pool) = (Pool::new(), Pool::new());
            let mut queue = ReceiveQueue::default();
            let mut chunk = device.chunk(MAX_CHUNK);
            let mut buf = vec![0; 65_535];
            for (len, from, reads) in steps {
                if chunk.remaining() < len {
                    chunk = device.chunk(MAX_CHUNK);
                }
                let payload = chunk.append(&vec![1; len]).into();
                let promised = queue.pinned_with(&payload, Some(1000));
                queue.push(&info(from), &payload, Some(1000), &pool);
                drop(payload);
                proptest::prop_assert!(queue.pinned() <= promised);
                for _ in 0..reads {
                    queue.read(&mut buf);
                }
                // The device holds the chunk that it reads into.
                let kept = pool.stats().in_use_bytes
                    + device.stats().in_use_bytes.saturating_sub(MAX_CHUNK);
                let pinned = queue.pinned();
                proptest::prop_assert!(pinned >= kept, "{} bytes charged for {}", pinned, kept);
            }
        }

        /// All data is read once, whole and in order, by any kind of read.
        #[test]
        fn nothing_is_lost_or_mixed(
            lens in proptest::collection::vec((0_usize..40, 0_u16..3), 1..60),
            reads in proptest::collection::vec((proptest::bool::ANY, 0_usize..200), 1..200),
        ) {
            let pool = Pool::new();
            let mut queue = ReceiveQueue::default();
            let mut sent = VecDeque::new();
            for (at, &(len, from)) in lens.iter().enumerate() {
                let data = vec![at as u8; len];
                let payload = pool.chunk(65_536).append(&data).into();
                queue.push(&info(from), &payload, None, &pool);
                sent.push_back((from, data));
            }
            for &(train, space) in &reads {
                let mut buf = vec![0; space.max(40)];
                let read = if train { queue.read_train(&mut buf) } else { queue.read(&mut buf) };
                let Some(read) = read else { break };
                let mut data = &buf[..read.len];
                loop {
                    let (from, expected) = sent.pop_front().unwrap();
                    let (now, rest) = data.split_at(read.stride.min(data.len()));
                    proptest::prop_assert_eq!((from, &expected[..]), (read.info.from.port(), now));
                    data = rest;
                    if data.is_empty() {
                        break;
                    }
                }
                let cost: usize =
                    sent.iter().map(|(_, data)| data.len() + DATAGRAM_OVERHEAD).sum();
                proptest::prop_assert_eq!((queue.len(), queue.cost()), (sent.len(), cost));
            }
        }
    }
}
