//! Queries over TCP: messages with their length before them (RFC 7766, section 8).

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as HostStream};
use std::time::Instant;

use plimsoll::TcpStream;

use super::{Names, Treatment};
use crate::reactor::{Readiness, Token, Tools};
use crate::tcp::Progress;

/// Bytes that wait to be written before no more are read.
const MAX_WAITING: usize = 256 * 1024;
/// Bytes of one read.
const READ: usize = 16 * 1024;

/// One direction of bytes.
#[derive(Default)]
struct Lane {
    /// Read, not a whole message yet.
    partial: Vec<u8>,
    /// To be written to the other side.
    out: VecDeque<u8>,
    /// The reading side has ended.
    ended: bool,
    /// The writing side was told so.
    shut: bool,
}

impl Lane {
    /// The next whole message with its length.
    fn next(&mut self) -> Option<Vec<u8>> {
        let &[high, low] = self.partial.first_chunk()?;
        let end = 2 + usize::from(u16::from_be_bytes([high, low]));
        (self.partial.len() >= end).then(|| self.partial.drain(..end).collect())
    }

    /// Reads until there is nothing more. Returns whether the side still works.
    fn read(&mut self, from: &mut impl Read) -> bool {
        let mut buf = [0; READ];
        while !self.ended && self.out.len() < MAX_WAITING {
            match from.read(&mut buf) {
                Ok(0) => self.ended = true,
                Ok(len) => self.partial.extend_from_slice(&buf[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Writes all that it can. Returns whether the side still works.
    fn write(&mut self, to: &mut impl Write) -> bool {
        while !self.out.is_empty() {
            match to.write(self.out.as_slices().0) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// A connection of the command to the gateway's name server.
pub(crate) struct NameStream {
    guest: TcpStream,
    up: Lane,
    down: Lane,
}

impl NameStream {
    pub(crate) fn new(guest: TcpStream) -> NameStream {
        NameStream { guest, up: Lane::default(), down: Lane::default() }
    }

    /// Goes on as far as it can.
    pub(crate) fn turn(
        &mut self,
        host: &HostStream,
        (token, ready): (Token, &mut Readiness),
        tools: &Tools,
    ) -> Progress {
        let NameStream { guest, up, down } = self;
        // Reading and writing find out what is ready.
        *ready = Readiness::default();
        loop {
            let works = up.read(&mut &*guest) && down.read(&mut &*host);
            if !works {
                return Progress::Done;
            }
            treat(&tools.names, up, down);
            while let Some(message) = down.next() {
                tools.names.learn(&message[2..], Instant::now());
                down.out.extend(message);
            }
            if !up.write(&mut &*host) || !down.write(&mut &*guest) {
                return Progress::Done;
            }
            if up.ended && up.out.is_empty() && !up.shut {
                up.shut = true;
                let _ = host.shutdown(Shutdown::Write);
            }
            if down.ended && down.out.is_empty() && !down.shut {
                down.shut = true;
                let _ = guest.shutdown(Shutdown::Write);
            }
            if up.shut && down.shut {
                return Progress::Done;
            }
            let waker = tools.ready.waker(token.number());
            let reads = !up.ended && up.out.len() < MAX_WAITING && guest.poll_readable(&waker);
            let writes = !down.out.is_empty() && guest.poll_writable(&waker);
            if !reads && !writes {
                return Progress::Sleep;
            }
        }
    }
}

/// Answers or passes on each whole query.
fn treat(names: &Names, up: &mut Lane, down: &mut Lane) {
    while let Some(message) = up.next() {
        match names.treat(&message[2..]) {
            Treatment::Answer(answer) => {
                let len = u16::try_from(answer.len()).unwrap_or(u16::MAX);
                down.out.extend(len.to_be_bytes());
                down.out.extend(answer.iter().take(len.into()));
            }
            Treatment::Forward => up.out.extend(message),
            Treatment::Drop => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole() {
        let mut lane = Lane::default();
        let bytes = [0, 3, 1, 2, 3, 0, 0, 0, 2, 9];
        let mut messages = Vec::new();
        for byte in bytes {
            lane.read(&mut &[byte][..]);
            lane.ended = false;
            messages.extend(lane.next());
        }
        assert_eq!(messages, [vec![0, 3, 1, 2, 3], vec![0, 0]]);
        assert_eq!(lane.partial, [0, 2, 9]);
        lane.out.extend([1, 2, 3]);
        let mut written = Vec::new();
        assert!(lane.write(&mut written));
        assert_eq!(written, [1, 2, 3]);
    }
}
