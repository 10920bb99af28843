//! `bench web`: axum's hello world on our sockets over TUN beside the same on the kernel's over
//! veth, under wrk on the kernel's side; and bulk through async streams beside blocking ones.
//!
//! Both halves of a pair run one right after the other, and who goes first changes. The server is
//! the same program in both, and so is the runtime: one thread, or two.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::table::{aligned, median, spread};
use super::{FULL, Plan, QUICK};
use crate::harness::process::Process;
use crate::harness::web::{Sockets, WebServer, program};
use crate::peer::workload::cpu_seconds_of;

/// Connections of wrk, and its threads.
const CONNECTIONS: u32 = 64;
const CLIENT_THREADS: u32 = 1;

/// What two things are compared.
#[derive(Clone, Copy)]
enum Work {
    /// Requests of a server on these sockets, with so many threads of its runtime, beside the
    /// kernel's.
    Requests(Sockets, u16),
    /// Bytes through async streams beside blocking ones.
    Bulk,
}

/// A line of the table.
struct Row {
    name: &'static str,
    work: Work,
    /// The ratio that must be held, and the one that is aimed at.
    floor: f64,
    aim: f64,
}

const fn requests(name: &'static str, sockets: Sockets, threads: u16) -> Row {
    Row { name, work: Work::Requests(sockets, threads), floor: 0.8, aim: 1.5 }
}

const ROWS: [Row; 5] = [
    requests("requests, thread of the stack, one thread", Sockets::Thread, 1),
    requests("requests, driver, one thread", Sockets::Driver, 1),
    requests("requests, thread of the stack, two threads", Sockets::Thread, 2),
    requests("requests, driver, two threads", Sockets::Driver, 2),
    Row { name: "bulk, async beside blocking", work: Work::Bulk, floor: 1.0, aim: 1.0 },
];

/// What one run gave.
#[derive(Clone, Copy)]
struct Sample {
    /// Requests or bits per second.
    rate: f64,
    /// Of requests, in microseconds.
    p99: Option<f64>,
    /// Processors that the server kept busy.
    cpu: Option<f64>,
}

/// The pairs of a row. `other` is the kernel, or the blocking streams.
#[derive(Default)]
struct Measured {
    ours: Vec<Sample>,
    other: Vec<Sample>,
    errors: Vec<String>,
}

impl Measured {
    fn ratios(&self, figure: fn(&Sample) -> Option<f64>) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.other);
        pairs.filter_map(|(ours, other)| Some(figure(ours)? / figure(other)?)).collect()
    }
}

fn rate(sample: &Sample) -> Option<f64> {
    Some(sample.rate)
}

fn p99(sample: &Sample) -> Option<f64> {
    sample.p99
}

fn cpu(sample: &Sample) -> Option<f64> {
    sample.cpu
}

fn figures(samples: &[Sample], figure: fn(&Sample) -> Option<f64>) -> Vec<f64> {
    samples.iter().filter_map(figure).collect()
}

struct Request {
    plan: Plan,
    json: Option<PathBuf>,
    only: Vec<String>,
}

/// Runs the comparison.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let wanted = |row: &&Row| {
        request.only.is_empty() || request.only.iter().any(|word| row.name.contains(word))
    };
    let rows: Vec<&Row> = ROWS.iter().filter(wanted).collect();
    let mut measured: Vec<Measured> = rows.iter().map(|_| Measured::default()).collect();
    for repetition in 0..request.plan.repetitions {
        for (row, result) in rows.iter().zip(&mut measured) {
            eprintln!("{}/{}: {}", repetition + 1, request.plan.repetitions, row.name);
            pair(row.work, request.plan.seconds, repetition % 2 == 1, result);
        }
    }
    print!("{}", text(&rows, &measured, request.plan));
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&document(&rows, &measured, request.plan))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    if measured.iter().any(|row| !row.errors.is_empty()) {
        bail!("some runs have failed");
    }
    Ok(())
}

/// One pair of runs.
fn pair(work: Work, seconds: Duration, ours_first: bool, result: &mut Measured) {
    let run = |ours: bool| match work {
        Work::Requests(sockets, threads) => {
            serve(if ours { sockets } else { Sockets::Kernel }, threads, seconds)
        }
        Work::Bulk => bulk(if ours { "async" } else { "blocking" }, seconds),
    };
    let first = run(ours_first);
    let second = run(!ours_first);
    let (ours, other) = if ours_first { (first, second) } else { (second, first) };
    match (ours, other) {
        (Ok(ours), Ok(other)) => {
            result.ours.push(ours);
            result.other.push(other);
        }
        (ours, other) => {
            let errors = ours.err().into_iter().chain(other.err());
            result.errors.extend(errors.map(|error| format!("{error:#}")));
        }
    }
}

