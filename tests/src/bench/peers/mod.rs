//! `bench peers`: Plimsoll beside other stacks in user space, and beside the kernel.
//!
//! Each stack has a server of its own (`bench/peers`), and one client on the kernel's sockets
//! measures them all (`peer/asking.rs`). Each run has a fresh server and fresh namespaces. All
//! stacks run one right after the other in each work, and who goes first changes with each
//! repetition, so the drift of a shared machine meets all of them. A ratio is that of a run and the
//! kernel's run of the same repetition.
//!
//! A run that sticks is ended when its time is over. A stack that has failed twice in a work is not
//! tried again there, and the table says so.

pub(super) mod forwarder;
pub(super) mod stage;
mod table;
mod works;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::stage::{STACKS, Stack};
use self::works::{Sample, WORKS, Work};
use super::Plan;
use super::rows::Unit;

const FULL: Plan = Plan { seconds: Duration::from_secs(1), repetitions: 5 };
const QUICK: Plan = Plan { seconds: Duration::from_millis(200), repetitions: 1 };

/// After so many failures a stack is not tried again in a work.
const FAILURES: usize = 2;

struct Request {
    plan: Plan,
    /// The stacks that run, with their servers, the kernel first if it does.
    entrants: Vec<(&'static Stack, PathBuf)>,
    /// Those that do not, and why.
    missing: Vec<(&'static Stack, String)>,
    only: Vec<String>,
    json: Option<PathBuf>,
}

/// One work of all stacks.
struct Row {
    work: &'static Work,
    /// In the order of the entrants.
    cells: Vec<Cell>,
}

/// One work of one stack.
#[derive(Default)]
struct Cell {
    /// One for each repetition; nothing where it failed.
    samples: Vec<Option<Sample>>,
    errors: Vec<String>,
}

/// Runs the comparison.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let rows = measure(&request);
    print!("{}", table::text(&request, &rows));
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&table::json(&request, &rows));
        let text = text.context("writing JSON")? + "\n";
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn measure(request: &Request) -> Vec<Row> {
    let wanted = |work: &&'static Work| {
        request.only.is_empty() || request.only.iter().any(|only| work.name.contains(only.as_str()))
    };
    let cells = || request.entrants.iter().map(|_| Cell::default()).collect();
    let mut rows: Vec<Row> =
        WORKS.iter().filter(wanted).map(|work| Row { work, cells: cells() }).collect();
    for repetition in 0..request.plan.repetitions {
        for row in &mut rows {
            // Memory is taken once: it hardly varies, and takes long.
            if row.work.unit != Unit::Bytes || repetition == 0 {
                eprintln!("{}/{}: {}", repetition + 1, request.plan.repetitions, row.work.name);
                row.take(request, repetition);
            }
        }
    }
    rows
}

impl Row {
    /// One turn of all stacks.
    fn take(&mut self, request: &Request, repetition: usize) {
        let count = self.cells.len();
        for turn in 0..count {
            let place = (turn + repetition) % count;
            let (stack, program) = &request.entrants[place];
            let cell = &mut self.cells[place];
            let sample = if cell.errors.len() < FAILURES {
                let sample = self.work.run(stack, program, request.plan.seconds);
                sample.map_err(|error| cell.fail(stack, self.work, &error)).ok()
            } else {
                None
            };
            cell.samples.push(sample);
        }
    }
}

impl Cell {
    fn fail(&mut self, stack: &Stack, work: &Work, error: &anyhow::Error) {
        eprintln!("{}: {}: {error:#}", work.name, stack.name);
        self.errors.push(format!("{error:#}"));
    }
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request {
        plan: FULL,
        entrants: Vec::new(),
        missing: Vec::new(),
        only: Vec::new(),
        json: None,
    };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => request.plan = QUICK,
            "--only" => request.only.push(value()?),
            "--json" => request.json = Some(value()?.into()),
            "--repetitions" => {
                request.plan.repetitions = value()?.parse().context("--repetitions: a number")?;
            }
            "--seconds" => {
                let seconds: f64 = value()?.parse().context("--seconds: a number")?;
                request.plan.seconds = Duration::try_from_secs_f64(seconds).context("--seconds")?;
            }
            "--server" => {
                let (stack, program) = pair(word, &value()?)?;
                request.entrants.push((stack, program.into()));
            }
            "--missing" => request.missing.push(pair(word, &value()?)?),
            other => bail!("unknown option {other}"),
        }
    }
    ensure!(!request.entrants.is_empty(), "no --server NAME=PATH: there is nothing to compare");
    request.entrants.sort_by_key(|(stack, _)| STACKS.iter().position(|other| other == *stack));
    Ok(request)
}

/// `NAME=TEXT`.
fn pair(option: &str, text: &str) -> Result<(&'static Stack, String)> {
    let (name, rest) = text.split_once('=').with_context(|| format!("{option} NAME=TEXT"))?;
    Ok((stage::stack(name)?, rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_kernel_comes_first() {
        let request = parsed("--server ours=/a --server kernel=/b --missing lwip=why").unwrap();
        let names: Vec<&str> = request.entrants.iter().map(|(stack, _)| stack.name).collect();
        assert_eq!(names, ["kernel", "ours"]);
        assert_eq!((request.missing[0].0.name, &*request.missing[0].1), ("lwip", "why"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["", "--server ours", "--server theirs=/a", "--seconds -1 --server ours=/a"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
