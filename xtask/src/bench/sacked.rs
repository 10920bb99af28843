//! `bench sacked`: what an ACK with SACK costs by the number of segments in flight, with each
//! version of the stack by turns.

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

/// Segments in flight.
const SEGMENTS: [u32; 3] = [100, 1000, 16_384];

struct Request {
    commits: Vec<String>,
    rounds: String,
    json: Option<PathBuf>,
}

/// Runs the program `sacked` with every version asked for, and with this tree.
pub(super) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    let versions = Version::build_all(root, &request.commits, "sacked")?;
    let mut runs = Vec::new();
    println!("{:24}{:>10}{:>10}{:>12}", "version", "segments", "ACKs", "ns per ACK");
    for segments in SEGMENTS {
        for version in &versions {
            let figures = sacked(version, segments, &request.rounds)?;
            let number = |name: &str| figures[name].as_f64().unwrap_or(f64::NAN);
            let (acks, nanos) = (number("acks"), number("ns_per_ack"));
            println!("{:24}{segments:10}{acks:10.0}{nanos:12.0}", version.name);
            runs.push(json!({ "version": version.name, "figures": figures }));
        }
    }
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&runs).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Request> {
    let mut request = Request { commits: Vec::new(), rounds: "5".into(), json: None };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--at" => request.commits.push(value(word, &mut rest)?.clone()),
            "--rounds" => request.rounds = value(word, &mut rest)?.clone(),
            "--json" => request.json = Some(value(word, &mut rest)?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

fn sacked(version: &Version, segments: u32, rounds: &str) -> Result<Value> {
    let mut command = Command::new(version.program("sacked"));
    let out = shell::output(command.args([&segments.to_string(), rounds]), LIMIT)?;
    let out = out.with_context(|| format!("sacked with {} did not end in time", version.name))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "sacked with {}: {said}", version.name);
    serde_json::from_slice(&out.stdout).context("sacked prints JSON")
}
