//! Packets in tunnels are read, and what is not read is named.

use std::path::PathBuf;

use proptest::prelude::*;

use super::builder::*;
use super::corpus;
use plimsoll_explain::{Options, Report, explain, explain_file, html_report, text_report};

/// The captures in tunnels, which hold the same packets.
fn captures() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(corpus::folder()).expect("the captures");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_tunnel = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tunnel-"))
    };
    let mut paths: Vec<PathBuf> = paths.filter(is_tunnel).collect();
    paths.sort();
    paths
}

#[test]
fn every_tunnel_says_what_its_packets_say_without_it() {
    let captures = captures();
    assert_eq!(captures.len(), 12);
    let mut first: Option<(u64, u64, Option<f64>)> = None;
    for path in captures {
        let report = explain_file(&path, &Options::default()).expect("a capture");
        assert_eq!(
            (report.packets, report.tcp_packets, report.flows.len()),
            (60, 60, 1),
            "{path:?}"
        );
        assert!(report.unread.is_empty(), "{path:?}: {:?}", report.unread);
        let flow = &report.flows[0];
        let found = &flow.findings[0];
        let bytes = flow.directions[0].bytes + flow.directions[1].bytes;
        let figures = (bytes, found.count, found.ms);
        assert_eq!(*first.get_or_insert(figures), figures, "{path:?}");
    }
}

/// A capture of one frame, cut nowhere.
fn one(link: u32, frame: &[u8]) -> Report {
    let mut talk = Talk::empty(Format { link, snaplen: 4096, ..Format::default() });
    talk.frame(1, frame);
    let report = talk.report();
    text_report(&report, 1);
    html_report(&report, 1);
    report
}

/// An IPv4 header with this protocol in front of a payload.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let [high, low] = len.to_be_bytes();
    let header = [0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    [&header[..], payload].concat()
}

fn ethernet(ethertype: u16) -> Vec<u8> {
    [&[2; 12][..], &ethertype.to_be_bytes(), &[0; 46]].concat()
}

#[test]
fn what_is_not_read_is_named() {
    let datagram = |port: u16| {
        let [high, low] = port.to_be_bytes();
        ipv4(17, &[&[200, 1, high, low, 0, 20, 0, 0][..], &[0; 12]].concat())
    };
    for (link, frame, name) in [
        (101, ipv4(50, &[0; 40]), "ESP (encrypted)"),
        (101, ipv4(132, &[0; 40]), "SCTP"),
        (101, ipv4(199, &[0; 40]), "IP protocol 199"),
        (101, ipv4(1, &[8, 0, 0, 0, 0, 0, 0, 0]), "ICMP"),
        (101, datagram(53), "UDP"),
        // No VXLAN: it lacks the flag.
        (101, datagram(4789), "UDP"),
        (101, datagram(51820), "WireGuard over UDP (encrypted)"),
        (101, datagram(4500), "ESP over UDP (encrypted)"),
        (101, ipv4(47, &[0, 0, 0x88, 0x3e, 0, 0, 0, 0]), "ethertype 0x883e"),
        (101, ipv4(47, &[0x40, 0, 8, 0, 0, 0, 0, 0]), "GRE with ethertype 0x0800"),
        (1, ethernet(0x0806), "ARP"),
        (1, ethernet(0x88e5), "MACsec (encrypted)"),
        (1, ethernet(0x1234), "ethertype 0x1234"),
        (1, ethernet(0x0026), "IEEE 802.3 (LLC)"),
        (9, vec![0xff, 3, 0xc0, 0x21, 1, 0, 0, 4], "PPP protocol 0xc021"),
        (105, vec![0; 50], "link type 105"),
    ] {
        let report = one(link, &frame);
        let said: Vec<_> =
            report.unread.iter().map(|unread| (unread.what.as_str(), unread.frames)).collect();
        assert_eq!(said, [(name, 1)]);
        let text = text_report(&report, 1);
        let said = format!("no TCP that can be read in this capture: it holds 1 frame of {name}");
        assert!(text.contains(&said), "{text}");
        assert_eq!(report.skipped.not_tcp + report.skipped.unknown_link, 1, "{name}");
    }
}

