//! Sleeping on descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Watched;
use crate::limits::MAX_INTERFACES;

/// Sleeps until one of `events` is set, one of `devices` is ready, or `timeout` is over; without a
/// time, for as long as it takes. It may also end early. Returns the set of the events that are
/// set, by their places.
///
/// # Errors
/// If the system refuses to wait.
pub(crate) fn sleep<'a, E: AsFd>(
    events: &[&'a E],
    devices: impl Iterator<Item = Watched<'a>>,
    timeout: Option<Duration>,
) -> io::Result<u16> {
    let watch = |fd: BorrowedFd<'a>, busy| {
        let flags = if busy { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        PollFd::from_borrowed_fd(fd, flags)
    };
    let mut fds = ArrayVec::<PollFd<'_>, { 2 * MAX_INTERFACES }>::new();
    fds.extend(events.iter().map(|&event| watch(E::as_fd(event), false)));
    fds.extend(devices.map(|(fd, busy)| watch(fd.as_fd(), busy)));
    let timeout = timeout.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {
            let set = |fd: &PollFd<'_>| u16::from(fd.revents().contains(PollFlags::IN));
            let places = fds[..events.len()].iter().enumerate();
            Ok(places.fold(0, |all, (place, fd)| all | set(fd) << place))
        }
        Err(error) => Err(error.into()),
    }
}
