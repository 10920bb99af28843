//! The table of functions that the tool asks for.
//!
//! Each function has the arguments of the call that it stands in for, with the table's own word in
//! front.
//!
//! # Safety
//! The tool calls each with arguments that are fit for the system call of the same name: pointers
//! are NULL or good for their lengths. Every `unsafe` block below hands such an argument on to
//! [`memory`], which asks for just that, or writes through one.

#![allow(clippy::undocumented_unsafe_blocks, reason = "one comment says it for all of them")]

use std::ffi::{CStr, c_char};
use std::ptr;

use libc::{
    c_int, c_long, c_longlong, c_uint, c_ulong, c_void, epoll_event, iovec, loff_t, msghdr, nfds_t,
    pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval,
};
use plimsoll_drill::posix::{
    Call, EpollEvent, Errno, Out, PollFd, ReceiveVia, Reply, SendVia, SpliceEnd,
};
use plimsoll_tcp::Duration;

use crate::adapter::Adapter;
use crate::memory::{self, finish, finish_int};
use crate::{flags, preload};

/// The word that the tool passes to every function. There is one adapter in a process.
type User = *mut c_void;

/// The table, field for field in the tool's order.
#[repr(C)]
pub struct Table {
    userdata: User,
    free: unsafe extern "C" fn(User),
    socket: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    bind: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    listen: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    accept: unsafe extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    connect: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    read: unsafe extern "C" fn(User, c_int, *mut c_void, size_t) -> ssize_t,
    readv: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    recv: unsafe extern "C" fn(User, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    recvfrom: unsafe extern "C" fn(
        User,
        c_int,
        *mut c_void,
        size_t,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    write: unsafe extern "C" fn(User, c_int, *const c_void, size_t) -> ssize_t,
    writev: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    send: unsafe extern "C" fn(User, c_int, *const c_void, size_t, c_int) -> ssize_t,
    sendto: unsafe extern "C" fn(
        User,
        c_int,
        *const c_void,
        size_t,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    fcntl: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    ioctl: unsafe extern "C" fn(User, c_int, c_ulong, *mut c_int) -> c_int,
    close: unsafe extern "C" fn(User, c_int) -> c_int,
    shutdown: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    getsockopt:
        unsafe extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    setsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    poll: unsafe extern "C" fn(User, *mut pollfd, nfds_t, c_int) -> c_int,
    netdev_send: unsafe extern "C" fn(User, *const c_void, size_t) -> c_int,
    netdev_receive: unsafe extern "C" fn(User, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    usleep: unsafe extern "C" fn(User, c_uint) -> c_int,
    gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut c_void) -> c_int,
    epoll_create: unsafe extern "C" fn(User, c_int) -> c_int,
    epoll_ctl: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    epoll_wait: unsafe extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pipe: unsafe extern "C" fn(User, *mut c_int) -> c_int,
    splice: unsafe extern "C" fn(
        User,
        c_int,
        *mut loff_t,
        c_int,
        *mut loff_t,
        size_t,
        c_uint,
    ) -> ssize_t,
}

const _: () = assert!(size_of::<Table>() == 33 * size_of::<usize>());

/// Fills in the table. The tool calls this once, before anything else of a script happens.
///
/// # Safety
/// `text` is NULL or a C string, and `table` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(text: *const c_char, table: *mut Table) {
    let text = if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } };
    let network = text.to_str().map_err(|e| e.to_string()).and_then(flags::parse);
    let host = network.and_then(|network| preload::host(&network).map_err(|e| e.to_string()));
    let installed = host.map(Adapter::install);
    match installed {
        // SAFETY: as the caller promises.
        Ok(true) => unsafe { ptr::write(table, functions()) },
        Ok(false) => fail("the tool has asked for the table twice"),
        Err(why) => fail(&why),
    }
}

/// Ends the tool, which has no way to be told of an error here.
fn fail(why: &str) {
    eprintln!("plimsoll: {why}");
    std::process::exit(1);
}

