//! The limit on the memory of all connections (`net.ipv4.tcp_mem`).

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use plimsoll_tcp::{Duration, Instant, Options, SetOption};

use super::harness::*;
use crate::device::memory_link::LinkConfig;
use crate::{SocketError, Stack, TcpSocket};

/// Connections at once.
const FLOWS: usize = 1000;
/// Bytes that each of them carries.
const LEN: usize = 256 << 10;
const MIB: usize = 1 << 20;

/// The woken waiters: a flow, and whether it is its reader.
type Woken = Arc<Mutex<Vec<(usize, bool)>>>;

struct Flag(usize, bool, Woken);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.2.lock().unwrap().push((self.0, self.1));
    }
}

/// One transfer, by tasks that do nothing unless they are woken.
struct Flow {
    client: Arc<TcpSocket>,
    server: Arc<TcpSocket>,
    wakers: [Waker; 2],
    written: usize,
    got: usize,
    ended: bool,
    /// How long its reader pauses after each little read.
    pause: Option<Duration>,
}

impl Flow {
    fn write(&mut self, now: Instant, data: &[u8]) {
        while self.written < data.len() {
            match self.client.write(now, &data[self.written..]) {
                Ok(count) => self.written += count,
                Err(SocketError::WouldBlock) => {
                    if self.client.poll_writable(&self.wakers[0]).is_pending() {
                        return;
                    }
                }
                Err(error) => panic!("write: {error}"),
            }
        }
        self.client.shutdown(now, Shutdown::Write).unwrap();
    }

    /// Returns when to read on, if not when woken.
    fn read(&mut self, now: Instant, data: &[u8]) -> Option<Instant> {
        let mut buf = [0; 8192];
        while !self.ended {
            match self.server.read(now, &mut buf) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    assert!(data[self.got..].starts_with(&buf[..count]), "bytes differ");
                    self.got += count;
                    if let Some(pause) = self.pause {
                        return Some(now + pause);
                    }
                }
                Err(SocketError::WouldBlock) => {
                    if self.server.poll_readable(&self.wakers[1]).is_pending() {
                        return None;
                    }
                }
                Err(error) => panic!("read: {error}"),
            }
        }
        None
    }
}

fn open_flows(pair: &mut Pair, woken: &Woken, count: usize) -> Vec<Flow> {
    let listener = pair.listen(B4, 2 * count);
    let clients: Vec<_> = (0..count).map(|_| pair.connect(B4)).collect();
    let mut servers = BTreeMap::new();
    let opened = pair.run_until(Duration::from_secs(100), |pair| {
        while let Some((socket, peer)) = listener.accept(pair.now).unwrap() {
            servers.insert(peer, socket);
        }
        servers.len() == count
    });
    assert!(opened);
    let flow = |(index, client): (usize, Arc<TcpSocket>)| Flow {
        server: servers.remove(&client.local_addr()).unwrap(),
        client,
        wakers: [false, true].map(|reads| Waker::from(Arc::new(Flag(index, reads, woken.clone())))),
        written: 0,
        got: 0,
        ended: false,
        pause: None,
    };
    clients.into_iter().enumerate().map(flow).collect()
}

/// Runs all flows to their ends; `check` looks at the stacks whenever they have come to rest.
fn run(pair: &mut Pair, flows: &mut [Flow], woken: &Woken, data: &[u8], check: impl Fn(&Pair)) {
    let mut timers = BTreeMap::<Instant, Vec<usize>>::new();
    for index in 0..flows.len() {
        woken.lock().unwrap().extend([(index, false), (index, true)]);
    }
    let until = pair.now + Duration::from_secs(3600);
    loop {
        assert!(pair.now < until, "somebody sleeps for ever: {}", left(flows));
        loop {
            let list = std::mem::take(&mut *woken.lock().unwrap());
            if list.is_empty() {
                break;
            }
            for (index, reads) in list {
                let now = pair.now;
                let data = &data[index..index + LEN];
                if !reads {
                    flows[index].write(now, data);
                } else if let Some(at) = flows[index].read(now, data) {
                    timers.entry(at).or_default().push(index);
                }
            }
            pair.settle();
            check(pair);
        }
        if flows.iter().all(|flow| flow.ended) {
            return;
        }
        let next = timers.keys().next().copied();
        pair.step(next.unwrap_or(until));
        check(pair);
        if let Some(entry) = timers.first_entry()
            && *entry.key() <= pair.now
        {
            woken.lock().unwrap().extend(entry.remove().into_iter().map(|index| (index, true)));
        }
    }
}

fn left(flows: &[Flow]) -> String {
    let left: Vec<_> = flows.iter().filter(|flow| !flow.ended).collect();
    let first = left.first().map(|flow| (flow.written, flow.got, flow.client.state()));
    format!("{} flows, the first {first:?}", left.len())
}

