//! A process: its descriptors, and where its calls go.

use std::sync::Arc;

use plimsoll_stack::Stack;
use plimsoll_tcp::Instant;

use crate::posix::call::{Call, Out, Progress, Reply};
use crate::posix::descriptors::{Descriptors, File, LowestFree, Numbers};
use crate::posix::errno::Errno;
use crate::posix::fast_open::Opening;
use crate::posix::lifecycle::Lingering;

/// What a call came to, if it need not sleep.
pub(crate) type Outcome = Result<Reply, Errno>;

/// How a try to carry a call out went.
pub(crate) enum Step {
    Done(Outcome),
    /// It has to sleep, until the deadline of its [`Wait`] at most.
    Sleep,
}

impl Step {
    pub(crate) fn value(value: i64) -> Step {
        Step::Done(Ok(Reply::value(value)))
    }

    pub(crate) fn error(errno: Errno) -> Step {
        Step::Done(Err(errno))
    }
}

/// What a sleeping call remembers between two tries.
#[derive(Default)]
pub(crate) struct Wait {
    /// Whether this is not the first try.
    pub(crate) again: bool,
    /// When it gives up.
    pub(crate) deadline: Option<Instant>,
    /// Bytes written so far.
    pub(crate) sent: usize,
    /// Bytes read so far.
    pub(crate) received: Vec<u8>,
    /// What counted wake-ups when a writer found no space.
    pub(crate) edges: Option<[u32; 2]>,
    /// How far the opening is that a send began.
    pub(crate) opening: Opening,
    /// The descriptor that it began with: numbers are used again.
    serial: Option<u64>,
}

impl Wait {
    /// Falls asleep. The timeout counts from the first time.
    pub(crate) fn sleep(&mut self, now: Instant, timeout: Option<plimsoll_tcp::Duration>) -> Step {
        if self.deadline.is_none() {
            self.deadline = timeout.map(|timeout| now + timeout);
        }
        Step::Sleep
    }

    /// Whether its time is over.
    pub(crate) fn expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// A call that sleeps.
pub(crate) struct Pending(Sleeper);

enum Sleeper {
    Call(Box<(Call, Wait)>),
    /// close(2) with SO_LINGER; the descriptor is gone already.
    Close(Lingering),
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Sleeper::Call(sleeper) => sleeper.0.fmt(f),
            Sleeper::Close(_) => write!(f, "Close"),
        }
    }
}

/// A process with descriptors on one stack.
///
/// It has no thread and no clock. A call that would sleep comes back as [`Progress::Blocked`];
/// [`resume`](Self::resume) tries again. Resuming a call for which nothing has changed is harmless.
/// Several calls may sleep at the same time.
pub(crate) struct Process {
    pub(crate) stack: Arc<Stack>,
    pub(crate) fds: Descriptors,
    /// Where the search for a free port goes on.
    pub(crate) next_port: u16,
}

impl Process {
    /// A process whose descriptors get the lowest free number from 3 on.
    pub(crate) fn new(stack: Arc<Stack>) -> Process {
        Process::with_numbers(stack, Box::new(LowestFree::default()))
    }

    /// A process whose descriptors get their numbers from `numbers`.
    pub(crate) fn with_numbers(stack: Arc<Stack>, numbers: Box<dyn Numbers>) -> Process {
        Process { stack, fds: Descriptors::new(numbers), next_port: 0 }
    }

    /// Carries out a call, as far as it comes.
    pub(crate) fn call(&mut self, now: Instant, call: Call) -> Progress<Pending> {
        if let Call::Close { fd } = call {
            let closing = self.close(now, fd);
            return settle_close(now, closing);
        }
        let serial = main_descriptor(&call).and_then(|fd| Some(self.fds.get(fd).ok()?.serial));
        self.attempt(now, Box::new((call, Wait { serial, ..Wait::default() })))
    }

    /// Goes on with a call that sleeps.
    pub(crate) fn resume(&mut self, now: Instant, pending: Pending) -> Progress<Pending> {
        match pending.0 {
            Sleeper::Close(lingering) => settle_close(now, Ok(Some(lingering))),
            Sleeper::Call(mut sleeper) => {
                let (call, wait) = &mut *sleeper;
                let there = main_descriptor(call)
                    .is_none_or(|fd| self.fds.get(fd).ok().map(|d| d.serial) == wait.serial);
                if !there {
                    return Progress::Done(Reply::error(Errno::EBADF));
                }
                wait.again = true;
                self.attempt(now, sleeper)
            }
        }
    }

