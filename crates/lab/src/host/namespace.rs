//! A network namespace without a name.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::counters::Files;

/// The calling thread's own, as /proc shows it.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace. It goes when this is dropped and nothing else is left of it: no thread, no
/// socket.
pub(super) struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// Makes one with nothing in it.
    pub(super) fn new() -> anyhow::Result<Namespace> {
        let made = on_a_thread(|| {
            // This flag leaves the descriptors shared, which is what the deprecation is about.
            #[allow(deprecated)]
            let made = rustix::thread::unshare(UnshareFlags::NEWNET);
            made.context("cannot make a network namespace")?;
            File::open(OWN).with_context(|| format!("cannot open {OWN}"))
        });
        Ok(Namespace { fd: made?.into() })
    }

    /// Does something on a thread that is in the namespace, as all threads and programs are that it
    /// starts. The calling thread stays where it is.
    pub(super) fn inside<T: Send>(
        &self,
        body: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        on_a_thread(|| {
            move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
                .context("cannot enter a network namespace")?;
            body()
        })
    }

    /// Where programs find it, as long as this is there.
    pub(super) fn path(&self) -> PathBuf {
        let process = rustix::process::getpid().as_raw_nonzero();
        PathBuf::from(format!("/proc/{process}/fd/{}", self.fd.as_raw_fd()))
    }

    /// Its counters, readable from anywhere.
    pub(super) fn counters(&self) -> anyhow::Result<Files> {
        self.inside(Files::open)
    }
}

/// Runs `body` on a new thread and waits for it.
fn on_a_thread<T: Send>(body: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespace".into());
        let thread = thread.spawn_scoped(scope, body).context("cannot start a thread")?;
        // A panic of the thread has been reported by its hook.
        thread.join().unwrap_or_else(|_| Err(anyhow!("a thread in a namespace has failed")))
    })
}

/// The file of a setting: `/proc/sys/net/ipv4/tcp_autocorking` for `net.ipv4.tcp_autocorking`.
pub(super) fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

/// A setting of the calling thread's namespace.
pub(super) fn get(name: &str) -> anyhow::Result<String> {
    let path = path(name);
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// Changes a setting of the calling thread's namespace, and looks whether it has changed.
pub(crate) fn set(name: &str, value: &str) -> anyhow::Result<()> {
    let path = path(name);
    std::fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))?;
    let now = get(name)?;
    if now != value {
        bail!("{name} is {now} after it was set to {value}");
    }
    Ok(())
}
