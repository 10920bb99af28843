//! UDP sockets: delivery, the limits of the queues, fragments, segments, groups.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;

use plimsoll_tcp::{Duration, Instant};
use plimsoll_wire::{checksum, protocol, udp};

use super::harness::*;
use super::icmp::{Bare, v4, v6};
use crate::device::channel::{ChannelConfig, channel};
use crate::device::memory_link::LinkConfig;
use crate::limits::{
    DATAGRAM_OVERHEAD, RX_BATCH, SPIN_LEASE, STREAM_BYTES, STREAM_LEASE, STREAM_SPAN, UDP_MINIMUM,
};
use crate::{InterfaceConfig, PathMtuDiscovery, SocketError, Stack, UdpSocket, UdpTransmit};

/// A send to a destination, without other options.
fn to(addr: SocketAddr) -> UdpTransmit {
    UdpTransmit { to: Some(addr), ..UdpTransmit::default() }
}

fn bind(stack: &Arc<Stack>, text: &str) -> Arc<UdpSocket> {
    stack.bind_udp(text.parse().unwrap()).unwrap()
}

/// All that waits, with its senders.
fn read(socket: &UdpSocket, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut buf = vec![0; 65_535];
    std::iter::from_fn(|| {
        let read = socket.recv(now, &mut buf).ok()?;
        Some((read.info.from, buf[..read.len].to_vec()))
    })
    .collect()
}

fn texts(socket: &UdpSocket, now: Instant) -> Vec<String> {
    let text = |(_, data)| String::from_utf8(data).unwrap();
    read(socket, now).into_iter().map(text).collect()
}

/// A datagram to port 9 of the bare stack, from port 7.
fn datagram(src: IpAddr, dst: IpAddr, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; udp::HEADER_LEN];
    udp::UdpRepr { src_port: 7, dst_port: 9, payload_len: data.len() }.emit(&mut bytes);
    bytes.extend_from_slice(data);
    let len = bytes.len() as u32;
    let pseudo = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            checksum::pseudo_header_v4(src, dst, protocol::UDP, len)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            checksum::pseudo_header_v6(src, dst, protocol::UDP, len)
        }
        _ => panic!("two versions"),
    };
    udp::fill_checksum(pseudo, &mut bytes);
    bytes
}

#[test]
fn there_and_back_over_both_versions() {
    for (ours, theirs) in [(A4, B4), (A6, B6)] {
        let mut pair = Pair::new();
        let server = pair.b.bind_udp(addr(theirs, 9)).unwrap();
        let client = pair.a.bind_udp(addr(ours, 0)).unwrap();
        client.connect(pair.now, addr(theirs, 9)).unwrap();
        let options = UdpTransmit { tos: Some(0x2e << 2 | 1), ttl: Some(7), ..Default::default() };
        assert_eq!(client.send(pair.now, &options, &[b"load ", b"line"]), Ok(9));
        pair.settle();
        let mut buf = [0; 64];
        let read = server.recv(pair.now, &mut buf).unwrap();
        assert_eq!(&buf[..read.len], b"load line");
        assert_eq!((read.info.from, read.info.to), (client.local_addr(), ip(theirs)));
        assert_eq!((read.info.tos, read.info.ttl, read.info.interface), (0x2e << 2 | 1, 7, 0));
        server.send(pair.now, &to(read.info.from), &[b"back"]).unwrap();
        pair.settle();
        assert_eq!(texts(&client, pair.now), ["back"]);
        let (out, read) = match ip(ours).is_ipv4() {
            true => (pair.counter("UdpOutDatagrams"), pair.counter("UdpInDatagrams")),
            false => (pair.counter("Udp6OutDatagrams"), pair.counter("Udp6InDatagrams")),
        };
        assert_eq!((out, read), ((1, 1), (1, 1)));
    }
}

#[test]
fn loopback_and_the_unspecified_address() {
    let mut pair = Pair::new();
    let server = bind(&pair.a, "127.0.0.1:0");
    let client = bind(&pair.a, "0.0.0.0:0");
    let unspecified = SocketAddr::new(ip("0.0.0.0"), server.local_addr().port());
    for there in [server.local_addr(), unspecified] {
        client.send(pair.now, &to(there), &[b"here"]).unwrap();
    }
    pair.settle();
    let port = client.local_addr().port();
    let from = SocketAddr::new(ip("127.0.0.1"), port);
    assert_eq!(read(&server, pair.now), [(from, b"here".to_vec()), (from, b"here".to_vec())]);
    assert_eq!(pair.counter("IpInReceives"), (2, 0));
}

