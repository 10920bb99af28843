//! `bench weather`: links before a command of `plimsoll run`, measured by programs behind them.
//!
//! The figures are those of programs that do not read the link's own counts: iperf3 for rates and
//! losses, and transactions over TCP for delays, with and without the link.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::stage::next_figures;
use super::table::publish;
use crate::harness::behind::{LATER, World};
use crate::harness::netns::Namespace;
use crate::harness::process::{Process, descendants};
use crate::harness::veth::FAR;

/// Bytes of an IP packet of iperf3, and what it carries: a full one of TCP with timestamps, and a
/// datagram.
const STREAM: (f64, f64) = (1500.0, 1448.0);
const DATAGRAM: (f64, f64) = (1228.0, 1200.0);

/// Seconds that iperf3 leaves out at the beginning of a stream: the slow start. Of datagrams it
/// would still count the losses.
const OMITTED: u64 = 2;

/// Beyond these a figure misses its floor.
const RATE_FLOOR: f64 = 0.02;
const DELAY_FLOOR_MS: f64 = 0.3;
/// The normal quantile of a confidence of 99 %.
const QUANTILE: f64 = 2.576;

#[derive(Clone, Copy)]
enum Work {
    /// Datagrams at twice the rate, from the command or to it.
    Datagrams { down: bool },
    /// A stream. The link's sender is the command's kernel upwards and this stack downwards.
    Stream { down: bool, control: &'static str },
    /// Datagrams at a third of the rate, of which a share in a hundred is lost.
    Loss { percent: f64 },
    /// Transactions over a link that adds so many milliseconds.
    Delay { ms: f64 },
}

/// A line of the table.
struct Row {
    name: &'static str,
    spec: &'static str,
    /// Megabits per second, where the link has a rate.
    rate: f64,
    work: Work,
}

const SLOW: &str = "rate=20mbit,delay=20ms,buffer=1bdp";
const FAST: &str = "rate=100mbit,delay=20ms,buffer=1bdp";

const fn row(name: &'static str, spec: &'static str, rate: f64, work: Work) -> Row {
    Row { name, spec, rate, work }
}

const fn stream(name: &'static str, rate: f64, down: bool, control: &'static str) -> Row {
    let spec = if rate > 50.0 { FAST } else { SLOW };
    row(name, spec, rate, Work::Stream { down, control })
}

const ROWS: [Row; 17] = [
    row("datagrams up", SLOW, 20.0, Work::Datagrams { down: false }),
    row("datagrams down", SLOW, 20.0, Work::Datagrams { down: true }),
    row("datagrams up", FAST, 100.0, Work::Datagrams { down: false }),
    row("datagrams down", FAST, 100.0, Work::Datagrams { down: true }),
    stream("Linux's cubic up", 20.0, false, "cubic"),
    stream("Linux's bbr up", 20.0, false, "bbr"),
    stream("Linux's cubic up", 100.0, false, "cubic"),
    stream("Linux's bbr up", 100.0, false, "bbr"),
    stream("our cubic down", 20.0, true, "cubic"),
    stream("our bbr down", 20.0, true, "bbr"),
    stream("our cubic down", 100.0, true, "cubic"),
    stream("our bbr down", 100.0, true, "bbr"),
    row("loss", "rate=20mbit,loss=3%", 20.0, Work::Loss { percent: 3.0 }),
    row("loss", "rate=100mbit,loss=1%", 100.0, Work::Loss { percent: 1.0 }),
    row("delay", "rate=20mbit,delay=40ms", 20.0, Work::Delay { ms: 40.0 }),
    row("delay", "rate=100mbit,delay=5ms", 100.0, Work::Delay { ms: 5.0 }),
    row("delay", "rate=100mbit,delay=150ms", 100.0, Work::Delay { ms: 150.0 }),
];

struct Request {
    seconds: u64,
    only: Vec<String>,
    json: Option<PathBuf>,
}

/// A figure in words, its floor, and whether it is met.
struct Outcome {
    measured: String,
    floor: String,
    met: Option<bool>,
}

/// A command behind a link, and the servers beyond it.
struct Stage {
    run: Process,
    /// Where the command is.
    inner: Namespace,
    _server: Process,
    world: World,
}

impl Stage {
    /// A stage with these options of `run`.
    fn new(options: &[&str], server: &[&str], ready: &'static str) -> Result<Stage> {
        let world = World::new()?;
        let server = world.far(server, ready)?;
        let run = world.started(options, &["sh", "-c", "echo ready; exec sleep 600"])?;
        let command = descendants(run.id())?.pop().context("there is no command")?;
        Ok(Stage { inner: Namespace::of_process(command)?, run, _server: server, world })
    }

