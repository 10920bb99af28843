//! No thread waits for a socket's owner, neither for arriving packets nor to walk through all
//! sockets. Here the owner is the test itself, so a thread that waited would wait for ever.

use std::sync::Arc;

use plimsoll_tcp::{ConnectionError, Duration, Md5Key, Options, State};
use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr};
use plimsoll_wire::{SeqNum, protocol};

use super::harness::*;
use super::icmp::{Bare, icmp4, v4};
use crate::device::memory_link::LinkConfig;
use crate::sockets::endpoint::Endpoint;
use crate::stack::work::Work;
use crate::{Md5Keys, SocketError, StackError, TcpSocket};

fn first(stack: &crate::Stack) -> Arc<Endpoint> {
    stack.tables.connections().all().remove(0)
}

/// A pair with one connection, and the place of its server side.
fn open(md5_key: Option<Md5Key>) -> (Pair, Arc<TcpSocket>, Arc<TcpSocket>, Arc<Endpoint>) {
    let mut pair = Pair::with(LinkConfig::default(), &[]);
    let listener = pair.listen(B4, 16);
    let mut keys = Md5Keys::default();
    keys.set(ip(A4), 32, md5_key.clone());
    listener.set_md5_keys(keys);
    let options = Options::default().md5_key(md5_key);
    let client = pair.a.connect(pair.now, addr(B4, 80), None, options).unwrap();
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().expect("it has opened");
    let endpoint = first(&pair.b);
    (pair, client, server, endpoint)
}

#[test]
fn signed_segments_wait_in_the_backlog() {
    let (mut pair, client, server, endpoint) = open(Md5Key::new(b"secret"));
    let owned = endpoint.own();
    client.write(pair.now, b"signed").unwrap();
    pair.settle();
    assert!(endpoint.backlog().bytes() > 0, "it waits");
    drop(owned);
    pair.settle();
    let mut got = Vec::new();
    drain(&server, pair.now, &mut got);
    assert_eq!(got, b"signed");
    assert_eq!(pair.counter("TcpExtTCPMD5Failure"), (0, 0));
}

#[test]
fn segments_without_the_signature_are_dropped_also_while_it_is_owned() {
    let (mut pair, _client, server, endpoint) = open(Md5Key::new(b"secret"));
    let key = first(&pair.a).key;
    let unsigned = TcpRepr {
        src_port: key.local_port,
        dst_port: key.remote_port,
        seq: SeqNum(1),
        ack: SeqNum(1),
        flags: TcpFlags::ACK,
        window: 1000,
        urgent: 0,
        options: TcpOptions::default(),
    };
    let owned = endpoint.own();
    let mut work = Work::begin(&pair.a, pair.now);
    work.send_segment(&key, &unsigned, None, 0);
    work.finish();
    pair.settle();
    assert_eq!(endpoint.backlog().bytes(), 0, "it does not wait");
    assert_eq!(pair.counter("TcpExtTCPMD5NotFound"), (0, 1));
    drop(owned);
    pair.settle();
    assert_eq!(server.state(), State::Established);
}

#[test]
fn segments_without_a_signature_are_taken_where_only_others_sign() {
    let (mut pair, client, server, endpoint) = open(None);
    // A key for another peer makes the stack check every segment.
    let listener = pair.b.listen(addr(B4, 81), 1, Options::default()).unwrap();
    listener.set_md5_keys(Md5Keys::default());
    let owned = endpoint.own();
    client.write(pair.now, b"plain").unwrap();
    pair.settle();
    drop(owned);
    pair.settle();
    assert_eq!(server.readable_bytes(), 5);
}

fn too_big(quoted: &[u8], next_hop_mtu: u16) -> Vec<u8> {
    let code = icmpv4::CODE_FRAGMENTATION_NEEDED;
    let error = Icmpv4Repr::Unreachable { code, next_hop_mtu, packet: quoted };
    v4(protocol::ICMP, &icmp4(&error))
}

