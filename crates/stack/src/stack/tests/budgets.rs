//! Budgets of stacks, listeners and connections: refusals, waits and counts.

use std::sync::Arc;
use std::task::Poll;

use plimsoll_tcp::{ConnectionError, Duration, Options, SetOption, State};

use super::harness::*;
use crate::{Budget, GateConfig, ListenOn, Listener, Refusal, SocketError, TcpSocket};

const REFUSED: Poll<Result<(), SocketError>> =
    Poll::Ready(Err(SocketError::Connection(ConnectionError::Refused)));
const OPEN: Poll<Result<(), SocketError>> = Poll::Ready(Ok(()));

/// Accepts all that waits.
fn accept(pair: &Pair, listener: &Listener) -> Vec<Arc<TcpSocket>> {
    let next = || listener.accept(pair.now).unwrap().map(|(socket, _)| socket);
    std::iter::from_fn(next).collect()
}

fn counted(pair: &Pair, name: &str) -> u64 {
    pair.b.counter(name).unwrap()
}

#[test]
fn a_listener_has_no_more_connections_than_its_budget() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 8);
    listener.set_budget(Budget { connections: Some(2), ..Budget::default() }).unwrap();
    let clients: Vec<_> = (0..3).map(|_| pair.connect(B4)).collect();
    pair.settle();
    let outcomes: Vec<_> = clients.iter().map(|client| connected(client)).collect();
    assert_eq!(outcomes, [OPEN, OPEN, Poll::Pending], "the third hears nothing");
    assert_eq!(
        (counted(&pair, "plimsoll.BudgetConnections"), listener.budget_use().connections),
        (1, 2)
    );
    let servers = accept(&pair, &listener);
    assert_eq!(listener.budget_use().connections, 2, "accepted ones count");
    // Another listener of the stack has nothing to do with it.
    let other = pair.b.listen(addr(B4, 81), 8, Options::default()).unwrap();
    let elsewhere = pair.a.connect(pair.now, addr(B4, 81), None, Options::default()).unwrap();
    pair.settle();
    assert_eq!((connected(&elsewhere), accept(&pair, &other).len()), (OPEN, 1));
    // One ends, and the retransmitted SYN finds its place.
    servers[0].abort(pair.now);
    pair.run(Duration::from_secs(4));
    assert_eq!(connected(&clients[2]), OPEN);
    // As a reset: at once. Raised while it listens: there is a place.
    listener.set_refusal(Refusal::Reset);
    let fourth = pair.connect(B4);
    pair.settle();
    assert_eq!(connected(&fourth), REFUSED);
    let refused = counted(&pair, "plimsoll.BudgetConnections");
    listener.set_budget(Budget { connections: Some(3), ..Budget::default() }).unwrap();
    let fifth = pair.connect(B4);
    pair.settle();
    assert_eq!((connected(&fifth), counted(&pair, "plimsoll.BudgetConnections")), (OPEN, refused));
    // Lowered: existing connections stay.
    listener.set_budget(Budget { connections: Some(1), ..Budget::default() }).unwrap();
    assert_eq!((servers[1].state(), listener.budget_use().connections), (State::Established, 3));
    drop((servers, clients, elsewhere, fifth, listener));
    pair.run(Duration::from_secs(120));
    assert_eq!(pair.b.budget_use(), crate::BudgetUse::default());
}

#[test]
fn half_open_connections_within_a_budget() {
    // With cookies a SYN beyond it keeps nothing, and its peer is served all the same.
    for (cookies, beyond) in [("1", OPEN), ("0", Poll::Pending)] {
        let mut pair = Pair::with(Default::default(), &[("net.ipv4.tcp_syncookies", cookies)]);
        let listener = pair.listen(B4, 64);
        let budget = Budget { half_open: Some(2), ..Budget::default() };
        listener.set_budget(budget).unwrap();
        assert_eq!(listener.budget(), budget);
        super::syn_flood::flood(&pair, 0, 10);
        pair.settle();
        assert_eq!(listener.budget_use().half_open, 2, "cookies {cookies}");
        assert_eq!(pair.b.budget_use().half_open, 2);
        assert_eq!(counted(&pair, "plimsoll.BudgetHalfOpen"), 8);
        let honest = pair.connect(B4);
        pair.settle();
        assert_eq!(connected(&honest), beyond, "cookies {cookies}");
        // The spoofed ones end after the last SYN-ACK.
        pair.run(Duration::from_secs(200));
        assert_eq!((pair.b.budget_use().half_open, connected(&honest)), (0, OPEN));
    }
}

