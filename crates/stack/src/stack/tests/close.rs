//! Ending: FIN, RST, half-close, TIME-WAIT, orphans.

use std::net::Shutdown;

use plimsoll_tcp::{ConnectionError, Duration, Options, SetOption, State};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::{ShutdownReport, SocketError};

#[test]
fn half_close_and_the_rest_still_arrives() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    client.write(pair.now, b"request").unwrap();
    client.shutdown(pair.now, Shutdown::Write).unwrap();
    pair.settle();
    let mut got = Vec::new();
    assert!(drain(&server, pair.now, &mut got));
    assert_eq!(got, b"request");
    assert_eq!(client.write(pair.now, b"more"), Err(SocketError::Closed));
    assert_eq!(server.state(), State::CloseWait);
    server.write(pair.now, b"answer").unwrap();
    server.shutdown(pair.now, Shutdown::Write).unwrap();
    pair.settle();
    let mut got = Vec::new();
    assert!(drain(&client, pair.now, &mut got), "data and end, although TIME-WAIT has begun");
    assert_eq!(got, b"answer");
    assert_eq!((pair.a.time_wait_count(), pair.b.time_wait_count()), (1, 0));
    assert_eq!(server.state(), State::Closed);
    pair.run(Duration::from_secs(61));
    assert_eq!(pair.a.time_wait_count(), 0);
    assert_eq!(pair.a.counter("TcpExtTW"), Some(1));
}

#[test]
fn dropping_sends_what_was_written() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    client.write(pair.now, b"last words").unwrap();
    drop(client);
    assert_eq!(pair.a.orphan_count(), 1);
    pair.settle();
    let mut got = Vec::new();
    assert!(drain(&server, pair.now, &mut got));
    assert_eq!(got, b"last words");
    drop(server);
    pair.settle();
    assert_eq!((pair.a.orphan_count(), pair.b.orphan_count()), (0, 0));
    assert_eq!((pair.a.time_wait_count(), pair.b.time_wait_count()), (1, 0));
}

#[test]
fn dropping_with_unread_data_resets() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    client.write(pair.now, b"unread").unwrap();
    pair.settle();
    drop(server);
    pair.settle();
    assert_eq!(pair.b.counter("TcpExtTCPAbortOnClose"), Some(1));
    let reset = SocketError::Connection(ConnectionError::Reset);
    assert_eq!(client.read(pair.now, &mut [0; 8]), Err(reset));
    assert_eq!(client.write(pair.now, b"x"), Err(SocketError::Closed), "reported once");
    assert_eq!(client.read(pair.now, &mut [0; 8]), Ok(0));
}

#[test]
fn what_we_reset_ourselves_is_not_reported_as_delivered() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (unread, sender) = pair.open(B4, &listener);
    let (hasty, _open) = pair.open(B4, &listener);
    let (proper, peer) = pair.open(B4, &listener);
    sender.write(pair.now, b"unread").unwrap();
    hasty.set_option(pair.now, SetOption::Linger2(Duration::ZERO));
    pair.settle();
    let begin = pair.a.begin_shutdown();
    drop((unread, hasty, proper, peer));
    // The ACK of a FIN may be delayed.
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.a.counter("TcpExtTCPAbortOnClose"), Some(1));
    assert_eq!(pair.a.counter("TcpExtTCPAbortOnLinger"), Some(1));
    let report = pair.a.shut_down(pair.now, begin);
    assert!(!report.is_delivered());
    assert_eq!((report.delivered, report.failed, report.cut_off), (1, 2, 0));
}

#[test]
fn a_shutdown_that_another_stack_has_begun_counts_nothing() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    drop((client, server));
    pair.settle();
    let (begin, idle) = (pair.a.begin_shutdown(), Pair::new());
    let report = idle.a.shut_down(idle.now, begin);
    assert_eq!(report, ShutdownReport::default());
}

#[test]
fn an_abort_resets() {
    let mut pair = Pair::new();
    let listener = pair.listen(B6, 16);
    let (client, server) = pair.open(B6, &listener);
    client.abort(pair.now);
    pair.settle();
    let reset = SocketError::Connection(ConnectionError::Reset);
    assert_eq!(server.read(pair.now, &mut [0; 8]), Err(reset));
    assert_eq!(pair.a.connection_memory().connections, 0);
    assert_eq!(pair.b.connection_memory().connections, 0);
}

#[test]
fn a_reset_is_noticed_after_the_peer_s_end_was_read() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    client.shutdown(pair.now, Shutdown::Write).unwrap();
    pair.settle();
    assert_eq!(server.read(pair.now, &mut [0; 8]), Ok(0));
    let (woken, waker) = CountingWaker::new();
    assert!(server.poll_readable(&waker).is_ready(), "the end can be read again");
    assert!(server.poll_ended(&waker).is_pending());
    client.abort(pair.now);
    pair.settle();
    assert_eq!(woken.count(), 1);
    assert!(server.poll_ended(&waker).is_ready());
}