#[test]
fn errors_of_the_path_are_heard_by_the_owner() {
    let mut bare = Bare::new(&[]);
    let client = bare.a.connect(bare.now, addr(B4, 80), None, Options::default()).unwrap();
    let sent = bare.take();
    let endpoint = first(&bare.a);
    let owned = endpoint.own();
    bare.exchange(&too_big(&sent[0], 1200));
    bare.exchange(&too_big(&sent[0], 1000));
    let code = icmpv4::CODE_PORT_UNREACHABLE;
    let refused = Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: &sent[0] };
    bare.exchange(&v4(protocol::ICMP, &icmp4(&refused)));
    assert_eq!(owned.conn.state(), State::SynSent, "nothing has happened yet");
    drop(owned);
    bare.take();
    assert_eq!(client.info(bare.now).pmtu, 1000, "the last one of each kind counts");
    assert_eq!(client.take_error(), Some(ConnectionError::Refused));
}

#[test]
fn what_an_error_quotes_must_be_in_flight_when_the_owner_hears_it() {
    let mut bare = Bare::new(&[]);
    let client = bare.a.connect(bare.now, addr(B4, 80), None, Options::default()).unwrap();
    let mut forged = bare.take().remove(0);
    forged[24] ^= 0x55;
    let endpoint = first(&bare.a);
    let owned = endpoint.own();
    bare.exchange(&too_big(&forged, 1000));
    drop(owned);
    bare.take();
    assert_eq!(client.info(bare.now).pmtu, 1500);
    assert_eq!(bare.a.counter("TcpExtOutOfWindowIcmps"), Some(1));
}

#[test]
fn a_device_that_goes_is_heard_of_by_the_owner() {
    let (pair, _client, server, endpoint) = open(None);
    let (counting, waker) = CountingWaker::new();
    assert!(server.poll_readable(&waker).is_pending());
    let owned = endpoint.own();
    let error = StackError::DeviceGone { name: "link".into(), reason: "test".into() };
    pair.b.bring_down(pair.now, error);
    assert_eq!(owned.conn.state(), State::Established);
    let mut work = Work::begin(&pair.b, pair.now);
    work.release(&endpoint, owned, false);
    work.finish();
    assert_eq!(counting.count(), 1);
    let gone = SocketError::Connection(ConnectionError::DeviceGone);
    assert_eq!(server.read(pair.now, &mut [0; 8]), Err(gone));
}

/// No thread polls any more when a read-only owner finds out that the device has gone.
#[test]
fn who_only_looks_hears_of_a_device_that_goes() {
    let (pair, _client, server, endpoint) = open(None);
    let (counting, waker) = CountingWaker::new();
    assert!(server.poll_readable(&waker).is_pending());
    pair.b.inspect(&endpoint, |_| {
        let error = StackError::DeviceGone { name: "link".into(), reason: "test".into() };
        pair.b.bring_down(pair.now, error);
    });
    assert_eq!(counting.count(), 1);
    assert_eq!(server.state(), State::Closed);
}

#[test]
fn closing_a_listener_leaves_an_owned_child_to_its_owner() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let client = pair.connect(B4);
    pair.settle();
    let endpoint = first(&pair.b);
    let owned = endpoint.own();
    listener.close(pair.now);
    assert_eq!(owned.conn.state(), State::Established);
    drop(owned);
    pair.settle();
    assert_eq!(client.state(), State::Closed, "it was reset");
    assert_eq!(pair.b.connection_memory().connections, 0);
}

#[test]
fn a_setting_reaches_an_owned_socket_through_its_owner() {
    let (mut pair, client, server, endpoint) = open(None);
    let owned = endpoint.own();
    pair.b.set_sysctl(pair.now, "net.ipv4.tcp_autocorking", "0").unwrap();
    drop(owned);
    pair.run(Duration::from_secs(1));
    server.write(pair.now, b"on").unwrap();
    pair.settle();
    assert_eq!(client.readable_bytes(), 2);
}
