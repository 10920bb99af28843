//! `bench idle`: where the memory of connections goes that do nothing, with each version of the
//! stack.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::at::Version;
use super::value;
use crate::shell;

/// The longest that one run may take.
const LIMIT: Duration = Duration::from_secs(600);

/// What is shown of each version: what it is called, and where it is in the document.
pub(crate) const ROWS: [(&str, &str); 7] = [
    ("by the stack's own count", "/own_count"),
    ("allocations", "/idle/allocations"),
    ("bytes that were asked for", "/idle/asked_for"),
    ("given out by the allocator", "/idle/given_out"),
    ("kept free by the allocator", "/idle/kept_free"),
    ("resident", "/idle/resident"),
    ("resident after `malloc_trim`", "/trimmed/resident"),
];

struct Request {
    commits: Vec<String>,
    connections: String,
    json: Option<PathBuf>,
}

/// Runs the program `idle` with every version asked for, and with this tree.
pub(super) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    let versions = Version::build_all(root, &request.commits, "idle")?;
    let mut runs = Vec::new();
    for version in &versions {
        let figures = idle(version, &request.connections)?;
        println!("{}", version.name);
        print(&figures);
        runs.push(json!({ "version": version.name, "figures": figures }));
    }
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&runs).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn print(figures: &Value) {
    println!("  of one end of one of {} connections:", figures["connections"]);
    for (name, place) in ROWS {
        let figure = figures.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN);
        println!("  {name:30}{figure:10.1}");
    }
    println!("  allocations by size:");
    for entry in figures["sizes"].as_array().into_iter().flatten() {
        let each = entry[1].as_f64().unwrap_or(f64::NAN);
        println!("  {:>8} B {each:10.2}", entry[0]);
    }
}

fn parse(args: &[String]) -> Result<Request> {
    let mut request = Request { commits: Vec::new(), connections: "100000".into(), json: None };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--at" => request.commits.push(value(word, &mut rest)?.clone()),
            "--connections" => request.connections = value(word, &mut rest)?.clone(),
            "--json" => request.json = Some(value(word, &mut rest)?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

fn idle(version: &Version, connections: &str) -> Result<Value> {
    let mut command = Command::new(version.program("idle"));
    let out = shell::output(command.arg(connections), LIMIT)?;
    let out = out.with_context(|| format!("idle with {} did not end in time", version.name))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "idle with {}: {said}", version.name);
    serde_json::from_slice(&out.stdout).context("idle prints JSON")
}