#[test]
fn the_closest_socket_gets_it() {
    let mut pair = Pair::new();
    let wild = bind(&pair.b, "[::]:9");
    assert_eq!(pair.b.bind_udp(addr(B4, 9)).unwrap_err(), SocketError::AddrInUse);
    let only_v6 = pair.b.bind_udp_only_v6("[::]:10".parse().unwrap()).unwrap();
    let wild_v4 = bind(&pair.b, "0.0.0.0:10");
    let exact = pair.b.bind_udp(addr(B4, 11)).unwrap();
    let client = bind(&pair.a, "[::]:0");
    let stranger = bind(&pair.a, "[::]:0");
    let source = SocketAddr::new(ip(A4), client.local_addr().port());
    exact.connect(pair.now, source).unwrap();
    for (there, text) in [
        (addr(B4, 9), "both: four"),
        (addr(B6, 9), "both: six"),
        (addr(B4, 10), "four"),
        (addr(B6, 10), "six"),
        (addr(B4, 11), "friend"),
    ] {
        client.send(pair.now, &to(there), &[text.as_bytes()]).unwrap();
    }
    stranger.send(pair.now, &to(addr(B4, 11)), &[b"stranger"]).unwrap();
    pair.settle();
    assert_eq!(texts(&wild, pair.now), ["both: four", "both: six"]);
    assert_eq!(texts(&only_v6, pair.now), ["six"]);
    assert_eq!(texts(&wild_v4, pair.now), ["four"]);
    assert_eq!(texts(&exact, pair.now), ["friend"]);
    assert_eq!(pair.counter("UdpNoPorts"), (0, 1));
}

#[test]
fn port_zero_takes_a_free_one_and_a_closed_socket_gives_it_back() {
    let pair = Pair::new();
    pair.a.sysctl().set("net.ipv4.ip_local_port_range", "5000 5001").unwrap();
    let first = bind(&pair.a, "0.0.0.0:0");
    let second = pair.a.bind_udp(addr(A4, 0)).unwrap();
    assert_ne!(first.local_addr().port(), second.local_addr().port());
    let full = || pair.a.bind_udp(addr(A4, 0)).map(|socket| socket.local_addr().port());
    assert_eq!(full().unwrap_err(), SocketError::AddrInUse);
    let port = first.local_addr().port();
    drop(first);
    assert_eq!(full(), Ok(port));
    assert_eq!(pair.a.bind_udp(addr(B4, 7)).unwrap_err(), SocketError::AddrNotAvailable);
}

#[test]
fn a_full_receive_queue_drops_and_counts() {
    let mut pair = Pair::new();
    let server = pair.b.bind_udp(addr(B4, 9)).unwrap();
    let most = 4 * (DATAGRAM_OVERHEAD + 100);
    server.change_options(|options| options.rcvbuf = most).unwrap();
    let client = bind(&pair.a, "0.0.0.0:0");
    let send = |pair: &Pair, count| {
        for _ in 0..count {
            client.send(pair.now, &to(addr(B4, 9)), &[&[1; 100]]).unwrap();
        }
    };
    send(&pair, 6);
    pair.settle();
    assert_eq!(server.queued(), 4);
    assert_eq!((pair.counter("UdpRcvbufErrors"), pair.counter("UdpInErrors")), ((0, 2), (0, 2)));
    assert_eq!(read(&server, pair.now).len(), 4);
    assert_eq!(pair.b.udp_memory().bytes, 0);
    send(&pair, 1);
    pair.settle();
    assert_eq!(server.queued(), 1);
    assert_eq!(pair.b.udp_memory().bytes, 4096);
    drop(server);
    assert_eq!(pair.b.udp_memory().bytes, 0);
}

/// A socket for up to four datagrams of 100 bytes, and one that sends so many of them to it.
fn narrow(pair: &Pair) -> (Arc<UdpSocket>, impl Fn(&Pair, usize)) {
    let server = pair.b.bind_udp(addr(B4, 9)).unwrap();
    let most = 4 * (DATAGRAM_OVERHEAD + 100);
    server.change_options(|options| options.rcvbuf = most).unwrap();
    let client = bind(&pair.a, "0.0.0.0:0");
    let send = move |pair: &Pair, count| {
        for _ in 0..count {
            client.send(pair.now, &to(addr(B4, 9)), &[&[1; 100]]).unwrap();
        }
    };
    (server, send)
}

