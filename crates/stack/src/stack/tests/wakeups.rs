//! The wakers that an arrival fires: readers, writers and tasks.

use std::sync::Arc;
use std::task::Waker;

use plimsoll_tcp::{Duration, SetOption, WriteFlags};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::{TcpSocket, WaitKey};

const LONG: Duration = Duration::from_millis(500);

/// A reader that has found nothing and waits.
fn waiting_reader(socket: &TcpSocket) -> Arc<CountingWaker> {
    let (count, waker) = CountingWaker::new();
    assert!(socket.poll_readable(&waker).is_pending());
    count
}

fn open(sysctls: &[(&str, &str)]) -> (Pair, Arc<TcpSocket>, Arc<TcpSocket>) {
    let mut pair = Pair::with(LinkConfig::default(), sysctls);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    (pair, client, server)
}

#[test]
fn an_ack_wakes_no_reader_and_data_wakes_it_once() {
    let (mut pair, client, server) = open(&[]);
    let reader = waiting_reader(&client);
    client.write(pair.now, &[1; 5000]).unwrap();
    pair.run(LONG);
    assert_eq!(client.send_queue_len(), 0, "all is acknowledged");
    assert_eq!(reader.count(), 0);
    server.write(pair.now, &[2; 5000]).unwrap();
    pair.run(LONG);
    assert_eq!(reader.count(), 1);
}

#[test]
fn an_ack_that_frees_little_wakes_no_writer() {
    let (mut pair, client, server) = open(&[]);
    client.set_option(pair.now, SetOption::SndBuf(20_000));
    server.set_option(pair.now, SetOption::RcvBuf(8_000));
    pair.run(LONG);
    let mut sent = 0;
    while let Ok(count) = client.write(pair.now, &[0; 5_000]) {
        sent += count;
        pair.run(LONG);
    }
    let (writer, waker) = CountingWaker::new();
    // A registration without a key, below, replaces the waker without a key.
    assert!(client.wait_writable(WaitKey::new(), &waker).is_pending());
    let (mut buf, mut read, mut acks) = ([0; 2_000], 0, 0);
    while writer.count() == 0 {
        let before = client.send_queue_len();
        read += server.read(pair.now, &mut buf).unwrap();
        pair.run(LONG);
        if client.send_queue_len() < before && writer.count() == 0 {
            acks += 1;
            assert!(client.poll_writable(Waker::noop()).is_pending());
        }
    }
    assert!(acks > 0 && read < sent, "{acks} ACKs freed too little, {read} of {sent} read");
    assert!(client.poll_writable(&waker).is_ready());
}

#[test]
fn unsent_bytes_above_the_mark_keep_a_writer_asleep() {
    let (mut pair, client, server) = open(&[]);
    client.set_option(pair.now, SetOption::NotsentLowat(4_000));
    server.set_option(pair.now, SetOption::RcvBuf(8_000));
    pair.run(LONG);
    while client.write(pair.now, &[0; 5_000]).is_ok() {
        pair.run(LONG);
    }
    let (writer, waker) = CountingWaker::new();
    assert!(client.poll_writable(&waker).is_pending());
    let mut buf = [0; 2_000];
    loop {
        server.read(pair.now, &mut buf).unwrap();
        pair.run(LONG);
        assert_eq!(writer.count() > 0, client.unsent_len() * 2 < 4_000, "{}", client.unsent_len());
        if writer.count() > 0 {
            return;
        }
    }
}

#[test]
fn data_out_of_order_wakes_nobody() {
    // Which packets are overtaken follows from the seed.
    let tested = (0..32).filter(|&seed| overtaken_first_segment(seed)).count();
    assert!(tested > 0, "no seed has the first segment overtaken");
}

/// Sends three segments. Returns whether the first was overtaken by another, after checking which
/// wakers fired.
fn overtaken_first_segment(seed: u64) -> bool {
    let reorder_delay = Duration::from_millis(20);
    let link = LinkConfig {
        delay: Duration::from_millis(1),
        reorder: 0.5,
        reorder_delay,
        offloads: false,
        seed,
        ..LinkConfig::default()
    };
    let mut pair = Pair::with(link, &[]);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    pair.run(LONG);
    let reader = waiting_reader(&server);
    client.write(pair.now, &[7; 3 * 1400]).unwrap();
    pair.run(Duration::from_millis(5));
    let (_, out_of_order) = pair.counter("TcpExtTCPOFOQueue");
    if out_of_order == 0 || server.readable_bytes() > 0 {
        return false;
    }
    assert_eq!(reader.count(), 0, "seed {seed}");
    pair.run(reorder_delay);
    assert_eq!(reader.count(), 1, "seed {seed}");
    assert!(server.readable_bytes() > 0);
    true
}

