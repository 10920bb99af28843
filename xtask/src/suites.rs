//! The suites: `cargo xtask test` runs the first part of the table, `cargo xtask nightly` the
//! second, and `cargo xtask check NAME` one alone.
//!
//! A suite that is over its budget fails by name. A budget is at least twice what its tests take on
//! two processors, so that it ends what hangs and not what is slow. It does not count builds and
//! fetches.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::changes::Package;
use crate::fuzz;
use crate::session::{Session, cargo, cargo_target, interop_program, plimsoll_program};
use crate::{
    changes, drills, instructions, mutants, outside, packages, parity, shell, tidy, toolchain,
};

/// The workspace of the servers of `bench peers`.
const PEERS: &str = "bench/peers/Cargo.toml";

/// The workspace of the fuzz targets.
const FUZZ: &str = "fuzz/Cargo.toml";

/// The packages of [`PEERS`] that must build: without them there is nothing to compare. Each of the
/// others needs another stack, and is left out where that does not build.
const OWN_PEERS: [&str; 6] = ["-p", "peer-common", "-p", "peer-kernel", "-p", "peer-ours"];

/// Packages that must build without std.
const NO_STD: [&str; 3] = ["plimsoll-buf", "plimsoll-wire", "plimsoll-tcp"];

/// One part of the whole.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The minutes that it may take, without builds.
    pub(crate) minutes: u64,
    pub(crate) run: fn(&mut Session) -> Result<()>,
}

/// A suite of `nightly`, and the paths whose change it is about.
pub(crate) struct Nightly {
    pub(crate) suite: Suite,
    pub(crate) touched_by: &'static [&'static str],
}

const fn suite(
    name: &'static str,
    minutes: u64,
    run: fn(&mut Session) -> Result<()>,
    about: &'static str,
) -> Suite {
    Suite { name, about, minutes, run }
}

const fn nightly(
    name: &'static str,
    minutes: u64,
    run: fn(&mut Session) -> Result<()>,
    touched_by: &'static [&'static str],
    about: &'static str,
) -> Nightly {
    Nightly { suite: suite(name, minutes, run, about), touched_by }
}

/// The suites of `test`: what finds regressions. Quick ones come first, and those that build the
/// same things follow each other.
pub(crate) const TEST: [Suite; 11] = [
    suite(
        "prepare",
        6,
        |_| packages::prepare(false),
        "installs the Debian packages that are missing",
    ),
    suite("tidy", 1, Session::tidy, "the habits of CONTRIBUTING.md that a script can check"),
    suite("format", 1, Session::format, "cargo fmt --check"),
    suite(
        "clippy",
        1,
        Session::clippy,
        "clippy on libraries, programs and tests; warnings are errors",
    ),
    suite("rustdoc", 1, Session::rustdoc, "documentation, private items too; warnings are errors"),
    suite(
        "unit",
        8,
        Session::unit,
        "unit, integration and documentation tests; replay of fuzz corpora",
    ),
    suite("loom", 5, |s| s.loom("3"), "models of data that threads share, with three preemptions"),
    suite(
        "drill",
        5,
        |s| drills::step(s, true),
        "packetdrill scripts, twice; as root on the host kernel too",
    ),
    suite("swarm", 4, |s| s.swarm("2000"), "2,000 simulated networks, and as many small scenarios"),
    suite("interop", 11, Session::interop, "the host kernel's sockets and programs, in namespaces"),
    suite("instructions", 3, instructions::step, "instructions of hot paths, by valgrind"),
];

