//! The stack counts any malformed packet and continues.

use proptest::prelude::*;

use plimsoll_tcp::Options;

use super::harness::*;
use super::icmp::Bare;

#[test]
fn malformed_packets_are_counted() {
    let mut bare = Bare::new(&[]);
    let listener = bare.a.listen(addr("::", 80), 16, Options::default()).unwrap();
    let cases: [(&str, &[u8], &str); 5] = [
        ("no version", &[0x15; 40], "IpInHdrErrors"),
        ("too short", &[0x45, 0, 0, 40], "IpInHdrErrors"),
        ("a bad checksum", &[0x45; 40], "IpInHdrErrors"),
        ("short IPv6", &[0x60; 20], "Ip6InHdrErrors"),
        (
            "IPv6 to nobody",
            &[
                0x60, 0, 0, 0, 0, 0, 6, 64, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
                0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            ],
            "Ip6InAddrErrors",
        ),
    ];
    for (name, bytes, counter) in cases {
        let before = bare.a.counter(counter).unwrap();
        assert!(bare.exchange(bytes).is_empty(), "{name}: no answer");
        assert_eq!(bare.a.counter(counter).unwrap(), before + 1, "{name}");
    }
    assert!(listener.accept(bare.now).unwrap().is_none());
}

/// A SYN from `source` to port 80 of `a`.
fn syn_from(source: &str) -> Vec<u8> {
    let syn = plimsoll_wire::tcp::TcpRepr {
        src_port: 5000,
        dst_port: 80,
        flags: plimsoll_wire::tcp::TcpFlags::SYN,
        window: 1000,
        ..plimsoll_wire::tcp::TcpRepr::default()
    };
    let mut segment = vec![0; syn.header_len()];
    syn.emit(&mut segment);
    let len = segment.len();
    let (mut bytes, pseudo) = match ip(source) {
        std::net::IpAddr::V4(src) => {
            let dst = A4.parse().unwrap();
            let repr = plimsoll_wire::ipv4::Ipv4Repr {
                src,
                dst,
                protocol: 6,
                ttl: 64,
                tos: 0,
                ident: 1,
                dont_frag: true,
                more_frags: false,
                frag_offset: 0,
                payload_len: len,
            };
            let mut bytes = vec![0; 20];
            repr.emit(&mut bytes);
            (bytes, plimsoll_wire::checksum::pseudo_header_v4(src, dst, 6, len as u32))
        }
        std::net::IpAddr::V6(src) => {
            let dst = A6.parse().unwrap();
            let mut bytes = vec![0x60, 0, 0, 0, 0, len as u8, 6, 64];
            bytes.extend(src.octets());
            bytes.extend(std::net::Ipv6Addr::octets(&dst));
            (bytes, plimsoll_wire::checksum::pseudo_header_v6(src, dst, 6, len as u32))
        }
    };
    plimsoll_wire::checksum::fill(pseudo, &mut segment, 16);
    bytes.extend(segment);
    bytes
}

#[test]
fn sources_that_cannot_be_are_dropped_and_counted() {
    let mut bare = Bare::new(&[]);
    let _listener = bare.a.listen(addr("::", 80), 16, Options::default()).unwrap();
    let martians = [
        ("192.0.2.0", "IpInAddrErrors"),
        ("192.0.2.255", "IpInAddrErrors"),
        (A4, "IpInAddrErrors"),
        ("0.1.2.3", "IpInAddrErrors"),
        ("127.0.0.1", "IpInAddrErrors"),
        ("255.255.255.255", "IpInAddrErrors"),
        ("224.0.0.1", "IpInAddrErrors"),
        ("::ffff:127.0.0.1", "Ip6InHdrErrors"),
        ("::ffff:192.0.2.2", "Ip6InHdrErrors"),
        ("::ffff:198.51.100.7", "Ip6InHdrErrors"),
        (A6, "Ip6InAddrErrors"),
        ("::1", "Ip6InAddrErrors"),
        ("ff02::1", "Ip6InAddrErrors"),
    ];
    for (source, counter) in martians {
        let before = bare.a.counter(counter).unwrap();
        assert!(bare.exchange(&syn_from(source)).is_empty(), "{source} is answered");
        assert_eq!(bare.a.counter(counter).unwrap(), before + 1, "{source}");
        assert_eq!(bare.a.sockets().len(), 1, "{source} opens nothing");
    }
    for source in [B4, "198.51.100.255", "192.0.3.0", B6] {
        assert_eq!(bare.exchange(&syn_from(source)).len(), 1, "{source} is answered");
    }
    let mut to_mapped = syn_from(B6);
    let mapped: std::net::Ipv6Addr = "::ffff:192.0.2.1".parse().unwrap();
    to_mapped[24..40].copy_from_slice(&mapped.octets());
    let before = bare.a.counter("Ip6InHdrErrors").unwrap();
    assert!(bare.exchange(&to_mapped).is_empty());
    assert_eq!(bare.a.counter("Ip6InHdrErrors").unwrap(), before + 1);
}

