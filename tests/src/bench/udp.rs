//! `bench udp`: our UDP over TUN beside the kernel's over veth, and quinn on both.
//!
//! The other end is a program on the kernel's sockets in both halves of a pair, and the same one.
//! It sends and receives in trains (`UDP_SEGMENT`, `UDP_GRO`, `recvmmsg`), so that it is not what
//! limits the host under test, but for the rows in which datagrams arrive each as a packet of its
//! own. What counts is what arrives.
//!
//! The kernel's processor time of a receiver is not all in its process: what a veth pair delivers
//! is worked on by the sender. So the processor time of both programs is shown as well.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::stage::{FAR, Stage, next_figures, number};
use super::table::{aligned, median, spread};
use super::{Plan, QUICK};
use crate::harness::netns::Namespace;
use crate::harness::process::Process;
use crate::harness::veth::NEAR;
use crate::harness::web;
use crate::harness::world::{DEVICE, KERNEL, OURS, START};

/// Who sends, as seen from the host under test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

/// What crosses the socket of the host under test, and what the other end does meanwhile.
#[derive(Clone, Copy)]
enum Work {
    /// Datagrams of so many bytes: `calls` of the host under test, `others` of the other end.
    Datagrams { size: &'static str, calls: &'static str, others: &'static str, runs: Runs },
    /// A QUIC stream; `ours` is who runs our stack.
    Quic { ours: &'static str },
}

/// Who runs our stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// A thread of its own. The application's thread blocks.
    Thread,
    /// The application's thread, when there is nothing to read.
    Application,
}

/// A line of the table.
struct Row {
    name: &'static str,
    way: Way,
    work: Work,
}

/// What takes seven minutes.
const USUAL: Plan = Plan { seconds: Duration::from_secs(1), repetitions: 5 };

/// The ratio of rates that must be held, and that of processor time.
const FLOOR: f64 = 1.0;

const fn datagrams(
    name: &'static str,
    way: Way,
    size: &'static str,
    calls: &'static str,
    others: &'static str,
) -> Row {
    Row { name, way, work: Work::Datagrams { size, calls, others, runs: Runs::Thread } }
}

/// What bursts bring, to an application that runs the stack.
const fn in_a_loop(name: &'static str, size: &'static str, calls: &'static str) -> Row {
    let runs = Runs::Application;
    Row { name, way: Way::In, work: Work::Datagrams { size, calls, others: "trains", runs } }
}

const fn quic(name: &'static str, way: Way, ours: &'static str) -> Row {
    Row { name, way, work: Work::Quic { ours } }
}

const ROWS: [Row; 17] = [
    datagrams("64 B, we send one by one", Way::Out, "64", "single", "trains"),
    datagrams("1,200 B, we send one by one", Way::Out, "1200", "single", "trains"),
    datagrams("64 B, we receive one by one", Way::In, "64", "single", "single"),
    datagrams("1,200 B, we receive one by one", Way::In, "1200", "single", "single"),
    datagrams("64 B, we receive one by one of bursts", Way::In, "64", "single", "trains"),
    datagrams("1,200 B, we receive one by one of bursts", Way::In, "1200", "single", "trains"),
    datagrams("1,200 B, we send bulk", Way::Out, "1200", "trains", "trains"),
    datagrams("1,200 B, we receive bulk", Way::In, "1200", "trains", "trains"),
    datagrams("1,200 B, we send bulk by reference", Way::Out, "1200", "shared", "trains"),
    datagrams("1,200 B, we receive bulk by reference", Way::In, "1200", "shared", "trains"),
    in_a_loop("64 B, we receive one by one of bursts, in a loop", "64", "single"),
    in_a_loop("1,200 B, we receive bulk, in a loop", "1200", "trains"),
    in_a_loop("1,200 B, we receive bulk by reference, in a loop", "1200", "shared"),
    quic("QUIC, we send, thread of the stack", Way::Out, "thread"),
    quic("QUIC, we receive, thread of the stack", Way::In, "thread"),
    quic("QUIC, we send, driver", Way::Out, "driver"),
    quic("QUIC, we receive, driver", Way::In, "driver"),
];

/// What one run gave.
#[derive(Clone, Copy)]
struct Sample {
    /// Datagrams or bits per second that have arrived.
    rate: f64,
    /// What was sent in that time.
    sent: f64,
    /// Processor seconds of the host under test, for a million datagrams or a gigabyte.
    cpu: f64,
    /// The same of both ends.
    both: f64,
}

#[derive(Default)]
struct Measured {
    ours: Vec<Sample>,
    kernel: Vec<Sample>,
    errors: Vec<String>,
}

type Figure = fn(&Sample) -> f64;

impl Measured {
    /// Of each pair.
    fn ratios(&self, figure: Figure) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.kernel);
        pairs.map(|(ours, kernel)| figure(ours) / figure(kernel)).collect()
    }
}