#[test]
fn half_open_connections_of_all_listeners_together() {
    let mut pair = Pair::with(Default::default(), &[("net.ipv4.tcp_syncookies", "0")]);
    let listener = pair.listen(B4, 64);
    let gate =
        pair.b.listen_on(ListenOn::Everything, 8, Options::default(), Some(GateConfig::default()));
    let gate = gate.unwrap();
    gate.set_refusal(Refusal::Reset);
    pair.b.set_budget(pair.now, &Budget { half_open: Some(3), ..Budget::default() }).unwrap();
    super::syn_flood::flood(&pair, 0, 2);
    pair.settle();
    let far = |port| pair.a.connect(pair.now, addr("198.51.100.7", port), None, Options::default());
    let (waits, refused) = (far(443).unwrap(), far(444).unwrap());
    pair.settle();
    assert_eq!((connected(&waits), connected(&refused)), (Poll::Pending, REFUSED));
    assert_eq!((gate.waiting(), gate.budget_use().half_open), (1, 1));
    assert_eq!((pair.b.budget_use().half_open, counted(&pair, "plimsoll.BudgetHalfOpen")), (3, 1));
    // The one that waits sends its SYN again, which needs no place.
    pair.run(Duration::from_millis(1500));
    assert_eq!((connected(&waits), counted(&pair, "plimsoll.BudgetHalfOpen")), (Poll::Pending, 1));
    let server = gate.take_incoming(pair.now).unwrap().unwrap().accept(pair.now).unwrap();
    assert_eq!((server.state(), pair.b.budget_use().half_open), (State::SynReceived, 2));
    pair.settle();
    assert_eq!((connected(&waits), pair.b.budget_use().half_open), (OPEN, 2));
    drop(listener);
    pair.settle();
    assert_eq!(pair.b.budget_use().half_open, 0, "they went with their listener");
}

/// A connection opened by a cookie has a place at the gate and one in the SYN queue until its
/// handshake is complete; the latter must not count against itself.
#[test]
fn a_verified_attempt_does_not_count_against_itself() {
    let mut pair = Pair::new();
    let gate = GateConfig { verify_source: true, ..GateConfig::default() };
    let listener =
        pair.b.listen_on(ListenOn::Everything, 8, Options::default(), Some(gate)).unwrap();
    listener.set_budget(Budget { half_open: Some(1), ..Budget::default() }).unwrap();
    pair.b.set_budget(pair.now, &Budget { half_open: Some(1), ..Budget::default() }).unwrap();
    let first = pair.connect("198.51.100.7");
    pair.settle();
    assert_eq!((listener.waiting(), counted(&pair, "plimsoll.BudgetHalfOpen")), (1, 0));
    let second = pair.connect("198.51.100.7");
    pair.settle();
    assert_eq!((listener.waiting(), counted(&pair, "plimsoll.BudgetHalfOpen")), (1, 1));
    let server = listener.take_incoming(pair.now).unwrap().unwrap().accept(pair.now).unwrap();
    assert_eq!((first.state(), server.state()), (State::Established, State::Established));
    // Its place is free, and the other one's data brings its cookie again.
    second.write(pair.now, b"ahoy").unwrap();
    pair.settle();
    assert_eq!((listener.waiting(), counted(&pair, "plimsoll.BudgetHalfOpen")), (1, 1));
}

#[test]
fn an_attempt_that_is_accepted_beyond_the_budget_is_refused() {
    let mut pair = Pair::new();
    let gate = GateConfig::default();
    let listener =
        pair.b.listen_on(ListenOn::Everything, 8, Options::default(), Some(gate)).unwrap();
    listener.set_budget(Budget { connections: Some(1), ..Budget::default() }).unwrap();
    let clients: Vec<_> = (0..2).map(|_| pair.connect("198.51.100.7")).collect();
    pair.settle();
    let next = || listener.take_incoming(pair.now).unwrap().unwrap().accept(pair.now);
    let first = next().unwrap();
    let refused = next().unwrap_err();
    assert_eq!(refused, SocketError::ListenerOverBudget);
    assert!(refused.to_string().contains("budget.connections"));
    pair.settle();
    assert_eq!((connected(&clients[0]), connected(&clients[1])), (OPEN, REFUSED));
    assert_eq!(
        (counted(&pair, "plimsoll.BudgetConnections"), listener.budget_use().connections),
        (1, 1)
    );
    drop((first, clients));
    pair.run(Duration::from_secs(120));
    assert_eq!(listener.budget_use().connections, 0);
}

