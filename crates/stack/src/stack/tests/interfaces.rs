//! Interfaces that come and go while a stack runs.

use plimsoll_tcp::{Duration, Options};

use super::harness::*;
use crate::device::channel::{ChannelConfig, TryRecvError, channel};
use crate::device::memory_link::{self, LinkConfig};
use crate::limits::MAX_INTERFACES;
use crate::{InterfaceConfig, SocketError, StackError};

const NEAR: &str = "198.51.100.1";
const FAR: &str = "198.51.100.2";

fn on(device: crate::device::Device, address: &str) -> InterfaceConfig {
    InterfaceConfig { device, addresses: vec![(ip(address), 24)], mtu: None }
}

/// Joins the two by another link; the place of its interface in both.
fn join(pair: &Pair) -> (usize, usize) {
    let (left, right) = memory_link::pair(LinkConfig::default());
    let near = pair.a.add_interface(on(left, NEAR)).unwrap();
    (near, pair.b.add_interface(on(right, FAR)).unwrap())
}

#[test]
fn one_that_is_removed_takes_its_own_along_and_nothing_else() {
    let mut pair = Pair::new();
    let stays = pair.listen(B4, 8);
    let (kept, peer) = pair.open(B4, &stays);
    let unreachable = pair.a.connect(pair.now, addr(FAR, 80), None, Options::default());
    assert_eq!(unreachable.map(|_| ()), Ok(()), "by the default route");
    for round in 0..3 {
        let places = join(&pair);
        assert_eq!(places, (2, 2), "round {round}: behind loopback, and there again");
        assert_eq!(pair.b.interfaces()[2].addresses, [(ip(FAR), 24)]);
        let listener = pair.listen(FAR, 8);
        let (client, server) = pair.open(FAR, &listener);
        assert_eq!(client.local_addr().ip(), ip(NEAR), "by the new link");
        server.write(pair.now, &pattern(50_000, 3)).unwrap();
        pair.b.remove_interface(pair.now, 2).unwrap();
        pair.settle();
        let gone = SocketError::Connection(plimsoll_tcp::ConnectionError::DeviceGone);
        assert_eq!(server.write(pair.now, b"more").err(), Some(gone));
        assert_eq!(listener.accept(pair.now).err(), Some(SocketError::NetworkDown));
        let status = &pair.b.interfaces()[2];
        assert!(matches!(status.error, Some(StackError::Removed { .. })), "{status:?}");
        assert!(status.addresses.is_empty() && !pair.b.addresses().contains(&ip(FAR)));
        let bound = pair.b.listen(addr(FAR, 81), 8, Options::default());
        assert_eq!(bound.err(), Some(SocketError::AddrNotAvailable));
        let again = pair.b.remove_interface(pair.now, 2).unwrap_err();
        assert!(again.to_string().starts_with("interfaces[2]: "), "{again}");
        pair.a.remove_interface(pair.now, 2).unwrap();
        kept.write(pair.now, b"ahoy").unwrap();
    }
    pair.run(Duration::from_secs(10));
    let mut heard = Vec::new();
    drain(&peer, pair.now, &mut heard);
    assert_eq!(heard, b"ahoyahoyahoy", "what goes by the other link goes on");
}

#[test]
fn its_device_is_dropped_and_the_last_may_go() {
    let (device, mut end) = channel(ChannelConfig::default()).unwrap();
    let alone = stack(device, A4, A6, &[]);
    let now = plimsoll_tcp::Instant::from_millis(1);
    let socket = alone.connect(now, addr(B4, 80), None, Options::default()).unwrap();
    alone.remove_interface(now, 0).unwrap();
    alone.poll(now, 64).expect("the stack goes on");
    while end.try_recv().is_ok() {}
    assert!(matches!(end.try_recv(), Err(TryRecvError::Closed(_))), "the channel has ended");
    assert!(matches!(connected(&socket), std::task::Poll::Ready(Err(_))));
    let cut_off = alone.connect(now, addr(B4, 80), None, Options::default());
    assert_eq!(cut_off.err(), Some(SocketError::NetworkUnreachable));
    let (device, mut end) = channel(ChannelConfig::default()).unwrap();
    assert_eq!(alone.add_interface(on(device, NEAR)), Ok(0));
    let _socket = alone.connect(now, addr(FAR, 80), None, Options::default()).unwrap();
    alone.poll(now, 64).unwrap();
    assert!(end.try_recv().is_ok(), "a SYN by the new device");
}

#[test]
fn what_cannot_be_added_changes_nothing() {
    let pair = Pair::new();
    let device = |mtu| channel(ChannelConfig::with_mtu(mtu)).unwrap().0;
    let refused = |config| pair.a.add_interface(config).unwrap_err().to_string();
    let before = pair.a.interfaces();
    assert!(refused(on(device(1500), A4)).contains("is an address of interface 0 already"));
    assert!(refused(on(device(1500), "224.0.0.1")).starts_with("interfaces[2].addresses: "));
    let large = InterfaceConfig { mtu: Some(9000), ..on(device(1500), NEAR) };
    assert!(refused(large).contains("9000 is not between 576 and the device's 1500"));
    assert_eq!(pair.a.interfaces(), before);
    for index in [1, 2, 99] {
        let error = pair.a.remove_interface(pair.now, index).unwrap_err().to_string();
        assert!(error.starts_with(&format!("interfaces[{index}]: ")), "{error}");
    }
    for index in 2..MAX_INTERFACES {
        let own = format!("10.0.{index}.1");
        assert_eq!(pair.a.add_interface(on(device(1500), &own)), Ok(index));
    }
    assert!(refused(on(device(1500), NEAR)).starts_with("interfaces: at most 15"));
    pair.a.remove_interface(pair.now, 7).unwrap();
    assert_eq!(pair.a.add_interface(on(device(1500), NEAR)), Ok(7), "there is a place again");
    assert_eq!(pair.a.interfaces()[7].addresses, [(ip(NEAR), 24)]);
}
