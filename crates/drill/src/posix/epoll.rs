//! epoll.
//!
//! As on Linux an entry is looked at when something has woken it: a wake-up that is of interest
//! puts it on the list of those that may be ready. epoll_wait asks each of the list what poll would
//! tell, drops it from the list if that is nothing, and keeps it there if it is level-triggered. So
//! an edge is a wake-up, and not a change of what poll tells.

use std::collections::VecDeque;

use plimsoll_tcp::Instant;

use crate::posix::call::{EpollEvent, Out, Reply};
use crate::posix::descriptors::{Descriptor, Descriptors, File};
use crate::posix::errno::Errno;
use crate::posix::numbers::*;
use crate::posix::poll::timeout;
use crate::posix::process::{Outcome, Process, Step, Wait};

/// Bits of an event that are not masks of poll.
const PRIVATE: u32 = EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE;
/// What may stand beside EPOLLEXCLUSIVE.
const WITH_EXCLUSIVE: u32 =
    EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
/// Whom input wakes.
const INPUT: u32 = EPOLLIN | EPOLLPRI | EPOLLRDNORM | EPOLLRDBAND | EPOLLRDHUP;
/// Whom space wakes.
const OUTPUT: u32 = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;

/// An epoll instance.
#[derive(Default)]
pub(crate) struct Epoll {
    /// In the order in which they were added; those on the list of the ready before others.
    entries: VecDeque<Entry>,
}

struct Entry {
    fd: i32,
    interest: EpollEvent,
    /// On the list of those that may be ready.
    listed: bool,
    /// The wake-ups seen.
    seen: [u32; 3],
}

impl Entry {
    /// A one-shot event that has been told.
    fn is_disarmed(&self) -> bool {
        self.interest.events & !PRIVATE == 0
    }

    fn wants(&self) -> u32 {
        (self.interest.events & !PRIVATE) | EPOLLERR | EPOLLHUP
    }

    /// Puts the entry on the list if it was woken since it was looked at.
    fn notice(&mut self, edges: [u32; 3]) {
        if self.is_disarmed() {
            self.seen = edges;
            return;
        }
        let woken = [INPUT, OUTPUT, u32::MAX]
            .into_iter()
            .zip(self.seen.iter().zip(edges))
            .any(|(bits, (&seen, now))| seen != now && self.wants() & bits != 0);
        self.seen = edges;
        self.listed |= woken;
    }
}

impl Epoll {
    /// A descriptor is closed.
    pub(crate) fn forget(&mut self, fd: i32) {
        self.entries.retain(|entry| entry.fd != fd);
    }

    /// Whether epoll_wait would tell something.
    pub(crate) fn anything(&self, fds: &Descriptors, mask: impl Fn(&Descriptor) -> u32) -> bool {
        self.entries.iter().any(|entry| {
            let Ok(descriptor) = fds.get(entry.fd) else { return false };
            let edged = edges_of(descriptor) != entry.seen;
            (entry.listed || edged) && !entry.is_disarmed() && mask(descriptor) & entry.wants() != 0
        })
    }
}

/// The wake-ups of any kind of file. Those that are not sockets wake whenever they are looked at.
fn edges_of(descriptor: &Descriptor) -> [u32; 3] {
    match &descriptor.file {
        File::Socket(socket) => socket.edges(),
        File::Pipe(end) => end.edges(),
        File::Epoll(_) | File::Regular(_) => [0; 3],
    }
}

impl Process {
    pub(crate) fn epoll_create(&mut self, size: Option<i32>, flags: i32) -> Outcome {
        let wrong_size = size.is_some_and(|size| size <= 0);
        if wrong_size || (size.is_none() && flags & !EPOLL_CLOEXEC != 0) {
            return Err(Errno::EINVAL);
        }
        self.open(File::Epoll(Epoll::default()), false, flags & EPOLL_CLOEXEC != 0)
    }

