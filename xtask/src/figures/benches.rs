//! The benches whose tables are published, and what becomes of their documents.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::template::{fill, text};
use super::{Table, Tables};
use crate::{bench, parity, session};

type Run = fn(&Path, &[String]) -> Result<()>;
type Runs = &'static [&'static [&'static str]];

/// A bench, and the tables that one measurement gives.
pub(super) struct Bench {
    pub(super) name: &'static str,
    pub(super) needs_root: bool,
    /// Runs it with words and options; `--json FILE` has it write its document.
    pub(super) run: Run,
    /// The first word.
    pub(super) measures: &'static str,
    /// The options of each run. Each writes one document.
    pub(super) runs: Runs,
    pub(super) tables: &'static [Made],
}

/// A table that is made of the documents.
pub(super) struct Made {
    pub(super) name: &'static str,
    /// The JSON pointer of the part of the document that it is made of.
    part: &'static str,
    /// The JSON pointer, in that part, of what has a row for each entry.
    list: &'static str,
    /// Titles, and templates of the cells. Without any, the document has the table ready.
    columns: &'static [(&'static str, &'static str)],
    conditions: &'static str,
}

/// A table that the document has ready.
const fn ready(name: &'static str, part: &'static str, conditions: &'static str) -> Made {
    Made { name, part, list: "/table/rows", columns: &[], conditions }
}

const fn bench(name: &'static str, run: Run, runs: Runs, tables: &'static [Made]) -> Bench {
    Bench { name, measures: name, needs_root: true, run, runs, tables }
}

pub(super) const BENCHES: [Bench; 13] = [
    bench("kernel", session::bench, &[&["--repetitions", "5", "--seconds", "1"]], &[KERNEL]),
    bench("peers", bench::peers::run, ONCE, &[PEERS, FORWARDERS]),
    bench("latency", session::bench, ONCE, &[LATENCY]),
    bench("stalls", session::bench, ONCE, &[STALLS]),
    Bench { needs_root: false, ..bench("million", bench::run, ONCE, &[MILLION]) },
    bench("udp", session::bench_udp, ONCE, &[UDP]),
    bench("attacks", attacks, ONCE, &[ATTACKS]),
    bench("tun2proxy", bench::tun2proxy::run, ONCE, &[TUN2PROXY]),
    Bench {
        measures: "senders",
        ..bench("senders", session::bench, SENDERS, &[of_paths("senders")])
    },
    Bench {
        measures: "senders",
        ..bench("receivers", session::bench, RECEIVERS, &[of_paths("receivers")])
    },
    Bench {
        measures: "senders",
        ..bench("nsperf-link", session::bench, NSPERF_LINK, &[of_flows("nsperf-link")])
    },
    Bench {
        measures: "senders",
        ..bench("fairness", session::bench, FAIRNESS, &[of_flows("fairness")])
    },
    bench("decisions", decisions, ONCE, &[DECISIONS, REASONS]),
];

const ONCE: Runs = &[&[]];
const SENDERS: Runs =
    &[&["--congestion", "cubic", "--jobs", "5"], &["--congestion", "reno", "--jobs", "5"]];
const RECEIVERS: Runs = &[
    &["--receive", "--congestion", "cubic", "--jobs", "5"],
    &["--receive", "--congestion", "reno", "--jobs", "5"],
];
const NSPERF_LINK: Runs = &[
    &["--nsperf", "--seconds", "60", "--congestion", "cubic"],
    &["--nsperf", "--seconds", "60", "--congestion", "bbr"],
    &["--nsperf", "--seconds", "180", "--congestion", "cubic", "--beside", "bbr"],
];
const FAIRNESS: Runs = &[
    &["--nsperf", "--seconds", "60", "--congestion", "cubic", "--kernel-beside", "cubic"],
    &["--nsperf", "--seconds", "60", "--congestion", "reno", "--kernel-beside", "reno"],
];
const KERNEL: Made = ready(
    "kernel",
    "",
    "Medians of {/repetitions} pairs of runs of {/seconds} s. The kernel uses \
     {/kernel_congestion_control}. CPU is in CPUs kept busy: our process / the kernel's program \
     that reads, writes or asks.",
);
const PEERS: Made = ready(
    "peers",
    "",
    "Medians of {/repetitions} interleaved runs of {/seconds} s; after `=` the ratio to the kernel \
     (least..most). One client on kernel sockets with {/kernel_congestion_control} measures all \
     servers. CPU is the busy time of the whole machine, client and server. Memory is that of the \
     server with {/idle_connections} connections. Notes: {/notes}.",
);
const FORWARDERS: Made = ready(
    "forwarders",
    "/forwarders",
    "From the same runs as the table of the stacks. Memory is that of the process that forwards, \
     with {/idle_connections} connections. Notes: {/notes}.",
);
const LATENCY: Made = ready(
    "latency",
    "",
    "All answers of {/runs} runs of {/seconds} s each; the servers take turns. The client uses \
     kernel sockets with {/kernel_congestion_control}. A percentile with fewer than ten samples \
     above it is a dash.",
);
const STALLS: Made = Made {
    name: "stalls",
    part: "",
    list: "",
    columns: &[
        ("conversation", "{/conversation}"),
        ("begins", "{/begins}"),
        ("our Nagle", "{/nagle}"),
        ("p50", "{/milliseconds/p50:3} ms"),
        ("p99", "{/milliseconds/p99:3} ms"),
        ("max", "{/milliseconds/max:1} ms"),
        ("stalls", "{/stalls} of {/rounds}"),
        ("late ACKs, ours : kernel", "{/late_acks/ours} : {/late_acks/kernel}"),
    ],
    conditions: "Each row is one connection. The kernel's Nagle is on.",
};
const MILLION: Made = Made {
    name: "million",
    part: "",
    list: "/rows",
    columns: &[
        ("connections", "{/connections}"),
        ("active", "{/active}"),
        ("resident, each", "{/resident_bytes:0} B"),
        ("opened per second", "{/opened_per_s:0}"),
        (
            "time per request",
            "{/ns_per_request/*:0} ({/ns_per_request/0:0} to {/ns_per_request/4:0}) ns",
        ),
    ],
    conditions: "The peers are a second process. A request and its answer have 64 bytes each. \
                 Times are the median of five measurements (least to most).",
};
const UDP: Made = ready(
    "udp",
    "",
    "Medians of {/repetitions} pairs of runs of {/seconds} s. CPU is in seconds for a million \
     datagrams or a gigabyte, ours / kernel.",
);
const ATTACKS: Made = Made {
    name: "attacks",
    part: "",
    list: "",
    columns: &[
        ("attack", "{/what}"),
        ("MB/s alone", "{/before/bytes_per_s:0:1e-6}"),
        ("MB/s under attack", "{/during/bytes_per_s:0:1e-6}"),
        ("longest connect", "{/during/longest_connect_s:3} s"),
        ("answered", "{/during/answered} of {/during/asked}"),
        ("CPU", "{/cpu_seconds:2} s"),
        ("memory", "{/resident_bytes:0:9.54e-7} MiB"),
        ("note", "{/note}"),
    ],
    conditions: "Each attack runs once.",
};
const TUN2PROXY: Made = Made {
    name: "tun2proxy",
    part: "",
    list: "/rows",
    columns: &[
        ("round trip and loss", "{/path}"),
        ("direction", "{/direction}"),
        ("on Plimsoll, Mbit/s", "{/ours/bits_per_s:1:1e-6}"),
        ("as published, Mbit/s", "{/published/bits_per_s:1:1e-6}"),
        ("ratio", "{/ratio_median:2}"),
        ("CPU s/GB", "{/ours/cpu_s_per_gb:1} : {/published/cpu_s_per_gb:1}"),
    ],
    conditions: "Medians of {/rows/0/ours/samples/#} pairs of runs of {/seconds} s. Resident \
                 memory in MiB, on Plimsoll : as published: {/memory/ours/started:0:9.54e-7} : \
                 {/memory/published/started:0:9.54e-7} at the start, \
                 {/memory/ours/load:0:9.54e-7} : {/memory/published/load:0:9.54e-7} with \
                 {/memory/bulk_connections} bulk connections.",
};
const DECISIONS: Made = Made {
    name: "decisions",
    part: "",
    list: "/families",
    columns: &[
        ("family", "{/key}"),
        ("patterns", "{/patterns}"),
        ("same", "{/same}"),
        ("differ, reason known", "{/named}"),
        ("differ", "{/unnamed}"),
        ("excluded", "{/excluded}"),
    ],
    conditions: "Seed {/seed}: {/total/patterns} patterns, each {/times} times on Linux \
                 {/kernel}. {/total/same} are the same, {/total/named} differ for a known reason, \
                 {/total/unnamed} for no known reason. {/total/excluded} are excluded, because the \
                 kernel did not repeat itself. The runs compared {/acks} ACKs and \
                 {/retransmissions} retransmissions.",
};
const REASONS: Made = Made {
    name: "decisions.reasons",
    part: "",
    list: "/classes",
    columns: &[("reason", "{/key}: {/about}"), ("patterns", "{/patterns}")],
    conditions: "From the same run. `cargo xtask parity --only NUMBER,...` repeats some patterns.",
};

/// Our sender or receiver and Linux's: one path in a row.
const fn of_paths(name: &'static str) -> Made {
    Made {
        name,
        part: "",
        list: "/table/rows",
        columns: &[
            ("control", "{^/congestion_control}"),
            ("path", "{/0}"),
            ("ours", "{/1}"),
            ("Linux", "{/2}"),
            ("ratio", "{/3} ({/4})"),
            ("retransmitted, ours / Linux", "{/5}"),
            ("queue p95, ours / Linux", "{/6}"),
            ("verdict", "{/7}"),
        ],
        conditions: "Medians of 3 pairs of runs of {/seconds} s, and of 10 pairs where 3 pairs \
                     show a figure behind.",
    }
}

/// Flows of nsperf's scenarios over a link in real time.
const fn of_flows(name: &'static str) -> Made {
    Made {
        name,
        part: "",
        list: "/rows",
        columns: &[
            ("flows", "{^/congestion_control}, {^/beside}"),
            ("seconds", "{^/seconds}"),
            ("path", "{/path}"),
            (
                "first flow, Mbit/s",
                "{/pairs/*/ours/throughput_bits_per_s:2:1e-6} / \
                 {/pairs/*/kernel/throughput_bits_per_s:2:1e-6}",
            ),
            (
                "second flow, Mbit/s",
                "{/pairs/*/ours/beside_bits_per_s:2:1e-6} / \
                 {/pairs/*/kernel/beside_bits_per_s:2:1e-6}",
            ),
            ("Jain's index", "{/pairs/*/ours/fairness:2} / {/pairs/*/kernel/fairness:2}"),
            (
                "retransmitted, %",
                "{/pairs/*/ours/sent_again_percent:2} / {/pairs/*/kernel/sent_again_percent:2}",
            ),
            (
                "queue p50, ms",
                "{/pairs/*/ours/queue_delay_ms_p50:2} / {/pairs/*/kernel/queue_delay_ms_p50:2}",
            ),
        ],
        conditions: "Plimsoll / Linux over 50 Mbit/s and a round trip of 30 ms. Figures are \
                     medians of 3 to 10 pairs. Linux's BBR is version 1.",
    }
}

impl Bench {
    /// The tables, made of the documents of all runs.
    pub(super) fn tables(&self, documents: &[Value]) -> Result<Tables> {
        let made = self.tables.iter();
        made.map(|made| Ok((made.name.to_owned(), made.table(documents)?))).collect()
    }
}

impl Made {
    fn table(&self, documents: &[Value]) -> Result<Table> {
        let mut table = Table::default();
        for (number, document) in documents.iter().enumerate() {
            let missing = || format!("document {number} has nothing at {}{}", self.part, self.list);
            let part = document.pointer(self.part).with_context(missing)?;
            if number == 0 {
                table.conditions = fill(self.conditions, part, document);
                table.header = match self.columns {
                    [] => cells(&part["table"]["header"]),
                    columns => columns.iter().map(|(title, _)| (*title).to_owned()).collect(),
                };
            }
            for row in entries(part.pointer(self.list).with_context(missing)?) {
                table.rows.push(match self.columns {
                    [] => cells(&row),
                    columns => columns.iter().map(|(_, cell)| fill(cell, &row, document)).collect(),
                });
            }
        }
        ensure!(!table.rows.is_empty(), "the documents have no rows for the table {}", self.name);
        Ok(table)
    }
}

fn cells(row: &Value) -> Vec<String> {
    row.as_array().map_or(&[][..], Vec::as_slice).iter().map(text).collect()
}

/// What has a row each: the entries of an array, or the fields of an object with their names.
fn entries(list: &Value) -> Vec<Value> {
    match list {
        Value::Array(all) => all.clone(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let mut value = value.clone();
                value["key"] = key.as_str().into();
                value
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The attacks on the program of this tree.
fn attacks(root: &Path, words: &[String]) -> Result<()> {
    let program = session::build_release(root, &["plimsoll-cli"])?.join("plimsoll");
    let program = program.to_str().context("the path of the repository is text")?;
    session::bench(root, &[words, &["--new".to_owned(), program.to_owned()]].concat())
}

fn decisions(root: &Path, words: &[String]) -> Result<()> {
    parity::command(root, &words[1..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(name: &str, documents: &[Value]) -> (Vec<Vec<String>>, String) {
        let bench = BENCHES.iter().find(|bench| bench.tables.iter().any(|t| t.name == name));
        let table = bench.unwrap().tables(documents).unwrap().remove(name).unwrap();
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()), "{table:?}");
        (table.rows, table.conditions)
    }

    #[test]
    fn a_table_that_is_ready_says_how_it_was_taken() {
        let table = |work: &str| json!({ "header": ["work"], "rows": [[work]] });
        let document = json!({
            "repetitions": 5, "seconds": 1.0, "kernel_congestion_control": "cubic",
            "idle_connections": 10, "notes": ["lwIP is left out: no | compiler"],
            "table": table("bulk"),
            "forwarders": { "idle_connections": 7, "notes": [], "table": table("rr") },
        });
        let (made, conditions) = rows("peers", std::slice::from_ref(&document));
        assert_eq!(made, [["bulk"]]);
        assert!(conditions.starts_with("Medians of 5 interleaved runs of 1.0 s"), "{conditions}");
        assert!(conditions.ends_with("Notes: lwIP is left out: no / compiler."), "{conditions}");
        let (made, conditions) = rows("forwarders", &[document]);
        assert_eq!(made, [["rr"]]);
        assert!(conditions.contains("with 7 connections"), "{conditions}");
        assert!(BENCHES[0].tables(&[json!({})]).is_err());
    }

    #[test]
    fn documents_of_several_runs_are_one_table() {
        let document = |control: &str| {
            json!({
                "congestion_control": control, "seconds": 15.0,
                "table": { "header": [], "rows": [[
                    "p", "9 Mbit/s", "10 Mbit/s", "0.90", "0.80 to 1.00", "1 / 2 %", "2 / 3 ms",
                    "no worse", "-", "1 of 2",
                ]] },
            })
        };
        let (made, _) = rows("senders", &[document("cubic"), document("reno")]);
        let want = ["p", "9 Mbit/s", "10 Mbit/s", "0.90 (0.80 to 1.00)", "1 / 2 %", "2 / 3 ms"];
        assert_eq!((&*made[0][0], &*made[1][0]), ("cubic", "reno"));
        assert_eq!(made[1][1..7], want);
    }

    #[test]
    fn decisions_have_a_row_for_each_family() {
        let counts = json!({ "patterns": 9, "same": 8, "named": 0, "unnamed": 0, "excluded": 1 });
        let document = json!({
            "families": { "one loss": counts }, "total": counts,
            "classes": { "Undone": { "about": "why", "patterns": [4, 7] } },
        });
        let (made, _) = rows("decisions", std::slice::from_ref(&document));
        assert_eq!(made, [["one loss", "9", "8", "0", "0", "1"]]);
        assert_eq!(rows("decisions.reasons", &[document]).0, [["Undone: why", "4, 7"]]);
    }
}
