//! Devices whose descriptors the runtime watches.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};

use plimsoll_stack::StackError;
use plimsoll_stack::device::WaitSource;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Watch;

/// Has the runtime notify when one of several devices is ready.
#[derive(Default)]
pub(crate) struct DeviceWatcher(Vec<Source>);

impl DeviceWatcher {
    /// Tries whether the runtime of the caller watches descriptors, with a descriptor made for the
    /// test.
    ///
    /// # Errors
    /// If the system refuses, or the runtime is at its end.
    ///
    /// # Panics
    /// Outside of a runtime, or on one without its I/O driver.
    pub(crate) fn probe() -> io::Result<()> {
        let (end, _other) = UnixStream::pair()?;
        watched(end, Interest::READABLE).map(drop).map_err(io::Error::other)
    }

    /// Discards the runtime's notifications so far.
    pub(crate) fn forget(&mut self, cx: &mut Context<'_>) -> Result<(), StackError> {
        for source in &mut self.0 {
            forget_readiness(&mut source.fd, cx)?;
        }
        Ok(())
    }

    /// Has `cx` be woken when one of the devices, which may be others than before, is ready: to
    /// receive, and if it is said to be full, to send.
    pub(crate) fn watch(
        &mut self,
        devices: impl Iterator<Item = (WaitSource, bool)>,
        cx: &mut Context<'_>,
    ) -> Result<Watch, StackError> {
        let (mut known, mut watch) = (0, Watch::Same);
        for (wait, busy) in devices {
            let Some(fd) = wait.fd() else { continue };
            let same = |source: &Source| {
                source.fd.get_ref().as_raw_fd() == fd.as_raw_fd() && source.to_send == busy
            };
            if !self.0.get(known).is_some_and(same) {
                // One of them could be registered already, and cannot be twice.
                self.0.truncate(known);
                let mut source = Source::new(wait.clone(), busy)?;
                forget_readiness(&mut source.fd, cx)?;
                self.0.push(source);
                watch = Watch::Changed;
            }
            known += 1;
        }
        self.0.truncate(known);
        Ok(watch)
    }
}

/// A device that the runtime watches.
struct Source {
    fd: AsyncFd<Watched>,
    /// It is watched until it is writable, too.
    to_send: bool,
}

struct Watched(WaitSource);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd().expect("only sources with a descriptor are watched").as_raw_fd()
    }
}

impl Source {
    fn new(wait: WaitSource, to_send: bool) -> Result<Source, StackError> {
        let interest = Interest::READABLE;
        let interest = if to_send { interest | Interest::WRITABLE } else { interest };
        Ok(Source { fd: watched(Watched(wait), interest)?, to_send })
    }
}

/// Has the runtime watch a descriptor that `inner` owns, so that it stays open.
#[allow(deprecated, reason = "the successor is unsafe for the sake of types that own none")]
pub(super) fn watched<T: AsRawFd>(inner: T, interest: Interest) -> Result<AsyncFd<T>, StackError> {
    AsyncFd::with_interest(inner, interest).map_err(refused("epoll_ctl"))
}

/// Forgets that `fd` was ready, and has `cx` be woken when it is so again. Returns whether it was.
pub(super) fn forget_readiness<T: AsRawFd>(
    fd: &mut AsyncFd<T>,
    cx: &mut Context<'_>,
) -> Result<bool, StackError> {
    let mut was_ready = false;
    while let Poll::Ready(guard) = fd.poll_read_ready(cx) {
        guard.map_err(refused("epoll_wait"))?.clear_ready();
        was_ready = true;
    }
    while let Poll::Ready(guard) = fd.poll_write_ready(cx) {
        guard.map_err(refused("epoll_wait"))?.clear_ready();
    }
    Ok(was_ready)
}

pub(super) fn refused(call: &'static str) -> impl Fn(io::Error) -> StackError {
    move |error| StackError::System { call, reason: error.to_string() }
}
