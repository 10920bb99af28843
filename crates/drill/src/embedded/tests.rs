//! The host without a script: calls, packets and a clock that jumps.

use std::net::IpAddr;

use crate::posix::{Call, Dest, Errno, ReceiveVia};

use super::*;
use crate::config::Config;
use crate::lang::ast::IpInfo;
use crate::packet::build::{self, TcpFields};
use crate::packet::flag;
use crate::packet::live::{self, Body};

fn host() -> EmbeddedHost {
    EmbeddedHost::new(&Config::default().network().unwrap()).unwrap()
}

fn value(started: Started) -> i32 {
    match started {
        Started::Returned(reply) => reply.result.unwrap() as i32,
        Started::Sleeps => panic!("it sleeps"),
    }
}

fn listener(host: &mut EmbeddedHost) -> i32 {
    let fd = value(host.call(Call::Socket { domain: 2, kind: 1, protocol: 6 }, false).unwrap());
    let addr = Some("192.0.2.1:8080".parse().unwrap());
    assert_eq!(value(host.call(Call::Bind { fd, addr }, false).unwrap()), 0);
    assert_eq!(value(host.call(Call::Listen { fd, backlog: 1 }, false).unwrap()), 0);
    fd
}

fn send(host: &mut EmbeddedHost, fields: &TcpFields<'_>) {
    let (src, dst) = ("198.51.100.1:45000".parse().unwrap(), "192.0.2.1:8080".parse().unwrap());
    host.inject(&build::tcp(src, dst, &IpInfo::default(), fields).unwrap()).unwrap();
}

fn sniff(host: &mut EmbeddedHost) -> live::Segment {
    let captured = host.sniff().expect("a packet");
    match live::parse(&captured.bytes).unwrap().body {
        Body::Tcp(segment) => segment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sleeping_call_wakes_in_time() {
    let mut host = host();
    let fd = listener(&mut host);
    assert_eq!(host.call(Call::Accept { fd, flags: 0 }, true).unwrap(), Started::Sleeps);
    host.wait(Instant::from_millis(500)).unwrap();
    assert_eq!(host.now(), Instant::from_millis(500));
    assert_eq!(host.returned(), None);
    let syn = TcpFields { flags: flag::SYN, window: 1000, ..TcpFields::default() };
    send(&mut host, &syn);
    let answer = sniff(&mut host);
    assert_eq!(answer.flags, flag::SYN | flag::ACK);
    let ack = TcpFields {
        flags: flag::ACK,
        seq: 1,
        ack: answer.seq.wrapping_add(1),
        window: 1000,
        ..TcpFields::default()
    };
    send(&mut host, &ack);
    let (at, reply) = host.returned().expect("the connection is there");
    assert_eq!(at, Instant::from_millis(500));
    let child = reply.result.unwrap() as i32;
    assert_eq!(host.tcp_info(child).unwrap()[0], 1, "established");
    let receive = Call::Receive {
        via: ReceiveVia::Recv,
        fd: child,
        buffers: vec![Dest::Room(10)],
        flags: 0x40,
        control_len: 0,
    };
    let Started::Returned(reply) = host.call(receive, false).unwrap() else { panic!() };
    assert_eq!(reply.result, Err(Errno::EAGAIN));
}

#[test]
fn the_clock_jumps_to_timers_and_stops_at_packets() {
    let mut host = host();
    let fd = value(host.call(Call::Socket { domain: 2, kind: 0x801, protocol: 6 }, false).unwrap());
    let addr = Some("198.51.100.1:8080".parse().unwrap());
    host.call(Call::Connect { fd, addr }, false).unwrap();
    assert_eq!(sniff(&mut host).flags, flag::SYN);
    host.wait(Instant::from_millis(60_000)).unwrap();
    assert_eq!(host.now(), Instant::from_millis(1000), "the first retransmission");
    // It has not been looked at, and yet time goes on.
    host.wait(Instant::from_millis(1500)).unwrap();
    assert_eq!(host.now(), Instant::from_millis(1500));
    assert_eq!(host.sniff().unwrap().at, Instant::from_millis(1000));
    assert_eq!(host.sniff(), None);
}

#[test]
fn commands() {
    let mut host = host();
    let set = |name: &str, value: &str| Command::Sysctl {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    host.command(&set("net.ipv4.tcp_sack", "0")).unwrap();
    let error = host.command(&set("net.ipv4.tcp_nonsense", "0")).unwrap_err();
    assert!(error.0.contains("tcp_nonsense"), "{error}");
    host.command(&Command::Offload { tso: Some(false), gso: Some(false) }).unwrap();
    assert_eq!(host.stack().sysctl().get("net.ipv4.tcp_sack").unwrap(), "0", "it is set again");
    assert!(host.command(&Command::Listening(8080)).is_err());
    listener(&mut host);
    host.command(&Command::Listening(8080)).unwrap();
    assert!(host.command(&Command::LinkMtu(600)).is_err(), "too late");
    host.command(&Command::Counters { wanted: None }).unwrap();
    let wanted = Command::Counters { wanted: Some("TcpPassiveOpens".to_owned()) };
    assert!(host.command(&wanted).unwrap_err().0.contains("TcpPassiveOpens"));
}

#[test]
fn scratch_files_are_private_and_go_away() {
    let mut host = host();
    let open = |host: &mut EmbeddedHost, path: &str| {
        let call = Call::Open { path: path.to_owned(), flags: 0 };
        match host.call(call, false).unwrap() {
            Started::Returned(reply) => reply.result,
            Started::Sleeps => panic!("it sleeps"),
        }
    };
    assert_eq!(open(&mut host, "/etc/hostname"), Err(Errno::ENOENT));
    let path = "/tmp/scratch".to_owned();
    host.command(&Command::ZeroFile { path: path.clone(), len: 5 }).unwrap();
    assert!(open(&mut host, &path).is_ok());
    let real = host.files.real(&path).unwrap();
    assert_eq!(std::fs::metadata(&real).unwrap().len(), 5);
    drop(host);
    assert!(std::fs::metadata(&real).is_err());
}

#[test]
fn addresses_are_checked() {
    let mut network = Config::default().network().unwrap();
    network.local = IpAddr::from([0, 0, 0, 0]);
    assert!(EmbeddedHost::new(&network).is_err());
}

/// Timers that come 40 ms late.
struct Late;

impl CoarseTimers for Late {
    fn comes(&self, _connection: u64, _now: Instant, deadline: Instant) -> Instant {
        deadline + Duration::from_millis(40)
    }
}

#[test]
fn timers_that_are_put_off_do_not_come_with_a_poll() {
    let mut host =
        EmbeddedHost::with_timers(&Config::default().network().unwrap(), Arc::new(Late)).unwrap();
    listener(&mut host);
    send(&mut host, &TcpFields { flags: flag::SYN, window: 1000, ..TcpFields::default() });
    assert_eq!(sniff(&mut host).flags, flag::SYN | flag::ACK);
    // It is due after a second, and the stack is polled then.
    host.wait(Instant::from_millis(1_020)).unwrap();
    assert_eq!(host.sniff(), None);
    host.wait(Instant::from_millis(2_000)).unwrap();
    assert_eq!(host.now(), Instant::from_millis(1_040));
    assert_eq!(sniff(&mut host).flags, flag::SYN | flag::ACK);
}
