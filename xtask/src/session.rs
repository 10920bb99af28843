//! One run of suites: what passed, what failed, and the report at the end.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};

use crate::shell::{self, Builds};
use crate::suites::Suite;
use crate::tally::Tally;
use crate::{changes, packages};

const MINUTE: Duration = Duration::from_secs(60);

/// More than any suite's budget, which is what ends a command.
const LONG: Duration = Duration::from_secs(24 * 3600);

const OUT_OF_TIME: &str = "ended: the budget is used up";

/// One run of `check`, `test` or `nightly`.
pub(crate) struct Session {
    pub(crate) root: PathBuf,
    pub(crate) tally: Tally,
    skip: Vec<String>,
    /// Whether the tests were built in this run.
    pub(crate) built: bool,
    /// The commit with which `check` compares.
    pub(crate) base: Option<String>,
}

/// Whether this is a run of the continuous integration, in which nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty())
}

impl Session {
    pub(crate) fn new(root: &Path, skip: Vec<String>) -> Session {
        Session {
            root: root.to_path_buf(),
            tally: Tally::new(in_ci()),
            skip,
            built: false,
            base: None,
        }
    }

    /// Runs these suites and prints the closing report. Says whether nothing has failed. The last
    /// line of the report is read by programs, so nothing is printed after it.
    pub(crate) fn run<'a>(mut self, suites: impl IntoIterator<Item = &'a Suite>) -> bool {
        for suite in suites {
            self.suite(suite);
        }
        print!("\n{}", changes::advice(&self.root));
        print!("{}", self.tally.report());
        self.tally.failures() == 0
    }

    pub(crate) fn suite(&mut self, suite: &Suite) {
        self.tally.begin(suite.name);
        if self.skip.iter().any(|skip| skip == suite.name) {
            self.tally.skip(suite.name, "left out with --skip");
            return;
        }
        println!("\n== {}", suite.name);
        let budget = MINUTE * u32::try_from(suite.minutes).unwrap_or(u32::MAX);
        let start = Instant::now();
        shell::allow(budget);
        if let Err(error) = (suite.run)(self) {
            self.tally.fail(&format!("{}: {error:#}", suite.name));
        }
        let (took, building) = (start.elapsed(), shell::building());
        self.tally.end(took, building, budget);
        println!("== {}: {took:.0?}, of which {building:.0?} building", suite.name);
    }

    /// Runs a command as one test of its own. The budget counts what is not building.
    pub(crate) fn pass_or_fail(&mut self, name: &str, command: &mut Command) -> Result<()> {
        if !self.builds(name, command)? {
            return Ok(());
        }
        let outcome = match Builds::of(command) {
            Builds::All => shell::build(command)?,
            Builds::First(_) | Builds::Nothing => shell::run(command, LONG, |_| {})?,
        };
        match outcome {
            shell::Outcome::OutOfTime => self.tally.fail(&format!("{name} ({OUT_OF_TIME})")),
            outcome if outcome.success() => self.tally.pass(),
            shell::Outcome::Ended(_) => self.tally.fail(name),
        }
        Ok(())
    }

    /// Runs a command that prints what Rust's test harness prints, and counts its tests. The budget
    /// counts what is not building.
    pub(crate) fn counted(&mut self, name: &str, command: &mut Command) -> Result<()> {
        if self.builds(name, command)? { self.run_counted(name, command) } else { Ok(()) }
    }

    /// The same for a command that builds nothing.
    pub(crate) fn run_counted(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let (passes, failures) = (self.tally.passes(), self.tally.failures());
        self.run_tests(name, command)?;
        if (self.tally.passes(), self.tally.failures()) == (passes, failures) {
            self.tally.fail(&format!("{name} (no test ran)"));
        }
        Ok(())
    }

    /// The same for a command that may have no test.
    pub(crate) fn run_tests(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let failures = self.tally.failures();
        let outcome = shell::run(command, LONG, |line| self.tally.line(line))?;
        if matches!(outcome, shell::Outcome::OutOfTime) {
            self.tally.fail(&format!("{name} ({OUT_OF_TIME})"));
        } else if !outcome.success() && self.tally.failures() == failures {
            // It failed without naming a test: it crashed.
            self.tally.fail(name);
        }
        Ok(())
    }

    /// Runs a command that must be prepared, as [`counted`](Self::counted) does, or skips it with
    /// the reason.
    pub(crate) fn counted_or_skipped(
        &mut self,
        name: &str,
        prepare: impl FnOnce(&Path) -> Result<Result<Command, String>>,
    ) -> Result<()> {
        match prepare(&self.root)? {
            Ok(mut command) => self.counted(name, &mut command),
            Err(why) => {
                self.tally.skip(name, &why);
                Ok(())
            }
        }
    }

    /// Builds what a command of cargo's is to run. Counts a failure, and returns false then.
    fn builds(&mut self, name: &str, command: &Command) -> Result<bool> {
        let Builds::First(mut first) = Builds::of(command) else { return Ok(true) };
        let built = shell::build(&mut first)?.success();
        if !built {
            self.tally.fail(&format!("{name} (does not build)"));
        }
        Ok(built)
    }
}

