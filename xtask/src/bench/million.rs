//! `bench million`: what a packet costs, and how much memory a connection takes, as connections
//! become a million.
//!
//! The program `million` accepts them from a second process; one in a hundred is active. Time is
//! taken by the clock. Instructions and misses of the caches are counted by callgrind, which
//! simulates them, in runs of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::at::Version;
use super::value;
use crate::profile::{CACHES, estimate};
use crate::{callgrind, packages, shell};

/// Numbers of connections.
const COUNTS: [&str; 4] = ["1", "1000", "100000", "1000000"];
const QUICK: [&str; 3] = ["1", "1000", "20000"];

/// The longest that one run may take.
const LIMIT: Duration = Duration::from_secs(540);

/// Memory that must be free for the largest number of connections, and for everything else: both
/// processes take about 2 KiB for a connection, and callgrind more.
const NEEDED_KIB_EACH: u64 = 8;
const NEEDED_MIB: u64 = 256;

/// The function inside which callgrind counts.
const TOGGLE: &str = "million::counted*";

struct Request {
    counts: Vec<String>,
    misses: bool,
    json: Option<PathBuf>,
}

/// Runs the program `million` by the clock, then under callgrind.
pub(super) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    check_memory(&request.counts)?;
    if request.misses {
        packages::valgrind().map_err(anyhow::Error::msg)?;
    }
    let program = Version::build(root, None, "million")?.program("million");
    let mut rows = Vec::new();
    let mut ended = by_clock(&program, &request.counts, &mut rows);
    if request.misses && ended.is_ok() {
        ended = add_misses(&program, &mut rows);
    }
    // What was measured before a failure took minutes.
    show(&rows);
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&json!({ "rows": rows }))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    ended
}

fn add_misses(program: &Path, rows: &mut [Value]) -> Result<()> {
    for row in rows {
        let count = row["connections"].as_u64().context("a number of connections")?;
        println!("{count} connections under callgrind");
        row["counted"] = by_callgrind(program, &count.to_string())?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Request> {
    let counts = |counts: &[&str]| counts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut request = Request { counts: counts(&COUNTS), misses: true, json: None };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--quick" => request.counts = counts(&QUICK),
            "--no-misses" => request.misses = false,
            "--json" => request.json = Some(value(word, &mut rest)?.into()),
            "--counts" => {
                request.counts = value(word, &mut rest)?.split(',').map(str::to_owned).collect();
            }
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

/// Nobody else's programs are to be ended because memory runs out.
fn check_memory(counts: &[String]) -> Result<()> {
    let needed = needed_mib(counts)?;
    let text = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let free = free.context("/proc/meminfo tells what is available")? / 1024;
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
fn by_clock(program: &Path, counts: &[String], rows: &mut Vec<Value>) -> Result<()> {
    let out = shell::output(Command::new(program).args(counts), LIMIT)?;
    let out = out.context("the program `million` did not end in time")?;
    let lines = String::from_utf8_lossy(&out.stdout);
    let told = lines.lines().map(serde_json::from_str);
    // What was told before a failure is kept.
    rows.extend(told.clone().map_while(Result::ok));
    ensure!(out.status.success(), "million: {}", String::from_utf8_lossy(&out.stderr));
    told.collect::<Result<Vec<Value>, _>>().context("million prints JSON")?;
    Ok(())
}

/// Instructions, misses and estimated cycles for each request.
fn by_callgrind(program: &Path, count: &str) -> Result<Value> {
    let out = program.with_file_name("million.callgrind");
    let words = ["--callgrind", count];
    // Callgrind collects from when the connections are open: opening them runs at full speed.
    let options = [&CACHES[..], &["--instr-atstart=no", "--dump-instr=yes"]].concat();
    let (said, text) = callgrind::run(program, &words, TOGGLE, &options, &out)?;
    let requests: f64 = said.trim().parse().context("`million` prints how many requests")?;
    let events = callgrind::events(&text);
    let mut sums = vec![0; events.len()];
    for costs in callgrind::by_address(&text).values().flat_map(|object| object.values()) {
        sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
    }
    let (instructions, cycles) = estimate(&events, &sums);
    ensure!(instructions > 0.0, "callgrind has seen nothing");
    let misses = |names: &[&str]| -> f64 {
        let each = events.iter().zip(&sums);
        let of = each.filter(|(event, _)| names.contains(&event.as_str()));
        of.map(|(_, sum)| *sum as f64).sum::<f64>() / requests
    };
    Ok(json!({
        "requests": requests,
        "instructions": instructions / requests,
        "first_level_misses": misses(&["I1mr", "D1mr", "D1mw"]),
        "last_level_misses": misses(&["ILmr", "DLmr", "DLmw"]),
        "cycles": cycles / requests,
    }))
}

fn show(rows: &[Value]) {
    println!(
        "{:>11}{:>8}{:>10}{:>10}{:>10}{:>20}{:>10}{:>9}{:>9}{:>9}",
        "connections",
        "active",
        "resident",
        "own",
        "opened/s",
        "ns for a request",
        "instr",
        "L1",
        "LL",
        "cycles"
    );
    for row in rows {
        let number = |place: &str| row.pointer(place).and_then(Value::as_f64).unwrap_or(f64::NAN);
        println!(
            "{:11}{:8}{:10.0}{:10.0}{:10.0}{:>20}{:10.0}{:9.1}{:9.1}{:9.0}",
            number("/connections"),
            number("/active"),
            number("/resident_bytes"),
            number("/own_count_bytes"),
            number("/opened_per_s"),
            nanos(row),
            number("/counted/instructions"),
            number("/counted/first_level_misses"),
            number("/counted/last_level_misses"),
            number("/counted/cycles"),
        );
    }
}

/// The middle one of the measurements, with the least and the most.
pub(crate) fn nanos(row: &Value) -> String {
    let list = row["ns_per_request"].as_array().map_or(&[][..], Vec::as_slice);
    let at = |at: usize| list.get(at).and_then(Value::as_f64).unwrap_or(f64::NAN);
    format!("{:.0} ({:.0} to {:.0})", at(list.len() / 2), at(0), at(list.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_stands_before_the_ends() {
        assert_eq!(nanos(&json!({ "ns_per_request": [1.2, 2.0, 9.0] })), "2 (1 to 9)");
        assert_eq!(nanos(&json!({})), "NaN (NaN to NaN)");
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
