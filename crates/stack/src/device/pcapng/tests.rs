//! Captures, read back with a parser written by others.
#![cfg(not(loom))] // Links stand on hand-overs that loom lets exist in its models only.

use pcap_parser::pcapng::EnhancedPacketBlock;
use pcap_parser::{Block, PcapBlockOwned, PcapNGReader, traits::PcapReaderIterator};

use std::io::{Read, Seek};

use super::*;
use crate::device::memory_link::{LinkConfig, pair};
use crate::device::{TxStatus, fault};
use crate::offload::checksum;
use crate::packet::tests::{mark, marked, super_segment};

/// A sink that a test can look into, and that can fail.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<(Vec<u8>, Option<usize>)>>);

impl Sink {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().0.clone()
    }
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let (bytes, limit) = &mut *self.0.lock().unwrap();
        if limit.is_some_and(|limit| bytes.len() + data.len() > limit) {
            return Err(io::Error::from(ErrorKind::StorageFull));
        }
        bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Seen {
    at: u64,
    outbound: bool,
    data: Vec<u8>,
    len: usize,
    comment: Option<String>,
}

fn seen(block: &EnhancedPacketBlock<'_>) -> Seen {
    let option = |code: u16| {
        block
            .options
            .iter()
            .find(|option| option.code.0 == code)
            .map(|option| &option.value[..usize::from(option.len)])
    };
    let flags = option(2).unwrap()[0];
    Seen {
        at: u64::from(block.ts_high) << 32 | u64::from(block.ts_low),
        outbound: flags == 2,
        data: block.data[..block.caplen as usize].to_vec(),
        len: block.origlen as usize,
        comment: option(1).map(|value| String::from_utf8(value.to_vec()).unwrap()),
    }
}

fn read(bytes: &[u8]) -> Vec<Seen> {
    let mut reader = PcapNGReader::new(1 << 20, bytes).expect("a section header");
    let mut packets = Vec::new();
    let mut interfaces = 0;
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                match block {
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        assert_eq!(interface.linktype.0, 101);
                        assert_eq!(interface.if_tsresol, 9);
                        interfaces += 1;
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(block)) => packets.push(seen(&block)),
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => {}
                    _ => panic!("unexpected block"),
                }
                reader.consume(offset);
            }
            Err(pcap_parser::PcapError::Eof) => break,
            Err(pcap_parser::PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(interfaces, 1);
    packets
}

fn link() -> (Device, Device, Pool) {
    let (a, b) = pair(LinkConfig::default());
    (a, b, Pool::new())
}

#[test]
fn both_directions_are_captured_as_they_are() {
    let (a, mut b, pool) = link();
    let sink = Sink::default();
    let mut a = wrap(a, sink.clone());
    let out = super_segment(&pool, 4, 1448, 40);
    let mut back = marked(&pool, 3);
    checksum::fill(&mut back);
    let (sent, received) = (out.to_vec(), back.to_vec());
    let now = Instant::from_nanos(5_000_000_001);
    a.tx.transmit(now, &mut VecDeque::from([out])).unwrap();
    b.tx.transmit(now, &mut VecDeque::from([back])).unwrap();
    let mut got = Vec::new();
    assert_eq!(a.rx.receive(now, &pool, &mut got, 8).unwrap(), 1);
    drop(a);
    let [first, second] = &read(&sink.bytes())[..] else { panic!("two packets") };
    assert_eq!((first.at, first.outbound, first.len), (now.as_nanos(), true, sent.len()));
    assert_eq!(first.data, sent);
    let comment = first.comment.as_deref();
    assert_eq!(comment, Some("super-segment of 40 x 1448 bytes, checksum left to the device"));
    assert_eq!((second.outbound, &second.data, &second.comment), (false, &received, &None));
}

