//! Configuration that contradicts itself, or lets nothing through, is refused with the name of the
//! field.
use std::io;

use plimsoll::device::channel::ChannelConfig;
use plimsoll::device::fault::FaultConfig;
use plimsoll::device::{self, Device, memory_link, tun};
use plimsoll::gate::{GateConfig, GatedListener};
use plimsoll::{Budget, ListenConfig, ListenOn, Options, Stack, StackBuilder, TcpListener};

fn device() -> Device {
    memory_link::pair(Default::default()).0
}

fn one() -> StackBuilder {
    Stack::builder().device(device()).address("192.0.2.1/24")
}

/// Each is refused, and the error begins with these words.
#[test]
fn of_a_stack() {
    let none = Budget::default();
    let loss = FaultConfig::default().loss(1.5);
    let corrupt = FaultConfig::default().corrupt(-0.1);
    let many = (0..16).fold(one(), |builder, _| builder.device(device()));
    let table: Vec<(StackBuilder, &str)> = vec![
        (Stack::builder(), "device: "),
        (Stack::builder().address("192.0.2.1/24"), "address: set it after the device"),
        (Stack::builder().mtu(1500), "mtu: set it after the device"),
        (Stack::builder().qdisc("fq"), "qdisc: set it after the device"),
        (Stack::builder().pcap("/tmp/x"), "pcap: set it after the device"),
        (Stack::builder().fault(FaultConfig::default()), "fault: set it after the device"),
        (Stack::builder().quickack(true), "quickack: set it after the device"),
        (Stack::builder().more_queues([device()]), "more_queues: set it after the device"),
        (one().loopback_only(), "loopback_only: "),
        (Stack::builder().loopback_only().any_address(), "any_address: "),
        (one().address("192.0.2.7"), "address: '192.0.2.7'"),
        (one().address("192.0.2.7/33"), "address: '192.0.2.7/33'"),
        (one().address("2001:db8::1/129"), "address: '2001:db8::1/129'"),
        (one().address("0.0.0.0/0"), "interfaces[0].addresses: "),
        (one().address("224.0.0.1/24"), "interfaces[0].addresses: "),
        (one().address("192.0.2.1/24"), "interfaces[0].addresses: "),
        (one().device(device()).address("192.0.2.1/24"), "interfaces[1].addresses: "),
        (one().mtu(575), "interfaces[0].mtu: 575"),
        (one().mtu(1501), "interfaces[0].mtu: 1501"),
        (one().qdisc("pfifo limit many"), "qdisc: "),
        (one().qdisc("codel"), "qdisc: "),
        (one().pcap("/no/such/folder/x.pcapng"), "pcap: "),
        (one().fault(loss), "fault.loss: 1.5"),
        (one().fault(corrupt), "fault.corrupt: -0.1"),
        (one().sysctl("net.ipv4.tcp_sock", "1"), "sysctl: net.ipv4.tcp_sock"),
        (one().sysctl("net.ipv4.tcp_rmem", "3 2 1"), "sysctl: net.ipv4.tcp_rmem"),
        (one().budget(none.memory(Some(0))), "invalid argument: budget.memory is 0"),
        (
            one().budget(none.connections(Some(1)).half_open(Some(2))),
            "invalid argument: budget.half_open is more than budget.connections",
        ),
        (many, "interfaces: "),
    ];
    let mut wrong = Vec::new();
    for (builder, words) in table {
        match builder.build_without_thread() {
            Ok(_) => wrong.push(format!("taken, and not refused with: {words}")),
            Err(error) if error.to_string().starts_with(words) => {}
            Err(error) => wrong.push(format!("{words}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn of_a_listener() {
    let stack = one().build_without_thread().unwrap();
    let on = ListenOn::Address("192.0.2.1:80".parse().unwrap());
    let gated = |gate| GatedListener::bind_any(&stack, gate).map(drop);
    let plain = |config| TcpListener::bind_with_config(&stack, on, config).map(drop);
    let gate = GateConfig::default;
    let options = |memory| Options::default().memory_budget(Some(memory));
    let base = ListenConfig::default;
    let anywhere = |on| TcpListener::bind_with_config(&stack, on, base().only_v6(true)).map(drop);
    let table = [
        (gated(gate().waiting(0)), "gate.waiting is 0"),
        (gated(gate().per_source(0)), "gate.per_source is 0"),
        (gated(gate().wait(std::time::Duration::ZERO)), "gate.wait is 0"),
        (plain(base().gate(Some(gate()))), "gate: a TcpListener never asks"),
        (plain(base().options(options(0))), "memory_budget is 0"),
        (plain(base().options(options(9))), "memory_budget is less"),
        (TcpListener::bind_any_port(&stack, 0).map(drop), "port 0"),
        (anywhere(ListenOn::Everything), "only_v6: AnyAddress and Everything"),
        (anywhere(ListenOn::AnyAddress(80)), "only_v6: AnyAddress and Everything"),
    ];
    for (outcome, words) in table {
        let error = outcome.expect_err(words);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{words}");
        assert!(error.to_string().starts_with(words), "{error}");
    }
    let listener = TcpListener::bind(&stack, "192.0.2.1:80").unwrap();
    for (budget, words) in [
        (Budget::default().connections(Some(0)), "budget.connections is 0"),
        (Budget::default().half_open(Some(0)), "budget.half_open is 0"),
        (Budget::default().memory(Some(1)), "budget.memory is less"),
    ] {
        let error = listener.set_budget(budget).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with(words), "{error}");
        assert_eq!(listener.budget(), Budget::default(), "nothing has changed");
    }
}

#[test]
fn of_devices() {
    let channel = |change: fn(&mut ChannelConfig)| {
        let mut config = ChannelConfig::default();
        change(&mut config);
        device::channel(config).map(drop).unwrap_err().to_string()
    };
    for (error, field) in [
        (channel(|config| config.mtu = 575), "mtu: 575"),
        (channel(|config| config.to_caller = 0), "to_caller: 0"),
        (channel(|config| config.to_stack = 0), "to_stack: 0"),
    ] {
        assert!(error.contains("channel 'channel'") && error.contains(field), "{error}");
    }
    let null = std::fs::File::open("/dev/null").unwrap();
    let error = tun::from_fd(null.into(), tun::FdConfig::default()).map(drop).unwrap_err();
    assert!(!error.to_string().is_empty(), "{error}");
}

#[test]
fn a_listener_says_whether_it_takes_ipv6_only() {
    let stack = Stack::builder().loopback_only().build_without_thread().unwrap();
    let bind = |address: &str, only_v6| {
        let on = ListenOn::Address(address.parse().unwrap());
        let config = ListenConfig::default().only_v6(only_v6);
        let plain = TcpListener::bind_with_config(&stack, on, config.clone()).unwrap().only_v6();
        let gated = config.gate(Some(GateConfig::default()));
        let gated = GatedListener::bind_with_config(&stack, on, gated).unwrap().only_v6();
        (plain.unwrap(), gated)
    };
    assert_eq!(bind("[::]:80", true), (true, true));
    assert_eq!(bind("[::]:80", false), (false, false));
    assert_eq!(bind("0.0.0.0:80", true), (false, false), "it is no question of IPv4");
}
