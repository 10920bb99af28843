//! read, readv, recv, recvfrom, recvmsg.

use std::sync::Arc;

use plimsoll_stack::{SocketError, TcpSocket};
use plimsoll_tcp::{Duration, Instant, State};

use crate::posix::call::{Call, ControlMessage, Dest, Out, ReceiveVia, Reply};
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Process, Step, Wait};
use crate::posix::send::as_value;
use crate::posix::socket::{Link, Socket, stack_errno};

/// What is read into, and how.
pub(crate) struct Receiving<'a> {
    pub(crate) buffers: &'a [Dest],
    pub(crate) flags: i32,
    pub(crate) blocks: bool,
    /// Room for ancillary messages.
    pub(crate) control_len: usize,
}

impl Process {
    pub(crate) fn receive(&mut self, now: Instant, call: &Call, wait: &mut Wait) -> Step {
        let Call::Receive { via, fd, buffers, flags, control_len } = call else {
            return Step::error(Errno::EINVAL);
        };
        let plain = matches!(via, ReceiveVia::Read | ReceiveVia::Readv);
        let descriptor = match self.fds.get_mut(*fd) {
            Ok(descriptor) => descriptor,
            Err(errno) => return Step::error(errno),
        };
        let blocks = !descriptor.nonblocking && flags & MSG_DONTWAIT == 0;
        let socket = match &mut descriptor.file {
            File::Socket(socket) => socket,
            File::Pipe(end) if plain => return end.read(buffers, blocks, wait, now),
            File::Regular(file) if plain => return file.read(buffers),
            _ if plain => return Step::error(Errno::EINVAL),
            _ => return Step::error(Errno::ENOTSOCK),
        };
        if plain && room(buffers).0 == 0 && !room(buffers).1 {
            return received(Vec::new(), 0, 0, Vec::new());
        }
        let receiving = Receiving { buffers, flags: *flags, blocks, control_len: *control_len };
        receive_stream(socket, now, &receiving, wait)
    }
}

/// The room up to a bad pointer, and whether there is one.
pub(crate) fn room(buffers: &[Dest]) -> (usize, bool) {
    let mut total = 0usize;
    for buffer in buffers {
        match buffer {
            Dest::Null(0) => {}
            Dest::Null(_) => return (total, true),
            Dest::Room(len) => total = total.saturating_add(*len),
        }
    }
    (total, false)
}

/// All that was asked for, bad pointers too.
fn asked(buffers: &[Dest]) -> usize {
    buffers.iter().fold(0usize, |sum, buffer| match buffer {
        Dest::Room(len) | Dest::Null(len) => sum.saturating_add(*len),
    })
}

/// A reply with data.
pub(crate) fn received(
    data: Vec<u8>,
    count: usize,
    msg_flags: i32,
    control: Vec<ControlMessage>,
) -> Step {
    let out = Out::Received { data, from: None, control, msg_flags };
    Step::Done(Ok(Reply { result: Ok(as_value(count)), out }))
}

fn receive_stream(
    socket: &mut Socket,
    now: Instant,
    receiving: &Receiving<'_>,
    wait: &mut Wait,
) -> Step {
    if receiving.flags & MSG_ERRQUEUE != 0 {
        return socket.receive_error_queue(receiving);
    }
    let stream = match &socket.link {
        Link::Stream(stream) => stream.clone(),
        Link::Listener(_) => return Step::error(Errno::ENOTCONN),
        Link::Idle => return Step::error(socket.take_error().unwrap_or(Errno::ENOTCONN)),
    };
    if receiving.flags & MSG_OOB != 0 {
        return receive_urgent(socket, &stream, receiving);
    }
    let total = asked(receiving.buffers);
    let peeks = receiving.flags & MSG_PEEK != 0;
    if peeks {
        wait.received.clear();
    }
    let target = if receiving.flags & MSG_WAITALL != 0 {
        total.max(1)
    } else {
        (socket.rcvlowat(&stream) as usize).min(total).max(1)
    };
    let blocks = receiving.blocks && socket.set.rcvtimeo != Some(Duration::ZERO);
    let end = take_bytes(&stream, now, receiving, &mut wait.received);
    let have = wait.received.len();
    let stops = match end {
        Some(Stop::Room) => true,
        Some(Stop::Ended) => have > 0 || total == 0,
        Some(Stop::Failed(_) | Stop::BadPointer) => have > 0,
        Some(Stop::Mark) => true,
        None => have >= target || (have > 0 && !blocks),
    };
    match end {
        _ if stops => finish(socket, &stream, receiving, wait),
        Some(Stop::Ended) => finish(socket, &stream, receiving, wait),
        Some(Stop::Failed(errno)) => Step::error(errno),
        Some(Stop::BadPointer) => Step::error(Errno::EFAULT),
        _ if !blocks || wait.expired(now) => {
            if have > 0 {
                return finish(socket, &stream, receiving, wait);
            }
            Step::error(Errno::EAGAIN)
        }
        _ => wait.sleep(now, socket.set.rcvtimeo),
    }
}