fn rate(sample: &Sample) -> f64 {
    sample.rate
}

fn cpu(sample: &Sample) -> f64 {
    sample.cpu
}

fn both(sample: &Sample) -> f64 {
    sample.both
}

fn middle(samples: &[Sample], figure: Figure) -> Option<f64> {
    median(&samples.iter().map(figure).collect::<Vec<_>>())
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
            pair(row, request.plan, repetition % 2 == 1, result);
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

fn pair(row: &Row, plan: Plan, ours_first: bool, result: &mut Measured) {
    let run = |ours: bool| Stage::new(plan).and_then(|stage| sample(&stage, row, ours));
    let first = run(ours_first);
    let second = run(!ours_first);
    let (ours, kernel) = if ours_first { (first, second) } else { (second, first) };
    match (ours, kernel) {
        (Ok(ours), Ok(kernel)) => {
            result.ours.push(ours);
            result.kernel.push(kernel);
        }
        (ours, kernel) => {
            for (side, error) in [("ours", ours.err()), ("kernel", kernel.err())] {
                result.errors.extend(error.map(|error| format!("{side}: {error:#}")));
            }
        }
    }
}

fn sample(stage: &Stage, row: &Row, ours: bool) -> Result<Sample> {
    if ours {
        let world = stage.tun()?;
        let ends = Ends { near: &world.ns, far: &world.ns, here: OURS, there: KERNEL, ours };
        ends.sample(stage, row)
    } else {
        let veth = stage.veth()?;
        let ends = Ends { near: &veth.near, far: &veth.far, here: NEAR, there: FAR, ours };
        ends.sample(stage, row)
    }
}

/// The host under test, which is near, and the other end.
struct Ends<'a> {
    near: &'a Namespace,
    far: &'a Namespace,
    here: &'a str,
    there: &'a str,
    ours: bool,
}

impl Ends<'_> {
    /// The receiver is started first, and the sender sends for longer than that counts.
    fn sample(&self, stage: &Stage, row: &Row) -> Result<Sample> {
        let address = match row.way {
            Way::Out => format!("{}:5003", self.there),
            Way::In => format!("{}:5003", self.here),
        };
        let seconds = stage.plan.seconds;
        let longer = (seconds.as_secs_f64() + 0.5).to_string();
        let seconds = seconds.as_secs_f64().to_string();
        let near_receives = row.way == Way::In;
        let receive = self.program(row.work, near_receives, Role::Receiver, &address, &seconds)?;
        let send = self.program(row.work, !near_receives, Role::Sender, &address, &longer)?;
        let mut receiver = spawn(receive)?;
        receiver.wait_line(START, |line| line == "ready")?;
        let mut sender = spawn(send)?;
        let received = next_figures(&mut receiver, stage.limit())?;
        let sent = next_figures(&mut sender, stage.limit())?;
        of(row, &received, &sent)
    }

    /// A program at one of the two ends.
    fn program(
        &self,
        work: Work,
        near: bool,
        role: Role,
        address: &str,
        seconds: &str,
    ) -> Result<Command> {
        let ns = if near { self.near } else { self.far };
        let ours = near && self.ours;
        let mut command = match work {
            Work::Datagrams { .. } => ns.command(&this_program()?),
            Work::Quic { .. } => ns.command(&web::program()?.to_string_lossy()),
        };
        match work {
            Work::Datagrams { size, calls, others, runs } => {
                command.arg(if ours { "client" } else { "peer" });
                command.args([role.datagrams(if ours { runs } else { Runs::Thread }), address]);
                command.args(["--size", size, "--seconds", seconds]);
                command.args(["--calls", if near { calls } else { others }]);
                if !near && role == Role::Receiver {
                    command.args(["--buffer", "deep"]);
                }
            }
            Work::Quic { ours: who } => {
                let sockets = if ours { who } else { "kernel" };
                command.args([role.quic(), address, "--sockets", sockets, "--device", DEVICE]);
                if role == Role::Sender {
                    command.args(["--seconds", seconds]);
                }
            }
        }
        Ok(command)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Sender,
    Receiver,
}

