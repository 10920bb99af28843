//! UDP over TUN, with the host's kernel as the peer, in a network namespace of its own.
//!
//! Needs root, `unshare`, `ip` and `/dev/net/tun`. Plain `cargo test` lists the tests that need
//! them as ignored; `cargo xtask test` runs them where it can.
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket as KernelSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::device::tun::{self, Offloads, TunConfig};
use plimsoll::{Stack, UdpListener, UdpSocket, UdpTransmit};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::namespace::{ip, isolated};

const LIMIT: Duration = Duration::from_secs(10);

/// The kernel is 192.0.2.1 and 2001:db8::1.
fn stack(offloads: Offloads) -> Stack {
    let config = TunConfig::default().name("tun0").up(true).offloads(offloads);
    let device = tun::open(config).unwrap();
    ip("link set lo up");
    ip("address add 192.0.2.1/24 dev tun0");
    ip("address add 2001:db8::1/64 dev tun0 nodad");
    wait_for_local("2001:db8::1");
    let builder = Stack::builder().device(device);
    builder.address("192.0.2.2/24").address("2001:db8::2/64").build().unwrap()
}

/// The kernel takes an IPv6 address at once, but packets to it only when it has a route for it,
/// which another of its threads adds.
fn wait_for_local(address: &str) {
    let (entry, begin) = (format!("local {address} "), Instant::now());
    loop {
        let show = ["-6", "route", "show", "table", "local"];
        let routes = Command::new("ip").args(show).output().unwrap().stdout;
        if String::from_utf8_lossy(&routes).contains(&entry) {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "{address} never gets a route");
        thread::sleep(Duration::from_millis(5));
    }
}

fn kernel(address: &str) -> KernelSocket {
    let socket = KernelSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).unwrap();
    socket
}