/// Sends `data` on each connection while the receivers do not read, then reads all. Returns the
/// peak memory of the listener's connections.
fn flood(pair: &mut Pair, listener: &Listener, ends: &[(Arc<TcpSocket>, Arc<TcpSocket>)]) -> usize {
    let data = pattern(400_000, 3);
    let mut sent = vec![0; ends.len()];
    let mut most = 0;
    for _ in 0..100 {
        for ((client, _), at) in ends.iter().zip(&mut sent) {
            feed(client, pair.now, &data, at);
        }
        pair.run(Duration::from_millis(50));
        most = most.max(listener.budget_use().memory);
    }
    let mut heard = vec![Vec::new(); ends.len()];
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        for (index, (client, server)) in ends.iter().enumerate() {
            feed(client, pair.now, &data, &mut sent[index]);
            drain(server, pair.now, &mut heard[index]);
        }
        most = most.max(listener.budget_use().memory);
        heard.iter().all(|heard| heard.len() == data.len())
    });
    assert!(done, "all goes on when somebody reads");
    assert!(heard.iter().all(|heard| *heard == data));
    most
}

#[test]
fn the_memory_of_a_listeners_connections_is_bounded() {
    const BUDGET: usize = 512 << 10;
    const COUNT: usize = 4;
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 8);
    listener.set_budget(Budget { memory: Some(BUDGET), ..Budget::default() }).unwrap();
    let ends: Vec<_> = (0..COUNT).map(|_| pair.open(B4, &listener)).collect();
    let most = flood(&mut pair, &listener, &ends);
    // Each may always have a little: the least receive buffer and a segment.
    assert!(most > BUDGET / 3, "{most} bytes: it is used");
    assert!(most <= BUDGET + COUNT * 3 * 4096, "{most} bytes");
    assert!(counted(&pair, "plimsoll.BudgetPressures") > 0);
    assert_eq!(pair.b.counter("TcpExtTCPMemoryPressures"), Some(0), "the stack has enough");
    assert_eq!(pair.b.policies.memory().wakes(), 0, "nobody waits for the stack's");
    pair.run(Duration::from_secs(5));
    assert_eq!(listener.budget_use().memory, 0, "nothing stays charged");
    // Without a budget the same takes more.
    listener.set_budget(Budget::default()).unwrap();
    listener.set_budget(Budget { memory: Some(1 << 30), ..Budget::default() }).unwrap();
    let most = flood(&mut pair, &listener, &ends);
    assert!(most > BUDGET, "{most} bytes");
}

#[test]
fn a_syn_for_a_listener_without_memory_is_refused() {
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 8);
    listener.set_refusal(Refusal::Reset);
    let (client, server) = pair.open(B4, &listener);
    let mut sent = client.write(pair.now, &pattern(100_000, 1)).unwrap();
    pair.settle();
    assert!(server.readable_bytes() > 16_000);
    // It has more than this already, and is charged when it gets the next segment.
    listener.set_budget(Budget { memory: Some(65_536), ..Budget::default() }).unwrap();
    pair.run(Duration::from_millis(300));
    feed(&client, pair.now, &pattern(300_000, 1), &mut sent);
    pair.run(Duration::from_secs(2));
    assert!(listener.budget_use().memory >= 65_536, "{:?}", listener.budget_use());
    let late = pair.connect(B4);
    pair.settle();
    assert_eq!((connected(&late), counted(&pair, "plimsoll.BudgetMemory")), (REFUSED, 1));
    let mut heard = Vec::new();
    pair.run_until(Duration::from_secs(60), |pair| {
        drain(&server, pair.now, &mut heard);
        heard.len() >= sent
    });
    pair.run(Duration::from_secs(1));
    let late = pair.connect(B4);
    pair.settle();
    assert_eq!((connected(&late), heard.len()), (OPEN, sent), "there is memory again");
}