    fn attempt(&mut self, now: Instant, mut sleeper: Box<(Call, Wait)>) -> Progress<Pending> {
        let (call, wait) = &mut *sleeper;
        match self.step(now, call, wait) {
            Step::Done(outcome) => Progress::Done(outcome.unwrap_or_else(Reply::error)),
            Step::Sleep => {
                let deadline = sleeper.1.deadline;
                Progress::Blocked { pending: Pending(Sleeper::Call(sleeper)), deadline }
            }
        }
    }

    fn step(&mut self, now: Instant, call: &Call, wait: &mut Wait) -> Step {
        match call {
            Call::Accept { fd, flags } => self.accept(now, *fd, *flags, wait),
            Call::Connect { fd, addr } => self.connect(now, *fd, *addr, wait),
            Call::Receive { .. } => self.receive(now, call, wait),
            Call::Send { .. } => self.send(now, call, wait),
            Call::Poll { fds, timeout_ms } => self.poll(now, fds, *timeout_ms, wait),
            Call::EpollWait { epfd, max_events, timeout_ms } => {
                self.epoll_wait(now, *epfd, *max_events, *timeout_ms, wait)
            }
            Call::Splice { from, to, len, flags } => {
                self.splice(now, (*from, *to), *len, *flags, wait)
            }
            Call::Sendfile { out_fd, in_fd, offset, count } => {
                self.sendfile(now, (*out_fd, *in_fd), *offset, *count, wait)
            }
            _ => Step::Done(self.immediate(now, call)),
        }
    }

    /// The calls that never sleep.
    fn immediate(&mut self, now: Instant, call: &Call) -> Outcome {
        match call {
            Call::Socket { domain, kind, protocol } => self.socket(*domain, *kind, *protocol),
            Call::Bind { fd, addr } => self.bind(*fd, *addr),
            Call::Listen { fd, backlog } => self.listen(*fd, *backlog),
            Call::Getsockname { fd } => self.getsockname(*fd),
            Call::Getpeername { fd } => self.getpeername(*fd),
            Call::Fcntl { fd, cmd, arg } => self.fcntl(*fd, *cmd, *arg),
            Call::Ioctl { fd, request, arg } => self.ioctl(*fd, *request, *arg),
            Call::Shutdown { fd, how } => self.shutdown(now, *fd, *how),
            Call::Getsockopt { fd, level, name, len, null } => {
                self.getsockopt(now, *fd, (*level, *name), *len, *null)
            }
            Call::Setsockopt { fd, level, name, value, len } => {
                self.setsockopt(now, *fd, (*level, *name), value.as_deref(), *len)
            }
            Call::EpollCreate { size, flags } => self.epoll_create(*size, *flags),
            Call::EpollCtl { epfd, op, fd, event } => self.epoll_ctl(*epfd, *op, *fd, *event),
            Call::Pipe { flags } => self.pipe(*flags),
            Call::Open { path, flags } => self.open_file(path, *flags),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Opens a descriptor and returns its number.
    pub(crate) fn open(&mut self, file: File, nonblocking: bool, cloexec: bool) -> Outcome {
        let fd = self.fds.open(file, nonblocking)?;
        self.fds.get_mut(fd)?.cloexec = cloexec;
        Ok(Reply::value(i64::from(fd)))
    }
}

fn settle_close(now: Instant, closing: Result<Option<Lingering>, Errno>) -> Progress<Pending> {
    match closing {
        Err(errno) => Progress::Done(Reply::error(errno)),
        Ok(Some(lingering)) if !lingering.is_over(now) => {
            let deadline = Some(lingering.deadline);
            Progress::Blocked { pending: Pending(Sleeper::Close(lingering)), deadline }
        }
        Ok(_) => Progress::Done(Reply { result: Ok(0), out: Out::Nothing }),
    }
}

/// The descriptor that a call that may sleep is about.
fn main_descriptor(call: &Call) -> Option<i32> {
    match call {
        Call::Accept { fd, .. }
        | Call::Connect { fd, .. }
        | Call::Receive { fd, .. }
        | Call::Send { fd, .. } => Some(*fd),
        Call::EpollWait { epfd, .. } => Some(*epfd),
        Call::Splice { from, .. } => Some(from.fd),
        Call::Sendfile { out_fd, .. } => Some(*out_fd),
        _ => None,
    }
}
