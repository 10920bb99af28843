//! `idle CONNECTIONS`: where the memory of open connections goes that do nothing.
//!
//! Two stacks stand in one thread, joined by a link in memory. All connections are opened, a byte
//! goes over each in both directions, and what only data in flight needs is given back after a
//! second. What lives then, less what lived before, is divided by the connections and by their two
//! ends. It prints JSON. `cargo xtask bench idle` runs it.
//!
//! Resident memory is what `/proc/self/status` calls `VmRSS`. It holds what was asked for, what the
//! allocator adds to that, and what it keeps free: all connections were in use at once. At the end
//! the allocator is asked to give back what it keeps free (`malloc_trim`), as a program may.
//!
//! It uses the public interface only, and little of it, so that it can be built with older versions
//! of the stack.

mod heap;

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use plimsoll::device::memory_link::{self, LinkConfig};
use plimsoll::{Connector, Stack, TcpListener, TcpStream};
use serde_json::{Value, json};

/// Connections to one port: fewer than there are ports to connect from.
const PER_PORT: usize = 20_000;

/// Connections that are opened or used before the stacks are polled. A queue that refuses packets,
/// or a retransmission timeout that comes meanwhile, reduces the window of a connection, which then
/// keeps what CUBIC remembers of that.
const BATCH: usize = 256;

/// Longer than the times after which an idle connection and then an idle pool give memory back.
const RESTING_TIME: Duration = Duration::from_millis(2500);

/// Allocations of one size are told if there is one in so many ends.
const RARE: f64 = 0.01;

fn main() -> Result<()> {
    let connections = std::env::args().nth(1).context("usage: idle CONNECTIONS")?;
    let connections: usize = connections.parse().context("CONNECTIONS is a number")?;
    ensure!(connections > 0, "at least one connection is needed");
    let mut ends = Ends::new(connections)?;
    // What lives at the end of the heap keeps the allocator from giving back what lies before it.
    // So nothing of this program is allocated later and kept.
    let mut room = [(); 5].map(|()| Vec::with_capacity(heap::SIZES + 1)).into_iter();
    let mut moment = || Moment::now(room.next().unwrap_or_default());
    let before = moment()?;
    ends.open(connections)?;
    let opened = moment()?;
    ends.talk()?;
    let used = moment()?;
    ends.rest();
    let rested = moment()?;
    heap::trim();
    let trimmed = moment()?;
    let per_end = |value: i64| value as f64 / connections as f64 / 2.0;
    let moment = |moment: &Moment| {
        let since = moment.since(&before);
        json!({
            "asked_for": per_end(since.heap.bytes),
            "allocations": per_end(since.heap.counts.iter().sum()),
            "given_out": per_end(since.heap.in_use),
            "kept_free": per_end(since.heap.free),
            "resident": per_end(since.resident),
        })
    };
    let own = [&ends.client, &ends.server].map(|stack| stack.core().connection_memory().bytes);
    let document = json!({
        "connections": connections,
        "own_count": per_end((own[0] + own[1]) as i64),
        "opened": moment(&opened),
        "used": moment(&used),
        "idle": moment(&rested),
        "trimmed": moment(&trimmed),
        "sizes": sizes(&rested.since(&before).heap, per_end),
        "sizes_in_use": sizes(&used.since(&before).heap, per_end),
    });
    println!("{document}");
    Ok(())
}

/// Live allocations by size: bytes, and how many there are of each connection's end.
fn sizes(heap: &heap::Live, per_end: impl Fn(i64) -> f64) -> Vec<Value> {
    let counts = heap.counts.iter().enumerate();
    let each = counts.map(|(size, &count)| (size, per_end(count)));
    let common = each.filter(|&(size, count)| count >= RARE && size < heap::SIZES);
    common.map(|(size, count)| json!([size, count])).collect()
}

/// What there is at a moment.
struct Moment {
    heap: heap::Live,
    resident: i64,
}

