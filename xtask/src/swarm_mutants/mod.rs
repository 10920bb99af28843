//! `cargo xtask swarm-mutants [--list] [--runs COUNT] [--again|--kept] [--write] [NAME]...`: shows
//! that the simulator's swarm finds defects.
//!
//! Each mutant of `tests/mutants.toml` changes one place of the engine or the stack. All of them go
//! into one copy of the tree below `target/swarm-mutants`, where `MUTANT` has become a question to
//! a switch; so there is one build, and the environment of a process says which of them it runs.
//! The swarm then runs until an invariant is broken that holds without the mutant, the run is
//! shrunk, and of what remains a packetdrill script is written by the build without a mutant: it
//! must fail on the mutant, by a packet or by what a call returns, and pass on the stack without
//! and on the kernel. It ends with the line that fails on the mutant. A mutant that is not found
//! shows that an invariant is missing, or that nothing draws what it needs.
//!
//! Results are kept until the code changes, so that the table can be made in parts; `--again` does
//! not look at them, and `--kept` looks at nothing else. `--write` puts the table into its page and
//! the scripts among the tests, when all rows are there.

mod build;
mod hunt;
mod plant;
mod results;
mod scripts;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tally::Tally;
use crate::tree;
use hunt::Hunt;
use plant::Mutant;
use results::Results;
use table::{Outcome, Row};

/// Seeds that are run before a mutant counts as not found.
const RUNS: u64 = 2000;
/// Where the scripts go that show a mutant.
const SCRIPTS: &str = "tests/drill/swarm";
/// The page with the table, and the lines around it there.
const PAGE: &str = "docs/results/swarm-mutants.md";
const BEGIN: &str = "<!-- swarm-mutants: begin -->\n";
const END: &str = "<!-- swarm-mutants: end -->\n";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// Those, or all if there are none.
    names: Vec<String>,
    runs: u64,
    kept: Kept,
    /// Table and scripts go into the tree.
    write: bool,
}

/// Which of the results of earlier runs count.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    All,
    None,
    /// And nothing is run.
    Only,
}

impl Wanted {
    fn parse(args: &[String], known: &[Mutant]) -> Result<Wanted> {
        let mut wanted = Wanted { names: Vec::new(), runs: RUNS, kept: Kept::All, write: false };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--runs" => {
                    let count = words.next().and_then(|word| word.parse().ok());
                    wanted.runs = count.filter(|&count| count > 0).context(
                        "--runs wants the number of seeds to run for a mutant, 1 or more",
                    )?;
                }
                "--again" => wanted.kept = Kept::None,
                "--kept" => wanted.kept = Kept::Only,
                "--write" => wanted.write = true,
                option if option.starts_with('-') => bail!("unknown option {option}"),
                name if known.iter().any(|mutant| mutant.name == name) => {
                    wanted.names.push(name.to_owned());
                }
                name => bail!("there is no mutant `{name}`; see cargo xtask swarm-mutants --list"),
            }
        }
        if wanted.write && !wanted.names.is_empty() {
            bail!("--write is about the table of all mutants: name none with it");
        }
        Ok(wanted)
    }

    fn has(&self, mutant: &Mutant) -> bool {
        self.names.is_empty() || self.names.contains(&mutant.name)
    }
}

/// The command.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let mutants = plant::read_table(root)?;
    if args.iter().any(|arg| arg == "--list") {
        for mutant in &mutants {
            println!("{:28} {} ({})", mutant.name, mutant.about, mutant.file);
        }
        return Ok(());
    }
    let wanted = Wanted::parse(args, &mutants)?;
    let rows = rows(root, &mutants, &wanted)?;
    print!("\n{}", table::show(&rows));
    if wanted.write {
        refuse_unfinished(&rows)?;
        write_page(root, &mutants, &rows)?;
        write_scripts(root, &mutants, &rows)?;
        println!("wrote {PAGE} and {SCRIPTS}; now run `cargo xtask drill --update`");
    }
    let excused = |row: &Row| row.lacks_script() && missing(&mutants, row).is_some();
    let bad: Vec<&str> =
        rows.iter().filter(|row| !row.is_good() && !excused(row)).map(Row::name).collect();
    if !bad.is_empty() {
        bail!(
            "not found, not shrunk, or not shown by a script: {}; a script that is missing for a \
             known reason has it in {} as script_missing",
            bad.join(", "),
            plant::TABLE
        );
    }
    Ok(())
}

/// Why the script of a row is missing, if that is known.
fn missing<'a>(mutants: &'a [Mutant], row: &Row) -> Option<&'a str> {
    let mutant = mutants.iter().find(|mutant| mutant.name == row.name())?;
    mutant.script_missing.as_deref()
}

/// The page and the scripts are of all mutants: what is missing would be lost from both.
fn refuse_unfinished(rows: &[Row]) -> Result<()> {
    let unfinished =
        |row: &Row| row.unfinished(RUNS).map(|what| format!("`{}` {what}", row.name()));
    let unfinished: Vec<String> = rows.iter().filter_map(unfinished).collect();
    if !unfinished.is_empty() {
        bail!("--write has written nothing, since it needs all rows:\n{}", unfinished.join("\n"));
    }
    Ok(())
}

