//! `bench senders`: our sender beside Linux's, through the same bottleneck (`plimsoll link`).
//!
//! The two of a pair send one right after the other, through paths of their own with the same
//! faults, and who goes first changes. With `--jobs` several pairs go at the same time: nothing of
//! a run keeps a processor busy, and each has namespaces of its own.
//!
//! With `--nsperf` the paths are those of nsperf's "bufferbloat", or of "coexist" if `--beside`
//! names the congestion control of a second flow. Then each run begins with a check of the link,
//! and fails where rate or delay are off by more than 2 %.
//!
//! With `--kernel-beside` that second flow is a kernel's, whoever sends the first: with the same
//! congestion control the two show whether ours is as fair to Linux as Linux is to itself.
//!
//! With `--reordering` the paths reorder and lose nothing, so whatever is sent again is sent
//! without need, and every reduction should be undone.
//!
//! With `--kernel-twice` both of a pair are the kernel's. That shows how often a sender is behind
//! itself, by chance.
//!
//! A path where ours is behind is looked at with more pairs (see `verdict.rs`).

mod cells;
mod stage;
mod table;
mod verdict;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::cells::Cell;
use self::stage::{Near, Run, Sample, Way};
use super::table::median;

/// There are two flows, not three.
const TWO_BESIDE: &str = "one flow is beside the first: give --beside or --kernel-beside, once";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    time: Duration,
    pairs: u64,
    /// Where ours is behind after these.
    more: u64,
}

const FULL: Plan = Plan { time: Duration::from_secs(15), pairs: 3, more: 10 };
const QUICK: Plan = Plan { time: Duration::from_secs(5), pairs: 1, more: 1 };

/// Which paths: some by default, or those that one option names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paths {
    /// A third of all.
    Third,
    All,
    Reordering,
    /// Each run begins with a check of the link.
    Nsperf,
}

impl Paths {
    /// Takes the paths of an option. Only one can be given.
    fn choose(&mut self, paths: Paths, option: &str) -> Result<()> {
        if *self != Paths::Third {
            bail!("{option}: --all, --reordering and --nsperf name different paths; give one");
        }
        *self = paths;
        Ok(())
    }

    fn cells(self, beside: Option<&str>) -> Vec<Cell> {
        match self {
            Paths::Third => cells::third(),
            Paths::All => cells::all(),
            Paths::Reordering => cells::reordering(),
            Paths::Nsperf => cells::nsperf(beside.is_some()),
        }
    }
}

struct Request {
    plan: Plan,
    cells: Vec<Cell>,
    way: Way,
    congestion: String,
    /// The congestion control of a second flow on each path.
    beside: Option<String>,
    /// It is a kernel's, also beside ours.
    kernel_beside: bool,
    /// The kernel's sender stands in the place of ours as well.
    kernel_twice: bool,
    paths: Paths,
    jobs: usize,
    json: Option<PathBuf>,
}

/// One path, and what both senders reached on it.
struct Measured {
    cell: Cell,
    /// Ours, then the kernel's.
    pairs: Vec<[Sample; 2]>,
    errors: Vec<String>,
}

impl Measured {
    fn ratios(&self, figure: fn(&Sample) -> f64) -> Vec<f64> {
        self.pairs.iter().map(|[ours, kernel]| figure(ours) / figure(kernel)).collect()
    }

    /// The median of one side.
    fn middle(&self, side: usize, figure: fn(&Sample) -> f64) -> Option<f64> {
        median(&self.pairs.iter().map(|pair| figure(&pair[side])).collect::<Vec<_>>())
    }

    fn pair(&mut self, request: &Request, number: u64) {
        let run = |near| {
            let Request { plan, way, congestion, .. } = request;
            let cell = &self.cell;
            let run = Run {
                cell,
                near,
                way: *way,
                congestion,
                beside: request.beside.as_deref(),
                kernel_beside: request.kernel_beside,
                checked: request.paths == Paths::Nsperf,
                time: plan.time,
                seed: number + 1,
            };
            run.take().with_context(|| format!("{near:?}"))
        };
        let ours = if request.kernel_twice { Near::Kernel } else { Near::Ours };
        let ours_first = number % 2 == 1;
        let first = run(if ours_first { ours } else { Near::Kernel });
        let second = run(if ours_first { Near::Kernel } else { ours });
        let (ours, kernel) = if ours_first { (first, second) } else { (second, first) };
        match (ours, kernel) {
            (Ok(ours), Ok(kernel)) => self.pairs.push([ours, kernel]),
            (ours, kernel) => {
                let errors = ours.err().into_iter().chain(kernel.err());
                self.errors.extend(errors.map(|error| format!("{error:#}")));
            }
        }
    }

    /// All pairs of a path.
    fn take(&mut self, request: &Request) {
        for number in 0..request.plan.pairs {
            self.pair(request, number);
        }
        if verdict::is_behind(&self.pairs) {
            for number in request.plan.pairs..request.plan.more {
                self.pair(request, number);
            }
        }
    }
}