impl Role {
    fn datagrams(self, runs: Runs) -> &'static str {
        match (self, runs) {
            (Role::Sender, _) => "udp-send",
            (Role::Receiver, Runs::Thread) => "udp-receive",
            (Role::Receiver, Runs::Application) => "udp-receive-in-a-loop",
        }
    }

    fn quic(self) -> &'static str {
        match self {
            Role::Sender => "quic-send",
            Role::Receiver => "quic-receive",
        }
    }
}

fn this_program() -> Result<String> {
    let program = std::env::current_exe().context("finding this program")?;
    Ok(program.to_string_lossy().into_owned())
}

fn spawn(mut command: Command) -> Result<Process> {
    Process::spawn("an end of the comparison", &mut command)
}

/// The figures of a run, from what both ends have said.
fn of(row: &Row, received: &Value, sent: &Value) -> Result<Sample> {
    let (what, scale, unit) = match row.work {
        Work::Datagrams { .. } => ("datagrams", 1.0, 1e6),
        Work::Quic { .. } => ("bytes", 8.0, 1e9),
    };
    let (seconds, arrived) = (number(received, "seconds")?, number(received, what)?);
    // The sender's time is that of its whole run, the receiver's that of what it has counted.
    let busy =
        |end: &Value| Ok::<_, anyhow::Error>(number(end, "cpu_seconds")? / number(end, "seconds")?);
    let (receiver, sender) = (busy(received)?, busy(sent)?);
    let host = if row.way == Way::Out { sender } else { receiver };
    let per_unit = |busy: f64| busy * seconds / arrived * unit;
    Ok(Sample {
        rate: arrived * scale / seconds,
        sent: number(sent, what)? * scale / number(sent, "seconds")?,
        cpu: per_unit(host),
        both: per_unit(sender + receiver),
    })
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request { plan: USUAL, json: None, only: Vec::new() };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => request.plan = QUICK,
            "--json" => request.json = Some(value()?.into()),
            "--only" => request.only.push(value()?.clone()),
            "--repetitions" => request.plan.repetitions = value()?.parse().context("a number")?,
            "--seconds" => {
                let seconds: f64 = value()?.parse().context("seconds")?;
                request.plan.seconds = Duration::try_from_secs_f64(seconds)?;
            }
            other => bail!("unknown option {other}"),
        }
    }
    Ok(request)
}

const HEAD: [&str; 9] =
    ["work", "ours", "kernel", "ratio", "spread", "CPU", "ratio", "CPU of both ends", "verdict"];

/// The table as text.
fn text(rows: &[&Row], measured: &[Measured], plan: Plan) -> String {
    let mut out = format!(
        "\n{} pairs of runs of {:?}; medians; CPU is for a million datagrams or a gigabyte, ours / \
         kernel\n\n",
        plan.repetitions, plan.seconds
    );
    let lines = rows.iter().zip(measured).map(|(row, measured)| line(row, measured).to_vec());
    out.push_str(&aligned(std::iter::once(HEAD.map(String::from).to_vec()).chain(lines)));
    for (row, measured) in rows.iter().zip(measured) {
        for error in &measured.errors {
            out.push_str(&format!("\n{}: {error}\n", row.name));
        }
    }
    out
}

fn line(row: &Row, measured: &Measured) -> [String; 9] {
    let Measured { ours, kernel, .. } = measured;
    let speed = |samples: &[Sample]| {
        middle(samples, rate).map_or("-".into(), |value| match row.work {
            Work::Datagrams { .. } => format!("{:.0} k/s", value / 1e3),
            Work::Quic { .. } => format!("{:.2} Gbit/s", value / 1e9),
        })
    };
    let times = |figure: Figure| match (middle(ours, figure), middle(kernel, figure)) {
        (Some(ours), Some(kernel)) => format!("{ours:.2} / {kernel:.2} s"),
        _ => "-".into(),
    };
    let ratio = |figure| median(&measured.ratios(figure)).map_or("-".into(), |r| format!("{r:.2}"));
    let between = spread(&measured.ratios(rate))
        .map_or("-".into(), |(smallest, largest)| format!("{smallest:.2}..{largest:.2}"));
    [
        row.name.into(),
        speed(ours),
        speed(kernel),
        ratio(rate),
        between,
        times(cpu),
        ratio(cpu),
        times(both),
        verdict(measured).into(),
    ]
}