/// Runs wrk against a server.
fn serve(sockets: Sockets, threads: u16, seconds: Duration) -> Result<Sample> {
    let mut server = WebServer::start(sockets, threads)?;
    let mut wrk = server.client("wrk");
    // wrk knows whole seconds only.
    let seconds = seconds.as_secs().max(1);
    wrk.args(["--latency", "-t", &CLIENT_THREADS.to_string(), "-c", &CONNECTIONS.to_string()]);
    wrk.args(["-d", &format!("{seconds}s"), &server.url()]);
    let id = server.id().to_string();
    let before = cpu_seconds_of(&id);
    let limit = Duration::from_secs(seconds + 20);
    let ended = Process::spawn("wrk", &mut wrk)?.success(limit)?;
    let busy = cpu_seconds_of(&id) - before;
    server.check()?;
    let (rate, p99) = of_wrk(&ended.stdout)?;
    Ok(Sample { rate, p99: Some(p99), cpu: Some(busy / seconds as f64) })
}

/// Requests per second and the 99th percentile in microseconds, from what wrk prints.
fn of_wrk(said: &str) -> Result<(f64, f64)> {
    for trouble in ["Socket errors:", "Non-2xx or 3xx responses:"] {
        if let Some(line) = said.lines().find(|line| line.contains(trouble)) {
            bail!("wrk: {}", line.trim());
        }
    }
    let after = |label: &str| {
        let mut lines = said.lines().filter_map(|line| line.trim().strip_prefix(label));
        lines.next().map(str::trim).with_context(|| format!("wrk prints no {label}:\n{said}"))
    };
    let rate = after("Requests/sec:")?.parse().context("wrk prints a rate")?;
    Ok((rate, microseconds(after("99%")?)?))
}

/// A time as wrk prints it, as 2.50ms.
fn microseconds(text: &str) -> Result<f64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => bail!("`{text}` is no time"),
    };
    Ok(number.parse::<f64>().with_context(|| format!("`{text}` is no time"))? * scale)
}

/// Bytes through a link in memory.
fn bulk(streams: &str, seconds: Duration) -> Result<Sample> {
    let mut command = Command::new(program()?);
    command.args(["bulk", "--streams", streams]);
    command.args(["--seconds", &seconds.as_secs_f64().to_string()]);
    let limit = seconds + Duration::from_secs(20);
    let ended = Process::spawn("plimsoll-web bulk", &mut command)?.success(limit)?;
    let said: Value = serde_json::from_str(ended.stdout.trim()).context("bulk prints JSON")?;
    let rate = said["throughput_bits_per_s"].as_f64().context("bulk prints a rate")?;
    Ok(Sample { rate, p99: None, cpu: None })
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request { plan: FULL, json: None, only: Vec::new() };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => request.plan = QUICK,
            "--json" => request.json = Some(value()?.into()),
            "--only" => request.only.push(value()?.clone()),
            "--repetitions" => request.plan.repetitions = value()?.parse().context("a number")?,
            "--seconds" => {
                request.plan.seconds = Duration::from_secs(value()?.parse().context("seconds")?);
            }
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

/// The table as text.
fn text(rows: &[&Row], measured: &[Measured], plan: Plan) -> String {
    let mut out = format!(
        "\n{} pairs of runs of {:?}; medians; {CONNECTIONS} connections of wrk on {CLIENT_THREADS} \
         thread\n\n",
        plan.repetitions, plan.seconds
    );
    let head = ["work", "ours", "other", "ratio", "spread", "p99", "ratio", "verdict", "CPU"];
    let mut lines = vec![head.map(String::from).to_vec()];
    lines.extend(rows.iter().zip(measured).map(|(row, measured)| line(row, measured).to_vec()));
    out.push_str(&aligned(lines));
    for (row, measured) in rows.iter().zip(measured) {
        for error in &measured.errors {
            let _ = writeln!(out, "\n{}: {error}", row.name);
        }
    }
    out
}

fn line(row: &Row, measured: &Measured) -> [String; 9] {
    let both = |figure: fn(&Sample) -> Option<f64>, show: &dyn Fn(f64) -> String| {
        let middle = |samples: &[Sample]| median(&figures(samples, figure));
        match (middle(&measured.ours), middle(&measured.other)) {
            (Some(ours), Some(other)) => format!("{} / {}", show(ours), show(other)),
            _ => "-".into(),
        }
    };
    let shown = |samples: &[Sample]| {
        median(&figures(samples, rate)).map_or("-".into(), |value| match row.work {
            Work::Requests(..) => format!("{value:.0} /s"),
            Work::Bulk => format!("{:.2} Gbit/s", value / 1e9),
        })
    };
    let ratio = |figure| median(&measured.ratios(figure)).map_or("-".into(), |r| format!("{r:.2}"));
    let between = spread(&measured.ratios(rate))
        .map_or("-".into(), |(smallest, largest)| format!("{smallest:.2}..{largest:.2}"));
    [
        row.name.into(),
        shown(&measured.ours),
        shown(&measured.other),
        ratio(rate),
        between,
        both(p99, &|us| format!("{us:.0} us")),
        ratio(p99),
        verdict(row, measured).into(),
        both(cpu, &|processors| format!("{processors:.2}")),
    ]
}

fn verdict(row: &Row, measured: &Measured) -> &'static str {
    match median(&measured.ratios(rate)) {
        None => "failed",
        Some(ratio) if ratio >= row.aim => "aim met",
        Some(ratio) if ratio >= row.floor => "floor met",
        Some(_) => "below floor",
    }
}

