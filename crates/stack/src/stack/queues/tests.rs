//! Several queues: two stacks, joined by a link in memory for every queue.

use std::sync::Arc;

use plimsoll_tcp::{Duration, Instant, SetOption};

use crate::device::Device;
use crate::device::memory_link::{self, LinkConfig};
use crate::limits::PACKETS_BEFORE_SILENCE;
use crate::stack::tests::harness::{A4, B4, Pair, drain, feed, ip, pattern};
use crate::{InterfaceConfig, SocketError, Stack, StackConfig, TcpSocket};

fn stack(mut queues: Vec<Device>, pollers: usize, address: &str) -> Arc<Stack> {
    let device = queues.remove(0);
    let interface = InterfaceConfig { device, addresses: vec![(ip(address), 24)], mtu: None };
    let config = StackConfig {
        interfaces: vec![interface],
        more_queues: queues.into_iter().map(|device| (0, device)).collect(),
        pollers,
        secret: [address.as_bytes()[address.len() - 1]; 32],
        ..StackConfig::default()
    };
    Stack::new(config).unwrap()
}

/// Two stacks with two queues each. Across, the first receives by the queue by which it did not
/// send.
fn pair(link: &LinkConfig, pollers: usize, across: bool) -> Pair {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for seed in 0..2 {
        let link = LinkConfig { seed: link.seed + seed, ..link.clone() };
        let (one, other) = memory_link::pair(link);
        left.push(one);
        right.push(other);
    }
    if across {
        let [mut one, mut other] = <[Device; 2]>::try_from(left).unwrap();
        std::mem::swap(&mut one.rx, &mut other.rx);
        std::mem::swap(&mut one.wait, &mut other.wait);
        left = vec![one, other];
    }
    let (a, b) = (stack(left, pollers, A4), stack(right, pollers, B4));
    Pair { a, b, now: Instant::from_millis(1000) }
}

/// Carries 20 flows in both directions and closes them.
fn exchange(pair: &mut Pair) {
    let listener = pair.listen(B4, 64);
    let mut ends: Vec<_> = (0..20)
        .map(|seed| {
            let (client, server) = pair.open(B4, &listener);
            let data = pattern(100_000, seed + 1);
            [(client, data.clone(), 0, Vec::new()), (server, data, 0, Vec::new())]
        })
        .collect();
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        for (socket, data, at, out) in ends.iter_mut().flatten() {
            feed(socket, pair.now, data, at);
            drain(socket, pair.now, out);
        }
        ends.iter().flatten().all(|(_, data, _, out)| data.len() == out.len())
    });
    assert!(done, "all arrives");
    assert!(ends.iter().flatten().all(|(_, data, _, out)| data == out), "byte for byte");
    drop(ends);
    let now = &|pair: &mut Pair| {
        pair.a.tables.connections().all().len() + pair.b.tables.connections().all().len()
    };
    assert!(pair.run_until(Duration::from_secs(600), |pair| now(pair) == 0), "all close");
    pair.run(Duration::from_secs(120));
    assert_eq!((pair.a.time_wait_count(), pair.b.time_wait_count()), (0, 0));
}

/// Bytes that each device of a stack received.
fn received(stack: &Stack) -> Vec<(String, u64)> {
    stack.device_stats().into_iter().map(|(name, _, rx)| (name, rx.bytes)).collect()
}

#[test]
fn flows_are_spread_and_stay_at_home() {
    for pollers in [2, 1] {
        let mut pair = pair(&LinkConfig::default(), pollers, false);
        assert_eq!(pair.a.queue_count(), pollers);
        exchange(&mut pair);
        assert_eq!(pair.counter("plimsoll.QueueMisses"), (0, 0));
        assert_eq!(pair.counter("plimsoll.QueueMoves"), (0, 0));
        for stack in [&pair.a, &pair.b] {
            let bytes = received(stack);
            let (first, second) = (bytes[0].1 > 100_000, bytes[2].1 > 100_000);
            assert_eq!((first, second), (true, pollers == 2), "{bytes:?}");
            assert_eq!(bytes[2].0, format!("{}#1", bytes[0].0));
        }
    }
}