#[test]
fn the_poller_leaves_the_devices_to_a_reader_that_is_behind_and_at_work() {
    let pair = Pair::new();
    let (server, send) = narrow(&pair);
    let mut waiter = pair.b.queue_waiter(0).unwrap();
    let poll = || pair.b.poll(pair.now, 256).map(drop).unwrap();
    let next = || server.recv(pair.now, &mut [0; 200]).map(|read| read.len);
    waiter.lend_to_readers();
    send(&pair, 3);
    poll();
    assert!(!waiter.is_lent(pair.now), "nobody has ever read");
    assert_eq!(next(), Ok(100));
    send(&pair, 1);
    poll();
    assert!(waiter.is_lent(pair.now));
    assert!(!waiter.is_lent(pair.now + SPIN_LEASE), "only for so long, if nobody comes");
    for _ in 0..3 {
        assert_eq!(next(), Ok(100));
    }
    // A reader that finds no datagram polls the device by itself, and takes as many as it has space
    // for.
    send(&pair, 6);
    for _ in 0..6 {
        assert_eq!(next(), Ok(100));
    }
    assert_eq!(pair.counter("UdpRcvbufErrors"), (0, 0));
    assert!(waiter.is_lent(pair.now));
    assert_eq!(next(), Err(SocketError::WouldBlock));
    assert!(!waiter.is_lent(pair.now), "there was nothing: the poller is to wait for more");
    send(&pair, 1);
    assert_eq!(next(), Err(SocketError::WouldBlock), "which is the poller's work again");
    poll();
    assert_eq!(next(), Ok(100));
}

#[test]
fn a_reader_that_does_nothing_is_left_nothing() {
    let pair = Pair::new();
    let (server, send) = narrow(&pair);
    let mut waiter = pair.b.queue_waiter(0).unwrap();
    waiter.lend_to_readers();
    let flood = || {
        send(&pair, 8);
        pair.b.poll(pair.now, 256).map(drop).unwrap();
        waiter.is_lent(pair.now)
    };
    assert!(!flood(), "it has not read");
    server.recv(pair.now, &mut [0; 200]).unwrap();
    assert!(flood());
    // The lease ends, and it has not come.
    drop(pair.b.try_spin(pair.now));
    assert!(!flood());
}

/// Sends bursts that the poller finds and `server` reads, until it reads a stream.
fn stream_to(pair: &mut Pair, server: &UdpSocket, client: &UdpSocket) {
    let burst = to(addr(B4, 9)).segment_size(Some(1000));
    for _ in 0..8 {
        for _ in 0..STREAM_BYTES / 32_000 {
            client.send(pair.now, &burst, &[&[1; 16_000]]).unwrap();
        }
        pair.settle();
        assert_eq!(read(server, pair.now).len(), STREAM_BYTES / 32_000 * 16);
        pair.now += STREAM_SPAN / 2;
    }
}

#[test]
fn a_reader_of_a_stream_that_watches_the_devices_keeps_them() {
    let mut pair = Pair::new();
    let server = pair.b.bind_udp(addr(B4, 9)).unwrap();
    let client = bind(&pair.a, "0.0.0.0:0");
    let mut waiter = pair.b.queue_waiter(0).unwrap();
    waiter.lend_to_readers();
    let next = |now| server.recv(now, &mut [0; 200]).map(|read| read.len);
    let send = |pair: &Pair| client.send(pair.now, &to(addr(B4, 9)), &[&[1; 100]]).unwrap();
    stream_to(&mut pair, &server, &client);
    assert!(!server.polls_devices(pair.now), "it waits for the poller to wake it");
    send(&pair);
    assert_eq!(next(pair.now), Err(SocketError::WouldBlock));
    server.watch_devices(true);
    assert!(server.polls_devices(pair.now));
    // The poller has not seen it.
    assert_eq!(next(pair.now), Ok(100));
    send(&pair);
    assert_eq!(server.recv_queued_train(pair.now, &mut [0; 200]), Err(SocketError::WouldBlock));
    assert_eq!(next(pair.now), Ok(100));
    // It sleeps now. The devices wake it, and the poller leaves them alone.
    assert_eq!(next(pair.now), Err(SocketError::WouldBlock));
    let until = pair.now + STREAM_LEASE;
    assert!(waiter.is_lent(pair.now + STREAM_LEASE / 2) && !waiter.is_lent(until));
    send(&pair);
    pair.now = until;
    pair.b.poll(pair.now, 256).unwrap();
    assert_eq!(server.queued(), 1, "it has not come: the poller is back");
    assert!(waiter.is_lent(pair.now), "but it reads a stream still");
    assert_eq!(next(pair.now), Ok(100));
    pair.now += STREAM_SPAN * 2;
    assert!(!server.polls_devices(pair.now), "the stream is over");
    assert_eq!(next(pair.now), Err(SocketError::WouldBlock));
    assert!(!waiter.is_lent(pair.now));
}

