//! From what was counted to figures.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll::Stack;
use plimsoll_stack::Stack as Core;

use super::Kind;
use crate::figures::{Counters, Figures, Latency, difference, packets_out, per, pure_acks};
use crate::usage::{Processors, Usage, by_role, roles_since};

/// The state of everything that is counted, at one moment.
pub(crate) struct Snapshot {
    /// `None` on a virtual clock, where nothing costs anything.
    usage: Option<Usage>,
    roles: Option<BTreeMap<String, f64>>,
    processors: Option<Processors>,
    sides: Sides,
}

/// The counters of both sides at one moment.
pub(crate) struct Sides {
    /// The client's.
    pub(crate) client: Counters,
    /// The server's, if they are known.
    pub(crate) server: Option<Counters>,
}

impl Sides {
    /// Of stacks in this process.
    pub(crate) fn of(client: &Stack, server: Option<&Stack>) -> Sides {
        let server = server.map(|server| counters(server.core()));
        Sides { client: counters(client.core()), server }
    }
}

fn counters(stack: &Core) -> Counters {
    stack.counters().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl Snapshot {
    /// Takes it at the end of a run: first what goes on changing, then what takes long to read.
    pub(crate) fn take(sides: impl FnOnce() -> Sides) -> Snapshot {
        let sides = sides();
        let usage = Some(Usage::now());
        Snapshot { usage, roles: by_role(), processors: Processors::now(), sides }
    }

    /// Takes it at the beginning of a run, the other way round.
    pub(crate) fn begin(sides: impl FnOnce() -> Sides) -> Snapshot {
        let (processors, roles) = (Processors::now(), by_role());
        let usage = Some(Usage::begin());
        Snapshot { usage, roles, processors, sides: sides() }
    }

    /// Takes it of two stacks on a virtual clock.
    pub(crate) fn of_pair(client: &Core, server: &Core) -> Snapshot {
        let sides = Sides { client: counters(client), server: Some(counters(server)) };
        Snapshot { usage: None, roles: None, processors: None, sides }
    }
}

/// What a run gave.
pub struct Measured {
    /// From the first to the last moment.
    pub elapsed: Duration,
    /// Payload bytes that moved: received if we received, else sent and acknowledged.
    pub bytes: u64,
    /// Transactions that completed.
    pub transactions: u64,
    /// Their latencies in nanoseconds.
    pub latencies: Histogram<u64>,
    usage: Option<Usage>,
    roles: Option<BTreeMap<String, f64>>,
    other_work: Option<f64>,
    asking: Option<Asking>,
    client: Counters,
    server: Option<Counters>,
}

/// What the threads did that ask: each counts itself, from the end of one transaction to the end of
/// another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asking {
    /// Transactions.
    pub transactions: u64,
    /// CPU time and context switches.
    pub usage: Usage,
}

impl Asking {
    /// Adds what another thread did.
    pub(crate) fn add(&mut self, other: Asking) {
        self.transactions += other.transactions;
        self.usage.cpu_seconds += other.usage.cpu_seconds;
        let both = self.usage.switches.zip(other.usage.switches);
        self.usage.switches = both.map(|(ours, theirs)| (ours.0 + theirs.0, ours.1 + theirs.1));
    }
}

impl Measured {
    /// What changed between two moments.
    pub(crate) fn between(
        before: &Snapshot,
        after: &Snapshot,
        elapsed: Duration,
        moved: (u64, u64),
        latencies: Histogram<u64>,
    ) -> Measured {
        let (before_sides, after_sides) = (&before.sides, &after.sides);
        let processors = after.processors.zip(before.processors);
        let server = after_sides.server.as_ref().zip(before_sides.server.as_ref());
        Measured {
            elapsed,
            bytes: moved.0,
            transactions: moved.1,
            latencies,
            usage: after.usage.zip(before.usage).map(|(after, before)| after.since(before)),
            asking: None,
            other_work: processors.and_then(|(after, before)| after.others_since(before)),
            roles: after.roles.as_ref().zip(before.roles.as_ref()).map(|(a, b)| roles_since(a, b)),
            client: difference(&after_sides.client, &before_sides.client),
            server: server.map(|(after, before)| difference(after, before)),
        }
    }

