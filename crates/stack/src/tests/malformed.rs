//! Whatever arrives, the stack counts it and goes on.

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

/// Completes the transport checksum, so that what is behind it is reached.
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
