//! write, writev, send, sendto, sendmsg.

use plimsoll_stack::SocketError;
use plimsoll_tcp::{Duration, Instant, WriteFlags};

use crate::posix::call::{Call, ControlMessage, SendVia, Source};
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Process, Step, Wait};
use crate::posix::socket::{Link, Phase, Socket, stack_errno};

impl Process {
    pub(crate) fn send(&mut self, now: Instant, call: &Call, wait: &mut Wait) -> Step {
        let Call::Send { via, fd, buffers, flags, to, control } = call else {
            return Step::error(Errno::EINVAL);
        };
        let plain = matches!(via, SendVia::Write | SendVia::Writev);
        let descriptor = match self.fds.get_mut(*fd) {
            Ok(descriptor) => descriptor,
            Err(errno) => return Step::error(errno),
        };
        let blocks = !descriptor.nonblocking && flags & MSG_DONTWAIT == 0;
        let socket = match &mut descriptor.file {
            File::Socket(socket) => socket,
            File::Pipe(end) if plain => return end.write(buffers, blocks, wait),
            File::Epoll(_) if plain => return Step::error(Errno::EINVAL),
            _ if plain => return Step::error(Errno::EBADF),
            _ => return Step::error(Errno::ENOTSOCK),
        };
        if let Err(errno) = check_control(control) {
            return Step::error(errno);
        }
        let blocks = blocks && socket.set.sndtimeo != Some(Duration::ZERO);
        let sending = Sending { buffers, flags: *flags, blocks };
        if let Some(step) = self.open_to_send(now, (*fd, *to), &sending, wait) {
            return step;
        }
        match self.fds.socket(*fd) {
            Ok((socket, _)) => send_stream(socket, now, &sending, wait),
            Err(errno) => Step::error(errno),
        }
    }
}

/// What is sent, and how.
pub(crate) struct Sending<'a> {
    pub(crate) buffers: &'a [Source],
    pub(crate) flags: i32,
    pub(crate) blocks: bool,
}

/// Sends on a connection, or finds that there is none.
pub(crate) fn send_stream(
    socket: &mut Socket,
    now: Instant,
    sending: &Sending<'_>,
    wait: &mut Wait,
) -> Step {
    let blocks = sending.blocks;
    if socket.is_opening() && !is_fast_open(socket) {
        let sleeps = blocks && !wait.expired(now);
        if let Some(stream) = socket.stream() {
            stream.set_write_pending(sleeps);
        }
        if sleeps {
            return wait.sleep(now, socket.set.sndtimeo);
        }
        return Step::error(Errno::EAGAIN);
    }
    let Link::Stream(stream) = &socket.link else {
        return Step::error(socket.take_error().unwrap_or(Errno::EPIPE));
    };
    let stream = stream.clone();
    if wait.again && !is_woken(socket, wait) && !wait.expired(now) {
        return wait.sleep(now, socket.set.sndtimeo);
    }
    let (parts, bad) = parts_from(sending.buffers, wait.sent);
    let asked: usize = parts.iter().map(|part| part.len()).sum();
    let complete = !bad;
    let flags = WriteFlags {
        more: sending.flags & MSG_MORE != 0,
        eor: complete && sending.flags & MSG_EOR != 0,
        urgent: complete && sending.flags & MSG_OOB != 0,
        zerocopy: sending.flags & MSG_ZEROCOPY != 0,
    };
    match stream.write_with(now, &parts, flags) {
        Ok(0) if bad && wait.sent == 0 => Step::error(Errno::EFAULT),
        Ok(count) if count == asked => Step::value(as_value(wait.sent + count)),
        Ok(count) => {
            wait.sent += count;
            no_space(socket, blocks, now, wait)
        }
        Err(SocketError::WouldBlock) => no_space(socket, blocks, now, wait),
        Err(_) if wait.sent > 0 => Step::value(as_value(wait.sent)),
        Err(error) => Step::error(stack_errno(error)),
    }
}

/// A passive Fast Open connection takes data before its handshake is complete.
fn is_fast_open(socket: &Socket) -> bool {
    socket.phase == Phase::Connected
}

/// Whether something has happened that a writer who found no space is woken for. Space alone is not
/// enough: it is told when there is enough of it.
pub(crate) fn is_woken(socket: &Socket, wait: &Wait) -> bool {
    wait.edges.is_none_or(|edges| edges != writer_edges(socket))
}

/// A writer has found no space.
pub(crate) fn note_sleep(socket: &Socket, wait: &mut Wait) {
    wait.edges = Some(writer_edges(socket));
}

fn writer_edges(socket: &Socket) -> [u32; 2] {
    let [_, output, everybody] = socket.edges();
    [output, everybody]
}

fn no_space(socket: &Socket, blocks: bool, now: Instant, wait: &mut Wait) -> Step {
    if blocks && !wait.expired(now) {
        note_sleep(socket, wait);
        return wait.sleep(now, socket.set.sndtimeo);
    }
    if wait.sent > 0 { Step::value(as_value(wait.sent)) } else { Step::error(Errno::EAGAIN) }
}

/// The bytes behind the first `skip`, up to a bad pointer, and whether there is one.
pub(crate) fn parts_from(buffers: &[Source], mut skip: usize) -> (Vec<&[u8]>, bool) {
    let mut parts = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        match buffer {
            Source::Null(0) => {}
            Source::Null(_) => return (parts, true),
            Source::Bytes(bytes) => {
                let gone = skip.min(bytes.len());
                skip -= gone;
                if gone < bytes.len() {
                    parts.push(&bytes[gone..]);
                }
            }
        }
    }
    (parts, false)
}

pub(crate) fn as_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Ancillary messages that a TCP socket takes: timestamps to ask for and marks. Others are refused,
/// those of other levels ignored.
fn check_control(control: &[ControlMessage]) -> Result<(), Errno> {
    let known = |message: &ControlMessage| {
        message.level != SOL_SOCKET
            || matches!(message.kind, SO_MARK | SO_TIMESTAMPING | SO_TXTIME | SO_PRIORITY)
    };
    if control.iter().all(known) { Ok(()) } else { Err(Errno::EINVAL) }
}
