//! A [`Call`] made to the kernel.

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::ptr;

use crate::posix::{
    Call, ControlMessage, Dest, EpollEvent, Errno, Out, PollFd, ReceiveVia, Reply, SendVia, Source,
    SpliceEnd,
};
use libc::{c_int, c_void, socklen_t};

use crate::raw;

/// The most that a script may ask room for in one buffer.
const MAX_ROOM: usize = 1 << 30;

/// What a system call returned, with the error number if it was an error.
fn check(result: impl Into<i64>) -> Result<i64, Errno> {
    match result.into() {
        -1 => Err(last_error()),
        value => Ok(value),
    }
}

fn last_error() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// A plain result, without anything written through pointers.
fn plain(result: impl Into<i64>) -> Reply {
    Reply { result: check(result), out: Out::Nothing }
}

/// Makes the call, and sleeps in it if the kernel does.
pub(in crate::kernel) fn perform(call: &Call) -> Reply {
    // SAFETY: the calls that stand here take integers only, or what `named` gives them: an address
    // and its length.
    unsafe {
        match call {
            Call::Socket { domain, kind, protocol } => {
                plain(libc::socket(*domain, *kind, *protocol))
            }
            Call::Listen { fd, backlog } => plain(libc::listen(*fd, *backlog)),
            Call::Fcntl { fd, cmd, arg } => plain(libc::fcntl(*fd, *cmd, *arg)),
            Call::Close { fd } => plain(libc::close(*fd)),
            Call::Shutdown { fd, how } => plain(libc::shutdown(*fd, *how)),
            Call::EpollCreate { size: Some(size), .. } => plain(libc::epoll_create(*size)),
            Call::EpollCreate { size: None, flags } => plain(libc::epoll_create1(*flags)),
            Call::Bind { fd, addr } => bind(*fd, *addr),
            Call::Connect { fd, addr } => connect(*fd, *addr),
            Call::Accept { fd, flags } => named(|name, len| libc::accept4(*fd, name, len, *flags)),
            Call::Getsockname { fd } => named(|name, len| libc::getsockname(*fd, name, len)),
            Call::Getpeername { fd } => named(|name, len| libc::getpeername(*fd, name, len)),
            Call::Receive { via, fd, buffers, flags, control_len } => {
                receive(*via, *fd, buffers, *flags, *control_len)
            }
            Call::Send { via, fd, buffers, flags, to, control } => {
                send(*via, *fd, buffers, *flags, *to, control)
            }
            Call::Ioctl { fd, request, arg } => ioctl(*fd, *request, *arg),
            Call::Getsockopt { fd, level, name, len, null } => {
                getsockopt(*fd, (*level, *name), *len, *null)
            }
            Call::Setsockopt { fd, level, name, value, len } => {
                setsockopt(*fd, (*level, *name), value.as_deref(), *len)
            }
            Call::Poll { fds, timeout_ms } => poll(fds, *timeout_ms),
            Call::EpollCtl { epfd, op, fd, event } => epoll_ctl(*epfd, *op, *fd, *event),
            Call::EpollWait { epfd, max_events, timeout_ms } => {
                epoll_wait(*epfd, *max_events, *timeout_ms)
            }
            Call::Pipe { flags } => pipe(*flags),
            Call::Splice { from, to, len, flags } => splice(*from, *to, *len, *flags),
            Call::Sendfile { out_fd, in_fd, offset, count } => {
                sendfile(*out_fd, *in_fd, *offset, *count)
            }
            Call::Open { path, flags } => open(path, *flags),
        }
    }
}

fn bind(fd: c_int, addr: Option<SocketAddr>) -> Reply {
    let name = addr.map(raw::address_bytes).unwrap_or_default();
    let pointer = if name.is_empty() { ptr::null() } else { name.as_ptr() };
    let len = if name.is_empty() { 16 } else { name.len() };
    // SAFETY: the pointer is NULL or has `len` bytes.
    plain(unsafe { libc::bind(fd, pointer.cast(), len as socklen_t) })
}

