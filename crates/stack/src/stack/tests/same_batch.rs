//! Segments behind the end of their connection, in one receive batch with it: each of them meets
//! the listener, the TIME-WAIT entry or the closed port (RFC 9293, section 3.10.7), as it would if
//! it came alone.

use std::net::{Ipv4Addr, Shutdown};
use std::sync::Arc;

use plimsoll_buf::Slices;
use plimsoll_tcp::{ConnectionError, Ecn, Instant, Md5Key, Options, Segment, State};
use plimsoll_wire::ipv4::{self, Ipv4Repr};
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};
use plimsoll_wire::{SeqNum, checksum, protocol};

use super::harness::*;
use crate::device::channel::{Channel, ChannelConfig, channel};
use crate::device::memory_link::LinkConfig;
use crate::sockets::endpoint::{Endpoint, Owned};
use crate::stack::work::Work;
use crate::{Listener, Md5Keys, SocketError, Stack, TcpSocket, WaitKey};

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const RST: TcpFlags = TcpFlags::RST;
const RESET: SocketError = SocketError::Connection(ConnectionError::Reset);
/// Where a new connection of the peer begins: far behind the old one's end.
const LATER: u32 = 5_000_000;

fn fin_ack() -> TcpFlags {
    TcpFlags::FIN | ACK
}

fn syn_ack() -> TcpFlags {
    SYN | ACK
}

fn rst_ack() -> TcpFlags {
    RST | ACK
}

/// A stack with a listener on port 80, and a peer that sends arbitrary segments.
struct Peer {
    stack: Arc<Stack>,
    listener: Arc<Listener>,
    end: Channel,
    now: Instant,
    /// The peer's port.
    port: u16,
    /// The peer's next sequence number.
    next: u32,
    /// The peer's acknowledgement number.
    ack: SeqNum,
}

impl Peer {
    fn new(sysctls: &[(&str, &str)]) -> Peer {
        Peer::with_backlog(16, sysctls)
    }

    fn with_backlog(backlog: usize, sysctls: &[(&str, &str)]) -> Peer {
        let (device, end) = channel(ChannelConfig::default()).unwrap();
        let stack = stack(device, A4, A6, sysctls);
        let listener = stack.listen(addr(A4, 80), backlog, Options::default()).unwrap();
        let now = Instant::from_millis(1000);
        Peer { stack, listener, end, now, port: 4000, next: 100, ack: SeqNum(0) }
    }

    /// A peer whose handshake is complete, the socket, and its place.
    fn open(sysctls: &[(&str, &str)]) -> (Peer, Arc<TcpSocket>, Arc<Endpoint>) {
        let mut peer = Peer::new(sysctls);
        peer.syn(100);
        peer.complete(100);
        let server = peer.accept().expect("it has opened");
        let endpoint = peer.stack.tables.connections().all().remove(0);
        (peer, server, endpoint)
    }

    /// Takes the SYN-ACK of the SYN at `iss`, and completes the handshake.
    fn complete(&mut self, iss: u32) {
        let answers = self.answers();
        let [answer] = &answers[..] else { panic!("a SYN-ACK alone, not {answers:?}") };
        assert_eq!((answer.flags, answer.ack), (syn_ack(), SeqNum(iss + 1)));
        (self.next, self.ack) = (iss + 1, answer.seq + 1);
        self.send(ACK, &[]);
        assert_eq!(self.answers(), []);
    }

    fn accept(&self) -> Option<Arc<TcpSocket>> {
        self.listener.accept(self.now).unwrap().map(|(socket, _)| socket)
    }

    /// Puts a SYN at `iss` into the batch.
    fn syn(&mut self, iss: u32) {
        self.put(SYN, SeqNum(iss), SeqNum(0), &[]);
    }

    /// Puts the next segment into the batch.
    fn send(&mut self, flags: TcpFlags, data: &[u8]) {
        self.put(flags, SeqNum(self.next), self.ack, data);
        self.next += data.len() as u32 + u32::from(flags.contains(TcpFlags::FIN));
    }

