//! What each suite of `test` and `nightly` does.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};

use crate::fuzz::Plan;
use crate::shell::Builds;
use crate::suites::Suite;
use crate::tally::Tally;
use crate::{
    fuzz, licences, outside, packages, parity, publish, shell, swarm_mutants, tidy, toolchain,
};

const MINUTE: Duration = Duration::from_secs(60);

/// More than any suite's budget, which is what ends a command.
const LONG: Duration = Duration::from_secs(24 * 3600);

const OUT_OF_TIME: &str = "ended: the budget is used up";

/// The workspace of the servers of `bench peers`.
const PEERS: &str = "bench/peers/Cargo.toml";

/// Its packages that must build: without them there is nothing to compare. Each of the others needs
/// a stack of somebody else's, and is left out where that does not build.
const OWN_PEERS: [&str; 8] =
    ["-p", "peer-common", "-p", "peer-kernel", "-p", "peer-null", "-p", "peer-ours"];

/// Packages that must build without std.
const NO_STD: [&str; 3] = ["plimsoll-buf", "plimsoll-wire", "plimsoll-tcp"];

/// One run of `test` or `nightly`.
pub(crate) struct Session {
    pub(crate) root: PathBuf,
    pub(crate) tally: Tally,
    skip: Vec<String>,
    fuzz: bool,
    /// Whether suites take their long forms.
    pub(crate) long: bool,
}

/// Whether this is a run of the continuous integration, in which nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty())
}

