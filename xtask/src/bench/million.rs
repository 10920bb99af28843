//! `bench million`: what a packet costs, and how much memory a connection takes, as connections
//! become a million.
//!
//! The program `million` accepts them from a second process; one in a hundred is active.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::value;
use crate::session::build_release;
use crate::shell;

/// Numbers of connections.
const COUNTS: [&str; 4] = ["1", "1000", "100000", "1000000"];
const QUICK: [&str; 3] = ["1", "1000", "20000"];

/// The longest that one run may take.
const LIMIT: Duration = Duration::from_secs(540);

/// Memory that must be free for the largest number of connections, and for everything else: both
/// processes take about 2 KiB for a connection.
const NEEDED_KIB_EACH: u64 = 8;
const NEEDED_MIB: u64 = 256;

const HEAD: [&str; 5] =
    ["connections", "active", "resident, each", "opened per second", "time per request"];
const CONDITIONS: &str = "The peers are a second process. A request and its answer have 64 bytes \
                          each. Times are the median of five measurements (least to most).";

struct Request {
    counts: Vec<String>,
    json: Option<PathBuf>,
}

/// Runs the program `million`.
pub(super) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    check_memory(&request.counts)?;
    let program = build_release(root, &["plimsoll-bench"])?.join("million");
    let mut rows = Vec::new();
    let ended = measure(&program, &request.counts, &mut rows);
    // Rows that were measured before a failure are shown: they took minutes.
    let table: Vec<[String; 5]> = rows.iter().map(cells).collect();
    for row in [HEAD.map(str::to_owned)].iter().chain(&table) {
        println!("{}", row.each_ref().map(|cell| format!("{cell:20}")).concat().trim_end());
    }
    if let Some(path) = &request.json {
        let table = json!({ "conditions": CONDITIONS, "header": HEAD, "rows": table });
        let text = serde_json::to_string_pretty(&json!({ "rows": rows, "table": table }))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    ended
}

fn parse(args: &[String]) -> Result<Request> {
    let counts = |counts: &[&str]| counts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut request = Request { counts: counts(&COUNTS), json: None };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--quick" => request.counts = counts(&QUICK),
            "--json" => request.json = Some(value(word, &mut rest)?.into()),
            "--counts" => {
                request.counts = value(word, &mut rest)?.split(',').map(str::to_owned).collect();
            }
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

/// Fails if memory is short: the kernel would end programs of other users.
fn check_memory(counts: &[String]) -> Result<()> {
    let needed = needed_mib(counts)?;
    let text = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let free = free.context("/proc/meminfo has no MemAvailable")? / 1024;
    ensure!(free >= needed, "{needed} MiB must be free, and {free} are");
    Ok(())
}

fn needed_mib(counts: &[String]) -> Result<u64> {
    let mut largest = 0;
    for count in counts {
        let number = count.parse().ok().filter(|number| *number > 0);
        let number = number.with_context(|| format!("--counts wants numbers, not {count}"))?;
        largest = largest.max(number);
    }
    Ok(NEEDED_MIB + NEEDED_KIB_EACH.saturating_mul(largest) / 1024)
}

/// Adds a row for each count that the program came to.
fn measure(program: &Path, counts: &[String], rows: &mut Vec<Value>) -> Result<()> {
    let out = shell::output(Command::new(program).args(counts), LIMIT)?;
    let out = out.context("the program `million` did not end in time")?;
    let lines = String::from_utf8_lossy(&out.stdout);
    let printed = lines.lines().map(serde_json::from_str);
    // Rows that were printed before a failure are kept.
    rows.extend(printed.clone().map_while(Result::ok));
    ensure!(out.status.success(), "million: {}", String::from_utf8_lossy(&out.stderr));
    printed.collect::<Result<Vec<Value>, _>>().context("million prints JSON")?;
    Ok(())
}

fn cells(row: &Value) -> [String; 5] {
    let whole =
        |value: &Value| value.as_f64().map_or("-".to_owned(), |value| format!("{value:.0}"));
    // The program sorts the times.
    let times = row["ns_per_request"].as_array().map_or(&[][..], Vec::as_slice);
    let at = |at: usize| times.get(at).map_or("-".to_owned(), whole);
    let [middle, least, most] = [times.len() / 2, 0, times.len().saturating_sub(1)].map(at);
    [
        row["connections"].to_string(),
        row["active"].to_string(),
        whole(&row["resident_bytes"]) + " B",
        whole(&row["opened_per_s"]),
        format!("{middle} ({least} to {most}) ns"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_comes_before_the_ends() {
        assert_eq!(cells(&json!({ "ns_per_request": [1.2, 2.0, 9.0] }))[4], "2 (1 to 9) ns");
        assert_eq!(cells(&json!({}))[4], "- (- to -) ns");
    }

    #[test]
    fn memory_goes_by_the_largest_count() {
        let needed = |counts: &[&str]| {
            needed_mib(&counts.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(needed(&QUICK).unwrap(), 256 + 156);
        assert_eq!(needed(&COUNTS).unwrap(), 256 + 7812);
        for wrong in [&["0"][..], &["1", "many"], &["-5"], &[""]] {
            assert!(needed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn counts_are_words_of_the_program() {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(parse(&words("--counts 1,10")).unwrap().counts, ["1", "10"]);
        assert_eq!(parse(&[]).unwrap().counts, COUNTS);
        assert!(parse(&words("--many")).is_err());
    }
}