    fn put(&mut self, flags: TcpFlags, seq: SeqNum, ack: SeqNum, data: &[u8]) {
        let (src_port, dst_port) = (self.port, 80);
        let repr =
            TcpRepr { src_port, dst_port, seq, ack, flags, window: 50_000, ..TcpRepr::default() };
        let mut segment = vec![0; repr.header_len()];
        repr.emit(&mut segment);
        segment.extend(data);
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (B4.parse().unwrap(), A4.parse().unwrap());
        let pseudo = checksum::pseudo_header_v4(src, dst, protocol::TCP, segment.len() as u32);
        checksum::fill(pseudo, &mut segment, 16);
        let header = Ipv4Repr {
            src,
            dst,
            protocol: protocol::TCP,
            ttl: 64,
            tos: 0,
            ident: 1,
            dont_frag: true,
            more_frags: false,
            frag_offset: 0,
            payload_len: segment.len(),
        };
        let mut packet = vec![0; ipv4::HEADER_LEN];
        header.emit(&mut packet);
        packet.extend(segment);
        self.end.try_send(packet).unwrap();
    }

    /// Has the stack work on the batch, in one poll, and returns the headers that it sends. No time
    /// passes.
    fn answers(&mut self) -> Vec<TcpRepr> {
        self.stack.poll(self.now, 64).unwrap();
        self.taken()
    }

    /// The segments that the stack has sent.
    fn taken(&mut self) -> Vec<TcpRepr> {
        let mut taken = Vec::new();
        while let Ok(packet) = self.end.try_recv() {
            let bytes = packet.to_vec();
            let (_, at) = Ipv4Repr::parse(&bytes).unwrap();
            taken.push(TcpRepr::parse(&bytes[at..]).unwrap().0);
        }
        taken
    }

    /// As `answers`: flags and acknowledgement of each.
    fn said(&mut self) -> Vec<(TcpFlags, u32)> {
        self.answers().iter().map(|repr| (repr.flags, repr.ack.0)).collect()
    }

    fn count(&self, name: &str) -> u64 {
        self.stack.counter(name).unwrap()
    }

    /// Releases a socket, as an application's call does. Returns flags and acknowledgement of each
    /// segment that leaves.
    fn release(&mut self, endpoint: &Arc<Endpoint>, owned: Owned<'_>) -> Vec<(TcpFlags, u32)> {
        let mut work = Work::begin(&self.stack, self.now);
        work.release(endpoint, owned, false);
        work.finish();
        self.taken().iter().map(|repr| (repr.flags, repr.ack.0)).collect()
    }
}

#[test]
fn a_syn_behind_a_reset_opens_a_connection() {
    let (mut peer, server, _) = Peer::open(&[]);
    peer.send(RST, &[]);
    peer.syn(LATER);
    peer.complete(LATER);
    assert_eq!(server.read(peer.now, &mut [0]), Err(RESET));
    assert!(peer.accept().is_some());
    assert_eq!(peer.stack.tables.connections().len(), 1);
}

#[test]
fn many_connections_in_one_batch_each_open_anew() {
    let (mut peer, _server, _) = Peer::open(&[]);
    peer.send(RST, &[]);
    for round in 0..20 {
        let iss = LATER + 10 * round;
        peer.syn(iss);
        peer.put(RST, SeqNum(iss + 1), SeqNum(0), &[]);
    }
    peer.syn(LATER * 2);
    peer.complete(LATER * 2);
    assert_eq!(peer.stack.tables.connections().len(), 1);
}

#[test]
fn a_syn_behind_the_last_ack_opens_a_connection() {
    let (mut peer, server, _) = Peer::open(&[]);
    peer.send(fin_ack(), &[]);
    assert_eq!(peer.said(), [], "its ACK goes with our FIN");
    server.close(peer.now);
    let fin = peer.taken();
    assert_eq!((fin.len(), fin[0].flags, fin[0].ack), (1, fin_ack(), SeqNum(peer.next)));
    peer.ack += 1;
    peer.send(ACK, &[]);
    peer.syn(LATER);
    peer.complete(LATER);
    assert_eq!(peer.stack.time_wait_count(), 0);
}

/// A peer whose connection the stack has shut first, in FIN-WAIT-2.
fn shut_first() -> (Peer, Arc<TcpSocket>, Arc<Endpoint>) {
    let (mut peer, server, endpoint) = Peer::open(&[]);
    server.shutdown(peer.now, Shutdown::Write).unwrap();
    assert_eq!(peer.taken().len(), 1);
    peer.ack += 1;
    peer.send(ACK, &[]);
    assert_eq!(peer.said(), []);
    assert_eq!(server.state(), State::FinWait2);
    (peer, server, endpoint)
}