fn functions() -> Table {
    Table {
        userdata: ptr::null_mut(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    }
}

/// Makes a call on the process's adapter.
pub(crate) fn call(call: Call) -> Reply {
    Adapter::get().map_or(Reply::error(Errno::ENOSYS), |adapter| adapter.call(call))
}

fn call_int(what: Call) -> c_int {
    finish_int(call(what).result)
}

unsafe extern "C" fn free(_: User) {}

unsafe extern "C" fn socket(_: User, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    call_int(Call::Socket { domain, kind, protocol })
}

unsafe extern "C" fn bind(_: User, fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    let addr = unsafe { memory::address(name, len) };
    call_int(Call::Bind { fd, addr })
}

unsafe extern "C" fn listen(_: User, fd: c_int, backlog: c_int) -> c_int {
    call_int(Call::Listen { fd, backlog })
}

unsafe extern "C" fn accept(_: User, fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let reply = call(Call::Accept { fd, flags: 0 });
    if let Out::Address(address) = reply.out {
        unsafe { memory::put_address(name, len, Some(address)) };
    }
    finish_int(reply.result)
}

unsafe extern "C" fn connect(_: User, fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    let addr = unsafe { memory::address(name, len) };
    call_int(Call::Connect { fd, addr })
}

/// Receives into buffers.
unsafe fn receive(
    via: ReceiveVia,
    fd: c_int,
    entries: &[iovec],
    flags: c_int,
    from: (*mut sockaddr, *mut socklen_t),
) -> ssize_t {
    let buffers = unsafe { memory::dests(entries.as_ptr(), entries.len()) };
    let reply = call(Call::Receive { via, fd, buffers, flags, control_len: 0 });
    unsafe { memory::put_received(reply, entries, from.0, from.1) as ssize_t }
}

const NOBODY: (*mut sockaddr, *mut socklen_t) = (ptr::null_mut(), ptr::null_mut());

unsafe extern "C" fn read(_: User, fd: c_int, room: *mut c_void, len: size_t) -> ssize_t {
    let entry = [iovec { iov_base: room, iov_len: len }];
    unsafe { receive(ReceiveVia::Read, fd, &entry, 0, NOBODY) }
}

unsafe extern "C" fn readv(_: User, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    let count = usize::try_from(count).unwrap_or(0);
    unsafe { receive(ReceiveVia::Readv, fd, memory::entries(iov, count), 0, NOBODY) }
}

unsafe extern "C" fn recv(
    _: User,
    fd: c_int,
    room: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let entry = [iovec { iov_base: room, iov_len: len }];
    unsafe { receive(ReceiveVia::Recv, fd, &entry, flags, NOBODY) }
}

unsafe extern "C" fn recvfrom(
    _: User,
    fd: c_int,
    room: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let entry = [iovec { iov_base: room, iov_len: len }];
    unsafe { receive(ReceiveVia::Recvfrom, fd, &entry, flags, (from, from_len)) }
}

unsafe extern "C" fn recvmsg(_: User, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let Some(message) = (unsafe { message.as_mut() }) else {
        return finish(Err(Errno::EFAULT)) as ssize_t;
    };
    let buffers = unsafe { memory::dests(message.msg_iov, message.msg_iovlen) };
    let control_len = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    let via = ReceiveVia::Recvmsg;
    let reply = call(Call::Receive { via, fd, buffers, flags, control_len });
    unsafe { memory::put_message(reply, message) as ssize_t }
}

fn send_from(
    via: SendVia,
    fd: c_int,
    buffers: Vec<plimsoll_drill::posix::Source>,
    flags: c_int,
) -> ssize_t {
    let what = Call::Send { via, fd, buffers, flags, to: None, control: Vec::new() };
    finish(call(what).result) as ssize_t
}

unsafe extern "C" fn write(_: User, fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
    send_from(SendVia::Write, fd, vec![unsafe { memory::source(data, len) }], 0)
}

unsafe extern "C" fn writev(_: User, fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    let count = usize::try_from(count).unwrap_or(0);
    send_from(SendVia::Writev, fd, unsafe { memory::sources(iov, count) }, 0)
}

unsafe extern "C" fn send(
    _: User,
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    send_from(SendVia::Send, fd, vec![unsafe { memory::source(data, len) }], flags)
}

unsafe extern "C" fn sendto(
    _: User,
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    name: *const sockaddr,
    name_len: socklen_t,
) -> ssize_t {
    let buffers = vec![unsafe { memory::source(data, len) }];
    let to = unsafe { memory::destination(name, name_len) };
    let via = SendVia::Sendto;
    let what = Call::Send { via, fd, buffers, flags, to, control: Vec::new() };
    finish(call(what).result) as ssize_t
}

unsafe extern "C" fn sendmsg(_: User, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let Some(message) = (unsafe { message.as_ref() }) else {
        return finish(Err(Errno::EFAULT)) as ssize_t;
    };
    let what = unsafe {
        Call::Send {
            via: SendVia::Sendmsg,
            fd,
            buffers: memory::sources(message.msg_iov, message.msg_iovlen),
            flags,
            to: memory::destination(message.msg_name.cast(), message.msg_namelen),
            control: memory::control(message),
        }
    };
    finish(call(what).result) as ssize_t
}

// The next two are variadic in C. On the machines that we know, a function of fixed arity gets its
// arguments from the same places.

unsafe extern "C" fn fcntl(_: User, fd: c_int, cmd: c_int, arg: c_int) -> c_int {
    call_int(Call::Fcntl { fd, cmd, arg: arg.into() })
}

unsafe extern "C" fn ioctl(_: User, fd: c_int, request: c_ulong, arg: *mut c_int) -> c_int {
    // Of another request nobody knows whether there is an argument at all.
    let known = [libc::FIONREAD, libc::TIOCOUTQ, SIOCOUTQNSD, SIOCATMARK, libc::FIONBIO];
    let place = if known.contains(&request) { unsafe { arg.as_mut() } } else { None };
    let reply = call(Call::Ioctl { fd, request, arg: place.as_deref().copied() });
    if let (Out::Int(value), Some(place)) = (&reply.out, place) {
        *place = *value;
    }
    finish_int(reply.result)
}

/// Bytes that were not sent, and whether the reader is at the urgent mark.
const SIOCOUTQNSD: c_ulong = 0x894b;
const SIOCATMARK: c_ulong = 0x8905;

unsafe extern "C" fn close(_: User, fd: c_int) -> c_int {
    if Adapter::get().is_some_and(|adapter| adapter.knows(fd)) {
        return call_int(Call::Close { fd });
    }
    // SAFETY: the tool opened it with open(2).
    unsafe { libc::close(fd) }
}

unsafe extern "C" fn shutdown(_: User, fd: c_int, how: c_int) -> c_int {
    call_int(Call::Shutdown { fd, how })
}

unsafe extern "C" fn getsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let Some(&room) = (unsafe { len.as_ref() }) else { return finish_int(Err(Errno::EFAULT)) };
    let (len_asked, null) = (room as i32, value.is_null());
    let reply = call(Call::Getsockopt { fd, level, name, len: len_asked, null });
    unsafe { memory::put_option(reply, value, len) }
}

