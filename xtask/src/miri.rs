//! Tests under Miri: `cargo xtask miri --foreign [--shard K/N] [PACKAGE]...`, and the suite.
//!
//! Miri sees undefined behaviour, and it plays processors that this machine is not like: one with
//! 32 bits, and one with the other order of bytes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};

use crate::steps::Session;
use crate::{shell, toolchain};

/// More than a list of tests takes.
const LIST_LIMIT: Duration = Duration::from_secs(1800);

/// The package with unsafe code among those that Miri runs.
const UNSAFE_PACKAGE: &str = "plimsoll-buf";

/// What Miri plays that this machine is not: 32 bits, and the other order of bytes.
const MIRI_TARGETS: [(&str, &str); 2] =
    [("i686-unknown-linux-gnu", "32 bits"), ("s390x-unknown-linux-gnu", "big-endian")];

/// The tests that nightly runs so, by parts of their names; all where there are none. Of the engine
/// those that look at numbers and layouts, and one of every kind of trace: Miri is a thousand times
/// slower.
const MIRI_TESTS: [(&str, &[&str]); 3] = [
    ("plimsoll-buf", &[]),
    ("plimsoll-wire", &[]),
    (
        "plimsoll-tcp",
        &[
            "time::",
            "timer::",
            "counters::",
            "handshake::isn",
            "handshake::syn_cookie::tests::everything",
            "recv::receive_queue",
            "recv::sack_blocks",
            "send::retransmit_queue",
            "send::units",
            "send::recovery::prr",
            "output::refusal_tests::a_full_queue",
        ],
    ),
];

/// Tests of a whole pass in one process. Miri hardly gives out an address twice, and one with 32
/// bits had none left after 467 of the engine's.
const TESTS_AT_ONCE: usize = 150;

/// Tests of the engine that even a whole pass leaves out, by parts of their names: those that take
/// more than about 20 ms without Miri, under which they would take many minutes each. They send
/// megabytes through bottlenecks and bad paths; the state behind them has short tests beside them.
const MIRI_ENDLESS: [&str; 21] = [
    "congestion::bbr::cases",
    "congestion::bbr::properties",
    "congestion::bbr::scenarios",
    "congestion::response_tests",
    "connection::tests::a_bad_path",
    "connection::tests::everything_holds_over_more_than_4_gib",
    "connection::tests::nothing_breaks_the_invariants",
    "ecn::accurate::tests::both_ends_agree_on_what_was_marked",
    "input::ack::tests::lossy_paths_are_survived_in_bounded_time",
    "input::tests::tiny_segments_out_of_order_do_not_bind_much_memory",
    "output::tests::every_mss",
    "output::tests::megabytes",
    "output::tests::settings_of_all_kinds",
    "output::tests::transfers_end_on_every_path",
    "recv::ack_defer::tests::nothing_is_ever_forgotten",
    "recv::memory::tests::everything_arrives_however_short_memory_is",
    "recv::reassembly::tests::bounded_number_of_ranges",
    "recv::reassembly::tests::taking_out_costs_what_is_taken",
    "recv::reassembly::tests::what_a_segment_costs_does_not_grow_with_the_ranges",
    "send::scoreboard::adversary",
    "testing::below::a_slow_device_meets_every_hold",
];

impl Session {
    /// Tests under Miri: those of the buffers, since it sees undefined behaviour; nightly those of
    /// headers and engine, too, as processors run them that this machine is not like.
    pub(crate) fn miri(&mut self) -> Result<()> {
        let nightly = match toolchain::nightly(&self.root, &["miri", "rust-src"]) {
            Ok(nightly) => nightly,
            Err(why) => {
                self.tally.skip("tests under Miri", &why);
                return Ok(());
            }
        };
        let mut command = miri(&self.root, &nightly, UNSAFE_PACKAGE);
        if self.long {
            // Orders of threads, addresses: another world for each seed.
            command.env("MIRIFLAGS", "-Zmiri-many-seeds=0..16");
        }
        self.counted("plimsoll-buf under Miri", &mut command)?;
        if !self.long {
            return Ok(());
        }
        for foreign in MIRI_TARGETS {
            for (package, tests) in MIRI_TESTS {
                let mut command = foreign_miri(&self.root, &nightly, package, foreign);
                let name = format!("{package} under Miri, {}", foreign.1);
                self.counted(&name, command.args(tests))?;
            }
        }
        Ok(())
    }

