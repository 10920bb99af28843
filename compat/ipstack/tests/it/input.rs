//! Mistakes of a program, a device or a client.
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Duration;

use crate::common::{
    Changed, Passage, accept_tcp, accept_udp, at, client, config, ends, joined, pair, pattern, wire,
};
use ipstack::{IpStack, IpStackConfig, IpStackError, IpStackStream, TcpConfig, TcpOptions};
use plimsoll::net::{TcpStream, UdpSocket};
use plimsoll_wire::ipv4::Ipv4Repr;
use plimsoll_wire::tcp::{CHECKSUM_OFFSET, TcpFlags, TcpRepr};
use plimsoll_wire::{SeqNum, checksum, protocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn assert_send_sync<T: Send + Sync>() {}

#[test]
fn types_may_be_sent_and_shared() {
    assert_send_sync::<IpStackStream>();
    assert_send_sync::<IpStackError>();
    assert_send_sync::<IpStackConfig>();
    assert_send_sync::<IpStack>();
}

/// Why a stack with `config` accepts nothing.
async fn refusal(config: IpStackConfig) -> io::Error {
    let mut stack = IpStack::new(config, wire().1);
    match ends(stack.accept()).await {
        Err(IpStackError::IoError(error)) => error,
        other => panic!("{:?}", other.map(|stream| stream.peer_addr())),
    }
}

#[tokio::test]
async fn what_cannot_be_honoured_is_an_error_that_names_it() {
    let mut config = config();
    config.mtu_unchecked(500);
    let error = refusal(config).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("mtu: 500 is less than the 576"), "{error}");
    let mut config = crate::common::config();
    config.udp_timeout(Duration::ZERO);
    let error = refusal(config).await;
    assert!(error.to_string().starts_with("udp_timeout: "), "{error}");
    let mut tcp = TcpConfig::default();
    tcp.last_ack_timeout = Duration::from_secs(2);
    let mut config = crate::common::config();
    config.with_tcp_config(tcp);
    let error = refusal(config).await;
    assert!(error.to_string().starts_with("tcp_config.last_ack_timeout: 2s"), "{error}");
}

#[test]
fn an_mtu_below_that_of_ipv6_is_refused() {
    let error = IpStackConfig::default().mtu(1279).err().unwrap();
    assert!(matches!(error, IpStackError::InvalidMtuSize(1279)), "{error}");
}

#[tokio::test]
async fn a_device_that_ends_ends_everything() {
    let (client, packets) = client();
    let (mut stack, to_client) = {
        let (wire, device) = wire();
        let stack = IpStack::new(config(), device);
        let mut packets = packets;
        let crate::common::Wire { to_facade, mut from_facade } = wire;
        // The way between the two, until the test ends it.
        let way = tokio::spawn(async move {
            let mut buffer = vec![0; 1500];
            loop {
                tokio::select! {
                    read = packets.read(&mut buffer) => {
                        let _ = to_facade.send(Ok(buffer[..read.unwrap()].to_vec()));
                    }
                    written = from_facade.recv() => {
                        let Some(written) = written else { return };
                        packets.write_all(&written).await.unwrap();
                    }
                }
            }
        });
        (stack, way)
    };
    let (_near, mut far) = pair(&client, &mut stack).await;
    to_client.abort();
    let error = ends(stack.accept()).await.err().unwrap();
    assert!(matches!(error, IpStackError::AcceptError), "{error}");
    let error = ends(far.read_u8()).await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
}

#[tokio::test]
async fn a_device_that_fails_is_an_error_that_says_so() {
    let (wire, device) = wire();
    let mut stack = IpStack::new(config(), device);
    wire.to_facade.send(Err(io::Error::other("unplugged"))).unwrap();
    for _again in 0..2 {
        let Err(IpStackError::IoError(error)) = ends(stack.accept()).await else {
            panic!("the device has failed");
        };
        assert_eq!(error.to_string(), "the device has failed: unplugged");
    }
}

/// A device that is asked again and again before it takes a packet.
#[tokio::test]
async fn a_device_that_does_not_keep_up_loses_nothing() {
    let (client, packets) = client();
    let mut asked = 0;
    let slow = move |_packet: &[u8]| {
        asked += 1;
        if asked % 3 == 0 { Passage::On } else { Passage::Wait }
    };
    let device = Changed { inner: packets, change: slow, back: VecDeque::new() };
    let mut stack = IpStack::new(config(), device);
    let (mut near, mut far) = pair(&client, &mut stack).await;
    let data = pattern(500_000);
    let mut heard = vec![0; data.len()];
    let both = async { tokio::join!(far.write_all(&data), near.read_exact(&mut heard)) };
    let (written, read) = ends(both).await;
    written.unwrap();
    read.unwrap();
    assert!(heard == data);
}

#[tokio::test]
async fn a_stack_that_is_dropped_lets_its_device_and_streams_go() {
    let (wire, device) = wire();
    let stack = IpStack::new(config(), device);
    drop(stack);
    ends(wire.to_facade.closed()).await;
    let (client, mut stack) = joined();
    let (_near, mut far) = pair(&client, &mut stack).await;
    drop(stack);
    let error = ends(far.read_u8()).await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
}

