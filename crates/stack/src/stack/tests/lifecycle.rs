//! A device that goes away, the sleeping poller, counters and lists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_buf::Pool;
use plimsoll_tcp::{ConnectionError, Duration, Instant, Options, State};

use super::harness::*;
use crate::device::memory_link::{self, LinkConfig};
use crate::device::{Caps, Device, DeviceError, DeviceRx, DeviceStats, DeviceTx, TxProgress};
use crate::packet::Packet;
use crate::{SocketError, StackError};

struct Mortal<T>(T, Arc<AtomicBool>);

impl<T> Mortal<T> {
    fn check(&self) -> Result<(), DeviceError> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(DeviceError::Gone("somebody pulled the cable".to_owned())),
            false => Ok(()),
        }
    }
}

impl DeviceTx for Mortal<Box<dyn DeviceTx>> {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn transmit(
        &mut self,
        now: Instant,
        queue: &mut VecDeque<Packet>,
    ) -> Result<TxProgress, DeviceError> {
        self.check()?;
        self.0.transmit(now, queue)
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

impl DeviceRx for Mortal<Box<dyn DeviceRx>> {
    fn receive(
        &mut self,
        now: Instant,
        pool: &Pool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, DeviceError> {
        self.check()?;
        self.0.receive(now, pool, out, max)
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }
}

#[test]
fn a_device_that_goes_away() {
    let gone = Arc::new(AtomicBool::new(false));
    let (left, right) = memory_link::pair(LinkConfig::default());
    let left = Device {
        tx: Box::new(Mortal(left.tx, gone.clone())),
        rx: Box::new(Mortal(left.rx, gone.clone())),
        wait: left.wait,
    };
    let (a, b) = (stack(left, A4, A6, &[]), stack(right, B4, B6, &[]));
    let mut pair = Pair { a, b, now: Instant::from_millis(1) };
    let listener = pair.listen(B4, 16);
    let own = pair.a.listen(addr(A4, 80), 16, Options::default()).unwrap();
    let (client, _server) = pair.open(B4, &listener);
    let (woken, waker) = CountingWaker::new();
    assert!(client.poll_readable(&waker).is_pending());
    let (listener_woken, waker) = CountingWaker::new();
    assert!(own.poll_acceptable(&waker).is_pending());
    gone.store(true, Ordering::Relaxed);
    let error = pair.a.poll(pair.now, 64).unwrap_err();
    assert!(matches!(&error, StackError::DeviceGone { reason, .. } if reason.contains("cable")));
    assert_eq!(pair.a.poll(pair.now, 64), Err(error));
    assert_eq!((woken.count(), listener_woken.count()), (1, 1));
    let down = SocketError::Connection(ConnectionError::DeviceGone);
    assert_eq!(down.errno(), libc::ENETDOWN);
    assert_eq!(client.read(pair.now, &mut [0; 8]), Err(down));
    assert_eq!(client.state(), State::Closed);
    assert_eq!(own.accept(pair.now).err(), Some(SocketError::NetworkDown));
    let again = pair.a.connect(pair.now, addr(B4, 80), None, Options::default());
    assert_eq!(again.err(), Some(SocketError::NetworkDown));
    pair.a.wait(pair.now, None).unwrap();
}

#[test]
fn a_sleeping_poller_is_woken() {
    // Two stacks, each polled by its own thread, which sleeps when there is nothing to do.
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let stop = AtomicBool::new(false);
    let origin = std::time::Instant::now();
    let base = pair.now;
    let clock = || base + origin.elapsed();
    std::thread::scope(|scope| {
        for stack in [&pair.a, &pair.b] {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    while stack.poll(clock(), 64).unwrap().worked {}
                    stack.wait(clock(), None).unwrap();
                }
            });
        }
        let mut buf = [0; 8];
        for round in 0_u8..100 {
            client.write(clock(), &[round]).unwrap();
            wait_readable(&server);
            assert_eq!(server.read(clock(), &mut buf), Ok(1));
            server.write(clock(), &buf[..1]).unwrap();
            wait_readable(&client);
            assert_eq!(client.read(clock(), &mut buf), Ok(1));
            assert_eq!(buf[0], round);
        }
        stop.store(true, Ordering::Relaxed);
        pair.a.wait_handle().kick();
        pair.b.wait_handle().kick();
    });
}

/// Sleeps until the socket can be read.
fn wait_readable(socket: &crate::TcpSocket) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    while socket.poll_readable(&waker).is_pending() {
        std::thread::park();
    }
}

#[test]
fn lists_and_counters() {
    let mut pair = Pair::new();
    let listener = pair.listen("::", 7);
    let (client, server) = pair.open(B4, &listener);
    client.write(pair.now, b"12345").unwrap();
    pair.settle();
    let sockets = pair.b.sockets();
    assert_eq!((sockets[0].state, sockets[0].send_queue), (None, 7));
    assert_eq!((sockets[1].state, sockets[1].recv_queue), (Some(State::Established), 5));
    assert_eq!(sockets[1].remote, Some(client.local_addr()));
    drop((client, server));
    pair.run(Duration::from_secs(1));
    let counters = pair.a.counters();
    assert!(counters.iter().any(|&(name, value)| name == "TcpOutSegs" && value > 0));
    assert_eq!(pair.a.device_stats().len(), 2);
}

#[test]
fn two_threads_on_one_socket() {
    // One thread writes, one reads, a third polls both stacks: every byte arrives once, in order.
    let mut pair = Pair::new();
    let listener = pair.listen(B4, 16);
    let (client, server) = pair.open(B4, &listener);
    let data = pattern(4 << 20, 5);
    let stop = AtomicBool::new(false);
    let origin = std::time::Instant::now();
    let base = pair.now;
    let clock = || base + origin.elapsed();
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                pair.a.poll(clock(), 64).unwrap();
                pair.b.poll(clock(), 64).unwrap();
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut at = 0;
            while at < data.len() {
                feed(&client, clock(), &data, &mut at);
                std::thread::yield_now();
            }
        });
        let mut got = Vec::new();
        while got.len() < data.len() {
            wait_readable(&server);
            drain(&server, clock(), &mut got);
        }
        stop.store(true, Ordering::Relaxed);
        got
    });
    assert!(got == data);
}
