//! `bench flood`: a flood of SYNs on a link in memory, with each version of the stack by turns.

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

struct Request {
    commits: Vec<String>,
    rate: String,
    seconds: String,
    repetitions: usize,
    json: Option<PathBuf>,
}

/// Runs the program `flood` with every version asked for, and with this tree.
pub(super) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    let versions = Version::build_all(root, &request.commits, "flood")?;
    let mut runs = Vec::new();
    println!(
        "{:24}{:>12}{:>12}{:>12}{:>12}{:>12}{:>8}{:>14}{:>9}",
        "version",
        "offered/s",
        "refused/s",
        "answered/s",
        "MB/s before",
        "MB/s during",
        "share",
        "longest conn.",
        "failed"
    );
    for _ in 0..request.repetitions {
        for version in &versions {
            let figures = flood(version, &request)?;
            show(&version.name, &figures);
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
    let mut request = Request {
        commits: Vec::new(),
        rate: "1000000".into(),
        seconds: "5".into(),
        repetitions: 3,
        json: None,
    };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--at" => request.commits.push(value(word, &mut rest)?.clone()),
            "--rate" => request.rate = value(word, &mut rest)?.clone(),
            "--seconds" => request.seconds = value(word, &mut rest)?.clone(),
            "--repetitions" => {
                let count = value(word, &mut rest)?;
                request.repetitions = count.parse().context("--repetitions: a number")?;
            }
            "--json" => request.json = Some(value(word, &mut rest)?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

fn flood(version: &Version, request: &Request) -> Result<Value> {
    let mut command = Command::new(version.program("flood"));
    let out = shell::output(command.args([&request.rate, &request.seconds]), LIMIT)?;
    let out = out.with_context(|| format!("flood with {} did not end in time", version.name))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "flood with {}: {said}", version.name);
    serde_json::from_slice(&out.stdout).context("flood prints JSON")
}

fn show(version: &str, figures: &Value) {
    let number = |part: &str, name: &str| figures[part][name].as_f64().unwrap_or(f64::NAN);
    let before = number("before", "bystander_bytes_per_s");
    let during = number("during", "bystander_bytes_per_s");
    println!(
        "{version:24}{:12.0}{:12.0}{:12.0}{:12.1}{:12.1}{:8.2}{:12.3} s{:9}",
        number("during", "syns_offered_per_s"),
        number("during", "syns_refused_by_link_per_s"),
        number("during", "syns_answered_per_s"),
        before / 1e6,
        during / 1e6,
        during / before,
        number("during", "longest_connect_s"),
        number("during", "connects_failed"),
    );
}
