//! Abandoned connections: nothing of them stays.

use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;

use plimsoll_tcp::{Duration, Options, State};

use super::channel::Bridged;
use super::harness::*;
use crate::device::channel::ChannelConfig;
use crate::{GateConfig, Incoming, ListenOn, Listener, SocketError, TcpSocket};

/// How a connection is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It is not: it stays open, and at rest.
    Stays,
    /// Both sides close.
    InOrder,
    /// The proxy drops its handle while data is on its way.
    HandleDropped,
    /// The guest vanishes, and the proxy keeps its handle until it notices.
    GuestVanished,
    /// The guest sends its FIN, the proxy passes it on and closes, and the guest is silent.
    HalfClosed,
    /// The guest sends its FIN and is silent, and the proxy forgets its handle.
    Forgotten,
    /// The attempt is never decided.
    Undecided,
}

const ENDS: [End; 10] = [
    End::InOrder,
    End::HandleDropped,
    End::InOrder,
    End::GuestVanished,
    End::InOrder,
    End::HalfClosed,
    End::InOrder,
    End::Undecided,
    End::Forgotten,
    End::InOrder,
];

struct Left {
    world: Bridged,
    /// The sockets that the proxy still holds.
    held: Vec<Arc<TcpSocket>>,
    undecided: Vec<Incoming>,
    guests: Vec<Arc<TcpSocket>>,
    /// The connections that stay, the guest's side first.
    open: Vec<(Arc<TcpSocket>, Arc<TcpSocket>)>,
    /// Connections so far.
    count: usize,
}

/// Guests that talk to one address, at most: they need a port each.
const GUESTS_PER_ADDRESS: usize = 20_000;

/// The remains in a stack: connections, their bytes, TIME-WAIT, and memory of queues.
fn left(stack: &crate::Stack) -> (usize, usize, usize) {
    let memory = stack.connection_memory();
    (memory.connections, stack.time_wait_count(), stack.memory().bytes)
}

impl Left {
    fn leave(&mut self, end: End, guest: Arc<TcpSocket>, proxy: Arc<TcpSocket>) {
        let now = self.world.pair.now;
        if end == End::Stays {
            proxy.write(now, &[7; 100]).unwrap();
            return self.open.push((guest, proxy));
        }
        proxy.write(now, &[7; 5000]).unwrap();
        match end {
            End::InOrder => {
                self.world.settle();
                guest.close(now);
                proxy.close(now);
            }
            End::HandleDropped => drop(proxy),
            End::GuestVanished => {
                let SocketAddr::V4(to) = guest.peer_addr() else { unreachable!("IPv4") };
                self.world.lost.insert((guest.local_addr().port(), *to.ip()));
                self.held.push(proxy);
            }
            End::HalfClosed => {
                guest.shutdown(now, Shutdown::Write).unwrap();
                self.world.settle();
                assert_eq!(proxy.state(), State::CloseWait, "the guest's FIN is heard of");
                proxy.close(now);
                self.guests.push(guest);
            }
            End::Forgotten => {
                guest.shutdown(now, Shutdown::Write).unwrap();
                let mut heard = Vec::new();
                drain(&guest, now, &mut heard);
                self.guests.push(guest);
                self.held.push(proxy);
            }
            End::Undecided | End::Stays => unreachable!("there is nothing to leave"),
        }
    }

    fn new() -> Left {
        let world = Bridged::new(&ChannelConfig::default());
        let (held, undecided, guests) = (Vec::new(), Vec::new(), Vec::new());
        Left { world, held, undecided, guests, open: Vec::new(), count: 0 }
    }

    /// A gated listener that bounds half-closed connections.
    fn listen(&self) -> Arc<Listener> {
        let gate = GateConfig { waiting: 512, per_source: 512, ..GateConfig::default() };
        let options = Options::default().half_close_timeout(Some(Duration::from_secs(600)));
        self.world.pair.b.listen_on(ListenOn::Everything, 64, options, Some(gate)).unwrap()
    }

    /// Opens a connection for each of `ends`, all at a time, and leaves it so.
    fn round(&mut self, listener: &Listener, ends: impl Fn() -> Vec<End>) {
        let now = self.world.pair.now;
        let far = Ipv4Addr::new(198, 51, 100, 1 + (self.count / GUESTS_PER_ADDRESS) as u8);
        let to = SocketAddr::new(far.into(), 443);
        let connect = |_| self.world.pair.a.connect(now, to, None, Options::default()).unwrap();
        let guests: Vec<_> = ends().into_iter().map(connect).collect();
        self.world.settle();
        let mut opened = Vec::new();
        self.count += guests.len();
        // Those that are never decided wait as well, for a minute.
        assert!((guests.len()..=512).contains(&listener.waiting()), "{}", listener.waiting());
        for (end, guest) in ends().into_iter().zip(guests) {
            let incoming = listener.take_incoming(now).unwrap().expect("one for each");
            assert_eq!(incoming.peer(), guest.local_addr());
            match end {
                End::Undecided => {
                    self.undecided.push(incoming);
                    guest.abort(now);
                }
                end => opened.push((end, guest, incoming.accept(now).unwrap())),
            }
        }
        self.world.settle();
        for (end, guest, proxy) in opened {
            self.leave(end, guest, proxy);
        }
    }

    /// Drops the remaining sockets, some time after all ends have been notified.
    fn let_go(&mut self, listener: &Listener) {
        assert!(self.held.iter().all(|proxy| proxy.state() == State::Closed), "it was told");
        assert!(self.undecided.iter().all(|incoming| incoming.cancelled().is_some()));
        assert_eq!(listener.waiting(), 0);
        self.held.clear();
        self.undecided.clear();
        self.guests.clear();
        self.world.run(Duration::from_secs(120));
        self.world.lost.clear();
    }
}

