//! Types of the public API that may get more fields can be made by other crates, as this test
//! is one.

use std::time::Duration;

use plimsoll::device::channel::ChannelConfig;
use plimsoll::device::fault::FaultConfig;
use plimsoll::device::memory_link::LinkConfig;
use plimsoll::device::pcapng::CaptureConfig;
use plimsoll::device::tun::{FdConfig, TunConfig};
use plimsoll::device::{Caps, TxProgress, TxStatus};
use plimsoll::gate::GateConfig;
use plimsoll::{
    Keepalive, Options, RawTransmit, SetOption, UdpFlowConfig, UdpTransmit, UnhandledConfig,
};

#[test]
fn every_configuration_can_be_made() {
    let options = Options::default().nodelay(true).sndbuf(Some(4096)).tos(8);
    assert_eq!((options.nodelay, options.sndbuf, options.tos), (true, Some(4096), 8));
    assert_eq!(options.clone().nodelay(false).sndbuf(None).tos(0), Options::default());

    let keepalive = Keepalive::default().idle(Duration::from_secs(5)).count(3);
    assert_eq!((keepalive.interval, keepalive.count), (None, Some(3)));

    let link = LinkConfig::default().mtu(9000).rate(Some(1_000_000)).offloads(false);
    assert_eq!((link.mtu, link.rate, link.offloads), (9000, Some(1_000_000), false));
    assert_eq!(FaultConfig::default().loss(0.5).seed(7).loss.to_bits(), 0.5_f64.to_bits());
    assert_eq!(TunConfig::default().name("tun7").mtu(Some(1400)).name, "tun7");
    assert_eq!(FdConfig::with_mtu(1400).name("passed").name.as_deref(), Some("passed"));
    assert_eq!(CaptureConfig::default().snap_len(96).snap_len, 96);
    assert_eq!(ChannelConfig::with_mtu(1400).to_stack(64).to_stack, 64);
    assert!(GateConfig::default().verify_source(true).verify_source);

    assert_eq!(UdpFlowConfig::default().max_flows(9).max_flows, 9);
    let how = UdpTransmit::default().ttl(Some(3)).segment_size(Some(1200));
    assert_eq!((how.to, how.ttl, how.segment_size), (None, Some(3), Some(1200)));

    assert_eq!(RawTransmit::default().interface(Some(1)).interface, Some(1));
    assert!(UnhandledConfig::default().echo_requests(true).echo_requests);

    let caps = Caps::new("own", 1500).tso4(true);
    assert_eq!((caps.name.as_str(), caps.mtu, caps.tso4, caps.tso6), ("own", 1500, true, false));
    assert_eq!(TxProgress::busy(2).status, TxStatus::Busy);
}

/// A match on an option or an error needs an arm for those to come.
#[test]
fn kinds_to_come_have_an_arm() {
    let named = |option: &SetOption| match option {
        SetOption::NoDelay(_) => "TCP_NODELAY",
        _ => "another",
    };
    assert_eq!(named(&SetOption::NoDelay(true)), "TCP_NODELAY");
    assert_eq!(named(&SetOption::Cork(true)), "another");
}
