//! Sending with data in the SYN: MSG_FASTOPEN, and the first write after a connect with
//! TCP_FASTOPEN_CONNECT.

use std::net::SocketAddr;

use plimsoll_stack::SocketError;
use plimsoll_tcp::{Instant, WriteFlags};

use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Process, Step, Wait};
use crate::posix::send::{Sending, as_value, parts_from};
use crate::posix::socket::{Link, Phase, Socket, stack_errno};

/// How far the opening is that a send began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Opening {
    #[default]
    NotBegun,
    /// The SYN has left, and the call waits for the end of the handshake.
    Waits,
    /// The rest is a send like any other.
    Done,
}

impl Process {
    /// What a send does before it sends: `None` if it may go on.
    pub(crate) fn open_to_send(
        &mut self,
        now: Instant,
        (fd, to): (i32, Option<SocketAddr>),
        sending: &Sending<'_>,
        wait: &mut Wait,
    ) -> Option<Step> {
        let socket = match self.fds.socket(fd) {
            Ok((socket, _)) => socket,
            Err(errno) => return Some(Step::error(errno)),
        };
        let wanted = sending.flags & MSG_FASTOPEN != 0 || socket.is_deferred();
        let told = match wait.opening {
            Opening::NotBegun if !wanted => return None,
            Opening::Done => return None,
            Opening::Waits => Errno::EINPROGRESS,
            Opening::NotBegun => match self.begin_fast_open(now, (fd, to), sending, wait) {
                Ok(told) => {
                    self.report_syn_data(fd, sending);
                    told
                }
                Err(errno) => return Some(Step::error(errno)),
            },
        };
        self.await_opening(now, fd, told, sending, wait)
    }

    fn report_syn_data(&mut self, fd: i32, sending: &Sending<'_>) {
        if sending.flags & MSG_ZEROCOPY != 0
            && let Ok((socket, _)) = self.fds.socket(fd)
            && let Some(stream) = socket.stream()
        {
            stream.report_syn_data();
        }
    }

    fn await_opening(
        &mut self,
        now: Instant,
        fd: i32,
        told: Errno,
        sending: &Sending<'_>,
        wait: &mut Wait,
    ) -> Option<Step> {
        let step = self.await_connect(now, (fd, sending.blocks), told, wait);
        let (rest, _) = parts_from(sending.buffers, wait.sent);
        let more = rest.iter().any(|part| !part.is_empty());
        if let Ok((Socket { link: Link::Stream(stream), .. }, _)) = self.fds.socket(fd) {
            stream.set_write_pending(more && matches!(step, Step::Sleep));
        }
        match step {
            Step::Sleep => {
                wait.opening = Opening::Waits;
                Some(Step::Sleep)
            }
            Step::Done(Ok(_)) => {
                wait.opening = Opening::Done;
                wait.deadline = None;
                None
            }
            Step::Done(Err(Errno::EINPROGRESS)) if wait.sent > 0 => {
                Some(Step::value(as_value(wait.sent)))
            }
            failed => Some(failed),
        }
    }

    /// Lets the SYN go, if it has not gone. What is returned is told to one who does not wait.
    fn begin_fast_open(
        &mut self,
        now: Instant,
        (fd, to): (i32, Option<SocketAddr>),
        sending: &Sending<'_>,
        wait: &mut Wait,
    ) -> Result<Errno, Errno> {
        let stack = self.stack.clone();
        let (socket, _) = self.fds.socket(fd)?;
        // An address that says nothing stands for AF_UNSPEC.
        let says_nothing = |to: SocketAddr| to.ip().is_unspecified() && to.port() == 0;
        if !crate::posix::sockopt::may_fast_open(&stack) || to.is_some_and(says_nothing) {
            return Err(Errno::EOPNOTSUPP);
        }
        let (parts, _) = parts_from(sending.buffers, 0);
        match socket.phase {
            Phase::Connected => Err(Errno::EISCONN),
            Phase::Unconnected if socket.listener().is_some() => Err(Errno::EISCONN),
            Phase::Connecting if socket.is_deferred() => {
                let stream = socket.stream().cloned().ok_or(Errno::ENOTCONN)?;
                match stream.write_with(now, &parts, WriteFlags::default()) {
                    Ok(count) => wait.sent = count,
                    Err(SocketError::InProgress) => {}
                    Err(error) => return Err(stack_errno(error)),
                }
                Ok(Errno::EINPROGRESS)
            }
            Phase::Connecting => Ok(Errno::EALREADY),
            Phase::Unconnected => {
                // No address, or one that says nothing, stands for AF_UNSPEC.
                let nothing = |addr: &SocketAddr| addr.ip().is_unspecified() && addr.port() == 0;
                let to = to.filter(|addr| !nothing(addr)).ok_or(Errno::EOPNOTSUPP)?;
                let remote = Self::destination(socket, to)?;
                let local = socket.local_for(remote)?;
                let options = socket.options_to(remote.ip());
                let opened = stack.connect_with_data(now, remote, local, options, &parts);
                let (stream, taken) = opened.map_err(stack_errno)?;
                socket.attach(stream, now);
                wait.sent = taken;
                Ok(Errno::EINPROGRESS)
            }
        }
    }
}