impl Session {
    pub(crate) fn new(root: PathBuf, args: &[String], long: bool) -> Result<Session> {
        let strict = in_ci();
        let fuzz = long || strict || rustix::process::geteuid().is_root();
        let mut session = Session { root, tally: Tally::new(strict), skip: Vec::new(), fuzz, long };
        let known = |name: &str| crate::suites::SUITES.iter().any(|suite| suite.name == name);
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--fuzz" => session.fuzz = true,
                "--skip" => {
                    let name = words.next().context("--skip STEP")?;
                    if !known(name) {
                        bail!("--skip {name}: there is no such step; see cargo xtask --help");
                    }
                    session.skip.push(name.clone());
                }
                other => bail!("unknown option {other}"),
            }
        }
        Ok(session)
    }

    /// Runs these suites and prints the closing report. Says whether nothing has failed.
    pub(crate) fn run(mut self, suites: &[Suite]) -> bool {
        for suite in suites {
            self.suite(suite);
        }
        print!("\n{}", self.tally.report());
        self.tally.failures() == 0
    }

    fn suite(&mut self, suite: &Suite) {
        self.tally.begin(suite.name);
        if self.skip.iter().any(|skip| skip == suite.name) {
            self.tally.skip(suite.name, "left out with --skip");
            return;
        }
        println!("\n== {}", suite.name);
        let minutes = if self.long { suite.long_minutes } else { suite.minutes };
        let budget = MINUTE * u32::try_from(minutes).unwrap_or(u32::MAX);
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
    fn pass_or_fail(&mut self, name: &str, command: &mut Command) -> Result<()> {
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

    /// Runs a command that speaks like Rust's test harness and counts its tests. The budget counts
    /// what is not building.
    pub(crate) fn counted(&mut self, name: &str, command: &mut Command) -> Result<()> {
        if !self.builds(name, command)? {
            return Ok(());
        }
        let (passes, failures) = (self.tally.passes(), self.tally.failures());
        let outcome = shell::run(command, LONG, |line| self.tally.line(line))?;
        if matches!(outcome, shell::Outcome::OutOfTime) {
            self.tally.fail(&format!("{name} ({OUT_OF_TIME})"));
        } else if !outcome.success() && self.tally.failures() == failures {
            // It failed without naming a test: it crashed.
            self.tally.fail(name);
        } else if outcome.success() && self.tally.passes() == passes {
            self.tally.fail(&format!("{name} (no test ran)"));
        }
        Ok(())
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

    /// Installs what the suites need, so that none of them spends its own time on that.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        packages::prepare(self.fuzz, self.long);
        Ok(())
    }

    pub(crate) fn tidy(&mut self) -> Result<()> {
        tidy::run(&self.root)?;
        self.tally.pass();
        Ok(())
    }

    pub(crate) fn format(&mut self) -> Result<()> {
        let mut command = cargo(&self.root, &["fmt", "--all", "--", "--check"]);
        self.pass_or_fail("cargo fmt --check", &mut command)?;
        let words = ["fmt", "--manifest-path", PEERS, "--all", "--", "--check"];
        let mut command = cargo(&self.root, &words);
        self.pass_or_fail("cargo fmt --check of bench/peers", &mut command)
    }

    pub(crate) fn clippy(&mut self) -> Result<()> {
        let strict = ["--", "-D", "warnings"];
        let all = ["clippy", "--workspace", "--all-features", "--all-targets"];
        self.pass_or_fail("cargo clippy", cargo(&self.root, &all).args(strict))?;
        // Without its features the library has less to be used by.
        let plain = ["clippy", "-p", "plimsoll", "--lib"];
        let name = "cargo clippy of the library without features";
        self.pass_or_fail(name, cargo(&self.root, &plain).args(strict))?;
        let mut peers = cargo_of_peers(&self.root, "clippy");
        peers.args(OWN_PEERS).arg("--all-targets").args(strict);
        self.pass_or_fail("cargo clippy of the servers of bench peers", &mut peers)?;
        // The suite `fuzz` comes last, and has more to build.
        let name = "cargo clippy of the fuzz targets";
        if !packages::has_cxx() {
            self.tally.skip(name, "there is no C++ compiler, which libFuzzer is built with");
            return Ok(());
        }
        let words = ["clippy", "--locked", "--workspace", "--all-targets", "--manifest-path"];
        let mut fuzz = cargo(&self.root, &words);
        fuzz.arg("fuzz/Cargo.toml")
            .env("CARGO_TARGET_DIR", cargo_target(&self.root).join("fuzz-clippy"));
        self.pass_or_fail(name, fuzz.args(strict))
    }

    pub(crate) fn rustdoc(&mut self) -> Result<()> {
        let words = ["doc", "--workspace", "--no-deps", "--document-private-items"];
        let mut command = cargo(&self.root, &words);
        command.arg("--all-features");
        self.pass_or_fail("cargo doc", command.env("RUSTDOCFLAGS", "-D warnings"))
    }

    /// The tests of all packages; where the machine can run them, also those that need root.
    pub(crate) fn unit(&mut self) -> Result<()> {
        let harness: &[&str] = match packages::kernel_tests(&["ip"]) {
            Ok(()) => &["--", "--include-ignored"],
            Err(why) => {
                println!("tests that need root are ignored: {why}");
                &[]
            }
        };
        let words = ["test", "--workspace", "--all-features", "--no-fail-fast"];
        let mut command = cargo(&self.root, &words);
        if !self.long {
            // The same cases each time: what one change has passed does not fail the next.
            command.env("PROPTEST_RNG_SEED", "1");
        }
        self.counted("cargo test --workspace", command.args(harness))?;
        let mut peers = cargo_of_peers(&self.root, "test");
        peers.args(["-p", "peer-common", "-p", "peer-null"]);
        self.counted("cargo test of what the servers of bench peers share", &mut peers)?;
        if self.long {
            // The same with the optimiser, and with many more cases where a test makes them up.
            let mut command = cargo(&self.root, &words);
            command.args(["--release", "--lib"]).args(harness).env("PROPTEST_CASES", "5000");
            self.counted("cargo test --workspace --release", &mut command)?;
        }
        Ok(())
    }

    /// The tests of others on our sockets.
    pub(crate) fn outside(&mut self) -> Result<()> {
        let tokio = outside::tokio::prepared(&self.root)?;
        self.counted_or_skipped("tokio's tests of its sockets, on ours", tokio)?;
        for (name, command) in outside::facades::prepared(&self.root)? {
            self.counted_or_skipped(&name, command)?;
        }
        let quinn = outside::quinn::prepared(&self.root)?;
        self.counted_or_skipped("quinn's tests, on our UDP sockets", quinn)?;
        if self.long {
            let h2 = outside::h2::prepared(&self.root)?;
            self.counted_or_skipped("HTTP/2 on our sockets and on the kernel's", h2)?;
        }
        Ok(())
    }

    /// Runs a command as [`counted`](Self::counted) does, or skips it with the reason.
    fn counted_or_skipped(&mut self, name: &str, command: Result<Command, String>) -> Result<()> {
        match command {
            Ok(mut command) => self.counted(name, &mut command),
            Err(why) => {
                self.tally.skip(name, &why);
                Ok(())
            }
        }
    }

    /// What is published, as its users get it.
    pub(crate) fn publish(&mut self) -> Result<()> {
        let mut program = publish::prepared(&self.root)?;
        self.pass_or_fail("a program that depends on the packages", &mut program)
    }

    /// Targets that the tests do not run on: other operating systems and processors, and none.
    pub(crate) fn targets(&mut self) -> Result<()> {
        self.no_std()?;
        let packages = publish::published(&self.root)?;
        for target in toolchain::FOREIGN_TARGETS {
            let name = format!("the published packages for {target}");
            if let Err(why) = toolchain::prepare_target(&self.root, target) {
                self.tally.skip(&name, &why);
                continue;
            }
            let mut command = cargo(&self.root, &["check", "--all-features", "--target", target]);
            for package in &packages {
                command.args(["-p", &package.name]);
            }
            self.pass_or_fail(&name, command.env("RUSTFLAGS", "-D warnings"))?;
        }
        self.each_feature(&packages)
    }

    /// The published packages with each of their features alone, by the oldest compiler that they
    /// promise to build with.
    fn each_feature(&mut self, packages: &[publish::Package]) -> Result<()> {
        let name = "each feature alone, by the oldest compiler";
        let ready = packages
            .iter()
            .try_for_each(|package| toolchain::prepare_release(&package.rust_version))
            .and_then(|()| toolchain::cargo_hack(&cargo_target(&self.root).join("tools")));
        let program = match ready {
            Ok(program) => program,
            Err(why) => {
                self.tally.skip(name, &why);
                return Ok(());
            }
        };
        let mut command = Command::new(program);
        command.args(["hack", "check", "--each-feature", "--rust-version", "--quiet"]);
        for package in packages {
            command.args(["-p", &package.name]);
        }
        command.env("CARGO_TARGET_DIR", cargo_target(&self.root).join("oldest"));
        self.pass_or_fail(name, command.current_dir(&self.root))
    }

    fn no_std(&mut self) -> Result<()> {
        for target in toolchain::BARE_TARGETS {
            let name = format!("the engine without std for {target}");
            if let Err(why) = toolchain::prepare_target(&self.root, target) {
                self.tally.skip(&name, &why);
                continue;
            }
            let mut words = vec!["check", "--target", target];
            for package in NO_STD {
                words.extend(["-p", package]);
            }
            self.pass_or_fail(&name, &mut cargo(&self.root, &words))?;
        }
        Ok(())
    }

    /// The models of everything that threads hand over to each other.
    pub(crate) fn loom(&mut self) -> Result<()> {
        let models = loom_models(&self.root);
        if models.is_empty() {
            self.tally.skip("loom models", "no crate has one");
        }
        let preemptions = if self.long { "4" } else { "3" };
        for (package, modules) in models {
            let mut words = vec!["test", "--release", "--lib", "-p", &package, "--"];
            // Other tests would run outside of a model.
            words.extend(modules.iter().map(String::as_str));
            let mut command = cargo(&self.root, &words);
            command
                .env("RUSTFLAGS", "--cfg loom")
                .env("CARGO_PROFILE_RELEASE_LTO", "off")
                .env("CARGO_TARGET_DIR", cargo_target(&self.root).join("loom"))
                .env("LOOM_MAX_PREEMPTIONS", preemptions);
            self.counted(&format!("loom models of {package}"), &mut command)?;
        }
        Ok(())
    }

    /// The swarm of the simulator, in a build in which the engine checks its invariants.
    pub(crate) fn sim(&mut self) -> Result<()> {
        let runs = if self.long { "100000" } else { "2000" };
        let words = ["run", "-p", "plimsoll-cli", "--", "sim", "swarm", "--all-reached"];
        let mut command = cargo(&self.root, &words);
        command.args(["--runs", runs]);
        self.pass_or_fail("the swarm of the simulator", &mut command)?;
        let words = ["run", "-p", "plimsoll-cli", "--", "sim", "swarm", "--plain"];
        let mut command = cargo(&self.root, &words);
        command.args(["--runs", runs]);
        self.pass_or_fail("the swarm of small scenarios", &mut command)?;
        if self.long {
            swarm_mutants::step(&self.root, &mut self.tally)?;
        }
        Ok(())
    }

    pub(crate) fn interop(&mut self) -> Result<()> {
        let what = "tests against the host kernel";
        if let Err(why) = packages::kernel_tests(&packages::all_programs()) {
            self.tally.skip(what, &why);
            return Ok(());
        }
        packages::wish();
        if !build_interop(&self.root)? {
            self.tally.fail("building the tests against the host kernel");
            return Ok(());
        }
        for _ in 0..if self.long { 5 } else { 1 } {
            let mut command = Command::new(interop_program(&self.root));
            self.counted(what, command.current_dir(&self.root))?;
        }
        parity::step(&self.root, &mut self.tally)
    }

    pub(crate) fn fuzz(&mut self) -> Result<()> {
        self.seeds()?;
        match self.ready_for_fuzz() {
            Ok(nightly) => {
                let plan = if self.long { Plan::Search(1200) } else { Plan::Same(25) };
                fuzz::run(&self.root, &nightly, plan, &mut self.tally)
            }
            Err(why) => {
                self.tally.skip("fuzz targets", &why);
                Ok(())
            }
        }
    }

    /// The engine beside itself, under scripts that have numbers.
    fn seeds(&mut self) -> Result<()> {
        let target = cargo_target(&self.root).join("differential");
        let package = ["--manifest-path", "fuzz/Cargo.toml", "-p", "plimsoll-differential"];
        let mut tests = cargo(&self.root, &["test", "--release"]);
        tests.args(package).env("CARGO_TARGET_DIR", &target);
        self.counted("tests of the comparison of connections", &mut tests)?;
        let seeds = if self.long { "0..300000" } else { "0..30000" };
        let mut command = cargo(&self.root, &["run", "--quiet", "--release"]);
        command.args(package).args(["--", "--seeds", seeds]).env("CARGO_TARGET_DIR", &target);
        self.pass_or_fail(&format!("two connections under scripts {seeds}"), &mut command)
    }

    /// The compiler for the fuzz targets, or why they cannot run.
    fn ready_for_fuzz(&self) -> Result<String, String> {
        if fuzz::targets(&self.root).is_empty() {
            return Err("there are none in fuzz/Cargo.toml".into());
        }
        if !self.fuzz {
            return Err("they run as root, in CI, or with --fuzz".into());
        }
        if !packages::has_cxx() {
            packages::install(&["g++"])
                .map_err(|error| format!("libFuzzer needs a C++ compiler: {error:#}"))?;
        }
        toolchain::nightly(&self.root, &[])
    }

    /// Licences and sources of the dependencies. What only cargo-deny sees, as advisories, is for
    /// `nightly`: it changes while the tree does not.
    pub(crate) fn licences(&mut self) -> Result<()> {
        licences::check(&self.root)?;
        self.tally.pass();
        if !self.long {
            return Ok(());
        }
        if !licences::deny_installed() {
            let mut install = cargo(&self.root, &licences::INSTALL_DENY);
            if !shell::build(&mut install)?.success() {
                let why =
                    format!("it cannot be installed: cargo {}", licences::INSTALL_DENY.join(" "));
                self.tally.skip("cargo deny", &why);
                return Ok(());
            }
        }
        self.pass_or_fail("cargo deny", &mut cargo(&self.root, &["deny", "check"]))
    }
}

/// cargo in the root of the repository.
fn cargo(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(root);
    if in_ci() {
        // Nothing is built twice there, so that what a second build could use is wasted time.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// cargo for the servers of `bench peers`, in the folder in which `bench peers` builds them too.
fn cargo_of_peers(root: &Path, word: &str) -> Command {
    let mut command = cargo(root, &[word, "--locked", "--manifest-path", PEERS]);
    command.env("CARGO_TARGET_DIR", cargo_target(root).join("peers"));
    command
}

/// Where cargo puts what it builds.
pub(crate) fn cargo_target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Packages with models, and the modules that hold them.
fn loom_models(root: &Path) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for name in ["buf", "tcp", "stack", "plimsoll"] {
        let source = root.join("crates").join(name).join("src");
        let mut modules = Vec::new();
        models_below(&source, "", &mut modules);
        let package = if name == "plimsoll" { name.into() } else { format!("plimsoll-{name}") };
        if !modules.is_empty() {
            found.push((package, modules));
        }
    }
    found
}

/// The paths of modules whose files run a model.
fn models_below(folder: &Path, prefix: &str, modules: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            models_below(&entry.path(), &format!("{prefix}{name}::"), modules);
        } else if std::fs::read_to_string(entry.path()).is_ok_and(|t| t.contains("loom::model")) {
            let stem = name.trim_end_matches(".rs");
            let own = if stem == "mod" { String::new() } else { format!("{stem}::") };
            modules.push(format!("{prefix}{own}"));
        }
    }
}