    /// The report of iperf3, whose client is the command.
    fn iperf3(&self, words: &[&str], seconds: u64) -> Result<Value> {
        let mut command = self.inner.command("iperf3");
        command.args(["-c", FAR, "--json", "-t", &seconds.to_string()]).args(words);
        let client = Process::spawn("iperf3", &mut command)?;
        let limit = Duration::from_secs(seconds + OMITTED) + LATER;
        serde_json::from_str(&client.success(limit)?.stdout).context("iperf3 writes JSON")
    }
}

const IPERF3: [&str; 5] = ["iperf3", "-s", "-B", FAR, "--forceflush"];
const LISTENS: &str = "Server listening";

fn number(report: &Value, place: &str) -> Result<f64> {
    let number = report.pointer(place).and_then(Value::as_f64);
    number.with_context(|| format!("iperf3 reports no {place}: {report}"))
}

/// Megabits per second of IP packets at the receiver.
fn rate(row: &Row, seconds: u64) -> Result<Outcome> {
    let stage = Stage::new(&["--link", row.spec], &IPERF3, LISTENS)?;
    let (twice, omitted) = (format!("{}M", row.rate * 2.0), OMITTED.to_string());
    let mut words = Vec::new();
    let (down, (packet, payload)) = match row.work {
        Work::Stream { down, control } => {
            if down {
                let setting = format!("net.ipv4.tcp_congestion_control={control}");
                let pid = stage.run.id().to_string();
                let said = stage.world.ask(&["sysctl", "--pid", &pid, &setting])?;
                ensure!(said.status.success(), "{}", said.said);
            }
            words.extend(["-C", control, "-O", &omitted]);
            (down, STREAM)
        }
        Work::Datagrams { down } => {
            words.extend(["-u", "-b", &twice, "-l", "1200"]);
            (down, DATAGRAM)
        }
        Work::Loss { .. } | Work::Delay { .. } => bail!("no rate"),
    };
    words.extend(down.then_some("-R"));
    let report = stage.iperf3(&words, seconds)?;
    let bits = number(&report, "/end/sum_received/bits_per_second")?;
    let measured = bits * packet / payload / 1e6;
    let error = measured / row.rate - 1.0;
    let measured = format!("{measured:.2} Mbit/s ({:+.1} %)", error * 100.0);
    // BBR leaves the link unused now and then, to measure it.
    if matches!(row.work, Work::Stream { control: "bbr", .. }) {
        return Ok(Outcome { measured, floor: "-".to_owned(), met: None });
    }
    Ok(Outcome {
        measured,
        floor: format!("{} Mbit/s within {:.0} %", row.rate, RATE_FLOOR * 100.0),
        met: Some(error.abs() <= RATE_FLOOR),
    })
}

fn loss(row: &Row, percent: f64, seconds: u64) -> Result<Outcome> {
    let stage = Stage::new(&["--link-up", row.spec], &IPERF3, LISTENS)?;
    let third = format!("{}M", row.rate / 3.0);
    let report = stage.iperf3(&["-u", "-b", &third, "-l", "200"], seconds)?;
    let (lost, all) =
        (number(&report, "/end/sum/lost_packets")?, number(&report, "/end/sum/packets")?);
    let share = percent / 100.0;
    let within = QUANTILE * (share * (1.0 - share) / all).sqrt();
    Ok(Outcome {
        measured: format!("{:.2} % ({lost} of {all})", lost / all * 100.0),
        floor: format!("{percent} % within {:.2} %", within * 100.0),
        met: Some((lost / all - share).abs() <= within),
    })
}

/// The median and the percentile 99 of transactions with these options of `run`, in milliseconds.
fn transactions(options: &[&str], seconds: u64) -> Result<[f64; 2]> {
    let address = format!("{FAR}:5002");
    let tests = std::env::current_exe().context("finding this program")?;
    let tests = tests.to_string_lossy();
    let server = [&*tests, "peer", "rr-server", &address, "--request", "1", "--response", "1"];
    let stage = Stage::new(options, &server, "ready")?;
    let time = seconds.to_string();
    let words = ["peer", "rr", &address, "--seconds", &time, "--request", "1", "--response", "1"];
    let mut command = stage.inner.program(&[&words[..], &["--histogram", "true"]].concat())?;
    let mut client = Process::spawn("client", &mut command)?;
    let figures = next_figures(&mut client, Duration::from_secs(seconds) + LATER)?;
    let pairs = figures["histogram"].as_array().context("the client has a histogram")?;
    let mut times = Vec::new();
    for pair in pairs {
        let [time, count] = [0, 1].map(|at| pair[at].as_u64());
        let (time, count) = time.zip(count).context("the histogram is of numbers")?;
        times.extend(std::iter::repeat_n(time, usize::try_from(count)?));
    }
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).map(|&nanos| nanos as f64 / 1e6);
    at(50).zip(at(99)).map(|(middle, late)| [middle, late]).context("no transaction")
}

