//! An existing network namespace, in place of a command's.
//!
//! The inside enters it, makes the interface, hands it over and ends. There is no process 1. The
//! gateway ends by a signal, or when the caller hangs up. Meanwhile the gateway's queues keep the
//! namespace, also when the last process in it has ended. slirp4netns(1) keeps it as well.
//!
//! An interface of the wanted name that no program uses, such as a persistent TAP device, is
//! replaced by a TUN device, which carries IP packets without link addresses.

use std::any::Any;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, Result, ensure};
use plimsoll::device::tun;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, PidfdFlags, PidfdGetfdFlags, Signal, getpid, pidfd_getfd, pidfd_open,
    set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::config::{Config, Target};
use crate::handover::{End, Message};
use crate::inside::{self, Interface};
use crate::routing;
use crate::run::{Running, Started};

/// Takes the descriptors over that the caller has left open under these numbers. Numbers 0 to 2
/// stay open as well.
///
/// # Errors
/// If one of them is not open, or two are the same, or the system forbids it.
pub fn inherited<const N: usize>(numbers: [Option<i32>; N]) -> Result<[Option<OwnedFd>; N]> {
    let given = || numbers.iter().flatten();
    // All before the first is taken over: that one's new number may be that of another.
    for number in given() {
        std::fs::read_link(format!("/proc/self/fd/{number}")).with_context(|| {
            format!("no descriptor has the number {number}; the caller must leave it open")
        })?;
        ensure!(
            given().filter(|&other| other == number).count() == 1,
            "two options name the descriptor {number}; give each its own"
        );
    }
    let mut taken = [const { None }; N];
    for (fd, number) in taken.iter_mut().zip(numbers) {
        *fd = number.map(take_over).transpose()?;
    }
    Ok(taken)
}

fn take_over(number: i32) -> Result<OwnedFd> {
    let why = || {
        format!(
            "cannot take the descriptor {number} over; the kernel must be 5.6 or later, and a \
             seccomp profile must allow pidfd_open and pidfd_getfd"
        )
    };
    let own = pidfd_open(getpid(), PidfdFlags::empty()).with_context(why)?;
    let fd = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).with_context(why)?;
    if number > 2 {
        // The reader of a pipe sees its end once this process has closed it.
        nix::unistd::close(number).with_context(why)?;
    }
    Ok(fd)
}

/// Serves the namespace until a signal or the caller ends that. Returns whether the inside could
/// make the interface: otherwise it has reported why. Calls `on_start` as
/// [`run`](crate::run::run) does.
///
/// # Errors
/// If the gateway cannot be set up, or fails.
pub fn attach(
    config: &Config,
    target: Target,
    on_start: impl FnOnce(&Running<'_>) -> Result<Box<dyn Any>>,
) -> Result<bool> {
    let Target { user, network, configure, ipv6, ready, exit } = target;
    let started = Started::new(config, |inside| {
        inside.arg("--name").arg(&config.interface);
        inside.args(user.iter().flat_map(|path| ["--user".as_ref(), path.as_os_str()]));
        inside.args(configure.then_some("--configure")).args(ipv6.then_some("--ipv6"));
        inside.arg("--").arg(network);
    });
    let Some((started, _)) = started? else { return Ok(false) };
    let (end, stop) = End::pair()?;
    let stop = Arc::new(stop);
    let on_start = |running: &Running<'_>| {
        stop_on(&stop, exit)?;
        on_start(running)
    };
    let report = || match ready {
        Some(fd) => rustix::io::write(&fd, b"1").map(drop).context("--ready-fd"),
        None => Ok(()),
    };
    let end = (Arc::new(end), Arc::new(AtomicBool::new(false)));
    started.serve(config, end, on_start, report).map(|_| true)
}