fn used(stack: &Stack) -> usize {
    stack.memory().bytes
}

#[test]
fn a_thousand_flows_stay_below_the_limit() {
    let link = LinkConfig {
        delay: Duration::from_millis(2),
        rate: Some(4_000_000_000),
        loss: 0.002,
        queue_limit: 1 << 20,
        ..LinkConfig::default()
    };
    let sysctls = [
        ("net.core.somaxconn", "4096"),
        ("net.ipv4.tcp_mem", "8192 12288 16384"),
        ("net.ipv4.tcp_rmem", "4096 524288 6291456"),
    ];
    let mut pair = Pair::with(link, &sysctls);
    let woken = Woken::default();
    let mut flows = open_flows(&mut pair, &woken, FLOWS);
    for (index, flow) in flows.iter_mut().enumerate() {
        flow.pause = (index % 4 > 0).then_some(Duration::from_millis(300));
    }
    let data = pattern(LEN + FLOWS, 3);
    let worst = std::cell::Cell::new(0);
    run(&mut pair, &mut flows, &woken, &data, |pair| {
        let real = pair.a.pool().stats().in_use_bytes + pair.b.pool().stats().in_use_bytes;
        worst.set(real.max(worst.get()));
    });
    assert!(flows.iter().all(|flow| flow.got == LEN));
    let limit = 64 * MIB;
    for stack in [&pair.a, &pair.b] {
        let memory = stack.memory();
        assert_eq!(memory.thresholds[2], limit);
        // The minimum that every connection may always have, as far as it was needed; see the
        // module.
        assert!(memory.peak <= limit + 4 * MIB, "{memory:?}");
        assert!(stack.counter("TcpExtTCPMemoryPressures").unwrap() > 0);
    }
    // The buffers are those of the sender, so the memory of both stacks is in one pool. A buffer
    // that is not filled to its end counts only as long as its writer has it.
    assert!(worst.get() <= 2 * limit + 8 * MIB, "{} MiB of buffers", worst.get() / MIB);
    for name in ["PruneCalled", "RcvPruned", "OfoPruned", "TCPRcvQDrop", "TCPRcvCollapsed"] {
        let count = pair.b.counter(&format!("TcpExt{name}")).unwrap();
        assert!(count > 0, "{name}");
    }
    drop(flows);
    pair.run(Duration::from_secs(120));
    assert_eq!((used(&pair.a), used(&pair.b)), (0, 0), "all is given back");
}

#[test]
fn the_same_memory_gives_the_same_run() {
    let run = || {
        let link =
            LinkConfig { delay: Duration::from_millis(2), loss: 0.01, ..LinkConfig::default() };
        let mut pair = Pair::with(link, &[("net.ipv4.tcp_mem", "64 96 128")]);
        let woken = Woken::default();
        let mut flows = open_flows(&mut pair, &woken, 20);
        flows[3].pause = Some(Duration::from_millis(20));
        let data = pattern(LEN + FLOWS, 3);
        run(&mut pair, &mut flows, &woken, &data, |_| ());
        (pair.now, pair.a.counters(), pair.b.counters())
    };
    assert_eq!(run(), run());
}

/// Two connections whose peers read nothing: one holds a lot, and the other one has met the limit,
/// although its send buffer is not full. Returns the sockets, and the waker of the second writer.
fn starved(pair: &mut Pair) -> ([Arc<TcpSocket>; 4], Arc<CountingWaker>) {
    let listener = pair.listen(B4, 16);
    let (hog, hog_reader) = pair.open(B4, &listener);
    let (client, server) = pair.open(B4, &listener);
    let data = vec![7; 8 << 20];
    let (mut at, mut other) = (0, 0);
    for socket in [&hog, &client] {
        socket.set_option(pair.now, SetOption::SndBuf(2 * MIB));
    }
    pair.run_until(Duration::from_secs(5), |pair| {
        feed(&hog, pair.now, &data, &mut at);
        feed(&client, pair.now, &data[..MIB], &mut other);
        false
    });
    assert!(at < data.len() && other == MIB && client.unsent_len() > 0);
    pair.a.set_sysctl(pair.now, "net.ipv4.tcp_mem", "512 768 1024").unwrap();
    assert!(used(&pair.a) > 4 * MIB);
    // Bytes that fit into the existing buffer cost nothing.
    feed(&client, pair.now, &data, &mut other);
    assert!(other < MIB + MIB / 4, "{other}");
    let (count, waker) = CountingWaker::new();
    assert!(client.poll_writable(&waker).is_pending());
    pair.run(Duration::from_secs(5));
    assert_eq!(count.count(), 0, "there is no memory");
    ([hog, hog_reader, client, server], count)
}

