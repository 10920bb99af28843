//! poll(2), and what it tells of each kind of file.

use plimsoll_tcp::{Duration, Instant, State};

use crate::posix::call::{Out, PollFd, Reply};
use crate::posix::descriptors::{Descriptor, File};
use crate::posix::numbers::*;
use crate::posix::process::{Process, Step, Wait};
use crate::posix::socket::{Link, Socket};

/// POLLIN and its relatives.
pub(crate) const READ: u32 = EPOLLIN | EPOLLRDNORM;
/// POLLOUT and its relatives.
pub(crate) const WRITE: u32 = EPOLLOUT | EPOLLWRNORM;

impl Process {
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        fds: &[PollFd],
        timeout_ms: i32,
        wait: &mut Wait,
    ) -> Step {
        let told: Vec<PollFd> = fds.iter().map(|entry| self.poll_one(*entry)).collect();
        let count = told.iter().filter(|entry| entry.revents != 0).count();
        if count == 0 && timeout_ms != 0 && !wait.expired(now) {
            return wait.sleep(now, timeout(timeout_ms));
        }
        Step::Done(Ok(Reply { result: Ok(count as i64), out: Out::Poll(told) }))
    }

    fn poll_one(&self, entry: PollFd) -> PollFd {
        let revents = match self.fds.get(entry.fd) {
            _ if entry.fd < 0 => 0,
            Err(_) => EPOLLNVAL,
            Ok(descriptor) => {
                // The upper half of the bits is epoll's.
                let asked = u32::from(entry.events as u16) | EPOLLERR | EPOLLHUP;
                self.mask(descriptor) & asked
            }
        };
        PollFd { revents: revents as u16 as i16, ..entry }
    }

    /// Everything that poll would tell of a descriptor now.
    pub(crate) fn mask(&self, descriptor: &Descriptor) -> u32 {
        match &descriptor.file {
            File::Socket(socket) => socket.mask(),
            File::Pipe(end) => end.mask(),
            File::Regular(_) => READ | WRITE,
            File::Epoll(epoll) => {
                if epoll.anything(&self.fds, |inner| self.mask(inner)) {
                    READ
                } else {
                    0
                }
            }
        }
    }
}

/// A timeout in milliseconds, of which a negative one is none.
pub(crate) fn timeout(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

impl Socket {
    /// Everything that poll would tell now.
    pub(crate) fn mask(&self) -> u32 {
        let error = if self.error.is_some() { EPOLLERR } else { 0 };
        match &self.link {
            Link::Idle => WRITE | EPOLLHUP | error,
            Link::Listener(listener) => {
                let waker = std::task::Waker::noop();
                if listener.poll_acceptable(waker).is_ready() { READ } else { 0 }
            }
            Link::Stream(stream) => {
                let ready = stream.readiness();
                let mut mask = error;
                let mut tell = |when: bool, bits: u32| mask |= if when { bits } else { 0 };
                tell(ready.error || ready.report, EPOLLERR);
                if stream.state() == State::SynSent {
                    return mask | if stream.is_connect_deferred() { WRITE } else { 0 };
                }
                tell(ready.hung_up, EPOLLHUP);
                tell(ready.readable, READ);
                tell(ready.read_closed, READ | EPOLLRDHUP);
                tell(ready.writable, WRITE);
                tell(stream.peek_urgent().is_some(), EPOLLPRI);
                mask
            }
        }
    }

    /// What counts the wake-ups of a socket: input, output, and those that wake everybody.
    pub(crate) fn edges(&self) -> [u32; 3] {
        match &self.link {
            Link::Stream(stream) => {
                let edges = stream.edges();
                // The peer's FIN changes the state, which wakes everybody.
                let ended = matches!(
                    stream.state(),
                    State::CloseWait
                        | State::LastAck
                        | State::Closing
                        | State::TimeWait
                        | State::Closed
                );
                let everybody = edges.error.wrapping_add(self.changes);
                [edges.input, edges.output, everybody.wrapping_add(u32::from(ended))]
            }
            Link::Listener(listener) => [listener.arrivals(), 0, self.changes],
            Link::Idle => [0, 0, self.changes],
        }
    }
}