pub(crate) fn build_interop(root: &Path) -> Result<bool> {
    build(root, &["-p", "plimsoll-cli", "-p", "plimsoll-interop"])
}

/// The web server that runs beside the program of the tests. It is built apart, so that what is
/// measured without it is built without its features.
pub(crate) fn build_web(root: &Path) -> Result<bool> {
    build(root, &["-p", "plimsoll-web"])
}

fn build(root: &Path, packages: &[&str]) -> Result<bool> {
    let mut command = cargo(root, &["build", "--release"]);
    Ok(shell::build(command.args(packages))?.success())
}

pub(crate) fn interop_program(root: &Path) -> PathBuf {
    cargo_target(root).join("release/plimsoll-interop")
}

/// The comparison of web servers, which needs a server and a client of its own.
pub(crate) fn bench_web(root: &Path, args: &[String]) -> Result<()> {
    packages::kernel_tests(&["ip", "wrk"]).map_err(Error::msg)?;
    if !build_web(root)? {
        bail!("building the web server failed");
    }
    bench(root, args)
}

/// The comparison of UDP, for which the program with async sockets is the one that speaks QUIC.
pub(crate) fn bench_udp(root: &Path, args: &[String]) -> Result<()> {
    if !build_web(root)? {
        bail!("building the program that speaks QUIC failed");
    }
    bench(root, args)
}

