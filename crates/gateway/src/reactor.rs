//! The core of a loop: it polls a queue of the stack, and sleeps until a descriptor of the stack or
//! of the host's side is ready.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::{ChunkWriter, IdlePolls, QueueLoop, ReadyQueue, Slice, Stack, Watch};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use crate::fronts::Fronts;
use crate::names::Names;
use crate::reasons::Reasons;
use crate::worker::Task;

/// A wait that may end late by a thousandth of it.
const COARSE: Duration = Duration::from_millis(5);

/// The meaning of a token. Streams and flows have their number above the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A descriptor of the stack: polling finds out.
    Stack,
    /// The socket pair to the inside.
    End,
    /// Echo requests of the command.
    Pings,
    /// Work from other threads for this loop.
    Inbox,
    /// Requests to change the published ports.
    Requests,
    /// A published port.
    Port(usize),
    /// A connection.
    Tcp(usize),
    /// A flow of datagrams.
    Udp(usize),
    /// A socket for echo requests.
    Ping(usize),
    /// A port of the command, for datagrams.
    Mapping(usize),
}

/// Bits of a token's kind; the number of a connection, a flow or a port is above them.
const KINDS: u32 = 4;

impl Token {
    pub(crate) fn number(self) -> usize {
        match self {
            Token::Stack => 0,
            Token::End => 1,
            Token::Pings => 2,
            Token::Inbox => 3,
            Token::Requests => 4,
            Token::Tcp(id) => (id << KINDS) | 5,
            Token::Udp(id) => (id << KINDS) | 6,
            Token::Ping(id) => (id << KINDS) | 7,
            Token::Port(id) => (id << KINDS) | 8,
            Token::Mapping(id) => (id << KINDS) | 9,
        }
    }

    pub(crate) fn of(number: usize) -> Token {
        let id = number >> KINDS;
        match number & ((1 << KINDS) - 1) {
            0 => Token::Stack,
            1 => Token::End,
            2 => Token::Pings,
            3 => Token::Inbox,
            4 => Token::Requests,
            5 => Token::Tcp(id),
            6 => Token::Udp(id),
            7 => Token::Ping(id),
            8 => Token::Port(id),
            _ => Token::Mapping(id),
        }
    }
}

/// The state of a descriptor of the host's side, since it was last used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The other side has ended its stream, or the connection has failed.
    pub(crate) ended: bool,
    /// The descriptor has an error.
    pub(crate) failed: bool,
}

/// Bytes of the chunk that data of the host's side is read into.
const CHUNK: usize = 256 * 1024;
/// A read gets at least this much room.
const LEAST_ROOM: usize = 32 * 1024;

/// The tools of connections and flows.
pub(crate) struct Tools {
    pub(crate) names: Arc<Names>,
    /// With `--explain`.
    pub(crate) reasons: Option<Arc<Reasons>>,
    pub(crate) stack: Stack,
    pub(crate) ready: ReadyQueue,
    epoll: OwnedFd,
    chunk: Option<ChunkWriter>,
}

impl Tools {
    /// Watches a descriptor of the host's side, edge by edge.
    pub(crate) fn watch(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(token.number() as u64);
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    /// Reads from a descriptor of the host's side into memory of the stack. An empty slice is its
    /// end. Returns as well whether there may be more.
    pub(crate) fn read(&mut self, fd: impl AsFd) -> Result<(Slice, bool), Errno> {
        let stack = &self.stack;
        let chunk = match &mut self.chunk {
            Some(chunk) if chunk.remaining() >= LEAST_ROOM => chunk,
            slot => slot.insert(stack.buffer(CHUNK)),
        };
        let count = loop {
            match rustix::io::read(&fd, chunk.spare_mut()) {
                Err(Errno::INTR) => {}
                done => break done?,
            }
        };
        let may_have_more = count == chunk.remaining();
        Ok((chunk.freeze(count), may_have_more))
    }

    /// Frees the chunk: the loop is about to sleep.
    pub(crate) fn free_chunk(&mut self) {
        self.chunk = None;
    }
}

/// The loop's own state.
pub(crate) struct Reactor {
    queue: QueueLoop,
    watches: Vec<Watch>,
    idle: IdlePolls,
    tokens: Vec<usize>,
    /// Sleeps end to the microsecond, for one more system call each.
    is_exact: bool,
}

/// The tokens that a round has found ready. It belongs to the loop's thread.
pub(crate) struct Round {
    pub(crate) ready: Vec<(Token, Readiness)>,
    /// New work, with the loop that it is for.
    pub(crate) tasks: Vec<(usize, Task)>,
    events: Vec<epoll::Event>,
}

impl Round {
    pub(crate) fn new() -> Round {
        Round { ready: Vec::new(), tasks: Vec::new(), events: Vec::with_capacity(256) }
    }