#[test]
fn long_packets_are_cut_at_the_snap_length() {
    let (a, _b, pool) = link();
    let sink = Sink::default();
    let config = CaptureConfig { snap_len: 53, epoch: Duration::from_secs(1_000_000_000) };
    let (mut a, capture) = wrap_with(a, sink.clone(), config);
    a.tx.transmit(Instant::ZERO, &mut VecDeque::from([marked(&pool, 7)])).unwrap();
    assert_eq!(capture.packets(), 1);
    capture.flush();
    let packets = read(&sink.bytes());
    assert_eq!((packets[0].data.len(), packets[0].len), (53, 152));
    assert_eq!(packets[0].at, 1_000_000_000_000_000_000);
}

#[test]
fn what_the_device_leaves_in_the_queue_is_captured_once() {
    let (a, mut b) = pair(LinkConfig { queue_limit: 3, ..LinkConfig::default() });
    let pool = Pool::new();
    let sink = Sink::default();
    let mut a = wrap(a, sink.clone());
    let mut queue: VecDeque<_> = (0..200).map(|n| marked(&pool, n)).collect();
    let progress = a.tx.transmit(Instant::ZERO, &mut queue).unwrap();
    assert_eq!((progress.packets, progress.status), (3, TxStatus::Busy));
    assert_eq!(queue.iter().map(mark).collect::<Vec<_>>(), (3..200).collect::<Vec<_>>());
    let mut got = Vec::new();
    while b.rx.receive(Instant::ZERO, &pool, &mut got, 2).unwrap() > 0 {
        a.tx.transmit(Instant::ZERO, &mut queue).unwrap();
    }
    drop(a);
    let marks: Vec<_> = read(&sink.bytes()).iter().map(|seen| *seen.data.last().unwrap()).collect();
    assert_eq!(marks, (0..200).collect::<Vec<_>>());
}

#[test]
fn gathered_packets_are_flushed_after_a_second() {
    let (a, _b, pool) = link();
    let sink = Sink::default();
    let mut a = wrap(a, sink.clone());
    let now = Instant::from_millis(500);
    a.tx.transmit(now, &mut VecDeque::from([marked(&pool, 7)])).unwrap();
    assert_eq!(a.tx.next_event(), Some(Instant::from_millis(1500)));
    a.tx.poll_completions(Instant::from_millis(1499)).unwrap();
    assert_eq!(sink.bytes().len(), 0);
    a.tx.poll_completions(Instant::from_millis(1500)).unwrap();
    assert_eq!(read(&sink.bytes()).len(), 1);
    assert_eq!(a.tx.next_event(), None);
}

/// A sink that takes a number of bytes and then fails, in the middle of a write if need be.
struct Small(Sink, usize);

