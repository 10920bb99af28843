//! Packets that wait for a thread that is blocked in a read.

use std::sync::Arc;
use std::task::Waker;

use plimsoll_tcp::{Duration, SetOption};

use super::harness::*;
use crate::WaitKey;
use crate::device::memory_link::LinkConfig;
use crate::limits::PREQUEUE_LEN;
use crate::{SocketError, TcpSocket};

const ON: (&str, &str) = ("net.ipv4.tcp_low_latency", "0");
/// Three quarters of the least retransmission timeout.
const WAIT: Duration = Duration::from_millis(150);
const RESET: SocketError = SocketError::Connection(plimsoll_tcp::ConnectionError::Reset);
const SHORT: Duration = Duration::from_millis(10);

fn open(link: LinkConfig, sysctls: &[(&str, &str)]) -> (Pair, Arc<TcpSocket>, Arc<TcpSocket>) {
    let mut pair = Pair::with(link, sysctls);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    pair.run(Duration::from_millis(500));
    (pair, client, server)
}

/// A thread that has found nothing and sleeps in a read.
fn blocked_reader(socket: &TcpSocket) -> Arc<CountingWaker> {
    let (count, waker) = CountingWaker::new();
    assert!(socket.poll_readable_blocked(WaitKey::new(), &waker).is_pending());
    count
}

/// Two counters of a side: packets processed by readers, and packets without room.
fn counted(stack: &crate::Stack) -> (u64, u64) {
    let value = |name| stack.counter(name).unwrap();
    (value("TcpExtTCPPrequeued"), value("TcpExtTCPPrequeueDropped"))
}

#[test]
fn data_waits_for_the_reader() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    // Nothing is acknowledged before the reader comes.
    server.set_option(pair.now, SetOption::NoDelay(true));
    let reader = blocked_reader(&client);
    server.write(pair.now, b"first").unwrap();
    pair.settle();
    server.write(pair.now, b"second").unwrap();
    pair.settle();
    assert_eq!(reader.count(), 1, "the first packet wakes it, once");
    assert_eq!(counted(&pair.a), (0, 0));
    assert!(client.poll_readable_blocked(WaitKey::new(), Waker::noop()).is_ready());
    let mut buf = [0; 100];
    assert_eq!(client.read(pair.now, &mut buf), Ok(11));
    assert_eq!(&buf[..11], b"firstsecond");
    assert_eq!(counted(&pair.a), (2, 0));
    // No thread is blocked now: the poller processes arriving packets.
    server.write(pair.now, b"third").unwrap();
    pair.run(SHORT);
    assert_eq!(client.read(pair.now, &mut buf), Ok(5));
    assert_eq!(counted(&pair.a), (2, 0));
}

#[test]
fn a_pure_ack_wakes_nobody_unless_it_is_asked_for() {
    for (knob, woken) in [("0", 0), ("1", 1)] {
        let knob = ("plimsoll.tcp_prequeue_pure_ack", knob);
        let (mut pair, client, server) = open(LinkConfig::default(), &[ON, knob]);
        let reader = blocked_reader(&client);
        client.write(pair.now, &[7; 3000]).unwrap();
        pair.settle();
        let mut buf = [0; 4000];
        assert_eq!(server.read(pair.now, &mut buf), Ok(3000));
        pair.settle();
        assert_eq!(reader.count(), woken);
        if woken > 0 {
            assert!(client.poll_readable_blocked(WaitKey::new(), Waker::noop()).is_ready());
            assert_eq!(client.read(pair.now, &mut buf), Err(SocketError::WouldBlock));
            assert!(counted(&pair.a).0 > 0);
            assert!(
                client.poll_readable_blocked(WaitKey::new(), Waker::noop()).is_pending(),
                "it sleeps again"
            );
        }
        assert_eq!(client.send_queue_len(), 0);
    }
}

#[test]
fn an_ack_behind_data_keeps_its_place() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    let reader = blocked_reader(&client);
    server.write(pair.now, b"data").unwrap();
    pair.settle();
    client.set_option(pair.now, SetOption::NoDelay(true));
    assert_eq!(client.readable_bytes(), 4, "every call works on the prequeue first");
    let mut buf = [0; 4000];
    client.read(pair.now, &mut buf).unwrap();
    let again = blocked_reader(&client);
    server.write(pair.now, b"more").unwrap();
    pair.settle();
    client.write(pair.now, &[1; 2000]).unwrap();
    pair.run(SHORT);
    assert_eq!((reader.count(), again.count()), (1, 1));
    assert_eq!(client.read(pair.now, &mut buf), Ok(4));
    assert_eq!(counted(&pair.a), (0, 0), "a write is no reader");
}

#[test]
fn a_reader_that_does_not_come_is_not_waited_for_long() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    let reader = blocked_reader(&client);
    server.write(pair.now, &[3; 1000]).unwrap();
    pair.run(WAIT / 2);
    assert_eq!(server.info(pair.now).delivered, 1, "only the SYN is acknowledged");
    pair.run(WAIT);
    assert!(server.is_drained());
    assert_eq!((reader.count(), counted(&pair.a)), (1, (0, 0)));
    assert_eq!(client.readable_bytes(), 1000);
}

