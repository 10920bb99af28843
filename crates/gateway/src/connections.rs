//! The connections of a running gateway, and their figures, for `plimsoll top`.
//!
//! A loop has its connections to itself, so a question is work for it ([`Task::List`]): without
//! questions nothing is counted, and nothing is locked. Per connection an answer costs a system
//! call (TCP_INFO), and the lock of the stack's connection and that of the names.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use plimsoll::{Info, State};

pub use crate::tcp_info::Sample;
use crate::worker::{Shared, Task};

/// How long a loop may take for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection of the command with another host.
#[derive(Clone, Debug)]
pub struct ConnectionSummary {
    /// The other host, as the command has asked for it, or the visitor of a published port.
    pub far: SocketAddr,
    /// The name by which the command has looked it up.
    pub name: Option<String>,
    /// The command's address and port.
    pub near: SocketAddr,
    /// The other host has dialled, through a published port.
    pub is_visitor: bool,
    /// The state on the command's side; [`State::SynSent`] while the host's side is dialled.
    pub state: State,
    /// Time since the first SYN, or since the visitor came.
    pub age: Duration,
    /// The kernel's figures of the host's side; `None` before Linux 5.4.
    pub host: Option<Sample>,
    /// The stack's figures of the command's side, once it is connected.
    pub guest: Option<Box<Info>>,
}

/// The connections and flows of a gateway. Connections to its own name server are left out.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Connections, in no order.
    pub connections: Vec<ConnectionSummary>,
    /// Flows of datagrams, lookups among them.
    pub flows: usize,
}

/// A question for a loop.
pub(crate) struct ListRequest {
    /// The connections that are not listed yet, once there is a list.
    pub(crate) left: Option<Vec<usize>>,
    pub(crate) carried: Carried,
    pub(crate) answer: Sender<Carried>,
    asked: Instant,
}

impl ListRequest {
    /// The requester does not wait any more.
    pub(crate) fn is_late(&self) -> bool {
        self.asked.elapsed() > PATIENCE
    }
}

/// Lists the connections of a running gateway.
#[derive(Clone)]
pub struct ConnectionControl {
    shared: Arc<Shared>,
}

impl ConnectionControl {
    pub(crate) fn new(shared: Arc<Shared>) -> ConnectionControl {
        ConnectionControl { shared }
    }

    /// The connections now.
    ///
    /// # Errors
    /// If a loop does not answer within two seconds.
    pub fn list(&self) -> Result<Carried, String> {
        let (answer, answers) = mpsc::channel();
        for queue in 0..self.shared.queues() {
            let request = ListRequest {
                left: None,
                carried: Carried::default(),
                answer: answer.clone(),
                asked: Instant::now(),
            };
            self.shared.hand(queue, Task::List(request));
        }
        drop(answer);
        let mut all = Carried::default();
        for _ in 0..self.shared.queues() {
            let one = answers.recv_timeout(PATIENCE);
            let one = one.map_err(|_| "the gateway has ended, or is busy; ask again".to_owned())?;
            all.connections.extend(one.connections);
            all.flows += one.flows;
        }
        Ok(all)
    }
}