#[test]
fn nothing_stays_of_connections_that_somebody_walks_away_from() {
    let mut all = Left::new();
    let listener = all.listen();
    let mut after = Vec::new();
    for round in 1..=4 {
        all.round(&listener, || ENDS.into_iter().cycle().take(200).collect());
        // The guest's silence ends by itself, the lost data after the last of 15 retransmissions.
        all.world.run(Duration::from_secs(1800));
        all.let_go(&listener);
        assert_eq!(left(&all.world.pair.b), (0, 0, 0), "the proxy's side");
        assert_eq!(all.world.pair.b.counter("plimsoll.HalfCloseTimeouts"), Some(20 * round));
        after.push(all.world.pair.b.connection_memory().bytes);
    }
    // The remains are capacity of the tables, that of the fullest shard of each round.
    assert!(after[3] < after[0] + after[0] / 4, "memory is flat: {after:?}");
}

/// Nine of ten stay. It takes 700 MB, on both sides together.
#[test]
fn a_hundred_thousand_connections_of_which_one_in_ten_is_abandoned() {
    const COUNT: usize = 100_000;
    const WAYS: [End; 4] = [End::HandleDropped, End::GuestVanished, End::Forgotten, End::Undecided];
    const BATCH: usize = 400;
    let end = |at: usize| if at.is_multiple_of(10) { WAYS[at / 10 % 4] } else { End::Stays };
    let mut all = Left::new();
    let listener = all.listen();
    while all.count < COUNT {
        let range = all.count..all.count + BATCH;
        all.round(&listener, || range.clone().map(end).collect());
        all.world.run(Duration::from_secs(10));
    }
    all.world.settle();
    assert_eq!(all.open.len(), COUNT / 10 * 9);
    let now = all.world.pair.now;
    for (guest, _) in &all.open {
        let mut heard = Vec::new();
        drain(guest, now, &mut heard);
        assert_eq!(heard.len(), 100);
    }
    let memory = |all: &Left| {
        let stack = &all.world.pair.b;
        let of = stack.connection_memory();
        assert!(stack.memory().peak <= stack.memory().thresholds[2], "the budget is kept");
        (of.connections, of.bytes, stack.memory().bytes)
    };
    let begin = memory(&all);
    // The longest case takes a quarter of an hour: data that is retransmitted repeatedly.
    all.world.run(Duration::from_secs(1200));
    all.let_go(&listener);
    let mut hour = vec![memory(&all)];
    for _ in 0..4 {
        all.world.run(Duration::from_secs(600));
        hour.push(memory(&all));
    }
    let first = hour[0];
    assert_eq!((first.0, first.2), (all.open.len(), 0), "who stays, and nothing queued");
    assert!(first.1 < begin.1, "{} bytes before, {} after", begin.1, first.1);
    assert!(hour.iter().all(|at| *at == first), "memory is flat: {hour:?}");
    let forgotten = (COUNT / 40) as u64;
    assert_eq!(all.world.pair.b.counter("plimsoll.HalfCloseTimeouts"), Some(forgotten));
    // The connections that stayed still work, and there is no place for more than the budget.
    let (now, b) = (all.world.pair.now, all.world.pair.b.clone());
    b.set_sysctl(now, "plimsoll.max_connections", &all.open.len().to_string()).unwrap();
    let more = all.world.pair.a.connect(now, addr("198.51.100.99", 443), None, Options::default());
    all.world.settle();
    let incoming = listener.take_incoming(now).unwrap().expect("it waits");
    assert_eq!(incoming.accept(now).err(), Some(SocketError::TooManyConnections));
    more.unwrap().abort(now);
    for (guest, proxy) in std::mem::take(&mut all.open) {
        proxy.write(now, b"ahoy").unwrap();
        guest.close(now);
        proxy.close(now);
    }
    all.world.run(Duration::from_secs(180));
    assert_eq!(left(&all.world.pair.b), (0, 0, 0), "none is leaked");
}

/// A connection that has nothing to do holds no buffer.
#[test]
fn connections_at_rest_hold_no_buffers() {
    let mut world = Bridged::new(&ChannelConfig::default());
    let options = Options::default();
    let listener =
        world.pair.b.listen_on(ListenOn::Everything, 512, options.clone(), None).unwrap();
    let to = addr("198.51.100.7", 443);
    let connect = |_| world.pair.a.connect(world.pair.now, to, None, options.clone()).unwrap();
    let guests: Vec<_> = (0..300).map(connect).collect();
    world.settle();
    let now = world.pair.now;
    let accept = || listener.accept(now).unwrap().map(|(socket, _)| socket);
    let proxies: Vec<_> = std::iter::from_fn(accept).collect();
    assert_eq!(proxies.len(), 300);
    let empty = world.pair.b.connection_memory().bytes;
    for (guest, proxy) in guests.iter().zip(&proxies) {
        guest.write(now, &[1; 30_000]).unwrap();
        proxy.write(now, &[2; 30_000]).unwrap();
    }
    world.settle();
    for (guest, proxy) in guests.iter().zip(&proxies) {
        let mut sink = Vec::new();
        drain(guest, now, &mut sink);
        drain(proxy, now, &mut sink);
    }
    world.run(Duration::from_secs(5));
    for (guest, proxy) in guests.iter().zip(&proxies) {
        let mut sink = Vec::new();
        drain(guest, world.pair.now, &mut sink);
        drain(proxy, world.pair.now, &mut sink);
    }
    world.run(Duration::from_secs(5));
    assert_eq!(world.pair.b.memory().bytes, 0);
    let each = (world.pair.b.connection_memory().bytes - empty) / 300;
    assert!(each < 1024, "{each} bytes more than before");
}