fn ours(stack: &Stack, address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(stack, address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    socket
}

fn count(stack: &Stack, name: &str) -> u64 {
    stack.counters().iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn datagrams_of_every_size_go_both_ways() {
    isolated("udp_kernel::datagrams_of_every_size_go_both_ways", || {
        let stack = stack(Offloads::Auto);
        for (theirs, own) in
            [("192.0.2.1:7", "192.0.2.2:7"), ("[2001:db8::1]:7", "[2001:db8::2]:7")]
        {
            let (kernel, ours) = (kernel(theirs), ours(&stack, own));
            let mut buf = vec![0; 65_535];
            let headers = if kernel.local_addr().unwrap().is_ipv4() { 28 } else { 48 };
            for len in [0, 1, 64, 1500 - headers, 1501 - headers, 4000, 65_000, 65_507] {
                let data: Vec<u8> = (0..len).map(|at| (at ^ at >> 8) as u8).collect();
                assert_eq!(ours.send_to(&data, theirs).unwrap(), len);
                let (got, from) = kernel.recv_from(&mut buf).unwrap();
                assert_eq!((got, from), (len, own.parse().unwrap()));
                assert!(buf[..got] == data, "{len} bytes to the kernel");
                assert_eq!(kernel.send_to(&data, own).unwrap(), len);
                let (got, from) = ours.recv_from(&mut buf).unwrap();
                assert_eq!((got, from), (len, theirs.parse().unwrap()));
                assert!(buf[..got] == data, "{len} bytes from the kernel");
            }
        }
        assert_eq!((count(&stack, "IpFragOKs"), count(&stack, "IpReasmOKs")), (4, 4));
        assert_eq!((count(&stack, "Ip6FragOKs"), count(&stack, "Ip6ReasmOKs")), (4, 4));
        assert_eq!((count(&stack, "UdpInErrors"), count(&stack, "Udp6InErrors")), (0, 0));
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn many_datagrams_in_one_call_arrive_as_many() {
    isolated("udp_kernel::many_datagrams_in_one_call_arrive_as_many", || {
        let stack = stack(Offloads::Auto);
        for (theirs, own) in
            [("192.0.2.1:7", "192.0.2.2:7"), ("[2001:db8::1]:7", "[2001:db8::2]:7")]
        {
            let (kernel, ours) = (kernel(theirs), ours(&stack, own));
            let data: Vec<u8> = (0..40_500_u32).map(|at| (at / 1000) as u8).collect();
            let to = Some(theirs.parse().unwrap());
            let how = UdpTransmit::default().to(to).segment_size(Some(1000));
            ours.send_msg(&how, &[&data]).unwrap();
            let mut buf = [0; 2000];
            for number in 0..41 {
                let len = kernel.recv(&mut buf).unwrap();
                assert_eq!((len, buf[0]), (if number < 40 { 1000 } else { 500 }, number));
            }
            for number in 0..41_u8 {
                kernel.send_to(&[number; 900], own).unwrap();
            }
            let (mut all, mut buf) = (Vec::new(), vec![0; 65_535]);
            while all.len() < 41 {
                let read = ours.recv_train(&mut buf).unwrap();
                all.extend(buf[..read.len].chunks(read.stride).map(|each| (each.len(), each[0])));
            }
            assert_eq!(all, (0..41).map(|number| (900, number)).collect::<Vec<_>>());
        }
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn closed_ports_are_told_both_ways() {
    isolated("udp_kernel::closed_ports_are_told_both_ways", || {
        let stack = stack(Offloads::Off);
        let socket = ours(&stack, "192.0.2.2:0");
        socket.connect("192.0.2.1:9").unwrap();
        socket.send(b"anybody?").unwrap();
        let refused = socket.recv(&mut [0; 9]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        for there in ["192.0.2.2:9", "[2001:db8::2]:9"] {
            let any = if there.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let kernel = kernel(any);
            kernel.connect(there).unwrap();
            kernel.send(b"anybody?").unwrap();
            let refused = kernel.recv(&mut [0; 9]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn groups_and_strangers_are_reached() {
    isolated("udp_kernel::groups_and_strangers_are_reached", || {
        let stack = stack(Offloads::Auto);
        let member = ours(&stack, "0.0.0.0:5353");
        let group = Ipv4Addr::new(224, 0, 0, 251);
        member.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).unwrap();
        ip("route add 224.0.0.0/4 dev tun0");
        ip("route add 198.51.100.0/24 dev tun0");
        let kernel = kernel("192.0.2.1:5353");
        kernel.send_to(b"who?", (group, 5353)).unwrap();
        let mut buf = [0; 100];
        let asked = member.recv_msg(&mut buf).unwrap();
        assert_eq!((asked.len, asked.info.to), (4, group.into()));
        member.send_to(b"me", asked.info.from).unwrap();
        let answer = (2, SocketAddr::from(([192, 0, 2, 2], 5353)));
        assert_eq!(kernel.recv_from(&mut buf).unwrap(), answer);

        let listener = UdpListener::bind_any(&stack).unwrap();
        for host in 1..=20 {
            kernel.send_to(&[host], (Ipv4Addr::new(198, 51, 100, host), 53)).unwrap();
            let flow = listener.accept().unwrap();
            assert_eq!(flow.recv(&mut buf).unwrap(), 1);
            assert_eq!(flow.local_addr().unwrap(), SocketAddr::from(([198, 51, 100, host], 53)));
            flow.send(&[host; 2]).unwrap();
            let from = SocketAddr::from(([198, 51, 100, host], 53));
            assert_eq!(kernel.recv_from(&mut buf).unwrap(), (2, from));
        }
    });
}

/// The number of the TUN device, which is the scope of link-local addresses of IPv6.
fn tun_scope() -> u32 {
    let shown = Command::new("ip").args(["-o", "link", "show", "tun0"]).output().unwrap().stdout;
    String::from_utf8_lossy(&shown).split(':').next().unwrap().parse().unwrap()
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Where sockets of a host are bound, each to a port of its own, and the one that is sent to last.
fn places(host: u8) -> ([String; 5], String) {
    let places = [
        "0.0.0.0:7".to_owned(),
        "[::]:8".to_owned(),
        format!("192.0.2.{host}:9"),
        format!("[2001:db8::{host}]:10"),
        "224.0.0.1:11".to_owned(),
    ];
    (places, format!("192.0.2.{host}:12"))
}

/// Sends to the groups of all hosts by `send`, and to the last socket of `host` by itself. The
/// datagrams arrive in the order in which they leave.
fn send_to_all(host: u8, scope: u32, mut send: impl FnMut(&[u8], SocketAddr)) {
    for port in 7..=11 {
        send(b"four", (Ipv4Addr::new(224, 0, 0, 1), port).into());
        send(b"six", SocketAddrV6::new(ALL_NODES, port, 0, scope).into());
    }
    send(b"last", places(host).1.parse().unwrap());
}

/// The datagrams of `send` that the sockets at the places of `host` receive. `read` waits if its
/// second argument is true.
fn heard<S>(
    host: u8,
    bind: impl Fn(&str) -> S,
    send: impl FnOnce(),
    read: impl Fn(&S, bool) -> Option<String>,
) -> Vec<Vec<String>> {
    let (places, last) = places(host);
    let (sockets, last) = (places.map(|place| bind(&place)), bind(&last));
    send();
    assert_eq!(read(&last, true).as_deref(), Some("last"));
    sockets.iter().map(|socket| std::iter::from_fn(|| read(socket, false)).collect()).collect()
}

#[test]
#[ignore = "needs root, network namespaces and /dev/net/tun"]
fn the_groups_of_all_hosts_are_heard_as_by_the_kernel() {
    isolated("udp_kernel::the_groups_of_all_hosts_are_heard_as_by_the_kernel", || {
        let stack = stack(Offloads::Off);
        ip("route add 224.0.0.0/4 dev tun0");
        let scope = tun_scope();
        let text = |buf: &[u8], len| String::from_utf8_lossy(&buf[..len]).into_owned();
        let by_kernel = heard(
            1,
            kernel,
            || {
                let ours = ours(&stack, "[::]:0");
                // Copies that loop back could reach the sockets that are bound below.
                ours.set_multicast_loop_v4(false).unwrap();
                send_to_all(1, 0, |data, to| assert!(ours.send_to(data, to).is_ok()));
            },
            |socket, waits| {
                let mut buf = [0; 9];
                socket.set_nonblocking(!waits).unwrap();
                socket.recv(&mut buf).ok().map(|len| text(&buf, len))
            },
        );
        let by_us = heard(
            2,
            |place| ours(&stack, place),
            || {
                let (four, six) = (kernel("192.0.2.1:0"), kernel("[2001:db8::1]:0"));
                send_to_all(2, scope, |data, to| {
                    let socket = if to.is_ipv4() { &four } else { &six };
                    assert!(socket.send_to(data, to).is_ok());
                });
            },
            |socket, waits| {
                let mut buf = [0; 9];
                socket.set_nonblocking(!waits).unwrap();
                socket.recv(&mut buf).ok().map(|len| text(&buf, len))
            },
        );
        assert_eq!(by_us, by_kernel);
        assert_eq!(by_us, [vec!["four"], vec!["six"], vec![], vec![], vec!["four"]]);

        // An echo request to all nodes is answered from an address of the stack.
        let raw = rustix::net::socket(
            AddressFamily::INET6,
            SocketType::RAW,
            Some(rustix::net::ipproto::ICMPV6),
        );
        let raw = KernelSocket::from(raw.unwrap());
        raw.set_read_timeout(Some(LIMIT)).unwrap();
        raw.set_multicast_loop_v6(false).unwrap();
        let request = [128, 0, 0, 0, 0, 1, 0, 1];
        raw.send_to(&request, SocketAddrV6::new(ALL_NODES, 0, 0, scope)).unwrap();
        let mut buf = [0; 100];
        let from = loop {
            let (len, from) = raw.recv_from(&mut buf).unwrap();
            if buf[..len].first() == Some(&129) {
                break from;
            }
        };
        assert_eq!(from.ip(), "2001:db8::2".parse::<IpAddr>().unwrap());
    });
}
