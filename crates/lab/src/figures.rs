//! Figures: one vocabulary for everything that a command measures.
//!
//! The names in the JSON documents are those of [`Figures`]. A figure that could not be taken is
//! null in JSON and a dash in a table, never zero.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::show;
use crate::usage::Usage;

/// Latency percentiles in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the transactions took no longer.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl Latency {
    /// The percentiles of a histogram of nanoseconds; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Latency> {
        if histogram.is_empty() {
            return None;
        }
        let at = |share| histogram.value_at_quantile(share) as f64 / 1e3;
        Some(Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: histogram.max() as f64 / 1e3,
        })
    }
}

/// What a run measured. `None` is "not taken".
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Payload bits per second, as the receiver counts them.
    pub throughput_bits_per_s: Option<f64>,
    /// Transactions per second.
    pub transactions_per_s: Option<f64>,
    /// IP packets that the measured side sent, per transaction.
    pub packets_per_transaction: Option<f64>,
    /// Octets of IP that the measured side sent, per packet.
    pub octets_per_packet: Option<f64>,
    /// TCP segments as they are on the wire, retransmissions included.
    pub wire_segments: Option<u64>,
    /// Packets of more than one wire segment.
    pub super_segments: Option<u64>,
    /// Pure ACKs of the receiver per gigabyte (1e9 bytes) received.
    pub acks_per_gigabyte: Option<f64>,
    /// Pure ACKs of both sides, or of ours if only that is known, per second.
    pub acks_per_s: Option<f64>,
    /// CPU time of the process.
    pub cpu_seconds: Option<f64>,
    /// The same per transaction.
    pub cpu_ns_per_transaction: Option<f64>,
    /// Switches because a thread waited.
    pub voluntary_context_switches: Option<u64>,
    /// Switches because a thread was preempted.
    pub involuntary_context_switches: Option<u64>,
    /// Both per transaction.
    pub context_switches_per_transaction: Option<f64>,
    /// Packets dropped from a full backlog.
    pub backlog_drops: Option<u64>,
    /// Latency of a transaction.
    pub latency_us: Option<Latency>,
    /// The stack's counters, as they changed in the run.
    pub counters: Counters,
}

/// Counters by Linux's names.
pub type Counters = BTreeMap<String, u64>;

/// A share, or nothing if there is nothing to share among.
pub fn per(amount: f64, among: f64) -> Option<f64> {
    (among > 0.0).then(|| amount / among)
}

/// IP packets that a stack sent, of both families.
pub fn packets_out(counters: &Counters) -> Option<u64> {
    both(counters, ["IpOutRequests", "Ip6OutRequests"])
}

/// Octets per IP packet that a stack sent, of both families.
pub fn octets_per_packet(counters: &Counters) -> Option<f64> {
    let octets = both(counters, ["IpExtOutOctets", "Ip6OutOctets"])?;
    per(octets as f64, packets_out(counters)? as f64)
}

/// Pure ACKs that a side sent. A kernel does not count them, but all segments that it sent for the
/// first time, and those of them with data. The rest are pure ACKs, but for the SYN and the FIN of
/// each connection that opens or closes meanwhile. The two are not read at quite the same moment.
pub fn pure_acks(counters: &Counters) -> Option<u64> {
    let get = |name: &str| counters.get(name).copied();
    get("plimsoll.AcksSent")
        .or_else(|| Some(get("TcpOutSegs")?.saturating_sub(get("TcpExtTCPOrigDataSent")?)))
}

fn both(counters: &Counters, names: [&str; 2]) -> Option<u64> {
    let [v4, v6] = names.map(|name| counters.get(name).copied());
    Some(v4? + v6.unwrap_or(0))
}

/// `after` minus `before`, for every counter of `after`.
pub fn difference(after: &Counters, before: &Counters) -> Counters {
    let since = |(name, value): (&String, &u64)| {
        (name.clone(), value.saturating_sub(before.get(name).copied().unwrap_or(0)))
    };
    after.iter().map(since).collect()
}