unsafe extern "C" fn setsockopt(
    _: User,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let len = len as i32;
    // No option is longer; a script may give a length that is wrong on purpose.
    let copied = usize::try_from(len).unwrap_or(0).clamp(size_of::<c_int>(), 256);
    let value = unsafe { memory::bytes(value, copied) }.map(<[u8]>::to_vec);
    call_int(Call::Setsockopt { fd, level, name, value, len })
}

unsafe extern "C" fn poll(_: User, fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let count = if fds.is_null() { 0 } else { count as usize };
    let places: &mut [pollfd] = match count {
        0 => &mut [],
        _ => unsafe { std::slice::from_raw_parts_mut(fds, count) },
    };
    let fds = places.iter().map(|p| PollFd { fd: p.fd, events: p.events, revents: 0 }).collect();
    let reply = call(Call::Poll { fds, timeout_ms });
    if let Out::Poll(answers) = &reply.out {
        places.iter_mut().zip(answers).for_each(|(place, answer)| place.revents = answer.revents);
    }
    finish_int(reply.result)
}

unsafe extern "C" fn netdev_send(_: User, packet: *const c_void, len: size_t) -> c_int {
    let (Some(adapter), Some(packet)) = (Adapter::get(), unsafe { memory::bytes(packet, len) })
    else {
        return -1;
    };
    match adapter.inject(packet) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("plimsoll: {error}");
            -1
        }
    }
}