/// The suites of `nightly`: packaging, tests of other projects, and searches for new faults.
pub(crate) const NIGHTLY: [Nightly; 18] = [
    nightly(
        "prepare-nightly",
        20,
        |_| packages::prepare(true),
        &[],
        "installs further Debian packages",
    ),
    nightly(
        "licences",
        20,
        Session::licences,
        &["Cargo.lock", "bench/peers/Cargo.lock", "fuzz/Cargo.lock", "deny.toml"],
        "cargo deny",
    ),
    nightly(
        "lint-more",
        3,
        Session::lint_more,
        &["bench/", "fuzz/", "crates/drill/examples/", "crates/plimsoll/examples/", "examples/"],
        "clippy on examples, fuzz targets and the servers of bench peers, and their tests",
    ),
    nightly(
        "publish",
        3,
        Session::publish,
        &["Cargo.toml", "crates/plimsoll/Cargo.toml", "crates/stack/Cargo.toml"],
        "cargo publish --dry-run: the crates build from their packages",
    ),
    nightly(
        "targets",
        6,
        Session::targets,
        &["crates/buf/", "crates/wire/", "crates/tcp/", "crates/stack/", "crates/plimsoll/"],
        "other systems and processors, no std, each feature alone, the oldest compiler",
    ),
    nightly(
        "tokio",
        8,
        |s| {
            s.counted_or_skipped("tokio's tests of its sockets", |root| {
                outside::TOKIO.prepared(root)
            })
        },
        &["crates/plimsoll/src/", "crates/stack/src/"],
        "tokio's own tests of its sockets, on ours",
    ),
    nightly(
        "facades",
        20,
        Session::facades,
        &["compat/", "crates/plimsoll/src/", "crates/stack/src/"],
        "tests of published packages, on the crates of compat/",
    ),
    nightly(
        "quinn",
        8,
        |s| {
            s.counted_or_skipped("quinn's tests, on our UDP sockets", |root| {
                outside::QUINN.prepared(root)
            })
        },
        &["crates/plimsoll/src/", "crates/stack/src/stack/udp/", "crates/stack/src/sockets/udp/"],
        "quinn's own tests, on our UDP sockets",
    ),
    nightly(
        "h2",
        20,
        |s| s.counted_or_skipped("HTTP/2 on our sockets and the kernel's", outside::h2::prepared),
        &["crates/plimsoll/src/net/", "tests/web/"],
        "h2spec and h2load on our sockets and on the kernel's",
    ),
    nightly(
        "programs",
        8,
        Session::programs,
        &["crates/gateway/", "tests/src/cases/run/"],
        "PostgreSQL, a static Go program, npm, cargo and Python's socket tests in plimsoll run",
    ),
    nightly(
        "slirp4netns",
        5,
        Session::slirp4netns,
        &["crates/gateway/", "crates/cli/src/run/"],
        "slirp4netns's own test scripts, on plimsoll run --attach",
    ),
    nightly(
        "optimised",
        40,
        Session::optimised,
        &["crates/tcp/src/", "crates/stack/src/", "crates/buf/", "crates/wire/"],
        "tests in a release build, 5,000 new cases for each property, 30,000 scripts of two engines",
    ),
    nightly(
        "loom-deep",
        60,
        |s| s.loom("4"),
        &["crates/buf/src/", "crates/stack/src/"],
        "the loom models with four preemptions",
    ),
    nightly(
        "miri",
        90,
        Session::miri,
        &["crates/buf/", "crates/wire/", "crates/tcp/"],
        "buffers with 16 seeds; headers and engine as 32-bit and big-endian processors",
    ),
    nightly(
        "fuzz",
        125,
        Session::fuzz,
        &["fuzz/", "crates/"],
        "each fuzz target for five minutes, with an address sanitizer",
    ),
    nightly(
        "parity",
        10,
        Session::parity,
        &["crates/tcp/src/send/", "crates/tcp/src/congestion/", "crates/drill/examples/parity/"],
        "decisions of loss recovery under generated losses, compared with the kernel's",
    ),
    nightly(
        "swarm-long",
        60,
        |s| s.swarm("20000"),
        &["crates/tcp/src/", "crates/stack/src/", "crates/sim/"],
        "20,000 simulated networks, and as many small scenarios",
    ),
    nightly(
        "mutants",
        160,
        mutants::step,
        &["tests/", "crates/tcp/src/", "crates/stack/src/", "crates/sim/", "crates/lab/"],
        "seeded defects that the swarm, a script or an experiment of the lab must show",
    ),
];

/// All suites, those of `test` first.
pub(crate) fn all() -> impl Iterator<Item = &'static Suite> {
    TEST.iter().chain(NIGHTLY.iter().map(|nightly| &nightly.suite))
}

impl Session {
    pub(crate) fn tidy(&mut self) -> Result<()> {
        tidy::run(&self.root, &[])?;
        self.tally.pass();
        Ok(())
    }

    pub(crate) fn format(&mut self) -> Result<()> {
        let mut command = cargo(&self.root, &["fmt", "--all", "--", "--check"]);
        self.pass_or_fail("cargo fmt --check", &mut command)
    }