fn connect(fd: c_int, addr: Option<SocketAddr>) -> Reply {
    // No address is the family AF_UNSPEC: the socket lets go of its peer.
    let name = addr.map_or(vec![0; 16], raw::address_bytes);
    // SAFETY: the pointer has `len` bytes.
    plain(unsafe { libc::connect(fd, name.as_ptr().cast(), name.len() as socklen_t) })
}

/// A call that writes an address.
fn named(call: impl FnOnce(*mut libc::sockaddr, *mut socklen_t) -> c_int) -> Reply {
    let mut room = [0u8; raw::ADDRESS_ROOM];
    let mut len = room.len() as socklen_t;
    let result = check(call(room.as_mut_ptr().cast(), &raw mut len));
    let name = raw::address(&room[..(len as usize).min(room.len())]);
    let out = match name {
        Some(name) if result.is_ok() => Out::Address(name),
        _ => Out::Nothing,
    };
    Reply { result, out }
}

/// Room for what is read. A bad pointer stays one.
struct Room {
    buffers: Vec<Vec<u8>>,
    iov: Vec<libc::iovec>,
}

impl Room {
    fn new(dests: &[Dest]) -> Room {
        let mut room = Room { buffers: Vec::new(), iov: Vec::new() };
        for dest in dests {
            let (base, len) = match *dest {
                Dest::Room(len) => {
                    room.buffers.push(vec![0; len.min(MAX_ROOM)]);
                    let last = room.buffers.last_mut().map(|b| b.as_mut_ptr());
                    (last.unwrap_or(ptr::null_mut()), len.min(MAX_ROOM))
                }
                Dest::Null(len) => (ptr::null_mut(), len),
            };
            room.iov.push(libc::iovec { iov_base: base.cast(), iov_len: len });
        }
        room
    }

    fn first(&self) -> (*mut c_void, usize) {
        self.iov.first().map_or((ptr::null_mut(), 0), |iov| (iov.iov_base, iov.iov_len))
    }

    /// What the kernel wrote if it said that it wrote `len` bytes.
    fn data(self, len: usize) -> Vec<u8> {
        let mut data = self.buffers.concat();
        data.truncate(len);
        data
    }
}

fn receive(via: ReceiveVia, fd: c_int, dests: &[Dest], flags: c_int, control_len: usize) -> Reply {
    let room = Room::new(dests);
    let (base, len) = room.first();
    let mut name = [0u8; raw::ADDRESS_ROOM];
    let mut name_len = name.len() as socklen_t;
    let mut control = vec![0u64; control_len.min(MAX_ROOM).div_ceil(8)];
    let mut message = header(&mut name, &room.iov, &mut control, control_len.min(MAX_ROOM));
    let iov = (room.iov.as_ptr(), room.iov.len() as c_int);
    // SAFETY: every pointer has the length that stands beside it, or is NULL as asked for.
    let result = check(unsafe {
        match via {
            ReceiveVia::Read => libc::read(fd, base, len),
            ReceiveVia::Readv => libc::readv(fd, iov.0, iov.1),
            ReceiveVia::Recv => libc::recv(fd, base, len, flags),
            ReceiveVia::Recvfrom => {
                let name = name.as_mut_ptr().cast();
                libc::recvfrom(fd, base, len, flags, name, &raw mut name_len)
            }
            ReceiveVia::Recvmsg => libc::recvmsg(fd, &raw mut message, flags),
        }
    } as i64);
    let Ok(bytes) = result else { return Reply { result, out: Out::Nothing } };
    if via == ReceiveVia::Recvmsg {
        name_len = message.msg_namelen;
    } else {
        message.msg_flags = 0;
        message.msg_controllen = 0;
    }
    let mut control: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    control.truncate(message.msg_controllen);
    let control = raw::control(&control);
    let from = raw::address(&name[..(name_len as usize).min(name.len())]);
    let data = room.data(usize::try_from(bytes).unwrap_or(0));
    Reply { result, out: Out::Received { data, from, control, msg_flags: message.msg_flags } }
}

