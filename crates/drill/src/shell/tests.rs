//! What shell lines turn into.

use std::path::Path;

use crate::posix::{Call, Reply};
use plimsoll_tcp::Instant;

use super::*;
use crate::host::{Captured, Started};

/// A host that only writes down what it is told.
#[derive(Default)]
struct Notes(Vec<Command>);

impl Host for Notes {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
    fn wait(&mut self, _until: Instant) -> Result<(), HostError> {
        Ok(())
    }
    fn inject(&mut self, _packet: &[u8]) -> Result<(), HostError> {
        Ok(())
    }
    fn sniff(&mut self) -> Option<Captured> {
        None
    }
    fn call(&mut self, _call: Call, _may_sleep: bool) -> Result<Started, HostError> {
        Ok(Started::Sleeps)
    }
    fn returned(&mut self) -> Option<(Instant, Reply)> {
        None
    }
    fn command(&mut self, command: &Command) -> Result<(), HostError> {
        if matches!(command, Command::Sysctl { name, .. } if name == "net.unknown") {
            return Err(HostError("net.unknown: no such setting".to_owned()));
        }
        self.0.push(command.clone());
        Ok(())
    }
    fn tcp_info(&mut self, _fd: i32) -> Result<Vec<u8>, HostError> {
        Ok(Vec::new())
    }
}

fn commands(text: &str) -> Result<Vec<Command>, String> {
    let mut host = Notes::default();
    run(&mut host, text, None).map_err(|error| error.0)?;
    Ok(host.0)
}

fn set(name: &str, value: &str) -> Command {
    Command::Sysctl { name: name.to_owned(), value: value.to_owned() }
}

#[test]
fn settings_in_all_spellings() {
    let text = "sysctl -q -w net.ipv4.tcp_sack=1 net/ipv4/tcp_ecn=2  # why\n\
                sysctl -q net.ipv4.tcp_rmem=\"4096 540000 $((15*1024*1024))\" \\\n\
                  net.ipv4.tcp_fack=0\n\
                echo 7 > /proc/sys/net/ipv4/tcp_reordering\n\
                ../common/set_sysctls.py /proc/sys/net/ipv4/tcp_wmem=\"1 2 3\"";
    assert_eq!(
        commands(text).unwrap(),
        [
            set("net.ipv4.tcp_sack", "1"),
            set("net.ipv4.tcp_ecn", "2"),
            set("net.ipv4.tcp_rmem", "4096 540000 15728640"),
            set("net.ipv4.tcp_reordering", "7"),
            set("net.ipv4.tcp_wmem", "1 2 3"),
        ]
    );
}

#[test]
fn failures_and_links() {
    assert!(commands("sysctl net.unknown=1").unwrap_err().contains("net.unknown"));
    assert!(commands("sysctl net.unknown=1 2>/dev/null ; true").unwrap().is_empty());
    let text = "sysctl -q net.unknown=1 &> /dev/null || ip tcp_metrics flush all &> /dev/null";
    assert_eq!(commands(text).unwrap(), [Command::FlushMetrics]);
    let text = "sysctl -q a=1 || sysctl -q b=1";
    assert_eq!(commands(text).unwrap(), [set("a", "1")]);
    let text = "true && sysctl -q b=1";
    assert_eq!(commands(text).unwrap(), [set("b", "1")]);
}

#[test]
fn network_commands() {
    let route = "ip route change 192.0.2.1 via 198.51.100.2 dev tun0 advmss 600 mtu lock 640 \
                 initcwnd 11";
    let metrics = RouteMetrics {
        to: Some(("192.0.2.1".parse().unwrap(), 32)),
        mtu: Some(640),
        mtu_lock: true,
        advmss: Some(600),
        initcwnd: Some(11),
        ..RouteMetrics::default()
    };
    assert_eq!(commands(route).unwrap(), [Command::Route(metrics)]);
    let text =
        "tc qdisc delete dev tun0 root 2>/dev/null ; tc qdisc add dev tun0 root pfifo limit 0";
    assert_eq!(
        commands(text).unwrap(),
        [Command::Qdisc(Qdisc::Default), Command::Qdisc(Qdisc::Fifo { limit: Some(0) })]
    );
    let fair = commands("tc qdisc replace dev tun0 root fq flow_limit 5").unwrap();
    let [Command::Qdisc(Qdisc::Fq(config))] = fair[..] else { panic!("{fair:?}") };
    assert_eq!((config.limit, config.flow_limit), (10_000, 5));
    assert!(commands("tc qdisc replace dev tun0 root fq buckets 64").is_err());
    let bucket = TokenBucket { rate: 10_000, burst: 1600 };
    assert_eq!(
        commands("tc qdisc replace dev tun0 root tbf rate 80kbit burst 1600 latency 10s").unwrap(),
        [Command::Qdisc(Qdisc::TokenBucket(bucket))]
    );
    assert_eq!(
        commands("ethtool -K tun0 gso off tso off\nnstat | grep TcpExtTCPLoss > /dev/null")
            .unwrap(),
        [
            Command::Offload { tso: Some(false), gso: Some(false) },
            Command::Counters { wanted: Some("TcpExtTCPLoss".to_owned()) },
        ]
    );
    let text = "grep \" 0A \" /proc/net/tcp /proc/net/tcp6 | grep \":1F90\"";
    assert_eq!(commands(text).unwrap(), [Command::Listening(8080)]);
    let text = "/bin/dd bs=2 count=5 if=/dev/zero of=/tmp/x status=none; /bin/rm -f /tmp/x";
    assert_eq!(
        commands(text).unwrap(),
        [
            Command::ZeroFile { path: "/tmp/x".to_owned(), len: 10 },
            Command::RemoveFile("/tmp/x".to_owned()),
        ]
    );
}

#[test]
fn what_is_not_understood_is_named() {
    for (text, part) in [
        ("iptables -F", "iptables"),
        ("sysctl -a", "-a"),
        ("sysctl nonsense", "nonsense"),
        ("ip addr add 192.0.2.9 dev tun0", "ip route"),
        ("tc qdisc add dev tun0 root tbf rate 1mbit", "tbf"),
        ("tc qdisc add dev tun0 root tbf rate 1gbit burst 1600", "1gbit"),
        ("tc qdisc add dev tun0 root sfq", "sfq"),
        ("ethtool -K tun0 ntuple off", "ntuple"),
        ("echo 1 > /etc/passwd", "/etc/passwd"),
        ("dd if=/etc/passwd of=/tmp/x count=1", "/dev/zero"),
        ("sleep 1 &", "background"),
        ("x=$(id)", "$("),
        ("sysctl -q a=$((1 +))", "$((1 +))"),
        ("sysctl -q 'a=1", "'"),
        ("./own_helper.sh", "own_helper.sh"),
        ("python3 x.py | cat", "python3"),
    ] {
        let error = commands(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn helper_files() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("topic");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(folder.path().join("defaults.sh"), "#!/bin/sh\nsysctl -q a.b=1\n\n").unwrap();
    std::fs::write(folder.path().join("loop.sh"), "../loop.sh\n").unwrap();
    let go = |text: &str, folder: &Path| {
        let mut host = Notes::default();
        run(&mut host, text, Some(folder)).map_err(|error| error.0).map(|()| host.0)
    };
    let text = "../defaults.sh; /tmp/sysctl_restore_${PPID}.sh";
    assert_eq!(go(text, &inner).unwrap(), [set("a.b", "1")]);
    assert!(go("../missing.sh", &inner).unwrap_err().contains("missing.sh"));
    assert!(go("../loop.sh", &inner).unwrap_err().contains("calls itself"));
}
