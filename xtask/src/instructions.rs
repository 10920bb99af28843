//! `cargo xtask instructions`: the guard of hot paths.
//!
//! The program `counted` does one kind of work after the other, in one thread and on a virtual
//! clock, and callgrind counts the instructions. `bench/instructions.toml` holds how many there
//! were. A path that takes 3 % more now, or less, fails: a cost is to be noticed, and a gain to be
//! kept. `--update` writes the file; the body of the commit says why.
//!
//! Counts must be the same on every machine, so only instructions of the program itself count: the
//! C library chooses its `memcpy` by the processor, and its allocator differs by version. Instead
//! the allocations are counted. The compiler is pinned, and nothing of ours asks what the processor
//! can do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::session::{Session, cargo_target};
use crate::{callgrind, packages, shell};

const USAGE: &str = "usage: cargo xtask instructions [--update] [PATH]...";

/// Where the counts are.
const FILE: &str = "bench/instructions.toml";

const HEADING: &str = "\
# Instructions of hot paths, for each unit of work, counted by `cargo xtask instructions`. They are
# those of the program alone, without the C library; allocations are counted beside them.
# Written by `cargo xtask instructions --update`.

";

/// The share of it by which a count may change, either way.
const TOLERANCE: f64 = 0.03;

/// Less than this is no change: an allocation in a hundred units of work.
const LEAST: f64 = 0.01;

/// Functions of the C library that allocate.
const ALLOCATE: [&str; 6] =
    ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];

/// Variables by which others change what a build makes, beside those of the profiles.
const BUILD_VARIABLES: [&str; 4] =
    ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET"];

/// The processors that the counts are for.
const ARCHITECTURE: &str = "x86_64";

/// A kind of work of `counted`.
struct HotPath {
    work: &'static str,
    /// How often it is done.
    rounds: usize,
    /// One unit of it, in words.
    unit: &'static str,
}

const fn path(work: &'static str, rounds: usize, unit: &'static str) -> HotPath {
    HotPath { work, rounds, unit }
}

/// The hot paths.
const PATHS: [HotPath; 16] = [
    path("idle", 1000, "a poll with nothing to do"),
    path("header", 1000, "headers of a full segment parsed, both checksums verified"),
    path("packet", 200, "a poll that finds one full segment; every other is acknowledged"),
    path("acked", 200, "a poll that finds one full segment and acknowledges it"),
    path("bulk", 100, "a full segment received, sixteen for one poll"),
    path("demux", 500, "a poll that finds a byte for one of 1,000 connections"),
    path("read", 200, "a read of one segment"),
    path("ack", 200, "a poll that finds a pure ACK"),
    path("send", 100, "a full segment written and sent, sixteen with one write"),
    path("super", 100, "a write of 45 segments, sent as super-segments"),
    path("write", 200, "a write of 128 bytes with data below us"),
    path("response", 200, "a 1-byte request: poll, read, and the write of the response"),
    path("response-4096", 200, "the same with 4,096 bytes"),
    path("connect", 100, "a connection opened, closed first by us"),
    path("accept", 100, "a connection accepted, closed first by the peer"),
    path("datagram", 200, "a datagram of 128 bytes received and answered"),
];

/// The committed counts.
#[derive(Serialize, Deserialize)]
struct Committed {
    /// The compiler whose code was counted.
    rustc: String,
    paths: BTreeMap<String, Count>,
}

/// The cost of one unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Count {
    instructions: f64,
    allocations: f64,
}

/// `cargo xtask instructions`.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let (update, chosen) = parse(args)?;
    let all = chosen.len() == PATHS.len();
    ready().map_err(anyhow::Error::msg)?;
    let mut committed = read(root)?;
    let rustc = rustc(root)?;
    ensure!(
        committed.rustc == rustc || (update && all),
        "the counts of {FILE} are of {}, and this is {rustc}: count all paths again with \
         cargo xtask instructions --update",
        committed.rustc
    );
    let counts = count_all(root, &chosen)?;
    let differences = show(&committed, &counts);
    if update {
        committed.rustc = rustc;
        if all {
            committed.paths.clear();
        }
        committed.paths.extend(counts);
        return write(root, &committed);
    }
    ensure!(
        differences.is_empty(),
        "{}\nIf that is meant: cargo xtask instructions --update",
        differences.join("\n")
    );
    Ok(())
}

