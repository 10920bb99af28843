//! Queueing disciplines under real connections: departure times, and changes while data flows.

use std::sync::Arc;

use plimsoll_tcp::{Duration, Hold};

use super::harness::*;
use crate::TcpSocket;
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

/// A slow link whose ring holds two packets, so that the discipline fills.
fn slow() -> LinkConfig {
    LinkConfig {
        rate: Some(20_000_000),
        delay: Duration::from_millis(5),
        tx_ring: 2,
        ..LinkConfig::default()
    }
}

/// A discipline without space refuses: nothing is lost, nothing is sent twice, no connection waits
/// for a retransmission timer, and every flow progresses.
#[test]
fn flows_share_a_discipline_that_is_too_small_for_them() {
    for text in ["pfifo limit 1", "pfifo limit 3", "fq limit 4", "fq flow_limit 1"] {
        let mut pair = Pair::with(slow(), &[]);
        pair.a.set_qdisc(pair.now, 0, text).unwrap();
        let listener = pair.listen(B4, 64);
        let flows: Vec<_> = (0..12).map(|_| pair.open(B4, &listener)).collect();
        let mut done: Vec<_> = (0..12)
            .map(|flow| (pattern(100_000 + flow * 777, flow as u64), 0, Vec::new()))
            .collect();
        let before = pair.a.qdiscs()[0].stats.dropped;
        let finished = pair.run_until(Duration::from_secs(60), |pair| {
            let mut all = true;
            for ((client, server), (data, at, got)) in flows.iter().zip(&mut done) {
                feed(client, pair.now, data, at);
                drain(server, pair.now, got);
                all &= got.len() == data.len();
            }
            all
        });
        let lens: Vec<_> = done.iter().map(|(data, _, got)| (data.len(), got.len())).collect();
        assert!(finished && done.iter().all(|(data, _, got)| data == got), "{text}: {lens:?}");
        let refused = pair.a.qdiscs()[0].stats.dropped - before;
        assert!(refused > 10, "{text}: {refused}");
        assert!(pair.a.counter("plimsoll.HoldRefused").unwrap() > 0, "{text}");
        for name in ["TcpRetransSegs", "TcpExtTCPTimeouts", "IpOutDiscards"] {
            assert_eq!(pair.a.counter(name), Some(0), "{text}: {name}");
        }
        // Without repeated attempts: after a packet has left, an ACK or a write.
        let stats = pair.a.qdiscs()[0].stats;
        assert!(refused <= 8 * stats.dequeued, "{text}: {refused} refused, {stats:?}");
    }
}

/// The two ends of a connection.
type Ends = (Arc<TcpSocket>, Arc<TcpSocket>);

/// A pair whose discipline is full of packets of four flows, and `count` connections that have
/// nothing of their own below them and whose write was refused.
fn refused(count: usize) -> (Pair, Vec<u8>, Vec<Ends>) {
    let mut pair = Pair::with(slow(), &[]);
    pair.a.set_qdisc(pair.now, 0, "pfifo limit 1").unwrap();
    let listener = pair.listen(B4, 64);
    let mut flows: Vec<_> = (0..4 + count).map(|_| pair.open(B4, &listener)).collect();
    let waiting = flows.split_off(4);
    for (busy, _) in flows {
        feed(&busy, pair.now, &pattern(60_000, 1), &mut 0);
    }
    let data = pattern(1000, 2);
    for (client, _) in &waiting {
        assert_eq!(client.write(pair.now, &data), Ok(1000));
        assert_eq!(client.info(pair.now).hold, Some(Hold::Refused));
    }
    (pair, data, waiting)
}

/// Lets time pass until all of `flows` have their data.
fn arrives(pair: &mut Pair, data: &[u8], flows: &[(Arc<TcpSocket>, Arc<TcpSocket>)]) -> bool {
    let mut got = vec![Vec::new(); flows.len()];
    pair.run_until(Duration::from_secs(60), |pair| {
        for ((_, server), got) in flows.iter().zip(&mut got) {
            drain(server, pair.now, got);
        }
        got.iter().all(|got| *got == data)
    })
}

/// Space restarts a connection that has nothing of its own below, long before a timer.
#[test]
fn space_restarts_a_connection_that_has_nothing_below_it() {
    let (mut pair, data, flows) = refused(5);
    let began = pair.now;
    assert!(arrives(&mut pair, &data, &flows));
    let took = pair.now.since(began);
    assert!(took < Duration::from_millis(100), "{took:?} of the virtual clock");
}

/// A connection that ends while it waits is removed, and the others continue.
#[test]
fn a_connection_may_end_while_it_waits_for_space() {
    let (mut pair, data, flows) = refused(3);
    flows[1].0.abort(pair.now);
    assert!(arrives(&mut pair, &data, &[flows[0].clone(), flows[2].clone()]));
}

/// So does another discipline, without a packet leaving.
#[test]
fn a_larger_discipline_has_space() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 64);
    let (client, server) = pair.open(B4, &listener);
    pair.a.set_qdisc(pair.now, 0, "pfifo limit 0").unwrap();
    let data = pattern(1000, 2);
    assert_eq!(client.write(pair.now, &data), Ok(1000));
    pair.run(Duration::from_millis(50));
    assert_eq!(client.info(pair.now).hold, Some(Hold::Refused));
    let began = pair.now;
    pair.a.set_qdisc(pair.now, 0, "pfifo limit 1").unwrap();
    assert!(arrives(&mut pair, &data, &[(client, server)]));
    assert!(pair.now.since(began) < Duration::from_millis(10), "no timer had to fire");
}
