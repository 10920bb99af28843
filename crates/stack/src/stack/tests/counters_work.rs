//! Counters of the stack's work apart from the protocols: turns of the loop, full devices, cookies.

use plimsoll_tcp::State;

use super::harness::*;
use crate::device::memory_link::LinkConfig;

#[test]
fn every_turn_of_the_loop_is_counted() {
    let pair = Pair::new();
    let before = pair.counter("plimsoll.Polls");
    for _ in 0..3 {
        pair.a.poll(pair.now, 64).unwrap();
    }
    let after = pair.counter("plimsoll.Polls");
    assert_eq!((after.0 - before.0, after.1 - before.1), (3, 0));
}

#[test]
fn a_device_without_room_is_counted() {
    let link = LinkConfig { queue_limit: 2, offloads: false, ..LinkConfig::default() };
    let mut pair = Pair::with(link, &[]);
    let listener = pair.listen(B4, 16);
    let (client, _server) = pair.open(B4, &listener);
    assert_eq!(pair.counter("plimsoll.TxRingFull"), (0, 0));
    // Ten segments are more than the link takes at once, and the peer does not take them out.
    client.write(pair.now, &pattern(14_000, 1)).unwrap();
    pair.a.poll(pair.now, 64).unwrap();
    let (full, _) = pair.counter("plimsoll.TxRingFull");
    assert!(full > 0);
    // They leave when there is room again.
    pair.settle();
    assert_eq!(pair.counter("IpOutDiscards"), (0, 0));
}

#[test]
fn a_cookie_that_comes_back_is_counted() {
    let mut pair = Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_syncookies", "2")]);
    let listener = pair.listen(B4, 16);
    let (client, _server) = pair.open(B4, &listener);
    assert_eq!(client.state(), State::Established);
    assert_eq!(pair.counter("TcpExtSyncookiesSent"), (0, 1));
    assert_eq!(pair.counter("TcpExtSyncookiesRecv"), (0, 1));
    assert_eq!(pair.counter("TcpExtSyncookiesFailed"), (0, 0));
}
