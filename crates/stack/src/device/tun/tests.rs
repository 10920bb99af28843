//! The TUN code against a kernel that refuses packets as a test demands.

use std::sync::Mutex;

use plimsoll_wire::tcp::TcpFlags;

use super::*;
use crate::device::DeviceError;
use crate::limits::RX_BATCH_BYTES;
use crate::packet::Gso;
use crate::packet::tests::{Completions, charged, datagrams, marked, payload, super_segment, tcp};

const VNET: Before = Before { info: false, vnet: true };

/// The kernel's answer to a packet with this header and length.
type Verdict = Box<dyn FnMut(&Header, usize) -> Result<(), Errno> + Send>;

struct Kernel {
    verdict: Verdict,
    written: Vec<(Header, Vec<u8>)>,
    to_read: VecDeque<Result<Vec<u8>, Errno>>,
}

#[derive(Clone)]
struct Fake(Arc<Mutex<Kernel>>);

impl Fake {
    fn new(verdict: impl FnMut(&Header, usize) -> Result<(), Errno> + Send + 'static) -> Fake {
        let (written, to_read) = (Vec::new(), VecDeque::new());
        Fake(Arc::new(Mutex::new(Kernel { verdict: Box::new(verdict), written, to_read })))
    }

    fn written(&self) -> Vec<(Header, Vec<u8>)> {
        std::mem::take(&mut self.0.lock().unwrap().written)
    }

    fn tx(&self) -> TunTx<Fake> {
        TunTx::new(self.clone(), caps(true), VNET)
    }

    fn rx(&self, vnet: bool) -> TunRx<Fake> {
        TunRx::new(self.clone(), "tun0".into(), Before { info: false, vnet }, RX_BATCH_BYTES)
    }
}

