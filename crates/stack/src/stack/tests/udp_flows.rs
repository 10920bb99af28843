//! Flows to any address: new ones, idle ones, too many.

use std::sync::Arc;

use plimsoll_tcp::{ConnectionError, Duration, Instant};

use super::harness::*;
use crate::{SocketError, UdpFlowConfig, UdpListener, UdpSocket, UdpTransmit, Unreachable};

const ENDED: SocketError = SocketError::Connection(ConnectionError::TimedOut);

struct World {
    pair: Pair,
    listener: Arc<UdpListener>,
    client: Arc<UdpSocket>,
}

impl World {
    fn new(config: UdpFlowConfig) -> World {
        let pair = Pair::new();
        let listener = pair.b.listen_udp_any(0, config).unwrap();
        let client = pair.a.bind_udp(addr(A4, 0)).unwrap();
        World { pair, listener, client }
    }

    fn send(&mut self, there: &str, port: u16, data: &[u8]) {
        let how = UdpTransmit { to: Some(addr(there, port)), ..UdpTransmit::default() };
        self.client.send(self.pair.now, &how, &[data]).unwrap();
        self.pair.settle();
    }

    fn accept(&self) -> Option<Arc<UdpSocket>> {
        self.listener.accept(self.pair.now).unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        self.pair.counter(name).1
    }
}

fn text(socket: &UdpSocket, now: Instant) -> Result<String, SocketError> {
    let mut buf = [0; 100];
    let read = socket.recv(now, &mut buf)?;
    Ok(String::from_utf8_lossy(&buf[..read.len]).into_owned())
}

#[test]
fn each_destination_is_a_flow_and_answers_come_from_there() {
    let mut world = World::new(UdpFlowConfig::default());
    let bound = world.pair.b.bind_udp(addr(B4, 53)).unwrap();
    world.client.connect(world.pair.now, addr("198.51.100.7", 53)).unwrap();
    world.send("198.51.100.7", 53, b"one");
    world.send("198.51.100.7", 53, b"two");
    world.send("198.51.100.8", 53, b"other");
    world.send(B4, 53, b"bound");
    let now = world.pair.now;
    let (one, other) = (world.accept().unwrap(), world.accept().unwrap());
    assert!(world.accept().is_none());
    assert_eq!(one.local_addr(), addr("198.51.100.7", 53));
    assert_eq!(one.peer_addr(), Some(world.client.local_addr()));
    assert_eq!((text(&one, now).unwrap(), text(&one, now).unwrap()), ("one".into(), "two".into()));
    assert_eq!(text(&other, now).unwrap(), "other");
    assert_eq!(text(&bound, now).unwrap(), "bound");
    one.send(now, &UdpTransmit::default(), &[b"answer"]).unwrap();
    other.send(now, &UdpTransmit::default(), &[b"of a stranger"]).unwrap();
    world.pair.settle();
    assert_eq!(text(&world.client, now).unwrap(), "answer");
    assert_eq!(text(&world.client, now), Err(SocketError::WouldBlock));
}

#[test]
fn a_flow_answers_from_elsewhere() {
    let mut world = World::new(UdpFlowConfig::default());
    world.send("198.51.100.7", 3478, b"who am I?");
    let flow = world.accept().unwrap();
    let how = UdpTransmit::default().from(Some(ip("198.51.100.9"))).from_port(Some(3479));
    flow.send(world.pair.now, &how, &[b"you"]).unwrap();
    world.pair.settle();
    let mut buf = [0; 16];
    let read = world.client.recv(world.pair.now, &mut buf).unwrap();
    assert_eq!((&buf[..read.len], read.info.from), (&b"you"[..], addr("198.51.100.9", 3479)));
}

#[test]
fn a_refused_flow_is_an_error_at_its_sender() {
    // As on Linux, only the error of a port ends a call.
    let errors = [
        (Unreachable::Port, SocketError::Connection(ConnectionError::Refused)),
        (Unreachable::Host, SocketError::WouldBlock),
        (Unreachable::Network, SocketError::WouldBlock),
    ];
    for (kind, expected) in errors {
        let mut world = World::new(UdpFlowConfig::default());
        world.client.connect(world.pair.now, addr("198.51.100.7", 53)).unwrap();
        world.send("198.51.100.7", 53, b"one");
        let flow = world.accept().unwrap();
        flow.refuse(world.pair.now, kind).unwrap();
        world.pair.settle();
        let refused = world.client.recv(world.pair.now, &mut [0; 9]).unwrap_err();
        assert_eq!(refused, expected);
        assert_eq!(world.pair.counter("IcmpInDestUnreachs").0, 1);
        // The flow has ended, and the next datagram begins another.
        assert!(flow.refuse(world.pair.now, kind).is_err());
        world.send("198.51.100.7", 53, b"two");
        assert!(world.accept().is_some());
        assert!(matches!(world.client.refuse(world.pair.now, kind), Err(SocketError::Invalid(_))));
    }
}

