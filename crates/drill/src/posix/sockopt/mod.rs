//! getsockopt(2) and setsockopt(2).
//!
//! One file per level. How a length that is not that of the value counts differs from level to
//! level, as on Linux.

mod fast_open;
mod ip_level;
mod md5;
mod socket_level;
mod tcp_level;

use plimsoll_tcp::{Instant, Options, SetOption};

use crate::posix::call::{Out, Reply};
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::process::{Outcome, Process};
use crate::posix::socket::{Link, Socket};

/// What setsockopt was given.
#[derive(Clone, Copy)]
pub(crate) struct Arg<'a> {
    value: Option<&'a [u8]>,
    len: usize,
}

impl<'a> Arg<'a> {
    /// The first `count` bytes.
    fn bytes(self, count: usize) -> Result<&'a [u8], Errno> {
        self.value.and_then(|value| value.get(..count)).ok_or(Errno::EFAULT)
    }

    /// An int; more bytes are ignored, fewer are an error.
    fn int(self) -> Result<i32, Errno> {
        if self.len < 4 {
            return Err(Errno::EINVAL);
        }
        self.int_at(0)
    }

    fn int_at(self, offset: usize) -> Result<i32, Errno> {
        let bytes = &self.bytes(offset + 4)?[offset..];
        Ok(i32::from_ne_bytes(bytes.try_into().map_err(|_| Errno::EFAULT)?))
    }

    fn long_at(self, offset: usize) -> Result<i64, Errno> {
        let bytes = &self.bytes(offset + 8)?[offset..];
        Ok(i64::from_ne_bytes(bytes.try_into().map_err(|_| Errno::EFAULT)?))
    }
}

/// What getsockopt gives back.
pub(crate) enum Value {
    Int(i32),
    Bytes(Vec<u8>),
}

impl Value {
    fn bytes(self) -> Vec<u8> {
        match self {
            Value::Int(value) => value.to_ne_bytes().to_vec(),
            Value::Bytes(bytes) => bytes,
        }
    }
}

impl Process {
    pub(crate) fn setsockopt(
        &mut self,
        now: Instant,
        fd: i32,
        (level, name): (i32, i32),
        value: Option<&[u8]>,
        len: i32,
    ) -> Outcome {
        let stack = self.stack.clone();
        let (socket, _) = self.fds.socket(fd)?;
        let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        let arg = Arg { value, len };
        match level {
            SOL_SOCKET => socket.set_socket_level(now, name, arg)?,
            SOL_TCP => socket.set_tcp_level(now, &stack, name, arg)?,
            SOL_IP => socket.set_ip(now, name, arg)?,
            SOL_IPV6 if socket.domain == AF_INET6 => socket.set_ipv6(now, name, arg)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(Reply::value(0))
    }

    pub(crate) fn getsockopt(
        &mut self,
        now: Instant,
        fd: i32,
        (level, name): (i32, i32),
        len: i32,
        null: bool,
    ) -> Outcome {
        let stack = self.stack.clone();
        let (socket, _) = self.fds.socket(fd)?;
        let room = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        let value = match level {
            SOL_SOCKET => socket.get_socket_level(&stack, name, room)?,
            SOL_TCP if name == TCP_SAVED_SYN => return socket.saved_syn(room, null),
            SOL_TCP => socket.get_tcp_level(now, &stack, name)?,
            SOL_IP => socket.get_ip(now, &stack, name)?,
            SOL_IPV6 if socket.domain == AF_INET6 => socket.get_ipv6(now, name)?,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        let mut bytes = match value {
            // A small value fits a char, if that is all the room.
            Value::Int(small @ 0..=255) if level == SOL_IP && (1..4).contains(&room) => {
                vec![small as u8]
            }
            value => value.bytes(),
        };
        bytes.truncate(room);
        if null && !bytes.is_empty() {
            return Err(Errno::EFAULT);
        }
        let len = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
        Ok(Reply { result: Ok(0), out: Out::Option { value: bytes, len } })
    }
}

impl Socket {
    /// Changes an option of the engine, for this connection and for what is opened from here.
    fn change_tcp(&mut self, now: Instant, store: impl FnOnce(&mut Options), set: SetOption) {
        store(&mut self.tcp);
        match &self.link {
            Link::Idle => {}
            Link::Listener(listener) => listener.set_options(self.tcp.clone()),
            Link::Stream(stream) => stream.set_option(now, set),
        }
    }

    /// Changes an option for what is opened from here, and of no connection that there is.
    fn change_listening(&mut self, store: impl FnOnce(&mut Options)) {
        store(&mut self.tcp);
        if let Link::Listener(listener) = &self.link {
            listener.set_options(self.tcp.clone());
        }
    }

    /// The engine's options as they are.
    pub(crate) fn tcp_options(&self) -> Options {
        self.stream().map_or_else(|| self.tcp.clone(), |stream| stream.options())
    }

    fn keep(&mut self, level: i32, name: i32, value: i64) {
        self.set.kept.insert((level, name), value);
    }

    fn kept(&self, level: i32, name: i32, default: i64) -> i64 {
        self.set.kept.get(&(level, name)).copied().unwrap_or(default)
    }

    fn kept_int(&self, level: i32, name: i32, default: i32) -> Value {
        let value = self.kept(level, name, i64::from(default));
        // What is kept as an int was one.
        Value::Int(value as i32)
    }
}

/// The number at `place` of a setting of several.
fn setting(stack: &plimsoll_stack::Stack, name: &str, place: usize) -> Option<i64> {
    let text = stack.sysctl().get(name).ok()?;
    text.split_whitespace().nth(place)?.parse().ok()
}

/// Whether connections may be opened with data in the SYN.
pub(crate) fn may_fast_open(stack: &plimsoll_stack::Stack) -> bool {
    setting(stack, "net.ipv4.tcp_fastopen", 0).unwrap_or(1) & 1 != 0
}
