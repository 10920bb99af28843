//! The gate by itself.

use plimsoll_buf::Slices;
use plimsoll_tcp::Ecn;
use plimsoll_wire::tcp::{TcpFlags, TcpRepr, Timestamps};

use super::*;

fn key(source: u8, port: u16) -> FlowKey {
    FlowKey {
        local: [198, 51, 100, 7].into(),
        remote: [192, 0, 2, source].into(),
        local_port: 443,
        remote_port: port,
    }
}

fn syn(seq: u32, times: u32) -> Segment {
    let mut repr = TcpRepr { seq: SeqNum(seq), flags: TcpFlags::SYN, ..TcpRepr::default() };
    repr.options.timestamps = Some(Timestamps { val: times, ecr: 0 });
    Segment { repr, payload: Slices::new(), segs: 1, ecn: Ecn::NotEct }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

struct World {
    gate: Gate,
    wakers: WakeList,
    /// Flows of open connections that have waited too long.
    timed_out: Vec<FlowKey>,
}

impl World {
    fn new(waiting: usize, per_source: usize) -> World {
        let wait = Duration::from_millis(1000);
        let config = GateConfig { waiting, per_source, wait, verify_source: false };
        World {
            gate: Gate::new(config, AttemptCount::default()),
            wakers: WakeList::default(),
            timed_out: Vec::new(),
        }
    }

    fn arrive(&mut self, millis: u64, key: &FlowKey, syn: &Segment) -> Arrival {
        let asked = Asked { key, home: 0, syn, headers: None, least_iss: None, has_place: true };
        self.gate.arrive(at(millis), &asked, &mut self.wakers)
    }

    fn expire(&mut self, millis: u64) -> Option<Instant> {
        let mut open = BTreeSet::new();
        let next = self.gate.expire(at(millis), &mut self.wakers, &mut open);
        self.timed_out.extend(open);
        next
    }
}

#[test]
fn a_repetition_joins_and_brings_the_newest_timestamp() {
    let mut world = World::new(8, 8);
    let waits = world.arrive(1000, &key(1, 5), &syn(100, 7));
    assert_eq!(waits, Arrival::Waits(at(2000)));
    assert_eq!(world.arrive(1500, &key(1, 5), &syn(100, 8)), Arrival::Joined);
    let attempt = world.gate.take().unwrap();
    assert!(world.gate.take().is_none(), "it is one attempt");
    assert_eq!(world.arrive(1900, &key(1, 5), &syn(100, 9)), Arrival::Joined, "also when taken");
    assert_eq!(attempt.syn(|syn| syn.repr.options.timestamps.unwrap().val), Some(9));
    assert!(world.gate.decide(&attempt));
    assert!(!world.gate.decide(&attempt), "once");
    assert_eq!(world.gate.len(), 0);
}

#[test]
fn another_sequence_number_is_another_attempt() {
    let mut world = World::new(8, 8);
    world.arrive(0, &key(1, 5), &syn(100, 7));
    let first = world.gate.take().unwrap();
    assert_eq!(world.arrive(1, &key(1, 5), &syn(200, 7)), Arrival::Waits(at(1001)));
    assert_eq!(first.cancelled(), Some(Cancelled::NewAttempt));
    assert!(!world.gate.decide(&first));
    let second = world.gate.take().unwrap();
    assert_eq!((second.cancelled(), world.gate.len()), (None, 1));
}

#[test]
fn number_and_share_of_a_source_are_bounded() {
    let mut world = World::new(4, 2);
    let waits = |arrival| matches!(arrival, Arrival::Waits(_));
    assert!(waits(world.arrive(0, &key(1, 1), &syn(1, 1))));
    assert!(waits(world.arrive(0, &key(1, 2), &syn(1, 1))));
    assert_eq!(world.arrive(0, &key(1, 3), &syn(1, 1)), Arrival::Full, "the share of a source");
    assert!(waits(world.arrive(0, &key(2, 1), &syn(1, 1))));
    assert!(waits(world.arrive(0, &key(3, 1), &syn(1, 1))));
    assert_eq!(world.arrive(0, &key(4, 1), &syn(1, 1)), Arrival::Full, "the number");
    let first = world.gate.take().unwrap();
    assert!(world.gate.decide(&first));
    assert!(waits(world.arrive(0, &key(1, 3), &syn(1, 1))), "a place is free again");
    // An attempt that restarts over and over uses one place.
    for seq in 0..100 {
        assert!(waits(world.arrive(0, &key(1, 3), &syn(seq, 1))));
    }
    assert_eq!((world.gate.len(), world.gate.untaken.len()), (4, 4));
    assert_eq!(world.gate.by_source.values().sum::<usize>(), 4);
}

#[test]
fn the_oldest_end_when_their_time_is_over() {
    let mut world = World::new(8, 8);
    world.arrive(0, &key(1, 1), &syn(1, 1));
    world.arrive(400, &key(1, 2), &syn(1, 1));
    let first = world.gate.take().unwrap();
    assert_eq!(world.expire(999), Some(at(1000)));
    assert_eq!(world.expire(1000), Some(at(1400)));
    assert_eq!(first.cancelled(), Some(Cancelled::TimedOut));
    assert_eq!(world.expire(1400), None);
    assert!(!world.gate.has_untaken());
    assert!(world.gate.by_source.is_empty());
}

#[test]
fn a_reset_must_have_the_next_sequence_number() {
    let mut world = World::new(8, 8);
    world.arrive(0, &key(1, 1), &syn(100, 1));
    let attempt = world.gate.take().unwrap();
    for seq in [100, 102] {
        world.gate.reset(&key(1, 1), SeqNum(seq), &mut world.wakers);
        assert_eq!(attempt.cancelled(), None, "{seq}");
    }
    world.gate.reset(&key(1, 1), SeqNum(101), &mut world.wakers);
    assert_eq!(attempt.cancelled(), Some(Cancelled::Reset));
    world.arrive(0, &key(1, 1), &syn(100, 1));
    let attempt = world.gate.take().unwrap();
    world.gate.close(&mut world.wakers);
    assert_eq!((attempt.cancelled(), world.gate.len()), (Some(Cancelled::Closed), 0));
}

#[test]
fn a_gate_that_lets_nobody_through_names_the_field() {
    let error = |config: GateConfig| match config.check() {
        Err(SocketError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    };
    let base = GateConfig::default;
    assert!(error(GateConfig { waiting: 0, ..base() }).starts_with("gate.waiting is 0"));
    assert!(error(GateConfig { per_source: 0, ..base() }).starts_with("gate.per_source is 0"));
    assert!(error(GateConfig { wait: Duration::ZERO, ..base() }).starts_with("gate.wait is 0"));
}

/// Peers that were verified share the bounds with SYNs.
#[test]
fn open_connections_wait_within_the_same_bounds() {
    let mut world = World::new(3, 2);
    let verified =
        |world: &mut World, millis, key: &FlowKey| world.gate.verified(at(millis), key, 0);
    assert_eq!(verified(&mut world, 0, &key(1, 1)), Arrival::Waits(at(1000)));
    assert_eq!(verified(&mut world, 400, &key(1, 2)), Arrival::Waits(at(1400)));
    assert_eq!(verified(&mut world, 400, &key(1, 3)), Arrival::Full, "the share of a source");
    world.arrive(500, &key(2, 1), &syn(1, 1));
    assert_eq!(verified(&mut world, 500, &key(3, 1)), Arrival::Full, "the number");
    assert!(world.gate.open(&key(2, 1)).is_none(), "it is a SYN");
    let first = world.gate.open(&key(1, 1)).cloned().unwrap();
    assert_eq!(first.syn(|_| ()), None);
    world.gate.leave(&key(1, 2));
    world.gate.leave(&key(2, 1));
    assert_eq!(world.gate.len(), 2, "a SYN has no connection that could end");
    assert_eq!(world.expire(1000), Some(at(1500)));
    assert_eq!((first.cancelled(), world.gate.decide(&first)), (Some(Cancelled::TimedOut), false));
    assert_eq!(world.expire(1500), None);
    assert_eq!(world.timed_out, [key(1, 1)], "not the SYN");
    assert!(world.gate.by_source.is_empty());
}