/// Runs the comparison.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let all: Vec<Mutex<Measured>> = request
        .cells
        .iter()
        .map(|&cell| Mutex::new(Measured { cell, pairs: Vec::new(), errors: Vec::new() }))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(cell) = all.get(next.fetch_add(1, Relaxed)) {
            let mut measured = cell.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            measured.take(&request);
            eprintln!("{}", table::line(&measured, &request).join("  "));
        }
    };
    thread::scope(|scope| {
        for _ in 0..request.jobs {
            scope.spawn(work);
        }
    });
    let measured: Vec<Measured> = all
        .into_iter()
        .map(|cell| cell.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
        .collect();
    print!("{}", table::text(&measured, &request));
    if let Some(path) = &request.json {
        let text = serde_json::to_string_pretty(&table::document(&measured, &request))?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    if measured.iter().any(|cell| !cell.errors.is_empty()) {
        bail!("some runs have failed");
    }
    Ok(())
}

fn parse(words: &[String]) -> Result<Request> {
    let mut request = Request {
        plan: FULL,
        cells: Vec::new(),
        way: Way::Send,
        congestion: "cubic".to_owned(),
        beside: None,
        kernel_beside: false,
        kernel_twice: false,
        paths: Paths::Third,
        jobs: 1,
        json: None,
    };
    let mut only = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => request.plan = QUICK,
            "--all" => request.paths.choose(Paths::All, word)?,
            "--reordering" => request.paths.choose(Paths::Reordering, word)?,
            "--nsperf" => request.paths.choose(Paths::Nsperf, word)?,
            "--receive" => request.way = Way::Receive,
            "--congestion" => request.congestion = value()?.clone(),
            "--beside" => {
                ensure!(request.beside.is_none(), "{TWO_BESIDE}");
                request.beside = Some(value()?.clone());
            }
            "--kernel-beside" => {
                ensure!(request.beside.is_none(), "{TWO_BESIDE}");
                request.beside = Some(value()?.clone());
                request.kernel_beside = true;
            }
            "--kernel-twice" => request.kernel_twice = true,
            "--only" => only.push(value()?.clone()),
            "--json" => request.json = Some(value()?.into()),
            "--jobs" => request.jobs = value()?.parse().context("--jobs wants a number")?,
            "--pairs" => request.plan.pairs = value()?.parse().context("--pairs wants a number")?,
            "--more" => request.plan.more = value()?.parse().context("--more wants a number")?,
            "--seconds" => {
                let seconds = value()?.parse().context("--seconds wants a number")?;
                request.plan.time = Duration::from_secs(seconds);
            }
            other => bail!("unknown option {other}"),
        }
    }
    if request.way == Way::Receive {
        if request.paths == Paths::Nsperf || request.beside.is_some() {
            bail!(
                "--receive has one flow, on paths of its own: leave out --nsperf, --beside and \
                 --kernel-beside"
            );
        }
        if request.paths == Paths::Reordering {
            bail!("--reordering is about the sender at the near end; leave out --receive");
        }
    }
    request.cells = request.paths.cells(request.beside.as_deref());
    let example = request.cells[0].to_string();
    let wanted = |cell: &Cell| only.is_empty() || only.iter().any(|o| cell.to_string().contains(o));
    request.cells.retain(wanted);
    if request.cells.is_empty() {
        bail!("no path has the words of --only; one is called \"{example}\"");
    }
    if request.jobs == 0 {
        bail!("--jobs must be 1 at least: so many pairs are measured at the same time");
    }
    if request.plan.pairs == 0 {
        bail!("--pairs must be 1 at least: with no run there is nothing to compare");
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        parse(&words).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_measures_nothing_is_refused_by_its_name() {
        assert!(refused(&["--only", "7 Mbit/s"]).contains("--only"));
        assert!(refused(&["--jobs", "0"]).contains("--jobs"));
        assert!(refused(&["--pairs", "0"]).contains("--pairs"));
        assert_eq!(refused(&["--kernel-beside", "cubic", "--beside", "bbr"]), TWO_BESIDE);
        assert!(refused(&["--reordering", "--receive"]).contains("--receive"));
        assert_eq!(refused(&["--only", "20 Mbit/s, 2 ms"]), "");
        assert!(refused(&["--receive", "--nsperf"]).contains("--nsperf"));
        let said = refused(&["--nsperf", "--only", "20 Mbit/s"]);
        assert!(said.contains("--only") && said.contains("50 Mbit/s, 30 ms"), "{said}");
        assert_eq!(refused(&["--nsperf", "--beside", "bbr", "--only", "50 Mbit/s, 30 ms"]), "");
    }

    #[test]
    fn paths_are_named_by_one_option() {
        for words in [["--all", "--nsperf"], ["--nsperf", "--reordering"], ["--all", "--all"]] {
            let said = refused(&words);
            assert!(said.starts_with(words[1]) && said.ends_with("give one"), "{said}");
        }
        let cells = |word: &str| parse(&[word.to_owned()]).unwrap().cells.len();
        assert_eq!((cells("--all"), cells("--reordering"), cells("--nsperf")), (90, 9, 4));
        assert_eq!(parse(&[]).unwrap().cells.len(), 30);
    }
}
