//! The first bytes of a connection, which wait until their server name is known.

use std::io::ErrorKind;
use std::net::TcpStream as HostStream;
use std::time::{Duration, Instant};

use plimsoll::TcpStream;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::hello::{self, Hello};
use super::{Access, Check};
use crate::reactor::{Token, Tools};

/// How long after the first byte the rest may come.
const PATIENCE: Duration = Duration::from_secs(5);

/// The bytes of a connection that are held.
pub(crate) struct FirstBytes {
    check: Check,
    held: Vec<u8>,
    /// Those of them that the host's side has taken.
    sent: usize,
    /// When the first of them came.
    since: Option<Instant>,
    /// They may go on.
    admitted: bool,
}

/// The state of the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// More of them are to come.
    Waits,
    /// The host's side takes no more now.
    Full,
    /// All are on their way, so many; the rest follows as it comes.
    Passed(usize),
    /// The connection may not go on.
    Refused,
    /// The command's side has failed.
    GuestFailed,
    /// The host's side has failed.
    HostFailed,
}

impl FirstBytes {
    pub(crate) fn new(check: Check) -> FirstBytes {
        FirstBytes { check, held: Vec::new(), sent: 0, since: None, admitted: false }
    }

    /// Whether they are late.
    pub(crate) fn are_late(&self) -> bool {
        !self.admitted && self.since.is_some_and(|since| since.elapsed() >= PATIENCE)
    }

    /// Refuses them, since they are late.
    pub(crate) fn refuse(&self, access: &Access) {
        access.admits(&self.check, &Hello::Incomplete);
    }

    /// Bytes that were held, those that have gone on since among them.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Goes on as far as it can.
    pub(crate) fn turn(
        &mut self,
        guest: &TcpStream,
        host: &HostStream,
        (token, tools): (Token, &Tools),
    ) -> Holding {
        while !self.admitted {
            let room = hello::LONGEST - self.held.len();
            match guest.read_shared(room) {
                Ok(bytes) => {
                    let ended = bytes.is_empty();
                    bytes.parts().iter().for_each(|part| self.held.extend_from_slice(part));
                    self.since.get_or_insert_with(Instant::now);
                    let hello = hello::read(&self.held);
                    let whole = hello != Hello::Incomplete;
                    if !whole && !ended && self.held.len() < hello::LONGEST {
                        continue;
                    }
                    let access = tools.names.access();
                    let empty = ended && self.held.is_empty();
                    if !empty && !access.admits(&self.check, &hello) {
                        return Holding::Refused;
                    }
                    self.admitted = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !guest.poll_readable(&tools.ready.waker(token.number())) {
                        return Holding::Waits;
                    }
                }
                Err(_) => return Holding::GuestFailed,
            }
        }
        while self.sent < self.held.len() {
            match send(host, &self.held[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Holding::Full,
                Err(Errno::INTR) => {}
                Err(_) => return Holding::HostFailed,
            }
        }
        Holding::Passed(self.sent)
    }
}