/// Says what is missing for counting, if anything is.
fn ready() -> Result<(), String> {
    if std::env::consts::ARCH == ARCHITECTURE {
        packages::valgrind()
    } else {
        Err(format!("the counts are for {ARCHITECTURE}"))
    }
}

/// The suite of `test`.
pub(crate) fn step(session: &mut Session) -> Result<()> {
    let what = "instructions of hot paths";
    if let Err(why) = ready() {
        session.tally.skip(what, &why);
        return Ok(());
    }
    let committed = read(&session.root)?;
    let rustc = rustc(&session.root)?;
    ensure!(committed.rustc == rustc, "{FILE} is of {}, and this is {rustc}", committed.rustc);
    let all: Vec<&HotPath> = PATHS.iter().collect();
    let counts = count_all(&session.root, &all)?;
    let differences = show(&committed, &counts);
    for _ in differences.len()..counts.len() {
        session.tally.pass();
    }
    differences.iter().for_each(|difference| session.tally.fail(difference));
    Ok(())
}

/// Whether to write the counts, and the chosen paths.
fn parse(args: &[String]) -> Result<(bool, Vec<&'static HotPath>)> {
    let (mut update, mut chosen) = (false, Vec::new());
    let names = || PATHS.map(|path| path.work).join(" ");
    for word in args {
        match PATHS.iter().find(|path| path.work == word) {
            Some(path) => chosen.push(path),
            None if word == "--update" => update = true,
            None => bail!("there is no path {word}; the paths: {}\n{USAGE}", names()),
        }
    }
    if chosen.is_empty() {
        chosen.extend(&PATHS);
    }
    Ok((update, chosen))
}

/// Builds `counted` and returns where it is, as callgrind names it.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["build", "--release", "--quiet", "--locked"]);
    // Variables that are set for other builds would change the code.
    for (name, _) in std::env::vars_os() {
        let of_profile = name.to_string_lossy().starts_with("CARGO_PROFILE_");
        if of_profile || BUILD_VARIABLES.iter().any(|variable| name == *variable) {
            command.env_remove(&name);
        }
    }
    let built = shell::build(command.args(["-p", "plimsoll-bench", "--bin", "counted"]))?;
    ensure!(built.success(), "the program `counted` does not build");
    let program = cargo_target(root).join("release/counted");
    fs::canonicalize(&program).with_context(|| format!("looking for {}", program.display()))
}

/// The compiler, as it names itself: `rustc 1.95.0`.
fn rustc(root: &Path) -> Result<String> {
    let mut command = Command::new("rustc");
    let out = command.current_dir(root).arg("--version").output().context("starting rustc")?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    Ok(said.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

fn count_all(root: &Path, paths: &[&HotPath]) -> Result<BTreeMap<String, Count>> {
    let program = program(root)?;
    let count = |path: &&HotPath| Ok((path.work.into(), count(&program, path)?));
    paths.iter().map(count).collect()
}

fn count(program: &Path, path: &HotPath) -> Result<Count> {
    let (units, functions) = callgrind::counted(program, path.work, path.rounds)?;
    let name = program.to_string_lossy();
    let own = functions.all.iter().filter(|function| function.object == name);
    let own: u64 = own.map(|function| function.instructions).sum();
    ensure!(own > 0, "callgrind has seen no instruction of `counted {}`", path.work);
    let allocate = functions.all.iter().filter(|of| ALLOCATE.contains(&of.name.as_str()));
    let allocations = allocate.map(|function| function.calls).sum();
    let each = |count: u64| (count as f64 / units as f64 * 100.0).round() / 100.0;
    Ok(Count { instructions: each(own), allocations: each(allocations) })
}

fn read(root: &Path) -> Result<Committed> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("reading {FILE}"))?;
    toml::from_str(&text).with_context(|| format!("reading {FILE}"))
}

