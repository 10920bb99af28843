//! Connections continue, and open, during a flood of SYNs with forged sources.

use std::net::IpAddr;

use plimsoll_tcp::{Duration, Options, State};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{TcpFlags, TcpOptions, TcpRepr};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::flow::FlowKey;
use crate::limits::{
    COOKIE_BURST, COOKIES_PER_BATCH, PROVEN_FOR, PROVEN_SYN_BURST, PROVEN_SYNS_PER_BATCH, RX_BATCH,
};
use crate::stack::work::Work;

/// Sends `count` SYNs from `a` to port 80 of `b`, from sources numbered from `first` on.
pub(super) fn flood(pair: &Pair, first: u32, count: u32) {
    let strangers = (first..first + count).map(|number| {
        (IpAddr::from([192, 0, 2, 3 + (number % 250) as u8]), (1024 + number / 250) as u16)
    });
    send_syns(pair, strangers);
}

/// Sends a SYN from `a` to port 80 of `b` from each of these sources.
fn send_syns(pair: &Pair, sources: impl Iterator<Item = (IpAddr, u16)>) {
    send(pair, TcpFlags::SYN, sources);
}

/// Sends a segment from `a` to port 80 of `b` from each of these sources.
fn send(pair: &Pair, flags: TcpFlags, sources: impl Iterator<Item = (IpAddr, u16)>) {
    let mut work = Work::begin(&pair.a, pair.now);
    for (local, local_port) in sources {
        let key = FlowKey { local, remote: ip(B4), local_port, remote_port: 80 };
        let segment = TcpRepr {
            src_port: key.local_port,
            dst_port: 80,
            seq: SeqNum(u32::from(local_port)),
            ack: SeqNum(0),
            flags,
            window: 1000,
            urgent: 0,
            options: TcpOptions::default(),
        };
        work.send_segment(&key, &segment, None, 0);
    }
    work.finish();
}

/// A pair whose link takes a whole flood.
fn wide_pair() -> Pair {
    Pair::with(LinkConfig { queue_limit: 20_000, ..LinkConfig::default() }, &[])
}

/// Moves all that `a` has queued into the link.
fn arrive(pair: &Pair) {
    // A poll moves a part of the queued packets into the device.
    while pair.a.poll(pair.now, 64).unwrap().worked {}
}

/// Whether a connect from this address of `a` is answered behind a flood that the same poll finds.
fn connects_behind_a_flood(pair: &mut Pair, to: &str) -> bool {
    flood(pair, 0, SYNS);
    let honest = pair.connect(to);
    arrive(pair);
    pair.b.poll(pair.now, 2 * SYNS as usize).unwrap();
    pair.a.poll(pair.now, 2 * SYNS as usize).unwrap();
    honest.state() == State::Established
}

/// Most cookies that the share lets pass of `syns` that one poll finds.
fn most_cookies(syns: u32) -> u64 {
    u64::from(COOKIE_BURST + syns.div_ceil(RX_BATCH as u32) * COOKIES_PER_BATCH)
}

/// As [`most_cookies`], of the share of proven peers.
fn most_spared(syns: u32) -> u64 {
    u64::from(PROVEN_SYN_BURST + syns.div_ceil(RX_BATCH as u32) * PROVEN_SYNS_PER_BATCH)
}

/// A flood that no share lets pass.
const SYNS: u32 = 10_000;

fn count(pair: &Pair, name: &str) -> u64 {
    pair.counter(name).1
}

#[test]
fn a_segment_behind_ten_thousand_syns_is_served_by_the_same_poll() {
    let mut pair = wide_pair();
    let listener = pair.listen(B4, 4);
    let (client, server) = pair.open(B4, &listener);
    flood(&pair, 0, SYNS);
    client.write(pair.now, b"still here").unwrap();
    arrive(&pair);
    pair.b.poll(pair.now, 2 * SYNS as usize).unwrap();
    assert_eq!(server.read(pair.now, &mut [0; 20]), Ok(10));
    let (cookies, shed) = (count(&pair, "TcpExtSyncookiesSent"), count(&pair, "plimsoll.SynShed"));
    let remembered = 5;
    assert_eq!(cookies + shed + remembered, u64::from(SYNS));
    assert!(cookies >= u64::from(COOKIE_BURST) && cookies <= most_cookies(SYNS), "{cookies}");
    assert_eq!(count(&pair, "TcpExtListenDrops"), 0);
    // A SYN that is not behind a full device is answered at once.
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
    const BUDGET: usize = 256;
    let mut pair = wide_pair();
    let listener = pair.listen(B4, 4);
    let (client, server) = pair.open(B4, &listener);
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
    let most = u64::from(COOKIE_BURST) + most_cookies(SYNS);
    assert!(shed > 0 && cookies <= most, "{cookies} answered, {shed} shed");
}

