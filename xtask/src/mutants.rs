//! `cargo xtask mutants [--list] [NAME...]`: turns the code of each mechanism off in turn, and
//! shows that its verdict in the lab falls.
//!
//! A mutant is a change of one place in one file, which no setting can make. It is made in a copy
//! of the tree below `target/mutants`, which is built there and run as `plimsoll lab NAME`. The
//! copy without a change is built and run first: only a check that is reached there can fall.
//! Checks that are about `before` alone (premises) or that nothing got worse do not count, since
//! they say nothing of the mechanism. A mutant under which no check falls has survived, and fails
//! the command. Timing matters to the lab: the machine should be quiet.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{shell, tree};

/// One quick experiment.
const RUN: Duration = Duration::from_secs(10 * 60);

/// Code of a mechanism that is turned off.
struct Mutant {
    /// The experiment of the lab that shows the mechanism.
    experiment: &'static str,
    /// What happens in its place.
    about: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const MUTANTS: [Mutant; 5] = [
    Mutant {
        experiment: "tso-split",
        about: "the tail of a request is cut off, as if it were bulk",
        file: "crates/tcp/src/output/tso_tail.rs",
        from: "        TsoTail::Empty | TsoTail::Nagle => false,\n",
        to: "        TsoTail::Nagle => true,\n        TsoTail::Empty => false,\n",
    },
    Mutant {
        experiment: "autocork",
        about: "no write waits for a completion",
        file: "crates/tcp/src/output/autocork.rs",
        from: "        && now.autocork\n",
        to: "        && now.autocork\n        && now.mss == 0\n",
    },
    Mutant {
        experiment: "tso-trim",
        about: "tails of bulk travel along",
        file: "crates/tcp/src/output/tso_tail.rs",
        from: "        TsoTail::Trim => !now.nodelay && !now.fin,\n",
        to: "        TsoTail::Trim => false,\n",
    },
    Mutant {
        experiment: "pure-ack",
        about: "a pure ACK waits for the blocked reader, and wakes it",
        file: "crates/stack/src/stack/prequeue.rs",
        from: "(bytes > 0 || self.settings.prequeue_pure_ack)",
        to: "(bytes > 0 || !self.settings.tcp_low_latency)",
    },
    Mutant {
        experiment: "ack-defer",
        about: "no ACK waits for the end of its batch",
        file: "crates/tcp/src/recv/ack_defer.rs",
        from: "        let unacked = self.unacked();\n        if self.acks.owes_first_duplicates() {\n",
        to: "        let unacked = self.unacked();\n        if unacked > 0 {\n            \
             Some(FlushReason::Quarter)\n        } else if self.acks.owes_first_duplicates() {\n",
    },
];

impl Mutant {
    /// The file with the change.
    fn apply(&self, text: &str) -> Result<String> {
        let count = text.matches(self.from).count();
        if count != 1 {
            bail!(
                "the mutant of {} wants to change text that {} has {count} times, not once; \
                 write it anew in xtask/src/mutants.rs:\n{}",
                self.experiment,
                self.file,
                self.from
            );
        }
        Ok(text.replacen(self.from, self.to, 1))
    }
}

/// A check of a verdict that says something of the mechanism.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    what: String,
    measured: String,
    reached: bool,
}

/// Those checks that were reached and are not reached without the mechanism, in words.
fn fallen(with: &[Check], without: &[Check]) -> Vec<String> {
    let falls = |check: &&Check| {
        check.reached && without.iter().all(|other| other.what != check.what || !other.reached)
    };
    let show = |check: &Check| {
        let now = without.iter().find(|other| other.what == check.what);
        let now = now.map_or("nothing", |other| &other.measured);
        format!("{}: {}, without {now}", check.what, check.measured)
    };
    with.iter().filter(falls).map(show).collect()
}

/// The command.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        for mutant in &MUTANTS {
            println!("{:10} {} ({})", mutant.experiment, mutant.about, mutant.file);
        }
        return Ok(());
    }
    let known = |name: &String| MUTANTS.iter().any(|mutant| mutant.experiment == *name);
    if let Some(other) = args.iter().find(|name| !known(name)) {
        bail!("there is no mutant of `{other}`; see cargo xtask mutants --list");
    }
    let wanted = |mutant: &&Mutant| args.is_empty() || args.iter().any(|n| *n == mutant.experiment);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    let lab = Lab::prepare(root)?;
    lab.build()?;
    let with = mutants.iter().map(|mutant| lab.checks(mutant.experiment));
    let with = with.collect::<Result<Vec<_>>>()?;
    let (mut survived, mut report) = (Vec::new(), String::new());
    for (mutant, with) in mutants.iter().zip(with) {
        println!("\n== {}: {}", mutant.experiment, mutant.about);
        let fallen = fallen(&with, &lab.checks_without(mutant)?);
        let _ = writeln!(report, "{}: {}", mutant.experiment, mutant.about);
        for check in &fallen {
            let _ = writeln!(report, "  falls: {check}");
        }
        if fallen.is_empty() {
            survived.push(mutant.experiment);
        }
    }
    print!("\n{report}");
    if !survived.is_empty() {
        bail!("no check falls without the mechanism: {}", survived.join(", "));
    }
    Ok(())
}

