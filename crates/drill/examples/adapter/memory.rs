//! What C pointers refer to, as values, and values written through C pointers.
//!
//! Each function takes pointers as the tool passes them to a system call. A NULL pointer is a
//! defined argument of all of them; any other must be good for as long as its length says.

use std::net::SocketAddr;
use std::{ptr, slice};

use libc::{c_int, c_void, iovec, msghdr, sockaddr, socklen_t};
use plimsoll_drill::posix::{ControlMessage, Dest, Errno, Out, Reply, Source};
use plimsoll_drill::raw;

/// The most that is copied at once, whatever a length says.
const MAX_COPY: usize = 1 << 28;

/// Returns a reply as C does: the value, or -1 and `errno`.
pub(crate) fn finish(result: Result<i64, Errno>) -> i64 {
    match result {
        Ok(value) => value,
        Err(Errno(number)) => {
            // SAFETY: the C library gives each thread a place for its error number.
            unsafe { *libc::__errno_location() = number };
            -1
        }
    }
}

/// [`finish`] for calls that return an `int`.
pub(crate) fn finish_int(result: Result<i64, Errno>) -> c_int {
    finish(result) as c_int
}

/// # Safety
/// `pointer` is NULL or refers to `len` bytes.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: as the caller promises.
    (!pointer.is_null())
        .then(|| unsafe { slice::from_raw_parts(pointer.cast(), len.min(MAX_COPY)) })
}

/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn source(pointer: *const c_void, len: usize) -> Source {
    // SAFETY: as the caller promises.
    unsafe { bytes(pointer, len) }.map_or(Source::Null(len), |bytes| Source::Bytes(bytes.to_vec()))
}

pub(crate) fn dest(pointer: *const c_void, len: usize) -> Dest {
    if pointer.is_null() { Dest::Null(len) } else { Dest::Room(len) }
}

/// # Safety
/// `iov` is NULL or refers to `count` entries.
pub(crate) unsafe fn entries<'a>(iov: *const iovec, count: usize) -> &'a [iovec] {
    // SAFETY: as the caller promises.
    if iov.is_null() { &[] } else { unsafe { slice::from_raw_parts(iov, count.min(1024)) } }
}

/// # Safety
/// As [`entries`], and the entries are as for [`bytes`].
pub(crate) unsafe fn sources(iov: *const iovec, count: usize) -> Vec<Source> {
    // SAFETY: as the caller promises.
    unsafe { entries(iov, count).iter().map(|e| source(e.iov_base, e.iov_len)).collect() }
}

/// # Safety
/// As [`entries`].
pub(crate) unsafe fn dests(iov: *const iovec, count: usize) -> Vec<Dest> {
    // SAFETY: as the caller promises.
    unsafe { entries(iov, count) }.iter().map(|e| dest(e.iov_base, e.iov_len)).collect()
}

/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn address(pointer: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    // SAFETY: as the caller promises.
    unsafe { bytes(pointer.cast(), len as usize) }.and_then(raw::address)
}

/// Where something is to be sent. An address of no family becomes one that says nothing.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn destination(pointer: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { address(pointer, len) }.or(Some(raw::NO_ADDRESS))
}

/// Writes bytes through a pointer with room for `room` of them.
///
/// # Safety
/// `pointer` is NULL or may be written for `room` bytes.
unsafe fn write(pointer: *mut c_void, room: usize, bytes: &[u8]) {
    if !pointer.is_null() {
        // SAFETY: as the caller promises; no more than the room is written.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len().min(room)) };
    }
}

/// Writes an address and its length.
///
/// # Safety
/// `len` is NULL or holds the room behind `pointer`, which is NULL or may be written so far.
pub(crate) unsafe fn put_address(
    pointer: *mut sockaddr,
    len: *mut socklen_t,
    address: Option<SocketAddr>,
) {
    if len.is_null() || pointer.is_null() {
        return;
    }
    let bytes = address.map(raw::address_bytes).unwrap_or_default();
    // SAFETY: as the caller promises.
    unsafe {
        write(pointer.cast(), *len as usize, &bytes);
        *len = bytes.len() as socklen_t;
    }
}

/// Writes data that was received into buffers, one after the other.
///
/// # Safety
/// The entries may be written for as long as they say, or are NULL.
unsafe fn scatter(entries: &[iovec], data: &[u8]) {
    let mut rest = data;
    for entry in entries {
        let (now, later) = rest.split_at(rest.len().min(entry.iov_len));
        // SAFETY: as the caller promises.
        unsafe { write(entry.iov_base, entry.iov_len, now) };
        rest = later;
    }
}

/// Writes what was received and returns the result.
///
/// # Safety
/// As [`scatter`]; `from` and `from_len` as for [`put_address`].
pub(crate) unsafe fn put_received(
    reply: Reply,
    entries: &[iovec],
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> i64 {
    if let Out::Received { data, from: address, .. } = &reply.out {
        // SAFETY: as the caller promises.
        unsafe {
            scatter(entries, data);
            put_address(from, from_len, *address);
        }
    }
    finish(reply.result)
}

/// Writes what `recvmsg` gives and returns the result.
///
/// # Safety
/// `message` is a `struct msghdr` whose pointers are as for the system call.
pub(crate) unsafe fn put_message(reply: Reply, message: &mut msghdr) -> i64 {
    if let Out::Received { data, from, control, msg_flags } = &reply.out {
        let control = raw::control_bytes(control);
        let room = message.msg_controllen;
        // SAFETY: as the caller promises.
        unsafe {
            scatter(entries(message.msg_iov, message.msg_iovlen), data);
            let name_len = &raw mut message.msg_namelen;
            put_address(message.msg_name.cast(), name_len, *from);
            write(message.msg_control, room, &control);
        }
        message.msg_controllen = control.len().min(room);
        message.msg_flags = *msg_flags;
    }
    finish(reply.result)
}

/// The ancillary messages of a `struct msghdr`.
///
/// # Safety
/// Its control pointer is as for the system call.
pub(crate) unsafe fn control(message: &msghdr) -> Vec<ControlMessage> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { bytes(message.msg_control, message.msg_controllen) };
    raw::control(bytes.unwrap_or_default())
}

/// Writes a value of an option, and its length.
///
/// # Safety
/// `len` is NULL or holds the room behind `pointer`, which is NULL or may be written so far.
pub(crate) unsafe fn put_option(reply: Reply, pointer: *mut c_void, len: *mut socklen_t) -> c_int {
    if let (Out::Option { value, len: set }, false) = (&reply.out, len.is_null()) {
        // SAFETY: as the caller promises.
        unsafe {
            write(pointer, *len as usize, value);
            *len = *set as socklen_t;
        }
    }
    finish_int(reply.result)
}