/// One row of a table: a label and a value.
pub type Row = (&'static str, String);

/// A table of two columns without lines.
pub fn table(rows: &[Row]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    for (label, value) in rows {
        table.add_row([*label, value]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A number for people, with a space between thousands; a dash if it was not taken.
pub fn count(value: Option<u64>) -> String {
    let Some(value) = value else { return "-".into() };
    let digits = value.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(' ');
        }
        shown.push(digit);
    }
    shown
}

/// A share for people, in whole percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A number with `places` decimals; a dash if it was not taken.
pub fn decimal(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.places$}"))
}

impl Figures {
    /// What the counters of a stack and the resources of its process give, for any workload.
    pub fn of(counters: Counters, usage: Option<Usage>) -> Figures {
        let get = |name: &str| counters.get(name).copied();
        let switches = usage.and_then(|usage| usage.switches);
        Figures {
            wire_segments: get("TcpOutSegs")
                .map(|first| first + get("TcpRetransSegs").unwrap_or(0)),
            super_segments: get("plimsoll.SuperSegs"),
            octets_per_packet: octets_per_packet(&counters),
            cpu_seconds: usage.map(|usage| usage.cpu_seconds),
            voluntary_context_switches: switches.map(|(voluntary, _)| voluntary),
            involuntary_context_switches: switches.map(|(_, involuntary)| involuntary),
            counters,
            ..Figures::default()
        }
    }

    /// The rows that a table shows.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        if let Some(rate) = self.throughput_bits_per_s {
            rows.push(("throughput", show::rate(rate)));
        }
        if let Some(rate) = self.transactions_per_s {
            rows.push(("transactions/s", count(Some(rate.round() as u64))));
        }
        if let Some(latency) = self.latency_us {
            let Latency { p50, p90, p99, max } = latency;
            rows.push((
                "latency p50/p90/p99/max",
                format!("{p50:.1}/{p90:.1}/{p99:.1}/{max:.1} µs"),
            ));
        }
        rows.push(("packets out", count(packets_out(&self.counters))));
        rows.push(("octets/packet", decimal(self.octets_per_packet, 1)));
        if self.packets_per_transaction.is_some() {
            rows.push(("packets/transaction", decimal(self.packets_per_transaction, 2)));
        }
        rows.push(("wire segments", count(self.wire_segments)));
        rows.push(("super-segments", count(self.super_segments)));
        let retransmitted = self.counters.get("TcpRetransSegs").copied();
        rows.push(("retransmitted", count(retransmitted)));
        if self.acks_per_gigabyte.is_some() {
            rows.push(("ACKs/GB", decimal(self.acks_per_gigabyte, 0)));
        }
        rows.push(("ACKs/s", decimal(self.acks_per_s, 0)));
        rows.push(("CPU", decimal(self.cpu_seconds, 2) + " s"));
        if let Some(nanos) = self.cpu_ns_per_transaction {
            rows.push(("CPU/transaction", format!("{nanos:.0} ns")));
        }
        rows.push(("switches, voluntary", count(self.voluntary_context_switches)));
        rows.push(("switches, involuntary", count(self.involuntary_context_switches)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untaken_figures_are_null() {
        let value = serde_json::to_value(Figures::default()).unwrap();
        let object = value.as_object().unwrap();
        assert!(object.iter().all(|(name, value)| value.is_null() || name == "counters"));
        let names: Vec<&str> = object.keys().map(String::as_str).collect();
        for name in [
            "throughput_bits_per_s",
            "transactions_per_s",
            "packets_per_transaction",
            "octets_per_packet",
            "wire_segments",
            "super_segments",
            "acks_per_gigabyte",
            "acks_per_s",
            "cpu_seconds",
            "cpu_ns_per_transaction",
            "voluntary_context_switches",
            "involuntary_context_switches",
            "context_switches_per_transaction",
            "backlog_drops",
            "latency_us",
            "counters",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(Some(1_234_567)), "1 234 567");
        assert_eq!(count(Some(12)), "12");
        assert_eq!(count(None), "-");
        assert_eq!(decimal(Some(1.25), 1), "1.2");
    }

    #[test]
    fn percentiles() {
        let mut histogram = Histogram::new(3).unwrap();
        assert_eq!(Latency::of(&histogram), None);
        (1..=100).for_each(|n| histogram.record(n * 1000).unwrap());
        let latency = Latency::of(&histogram).unwrap();
        assert!((latency.p50 - 50.0).abs() < 0.1 && (latency.max - 100.0).abs() < 0.2);
    }

    #[test]
    fn packets_of_both_families_count() {
        let names = ["IpOutRequests", "Ip6OutRequests", "IpExtOutOctets", "Ip6OutOctets"];
        let counters: Counters =
            names.map(str::to_owned).into_iter().zip([1, 3, 40, 160]).collect();
        assert_eq!(packets_out(&counters), Some(4));
        assert_eq!(octets_per_packet(&counters), Some(50.0));
        assert_eq!(octets_per_packet(&Counters::new()), None);
    }

    #[test]
    fn pure_acks_of_either_kind_of_stack() {
        let of = |all: &[(&str, u64)]| {
            pure_acks(&all.iter().map(|&(name, value)| (name.to_owned(), value)).collect())
        };
        assert_eq!(of(&[("plimsoll.AcksSent", 3), ("TcpOutSegs", 9)]), Some(3));
        assert_eq!(of(&[("TcpExtTCPOrigDataSent", 7), ("TcpOutSegs", 9)]), Some(2));
        assert_eq!(of(&[("TcpExtTCPOrigDataSent", 10), ("TcpOutSegs", 9)]), Some(0));
        assert_eq!(of(&[("TcpOutSegs", 9)]), None);
    }

    #[test]
    fn counters_differ() {
        let before = Counters::from([("a".into(), 3)]);
        let after = Counters::from([("a".into(), 5), ("b".into(), 1)]);
        let expected = Counters::from([("a".into(), 2), ("b".into(), 1)]);
        assert_eq!(difference(&after, &before), expected);
    }
}
