//! The steps of `test` and `ci`, in the order in which they run: quick ones first.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::tally::Tally;
use crate::{drills, fuzz, licences, packages, shell, tidy};

const MINUTE: Duration = Duration::from_secs(60);

/// Packages that must build without std, and the targets that prove it.
const NO_STD: [&str; 3] = ["plimsoll-buf", "plimsoll-wire", "plimsoll-tcp"];
const BARE_TARGETS: [&str; 2] = ["x86_64-unknown-none", "wasm32-unknown-unknown"];

/// One run of `test` or `ci`.
pub(crate) struct Session {
    root: PathBuf,
    tally: Tally,
    skip: Vec<String>,
    fuzz: bool,
    privileged: bool,
}

impl Session {
    pub(crate) fn new(root: PathBuf, args: &[String]) -> Result<Session> {
        let mut session = Session {
            root,
            tally: Tally::default(),
            skip: Vec::new(),
            fuzz: false,
            privileged: rustix::process::geteuid().is_root(),
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--fuzz" => session.fuzz = true,
                "--skip" => session.skip.push(words.next().context("--skip STEP")?.clone()),
                other => bail!("unknown option {other}"),
            }
        }
        session.fuzz |= session.privileged || env::var_os("CI").is_some();
        shell::end_on_signals()?;
        Ok(session)
    }

    /// Everything that is a test.
    pub(crate) fn test(mut self) -> Result<()> {
        self.tests()?;
        self.finish()
    }

    /// What a change must pass: the checks of the source, then the tests.
    pub(crate) fn ci(mut self) -> Result<()> {
        self.step("format", |s| {
            s.pass_or_fail("cargo fmt --check", &["fmt", "--all", "--", "--check"], &[])
        })?;
        self.step("clippy", |s| {
            let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            s.pass_or_fail("cargo clippy", &words, &[])
        })?;
        self.step("rustdoc", |s| {
            let words = ["doc", "--workspace", "--no-deps", "--document-private-items"];
            s.pass_or_fail("cargo doc", &words, &[("RUSTDOCFLAGS", "-D warnings")])
        })?;
        self.step("licences", Session::licences)?;
        self.tests()?;
        self.finish()
    }

    fn tests(&mut self) -> Result<()> {
        self.step("tidy", Session::tidy)?;
        self.step("unit", Session::unit)?;
        self.step("no-std", Session::no_std)?;
        self.step("loom", Session::loom)?;
        self.step("drill", |s| drills::step(&s.root, &mut s.tally))?;
        self.step("interop", Session::interop)?;
        self.step("fuzz", Session::fuzz)
    }

    fn step(&mut self, name: &str, run: fn(&mut Session) -> Result<()>) -> Result<()> {
        if self.skip.iter().any(|skip| skip == name) {
            self.tally.skip(name, "left out with --skip");
            return Ok(());
        }
        println!("\n== {name}");
        let start = Instant::now();
        run(self)?;
        println!("== {name}: {:.0?}", start.elapsed());
        Ok(())
    }

    fn finish(self) -> Result<()> {
        print!("\n{}", self.tally.report());
        if self.tally.failures() > 0 {
            bail!("not everything passed");
        }
        Ok(())
    }

    /// Runs cargo as one test of its own.
    fn pass_or_fail(&mut self, name: &str, words: &[&str], vars: &[(&str, &str)]) -> Result<()> {
        let mut command = cargo(&self.root, words);
        command.envs(vars.iter().copied());
        if shell::run(&mut command, 15 * MINUTE, |_| {})?.success() {
            self.tally.pass();
        } else {
            self.tally.fail(name);
        }
        Ok(())
    }

    /// Runs a command that speaks like Rust's test harness and counts its tests.
    fn counted(&mut self, name: &str, command: &mut Command, limit: Duration) -> Result<()> {
        let failures = self.tally.failures();
        let outcome = shell::run(command, limit, |line| self.tally.line(line))?;
        if matches!(outcome, shell::Outcome::OutOfTime) {
            self.tally.fail(&format!("{name} (still ran after {limit:?})"));
        } else if !outcome.success() && self.tally.failures() == failures {
            // It failed without naming a test: it did not build, or it crashed.
            self.tally.fail(name);
        }
        Ok(())
    }

    fn tidy(&mut self) -> Result<()> {
        match tidy::run(&self.root) {
            Ok(()) => self.tally.pass(),
            Err(error) => self.tally.fail(&format!("{error:#}")),
        }
        Ok(())
    }

    fn unit(&mut self) -> Result<()> {
        let words = ["test", "--workspace", "--no-fail-fast"];
        self.counted("cargo test --workspace", &mut cargo(&self.root, &words), 12 * MINUTE)
    }

    fn no_std(&mut self) -> Result<()> {
        let Some(target) = self.bare_target() else {
            let why = format!("no such target is installed: {}", BARE_TARGETS.join(", "));
            self.tally.skip("build without std", &why);
            return Ok(());
        };
        let mut words = vec!["build", "--target", target];
        for package in NO_STD {
            words.extend(["-p", package]);
        }
        self.pass_or_fail(&format!("build without std for {target}"), &words, &[])
    }

    fn bare_target(&self) -> Option<&'static str> {
        let there = |target: &str| {
            let mut command = Command::new("rustc");
            command.args(["--print", "target-libdir", "--target", target]);
            let out = command.current_dir(&self.root).output();
            out.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
        };
        if let Some(target) = BARE_TARGETS.into_iter().find(|target| there(target)) {
            return Some(target);
        }
        let added = self.privileged && shell::quiet("rustup", &["target", "add", BARE_TARGETS[0]]);
        (added && there(BARE_TARGETS[0])).then_some(BARE_TARGETS[0])
    }

    /// The models of everything that threads hand over to each other.
    fn loom(&mut self) -> Result<()> {
        let models = loom_models(&self.root);
        if models.is_empty() {
            self.tally.skip("loom models", "no crate has one");
        }
        for (package, modules) in models {
            let mut words = vec!["test", "--release", "--lib", "-p", &package, "--"];
            // Other tests would run outside of a model.
            words.extend(modules.iter().map(String::as_str));
            let mut command = cargo(&self.root, &words);
            command
                .env("RUSTFLAGS", "--cfg loom")
                .env("CARGO_PROFILE_RELEASE_LTO", "off")
                .env("CARGO_TARGET_DIR", cargo_target(&self.root).join("loom"))
                .env("LOOM_MAX_PREEMPTIONS", "3");
            let name = format!("loom models of {package}");
            self.counted(&name, &mut command, 6 * MINUTE)?;
        }
        Ok(())
    }

    fn interop(&mut self) -> Result<()> {
        if let Err(why) = self.ready_for_interop() {
            self.tally.skip("tests against the host kernel", &why);
            return Ok(());
        }
        if !build_interop(&self.root)? {
            self.tally.fail("building the tests against the host kernel");
            return Ok(());
        }
        let mut command = Command::new(interop_program(&self.root));
        command.current_dir(&self.root);
        self.counted("tests against the host kernel", &mut command, 12 * MINUTE)
    }

    fn ready_for_interop(&self) -> Result<(), String> {
        if !self.privileged {
            return Err("they need root, for network namespaces".into());
        }
        let missing = packages::missing();
        if !missing.is_empty() {
            packages::install(&missing).map_err(|error| format!("{error:#}"))?;
        }
        packages::wish();
        packages::tun_device()
    }

    fn fuzz(&mut self) -> Result<()> {
        let why = if fuzz::targets(&self.root).is_empty() {
            "there are none in fuzz/Cargo.toml"
        } else if !self.fuzz {
            "they run as root, in CI, or with --fuzz"
        } else if !fuzz::nightly(self.privileged) {
            "they need a nightly compiler: rustup toolchain install nightly"
        } else if !self.cxx() {
            "libFuzzer needs a C++ compiler"
        } else {
            return fuzz::run(&self.root, &mut self.tally);
        };
        self.tally.skip("fuzz targets", why);
        Ok(())
    }

    /// Whether there is a C++ compiler, after an attempt to install one.
    fn cxx(&self) -> bool {
        packages::has_cxx() || (self.privileged && packages::install(&["g++"]).is_ok())
    }

    fn licences(&mut self) -> Result<()> {
        if shell::quiet("cargo", &["deny", "--version"]) {
            return self.pass_or_fail("cargo deny", &["deny", "check"], &[]);
        }
        println!("cargo-deny is not installed: the check of xtask runs in its place");
        match licences::check(&self.root) {
            Ok(()) => self.tally.pass(),
            Err(error) => self.tally.fail(&format!("{error:#}")),
        }
        Ok(())
    }
}

/// cargo in the root of the repository.
fn cargo(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(words).current_dir(root);
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

fn build_interop(root: &Path) -> Result<bool> {
    let words = ["build", "--release", "-p", "plimsoll-cli", "-p", "plimsoll-interop"];
    Ok(shell::run(&mut cargo(root, &words), 15 * MINUTE, |_| {})?.success())
}

fn interop_program(root: &Path) -> PathBuf {
    cargo_target(root).join("release/plimsoll-interop")
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
    if !rustix::process::geteuid().is_root() {
        bail!("this needs root: it makes network namespaces and TUN devices");
    }
    let missing = packages::missing();
    if !missing.is_empty() {
        packages::install(&missing)?;
    }
    packages::wish();
    if !build_interop(root)? {
        bail!("building failed");
    }
    let status = Command::new(interop_program(root)).args(words).status();
    if !status.context("starting plimsoll-interop")?.success() {
        bail!("plimsoll-interop failed");
    }
    Ok(())
}