    /// Adds the flows of another loop of the same stack, which ran at the same time. What was
    /// counted for the whole process, or the whole stack, is in this one already.
    pub(crate) fn add_flows_of(&mut self, other: &Measured) -> anyhow::Result<()> {
        self.bytes += other.bytes;
        self.transactions += other.transactions;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.latencies.add(&other.latencies)?;
        Ok(())
    }

    /// The same with what the asking threads counted.
    pub(crate) fn with_asking(self, asking: Option<Asking>) -> Measured {
        Measured { asking, ..self }
    }

    /// What the asking threads did; `None` if nothing asked, or on event loops.
    pub fn asking(&self) -> Option<Asking> {
        self.asking
    }

    /// The share of the processors' time that other programs had; `None` if it is not known.
    pub fn other_work(&self) -> Option<f64> {
        self.other_work
    }

    /// CPU seconds by role: threads whose names differ only in a number.
    pub fn roles(&self) -> Option<&BTreeMap<String, f64>> {
        self.roles.as_ref()
    }

    /// The counters of the client's side.
    pub fn client_counters(&self) -> &Counters {
        &self.client
    }

    /// The counters of the other side, if it is in this process.
    pub fn server_counters(&self) -> Option<&Counters> {
        self.server.as_ref()
    }

    /// Figures of a workload. The measured side is the one that sends the bulk data if we have it,
    /// and the client for transactions.
    pub fn figures(&self, kind: &Kind) -> Figures {
        let receiving = matches!(kind, Kind::Receive { .. });
        let measured = match &self.server {
            Some(server) if receiving => server,
            _ => &self.client,
        };
        let seconds = self.elapsed.as_secs_f64();
        let mut figures = Figures::of(measured.clone(), self.usage);
        let ours = pure_acks(&self.client);
        let all = match &self.server {
            Some(server) => ours.zip(pure_acks(server)).map(|(ours, theirs)| ours + theirs),
            None => ours,
        };
        figures.backlog_drops = self.sum("TcpExtTCPBacklogDrop");
        figures.acks_per_s = all.and_then(|acks| per(acks as f64, seconds));
        match kind {
            Kind::Rr { .. } => self.transaction_figures(&mut figures, seconds),
            _ => {
                figures.throughput_bits_per_s = per(self.bytes as f64 * 8.0, seconds);
                let receiver = if receiving { Some(&self.client) } else { self.server.as_ref() };
                figures.acks_per_gigabyte = receiver
                    .and_then(pure_acks)
                    .and_then(|acks| per(acks as f64, self.bytes as f64 / 1e9));
            }
        }
        figures
    }

    /// A counter of all our stacks; `None` if this build does not count it.
    pub(crate) fn sum(&self, name: &str) -> Option<u64> {
        let ours = *self.client.get(name)?;
        let theirs = self.server.as_ref().and_then(|server| server.get(name));
        Some(ours + theirs.copied().unwrap_or(0))
    }

    fn transaction_figures(&self, figures: &mut Figures, seconds: f64) {
        let transactions = self.transactions as f64;
        figures.transactions_per_s = per(transactions, seconds);
        figures.packets_per_transaction =
            packets_out(&self.client).and_then(|packets| per(packets as f64, transactions));
        figures.cpu_ns_per_transaction =
            self.usage.and_then(|usage| per(usage.cpu_seconds * 1e9, transactions));
        figures.context_switches_per_transaction = self
            .usage
            .and_then(|usage| usage.switches)
            .and_then(|(voluntary, other)| per((voluntary + other) as f64, transactions));
        figures.latency_us = Latency::of(&self.latencies);
    }
}