#[test]
fn a_flow_ends_when_it_is_idle_and_sooner_without_an_answer() {
    let mut world = World::new(UdpFlowConfig::default());
    world.send("198.51.100.7", 443, b"answered");
    world.send("198.51.100.8", 443, b"not");
    let (answered, not) = (world.accept().unwrap(), world.accept().unwrap());
    answered.send(world.pair.now, &UdpTransmit::default(), &[b"yes"]).unwrap();
    let (counting, waker) = CountingWaker::new();
    text(&not, world.pair.now).unwrap();
    assert!(not.poll_readable(&waker).is_pending());
    world.pair.run(Duration::from_secs(29));
    assert_eq!(counting.count(), 0);
    world.pair.run(Duration::from_secs(2));
    assert_eq!((counting.count(), world.count("plimsoll.UdpFlowTimeouts")), (1, 1));
    assert_eq!(text(&not, world.pair.now), Err(ENDED));
    assert_eq!(not.send(world.pair.now, &UdpTransmit::default(), &[b"late"]), Err(ENDED));
    world.pair.run(Duration::from_secs(80));
    world.send("198.51.100.7", 443, b"still there");
    assert!(world.accept().is_none(), "the same flow");
    world.pair.run(Duration::from_secs(119));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 1);
    world.pair.run(Duration::from_secs(2));
    let now = world.pair.now;
    assert_eq!(text(&answered, now).unwrap(), "answered", "what has arrived is read");
    assert_eq!(text(&answered, now).unwrap(), "still there");
    assert_eq!(text(&answered, now), Err(ENDED));
    world.send("198.51.100.7", 443, b"again");
    assert_eq!(text(&world.accept().unwrap(), world.pair.now).unwrap(), "again");
    // Each has its own time.
    world.send("198.51.100.9", 443, b"short");
    let short = world.accept().unwrap();
    short.set_idle_timeout(Duration::from_secs(5)).unwrap();
    assert!(short.set_idle_timeout(Duration::ZERO).is_err());
    world.pair.run(Duration::from_secs(6));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 3);
}

#[test]
fn a_full_table_gives_the_place_of_the_one_that_would_end_first() {
    let mut world = World::new(UdpFlowConfig { max_flows: 3, ..UdpFlowConfig::default() });
    let mut flows = Vec::new();
    for host in 1..=3 {
        world.send(&format!("198.51.100.{host}"), 443, b"x");
        flows.push(world.accept().unwrap());
    }
    world.send("198.51.100.4", 443, b"x");
    assert!(world.accept().is_none(), "all of them were used a moment ago");
    assert_eq!(world.count("plimsoll.UdpFlowsRefused"), 1);
    flows[0].send(world.pair.now, &UdpTransmit::default(), &[b"answer"]).unwrap();
    world.pair.run(Duration::from_secs(2));
    world.send("198.51.100.4", 443, b"x");
    let fourth = world.accept().unwrap();
    assert_eq!(world.count("plimsoll.UdpFlowsEvicted"), 1);
    let ended: Vec<bool> = flows
        .iter()
        .map(|flow| text(flow, world.pair.now).is_ok() && text(flow, world.pair.now) == Err(ENDED))
        .collect();
    assert_eq!(ended, [false, true, false], "the one with an answer stays");
    drop((flows, fourth));
    world.send("198.51.100.5", 443, b"x");
    assert!(world.accept().is_some());
    assert_eq!(world.count("plimsoll.UdpFlowsEvicted"), 1, "dropping a flow makes place, too");
}

#[test]
fn a_dns_flow_ends_ten_seconds_after_its_answer() {
    let mut world = World::new(UdpFlowConfig::default());
    for host in 1..=3 {
        world.send(&format!("198.51.100.{host}"), 53, b"who?");
    }
    let [answered, not, longer] = [(); 3].map(|()| world.accept().unwrap());
    assert_eq!(answered.idle_timeout(), Some(Duration::from_secs(10)));
    longer.set_idle_timeout(Duration::from_secs(60)).unwrap();
    world.pair.run(Duration::from_secs(15));
    for flow in [&answered, &longer] {
        flow.send(world.pair.now, &UdpTransmit::default(), &[b"me"]).unwrap();
    }
    world.pair.run(Duration::from_secs(9));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 0);
    world.pair.run(Duration::from_secs(2));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 1);
    assert!(text(&answered, world.pair.now).is_ok());
    assert_eq!(text(&answered, world.pair.now), Err(ENDED));
    world.pair.run(Duration::from_secs(3));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 1, "one is not answered yet");
    world.pair.run(Duration::from_secs(2));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 2);
    drop(not);
    world.pair.run(Duration::from_secs(43));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 2, "its own time was set");
    world.pair.run(Duration::from_secs(2));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 3);
    let short = UdpFlowConfig { idle_timeout: Duration::from_secs(5), ..UdpFlowConfig::default() };
    let mut world = World::new(short);
    world.send("198.51.100.1", 53, b"who?");
    assert_eq!(world.accept().unwrap().idle_timeout(), Some(Duration::from_secs(5)));
}