#[test]
fn a_syn_behind_the_fin_into_time_wait_takes_its_place() {
    let (mut peer, server, _) = shut_first();
    peer.send(fin_ack(), &[]);
    let (end, least) = (peer.next, peer.ack + 65_537);
    peer.syn(LATER);
    let answers = peer.answers();
    let said: Vec<_> = answers.iter().map(|repr| (repr.flags, repr.ack)).collect();
    assert_eq!(said, [(ACK, SeqNum(end)), (syn_ack(), SeqNum(LATER + 1))]);
    assert!(answers[1].seq >= least, "behind all that the old connection has sent");
    assert_eq!(peer.count("TcpExtTWRecycled"), 1);
    assert_eq!(server.read(peer.now, &mut [0]), Ok(0));
}

#[test]
fn an_old_syn_behind_the_fin_into_time_wait_is_acknowledged() {
    let (mut peer, _server, _) = shut_first();
    peer.send(fin_ack(), &[]);
    let end = peer.next;
    peer.syn(end - 50);
    assert_eq!(peer.said(), [(ACK, end), (ACK, end)]);
    assert_eq!((peer.stack.time_wait_count(), peer.count("TcpExtTWRecycled")), (1, 0));
}

#[test]
fn a_syn_behind_the_ack_that_ends_closing_takes_the_place() {
    let (mut peer, server, _) = Peer::open(&[]);
    server.shutdown(peer.now, Shutdown::Write).unwrap();
    assert_eq!(peer.taken().len(), 1);
    peer.send(fin_ack(), &[]);
    let end = peer.next;
    assert_eq!(peer.said(), [(ACK, end)]);
    assert_eq!(server.state(), State::Closing);
    peer.ack += 1;
    peer.send(ACK, &[]);
    peer.syn(LATER);
    assert_eq!(peer.said(), [(syn_ack(), LATER + 1)]);
    assert_eq!(peer.count("TcpExtTWRecycled"), 1);
}

#[test]
fn the_time_wait_entry_answers_what_follows_the_fin() {
    let (mut peer, _server, _) = shut_first();
    peer.send(fin_ack(), &[]);
    let end = peer.next;
    // The FIN again, and then a reset, which ends TIME-WAIT.
    peer.put(fin_ack(), SeqNum(end - 1), peer.ack, &[]);
    peer.send(RST, &[]);
    peer.syn(end - 50);
    assert_eq!(peer.said(), [(ACK, end), (ACK, end), (syn_ack(), end - 49)]);
    assert_eq!(peer.stack.time_wait_count(), 0);
}

#[test]
fn a_syn_behind_the_reset_of_a_half_open_connection_opens_one() {
    for apart in [false, true] {
        let mut peer = Peer::new(&[]);
        peer.syn(100);
        if apart {
            assert_eq!(peer.said(), [(syn_ack(), 101)]);
        }
        peer.put(RST, SeqNum(101), SeqNum(0), &[]);
        peer.syn(LATER);
        peer.complete(LATER);
        assert!(peer.accept().is_some());
        assert_eq!(peer.count("TcpAttemptFails"), 1);
    }
}

#[test]
fn a_reset_frees_the_place_in_the_syn_queue_for_the_next_of_the_batch() {
    let mut peer = Peer::with_backlog(1, &[("net.ipv4.tcp_syncookies", "0")]);
    for port in [4000, 4001] {
        peer.port = port;
        peer.syn(100);
    }
    assert_eq!(peer.answers().len(), 2, "the SYN queue is full");
    peer.put(RST, SeqNum(101), SeqNum(0), &[]);
    peer.port = 4002;
    peer.syn(LATER);
    assert_eq!(peer.said(), [(syn_ack(), LATER + 1)]);
    assert_eq!(peer.count("TcpExtTCPReqQFullDrop"), 0);
}

#[test]
fn an_end_frees_the_connection_for_the_next_of_the_batch() {
    let (mut peer, _server, _) = Peer::open(&[("plimsoll.max_connections", "1")]);
    peer.send(RST, &[]);
    peer.port = 4001;
    peer.syn(LATER);
    assert_eq!(peer.said(), [(syn_ack(), LATER + 1)]);
}

#[test]
fn a_syn_behind_the_reset_of_what_a_cookie_opened_gets_a_cookie() {
    let mut peer = Peer::new(&[("net.ipv4.tcp_syncookies", "2")]);
    peer.syn(100);
    let cookie = peer.answers().remove(0);
    (peer.next, peer.ack) = (101, cookie.seq + 1);
    peer.send(ACK, &[]);
    peer.send(RST, &[]);
    peer.syn(LATER);
    assert_eq!(peer.said(), [(syn_ack(), LATER + 1)]);
    assert_eq!((peer.count("TcpExtSyncookiesRecv"), peer.count("TcpExtSyncookiesSent")), (1, 2));
}