/// Bytes of all kinds, also such as begin like packets, do no harm.
#[tokio::test]
async fn bytes_of_any_kind_do_no_harm() {
    let (mut wire, device) = wire();
    let mut stack = IpStack::new(config(), device);
    let mut number = 1_u32;
    let mut random = move || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        number >> 8
    };
    let syn = syn(4000, 1);
    for turn in 0..5000 {
        let mut bytes: Vec<u8> = match turn % 3 {
            0 => (0..random() % 100).map(|_| random() as u8).collect(),
            1 => [0x45, 0x60, 0x4f][random() as usize % 3..].to_vec(),
            _ => syn.clone(),
        };
        if bytes.is_empty() {
            continue;
        }
        let flip = random() as usize % bytes.len();
        bytes[flip] ^= 1 << (random() % 8);
        wire.to_facade.send(Ok(bytes)).unwrap();
        if turn % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    // A client with valid packets is served.
    wire.to_facade.send(Ok(self::syn(5000, 9))).unwrap();
    loop {
        if ends(stack.accept()).await.unwrap().local_addr() == at("192.0.2.1:5000") {
            break;
        }
    }
    loop {
        let packet = ends(wire.from_facade.recv()).await.unwrap();
        let (header, begin) = Ipv4Repr::parse(&packet).unwrap();
        let Ok((answer, _)) = TcpRepr::parse(&packet[begin..]) else { continue };
        if header.dst.octets() == [192, 0, 2, 1] && answer.dst_port == 5000 {
            assert!(answer.flags.contains(TcpFlags::SYN) && answer.flags.contains(TcpFlags::ACK));
            break;
        }
    }
}

/// Data whose sequence numbers wrap arrives in order.
#[tokio::test]
async fn sequence_numbers_wrap() {
    const FIRST: u32 = u32::MAX - 1500;
    let (mut wire, device) = wire();
    let mut stack = IpStack::new(config(), device);
    wire.to_facade.send(Ok(syn(4000, FIRST))).unwrap();
    let mut stream = accept_tcp(&mut stack).await;
    let answer = ends(wire.from_facade.recv()).await.unwrap();
    let (answer, _) = TcpRepr::parse(&answer[20..]).unwrap();
    let ack = Some(answer.seq.0.wrapping_add(1));
    let data = pattern(3000);
    let mut seq = FIRST.wrapping_add(1);
    for part in data.chunks(1000) {
        wire.to_facade.send(Ok(segment(4000, seq, ack, part))).unwrap();
        seq = seq.wrapping_add(1000);
    }
    let mut heard = vec![0; data.len()];
    ends(stream.read_exact(&mut heard)).await.unwrap();
    assert!(heard == data);
}

/// A SYN to port 80.
fn syn(port: u16, seq: u32) -> Vec<u8> {
    segment(port, seq, None, &[])
}

/// A segment to port 80: a SYN, unless it acknowledges something.
fn segment(port: u16, seq: u32, ack: Option<u32>, data: &[u8]) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: port,
        dst_port: 80,
        seq: SeqNum(seq),
        ack: SeqNum(ack.unwrap_or(0)),
        flags: if ack.is_none() { TcpFlags::SYN } else { TcpFlags::ACK },
        window: 65_535,
        ..TcpRepr::default()
    };
    let payload_len = repr.header_len() + data.len();
    let header = Ipv4Repr {
        src: [192, 0, 2, 1].into(),
        dst: [198, 51, 100, 7].into(),
        protocol: protocol::TCP,
        ttl: 64,
        tos: 0,
        ident: 0,
        dont_frag: true,
        more_frags: false,
        frag_offset: 0,
        payload_len,
    };
    let mut out = vec![0; 20 + payload_len];
    header.emit(&mut out);
    let begin = 20 + repr.emit(&mut out[20..]);
    out[begin..].copy_from_slice(data);
    let sum = checksum::pseudo_header_v4(header.src, header.dst, protocol::TCP, payload_len as u32);
    checksum::fill(sum, &mut out[20..], CHECKSUM_OFFSET);
    out
}

