//! `bench versions`: two programs on the same work, by turns.
//!
//! Each row runs the old and the new `plimsoll` one right after the other, and who goes first
//! changes with each pair. The rows of `bench kernel` are here without the kernel's side, then what
//! runs in one process, then 4 KB answers by `serve` over one queue and over two. `--lab` adds the
//! gains of the lab's experiments, which each program takes by itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Plan;
use super::rows::{self, Unit};
use super::stage::{Sample, Stage, figures, number, plimsoll_in_memory};
use super::table::{median, spread};
use crate::harness::process::Process;
use crate::harness::world::{OURS, START, World, set_program};
use crate::peer::workload::cpu_seconds_of;

/// A line of the table.
struct Row {
    name: &'static str,
    unit: &'static str,
    run: fn(&Stage) -> Result<Sample>,
}

const BITS: &str = "throughput_bits_per_s";
const TRANSACTIONS: &str = "transactions_per_s";

const MORE: [Row; 9] = [
    Row {
        name: "memory: stream -m 128",
        unit: "bit/s",
        run: |stage| in_memory(stage, &["stream", "-m", "128"], BITS),
    },
    Row {
        name: "memory: stream -m 65536",
        unit: "bit/s",
        run: |stage| in_memory(stage, &["stream", "-m", "65536"], BITS),
    },
    Row {
        name: "memory: rr, 1 byte",
        unit: "/s",
        run: |stage| in_memory(stage, &["rr"], TRANSACTIONS),
    },
    Row {
        name: "memory: rr, 4 KB",
        unit: "/s",
        run: |stage| in_memory(stage, &["rr", "-r", "4096,4096"], TRANSACTIONS),
    },
    Row {
        name: "memory: rr, 4 KB, 20 flows",
        unit: "/s",
        run: |stage| in_memory(stage, &["rr", "-r", "4096,4096", "-P", "20"], TRANSACTIONS),
    },
    Row { name: "memory: crr", unit: "/s", run: |stage| in_memory(stage, &["crr"], TRANSACTIONS) },
    Row { name: "serve: 1 byte", unit: "/s", run: |stage| served(stage, "1", 1, 1) },
    Row { name: "serve: 4 KB, 20 flows", unit: "/s", run: |stage| served(stage, "4096", 20, 1) },
    Row {
        name: "serve: 4 KB, 20 flows, two queues",
        unit: "/s",
        run: |stage| served(stage, "4096", 20, 2),
    },
];

struct Request {
    old: PathBuf,
    new: PathBuf,
    plan: Plan,
    only: Vec<String>,
    lab: bool,
    json: Option<PathBuf>,
}

/// The samples of a row, paired, and what failed.
struct Compared {
    row: Row,
    old: Vec<f64>,
    new: Vec<f64>,
    errors: Vec<String>,
}

/// Runs the comparison and prints the table.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let wanted = |row: &Row| {
        request.only.is_empty() || request.only.iter().any(|only| row.name.contains(only.as_str()))
    };
    let kernel =
        rows::ALL.iter().map(|row| Row { name: row.name, unit: unit(row.unit), run: row.ours });
    let mut compared: Vec<Compared> = kernel
        .chain(MORE)
        .filter(wanted)
        .map(|row| Compared { row, old: Vec::new(), new: Vec::new(), errors: Vec::new() })
        .collect();
    for pair in 0..request.plan.repetitions {
        for each in &mut compared {
            eprintln!("{}/{}: {}", pair + 1, request.plan.repetitions, each.row.name);
            each.measure(&request, pair);
        }
    }
    print!("{}", text(&compared));
    let lab = if request.lab { lab(&request)? } else { Vec::new() };
    if let Some(path) = &request.json {
        let document = json!({
            "pairs": request.plan.repetitions,
            "seconds": request.plan.seconds.as_secs_f64(),
            "rows": compared.iter().map(Compared::json).collect::<Vec<_>>(),
            "lab": lab,
        });
        let text = serde_json::to_string_pretty(&document).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<Request> {
    let plan = Plan { seconds: Duration::from_secs(1), repetitions: 5 };
    let (mut old, mut new) = (None, None);
    let (mut only, mut lab, mut json, mut plan) = (Vec::new(), false, None, plan);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--old" => old = Some(value()?.into()),
            "--new" => new = Some(value()?.into()),
            "--only" => only.push(value()?),
            "--lab" => lab = true,
            "--json" => json = Some(value()?.into()),
            "--pairs" => plan.repetitions = value()?.parse().context("--pairs: a number")?,
            "--seconds" => {
                let seconds: f64 = value()?.parse().context("--seconds: a number")?;
                plan.seconds = Duration::try_from_secs_f64(seconds).context("--seconds")?;
            }
            other => bail!("unknown option {other}"),
        }
    }
    let old = old.context("--old PATH: the `plimsoll` to compare with")?;
    let new = new.context("--new PATH: the `plimsoll` to compare")?;
    Ok(Request { old, new, plan, only, lab, json })
}

