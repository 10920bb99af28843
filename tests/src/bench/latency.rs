//! `bench latency`: how long a request waits for its answer, to the far percentiles, alone and
//! while the same stack carries bulk: with pfifo and with fq, beside the kernel.
//!
//! The client is the same program on the kernel's sockets in all of them. It asks over TUN what
//! `plimsoll serve` answers, and over veth what a program on the kernel's sockets answers. Its
//! times are kept in a histogram, and those of all runs of a kind are added up: a far percentile
//! needs many of them. The three servers take turns.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::stage::{next_figures, start};
use super::table::{aligned, median};
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::veth::{FAR, Veth};
use crate::harness::world::{OURS, World};

const USAGE: &str = "usage: bench latency [--quick] [--seconds S] [--runs N] [--json FILE]";

/// Who answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    /// Plimsoll with this queueing discipline.
    Ours(&'static str),
    Kernel,
}

const SERVERS: [(&str, Server); 3] = [
    ("ours, pfifo", Server::Ours("pfifo")),
    ("ours, fq", Server::Ours("fq")),
    ("kernel", Server::Kernel),
];

/// What the server carries meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Nothing,
    /// One connection on which the server sends all it can.
    Sends,
    /// One on which it reads all that the client's host can send.
    Receives,
}

const LOADS: [(&str, Load); 3] =
    [("alone", Load::Nothing), ("it sends bulk", Load::Sends), ("it reads bulk", Load::Receives)];

/// Requests and answers.
const SIZES: [(&str, &str); 2] = [("1 byte", "1"), ("4 KB", "4096")];

/// Percentiles of the table, and a name for each.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

/// A percentile with fewer samples above it says nothing.
const LEAST_ABOVE: f64 = 10.0;

/// The longest time that is told from longer ones, in nanoseconds, as with the client.
const LONGEST: u64 = u32::MAX as u64;

struct Request {
    seconds: f64,
    runs: usize,
    json: Option<PathBuf>,
}

/// The runs of one kind.
struct Measured {
    load: (&'static str, Load),
    /// Of requests and answers: a name, and bytes.
    size: (&'static str, &'static str),
    server: (&'static str, Server),
    /// In nanoseconds.
    times: Histogram<u64>,
    /// Bits of bulk in a second, of each run.
    bulk: Vec<f64>,
    errors: Vec<String>,
}

/// Runs all of them.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let mut measured = Vec::new();
    for load in LOADS {
        for size in SIZES {
            for server in SERVERS {
                let times = Histogram::new_with_bounds(1, LONGEST, 3)?;
                let (bulk, errors) = (Vec::new(), Vec::new());
                measured.push(Measured { load, size, server, times, bulk, errors });
            }
        }
    }
    for run in 0..request.runs {
        eprintln!("{} of {}", run + 1, request.runs);
        for kind in &mut measured {
            if let Err(error) = kind.take(request.seconds) {
                eprintln!("{}, {}, {}: {error:#}", kind.load.0, kind.size.0, kind.server.0);
                kind.errors.push(format!("{error:#}"));
            }
        }
    }
    print!("{}", text(&measured));
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&document(&measured, &request))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    if measured.iter().any(|kind| !kind.errors.is_empty()) {
        bail!("some runs have failed");
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request { seconds: 3.0, runs: 5, json: None };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{word} wants a value\n{USAGE}"));
        match word.as_str() {
            "--quick" => (request.seconds, request.runs) = (0.5, 1),
            "--seconds" => request.seconds = value()?.parse().context("--seconds wants seconds")?,
            "--runs" => request.runs = value()?.parse().context("--runs wants a number")?,
            "--json" => request.json = Some(value()?.into()),
            other => bail!("unknown option {other}; {USAGE}"),
        }
    }
    if !(request.seconds > 0.0 && request.seconds <= 60.0 && request.runs > 0) {
        bail!("--seconds is more than 0 and at most 60, and --runs at least 1");
    }
    Ok(request)
}

impl Measured {
    /// One run, the times of which are added.
    fn take(&mut self, seconds: f64) -> Result<()> {
        let size = self.size.1;
        match self.server.1 {
            Server::Ours(qdisc) => {
                let world = World::new()?;
                let services = [
                    format!("rr:5002:{size}:{size}"),
                    "chargen:5003".into(),
                    "discard:5004".into(),
                ];
                let choice = format!("net.core.default_qdisc={qdisc}");
                let mut words = vec!["--sysctl", &choice];
                words.extend(services.iter().map(String::as_str));
                let _server = world.serve(&words)?;
                self.ask(&world.ns, OURS, seconds)
            }
            Server::Kernel => {
                let veth = Veth::new()?;
                let at = |port: u16| format!("{FAR}:{port}");
                let (rr, chargen, discard) = (at(5002), at(5003), at(5004));
                let sizes = ["--request", size, "--response", size];
                let words = [&["peer", "rr-server", &rr][..], &sizes].concat();
                let _servers = [
                    start(&veth.far, &words)?,
                    start(&veth.far, &["peer", "chargen", &chargen])?,
                    start(&veth.far, &["peer", "discard", &discard])?,
                ];
                self.ask(&veth.near, FAR, seconds)
            }
        }
    }