/// A `struct msghdr` that refers to these.
fn header(
    name: &mut [u8],
    iov: &[libc::iovec],
    control: &mut [u64],
    control_len: usize,
) -> libc::msghdr {
    // SAFETY: all zero is a valid value of this structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    if !name.is_empty() {
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = name.len() as socklen_t;
    }
    message.msg_iov = iov.as_ptr().cast_mut();
    message.msg_iovlen = iov.len();
    if control_len > 0 {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control_len;
    }
    message
}

fn send(
    via: SendVia,
    fd: c_int,
    sources: &[Source],
    flags: c_int,
    to: Option<SocketAddr>,
    control: &[ControlMessage],
) -> Reply {
    let iov: Vec<libc::iovec> = sources
        .iter()
        .map(|source| match source {
            Source::Bytes(b) => libc::iovec { iov_base: b.as_ptr() as *mut _, iov_len: b.len() },
            Source::Null(len) => libc::iovec { iov_base: ptr::null_mut(), iov_len: *len },
        })
        .collect();
    let (base, len) =
        iov.first().map_or((ptr::null(), 0), |iov| (iov.iov_base.cast_const(), iov.iov_len));
    let bytes = |to| if to == raw::NO_ADDRESS { vec![0; 16] } else { raw::address_bytes(to) };
    let mut name = to.map(bytes).unwrap_or_default();
    let control = raw::control_bytes(control);
    let mut words: Vec<u64> =
        control.chunks(8).map(|c| c.try_into().map_or(0, u64::from_ne_bytes)).collect();
    let message = header(&mut name, &iov, &mut words, control.len());
    let named = if name.is_empty() { ptr::null() } else { name.as_ptr() };
    // SAFETY: every pointer has the length that stands beside it, or is NULL as asked for. The
    // kernel only reads through them.
    let result = unsafe {
        match via {
            SendVia::Write => libc::write(fd, base, len),
            SendVia::Writev => libc::writev(fd, iov.as_ptr(), iov.len() as c_int),
            SendVia::Send => libc::send(fd, base, len, flags),
            SendVia::Sendto => {
                libc::sendto(fd, base, len, flags, named.cast(), name.len() as socklen_t)
            }
            SendVia::Sendmsg => libc::sendmsg(fd, &raw const message, flags),
        }
    };
    plain(result as i64)
}

fn ioctl(fd: c_int, request: u64, arg: Option<i32>) -> Reply {
    // Some requests write more than an int.
    let mut room = [0u8; 256];
    room[..4].copy_from_slice(&arg.unwrap_or(0).to_ne_bytes());
    let pointer = if arg.is_some() { room.as_mut_ptr() } else { ptr::null_mut() };
    // SAFETY: the pointer is NULL or has more room than a request that a script can name uses.
    let result = check(unsafe { libc::ioctl(fd, request as libc::Ioctl, pointer) });
    let value = i32::from_ne_bytes([room[0], room[1], room[2], room[3]]);
    Reply { result, out: if arg.is_some() { Out::Int(value) } else { Out::Nothing } }
}

fn getsockopt(fd: c_int, option: (c_int, c_int), len: i32, null: bool) -> Reply {
    let mut room = vec![0u8; usize::try_from(len).unwrap_or(0).clamp(8, MAX_ROOM)];
    let mut size = len as socklen_t;
    let pointer = if null { ptr::null_mut() } else { room.as_mut_ptr() };
    // SAFETY: the pointer is NULL or has at least `len` bytes.
    let result =
        check(unsafe { libc::getsockopt(fd, option.0, option.1, pointer.cast(), &raw mut size) });
    let written = (size as usize).min(usize::try_from(len).unwrap_or(0)).min(room.len());
    room.truncate(if null { 0 } else { written });
    Reply { result, out: Out::Option { value: room, len: size as i32 } }
}

