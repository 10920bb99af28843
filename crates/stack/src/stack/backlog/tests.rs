//! Tests of the backlog: segments that arrive while a socket is owned, and its release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_buf::{Pool, Slices};
use plimsoll_tcp::{Duration, Ecn, SetOption};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

use super::*;
use crate::device::memory_link::LinkConfig;
use crate::sockets::backlog::{Backlog, OVERHEAD, SpareQueues};
use crate::stack::tests::harness::*;
use crate::{SocketError, TcpSocket};

/// A pair with one connection, and the place of its server side.
fn open(sysctls: &[(&str, &str)]) -> (Pair, Arc<TcpSocket>, Arc<TcpSocket>, Arc<Endpoint>) {
    let mut pair = Pair::with(LinkConfig::default(), sysctls);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    client.set_option(pair.now, SetOption::NoDelay(true));
    let endpoint = pair.b.tables.connections().all().remove(0);
    (pair, client, server, endpoint)
}

/// Releases a socket of `b`.
fn release(pair: &Pair, endpoint: &Arc<Endpoint>, owned: Owned<'_>) {
    let mut work = Work::begin(&pair.b, pair.now);
    work.release(endpoint, owned, false);
    work.finish();
}

/// Writes `parts` of 3000 bytes, each in its own tick, so that they do not merge.
fn write_apart(pair: &mut Pair, client: &TcpSocket, data: &[u8]) {
    for part in data.chunks(3000) {
        assert_eq!(client.write(pair.now, part), Ok(part.len()));
        pair.settle();
        pair.now += Duration::from_millis(1);
    }
}

fn read_all(pair: &Pair, socket: &TcpSocket) -> Vec<u8> {
    let mut bytes = Vec::new();
    drain(socket, pair.now, &mut bytes);
    bytes
}

#[test]
fn what_arrives_for_an_owned_socket_waits_and_is_acknowledged_once() {
    let (mut pair, client, server, endpoint) = open(&[]);
    let data = pattern(9_000, 3);
    let owned = endpoint.own();
    let before = pair.b.counter("plimsoll.AcksSent").unwrap();
    write_apart(&mut pair, &client, &data);
    assert!(endpoint.backlog().bytes() > 9_000);
    assert_eq!(pair.b.counter("plimsoll.AcksSent"), Some(before));
    release(&pair, &endpoint, owned);
    assert_eq!(endpoint.backlog().bytes(), 0);
    assert_eq!(pair.b.counter("plimsoll.AcksSent"), Some(before + 1));
    assert!(pair.b.counter("plimsoll.AcksDeferred").unwrap() > 0);
    assert!(pair.b.counter("plimsoll.AcksDeferredBacklog").unwrap() > 0, "the place");
    assert!(read_all(&pair, &server) == data);
    pair.settle();
    assert_eq!(client.send_queue_len(), 0);
}

#[test]
fn without_deferring_every_segment_is_acknowledged() {
    let (mut pair, client, server, endpoint) =
        open(&[("net.ipv4.tcp_backlog_ack_defer", "0"), ("net.ipv4.tcp_autocorking", "0")]);
    let data = pattern(9_000, 3);
    let owned = endpoint.own();
    let before = pair.b.counter("plimsoll.AcksSent").unwrap();
    write_apart(&mut pair, &client, &data);
    release(&pair, &endpoint, owned);
    assert_eq!(pair.b.counter("plimsoll.AcksSent"), Some(before + 3));
    assert!(read_all(&pair, &server) == data);
}

#[test]
fn segments_that_continue_each_other_become_one() {
    let (mut pair, client, server, endpoint) = open(&[("net.ipv4.tcp_autocorking", "0")]);
    let owned = endpoint.own();
    for _ in 0..5 {
        client.write(pair.now, &[7; 100]).unwrap();
        pair.settle();
    }
    assert_eq!(pair.b.counter("TcpExtTCPBacklogCoalesce"), Some(4));
    assert_eq!(endpoint.backlog().bytes(), 500 + OVERHEAD);
    let in_segs = owned.conn.info(&pair.b.sysctl().snapshot().tcp).segs_in;
    let mut work = Work::begin(&pair.b, pair.now);
    work.release(&endpoint, owned, false);
    work.finish();
    assert_eq!(read_all(&pair, &server), [7; 500]);
    assert_eq!(server.info(pair.now).segs_in, in_segs + 5, "all count");
}

#[test]
fn who_only_looks_leaves_it_to_the_poller() {
    let (mut pair, client, server, endpoint) = open(&[]);
    let owned = endpoint.own();
    client.write(pair.now, b"for you").unwrap();
    pair.settle();
    drop(owned);
    assert_eq!(server.readable_bytes(), 0);
    pair.settle();
    assert_eq!(read_all(&pair, &server), b"for you");
}

#[test]
fn a_timer_that_fires_meanwhile_is_made_up_for() {
    let (mut pair, client, server, endpoint) = open(&[]);
    server.set_option(pair.now, SetOption::QuickAck(false));
    client.write(pair.now, b"no answer").unwrap();
    pair.settle();
    let delayed = || pair.b.counter("TcpExtDelayedACKs").unwrap();
    let before = delayed();
    let owned = endpoint.own();
    let later = pair.now + Duration::from_secs(1);
    pair.b.poll(later, 256).unwrap();
    assert_eq!(delayed(), before, "its owner is at work");
    let mut work = Work::begin(&pair.b, later);
    work.release(&endpoint, owned, false);
    work.finish();
    assert_eq!(delayed(), before + 1);
}