#[test]
fn what_is_no_syn_behind_the_end_gets_the_reset_of_a_closed_port() {
    let (mut peer, _server, _) = Peer::open(&[]);
    peer.send(RST, &[]);
    peer.send(ACK, b"late");
    let ack = peer.ack;
    let answers = peer.answers();
    let resets: Vec<_> = answers.iter().map(|repr| (repr.flags, repr.seq)).collect();
    assert_eq!(resets, [(RST, ack)]);
    // Without a listener a SYN is refused as well.
    let (mut peer, server, _) = Peer::open(&[]);
    peer.listener.close(peer.now);
    server.close(peer.now);
    assert_eq!(peer.taken().len(), 1);
    peer.ack += 1;
    peer.send(RST, &[]);
    peer.syn(LATER);
    assert_eq!(peer.said(), [(rst_ack(), LATER + 1)]);
}

#[test]
fn a_syn_behind_merged_segments_and_the_end_opens_a_connection() {
    for ends in [RST, fin_ack()] {
        let (mut peer, server, _) = if ends == RST { Peer::open(&[]) } else { shut_first() };
        for part in 0..5 {
            peer.send(ACK, &[part; 1000]);
        }
        peer.send(ends, &[]);
        peer.syn(LATER);
        let said = peer.said();
        assert_eq!(said.last(), Some(&(syn_ack(), LATER + 1)), "{ends:?}");
        assert_eq!(said[..said.len() - 1].iter().filter(|said| said.0 != ACK).count(), 0);
        assert!(peer.count("plimsoll.GroMerged") > 0);
        let mut got = vec![0; 6000];
        assert_eq!(server.read(peer.now, &mut got), Ok(5000));
    }
}

#[test]
fn through_the_backlog() {
    // The event that ends the connection, and the segments sent when its owner releases it.
    let (mut peer, server, endpoint) = Peer::open(&[]);
    let owned = endpoint.own();
    peer.send(RST, &[]);
    peer.syn(LATER);
    assert_eq!(peer.said(), [], "it is owned");
    assert_eq!(peer.release(&endpoint, owned), [(syn_ack(), LATER + 1)]);
    assert_eq!(server.read(peer.now, &mut [0]), Err(RESET));

    let (mut peer, _server, endpoint) = shut_first();
    let owned = endpoint.own();
    peer.send(fin_ack(), &[]);
    let end = peer.next;
    peer.syn(LATER);
    assert_eq!(peer.said(), []);
    assert_eq!(peer.release(&endpoint, owned), [(ACK, end), (syn_ack(), LATER + 1)]);

    let mut peer = Peer::new(&[]);
    peer.syn(100);
    assert_eq!(peer.said(), [(syn_ack(), 101)]);
    let half_open = peer.stack.tables.connections().all().remove(0);
    let owned = half_open.own();
    peer.put(RST, SeqNum(101), SeqNum(0), &[]);
    peer.syn(LATER);
    assert_eq!(peer.said(), []);
    assert_eq!(peer.release(&half_open, owned), [(syn_ack(), LATER + 1)]);

    let (mut peer, _server, endpoint) = Peer::open(&[]);
    let owned = endpoint.own();
    peer.send(RST, &[]);
    peer.send(ACK, b"late");
    assert_eq!(peer.said(), []);
    assert_eq!(peer.release(&endpoint, owned), [(RST, 0)], "as of a closed port");
}

/// The owner releases the socket between two batches; the poller processes the waiting segments,
/// and then the batch.
#[test]
fn what_waited_in_the_backlog_goes_before_the_batch() {
    let (mut peer, _server, endpoint) = Peer::open(&[]);
    let owned = endpoint.own();
    peer.send(RST, &[]);
    peer.syn(LATER);
    peer.put(RST, SeqNum(LATER + 1), SeqNum(0), &[]);
    assert_eq!(peer.said(), []);
    // The poller finds the flags itself: it was not notified of them in time.
    peer.syn(LATER * 2);
    drop(owned);
    peer.complete_last(LATER * 2);
    assert_eq!(peer.stack.tables.connections().len(), 1);
}

impl Peer {
    /// As `complete`, where SYN-ACKs of earlier SYNs may come first.
    fn complete_last(&mut self, iss: u32) {
        let answers = self.answers();
        let last = answers.last().expect("a SYN-ACK");
        assert_eq!((last.flags, last.ack), (syn_ack(), SeqNum(iss + 1)));
        assert!(answers.iter().all(|answer| answer.flags == syn_ack()), "{answers:?}");
    }
}