#[test]
fn what_does_not_fit_is_worked_on() {
    let link = LinkConfig { offloads: false, ..LinkConfig::default() };
    let (mut pair, client, server) = open(link, &[ON, ("plimsoll.gro", "0")]);
    server.set_option(pair.now, SetOption::NoDelay(true));
    // The congestion window grows first.
    let (data, mut at, mut got) = (pattern(300_000, 1), 0, Vec::new());
    while got.len() < data.len() {
        feed(&server, pair.now, &data, &mut at);
        pair.step(pair.now + SHORT);
        drain(&client, pair.now, &mut got);
    }
    assert!(got == data);
    let reader = blocked_reader(&client);
    let full = PREQUEUE_LEN as u8;
    for at in 0..full {
        server.write(pair.now, &[at; 100]).unwrap();
        pair.settle();
    }
    assert_eq!(counted(&pair.a), (0, 0));
    assert_eq!(server.send_queue_len(), 100 * PREQUEUE_LEN);
    server.write(pair.now, &[full; 100]).unwrap();
    pair.settle();
    assert_eq!(counted(&pair.a), (0, u64::from(full) + 1));
    assert!(server.send_queue_len() < 100 * PREQUEUE_LEN, "what waited is acknowledged");
    assert_eq!(reader.count(), 1);
    let mut got = Vec::new();
    drain(&client, pair.now, &mut got);
    assert_eq!(got, (0..=full).flat_map(|at| [at; 100]).collect::<Vec<_>>());
}

#[test]
fn the_end_comes_behind_the_data() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    let reader = blocked_reader(&client);
    server.write(pair.now, b"last").unwrap();
    pair.settle();
    server.shutdown(pair.now, std::net::Shutdown::Write).unwrap();
    pair.run(SHORT);
    assert_eq!(reader.count(), 1);
    let mut buf = [0; 10];
    assert_eq!(client.read(pair.now, &mut buf), Ok(4));
    assert_eq!(client.read(pair.now, &mut buf), Ok(0));
    // The poller processes a FIN alone, which wakes the reader.
    let reader = blocked_reader(&server);
    client.shutdown(pair.now, std::net::Shutdown::Write).unwrap();
    pair.run(SHORT);
    assert_eq!(reader.count(), 1);
    assert_eq!(server.read(pair.now, &mut buf), Ok(0));
}

#[test]
fn an_error_ends_a_blocked_read() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    let reader = blocked_reader(&client);
    server.abort(pair.now);
    pair.run(SHORT);
    assert_eq!(reader.count(), 1);
    assert!(client.poll_readable_blocked(WaitKey::new(), Waker::noop()).is_ready());
    assert_eq!(client.read(pair.now, &mut [0; 10]), Err(RESET));
}

#[test]
fn giving_up_works_on_what_waits() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    let _reader = blocked_reader(&client);
    client.end_blocked_read(pair.now, WaitKey::new());
    server.write(pair.now, b"one").unwrap();
    pair.settle();
    let reader = blocked_reader_or_ready(&client);
    assert!(reader.is_none(), "the poller has worked on it");
    client.read(pair.now, &mut [0; 10]).unwrap();
    let _reader = blocked_reader(&client);
    server.write(pair.now, b"two").unwrap();
    pair.settle();
    client.end_blocked_read(pair.now, WaitKey::new());
    assert_eq!(client.read(pair.now, &mut [0; 10]), Ok(3));
    assert_eq!(counted(&pair.a), (0, 0));
}

fn blocked_reader_or_ready(socket: &TcpSocket) -> Option<Arc<CountingWaker>> {
    let (count, waker) = CountingWaker::new();
    socket.poll_readable_blocked(WaitKey::new(), &waker).is_pending().then_some(count)
}

#[test]
fn tasks_and_low_water_marks_have_no_prequeue() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    let (task, waker) = CountingWaker::new();
    assert!(client.poll_readable(&waker).is_pending());
    server.write(pair.now, b"data").unwrap();
    pair.run(SHORT);
    assert_eq!(task.count(), 1);
    client.read(pair.now, &mut [0; 10]).unwrap();
    client.set_option(pair.now, SetOption::RcvLowat(1000));
    let reader = blocked_reader(&client);
    server.write(pair.now, &[1; 500]).unwrap();
    pair.run(SHORT);
    assert_eq!(reader.count(), 0);
    server.write(pair.now, &[1; 500]).unwrap();
    pair.run(SHORT);
    assert_eq!(reader.count(), 1);
    assert_eq!(client.read(pair.now, &mut [0; 2000]), Ok(1000));
    assert_eq!(counted(&pair.a), (0, 0));
}

#[test]
fn a_close_with_data_in_the_prequeue_resets() {
    let (mut pair, client, server) = open(LinkConfig::default(), &[ON]);
    let _reader = blocked_reader(&client);
    server.write(pair.now, b"unread").unwrap();
    pair.settle();
    client.close(pair.now);
    pair.run(SHORT);
    assert_eq!(server.read(pair.now, &mut [0; 10]), Err(RESET));
}