/// The step of `cargo xtask test --long`: all mutants, each a check.
pub(crate) fn step(root: &Path, tally: &mut Tally) -> Result<()> {
    let mutants = plant::read_table(root)?;
    for row in rows(root, &mutants, &Wanted::parse(&[], &mutants)?)? {
        judge(&mutants, &row, tally);
    }
    Ok(())
}

/// Counts a row. A script that is known to be missing is told by name, and does not fail.
fn judge(mutants: &[Mutant], row: &Row, tally: &mut Tally) {
    let name = row.name();
    match (row.not_run(), missing(mutants, row)) {
        (_, reason) if row.is_good() => {
            tally.pass();
            if reason.is_some() {
                println!("note: {name} has a script; {} says that it is missing", plant::TABLE);
            }
        }
        (Some(why), _) => tally.skip(&format!("the script of {name} on the kernel"), why),
        (None, Some(reason)) if row.lacks_script() => {
            tally.missing(&format!("a script of the seeded defect {name}"), reason);
        }
        (None, _) => tally.fail(&format!("seeded defect {}", row.line())),
    }
}

/// The rows that are asked for, of which those are run that are not kept.
fn rows(root: &Path, mutants: &[Mutant], wanted: &Wanted) -> Result<Vec<Row>> {
    let below = below(root);
    let files = tree::files(root)?;
    let results = Results::new(&below.join("results"), &files)?;
    let mut hunt = None;
    let mut rows = Vec::new();
    for (number, mutant) in (1..).zip(mutants).filter(|(_, mutant)| wanted.has(mutant)) {
        println!("\n== {}: {}", mutant.name, mutant.about);
        let kept = if wanted.kept == Kept::None { None } else { results.get(mutant) };
        let row = match kept {
            Some(row) => row,
            None if wanted.kept == Kept::Only => Row::new(mutant, Outcome::NotRun),
            None => {
                if hunt.is_none() {
                    hunt = Some(Hunt::prepare(&below, &files, mutants)?);
                }
                let hunt = hunt.as_ref().context("there is a build")?;
                let row = hunt.row(number, mutant, wanted.runs);
                if row.is_final() {
                    results.put(mutant, &row)?;
                }
                row
            }
        };
        println!("{}", row.line());
        rows.push(row);
    }
    Ok(rows)
}

/// Where everything is kept.
fn below(root: &Path) -> PathBuf {
    crate::session::cargo_target(root).join("swarm-mutants")
}

/// Puts the scripts that show a mutant among the tests, in place of those that are there.
fn write_scripts(root: &Path, mutants: &[Mutant], rows: &[Row]) -> Result<()> {
    let mut files = BTreeMap::new();
    for (mutant, row) in mutants.iter().zip(rows) {
        let Some(file) = row.script() else { continue };
        let path = build::found(&below(root)).join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        files.insert(format!("{}.pkt", mutant.name), headed(mutant, &text).into_bytes());
    }
    let folder = root.join(SCRIPTS);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    tree::mirror(&folder, &files)
}

/// A script that begins with what it shows. The line of the file that it was made from is left out:
/// nobody else has it.
fn headed(mutant: &Mutant, script: &str) -> String {
    let mut text = format!(
        "// Fails if {}, the mutant `{}` of {}.\n// Found and shrunk by the simulator's swarm; \
         passes on Linux.\n//\n",
        mutant.about,
        mutant.name,
        plant::TABLE
    );
    let made_from = format!("// {}/", mutant.name);
    for line in script.lines().filter(|line| !line.starts_with(&made_from)) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Puts the table into its page.
fn write_page(root: &Path, mutants: &[Mutant], rows: &[Row]) -> Result<()> {
    let path = root.join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let text = with_table(&text, &table::markdown(rows, mutants)).with_context(|| {
        format!("{PAGE} has no place for the table, between {} and {}", BEGIN.trim(), END.trim())
    })?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn with_table(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_must_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mutants = plant::read_table(root).unwrap();
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            Wanted::parse(&words, &mutants)
        };
        assert!(parse(&["nothing"]).unwrap_err().to_string().contains("`nothing`"));
        assert!(parse(&["--runs", "x"]).is_err() && parse(&["--runs", "0"]).is_err());
        assert!(parse(&["--all"]).is_err());
        assert!(parse(&["--write", &mutants[1].name]).is_err());
        let one = parse(&[&mutants[1].name, "--runs", "7", "--again"]).unwrap();
        assert_eq!(mutants.iter().filter(|mutant| one.has(mutant)).count(), 1);
        assert_eq!((one.runs, one.kept), (7, Kept::None));
    }

    #[test]
    fn a_script_says_which_mutant_fails_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mutant = &plant::read_table(root).unwrap()[0];
        let script = format!("// What h0 does.\n// {}/7.toml with seed 7.\n--a\n", mutant.name);
        let text = headed(mutant, &script);
        assert!(text.starts_with(&format!("// Fails if {}", mutant.about)), "{text}");
        assert!(text.ends_with("//\n// What h0 does.\n--a\n"), "{text}");
    }

    #[test]
    fn the_page_has_a_place_for_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let with = with_table(&page, "| a |\n").unwrap();
        assert!(with.contains(&format!("{BEGIN}\n| a |\n\n{END}")), "{with}");
        assert_eq!(with_table(&with, "| a |\n").unwrap(), with);
        assert_eq!(with_table("no place", ""), None);
    }
}
