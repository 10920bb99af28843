//! Link-local addresses over two TUN devices, with the host's kernel as the peer, in a network
//! namespace of its own. Both links have the same addresses, so that only the scope ids differ.
//!
//! Needs root, `unshare`, `ip` and `/dev/net/tun`. Plain `cargo test` lists the tests that need
//! them as ignored; `cargo xtask test` runs them where it can.
use std::io::{ErrorKind, Read, Write};
use std::net::{
    SocketAddr, SocketAddrV6, TcpListener as KernelListener, TcpStream as KernelStream,
    UdpSocket as KernelSocket,
};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::device::tun::{self, TunConfig};
use plimsoll::{Stack, TcpListener, TcpStream, UdpSocket};

use crate::namespace::{ip, isolated};

const LIMIT: Duration = Duration::from_secs(10);
const DEVICES: [&str; 2] = ["tun0", "tun1"];

/// The kernel is fe80::1 on both links, and the stack fe80::2.
fn stack() -> Stack {
    ip("link set lo up");
    let mut builder = Stack::builder();
    for name in DEVICES {
        let device = tun::open(TunConfig::default().name(name).up(true)).unwrap();
        ip(&format!("address add fe80::1/64 dev {name} nodad"));
        wait_for_local(name);
        builder = builder.device(device).address("fe80::2/64");
    }
    builder.build().unwrap()
}

/// The kernel takes an IPv6 address at once, but packets to it only when it has a route for it,
/// which another of its threads adds.
fn wait_for_local(device: &str) {
    let (entry, begin) = (format!("local fe80::1 dev {device} "), Instant::now());
    loop {
        let show = ["-6", "route", "show", "table", "local"];
        let routes = Command::new("ip").args(show).output().unwrap().stdout;
        if String::from_utf8_lossy(&routes).contains(&entry) {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "{device} never gets a route");
        thread::sleep(Duration::from_millis(5));
    }
}

fn at(ip: &str, port: u16, scope_id: u32) -> SocketAddr {
    SocketAddrV6::new(ip.parse().unwrap(), port, 0, scope_id).into()
}

/// The scope ids of both links: the kernel's and the stack's.
fn scopes() -> [(u32, u32); 2] {
    let index = |name: &str| {
        let all = std::fs::read_to_string("/proc/net/if_inet6").unwrap();
        let line = all.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        u32::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    [(index(DEVICES[0]), 1), (index(DEVICES[1]), 2)]
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn datagrams_on_two_links_are_answered_where_they_come_from() {
    isolated("zones_kernel::datagrams_on_two_links_are_answered_where_they_come_from", || {
        let stack = stack();
        let ours = UdpSocket::bind(&stack, "[::]:7").unwrap();
        ours.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buf = [0; 8000];
        for (theirs, own) in scopes() {
            let kernel = KernelSocket::bind(at("fe80::1", 7, theirs)).unwrap();
            kernel.set_read_timeout(Some(LIMIT)).unwrap();
            // The second leaves in fragments.
            for len in [10, 5000] {
                kernel.send_to(&vec![5; len], at("fe80::2", 7, theirs)).unwrap();
                let (got, from) = ours.recv_from(&mut buf).unwrap();
                assert_eq!((got, from), (len, at("fe80::1", 7, own)));
                ours.send_to(&buf[..got], from).unwrap();
                let (got, from) = kernel.recv_from(&mut buf).unwrap();
                assert_eq!((got, from), (len, at("fe80::2", 7, theirs)));
            }
            let refused = KernelSocket::bind(at("fe80::1", 0, theirs)).unwrap();
            refused.set_read_timeout(Some(LIMIT)).unwrap();
            refused.connect(at("fe80::2", 9, theirs)).unwrap();
            refused.send(b"ahoy").unwrap();
            assert_eq!(refused.recv(&mut buf).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let refused = UdpSocket::bind(&stack, "[::]:0").unwrap();
            refused.set_read_timeout(Some(LIMIT)).unwrap();
            refused.connect(at("fe80::1", 9, own)).unwrap();
            refused.send(b"ahoy").unwrap();
            assert_eq!(refused.recv(&mut buf).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn connections_on_two_links_open_both_ways() {
    isolated("zones_kernel::connections_on_two_links_open_both_ways", || {
        let stack = stack();
        let ours = TcpListener::bind(&stack, "[::]:80").unwrap();
        for (theirs, own) in scopes() {
            let kernel = KernelListener::bind(at("fe80::1", 80, theirs)).unwrap();
            let mut client = TcpStream::connect(&stack, at("fe80::1", 80, own)).unwrap();
            assert_eq!(client.peer_addr().unwrap(), at("fe80::1", 80, own));
            let (mut server, peer) = kernel.accept().unwrap();
            assert_eq!(peer, at("fe80::2", client.local_addr().unwrap().port(), theirs));
            let mut buf = [0; 4];
            client.write_all(b"ahoy").unwrap();
            server.read_exact(&mut buf).unwrap();
            assert_eq!(&buf, b"ahoy");

            let mut client =
                KernelStream::connect_timeout(&at("fe80::2", 80, theirs), LIMIT).unwrap();
            let (mut server, peer) = ours.accept().unwrap();
            assert_eq!(peer, at("fe80::1", client.local_addr().unwrap().port(), own));
            assert_eq!(server.local_addr().unwrap(), at("fe80::2", 80, own));
            server.write_all(b"ahoy").unwrap();
            client.read_exact(&mut buf).unwrap();
            assert_eq!(&buf, b"ahoy");
            let refused = KernelStream::connect_timeout(&at("fe80::2", 81, theirs), LIMIT);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn a_scope_id_is_needed_as_on_the_kernel() {
    isolated("zones_kernel::a_scope_id_is_needed_as_on_the_kernel", || {
        let stack = stack();
        let ours = UdpSocket::bind(&stack, "[::]:0").unwrap();
        let kernel = KernelSocket::bind("[::]:0").unwrap();
        let [(theirs, own), (other_theirs, other_own)] = scopes();
        let invalid = [
            ours.connect(at("fe80::1", 9, 0)),
            kernel.connect(at("fe80::2", 9, 0)),
            UdpSocket::bind(&stack, at("fe80::2", 9, 0)).map(drop),
            KernelSocket::bind(at("fe80::1", 9, 0)).map(drop),
            TcpListener::bind(&stack, at("fe80::2", 9, 0)).map(drop),
            KernelListener::bind(at("fe80::1", 9, 0)).map(drop),
            TcpStream::connect(&stack, at("fe80::1", 9, 0)).map(drop),
            KernelStream::connect(at("fe80::2", 9, 0)).map(drop),
            UdpSocket::bind(&stack, at("fe80::2", 9, own))
                .and_then(|socket| socket.connect(at("fe80::1", 9, other_own))),
            KernelSocket::bind(at("fe80::1", 9, theirs))
                .and_then(|socket| socket.connect(at("fe80::2", 9, other_theirs))),
        ];
        let kinds = invalid.map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::InvalidInput; 10]);
        let unreachable =
            [ours.connect(at("fe80::1", 9, 99)), kernel.connect(at("fe80::2", 9, 99))];
        let kinds = unreachable.map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::NetworkUnreachable; 2]);
        // One socket for each zone has the same address and port.
        let both = [own, other_own]
            .map(|scope| UdpSocket::bind(&stack, at("fe80::2", 11, scope)).unwrap());
        let both = both.each_ref().map(|socket| socket.local_addr().unwrap());
        assert_eq!(both, [at("fe80::2", 11, own), at("fe80::2", 11, other_own)]);
    });
}
