//! The scope of a test: the prefix of all names it makes, and how to remove what bears it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// The variable through which the runner tells a test its scope.
pub(crate) const VARIABLE: &str = "PLIMSOLL_INTEROP_SCOPE";
const PREFIX: &str = "plim-";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The scope of this process: what the runner gave it, or one of its own.
pub(crate) fn current() -> String {
    env::var(VARIABLE).unwrap_or_else(|_| of_runner(std::process::id(), 0))
}

/// The scope of test number `test` of the runner with process number `runner`.
pub(crate) fn of_runner(runner: u32, test: usize) -> String {
    format!("{PREFIX}{runner}-{test}")
}

/// A name nobody else uses, for a namespace or a directory.
pub(crate) fn unique() -> String {
    format!("{}-{}", current(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The folder for large files: memory if the machine has some to spare.
pub(crate) fn scratch_root() -> PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm.into() } else { env::temp_dir() }
}

/// Removes every namespace, process and directory of one scope.
pub(crate) fn sweep(scope: &str) {
    let prefix = format!("{scope}-");
    for name in namespaces().iter().filter(|name| name.starts_with(&prefix)) {
        remove_namespace(name);
    }
    let Ok(entries) = fs::read_dir(scratch_root()) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes what runners left behind that do not run any more.
pub(crate) fn sweep_stale() {
    let mut names = namespaces();
    if let Ok(entries) = fs::read_dir(scratch_root()) {
        names.extend(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()));
    }
    for name in names {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let mut parts = rest.split('-');
        let (Some(runner), Some(test)) = (parts.next(), parts.next()) else { continue };
        let alive = Path::new("/proc").join(runner).exists();
        if runner.parse::<u32>().is_ok() && !alive {
            sweep(&format!("{PREFIX}{runner}-{test}"));
        }
    }
}

/// Kills the processes of a namespace and deletes it.
pub(crate) fn remove_namespace(name: &str) {
    for pid in output(&["netns", "pids", name]).lines() {
        if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    output(&["netns", "del", name]);
}

fn namespaces() -> Vec<String> {
    let list = output(&["netns", "list"]);
    list.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
}

fn output(args: &[&str]) -> String {
    let out = Command::new("ip").args(args).stderr(Stdio::null()).output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default()
}