fn sample_json(sample: &Sample) -> Value {
    let Sample { rate, p99, cpu } = *sample;
    json!({ "rate": rate, "p99_us": p99, "cpu": cpu })
}

/// The table as JSON, with every sample.
fn document(rows: &[&Row], measured: &[Measured], plan: Plan) -> Value {
    let side = |samples: &[Sample]| samples.iter().map(sample_json).collect::<Vec<_>>();
    let row = |(row, measured): (&&Row, &Measured)| {
        let ratios = measured.ratios(rate);
        let (smallest, largest) = spread(&ratios).unzip();
        let (unit, against) = match row.work {
            Work::Requests(..) => ("requests_per_s", "kernel over veth"),
            Work::Bulk => ("bits_per_s", "blocking streams"),
        };
        json!({
            "work": row.name,
            "unit": unit,
            "against": against,
            "ours": side(&measured.ours),
            "other": side(&measured.other),
            "ours_median": median(&figures(&measured.ours, rate)),
            "other_median": median(&figures(&measured.other, rate)),
            "ratio_median": median(&ratios),
            "ratio_min": smallest,
            "ratio_max": largest,
            "p99_ratio_median": median(&measured.ratios(p99)),
            "floor": row.floor,
            "aim": row.aim,
            "verdict": verdict(row, measured),
            "errors": measured.errors,
        })
    };
    json!({
        "repetitions": plan.repetitions,
        "seconds": plan.seconds.as_secs_f64(),
        "connections": CONNECTIONS,
        "rows": rows.iter().zip(measured).map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 1s test @ http://192.0.2.2/\n  1 threads and 64 connections\n  \
        Latency Distribution\n     50%  540.00us\n     75%    0.91ms\n     90%    1.50ms\n     \
        99%    2.50ms\n  54321 requests in 1.00s, 7.00MB read\nRequests/sec:  54271.03\n\
        Transfer/sec:      7.00MB\n";

    #[test]
    fn figures_of_wrk() {
        assert_eq!(of_wrk(SAID).unwrap(), (54271.03, 2500.0));
        assert_eq!(microseconds("940.00us").unwrap(), 940.0);
        assert_eq!(microseconds("1.10s").unwrap(), 1_100_000.0);
        assert!(microseconds("fast").is_err());
    }

    #[test]
    fn errors_of_wrk_are_errors() {
        let said = format!("{SAID}  Socket errors: connect 0, read 3, write 0, timeout 0\n");
        assert!(of_wrk(&said).is_err());
    }

    #[test]
    fn ratios_are_paired() {
        let sample = |rate, p99| Sample { rate, p99: Some(p99), cpu: None };
        let measured = Measured {
            ours: vec![sample(10.0, 1.0), sample(30.0, 2.0)],
            other: vec![sample(5.0, 2.0), sample(30.0, 2.0)],
            errors: Vec::new(),
        };
        assert_eq!(measured.ratios(rate), [2.0, 1.0]);
        assert_eq!(measured.ratios(p99), [0.5, 1.0]);
        assert_eq!(verdict(&ROWS[0], &measured), "aim met");
    }
}
