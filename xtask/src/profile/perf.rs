//! Time by layer: a row of `bench kernel` with `perf` beside it.
//!
//! The program of the bench is a small script, which has `perf`, or `strace`, start ours.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Row;
use super::layers::{self, Layer, Sums};
use crate::frames::frames;
use crate::session::{build_release, cargo_target};
use crate::{packages, shell};

/// The longest that one run, or reading what it gave, may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Samples in a second.
const FREQUENCY: &str = "4999";

/// What a row gave.
pub(super) struct Profile {
    /// Nanoseconds of processor time for each unit of work, by layer.
    pub(super) nanos: Sums,
    /// Units in a second, with the profiler running.
    pub(super) rate: f64,
    pub(super) samples: usize,
    /// System calls for each unit of work, most frequent first, where there is a strace.
    pub(super) calls: Vec<(String, f64)>,
}

/// Whether a row of `bench kernel` can be profiled here. Says why not.
pub(super) fn ready() -> Result<(), String> {
    packages::kernel_tests(&["ip"])?;
    if !shell::quiet("perf", &["--version"]) {
        return Err("perf is missing (apt-get install linux-perf)".into());
    }
    Ok(())
}

/// Profiles one row for about `seconds`.
pub(super) fn take(root: &Path, row: &Row, seconds: f64) -> Result<Profile> {
    build_release(root, &["plimsoll-cli", "plimsoll-interop"])?;
    let folder = cargo_target(root).join("profile");
    fs::create_dir_all(&folder).context("making a folder for profiles")?;
    let data = folder.join(format!("{}.perf", row.name));
    let record = format!("perf record -q -e cpu-clock -F {FREQUENCY} -g -o {} --", data.display());
    let rate = run(root, &folder, row, seconds, &record)?;
    let samples = samples(&data)?;
    let count = samples.iter().map(|sample| sample.count).sum();
    let mut nanos = Sums::default();
    for (sample, layer) in samples.iter().zip(layers_of(&samples)?) {
        nanos.add(layer, sample.nanos as f64 / (rate * seconds));
    }
    let calls = calls(root, &folder, row, seconds)?;
    Ok(Profile { nanos, rate, samples: count, calls })
}

/// Runs the bench of a row while something watches the program. Returns units in a second.
fn run(root: &Path, folder: &Path, row: &Row, seconds: f64, watcher: &str) -> Result<f64> {
    let program = cargo_target(root).join("release/plimsoll");
    let script = folder.join("plimsoll");
    // The watcher is the parent: so it has written all when the bench sees the end.
    let text = format!("#!/bin/sh\nexec {watcher} {} \"$@\"\n", program.display());
    fs::write(&script, text).context("writing a script")?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).context("a script")?;
    let json = folder.join(format!("{}.json", row.name));
    let mut command = Command::new(cargo_target(root).join("release/plimsoll-interop"));
    command.args(["bench", "kernel", "--exactly", row.work, "--repetitions", "1"]);
    command.arg("--seconds").arg(seconds.to_string()).arg("--json").arg(&json);
    let out = shell::output(command.env("PLIMSOLL_BIN", &script), LIMIT)?;
    let out = out.context("the bench did not end in time")?;
    ensure!(out.status.success(), "the bench: {}", String::from_utf8_lossy(&out.stderr));
    let document: Value = serde_json::from_slice(&fs::read(&json).context("its figures")?)?;
    let value = document.pointer("/rows/0/ours/0").and_then(Value::as_f64);
    let value = value.with_context(|| format!("no figure: {}", document["rows"][0]["errors"]))?;
    Ok(value / row.figure_per_unit)
}

/// A symbol, the distance from it, and the object file.
type Place = (String, u64, String);

/// Samples at one place.
struct Sample {
    nanos: u64,
    count: usize,
    /// In the kernel: its functions, the innermost first.
    kernel: Vec<String>,
    /// Else where it was.
    place: Place,
}

/// Reads what `perf record` wrote.
fn samples(data: &Path) -> Result<Vec<Sample>> {
    let mut command = Command::new("perf");
    command.args([
        "script",
        "--no-demangle",
        "--no-inline",
        "-F",
        "period,ip,sym,symoff,dso",
        "-i",
    ]);
    let out =
        shell::output(command.arg(data), LIMIT)?.context("perf script did not end in time")?;
    ensure!(out.status.success(), "perf script: {}", String::from_utf8_lossy(&out.stderr));
    Ok(parse(&String::from_utf8_lossy(&out.stdout)))
}

fn parse(text: &str) -> Vec<Sample> {
    let mut found: BTreeMap<(Vec<String>, Place), (u64, usize)> = BTreeMap::new();
    for block in text.split("\n\n") {
        let mut lines = block.lines().filter(|line| !line.trim().is_empty());
        let Some(nanos) = lines.next().and_then(|line| line.trim().parse::<u64>().ok()) else {
            continue;
        };
        let chain: Vec<Place> = lines.filter_map(frame).collect();
        let of_kernel = |place: &&Place| place.2.starts_with('[') && place.2 != "[vdso]";
        let kernel = chain.iter().take_while(of_kernel).map(|place| place.0.clone()).collect();
        let place = chain.first().filter(|place| !of_kernel(place)).cloned().unwrap_or_default();
        let entry = found.entry((kernel, place)).or_default();
        *entry = (entry.0 + nanos, entry.1 + 1);
    }
    let sample = |((kernel, place), (nanos, count))| Sample { nanos, count, kernel, place };
    found.into_iter().map(sample).collect()
}