impl World {
    /// A flow to `there` on which each side has spoken `rounds` times in turn.
    fn talk(&mut self, there: &str, port: u16, rounds: usize) -> Arc<UdpSocket> {
        self.send(there, port, b"question");
        let flow = self.accept().unwrap();
        for round in 0..rounds {
            if round > 0 {
                self.send(there, port, b"question");
            }
            flow.send(self.pair.now, &UdpTransmit::default(), &[b"answer"]).unwrap();
            self.pair.settle();
        }
        flow
    }
}

#[test]
fn a_storm_of_lookups_evicts_no_conversation() {
    let mut world = World::new(UdpFlowConfig { max_flows: 100, ..UdpFlowConfig::default() });
    let quiet = world.talk("203.0.113.1", 443, 2);
    let asked_again = world.talk("203.0.113.2", 443, 1);
    world.send("203.0.113.2", 443, b"question");
    // Both have been idle for longer than any lookup, and end first.
    world.pair.run(Duration::from_secs(60));
    let mut lookups = Vec::new();
    for count in 0..300 {
        let host = format!("198.51.100.{}", count % 200);
        lookups.push(world.talk(&host, 443 + count / 200, 1));
        world.pair.run(Duration::from_millis(50));
    }
    assert_eq!(world.count("plimsoll.UdpFlowsRefused"), 0);
    assert!(world.count("plimsoll.UdpFlowsEvicted") > 0);
    world.send("203.0.113.1", 443, b"after");
    assert!(world.accept().is_none(), "the conversation is still there");
    let now = world.pair.now;
    assert_eq!(text(&quiet, now).unwrap(), "question");
    assert_eq!(text(&quiet, now).unwrap(), "question");
    assert_eq!(text(&quiet, now).unwrap(), "after");
    assert!(text(&asked_again, now).is_ok() && text(&asked_again, now).is_ok());
    assert_eq!(text(&asked_again, now), Err(ENDED), "it was answered only once");
}

#[test]
fn a_flow_that_was_used_lately_does_not_protect_those_behind_it() {
    let mut world = World::new(UdpFlowConfig { max_flows: 2, ..UdpFlowConfig::default() });
    let idle = world.talk("203.0.113.1", 443, 1);
    world.pair.run(Duration::from_secs(2));
    let _dns = world.talk("203.0.113.1", 53, 1);
    let _next = world.talk("203.0.113.2", 53, 1);
    let now = world.pair.now;
    assert!(text(&idle, now).is_ok());
    assert_eq!(text(&idle, now), Err(ENDED), "the lookup would end first, but is in use");
}

#[test]
fn where_all_flows_are_conversations_the_first_to_end_is_evicted() {
    let mut world = World::new(UdpFlowConfig { max_flows: 2, ..UdpFlowConfig::default() });
    let old = world.talk("203.0.113.1", 443, 2);
    world.pair.run(Duration::from_secs(2));
    let young = world.talk("203.0.113.2", 443, 3);
    let lookup = world.talk("203.0.113.3", 443, 1);
    assert_eq!(world.count("plimsoll.UdpFlowsEvicted"), 1);
    let now = world.pair.now;
    assert!(text(&old, now).is_ok() && text(&old, now).is_ok());
    assert_eq!(text(&old, now), Err(ENDED));
    world.send("203.0.113.4", 443, b"new");
    assert!(world.accept().is_none(), "the lookup was used a moment ago");
    assert_eq!(world.count("plimsoll.UdpFlowsRefused"), 1);
    world.pair.run(Duration::from_secs(2));
    world.send("203.0.113.4", 443, b"new");
    assert!(world.accept().is_some());
    let now = world.pair.now;
    assert!(text(&lookup, now).is_ok());
    assert_eq!(text(&lookup, now), Err(ENDED));
    assert_eq!(young.send(now, &UdpTransmit::default(), &[b"alive"]), Ok(5));
}

