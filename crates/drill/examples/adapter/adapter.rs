//! The stack, its clock, and the two threads of the tool.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use plimsoll_drill::host::{Captured, Host, HostError, Started};
use plimsoll_drill::posix::{Call, Errno, Reply};
use plimsoll_drill::shell;
use plimsoll_tcp::{Duration, Instant};

use crate::descriptors::Descriptors;

/// By so much the clock advances when the tool looks at it.
const GLANCE: Duration = Duration::from_micros(1);

/// So long, on the virtual clock, a packet is waited for, or a call that the tool did not expect to
/// sleep and whose end nobody else could bring about.
const PATIENCE: Duration = Duration::from_secs(600);

/// So long, on the real clock, a woken thread may take to look at the clock.
const WOKEN_LIMIT: Duration = Duration::from_secs(2);

/// How long a woken thread is given to finish, on the real clock.
const REST_STEP: Duration = Duration::from_micros(50);
const REST_LIMIT: u32 = 1_000;

/// The one adapter of a process.
static ADAPTER: OnceLock<Adapter> = OnceLock::new();

/// What stands behind the table.
pub(crate) struct Adapter {
    state: Mutex<State>,
    /// The sleeping call has returned.
    woken: Condvar,
    /// The woken thread has looked at the clock.
    looked: Condvar,
    /// The thread that runs the script.
    main: ThreadId,
}

struct State {
    host: Box<dyn Host + Send>,
    descriptors: Descriptors,
    captured: VecDeque<Captured>,
    sleeper: Sleeper,
    /// A woken thread, by the kernel's number, which has work of the tool to finish.
    busy: Option<i32>,
}

/// The call on the tool's second thread.
#[derive(Default)]
enum Sleeper {
    #[default]
    None,
    Asleep,
    /// It has returned, and the thread was told.
    Woken(Reply),
    /// The thread goes on and has not looked at the clock.
    Returned(ThreadId),
}

impl Adapter {
    /// Makes the process's adapter.
    pub(crate) fn install(host: Box<dyn Host + Send>) -> bool {
        ADAPTER.set(Adapter::new(host)).is_ok()
    }

    fn new(host: Box<dyn Host + Send>) -> Adapter {
        let state = State {
            host,
            descriptors: Descriptors::default(),
            captured: VecDeque::new(),
            sleeper: Sleeper::None,
            busy: None,
        };
        Adapter {
            state: Mutex::new(state),
            woken: Condvar::new(),
            looked: Condvar::new(),
            main: thread::current().id(),
        }
    }

    /// The process's adapter, once the tool has asked for the table.
    pub(crate) fn get() -> Option<&'static Adapter> {
        ADAPTER.get()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a descriptor is one of ours.
    pub(crate) fn knows(&self, fd: i32) -> bool {
        self.lock().descriptors.knows(fd)
    }

    /// What the tool reads as the time of day.
    pub(crate) fn look_at_clock(&self) -> Duration {
        let mut state = self.lock();
        if matches!(state.sleeper, Sleeper::Returned(thread) if thread == thread::current().id()) {
            state.sleeper = Sleeper::None;
            // SAFETY: the call cannot fail.
            state.busy = Some(unsafe { libc::gettid() });
            self.looked.notify_all();
            return state.time_of_day(state.host.now());
        }
        let until = state.host.now() + GLANCE;
        let state = self.advance(state, until);
        state.time_of_day(state.host.now())
    }

    /// Lets time pass.
    pub(crate) fn sleep(&self, time: Duration) {
        let busy = self.lock().busy.take();
        if let Some(busy) = busy {
            await_rest(busy);
        }
        let state = self.lock();
        let until = state.host.now() + time;
        drop(self.advance(state, until));
    }

