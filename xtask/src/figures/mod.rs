//! `cargo xtask figures lab|bench`: takes the committed figures again.
//!
//! Each writes its document, `docs/lab.json` or `docs/bench.json`, and then the pages that are made
//! from it. Run it on a machine that does nothing else. Every table of `docs/bench.json` is one of
//! [`TABLES`], so none is written by hand; the conditions in it name the command that takes it.
//!
//! With `--quick` nothing below `docs` is written: what it takes is not for publication.

mod explain;
mod nsperf;
mod senders;
mod stream;
mod tables;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::{bench, docs, shell, steps};

const USAGE: &str = "usage: cargo xtask figures lab [--kernel] [--quick] | \
     figures bench [TABLE]... [--quick] | figures bench \
     kernel|peers|forwarders|tun2proxy|million|profile|instructions --from FILE | \
     figures bench senders|receivers|nsperf|nsperf-link|fairness|udp --from FILE...";

/// The longest that one command may take, unless its table says otherwise.
const LIMIT: Duration = Duration::from_secs(900);

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// What is committed.
    Full,
    /// Enough to see that it works.
    Quick,
}

impl Effort {
    fn of<T>(self, full: T, quick: T) -> T {
        if self == Effort::Full { full } else { quick }
    }

    /// Options of a bench that knows `--quick`.
    fn quick(self) -> &'static [&'static str] {
        self.of(&[], &["--quick"])
    }
}

/// A table of `docs/bench.json`.
struct Table {
    name: &'static str,
    /// It makes network namespaces.
    needs_root: bool,
    take: fn(&Path, Effort) -> Result<Rows>,
}

/// What a table shows: what the conditions say beside the command and the machine, the names of the
/// columns, and the rows.
struct Rows {
    conditions: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

const TABLES: [Table; 22] = [
    Table { name: "kernel", needs_root: true, take: kernel },
    Table { name: PEERS, needs_root: true, take: peers },
    Table { name: FORWARDERS, needs_root: true, take: forwarders },
    Table { name: "stalls", needs_root: true, take: stalls },
    Table { name: "latency", needs_root: true, take: latency },
    Table { name: "tun2proxy", needs_root: true, take: tun2proxy },
    Table { name: "senders", needs_root: true, take: senders::sending },
    Table { name: "receivers", needs_root: true, take: senders::receiving },
    Table { name: "nsperf-link", needs_root: true, take: senders::nsperf },
    Table { name: "fairness", needs_root: true, take: senders::fairness },
    Table { name: "attacks", needs_root: true, take: attacks },
    Table { name: "udp", needs_root: true, take: udp },
    Table { name: "in-process", needs_root: false, take: stream::in_process },
    Table { name: "fq", needs_root: false, take: stream::fair_queueing },
    Table { name: "explain", needs_root: false, take: explain::take },
    Table { name: "idle", needs_root: false, take: idle },
    Table { name: "million", needs_root: false, take: million },
    Table { name: "profile", needs_root: true, take: profile },
    Table { name: "instructions", needs_root: false, take: instructions },
    Table { name: "sacked", needs_root: false, take: sacked },
    Table { name: "atomics", needs_root: false, take: atomics },
    Table { name: "nsperf", needs_root: false, take: nsperf::take },
];

/// The table of the stacks, and that of what forwards to the kernel, which comes of the same run.
const PEERS: &str = "peers";
const FORWARDERS: &str = "forwarders";

/// The tables in which the sum stands beside that of the table before.
const PROFILES: [&str; 2] = ["profile", "instructions"];

/// What the conditions of the two profiles say.
const PROFILE: (&str, &str) = (
    "ns",
    "nanoseconds of processor time of our process, by `perf record -e cpu-clock`; system calls in a \
     run of their own, under strace",
);
const INSTRUCTIONS: (&str, &str) = (
    "instructions",
    "instructions for each unit of work, by callgrind; cycles with caches of 32 KiB and 32 MiB, a \
     miss taken as 10 and 100 cycles",
);

/// Runs it.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let known = |words: &[&str]| args[1..].iter().all(|word| words.contains(&word.as_str()));
    let effort = match args.first().map(String::as_str) {
        Some("lab") if known(&["--kernel", "--quick"]) => lab(root, &args[1..])?,
        Some("bench") => match &args[1..] {
            [table, option, documents @ ..] if option == "--from" => {
                put(root, table, from(table, documents)?)?;
                if table == PEERS {
                    put(root, FORWARDERS, from(FORWARDERS, documents)?)?;
                }
                Effort::Full
            }
            words => take_all(root, words)?,
        },
        _ => bail!("{USAGE}"),
    };
    match effort {
        Effort::Full => docs::figures(root),
        Effort::Quick => Ok(()),
    }
}

