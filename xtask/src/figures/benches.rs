//! The benches whose tables are published.
//!
//! Each writes a document that has its tables ready: conditions, header and rows.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::{Table, Tables};
use crate::{bench, parity, session};

type Run = fn(&Path, &[String]) -> Result<()>;
type Runs = &'static [&'static [&'static str]];
type Places = &'static [(&'static str, &'static str)];

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
    /// The names of the tables, and the JSON pointers of their places in a document.
    pub(super) tables: Places,
}

const fn bench(name: &'static str, run: Run, tables: Places) -> Bench {
    Bench { name, measures: name, needs_root: true, run, runs: &[&[]], tables }
}

const fn senders(name: &'static str, runs: Runs, tables: Places) -> Bench {
    Bench { measures: "senders", runs, ..bench(name, session::bench, tables) }
}

const PEERS: Places = &[("peers", "/table"), ("forwarders", "/forwarders")];
const DECISIONS: Places = &[("decisions", "/table"), ("decisions.reasons", "/reasons")];

pub(super) const BENCHES: [Bench; 16] = [
    Bench {
        runs: &[&["--repetitions", "5", "--seconds", "1"]],
        ..bench("kernel", session::bench, &[("kernel", "/table")])
    },
    bench("peers", bench::peers::run, PEERS),
    bench("latency", session::bench, &[("latency", "/table")]),
    bench("stalls", session::bench, &[("stalls", "/table")]),
    Bench { needs_root: false, ..bench("million", bench::run, &[("million", "/table")]) },
    bench("udp", session::bench_udp, &[("udp", "/table")]),
    bench("attacks", attacks, &[("attacks", "/table")]),
    bench("tun2proxy", bench::tun2proxy::run, &[("tun2proxy", "/table")]),
    Bench {
        runs: &[&["--rules", "--rounds", "3"]],
        ..bench("gateways", bench::gateways::run, &[("gateways", "/table")])
    },
    bench("weather", session::bench, &[("weather", "/table")]),
    bench("reasons", session::bench, &[("reasons", "/table")]),
    senders("senders", SENDERS, &[("senders", "/table")]),
    senders("receivers", RECEIVERS, &[("receivers", "/table")]),
    senders("nsperf-link", NSPERF_LINK, &[("nsperf-link", "/table")]),
    senders("fairness", FAIRNESS, &[("fairness", "/table")]),
    bench("decisions", decisions, DECISIONS),
];

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

impl Bench {
    /// The tables, made of the documents of all runs.
    pub(super) fn tables(&self, documents: &[Value]) -> Result<Tables> {
        let joined = |(name, place): &(&str, &str)| {
            let table = joined(documents, place);
            Ok(((*name).to_owned(), table.with_context(|| format!("the table {name}"))?))
        };
        self.tables.iter().map(joined).collect()
    }
}

/// The tables at one place of all documents, as one.
fn joined(documents: &[Value], place: &str) -> Result<Table> {
    let mut whole = Table::default();
    for document in documents {
        let table = document.pointer(place).context("a document lacks it")?;
        let table = Table::deserialize(table)?;
        let rows = whole.rows.into_iter().chain(table.rows).collect();
        whole = Table { rows, ..table };
    }
    // A bar would end the cell.
    whole.rows.iter_mut().flatten().for_each(|cell| *cell = cell.replace('|', "/"));
    let fits = |row: &Vec<String>| row.len() == whole.header.len();
    ensure!(!whole.rows.is_empty() && whole.rows.iter().all(fits), "its rows do not fit");
    Ok(whole)
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

    #[test]
    fn documents_of_several_runs_are_one_table() {
        let document = |control: &str| {
            let rows = [[control, "a | b"]];
            json!({ "table": { "conditions": "Once.", "header": ["control", "x"], "rows": rows } })
        };
        let bench = BENCHES.iter().find(|bench| bench.name == "senders").unwrap();
        let tables = bench.tables(&[document("cubic"), document("reno")]).unwrap();
        assert_eq!(tables["senders"].rows, [["cubic", "a / b"], ["reno", "a / b"]]);
        assert_eq!(tables["senders"].conditions, "Once.");
        let mut wrong = document("cubic");
        wrong["table"]["header"] = json!([]);
        assert!(bench.tables(&[wrong]).is_err());
        assert!(bench.tables(&[json!({})]).is_err());
    }
}