fn setsockopt(fd: c_int, option: (c_int, c_int), value: Option<&[u8]>, len: i32) -> Reply {
    // A length beyond the bytes that are there would let the kernel read what is not ours.
    let mut room = value.map(<[u8]>::to_vec).unwrap_or_default();
    room.resize(room.len().max(usize::try_from(len).unwrap_or(0).min(MAX_ROOM)), 0);
    let pointer = if value.is_some() { room.as_ptr() } else { ptr::null() };
    // SAFETY: the pointer is NULL or has at least `len` bytes.
    plain(unsafe { libc::setsockopt(fd, option.0, option.1, pointer.cast(), len as socklen_t) })
}

fn poll(fds: &[PollFd], timeout_ms: i32) -> Reply {
    let mut raw: Vec<libc::pollfd> = fds
        .iter()
        .map(|p| libc::pollfd { fd: p.fd, events: p.events, revents: p.revents })
        .collect();
    // SAFETY: the pointer has as many entries as said.
    let result = check(unsafe { libc::poll(raw.as_mut_ptr(), raw.len() as _, timeout_ms) });
    let fds = raw.iter().map(|p| PollFd { fd: p.fd, events: p.events, revents: p.revents });
    Reply { result, out: Out::Poll(fds.collect()) }
}

fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: Option<EpollEvent>) -> Reply {
    let mut raw = event.map(|e| libc::epoll_event { events: e.events, u64: e.data });
    let pointer = raw.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the pointer is NULL or an event.
    plain(unsafe { libc::epoll_ctl(epfd, op, fd, pointer) })
}

fn epoll_wait(epfd: c_int, max_events: i32, timeout_ms: i32) -> Reply {
    let room = usize::try_from(max_events).unwrap_or(0).clamp(1, 1 << 16);
    let mut raw = vec![libc::epoll_event { events: 0, u64: 0 }; room];
    let max_events = max_events.min(1 << 16);
    // SAFETY: the pointer has at least `max_events` entries.
    let result = check(unsafe { libc::epoll_wait(epfd, raw.as_mut_ptr(), max_events, timeout_ms) });
    raw.truncate(result.ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0));
    let events = raw.iter().map(|e| EpollEvent { events: e.events, data: e.u64 });
    Reply { result, out: Out::Epoll(events.collect()) }
}

fn pipe(flags: c_int) -> Reply {
    let mut fds = [-1; 2];
    // SAFETY: the pointer has two entries.
    let result = check(unsafe { libc::pipe2(fds.as_mut_ptr(), flags) });
    Reply { result, out: Out::Pipe(fds) }
}

fn splice(from: SpliceEnd, to: SpliceEnd, len: usize, flags: u32) -> Reply {
    let (mut from_offset, mut to_offset) = (from.offset, to.offset);
    let pointer = |o: &mut Option<i64>| o.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let (a, b) = (pointer(&mut from_offset), pointer(&mut to_offset));
    // SAFETY: the pointers are NULL or offsets.
    let result = check(unsafe { libc::splice(from.fd, a, to.fd, b, len, flags) } as i64);
    Reply { result, out: Out::Offsets { from: from_offset, to: to_offset } }
}

fn sendfile(out_fd: c_int, in_fd: c_int, offset: Option<i64>, count: usize) -> Reply {
    let mut offset = offset;
    let pointer = offset.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the pointer is NULL or an offset.
    let result = check(unsafe { libc::sendfile(out_fd, in_fd, pointer, count) } as i64);
    Reply { result, out: Out::Offsets { from: offset, to: None } }
}

fn open(path: &str, flags: c_int) -> Reply {
    let Ok(path) = CString::new(path) else { return Reply::error(Errno::EINVAL) };
    // SAFETY: the path ends with a zero.
    plain(unsafe { libc::open(path.as_ptr(), flags, 0o600) })
}