/// A table from documents that were taken before, by tables that take long and can be taken in
/// pieces.
fn from(table: &str, documents: &[String]) -> Result<Rows> {
    if table == "nsperf" {
        return nsperf::from(documents);
    }
    let taken = documents.iter().map(|path| read(Path::new(path))).collect::<Result<Vec<_>>>()?;
    match (table, taken.as_slice()) {
        ("tun2proxy", [taken]) => tables::tun2proxy(taken),
        ("kernel", [taken]) => tables::kernel(repeated(taken)?),
        (PEERS, [taken]) => tables::peers(repeated(taken)?),
        (FORWARDERS, [taken]) => tables::forwarders(repeated(taken)?),
        ("senders", taken) => senders::paths(taken, "send"),
        ("receivers", taken) => senders::paths(taken, "receive"),
        ("nsperf-link" | "fairness", taken) => senders::scenarios(taken),
        ("udp", taken) => tables::udp(taken),
        ("million", [taken]) => tables::million(taken),
        ("profile", [taken]) => tables::profile(taken, PROFILE),
        ("instructions", [taken]) => tables::profile(taken, INSTRUCTIONS),
        _ => bail!("{USAGE}"),
    }
}

/// A document for publication. What was measured once has no spread, and nobody can tell what it is
/// worth.
fn repeated(taken: &Value) -> Result<&Value> {
    let repetitions = taken["repetitions"].as_u64().context("the document has no repetitions")?;
    ensure!(
        repetitions > 1,
        "the document has {repetitions} repetition of each work, so no figure of it has a spread; \
         take it without --quick, or with --repetitions 2 or more"
    );
    Ok(taken)
}

fn lab(root: &Path, options: &[String]) -> Result<Effort> {
    let quick = options.iter().any(|option| option == "--quick");
    let effort = if quick { Effort::Quick } else { Effort::Full };
    let document = match effort {
        Effort::Full => root.join("docs/lab.json"),
        Effort::Quick => steps::cargo_target(root).join("lab-quick.json"),
    };
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "-p", "plimsoll-cli", "--", "lab", "--json"]);
    command.arg(&document).args(options).current_dir(root);
    let status = command.status().context("starting cargo")?;
    ensure!(status.success(), "the lab failed");
    // Without line breaks it is a third as long.
    let text = read(&document)?.to_string() + "\n";
    fs::write(&document, text).with_context(|| format!("writing {}", document.display()))?;
    Ok(effort)
}

