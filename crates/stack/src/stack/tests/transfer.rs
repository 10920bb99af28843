//! Bytes both ways, over good links and bad ones, byte for byte.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::device::memory_link::LinkConfig;

/// Sends `len` bytes each way and compares them; then closes both ways.
fn both_ways(link: LinkConfig, ip: &str, len: usize, sysctls: &[(&str, &str)]) -> Pair {
    let mut pair = Pair::with(link, sysctls);
    let listener = pair.listen(ip, 16);
    let (client, server) = pair.open(ip, &listener);
    let (there, back) = (pattern(len, 1), pattern(len, 2));
    let (mut at_there, mut at_back) = (0, 0);
    let (mut got_there, mut got_back) = (Vec::new(), Vec::new());
    let (mut shut_there, mut shut_back) = (false, false);
    let done = pair.run_until(Duration::from_secs(900), |pair| {
        let now = pair.now;
        feed(&client, now, &there, &mut at_there);
        feed(&server, now, &back, &mut at_back);
        if at_there == there.len() && !std::mem::replace(&mut shut_there, true) {
            client.shutdown(now, std::net::Shutdown::Write).unwrap();
        }
        if at_back == back.len() && !std::mem::replace(&mut shut_back, true) {
            server.shutdown(now, std::net::Shutdown::Write).unwrap();
        }
        let ended = drain(&server, now, &mut got_there);
        drain(&client, now, &mut got_back) && ended
    });
    assert!(done, "got {} and {} of {len} bytes", got_there.len(), got_back.len());
    assert!(got_there == there && got_back == back, "the bytes are those that were sent");
    drop((client, server));
    pair.run(Duration::from_secs(300));
    let left = (pair.a.connection_memory().connections, pair.b.connection_memory().connections);
    assert_eq!(left, (0, 0), "no connection is left behind");
    assert_eq!((pair.a.time_wait_count(), pair.b.time_wait_count()), (0, 0));
    assert_eq!((pair.a.orphan_count(), pair.b.orphan_count()), (0, 0));
    assert_eq!((pair.a.bytes_below(), pair.b.bytes_below()), (0, 0));
    pair
}

#[test]
fn by_reference() {
    let pair = both_ways(LinkConfig::default(), B4, 8 << 20, &[]);
    assert!(pair.a.counter("plimsoll.SuperSegs").unwrap() > 100);
    assert_eq!(pair.counter("TcpRetransSegs"), (0, 0));
    assert_eq!(pair.counter("TcpInErrs"), (0, 0));
    assert_eq!(pair.counter("IpInHdrErrors"), (0, 0));
}

#[test]
fn by_reference_v6() {
    let pair = both_ways(LinkConfig::default(), B6, 4 << 20, &[]);
    assert_eq!(pair.counter("TcpRetransSegs"), (0, 0));
    assert_eq!(pair.counter("IpOutRequests"), (0, 0));
}

/// Packets that travel by reference, longer than their headers can say.
#[test]
fn in_packets_beyond_64_kib() {
    for ip in [B4, B6] {
        let len = 8 << 20;
        let usual = both_ways(LinkConfig::default(), ip, len, &[]);
        let link = LinkConfig { max_super_segment: 1 << 18, ..LinkConfig::default() };
        let pair = both_ways(link, ip, len, &[]);
        let supers = |pair: &Pair| pair.a.counter("plimsoll.SuperSegs").unwrap();
        assert!(supers(&pair) * 3 < supers(&usual) * 2, "{}", supers(&pair));
        for name in ["TcpRetransSegs", "TcpInErrs", "IpInHdrErrors", "Ip6InHdrErrors"] {
            assert_eq!(pair.counter(name), (0, 0), "{name}");
        }
        assert_eq!(pair.counter("plimsoll.GsoSoftware"), (0, 0));
    }
}

/// The same, on a bad link: the lost, duplicated and overtaken packets are long.
#[test]
fn in_packets_beyond_64_kib_with_loss() {
    let link = LinkConfig {
        delay: Duration::from_millis(2),
        loss: 0.02,
        reorder: 0.02,
        duplicate: 0.01,
        corrupt: 0.01,
        max_super_segment: 1 << 18,
        ..LinkConfig::default()
    };
    let pair = both_ways(link, B4, 16 << 20, &[]);
    assert!(pair.a.counter("TcpRetransSegs").unwrap() > 0);
}

#[test]
fn without_offloads() {
    for ip in [B4, B6] {
        let link = LinkConfig { offloads: false, ..LinkConfig::default() };
        let pair = both_ways(link, ip, 2 << 20, &[]);
        assert_eq!(pair.counter("TcpInCsumErrors"), (0, 0));
        assert!(pair.a.counter("plimsoll.GsoSoftware").unwrap() > 10);
    }
}

#[test]
fn serialised_with_delay() {
    let link = LinkConfig {
        rate: Some(100_000_000),
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    both_ways(link, B4, 2 << 20, &[]);
}

#[test]
fn with_loss_reorder_and_duplicates() {
    for (seed, ip) in [(1, B4), (2, B6), (3, B4)] {
        let link = LinkConfig {
            delay: Duration::from_millis(2),
            loss: 0.02,
            reorder: 0.02,
            duplicate: 0.01,
            offloads: false,
            seed,
            ..LinkConfig::default()
        };
        let pair = both_ways(link, ip, 1 << 20, &[]);
        assert!(pair.a.counter("TcpRetransSegs").unwrap() > 0);
    }
}

#[test]
fn with_corruption() {
    let link = LinkConfig {
        delay: Duration::from_millis(1),
        corrupt: 0.02,
        offloads: false,
        ..LinkConfig::default()
    };
    let pair = both_ways(link, B4, 1 << 20, &[]);
    assert!(pair.b.counter("TcpInCsumErrors").unwrap() > 0);
}

#[test]
fn without_options() {
    let off = [
        ("net.ipv4.tcp_sack", "0"),
        ("net.ipv4.tcp_timestamps", "0"),
        ("net.ipv4.tcp_window_scaling", "0"),
        ("net.ipv4.tcp_congestion_control", "reno"),
    ];
    let link = LinkConfig {
        delay: Duration::from_millis(2),
        loss: 0.01,
        offloads: false,
        ..LinkConfig::default()
    };
    both_ways(link, B4, 1 << 19, &off);
}

#[test]
fn in_small_packets() {
    let link = LinkConfig { mtu: 576, offloads: false, ..LinkConfig::default() };
    both_ways(link, B4, 1 << 20, &[]);
}

#[test]
fn a_slow_reader_closes_the_window() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let data = pattern(48 << 20, 9);
    let (mut at, mut got) = (0, Vec::new());
    // The receiver does not read for ten seconds.
    pair.run_until(Duration::from_secs(10), |pair| {
        feed(&client, pair.now, &data, &mut at);
        false
    });
    assert!(at < data.len(), "the buffers are full");
    assert!(pair.a.counter("TcpExtTCPWinProbe").unwrap() > 0);
    let done = pair.run_until(Duration::from_secs(120), |pair| {
        feed(&client, pair.now, &data, &mut at);
        drain(&server, pair.now, &mut got);
        got.len() == data.len()
    });
    assert!(done, "{} of {}", got.len(), data.len());
    assert!(got == data);
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = || {
        let link = LinkConfig {
            delay: Duration::from_millis(2),
            loss: 0.03,
            reorder: 0.03,
            seed: 42,
            ..LinkConfig::default()
        };
        let pair = both_ways(link, B4, 1 << 18, &[]);
        (pair.now, pair.a.counters(), pair.b.counters())
    };
    assert_eq!(run(), run());
}