#[test]
fn the_memory_of_one_connection_is_bounded() {
    const BUDGET: usize = 256 << 10;
    // The memory of one packet is not known before it is taken: buffers of which it is a part.
    const BEYOND: usize = 3 * 65_536 + 3 * 4096;
    let mut pair = Pair::new();
    // As an option of the listener, for its connections.
    let options = Options::default().memory_budget(Some(BUDGET));
    let listener = pair.b.listen(addr(B4, 80), 8, options).unwrap();
    listener.set_budget(Budget { memory: Some(1 << 30), ..Budget::default() }).unwrap();
    let ends = [pair.open(B4, &listener)];
    let most = flood(&mut pair, &listener, &ends);
    assert!((BUDGET / 3..=BUDGET + BEYOND).contains(&most), "{most} bytes");
    assert!(counted(&pair, "plimsoll.BudgetPressures") > 0);
    // A writer finds no memory either, and continues when the peer reads.
    let (client, server) = &ends[0];
    client.set_option(pair.now, SetOption::RcvBuf(4096));
    let data = pattern(1 << 20, 9);
    let mut at = 0;
    for _ in 0..50 {
        feed(server, pair.now, &data, &mut at);
        pair.run(Duration::from_millis(50));
    }
    let held = listener.budget_use().memory;
    assert!(held <= BUDGET + BEYOND, "{held} bytes of {at} written");
    assert_eq!(server.write(pair.now, &data[at..]), Err(SocketError::WouldBlock));
    let wakes = (pair.b.policies.memory().wakes(), listener.inner().budget().wakes());
    assert_eq!(wakes, (0, 1), "it waits for itself alone; set_budget asks once");
    // Lifted while it runs.
    server.set_memory_budget(pair.now, None).unwrap();
    let mut heard = Vec::new();
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        feed(server, pair.now, &data, &mut at);
        drain(client, pair.now, &mut heard);
        heard.len() == data.len()
    });
    assert!(done && heard == data);
    for (bytes, text) in [(0, "memory_budget is 0"), (65_535, "memory_budget is less")] {
        match server.set_memory_budget(pair.now, Some(bytes)) {
            Err(SocketError::Invalid(why)) => assert!(why.starts_with(text), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_budget_of_a_stack_is_its_settings() {
    let pair = Pair::new();
    let before = pair.b.sysctl().get("net.ipv4.tcp_mem");
    assert_eq!((pair.b.budget().connections, pair.b.budget().half_open), (None, None));
    let budget = Budget { connections: Some(10), half_open: Some(5), memory: Some(6 << 20) };
    pair.b.set_budget(pair.now, &budget).unwrap();
    assert_eq!(pair.b.budget(), budget);
    assert_eq!(pair.b.sysctl().get("net.ipv4.tcp_mem").as_deref(), Ok("768\t1024\t1536"));
    assert_eq!(pair.b.sysctl().get("plimsoll.max_connections").as_deref(), Ok("10"));
    let zero = Budget { memory: Some(0), ..budget };
    let refused = pair.b.set_budget(pair.now, &zero).unwrap_err();
    assert!(refused.to_string().contains("budget.memory is 0"), "{refused}");
    assert_eq!(pair.b.budget(), budget, "nothing has changed");
    let other = Budget { connections: Some(20), half_open: Some(9), memory: Some(usize::MAX) };
    let refused = pair.b.set_budget(pair.now, &other).unwrap_err();
    assert!(refused.to_string().contains("budget.memory is more"), "{refused}");
    assert_eq!(pair.b.budget(), budget, "nothing has changed");
    let most = Budget { memory: Some(1 << 44), ..budget };
    pair.b.set_budget(pair.now, &most).unwrap();
    assert_eq!(pair.b.budget(), most);
    pair.b.set_budget(pair.now, &Budget::default()).unwrap();
    assert_eq!(pair.b.sysctl().get("net.ipv4.tcp_mem"), before);
    let listener = pair.listen(B4, 8);
    let refused = listener.set_budget(Budget { half_open: Some(0), ..Budget::default() });
    assert!(refused.is_err_and(|error| error.to_string().contains("budget.half_open is 0")));
}
