//! `bench stalls`: how long conversations in small pieces take with the kernel on the other side.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cases::stalls::{Begins, Nagle, TALKS, Talk, Talked, talk};

const ROUNDS: usize = 1000;
const QUICK_ROUNDS: usize = 50;

/// Of our side: what the table calls it, and by how much fewer rounds it has.
const NAGLES: [(Nagle, &str, usize); 3] =
    [(Nagle::Off, "off", 1), (Nagle::On, "on", 10), (Nagle::Bounded, "bounded", 1)];

/// Has all conversations, each begun by us and by the kernel, and prints a table.
pub(super) fn run(words: &[String]) -> Result<()> {
    let (rounds, path) = parse(words)?;
    println!(
        "| conversation | begins | our Nagle | p50 | p99 | max | stalls | late ACKs, ours : kernel |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut all = Vec::new();
    for what in &TALKS {
        for (begins, name) in [(Begins::Ours, "ours"), (Begins::Kernel, "kernel")] {
            for (nagle, word, fewer) in NAGLES {
                let talked = talk(what, begins, rounds / fewer, nagle)?;
                show(what, name, word, &talked);
                all.push(to_json(what, name, word, &talked));
            }
        }
    }
    if let Some(path) = path {
        let text = serde_json::to_string_pretty(&all).context("writing JSON")?;
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

fn milliseconds(talked: &Talked, name: &str) -> Option<f64> {
    talked.rounds[name].as_f64().map(|micros| micros / 1000.0)
}

fn show(what: &Talk, begins: &str, nagle: &str, talked: &Talked) {
    let at = |name| milliseconds(talked, name).unwrap_or(f64::NAN);
    println!(
        "| {} | {begins} | {nagle} | {:.3} ms | {:.3} ms | {:.1} ms | {} of {} | {} : {} |",
        what.name,
        at("p50"),
        at("p99"),
        at("max"),
        talked.rounds["stalls"],
        talked.rounds["rounds"],
        talked.ours,
        talked.kernel,
    );
}

fn to_json(what: &Talk, begins: &str, nagle: &str, talked: &Talked) -> Value {
    let at = |name| milliseconds(talked, name);
    json!({
        "conversation": what.name,
        "begins": begins,
        "nagle": nagle,
        "milliseconds": { "p50": at("p50"), "p99": at("p99"), "max": at("max") },
        "stalls": talked.rounds["stalls"],
        "rounds": talked.rounds["rounds"],
        "late_acks": { "ours": talked.ours, "kernel": talked.kernel },
    })
}