/// Takes the tables that are named, or all. Each is written when it has been taken, or shown if it
/// was only tried.
fn take_all(root: &Path, words: &[String]) -> Result<Effort> {
    let (chosen, effort) = chosen(words)?;
    if !rustix::process::geteuid().is_root()
        && let Some(table) = chosen.iter().find(|table| table.needs_root)
    {
        let free: Vec<&str> = TABLES.iter().filter(|t| !t.needs_root).map(|t| t.name).collect();
        bail!(
            "the table {} makes network namespaces: run it as root, or name only tables that do \
             not need it: {}",
            table.name,
            free.join(" ")
        );
    }
    let begun = Instant::now();
    for table in chosen {
        let started = Instant::now();
        println!("\n== {}", table.name);
        let taken = (table.take)(root, effort);
        let mut taken =
            vec![(table.name, taken.with_context(|| format!("the table {}", table.name))?)];
        if table.name == PEERS {
            taken.push((FORWARDERS, tables::forwarders(&read(&document(root, PEERS))?)?));
        }
        for (name, rows) in taken {
            match effort {
                Effort::Full => put(root, name, rows)?,
                Effort::Quick => show(&rows),
            }
        }
        println!("== {} took {:.0} s", table.name, started.elapsed().as_secs_f64());
    }
    println!("all took {:.0} s", begun.elapsed().as_secs_f64());
    Ok(effort)
}

fn show(rows: &Rows) {
    println!("{}", rows.conditions);
    for row in std::iter::once(&rows.header).chain(&rows.rows) {
        println!("| {} |", row.join(" | "));
    }
}

/// Writes a table into the document of the benches.
fn put(root: &Path, name: &str, rows: Rows) -> Result<()> {
    let document = root.join("docs/bench.json");
    let mut all = read(&document)?;
    let rows = if PROFILES.contains(&name) { tables::with_former(rows, &all[name]) } else { rows };
    all[name] = to_json(name, rows);
    // What is no longer taken is no longer shown.
    if let Some(fields) = all.as_object_mut() {
        fields.retain(|name, _| TABLES.iter().any(|table| table.name == name));
    }
    let text = serde_json::to_string_pretty(&all)? + "\n";
    fs::write(&document, text).with_context(|| format!("writing {}", document.display()))
}

fn chosen(words: &[String]) -> Result<(Vec<&'static Table>, Effort)> {
    let (options, names): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| word.starts_with('-'));
    let effort = match options.as_slice() {
        [] => Effort::Full,
        [word] if *word == "--quick" => Effort::Quick,
        _ => bail!("{USAGE}"),
    };
    let known = || TABLES.iter().map(|table| table.name).collect::<Vec<_>>().join(" ");
    if let Some(name) = names.iter().find(|name| TABLES.iter().all(|table| table.name != **name)) {
        bail!("there is no table {name}; the tables: {}\n{USAGE}", known());
    }
    let is_named = |table: &str| names.is_empty() || names.iter().any(|name| *name == table);
    let is_chosen =
        |table: &&Table| is_named(table.name) && !(table.name == FORWARDERS && is_named(PEERS));
    Ok((TABLES.iter().filter(is_chosen).collect(), effort))
}

fn to_json(name: &str, Rows { conditions, header, rows }: Rows) -> Value {
    let conditions = format!("`cargo xtask figures bench {name}`: {conditions}; {}.", machine());
    json!({ "conditions": conditions, "header": header, "rows": rows })
}

/// What it ran on.
fn machine() -> String {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, Linux {}", counted(count, "processor"), release.trim())
}

/// Where a bench that is run for a table writes its document.
fn document(root: &Path, name: &str) -> PathBuf {
    steps::cargo_target(root).join(format!("bench-{name}.json"))
}

/// Runs a bench, and reads the document that it writes.
fn measured(
    root: &Path,
    name: &str,
    options: &[&str],
    bench: fn(&Path, &[String]) -> Result<()>,
) -> Result<Value> {
    measured_part(root, name, name, options, bench)
}

/// The same for a table of several runs of a bench: each has a document of its own, named after its
/// `part`, which stays if a later run fails.
fn measured_part(
    root: &Path,
    name: &str,
    part: &str,
    options: &[&str],
    bench: fn(&Path, &[String]) -> Result<()>,
) -> Result<Value> {
    let path = document(root, part);
    let json = path.to_str().context("the path of the repository is text")?;
    let words = [&[name, "--json", json], options].concat();
    bench(root, &words.into_iter().map(str::to_owned).collect::<Vec<_>>())?;
    read(&path)
}