/// No data moves for the configured time: the read fails, and the client is reset.
#[tokio::test]
async fn an_idle_stream_ends() {
    let (client, packets) = client();
    let mut tcp = TcpConfig::default();
    tcp.timeout = Duration::from_millis(50);
    let mut config = config();
    config.with_tcp_config(tcp);
    let mut stack = IpStack::new(config, packets);
    let (mut near, mut far) = pair(&client, &mut stack).await;
    let error = ends(far.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(far.write_u8(1).await.unwrap_err().kind(), ErrorKind::TimedOut);
    let error = ends(near.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// No segment is longer than the configured MSS.
#[tokio::test]
async fn the_mss_is_what_the_configuration_says() {
    let (mut wire, device) = wire();
    let mut tcp = TcpConfig::default();
    tcp.options = Some(vec![TcpOptions::MaximumSegmentSize(900)]);
    let mut config = config();
    config.with_tcp_config(tcp);
    let mut stack = IpStack::new(config, device);
    wire.to_facade.send(Ok(syn(4000, 1))).unwrap();
    let _stream = accept_tcp(&mut stack).await;
    let answer = ends(wire.from_facade.recv()).await.unwrap();
    let (answer, _) = TcpRepr::parse(&answer[20..]).unwrap();
    assert_eq!(answer.options.syn().mss, Some(900));
}

/// With packet information every packet has four bytes before it, in both directions.
#[tokio::test]
async fn packet_information_is_taken_and_given() {
    let (mut wire, device) = wire();
    let mut config = config();
    config.packet_information(true);
    let mut stack = IpStack::new(config, device);
    let packet = [&[0, 0, 8, 0], &syn(4000, 1)[..]].concat();
    wire.to_facade.send(Ok(packet)).unwrap();
    let _stream = accept_tcp(&mut stack).await;
    let answer = ends(wire.from_facade.recv()).await.unwrap();
    assert_eq!(answer[..4], [0, 0, 8, 0]);
    let (header, _) = Ipv4Repr::parse(&answer[4..]).unwrap();
    assert_eq!(header.dst, std::net::Ipv4Addr::from([192, 0, 2, 1]));
}

/// Datagrams keep their boundaries, also such as are longer than the MTU.
#[tokio::test]
async fn groups_and_broadcasts_are_streams_to_be_read() {
    let (client, mut stack) = joined();
    let socket = UdpSocket::bind_on(&client, "192.0.2.1:0").await.unwrap();
    socket.set_broadcast(true).unwrap();
    for to in ["239.255.255.250:1900", "224.0.0.1:9", "255.255.255.255:67"] {
        socket.send_to(b"anybody?", at(to)).await.unwrap();
        let mut flow = accept_udp(&mut stack).await;
        assert_eq!(flow.peer_addr(), at(to));
        let mut buffer = [0; 100];
        assert_eq!(ends(flow.read(&mut buffer)).await.unwrap(), 8);
        // Such an address is no source.
        let error = ends(flow.write(b"here")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    }
}

#[tokio::test]
async fn datagrams_of_many_sizes_keep_their_boundaries() {
    let (client, mut stack) = joined();
    for (from, to) in [("192.0.2.1:0", "198.51.100.7:53"), ("[2001:db8::1]:0", "[2001:db8::7]:53")]
    {
        let socket = UdpSocket::bind_on(&client, from).await.unwrap();
        socket.connect(at(to)).await.unwrap();
        socket.send(b"?").await.unwrap();
        let mut flow = accept_udp(&mut stack).await;
        assert_eq!(flow.peer_addr(), at(to));
        let mut buffer = vec![0; 65_535];
        assert_eq!(ends(flow.read(&mut buffer)).await.unwrap(), 1);
        for len in [1, 2, 1000, 1452, 1473, 8000, 60_000] {
            let datagram = pattern(len);
            // An empty one would be the end of the stream.
            socket.send(&[]).await.unwrap();
            socket.send(&datagram).await.unwrap();
            assert_eq!(ends(flow.read(&mut buffer)).await.unwrap(), len);
            assert!(buffer[..len] == datagram);
            flow.write_all(&datagram).await.unwrap();
            assert_eq!(ends(socket.recv(&mut buffer)).await.unwrap(), len);
            assert!(buffer[..len] == datagram);
        }
        assert!(flow.write_all(&[0; 65_600]).await.is_err(), "no datagram is that long");
    }
}

/// A client that goes before its handshake is over, and streams that are dropped before.
#[tokio::test]
async fn handshakes_that_nobody_waits_for_are_forgotten() {
    let (mut wire, device) = wire();
    let mut stack = IpStack::new(config(), device);
    wire.to_facade.send(Ok(syn(4000, 1))).unwrap();
    let stream = accept_tcp(&mut stack).await;
    let answer = ends(wire.from_facade.recv()).await.unwrap();
    assert!(TcpRepr::parse(&answer[20..]).unwrap().0.flags.contains(TcpFlags::SYN));
    drop(stream);
    let reset = ends(wire.from_facade.recv()).await.unwrap();
    assert!(TcpRepr::parse(&reset[20..]).unwrap().0.flags.contains(TcpFlags::RST));
}

/// The program can have IPv6 connections as well.
#[tokio::test]
async fn both_versions_of_ip_are_carried() {
    let (client, mut stack) = joined();
    let connect = TcpStream::connect_on(&client, "[2001:db8::7]:80");
    let (near, mut far) = ends(async { tokio::join!(connect, accept_tcp(&mut stack)) }).await;
    assert_eq!(far.peer_addr(), at("[2001:db8::7]:80"));
    assert_eq!(far.local_addr(), near.as_ref().unwrap().local_addr().unwrap());
    far.write_all(b"six").await.unwrap();
    let mut word = [0; 3];
    ends(near.unwrap().read_exact(&mut word)).await.unwrap();
    assert_eq!(&word, b"six");
}