    /// Waits for the descriptors of `set`.
    fn wait(&mut self, set: &OwnedFd, timeout: Option<&Timespec>) -> io::Result<()> {
        self.events.clear();
        match epoll::wait(set, spare_capacity(&mut self.events), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            let flags = event.flags;
            let ended = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
            let input = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            let readiness = Readiness {
                readable: flags.intersects(ended | input),
                writable: flags.intersects(ended | epoll::EventFlags::OUT),
                ended: flags.intersects(ended | epoll::EventFlags::RDHUP),
                failed: flags.intersects(epoll::EventFlags::ERR),
            };
            self.ready.push((Token::of(event.data.u64() as usize), readiness));
        }
        Ok(())
    }
}

impl Reactor {
    pub(crate) fn new(
        queue: QueueLoop,
        names: Arc<Names>,
        reasons: Option<Arc<Reasons>>,
    ) -> io::Result<(Reactor, Tools)> {
        let tools = Tools {
            names,
            reasons,
            stack: queue.stack().clone(),
            ready: ReadyQueue::with_kicker(queue.kicker()),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            chunk: None,
        };
        let (watches, tokens, idle) = (Vec::new(), Vec::new(), IdlePolls::new());
        Ok((Reactor { queue, watches, idle, tokens, is_exact: false }, tools))
    }

    /// Ends sleeps to the microsecond from now on, those of this thread.
    ///
    /// # Errors
    /// That of prctl(2).
    pub(crate) fn sleep_exactly(&mut self) -> io::Result<()> {
        self.is_exact = true;
        // Without this the kernel wakes a sleeper up to 50 microseconds late, to save power.
        Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
    }

    /// One round: packets, then what is ready of both sides. Sleeps if there is nothing, but no
    /// longer than `longest`, unless `again` says that something can go on. Returns whether there
    /// was work before a sleep.
    pub(crate) fn turn(
        &mut self,
        (tools, fronts): (&mut Tools, &Fronts),
        (again, longest): (bool, Option<Duration>),
        round: &mut Round,
    ) -> io::Result<bool> {
        let mut worked = self.queue.poll().worked || again;
        fronts.take(&mut round.tasks)?;
        worked |= !round.tasks.is_empty();
        tools.ready.take(&mut self.tokens);
        let woken = self.tokens.drain(..).map(|token| (Token::of(token), Readiness::default()));
        round.ready.extend(woken);
        worked |= !round.ready.is_empty();
        if worked {
            self.idle.on_work();
            return self.look(tools, round).map(|()| true);
        }
        if self.idle.poll_again() {
            return self.look(tools, round).map(|()| !round.ready.is_empty());
        }
        tools.free_chunk();
        let prepared = self.queue.prepare_wait(|| !tools.ready.is_empty());
        let Some(wait) = prepared.map_err(io::Error::other)? else { return Ok(true) };
        let watches: Vec<Watch> = wait.watches().collect();
        if watches != self.watches {
            for gone in &self.watches {
                // It may have gone with its device.
                let _ = epoll::delete(&tools.epoll, gone);
            }
            let data = epoll::EventData::new_u64(Token::Stack.number() as u64);
            for watch in &watches {
                let mut flags = epoll::EventFlags::IN;
                flags.set(epoll::EventFlags::OUT, watch.wants_write());
                epoll::add(&tools.epoll, watch, data, flags)?;
            }
            self.watches = watches;
        }
        let timeout = wait.timeout().into_iter().chain(longest).min();
        // poll(2) ends a wait late by up to a thousandth of it: the rest of a long one is a second
        // wait.
        let is_long = |time: &Duration| self.is_exact && *time > COARSE;
        let timeout = timeout.map(|time| if is_long(&time) { time - time / 512 } else { time });
        let mut timeout = timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        if self.is_exact && timeout.is_some() {
            // Here `epoll_wait` counts in milliseconds.
            let mut set = [PollFd::new(&tools.epoll, PollFlags::IN)];
            match poll(&mut set, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            timeout = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        round.wait(&tools.epoll, timeout.as_ref())?;
        Ok(!round.ready.is_empty())
    }

    /// Takes what is ready now.
    fn look(&mut self, tools: &Tools, round: &mut Round) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        round.wait(&tools.epoll, Some(&now))?;
        if round.ready.iter().any(|&(token, _)| token != Token::Stack) {
            self.idle.on_work();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_numbers_of_their_own() {
        let all = [
            Token::Stack,
            Token::End,
            Token::Tcp(0),
            Token::Udp(0),
            Token::Tcp(77),
            Token::Udp(1 << 40),
            Token::Ping(5),
            Token::Mapping(6),
            Token::Port(3),
            Token::Pings,
            Token::Inbox,
            Token::Requests,
        ];
        for token in all {
            assert_eq!(Token::of(token.number()), token);
        }
    }
}