unsafe extern "C" fn netdev_receive(
    _: User,
    room: *mut c_void,
    len: *mut size_t,
    micros: *mut c_longlong,
) -> c_int {
    // A length of zero says that there is nothing; an error would be tried again for ever.
    let packet = Adapter::get().and_then(Adapter::sniff);
    unsafe {
        let limit = *len;
        *len = 0;
        if let Some((at, bytes)) = packet {
            *len = bytes.len().min(limit);
            ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast(), *len);
            *micros = at.as_micros() as c_longlong;
        }
    }
    0
}

unsafe extern "C" fn usleep(_: User, micros: c_uint) -> c_int {
    if let Some(adapter) = Adapter::get() {
        adapter.sleep(Duration::from_micros(micros.into()));
    }
    0
}

unsafe extern "C" fn gettimeofday(_: User, time: *mut timeval, _zone: *mut c_void) -> c_int {
    let now = Adapter::get().map_or(Duration::ZERO, Adapter::look_at_clock);
    if let Some(time) = unsafe { time.as_mut() } {
        time.tv_sec = now.as_secs() as c_long;
        time.tv_usec = c_long::from(now.subsec_micros());
    }
    0
}

unsafe extern "C" fn epoll_create(_: User, size: c_int) -> c_int {
    call_int(Call::EpollCreate { size: Some(size), flags: 0 })
}

unsafe extern "C" fn epoll_ctl(
    _: User,
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let event = unsafe { event.as_ref() };
    let event = event.map(|e| EpollEvent { events: e.events, data: e.u64 });
    call_int(Call::EpollCtl { epfd, op, fd, event })
}

unsafe extern "C" fn epoll_wait(
    _: User,
    epfd: c_int,
    events: *mut epoll_event,
    max_events: c_int,
    timeout_ms: c_int,
) -> c_int {
    let reply = call(Call::EpollWait { epfd, max_events, timeout_ms });
    if let (Out::Epoll(answers), false) = (&reply.out, events.is_null()) {
        let room = usize::try_from(max_events).unwrap_or(0);
        for (n, answer) in answers.iter().take(room).enumerate() {
            let event = epoll_event { events: answer.events, u64: answer.data };
            unsafe { ptr::write(events.add(n), event) };
        }
    }
    finish_int(reply.result)
}

unsafe extern "C" fn pipe(_: User, ends: *mut c_int) -> c_int {
    let reply = call(Call::Pipe { flags: 0 });
    if let (Out::Pipe(fds), false) = (&reply.out, ends.is_null()) {
        unsafe {
            ptr::write(ends, fds[0]);
            ptr::write(ends.add(1), fds[1]);
        }
    }
    finish_int(reply.result)
}

unsafe extern "C" fn splice(
    _: User,
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // The tool passes the place of a number that a script wrote where a pointer belongs. The only
    // pointer that a script can write so is NULL.
    let offset = |place: *mut loff_t| unsafe { place.as_ref() }.copied().filter(|&o| o != 0);
    let from = SpliceEnd { fd: from, offset: offset(from_offset) };
    let to = SpliceEnd { fd: to, offset: offset(to_offset) };
    finish(call(Call::Splice { from, to, len, flags }).result) as ssize_t
}

#[cfg(test)]
mod tests;
