//! Tests of packets, and packets for the tests of others.

use std::sync::Mutex;

use plimsoll_buf::{Pool, Slices};
use plimsoll_wire::SeqNum;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::ipv6::Ipv6Repr;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr, Timestamps};

use super::*;
use crate::offload::Layout;
use crate::offload::checksum::pseudo_header;

/// Remembers completions.
#[derive(Default)]
pub(crate) struct Completions(Mutex<Vec<u64>>);

impl Completions {
    pub(crate) fn new() -> Arc<Completions> {
        Arc::default()
    }

    /// The serials that were completed since the last call, in order.
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl CompletionSink for Completions {
    fn complete(&self, _bytes: u32, serial: Serial) {
        self.0.lock().unwrap().push(serial.0);
    }

    fn refused(&self, _bytes: u32) {}
}

/// `len` bytes that differ from one another, in ranges of several chunks.
pub(crate) fn payload(pool: &Pool, len: usize) -> Slices {
    let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251) as u8).collect();
    let mut slices = Slices::new();
    let piece = (len / 3).max(1) | 1;
    for part in bytes.chunks(piece.max(len.div_ceil(7))) {
        slices.push(pool.copy_from(part)).unwrap();
    }
    slices
}

/// A TCP packet with a partial checksum, as the stack builds it.
pub(crate) fn tcp(version: u8, payload: Slices, flags: TcpFlags) -> Packet {
    let repr = TcpRepr {
        src_port: 1000,
        dst_port: 80,
        seq: SeqNum(0xffff_ff00),
        ack: SeqNum(7),
        flags,
        window: 500,
        options: plimsoll_wire::tcp::TcpOptions {
            timestamps: Some(Timestamps { val: 1, ecr: 2 }),
            ..Default::default()
        },
        ..TcpRepr::default()
    };
    let mut out = [0; HEAD_CAPACITY];
    let payload_len = repr.header_len() + payload.len();
    let at = if version == 4 {
        let ip = Ipv4Repr {
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
            protocol: 6,
            ttl: 64,
            tos: 0,
            ident: 0xfffe,
            dont_frag: true,
            more_frags: false,
            frag_offset: 0,
            payload_len,
        };
        ip.emit(&mut out)
    } else {
        let ip = Ipv6Repr {
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            next_header: 6,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 5,
            payload_len,
        };
        ip.emit(&mut out)
    };
    let len = at + repr.emit(&mut out[at..]);
    let mut packet = Packet { payload, csum: ChecksumState::Partial, ..Packet::default() };
    packet.head.try_extend_from_slice(&out[..len]).unwrap();
    let layout = Layout::of_packet(&packet).unwrap();
    let pseudo = pseudo_header(&packet.head, &layout, payload_len).folded();
    let field = layout.checksum_at().unwrap();
    packet.head[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    packet
}

/// A super-segment of `segs` segments of `mss` bytes, the last of which is one byte short.
pub(crate) fn super_segment(pool: &Pool, version: u8, mss: u16, segs: u16) -> Packet {
    let payload = payload(pool, usize::from(mss) * usize::from(segs) - 1);
    let mut packet = tcp(version, payload, TcpFlags::ACK | TcpFlags::PSH);
    packet.gso = Some(Gso { size: mss, segs });
    packet
}

/// A packet with a charge.
/// `len` bytes to be sent in datagrams of `size` bytes each, as one packet.
pub(crate) fn datagrams(pool: &Pool, version: u8, size: u16, len: usize) -> Packet {
    use plimsoll_wire::{protocol, udp};
    let mut head = tcp(version, payload(pool, 1), TcpFlags::ACK).head;
    head.truncate(if version == 4 { 20 } else { 40 });
    let (len_at, protocol_at, counted) = if version == 4 { (2, 9, 28) } else { (4, 6, 8) };
    head[protocol_at] = protocol::UDP;
    head[len_at..len_at + 2].copy_from_slice(&((counted + len) as u16).to_be_bytes());
    let mut header = [0; udp::HEADER_LEN];
    udp::UdpRepr { src_port: 7, dst_port: 9, payload_len: len }.emit(&mut header);
    head.extend(header);
    Packet {
        head,
        payload: payload(pool, len),
        gso: Some(Gso { size, segs: len.div_ceil(usize::from(size)) as u16 }),
        csum: ChecksumState::Partial,
        ..Packet::new()
    }
}

pub(crate) fn charged(mut packet: Packet, sink: &Arc<Completions>, serial: u64) -> Packet {
    let bytes = packet.payload.len() as u32;
    packet.charge = Some(Charge::new(sink.clone(), bytes, Serial(serial)));
    packet
}

/// A small packet that `mark` distinguishes from others.
pub(crate) fn marked(pool: &Pool, mark: u8) -> Packet {
    tcp(4, pool.copy_from(&[mark; 100]).into(), TcpFlags::ACK)
}

/// The mark of a packet.
pub(crate) fn mark(packet: &Packet) -> u8 {
    *packet.to_vec().last().unwrap()
}

#[test]
fn a_charge_fires_once_wherever_it_ends() {
    let pool = Pool::new();
    let done = Completions::new();
    let mut packet = charged(marked(&pool, 1), &done, 5);
    assert_eq!(packet.charge.as_ref().map(|charge| charge.bytes()), Some(100));
    packet.complete();
    packet.complete();
    assert_eq!(done.take(), [5]);
    drop(packet);
    assert_eq!(done.take(), []);
    drop(charged(marked(&pool, 1), &done, 6));
    assert_eq!(done.take(), [6]);
}

#[test]
fn a_shared_copy_owes_nothing() {
    let done = Completions::new();
    let packet = charged(marked(&Pool::new(), 1), &done, 5);
    let copy = packet.share();
    assert_eq!(copy.to_vec(), packet.to_vec());
    drop(copy);
    assert_eq!(done.take(), []);
}

#[test]
fn headers_are_found_and_pulled() {
    let pool = Pool::new();
    let built = super_segment(&pool, 4, 100, 3);
    let bytes = built.to_vec();
    let mut read = Packet { payload: pool.copy_from(&bytes).into(), ..Packet::default() };
    assert_eq!(&read.headers()[..52], &built.headers()[..52]);
    assert!(read.pull_headers(52));
    assert_eq!(read.head, built.head);
    assert_eq!(read.to_vec(), bytes);
    assert!(read.pull_headers(20), "what is there already need not be pulled");
    assert!(!read.pull_headers(60));
    assert_eq!(read.to_vec(), bytes);
}

#[test]
fn headers_that_do_not_fit_are_not_pulled() {
    let pool = Pool::new();
    let mut packet = Packet { payload: pool.copy_from(&[0; 200]).into(), ..Packet::default() };
    assert!(!packet.pull_headers(HEAD_CAPACITY + 1));
    assert_eq!(packet.payload.len(), 200);
    assert!(!packet.pull_headers(201));
}

/// Packets are moved through several queues, so their size matters.
#[test]
fn a_packet_is_small_enough_to_move() {
    assert!(size_of::<Packet>() <= 352, "{}", size_of::<Packet>());
}

#[test]
fn a_refused_packet_completes_nothing() {
    let completions = Completions::new();
    Charge::new(completions.clone(), 5, Serial(1)).refuse();
    assert_eq!(completions.take(), []);
    drop(Charge::new(completions.clone(), 5, Serial(1)));
    assert_eq!(completions.take(), [1]);
}
