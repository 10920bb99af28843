//! The metrics of a stack.

use std::net::Shutdown;

use plimsoll_tcp::{Duration, State};

use super::harness::*;
use crate::snmp::{STATE_COUNT, place};
use crate::{ConnectionCounts, CounterGroup, Stack, UdpFlowConfig, UdpTransmit};

impl Stack {
    /// Panics if the number of connections counted in a state differs from the number in it. All
    /// tests call this whenever a stack has come to rest. It is skipped while a socket is owned,
    /// and for very many connections, where it would take too long.
    pub(crate) fn check_states(&self) {
        const MOST: usize = 300;
        if self.tables.connections().len() > MOST {
            return;
        }
        let mut there = [0; STATE_COUNT];
        for endpoint in self.tables.connections().all() {
            let Some(owned) = endpoint.try_own() else { return };
            let (counted, state) = (owned.counted(), owned.conn.state());
            let matters = !owned.is_gone() && state != State::Closed;
            drop(owned);
            assert!(!matters || counted == Some(state), "{state:?} is counted as {counted:?}");
            if let Some(counted) = counted {
                there[place(counted)] += 1;
            }
        }
        assert_eq!(self.pollers.snmp().states(), there, "by the place of the state");
    }
}

fn by_state(counts: &ConnectionCounts) -> Vec<(&'static str, u64)> {
    counts.by_state().into_iter().filter(|&(_, count)| count > 0).collect()
}

#[test]
fn connections_are_counted_in_their_states() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let none = pair.a.metrics().connections;
    assert_eq!(none, ConnectionCounts::default());
    let _lonely = pair.a.connect(pair.now, addr("192.0.2.77", 80), None, Default::default());
    let (client, server) = pair.open(B4, &listener);
    let counts = |stack: &Stack| by_state(&stack.metrics().connections);
    assert_eq!(counts(&pair.a), [("syn-sent", 1), ("established", 1)]);
    assert_eq!(counts(&pair.b), [("established", 1)]);

    client.shutdown(pair.now, Shutdown::Write).unwrap();
    pair.run(Duration::from_millis(100));
    assert_eq!(counts(&pair.a), [("syn-sent", 1), ("fin-wait-2", 1)]);
    assert_eq!(counts(&pair.b), [("close-wait", 1)]);
    server.shutdown(pair.now, Shutdown::Write).unwrap();
    pair.run(Duration::from_millis(100));
    assert_eq!(counts(&pair.a), [("syn-sent", 1), ("time-wait", 1)]);
    assert_eq!(counts(&pair.b), []);
    pair.run(Duration::from_secs(300));
    assert_eq!(pair.a.metrics().connections, ConnectionCounts::default());
}

#[test]
fn orphans_and_queues() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let client = pair.connect(B4);
    pair.settle();
    let metrics = pair.b.metrics();
    assert_eq!(metrics.listeners.len(), 1);
    assert_eq!(metrics.listeners[0].local, addr(B4, 80));
    assert_eq!((metrics.listeners[0].accept_queue, metrics.listeners[0].backlog), (1, 16));
    let (_server, _) = listener.accept(pair.now).unwrap().unwrap();
    assert_eq!(pair.b.metrics().listeners[0].accept_queue, 0);
    drop(client);
    assert_eq!(pair.a.metrics().connections.orphans, 1);
}

#[test]
fn udp_sockets_and_their_memory() {
    let mut pair = Pair::new();
    let (near, far) = (addr(A4, 7), addr(B4, 9));
    let client = pair.a.bind_udp(near).unwrap();
    let server = pair.b.bind_udp(far).unwrap();
    let how = UdpTransmit { to: Some(far), ..UdpTransmit::default() };
    client.send(pair.now, &how, &[b"ahoy"]).unwrap();
    pair.settle();
    let udp = pair.b.metrics().udp;
    assert_eq!((udp.sockets, udp.flows), (1, 0));
    assert!(udp.memory.bytes > 0 && udp.memory.bytes < udp.memory.limit, "{udp:?}");
    drop(server);
    let udp = pair.b.metrics().udp;
    assert_eq!((udp.sockets, udp.memory.bytes), (0, 0));
    let _listener = pair.b.listen_udp_any(0, UdpFlowConfig::default()).unwrap();
    client.send(pair.now, &how, &[b"ahoy"]).unwrap();
    pair.settle();
    let udp = pair.b.metrics().udp;
    assert_eq!((udp.sockets, udp.flows), (1, 1));
}

#[test]
fn counters_by_group_and_interfaces() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let written = client.write(pair.now, &[7; 100_000]).unwrap();
    pair.settle();
    let metrics = pair.a.metrics();
    assert_eq!(metrics.counter("TcpActiveOpens"), Some(1));
    assert_eq!(metrics.counter("TcpNonsense"), None);
    assert!(metrics.group(CounterGroup::Tcp).all(|each| !each.name.starts_with("TcpExt")));
    assert!(metrics.group(CounterGroup::Plimsoll).all(|each| each.name.starts_with("plimsoll.")));
    let groups: Vec<_> = metrics.counters.iter().map(|each| each.group).collect();
    assert!(groups.is_sorted(), "as nstat has them");
    assert_eq!(metrics.counters.len(), pair.a.counters().len());

    let [link, loopback] = &metrics.interfaces[..] else { panic!("a link and loopback") };
    assert!(link.up && loopback.up);
    assert!(link.tx.bytes > written as u64, "{written} {:?}", link.tx);
    assert_eq!(link.qdisc_stats.dequeued, link.qdisc_stats.enqueued);
    assert_eq!(loopback.tx.packets, 0);
    assert!(pair.b.metrics().memory.bytes > 0, "nobody has read");
    drop(server);
}