#[test]
fn a_writer_is_woken_when_others_give_memory_back() {
    let mut pair = Pair::new();
    let ([hog, _reader, client, server], woken) = starved(&mut pair);
    let waits = client.unsent_len();
    hog.abort(pair.now);
    pair.settle();
    assert_eq!(woken.count(), 1);
    assert_eq!(client.unsent_len(), waits, "nothing of its own has moved");
    assert!(client.write(pair.now, b"on it goes").is_ok());
    drop(server);
}

#[test]
fn a_writer_is_woken_when_the_limit_is_raised() {
    let mut pair = Pair::new();
    let ([_hog, _reader, client, _server], woken) = starved(&mut pair);
    pair.a.set_sysctl(pair.now, "net.ipv4.tcp_mem", "99999 99999 99999").unwrap();
    assert_eq!(woken.count(), 1);
    assert!(client.write(pair.now, b"on it goes").is_ok());
}

#[test]
fn one_minimum_is_always_there() {
    let mut pair = Pair::new();
    let ([hog, reader, ..], _) = starved(&mut pair);
    pair.a.set_sysctl(pair.now, "net.ipv4.tcp_mem", "1 1 1").unwrap();
    pair.b.set_sysctl(pair.now, "net.ipv4.tcp_mem", "1 1 1").unwrap();
    let listener = pair.b.listen(addr(B4, 81), 4, Options::default()).unwrap();
    let client = pair.a.connect(pair.now, addr(B4, 81), None, Options::default()).unwrap();
    pair.settle();
    let (server, _) = listener.accept(pair.now).unwrap().unwrap();
    let data = pattern(MIB, 1);
    let (mut at, mut got) = (0, Vec::new());
    feed(&client, pair.now, &data, &mut at);
    assert_eq!(at, 4096, "the first number of tcp_wmem");
    let (woken, waker) = CountingWaker::new();
    assert!(client.poll_writable(&waker).is_pending());
    pair.settle();
    assert_eq!(woken.count(), 1, "its own was acknowledged");
    let done = pair.run_until(Duration::from_secs(600), |pair| {
        feed(&client, pair.now, &data, &mut at);
        drain(&server, pair.now, &mut got);
        got.len() == data.len()
    });
    assert!(done && got == data, "{} bytes", got.len());
    drop((hog, reader));
}

/// Connections that are not read, and which were offered more together than the limit.
fn unread(pair: &mut Pair, data: &[u8]) -> Vec<(Arc<TcpSocket>, Arc<TcpSocket>, usize)> {
    let listener = pair.listen(B4, 16);
    let mut open = || {
        let (client, server) = pair.open(B4, &listener);
        (client, server, 0)
    };
    let mut flows: Vec<_> = (0..12).map(|_| open()).collect();
    for (client, _, at) in &mut flows {
        feed(client, pair.now, data, at);
    }
    pair.run(Duration::from_secs(10));
    flows
}

#[test]
fn a_connection_whose_reader_sleeps_outlives_the_shortage() {
    let mut pair = Pair::new();
    pair.b.set_sysctl(pair.now, "net.ipv4.tcp_mem", "64 96 128").unwrap();
    let data = pattern(MIB, 1);
    let mut flows = unread(&mut pair, &data);
    assert!(pair.b.counter("TcpExtTCPRcvQDrop").unwrap() > 0, "more was offered than there is");
    // Longer than the limit of retransmissions without progress.
    pair.run(Duration::from_secs(3 * 3600));
    let mut got = vec![Vec::new(); flows.len()];
    let done = pair.run_until(Duration::from_secs(3600), |pair| {
        for ((client, server, at), got) in flows.iter_mut().zip(&mut got) {
            feed(client, pair.now, &data, at);
            drain(server, pair.now, got);
        }
        got.iter().all(|got| got.len() == data.len())
    });
    assert!(done && got.iter().all(|got| *got == data));
}

#[test]
fn a_closed_window_opens_when_others_give_memory_back() {
    let mut pair = Pair::new();
    pair.b.set_sysctl(pair.now, "net.ipv4.tcp_mem", "64 96 128").unwrap();
    let data = pattern(MIB, 1);
    let mut flows = unread(&mut pair, &data);
    pair.run(Duration::from_secs(1800));
    let closed: Vec<_> = flows.iter().map(|flow| flow.1.info(pair.now).rcv_wnd == 0).collect();
    assert!(closed.iter().filter(|closed| **closed).count() > 6, "{closed:?}");
    let before: Vec<_> = flows.iter().map(|flow| flow.1.info(pair.now).bytes_received).collect();
    // The first five end. The others are not read, and need not wait for probes, which are rare.
    for (client, server, _) in flows.drain(..5) {
        client.abort(pair.now);
        server.abort(pair.now);
    }
    pair.run(Duration::from_secs(1));
    for (flow, before) in flows.iter().zip(&before[5..]) {
        let after = flow.1.info(pair.now).bytes_received;
        assert!(after > *before, "{before} {after}");
    }
}
