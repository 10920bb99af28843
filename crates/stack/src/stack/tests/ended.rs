//! The remains of connections that have ended: no memory, no blocked reader, a timer that fires.

use std::net::Shutdown;

use plimsoll_tcp::{Duration, State};

use super::harness::*;
use crate::Stack;
use crate::WaitKey;
use crate::device::memory_link::LinkConfig;
use crate::stack::work::Work;

const LONG: Duration = Duration::from_secs(200);

/// The charged bytes, and the connections that hold them.
fn held(stack: &Stack) -> (usize, usize) {
    (stack.memory().bytes, stack.memory().holders)
}

#[test]
fn unread_data_of_a_reset_connection_is_given_back() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 4);
    let (client, server) = pair.open(B4, &listener);
    server.write(pair.now, &[1; 50_000]).unwrap();
    client.write(pair.now, &[1; 50_000]).unwrap();
    pair.settle();
    server.abort(pair.now);
    pair.settle();
    drop((client, server, listener));
    pair.run(LONG);
    assert_eq!((held(&pair.a), held(&pair.b)), ((0, 0), (0, 0)));
}

#[test]
fn unread_data_of_connections_that_closed_in_order_is_given_back() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 4);
    for server_first in [false, true] {
        let (client, server) = pair.open(B4, &listener);
        server.write(pair.now, &[1; 50_000]).unwrap();
        pair.settle();
        if server_first {
            server.shutdown(pair.now, Shutdown::Write).unwrap();
            pair.settle();
        }
        client.shutdown(pair.now, Shutdown::Write).unwrap();
        pair.settle();
        server.close(pair.now);
        pair.settle();
        drop((client, server));
    }
    pair.run(LONG);
    assert_eq!((held(&pair.a), held(&pair.b)), ((0, 0), (0, 0)));
}

#[test]
fn children_that_were_reset_before_they_were_accepted_cost_nothing() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 4);
    for accepts in [true, true, false] {
        let client = pair.connect(B4);
        pair.settle();
        client.write(pair.now, &[1; 50_000]).unwrap();
        pair.settle();
        client.abort(pair.now);
        pair.settle();
        if accepts {
            drop(listener.accept(pair.now).unwrap().unwrap());
        }
    }
    drop(listener);
    pair.run(LONG);
    assert_eq!((held(&pair.a), held(&pair.b)), ((0, 0), (0, 0)));
}

#[test]
fn a_reader_that_reads_is_not_blocked_any_more() {
    let mut pair = Pair::with(LinkConfig::default(), &[("net.ipv4.tcp_low_latency", "0")]);
    let listener = pair.listen(B4, 4);
    let (client, server) = pair.open(B4, &listener);
    let endpoint = pair.b.tables.connections().all().remove(0);
    let (_, waker) = CountingWaker::new();
    assert!(server.poll_readable_blocked(WaitKey::new(), &waker).is_pending());
    client.write(pair.now, b"one").unwrap();
    pair.settle();
    assert!(endpoint.own().has_prequeued());
    assert_eq!(server.read(pair.now, &mut [0; 10]), Ok(3));
    pair.run(Duration::from_secs(1));
    client.write(pair.now, b"two").unwrap();
    pair.settle();
    assert!(!endpoint.own().has_prequeued(), "nobody is there to work on it");
}

#[test]
fn time_wait_that_an_application_thread_enters_ends() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 4);
    let (client, server) = pair.open(B4, &listener);
    let endpoint = pair.a.tables.connections().all().remove(0);
    client.shutdown(pair.now, Shutdown::Write).unwrap();
    pair.run(Duration::from_secs(2));
    server.close(pair.now);
    for _ in 0..4 {
        pair.b.poll(pair.now, 64).unwrap();
    }
    let owned = endpoint.own();
    pair.a.poll(pair.now, 64).unwrap();
    // The poller sleeps while the owner works on the FIN.
    let kick = pair.a.pollers.queue(0).waiter().handle();
    let until = pair.a.next_deadline();
    kick.announce(until);
    let wakes = kick.wakes();
    let mut work = Work::begin(&pair.a, pair.now);
    work.release(&endpoint, owned, false);
    work.finish();
    assert_eq!((client.state(), pair.a.time_wait_count()), (State::TimeWait, 1));
    assert!(until.is_some() || kick.wakes() > wakes, "it sleeps for ever");
}

#[test]
fn room_that_comes_back_before_the_poller_sleeps_is_seen() {
    let pair = Pair::with(LinkConfig { queue_limit: 2, ..LinkConfig::default() }, &[]);
    let _more: Vec<_> = (0..5).map(|_| pair.connect(B4)).collect();
    while pair.a.poll(pair.now, 64).unwrap().worked {}
    assert!(pair.a.interfaces.get(0).tx().is_busy());
    let mut packets = Vec::new();
    let kick = pair.b.pollers.queue(0).waiter().handle();
    pair.b.interfaces.get(0).receive((pair.now, &kick), pair.b.pool(), &mut packets, 64).unwrap();
    assert!(!packets.is_empty());
    let next = pair.a.next_deadline();
    assert!(next.is_some_and(|next| next <= pair.now), "it is to be polled at once");
}
