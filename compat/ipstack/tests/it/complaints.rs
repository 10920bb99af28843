//! Complaints of users of such stacks, tested through the facade.
use std::collections::VecDeque;
use std::io::ErrorKind;

use crate::common::{
    Changed, Passage, WEB, accept_tcp, accept_udp, at, client, client_with, config, ends, joined,
    pair, pattern,
};
use ipstack::{IpNumber, IpStack, IpStackStream};
use plimsoll::device::fault::FaultConfig;
use plimsoll::net::{TcpStream, UdpSocket};
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};

/// The client ends its direction, and still receives everything.
#[tokio::test]
async fn a_half_close_goes_through() {
    let (client, mut stack) = joined();
    let (mut near, mut far) = pair(&client, &mut stack).await;
    near.write_all(b"all that I have").await.unwrap();
    near.shutdown().await.unwrap();
    let mut request = Vec::new();
    ends(far.read_to_end(&mut request)).await.unwrap();
    assert_eq!(request, b"all that I have");
    let answer = pattern(300_000);
    let (mut heard, expected) = (Vec::new(), answer.clone());
    let answering = async {
        far.write_all(&answer).await.unwrap();
        far.shutdown().await.unwrap();
    };
    ends(async { tokio::join!(answering, near.read_to_end(&mut heard)) }).await.1.unwrap();
    assert!(heard == expected);
}

/// Clients leave in every way, a thousand times, and nothing of it stays.
#[tokio::test]
async fn connections_that_somebody_walks_away_from_leave_nothing() {
    let (client, mut stack) = joined();
    for turn in 0..1000 {
        let (mut near, mut far) = pair(&client, &mut stack).await;
        match turn % 4 {
            0 => near.shutdown().await.unwrap(),
            1 => drop(far),
            2 => {
                near.set_zero_linger().unwrap();
                drop(near);
                let reset = ends(far.read_u8()).await.unwrap_err();
                assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
            }
            _ => {
                drop(near);
                assert_eq!(ends(far.read(&mut [0; 8])).await.unwrap(), 0);
            }
        }
    }
    let (mut near, mut far) = pair(&client, &mut stack).await;
    far.write_all(b"still here").await.unwrap();
    let mut word = [0; 10];
    ends(near.read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"still here");
}

/// Over a path that loses and reorders, everything arrives, once and in its order.
#[tokio::test]
async fn large_transfers_are_whole_both_ways() {
    let fault = FaultConfig::default().loss(0.005).reorder(0.01).duplicate(0.005).seed(7);
    let (client, packets) = client_with(fault);
    let mut stack = IpStack::new(config(), packets);
    let (near, far) = pair(&client, &mut stack).await;
    let (mut near_read, mut near_write) = split(near);
    let (mut far_read, mut far_write) = split(far);
    let data = pattern(3_000_000);
    let (mut down, mut up) = (Vec::new(), Vec::new());
    ends(async {
        tokio::join!(
            async {
                far_write.write_all(&data).await.unwrap();
                far_write.shutdown().await.unwrap();
            },
            async {
                near_write.write_all(&data).await.unwrap();
                near_write.shutdown().await.unwrap();
            },
            async { near_read.read_to_end(&mut down).await.unwrap() },
            async { far_read.read_to_end(&mut up).await.unwrap() },
        )
    })
    .await;
    assert!(down == data, "downloaded");
    assert!(up == data, "uploaded");
}

/// The client does not read until its window is closed, again and again.
#[tokio::test]
async fn a_closed_window_opens_again() {
    let (client, mut stack) = joined();
    let (mut near, mut far) = pair(&client, &mut stack).await;
    for _round in 0..3 {
        let mut written = 0;
        // Until a write has to wait: the window and the buffer are full.
        while let Some(bytes) = now(far.write(&[0x5a; 65_536])).await {
            written += bytes.unwrap();
        }
        assert!(written > 65_536, "{written}");
        let mut left = written;
        let mut buffer = vec![0; 32_768];
        while left > 0 {
            left -= ends(near.read(&mut buffer)).await.unwrap();
        }
    }
}

/// The output of `future`, if it is ready soon.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(std::time::Duration::from_millis(300), future).await.ok()
}

