//! What joins the two processes: a socket whose datagrams are packets, and words between them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};
use plimsoll::device::channel::{Channel, ChannelConfig, TryRecvError};
use plimsoll::device::{self, Device};
use plimsoll::{Packet, Pool, Stack};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair, sockopt};

/// Packets that are passed on before the stack is polled.
const BATCH: usize = 64;

/// Bytes of packets that the socket may hold.
const BUFFER: usize = 4 << 20;

/// What the server asks of the peers. Each is answered with [`DONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Open connections until there are so many.
    Open(u64),
    /// Send so many requests, one after the other, by active ones of so many connections.
    Ask { requests: u64, count: u64 },
    /// End.
    End,
}

/// A datagram that begins so is none of IP. What follows is a command, or nothing when it is done.
const WORD: u8 = 0;
const DONE: [u8; 1] = [WORD];

impl Command {
    fn to_bytes(self) -> Vec<u8> {
        let (kind, first, second) = match self {
            Command::Open(count) => (1, count, 0),
            Command::Ask { requests, count } => (2, requests, count),
            Command::End => (3, 0, 0),
        };
        [&[WORD, kind][..], &first.to_le_bytes(), &second.to_le_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Command> {
        let number = |at: usize| -> Result<u64> {
            let bytes = bytes.get(at..at + 8).context("a number of a command")?;
            Ok(u64::from_le_bytes(bytes.try_into()?))
        };
        match bytes.get(1) {
            Some(1) => Ok(Command::Open(number(2)?)),
            Some(2) => Ok(Command::Ask { requests: number(2)?, count: number(10)? }),
            Some(3) => Ok(Command::End),
            other => bail!("there is no command {other:?}"),
        }
    }
}

/// The device of either stack, and its other end.
pub(crate) fn device() -> Result<(Device, Channel)> {
    Ok(device::channel(ChannelConfig::default())?)
}

/// Starts this program again, as the peers. Returns our end of the socket.
pub(crate) fn start_peers() -> Result<(OwnedFd, Child)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for end in [&ours, &theirs] {
        // Without privileges it may be less, which is slower and nothing else.
        let _ = sockopt::set_socket_send_buffer_size_force(end, BUFFER);
    }
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = std::process::Command::new(program);
    let child = command.arg("--peers").stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn();
    Ok((ours, child.context("starting the peers")?))
}

/// One process's end.
pub(crate) struct Link {
    socket: OwnedFd,
    channel: Channel,
    pool: Pool,
    buffer: Vec<u8>,
    /// What the socket had no room for.
    waiting: VecDeque<Vec<u8>>,
    done: bool,
    commands: VecDeque<Command>,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd, channel: Channel) -> Link {
        Link {
            socket,
            channel,
            pool: Pool::new(),
            buffer: vec![0; 65_536],
            waiting: VecDeque::new(),
            done: false,
            commands: VecDeque::new(),
        }
    }

    /// Passes packets on in both directions, with a poll between. Says whether there were any.
    pub(crate) fn pump(&mut self, stack: &Stack) -> Result<bool> {
        let mut moved = false;
        for _ in 0..BATCH {
            let Some(packet) = self.receive()? else { break };
            self.give(packet)?;
            moved = true;
        }
        let worked = stack.poll().worked;
        moved |= self.send()?;
        Ok(moved | worked)
    }

    /// A packet of the other process, if one is there.
    pub(crate) fn receive(&mut self) -> Result<Option<Packet>> {
        loop {
            let count = match rustix::io::read(&self.socket, &mut self.buffer[..]) {
                Ok(0) => bail!("the other process has gone"),
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error).context("reading from the other process"),
            };
            match &self.buffer[..count] {
                bytes if *bytes == DONE => self.done = true,
                [WORD, ..] => {
                    self.commands.push_back(Command::from_bytes(&self.buffer[..count])?);
                }
                bytes => return Ok(Some(self.pool.copy_from(bytes).into())),
            }
        }
    }

    /// Puts a packet where the next poll finds it.
    pub(crate) fn give(&mut self, packet: Packet) -> Result<()> {
        self.channel.try_send(packet).map_err(|error| anyhow::anyhow!("the channel: {error}"))
    }

    /// Sends what the stack has left. Says whether there was anything.
    pub(crate) fn send(&mut self) -> Result<bool> {
        let mut sent = false;
        while self.flush()? {
            match self.channel.try_recv() {
                Ok(packet) => self.waiting.push_back(packet.to_vec()),
                Err(TryRecvError::Empty) => break,
                Err(error) => bail!("the channel: {error}"),
            }
            sent = true;
        }
        Ok(sent)
    }

    /// Sends what waits. Says whether nothing waits any more.
    fn flush(&mut self) -> Result<bool> {
        while let Some(bytes) = self.waiting.front() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => ensure!(count == bytes.len(), "half a packet was sent"),
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                Err(error) => return Err(error).context("sending to the other process"),
            }
            self.waiting.pop_front();
        }
        Ok(true)
    }

    pub(crate) fn command(&mut self, command: Command) -> Result<()> {
        self.done = false;
        self.waiting.push_back(command.to_bytes());
        while !self.flush()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    pub(crate) fn take_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    pub(crate) fn say_done(&mut self) -> Result<()> {
        self.waiting.push_back(DONE.to_vec());
        self.flush()?;
        Ok(())
    }

    /// Whether the last command has been carried out; once.
    pub(crate) fn take_done(&mut self) -> bool {
        std::mem::take(&mut self.done)
    }
}

/// The ports of a packet with data, the sender's first; nothing if it has no data.
pub(crate) fn request_ports(packet: &Packet) -> Option<(u16, u16)> {
    let bytes = packet.parts().next()?;
    let at = usize::from(bytes.first()? & 15) * 4;
    let header = at + usize::from(bytes.get(at + 12)? >> 4) * 4;
    let port = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    (packet.len() > header).then_some((port(at)?, port(at + 2)?))
}
