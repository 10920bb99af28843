//! How a document came about: the command, the machine, the version.

use std::ffi::OsString;
use std::path::Path;

use serde::Serialize;

use super::Plan;

/// What is needed to run it again, and to compare it with other runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// The words of the command line.
    pub command: String,
    /// The version of this program.
    pub version: &'static str,
    /// Pairs of each case.
    pub pairs: usize,
    /// How long each run is measured, in seconds.
    pub seconds: f64,
    /// How long it runs before that, in seconds.
    pub warm_up_seconds: f64,
    /// The name of the processor; null if the system does not tell.
    pub cpu: Option<String>,
    /// Processors that the program may use.
    pub cpus: usize,
    /// Main memory in bytes; null if the system does not tell.
    pub memory_bytes: Option<u64>,
    /// The system and its version.
    pub system: String,
    /// How the program runs beside others.
    pub priority: &'static str,
}

impl RunInfo {
    /// Of this process and machine.
    pub fn new(plan: &Plan, priority: &'static str) -> RunInfo {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        RunInfo {
            command: command(std::env::args_os()),
            version: env!("CARGO_PKG_VERSION"),
            pairs: plan.pairs,
            seconds: plan.length.as_secs_f64(),
            warm_up_seconds: plan.warm_up.as_secs_f64(),
            cpu: field("/proc/cpuinfo", "model name"),
            cpus: super::pin::cpus(),
            memory_bytes: memory_bytes(),
            system: format!("Linux {}", release.trim()).trim().to_owned(),
            priority,
        }
    }
}

/// The command line for a shell, with the program's name instead of its path.
fn command(words: impl Iterator<Item = OsString>) -> String {
    let mut words = words.map(|word| quoted(&word.to_string_lossy()));
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program)
        .file_name()
        .map_or(program.clone(), |name| name.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The value of the first line `name : value`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

fn memory_bytes() -> Option<u64> {
    let kib = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = kib.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_no_path() {
        let words = ["/somewhere/target/release/plimsoll", "lab", "--full"];
        assert_eq!(command(words.into_iter().map(OsString::from)), "plimsoll lab --full");
        let words = ["plimsoll", "lab", "--html", "it's here.html", ""];
        let expected = "plimsoll lab --html 'it'\\''s here.html' ''";
        assert_eq!(command(words.into_iter().map(OsString::from)), expected);
    }
}