fn write(root: &Path, committed: &Committed) -> Result<()> {
    let text = toml::to_string_pretty(committed).context("writing TOML")?;
    fs::write(root.join(FILE), HEADING.to_owned() + &text)
        .with_context(|| format!("writing {FILE}"))
}

/// Shows all counts, and returns what is out of bounds.
fn show(committed: &Committed, counts: &BTreeMap<String, Count>) -> Vec<String> {
    println!("{:14}{:>12}{:>12}{:>9}{:>8}", "path", "was", "is", "change", "allocs");
    for path in PATHS {
        let Some(is) = counts.get(path.work) else { continue };
        let was = committed.paths.get(path.work).map_or(f64::NAN, |was| was.instructions);
        println!(
            "{:14}{was:12.1}{:12.1}{:8.2}%{:8.2}  {}",
            path.work,
            is.instructions,
            (is.instructions / was - 1.0) * 100.0,
            is.allocations,
            path.unit
        );
    }
    counts
        .iter()
        .filter_map(|(work, is)| difference(work, committed.paths.get(work), *is))
        .collect()
}

/// A count that differs too much, in words.
fn difference(work: &str, was: Option<&Count>, is: Count) -> Option<String> {
    let Some(was) = was else { return Some(format!("{work}: {FILE} has no count of it")) };
    let unit = PATHS.iter().find(|path| path.work == work).map_or("", |path| path.unit);
    let pairs = [
        ("instructions", was.instructions, is.instructions),
        ("allocations", was.allocations, is.allocations),
    ];
    let worst = pairs.into_iter().find(|(_, was, is)| out_of_bounds(*was, *is))?;
    let (what, was, is) = worst;
    let change = match was {
        0.0 => String::new(),
        _ => format!(", {:+.1} %", (is / was - 1.0) * 100.0),
    };
    Some(format!("{work} ({unit}): {what} were {was} and are {is}{change}"))
}

fn out_of_bounds(was: f64, is: f64) -> bool {
    (is - was).abs() > LEAST.max(was * TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(instructions: f64, allocations: f64) -> Count {
        Count { instructions, allocations }
    }

    #[test]
    fn three_per_cent_either_way_are_told() {
        let was = count(1000.0, 2.0);
        let said = |is| difference("packet", Some(&was), is);
        assert_eq!(said(was), None);
        assert_eq!(said(count(1030.0, 2.0)), None);
        assert_eq!(said(count(970.0, 2.0)), None);
        let more = said(count(1031.0, 2.0)).unwrap();
        assert!(more.starts_with("packet (a poll that finds"), "{more}");
        assert!(more.ends_with("instructions were 1000 and are 1031, +3.1 %"), "{more}");
        assert!(said(count(969.0, 2.0)).unwrap().ends_with("are 969, -3.1 %"));
        assert!(said(count(1000.0, 3.0)).unwrap().contains("allocations were 2 and are 3"));
        assert!(difference("new", None, was).unwrap().contains("no count"));
    }

    #[test]
    fn an_allocation_where_there_was_none_is_told() {
        assert!(!out_of_bounds(0.0, 0.01));
        assert!(out_of_bounds(0.0, 0.02));
        let told = difference("packet", Some(&count(9.0, 0.0)), count(9.0, 1.0)).unwrap();
        assert!(told.ends_with("allocations were 0 and are 1"), "{told}");
    }

    #[test]
    fn every_path_is_committed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let committed = read(&root).unwrap();
        let known: Vec<&str> = committed.paths.keys().map(String::as_str).collect();
        let mut paths = PATHS.map(|path| path.work);
        paths.sort_unstable();
        assert_eq!(known, paths);
    }
}
