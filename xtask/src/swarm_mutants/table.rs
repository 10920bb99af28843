//! What became of each mutant, as a table.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::plant::Mutant;

/// Faults that a shrunk run may have.
pub(super) const MOST_FAULTS: usize = 10;

/// What became of the script of a shrunk run. The later is the better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(super) enum Script {
    /// There is none, for this reason.
    None(String),
    /// It does not pass on the stack that it was written by.
    FailsHere,
    /// The mutant passes, too.
    PassesOnMutant,
    /// The mutant panics, which is no packet.
    BreaksMutant,
    /// It tells the mutant, and the kernel does something else than this stack.
    FailsOnKernel(String),
    /// It tells the mutant. On the kernel it was not run, for this reason.
    NotRunOnKernel { file: String, why: String },
    /// No packet of one connection shows the mutant: its table says why.
    Impossible(String),
    /// It fails on the mutant, and passes on the stack without and on the kernel. Somebody has
    /// written it, and this is its path.
    ByHand(String),
    /// It fails on the mutant, and passes on the stack without and on the kernel. This is its file.
    Good(String),
}

impl Script {
    /// Whether it shows all that it can.
    pub(super) fn is_good(&self) -> bool {
        self.shows() || matches!(self, Script::Impossible(_))
    }

    /// Whether it tells the mutant from this stack and from the kernel.
    fn shows(&self) -> bool {
        matches!(self, Script::Good(_) | Script::ByHand(_))
    }

    /// On the mutant, on this stack, and on the kernel.
    fn columns(&self) -> [String; 3] {
        let columns = match self {
            Script::None(why) => ["-", &format!("no script: {why}"), "-"],
            Script::FailsHere => ["-", "fails", "-"],
            Script::PassesOnMutant => ["passes", "passes", "-"],
            Script::BreaksMutant => ["panics", "passes", "-"],
            Script::FailsOnKernel(_) => ["fails", "passes", "fails"],
            Script::NotRunOnKernel { why, .. } => ["fails", "passes", &format!("not run: {why}")],
            Script::Impossible(why) => ["-", &format!("none: {why}"), "-"],
            Script::ByHand(_) => ["fails (by hand)", "passes", "passes"],
            Script::Good(_) => ["fails", "passes", "passes"],
        };
        columns.map(str::to_owned)
    }
}

/// What draws the scenario of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Draw {
    /// The swarm.
    Any,
    /// That of small scenarios, which a kernel can follow.
    Plain,
}

/// When the swarm has found a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum First {
    /// With this seed.
    Seed(u64),
    /// Not in so many runs, but in one of the small scenarios.
    NotIn(u64),
}

impl First {
    fn seeds(self) -> String {
        match self {
            First::Seed(seed) => (seed + 1).to_string(),
            First::NotIn(runs) => format!("over {runs}"),
        }
    }
}

/// A mutant that was found.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Found {
    pub(super) first: First,
    /// What has drawn the run that was shrunk.
    pub(super) draw: Draw,
    /// The seed of that run.
    pub(super) seed: u64,
    /// The invariant that it breaks.
    pub(super) rule: String,
    /// Faults that are left after shrinking.
    pub(super) faults: Option<usize>,
    /// What the shrunk run breaks on the stack without the mutant. There is to be nothing: else it
    /// is not the mutant that was found.
    pub(super) without: Option<String>,
    pub(super) script: Script,
}

impl Found {
    fn is_shrunk(&self) -> bool {
        self.without.is_none() && self.faults.is_some_and(|faults| faults <= MOST_FAULTS)
    }

    pub(super) fn is_good(&self) -> bool {
        self.is_shrunk() && self.script.is_good()
    }

    /// Of two, the one that shows more.
    pub(super) fn better(self, other: Found) -> Found {
        let rank = |found: &Found| (found.is_shrunk(), found.script.clone());
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// What became of one mutant.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Outcome {
    /// Nobody has asked.
    NotRun,
    /// It could not be made or run.
    Refused(String),
    /// In so many runs of the swarm, and in no small scenario.
    NotFound {
        runs: u64,
    },
    Found(Found),
}

/// A mutant and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Row {
    name: String,
    about: String,
    outcome: Outcome,
}

impl Row {
    pub(super) fn new(mutant: &Mutant, outcome: Outcome) -> Row {
        Row { name: mutant.name.clone(), about: mutant.about.clone(), outcome }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was found by an invariant that holds without it, shrunk, and told by a script.
    pub(super) fn is_good(&self) -> bool {
        matches!(&self.outcome, Outcome::Found(found) if found.is_good())
    }

    /// The script that shows it, here and on the kernel.
    pub(super) fn script(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Found(Found { script: Script::Good(file), .. }) => Some(file),
            _ => None,
        }
    }

