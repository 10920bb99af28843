//! Connections that somebody walks away from: nothing of them stays.

use std::net::Shutdown;
use std::sync::Arc;

use plimsoll_tcp::{Duration, Options, State};

use super::channel::Bridged;
use super::harness::*;
use crate::device::channel::ChannelConfig;
use crate::{GateConfig, Incoming, ListenOn, TcpSocket};

/// How a connection is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides close.
    InOrder,
    /// The proxy drops its handle while data is on its way.
    HandleDropped,
    /// The guest vanishes, and the proxy keeps its handle until it hears of that.
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
    /// What the proxy has not let go of.
    held: Vec<Arc<TcpSocket>>,
    undecided: Vec<Incoming>,
    guests: Vec<Arc<TcpSocket>>,
}

/// What is left in a stack: connections, bytes that they take, TIME-WAIT, and memory of queues.
fn left(stack: &crate::Stack) -> (usize, usize, usize) {
    let memory = stack.connection_memory();
    (memory.connections, stack.time_wait_count(), stack.memory().bytes)
}

impl Left {
    fn leave(&mut self, end: End, guest: Arc<TcpSocket>, proxy: Arc<TcpSocket>) {
        let now = self.world.pair.now;
        proxy.write(now, &[7; 5000]).unwrap();
        match end {
            End::InOrder => {
                self.world.settle();
                guest.close(now);
                proxy.close(now);
            }
            End::HandleDropped => drop(proxy),
            End::GuestVanished => {
                self.world.lost.insert(guest.local_addr().port());
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
            End::Undecided => unreachable!("it never opens"),
        }
    }

    /// Opens and leaves `count` connections, all at a time.
    fn round(&mut self, listener: &crate::Listener, count: usize) {
        let now = self.world.pair.now;
        let ends = || ENDS.into_iter().cycle().take(count);
        let to = addr("198.51.100.7", 443);
        let connect = |_| self.world.pair.a.connect(now, to, None, Options::default()).unwrap();
        let guests: Vec<_> = ends().map(connect).collect();
        self.world.settle();
        let mut opened = Vec::new();
        for (end, guest) in ends().zip(guests) {
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
}

#[test]
fn nothing_stays_of_connections_that_somebody_walks_away_from() {
    let world = Bridged::new(&ChannelConfig::default());
    let gate = GateConfig { per_source: 1024, ..GateConfig::default() };
    let options =
        Options { half_close_timeout: Some(Duration::from_secs(600)), ..Options::default() };
    let listener = world.pair.b.listen_on(ListenOn::Everything, 64, options, Some(gate)).unwrap();
    let (held, undecided, guests) = (Vec::new(), Vec::new(), Vec::new());
    let mut all = Left { world, held, undecided, guests };
    let mut after = Vec::new();
    for _ in 0..4 {
        all.round(&listener, 200);
        // The guest's silence ends by itself, the lost data after the last of 15 retransmissions.
        all.world.run(Duration::from_secs(1800));
        assert!(all.held.iter().all(|proxy| proxy.state() == State::Closed), "it was told");
        assert!(all.undecided.iter().all(|incoming| incoming.cancelled().is_some()));
        all.held.clear();
        all.undecided.clear();
        all.guests.clear();
        all.world.run(Duration::from_secs(120));
        all.world.lost.clear();
        assert_eq!(left(&all.world.pair.b), (0, 0, 0), "the proxy's side");
        assert_eq!(listener.waiting(), 0);
        let forgotten = 20 * (after.len() as u64 + 1);
        assert_eq!(all.world.pair.b.counter("plimsoll.HalfCloseTimeouts"), Some(forgotten));
        after.push(all.world.pair.b.connection_memory().bytes);
    }
    // What is left is capacity of the tables, that of the fullest shard of each round.
    assert!(after[3] < after[0] + after[0] / 4, "memory is flat: {after:?}");
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
