//! The workloads: `stream`, `rr`, `crr` and `idle`.
//!
//! A workload runs on one or two *sides*. The client side is always in this process; the server
//! side is a second stack over a link in memory, or somebody else behind `--to`. Each stack is run
//! by an event loop on a thread of its own, or, with `--threads`, by a softirq thread, with a
//! blocking thread for every socket.
//!
//! The time is taken from when all flows are connected until the last byte has been acknowledged by
//! the end of the stream from the other side. Setting up is not measured, except by `crr`, which
//! measures nothing else.

pub(crate) mod idle;
mod loops;
mod measure;
pub(crate) mod rr;
pub(crate) mod stream;
mod threads;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use plimsoll::{Options, Stack};

use crate::args::{LinkArgs, RunArgs, StackArgs};
use crate::net;

/// The port of the server side in this process.
const PORT: u16 = 5001;

/// How long a workload runs if neither `-l` nor `-n` says.
const DEFAULT_LENGTH: Duration = Duration::from_secs(10);

/// The phases that tasks are told of.
mod phase {
    /// All flows are connected; the time runs.
    pub(super) const RUN: u32 = 1;
    /// The time is over.
    pub(super) const STOP: u32 = 2;
}

/// What flows over the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bulk data to the server.
    Send {
        /// Bytes of one write.
        message: usize,
        /// Bytes of one flow; `u64::MAX` is no limit.
        bytes: u64,
    },
    /// Bulk data to the client.
    Receive {
        /// Bytes of one write.
        message: usize,
        /// Bytes of one flow; `u64::MAX` is no limit.
        bytes: u64,
    },
    /// Transactions.
    Rr {
        /// Sizes.
        sizes: crate::units::RequestResponse,
        /// Transactions of one flow; `u64::MAX` is no limit.
        transactions: u64,
        /// Each over a connection of its own.
        reconnect: bool,
    },
}

/// A workload with its sides.
pub(crate) struct Workload<'a> {
    kind: Kind,
    run: &'a RunArgs,
    busy_poll: Duration,
    client: Stack,
    server: Option<Stack>,
    remote: SocketAddr,
}

impl<'a> Workload<'a> {
    /// Builds the sides that the flags ask for.
    fn new(
        kind: Kind,
        run: &'a RunArgs,
        link: &LinkArgs,
        stack: &StackArgs,
    ) -> anyhow::Result<Workload<'a>> {
        let busy_poll = net::busy_poll(stack);
        let (client, server, remote) = match run.to {
            Some(remote) => (net::tun_stack(stack, run.threads)?, None, remote),
            None => {
                if stack.device.is_some() {
                    let message = "--device without --to: say whom to talk to with --to ADDR:PORT";
                    return Err(net::usage(message));
                }
                let (client, server) = net::memory_stacks(stack, link, run.threads)?;
                let ip: IpAddr = net::SERVER.parse().context("a literal address")?;
                (client, Some(server), SocketAddr::new(ip, PORT))
            }
        };
        Ok(Workload { kind, run, busy_poll, client, server, remote })
    }

    /// Runs it on loops or on threads.
    fn measure(&self) -> anyhow::Result<measure::Measured> {
        let mut named = vec![("client", &self.client)];
        named.extend(self.server.iter().map(|server| ("server", server)));
        let _control = net::control(&named);
        if self.run.threads { threads::run(self) } else { loops::run(self) }
    }

    /// The options of every socket.
    fn options(&self) -> Options {
        Options { nodelay: self.run.nodelay, sndbuf: self.run.sndbuf, ..Options::default() }
    }

    /// How long it runs; `None` if the flows end by themselves.
    fn length(&self) -> Option<Duration> {
        let limit = match self.kind {
            Kind::Send { bytes, .. } | Kind::Receive { bytes, .. } => bytes,
            Kind::Rr { transactions, .. } => transactions,
        };
        (limit == u64::MAX).then(|| self.run.length.unwrap_or(DEFAULT_LENGTH))
    }

    /// A listener of the server side.
    fn listener(&self, server: &Stack) -> anyhow::Result<plimsoll::TcpListener> {
        let backlog = self.run.flows.max(1024) as usize;
        plimsoll::TcpListener::bind_with(server, self.remote, backlog, self.options())
            .with_context(|| format!("cannot listen on {}", self.remote))
    }
}