    pub(crate) fn clippy(&mut self) -> Result<()> {
        let words = ["clippy", "--workspace", "--all-features", "--lib", "--bins", "--tests"];
        let mut command = cargo(&self.root, &words);
        self.pass_or_fail("cargo clippy", command.args(STRICT))?;
        // Without its features the library has less to be used by.
        let mut plain = cargo(&self.root, &["clippy", "-p", "plimsoll", "--lib"]);
        self.pass_or_fail("cargo clippy of the library without features", plain.args(STRICT))
    }

    fn rustdoc(&mut self) -> Result<()> {
        let words = ["doc", "--workspace", "--no-deps", "--document-private-items"];
        let mut command = cargo(&self.root, &words);
        command.arg("--all-features");
        self.pass_or_fail("cargo doc", command.env("RUSTDOCFLAGS", "-D warnings"))
    }

    /// The tests of all packages; where the machine can run them, also those that need root.
    fn unit(&mut self) -> Result<()> {
        if !self.build_tests()? {
            return Ok(());
        }
        let mut command = cargo(&self.root, &["test", "--lib", "--bins", "--tests"]);
        command.args(PACKAGES);
        // The same cases each time: what one change has passed does not fail the next.
        command.args(["--no-fail-fast"]).args(harness()).env("PROPTEST_RNG_SEED", "1");
        self.counted("cargo test --workspace", &mut command)?;
        let mut command = cargo(&self.root, &["test", "--doc"]);
        // Building and running are one step here.
        self.run_counted("examples of the documentation", command.args(PACKAGES).args(harness()))
    }

    /// Builds all that `unit`, `drill`, `swarm` and `interop` run, at once and with one profile.
    pub(crate) fn build_tests(&mut self) -> Result<bool> {
        if self.built {
            return Ok(true);
        }
        let mut command = cargo(&self.root, &["build", "--lib", "--bins", "--tests"]);
        self.built = shell::build(command.args(PACKAGES))?.success();
        if !self.built {
            self.tally.fail("the tests do not build");
        }
        Ok(self.built)
    }

    /// The models of data that threads hand to each other.
    fn loom(&mut self, preemptions: &str) -> Result<()> {
        for (package, modules) in loom_models(&self.root) {
            let mut command = cargo(&self.root, &["test", "--lib", "-p", &package, "--"]);
            command
                // Other tests would run outside of a model.
                .args(&modules)
                .env("RUSTFLAGS", "--cfg loom")
                // They take longer to build than to check.
                .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
                .env("CARGO_TARGET_DIR", cargo_target(&self.root).join("loom"))
                .env("LOOM_MAX_PREEMPTIONS", preemptions);
            self.counted(&format!("loom models of {package}"), &mut command)?;
        }
        Ok(())
    }

    /// The swarm of the simulator, in a build in which the engine checks its invariants.
    pub(crate) fn swarm(&mut self, runs: &str) -> Result<()> {
        if !self.build_tests()? {
            return Ok(());
        }
        // A few seeds do not reach every rare branch.
        let networks: &[&str] = if runs == SMALL_SWARM { &[] } else { &["--all-reached"] };
        for (what, options) in [("networks", networks), ("small scenarios", &["--plain"])] {
            let mut command = Command::new(plimsoll_program(&self.root));
            command.args(["sim", "swarm", "--runs", runs]).args(options).current_dir(&self.root);
            self.pass_or_fail(&format!("the swarm of {what}"), &mut command)?;
        }
        Ok(())
    }

    fn interop(&mut self) -> Result<()> {
        let what = "tests against the host kernel";
        let ready = packages::kernel_tests(&packages::all_programs());
        let Some(()) = self.needed(what, ready) else { return Ok(()) };
        packages::wish();
        if !self.build_tests()? {
            return Ok(());
        }
        let mut command = Command::new(interop_program(&self.root));
        self.counted(what, command.current_dir(&self.root))
    }

    /// The tests of `interop` whose programs are large.
    fn programs(&mut self) -> Result<()> {
        let what = "large programs in plimsoll run";
        let needed = [&packages::all_programs()[..], &["go", "pg_ctlcluster"]].concat();
        let ready = packages::kernel_tests(&needed).and_then(|()| packages::python_tests());
        let Some(()) = self.needed(what, ready) else { return Ok(()) };
        if !self.build_tests()? {
            return Ok(());
        }
        let mut command = Command::new(interop_program(&self.root));
        command.args(["run::static_go", "run::pgbench", "run::python"]);
        self.counted(what, command.current_dir(&self.root))
    }