    /// The tests of buffers, headers and engine as processors run them that this machine is not
    /// like: those of `shard`, but for those that would not come to an end.
    fn miri_foreign(&mut self, packages: &[String], shard: Shard) -> Result<()> {
        let root = self.root.clone();
        let nightly = toolchain::nightly(&root, &["miri", "rust-src"]).map_err(Error::msg)?;
        for foreign in MIRI_TARGETS {
            for (package, _) in MIRI_TESTS {
                if !packages.is_empty() && !packages.iter().any(|wanted| wanted == package) {
                    continue;
                }
                let command = || foreign_miri(&root, &nightly, package, foreign);
                let all = listed(command().arg("--list"))?;
                ensure!(!all.is_empty(), "{package} under Miri, {}: no test is listed", foreign.1);
                for tests in shard.of_those(&all).chunks(TESTS_AT_ONCE) {
                    let mut command = command();
                    command.arg("--exact").args(tests);
                    let (from, kind) = (tests[0], foreign.1);
                    self.counted(
                        &format!("{package} under Miri, {kind}, from {from}"),
                        &mut command,
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// One of several parts of the tests, for runs side by side: Miri uses one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    /// From 1 on.
    number: usize,
    of: usize,
}

impl Shard {
    const ALL: Shard = Shard { number: 1, of: 1 };

    /// `2/3` is the second of three.
    fn parse(text: &str) -> Result<Shard> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        let shard = numbers.filter(|shard| (1..=shard.of).contains(&shard.number));
        shard.with_context(|| format!("--shard wants a number of how many, as 1/2, not {text}"))
    }

    /// Its part of `tests`, without those that would not come to an end.
    fn of_those(self, tests: &[String]) -> Vec<&String> {
        let ends = |test: &&String| !MIRI_ENDLESS.iter().any(|part| test.contains(part));
        tests.iter().filter(ends).skip(self.number - 1).step_by(self.of).collect()
    }
}

/// The names of tests that `command`, a test program with `--list`, prints.
fn listed(command: &mut Command) -> Result<Vec<String>> {
    let output = shell::output(command, LIST_LIMIT)?.context("the list of tests took too long")?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The library's tests of a package under Miri.
fn miri(root: &Path, nightly: &str, package: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", nightly, "cargo", "miri", "test", "--lib", "-p", package])
        .current_dir(root)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    if package == UNSAFE_PACKAGE {
        // Without it there are no slabs.
        command.args(["--features", "std"]);
    }
    command
}

/// The same as another processor runs them. What is added behind it are words for the test harness.
fn foreign_miri(root: &Path, nightly: &str, package: &str, (target, _): (&str, &str)) -> Command {
    let mut command = miri(root, nightly, package);
    // Where it keeps what failed, proptest asks the system for.
    let mut flags = String::from("-Zmiri-disable-isolation");
    if package != UNSAFE_PACKAGE {
        // They forbid unsafe code, so there is nothing of that to find, and it costs most.
        flags += " -Zmiri-disable-stacked-borrows -Zmiri-disable-validation \
                  -Zmiri-disable-alignment-check -Zmiri-disable-data-race-detector";
    }
    command.args(["--target", target, "--"]);
    command.env("MIRIFLAGS", flags).env("PROPTEST_CASES", "2");
    command
}

/// `cargo xtask miri`: a whole pass on the processors of [`MIRI_TARGETS`].
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let Some(("--foreign", packages)) =
        args.split_first().map(|(word, rest)| (word.as_str(), rest))
    else {
        bail!("miri wants --foreign, and takes --shard and names of packages behind it");
    };
    let (shard, packages) = match packages {
        [word, shard, packages @ ..] if word == "--shard" => (Shard::parse(shard)?, packages),
        packages => (Shard::ALL, packages),
    };
    let known = MIRI_TESTS.map(|(package, _)| package);
    if let Some(unknown) = packages.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("miri --foreign runs the tests of {}, not of {unknown}", known.join(", "));
    }
    let mut session = Session::new(root.to_path_buf(), &[], true)?;
    session.miri_foreign(packages, shard)?;
    print!("\n{}", session.tally.report());
    if session.tally.failures() > 0 {
        bail!("tests under Miri failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_parts_of_the_tests() {
        let tests: Vec<String> =
            ["a", "b", "c", "congestion::bbr::scenarios::d", "e"].map(str::to_owned).into();
        let part = |text| Shard::parse(text).unwrap().of_those(&tests);
        assert_eq!(part("1/2"), ["a", "c"]);
        assert_eq!(part("2/2"), ["b", "e"]);
        assert_eq!(Shard::ALL.of_those(&tests), ["a", "b", "c", "e"]);
        assert!(part("9/9").is_empty());
        for wrong in ["", "2", "0/2", "3/2", "1/0", "x/2"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }
}