impl Port for Fake {
    fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut kernel = self.0.lock().unwrap();
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let (header, packet) = bytes.split_first_chunk().unwrap();
        let header = Header::read(header);
        (kernel.verdict)(&header, packet.len())?;
        kernel.written.push((header, packet.to_vec()));
        Ok(bytes.len())
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let bytes = self.0.lock().unwrap().to_read.pop_front().unwrap_or(Err(Errno::AGAIN))?;
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

fn caps(offloads: bool) -> Caps {
    Caps {
        name: "tun0".into(),
        mtu: 1500,
        tso4: offloads,
        tso6: offloads,
        uso: offloads,
        tx_checksum: offloads,
        max_super_segment: MAX_PACKET,
        completions: true,
    }
}

fn send(tx: &mut TunTx<Fake>, packets: impl IntoIterator<Item = Packet>) -> TxProgress {
    let mut queue: VecDeque<_> = packets.into_iter().collect();
    let progress = tx.transmit(Instant::ZERO, &mut queue).unwrap();
    assert_eq!(queue.is_empty(), progress.status == TxStatus::Done);
    progress
}

#[test]
fn a_super_segment_goes_down_whole() {
    let pool = Pool::new();
    for (version, gso_type, at) in [(4, 1, 20), (6, 4, 40)] {
        let kernel = Fake::new(|_, _| Ok(()));
        let packet = super_segment(&pool, version, 1400, 20);
        let bytes = packet.to_vec();
        assert_eq!(send(&mut kernel.tx(), [packet]), TxProgress::done(1));
        let expected = Header {
            flags: 1,
            gso_type,
            hdr_len: at + 32,
            gso_size: 1400,
            csum_start: at,
            csum_offset: 16,
        };
        assert_eq!(kernel.written(), [(expected, bytes)]);
    }
}

/// A super-segment of `len` payload bytes over devices that take up to 256 KiB.
fn sent_long(version: u8, len: usize) -> (Header, Vec<u8>, Vec<u8>) {
    let kernel = Fake::new(|_, _| Ok(()));
    let mut tx = TunTx::new(kernel.clone(), caps(true).max_super_segment(1 << 18), VNET);
    let packet = super_segment(&Pool::new(), version, 1400, len.div_ceil(1400) as u16);
    let bytes = packet.to_vec();
    assert_eq!(send(&mut tx, [packet]), TxProgress::done(1));
    let (header, written) = kernel.written().remove(0);
    (header, bytes, written)
}

#[test]
fn more_than_64_kib_go_down_whole() {
    let (header, bytes, written) = sent_long(4, 200_000);
    assert_eq!((header.gso_type, header.hdr_len, header.csum_start), (1, 52, 20));
    assert_eq!(written[2..4], [0, 0], "no length that the header could say");
    assert_eq!(written, bytes);
    // IPv6 says it in an option (RFC 2675).
    let (header, bytes, written) = sent_long(6, 200_000);
    assert_eq!((header.gso_type, header.hdr_len, header.csum_start), (4, 80, 48));
    assert_eq!(written[4..6], [0, 0]);
    assert_eq!((written[6], written[40], written[41]), (0, 6, 0));
    assert_eq!(written[42..44], [0xc2, 4]);
    let length = u32::from_be_bytes(*written[44..].first_chunk().unwrap());
    assert_eq!(length as usize, written.len() - 40);
    assert_eq!(written[48..], bytes[40..]);
    let (header, bytes, written) = sent_long(6, 60_000);
    assert_eq!((header.hdr_len, header.csum_start), (72, 40));
    assert_eq!(written, bytes, "a header says so much");
}

#[test]
fn a_refused_length_is_not_asked_for_again() {
    let pool = Pool::new();
    let kernel = Fake::new(|_, len| if len > MAX_PACKET { Err(Errno::INVAL) } else { Ok(()) });
    let mut tx = TunTx::new(kernel.clone(), caps(true).max_super_segment(1 << 18), VNET);
    assert!(send(&mut tx, [super_segment(&pool, 4, 1400, 100)]).caps_changed);
    assert_eq!(kernel.written().len(), 100, "cut");
    assert_eq!(tx.caps().max_super_segment, MAX_PACKET);
    assert!(tx.caps().tso4, "shorter ones are taken");
    send(&mut tx, [super_segment(&pool, 4, 1400, 40)]);
    assert_eq!(kernel.written().len(), 1);
}

#[test]
fn only_some_kernels_take_more_than_64_kib() {
    for (release, known) in [
        ("6.18.44-generic", Some((6, 18))),
        ("6.3", Some((6, 3))),
        ("5.15.0", Some((5, 15))),
        ("10.0-rc1", Some((10, 0))),
        ("6", None),
        ("linux", None),
        ("", None),
    ] {
        assert_eq!(setup::version(release), known, "{release:?}");
    }
    assert_eq!(setup::longest(usize::MAX, true), 1 << 18);
    assert_eq!(setup::longest(100_000, true), 100_000);
    assert_eq!(setup::longest(100_000, false), MAX_PACKET);
    assert_eq!(setup::longest(9000, false), 9000);
}

#[test]
fn datagrams_go_down_as_one_until_they_are_refused() {
    let pool = Pool::new();
    for (version, at) in [(4, 20), (6, 40)] {
        let kernel = Fake::new(|_, _| Ok(()));
        send(&mut kernel.tx(), [datagrams(&pool, version, 1000, 2500)]);
        let expected = Header {
            flags: 1,
            gso_type: 5,
            hdr_len: at + 8,
            gso_size: 1000,
            csum_start: at,
            csum_offset: 6,
        };
        assert_eq!(kernel.written()[0].0, expected);
        let kernel = Fake::new(|h, _| if h.gso_size > 0 { Err(Errno::INVAL) } else { Ok(()) });
        let mut tx = kernel.tx();
        assert!(send(&mut tx, [datagrams(&pool, version, 1000, 2500)]).caps_changed);
        assert!(!tx.caps().uso && tx.caps().tso4 && tx.caps().tso6);
        assert_eq!(kernel.written().len(), 3);
    }
}

#[test]
fn cwr_marks_the_super_segment_as_ecn() {
    let pool = Pool::new();
    let kernel = Fake::new(|_, _| Ok(()));
    let mut packet = tcp(4, payload(&pool, 3000), TcpFlags::ACK | TcpFlags::CWR);
    packet.gso = Some(Gso { size: 1400, segs: 3 });
    send(&mut kernel.tx(), [packet]);
    assert_eq!(kernel.written()[0].0.gso_type, 0x81);
}

#[test]
fn a_count_with_cwr_is_not_left_to_the_device() {
    let pool = Pool::new();
    let count = TcpFlags::ACK | TcpFlags::CWR;
    for (flags, packets) in [(count, 3), (TcpFlags::ACK | TcpFlags::AE, 1)] {
        let kernel = Fake::new(|_, _| Ok(()));
        let mut packet = tcp(4, payload(&pool, 3000), flags);
        packet.gso = Some(Gso { size: 1400, segs: 3 });
        packet.cwr = crate::packet::CwrFlag::OnAll;
        let mut tx = kernel.tx();
        assert!(!send(&mut tx, [packet]).caps_changed);
        let written = kernel.written();
        assert_eq!(written.len(), packets);
        assert!(written.iter().all(|(header, _)| header.gso_type & 0x80 == 0));
    }
}

#[test]
fn a_refused_super_segment_is_cut_and_tso_stays_off() {
    for refusal in [Errno::INVAL, Errno::IO, Errno::MSGSIZE] {
        let pool = Pool::new();
        let done = Completions::new();
        let kernel = Fake::new(move |h, _| if h.gso_size > 0 { Err(refusal) } else { Ok(()) });
        let mut tx = kernel.tx();
        let packet = charged(super_segment(&pool, 4, 1000, 4), &done, 1);
        let progress = send(&mut tx, [packet]);
        assert!(progress.caps_changed);
        assert_eq!(done.take(), [1]);
        assert!(!tx.caps().tso4 && tx.caps().tso6 && tx.caps().tx_checksum);
        let written = kernel.written();
        assert_eq!(written.len(), 4);
        assert!(written.iter().all(|(header, _)| header.flags == 1 && header.gso_type == 0));
        // From now on nothing is tried that will be refused.
        assert!(!send(&mut tx, [super_segment(&pool, 4, 1000, 4)]).caps_changed);
        let stats = tx.stats();
        assert_eq!((stats.offloads_refused, stats.software_gso, stats.errors), (1, 2, 0));
        assert_eq!(stats.wire_segments, 8);
    }
}

#[test]
fn a_refused_checksum_is_filled_in_and_all_offloads_stay_off() {
    let pool = Pool::new();
    let kernel = Fake::new(|header, _| if header.flags > 0 { Err(Errno::INVAL) } else { Ok(()) });
    let mut tx = kernel.tx();
    assert!(send(&mut tx, [marked(&pool, 1)]).caps_changed);
    send(&mut tx, [super_segment(&pool, 6, 1000, 3)]);
    let caps = tx.caps();
    assert!(!caps.tso4 && !caps.tso6 && !caps.tx_checksum);
    let written = kernel.written();
    assert_eq!(written.len(), 4);
    for (_, bytes) in written {
        let packet = Packet { payload: pool.copy_from(&bytes).into(), ..Packet::default() };
        assert!(checksum::verify(&packet));
    }
}

#[test]
fn an_interface_that_is_down_drops_and_changes_nothing() {
    let pool = Pool::new();
    let done = Completions::new();
    let kernel = Fake::new(|_, _| Err(Errno::IO));
    let mut tx = kernel.tx();
    let packets = [super_segment(&pool, 4, 1000, 3), marked(&pool, 1)];
    let progress = send(&mut tx, packets.map(|packet| charged(packet, &done, 1)));
    assert_eq!(progress, TxProgress::done(2));
    assert_eq!(done.take(), [1, 1]);
    assert!(tx.caps().tso4 && tx.caps().tx_checksum);
    assert_eq!((tx.stats().packets, tx.stats().offloads_refused), (0, 0));
    assert_eq!(tx.stats().errors, 4);
}

#[test]
fn a_full_kernel_leaves_packets_in_the_queue() {
    let pool = Pool::new();
    let mut room = 5;
    let kernel = Fake::new(move |_, _| {
        room -= 1;
        if room % 3 == 1 { Err(Errno::AGAIN) } else { Ok(()) }
    });
    let mut tx = kernel.tx();
    tx.caps.tso4 = false;
    let mut queue = VecDeque::from([super_segment(&pool, 4, 1000, 4), marked(&pool, 1)]);
    let mut rounds = 0;
    while tx.transmit(Instant::ZERO, &mut queue).unwrap().status == TxStatus::Busy {
        tx.poll_completions(Instant::ZERO).unwrap();
        rounds += 1;
        assert!(rounds < 10);
    }
    let lengths: Vec<_> = kernel.written().iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [1052, 1052, 1052, 1051, 152]);
    assert!(rounds > 0);
}

