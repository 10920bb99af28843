//! `plimsoll idle`: what an open connection that does nothing costs.
//!
//! Two stacks in this process and one thread that runs both. All connections are opened, and a byte
//! goes over each in both directions, so that every queue has been in use once.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail};
use plimsoll::{BuildError, Connector, Options, Stack, TcpListener, TcpStream, device};
use serde::Serialize;

use crate::args::IdleArgs;
use plimsoll_lab::figures::{self, Row};
use plimsoll_lab::{show, usage};

use crate::net;
use crate::output::{self, print};

/// Connections to one port of the server: fewer than a client has ports.
const PER_PORT: u32 = 20_000;

/// Connections that are opened before the stacks are polled.
const BATCH: u32 = 256;

/// Connections that may wait to be accepted.
const BACKLOG: usize = 2 * BATCH as usize;

/// Polls without anything to do after which the connections cannot be completed any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longer than the times after which an idle connection and then an idle pool give memory back.
const RESTING_TIME: Duration = Duration::from_millis(2500);

/// The JSON document.
#[derive(Serialize)]
struct Document {
    command: &'static str,
    connections: u32,
    seconds: f64,
    client_bytes_per_connection: f64,
    server_bytes_per_connection: f64,
    resident_bytes_per_connection_and_stack: Option<f64>,
    pool_bytes_in_use: usize,
    /// Sizes of the types of a connection and its packets, in bytes.
    type_bytes: BTreeMap<&'static str, usize>,
}

/// The two ends.
struct Ends {
    client: Stack,
    server: Stack,
    opened: Vec<TcpStream>,
    accepted: Vec<TcpStream>,
}

/// Runs it.
pub(crate) fn run(args: &IdleArgs) -> anyhow::Result<()> {
    let json = output::open(args.json.as_deref())?;
    let mut ends = Ends::new(args)?;
    ends.check_backlog()?;
    let listeners = ends.listen(args.connections)?;
    ends.opened.reserve(args.connections as usize);
    ends.accepted.reserve(args.connections as usize);
    let before = usage::resident_bytes();
    let start = std::time::Instant::now();
    ends.open(args.connections, &listeners)?;
    ends.talk()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = usage::resident_bytes();
    let count = f64::from(args.connections);
    let per = |stack: &Stack| {
        let memory = stack.core().connection_memory();
        memory.bytes as f64 / memory.connections.max(1) as f64
    };
    let resident = after.zip(before).map(|(after, before)| after.saturating_sub(before) as f64);
    let pools = [&ends.client, &ends.server];
    let document = Document {
        command: "idle",
        connections: args.connections,
        seconds,
        client_bytes_per_connection: per(&ends.client),
        server_bytes_per_connection: per(&ends.server),
        resident_bytes_per_connection_and_stack: resident.map(|bytes| bytes / count / 2.0),
        pool_bytes_in_use: pools.map(|stack| stack.core().pool().stats().in_use_bytes).iter().sum(),
        type_bytes: ends.client.core().type_sizes().into_iter().collect(),
    };
    if !output::is_stdout(args.json.as_deref()) {
        print(table(&document).as_bytes())?;
    }
    output::write_json(json, &document)
}

fn table(document: &Document) -> String {
    let title = format!(
        "{} connections open at once, opened and used in {:.2} s\n",
        document.connections, document.seconds
    );
    let resident = document.resident_bytes_per_connection_and_stack;
    let rows: [Row; 4] = [
        ("client, by its own count", format!("{:.0} B", document.client_bytes_per_connection)),
        ("server, by its own count", format!("{:.0} B", document.server_bytes_per_connection)),
        ("resident, per stack", figures::decimal(resident, 0) + " B"),
        ("buffers in use", show::bytes(document.pool_bytes_in_use as f64)),
    ];
    title + &figures::table(&rows)
}

impl Ends {
    fn new(args: &IdleArgs) -> anyhow::Result<Ends> {
        let config = device::memory_link::LinkConfig::default();
        let (here, there) = device::memory_link::pair(config);
        let build = |device, address: &str| {
            let mut builder = Stack::builder().device(device).address(format!("{address}/24"));
            // All of the ports above the well-known ones.
            builder = builder.sysctl("net.ipv4.ip_local_port_range", "1024 65535");
            for (name, value) in &args.sysctls {
                builder = builder.sysctl(name, value);
            }
            builder.build_without_thread().map_err(|error| match error {
                BuildError::Sysctl(error) => net::setting_error(&error),
                other => anyhow::Error::from(other).context("cannot build the stack"),
            })
        };
        Ok(Ends {
            client: build(here, net::CLIENT)?,
            server: build(there, net::SERVER)?,
            opened: Vec::new(),
            accepted: Vec::new(),
        })
    }

