//! Queueing disciplines under real connections: departure times, and changes while data flows.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::qdisc::Kind;

const FQ: &[(&str, &str)] = &[("net.core.default_qdisc", "fq")];

/// A link on which the round trip, not the rate, bounds a transfer.
fn far() -> LinkConfig {
    LinkConfig {
        rate: Some(1_000_000_000),
        delay: Duration::from_millis(10),
        ..LinkConfig::default()
    }
}

/// Sends `len` bytes from `a` to `b`; `each` is called at every step with the bytes that arrived.
fn send(pair: &mut Pair, len: usize, mut each: impl FnMut(&mut Pair, usize)) {
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let data = pattern(len, 3);
    let (mut at, mut got) = (0, Vec::new());
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        feed(&client, pair.now, &data, &mut at);
        drain(&server, pair.now, &mut got);
        each(pair, got.len());
        got.len() == len
    });
    assert!(done && got == data, "{} of {len} bytes", got.len());
}

/// Packets of `a` that waited for their departure times.
fn throttled(pair: &Pair) -> Option<u64> {
    pair.a.qdiscs()[0].fq.map(|fq| fq.throttled_events)
}

#[test]
fn fair_queueing_paces_and_a_fifo_does_not() {
    let mut pair = Pair::with(far(), FQ);
    pair.settle();
    send(&mut pair, 4 << 20, |_, _| {});
    assert!(throttled(&pair).is_some_and(|events| events > 10), "{:?}", pair.a.qdiscs());
    assert_eq!(pair.counter("IpOutDiscards"), (0, 0));
    let mut pair = Pair::with(far(), &[]);
    send(&mut pair, 4 << 20, |_, _| {});
    assert_eq!(throttled(&pair), None);
}

#[test]
fn the_discipline_changes_while_data_flows() {
    let mut pair = Pair::with(far(), &[]);
    let mut changes = 0;
    send(&mut pair, 8 << 20, |pair, got| {
        if got >= (changes + 1) << 20 {
            let text = if changes % 2 == 0 { "fq" } else { "pfifo limit 500" };
            pair.a.set_qdisc(pair.now, 0, text).unwrap();
            changes += 1;
        }
    });
    assert!(changes >= 7, "{changes}");
    assert_eq!(pair.counter("TcpRetransSegs"), (0, 0));
    assert_eq!(pair.counter("IpOutDiscards"), (0, 0));
}

#[test]
fn an_interface_keeps_what_was_chosen_for_it() {
    let mut pair = Pair::new();
    pair.a.set_qdisc(pair.now, 0, "fq limit 77").unwrap();
    pair.a.sysctl().set("net.core.default_qdisc", "pfifo").unwrap();
    pair.b.sysctl().set("net.core.default_qdisc", "fq").unwrap();
    pair.settle();
    assert!(matches!(pair.a.qdiscs()[0].kind, Kind::Fq(config) if config.limit == 77));
    assert_eq!(pair.b.qdiscs()[0].kind.name(), "fq");
    assert_eq!(pair.b.qdiscs()[1].kind, Kind::PFIFO, "the loopback has no need of it");
    assert!(pair.a.set_qdisc(pair.now, 9, "fq").is_err());
    assert!(pair.a.set_qdisc(pair.now, 0, "sfq").is_err());
    assert!(pair.a.sysctl().set("net.core.default_qdisc", "fq limit 1").is_err());
}
