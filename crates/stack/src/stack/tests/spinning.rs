//! Readers that poll the devices themselves.

use plimsoll_tcp::Duration;

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::limits::SPIN_LEASE;
use crate::{Spun, Stack};

/// Polls of spinners, those that found something, and microseconds spent.
fn counted(stack: &Stack) -> [u64; 3] {
    ["plimsoll.BusyPolls", "plimsoll.BusyPollHits", "plimsoll.BusyPollMicros"]
        .map(|name| stack.counter(name).unwrap())
}

#[test]
fn one_thread_at_a_time_spins() {
    let pair = Pair::new();
    let first = pair.a.try_spin(pair.now).unwrap();
    assert!(pair.a.try_spin(pair.now).is_none());
    assert!(pair.b.try_spin(pair.now).is_some(), "another stack is another matter");
    first.succeed(pair.now);
    assert!(pair.a.try_spin(pair.now).is_some());
    assert!(pair.a.try_spin(pair.now).is_some());
}

#[test]
fn a_spinner_does_the_work_of_the_poller() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let mut spin = pair.a.try_spin(pair.now).unwrap();
    assert_eq!(spin.poll(pair.now), Spun::Idle);
    server.write(pair.now, b"data").unwrap();
    assert!(!client.is_readable());
    let later = pair.now + Duration::from_micros(30);
    assert_eq!(spin.poll(later), Spun::Worked);
    assert!(client.is_readable());
    spin.succeed(later);
    assert_eq!(counted(&pair.a), [2, 1, 30]);
}

#[test]
fn a_spinner_gives_way_to_a_poller_at_work() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    server.write(pair.now, b"data").unwrap();
    let mut spun = None;
    let mut turn = || {
        let mut spin = pair.a.try_spin(pair.now).unwrap();
        spun = Some(spin.poll(pair.now));
    };
    pair.a.poll_with(pair.now, 64, &mut turn).unwrap();
    assert_eq!(spun, Some(Spun::Busy));
    assert!(client.is_readable());
}

#[test]
fn the_poller_relies_on_a_spinner_for_a_bounded_time() {
    let pair = Pair::new();
    let lease = |at| pair.a.pollers.queue(0).spinner().lease(at);
    let later = pair.now + SPIN_LEASE / 2;
    assert_eq!(lease(pair.now), None);
    let mut spin = pair.a.try_spin(pair.now).unwrap();
    assert_eq!(lease(pair.now), Some(pair.now + SPIN_LEASE));
    assert_eq!(lease(pair.now + SPIN_LEASE), None, "a spinner that is kept from running");
    spin.poll(later);
    assert_eq!(lease(later), Some(later + SPIN_LEASE));
    spin.succeed(later);
    assert_eq!(lease(later), Some(later + SPIN_LEASE), "the next read is likely to spin");
    drop(pair.a.try_spin(later));
    assert_eq!(lease(later), None, "it has found nothing and sleeps");
}

#[test]
fn a_poller_that_waits_during_a_lease_comes_back() {
    let pair = Pair::new();
    let spin = pair.a.try_spin(pair.now).unwrap();
    // It sleeps without devices and without a limit, until the lease ends.
    pair.a.wait(pair.now, None).unwrap();
    spin.succeed(pair.now);
    pair.a.wait(pair.now, None).unwrap();
    // The lease has ended, and a packet has arrived without a wake-up: it does not sleep.
    let listener = pair.listen(B4, 16);
    let _client = pair.connect(B4);
    pair.b.poll(pair.now, 64).unwrap();
    pair.a.wait(pair.now + SPIN_LEASE, None).unwrap();
    assert!(pair.a.poll(pair.now + SPIN_LEASE, 64).unwrap().worked);
    drop(listener);
}

#[test]
fn a_packet_on_its_way_is_not_forgotten_when_a_spinner_misses() {
    let link = LinkConfig { delay: Duration::from_millis(1), ..LinkConfig::default() };
    let mut pair = Pair::with(link, &[]);
    let listener = pair.listen(B4, 16);
    let (_client, server) = pair.open(B4, &listener);
    pair.run(Duration::from_secs(5));
    let kick = pair.a.pollers.queue(0).waiter().handle();
    assert_eq!(pair.a.next_deadline(), None, "the poller may sleep for ever");
    kick.announce(None);
    let wakes = kick.wakes();
    let spin = pair.a.try_spin(pair.now).unwrap();
    server.write(pair.now, b"ahoy").unwrap();
    drop(spin);
    assert!(pair.a.next_deadline().is_some());
    assert_eq!(kick.wakes(), wakes + 1);
}