    /// Why its script was not run on the kernel, if that is all that is missing.
    pub(super) fn not_run(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Found(found) if found.is_shrunk() => match &found.script {
                Script::NotRunOnKernel { why, .. } => Some(why),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a run of more seeds, or where the kernel can be asked, could not give anything else.
    pub(super) fn is_final(&self) -> bool {
        match &self.outcome {
            Outcome::Found(found) => !matches!(found.script, Script::NotRunOnKernel { .. }),
            Outcome::NotRun | Outcome::Refused(_) | Outcome::NotFound { .. } => false,
        }
    }

    /// Whether all that is missing is a script.
    pub(super) fn lacks_script(&self) -> bool {
        match &self.outcome {
            Outcome::Found(found) => {
                let not_run = matches!(found.script, Script::NotRunOnKernel { .. });
                found.is_shrunk() && !found.script.is_good() && !not_run
            }
            _ => false,
        }
    }

    /// What keeps the row from the table of the documentation, and what to do.
    pub(super) fn unfinished(&self, runs: u64) -> Option<String> {
        let again = format!("run `cargo xtask swarm-mutants {}` first", self.name);
        match &self.outcome {
            Outcome::NotRun => Some(format!("was not run: {again}")),
            Outcome::Refused(why) => Some(format!("{why}; mend that, then {again}")),
            Outcome::NotFound { runs: made } if *made < runs => {
                Some(format!("was looked for in {made} runs of {runs} only: {again}"))
            }
            Outcome::NotFound { .. } => None,
            Outcome::Found(found) => match &found.script {
                Script::NotRunOnKernel { why, .. } => Some(format!(
                    "has a script that was not run on the kernel ({why}): {again} as root"
                )),
                _ => None,
            },
        }
    }

    /// The cells behind name and description.
    fn cells(&self) -> [String; 6] {
        match &self.outcome {
            Outcome::NotRun => ["-", "-", "not run", "-", "-", "-"].map(str::to_owned),
            Outcome::Refused(why) => ["-", "-", why, "-", "-", "-"].map(str::to_owned),
            Outcome::NotFound { runs } => {
                let what = format!("not found in {runs} runs");
                ["-", "-", &what, "-", "-", "-"].map(str::to_owned)
            }
            Outcome::Found(found) => {
                let faults = found.faults.map_or("not shrunk".to_owned(), |all| all.to_string());
                let faults = match found.draw {
                    Draw::Any => faults,
                    Draw::Plain => format!("{faults} (small {})", found.seed),
                };
                let rule = match &found.without {
                    None => found.rule.clone(),
                    Some(rule) => format!("{} (without the mutant: {rule})", found.rule),
                };
                let [mutant, here, kernel] = found.script.columns();
                [found.first.seeds(), faults, rule, mutant, here, kernel]
            }
        }
    }

    pub(super) fn line(&self) -> String {
        let [seeds, faults, rule, mutant, here, kernel] = self.cells();
        format!("{:28} {seeds:>5} {faults:>6}  {rule}; script: {mutant} / {here} / {kernel}", {
            &self.name
        })
    }
}

/// All rows under a head, and sums.
pub(super) fn show(rows: &[Row]) -> String {
    let mut text = format!(
        "{:28} {:>5} {:>6}  invariant; script on the mutant / here / on the kernel\n",
        "mutant", "seeds", "faults"
    );
    for row in rows {
        let _ = writeln!(text, "{}", row.line());
    }
    let _ = writeln!(text, "{}", sums(rows));
    text
}

fn sums(rows: &[Row]) -> String {
    let found: Vec<&Found> = rows
        .iter()
        .filter_map(|row| match &row.outcome {
            Outcome::Found(found) => Some(found),
            _ => None,
        })
        .collect();
    let shrunk = found.iter().filter(|found| found.is_shrunk()).count();
    let told = found.iter().filter(|found| found.script.shows()).count();
    let never = found.iter().filter(|found| matches!(found.script, Script::Impossible(_))).count();
    format!(
        "{} mutants: {} found, {shrunk} of them shrunk to {MOST_FAULTS} faults or fewer; {told} \
         shown by a script that fails on the mutant and passes here and on the kernel, {never} \
         that no script can show, {} without such a script.",
        rows.len(),
        found.len(),
        rows.len() - told - never
    )
}

/// The same for a page of documentation, with the reasons for which scripts are missing.
pub(super) fn markdown(rows: &[Row], mutants: &[Mutant]) -> String {
    let mut text =
        "| mutant | seeds until found | faults left | invariant | script: mutant | here \
                    | kernel |\n|---|---:|---:|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let cells = row.cells().join(" | ");
        let _ = writeln!(text, "| `{}`: {} | {cells} |", row.name, row.about);
    }
    let _ = writeln!(text, "\n{}", sums(rows));
    let bad: Vec<&Row> = rows.iter().filter(|row| !row.is_good()).collect();
    if !bad.is_empty() {
        let _ = writeln!(text, "\nNot shown in full:\n");
    }
    for row in bad {
        let reason = mutants.iter().find(|mutant| mutant.name == row.name);
        let reason = reason.and_then(|mutant| mutant.script_missing.as_deref());
        let _ = writeln!(text, "- `{}`: {}", row.name, reason.unwrap_or("no reason is known"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, outcome: Outcome) -> Row {
        Row { name: name.to_owned(), about: "a defect".to_owned(), outcome }
    }

    fn found(script: Script) -> Found {
        let rule = "nothing panics".to_owned();
        let first = First::Seed(7);
        Found { first, draw: Draw::Any, seed: 7, rule, faults: Some(3), without: None, script }
    }

    fn not_run() -> Script {
        Script::NotRunOnKernel { file: "a.pkt".to_owned(), why: "needs root".to_owned() }
    }

    fn good() -> Found {
        found(Script::Good("found.a.pkt".to_owned()))
    }

    #[test]
    fn good_is_found_without_a_false_alarm_shrunk_and_told_by_a_script() {
        assert!(good().is_good() && found(Script::Impossible("x".to_owned())).is_good());
        for script in [
            Script::None("two connections".to_owned()),
            Script::FailsHere,
            Script::PassesOnMutant,
            Script::BreaksMutant,
            Script::FailsOnKernel("a.pkt".to_owned()),
            not_run(),
        ] {
            assert!(!found(script.clone()).is_good(), "{script:?}");
        }
        assert!(!Found { faults: Some(11), ..good() }.is_good());
        assert!(!Found { faults: None, ..good() }.is_good());
        assert!(!Found { without: Some("nothing panics".to_owned()), ..good() }.is_good());
    }

    #[test]
    fn the_better_of_two() {
        let large = Found { faults: Some(11), ..good() };
        let silent = Found { seed: 3, ..found(Script::PassesOnMutant) };
        assert_eq!(large.clone().better(silent.clone()), silent);
        assert_eq!(silent.clone().better(good()), good());
        assert_eq!(good().better(silent), good());
    }

    #[test]
    fn only_what_cannot_change_is_kept() {
        let kept = |outcome: Outcome| row("a", outcome).is_final();
        assert!(kept(Outcome::Found(good())));
        assert!(kept(Outcome::Found(found(Script::FailsOnKernel("a.pkt".to_owned())))));
        assert!(!kept(Outcome::Found(found(not_run()))));
        assert!(!kept(Outcome::NotFound { runs: 2000 }) && !kept(Outcome::NotRun));
        assert!(!kept(Outcome::Refused("does not build".to_owned())));
    }

    #[test]
    fn an_unfinished_row_says_what_to_do() {
        let unfinished = |outcome: Outcome| row("a", outcome).unfinished(2000);
        for (outcome, word) in [
            (Outcome::NotRun, "was not run"),
            (Outcome::Refused("does not build".to_owned()), "does not build; mend that"),
            (Outcome::NotFound { runs: 5 }, "in 5 runs of 2000 only"),
            (Outcome::Found(found(not_run())), "(needs root)"),
        ] {
            let text = unfinished(outcome).unwrap();
            assert!(text.contains(word) && text.contains("swarm-mutants a`"), "{text}");
        }
        assert_eq!(unfinished(Outcome::NotFound { runs: 2000 }), None);
        assert_eq!(unfinished(Outcome::Found(found(Script::PassesOnMutant))), None);
        assert_eq!(unfinished(Outcome::Found(good())), None);
    }

    #[test]
    fn only_a_missing_script_can_be_excused() {
        let lacks = |outcome: Outcome| row("a", outcome).lacks_script();
        assert!(lacks(Outcome::Found(found(Script::PassesOnMutant))));
        let large = Found { faults: Some(11), ..found(Script::PassesOnMutant) };
        assert!(!lacks(Outcome::Found(large)) && !lacks(Outcome::Found(good())));
        assert!(!lacks(Outcome::NotFound { runs: 2000 }));
        assert!(!lacks(Outcome::Found(found(not_run()))));
    }

    #[test]
    fn tables() {
        let rows = [
            row("lost", Outcome::NotFound { runs: 1000 }),
            row("broken", Outcome::Refused("does not build: x".to_owned())),
            row("found", Outcome::Found(good())),
            row("large", Outcome::Found(Found { faults: Some(11), ..good() })),
            row("half", Outcome::Found(found(not_run()))),
            row("small", Outcome::Found(Found { first: First::NotIn(2000), ..good() })),
        ];
        let not_run: Vec<&str> = rows.iter().filter_map(Row::not_run).collect();
        assert_eq!(not_run, ["needs root"]);
        let text = show(&rows);
        assert!(text.contains("not found in 1000 runs; script: - / - / -"), "{text}");
        assert!(text.contains("nothing panics; script: fails / passes / passes"), "{text}");
        assert!(text.contains("fails / passes / not run: needs root"), "{text}");
        assert!(text.contains("6 mutants: 4 found, 3 of them shrunk to 10 faults"), "{text}");
        let text = markdown(&rows, &[]);
        assert!(text.contains("| `found`: a defect | 8 | 3 | nothing panics |"), "{text}");
        assert!(text.contains("| `small`: a defect | over 2000 | 3 |"), "{text}");
        let bad = text.lines().filter(|line| line.starts_with("- `")).count();
        assert_eq!(bad, 4, "{text}");
    }
}
