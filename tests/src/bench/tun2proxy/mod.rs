//! `bench tun2proxy`: tun2proxy on Plimsoll beside tun2proxy as it is published.
//!
//! Both are the same sources, built with the same compiler; one has `compat/ipstack` in place of
//! the crate ipstack. Each run has fresh namespaces and processes (`stage.rs`). The two run one
//! right after the other, and who goes first changes with each pair; memory and the long file are
//! taken once of each, the published one first.
//!
//! A third program is tun2proxy on a stack that costs next to nothing (`tests/null-stack`). It runs
//! beside the two on the path without delay and loss, and tells what the rest can carry: the TUN
//! device with its system call for each packet, tun2proxy's copying, the SOCKS5 server, and the
//! kernel at both ends. What a better stack may win there ends at that.

mod document;
mod runs;
mod stage;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use runs::{Bulk, Direction, Fetched, Memory};
use stage::Line;

use crate::harness::files::Blocks;

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// How often the programs run by turns, for each row.
    pairs: usize,
    /// How long each run takes.
    seconds: Duration,
    /// The length of the file that is downloaded.
    bytes: u64,
    /// How long the download may take.
    limit: Duration,
}

const FULL: Plan = Plan {
    pairs: 5,
    seconds: Duration::from_secs(2),
    bytes: 1_000_000_000,
    limit: Duration::from_secs(60),
};
const QUICK: Plan = Plan {
    pairs: 1,
    seconds: Duration::from_secs(1),
    bytes: 100_000_000,
    limit: Duration::from_secs(60),
};

/// The file of `--long`, and how long its download may take.
const LONG: (u64, Duration) = (10_000_000_000, Duration::from_secs(600));

/// The paths between clients and tun2proxy.
const LINES: [Line; 6] =
    [line(0, 0), line(20, 0), line(100, 0), line(0, 1), line(20, 1), line(100, 1)];

const fn line(round_trip: u32, loss: u32) -> Line {
    Line { round_trip, loss }
}

/// Names of what is measured beside the rows, for `--only`.
const MEMORY: &str = "memory";
const FILE: &str = "file";

/// The same tun2proxy on three stacks.
struct Programs {
    ours: PathBuf,
    published: PathBuf,
    null: PathBuf,
}

struct Request {
    programs: Programs,
    plan: Plan,
    only: Vec<String>,
    json: Option<PathBuf>,
    /// The document holds what an earlier run has taken, and what is not taken now stays.
    keeps: bool,
}

impl Request {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word.as_str()))
    }
}

/// Bulk on one path in one direction.
struct Row {
    line: Line,
    direction: Direction,
    trials: Vec<Trial>,
    errors: Vec<String>,
}

/// One turn of the programs. What failed is none.
#[derive(Clone, Copy, Default)]
struct Trial {
    ours: Option<Bulk>,
    published: Option<Bulk>,
    /// Only where the path is clean.
    null: Option<Bulk>,
}

/// What both programs gave, or why they did not.
struct Both<T> {
    ours: Result<T>,
    published: Result<T>,
}

/// A long download.
struct LongFile {
    bytes: u64,
    /// What the digest of what arrives must be.
    digest: String,
    fetched: Both<Fetched>,
}

/// All that was measured.
struct Findings {
    rows: Vec<Row>,
    memory: Option<Both<Memory>>,
    file: Option<LongFile>,
}

