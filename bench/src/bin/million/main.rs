//! `million COUNT...`: what a packet costs, and how much memory a connection takes, as the number
//! of connections grows to each COUNT.
//!
//! The stack that is measured accepts them. Their peers are a second process, this program with
//! other words, so that only the ends of one stack are in the memory that is measured. A socket
//! joins the two, each datagram of which is a packet. One connection in a hundred is active: its
//! peer sends a request of 64 bytes, and when the answer has come, the next one in an order without
//! neighbours does. Measured is one poll that finds the request, with the read and the write of the
//! answer, by the clock: nothing of the socket between the processes is in it. Neither process
//! sleeps meanwhile, so that the caches hold what they can.

mod counts;
mod link;
mod peers;

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll::{Stack, TcpListener, TcpStream};
use serde_json::{Value, json};

use self::counts::{ACTIVE_ONE_IN, BODY, PER_PORT, PORT, SERVER};
use self::link::{Command, Link, device};

/// Requests of each measurement, and measurements for each count.
const REQUESTS: u64 = 20_000;
const SECTIONS: usize = 5;

/// Longer than the times after which an idle connection and then an idle pool give memory back.
const RESTING_TIME: Duration = Duration::from_millis(2500);

/// What ends a run in which nothing goes on.
const LIMIT: Duration = Duration::from_secs(200);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [word] if word == "--peers" => peers::run(),
        counts => {
            let counts: Vec<usize> = counts.iter().map(number).collect::<Result<_>>()?;
            ensure!(counts.is_sorted() && counts.first() > Some(&0), "COUNTs grow from 1");
            let mut server = Server::new(*counts.last().context("usage: million COUNT...")?)?;
            for &count in &counts {
                println!("{}", server.measure(count)?);
            }
            server.end()
        }
    }
}

fn number(word: &String) -> Result<usize> {
    word.parse().with_context(|| format!("{word} is no number of connections"))
}

/// The stack that is measured.
struct Server {
    stack: Stack,
    link: Link,
    listeners: Vec<TcpListener>,
    streams: Vec<TcpStream>,
    /// Which stream is whose, by the ports of the packet.
    by_ports: Vec<u32>,
    /// What the process took before there was a connection.
    before: i64,
    peers: std::process::Child,
}

impl Server {
    fn new(connections: usize) -> Result<Server> {
        let (socket, peers) = link::start_peers()?;
        let (device, channel) = device()?;
        let stack = Stack::builder().device(device).address(format!("{SERVER}/24")).seed(1);
        let stack = stack.build_without_thread()?;
        let mut listeners = Vec::new();
        for index in 0..connections.div_ceil(PER_PORT) {
            let listener = TcpListener::bind(&stack, (SERVER, PORT + index as u16))?;
            listener.set_nonblocking(true)?;
            listeners.push(listener);
        }
        // What this program keeps is in memory before the first figure is taken.
        let by_ports = vec![u32::MAX; listeners.len() << 16];
        let mut streams = Vec::new();
        streams.reserve_exact(connections);
        let link = Link::new(socket, channel);
        let before = resident()?;
        Ok(Server { stack, link, listeners, streams, by_ports, before, peers })
    }

    /// Opens connections until there are `count`. Returns how long it took.
    fn grow(&mut self, count: usize) -> Result<Duration> {
        let start = Instant::now();
        self.link.command(Command::Open(count as u64))?;
        let mut last = start;
        while self.streams.len() < count || !self.link.take_done() {
            let before = self.streams.len();
            let moved = self.link.pump(&self.stack)?;
            self.accept()?;
            if moved || self.streams.len() > before {
                last = Instant::now();
            }
            let open = self.streams.len();
            ensure!(last.elapsed() < LIMIT, "nothing goes on; {open} connections are open");
        }
        Ok(start.elapsed())
    }

    fn accept(&mut self) -> Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            loop {
                match listener.accept() {
                    Ok((stream, peer)) => {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        self.by_ports[index << 16 | usize::from(peer.port())] =
                            u32::try_from(self.streams.len())?;
                        self.streams.push(stream);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Lets the time pass after which memory is given back.
    fn rest(&mut self) -> Result<()> {
        let mut quiet = Instant::now() + RESTING_TIME;
        while Instant::now() < quiet {
            if self.link.pump(&self.stack)? {
                quiet = Instant::now() + RESTING_TIME;
            }
        }
        Ok(())
    }

    /// Grows to `count` connections, and measures.
    fn measure(&mut self, count: usize) -> Result<Value> {
        let (had, took) = (self.streams.len(), self.grow(count)?);
        self.rest()?;
        let taken = resident()? - self.before;
        let memory = self.stack.core().connection_memory().bytes;
        let active = active(count);
        // Every connection that is active has been so before.
        self.requests(active.max(1000), count)?;
        let mut nanos = Vec::new();
        for _ in 0..SECTIONS {
            let spent = self.requests(REQUESTS.max(active), count)?;
            nanos.push(spent.as_nanos() as f64 / REQUESTS.max(active) as f64);
        }
        nanos.sort_by(f64::total_cmp);
        Ok(json!({
            "connections": count,
            "active": active,
            "resident_bytes": taken as f64 / count as f64,
            "own_count_bytes": memory as f64 / count as f64,
            "opened_per_s": (count - had) as f64 / took.as_secs_f64(),
            "ns_per_request": nanos,
        }))
    }

    /// Has the peers send requests, and answers them. Returns what the polls took that found them.
    fn requests(&mut self, requests: u64, count: usize) -> Result<Duration> {
        self.link.command(Command::Ask { requests, count: count as u64 })?;
        let mut spent = Duration::ZERO;
        let mut last = Instant::now();
        while !self.link.take_done() {
            while let Some(packet) = self.link.receive()? {
                let Some(ports) = link::request_ports(&packet) else {
                    self.link.give(packet)?;
                    self.stack.poll();
                    continue;
                };
                let index = self.by_ports[usize::from(ports.1 - PORT) << 16 | usize::from(ports.0)];
                self.link.give(packet)?;
                if let Some(took) = self.answer(index as usize)? {
                    spent += took;
                    last = Instant::now();
                }
            }
            self.link.send()?;
            if last.elapsed() > LIMIT {
                anyhow::bail!("no request comes");
            }
        }
        Ok(spent)
    }

    /// Works on one packet with a request. Returns how long it took, or nothing if the request had
    /// come before: where everything is slow, peers send again.
    fn answer(&self, index: usize) -> Result<Option<Duration>> {
        let mut stream = self.streams.get(index).context("a packet of a known connection")?;
        let mut body = [0; BODY];
        let mut answered = Err(ErrorKind::WouldBlock.into());
        let start = Instant::now();
        self.stack.poll_with(|| {
            answered = stream.read_exact(&mut body).and_then(|()| stream.write_all(&body));
        });
        let took = start.elapsed();
        match answered {
            Ok(()) => Ok(Some(took)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("answering in the turn of a poll"),
        }
    }

    /// Ends both processes, without closing one connection after the other.
    fn end(mut self) -> Result<()> {
        self.link.command(Command::End)?;
        self.peers.wait().context("the process of the peers")?;
        std::process::exit(0);
    }
}

fn active(count: usize) -> u64 {
    (count / ACTIVE_ONE_IN).max(1) as u64
}

/// Resident memory, in bytes.
fn resident() -> Result<i64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading the status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("VmRSS is there")?;
    Ok(kib.parse::<i64>().context("VmRSS is a number")? * 1024)
}