    pub(crate) fn epoll_ctl(
        &mut self,
        epfd: i32,
        op: i32,
        fd: i32,
        event: Option<EpollEvent>,
    ) -> Outcome {
        let event = match event {
            None if op != EPOLL_CTL_DEL => return Err(Errno::EFAULT),
            event => event.unwrap_or_default(),
        };
        self.fds.get(epfd)?;
        let target = self.fds.get(fd)?;
        if matches!(target.file, File::Regular(_)) {
            return Err(Errno::EPERM);
        }
        let nested = matches!(target.file, File::Epoll(_));
        let (seen, mask) = (edges_of(target), self.mask(target));
        let File::Epoll(epoll) = &mut self.fds.get_mut(epfd)?.file else {
            return Err(Errno::EINVAL);
        };
        let exclusive = event.events & EPOLLEXCLUSIVE != 0;
        let wrong = exclusive && (nested || event.events & !WITH_EXCLUSIVE != 0);
        if epfd == fd || (op == EPOLL_CTL_ADD && wrong) || (op == EPOLL_CTL_MOD && exclusive) {
            return Err(Errno::EINVAL);
        }
        let place = epoll.entries.iter().position(|entry| entry.fd == fd);
        match (op, place) {
            (EPOLL_CTL_ADD, Some(_)) => return Err(Errno::EEXIST),
            (EPOLL_CTL_MOD | EPOLL_CTL_DEL, None) => return Err(Errno::ENOENT),
            (EPOLL_CTL_ADD, None) => {
                let mut entry = Entry { fd, interest: event, listed: false, seen };
                entry.listed = mask & entry.wants() != 0;
                epoll.entries.push_back(entry);
            }
            (EPOLL_CTL_MOD, Some(place)) => {
                let entry = &mut epoll.entries[place];
                if entry.interest.events & EPOLLEXCLUSIVE != 0 {
                    return Err(Errno::EINVAL);
                }
                entry.interest = event;
                entry.seen = seen;
                entry.listed |= mask & entry.wants() != 0;
            }
            (EPOLL_CTL_DEL, Some(place)) => drop(epoll.entries.remove(place)),
            _ => return Err(Errno::EINVAL),
        }
        Ok(Reply::value(0))
    }

    pub(crate) fn epoll_wait(
        &mut self,
        now: Instant,
        epfd: i32,
        max_events: i32,
        timeout_ms: i32,
        wait: &mut Wait,
    ) -> Step {
        let most = match usize::try_from(max_events) {
            Ok(most @ 1..) => most,
            _ => return Step::error(Errno::EINVAL),
        };
        let mut epoll = match self.fds.get_mut(epfd) {
            Ok(Descriptor { file: File::Epoll(epoll), .. }) => std::mem::take(epoll),
            Ok(_) => return Step::error(Errno::EINVAL),
            Err(errno) => return Step::error(errno),
        };
        let events = self.harvest(&mut epoll, most);
        if let Ok(Descriptor { file: File::Epoll(place), .. }) = self.fds.get_mut(epfd) {
            *place = epoll;
        }
        if events.is_empty() && timeout_ms != 0 && !wait.expired(now) {
            return wait.sleep(now, timeout(timeout_ms));
        }
        Step::Done(Ok(Reply { result: Ok(events.len() as i64), out: Out::Epoll(events) }))
    }

    /// Takes up to `most` events.
    fn harvest(&self, epoll: &mut Epoll, most: usize) -> Vec<EpollEvent> {
        let mut events = Vec::new();
        let mut told = VecDeque::new();
        for _ in 0..epoll.entries.len() {
            let Some(mut entry) = epoll.entries.pop_front() else { break };
            let Ok(descriptor) = self.fds.get(entry.fd) else { continue };
            entry.notice(edges_of(descriptor));
            let asks = entry.listed || !matches!(descriptor.file, File::Socket(_) | File::Pipe(_));
            if events.len() == most || !asks || entry.is_disarmed() {
                epoll.entries.push_back(entry);
                continue;
            }
            let mask = self.mask(descriptor) & entry.wants();
            if mask == 0 {
                entry.listed = false;
                epoll.entries.push_back(entry);
                continue;
            }
            events.push(EpollEvent { events: mask, data: entry.interest.data });
            if entry.interest.events & EPOLLONESHOT != 0 {
                entry.interest.events &= PRIVATE;
                entry.listed = false;
            } else {
                entry.listed = entry.interest.events & EPOLLET == 0;
            }
            // Those that were told come after all others the next time.
            told.push_back(entry);
        }
        epoll.entries.extend(told);
        events
    }
}
