//! The socket pair between the gateway, the inside and process 1. Descriptors and the end of the
//! command go out; the command's standard input and signals go in.
//!
//! The pair's inner end is the standard input of the processes inside, which is the one descriptor
//! that a program can pass on to one that it starts without unsafe code. The command's own standard
//! input therefore goes in as a message.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors that one message carries, at most.
pub const MAX_QUEUES: usize = 16;

/// A message, without the descriptors that come with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the gateway: the queues of the interface, as descriptors.
    Queues,
    /// To process 1: the command's standard input, as a descriptor.
    Input,
    /// To process 1: the command gets this signal.
    Signal(u8),
    /// To the gateway: the command has ended with this status.
    Exited(u8),
    /// To the gateway: this signal has ended the command.
    Signaled(u8),
    /// To the gateway: it is to end, while processes inside go on.
    Stop,
}

impl Message {
    fn encode(self) -> [u8; 2] {
        match self {
            Message::Queues => [b'q', 0],
            Message::Input => [b'i', 0],
            Message::Signal(signal) => [b'k', signal],
            Message::Exited(status) => [b'e', status],
            Message::Signaled(signal) => [b's', signal],
            Message::Stop => [b'x', 0],
        }
    }

    fn decode(bytes: &[u8]) -> Option<Message> {
        Some(match *bytes {
            [b'q', 0] => Message::Queues,
            [b'i', 0] => Message::Input,
            [b'k', signal] => Message::Signal(signal),
            [b'e', status] => Message::Exited(status),
            [b's', signal] => Message::Signaled(signal),
            [b'x', 0] => Message::Stop,
            _ => return None,
        })
    }
}

/// One end of the pair.
#[derive(Debug)]
pub struct End(OwnedFd);

impl End {
    /// Both ends. They are closed when a program starts another one.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn pair() -> Result<(End, End)> {
        let kind = SocketType::SEQPACKET;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (one, other) = pair.context("cannot make a socket pair")?;
        Ok((End(one), End(other)))
    }

    /// The end that is this process's standard input.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_stdin() -> Result<End> {
        let fd = std::io::stdin().as_fd().try_clone_to_owned();
        Ok(End(fd.context("standard input")?))
    }

    /// Sends a message with some descriptors.
    ///
    /// # Errors
    /// If the other end is closed.
    pub fn send(&self, message: Message, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_QUEUES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let bytes = message.encode();
        let parts = [IoSlice::new(&bytes)];
        rustix::net::sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL)
            .context("the other end of the socket pair is closed")?;
        Ok(())
    }

    /// Waits for the next message. `None` if all other ends are closed.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the end does not block and there is none.
    pub fn receive(&self) -> Result<Option<(Message, Vec<OwnedFd>)>, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_QUEUES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 8];
        let received = loop {
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.0, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                done => break done?,
            }
        };
        let fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds.collect::<Vec<_>>()),
            _ => None,
        });
        let fds = fds.flatten().collect();
        Ok(Message::decode(&bytes[..received.bytes]).map(|message| (message, fds)))
    }

    /// Calls return instead of waiting.
    ///
    /// # Errors
    /// As `fcntl`.
    pub fn set_nonblocking(&self) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(&self.0, true)
    }

    /// The descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (one, other) = End::pair().unwrap();
        let all = [
            Message::Queues,
            Message::Input,
            Message::Signal(15),
            Message::Exited(3),
            Message::Signaled(9),
            Message::Stop,
        ];
        for (count, message) in all.into_iter().enumerate() {
            let fds = vec![other.as_fd(); count];
            one.send(message, &fds).unwrap();
            let (got, fds) = other.receive().unwrap().unwrap();
            assert_eq!((got, fds.len()), (message, count));
        }
        other.set_nonblocking().unwrap();
        assert_eq!(other.receive().unwrap_err(), Errno::AGAIN);
        drop(one);
        assert!(other.receive().unwrap().is_none());
    }
}
