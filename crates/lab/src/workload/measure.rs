//! From what was counted to figures.

use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll::Stack;

use super::{Kind, Workload};
use crate::figures::{Counters, Figures, Latency, difference, octets_per_packet, packets_out, per};
use crate::usage::Usage;

/// The state of everything that is counted, at one moment.
pub(super) struct Snapshot {
    usage: Usage,
    client: Counters,
    server: Option<Counters>,
}

fn counters(stack: &Stack) -> Counters {
    stack.counters().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

impl Snapshot {
    /// Takes it.
    pub(super) fn take(workload: &Workload) -> Snapshot {
        Snapshot {
            usage: Usage::now(),
            client: counters(&workload.client),
            server: workload.server.as_ref().map(counters),
        }
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
    usage: Usage,
    client: Counters,
    server: Option<Counters>,
}

impl Measured {
    /// What changed between two moments.
    pub(super) fn between(
        before: &Snapshot,
        after: &Snapshot,
        elapsed: Duration,
        moved: (u64, u64),
        latencies: Histogram<u64>,
    ) -> Measured {
        let server = after.server.as_ref().zip(before.server.as_ref());
        Measured {
            elapsed,
            bytes: moved.0,
            transactions: moved.1,
            latencies,
            usage: after.usage.since(before.usage),
            client: difference(&after.client, &before.client),
            server: server.map(|(after, before)| difference(after, before)),
        }
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
        let get = |counters: &Counters, name: &str| counters.get(name).copied();
        let seconds = self.elapsed.as_secs_f64();
        let mut figures = Figures {
            wire_segments: get(measured, "TcpOutSegs")
                .map(|first| first + get(measured, "TcpRetransSegs").unwrap_or(0)),
            super_segments: get(measured, "plimsoll.SuperSegs"),
            octets_per_packet: octets_per_packet(measured),
            cpu_seconds: Some(self.usage.cpu_seconds),
            voluntary_context_switches: self.usage.switches.map(|(voluntary, _)| voluntary),
            involuntary_context_switches: self.usage.switches.map(|(_, involuntary)| involuntary),
            counters: measured.clone(),
            ..Figures::default()
        };
        let acks = |counters: &Counters| get(counters, "plimsoll.AcksSent");
        let ours = acks(&self.client);
        let all = match &self.server {
            Some(server) => ours.zip(acks(server)).map(|(ours, theirs)| ours + theirs),
            None => ours,
        };
        figures.acks_per_s = all.and_then(|acks| per(acks as f64, seconds));
        match kind {
            Kind::Rr { .. } => self.transaction_figures(&mut figures, seconds),
            _ => {
                figures.throughput_bits_per_s = per(self.bytes as f64 * 8.0, seconds);
                let receiver = if receiving { Some(&self.client) } else { self.server.as_ref() };
                figures.acks_per_gigabyte = receiver
                    .and_then(acks)
                    .and_then(|acks| per(acks as f64, self.bytes as f64 / 1e9));
            }
        }
        figures
    }

    fn transaction_figures(&self, figures: &mut Figures, seconds: f64) {
        let transactions = self.transactions as f64;
        figures.transactions_per_s = per(transactions, seconds);
        figures.packets_per_transaction =
            packets_out(&self.client).and_then(|packets| per(packets as f64, transactions));
        figures.cpu_ns_per_transaction = per(self.usage.cpu_seconds * 1e9, transactions);
        figures.context_switches_per_transaction = self
            .usage
            .switches
            .and_then(|(voluntary, other)| per((voluntary + other) as f64, transactions));
        figures.latency_us = Latency::of(&self.latencies);
    }
}