#[test]
fn what_arrives_elsewhere_is_worked_on_there() {
    let link = LinkConfig {
        loss: 0.01,
        reorder: 0.01,
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    };
    for seed in 1..4 {
        let mut pair = pair(&LinkConfig { seed, ..link.clone() }, 2, true);
        exchange(&mut pair);
        let (misses, _) = pair.counter("plimsoll.QueueMisses");
        assert!(misses > 100, "{misses}");
        // Packets received on one queue make it send by that, and so receive by the other.
        let (moves, _) = pair.counter("plimsoll.QueueMoves");
        assert!(moves > 0);
    }
}

/// A connection of a stack whose peer has moved to the other queue.
struct Moved {
    pair: Pair,
    client: Arc<TcpSocket>,
    server: Arc<TcpSocket>,
}

impl Moved {
    fn new() -> Moved {
        let mut pair = pair(&LinkConfig::default(), 2, false);
        let listener = pair.listen(B4, 8);
        let (client, server) = pair.open(B4, &listener);
        Moved { pair, client, server }
    }

    /// The client's packets leave by its other queue, and it stays there for a while.
    fn steer(&mut self) {
        let stack = &self.pair.a;
        let [endpoint] = <[_; 1]>::try_from(stack.tables.connections().all()).ok().unwrap();
        let other = 1 - endpoint.home();
        let first = stack.interfaces.first_way(endpoint.interface());
        endpoint.move_home(stack.interfaces.way(first, other), other);
        stack.inspect(&endpoint, |inner| inner.misses.on_move(self.pair.now));
    }

    /// The client sends a request, and the server answers.
    fn exchange(&mut self) {
        let now = self.pair.now;
        assert_eq!(self.client.write(now, b"question"), Ok(8));
        self.pair.settle();
        let mut got = [0; 16];
        assert_eq!(self.server.read(self.pair.now, &mut got), Ok(8));
        assert_eq!(self.server.write(self.pair.now, b"answer"), Ok(6));
        self.pair.settle();
        assert_eq!(self.client.read(self.pair.now, &mut got), Ok(6));
    }

    fn moves(&self) -> u64 {
        self.pair.counter("plimsoll.QueueMoves").1
    }
}

#[test]
fn a_connection_follows_its_data() {
    let mut moved = Moved::new();
    moved.exchange();
    let before = moved.server.queue();
    assert_eq!(before, moved.client.queue());
    moved.steer();
    moved.exchange();
    assert_eq!((moved.server.queue(), moved.moves()), (before, 0), "one segment proves nothing");
    moved.exchange();
    assert_eq!((moved.server.queue(), moved.moves()), (1 - before, 1));
    let misses = moved.pair.counter("plimsoll.QueueMisses").1;
    moved.pair.run(Duration::from_millis(5));
    moved.exchange();
    assert_eq!(moved.pair.counter("plimsoll.QueueMisses").1, misses, "it is at home");

    // Not again before it has stayed for a while.
    moved.steer();
    (0..3).for_each(|_| moved.exchange());
    assert_eq!((moved.server.queue(), moved.moves()), (1 - before, 1));
    moved.pair.run(Duration::from_millis(10));
    moved.exchange();
    assert_eq!((moved.server.queue(), moved.moves()), (before, 2));
}

#[test]
fn its_timer_moves_along() {
    let mut moved = Moved::new();
    moved.exchange();
    let from = moved.server.queue();
    moved.steer();
    (0..2).for_each(|_| moved.exchange());
    assert_eq!(moved.server.queue(), 1 - from);
    // A lost answer is retransmitted on the connection's new home queue.
    assert_eq!(moved.server.write(moved.pair.now, b"lost"), Ok(4));
    let next = |queue: usize| moved.pair.b.pollers.queue(queue as u8).wheel().next();
    assert!(next(1 - from).is_some() && next(from).is_none());
}