/// A packet that looks right in front: to us, from the peer, with a plausible protocol.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(any::<u8>(), 0..200);
    let next = prop::sample::select(vec![0_u8, 1, 6, 6, 6, 17, 43, 44, 51, 58, 58, 59, 60, 99]);
    (any::<bool>(), next, body, any::<u16>()).prop_map(|(v6, protocol, mut body, fragment)| {
        if protocol == 6 && body.len() >= 4 {
            // To the listener, or to the connection in SYN-SENT.
            let (from, to) = if fragment & 64 == 0 { (7_u16, 80_u16) } else { (80, 5000) };
            body[..2].copy_from_slice(&from.to_be_bytes());
            body[2..4].copy_from_slice(&to.to_be_bytes());
        }
        if v6 {
            let mut bytes = vec![0x60, 0, 0, 0, 0, body.len() as u8, protocol, 64];
            for text in [B6, A6] {
                let ip: std::net::Ipv6Addr = text.parse().unwrap();
                bytes.extend_from_slice(&ip.octets());
            }
            bytes.extend(body);
            bytes
        } else {
            let repr = plimsoll_wire::ipv4::Ipv4Repr {
                src: B4.parse().unwrap(),
                dst: A4.parse().unwrap(),
                protocol,
                ttl: 9,
                tos: 0,
                ident: 1,
                dont_frag: false,
                more_frags: fragment & 3 == 3,
                frag_offset: if fragment & 12 == 12 { fragment & 0xfff8 } else { 0 },
                payload_len: body.len(),
            };
            let mut bytes = vec![0; 20];
            repr.emit(&mut bytes);
            bytes.extend(body);
            bytes
        }
    })
}

/// Completes the transport checksum, so that the code after its check is reached.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    use crate::offload::Layout;
    use plimsoll_wire::checksum;
    let Some(layout) = Layout::of(&bytes) else { return bytes };
    let (at, end) = (layout.transport_at, bytes.len());
    let Some(field) = layout.checksum_at() else { return bytes };
    if field + 2 > end {
        return bytes;
    }
    let len = (end - at) as u32;
    let pseudo = if layout.version == 4 {
        let (src, dst) = (B4.parse().unwrap(), A4.parse().unwrap());
        checksum::pseudo_header_v4(src, dst, layout.protocol, len)
    } else {
        let (src, dst) = (B6.parse().unwrap(), A6.parse().unwrap());
        checksum::pseudo_header_v6(src, dst, layout.protocol, len)
    };
    checksum::fill(pseudo, &mut bytes[at..], field - at);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_packets_never_panic(
        packets in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                plausible(),
                plausible().prop_map(with_checksum),
            ],
            1..40,
        ),
    ) {
        let mut bare = Bare::new(&[]);
        let listener = bare.a.listen(addr("::", 80), 4, Options::default()).unwrap();
        let local = Some(addr(A4, 5000));
        let _client = bare.a.connect(bare.now, addr(B4, 80), local, Options::default());
        for packet in packets {
            bare.exchange(&packet);
            bare.now += plimsoll_tcp::Duration::from_millis(100);
        }
        while listener.accept(bare.now).unwrap().is_some() {}
        bare.a.sockets();
    }
}