#[test]
fn segments_of_a_connection_that_has_ended_are_refused() {
    let (mut pair, client, _server, endpoint) = open(&[]);
    let mut owned = endpoint.own();
    client.write(pair.now, b"too late").unwrap();
    pair.settle();
    let mut work = Work::begin(&pair.b, pair.now);
    let cx = work.context(&endpoint, &mut owned);
    owned.conn.abort(&cx);
    work.settle(&endpoint, &mut owned);
    let resets = pair.b.counter("TcpOutRsts").unwrap();
    work.release(&endpoint, owned, false);
    work.finish();
    assert_eq!(pair.b.counter("TcpOutRsts"), Some(resets + 1), "beside that of the abort");
    pair.settle();
    assert_eq!(client.read(pair.now, &mut [0; 8]), Err(reset()));
}

fn reset() -> SocketError {
    SocketError::Connection(plimsoll_tcp::ConnectionError::Reset)
}

#[test]
fn the_bound_is_that_of_the_buffers() {
    let backlog = Backlog::default();
    let spare = SpareQueues::default();
    let segment = |seq: u32| {
        let mut payload = Slices::new();
        let pool = Pool::new();
        payload.push(pool.copy_from(&[0; 32_768])).unwrap();
        let repr = TcpRepr { seq: SeqNum(seq), flags: TcpFlags::ACK, ..TcpRepr::default() };
        Segment { repr, payload, segs: 1, ecn: Ecn::NotEct }
    };
    assert_eq!(backlog.push(&spare, segment(0)), Pushed::Queued);
    assert_eq!(backlog.push(&spare, segment(1_000_000)), Pushed::Dropped, "64 KiB in all");
    backlog.set_limit(Rule::Twice.limit((0, 200_000), 0));
    assert_eq!(backlog.push(&spare, segment(1_000_000)), Pushed::Queued);
    let queue = backlog.take().unwrap();
    assert_eq!(queue.len(), 2);
    assert!(backlog.bytes() > 65_536, "what was taken counts");
    queue.iter().for_each(|segment| backlog.done(counted(segment)));
    assert_eq!(backlog.bytes(), 0);
}

#[test]
fn by_the_older_rule_unread_data_leaves_less_room() {
    let beside = (20_000 + 65_536) / 100 * 85;
    assert_eq!(Rule::Once.limit((200_000, 40_000), 0), 100_000 + beside);
    assert_eq!(Rule::Once.limit((200_000, 40_000), 90_000), 10_000 + beside);
    assert_eq!(Rule::Once.limit((200_000, 40_000), 900_000), 0);
    assert_eq!(Rule::Twice.limit((200_000, 40_000), 90_000), 400_000 + 20_000 + 65_536);
}

/// The segments that the backlog drops by a rule. The socket stays owned while data arrives, is
/// processed, read and acknowledged, again and again.
fn dropped(rule: &str) -> u64 {
    let (mut pair, client, _server, endpoint) = open(&[("plimsoll.tcp_backlog_limit", rule)]);
    let mut owned = endpoint.own();
    let mut read = vec![0; 9_000];
    let drops = |pair: &Pair| pair.b.counter("TcpExtTCPBacklogDrop").unwrap();
    for _ in 0..30 {
        write_apart(&mut pair, &client, &pattern(9_000, 3));
        let mut work = Work::begin(&pair.b, pair.now);
        work.run_left(&endpoint, &mut owned);
        let cx = work.context(&endpoint, &mut owned);
        let _ = owned.conn.read(&cx, &mut read);
        work.settle(&endpoint, &mut owned);
        work.finish();
        pair.settle();
        if drops(&pair) > 0 {
            break;
        }
    }
    let found = drops(&pair);
    // A change of the rule leaves nothing behind.
    pair.b.set_sysctl(pair.now, "plimsoll.tcp_backlog_limit", "2").unwrap();
    release(&pair, &endpoint, owned);
    assert_eq!(endpoint.backlog().bytes(), 0);
    found
}

#[test]
fn by_the_older_rule_a_backlog_drops_what_comes_while_it_is_worked_off() {
    assert_eq!(dropped("2"), 0);
    assert!(dropped("1") > 0);
}

/// A reader with a large buffer and a poller are at the same socket all the time.
#[test]
fn threads_that_meet_at_a_socket_lose_nothing() {
    const TOTAL: usize = 16 << 20;
    let (pair, client, server, _) = open(&[]);
    let data = pattern(1 << 16, 9);
    let over = AtomicBool::new(false);
    let clock = std::time::Instant::now();
    let base = pair.now;
    let now = || base + Duration::from_nanos(clock.elapsed().as_nanos() as u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                pair.b.poll(now(), 256).unwrap();
            }
        });
        scope.spawn(|| {
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                let at = sent % data.len();
                let most = (data.len() - at).min(TOTAL - sent);
                match client.write(now(), &data[at..at + most]) {
                    Ok(count) => sent += count,
                    Err(error) => assert_eq!(error, SocketError::WouldBlock),
                }
                pair.a.poll(now(), 256).unwrap();
            }
        });
        let mut buf = vec![0; 1 << 20];
        let mut got = 0;
        while got < TOTAL {
            match server.read(now(), &mut buf) {
                Ok(count) => {
                    for (index, &byte) in buf[..count].iter().enumerate() {
                        assert_eq!(byte, data[(got + index) % data.len()], "at {}", got + index);
                    }
                    got += count;
                }
                Err(error) => {
                    assert_eq!(error, SocketError::WouldBlock);
                    std::thread::yield_now();
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(pair.b.counter("TcpExtTCPBacklogDrop"), Some(0));
}