#[test]
fn one_queue_is_polled_without_the_others() {
    let mut pair = pair(&LinkConfig::default(), 2, false);
    let listener = pair.listen(B4, 64);
    let clients: Vec<_> = (0..20).map(|_| pair.connect(B4)).collect();
    for queue in 0..2 {
        let before = listener.accept(pair.now).unwrap().is_some();
        assert!(!before, "nothing has come by queue {queue} yet");
        let homes = clients.iter().filter(|client| client.queue() == queue).count();
        for _ in 0..20 {
            pair.a.poll_queue(queue, pair.now, 256).unwrap();
            pair.b.poll_queue(queue, pair.now, 256).unwrap();
        }
        let accepted = std::iter::from_fn(|| listener.accept(pair.now).unwrap());
        let there = accepted.map(|(socket, _)| socket.queue()).collect::<Vec<_>>();
        assert_eq!(there, vec![queue; homes]);
    }
    pair.settle();
}

#[test]
fn queues_of_no_interface_are_refused() {
    let build = |change: &dyn Fn(&mut StackConfig)| {
        let (device, other) = memory_link::pair(LinkConfig::default());
        let interface = InterfaceConfig { device, addresses: vec![(ip(A4), 24)], mtu: None };
        let mut config = StackConfig { interfaces: vec![interface], ..StackConfig::default() };
        config.more_queues.push((0, other));
        change(&mut config);
        Stack::new(config).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(build(&|_| {}), Ok(()));
    let error = build(&|config| config.more_queues[0].0 = 1).unwrap_err();
    assert_eq!(error, "more_queues[0]: there is no such interface");
    let error = build(&|config| config.pollers = 17).unwrap_err();
    assert_eq!(error, "pollers: at most 16 are possible");
}

/// A client on which a retransmission timeout with its user timeout is long overdue, while the ACK
/// waits in the device of the queue that is not its home. Returns the other queue as well.
fn overdue() -> (Pair, Arc<TcpSocket>, Arc<TcpSocket>, usize) {
    let mut pair = pair(&LinkConfig::default(), 2, true);
    pair.a.set_sysctl(pair.now, "net.ipv4.tcp_early_retrans", "0").unwrap();
    let listener = pair.listen(B4, 64);
    let (client, server) = pair.open(B4, &listener);
    client.set_option(pair.now, SetOption::UserTimeout(Duration::from_secs(5)));
    client.write(pair.now, b"question").unwrap();
    while pair.b.poll(pair.now, 256).unwrap().worked {}
    pair.now += Duration::from_secs(1);
    while pair.b.poll(pair.now, 256).unwrap().worked {}
    pair.now += Duration::from_secs(10);
    let other = 1 - client.queue();
    (pair, client, server, other)
}

/// Polls the client's own queue until its connection is given up or there is nothing to do. Returns
/// how many polls that took, and whether it is given up.
fn poll_home(pair: &Pair, client: &TcpSocket) -> (usize, bool) {
    let mut polls = 0;
    loop {
        polls += 1;
        let worked = pair.a.poll_queue(client.queue(), pair.now, 256).unwrap().worked;
        let given_up = client.read(pair.now, &mut [0]) != Err(SocketError::WouldBlock);
        if given_up || !worked {
            return (polls, given_up);
        }
    }
}

#[test]
fn packets_in_the_device_of_another_queue_are_processed_before_the_timer() {
    let (pair, client, _server, _) = overdue();
    let misses = pair.counter("plimsoll.QueueMisses").0;
    assert!(!poll_home(&pair, &client).1);
    assert_eq!(pair.counter("plimsoll.QueueMisses").0, misses + 1, "the ACK came by the other");
    assert_eq!(pair.counter("TcpRetransSegs").0, 0);
}

/// The poller of the other queue is at work, and does not come to an end.
#[test]
fn a_poller_at_work_defers_no_timer_for_ever() {
    let (pair, client, _server, other) = overdue();
    let held = pair.a.pollers.queue(other as u8).poller().lock();
    assert_eq!(poll_home(&pair, &client), (1 + PACKETS_BEFORE_SILENCE / 16, true));
    drop(held);
}
