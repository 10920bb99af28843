//! The search for what shows a mutant.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::Result;

use super::build::Build;
use super::plant::{Mutant, Refused};
use super::scripts::Scripts;
use super::table::{Draw, First, Found, Outcome, Row, Script};

/// Seeds of one part of a swarm: few, because most mutants are found at once.
const PART: u64 = 25;
/// The same of small scenarios, which take a tenth of the time.
const PLAIN_PART: u64 = 500;
/// Small scenarios that are run for a script.
const PLAIN_RUNS: u64 = 10_000;
/// Runs that shrinking may take.
const BUDGET: &str = "400";
/// Failing seeds of small scenarios that are shrunk until one gives a script that shows the mutant.
const PLAIN_SHRINKINGS: usize = 24;
/// Bytes of a flow at least, where a script needs more data.
const LONGER: i64 = 40_000;

/// The build that has all mutants, and the scripts of its runs.
pub(super) struct Hunt {
    build: Build,
    scripts: Scripts,
    refused: Vec<Refused>,
}

impl Hunt {
    pub(super) fn prepare(
        below: &Path,
        files: &BTreeMap<String, Vec<u8>>,
        mutants: &[Mutant],
    ) -> Result<Hunt> {
        let (build, refused) = Build::prepare(below, files, mutants)?;
        let scripts = Scripts::new(&build)?;
        Ok(Hunt { build, scripts, refused })
    }

    /// Everything about one mutant.
    pub(super) fn row(&self, number: usize, mutant: &Mutant, runs: u64) -> Row {
        let refused = self.refused.iter().find(|(other, _)| *other == number);
        let outcome = match refused {
            Some((_, why)) => Outcome::Refused(why.clone()),
            None => self
                .outcome(number, mutant, runs)
                .unwrap_or_else(|error| Outcome::Refused(format!("{error:#}"))),
        };
        Row::new(mutant, outcome)
    }

    /// Runs the swarm until the mutant is found. If the script of that run does not show it, small
    /// scenarios are run as well: a kernel follows them more easily.
    fn outcome(&self, number: usize, mutant: &Mutant, runs: u64) -> Result<Outcome> {
        self.build.empty(mutant)?;
        let mut best = None;
        self.swarm(number, Draw::Any, runs, |case| {
            best = Some(self.examine(number, mutant, case, First::Seed(case.seed))?);
            Ok(Search::End)
        })?;
        if let (Some(found), Some(script)) = (&mut best, &mutant.by_hand)
            && !found.is_good()
        {
            found.script = self.scripts.by_hand(&self.build, number, script)?;
        }
        if best.as_ref().is_some_and(Found::is_good) {
            return Ok(best.map_or(Outcome::NotFound { runs }, Outcome::Found));
        }
        let first = best.as_ref().map_or(First::NotIn(runs), |found| found.first);
        let mut shrinkings = 0;
        self.swarm(number, Draw::Plain, PLAIN_RUNS, |case| {
            let found = self.examine(number, mutant, case, first)?;
            shrinkings += 1;
            let better = match best.take() {
                None => found,
                Some(before) => before.better(found),
            };
            let ends = better.is_good() || shrinkings == PLAIN_SHRINKINGS;
            best = Some(better);
            Ok(if ends { Search::End } else { Search::GoOn })
        })?;
        Ok(best.map_or(Outcome::NotFound { runs }, Outcome::Found))
    }

    /// Runs seeds from 0 on, and shows each that fails on the mutant alone to `each`, until that
    /// ends the search.
    fn swarm(
        &self,
        number: usize,
        draw: Draw,
        runs: u64,
        mut each: impl FnMut(&Case) -> Result<Search>,
    ) -> Result<()> {
        let mut start = 0;
        while start < runs {
            let end = runs.min(start + draw.part());
            for (seed, rule) in self.failures(number, draw, start..end)? {
                let without = self.failures(0, draw, seed..seed + 1)?;
                if let [(seed, rule), ..] = without.as_slice() {
                    println!("seed {seed} fails without the mutant, too: {rule}");
                    continue;
                }
                if let Search::End = each(&Case { draw, seed, rule })? {
                    return Ok(());
                }
            }
            start = end;
        }
        Ok(())
    }

    /// The seeds that fail, each with what it breaks.
    fn failures(&self, number: usize, draw: Draw, seeds: Range<u64>) -> Result<Vec<(u64, String)>> {
        let seeds = format!("{}..{}", seeds.start, seeds.end);
        let args = [&["sim", "swarm", "--seeds", &seeds], draw.options()].concat();
        let report = self.build.run(number, &args)?;
        Ok(failures(&String::from_utf8_lossy(&report.stdout)))
    }

    /// Shrinks a failing run, and writes its script.
    fn examine(&self, number: usize, mutant: &Mutant, case: &Case, first: First) -> Result<Found> {
        let Case { draw, seed, ref rule } = *case;
        let toml = format!("{}/{}{seed}.toml", mutant.name, draw.prefix());
        let word = seed.to_string();
        let shrink = ["sim", "shrink", "--seed", &word, "--budget", BUDGET, "-o", &toml];
        let shrunk = self.build.run(number, &[&shrink, draw.options()].concat())?;
        let faults = number_before(&String::from_utf8_lossy(&shrunk.stdout), " faults");
        let script = Script::None("not shrunk".to_owned());
        let (rule, without) = (rule.clone(), None);
        let mut found = Found { first, draw, seed, rule, faults, without, script };
        if faults.is_none() {
            return Ok(found);
        }
        let control = self.build.run(0, &["sim", "run", &toml, "--seed", &word])?;
        if !control.status.success() {
            let said = String::from_utf8_lossy(&control.stdout).into_owned();
            let said = said.lines().find(|line| line.starts_with("FAILED")).unwrap_or("it fails");
            found.without = Some(said.to_owned());
        }
        found.script = match &mutant.no_script {
            Some(why) => Script::Impossible(why.clone()),
            None => self.scripts.of(&self.build, number, &toml, &word)?,
        };
        for change in [&[Change::MoreData][..], &[Change::Reno], &[Change::MoreData, Change::Reno]]
        {
            if found.script.is_good() || matches!(found.script, Script::None(_)) {
                break;
            }
            if let Some(changed) = self.changed(number, &toml, &word, change)? {
                let script = self.scripts.of(&self.build, number, &changed, &word)?;
                found.script = found.script.max(script);
            }
        }
        Ok(found)
    }