#[test]
fn without_a_header_everything_is_done_in_software() {
    let pool = Pool::new();
    let raw = Fake::new(|_, _| Ok(()));
    let mut tx = TunTx::new(raw.clone(), caps(false), Before::default());
    send(&mut tx, [super_segment(&pool, 4, 1000, 2)]);
    // The fake takes the first ten bytes for a header; they are those of the packets here.
    let written = raw.written();
    assert_eq!(written.len(), 2);
    for (front, rest) in written {
        let bytes = [&front.write()[..], &rest].concat();
        let packet = Packet { payload: pool.copy_from(&bytes).into(), ..Packet::default() };
        assert!(checksum::verify(&packet));
    }
}

#[test]
fn a_deleted_interface_is_gone() {
    let pool = Pool::new();
    let kernel = Fake::new(|_, _| Err(Errno::BADFD));
    let mut queue = VecDeque::from([marked(&pool, 1)]);
    let error = kernel.tx().transmit(Instant::ZERO, &mut queue).unwrap_err();
    assert!(matches!(error, DeviceError::Gone(_)), "{error}");
    for errno in [Errno::BADFD, Errno::NODEV, Errno::NXIO] {
        kernel.0.lock().unwrap().to_read.push_back(Err(errno));
        let error = kernel.rx(true).receive(Instant::ZERO, &pool, &mut Vec::new(), 1).unwrap_err();
        assert!(matches!(error, DeviceError::Gone(_)), "{error}");
    }
}