/// `55d0 symbol+0x12 (/path/of/object)`.
fn frame(line: &str) -> Option<Place> {
    let (front, object) = line.trim().rsplit_once(" (")?;
    let (_, symbol) = front.split_once(' ')?;
    let (name, distance) = symbol.rsplit_once("+0x").unwrap_or((symbol, "0"));
    let distance = u64::from_str_radix(distance, 16).unwrap_or(0);
    Some((name.into(), distance, object.trim_end_matches(')').into()))
}

fn layers_of(samples: &[Sample]) -> Result<Vec<Layer>> {
    let mut objects: HashMap<&str, Vec<&Sample>> = HashMap::new();
    for sample in samples.iter().filter(|sample| sample.kernel.is_empty()) {
        objects.entry(&sample.place.2).or_default().push(sample);
    }
    let mut known: HashMap<(&str, &str, u64), Layer> = HashMap::new();
    for (object, samples) in objects {
        if !object.ends_with("/plimsoll") {
            continue;
        }
        let symbols = symbols(object)?;
        let at = |sample: &&Sample| Some(symbols.get(&sample.place.0)? + sample.place.1);
        let frames = frames(object, samples.iter().filter_map(at))?;
        for sample in samples {
            let frames = at(&sample).and_then(|at| frames.get(&at));
            let layer = frames.map_or(Layer::Other, |frames| layers::of_frames(frames));
            known.insert((object, &sample.place.0, sample.place.1), layer);
        }
    }
    let layer = |sample: &Sample| {
        if !sample.kernel.is_empty() {
            return layers::of_kernel(sample.kernel.iter().map(String::as_str));
        }
        let (name, distance, object) = &sample.place;
        let known = known.get(&(object.as_str(), name.as_str(), *distance)).copied();
        known.unwrap_or_else(|| layers::of_function(name))
    };
    Ok(samples.iter().map(layer).collect())
}

/// Addresses of the functions of an object file.
fn symbols(object: &str) -> Result<HashMap<String, u64>> {
    let out = shell::output(Command::new("nm").arg(object), LIMIT)?;
    let out = out.context("nm did not end in time")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let symbol = |line: &str| {
        let mut fields = line.split_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some((fields.nth(1)?.to_owned(), address))
    };
    Ok(text.lines().filter_map(symbol).collect())
}

/// System calls for each unit of work, in a run of its own, which strace makes slow.
fn calls(root: &Path, folder: &Path, row: &Row, seconds: f64) -> Result<Vec<(String, f64)>> {
    if !shell::quiet("strace", &["-V"]) {
        return Ok(Vec::new());
    }
    let out = folder.join(format!("{}.strace", row.name));
    let strace = format!("strace -I 2 -f -c -S calls -o {} --", out.display());
    let rate = run(root, folder, row, seconds, &strace)?;
    let text = fs::read_to_string(&out).unwrap_or_default();
    let mut calls = summary(&text);
    calls.iter_mut().for_each(|(_, count)| *count /= rate * seconds);
    calls.retain(|(_, count)| *count >= 0.005);
    Ok(calls)
}

/// Names and counts of strace's table.
fn summary(text: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        number(0)?;
        let name = *fields.last()?;
        (name != "total").then_some((name.to_owned(), number(3)?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "    200040 \n\
        \tffffffff81a vfs_write+0x10 ([kernel.kallsyms])\n\
        \tffffffff81b tun_chr_write_iter+0x4 ([kernel.kallsyms])\n\
        \t    7f01 _ZN8plimsoll4main17h0E+0x1f (/t/release/plimsoll)\n\n\
        200000 \n\t    7f02 _ZN8plimsoll4main17h0E+0x2f (/t/release/plimsoll)\n\n\
        200000 \n\t    7f02 _ZN8plimsoll4main17h0E+0x2f (/t/release/plimsoll)\n";

    #[test]
    fn samples_are_put_together_by_place() {
        let samples = parse(TEXT);
        let user = samples.iter().find(|sample| sample.kernel.is_empty()).unwrap();
        assert_eq!((user.nanos, user.count), (400_000, 2));
        assert_eq!(
            user.place,
            ("_ZN8plimsoll4main17h0E".into(), 0x2f, "/t/release/plimsoll".into())
        );
        let kernel = samples.iter().find(|sample| !sample.kernel.is_empty()).unwrap();
        assert_eq!(kernel.kernel, ["vfs_write", "tun_chr_write_iter"]);
        assert_eq!(kernel.nanos, 200_040);
    }

    #[test]
    fn system_calls_are_read_off_straces_table() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            60.00    1.000000          10    100000           writev\n\
            40.00    0.500000           9     50000     25000 readv\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    1.500000          10    150000     25000 total\n";
        let calls = summary(text);
        assert_eq!(calls, [("writev".into(), 100_000.0), ("readv".into(), 50_000.0)]);
    }
}