#[test]
fn a_sender_of_a_stream_that_watches_the_devices_keeps_them() {
    let mut pair = Pair::new();
    let (server, client) = (bind(&pair.a, "0.0.0.0:9"), bind(&pair.b, "0.0.0.0:0"));
    let mut waiter = pair.b.queue_waiter(0).unwrap();
    waiter.lend_to_readers();
    client.watch_devices(true);
    let burst = to(addr(A4, 9)).segment_size(Some(1000));
    for _ in 0..8 {
        for _ in 0..STREAM_BYTES / 32_000 + 1 {
            client.send(pair.now, &burst, &[&[1; 16_000]]).unwrap();
        }
        pair.settle();
        read(&server, pair.now);
        pair.now += STREAM_SPAN / 2;
    }
    assert!(client.polls_devices(pair.now));
    // The packets that acknowledge the stream: the poller has not seen them.
    let from = client.local_addr().port();
    server.send(pair.now, &to(addr(B4, from)), &[&[1; 100]]).unwrap();
    assert_eq!(client.recv(pair.now, &mut [0; 200]).map(|read| read.len), Ok(100));
    pair.now += STREAM_SPAN * 2;
    assert!(!client.polls_devices(pair.now), "the stream is over");
}

/// A pair whose second stack has a socket that reads a stream and watches the devices, and another
/// one, bound to port 10. The client sends to both.
fn watched_pair() -> (Pair, Arc<UdpSocket>, Arc<UdpSocket>, Arc<UdpSocket>) {
    let mut pair = Pair::new();
    let server = pair.b.bind_udp(addr(B4, 9)).unwrap();
    let other = pair.b.bind_udp(addr(B4, 10)).unwrap();
    let client = bind(&pair.a, "0.0.0.0:0");
    stream_to(&mut pair, &server, &client);
    server.watch_devices(true);
    (pair, server, other, client)
}

#[test]
fn a_watcher_keeps_no_devices_that_still_hold_packets() {
    let (pair, server, other, client) = watched_pair();
    let mut waiter = pair.b.queue_waiter(0).unwrap();
    waiter.lend_to_readers();
    let next = || server.recv(pair.now, &mut [0; 200]).map(|read| read.len);
    // Twice the packets of one poll, for another socket, come before those for the watcher: its own
    // poll and the last check bring nothing for it.
    for _ in 0..2 * RX_BATCH {
        client.send(pair.now, &to(addr(B4, 10)), &[b"other"]).unwrap();
    }
    client.send(pair.now, &to(addr(B4, 9)), &[&[1; 100]]).unwrap();
    assert_eq!(next(), Err(SocketError::WouldBlock));
    assert!(other.queued() > 0 && server.queued() == 0);
    assert!(!waiter.is_lent(pair.now), "no edge tells the watcher of the rest");
    pair.b.poll(pair.now, 256).unwrap();
    assert_eq!(next(), Ok(100));
    // Devices that are empty are kept.
    assert_eq!(next(), Err(SocketError::WouldBlock));
    assert!(waiter.is_lent(pair.now + STREAM_LEASE / 2));
    assert_eq!(pair.b.counter("plimsoll.WatcherPolls"), Some(2));
}

#[test]
fn a_watcher_keeps_no_devices_that_the_poller_is_reading() {
    let (pair, server, other, client) = watched_pair();
    let mut waiter = pair.b.queue_waiter(0).unwrap();
    waiter.lend_to_readers();
    client.send(pair.now, &to(addr(B4, 10)), &[b"other"]).unwrap();
    let mut lent_after = Vec::new();
    let mut turn = || {
        // The poller has looked for packets already; this one has come since.
        client.send(pair.now, &to(addr(B4, 9)), &[&[1; 100]]).unwrap();
        let read = server.recv(pair.now, &mut [0; 200]);
        assert_eq!(read.unwrap_err(), SocketError::WouldBlock);
        lent_after.push(waiter.is_lent(pair.now));
    };
    pair.b.poll_with(pair.now, 64, &mut turn).unwrap();
    assert!(!lent_after.is_empty());
    assert!(lent_after.iter().all(|lent| !lent), "the poller would sleep without the devices");
    assert_eq!(other.queued(), 1);
}

#[test]
fn a_stack_whose_poller_does_not_lend_keeps_the_devices_of_a_stream() {
    let mut pair = Pair::new();
    let server = pair.b.bind_udp(addr(B4, 9)).unwrap();
    let client = bind(&pair.a, "0.0.0.0:0");
    server.watch_devices(true);
    stream_to(&mut pair, &server, &client);
    assert!(!server.polls_devices(pair.now));
    client.send(pair.now, &to(addr(B4, 9)), &[b"ahoy"]).unwrap();
    assert_eq!(server.recv(pair.now, &mut [0; 9]).unwrap_err(), SocketError::WouldBlock);
    assert_eq!(pair.b.counter("plimsoll.BusyPolls"), Some(0));
}

#[test]
fn a_stack_whose_poller_does_not_lend_never_polls_for_a_reader() {
    let pair = Pair::new();
    let (server, send) = narrow(&pair);
    for _ in 0..3 {
        send(&pair, 8);
        pair.b.poll(pair.now, 256).map(drop).unwrap();
        while server.recv(pair.now, &mut [0; 200]).is_ok() {}
    }
    assert_eq!(pair.b.counter("plimsoll.BusyPolls"), Some(0));
    assert_eq!(pair.counter("UdpRcvbufErrors"), (0, 12));
}