    fn advance<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Instant,
    ) -> MutexGuard<'a, State> {
        loop {
            state.wait(until);
            state = self.wake(state);
            if state.host.now() >= until {
                return state;
            }
        }
    }

    /// If the sleeping call has returned, lets its thread go on, and waits until it has looked at
    /// the clock: it must see the time at which it was woken.
    fn wake<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !matches!(state.sleeper, Sleeper::Asleep) {
            return state;
        }
        let Some((_, reply)) = state.host.returned() else { return state };
        state.sleeper = Sleeper::Woken(reply);
        self.woken.notify_all();
        let pending = |s: &mut State| matches!(s.sleeper, Sleeper::Woken(_) | Sleeper::Returned(_));
        let waited = self.looked.wait_timeout_while(state, WOKEN_LIMIT, pending);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Makes a call.
    pub(crate) fn call(&self, call: Call) -> Reply {
        let mut state = self.lock();
        let main = thread::current().id() == self.main;
        let mut inner = call.clone();
        state.descriptors.translate(&mut inner);
        let started = match state.host.call(inner, !main) {
            Ok(started) => started,
            Err(error) => return complain(&error),
        };
        let (mut state, mut reply) = match started {
            Started::Returned(reply) => (state, reply),
            Started::Sleeps if main => self.sleep_alone(state),
            Started::Sleeps => self.sleep_beside(state),
        };
        state.descriptors.answer(&call, &mut reply);
        if main {
            drop(self.wake(state));
        }
        reply
    }

    /// The only thread sleeps: time passes until the call returns.
    fn sleep_alone<'a>(&self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, Reply) {
        let end = state.host.now() + PATIENCE;
        loop {
            state.wait(end);
            if let Some((_, reply)) = state.host.returned() {
                return (state, reply);
            }
            if state.host.now() >= end {
                let why = "a call sleeps that the script does not expect to, and nothing wakes it";
                let reply = complain(&HostError(why.into()));
                return (state, reply);
            }
        }
    }

    /// The second thread sleeps while the first goes on.
    fn sleep_beside<'a>(&self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, Reply) {
        state.sleeper = Sleeper::Asleep;
        loop {
            state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
            if let Sleeper::Woken(_) = state.sleeper {
                let thread = thread::current().id();
                let woken = std::mem::replace(&mut state.sleeper, Sleeper::Returned(thread));
                if let Sleeper::Woken(reply) = woken {
                    return (state, reply);
                }
            }
        }
    }

    /// A packet arrives.
    pub(crate) fn inject(&self, packet: &[u8]) -> Result<(), HostError> {
        let mut state = self.lock();
        state.host.inject(packet)?;
        drop(self.wake(state));
        Ok(())
    }

    /// The next packet that leaves and the time of day then; `None` if none does in a long time.
    pub(crate) fn sniff(&self) -> Option<(Duration, Vec<u8>)> {
        let mut state = self.lock();
        let end = state.host.now() + PATIENCE;
        loop {
            state.collect();
            if let Some(packet) = state.captured.pop_front() {
                return Some((state.time_of_day(packet.at), packet.bytes));
            }
            if state.host.now() >= end {
                return None;
            }
            state.wait(end);
            state = self.wake(state);
        }
    }

    /// Does what shell lines ask.
    pub(crate) fn shell(&self, lines: &str, folder: &Path) -> Result<(), HostError> {
        let mut state = self.lock();
        let done = shell::run(&mut *state.host, lines, Some(folder));
        drop(self.wake(state));
        done
    }
}

impl State {
    /// The clock of timestamps, which the tool compares with.
    fn time_of_day(&self, now: Instant) -> Duration {
        self.host.epoch() + now.since(Instant::ZERO)
    }

    fn wait(&mut self, until: Instant) {
        if let Err(error) = self.host.wait(until) {
            complain(&error);
            // Nobody can go on with a clock that stands.
            std::process::abort();
        }
        self.collect();
    }

    /// Takes what has left from the host, for which it counts as seen then.
    fn collect(&mut self) {
        self.captured.extend(std::iter::from_fn(|| self.host.sniff()));
    }
}

/// Waits until a thread has finished what it does, as it would have while the tool really slept:
/// before the tool sleeps it lets go of the lock that the thread wants.
fn await_rest(thread: i32) {
    let path = format!("/proc/self/task/{thread}/stat");
    let mut rests = 0;
    for _ in 0..REST_LIMIT {
        thread::sleep(REST_STEP);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let asleep = text.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" S"));
        // Once may be a moment in which it waited for the lock.
        rests = if asleep { rests + 1 } else { 0 };
        if rests == 2 {
            return;
        }
    }
}

/// Tells of what the tool has no words for.
fn complain(error: &HostError) -> Reply {
    eprintln!("plimsoll: {error}");
    Reply::error(Errno::EIO)
}

#[cfg(test)]
mod tests;
