//! Runs commands with a time limit, shows what they say, and takes them along when interrupted.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};

/// The process group of the command that runs now, 0 if none does.
static CURRENT: AtomicI32 = AtomicI32::new(0);

/// Ends the running command when this program is interrupted.
pub(crate) fn end_on_signals() -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            end_group(CURRENT.load(Ordering::SeqCst), Signal::TERM);
            // The runner of the tests in namespaces needs a moment to remove them.
            thread::sleep(Duration::from_secs(1));
            end_group(CURRENT.load(Ordering::SeqCst), Signal::KILL);
            std::process::exit(130);
        }
    });
    Ok(())
}

/// How a command ended.
pub(crate) enum Outcome {
    Ended(ExitStatus),
    OutOfTime,
}

impl Outcome {
    pub(crate) fn success(&self) -> bool {
        matches!(self, Outcome::Ended(status) if status.success())
    }
}

/// Runs a command, echoes each line of its standard output and gives it to `on_line`.
pub(crate) fn run(
    command: &mut Command,
    limit: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<Outcome> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let group = child.id().cast_signed();
    CURRENT.store(group, Ordering::SeqCst);
    let stdout = child.stdout.take().context("standard output is piped")?;
    let (tx, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let _ = tx.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    let deadline = Instant::now() + limit;
    let mut in_time = true;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                println!("{line}");
                on_line(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                in_time = false;
                end_group(group, Signal::TERM);
                thread::sleep(Duration::from_secs(2));
                end_group(group, Signal::KILL);
                break;
            }
        }
    }
    let status = child.wait().with_context(|| format!("waiting for {command:?}"))?;
    CURRENT.store(0, Ordering::SeqCst);
    Ok(if in_time { Outcome::Ended(status) } else { Outcome::OutOfTime })
}

/// Whether a command can be started and succeeds, without a word.
pub(crate) fn quiet(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn end_group(group: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(group) {
        let _ = kill_process_group(pid, signal);
    }
}
