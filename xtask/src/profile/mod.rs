//! `cargo xtask profile ROW`: where the time of a packet goes, by layer.
//!
//! A row of `bench kernel` runs with `perf` beside it, as root: nanoseconds of processor time of
//! our process, for each unit of work, and its system calls where there is a strace. Work of the
//! program `counted` runs under callgrind: instructions, and what they would cost on a processor
//! with the caches of [`CACHES`]. A row of `bench kernel` for which there is no perf is profiled by
//! the work of `counted` that is most like it.

pub(crate) mod layers;
mod perf;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use self::layers::{LAYERS, Layer, Sums};
use crate::frames::frames;
use crate::instructions::{self, HotPath, PATHS};
use crate::{callgrind, packages};

/// A row of `bench kernel`.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What `bench kernel` calls it.
    work: &'static str,
    unit: &'static str,
    /// The row's figure, bits or transactions per second, that one unit per second is.
    figure_per_unit: f64,
    /// The work of `counted` that is most like it.
    like: &'static str,
}

/// Bits of 64 KiB.
const BULK: f64 = 65_536.0 * 8.0;

const fn transactions(name: &'static str, work: &'static str, like: &'static str) -> Row {
    Row { name, work, unit: "a transaction", figure_per_unit: 1.0, like }
}

pub(crate) const ROWS: [Row; 11] = [
    Row {
        name: "writes",
        work: "128-byte writes to the kernel",
        unit: "a write",
        figure_per_unit: 128.0 * 8.0,
        like: "write",
    },
    Row {
        name: "writes-buffered",
        work: "128-byte writes to the kernel, with a write buffer",
        unit: "a write",
        figure_per_unit: 128.0 * 8.0,
        like: "write",
    },
    Row {
        name: "receive-bulk",
        work: "kernel sends bulk to us",
        unit: "64 KiB",
        figure_per_unit: BULK,
        like: "bulk",
    },
    Row {
        name: "send-bulk",
        work: "we send bulk to the kernel",
        unit: "64 KiB",
        figure_per_unit: BULK,
        like: "super",
    },
    transactions("rr-busy", "1-byte request / response, busy poll", "response"),
    transactions("rr", "1-byte request / response, sleeping", "response"),
    transactions(
        "rr-loops",
        "1-byte request / response, a loop for each of two processors",
        "response",
    ),
    transactions("rr-4096", "4 KB / 4 KB, 20 flows", "response-4096"),
    transactions(
        "rr-4096-loops",
        "4 KB / 4 KB, 20 flows, a loop for each of two processors",
        "response-4096",
    ),
    transactions(
        "rr-4096-one",
        "4 KB / 4 KB, 20 flows, everything on one processor",
        "response-4096",
    ),
    Row {
        name: "memory-link",
        work: "memory link, bulk in one process",
        unit: "64 KiB",
        figure_per_unit: BULK,
        like: "super",
    },
];

/// The caches that callgrind simulates, whatever this machine has.
pub(crate) const CACHES: [&str; 4] =
    ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64"];

/// What a miss is taken to cost, in cycles: in the first cache, and in the last.
const MISS: [f64; 2] = [10.0, 100.0];

struct Request {
    names: Vec<String>,
    seconds: f64,
    json: Option<PathBuf>,
}

/// Profiles what is asked for.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let request = parse(args)?;
    let mut document = Vec::new();
    for name in &request.names {
        let row = ROWS.iter().find(|row| row.name == name);
        let entry = match row.map(|row| (row, perf::ready())) {
            None => by_instructions(root, name)?,
            Some((row, Ok(()))) => by_time(root, row, request.seconds)?,
            Some((row, Err(why))) => {
                println!("{why}: instructions of `counted {}` instead", row.like);
                by_instructions(root, row.like)?
            }
        };
        show(&entry);
        document.push(entry);
    }
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&document).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn usage() -> String {
    format!(
        "usage: cargo xtask profile [--seconds S] [--json FILE] ROW...\n\
         rows of bench kernel, by perf, as root: {}\n\
         work of `counted`, by callgrind: {}\n\
         all rows of a kind: time, instructions",
        ROWS.map(|row| row.name).join(" "),
        PATHS.map(|path| path.work).join(" ")
    )
}

fn parse(args: &[String]) -> Result<Request> {
    let mut request = Request { names: Vec::new(), seconds: 3.0, json: None };
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--seconds" => request.seconds = value()?.parse().context("--seconds: a number")?,
            "--json" => request.json = Some(value()?.into()),
            "time" => request.names.extend(ROWS.map(|row| row.name.to_owned())),
            "instructions" => request.names.extend(PATHS.map(|path| path.work.to_owned())),
            name => {
                let known = ROWS.iter().any(|row| row.name == name) || path(name).is_some();
                ensure!(known, "there is no row {name}\n{}", usage());
                request.names.push(name.into());
            }
        }
    }
    if request.names.is_empty() {
        bail!("{}", usage());
    }
    Ok(request)
}