#[test]
fn all_sockets_together_obey_udp_mem_and_each_gets_one() {
    let mut pair = Pair::new();
    // Each datagram is in a chunk of a page, and costs the stack a little more.
    pair.b.sysctl().set("net.ipv4.udp_mem", "1 1 6").unwrap();
    let servers: Vec<_> = (1..=3).map(|port| pair.b.bind_udp(addr(B6, port)).unwrap()).collect();
    let client = bind(&pair.a, "[::]:0");
    for port in 1..=3 {
        for _ in 0..5 {
            client.send(pair.now, &to(addr(B6, port)), &[&[1; 1000]]).unwrap();
        }
    }
    pair.settle();
    let queued: Vec<_> = servers.iter().map(|server| server.queued()).collect();
    assert_eq!(queued, [5, 1, 1]);
    assert_eq!(pair.counter("Udp6MemErrors"), (0, 8));
    assert!(pair.b.udp_memory().bytes <= pair.b.udp_memory().limit);
}

#[test]
fn bursts_of_which_little_is_unread_pin_no_more_memory_than_udp_mem() {
    const SOCKETS: u16 = 32;
    let mut pair = Pair::new();
    pair.b.sysctl().set("net.ipv4.udp_mem", "1 1 256").unwrap();
    let bind = |port| pair.b.bind_udp(addr(B4, port)).unwrap();
    let servers: Vec<_> = (1..=SOCKETS).map(bind).collect();
    let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
    let pinned = |pair: &Pair| {
        let of = |stack: &Stack| stack.pollers.pool(0).stats().in_use_bytes;
        of(&pair.a) + of(&pair.b)
    };
    for round in 0..8 {
        for port in 1..=SOCKETS {
            let how = to(addr(B4, port));
            let burst = how.segment_size(Some(1000));
            client.send(pair.now, &burst, &[&[1; 33_000]]).unwrap();
            client.send(pair.now, &how, &[b"x"]).unwrap();
            pair.settle();
            // All but the last few of the burst are read, and its chunk is pinned as before.
            let server = &servers[usize::from(port) - 1];
            while server.queued() > 2 + round {
                server.recv(pair.now, &mut [0; 1000]).unwrap();
            }
        }
        let memory = pair.b.udp_memory();
        assert!(memory.bytes <= memory.limit, "{memory:?}");
        let most = memory.limit + usize::from(SOCKETS) * UDP_MINIMUM;
        assert!(pinned(&pair) <= most, "{} bytes are pinned, {most} may be", pinned(&pair));
    }
    assert_ne!(pair.counter("UdpMemErrors").1, 0);
    drop(servers);
    assert_eq!((pinned(&pair), pair.b.udp_memory().bytes), (0, 0));
}

#[test]
fn drops_and_refusals_are_counted_for_each_version() {
    let (most, bytes) = (DATAGRAM_OVERHEAD, [1; 1000]);
    for v4 in [true, false] {
        let (theirs, link) = (if v4 { B4 } else { B6 }, LinkConfig::default());
        let mut pair = Pair::with(LinkConfig { rate: Some(1_000_000), ..link }, &[]);
        let server = pair.b.bind_udp(addr(theirs, 9)).unwrap();
        server.change_options(|options| options.rcvbuf = most).unwrap();
        let client = bind(&pair.a, "[::]:0");
        client.change_options(|options| options.sndbuf = 2 * (most + bytes.len())).unwrap();
        let how = to(addr(theirs, 9));
        let sent: Vec<_> = (0..3).map(|_| client.send(pair.now, &how, &[&bytes]).is_ok()).collect();
        assert_eq!(sent, [true, true, false]);
        pair.run(Duration::from_secs(1));
        pair.b.sysctl().set("net.ipv4.udp_mem", "1 1 1").unwrap();
        server.change_options(|options| options.rcvbuf = 1 << 20).unwrap();
        for _ in 0..5 {
            client.send(pair.now, &how, &[&bytes]).unwrap();
            pair.run(Duration::from_secs(1));
        }
        let (sndbuf, rcvbuf) = match v4 {
            true => (pair.counter("UdpSndbufErrors"), pair.counter("UdpRcvbufErrors")),
            false => (pair.counter("Udp6SndbufErrors"), pair.counter("Udp6RcvbufErrors")),
        };
        let memory = match v4 {
            true => pair.counter("UdpMemErrors"),
            false => pair.counter("Udp6MemErrors"),
        };
        // The first one binds a page and more.
        assert_eq!((sndbuf, rcvbuf, memory), ((1, 0), (0, 1), (0, 5)));
    }
}