impl Moment {
    /// Now, with `room` for the counts.
    fn now(room: Vec<i64>) -> Result<Moment> {
        let status = std::fs::read_to_string("/proc/self/status").context("reading the status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).context("VmRSS is there")?;
        let resident = kib.parse::<i64>().context("VmRSS is a number")? * 1024;
        Ok(Moment { heap: heap::live(room), resident })
    }

    fn since(&self, before: &Moment) -> Moment {
        let mut heap = self.heap.clone();
        heap.counts.iter_mut().zip(&before.heap.counts).for_each(|(now, then)| *now -= then);
        heap.bytes -= before.heap.bytes;
        heap.in_use -= before.heap.in_use;
        heap.free -= before.heap.free;
        Moment { heap, resident: self.resident - before.resident }
    }
}

/// The two ends.
struct Ends {
    client: Stack,
    server: Stack,
    listeners: Vec<TcpListener>,
    opened: Vec<TcpStream>,
    accepted: Vec<TcpStream>,
}

impl Ends {
    fn new(connections: usize) -> Result<Ends> {
        let (here, there) = memory_link::pair(LinkConfig::default());
        let build = |device, address: &str, seed| {
            let builder = Stack::builder().device(device).address(address).seed(seed);
            builder.sysctl("net.ipv4.ip_local_port_range", "1024 65535").build_without_thread()
        };
        let client = build(here, "192.0.2.1/24", 1)?;
        let server = build(there, "192.0.2.2/24", 2)?;
        let mut listeners = Vec::new();
        for index in 0..connections.div_ceil(PER_PORT) {
            let listener = TcpListener::bind(&server, ("192.0.2.2", 5001 + index as u16))?;
            listener.set_nonblocking(true)?;
            listeners.push(listener);
        }
        let room = || Vec::with_capacity(connections);
        Ok(Ends { client, server, listeners, opened: room(), accepted: room() })
    }

    fn poll(&self) -> bool {
        self.client.poll().worked | self.server.poll().worked
    }

    fn open(&mut self, connections: usize) -> Result<()> {
        let connector = Connector::new(&self.client);
        while self.opened.len() < connections {
            let end = (self.opened.len() + BATCH).min(connections);
            for number in self.opened.len()..end {
                let listener = &self.listeners[number / PER_PORT];
                let stream = connector.start(listener.local_addr()?).context("cannot connect")?;
                self.opened.push(stream);
            }
            let limit = Instant::now() + Duration::from_secs(10);
            while self.accepted.len() < end {
                self.poll();
                for listener in &self.listeners {
                    while let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true)?;
                        self.accepted.push(stream);
                    }
                }
                ensure!(Instant::now() < limit, "not every connection was accepted");
            }
        }
        Ok(())
    }

    /// Sends a byte over each connection, there and back.
    fn talk(&self) -> Result<()> {
        for (index, mut stream) in self.opened.iter().enumerate() {
            stream.write_all(b"?").context("cannot write")?;
            if index % BATCH == BATCH - 1 {
                self.poll();
            }
        }
        self.pass(&self.accepted, Some(b"!"))?;
        self.pass(&self.opened, None)
    }

    /// Reads a byte from each stream in turn, and answers if there is an answer.
    fn pass(&self, streams: &[TcpStream], answer: Option<&[u8]>) -> Result<()> {
        let mut rest = streams;
        let limit = Instant::now() + Duration::from_secs(60);
        while let Some((mut stream, others)) = rest.split_first() {
            match stream.read(&mut [0; 8]) {
                Ok(0) => bail!("a connection was closed"),
                Ok(_) => rest = others,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.poll();
                    ensure!(Instant::now() < limit, "not every byte arrived");
                    continue;
                }
                Err(error) => return Err(error).context("a connection failed"),
            }
            if let Some(answer) = answer {
                stream.write_all(answer).context("cannot answer")?;
            }
            if rest.len().is_multiple_of(BATCH) {
                self.poll();
            }
        }
        Ok(())
    }

    /// Lets the last ACKs leave, and the time pass after which memory is given back. On a busy
    /// machine the timers of so many connections take longer than that.
    fn rest(&self) {
        let mut quiet = Instant::now() + RESTING_TIME;
        while Instant::now() < quiet {
            if self.poll() {
                quiet = Instant::now() + RESTING_TIME;
            }
        }
    }
}