/// cargo in the root of the repository.
pub(crate) fn cargo(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(root);
    if in_ci() {
        // Nothing is built twice there, so that what a second build could use is wasted time.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Where cargo puts what it builds.
pub(crate) fn cargo_target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The program, as the tests build it.
pub(crate) fn plimsoll_program(root: &Path) -> PathBuf {
    cargo_target(root).join("debug/plimsoll")
}

/// The tests against the host kernel, as the tests build them.
pub(crate) fn interop_program(root: &Path) -> PathBuf {
    cargo_target(root).join("debug/plimsoll-interop")
}

/// Builds packages as they are measured.
pub(crate) fn build_release(root: &Path, packages: &[&str]) -> Result<PathBuf> {
    let mut command = cargo(root, &["build", "--release"]);
    packages.iter().for_each(|package| _ = command.args(["-p", package]));
    if !shell::build(&mut command)?.success() {
        bail!("{} does not build", packages.join(", "));
    }
    Ok(cargo_target(root).join("release"))
}

/// Builds an example of a package as it is measured, and returns the folder of what was built.
pub(crate) fn build_example(root: &Path, package: &str, example: &str) -> Result<PathBuf> {
    let words = ["build", "--release", "-p", package, "--example", example];
    if !shell::build(&mut cargo(root, &words))?.success() {
        bail!("the example {example} of {package} does not build");
    }
    Ok(cargo_target(root).join("release/examples"))
}

/// The program, and that of the measurements.
const MEASURED: [&str; 2] = ["plimsoll-cli", "plimsoll-interop"];

/// The comparison of web servers, which needs a server and a client of its own.
pub(crate) fn bench_web(root: &Path, args: &[String]) -> Result<()> {
    packages::kernel_tests(&["ip", "wrk"]).map_err(Error::msg)?;
    build_release(root, &["plimsoll-web"])?;
    bench(root, args)
}

/// The comparison of UDP, for which the program with async sockets is the one that speaks QUIC.
pub(crate) fn bench_udp(root: &Path, args: &[String]) -> Result<()> {
    build_release(root, &["plimsoll-web"])?;
    bench(root, args)
}

/// The measurements of `cargo xtask bench` that run in the program of the tests.
pub(crate) fn bench(root: &Path, args: &[String]) -> Result<()> {
    packages::kernel_tests(&packages::all_programs()).map_err(Error::msg)?;
    packages::wish();
    // In a group of its own, which is ended when this program is interrupted.
    let mut command = Command::new(build_release(root, &MEASURED)?.join("plimsoll-interop"));
    if !shell::run(command.arg("bench").args(args), LONG, |_| {})?.success() {
        bail!("plimsoll-interop failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(strict: bool, skip: &[&str]) -> Session {
        let skip = skip.iter().map(ToString::to_string).collect();
        Session { tally: Tally::new(strict), ..Session::new(Path::new(""), skip) }
    }

    fn suite(name: &'static str, run: fn(&mut Session) -> Result<()>) -> Suite {
        Suite { name, about: "", minutes: 60, run }
    }

    /// A suite that passes, and one for which the machine lacks something.
    fn suites() -> [Suite; 2] {
        let pass = suite("good", |s| {
            s.tally.pass();
            Ok(())
        });
        let lack = suite("lacking", |s| {
            s.tally.skip("its tests", "this machine has no compiler");
            Ok(())
        });
        [pass, lack]
    }

    #[test]
    fn what_a_machine_cannot_run_fails_where_ci_is_set_and_nowhere_else() {
        let _one = shell::one_at_a_time();
        assert!(session(false, &[]).run(&suites()));
        assert!(!session(true, &[]).run(&suites()));
    }

    #[test]
    fn leaving_out_a_suite_is_skipping_it() {
        let _one = shell::one_at_a_time();
        assert!(session(false, &["good"]).run(&suites()));
        assert!(session(false, &["good", "lacking"]).run(&suites()));
        assert!(!session(true, &["good"]).run(&suites()[..1]));
    }

    #[test]
    fn a_suite_that_cannot_be_run_fails_and_the_others_go_on() {
        let _one = shell::one_at_a_time();
        let broken = suite("broken", |_| bail!("there is no such program"));
        let [good, _] = suites();
        let mut session = session(false, &[]);
        session.suite(&broken);
        session.suite(&good);
        let report = session.tally.report();
        assert!(report.starts_with("failed: broken: there is no such program\n"), "{report}");
        assert!(report.ends_with("\n1 passed, 1 failed, 0 skipped\n"), "{report}");
    }

    #[test]
    fn a_command_without_a_test_has_not_passed() {
        let _one = shell::one_at_a_time();
        let say = |text: &str| {
            let mut session = session(false, &[]);
            let mut command = Command::new("echo");
            session.counted("a filter", command.arg(text)).unwrap();
            session.tally.report()
        };
        assert!(say("running 0 tests").starts_with("failed: a filter (no test ran)\n"));
        assert!(say("test a ... ok").ends_with("\n1 passed, 0 failed, 0 skipped\n"));
    }
}