    fn slirp4netns(&mut self) -> Result<()> {
        if !self.build_tests()? {
            return Ok(());
        }
        let what = "slirp4netns's test scripts";
        self.counted_or_skipped(what, outside::slirp4netns::prepared)
    }

    /// A tool that tests need. If it cannot be had, they are skipped.
    fn needed<T>(&mut self, tests: &str, tool: Result<T, String>) -> Option<T> {
        tool.map_err(|why| self.tally.skip(tests, &why)).ok()
    }

    /// Licences, sources, versions and advisories of the dependencies; of those of the other
    /// workspaces, the sources.
    fn licences(&mut self) -> Result<()> {
        let program = toolchain::tool(&self.root, toolchain::CARGO_DENY);
        let Some(program) = self.needed("cargo deny", program) else { return Ok(()) };
        for (manifest, what) in [("Cargo.toml", "all"), (PEERS, "sources"), (FUZZ, "sources")] {
            let mut command = Command::new(&program);
            command.arg("--manifest-path").arg(self.root.join(manifest));
            command.arg("--config").arg(self.root.join("deny.toml"));
            command.args(["--locked", "check", what]);
            self.pass_or_fail(&format!("cargo deny check {what} of {manifest}"), &mut command)?;
        }
        Ok(())
    }

    fn lint_more(&mut self) -> Result<()> {
        let words = ["clippy", "--workspace", "--all-features", "--all-targets"];
        self.pass_or_fail("cargo clippy of examples", cargo(&self.root, &words).args(STRICT))?;
        let others = PACKAGES.iter().filter(|word| word.starts_with("plimsoll"));
        let mut tests = cargo(&self.root, &["test"]);
        others.for_each(|package| _ = tests.args(["-p", package]));
        self.counted("cargo test of benchmarks and an example", &mut tests)?;
        let mut format = cargo(&self.root, &["fmt", "--manifest-path", PEERS, "--all"]);
        self.pass_or_fail("cargo fmt --check of bench/peers", format.args(["--", "--check"]))?;
        let of_peers = |word: &str| {
            let mut command = cargo(&self.root, &[word, "--locked", "--manifest-path", PEERS]);
            command.env("CARGO_TARGET_DIR", cargo_target(&self.root).join("peers"));
            command.args(OWN_PEERS);
            command
        };
        let (mut clippy, mut tests) = (of_peers("clippy"), of_peers("test"));
        let clippy = clippy.arg("--all-targets").args(STRICT);
        self.pass_or_fail("cargo clippy of the servers of bench peers", clippy)?;
        self.counted("cargo test of the servers of bench peers", &mut tests)?;
        let what = "cargo clippy of the fuzz targets";
        let Some(()) = self.needed(what, packages::cxx()) else { return Ok(()) };
        let words = ["clippy", "--locked", "--all-targets", "--manifest-path", FUZZ];
        let mut fuzz = cargo(&self.root, &words);
        fuzz.env("CARGO_TARGET_DIR", cargo_target(&self.root).join("fuzz-clippy"));
        self.pass_or_fail(what, fuzz.args(STRICT))
    }

    /// Packages what is published, and builds it from the packages.
    fn publish(&mut self) -> Result<()> {
        let words = ["publish", "--workspace", "--all-features", "--dry-run", "--allow-dirty"];
        let mut command = cargo(&self.root, &words);
        command.env("CARGO_TARGET_DIR", cargo_target(&self.root).join("publish"));
        self.pass_or_fail("cargo publish --dry-run", &mut command)
    }

    /// Targets that the tests do not run on: other operating systems and processors, and none.
    fn targets(&mut self) -> Result<()> {
        let packages = changes::packages(&self.root)?;
        let packages: Vec<_> = packages.iter().filter(|package| package.published).collect();
        let published: Vec<&str> = packages.iter().map(|package| &*package.name).collect();
        let bare = toolchain::BARE_TARGETS.map(|target| (target, &NO_STD[..], "check"));
        let foreign = toolchain::FOREIGN_TARGETS.map(|target| (target, &*published, "all"));
        for (target, packages, kind) in bare.into_iter().chain(foreign) {
            let name = format!("the published packages for {target}");
            if let Err(why) = toolchain::prepare_target(&self.root, target) {
                self.tally.skip(&name, &why);
                continue;
            }
            let mut command = cargo(&self.root, &["check", "--target", target]);
            if kind == "all" {
                command.arg("--all-features");
            }
            packages.iter().for_each(|package| _ = command.args(["-p", package]));
            self.pass_or_fail(&name, command.env("RUSTFLAGS", "-D warnings"))?;
        }
        self.each_feature(&packages)
    }