#[test]
fn shut_reading_reads_as_ended() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    server.write(pair.now, b"there").unwrap();
    pair.settle();
    client.shutdown(pair.now, Shutdown::Read).unwrap();
    let mut got = Vec::new();
    assert!(drain(&client, pair.now, &mut got));
    assert_eq!(got, b"there");
    let fresh = pair.a.connect(pair.now, addr(B4, 81), None, Options::default()).unwrap();
    assert_eq!(fresh.shutdown(pair.now, Shutdown::Both), Ok(()), "the attempt ends");
    assert_eq!(fresh.shutdown(pair.now, Shutdown::Both), Err(SocketError::NotConnected));
}

#[test]
fn too_many_orphans_are_reset() {
    let mut pair = Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_max_orphans", "1")]);
    let listener = pair.listen(B4, 16);
    let pairs: Vec<_> = (0..3).map(|_| pair.open(B4, &listener)).collect();
    let (clients, servers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    drop(clients);
    assert_eq!(pair.a.orphan_count(), 1);
    assert_eq!(pair.a.counter("TcpExtTCPAbortOnMemory"), Some(2));
    pair.settle();
    let states: Vec<_> = servers.iter().map(|socket| socket.state()).collect();
    assert_eq!(states.iter().filter(|&&state| state == State::Closed).count(), 2);
}

/// Opens from port 5000, closes from the client's side, and leaves TIME-WAIT at the client (or at
/// the server, if `server_first`).
fn into_time_wait(pair: &mut Pair, listener: &crate::Listener, server_first: bool) {
    let local = Some(addr(A4, 5000));
    let client = pair.a.connect(pair.now, addr(B4, 80), local, Options::default()).unwrap();
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().unwrap();
    if server_first {
        drop(server);
        pair.settle();
        drop(client);
    } else {
        drop(client);
        pair.settle();
        drop(server);
    }
    pair.settle();
}

#[test]
fn a_connect_reuses_time_wait_after_a_second() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    into_time_wait(&mut pair, &listener, false);
    assert_eq!(pair.a.time_wait_count(), 1);
    let connect = |pair: &Pair| {
        pair.a.connect(pair.now, addr(B4, 80), Some(addr(A4, 5000)), Options::default())
    };
    assert_eq!(connect(&pair).err(), Some(SocketError::AddrInUse));
    pair.run(Duration::from_secs(2));
    let client = connect(&pair).unwrap();
    assert_eq!(pair.a.time_wait_count(), 0);
    pair.settle();
    assert_eq!(client.state(), State::Established);
    assert_eq!(pair.a.counter("TcpExtTWRecycled"), Some(1));
}

#[test]
fn a_syn_reuses_time_wait() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    into_time_wait(&mut pair, &listener, true);
    assert_eq!((pair.a.time_wait_count(), pair.b.time_wait_count()), (0, 1));
    pair.run(Duration::from_millis(10));
    let local = Some(addr(A4, 5000));
    let client = pair.a.connect(pair.now, addr(B4, 80), local, Options::default()).unwrap();
    pair.settle();
    assert_eq!(client.state(), State::Established);
    assert_eq!(pair.b.time_wait_count(), 0);
    assert_eq!(pair.b.counter("TcpExtTWRecycled"), Some(1));
}

#[test]
fn the_time_wait_table_is_bounded() {
    let mut pair = Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_max_tw_buckets", "0")]);
    let listener = pair.listen(B4, 16);
    into_time_wait(&mut pair, &listener, false);
    assert_eq!(pair.a.time_wait_count(), 0);
    assert_eq!(pair.a.counter("TcpExtTCPTimeWaitOverflow"), Some(1));
    assert_eq!(pair.a.connection_memory().connections, 0);
}

#[test]
fn reusing_time_wait_again_and_again_takes_no_more_memory() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let local = Some(addr(A4, 4000));
    for _ in 0..200 {
        let client = pair.a.connect(pair.now, addr(B4, 80), local, Options::default()).unwrap();
        pair.settle();
        let (server, _) = listener.accept(pair.now).unwrap().unwrap();
        drop(client);
        pair.settle();
        drop(server);
        pair.run(Duration::from_millis(1100));
    }
    assert_eq!(pair.a.time_wait_count(), 1);
    let places = pair.a.tables.time_wait().places();
    assert!(places <= 19, "{places} places for one entry");
    pair.run(Duration::from_secs(61));
    assert_eq!(pair.a.time_wait_count(), 0);
}