/// The copy of the tree, and where it is built.
struct Lab {
    tree: PathBuf,
    target: PathBuf,
}

impl Lab {
    /// Copies what git knows of the tree, as it is now.
    fn prepare(root: &Path) -> Result<Lab> {
        let below = crate::session::cargo_target(root).join("mutants");
        let lab = Lab { tree: below.join("tree"), target: below.join("target") };
        tree::mirror(&lab.tree, &tree::files(root)?)?;
        Ok(lab)
    }

    fn build(&self) -> Result<()> {
        let mut command = Command::new("cargo");
        command
            .args(["build", "--release", "-p", "plimsoll-cli"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target);
        if !shell::build(&mut command)?.success() {
            bail!("the copy in {} does not build", self.tree.display());
        }
        Ok(())
    }

    /// Makes the change, runs its experiment, and takes the change back.
    fn checks_without(&self, mutant: &Mutant) -> Result<Vec<Check>> {
        let path = self.tree.join(mutant.file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        fs::write(&path, mutant.apply(&text)?)?;
        let found = self.build().and_then(|()| self.checks(mutant.experiment));
        fs::write(&path, text)?;
        found
    }

    /// Runs one experiment.
    fn checks(&self, experiment: &str) -> Result<Vec<Check>> {
        let json = self.tree.with_file_name("lab.json");
        let mut command = Command::new(self.target.join("release/plimsoll"));
        command.args(["lab", experiment, "--quick", "--json"]).arg(&json).current_dir(&self.tree);
        // It fails if the verdict does.
        shell::run(&mut command, RUN, |_| {})?;
        let text = fs::read_to_string(&json)
            .with_context(|| format!("the lab has not written {}", json.display()))?;
        fs::remove_file(&json)?;
        checks(&text, experiment)
    }
}

/// The checks in the document that the lab writes.
fn checks(text: &str, experiment: &str) -> Result<Vec<Check>> {
    let document: Value = serde_json::from_str(text).context("the lab's document")?;
    let reports = document.as_array().context("the lab's document is no array")?;
    let report = reports.iter().find(|report| report["experiment"] == experiment);
    let found = report
        .and_then(|report| report["verdict"]["checks"].as_array())
        .with_context(|| format!("the lab has not reported on {experiment}"))?;
    let text = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let read = |check: &Value| Check {
        what: text(check, "what"),
        measured: text(check, "measured"),
        reached: check["reached"] == true,
    };
    let counts = |check: &&Value| {
        !text(check, "what").starts_with("premise") && !text(check, "wanted").starts_with("no harm")
    };
    Ok(found.iter().filter(counts).map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table follows the code: what a mutant changes is there, once.
    #[test]
    fn every_mutant_can_be_made() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for mutant in &MUTANTS {
            let text = fs::read_to_string(root.join(mutant.file)).unwrap();
            let changed = mutant.apply(&text).unwrap();
            assert_ne!(changed, text, "{}", mutant.experiment);
            syn::parse_file(&changed).unwrap();
        }
    }

    #[test]
    fn a_mutant_that_fits_nowhere_is_named() {
        let error = MUTANTS[0].apply("fn other() {}").unwrap_err().to_string();
        assert!(error.contains("tso-split") && error.contains("0 times"), "{error}");
    }

    #[test]
    fn only_checks_of_the_mechanism_fall() {
        let document = |gain: bool| {
            format!(
                r#"[{{"experiment": "a", "verdict": {{"checks": [
                    {{"what": "gain", "wanted": "<= 0.5", "measured": "0.4", "reached": {gain}}},
                    {{"what": "short", "wanted": "1", "measured": "2", "reached": false}},
                    {{"what": "rate", "wanted": "no harm: >= 1", "measured": "1", "reached": {gain}}},
                    {{"what": "premise: x", "wanted": "1", "measured": "1", "reached": {gain}}}
                ]}}}}]"#
            )
        };
        let read = |gain| checks(&document(gain), "a").unwrap();
        assert_eq!(fallen(&read(true), &read(true)), Vec::<String>::new());
        assert_eq!(fallen(&read(true), &read(false)), ["gain: 0.4, without 0.4"]);
        assert_eq!(fallen(&read(true), &[]), ["gain: 0.4, without nothing"]);
        assert_eq!(fallen(&read(false), &read(false)), Vec::<String>::new());
        assert!(checks(&document(true), "b").is_err() && checks("{}", "a").is_err());
    }
}