#[test]
fn a_full_send_queue_is_would_block_until_a_completion() {
    let link = LinkConfig { rate: Some(1_000_000), ..LinkConfig::default() };
    let mut pair = Pair::with(link, &[]);
    let server = pair.b.bind_udp(addr(B4, 9)).unwrap();
    let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
    client.change_options(|options| options.sndbuf = 10_000).unwrap();
    let mut sent = 0;
    let refused = loop {
        match client.send(pair.now, &to(addr(B4, 9)), &[&[1; 1000]]) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refused, sent), (SocketError::WouldBlock, 9));
    assert_eq!(pair.counter("UdpSndbufErrors"), (1, 0));
    let (counting, waker) = CountingWaker::new();
    assert!(client.poll_writable(&waker).is_pending());
    assert!(pair.run_until(Duration::from_secs(5), |_| counting.count() > 0), "it is woken");
    assert!(client.send_queue_len() <= 5000, "half of it is free");
    assert!(client.poll_writable(&waker).is_ready());
    pair.run(Duration::from_secs(1));
    assert_eq!((server.queued(), client.send_queue_len()), (sent, 0));
}

#[test]
fn a_full_interface_is_would_block_and_ends_by_itself() {
    let link = LinkConfig { rate: Some(1_000_000), ..LinkConfig::default() };
    let mut pair = Pair::with(link, &[]);
    pair.a.set_qdisc(pair.now, 0, "pfifo limit 4").unwrap();
    let hog = pair.a.bind_udp(addr(A4, 0)).unwrap();
    hog.change_options(|options| options.sndbuf = 4 << 20).unwrap();
    while hog.send(pair.now, &to(addr(B4, 9)), &[&[1; 1000]]).is_ok() {}
    let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
    let blocked = client.send(pair.now, &to(addr(B4, 9)), &[b"late"]);
    assert_eq!(blocked, Err(SocketError::WouldBlock));
    assert_eq!(client.send_queue_len(), 0, "what was refused is not below");
    let (counting, waker) = CountingWaker::new();
    assert!(client.poll_writable(&waker).is_pending());
    // A packet of the hog takes 8 ms.
    pair.run(Duration::from_millis(3));
    assert_eq!(counting.count(), 0, "no packet has left");
    pair.run(Duration::from_millis(200));
    assert_eq!(counting.count(), 1);
    assert!(client.poll_writable(&waker).is_ready());
    assert_eq!(client.send(pair.now, &to(addr(B4, 9)), &[b"late"]), Ok(4));
}

#[test]
fn who_waits_for_an_interface_that_stands_still_may_use_others_and_hears_of_its_end() {
    let mut pair = Pair::new();
    let (far, there) = (addr("198.51.100.2", 9), addr(B4, 9));
    // The peer does not read it.
    let (device, _end) = channel(ChannelConfig::default().to_caller(2)).unwrap();
    let addresses = vec![(ip("198.51.100.1"), 24)];
    let second = pair.a.add_interface(InterfaceConfig { device, addresses, mtu: None }).unwrap();
    pair.a.set_qdisc(pair.now, second, "pfifo limit 4").unwrap();
    let socket = pair.a.bind_udp(addr("0.0.0.0", 0)).unwrap();
    let full = (0..100).find_map(|_| socket.send(pair.now, &to(far), &[&[1; 1000]]).err());
    assert_eq!(full, Some(SocketError::WouldBlock));
    assert!(socket.send_queue_len() < socket.options().sndbuf, "not its own bound");
    let (counting, waker) = CountingWaker::new();
    assert!(socket.poll_writable(&waker).is_pending());
    pair.run(Duration::from_secs(1));
    assert_eq!(counting.count(), 0);
    assert_eq!(socket.send(pair.now, &to(there), &[b"this way"]), Ok(8));
    pair.a.remove_interface(pair.now, second).unwrap();
    pair.settle();
    assert_eq!(counting.count(), 1);
    assert!(socket.poll_writable(&waker).is_ready());
}