impl Write for Small {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = self.1.saturating_sub(self.0.bytes().len()).min(data.len());
        if room == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.0.write(&data[..room])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_of_once() {
    let (a, _b, pool) = link();
    let (mut a, capture) = wrap_with(a, Small(Sink::default(), 300), CaptureConfig::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let words = told.clone();
    capture.on_error(move |error| words.lock().unwrap().push(error.to_owned()));
    for n in 0..3 {
        a.tx.transmit(Instant::ZERO, &mut VecDeque::from([marked(&pool, n)])).unwrap();
        capture.flush();
    }
    let error = capture.error().expect("it is full");
    assert_eq!(*told.lock().unwrap(), [error.as_str()]);
    // A later call gets the error as well.
    let words = told.clone();
    capture.on_error(move |error| words.lock().unwrap().push(error.to_owned()));
    assert_eq!(told.lock().unwrap().len(), 2);
}

/// For any part of the buffer that is written before the disk is full, the file ends with a whole
/// block.
#[test]
fn a_file_is_cut_behind_its_last_whole_block() {
    let whole = |packets: u8, tail: usize| {
        let (a, _b, pool) = link();
        let memory = rustix::fs::memfd_create("capture", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(memory.unwrap());
        let mut disk = file.try_clone().unwrap();
        let (mut a, capture) = wrap_file(a, file, CaptureConfig::default());
        capture.flush();
        for n in 0..packets {
            a.tx.transmit(Instant::ZERO, &mut VecDeque::from([marked(&pool, n)])).unwrap();
        }
        {
            let mut writer = capture.writer();
            let count = writer.gathered.len() - tail;
            disk.write_all(&writer.gathered[..count]).unwrap();
            writer.end_with(count, &ErrorKind::StorageFull.into());
        }
        capture.flush();
        drop(capture);
        drop(a);
        let mut bytes = Vec::new();
        disk.rewind().unwrap();
        disk.read_to_end(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(&whole(3, 0)).len(), 3);
    for tail in 1..40 {
        let bytes = whole(3, tail);
        assert_eq!(read(&bytes).len(), 2, "{tail} bytes are missing");
        assert_eq!(bytes, whole(2, 0));
    }
    assert_eq!(read(&whole(1, 1)).len(), 0);
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    let (a, mut b, pool) = link();
    let sink = Sink::default();
    sink.0.lock().unwrap().1 = Some(300);
    let (mut a, capture) = wrap_with(a, sink, CaptureConfig::default());
    for n in 0..3 {
        a.tx.transmit(Instant::ZERO, &mut VecDeque::from([marked(&pool, n)])).unwrap();
    }
    capture.flush();
    assert!(capture.error().is_some());
    for n in 3..6 {
        a.tx.transmit(Instant::ZERO, &mut VecDeque::from([marked(&pool, n)])).unwrap();
    }
    let mut got = Vec::new();
    assert_eq!(b.rx.receive(Instant::ZERO, &pool, &mut got, 16).unwrap(), 6);
    assert_eq!(capture.packets(), 3);
}

#[test]
fn wrappers_wrap_wrappers() {
    let (a, mut b, pool) = link();
    let sink = Sink::default();
    let faults = fault::FaultConfig { loss: 1.0, ..Default::default() };
    let mut a = wrap(fault::wrap(a, faults), sink.clone());
    a.tx.transmit(Instant::ZERO, &mut VecDeque::from([marked(&pool, 1)])).unwrap();
    let mut got = Vec::new();
    assert_eq!(b.rx.receive(Instant::ZERO, &pool, &mut got, 16).unwrap(), 0);
    drop(a);
    assert_eq!(read(&sink.bytes()).len(), 1, "the capture shows what the stack sent");
}

#[test]
fn a_packet_that_leaves_says_why() {
    use plimsoll_tcp::{Bound, Causes, Decision, Hold, Note, Released, Tail};
    let (a, mut b, pool) = link();
    let sink = Sink::default();
    let mut a = wrap(a, sink.clone());
    assert!(a.tx.takes_notes() && !b.tx.takes_notes());
    let after = Duration::from_micros(212);
    let released = Released { hold: Hold::Autocork, after, by: Causes::COMPLETION, writes: 12 };
    let decision = Decision::Cut { len: 1536, segs: 1, bound: Bound::Queue, tail: Tail::None };
    let note = || Some(Box::new(Note { released: Some(released), decision }));
    let mut out = marked(&pool, 1);
    out.note = note();
    // The note of another stack on the same link is not written.
    let mut back = marked(&pool, 2);
    checksum::fill(&mut back);
    back.note = note();
    a.tx.transmit(Instant::ZERO, &mut VecDeque::from([out])).unwrap();
    b.tx.transmit(Instant::ZERO, &mut VecDeque::from([back])).unwrap();
    let mut got = Vec::new();
    a.rx.receive(Instant::ZERO, &pool, &mut got, 10).unwrap();
    drop(a);
    let packets = read(&sink.bytes());
    assert_eq!(
        packets[0].comment.as_deref(),
        Some(
            "held 212 us by autocork, released by completion, 12 writes merged; \
             1536 bytes, all that waits"
        )
    );
    assert_eq!(packets[1].comment, None);
}
