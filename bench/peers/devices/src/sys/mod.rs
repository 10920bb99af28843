//! Calls of the kernel, and memory that is shared with it: all that is unsafe here.

mod bpf;
pub(crate) mod ethtool;
mod map;
pub(crate) mod packet;
pub(crate) mod rings;
pub(crate) mod uring;
pub(crate) mod xdp;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The result of a call, or why it has failed.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same of a call that returns how much it has moved.
fn moved(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// What may be given to the kernel byte by byte.
///
/// # Safety
/// It has no bytes between its fields, and no pointers that the kernel would follow.
pub(crate) unsafe trait Plain {}

// SAFETY: these are numbers.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for libc::c_int {}
// SAFETY: these are numbers, each at a multiple of its size.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req3 {}

/// Sets an option of a socket.
pub(crate) fn set_option<T: Plain>(
    socket: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which are there and have values (`Plain`).
    checked(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) })
        .map(drop)
}

/// Waits until there is something to read.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut waited = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: it is one structure, which lives until the call returns.
    checked(unsafe { libc::poll(&raw mut waited, 1, -1) }).map(drop)
}

/// Has reads return if there is nothing.
pub(crate) fn set_nonblocking(file: &impl AsFd) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open; the call takes and returns flags.
    let flags = checked(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// A new socket.
fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers.
    let fd = checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the call has returned a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of a device of this namespace.
fn index(device: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(device)?;
    // SAFETY: the name ends with a zero, and lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Has the kernel send what lies in a ring. What it cannot take yet stays there.
fn kick(socket: &OwnedFd) -> io::Result<()> {
    let (fd, nothing) = (socket.as_raw_fd(), std::ptr::null());
    // SAFETY: there are no bytes to be read.
    match moved(unsafe { libc::send(fd, nothing, 0, libc::MSG_DONTWAIT) }) {
        Err(error) if is_full(&error) => Ok(()),
        other => other.map(drop),
    }
}

/// Whether something has to be tried again.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS))
}