/// A request and an answer, a thousand times, with a task for each half at either end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_missed() {
    let (client, mut stack) = joined();
    let client_task = tokio::spawn(async move {
        let stream = TcpStream::connect_on(&client, WEB).await.unwrap();
        let (mut read, mut write) = split(stream);
        for turn in 0..1000_u32 {
            write.write_u32(turn).await.unwrap();
            assert_eq!(read.read_u32().await.unwrap(), turn);
        }
        client
    });
    // Both halves wait for the end of the handshake.
    let (mut read, mut write) = split(accept_tcp(&mut stack).await);
    let (to_writer, mut from_reader) = tokio::sync::mpsc::channel(1);
    let reader = tokio::spawn(async move {
        while let Ok(number) = read.read_u32().await {
            to_writer.send(number).await.unwrap();
        }
    });
    let writer = tokio::spawn(async move {
        write.write_all(&[]).await.unwrap();
        while let Some(number) = from_reader.recv().await {
            write.write_u32(number).await.unwrap();
        }
    });
    ends(client_task).await.unwrap();
    ends(reader).await.unwrap();
    ends(writer).await.unwrap();
}

/// Five hundred connects at once: each gets its answer, and none a reset.
#[tokio::test]
async fn parallel_connects_all_get_through() {
    const CONNECTS: u16 = 500;
    let (client, mut stack) = joined();
    let clients: Vec<_> = (1..=CONNECTS)
        .map(|port| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut stream = TcpStream::connect_on(&client, ("198.51.100.7", port)).await?;
                stream.read_u16().await
            })
        })
        .collect();
    for _connect in 0..CONNECTS {
        let mut stream = accept_tcp(&mut stack).await;
        tokio::spawn(async move { stream.write_u16(stream.peer_addr().port()).await });
    }
    for (client, port) in clients.into_iter().zip(1..) {
        assert_eq!(ends(client).await.unwrap().unwrap(), port);
    }
}

/// Both ends of connections that have carried data and are at rest cost little together.
#[test]
fn connections_at_rest_hold_no_buffers() {
    const CONNECTIONS: usize = 200;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, mut stack) = runtime.block_on(async { joined() });
    let open = async |stack: &mut IpStack| {
        let (mut near, mut far) = pair(&client, stack).await;
        near.write_all(&[1; 4000]).await.unwrap();
        far.read_exact(&mut [0; 4000]).await.unwrap();
        far.write_all(&[2; 4000]).await.unwrap();
        near.read_exact(&mut [0; 4000]).await.unwrap();
        (near, far)
    };
    // The first connection allocates the memory that the stacks themselves need.
    let mut held = vec![runtime.block_on(open(&mut stack))];
    held.reserve(CONNECTIONS);
    let used = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _connection in 0..CONNECTIONS {
                held.push(open(&mut stack).await);
            }
        });
    });
    let each = used.bytes_current / CONNECTIONS as i64;
    assert!(each < 16_384, "{each} bytes for both ends of a connection");
}

/// The client's socket is gone, and the program gets an error, unlike for packets that vanish.
#[tokio::test]
async fn a_port_that_is_closed_is_told() {
    let (client, mut stack) = joined();
    let socket = UdpSocket::bind_on(&client, "192.0.2.1:4000").await.unwrap();
    socket.send_to(b"who?", at("198.51.100.7:53")).await.unwrap();
    let mut flow = accept_udp(&mut stack).await;
    let mut question = [0; 16];
    assert_eq!(ends(flow.read(&mut question)).await.unwrap(), 4);
    drop(socket);
    flow.write_all(b"me").await.unwrap();
    let told = ends(flow.read(&mut question)).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::ConnectionRefused);
    // The message itself is for the program, too.
    let IpStackStream::UnknownTransport(message) = ends(stack.accept()).await.unwrap() else {
        panic!("ICMP is a protocol of its own");
    };
    assert_eq!((message.ip_protocol(), message.payload()[0]), (IpNumber::ICMP, 3));
}