fn path(name: &str) -> Option<&'static HotPath> {
    PATHS.iter().find(|path| path.work == name)
}

/// A row of `bench kernel`, by perf.
fn by_time(root: &Path, row: &Row, seconds: f64) -> Result<Value> {
    let profile = perf::take(root, row, seconds)?;
    let calls: Vec<Value> =
        profile.calls.iter().map(|(name, count)| json!([name, count])).collect();
    Ok(json!({
        "row": row.name,
        "work": row.work,
        "unit": row.unit,
        "of": "ns",
        "units_per_s": profile.rate,
        "samples": profile.samples,
        "layers": to_json(&profile.nanos),
        "total": profile.nanos.total(),
        "system_calls": calls,
    }))
}

/// A work of `counted`, by callgrind.
fn by_instructions(root: &Path, name: &str) -> Result<Value> {
    packages::valgrind().map_err(anyhow::Error::msg)?;
    let path = path(name).context("a work of `counted`")?;
    let program = instructions::program(root)?;
    let out = program.with_file_name(format!("counted-{name}.addresses"));
    let words = [name, &path.rounds.to_string()];
    let options = [&CACHES[..], &["--dump-instr=yes"]].concat();
    let (said, text) = callgrind::run(&program, &words, callgrind::TOGGLE, &options, &out)?;
    let units: f64 = said.trim().parse().context("`counted` prints how much it did")?;
    let events = callgrind::events(&text);
    let (mut counts, mut cycles) = (Sums::default(), Sums::default());
    for (object, costs) in callgrind::by_address(&text) {
        let frames = frames(&object, costs.keys().copied())?;
        for (address, costs) in &costs {
            let layer =
                frames.get(address).map_or(Layer::Other, |frames| layers::of_frames(frames));
            let (count, estimate) = estimate(&events, costs);
            counts.add(layer, count / units);
            cycles.add(layer, estimate / units);
        }
    }
    Ok(json!({
        "row": name,
        "work": name,
        "unit": path.unit,
        "of": "instructions",
        "layers": to_json(&counts),
        "total": counts.total(),
        "cycles": to_json(&cycles),
        "cycles_total": cycles.total(),
    }))
}

/// Instructions, and the cycles that they are taken to cost.
pub(crate) fn estimate(events: &[String], costs: &[u64]) -> (f64, f64) {
    let (mut instructions, mut cycles) = (0.0, 0.0);
    for (event, cost) in events.iter().zip(costs) {
        let cost = *cost as f64;
        match event.as_str() {
            "Ir" => {
                instructions = cost;
                cycles += cost;
            }
            "I1mr" | "D1mr" | "D1mw" => cycles += cost * MISS[0],
            "ILmr" | "DLmr" | "DLmw" => cycles += cost * MISS[1],
            _ => {}
        }
    }
    (instructions, cycles)
}

fn to_json(sums: &Sums) -> Value {
    LAYERS.iter().map(|(layer, name)| json!({ "layer": name, "value": sums.get(*layer) })).collect()
}

fn show(entry: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let total = number(&entry["total"]);
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    println!("\n{}: {} for {}", text("work"), text("of"), text("unit"));
    for (at, layer) in entry["layers"].as_array().into_iter().flatten().enumerate() {
        let value = number(&layer["value"]);
        if value < total / 1000.0 {
            continue;
        }
        let cycles = entry["cycles"][at]["value"].as_f64();
        let cycles = cycles.map_or(String::new(), |cycles| format!("{cycles:12.1} cycles"));
        let name = layer["layer"].as_str().unwrap_or_default();
        println!("  {name:24}{value:12.1}{:7.1} %{cycles}", value / total * 100.0);
    }
    println!("  {:24}{total:12.1}", "all");
    for call in entry["system_calls"].as_array().into_iter().flatten() {
        println!("  {:24}{:12.2} calls", call[0].as_str().unwrap_or_default(), number(&call[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_work_that_is_like_it() {
        for row in &ROWS {
            assert!(path(row.like).is_some(), "{}", row.name);
            assert!(path(row.name).is_none(), "{} is two things", row.name);
        }
    }

    #[test]
    fn misses_cost() {
        let events = ["Ir", "Dr", "D1mr", "DLmr"].map(String::from);
        assert_eq!(estimate(&events, &[100, 50, 2, 1]), (100.0, 220.0));
        assert_eq!(estimate(&events, &[100]), (100.0, 100.0));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert!(parse(&words("")).is_err());
        assert!(parse(&words("nothing")).is_err());
        assert_eq!(parse(&words("time")).unwrap().names.len(), ROWS.len());
    }
}
