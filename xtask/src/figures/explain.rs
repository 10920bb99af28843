//! What `plimsoll explain` needs: time and memory for a capture that comes through a pipe.
//!
//! The captures are made by `plimsoll` itself. This program writes each of them into the pipe, as
//! often as it takes to reach the wanted size, and looks at the reader's time and peak memory
//! before it closes the pipe: then all has been read but what the pipe holds.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::param::clock_ticks_per_second;
use serde_json::Value;

use super::{Effort, LIMIT, Rows, program};
use crate::{shell, steps};

/// What is captured, and how many bytes of it are read.
struct Capture {
    name: &'static str,
    words: &'static str,
    bytes: u64,
}

const CAPTURES: [Capture; 3] = [
    Capture { name: "bulk data, one flow", words: "stream -n 400M", bytes: 1_000_000_000 },
    Capture {
        name: "requests of 200 bytes, answers of 2000, four flows",
        words: "rr -r 200,2000 -n 40000 -P 4",
        bytes: 1_000_000_000,
    },
    Capture { name: "a connection for each request", words: "crr -n 20000", bytes: 0 },
];

/// What reading a capture took.
struct Cost {
    bytes: u64,
    cpu_seconds: f64,
    peak_bytes: u64,
    report: Value,
}

/// The table.
pub(super) fn take(root: &Path, effort: Effort) -> Result<Rows> {
    let program = program(root)?;
    let file = steps::cargo_target(root).join("bench-explain.pcapng");
    let mut rows = Vec::new();
    for capture in &CAPTURES {
        println!("{}: {}", capture.name, capture.words);
        let cost = make(&program, capture, &file)
            .and_then(|()| cost(&program, &file, effort.of(capture.bytes, 0)));
        // It is large, and of no use to anybody.
        fs::remove_file(&file).context("removing a capture")?;
        rows.push(row(capture, &cost?));
    }
    Ok(Rows {
        conditions: "pcapng with whole packets through a pipe, made by the commands in the table, \
                     again and again up to the size"
            .into(),
        header: ["capture", "size", "packets", "flows", "CPU", "CPU for a GB", "peak memory"]
            .map(str::to_owned)
            .into(),
        rows,
    })
}

fn row(capture: &Capture, cost: &Cost) -> Vec<String> {
    let gigabytes = cost.bytes as f64 / 1e9;
    vec![
        format!("{} (`{}`)", capture.name, capture.words),
        format!("{gigabytes:.2} GB"),
        cost.report["packets"].to_string(),
        cost.report["flows_seen"].to_string(),
        format!("{:.2} s", cost.cpu_seconds),
        format!("{:.2} s", cost.cpu_seconds / gigabytes),
        format!("{:.1} MiB", cost.peak_bytes as f64 / 1_048_576.0),
    ]
}

fn make(program: &Path, capture: &Capture, file: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(capture.words.split_whitespace()).arg("--pcap").arg(file);
    let out = shell::output(&mut command, LIMIT)?.context("the capture was not made in time")?;
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "plimsoll {}: {}", capture.words, errors.trim());
    Ok(())
}

/// Has `explain` read the file, and again until it has read `least` bytes.
fn cost(program: &Path, file: &Path, least: u64) -> Result<Cost> {
    let mut child = Command::new(program)
        .args(["explain", "-", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting plimsoll explain")?;
    let input = child.stdin.take().context("standard input is piped")?;
    let read = feed(&child, input, file, least);
    let mut said = String::new();
    let mut output = child.stdout.take().context("standard output is piped")?;
    output.read_to_string(&mut said).context("reading what explain says")?;
    ensure!(child.wait().context("waiting for explain")?.success(), "plimsoll explain failed");
    let (bytes, cpu_seconds, peak_bytes) = read?;
    let report = serde_json::from_str(&said).context("explain prints JSON")?;
    Ok(Cost { bytes, cpu_seconds, peak_bytes, report })
}

/// Bytes that were read, and time and peak memory of the reader until then.
fn feed(child: &Child, mut input: ChildStdin, file: &Path, least: u64) -> Result<(u64, f64, u64)> {
    let mut bytes = 0;
    loop {
        let mut file = File::open(file).context("opening a capture")?;
        bytes += std::io::copy(&mut file, &mut input).context("writing into the pipe")?;
        if bytes >= least {
            break;
        }
    }
    input.flush().context("writing into the pipe")?;
    let folder = Path::new("/proc").join(child.id().to_string());
    let status = fs::read_to_string(folder.join("status")).context("reading /proc")?;
    let stat = fs::read_to_string(folder.join("stat")).context("reading /proc")?;
    let ticks = ticks(&stat).context("/proc tells no processor time")?;
    let cpu_seconds = ticks as f64 / clock_ticks_per_second() as f64;
    Ok((bytes, cpu_seconds, peak(&status).context("/proc tells no peak memory")?))
}

/// Processor time in user and kernel mode, of `/proc/PID/stat`.
fn ticks(stat: &str) -> Option<u64> {
    // The name of the program may have spaces and brackets in it. The state is behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

/// The line `VmHWM: 5700 kB` of `/proc/PID/status`, in bytes.
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_memory_is_read() {
        assert_eq!(peak("Name:\tx\nVmHWM:\t    5700 kB\n"), Some(5700 * 1024));
        assert_eq!(peak("Name:\tx\n"), None);
    }

    #[test]
    fn processor_time_is_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 90 0 0 0 12 3 0 0 20 0 1 0 1 1 1";
        assert_eq!(ticks(stat), Some(15));
        assert_eq!(ticks("7 (a"), None);
    }

    #[test]
    fn a_row_has_the_cost_of_a_gigabyte() {
        let report = serde_json::json!({ "packets": 7, "flows_seen": 2 });
        let cost = Cost { bytes: 2_000_000_000, cpu_seconds: 1.0, peak_bytes: 1 << 20, report };
        let row = row(&CAPTURES[0], &cost);
        assert_eq!(row[1..], ["2.00 GB", "7", "2", "1.00 s", "0.50 s", "1.0 MiB"]);
    }
}