fn delay(row: &Row, ms: f64, seconds: u64) -> Result<Outcome> {
    let [base, base_late] = transactions(&[], 2)?;
    let [middle, late] = transactions(&["--link-up", row.spec], seconds)?;
    let added = middle - base;
    Ok(Outcome {
        measured: format!(
            "{added:.2} ms, p99 {:.2} ms (without {base:.2}, {base_late:.2})",
            late - base
        ),
        floor: format!("{ms} ms within {DELAY_FLOOR_MS} ms (median)"),
        met: Some((added - ms).abs() <= DELAY_FLOOR_MS),
    })
}

/// Runs the measurement.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let mut lines = Vec::new();
    let mut failed = 0;
    for row in ROWS.iter().filter(|row| request.takes(row)) {
        eprintln!("{}: {}", row.name, row.spec);
        let outcome = match row.work {
            Work::Datagrams { .. } | Work::Stream { .. } => rate(row, request.seconds),
            Work::Loss { percent } => loss(row, percent, request.seconds),
            Work::Delay { ms } => delay(row, ms, request.seconds),
        };
        let outcome = outcome.unwrap_or_else(|error| {
            failed += 1;
            Outcome { measured: format!("failed: {error:#}"), floor: "-".to_owned(), met: None }
        });
        let verdict = match outcome.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "-",
        };
        let line = [row.name, row.spec, &outcome.measured, &outcome.floor, verdict];
        lines.push(line.map(str::to_owned).to_vec());
    }
    let conditions = format!(
        "Runs of {} s. Rates are those of IP packets at the receiver, by iperf3; of a stream the \
         first {OMITTED} s are left out, and datagrams are sent at twice the rate. Delays are \
         those of transactions of one byte over TCP with the link in one direction, less the \
         median without a link. Losses have a confidence of 99 %.",
        request.seconds
    );
    let header = ["work", "link", "measured", "floor", "verdict"];
    publish(&conditions, &header, &lines, request.json.as_deref())?;
    ensure!(failed == 0, "{failed} measurements have failed");
    Ok(())
}

impl Request {
    fn takes(&self, row: &Row) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| row.name.contains(part.as_str()))
    }
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request { seconds: 10, only: Vec::new(), json: None };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => request.seconds = 3,
            "--seconds" => request.seconds = value()?.parse().context("--seconds: a number")?,
            "--only" => request.only.push(value()?),
            "--json" => request.json = Some(value()?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    ensure!((1..=60).contains(&request.seconds), "--seconds is 1 to 60");
    Ok(request)
}
