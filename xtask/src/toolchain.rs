//! Compilers beside the pinned stable one: the nightly of fuzzing and Miri, and the targets.
//!
//! The nightly is pinned by its date, in `fuzz/rust-toolchain.toml` and nowhere else: a new one can
//! neither break a run nor change what it finds. What is missing is fetched by rustup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::session::cargo_target;
use crate::shell::quiet;

const PIN: &str = "fuzz/rust-toolchain.toml";

/// Programs for cargo, and the versions of them that are used.
pub(crate) const CARGO_HACK: (&str, &str) = ("cargo-hack", "0.6.46");
pub(crate) const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");

/// Targets without an operating system: one like those that run the tests, and one that has 32 bits
/// and no atomic operations of 64.
pub(crate) const BARE_TARGETS: [&str; 2] = ["x86_64-unknown-none", "thumbv7em-none-eabihf"];

/// Other operating systems, one of each kind: those that have neither an eventfd nor a timerfd, one
/// without descriptors that can be waited for together, and one that is Linux with another libc.
/// And Linux on a processor that has 32 bits, the other byte order and no atomic operations of 64.
pub(crate) const FOREIGN_TARGETS: [&str; 5] = [
    "aarch64-apple-darwin",
    "x86_64-unknown-freebsd",
    "x86_64-pc-windows-msvc",
    "aarch64-linux-android",
    "powerpc-unknown-linux-gnu",
];

/// The name of the pinned nightly, with these components installed. Says what is missing if it
/// cannot be had.
pub(crate) fn nightly(root: &Path, components: &[&str]) -> Result<String, String> {
    let text = fs::read_to_string(root.join(PIN)).map_err(|error| format!("{PIN}: {error}"))?;
    let name = pinned(&text)
        .ok_or_else(|| format!("{PIN} must pin a nightly by its date, as nightly-2026-05-20"))?;
    if !installed(name, components) {
        println!("fetching the compiler {name}");
        let mut words = vec!["toolchain", "install", name, "--profile", "minimal"];
        words.push("--no-self-update");
        components.iter().for_each(|component| words.extend(["--component", *component]));
        if !quiet("rustup", &words) {
            return Err(format!("the compiler cannot be had: rustup {}", words.join(" ")));
        }
    }
    Ok(name.to_string())
}

/// The dated nightly in the text of a `rust-toolchain.toml`.
fn pinned(text: &str) -> Option<&str> {
    text.split('"').find(|word| word.starts_with("nightly-"))
}

/// Whether a toolchain is there with all of these components.
fn installed(name: &str, components: &[&str]) -> bool {
    if !quiet("rustup", &["run", name, "rustc", "--version"]) {
        return false;
    }
    let words = ["component", "list", "--toolchain", name, "--installed"];
    let Ok(out) = Command::new("rustup").args(words).output() else { return false };
    let text = String::from_utf8_lossy(&out.stdout);
    components.iter().all(|component| text.lines().any(|line| line.starts_with(component)))
}

/// Fetches the library of a target if it is missing. Says how if that fails.
pub(crate) fn prepare_target(root: &Path, target: &str) -> Result<(), String> {
    let there = || {
        let mut command = Command::new("rustc");
        command.args(["--print", "target-libdir", "--target", target]);
        let out = command.current_dir(root).output();
        out.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
    };
    if there() || (quiet("rustup", &["target", "add", target]) && there()) {
        return Ok(());
    }
    Err(format!("the target cannot be had: rustup target add {target}"))
}

/// Where a program for cargo is, which is installed below the target folder if it is missing there.
/// Says what failed if it cannot be had.
pub(crate) fn tool(root: &Path, (name, version): (&str, &str)) -> Result<PathBuf, String> {
    let tools = cargo_target(root).join("tools");
    let program = tools.join("bin").join(name);
    let there = || {
        let mut command = Command::new(&program);
        if name == CARGO_HACK.0 {
            command.arg("hack");
        }
        let out = command.arg("--version").output();
        out.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).trim().ends_with(version))
    };
    let folder = tools.to_string_lossy();
    let words = ["install", name, "--version", version, "--locked", "--root", &folder];
    if there() || (quiet("cargo", &words) && there()) {
        return Ok(program);
    }
    Err(format!("{} cannot be had: cargo {}", program.display(), words.join(" ")))
}

/// Fetches a released compiler if it is missing. Says how if that fails.
pub(crate) fn prepare_release(version: &str) -> Result<(), String> {
    let words = ["toolchain", "install", version, "--profile", "minimal", "--no-self-update"];
    if installed(version, &[]) || quiet("rustup", &words) {
        return Ok(());
    }
    Err(format!("the compiler cannot be had: rustup {}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_pins_one() {
        let text = include_str!("../../fuzz/rust-toolchain.toml");
        assert!(pinned(text).is_some(), "{text}");
    }
}
