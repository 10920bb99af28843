//! The suite of tests under Miri.
//!
//! Miri sees undefined behaviour, and it plays processors that this machine is not like: one with
//! 32 bits, and one with the other order of bytes.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::session::Session;
use crate::toolchain;

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
            "send::flight::prr",
            "output::refusal_tests::a_full_queue",
        ],
    ),
];

impl Session {
    /// Tests under Miri: those of the buffers, since it sees undefined behaviour, and those of
    /// headers and engine as 32-bit and big-endian processors run them.
    pub(crate) fn miri(&mut self) -> Result<()> {
        let nightly = match toolchain::nightly(&self.root, &["miri", "rust-src"]) {
            Ok(nightly) => nightly,
            Err(why) => {
                self.tally.skip("tests under Miri", &why);
                return Ok(());
            }
        };
        let mut command = miri(&self.root, &nightly, UNSAFE_PACKAGE);
        // Each seed has its own order of threads and its own addresses.
        command.env("MIRIFLAGS", "-Zmiri-many-seeds=0..16");
        self.counted("plimsoll-buf under Miri", &mut command)?;
        for foreign in MIRI_TARGETS {
            for (package, tests) in MIRI_TESTS {
                let mut command = foreign_miri(&self.root, &nightly, package, foreign);
                let name = format!("{package} under Miri, {}", foreign.1);
                self.counted(&name, command.args(tests))?;
            }
        }
        Ok(())
    }
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
