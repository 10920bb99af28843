//! Scripts with the original tool, on this stack or on the machine's kernel.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{Options, Verdict, Verdicts, option_words, unsaid};
use crate::session::build_example;
use crate::shell;

/// Builds the library through which the tool drives this stack.
pub(super) fn library(root: &Path) -> Result<PathBuf> {
    let folder = build_example(root, "plimsoll-drill", "plimsoll_drill_adapter")?;
    Ok(folder.join("libplimsoll_drill_adapter.so"))
}

/// A script that runs longer does not end.
const LIMIT: Duration = Duration::from_secs(60);

/// How many run at a time. On the kernel time is real, and a busy machine is late.
const JOBS: usize = 4;
const JOBS_ON_KERNEL: usize = 2;

/// The stack that the tool's scripts run on.
pub(super) enum Target {
    /// This stack, through the adapter's library.
    Stack(PathBuf),
    /// The machine's kernel, in a network namespace.
    Kernel,
}

/// Runs the scripts of a suite, each with the options that `options` gives it.
pub(super) fn run(
    tool: &Path,
    suite: &Path,
    scripts: &[String],
    target: &Target,
    options: impl Fn(&str) -> Vec<String> + Sync,
) -> Result<Verdicts> {
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Verdicts::new());
    let jobs = if matches!(target, Target::Stack(_)) { JOBS } else { JOBS_ON_KERNEL };
    let work = || -> Result<()> {
        while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let verdict = one(tool, &suite.join(script), &options(script), target)?;
            let mut verdicts = verdicts.lock().ok().context("another thread panicked")?;
            verdicts.insert(script.clone(), verdict);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread panicked"),
        })
    })?;
    verdicts.into_inner().ok().context("a thread panicked")
}

fn one(tool: &Path, script: &Path, options: &[String], target: &Target) -> Result<Verdict> {
    let mut command = command(tool, script, options, target)?;
    let Some(out) = shell::output(&mut command, LIMIT)? else {
        let said = format!("still ran after {} s", LIMIT.as_secs());
        return Ok(Verdict { passed: false, differs: false, said });
    };
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("").to_string();
    Ok(Verdict { passed: out.status.success(), differs: false, said })
}

/// The command line that runs one script.
fn command(tool: &Path, script: &Path, options: &[String], target: &Target) -> Result<Command> {
    let folder = script.parent().filter(|f| *f != Path::new("")).unwrap_or(Path::new("."));
    let name = script.file_name().context("a script has a name")?;
    let mut command = match target {
        Target::Stack(library) => {
            let text = fs::read_to_string(script)
                .with_context(|| format!("reading {}", script.display()))?;
            let mut command = Command::new(tool);
            command.arg(join("--so_filename=", library.as_os_str()));
            command.arg(format!("--so_flags={}", flags(&text, options)?));
            command.env("LD_PRELOAD", library);
            command
        }
        Target::Kernel => {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]);
            command.arg(tool).arg("--send_omit_free");
            command
        }
    };
    command.args(options).arg(name).current_dir(folder);
    Ok(command)
}

fn join(start: &str, end: &OsStr) -> std::ffi::OsString {
    let mut whole = std::ffi::OsString::from(start);
    whole.push(end);
    whole
}

/// The options of a script that says what it needs: the tool has no addresses by default.
pub(super) fn own_options(text: &str) -> Vec<String> {
    let six = option_words(text).any(|word| word == "--ip_version=ipv6");
    let four = [
        "--local_ip=192.0.2.1",
        "--gateway_ip=192.0.2.2",
        "--netmask_ip=255.255.255.0",
        "--remote_ip=198.51.100.1",
    ];
    let addresses_6 =
        ["--local_ip=2001:db8::1", "--gateway_ip=2001:db8::2", "--remote_ip=2001:db8:1::1"];
    if six { unsaid(text, &addresses_6) } else { unsaid(text, &four) }
}

/// The adapter's options for the network: the script's option lines, and the command line, which
/// wins.
fn flags(script: &str, options: &[String]) -> Result<String> {
    let words = option_words(script).chain(options.iter().map(String::as_str));
    let known: BTreeMap<&str, &str> =
        words.filter_map(|word| word.strip_prefix("--")?.split_once('=')).collect();
    let mut flags = Vec::new();
    let names = [
        ("ip_version", "ip_version"),
        ("local_ip", "local"),
        ("gateway_ip", "gateway"),
        ("remote_ip", "remote"),
        ("mtu", "mtu"),
        ("mss", "mss"),
    ];
    for (theirs, ours) in names {
        if let Some(value) = known.get(theirs) {
            flags.push(format!("{ours}={}", value.split('/').next().unwrap_or(value)));
        }
    }
    if let Some(mask) = known.get("netmask_ip") {
        let mask: std::net::Ipv4Addr = mask.parse().context("--netmask_ip")?;
        flags.push(format!("prefix={}", mask.to_bits().leading_ones()));
    }
    Ok(flags.join(","))
}

/// Runs scripts on this stack, with what the tool says.
pub(super) fn show(root: &Path, options: &Options) -> Result<()> {
    let tool = options.tool.as_deref().context("the original tool")?;
    let target = Target::Stack(library(root)?);
    let mut failed = 0;
    for file in &options.files {
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let words = [own_options(&text), options.passed_on.clone()].concat();
        let status = command(tool, file, &words, &target)?.status().context("starting it")?;
        println!("{} {}", if status.success() { "ok    " } else { "FAILED" }, file.display());
        failed += usize::from(!status.success());
    }
    ensure!(failed == 0, "{failed} of {} failed", options.files.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{flags, own_options};

    #[test]
    fn the_command_line_wins_over_the_script() {
        let script = "// a comment\n--mss=1000\n--local_ip=192.0.2.9\n0 socket(...) = 3\n";
        let options = ["--local_ip=198.51.100.1".into(), "--netmask_ip=255.255.0.0".into()];
        assert_eq!(flags(script, &options).unwrap(), "local=198.51.100.1,mss=1000,prefix=16");
        assert_eq!(flags("", &["--remote_ip=192.0.2.1/24".into()]).unwrap(), "remote=192.0.2.1");
    }

    #[test]
    fn a_script_that_says_nothing_gets_addresses() {
        assert_eq!(own_options("0 socket(...) = 3\n").len(), 4);
        let six = own_options("--ip_version=ipv6\n--local_ip=2001:db8::7\n");
        assert_eq!(six, ["--gateway_ip=2001:db8::2", "--remote_ip=2001:db8:1::1"]);
    }
}
