//! Builds the fuzz targets and runs each for a while.
//!
//! The targets stand in a workspace of their own, because they need a nightly compiler. They are
//! built with the flags that cargo-fuzz would use, so that cargo-fuzz need not be installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::session::cargo_target;
use crate::shell;
use crate::tally::Tally;

/// How long each target runs.
const SECONDS: u64 = 300;

const HOST: &str = "x86_64-unknown-linux-gnu";

/// Coverage for libFuzzer, an address sanitizer, and the assertions of the engine.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1";

/// The names of the targets in `fuzz/Cargo.toml`.
fn targets(root: &Path) -> Result<Vec<String>> {
    let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).context("fuzz/Cargo.toml")?;
    let manifest: toml::Table = toml::from_str(&manifest)?;
    let all = manifest["bin"].as_array().context("fuzz/Cargo.toml has targets")?;
    Ok(all.iter().filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}

/// Builds the targets with the compiler `nightly` and runs each, two at a time.
pub(crate) fn run(root: &Path, nightly: &str, tally: &mut Tally) -> Result<()> {
    let targets = targets(root)?;
    let folder = cargo_target(root).join("fuzz");
    let mut build = Command::new("rustup");
    build
        .args(["run", nightly, "cargo", "build", "--release", "--bins", "--target", HOST])
        .arg("--manifest-path")
        .arg(root.join("fuzz/Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", FLAGS)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    if !shell::build(&mut build)?.success() {
        for target in &targets {
            tally.fail(&format!("fuzz {target} (does not build)"));
        }
        return Ok(());
    }
    let programs = folder.join(HOST).join("release");
    for pair in targets.chunks(2) {
        let results: Vec<(String, Result<()>)> = thread::scope(|scope| {
            let threads: Vec<_> = pair
                .iter()
                .map(|name| scope.spawn(|| (name.clone(), one(root, &programs, name))))
                .collect();
            threads.into_iter().map(|t| t.join().expect("a fuzz thread does not panic")).collect()
        });
        for (name, result) in results {
            match result {
                Ok(()) => {
                    println!("test fuzz {name} ... ok ({SECONDS}s)");
                    tally.pass();
                }
                Err(error) => {
                    println!("test fuzz {name} ... FAILED\n{error:#}");
                    tally.fail(&format!("fuzz {name}"));
                }
            }
        }
    }
    Ok(())
}

/// Runs one target from its seeds. Its findings are kept in `fuzz/artifacts`.
fn one(root: &Path, programs: &Path, name: &str) -> Result<()> {
    // The inputs that earlier runs have kept.
    let corpus = root.join("fuzz/corpus").join(name);
    fs::create_dir_all(&corpus).context("making the folder of the corpus")?;
    let artifacts = root.join("fuzz/artifacts").join(name);
    fs::create_dir_all(&artifacts).context("making the folder of the findings")?;
    let mut command = Command::new(programs.join(name));
    command
        .arg(format!("-max_total_time={SECONDS}"))
        .args(["-timeout=10", "-rss_limit_mb=4096", "-print_final_stats=1", "-close_fd_mask=1"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus);
    let seeds: PathBuf = root.join("fuzz/seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let limit = Duration::from_secs(SECONDS + 60);
    let out = shell::output(&mut command, limit)?
        .with_context(|| format!("{name} still ran {} s after it began", limit.as_secs()))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    anyhow::bail!("{name} ended with {}:\n{}", out.status, essence(&said))
}

/// The lines of a report that say what was found, by whom, and where the input lies.
fn essence(report: &str) -> String {
    let mut lines: Vec<&str> = report
        .lines()
        .skip_while(|line| !line.contains("panicked") && !line.contains("ERROR:"))
        .take(12)
        .collect();
    lines.extend(report.lines().filter(|line| {
        line.contains("SUMMARY") || line.contains("Test unit written") || line.contains("Base64")
    }));
    if lines.is_empty() { report.to_string() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_essence_is_short() {
        let report = "INFO: x\nthread panicked at a.rs:1:\nwhy\nstack\nSUMMARY: y\nBase64: AA==\n";
        assert!(essence(report).starts_with("thread panicked at a.rs:1:\nwhy"));
        assert!(essence(report).ends_with("Base64: AA=="));
        assert_eq!(essence("nothing known"), "nothing known");
    }

    #[test]
    fn the_manifest_has_targets() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(targets(&root).unwrap().contains(&"engine".to_owned()));
    }
}
