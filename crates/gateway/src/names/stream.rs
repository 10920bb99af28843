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
/// Bytes of a message that is not whole, before no more are read: a whole one is shorter.
const MAX_PARTIAL: usize = 65_538;
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
    /// The end was passed on.
    shut: bool,
}

impl Lane {
    /// Takes all whole messages, with their lengths.
    fn take(&mut self, mut each: impl FnMut(&[u8])) {
        let mut start = 0;
        while let Some(&[high, low]) = self.partial[start..].first_chunk() {
            let len = 2 + usize::from(u16::from_be_bytes([high, low]));
            let Some(message) = self.partial[start..].get(..len) else { break };
            each(message);
            start += len;
        }
        self.partial.drain(..start);
    }

    /// Passes all whole messages on, after a look at each.
    fn pass(&mut self, mut each: impl FnMut(&[u8])) {
        let mut whole = Vec::new();
        self.take(|message| {
            each(message);
            whole.extend_from_slice(message);
        });
        self.out.extend(whole);
    }

    /// Whether it may read more now.
    fn has_room(&self) -> bool {
        !self.ended && self.out.len() < MAX_WAITING && self.partial.len() < MAX_PARTIAL
    }

    /// Reads until there is nothing more. Returns whether the side still works.
    fn read(&mut self, from: &mut impl Read) -> bool {
        let mut buf = [0; READ];
        while self.has_room() {
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
            if !up.read(&mut &*guest) || !down.read(&mut &*host) {
                return Progress::Done;
            }
            let were_full = (!up.has_room(), !down.has_room());
            let to = guest.local_addr().ok();
            treat(&tools.names, up, down, |query| {
                if let (Some(reasons), Some(to)) = (&tools.reasons, to) {
                    reasons.asked(to, token.number(), query);
                }
            });
            down.pass(|message| {
                tools.names.learn(&message[2..], Instant::now());
                if let Some(reasons) = &tools.reasons {
                    reasons.answered(token.number(), &message[2..]);
                }
            });
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
            // A side that was not read to its end is not reported again.
            if (were_full.0 && up.has_room()) || (were_full.1 && down.has_room()) {
                return Progress::Again;
            }
            let waker = tools.ready.waker(token.number());
            let reads = up.has_room() && guest.poll_readable(&waker);
            let writes = !down.out.is_empty() && guest.poll_writable(&waker);
            if !reads && !writes {
                return Progress::Sleep;
            }
        }
    }
}

/// Answers or passes on each whole query.
fn treat(names: &Names, up: &mut Lane, down: &mut Lane, mut each_passed: impl FnMut(&[u8])) {
    let mut forward = Vec::new();
    up.take(|message| match names.treat(&message[2..]) {
        Treatment::Answer(answer) => {
            let len = u16::try_from(answer.len()).unwrap_or(u16::MAX);
            down.out.extend(len.to_be_bytes());
            down.out.extend(answer.iter().take(len.into()));
        }
        Treatment::Forward => {
            each_passed(&message[2..]);
            forward.extend_from_slice(message);
        }
        Treatment::Drop => {}
    });
    up.out.extend(forward);
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
            lane.take(|message| messages.push(message.to_vec()));
        }
        assert_eq!(messages, [vec![0, 3, 1, 2, 3], vec![0, 0]]);
        assert_eq!(lane.partial, [0, 2, 9]);
        lane.out.extend([1, 2, 3]);
        let mut written = Vec::new();
        assert!(lane.write(&mut written));
        assert_eq!(written, [1, 2, 3]);
    }
}
