//! The second process: the peers of the connections.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll::{Connector, Stack, TcpStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::counts::{ACTIVE_ONE_IN, BODY, CLIENT, PER_PORT, PORT, SERVER};
use super::link::{Command, Link, device};

/// Connections that are opened at once.
const BATCH: usize = 128;

/// Times that nothing was to be done before this process sleeps.
const PATIENCE: usize = 20_000;

/// The longest sleep: timers of the stack must be looked at.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// What ends a run in which nothing goes on.
const LIMIT: Duration = Duration::from_secs(200);

/// Steps through the active ones, so that no neighbours follow one another. It has no divisor in
/// common with powers of ten.
const STEP: usize = 381;

struct Peers {
    stack: Stack,
    link: Link,
    streams: Vec<TcpStream>,
    /// How often there was nothing to do.
    idle: usize,
    next: usize,
}

pub(crate) fn run() -> Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("the socket")?;
    let (device, channel) = device()?;
    let stack = Stack::builder().device(device).address(format!("{CLIENT}/24")).seed(2);
    let stack = stack.sysctl("net.ipv4.ip_local_port_range", "1024 65535");
    let stack = stack.build_without_thread()?;
    let link = Link::new(socket, channel);
    let mut peers = Peers { stack, link, streams: Vec::new(), idle: 0, next: 0 };
    loop {
        peers.pump()?;
        match peers.link.take_command() {
            None => {}
            Some(Command::Open(count)) => peers.open(usize::try_from(count)?)?,
            Some(Command::Ask { requests, count }) => {
                peers.ask(requests, usize::try_from(count)?)?
            }
            // Closing one connection after the other would take long.
            Some(Command::End) => std::process::exit(0),
        }
    }
}

impl Peers {
    /// Passes packets on. Sleeps if there have been none for a while.
    fn pump(&mut self) -> Result<()> {
        self.idle = if self.link.pump(&self.stack)? { 0 } else { self.idle + 1 };
        if self.idle > PATIENCE {
            let stdin = std::io::stdin();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            poll(&mut fds, Some(&NAP)).context("waiting for packets")?;
        }
        Ok(())
    }

    fn open(&mut self, count: usize) -> Result<()> {
        while self.streams.len() < count {
            let from = self.streams.len();
            let end = (from + BATCH).min(count);
            for number in from..end {
                let port = PORT + (number / PER_PORT) as u16;
                let stream = Connector::new(&self.stack).start((SERVER, port).into());
                self.streams.push(stream.context("opening a connection")?);
            }
            let start = Instant::now();
            for number in from..end {
                while self.streams[number].peer_addr().is_err() {
                    self.pump()?;
                    ensure!(start.elapsed() < LIMIT, "connection {number} does not open");
                }
            }
        }
        self.link.say_done()
    }

    /// Sends requests, each when the one before has been answered.
    fn ask(&mut self, requests: u64, count: usize) -> Result<()> {
        let active = (count / ACTIVE_ONE_IN).max(1);
        for _ in 0..requests {
            self.next = (self.next + STEP) % active;
            self.transact(self.next * ACTIVE_ONE_IN % count)?;
        }
        self.link.say_done()
    }

    fn transact(&mut self, number: usize) -> Result<()> {
        let mut stream = self.streams.get(number).context("an open connection")?;
        stream.write_all(&[0x5a; BODY]).context("asking")?;
        self.link.send()?;
        let (mut got, start) = (0, Instant::now());
        while got < BODY {
            self.link.pump(&self.stack)?;
            match stream.read(&mut [0; BODY]) {
                Ok(count) => got += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("an answer"),
            }
            ensure!(start.elapsed() < LIMIT, "no answer on connection {number}");
        }
        Ok(())
    }
}