/// The peer's IPv6 address has not shown itself.
#[test]
fn a_proven_peer_connects_behind_a_flood_and_a_stranger_does_not() {
    for cookies in ["1", "2"] {
        let mut pair = wide_pair();
        pair.b.sysctl().set("net.ipv4.tcp_syncookies", cookies).unwrap();
        let (listener, _other) = (pair.listen(B4, 4), pair.listen(B6, 4));
        let (client, server) = pair.open(B4, &listener);
        drop((client, server));
        pair.settle();
        assert!(!connects_behind_a_flood(&mut pair, B6));
        assert_eq!(count(&pair, "plimsoll.SynSpared"), 0);
        assert!(connects_behind_a_flood(&mut pair, B4));
        assert_eq!(count(&pair, "plimsoll.SynSpared"), 1);
    }
}

/// The other way round: a peer that we have connected to.
#[test]
fn a_peer_is_proven_by_either_side() {
    let mut pair = wide_pair();
    let back = pair.a.listen(addr(A4, 80), 4, Options::default()).unwrap();
    let _listener = pair.listen(B4, 4);
    let _socket = pair.b.connect(pair.now, addr(A4, 80), None, Options::default()).unwrap();
    pair.settle();
    assert!(back.accept(pair.now).unwrap().is_some());
    assert!(connects_behind_a_flood(&mut pair, B4));
}

#[test]
fn a_half_open_connection_proves_nobody() {
    let mut pair = wide_pair();
    let _listener = pair.listen(B4, 4);
    let stranger = (ip("192.0.2.99"), 7);
    send_syns(&pair, std::iter::once(stranger));
    pair.settle();
    flood(&pair, 0, SYNS / 2);
    // For a connection of which only the SYN has arrived: it guesses the ACK, and not rightly.
    send(&pair, TcpFlags::ACK, (0..64).map(|_| stranger));
    flood(&pair, SYNS / 2, SYNS / 2);
    send_syns(&pair, std::iter::once((stranger.0, 8)));
    arrive(&pair);
    pair.b.poll(pair.now, 3 * SYNS as usize).unwrap();
    assert_eq!(count(&pair, "plimsoll.SynSpared"), 0);
}

#[test]
fn a_proven_peer_is_forgotten_unless_its_connection_goes_on() {
    for goes_on in [false, true] {
        let mut pair = wide_pair();
        let listener = pair.listen(B4, 4);
        let (client, _server) = pair.open(B4, &listener);
        pair.run(PROVEN_FOR);
        flood(&pair, 0, SYNS);
        if goes_on {
            client.write(pair.now, b"still here").unwrap();
        }
        arrive(&pair);
        pair.settle();
        assert_eq!(connects_behind_a_flood(&mut pair, B4), goes_on);
    }
}

#[test]
fn a_flood_in_the_name_of_a_proven_peer_is_bounded_and_leaves_room_for_others() {
    let mut pair = wide_pair();
    let (listener, other) = (pair.listen(B4, 4), pair.listen(B6, 4));
    let _connections = (pair.open(B4, &listener), pair.open(B6, &other));
    send_syns(&pair, (0..SYNS).map(|number| (ip(A4), 1024 + number as u16)));
    let honest = pair.connect(B6);
    arrive(&pair);
    pair.b.poll(pair.now, 2 * SYNS as usize).unwrap();
    let [cookies, shed, spared] =
        ["TcpExtSyncookiesSent", "plimsoll.SynShed", "plimsoll.SynSpared"]
            .map(|name| count(&pair, name));
    // The other listener has room.
    let remembered = 5 + 1;
    assert_eq!(cookies + shed + remembered, u64::from(SYNS) + 1);
    assert!(spared > 0 && spared <= most_spared(SYNS), "{spared} spared");
    assert!(cookies <= most_cookies(SYNS) + spared, "{cookies} answered, {spared} spared");
    pair.a.poll(pair.now, 2 * SYNS as usize).unwrap();
    assert_eq!(honest.state(), State::Established);
}

#[test]
fn a_device_that_another_thread_has_does_not_count_as_empty() {
    let pair = wide_pair();
    let _listener = pair.listen(B4, 4);
    flood(&pair, 0, SYNS);
    arrive(&pair);
    // The share is spent, and more waits.
    for _ in 0..SYNS as usize / RX_BATCH / 2 {
        pair.b.poll(pair.now, RX_BATCH).unwrap();
    }
    let interface = pair.b.interfaces.get(0);
    let held = interface.rx().hold(pair.b.kick_of(interface));
    assert!(held.is_some());
    pair.b.poll(pair.now, RX_BATCH).unwrap();
    drop(held);
    pair.b.poll(pair.now, 2 * SYNS as usize).unwrap();
    let (cookies, shed) = (count(&pair, "TcpExtSyncookiesSent"), count(&pair, "plimsoll.SynShed"));
    assert_eq!(cookies + shed + 5, u64::from(SYNS));
    assert!(cookies <= most_cookies(SYNS), "{cookies}");
}