/// Runs the comparison.
pub(super) fn run(words: &[String]) -> Result<()> {
    let request = parse(words)?;
    let findings = measure(&request);
    print!("{}", table::text(&findings, request.plan));
    if let Some(path) = &request.json {
        let mut document = document::json(&findings, request.plan);
        if request.keeps && path.exists() {
            let before = std::fs::read_to_string(path)
                .with_context(|| format!("reading {}", path.display()))?;
            let before = serde_json::from_str(&before).context("--into: the document is JSON")?;
            document = document::joined(before, document)?;
        }
        document["table"] = document::table(&document);
        let text = serde_json::to_string_pretty(&document).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    ensure!(findings.ours_worked(), "some runs on Plimsoll have failed");
    Ok(())
}

fn measure(request: &Request) -> Findings {
    let both = |line| [Direction::Upload, Direction::Download].map(|way| Row::new(line, way));
    let mut rows: Vec<Row> = LINES.into_iter().flat_map(both).collect();
    rows.retain(|row| request.wants(&row.name()));
    for turn in 0..request.plan.pairs {
        for row in &mut rows {
            eprintln!("{}/{}: {}", turn + 1, request.plan.pairs, row.name());
            row.take(request, turn);
        }
    }
    let memory = request.wants(MEMORY).then(|| {
        eprintln!("{MEMORY}");
        request.both(|program| runs::memory(program, request.plan.seconds))
    });
    let file = request.wants(FILE).then(|| {
        let Plan { bytes, limit, .. } = request.plan;
        eprintln!("{FILE} of {bytes} bytes");
        let digest = Blocks::digest(bytes);
        let fetched = request.both(|program| runs::fetch(program, bytes, limit));
        LongFile { bytes, digest, fetched }
    });
    Findings { rows, memory, file }
}

impl Request {
    fn both<T>(&self, run: impl Fn(&Path) -> Result<T>) -> Both<T> {
        let published = run(&self.programs.published);
        Both { ours: run(&self.programs.ours), published }
    }
}

impl Row {
    fn new(line: Line, direction: Direction) -> Row {
        Row { line, direction, trials: Vec::new(), errors: Vec::new() }
    }

    fn name(&self) -> String {
        format!("{}, {}", self.line.name(), self.direction.name())
    }

    /// One turn. The path loses the same packets for each program, as far as they send the same.
    fn take(&mut self, request: &Request, turn: usize) {
        let Programs { ours, published, null } = &request.programs;
        let mut trial = Trial::default();
        let mut turns =
            vec![("Plimsoll", ours, &mut trial.ours), ("ipstack", published, &mut trial.published)];
        if self.line.is_clean() {
            turns.push(("null stack", null, &mut trial.null));
        }
        if turn % 2 == 1 {
            turns.reverse();
        }
        for (name, program, place) in turns {
            let seed = turn as u64 + 1;
            match runs::bulk(program, self.line, self.direction, request.plan.seconds, seed) {
                Ok(bulk) => *place = Some(bulk),
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    self.errors.push(format!("{name}: {error:#}"));
                }
            }
        }
        self.trials.push(trial);
    }
}

impl Findings {
    fn ours_worked(&self) -> bool {
        let file = |file: &LongFile| {
            file.fetched.ours.as_ref().is_ok_and(|fetched| fetched.digest == file.digest)
        };
        self.rows.iter().all(|row| row.trials.iter().all(|trial| trial.ours.is_some()))
            && self.memory.as_ref().is_none_or(|memory| memory.ours.is_ok())
            && self.file.as_ref().is_none_or(file)
    }
}

fn parse(words: &[String]) -> Result<Request> {
    let (mut ours, mut published, mut null) = (None, None, None);
    let (mut plan, mut only, mut json) = (FULL, Vec::new(), None);
    let (mut pairs, mut seconds, mut long, mut keeps) = (None, None, false, false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--ours" => ours = Some(PathBuf::from(value()?)),
            "--published" => published = Some(value()?.into()),
            "--null" => null = Some(value()?.into()),
            "--quick" => plan = QUICK,
            "--only" => only.push(value()?),
            "--long" => long = true,
            "--json" => (json, keeps) = (Some(value()?.into()), false),
            "--into" => (json, keeps) = (Some(value()?.into()), true),
            "--pairs" => pairs = Some(value()?.parse().context("--pairs: a number")?),
            "--seconds" => {
                let whole = value()?.parse().context("--seconds: a whole number")?;
                seconds = Some(Duration::from_secs(whole));
            }
            other => bail!("unknown option {other}"),
        }
    }
    plan.pairs = pairs.unwrap_or(plan.pairs);
    plan.seconds = seconds.unwrap_or(plan.seconds);
    if long {
        (plan.bytes, plan.limit) = LONG;
    }
    let programs = Programs {
        ours: ours.context("--ours PATH: tun2proxy on Plimsoll")?,
        published: published.context("--published PATH: tun2proxy as published")?,
        null: null.context("--null PATH: tun2proxy on the null stack")?,
    };
    Ok(Request { programs, plan, only, json, keeps })
}
