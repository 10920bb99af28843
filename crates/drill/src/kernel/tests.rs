use std::net::IpAddr;

use crate::posix::{Call, Dest, ReceiveVia, Reply};
use plimsoll_tcp::Duration;

use super::{KernelHost, refuse_unless, source};
use crate::host::{Host, Network, Started};
use crate::shell::Command;

fn network() -> Network {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    Network {
        local: address("198.51.100.1"),
        prefix: 24,
        gateway: address("198.51.100.2"),
        remote: address("192.0.2.1"),
        mtu: 1500,
        inbound_mss: None,
        mapped: false,
    }
}

#[test]
fn without_root_the_error_says_so() {
    let error = refuse_unless(false).err().unwrap();
    assert!(error.0.contains("root"), "{error}");
}

fn value(started: Started) -> i32 {
    match started {
        Started::Returned(Reply { result: Ok(value), .. }) => i32::try_from(value).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_syn_leaves_and_a_blocking_call_sleeps() {
    let mut host = KernelHost::new(network()).unwrap();
    let name = "net.ipv4.tcp_syn_retries".to_string();
    host.command(&Command::Sysctl { name, value: "1".into() }).unwrap();
    let fd = value(host.call(Call::Socket { domain: 2, kind: 1, protocol: 6 }, false).unwrap());
    let addr = Some("192.0.2.1:8080".parse().unwrap());
    assert_eq!(host.call(Call::Connect { fd, addr }, true).unwrap(), Started::Sleeps);
    let far = host.now() + Duration::from_secs(5);
    host.wait(far).unwrap();
    let packet = host.sniff().expect("a SYN");
    assert_eq!(source(&packet.bytes), Some(network().local));
    assert!(packet.at <= host.now());
    assert_eq!(host.returned(), None);
    let dest = vec![Dest::Room(1)];
    let (via, flags) = (ReceiveVia::Recv, 0x40);
    let receive = Call::Receive { via, fd, buffers: dest, flags, control_len: 0 };
    let Started::Returned(reply) = host.call(receive, false).unwrap() else { panic!() };
    assert!(reply.result.is_err());
}