fn kernel(root: &Path, effort: Effort) -> Result<Rows> {
    let options = effort.of(&["--repetitions", "5", "--seconds", "1"][..], &["--quick"]);
    tables::kernel(&measured(root, "kernel", options, steps::bench)?)
}

fn peers(root: &Path, effort: Effort) -> Result<Rows> {
    tables::peers(&measured(root, PEERS, effort.quick(), bench::peers::run)?)
}

/// Without the stacks. Together with them it comes of their run.
fn forwarders(root: &Path, effort: Effort) -> Result<Rows> {
    let options = [&["--with", "pasta", "--with", "slirp4netns"], effort.quick()].concat();
    tables::forwarders(&measured(root, PEERS, &options, bench::peers::run)?)
}

fn stalls(root: &Path, effort: Effort) -> Result<Rows> {
    tables::stalls(&measured(root, "stalls", effort.quick(), steps::bench)?)
}

fn latency(root: &Path, effort: Effort) -> Result<Rows> {
    tables::latency(&measured(root, "latency", effort.quick(), steps::bench)?)
}

fn tun2proxy(root: &Path, effort: Effort) -> Result<Rows> {
    tables::tun2proxy(&measured(root, "tun2proxy", effort.quick(), bench::tun2proxy::run)?)
}

fn attacks(root: &Path, effort: Effort) -> Result<Rows> {
    let program = program(root)?;
    let program = program.to_str().context("the path of the repository is text")?;
    let options = [&["--new", program], effort.quick()].concat();
    tables::attacks(&measured(root, "attacks", &options, steps::bench)?)
}

fn udp(root: &Path, effort: Effort) -> Result<Rows> {
    tables::udp(&[measured(root, "udp", effort.quick(), steps::bench_udp)?])
}

fn sacked(root: &Path, effort: Effort) -> Result<Rows> {
    let options = ["--rounds", effort.of("5", "1")];
    tables::sacked(&measured(root, "sacked", &options, bench::run)?)
}

fn idle(root: &Path, effort: Effort) -> Result<Rows> {
    let options = ["--connections", effort.of("100000", "10000")];
    tables::idle(&measured(root, "idle", &options, bench::run)?)
}

fn million(root: &Path, effort: Effort) -> Result<Rows> {
    tables::million(&measured(root, "million", effort.quick(), bench::run)?)
}

fn profile(root: &Path, effort: Effort) -> Result<Rows> {
    let taken = profiled(root, &["time", "--seconds", effort.of("3", "1")])?;
    tables::profile(&taken, PROFILE)
}

fn instructions(root: &Path, _: Effort) -> Result<Rows> {
    tables::profile(&profiled(root, &["instructions"])?, INSTRUCTIONS)
}

/// Runs `cargo xtask profile`, and reads the document that it writes.
fn profiled(root: &Path, words: &[&str]) -> Result<Value> {
    let path = steps::cargo_target(root).join("profile.json");
    let json = path.to_str().context("the path of the repository is text")?;
    let words: Vec<String> =
        [words, &["--json", json]].concat().iter().map(ToString::to_string).collect();
    crate::profile::run(root, &words)?;
    read(&path)
}

fn atomics(root: &Path, effort: Effort) -> Result<Rows> {
    let options = ["--rounds", effort.of("200", "20")];
    tables::atomics(&measured(root, "atomics", &options, bench::run)?)
}

/// `plimsoll`, built from this tree as for the benches beside the kernel: it is built once.
fn program(root: &Path) -> Result<PathBuf> {
    ensure!(steps::build_interop(root)?, "plimsoll does not build");
    Ok(steps::cargo_target(root).join("release/plimsoll"))
}

