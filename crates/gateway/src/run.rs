//! The gateway as a process: it starts the inside, gives up its rights, and serves until the
//! command and its children have ended.

use std::any::Any;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use plimsoll::Stack;
use rustix::process::{Resource, Rlimit, getpgrp, getrlimit, setrlimit};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use tempfile::TempDir;

use crate::config::{Config, Job};
pub use crate::gateway::Controls;
use crate::gateway::FirstLoop;
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
    job: &Job,
    on_start: impl FnOnce(&Running<'_>) -> Result<Box<dyn Any>>,
) -> Result<u8> {
    let files = tempfile::tempdir().context("cannot make a folder for files")?;
    names::write_files(config.policy.network, files.path(), config.rules.is_any())
        .context("the files of the command's name server")?;
    let Some((started, end)) = Started::new(config, |inside| add_job(inside, config, job, &files))?
    else {
        return Ok(FAILED);
    };
    // They are mounted inside.
    drop(files);
    let end = Arc::new(end);
    let ended = Arc::new(AtomicBool::new(false));
    let on_start = |running: &Running<'_>| {
        pass_signals(&end, &ended)?;
        on_start(running)
    };
    let inner = (end.clone(), ended.clone());
    let (status, inside) = started.serve(config, inner, on_start, || send_input(&end))?;
    Ok(match status {
        Some(status) => status,
        None => inside.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED).max(1),
    })
}

/// A gateway that has the queues of the interface, and still its rights.
pub(crate) struct Started {
    inside: Child,
    queues: Vec<OwnedFd>,
    ports: Ports,
    /// Where the rules that were needed go.
    learn: Option<File>,
    /// Descriptors that this process may have.
    descriptors: usize,
}

impl Started {
    /// Opens the host's ports and files, starts the inside with the arguments of `add` and waits
    /// for the interface. Returns the pair's end as well. `None` if the inside has failed: it has
    /// reported why.
    pub(crate) fn new(
        config: &Config,
        add: impl FnOnce(&mut Command),
    ) -> Result<Option<(Started, End)>> {
        if names::host_name_servers().is_empty() {
            crate::note("/etc/resolv.conf names no name server");
        }
        let ports = Ports::open(&config.ports)?;
        let learn = config.rules.learn.as_ref().map(create).transpose()?;
        let (end, theirs) = End::pair()?;
        let mut inside = start(config, add, theirs)?;
        // No other process of the same user may look into this one.
        let hidden = rustix::process::DumpableBehavior::NotDumpable;
        rustix::process::set_dumpable_behavior(hidden).context("prctl")?;
        let descriptors = raise_limit();
        let Ok(Some((Message::Queues, queues))) = end.receive() else {
            let _ = inside.wait();
            return Ok(None);
        };
        Ok(Some((Started { inside, queues, ports, learn, descriptors }, end)))
    }

    /// Gives up all rights, calls `on_start`, then `begin`, and serves until the other side of
    /// `end` is closed. Returns the status that came over it, and that of the inside.
    pub(crate) fn serve(
        mut self,
        config: &Config,
        end: (Arc<End>, Arc<AtomicBool>),
        on_start: impl FnOnce(&Running<'_>) -> Result<Box<dyn Any>>,
        begin: impl FnOnce() -> Result<()>,
    ) -> Result<(Option<u8>, ExitStatus)> {
        // Limits are those of a thread: one that starts later has them as well.
        confine::give_up_rights()?;
        let (queues, ports) = (self.queues, self.ports);
        let (mut gateway, controls) = FirstLoop::new(config, queues, self.descriptors, end, ports)?;
        let limits = confine::files(&config.control)?;
        let _kept = on_start(&Running { stack: gateway.stack(), controls })?;
        gateway.start()?;
        let calls = confine::calls()?;
        if config.policy.verbose {
            crate::note(&format!("no capability is left; {limits}; {calls}"));
        }
        begin()?;
        let status = gateway.serve()?;
        if let Some(mut file) = self.learn {
            file.write_all(gateway.needed().as_bytes()).context("cannot write the rules")?;
        }
        let inside = self.inside.wait().context("the inside")?;
        if let Some(explanation) = gateway.end() {
            // A terminal or pipe that is closed loses it.
            let _ = io::stderr().write_all(explanation.as_bytes());
        }
        Ok((status, inside))
    }
}

/// The number of queues for this machine: one for two processors. The command and the kernel need
/// the others: on two processors a second loop takes a tenth from small transactions.
pub fn default_queues() -> usize {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, MAX_QUEUES)
}

/// Starts the inside, with the arguments about the interface and those of `add`.
fn start(config: &Config, add: impl FnOnce(&mut Command), end: End) -> Result<Child> {
    let mut inside = Command::new("/proc/self/exe");
    inside
        .args(&config.start_inside)
        .arg("--network")
        .arg(config.policy.network.to_string())
        .arg("--mtu")
        .arg(config.mtu.to_string())
        .arg("--queues")
        .arg(config.queues.to_string())
        .args(config.link.is_some().then_some("--no-offloads"))
        .stdin(end.into_fd());
    add(&mut inside);
    inside.spawn().context("cannot start the program again")
}

/// Adds the arguments of a command.
fn add_job(inside: &mut Command, config: &Config, job: &Job, files: &TempDir) {
    let covered = config.control.iter().chain(&job.hidden);
    inside
        .arg("--files")
        .arg(files.path())
        .args(covered.flat_map(|folder| ["--cover".as_ref(), folder.as_os_str()]))
        .args((!job.wait_for_all).then_some("--no-wait"))
        .args(job.share_pid.then_some("--share-pid"))
        .arg("--")
        .args(&job.command);
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