#[test]
fn what_cannot_leave_says_why() {
    let pair = Pair::new();
    let socket = pair.a.bind_udp(addr(A4, 0)).unwrap();
    let send = |how: UdpTransmit, len| socket.send(pair.now, &how, &[&vec![0; len][..]]);
    assert_eq!(send(UdpTransmit::default(), 1), Err(SocketError::DestinationRequired));
    assert_eq!(send(to(addr(B4, 9)), 65_507), Ok(65_507));
    assert_eq!(send(to(addr(B4, 9)), 65_508), Err(SocketError::MessageTooLong));
    assert_eq!(send(to(addr("192.0.2.255", 9)), 1), Err(SocketError::BroadcastNotAllowed));
    for how in [
        to(addr(B4, 0)),
        to(addr(B6, 9)),
        UdpTransmit { segment_size: Some(0), ..to(addr(B4, 9)) },
        UdpTransmit { segment_size: Some(1), ..to(addr(B4, 9)) },
    ] {
        assert!(matches!(send(how, 65), Err(SocketError::Invalid(_))), "{how:?}");
    }
    let from = UdpTransmit { from: Some(ip(B4)), ..to(addr(B4, 9)) };
    assert_eq!(send(from, 1), Err(SocketError::AddrNotAvailable));
    let long = UdpTransmit { segment_size: Some(1473), ..to(addr(B4, 9)) };
    assert_eq!(send(long, 3000), Err(SocketError::MessageTooLong), "the segment is what counts");
    for discovery in [PathMtuDiscovery::DontFragment, PathMtuDiscovery::Probe] {
        socket.change_options(|options| options.path_mtu_discovery = discovery).unwrap();
        assert_eq!(send(to(addr(B4, 9)), 1472), Ok(1472));
        assert_eq!(send(to(addr(B4, 9)), 1473), Err(SocketError::MessageTooLong));
    }
}

#[test]
fn long_datagrams_leave_in_fragments() {
    for (theirs, version, longest) in [(B4, "Ip", 65_507), (B6, "Ip6", 65_527)] {
        let link = LinkConfig { offloads: false, ..LinkConfig::default() };
        let mut pair = Pair::with(link, &[]);
        let server = pair.b.bind_udp(addr(theirs, 9)).unwrap();
        let client = bind(&pair.a, "[::]:0");
        for len in [1473, 4000, longest] {
            let data = pattern(len, len as u64);
            client.send(pair.now, &to(addr(theirs, 9)), &[&data]).unwrap();
            pair.settle();
            let got = read(&server, pair.now);
            assert!(got.len() == 1 && got[0].1 == data, "{version} {len}");
        }
        assert_eq!(client.send_queue_len(), 0, "completed");
        let count = |name: &str| pair.counter(&format!("{version}{name}"));
        assert_eq!((count("FragOKs"), count("ReasmOKs")), ((3, 0), (0, 3)));
        let created = match version {
            "Ip" => pair.counter("IpFragCreates"),
            _ => pair.counter("Ip6FragCreates"),
        };
        assert_eq!(created, (count("ReasmReqds").1, 0));
        assert!(created.0 >= 2 + 3 + 45);
        assert_eq!(count("OutRequests").0, 3, "as on Linux, one for each datagram");
    }
}

#[test]
fn fragments_that_find_no_room_are_not_silent() {
    let link = LinkConfig { rate: Some(1_000_000), ..LinkConfig::default() };
    let pair = Pair::with(link, &[]);
    pair.a.set_qdisc(pair.now, 0, "pfifo limit 4").unwrap();
    let client = bind(&pair.a, "[::]:0");
    for (there, name) in [(B4, "IpFragFails"), (B6, "Ip6FragFails")] {
        let sent = client.send(pair.now, &to(addr(there, 9)), &[&[1; 40_000]]);
        assert_eq!((sent, pair.counter(name)), (Err(SocketError::WouldBlock), (1, 0)));
    }
}

#[test]
fn segments_of_one_size_leave_as_one_and_arrive_as_one() {
    for (offloads, theirs) in [(true, B4), (true, B6), (false, B4), (false, B6)] {
        let mut pair = Pair::with(LinkConfig { offloads, ..LinkConfig::default() }, &[]);
        let server = pair.b.bind_udp(addr(theirs, 9)).unwrap();
        let client = bind(&pair.a, "[::]:0");
        let data = pattern(10_500, 3);
        let how = UdpTransmit { segment_size: Some(1000), ..to(addr(theirs, 9)) };
        assert_eq!(client.send(pair.now, &how, &[&data]), Ok(10_500));
        pair.settle();
        let mut buf = vec![0; 65_535];
        let mut all = Vec::new();
        let mut trains = 0;
        while let Ok(read) = server.recv_train(pair.now, &mut buf) {
            assert!(read.stride == 1000 || read.len < 1000);
            all.extend_from_slice(&buf[..read.len]);
            trains += 1;
        }
        assert_eq!(all, data);
        let version = if ip(theirs).is_ipv4() { "Udp" } else { "Udp6" };
        let count = |name: &str| pair.counter(&format!("{version}{name}"));
        assert_eq!((count("OutDatagrams").0, count("InDatagrams").1), (11, 11));
        assert_eq!(trains == 1, offloads);
        assert_eq!(pair.counter("plimsoll.GsoSoftware").0, u64::from(!offloads));
    }
}