/// What a command of `plimsoll` says as JSON, within a limit.
fn said(program: &Path, words: &[&str], limit: Duration) -> Result<Value> {
    let mut command = Command::new(program);
    let out = shell::output(command.args(words).args(["--json", "-"]), limit)?;
    let out = out.with_context(|| {
        format!("plimsoll {} did not end in {} minutes", words.join(" "), limit.as_secs() / 60)
    })?;
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "plimsoll {}: {}", words.join(" "), errors.trim());
    serde_json::from_slice(&out.stdout).context("plimsoll prints JSON")
}

fn read(path: &Path) -> Result<Value> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Map::new().into()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// A number of things, whose name is given for one.
fn counted(number: impl Display, one: &str) -> String {
    let number = number.to_string();
    let end = if number == "1" { "" } else { "s" };
    format!("{number} {one}{end}")
}

/// The middle one, or the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.get(half) {
        None => f64::NAN,
        Some(&upper) if sorted.len() % 2 == 1 => upper,
        Some(&upper) => f64::midpoint(sorted[half - 1], upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in ["lab --slow", "bench --kernel", "bench --quick --quick", "all", ""] {
            let said = run(Path::new("/nowhere"), &words(text)).unwrap_err().to_string();
            assert!(said.contains("usage"), "{text}: {said}");
        }
        let said = run(Path::new("/nowhere"), &words("bench kernels")).unwrap_err().to_string();
        assert!(said.contains("no table kernels; the tables: kernel peers"), "{said}");
    }

    #[test]
    fn what_was_measured_once_is_not_published() {
        let said = repeated(&json!({ "repetitions": 1 })).unwrap_err().to_string();
        assert!(said.contains("1 repetition ") && said.contains("--quick"), "{said}");
        assert!(repeated(&json!({ "repetitions": 2 })).is_ok());
        assert!(repeated(&json!({})).is_err());
    }

    #[test]
    fn only_some_tables_are_made_of_documents() {
        let said = |table, documents| from(table, &words(documents)).err().unwrap().to_string();
        assert!(said("fq", "").contains("usage"), "{}", said("fq", ""));
        assert!(said("peers", "").contains("usage"), "one document is needed");
        assert!(said("senders", "").contains("no document"), "{}", said("senders", ""));
    }

    #[test]
    fn tables_are_chosen_by_name() {
        let of = |text: &str| {
            let (chosen, effort) = chosen(&words(text)).unwrap();
            (chosen.len(), chosen[0].name, effort == Effort::Quick)
        };
        // Of one run come two tables.
        assert_eq!(of(""), (TABLES.len() - 1, "kernel", false));
        assert_eq!(of("forwarders peers"), (1, "peers", false));
        assert_eq!(of("forwarders"), (1, "forwarders", false));
        assert_eq!(of("--quick explain fq"), (2, "fq", true));
    }

    /// No table is written by hand.
    #[test]
    fn every_committed_table_has_its_command() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let all = read(&root.join("docs/bench.json")).unwrap();
        for name in all.as_object().unwrap().keys() {
            assert!(TABLES.iter().any(|table| table.name == name), "{name}");
        }
    }

    /// A table that no page shows would be taken for nothing.
    #[test]
    fn every_committed_table_is_shown() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = fs::read_to_string(root.join("docs/performance.md")).unwrap();
        for name in read(&root.join("docs/bench.json")).unwrap().as_object().unwrap().keys() {
            assert!(page.contains(&format!("<!-- figures: bench.{name} -->")), "{name}");
        }
    }

    #[test]
    fn conditions_name_the_command_and_the_machine() {
        let rows = Rows { conditions: "once".into(), header: vec!["a".into()], rows: vec![] };
        let said = to_json("x", rows)["conditions"].as_str().unwrap().to_owned();
        assert!(said.starts_with("`cargo xtask figures bench x`: once; "), "{said}");
        assert!(said.contains("Linux"), "{said}");
    }

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!((&*counted(1, "run"), &*counted(json!(1), "pair")), ("1 run", "1 pair"));
        assert_eq!((&*counted(0, "run"), &*counted("1 to 2", "pair")), ("0 runs", "1 to 2 pairs"));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