/// Why reading stopped before all that is there was taken.
enum Stop {
    /// Nothing more fits.
    Room,
    /// The next byte would go to a bad pointer.
    BadPointer,
    /// The end of the stream.
    Ended,
    /// The urgent mark.
    Mark,
    Failed(Errno),
}

/// Takes what is there; `None` if that was all and more may come.
fn take_bytes(
    stream: &Arc<TcpSocket>,
    now: Instant,
    receiving: &Receiving<'_>,
    out: &mut Vec<u8>,
) -> Option<Stop> {
    let (good, bad) = match room(receiving.buffers) {
        // Nothing is written, so no pointer is bad.
        _ if receiving.flags & MSG_TRUNC != 0 => (asked(receiving.buffers), false),
        found => found,
    };
    let opening = matches!(stream.state(), State::SynSent | State::SynReceived);
    let mut mark = false;
    loop {
        let left = good - out.len().min(good);
        let there = stream.readable_bytes();
        if left == 0 && there > 0 {
            return Some(if bad { Stop::BadPointer } else { Stop::Room });
        }
        if left == 0 && good > 0 && !bad {
            return Some(Stop::Room);
        }
        if mark {
            return Some(Stop::Mark);
        }
        if there == 0 && !out.is_empty() {
            let ready = stream.readiness();
            if ready.error {
                // What was taken is told first; the error waits for the next call.
                return Some(Stop::Ended);
            }
            if !ready.read_closed && receiving.flags & MSG_WAITALL == 0 {
                // A read that finds nothing would say that its caller waits for more.
                return None;
            }
        }
        let mut buf = vec![0; left.min(there).max(1)];
        let peeks = receiving.flags & MSG_PEEK != 0;
        let result =
            if peeks || left == 0 { stream.peek(&mut buf) } else { stream.read(now, &mut buf) };
        match result {
            Ok(0) => return Some(Stop::Ended),
            Ok(_) if left == 0 => return Some(Stop::BadPointer),
            Ok(count) => {
                // Less than what is there: the reader has come to the urgent mark.
                mark = count < buf.len();
                out.extend_from_slice(&buf[..count]);
                if peeks {
                    let full = out.len() >= good;
                    return if full { Some(Stop::Room) } else { mark.then_some(Stop::Mark) };
                }
            }
            Err(SocketError::WouldBlock) => return None,
            Err(SocketError::NotConnected) if opening => return None,
            Err(error) => return Some(Stop::Failed(stack_errno(error))),
        }
    }
}

fn finish(
    socket: &Socket,
    stream: &Arc<TcpSocket>,
    receiving: &Receiving<'_>,
    wait: &mut Wait,
) -> Step {
    let mut data = std::mem::take(&mut wait.received);
    let count = data.len();
    if receiving.flags & MSG_TRUNC != 0 {
        data.clear();
    }
    let mut control = Vec::new();
    if socket.set.inq {
        let left = i32::try_from(stream.inq_hint()).unwrap_or(i32::MAX);
        control.push(ControlMessage {
            level: SOL_TCP,
            kind: TCP_CM_INQ,
            data: left.to_ne_bytes().to_vec(),
        });
    }
    let fits = fit_control(&mut control, receiving.control_len);
    received(data, count, if fits { 0 } else { MSG_CTRUNC }, control)
}

/// Keeps the messages for which there is room; `false` if some were left out.
pub(crate) fn fit_control(control: &mut Vec<ControlMessage>, room: usize) -> bool {
    const HEADER: usize = 16;
    let mut left = room;
    let mut kept = 0;
    for message in control.iter() {
        let exact = HEADER + message.data.len();
        if exact > left {
            break;
        }
        left -= exact.next_multiple_of(8).min(left);
        kept += 1;
    }
    let all = kept == control.len();
    control.truncate(kept);
    all
}

fn receive_urgent(socket: &Socket, stream: &Arc<TcpSocket>, receiving: &Receiving<'_>) -> Step {
    if stream.options().oobinline {
        return Step::error(Errno::EINVAL);
    }
    let peeks = receiving.flags & MSG_PEEK != 0;
    let byte = if peeks { stream.peek_urgent() } else { stream.read_urgent() };
    match byte {
        None if stream.awaits_urgent() && socket.state() != State::Closed => {
            Step::error(Errno::EAGAIN)
        }
        None => Step::error(Errno::EINVAL),
        Some(byte) => {
            let (good, bad) = room(receiving.buffers);
            match (good, bad) {
                (0, true) => Step::error(Errno::EFAULT),
                (0, false) => received(Vec::new(), 0, MSG_OOB | MSG_TRUNC, Vec::new()),
                _ => received(vec![byte], 1, MSG_OOB, Vec::new()),
            }
        }
    }
}
