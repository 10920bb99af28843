//! Workloads: bulk data one way, or transactions, over some connections at once.
//!
//! A workload runs on one or two *sides*. The client side is always in this process; the server
//! side is a second stack over a link in memory, or somebody else at the remote address. Each stack
//! is run by an event loop on a thread of its own, or by a softirq thread, with a blocking thread
//! for every socket.
//!
//! The time is taken from when all flows are connected until the last byte has been acknowledged by
//! the end of the stream from the other side. Setting up is not measured, except for transactions
//! that reconnect, which measure nothing else.

pub(crate) mod blocking;
mod loops;
mod measure;
pub(crate) mod network;
pub(crate) mod threads;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use plimsoll::{Connector, Options, Stack};

use crate::event_loop::WhenIdle;
use crate::experiment::pin::OnCpu;
use crate::kernel::Peer;

pub use measure::Measured;
pub(crate) use measure::{Sides, Snapshot};

/// The phases that tasks are told of.
mod phase {
    /// All flows are connected; the time runs.
    pub(super) const RUN: u32 = 1;
    /// The time is over.
    pub(super) const STOP: u32 = 2;
}

/// Request and response size of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestResponse {
    /// Bytes of a request.
    pub request: usize,
    /// Bytes of a response.
    pub response: usize,
}

/// What flows over the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
        sizes: RequestResponse,
        /// Transactions of one flow; `u64::MAX` is no limit.
        transactions: u64,
        /// Each over a connection of its own.
        reconnect: bool,
    },
}

impl Kind {
    /// Whether flows go on until they are told to stop.
    pub(crate) fn is_endless(self) -> bool {
        let limit = match self {
            Kind::Send { bytes, .. } | Kind::Receive { bytes, .. } => bytes,
            Kind::Rr { transactions, .. } => transactions,
        };
        limit == u64::MAX
    }
}

/// A workload with its sides.
pub struct Workload {
    /// What flows.
    pub kind: Kind,
    /// Connections at once.
    pub flows: u32,
    /// The options of the client's sockets.
    pub options: Options,
    /// The options of the server's sockets.
    pub server_options: Options,
    /// What a thread reads of bulk data at once, in bytes.
    pub read_bytes: usize,
    /// How many buffers of that size it fills in turn. One stays in the cache; many are what a
    /// program has that keeps what it reads.
    pub read_buffers: usize,
    /// Bulk data is written by reference and not copied, unless there is a write buffer. Event
    /// loops read it so as well.
    pub shared: bool,
    /// A sender of bulk data puts what it writes into a buffer of so many bytes
    /// ([`BufferedStream`](plimsoll::BufferedStream)).
    pub write_buffer: Option<usize>,
    /// How long it runs, unless the flows end by themselves.
    pub length: Duration,
    /// If set, only `length` after so much time is measured, while everything runs, and the run
    /// and every call on a socket end in bounded time.
    pub warm_up: Option<Duration>,
    /// The processors of the client's threads and of the server's, as [`OnCpu`] counts them. If the
    /// client has a loop for each of several queues, each stays on its queue's instead
    /// ([`stay_on_processor`](plimsoll::QueueLoop::stay_on_processor)).
    pub cpus: Option<[usize; 2]>,
    /// A thread that answers gives its processor away once before it does.
    pub gives_way: bool,
    /// Blocking threads instead of event loops. The stacks must have been built accordingly.
    pub threads: bool,
    /// What an event loop does that has nothing to do.
    pub idle: WhenIdle,
    /// The client's stack.
    pub client: Stack,
    /// The server's stack, if it is in this process.
    pub server: Option<Stack>,
    /// The server, if it is the kernel's side of a TUN device.
    pub peer: Option<Arc<Peer>>,
    /// The server's address.
    pub remote: SocketAddr,
}

impl Workload {
    /// Runs it, on event loops or on threads.
    ///
    /// # Errors
    /// If a connection cannot be opened or fails.
    pub fn measure(&self) -> anyhow::Result<Measured> {
        if self.threads { threads::run(self.terms(), self.network()?) } else { loops::run(self) }
    }

    /// What threads are told of it.
    fn terms(&self) -> threads::Terms {
        threads::Terms {
            kind: self.kind,
            flows: self.flows,
            read_bytes: self.read_bytes,
            read_buffers: self.read_buffers,
            shared: self.shared,
            write_buffer: self.write_buffer,
            length: self.length,
            warm_up: self.warm_up,
            bounded: self.warm_up.is_some(),
            cpus: self.cpus,
            gives_way: self.gives_way,
        }
    }

    /// Where threads have their connections from.
    fn network(&self) -> anyhow::Result<network::Ours> {
        let server = match &self.server {
            Some(server) => Some((server.clone(), self.listener(server)?)),
            None => None,
        };
        Ok(network::Ours {
            remote: self.remote,
            connector: Connector::new(&self.client).options(self.options.clone()),
            client: self.client.clone(),
            server,
            peer: self.peer.clone(),
            sends: matches!(self.kind, Kind::Send { .. }),
        })
    }

    /// That a connection could not be opened, and what to do about it.
    fn connect_error(&self, error: &std::io::Error) -> anyhow::Error {
        let remedy = remedy(error, self.flows);
        anyhow::anyhow!("cannot connect to {}: {error}{remedy}", self.remote)
    }

    /// The counters of both sides.
    fn counters(&self) -> Sides {
        Sides::of(&self.client, self.server.as_ref())
    }

    /// How long it runs; `None` if the flows end by themselves.
    fn limit(&self) -> Option<Duration> {
        self.kind.is_endless().then_some(self.length)
    }

    /// The calling thread runs on the processor of a side, 0 for the client's and 1 for the
    /// server's, if the workload pins them.
    fn on_cpu(&self, side: usize) -> anyhow::Result<Option<OnCpu>> {
        self.cpus.map(|cpus| OnCpu::enter(cpus[side])).transpose()
    }

    /// A listener of the server side.
    fn listener(&self, server: &Stack) -> anyhow::Result<plimsoll::TcpListener> {
        let backlog = self.flows.max(1024) as usize;
        plimsoll::TcpListener::bind_with(server, self.remote, backlog, self.server_options.clone())
            .with_context(|| format!("cannot listen on {}", self.remote))
    }
}

/// What to do when one of `flows` connections could not be opened.
pub(crate) fn remedy(error: &std::io::Error, flows: u32) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => format!(
            "; no local port is free for all of {flows} flows: widen \
             net.ipv4.ip_local_port_range, as in '1024 65535', or ask for fewer flows"
        ),
        ErrorKind::ConnectionRefused => {
            "; no server listens on that port: start the service there first".into()
        }
        ErrorKind::TimedOut => {
            "; nothing answered: no host has that address, or the path loses all packets".into()
        }
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            "; the stack has no address from which it can reach that one".into()
        }
        _ => String::new(),
    }
}