impl Compared {
    /// One pair of runs.
    fn measure(&mut self, request: &Request, pair: usize) {
        let run = |program: &Path| -> Result<f64> {
            set_program(program);
            Ok((self.row.run)(&Stage::new(request.plan)?)?.value)
        };
        let new_first = pair % 2 == 1;
        let (one, other) =
            if new_first { (&request.new, &request.old) } else { (&request.old, &request.new) };
        let (one, other) = (run(one), run(other));
        let (old, new) = if new_first { (other, one) } else { (one, other) };
        match (old, new) {
            (Ok(old), Ok(new)) => {
                self.old.push(old);
                self.new.push(new);
            }
            (old, new) => {
                let failed = [("old", old.err()), ("new", new.err())];
                let failed = failed.into_iter().filter_map(|(who, error)| Some((who, error?)));
                self.errors.extend(failed.map(|(who, error)| format!("{who}: {error:#}")));
            }
        }
    }

    fn ratios(&self) -> Vec<f64> {
        self.old.iter().zip(&self.new).map(|(old, new)| new / old).collect()
    }

    fn json(&self) -> Value {
        let (smallest, largest) = spread(&self.ratios()).unzip();
        json!({
            "work": self.row.name,
            "unit": self.row.unit,
            "old": self.old,
            "new": self.new,
            "old_median": median(&self.old),
            "new_median": median(&self.new),
            "ratio_median": median(&self.ratios()),
            "ratio_min": smallest,
            "ratio_max": largest,
            "errors": self.errors,
        })
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Bits => "bit/s",
        Unit::Transactions => "/s",
        Unit::Packets => "packets, less is better",
        Unit::Bytes => "bytes, less is better",
    }
}

fn text(compared: &[Compared]) -> String {
    let mut out = format!(
        "\n{:42}{:>14}{:>14}{:>9}  {:16}{}\n",
        "work", "old", "new", "new/old", "spread", "unit"
    );
    let show = |value: Option<f64>| match value {
        None => "-".into(),
        Some(value) if value >= 1e8 => format!("{:.2} G", value / 1e9),
        Some(value) if value >= 1e4 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    };
    for each in compared {
        let ratios = each.ratios();
        let between = spread(&ratios).map(|(low, high)| format!("{low:.2} to {high:.2}"));
        let _ = writeln!(
            out,
            "{:42}{:>14}{:>14}{:>9}  {:16}{}",
            each.row.name,
            show(median(&each.old)),
            show(median(&each.new)),
            median(&ratios).map_or("-".into(), |ratio| format!("{ratio:.3}")),
            between.unwrap_or_default(),
            each.row.unit,
        );
    }
    for each in compared {
        for error in &each.errors {
            let _ = writeln!(out, "\n{}: {error}", each.row.name);
        }
    }
    out
}

fn in_memory(stage: &Stage, words: &[&str], figure: &str) -> Result<Sample> {
    let seconds = stage.seconds();
    let words: Vec<&str> = words.iter().copied().chain(["-l", &seconds]).collect();
    let document = plimsoll_in_memory(&words, stage.limit())?;
    Ok(Sample { value: number(&document, figure)?, cpu: None })
}

/// Transactions of the kernel's sockets with `serve`.
fn served(stage: &Stage, size: &str, flows: u32, queues: u32) -> Result<Sample> {
    let world = if queues > 1 { World::with_queues()? } else { World::new()? };
    let service = format!("rr:5002:{size}:{size}");
    let queues = queues.to_string();
    let mut command = world.plimsoll("serve")?;
    command.args(["--queues", &queues, &service]);
    let mut server = Process::spawn("plimsoll serve", &mut command)?;
    server.wait_line(START, |line| line == "ready")?;
    let (address, flows, seconds) = (format!("{OURS}:5002"), flows.to_string(), stage.seconds());
    let mut words = vec!["peer", "rr", &address, "--request", size, "--response", size];
    words.extend(["--flows", &flows, "--seconds", &seconds]);
    let document = figures(&world.ns, &words, stage.limit())?;
    let cpu = cpu_seconds_of(&server.id().to_string()) / stage.plan.seconds.as_secs_f64();
    Ok(Sample { value: number(&document, "transactions_per_s")?, cpu: Some(cpu) })
}

/// The gain that each experiment of the lab finds with each program.
fn lab(request: &Request) -> Result<Vec<Value>> {
    let run = |program: &Path| -> Result<Vec<Value>> {
        eprintln!("lab: {}", program.display());
        set_program(program);
        let document = plimsoll_in_memory(&["lab"], Duration::from_secs(600))?;
        Ok(document.as_array().context("the lab writes a list")?.clone())
    };
    let (old, new) = (run(&request.old)?, run(&request.new)?);
    println!("\nlab: after/before, by each program; in brackets its smallest and largest");
    let ratio = |experiment: &Value| {
        let ratio = &experiment["headline"]["ratio"];
        let at = |name: &str| ratio[name].as_f64().unwrap_or(f64::NAN);
        format!("{:.3} ({:.3} to {:.3})", at("median"), at("min"), at("max"))
    };
    let mut found = Vec::new();
    for (old, new) in old.iter().zip(&new) {
        let name = old["experiment"].as_str().unwrap_or("?");
        let label = old["headline"]["label"].as_str().unwrap_or("?");
        println!("{name:12}{label:36}old {:26}new {}", ratio(old), ratio(new));
        let headline = |experiment: &Value| experiment["headline"].clone();
        found.push(json!({ "experiment": name, "old": headline(old), "new": headline(new) }));
    }
    Ok(found)
}