/// The measurements of `cargo xtask bench` that run in the program of the tests.
pub(crate) fn bench(root: &Path, args: &[String]) -> Result<()> {
    let words: Vec<&str> =
        std::iter::once("bench").chain(args.iter().map(String::as_str)).collect();
    run_interop(root, &words)
}

/// `cargo xtask interop`: only the tests against the host kernel.
pub(crate) fn interop_only(root: &Path, args: &[String]) -> Result<()> {
    run_interop(root, &args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn run_interop(root: &Path, words: &[&str]) -> Result<()> {
    packages::kernel_tests(&packages::all_programs()).map_err(Error::msg)?;
    packages::wish();
    if !build_interop(root)? {
        bail!("building failed");
    }
    // In a group of its own, which is ended when this program is interrupted.
    let mut command = Command::new(interop_program(root));
    if !shell::run(command.args(words), LONG, |_| {})?.success() {
        bail!("plimsoll-interop failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Suite;

    fn session(strict: bool, skip: &[&str]) -> Session {
        Session {
            root: PathBuf::new(),
            tally: Tally::new(strict),
            skip: skip.iter().map(ToString::to_string).collect(),
            fuzz: false,
            long: false,
        }
    }

    fn suite(name: &'static str, run: fn(&mut Session) -> Result<()>) -> Suite {
        Suite { name, minutes: 60, long_minutes: 60, run }
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
        let unknown = ["--skip".to_string(), "units".to_string()];
        assert!(Session::new(PathBuf::new(), &unknown, false).is_err());
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
