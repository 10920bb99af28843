//! `bench stalls`: how long conversations in small pieces take with the kernel on the other side.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::cases::stalls::{Begins, Nagle, TALKS, Talk, Talked, talk};

const ROUNDS: usize = 1000;
const QUICK_ROUNDS: usize = 50;

const HEAD: [&str; 8] = [
    "conversation",
    "begins",
    "our Nagle",
    "p50",
    "p99",
    "max",
    "stalls",
    "late ACKs, ours : kernel",
];

/// Of our side: what the table calls it, and by how much fewer rounds it has.
const NAGLES: [(Nagle, &str, usize); 3] =
    [(Nagle::Off, "off", 1), (Nagle::On, "on", 10), (Nagle::Bounded, "bounded", 1)];

/// Has all conversations, each begun by us and by the kernel, and prints a table.
pub(super) fn run(words: &[String]) -> Result<()> {
    let (rounds, path) = parse(words)?;
    let print = |cells: &[String]| println!("| {} |", cells.join(" | "));
    print(&HEAD.map(str::to_owned));
    println!("{}|", "|---".repeat(HEAD.len()));
    let mut rows = Vec::new();
    for what in &TALKS {
        for (begins, name) in [(Begins::Ours, "ours"), (Begins::Kernel, "kernel")] {
            for (nagle, word, fewer) in NAGLES {
                let talked = talk(what, begins, rounds / fewer, nagle)?;
                let cells = cells(what, name, word, &talked);
                print(&cells);
                rows.push(cells);
            }
        }
    }
    if let Some(path) = path {
        let conditions = "Each row is one connection. The kernel's Nagle is on.";
        let table = json!({ "conditions": conditions, "header": HEAD, "rows": rows });
        let text = serde_json::to_string_pretty(&json!({ "table": table }))?;
        std::fs::write(&path, text + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<(usize, Option<PathBuf>)> {
    let (mut rounds, mut json) = (ROUNDS, None);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--quick" => rounds = QUICK_ROUNDS,
            "--json" => json = Some(rest.next().context("--json wants a value")?.into()),
            other => bail!("unknown option {other}; usage: bench stalls [--quick] [--json FILE]"),
        }
    }
    Ok((rounds, json))
}

fn cells(what: &Talk, begins: &str, nagle: &str, talked: &Talked) -> [String; 8] {
    let at = |name: &str, places: usize| {
        let micros = talked.rounds[name].as_f64();
        micros.map_or("-".to_owned(), |micros| format!("{:.places$} ms", micros / 1000.0))
    };
    [
        what.name.to_owned(),
        begins.to_owned(),
        nagle.to_owned(),
        at("p50", 3),
        at("p99", 3),
        at("max", 1),
        format!("{} of {}", talked.rounds["stalls"], talked.rounds["rounds"]),
        format!("{} : {}", talked.ours, talked.kernel),
    ]
}
