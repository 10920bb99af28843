//! `cargo xtask figures`: measures the published tables again.
//!
//! All of them are in `docs/results/tables.json`, each with its command, date and machine. The
//! pages show them between marks ([`pages`]), so every figure has one source. No table is written
//! by hand: each is one of [`BENCHES`], or one that [`lab`] makes. Run the command on a machine
//! that does nothing else.

mod benches;
mod chart;
mod lab;
pub(crate) mod pages;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session;
use benches::{BENCHES, Bench};

/// Where all tables are.
const TABLES: &str = "docs/results/tables.json";

const USAGE: &str = "usage: cargo xtask figures bench [NAME]... | figures bench NAME --from FILE... \
     | figures lab [OPTION OF THE LAB]... | figures lab --from FILE";

/// A published table, in the form in which it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Table {
    /// What measures it again.
    #[serde(default)]
    command: String,
    /// The day of the measurement.
    #[serde(default)]
    date: String,
    #[serde(default)]
    machine: String,
    /// How it was measured, in full sentences.
    conditions: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The published tables by their names.
type Tables = BTreeMap<String, Table>;

/// Runs it.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["lab", "--from", file] => put(root, Path::new(file), lab::tables)?,
        ["lab", options @ ..] => {
            let file = lab::measure(root, options)?;
            put(root, &file, lab::tables)?;
        }
        ["bench", name, "--from", files @ ..] if !files.is_empty() => {
            put_bench(root, named(name)?, files)?;
        }
        ["bench", names @ ..] => {
            let chosen = names.iter().map(|name| named(name)).collect::<Result<Vec<_>>>()?;
            let all = BENCHES.iter().filter(|_| chosen.is_empty());
            for bench in chosen.iter().copied().chain(all) {
                measure(root, bench)?;
            }
        }
        _ => bail!("{USAGE}"),
    }
    pages::write(root)
}

fn named(name: &str) -> Result<&'static Bench> {
    let known = || BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(" ");
    let found = BENCHES.iter().find(|bench| bench.name == name);
    found.with_context(|| format!("there is no bench {name}; the benches: {}\n{USAGE}", known()))
}

/// Runs a bench, and puts its tables into the document.
fn measure(root: &Path, bench: &Bench) -> Result<()> {
    println!("\n== {}", bench.name);
    let mut files = Vec::new();
    for (number, options) in bench.runs.iter().enumerate() {
        let file =
            session::cargo_target(root).join(format!("figures-{}-{number}.json", bench.name));
        let json = file.to_str().context("the path of the repository is text")?;
        let words = [&[bench.measures, "--json", json], *options].concat();
        (bench.run)(root, &words.into_iter().map(str::to_owned).collect::<Vec<_>>())?;
        files.push(json.to_owned());
    }
    put_bench(root, bench, &files.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Makes the tables of a bench from the documents that its runs have written.
fn put_bench(root: &Path, bench: &Bench, files: &[&str]) -> Result<()> {
    let documents =
        files.iter().map(|file| read(Path::new(file))).collect::<Result<Vec<Value>>>()?;
    for document in &documents {
        ensure!(
            document["repetitions"].as_u64() != Some(1),
            "a figure that was measured once has no spread: take the document without --quick"
        );
    }
    let last = files.last().context("no document is named")?;
    put(root, Path::new(last), |_| {
        let sudo = if bench.needs_root { "sudo -E " } else { "" };
        let command = format!("{sudo}cargo xtask figures bench {}", bench.name);
        let mut tables = bench.tables(&documents)?;
        tables.values_mut().for_each(|table| table.command.clone_from(&command));
        Ok(tables)
    })
}

/// Adds the tables that `make` makes of a document to the published ones.
fn put(root: &Path, file: &Path, make: impl Fn(&Value) -> Result<Tables>) -> Result<()> {
    let mut all = published(root)?;
    for (name, mut table) in make(&read(file)?)? {
        table.date = day(file)?;
        if table.machine.is_empty() {
            table.machine = machine();
        }
        all.insert(name, table);
    }
    let text = serde_json::to_string_pretty(&all)? + "\n";
    fs::write(root.join(TABLES), text).with_context(|| format!("writing {TABLES}"))
}

fn published(root: &Path) -> Result<Tables> {
    let text =
        fs::read_to_string(root.join(TABLES)).with_context(|| format!("reading {TABLES}"))?;
    serde_json::from_str(&text).with_context(|| format!("{TABLES} is not what it should be"))
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// The day on which a file was written.
fn day(file: &Path) -> Result<String> {
    let out = Command::new("date").arg("-r").arg(file).arg("+%F").output().context("date")?;
    ensure!(out.status.success(), "the date of {}", file.display());
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// What this machine is.
fn machine() -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or("unknown", |(_, name)| name.trim());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{count} CPUs ({name}), Linux {}", release.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused() {
        for (text, part) in [("all", "usage"), ("", "usage"), ("bench kernels", "kernel peers")] {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            let error = run(Path::new("/nowhere"), &words).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    /// No table is written by hand.
    #[test]
    fn every_published_table_has_its_command() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let known: Vec<&str> =
            BENCHES.iter().flat_map(|bench| bench.tables).map(|(name, _)| *name).collect();
        for name in published(&root).unwrap().keys() {
            // A suffix names another machine.
            let bench = name.split('.').next().unwrap();
            assert!(known.contains(&bench) || bench == "lab", "{name}");
        }
    }
}