/// Names are bounded, and frames beyond are counted all the same.
#[test]
fn many_names_are_counted_together() {
    let mut talk = Talk::empty(Format { link: 1, ..Format::default() });
    for ethertype in 0..500 {
        talk.frame(u64::from(ethertype), &ethernet(0x9200 + ethertype));
    }
    let report = talk.report();
    assert!(report.unread.len() <= 65, "{}", report.unread.len());
    assert_eq!(report.unread.iter().map(|unread| unread.frames).sum::<u64>(), 500);
    assert_eq!(report.unread[0].what, "others");
}

#[test]
fn tunnels_in_tunnels_end_somewhere() {
    let mut packet = ipv4(6, &[0; 20]);
    packet[32] = 0x50;
    for depth in 0..=40 {
        let report = one(101, &packet);
        if depth <= 6 {
            assert_eq!(report.tcp_packets + report.skipped.broken, 1, "{depth}");
        } else {
            assert_eq!(report.unread[0].what, "tunnels in tunnels", "{depth}");
        }
        packet = ipv4(4, &packet);
    }
    // GRE carries Ethernet, which says that it carries Ethernet.
    let bridged: Vec<u8> = [&[2; 12][..], &[0x81, 0, 0, 1, 0x65, 0x58]].concat().repeat(4000);
    let frame = ipv4(47, &[&[0, 0, 0x65, 0x58][..], &bridged[..2000]].concat());
    assert_eq!(one(101, &frame).unread[0].what, "ethertype 0x6558");
}

/// The front of a layer that holds another.
fn layer() -> impl Strategy<Value = Vec<u8>> {
    let mut fronts = vec![
        vec![0x11, 0, 0, 7, 0, 90, 0, 0x21],
        vec![0, 6, 0x40, 64, 0, 12, 0x81, 64],
        vec![0, 0, 8, 0],
        vec![0x20, 0, 0x65, 0x58, 0, 0, 0, 1],
        vec![0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![0x30, 0x81, 0x88, 0x0b, 0, 4, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1],
        vec![200, 1, 0x12, 0xb5, 0, 60, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0],
        vec![200, 1, 0x17, 0xc1, 0, 60, 0, 0, 2, 0, 0x65, 0x58, 0, 0, 5, 0, 0, 0, 0, 0],
        [&[2; 12][..], &[8, 0]].concat(),
        [&[2; 12][..], &[0x88, 0x64]].concat(),
        [&[2; 12][..], &[0x88, 0x47]].concat(),
    ];
    for protocol in [4, 6, 17, 41, 47, 51, 97, 137] {
        fronts.push(ipv4(protocol, &[]));
        let v6 = [&[0x60, 0, 0, 0, 0, 90, protocol, 64][..], &[1; 32]].concat();
        fronts.push(v6);
    }
    prop::sample::select(fronts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None,
                                        ..ProptestConfig::default() })]

    #[test]
    fn any_layers(
        link in prop::sample::select(vec![1u32, 9, 50, 51, 101, 113, 219, 276]),
        layers in prop::collection::vec(layer(), 0..12),
        rest in prop::collection::vec(any::<u8>(), 0..80),
        changes in prop::collection::vec(any::<(u16, u8)>(), 0..4),
    ) {
        let mut frame = [layers.concat(), rest].concat();
        let len = frame.len();
        for (at, value) in changes.into_iter().filter(|_| len > 0) {
            frame[usize::from(at) % len] = value;
        }
        let report = one(link, &frame);
        let skipped = report.skipped;
        let unread: u64 = report.unread.iter().map(|unread| unread.frames).sum();
        prop_assert_eq!(unread, skipped.not_tcp + skipped.unknown_link);
        let read = report.tcp_packets + report.icmp_errors;
        prop_assert_eq!(read + unread + skipped.broken + skipped.fragments, 1);
        prop_assert!(explain(&[][..], &Options::default()).is_err());
    }
}
