//! The gateway as a process: it starts the inside, gives up its rights, and serves until the inside
//! ends.

use std::any::Any;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use plimsoll::Stack;
use rustix::process::{Resource, Rlimit, getpgrp, getrlimit, setrlimit};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use crate::config::Config;
pub use crate::gateway::Controls;
use crate::gateway::Gateway;
use crate::handover::{End, MAX_QUEUES, Message};
use crate::names::files as names;
use crate::ports::Ports;
use crate::{confine, inside};

/// The exit status if the gateway itself has failed, as of a container engine.
pub const FAILED: u8 = 125;

/// A gateway that is about to serve.
pub struct Running<'a> {
    /// Its stack.
    pub stack: &'a Stack,
    /// Changes it and lists its connections.
    pub controls: Controls,
}

/// Runs the command. Returns its exit status, or 128 and the signal that has ended it. Calls
/// `on_start` once the gateway has given up its rights, and keeps its result until the end.
///
/// # Errors
/// If the gateway cannot be set up, or fails.
pub fn run(
    config: &Config,
    on_start: impl FnOnce(&Running<'_>) -> Result<Box<dyn Any>>,
) -> Result<u8> {
    let files = tempfile::tempdir().context("cannot make a folder for files")?;
    names::write_files(config.policy.network, files.path(), config.rules.is_any())
        .context("the files of the command's name server")?;
    if names::host_name_servers().is_empty() {
        crate::note("/etc/resolv.conf names no name server");
    }
    let ports = Ports::open(&config.ports)?;
    let learn = config.rules.learn.as_ref().map(create).transpose()?;
    let (end, theirs) = End::pair()?;
    let mut inside = start(config, files.path().to_owned(), theirs)?;
    // No other process of the same user may look into this one.
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(hidden).context("prctl")?;
    let descriptors = raise_limit();
    let queues = match end.receive() {
        Ok(Some((Message::Queues, queues))) => queues,
        // It has said why.
        _ => return Ok(failed(&mut inside)),
    };
    // They are mounted inside.
    drop(files);
    let end = Arc::new(end);
    let ended = Arc::new(AtomicBool::new(false));
    // Limits are those of a thread: one that starts later has them as well.
    confine::give_up_rights()?;
    let inner = (end.clone(), ended.clone());
    let (mut gateway, controls) = Gateway::new(config, queues, descriptors, inner, ports)?;
    let limits = confine::files(&config.covered)?;
    pass_signals(&end, &ended)?;
    let _kept = on_start(&Running { stack: gateway.stack(), controls })?;
    gateway.start()?;
    let calls = confine::calls()?;
    if config.policy.verbose {
        crate::note(&format!("no capability is left; {limits}; {calls}"));
    }
    // The command starts.
    send_input(&end)?;
    let status = gateway.serve()?;
    if let Some(mut file) = learn {
        file.write_all(gateway.needed().as_bytes()).context("cannot write the rules")?;
    }
    let ended = inside.wait().context("the inside")?;
    if let Some(explanation) = gateway.end() {
        // A terminal or pipe that is closed loses it.
        let _ = io::stderr().write_all(explanation.as_bytes());
    }
    Ok(match status {
        Some(status) => status,
        None => ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED).max(1),
    })
}

/// The number of queues for this machine: one for two processors. The command and the kernel need
/// the others: on two processors a second loop takes a tenth from small transactions.
pub fn default_queues() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, MAX_QUEUES)
}

/// Starts the inside.
fn start(config: &Config, files: PathBuf, end: End) -> Result<Child> {
    Command::new("/proc/self/exe")
        .args(&config.start_inside)
        .arg("--network")
        .arg(config.policy.network.to_string())
        .arg("--mtu")
        .arg(config.mtu.to_string())
        .arg("--queues")
        .arg(config.queues.to_string())
        .arg("--files")
        .arg(files)
        .args(
            config
                .covered
                .iter()
                .chain(&config.hidden)
                .flat_map(|folder| ["--cover".as_ref(), folder.as_os_str()]),
        )
        .args(config.link.is_some().then_some("--no-offloads"))
        .args((!config.wait_for_all).then_some("--no-wait"))
        .args(config.share_pid.then_some("--share-pid"))
        .arg("--")
        .args(&config.command)
        .stdin(end.into_fd())
        .spawn()
        .context("cannot start the program again")
}

/// The status of an inside that has ended before it was ready.
fn failed(inside: &mut Child) -> u8 {
    let _ = inside.wait();
    FAILED
}

/// Makes a file before the rights to do so are given up.
fn create(path: &PathBuf) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Passes our standard input to the command, if we have one.
fn send_input(end: &End) -> Result<()> {
    let stdin = io::stdin();
    // A closed descriptor cannot be passed on.
    let own = stdin.as_fd().try_clone_to_owned().ok();
    let fds: Vec<_> = own.iter().map(|fd| fd.as_fd()).collect();
    end.send(Message::Input, &fds)
}

/// As many descriptors as may be: each connection has one of the host's. Returns how many.
fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // With the lower limit fewer connections are served.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Whether this process is in the foreground of a terminal, whose signals the command gets as well.
fn is_in_foreground() -> bool {
    let group = File::open("/dev/tty").ok().and_then(|tty| tcgetpgrp(tty).ok());
    group.is_some_and(|group| group == getpgrp())
}

/// Passes signals for this process on to the command. In the foreground, those of a terminal are
/// not passed on as long as it has not `ended`: it has them already.
fn pass_signals(end: &Arc<End>, ended: &Arc<AtomicBool>) -> Result<()> {
    let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
    let mut signals = inside::take_signals(&wanted)?;
    let (end, ended) = (end.clone(), ended.clone());
    let pass = move || {
        for signal in signals.forever() {
            let from_terminal = matches!(signal, SIGINT | SIGQUIT | SIGHUP | SIGWINCH)
                && !ended.load(Ordering::Acquire)
                && is_in_foreground();
            if !from_terminal && let Ok(number) = u8::try_from(signal) {
                // The command may have ended.
                let _ = end.send(Message::Signal(number), &[]);
            }
        }
    };
    let started = thread::Builder::new().name("signals".into()).spawn(pass);
    started.map(drop).context("cannot start a thread")
}