#[test]
fn flows_that_nobody_accepts_are_bounded_and_leave_nothing_behind() {
    let mut world = World::new(UdpFlowConfig { backlog: 2, ..UdpFlowConfig::default() });
    for host in 1..=5 {
        world.send(&format!("198.51.100.{host}"), 53, &[1; 1000]);
    }
    assert_eq!(world.count("plimsoll.UdpFlowsRefused"), 3);
    assert!(world.pair.b.udp_memory().bytes > 0);
    world.pair.run(Duration::from_secs(31));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 2);
    assert!(world.accept().is_none());
    assert_eq!(world.pair.b.udp_memory().bytes, 0);
    assert!(world.pair.b.tables.udp().all().is_empty(), "their places are free");
    world.send("198.51.100.1", 53, b"x");
    let port = world.pair.b.listen_udp_any(0, UdpFlowConfig::default());
    assert_eq!(port.unwrap_err(), SocketError::AddrInUse);
    world.listener.close(world.pair.now);
    assert!(world.pair.b.tables.udp().all().is_empty());
    assert!(world.listener.accept(world.pair.now).is_err());
    world.send("198.51.100.1", 53, b"x");
    assert_eq!(world.count("UdpNoPorts"), 1);
}

#[test]
fn accepted_flows_outlive_their_listener() {
    let mut world = World::new(UdpFlowConfig::default());
    world.client.connect(world.pair.now, addr("198.51.100.7", 9)).unwrap();
    world.send("198.51.100.7", 9, b"accepted");
    let flow = world.accept().unwrap();
    world.send("198.51.100.7", 9, b"waits");
    world.send("198.51.100.8", 9, b"is not accepted");
    world.listener.close(world.pair.now);
    world.send("198.51.100.7", 9, b"after");
    let now = world.pair.now;
    let read = [(); 3].map(|()| text(&flow, now).unwrap());
    assert_eq!(read, ["accepted", "waits", "after"]);
    flow.send(now, &UdpTransmit::default(), &[b"answer"]).unwrap();
    world.pair.settle();
    assert_eq!(text(&world.client, now).unwrap(), "answer");
    assert_eq!(world.count("UdpNoPorts"), 0);
    world.send("198.51.100.8", 9, b"new");
    assert_eq!(world.count("UdpNoPorts"), 1, "nobody takes new flows");
    // ICMP errors reach it as well.
    world.client.close(now);
    flow.send(now, &UdpTransmit::default(), &[b"unwanted"]).unwrap();
    world.pair.settle();
    assert_eq!(text(&flow, now), Err(SocketError::Connection(ConnectionError::Refused)));
    assert_eq!(world.count("IcmpInErrors"), 0);
    // It ends when it is idle.
    world.pair.run(Duration::from_secs(121));
    assert_eq!(text(&flow, world.pair.now), Err(ENDED));
    assert_eq!(world.count("plimsoll.UdpFlowTimeouts"), 1);
    assert_eq!(world.pair.b.tables.udp().flows().len(), 0);
}

#[test]
fn an_old_flow_goes_before_what_is_bound_to_any_address_later() {
    let mut world = World::new(UdpFlowConfig::default());
    world.send("198.51.100.7", 9, b"one");
    let flow = world.accept().unwrap();
    world.listener.close(world.pair.now);
    for port in [0, 9] {
        let later = world.pair.b.listen_udp_any(port, UdpFlowConfig::default()).unwrap();
        world.send("198.51.100.7", 9, b"old");
        assert!(later.accept(world.pair.now).unwrap().is_none(), "the flow is not new");
        world.send("198.51.100.8", 9, b"new");
        let new = later.accept(world.pair.now).unwrap().unwrap();
        assert_eq!(text(&new, world.pair.now).unwrap(), "new");
    }
    let any = world.pair.b.bind_udp_any(0).unwrap();
    world.send("198.51.100.7", 9, b"old");
    world.send("198.51.100.8", 9, b"new");
    let now = world.pair.now;
    assert_eq!(text(&any, now).unwrap(), "new");
    let read = [(); 4].map(|()| text(&flow, now).unwrap());
    assert_eq!(read, ["one", "old", "old", "old"]);
    assert_eq!(world.count("UdpNoPorts"), 0);
}

#[test]
fn a_flow_takes_no_more_than_its_share() {
    let config = UdpFlowConfig { rcvbuf: 2000, ..UdpFlowConfig::default() };
    let mut world = World::new(config);
    for _ in 0..10 {
        world.send("198.51.100.1", 53, &[1; 900]);
    }
    world.send("198.51.100.2", 53, &[1; 900]);
    assert_eq!((world.accept().unwrap().queued(), world.accept().unwrap().queued()), (2, 1));
    assert_eq!(world.count("UdpRcvbufErrors"), 8);
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    let pair = Pair::new();
    for config in [
        UdpFlowConfig { idle_timeout: Duration::ZERO, ..UdpFlowConfig::default() },
        UdpFlowConfig { max_flows: 0, ..UdpFlowConfig::default() },
        UdpFlowConfig { backlog: 0, ..UdpFlowConfig::default() },
    ] {
        let refused = pair.a.listen_udp_any(0, config);
        assert!(matches!(refused, Err(SocketError::Invalid(_))));
    }
}