#[test]
fn checksums_are_checked_and_ipv6_needs_one() {
    let mut bare = Bare::new(&[]);
    let server = bind(&bare.a, "[::]:9");
    let (four, six) = (datagram(ip(B4), ip(A4), b"good"), datagram(ip(B6), ip(A6), b"good"));
    let without = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[6..8].fill(0);
        bytes
    };
    let broken = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    for packet in [&four[..], &without(&four), &broken(&four)] {
        assert!(bare.exchange(&v4(protocol::UDP, packet)).is_empty());
    }
    for packet in [&six[..], &without(&six), &broken(&six)] {
        assert!(bare.exchange(&v6(protocol::UDP, packet)).is_empty());
    }
    assert_eq!(texts(&server, bare.now), ["good"; 3]);
    assert_eq!((bare.count("UdpInCsumErrors"), bare.count("UdpInErrors")), (1, 1));
    assert_eq!((bare.count("Udp6InCsumErrors"), bare.count("Udp6InErrors")), (2, 2));
    assert_eq!((bare.count("UdpInDatagrams"), bare.count("Udp6InDatagrams")), (2, 1));
    // Headers that lie about their length.
    for len in [0_u16, 7, 13, 0xffff] {
        let mut bytes = four.clone();
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        bare.exchange(&v4(protocol::UDP, &bytes));
        bare.exchange(&v4(protocol::UDP, &bytes[..4]));
    }
    assert_eq!((bare.count("UdpInErrors"), server.queued()), (9, 0));
}

#[test]
fn groups_and_broadcast() {
    let mut pair = Pair::new();
    let group = addr("239.1.2.3", 9);
    let member = bind(&pair.b, "0.0.0.0:9");
    let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
    let here = bind(&pair.a, "0.0.0.0:9");
    let send = |pair: &mut Pair, there, text: &str| {
        client.send(pair.now, &to(there), &[text.as_bytes()]).unwrap();
        pair.settle();
    };
    send(&mut pair, group, "nobody");
    assert_eq!(pair.counter("IpInAddrErrors").1, 1);
    member.join_group(group.ip()).unwrap();
    here.join_group(group.ip()).unwrap();
    assert_eq!(member.join_group(group.ip()), Err(SocketError::AddrInUse));
    assert!(member.join_group(ip(A4)).is_err());
    send(&mut pair, group, "all");
    assert_eq!(
        (texts(&member, pair.now), texts(&here, pair.now)),
        (vec!["all".into()], vec!["all".into()])
    );
    client.change_options(|options| options.multicast_loop = false).unwrap();
    send(&mut pair, group, "others");
    assert_eq!((texts(&member, pair.now).len(), texts(&here, pair.now).len()), (1, 0));
    member.leave_group(group.ip()).unwrap();
    assert_eq!(member.leave_group(group.ip()), Err(SocketError::AddrNotAvailable));
    send(&mut pair, group, "nobody");
    client.change_options(|options| options.broadcast = true).unwrap();
    for there in ["192.0.2.255", "255.255.255.255"] {
        send(&mut pair, addr(there, 9), there);
        let got = (texts(&member, pair.now), texts(&here, pair.now));
        assert_eq!(got, (vec![there.to_owned()], vec![there.to_owned()]));
    }
    // A broadcast is never answered: no ICMP, whatever the port.
    send(&mut pair, addr("192.0.2.255", 77), "closed");
    assert_eq!(pair.counter("IcmpOutMsgs"), (0, 0));
}

#[test]
fn the_end_of_the_stack_and_of_a_socket_wake_who_waits() {
    let pair = Pair::new();
    let socket = pair.a.bind_udp(addr(A4, 9)).unwrap();
    let (counting, waker) = CountingWaker::new();
    assert!(socket.poll_readable(&waker).is_pending());
    socket.close(pair.now);
    assert_eq!(counting.count(), 1);
    assert_eq!(socket.recv(pair.now, &mut [0; 9]), Err(SocketError::Closed));
    let other = pair.a.bind_udp(addr(A4, 9)).unwrap();
    assert!(other.poll_readable(&waker).is_pending());
    pair.a.end(pair.now, crate::StackError::ShutDown);
    assert_eq!(counting.count(), 2);
    assert_eq!(other.recv(pair.now, &mut [0; 9]), Err(SocketError::NetworkDown));
    assert!(other.poll_writable(Waker::noop()).is_ready());
    let sent = other.send(pair.now, &to(addr(B4, 9)), &[b"x"]);
    assert_eq!(sent, Err(SocketError::NetworkDown));
}

#[test]
fn a_turn_of_the_loop_comes_with_datagrams_as_well() {
    let mut pair = Pair::new();
    let server = pair.b.bind_udp(addr(B4, 9)).unwrap();
    let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
    client.send(pair.now, &to(addr(B4, 9)), &[b"turn"]).unwrap();
    let mut turns = 0;
    let mut turn = || turns += usize::from(server.queued() == 1);
    pair.b.poll_with(pair.now, 64, &mut turn).unwrap();
    assert_eq!(turns, 1);
    pair.settle();
}