    /// The published packages with each of their features alone, by the oldest compiler that they
    /// promise to build with.
    fn each_feature(&mut self, packages: &[&Package]) -> Result<()> {
        let name = "each feature alone, by the oldest compiler";
        let ready = packages
            .iter()
            .try_for_each(|package| toolchain::prepare_release(&package.rust_version))
            .and_then(|()| toolchain::tool(&self.root, toolchain::CARGO_HACK));
        let Some(program) = self.needed(name, ready) else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(["hack", "check", "--each-feature", "--rust-version", "--quiet"]);
        packages.iter().for_each(|package| _ = command.args(["-p", &package.name]));
        command.env("CARGO_TARGET_DIR", cargo_target(&self.root).join("oldest"));
        self.pass_or_fail(name, command.current_dir(&self.root))
    }

    fn facades(&mut self) -> Result<()> {
        for (name, command) in outside::facades::prepared(&self.root)? {
            self.counted_or_skipped(&name, |_| Ok(command))?;
        }
        Ok(())
    }

    /// The unit tests with the optimiser, and with many more cases where a test makes them up.
    fn optimised(&mut self) -> Result<()> {
        let words = ["test", "--workspace", "--all-features", "--no-fail-fast", "--release"];
        let mut command = cargo(&self.root, &words);
        command.args(["--lib", "--tests"]).args(harness()).env("PROPTEST_CASES", "5000");
        command.env("PLIMSOLL_SCRIPTS", "30000");
        self.counted("cargo test --workspace --release", &mut command)
    }

    fn fuzz(&mut self) -> Result<()> {
        let nightly = packages::cxx().and_then(|()| toolchain::nightly(&self.root, &[]));
        let Some(nightly) = self.needed("fuzz targets", nightly) else { return Ok(()) };
        fuzz::run(&self.root, &nightly, &mut self.tally)
    }

    fn parity(&mut self) -> Result<()> {
        let mut tests = cargo(&self.root, &["test", "-p", "plimsoll-drill", "--examples"]);
        self.counted("tests of the examples of drill", &mut tests)?;
        parity::step(&self.root, &mut self.tally)
    }
}

const STRICT: [&str; 3] = ["--", "-D", "warnings"];

/// The packages that are built once for all suites of `test` that run them. The other members are
/// benchmarks and an example, which `lint-more` tests.
pub(crate) const PACKAGES: [&str; 8] = [
    "--workspace",
    "--all-features",
    "--exclude",
    "plimsoll-bench",
    "--exclude",
    "plimsoll-example-hickory",
    "--exclude",
    "plimsoll-web",
];

/// The seeds of `check`.
pub(crate) const SMALL_SWARM: &str = "200";

/// The words for the test harness: with the tests that need root, if they can be run.
pub(crate) fn harness() -> &'static [&'static str] {
    match packages::kernel_tests(&["ip"]) {
        Ok(()) => &["--", "--include-ignored"],
        Err(why) => {
            println!("tests that need root are ignored: {why}");
            &["--"]
        }
    }
}

/// Packages with models, and the modules that hold them.
fn loom_models(root: &Path) -> Vec<(String, Vec<String>)> {
    let packages = ["buf", "tcp", "stack", "plimsoll"].map(|name| {
        let mut modules = Vec::new();
        models_below(&root.join("crates").join(name).join("src"), "", &mut modules);
        (if name == "plimsoll" { name.into() } else { format!("plimsoll-{name}") }, modules)
    });
    packages.into_iter().filter(|(_, modules)| !modules.is_empty()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_of_test_fit_into_continuous_integration() {
        let all: u64 = TEST.iter().map(|suite| suite.minutes).sum();
        assert!(all < 90, "{all} minutes");
    }

    #[test]
    fn paths_of_the_table_exist() {
        let files = crate::tree::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
        for nightly in &NIGHTLY {
            for path in nightly.touched_by {
                let there = files.keys().any(|file| file.starts_with(path));
                assert!(there, "{}: {path}", nightly.suite.name);
            }
        }
    }
}
