//! Process 1 of the command's process namespace: it starts the command, passes signals on to it,
//! and collects every child until there is none.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
use rustix::process::{
    Pid, Signal, WaitOptions, getgid, getpid, getuid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use rustix::thread::UnshareFlags;

use crate::handover::{End, Message};
use crate::inside;

/// The exit status if the command was found and cannot be run, as of a shell.
pub const NOT_EXECUTABLE: u8 = 126;
/// The exit status if there is no such command.
pub const NOT_FOUND: u8 = 127;

/// Runs as process 1. `start` are the arguments that start the program again as
/// [the command's beginning](start_command).
///
/// # Errors
/// If /proc cannot be mounted or the command cannot be started.
pub fn run(
    start: &[String],
    command: &[OsString],
    (wait_for_all, share_pid): (bool, bool),
) -> Result<()> {
    let end = Arc::new(End::of_stdin()?);
    set_parent_process_death_signal(Some(Signal::KILL)).context("prctl")?;
    match share_pid {
        // Children that lose their parent are this process's all the same.
        true => set_child_subreaper(Some(getpid())).context("prctl")?,
        false => mount_proc()?,
    }
    let _ignored = inside::ignore_terminal()?;
    let child = Command::new("/proc/self/exe")
        .args(start)
        .args(command)
        .stdin(input(&end)?)
        .spawn()
        .context("cannot start the command")?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| anyhow!("the command has no process"))?;
    let ended = Arc::new(AtomicBool::new(false));
    let (signals, over) = (end.clone(), ended.clone());
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || pass_signals(&signals, pid, &over))
        .context("cannot start a thread")?;
    collect(&end, (pid, &ended), wait_for_all)
}

/// Mounts the /proc of the new process namespace.
fn mount_proc() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None::<&std::ffi::CStr>).context(
        "cannot mount /proc, without which the command would see the host's processes; a container \
         that covers parts of /proc forbids it. --share-pid goes on without this protection",
    )?;
    protect_proc()
}

/// Makes the host's own settings read-only: their files ask for the user, so that a command of
/// root could write them.
fn protect_proc() -> Result<()> {
    for name in ["sys", "sysrq-trigger", "irq", "bus", "fs"] {
        let path = format!("/proc/{name}");
        if !Path::new(&path).exists() {
            continue;
        }
        let flags = MountFlags::BIND
            | MountFlags::RDONLY
            | MountFlags::NOSUID
            | MountFlags::NODEV
            | MountFlags::NOEXEC;
        mount_bind(&path, &path)
            .and_then(|()| mount_remount(&path, flags, c""))
            .with_context(|| format!("cannot make {path} read-only"))?;
    }
    Ok(())
}

/// The command's standard input, which the gateway has sent.
fn input(end: &End) -> Result<Stdio> {
    loop {
        return match end.receive() {
            Ok(Some((Message::Input, fds))) => match <[OwnedFd; 1]>::try_from(fds) {
                Ok([fd]) => Ok(fd.into()),
                // The gateway has none.
                Err(_) => Ok(Stdio::null()),
            },
            // The command has not begun.
            Ok(Some((Message::Signal(signal), _))) if ends(signal) => {
                std::process::exit(i32::from(signal) + 128);
            }
            Ok(Some(_)) => continue,
            other => Err(anyhow!("the gateway has sent no input: {other:?}")),
        };
    }
}

/// Whether a signal is one by which a program is to end.
fn ends(signal: u8) -> bool {
    let signal = Signal::from_named_raw(signal.into());
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].map(Some).contains(&signal)
}

/// Passes signals on to the command. Once it has ended, one that would end it ends the others.
fn pass_signals(end: &End, pid: Pid, ended: &AtomicBool) {
    while let Ok(Some((message, _))) = end.receive() {
        let Message::Signal(number) = message else { continue };
        let Some(signal) = Signal::from_named_raw(number.into()) else { continue };
        if !ended.load(Ordering::Acquire) {
            // It may be about to be reported.
            let _ = kill_process(pid, signal);
        } else if ends(number) {
            // The kernel ends all processes with process 1.
            std::process::exit(0);
        }
    }
}

/// Waits for all children, reports the end of the command, and returns when none is left, or with
/// the command: then the kernel ends the others with this process.
fn collect(end: &End, (command, ended): (Pid, &AtomicBool), wait_for_all: bool) -> Result<()> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                let report = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Message::Exited(u8::try_from(code).unwrap_or(1)),
                    (None, Some(signal)) => Message::Signaled(u8::try_from(signal).unwrap_or(0)),
                    // It has stopped or goes on.
                    (None, None) => continue,
                };
                ended.store(true, Ordering::Release);
                end.send(report, &[])?;
                if !wait_for_all {
                    return Ok(());
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error).context("cannot wait for children"),
        }
    }
}

/// Becomes the command, in a user namespace of its own: it has no right over the namespaces of
/// the others, also as root.
///
/// # Errors
/// Never returns unless the command cannot be started. The status is that of a shell.
pub fn start_command(command: &[OsString]) -> (u8, anyhow::Error) {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let prepared = rustix::thread::clear_ambient_capability_set()
        .and_then(|()| inside::unshare(UnshareFlags::NEWUSER))
        .context("cannot make the command's user namespace")
        .and_then(|()| inside::map_ids(uid, gid));
    if let Err(error) = prepared {
        return (crate::run::FAILED, error);
    }
    let Some((program, args)) = command.split_first() else {
        return (crate::run::FAILED, anyhow!("there is no command"));
    };
    let error = Command::new(program).args(args).exec();
    let status = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    (status, anyhow::Error::new(error).context(program.to_string_lossy().into_owned()))
}
