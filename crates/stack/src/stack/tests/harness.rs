//! The pair that tests drive.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use plimsoll_tcp::{Duration, Instant, Options, State};

use crate::device::Device;
use crate::device::memory_link::{self, LinkConfig};
use crate::tables::connections::ConnectionTable;
use crate::{InterfaceConfig, Listener, SocketError, Stack, StackConfig, TcpSocket};

pub(crate) const A4: &str = "192.0.2.1";
pub(crate) const B4: &str = "192.0.2.2";
pub(crate) const A6: &str = "2001:db8::1";
pub(crate) const B6: &str = "2001:db8::2";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn addr(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(text), port)
}

/// A stack with one address of each family on `device`.
pub(crate) fn stack(device: Device, v4: &str, v6: &str, sysctls: &[(&str, &str)]) -> Arc<Stack> {
    let interface =
        InterfaceConfig { device, addresses: vec![(ip(v4), 24), (ip(v6), 64)], mtu: None };
    let sysctls =
        sysctls.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let secret = [v4.as_bytes()[v4.len() - 1]; 32];
    let config = StackConfig {
        interfaces: vec![interface],
        sysctls,
        secret,
        seed: 7,
        ..StackConfig::default()
    };
    Stack::new(config).unwrap()
}

/// The table of connections of `stack`, for tests outside this module.
pub(crate) fn connections(stack: &Stack) -> &ConnectionTable {
    stack.tables.connections()
}

/// Two stacks, `a` and `b`, and the time.
pub(crate) struct Pair {
    pub(crate) a: Arc<Stack>,
    pub(crate) b: Arc<Stack>,
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with(LinkConfig::default(), &[])
    }

    pub(crate) fn with(link: LinkConfig, sysctls: &[(&str, &str)]) -> Pair {
        let (left, right) = memory_link::pair(link);
        Pair {
            a: stack(left, A4, A6, sysctls),
            b: stack(right, B4, B6, sysctls),
            now: Instant::from_millis(1000),
        }
    }

    /// Polls both until neither has anything to do now.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            let a = self.a.poll(self.now, 256).unwrap();
            let b = self.b.poll(self.now, 256).unwrap();
            if !a.worked && !b.worked {
                self.a.check_states();
                self.b.check_states();
                return;
            }
        }
        panic!("the stacks never come to rest");
    }

    /// Moves the time to the next event, at most `until`; `false` if that was reached.
    pub(crate) fn step(&mut self, until: Instant) -> bool {
        self.settle();
        let next = self.a.next_deadline().into_iter().chain(self.b.next_deadline()).min();
        match next {
            Some(at) if at < until => {
                self.now = self.now.max(at);
                self.settle();
                true
            }
            _ => {
                self.now = self.now.max(until);
                self.settle();
                false
            }
        }
    }

    /// Lets `time` pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    /// Lets time pass until `done` or `time` has passed; whether it was done.
    pub(crate) fn run_until(
        &mut self,
        time: Duration,
        mut done: impl FnMut(&mut Pair) -> bool,
    ) -> bool {
        let until = self.now + time;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            if !self.step(until) {
                self.settle();
                return done(self);
            }
        }
    }

    /// Listens on port 80 of `b`.
    pub(crate) fn listen(&self, ip: &str, backlog: usize) -> Arc<Listener> {
        self.b.listen(addr(ip, 80), backlog, Options::default()).unwrap()
    }

    /// Connects `a` to port 80 of `b`, without waiting.
    pub(crate) fn connect(&self, ip: &str) -> Arc<TcpSocket> {
        self.a.connect(self.now, addr(ip, 80), None, Options::default()).unwrap()
    }

    /// An established connection: the client's socket and the server's.
    pub(crate) fn open(
        &mut self,
        ip: &str,
        listener: &Listener,
    ) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
        let client = self.connect(ip);
        let mut server = None;
        let opened = self.run_until(Duration::from_secs(60), |pair| {
            if server.is_none() {
                server = listener.accept(pair.now).unwrap().map(|(socket, _)| socket);
            }
            server.is_some() && client.state() == State::Established
        });
        assert!(opened, "the connection opens");
        (client, server.unwrap())
    }

    pub(crate) fn counter(&self, name: &str) -> (u64, u64) {
        (self.a.counter(name).unwrap(), self.b.counter(name).unwrap())
    }
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl CountingWaker {
    pub(crate) fn new() -> (Arc<CountingWaker>, Waker) {
        let counting = Arc::new(CountingWaker::default());
        (counting.clone(), Waker::from(counting))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A pattern that differs at every place of a large transfer.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Reads all that is there; `true` if the stream has ended.
pub(crate) fn drain(socket: &TcpSocket, now: Instant, out: &mut Vec<u8>) -> bool {
    let mut buf = [0; 16_384];
    loop {
        match socket.read(now, &mut buf) {
            Ok(0) => return true,
            Ok(count) => out.extend_from_slice(&buf[..count]),
            Err(SocketError::WouldBlock) => return false,
            Err(error) => panic!("read: {error}"),
        }
    }
}

/// Writes as much as fits from `data` at `at`.
pub(crate) fn feed(socket: &TcpSocket, now: Instant, data: &[u8], at: &mut usize) {
    while *at < data.len() {
        match socket.write(now, &data[*at..]) {
            Ok(count) => *at += count,
            Err(SocketError::WouldBlock) => return,
            Err(error) => panic!("write: {error}"),
        }
    }
}

/// Whether the socket's attempt to connect has ended, and how.
pub(crate) fn connected(socket: &TcpSocket) -> Poll<Result<(), SocketError>> {
    socket.poll_connected(Waker::noop())
}