/// An application resets the connection while the SYN of the next one waits in its backlog.
#[test]
fn a_syn_in_the_backlog_of_a_connection_that_its_owner_ends() {
    let (mut peer, _server, endpoint) = Peer::open(&[]);
    let mut owned = endpoint.own();
    peer.syn(LATER);
    assert_eq!(peer.said(), []);
    let mut work = Work::begin(&peer.stack, peer.now);
    let cx = work.context(&endpoint, &mut owned);
    owned.conn.abort(&cx);
    work.release(&endpoint, owned, true);
    work.finish();
    let flags: Vec<_> = peer.taken().iter().map(|repr| repr.flags).collect();
    assert_eq!(flags, [rst_ack(), syn_ack()]);
}

/// A poller has found the connection in the table. Its owner removes it before the poller leaves
/// its segment, and releases it to a read-only thread, which hands on the work.
#[test]
fn a_syn_left_with_a_thread_that_looks_at_a_connection_that_has_gone() {
    let (mut peer, _server, endpoint) = Peer::open(&[]);
    peer.send(RST, &[]);
    assert_eq!(peer.said(), []);
    let repr = TcpRepr {
        src_port: 4000,
        dst_port: 80,
        seq: SeqNum(LATER),
        flags: SYN,
        window: 1000,
        ..TcpRepr::default()
    };
    let mut left = Some(Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct });
    let (stack, now) = (peer.stack.clone(), peer.now);
    stack.inspect(&endpoint, |inner| {
        assert!(inner.is_gone());
        let mut work = Work::begin(&stack, now);
        left.take().into_iter().for_each(|segment| work.leave_segment(&endpoint, segment));
    });
    let said: Vec<_> = peer.taken().iter().map(|repr| (repr.flags, repr.ack.0)).collect();
    assert_eq!(said, [(syn_ack(), LATER + 1)]);
}

#[test]
fn through_the_prequeue() {
    let on = [("net.ipv4.tcp_low_latency", "0")];
    for reads in [true, false] {
        let (mut peer, server, _) = Peer::open(&on);
        let (reader, waker) = CountingWaker::new();
        assert!(server.poll_readable_blocked(WaitKey::new(), &waker).is_pending());
        peer.send(ACK, b"data");
        peer.send(RST, &[]);
        peer.syn(LATER);
        assert_eq!(peer.said(), [], "all of it waits for the reader");
        assert_eq!(reader.count(), 1);
        if reads {
            assert_eq!(server.read(peer.now, &mut [0; 2]), Ok(2));
        } else {
            // It does not come, so the poller processes it.
            peer.now = peer.stack.next_deadline().unwrap();
            peer.stack.poll(peer.now, 64).unwrap();
        }
        let said: Vec<_> = peer.taken().iter().map(|repr| (repr.flags, repr.ack.0)).collect();
        assert_eq!(said, [(syn_ack(), LATER + 1)], "{reads}");
        let rest = if reads { 2 } else { 4 };
        assert_eq!(server.read(peer.now, &mut [0; 8]), Ok(rest), "what came before the reset");
        assert_eq!(server.read(peer.now, &mut [0; 8]), Err(RESET));
    }
}

/// The signature of a SYN is that of the listener, and not that of the connection before it.
#[test]
fn an_unsigned_syn_behind_the_reset_of_a_signed_connection() {
    let mut pair = Pair::with(LinkConfig::default(), &[]);
    let listener = pair.listen(B4, 16);
    let key = Md5Key::new(b"secret");
    let mut keys = Md5Keys::default();
    keys.set(ip(A4), 32, key.clone());
    listener.set_md5_keys(keys);
    let from = Some(addr(A4, 4000));
    let connect = |pair: &Pair, key: Option<Md5Key>| {
        let options = Options::default().md5_key(key);
        pair.a.connect(pair.now, addr(B4, 80), from, options).unwrap()
    };
    let signed = connect(&pair, key);
    pair.settle();
    assert_eq!(signed.state(), State::Established);
    listener.set_md5_keys(Md5Keys::default());
    signed.abort(pair.now);
    drop(signed);
    let unsigned = connect(&pair, None);
    pair.settle();
    assert_eq!(unsigned.state(), State::Established);
    assert_eq!(pair.counter("TcpExtTCPMD5NotFound"), (0, 0));
}
