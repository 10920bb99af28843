//! `plimsoll link` between two hosts of the kernel's.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::path::{Path, RIGHT};
use crate::harness::process::Process;
use crate::harness::runner::Case;
use crate::harness::world::plimsoll_program;

const LATER: Duration = Duration::from_secs(40);

pub(crate) const CASES: &[Case] = &[
    Case::light("link::carries_no_faster_than_its_rate_and_delay", rate_and_delay),
    Case::light("link::bytes_survive_what_it_does_to_packets", faults),
    Case::light("link::its_queue_drops_what_does_not_fit", overflow),
    Case::light("link::ends_after_its_time", ends),
    Case::light("link::wrong_words_are_named", wrong_words),
];

/// A number of a direction: 0 is from left to right.
fn number(report: &Value, direction: usize, name: &str) -> Result<f64> {
    let value = &report["directions"][direction][name];
    value.as_f64().with_context(|| format!("no {name} in {report}"))
}

/// Sends bytes through a path to an echo and back. Returns how long that took and what the link
/// says.
fn echo(options: &[&str], bytes: u64) -> Result<(Duration, Value)> {
    let path = Path::new(options)?;
    let address = format!("{RIGHT}:7");
    let _echo = path.start_right(&["echo", &address])?;
    let began = Instant::now();
    let mut command = path.on_left(&["echo-check", &address, "--bytes", &bytes.to_string()])?;
    Process::spawn("echo-check", &mut command)?.success(LATER)?;
    let time = began.elapsed();
    let report = path.end()?;
    for direction in [0, 1] {
        // Every byte, and a header for each packet.
        let carried = number(&report, direction, "delivered_bytes")?;
        ensure!(carried > bytes as f64, "{carried} bytes were carried of {bytes}: {report}");
    }
    Ok((time, report))
}

fn rate_and_delay() -> Result<()> {
    // What a link must never be is faster; how much slower it is depends on the machine.
    let (time, report) = echo(&["--link", "rate=8mbit,delay=30ms"], 500_000)?;
    ensure!(time >= Duration::from_millis(500 + 60), "500,000 bytes took {time:?}");
    ensure!(number(&report, 0, "lost")? == 0.0, "lost without being asked to: {report}");
    let busy = number(&report, 0, "busy")?;
    ensure!(busy > 0.0 && busy <= 1.0, "the wire was busy for {busy} of the time");
    Ok(())
}

fn faults() -> Result<()> {
    let spec = "delay=5ms,loss=2%,reorder=2%,duplicate=1%,corrupt=1%,jitter=1ms";
    let (_, report) = echo(&["--link", spec, "--back", "loss=1%", "--seed", "7"], 2_000_000)?;
    for name in ["lost", "reordered", "duplicated", "corrupted"] {
        ensure!(number(&report, 0, name)? > 0.0, "nothing was {name}: {report}");
    }
    let late = number(&report, 0, "late_us_max")?;
    ensure!(late >= number(&report, 0, "late_us_p50")?, "the latest is earlier than the middle");
    Ok(())
}

fn overflow() -> Result<()> {
    let (_, report) = echo(&["--link", "rate=20mbit,delay=20ms,buffer=0.25bdp"], 1_000_000)?;
    ensure!(number(&report, 0, "dropped_full")? > 0.0, "nothing was dropped: {report}");
    let most = number(&report, 0, "queue_bytes_max")?;
    ensure!(most <= 25_000.0, "{most} bytes waited in a queue of 25,000");
    Ok(())
}

fn ends() -> Result<()> {
    let report = Path::new(&["--for", "4s"])?.ended()?;
    ensure!(report["seconds"].as_f64().is_some_and(|s| s >= 4.0), "{report}");
    Ok(())
}

fn wrong_words() -> Result<()> {
    let lines = [
        ("--left tun:a --right tun:a", "both ends"),
        ("--left a --right tun:b", "unknown device"),
        ("--left tun:a@not-there --right tun:b", "no network namespace not-there"),
        ("--left tun:a --right tun:b --link speed=9", "unknown name 'speed'"),
        ("--left tun:a --right tun:b --link buffer=1bdp", "without a rate"),
        ("--left tun:a --right tun:b --back burst=3", "without a loss"),
        ("--left tun:a --right tun:b --check 0 --max-error 2%", "--max-error"),
        ("--left tun:a --right tun:b --check 1ms --link rate=10kbit", "longer --check"),
    ];
    for (line, culprit) in lines {
        let mut command = Command::new(plimsoll_program()?);
        command.arg("link").args(line.split(' '));
        let ended = Process::spawn("plimsoll", &mut command)?.wait(LATER)?;
        ensure!(!ended.status.success(), "`plimsoll link {line}` was accepted");
        ensure!(ended.status.code().is_some_and(|c| c != 101), "`{line}` panics: {}", ended.said);
        ensure!(ended.said.contains(culprit), "`{line}` does not name it: {}", ended.said);
    }
    Ok(())
}
