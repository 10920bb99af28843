//! Two stacks that the test runs, each at an end of a memory link.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use plimsoll_stack::device::Device;
use plimsoll_stack::{Instant, InterfaceConfig, Stack, StackConfig};

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

pub(crate) fn stack(device: Device, addr: Ipv4Addr, sysctls: &[(&str, &str)]) -> Arc<Stack> {
    let addresses = vec![(IpAddr::V4(addr), 24)];
    Stack::new(StackConfig {
        interfaces: vec![InterfaceConfig { device, addresses, mtu: None }],
        sysctls: sysctls.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
        secret: [addr.octets()[3]; 32],
        seed: 7,
        ..StackConfig::default()
    })
    .expect("a stack")
}

pub(crate) fn settle(stacks: &[Arc<Stack>; 2], now: Instant) {
    while stacks.iter().any(|stack| stack.poll(now, 256).expect("a poll").worked) {}
}