/// A kernel that is short of memory, or returns unexpected errors, costs packets, not the device.
#[test]
fn errors_that_pass_are_counted_and_survived() {
    let pool = Pool::new();
    let mut out = Vec::new();
    let at = |seconds: u64| Instant::from_millis(1000 * seconds);
    for errno in [Errno::NOBUFS, Errno::NOMEM, Errno::IO, Errno::FAULT, Errno::PERM] {
        let kernel = Fake::new(move |_, _| Err(errno));
        let (mut tx, mut rx) = (kernel.tx(), kernel.rx(true));
        for round in 0..200 {
            let mut queue = VecDeque::from([marked(&pool, 1)]);
            tx.transmit(at(5), &mut queue).unwrap();
            kernel.0.lock().unwrap().to_read.push_back(Err(errno));
            assert_eq!(rx.receive(at(5), &pool, &mut out, 1).unwrap(), 0);
            assert_eq!((tx.stats().errors, rx.stats().errors), (round + 1, round + 1));
        }
        kernel.0.lock().unwrap().verdict = Box::new(|_, _| Ok(()));
        kernel.0.lock().unwrap().to_read.push_back(Ok(vec![0; 100]));
        send(&mut tx, [marked(&pool, 1)]);
        assert_eq!(rx.receive(at(100), &pool, &mut out, 1).unwrap(), 1, "{errno}");
        assert_eq!(tx.stats().packets, 1);
    }
}

/// A continuous error ends the device, unless it is known to be temporary.
#[test]
fn errors_that_go_on_end_the_device() {
    let pool = Pool::new();
    let at = |round: u64| Instant::from_millis(1000 * round);
    for (errno, ends) in [(Errno::PERM, true), (Errno::IO, false), (Errno::NOBUFS, false)] {
        let kernel = Fake::new(move |_, _| Err(errno));
        let mut tx = kernel.tx();
        let ended = (0..200).find_map(|round| {
            tx.transmit(at(round), &mut VecDeque::from([marked(&pool, 1)])).err()
        });
        assert_eq!(ended.is_some(), ends, "{errno}");
        if let Some(error) = ended {
            assert!(error.to_string().contains("writing a packet"), "{error}");
            assert_eq!(tx.stats().errors, u64::from(TROUBLE_CALLS));
        }
        let mut rx = kernel.rx(true);
        let ended = (0..200).find_map(|round| {
            kernel.0.lock().unwrap().to_read.push_back(Err(errno));
            rx.receive(at(round), &pool, &mut Vec::new(), 1).err()
        });
        assert!(ended.is_some_and(|error| error.to_string().contains("reading a packet")));
    }
}

fn arrived(header: Header, packet: &Packet) -> Result<Vec<u8>, Errno> {
    Ok([&header.write()[..], &packet.to_vec()].concat())
}