    /// The shrunk run with changes, if it still fails on the mutant alone.
    fn changed(
        &self,
        number: usize,
        toml: &str,
        seed: &str,
        changes: &[Change],
    ) -> Result<Option<String>> {
        let mut scenario: toml::Table = toml::from_str(&self.build.read(toml)?)?;
        // It is the record of another run.
        scenario.remove("record");
        changes.iter().for_each(|change| change.make(&mut scenario));
        let names: String = changes.iter().map(|change| change.name()).collect();
        let changed = toml.replace(".toml", &format!("{names}.toml"));
        self.build.write(&changed, &toml::to_string(&scenario)?)?;
        let run = ["sim", "run", &changed, "--seed", seed];
        let fails = !self.build.run(number, &run)?.status.success();
        let holds = self.build.run(0, &run)?.status.success();
        Ok((fails && holds).then_some(changed))
    }
}

/// A seed that fails.
struct Case {
    draw: Draw,
    seed: u64,
    rule: String,
}

/// Whether a search goes on.
enum Search {
    GoOn,
    End,
}

impl Draw {
    /// What says so on the command line.
    fn options(self) -> &'static [&'static str] {
        match self {
            Draw::Any => &[],
            Draw::Plain => &["--plain"],
        }
    }

    fn part(self) -> u64 {
        match self {
            Draw::Any => PART,
            Draw::Plain => PLAIN_PART,
        }
    }

    /// How the names of its files begin.
    fn prefix(self) -> &'static str {
        match self {
            Draw::Any => "",
            Draw::Plain => "plain-",
        }
    }
}

/// `seed 17 FAILED at 3.2s: nothing panics: index out of bounds`: the seeds, each with what it
/// breaks.
fn failures(report: &str) -> Vec<(u64, String)> {
    let failure = |line: &str| {
        let (seed, rest) = line.strip_prefix("seed ")?.split_once(" FAILED ")?;
        let rule = rest.split(": ").nth(1).unwrap_or(rest);
        Some((seed.parse().ok()?, rule.to_owned()))
    };
    report.lines().filter_map(failure).collect()
}

/// The number in front of `word`.
fn number_before(text: &str, word: &str) -> Option<usize> {
    let end = text.find(word)?;
    text[..end].rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// A change of a shrunk run whose script does not show the mutant.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// A shrunk run ends where the invariant is broken, often before a packet shows it.
    MoreData,
    /// Shrinking leaves settings out. Small scenarios are drawn with Reno, as CUBIC's window
    /// depends on the clock.
    Reno,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::MoreData => ".longer",
            Change::Reno => ".reno",
        }
    }

    fn make(self, scenario: &mut toml::Table) {
        match self {
            Change::MoreData => tables(scenario, "flow").for_each(more_data),
            Change::Reno => tables(scenario, "host").for_each(with_reno),
        }
    }
}

/// The tables of an array in a scenario.
fn tables<'a>(
    scenario: &'a mut toml::Table,
    key: &str,
) -> impl Iterator<Item = &'a mut toml::Table> {
    let array = scenario.get_mut(key).and_then(toml::Value::as_array_mut);
    array.into_iter().flatten().filter_map(toml::Value::as_table_mut)
}

/// More to say in the direction in which a flow says more.
fn more_data(flow: &mut toml::Table) {
    let bytes = |key: &str| flow.get(key).and_then(toml::Value::as_integer).unwrap_or(0);
    let (up, down) = (bytes("up"), bytes("down"));
    let (key, bytes) = if up >= down { ("up", up) } else { ("down", down) };
    flow.insert(key.to_owned(), toml::Value::Integer((bytes * 2).max(LONGER)));
}

fn with_reno(host: &mut toml::Table) {
    let settings = host.entry("sysctl").or_insert_with(|| toml::Table::new().into());
    if let Some(settings) = settings.as_table_mut() {
        settings.insert("net.ipv4.tcp_congestion_control".to_owned(), "reno".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_program_are_read() {
        let report = "seed 17 FAILED at 3.2s: every flow finishes: flow 0: 1\n\
                      seed 20 FAILED at 1.0s: nothing panics: x\n25 runs, 2 failed\n";
        let all = [(17, "every flow finishes".to_owned()), (20, "nothing panics".to_owned())];
        assert_eq!(failures(report), all);
        assert_eq!(failures("25 runs, 0 failed\n"), []);
        assert_eq!(number_before("x.toml after 70 runs: 3 faults, 0 events", " faults"), Some(3));
    }

    #[test]
    fn runs_with_more_data_and_with_reno() {
        let scenario =
            "[[host]]\nname = \"a\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nup = 20000\ndown = 3\n";
        let mut scenario: toml::Table = toml::from_str(scenario).unwrap();
        for change in [Change::MoreData, Change::Reno] {
            change.make(&mut scenario);
        }
        let text = toml::to_string(&scenario).unwrap();
        assert!(text.contains("up = 40000\n") && text.contains("down = 3\n"), "{text}");
        assert!(text.contains("tcp_congestion_control\" = \"reno\"\n"), "{text}");
    }
}
