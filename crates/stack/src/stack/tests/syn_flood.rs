//! Connections go on, and open, while SYNs arrive that nobody stands behind.

use std::net::IpAddr;

use plimsoll_tcp::{Duration, State};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::flow::FlowKey;
use crate::limits::{COOKIE_BURST, COOKIES_PER_BATCH, RX_BATCH};
use crate::stack::work::Work;

/// Sends `count` SYNs from `a` to port 80 of `b`, from sources numbered from `first` on.
fn flood(pair: &Pair, first: u32, count: u32) {
    let mut work = Work::begin(&pair.a, pair.now);
    for number in first..first + count {
        let (host, port) = (3 + number % 250, 1024 + number / 250);
        let key = FlowKey {
            local: IpAddr::from([192, 0, 2, host as u8]),
            remote: ip(B4),
            local_port: port as u16,
            remote_port: 80,
        };
        let syn = TcpRepr {
            src_port: key.local_port,
            dst_port: 80,
            seq: SeqNum(number),
            ack: SeqNum(0),
            flags: TcpFlags::SYN,
            window: 1000,
            urgent: 0,
            options: TcpOptions::default(),
        };
        work.send_segment(&key, &syn, None, 0);
    }
    work.finish();
}

fn count(pair: &Pair, name: &str) -> u64 {
    pair.counter(name).1
}

#[test]
fn a_segment_behind_ten_thousand_syns_is_served_by_the_same_poll() {
    const SYNS: u32 = 10_000;
    let mut pair = Pair::with(LinkConfig { queue_limit: 20_000, ..LinkConfig::default() }, &[]);
    let listener = pair.listen(B4, 4);
    let (client, server) = pair.open(B4, &listener);
    flood(&pair, 0, SYNS);
    client.write(pair.now, b"still here").unwrap();
    // A poll moves a part of what is queued into the device.
    while pair.a.poll(pair.now, 64).unwrap().worked {}
    pair.b.poll(pair.now, 2 * SYNS as usize).unwrap();
    assert_eq!(server.read(pair.now, &mut [0; 20]), Ok(10));
    let (cookies, shed) = (count(&pair, "TcpExtSyncookiesSent"), count(&pair, "plimsoll.SynShed"));
    let remembered = 5;
    assert_eq!(cookies + shed + remembered, u64::from(SYNS));
    let most = COOKIE_BURST + SYNS.div_ceil(RX_BATCH as u32) * COOKIES_PER_BATCH;
    assert!(cookies >= u64::from(COOKIE_BURST) && cookies <= u64::from(most), "{cookies}");
    assert_eq!(count(&pair, "TcpExtListenDrops"), 0);
    // What is not behind a full device is answered at once.
    let honest = pair.connect(B4);
    pair.run(Duration::from_millis(10));
    assert_eq!(honest.state(), State::Established);
}

#[test]
fn a_poller_that_keeps_up_answers_every_syn() {
    let mut pair = Pair::new();
    let _listener = pair.listen(B4, 4);
    for round in 0..100 {
        flood(&pair, 50 * round, 50);
        pair.settle();
    }
    let answered = count(&pair, "TcpExtSyncookiesSent") + 5;
    assert_eq!((answered, count(&pair, "plimsoll.SynShed")), (5000, 0));
}

/// Queue 0 polls loopback as well, which is empty: that says nothing about the device.
#[test]
fn polls_with_a_small_budget_shed_what_they_cannot_keep_up_with() {
    const SYNS: u32 = 10_000;
    const BUDGET: usize = 256;
    let mut pair = Pair::with(LinkConfig { queue_limit: 20_000, ..LinkConfig::default() }, &[]);
    let listener = pair.listen(B4, 4);
    let (client, server) = pair.open(B4, &listener);
    let arrive = |pair: &Pair| while pair.a.poll(pair.now, 64).unwrap().worked {};
    let round = 500;
    for first in (0..SYNS).step_by(round) {
        flood(&pair, first, round as u32);
        if first == SYNS / 2 {
            client.write(pair.now, b"still here").unwrap();
        }
        arrive(&pair);
        pair.b.poll(pair.now, BUDGET).unwrap();
    }
    for _ in 0..SYNS as usize / BUDGET {
        pair.b.poll(pair.now, BUDGET).unwrap();
    }
    assert_eq!(server.read(pair.now, &mut [0; 20]), Ok(10));
    let (cookies, shed) = (count(&pair, "TcpExtSyncookiesSent"), count(&pair, "plimsoll.SynShed"));
    assert_eq!(cookies + shed + 5, u64::from(SYNS));
    let most = 2 * COOKIE_BURST + SYNS.div_ceil(RX_BATCH as u32) * COOKIES_PER_BATCH;
    assert!(shed > 0 && cookies <= u64::from(most), "{cookies} answered, {shed} shed");
}