#[test]
fn what_arrives_is_described() {
    let pool = Pool::new();
    let kernel = Fake::new(|_, _| Ok(()));
    let big = super_segment(&pool, 6, 1200, 9);
    let small = marked(&pool, 1);
    // The length of the headers is only a hint, and a wrong one here.
    let whole = Header { hdr_len: 999, ..Header::for_packet(&big).unwrap() };
    kernel.0.lock().unwrap().to_read.extend([
        arrived(whole, &big),
        arrived(Header { flags: 2, ..Header::default() }, &small),
        Err(Errno::INTR),
        arrived(Header::default(), &small),
        // An offload that was not requested: fragments of UDP.
        arrived(Header { gso_type: 3, gso_size: 100, ..Header::default() }, &small),
        Ok(vec![0; 3]),
    ]);
    let mut out = Vec::new();
    let mut rx = kernel.rx(true);
    assert_eq!(rx.receive(Instant::ZERO, &pool, &mut out, 2).unwrap(), 2);
    assert_eq!(rx.receive(Instant::ZERO, &pool, &mut out, 64).unwrap(), 3);
    assert_eq!(out[0].gso, Some(Gso { size: 1200, segs: 9 }));
    assert_eq!(out[0].to_vec(), big.to_vec());
    let states: Vec<_> = out.iter().map(|packet| packet.csum).collect();
    use ChecksumState::{Partial, Unverified, Verified};
    assert_eq!(states, [Partial, Verified, Unverified, Unverified, Unverified]);
    assert!(out[1..].iter().all(|packet| packet.gso.is_none()));
    assert!(out[4].is_empty());
    assert_eq!(rx.stats().super_segments, 1);
}

#[test]
fn a_batch_is_shorter_if_it_is_of_trains_of_udp() {
    let pool = Pool::new();
    let packet = super_segment(&pool, 4, 1200, 40);
    for (gso_type, limit) in [(1, RX_BATCH_BYTES), (5, RX_BATCH_TRAIN_BYTES)] {
        let kernel = Fake::new(|_, _| Ok(()));
        let header = Header { gso_type, ..Header::for_packet(&packet).unwrap() };
        let arrives = || arrived(header, &packet);
        kernel.0.lock().unwrap().to_read.extend(std::iter::repeat_with(arrives).take(64));
        let count = kernel.rx(true).receive(Instant::ZERO, &pool, &mut Vec::new(), 64).unwrap();
        assert_eq!(count, limit.div_ceil(packet.len()));
    }
    // Without a header in front the same byte is one of the packet's own.
    let kernel = Fake::new(|_, _| Ok(()));
    let mut bytes = super_segment(&pool, 6, 1200, 40).to_vec();
    bytes[1] = 5;
    let len = bytes.len();
    kernel.0.lock().unwrap().to_read.extend(std::iter::repeat_n(Ok(bytes), 64));
    let count = kernel.rx(false).receive(Instant::ZERO, &pool, &mut Vec::new(), 64).unwrap();
    assert_eq!(count, RX_BATCH_BYTES.div_ceil(len));
}

#[test]
fn packets_share_a_chunk_while_the_longest_fits() {
    let pool = Pool::new();
    let kernel = Fake::new(|_, _| Ok(()));
    let packet = marked(&pool, 1).to_vec();
    let mut rx = kernel.rx(false);
    let before = pool.stats().in_use_bytes;
    let mut out = Vec::new();
    for _ in 0..MAX_CHUNK / packet.len() {
        kernel.0.lock().unwrap().to_read.push_back(Ok(packet.clone()));
        rx.receive(Instant::ZERO, &pool, &mut out, 64).unwrap();
        // Every read has room for the longest packet.
        assert!(rx.chunk.as_ref().is_some_and(|c| c.remaining() + packet.len() >= MAX_PACKET));
    }
    assert_eq!(pool.stats().in_use_bytes - before, 2 * MAX_CHUNK);
    assert!(out.iter().all(|p| p.to_vec() == packet));
    drop((out, rx));
    assert_eq!(pool.stats().in_use_bytes, before);
}

#[test]
fn bad_names_are_refused_with_a_reason() {
    for name in ["", "a/b", "a b", "..", "x:y", "sixteen-bytes-12"] {
        let config = TunConfig { name: name.into(), ..TunConfig::default() };
        let error = open(config).unwrap_err();
        assert!(error.to_string().starts_with("bad interface name"), "{error}");
    }
}
