//! The fronts of the stack: attempts to connect, and datagrams to new destinations.
//!
//! Each loop looks here after it has polled its queue, so it finds by itself what its queue has
//! brought, and no loop is woken for that.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use plimsoll::gate::{GateConfig, GatedListener};
use plimsoll::{Stack, UdpFlowConfig, UdpListener, UdpSocket};

use crate::worker::Task;

/// How long an attempt waits for its dial: longer than Linux dials.
const DIAL: Duration = Duration::from_secs(150);
/// Attempts that are dialled at once, and flows of datagrams, at most. With fewer descriptors it is
/// a quarter of those: a flow has up to two, and a flood of flows must leave some for connections.
const MAX_ATTEMPTS: usize = 16_384;
/// Ports of the command whose loop is remembered, for datagrams.
const MAX_PORTS: usize = 65_536;
/// How long it is remembered after the latest new flow, if there are many.
const KEPT: Duration = Duration::from_secs(300);

/// The listeners that take what has no connection and no flow yet.
pub(crate) struct Fronts {
    gate: GatedListener,
    datagrams: UdpListener,
    ports: Mutex<PortQueues>,
}

impl Fronts {
    /// The fronts of a stack, in a process that may have so many descriptors.
    pub(crate) fn new(stack: &Stack, descriptors: usize) -> std::io::Result<Fronts> {
        let most = (descriptors / 4).clamp(64, MAX_ATTEMPTS);
        // All attempts are of one guest. A dial ends by the host's own timeout.
        let gate = GateConfig::default().waiting(most).per_source(most).wait(DIAL);
        let gate = GatedListener::bind_any(stack, gate)?;
        let flows = UdpFlowConfig::default().max_flows(most);
        let datagrams = UdpListener::bind_any_with(stack, 0, flows)?;
        Ok(Fronts { gate, datagrams, ports: Mutex::default() })
    }

    /// Takes all that waits, each with the loop that it is for.
    ///
    /// # Errors
    /// If the stack has ended.
    pub(crate) fn take(&self, tasks: &mut Vec<(usize, Task)>) -> std::io::Result<()> {
        // The next look finds what comes later.
        let none = Waker::noop();
        while let Poll::Ready(incoming) = self.gate.poll_incoming(none) {
            let incoming = incoming?;
            tasks.push((incoming.queue(), Task::Attempt(incoming)));
        }
        let mut cx = Context::from_waker(none);
        while let Poll::Ready(flow) = self.datagrams.poll_accept(&mut cx) {
            let flow = flow?;
            let queue = self.ports.lock().unwrap_or_else(PoisonError::into_inner).of(&flow);
            tasks.push((queue, Task::Flow(flow)));
        }
        Ok(())
    }
}

/// The loops of the command's ports, for datagrams: all flows of a port have one.
#[derive(Default)]
struct PortQueues(HashMap<SocketAddr, (usize, Instant)>);

impl PortQueues {
    /// The loop of a new flow: that of its queue, unless a flow of the same port has another one.
    fn of(&mut self, flow: &UdpSocket) -> usize {
        let Ok(guest) = flow.peer_addr() else { return flow.queue() };
        let now = Instant::now();
        if let Some((queue, used)) = self.0.get_mut(&guest) {
            *used = now;
            return *queue;
        }
        if self.0.len() >= MAX_PORTS {
            self.0.retain(|_, (_, used)| now.duration_since(*used) < KEPT);
        }
        if self.0.len() >= MAX_PORTS {
            return flow.queue();
        }
        self.0.insert(guest, (flow.queue(), now));
        flow.queue()
    }
}