/// Each flow has a time of its own: one that is used goes on while another ends.
#[tokio::test]
async fn flows_end_one_by_one() {
    let (client, packets) = client();
    let mut config = config();
    // A machine that is busy may stop this test for less than that.
    config.udp_timeout(std::time::Duration::from_secs(3));
    let mut stack = IpStack::new(config, packets);
    let used = UdpSocket::bind_on(&client, "192.0.2.1:0").await.unwrap();
    let unused = UdpSocket::bind_on(&client, "192.0.2.1:0").await.unwrap();
    used.send_to(b"one", at("198.51.100.7:53")).await.unwrap();
    let mut used_flow = accept_udp(&mut stack).await;
    unused.send_to(b"two", at("198.51.100.7:53")).await.unwrap();
    let mut unused_flow = accept_udp(&mut stack).await;
    let mut datagram = [0; 16];
    assert_eq!(ends(unused_flow.read(&mut datagram)).await.unwrap(), 3);
    // It ends while the other is talked on.
    let end = tokio::spawn(async move { unused_flow.read(&mut [0; 16]).await });
    while !end.is_finished() {
        used.send_to(b"one", at("198.51.100.7:53")).await.unwrap();
        assert_eq!(ends(used_flow.read(&mut datagram)).await.unwrap(), 3);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(end.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
}

/// The path to the client carries less than the MTU says. A router reports it, and segments shrink.
#[tokio::test]
async fn a_path_that_carries_less_than_the_mtu_is_learned() {
    const NARROW: usize = 1400;
    let (client, packets) = client();
    let mut told = 0;
    let router = move |packet: &[u8]| {
        let Ok((header, begin)) = Ipv4Repr::parse(packet) else { return Passage::On };
        if packet.len() <= NARROW {
            return Passage::On;
        }
        assert!(header.dont_frag, "it would be cut in two for ever");
        told += 1;
        assert!(told < 64, "the MTU is not learned");
        let quoted = &packet[..begin + 8];
        let next_hop_mtu = NARROW as u16;
        let message = Icmpv4Repr::Unreachable { code: 4, next_hop_mtu, packet: quoted };
        let header = Ipv4Repr {
            src: [192, 0, 2, 254].into(),
            dst: header.src,
            protocol: protocol::ICMP,
            payload_len: message.len(),
            ..header
        };
        let mut answer = vec![0; 20 + message.len()];
        header.emit(&mut answer);
        message.emit(&mut answer[20..]);
        Passage::Back(answer)
    };
    let device = Changed { inner: packets, change: router, back: VecDeque::new() };
    let mut stack = IpStack::new(config(), device);
    let (mut near, mut far) = pair(&client, &mut stack).await;
    let data = pattern(200_000);
    let mut heard = vec![0; data.len()];
    let both = async { tokio::join!(far.write_all(&data), near.read_exact(&mut heard)) };
    let (written, read) = ends(both).await;
    written.unwrap();
    read.unwrap();
    assert!(heard == data);
}

/// Pings are the program's, which answers them or asks elsewhere.
#[tokio::test]
async fn pings_are_answered_by_the_program() {
    let (mut wire, device) = crate::common::wire();
    let mut stack = IpStack::new(config(), device);
    let request = Icmpv4Repr::EchoRequest { ident: 7, seq: 1, data: &[9; 2000] };
    let mut packet = vec![0; 20 + request.len()];
    let header = Ipv4Repr {
        src: [192, 0, 2, 1].into(),
        dst: [198, 51, 100, 7].into(),
        protocol: protocol::ICMP,
        ttl: 64,
        tos: 0,
        ident: 1,
        dont_frag: false,
        more_frags: false,
        frag_offset: 0,
        payload_len: request.len(),
    };
    header.emit(&mut packet);
    request.emit(&mut packet[20..]);
    wire.to_facade.send(Ok(packet)).unwrap();
    let IpStackStream::UnknownTransport(asked) = ends(stack.accept()).await.unwrap() else {
        panic!("ICMP is a protocol of its own");
    };
    assert_eq!(asked.dst_addr(), at(WEB).ip());
    let mut reply = vec![0; request.len()];
    Icmpv4Repr::EchoReply { ident: 7, seq: 1, data: &[9; 2000] }.emit(&mut reply);
    asked.send(reply.clone()).unwrap();
    let mut whole = Vec::new();
    while whole.len() < reply.len() {
        let part = ends(wire.from_facade.recv()).await.unwrap();
        let (header, begin) = Ipv4Repr::parse(&part).unwrap();
        assert_eq!((header.src, header.dst), ([198, 51, 100, 7].into(), [192, 0, 2, 1].into()));
        assert!(part.len() <= 1500);
        whole.extend_from_slice(&part[begin..]);
    }
    assert!(whole == reply);
}