#[test]
fn the_end_and_errors_wake_a_reader() {
    let (mut pair, client, server) = open(&[]);
    server.set_option(pair.now, SetOption::RcvLowat(1000));
    let reader = waiting_reader(&server);
    client.write(pair.now, b"short").unwrap();
    pair.run(LONG);
    assert_eq!(reader.count(), 0, "less than the mark");
    client.shutdown(pair.now, std::net::Shutdown::Write).unwrap();
    pair.run(LONG);
    assert_eq!(reader.count(), 1, "nothing more will come");
    let reader = waiting_reader(&client);
    server.abort(pair.now);
    pair.run(LONG);
    assert_eq!(reader.count(), 1);
}

#[test]
fn a_mark_is_met_by_pieces() {
    let (mut pair, client, server) = open(&[]);
    server.set_option(pair.now, SetOption::RcvLowat(3_000));
    let reader = waiting_reader(&server);
    for woken in [0, 0, 1] {
        client.write(pair.now, &[0; 1_000]).unwrap();
        pair.run(LONG);
        assert_eq!(reader.count(), woken);
    }
    assert!(server.poll_readable(Waker::noop()).is_ready());
}

#[test]
fn the_buffer_grows_to_fit_the_mark() {
    let rmem = ("net.ipv4.tcp_rmem", "4096 65536 4194304");
    let (mut pair, client, server) = open(&[rmem]);
    let mark = 500_000;
    server.set_option(pair.now, SetOption::RcvLowat(mark));
    assert_eq!(server.options().rcvlowat, mark);
    assert!(server.rcvbuf() >= 2 * mark as usize, "{}", server.rcvbuf());
    let reader = waiting_reader(&server);
    let (data, mut at) = (pattern(mark as usize, 3), 0);
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        feed(&client, pair.now, &data, &mut at);
        reader.count() > 0
    });
    assert!(done && server.readable_bytes() == mark as usize, "{}", server.readable_bytes());
}

#[test]
fn a_mark_set_after_the_buffer_was_filled_lets_more_arrive() {
    let rmem = ("net.ipv4.tcp_rmem", "4096 65536 4194304");
    let (mut pair, client, server) = open(&[rmem]);
    let (data, mut at) = (pattern(200_000, 5), 0);
    pair.run_until(LONG, |pair| {
        feed(&client, pair.now, &data, &mut at);
        false
    });
    assert!(server.readable_bytes() < 100_000, "the window is closed");
    server.set_option(pair.now, SetOption::RcvLowat(150_000));
    let reader = waiting_reader(&server);
    // No probe is needed: the window opens at once.
    pair.run_until(Duration::from_millis(100), |pair| {
        feed(&client, pair.now, &data, &mut at);
        false
    });
    assert_eq!(reader.count(), 1);
    assert!(server.readable_bytes() >= 150_000);
}

#[test]
fn a_mark_above_the_largest_buffer_is_capped() {
    let rmem = ("net.ipv4.tcp_rmem", "4096 65536 262144");
    let (mut pair, client, server) = open(&[rmem]);
    server.set_option(pair.now, SetOption::RcvLowat(u32::MAX));
    assert_eq!(server.options().rcvlowat, 131_072);
    let reader = waiting_reader(&server);
    let (data, mut at) = (pattern(1 << 20, 5), 0);
    let woken = pair.run_until(Duration::from_secs(60), |pair| {
        feed(&client, pair.now, &data, &mut at);
        reader.count() > 0
    });
    assert!(woken, "a reader that waits for more than can arrive is woken all the same");
}

#[test]
fn reports_of_the_error_queue_wake_both() {
    let (mut pair, client, _server) = open(&[]);
    client.set_option(pair.now, SetOption::ZeroCopy(true));
    let reader = waiting_reader(&client);
    let flags = WriteFlags { zerocopy: true, ..WriteFlags::default() };
    client.write_with(pair.now, &[&[1; 3000]], flags).unwrap();
    pair.run(LONG);
    assert_eq!(reader.count(), 1, "a task that waits for anything learns of the report");
}

#[test]
fn what_a_cookie_opened_wakes_its_reader() {
    let mut pair = Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_syncookies", "2")]);
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    assert_eq!(pair.counter("TcpExtSyncookiesRecv"), (0, 1));
    let (counting, waker) = CountingWaker::new();
    assert!(server.poll_readable(&waker).is_pending());
    client.write(pair.now, b"hello").unwrap();
    pair.settle();
    assert_eq!(counting.count(), 1);
}