/// Stops the gateway by a signal, and when `exit` has an event. A second signal ends the process at
/// once.
fn stop_on(stop: &Arc<End>, exit: Option<OwnedFd>) -> Result<()> {
    let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
        let started = thread::Builder::new().name(name.to_owned()).spawn(run);
        started.map(drop).context("cannot start a thread")
    };
    // The gateway may have ended.
    let send = |end: &End| drop(end.send(Message::Stop, &[]));
    let mut signals = inside::ignore_terminal()?;
    let end = stop.clone();
    let follow = move || {
        let mut signals = signals.forever();
        let _first = signals.next();
        send(&end);
        if let Some(second) = signals.next() {
            std::process::exit(128 + second);
        }
    };
    start("signals", Box::new(follow))?;
    let Some(exit) = exit else { return Ok(()) };
    let end = stop.clone();
    let follow = move || {
        while poll_once(&exit) == Err(Errno::INTR) {}
        send(&end);
    };
    start("exit", Box::new(follow))
}

/// Waits until a descriptor has an event.
fn poll_once(fd: &OwnedFd) -> Result<(), Errno> {
    poll(&mut [PollFd::new(fd, PollFlags::IN)], None).map(drop)
}

/// The request of the gateway.
#[derive(Clone, Debug)]
pub struct Attach {
    /// The name of the interface.
    pub name: String,
    /// The interface.
    pub interface: Interface,
    /// As in [`Target`].
    pub user: Option<PathBuf>,
    /// As in [`Target`].
    pub network: PathBuf,
    /// As in [`Target`].
    pub configure: bool,
    /// As in [`Target`].
    pub ipv6: bool,
}

/// The inside: makes the interface in the namespace, and hands it over.
///
/// # Errors
/// If the namespace cannot be entered or the interface cannot be made; the text has the reason.
pub fn inside(asked: &Attach) -> Result<()> {
    let end = End::of_stdin()?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("prctl")?;
    // Both before the first is entered: /proc shows the files to the caller.
    let user = asked.user.as_deref().map(open).transpose()?;
    let network = open(&asked.network)?;
    let user = user.filter(|user| !is_own(user).unwrap_or(false));
    // Root of the namespace, which may be hostile, must not trace this process.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("prctl")?;
    if let Some(user) = user {
        enter(&user, LinkNameSpaceType::User).context(
            "cannot enter the user namespace; it must be this user's, and no namespace around \
             the caller's",
        )?;
    }
    enter(&network, LinkNameSpaceType::Network).context(
        "cannot enter the network namespace; run as root, or name the user namespace that owns \
         it with --userns-path",
    )?;
    let was_up = routing::remove_unused_tap(&asked.name)?.unwrap_or(false);
    if asked.configure {
        tun::bring_up("lo").context("cannot bring the loopback interface up")?;
    }
    let up = asked.configure || was_up;
    let queues = inside::make_interface(&asked.name, &asked.interface, up)?;
    if asked.configure {
        inside::configure(&asked.name, asked.interface.network, asked.ipv6)?;
    }
    inside::hand_over(&end, queues)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| {
        format!(
            "cannot open the namespace {}: its process must exist and be this user's",
            path.display()
        )
    })
}

/// Whether this process is in a user namespace already, and so cannot enter it.
fn is_own(user: &File) -> Result<bool, Errno> {
    let (one, own) = (rustix::fs::fstat(user)?, rustix::fs::stat("/proc/self/ns/user")?);
    Ok((one.st_dev, one.st_ino) == (own.st_dev, own.st_ino))
}

fn enter(namespace: &File, kind: LinkNameSpaceType) -> Result<(), Errno> {
    move_into_link_name_space(namespace.as_fd(), Some(kind))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_descriptor_that_the_caller_has_left_is_taken_over() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let number = std::os::fd::IntoRawFd::into_raw_fd(writer);
        // One that is wrong leaves the other.
        let error = inherited([Some(number), Some(9999)]).unwrap_err().to_string();
        assert!(error.contains("no descriptor has the number 9999"), "{error}");
        let error = inherited([Some(number); 2]).unwrap_err().to_string();
        assert!(error.contains("two options name"), "{error}");
        let [fd, none] = inherited([Some(number), None]).unwrap();
        assert!(none.is_none());
        rustix::io::write(fd.as_ref().unwrap(), b"1").unwrap();
        drop(fd);
        let mut text = String::new();
        // Without a second descriptor of the writer the pipe has an end.
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "1");
    }
}