    /// Whether a batch of connections finds room before it is accepted.
    fn check_backlog(&self) -> anyhow::Result<()> {
        let name = "net.core.somaxconn";
        let most = self.server.sysctl(name).and_then(|text| text.parse::<u32>().ok());
        match most {
            Some(most) if most < BATCH => Err(net::usage(&format!(
                "{name} is {most}, but {BATCH} connections are opened at a time and wait to be \
                 accepted; set it to {BATCH} or more"
            ))),
            _ => Ok(()),
        }
    }

    fn listen(&self, connections: u32) -> anyhow::Result<Vec<TcpListener>> {
        let ip: IpAddr = net::SERVER.parse().context("a literal address")?;
        let ports =
            u16::try_from(connections.div_ceil(PER_PORT)).context("too many connections")?;
        (0..ports)
            .map(|index| {
                let address = SocketAddr::new(ip, 5001 + index);
                let listener =
                    TcpListener::bind_with(&self.server, address, BACKLOG, Options::default())?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            })
            .collect()
    }

    fn open(&mut self, connections: u32, listeners: &[TcpListener]) -> anyhow::Result<()> {
        let connector = Connector::new(&self.client);
        let mut next = 0;
        while next < connections {
            let end = (next + BATCH).min(connections);
            for number in next..end {
                let address = listeners[(number / PER_PORT) as usize].local_addr()?;
                let stream = connector.start(address).context("cannot connect")?;
                self.opened.push(stream);
            }
            next = end;
            self.run_until("accepted", |ends| {
                for listener in listeners {
                    while let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true)?;
                        ends.accepted.push(stream);
                    }
                }
                Ok(ends.accepted.len() == end as usize)
            })?;
        }
        Ok(())
    }

    /// Sends a byte over each connection, there and back.
    fn talk(&mut self) -> anyhow::Result<()> {
        for index in 0..self.opened.len() {
            (&self.opened[index]).write_all(b"?").context("cannot write")?;
            if index % 1024 == 1023 {
                self.client.poll();
                self.server.poll();
            }
        }
        let mut at = 0;
        self.run_until("asked", |ends| pass(&ends.accepted, &mut at, Some(b"!")))?;
        let mut at = 0;
        self.run_until("answered", |ends| pass(&ends.opened, &mut at, None))?;
        // Every last ACK leaves, too, and what only data in flight needs is given back.
        let quiet = plimsoll::now() + RESTING_TIME;
        self.run_until("quiet", |_| Ok(plimsoll::now() >= quiet))
    }

    /// Polls both stacks until `done`.
    fn run_until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Ends) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let mut last = plimsoll::now();
        while !done(self)? {
            let now = plimsoll::now();
            let (client, server) = (self.client.poll(), self.server.poll());
            if client.worked || server.worked {
                last = now;
                continue;
            }
            if now.since(last) > PATIENCE {
                bail!("not every connection was {what} after {PATIENCE:?} of silence");
            }
            // Both stacks are run here, so what one waits for can only come by its timer.
            let soon = now + Duration::from_millis(10);
            let until =
                [client.next, server.next].into_iter().flatten().fold(soon, |a, b| a.min(b));
            // No other thread waits for it.
            let _ = self.client.wait(Some(until), || false);
        }
        Ok(())
    }
}

/// Reads a byte from each stream in turn, and answers if there is an answer. Whether it is through.
fn pass(streams: &[TcpStream], at: &mut usize, answer: Option<&[u8]>) -> anyhow::Result<bool> {
    while let Some(mut stream) = streams.get(*at) {
        match stream.read(&mut [0; 8]) {
            Ok(0) => bail!("a connection was closed"),
            Ok(_) => *at += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("a connection failed"),
        }
        if let Some(answer) = answer {
            stream.write_all(answer).context("cannot answer")?;
        }
    }
    Ok(true)
}
