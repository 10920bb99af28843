//! Waiting until the kernel has noticed that a process is attached.
//!
//! Attaching gives the interface its carrier. The kernel activates the interface a moment later, on
//! its own thread, and drops packets for the stack until then. A SYN that leaves in that moment
//! loses its answer, which costs a second. So opening waits for the kernel's notice (rtnetlink)
//! that the interface runs.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::device::sys;

/// Changes of links (`RTMGRP_LINK`).
const LINK_GROUP: u32 = 1;

/// How long to wait at most. Nothing depends on the notice but the first packets.
const LIMIT: Duration = Duration::from_secs(1);

/// Listens for changes of links from its creation on. Where rtnetlink is not to be had, nothing is
/// waited for.
pub(super) struct LinkWatch(Option<OwnedFd>);

impl LinkWatch {
    pub(super) fn new() -> LinkWatch {
        LinkWatch(open().ok())
    }

    /// Waits until interface `name` runs. Returns at once if it runs already or is not up.
    pub(super) fn wait_until_running(&self, name: &str) {
        let Some(socket) = &self.0 else { return };
        let end = Instant::now() + LIMIT;
        while sys::interface_state(name).is_ok_and(|state| state.up && !state.running) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !wait_for_notice(socket, left) {
                return;
            }
        }
    }
}

fn open() -> Result<OwnedFd, rustix::io::Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol 0 is rtnetlink.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, LINK_GROUP))?;
    Ok(socket)
}

/// Sleeps until a link has changed; false if none did within `left`. The content of the notice is
/// ignored: the caller reads the state itself.
fn wait_for_notice(socket: &OwnedFd, left: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    if !matches!(poll(&mut fds, Some(&timeout)), Ok(ready) if ready > 0) {
        return false;
    }
    let mut notice = [0; 4096];
    while rustix::net::recv(socket, &mut notice[..], RecvFlags::empty()).is_ok() {}
    true
}