/// Of the rates.
fn verdict(measured: &Measured) -> &'static str {
    match median(&measured.ratios(rate)) {
        None => "failed",
        Some(ratio) if ratio >= FLOOR => "met",
        Some(_) => "below",
    }
}

fn sample_json(sample: &Sample) -> Value {
    let Sample { rate, sent, cpu, both } = *sample;
    json!({
        "rate": rate,
        "sent": sent,
        "cpu_seconds_per_unit": cpu,
        "cpu_seconds_per_unit_of_both_ends": both,
    })
}

/// The table as JSON, with every sample.
fn document(rows: &[&Row], measured: &[Measured], plan: Plan) -> Value {
    let side = |samples: &[Sample]| samples.iter().map(sample_json).collect::<Vec<_>>();
    let row = |(row, measured): (&&Row, &Measured)| {
        let (smallest, largest) = spread(&measured.ratios(rate)).unzip();
        let (unit, of) = match row.work {
            Work::Datagrams { .. } => ("datagrams_per_s", "1,000,000 datagrams"),
            Work::Quic { .. } => ("bits_per_s", "1,000,000,000 bytes"),
        };
        json!({
            "work": row.name,
            "unit": unit,
            "unit_of_processor_time": of,
            "against": "kernel over veth",
            "ours": side(&measured.ours),
            "kernel": side(&measured.kernel),
            "ours_median": middle(&measured.ours, rate),
            "kernel_median": middle(&measured.kernel, rate),
            "ratio_median": median(&measured.ratios(rate)),
            "ratio_min": smallest,
            "ratio_max": largest,
            "cpu_ratio_median": median(&measured.ratios(cpu)),
            "cpu_ratio_of_both_ends_median": median(&measured.ratios(both)),
            "floor": FLOOR,
            "verdict": verdict(measured),
            "errors": measured.errors,
        })
    };
    json!({
        "repetitions": plan.repetitions,
        "seconds": plan.seconds.as_secs_f64(),
        "rows": rows.iter().zip(measured).map(row).collect::<Vec<_>>(),
        "table": {
            "conditions": format!(
                "Medians of {} pairs of runs of {:?} s. CPU is in seconds for a million datagrams or \
                 a gigabyte, ours / kernel.",
                plan.repetitions,
                plan.seconds.as_secs_f64()
            ),
            "header": HEAD,
            "rows": rows.iter().zip(measured).map(|(row, m)| line(row, m)).collect::<Vec<_>>(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_of_what_has_arrived() {
        let said = |datagrams, seconds, cpu_seconds| {
            let (wall, cpu) = ("seconds", "cpu_seconds");
            json!({ "datagrams": datagrams, wall: seconds, cpu: cpu_seconds })
        };
        // A sender that sends twice what arrives pays for it.
        let (received, sent) = (said(1_000_000, 1.0, 0.25), said(4_000_000, 2.0, 2.0));
        let out = of(&ROWS[0], &received, &sent).unwrap();
        assert_eq!((out.rate, out.sent, out.cpu, out.both), (1e6, 2e6, 1.0, 1.25));
        let row = ROWS.iter().find(|row| row.way == Way::In).unwrap();
        let into = of(row, &received, &sent).unwrap();
        assert_eq!((into.cpu, into.both), (0.25, 1.25));
        assert!(of(&ROWS[0], &received, &json!({})).is_err());
    }

    #[test]
    fn ratios_are_paired() {
        let sample = |rate| Sample { rate, sent: rate, cpu: 1.0, both: 1.0 };
        let measured = Measured {
            ours: vec![sample(10.0), sample(30.0), sample(9.0)],
            kernel: vec![sample(5.0), sample(30.0), sample(10.0)],
            errors: Vec::new(),
        };
        assert_eq!(measured.ratios(rate), [2.0, 1.0, 0.9]);
        assert_eq!(verdict(&measured), "met");
        assert_eq!(line(&ROWS[0], &measured)[3], "1.00");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(parse(&["--slow".into()]).is_err());
        assert!(parse(&["--seconds".into(), "-1".into()]).is_err());
        assert_eq!(parse(&["--quick".into()]).unwrap().plan.repetitions, QUICK.repetitions);
    }
}
