//! fcntl(2) and ioctl(2).

use plimsoll_stack::TcpSocket;

use crate::posix::call::{Out, Reply};
use crate::posix::descriptors::File;
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Outcome, Process};
use crate::posix::socket::Link;

impl Process {
    pub(crate) fn fcntl(&mut self, fd: i32, cmd: i32, arg: i64) -> Outcome {
        let descriptor = self.fds.get_mut(fd)?;
        let value = match cmd {
            F_GETFD => i32::from(descriptor.cloexec) * FD_CLOEXEC,
            F_SETFD => {
                descriptor.cloexec = arg & i64::from(FD_CLOEXEC) != 0;
                0
            }
            F_GETFL => {
                let access = match &descriptor.file {
                    File::Pipe(end) if end.is_reader() => O_RDONLY,
                    File::Pipe(_) => O_WRONLY,
                    File::Regular(_) => O_RDONLY,
                    File::Socket(_) | File::Epoll(_) => O_RDWR,
                };
                access | if descriptor.nonblocking { O_NONBLOCK } else { 0 }
            }
            F_SETFL => {
                descriptor.nonblocking = arg & i64::from(O_NONBLOCK) != 0;
                0
            }
            F_GETPIPE_SZ => match &descriptor.file {
                File::Pipe(_) => i32::try_from(crate::posix::pipe::CAPACITY).unwrap_or(i32::MAX),
                _ => return Err(Errno::EBADF),
            },
            _ => return Err(Errno::EINVAL),
        };
        Ok(Reply::value(i64::from(value)))
    }

    pub(crate) fn ioctl(&mut self, fd: i32, request: u64, arg: Option<i32>) -> Outcome {
        let descriptor = self.fds.get_mut(fd)?;
        match request {
            FIONBIO => {
                descriptor.nonblocking = arg.ok_or(Errno::EFAULT)? != 0;
                return Ok(Reply::value(0));
            }
            FIOCLEX | FIONCLEX => {
                descriptor.cloexec = request == FIOCLEX;
                return Ok(Reply::value(0));
            }
            _ => {}
        }
        let value = match &descriptor.file {
            File::Socket(socket) => match &socket.link {
                Link::Listener(_) => match request {
                    SIOCATMARK => 0,
                    SIOCINQ | SIOCOUTQ | SIOCOUTQNSD => return Err(Errno::EINVAL),
                    _ => return Err(Errno::ENOTTY),
                },
                Link::Stream(stream) => ioctl_stream(stream, request)?,
                Link::Idle if is_queue_request(request) => 0,
                Link::Idle => return Err(Errno::ENOTTY),
            },
            File::Pipe(end) if request == FIONREAD => end.len(),
            File::Regular(file) if request == FIONREAD => file.left(),
            File::Epoll(_) => return Err(Errno::EINVAL),
            _ => return Err(Errno::ENOTTY),
        };
        // The value is written through the pointer.
        arg.ok_or(Errno::EFAULT)?;
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        Ok(Reply { result: Ok(0), out: Out::Int(value) })
    }
}

fn is_queue_request(request: u64) -> bool {
    matches!(request, SIOCINQ | SIOCOUTQ | SIOCOUTQNSD | SIOCATMARK)
}

fn ioctl_stream(stream: &TcpSocket, request: u64) -> Result<usize, Errno> {
    let opening = stream.state() == plimsoll_tcp::State::SynSent;
    match request {
        _ if opening && is_queue_request(request) => Ok(0),
        SIOCINQ => Ok(stream.readable_bytes()),
        SIOCOUTQ => Ok(stream.send_queue_len()),
        SIOCOUTQNSD => Ok(stream.unsent_len()),
        SIOCATMARK => Ok(usize::from(stream.at_urgent_mark())),
        _ => Err(Errno::ENOTTY),
    }
}
