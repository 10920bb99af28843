//! `bench devices`: what it costs to hand the host's kernel a packet, and to take one from it, by a
//! TUN device, by io_uring, and by AF_PACKET and AF_XDP over a veth pair.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use serde_json::{Value, json};

use super::at::Version;
use super::value;
use crate::{packages, shell};

/// What the program runs.
const PROGRAMS: [&str; 1] = ["ip"];

/// The longest that all runs may take.
const LIMIT: Duration = Duration::from_secs(600);

struct Request {
    words: Vec<String>,
    repetitions: u64,
    seconds: f64,
    json: Option<PathBuf>,
}

/// Runs the program `devices`, and shows the medians of its runs.
pub(super) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    packages::kernel_tests(&PROGRAMS).map_err(Error::msg)?;
    let program = Version::build(root, None, "devices")?.program("devices");
    let mut command = Command::new(program);
    command.args(["--seconds", &request.seconds.to_string()]);
    command.args(["--repetitions", &request.repetitions.to_string()]).args(&request.words);
    let out = shell::output(&mut command, LIMIT)?.context("devices did not end in time")?;
    ensure!(out.status.success(), "devices: {}", String::from_utf8_lossy(&out.stderr).trim());
    let lines = String::from_utf8_lossy(&out.stdout);
    let runs = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    let runs = runs.context("devices prints JSON")?;
    let table = table(&runs);
    for row in &table {
        println!("| {} |", row.join(" | "));
    }
    let notes = notes(&runs);
    for note in &notes {
        println!("{note}");
    }
    if let Some(path) = &request.json {
        let (header, rows) = table.split_first().context("nothing was measured")?;
        let document = json!({
            "repetitions": request.repetitions, "seconds": request.seconds, "runs": runs,
            "notes": notes, "table": { "header": header, "rows": rows },
        });
        let text = serde_json::to_string_pretty(&document).context("writing JSON")? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Request> {
    let mut request = Request { words: Vec::new(), repetitions: 5, seconds: 0.2, json: None };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--quick" => request.repetitions = 1,
            "--repetitions" => {
                let count = value(word, &mut rest)?;
                request.repetitions = count.parse().context("--repetitions: a number")?;
            }
            "--seconds" => {
                let seconds = value(word, &mut rest)?;
                request.seconds = seconds.parse().context("--seconds: a number")?;
            }
            "--only" => request.words.extend([word.clone(), value(word, &mut rest)?.clone()]),
            "--json" => request.json = Some(value(word, &mut rest)?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

/// The values of a field of all runs, each once, in the order in which they are first named.
fn names(runs: &[Value], field: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in runs.iter().filter_map(|run| run[field].as_str()) {
        if names.iter().all(|known| known != name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// A line for each way, a column for each work, and a line of names above them.
fn table(runs: &[Value]) -> Vec<Vec<String>> {
    let (ways, works) = (names(runs, "way"), names(runs, "work"));
    let mut lines = vec![std::iter::once("way".to_owned()).chain(works.clone()).collect()];
    for way in ways {
        let of = |work: &String| -> Vec<&Value> {
            runs.iter().filter(|run| run["way"] == *way && run["work"] == **work).collect()
        };
        let cells = works.iter().map(|work| cell(&of(work)));
        lines.push(std::iter::once(way.clone()).chain(cells).collect());
    }
    lines
}

/// The medians of the runs of one way and work: our time, the machine's, and a rate.
fn cell(runs: &[&Value]) -> String {
    if runs.is_empty() {
        return "-".to_owned();
    }
    let all =
        |field: &str| -> Vec<f64> { runs.iter().filter_map(|run| run[field].as_f64()).collect() };
    let ours = all("ours_ns");
    if ours.is_empty() {
        return "failed".to_owned();
    }
    let middle = |field: &str| median(all(field));
    let least = ours.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ours.iter().copied().fold(0.0, f64::max);
    format!(
        "{} ({}..{}) / {} ns, {} k/s",
        round(median(ours)),
        round(least),
        round(most),
        round(middle("machine_ns")),
        round(middle("per_s") / 1e3),
    )
}

/// Three digits of a number, or all of those before the point.
fn round(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What failed, and why, each once.
fn notes(runs: &[Value]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for run in runs {
        let Some(error) = run["error"].as_str() else { continue };
        let name = |field: &str| run[field].as_str().unwrap_or_default();
        let note = format!("{}, {}: {error}", name("way"), name("work"));
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_a_line_and_a_work_a_column() {
        let run = |way: &str, work: &str, ours: f64| {
            json!({
                "way": way, "work": work, "ours_ns": ours, "machine_ns": 9.0, "per_s": 2e6,
            })
        };
        let runs = [
            run("tun", "give", 300.0),
            run("ring", "give", 7.0),
            json!({ "way": "ring", "work": "take", "error": "it is shut" }),
            run("tun", "give", 100.0),
            run("tun", "give", 250.0),
        ];
        let lines = table(&runs);
        assert_eq!(lines[0], ["way", "give", "take"]);
        assert_eq!(lines[1], ["tun", "250 (100..300) / 9.0 ns, 2000 k/s", "-"]);
        assert_eq!(lines[2], ["ring", "7.0 (7.0..7.0) / 9.0 ns, 2000 k/s", "failed"]);
        assert_eq!(notes(&runs), ["ring, take: it is shut"]);
    }

    #[test]
    fn options() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let request = parse(&words("--quick --only TUN --seconds 0.1 --json f")).unwrap();
        assert_eq!((request.repetitions, request.seconds), (1, 0.1));
        assert_eq!(request.words, ["--only", "TUN"]);
        assert!(parse(&words("--only")).is_err());
        assert!(parse(&words("--slow")).is_err());
    }
}