    /// Asks the server at `host` while the load is there.
    fn ask(&mut self, ns: &Namespace, host: &str, seconds: f64) -> Result<()> {
        // The load begins first and ends last.
        let longer = (seconds + 1.0).to_string();
        let bulk = match self.load.1 {
            Load::Nothing => None,
            Load::Sends => Some(("read", format!("{host}:5003"))),
            Load::Receives => Some(("write", format!("{host}:5004"))),
        };
        let spawn = |(program, address): (&str, String)| {
            peer(ns, &[program, &address, "--seconds", &longer])
        };
        let bulk = bulk.map(spawn).transpose()?;
        std::thread::sleep(Duration::from_millis(300));
        let address = format!("{host}:5002");
        let (seconds, size) = (seconds.to_string(), self.size.1);
        let words = ["rr", &address, "--seconds", &seconds, "--request", size, "--response", size];
        let mut client = peer(ns, &[&words[..], &["--histogram", "true"]].concat())?;
        let limit = Duration::from_secs(90);
        let figures = next_figures(&mut client, limit)?;
        client.success(limit)?;
        if let Some(mut bulk) = bulk {
            let figures = next_figures(&mut bulk, limit)?;
            bulk.success(limit)?;
            let number = |name: &str| figures[name].as_f64().context("figures of the bulk");
            self.bulk.push(number("bytes")? * 8.0 / number("seconds")?);
        }
        for pair in figures["histogram"].as_array().context("the client has a histogram")? {
            let number = |at: usize| pair[at].as_u64().context("the histogram is of numbers");
            self.times.record_n(number(0)?.clamp(1, LONGEST), number(1)?)?;
        }
        Ok(())
    }

    /// Microseconds of each percentile that enough samples lie beyond.
    fn percentiles(&self) -> Vec<Option<f64>> {
        let at = |(_, percent): &(&str, f64)| {
            let above = self.times.len() as f64 * (100.0 - percent) / 100.0;
            (above >= LEAST_ABOVE).then(|| self.times.value_at_percentile(*percent) as f64 / 1e3)
        };
        PERCENTILES.iter().map(at).collect()
    }

    fn bulk(&self) -> Option<f64> {
        median(&self.bulk)
    }
}

fn peer(ns: &Namespace, words: &[&str]) -> Result<Process> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = ns.command(&program.to_string_lossy());
    Process::spawn(words[0], command.arg("peer").args(words))
}

fn header() -> Vec<String> {
    let front = ["meanwhile", "size", "server"].into_iter();
    let times = PERCENTILES.iter().map(|(name, _)| *name);
    let back = ["longest", "transactions", "bulk"];
    front.chain(times).chain(back).map(str::to_owned).collect()
}

fn cells(kind: &Measured) -> Vec<String> {
    let mut line = [kind.load.0, kind.size.0, kind.server.0].map(str::to_owned).to_vec();
    let micros = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.0} us"));
    line.extend(kind.percentiles().into_iter().map(micros));
    line.push(micros(Some(kind.times.max() as f64 / 1e3)));
    line.push(kind.times.len().to_string());
    line.push(kind.bulk().map_or("-".into(), |bits| format!("{:.1} Gbit/s", bits / 1e9)));
    line
}

fn text(measured: &[Measured]) -> String {
    let mut out = aligned([header()].into_iter().chain(measured.iter().map(cells)));
    let failed = measured.iter().map(|kind| kind.errors.len()).sum::<usize>();
    if failed > 0 {
        let _ = writeln!(out, "{failed} runs have failed");
    }
    out
}

fn document(measured: &[Measured], request: &Request) -> Value {
    let row = |kind: &Measured| {
        let names = PERCENTILES.iter().map(|(name, _)| (*name).to_owned());
        let micros: serde_json::Map<String, Value> =
            names.zip(kind.percentiles().into_iter().map(|time| json!(time))).collect();
        json!({
            "meanwhile": kind.load.0,
            "size": kind.size.0,
            "server": kind.server.0,
            "microseconds": micros,
            "longest_microseconds": kind.times.max() as f64 / 1e3,
            "transactions": kind.times.len(),
            "bulk_bits_per_s": kind.bulk(),
            "errors": kind.errors,
        })
    };
    json!({
        "seconds": request.seconds,
        "runs": request.runs,
        "kernel_congestion_control": crate::peer::CONGESTION_CONTROL,
        "rows": measured.iter().map(row).collect::<Vec<_>>(),
        "table": {
            "conditions": format!(
                "All answers of {} runs of {:?} s each; the servers take turns. The client uses \
                 kernel sockets with {}. A percentile with fewer than ten samples above it is a \
                 dash.",
                request.runs,
                request.seconds,
                crate::peer::CONGESTION_CONTROL
            ),
            "header": header(), "rows": measured.iter().map(cells).collect::<Vec<_>>(),
        },
    })
}
