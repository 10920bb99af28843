//! The second thread, on which calls are made that may sleep.

use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::posix::{Call, Reply};

use super::sys;
use crate::host::HostError;

/// A call, when it returned, and what.
pub(super) type Returned = (Call, Duration, Reply);

/// How far the thread has come.
#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    /// It has been told and has not begun.
    Told,
    /// It is in the call.
    Running,
    /// The call has returned.
    Returned(Box<Returned>),
}

struct Shared {
    stage: Mutex<Stage>,
    bell: sys::Bell,
}

impl Shared {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that makes one call after the other.
pub(super) struct Sleeper {
    shared: Arc<Shared>,
    calls: Sender<Call>,
    thread: i32,
}

impl Sleeper {
    pub(super) fn new() -> io::Result<Sleeper> {
        let shared = Arc::new(Shared { stage: Mutex::default(), bell: sys::Bell::new()? });
        let (calls, inbox) = channel();
        let (tell, told) = channel();
        let theirs = Arc::clone(&shared);
        thread::Builder::new().spawn(move || {
            let _ = tell.send(sys::thread_id());
            work(&theirs, &inbox);
        })?;
        let thread = told.recv().map_err(io::Error::other)?;
        Ok(Sleeper { shared, calls, thread })
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.shared.bell.as_raw_fd()
    }

    /// Whether a call is under way or its result was not taken yet.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(*self.shared.stage(), Stage::Idle)
    }

    pub(super) fn has_returned(&self) -> bool {
        matches!(*self.shared.stage(), Stage::Returned(_))
    }

    /// Makes a call; `None` if it sleeps.
    pub(super) fn start(&mut self, call: Call) -> Result<Option<Returned>, HostError> {
        *self.shared.stage() = Stage::Told;
        self.calls.send(call).map_err(|_| HostError("the second thread has gone".into()))?;
        loop {
            thread::yield_now();
            if let Some(returned) = self.take() {
                return Ok(Some(returned));
            }
            let running = matches!(*self.shared.stage(), Stage::Running);
            // What the kernel says counts only if the thread was in the call before and is after.
            if running && self.is_asleep() && matches!(*self.shared.stage(), Stage::Running) {
                return Ok(None);
            }
        }
    }

    /// What the call returned, once it has.
    pub(super) fn take(&mut self) -> Option<Returned> {
        let mut stage = self.shared.stage();
        match std::mem::take(&mut *stage) {
            Stage::Returned(returned) => {
                self.shared.bell.silence();
                Some(*returned)
            }
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Whether the kernel says that the thread sleeps.
    fn is_asleep(&self) -> bool {
        let path = format!("/proc/self/task/{}/stat", self.thread);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The name before the state may hold anything, but no parenthesis follows it.
        text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
    }
}

fn work(shared: &Shared, inbox: &Receiver<Call>) {
    while let Ok(call) = inbox.recv() {
        *shared.stage() = Stage::Running;
        let reply = sys::perform(&call);
        let at = sys::now();
        *shared.stage() = Stage::Returned(Box::new((call, at, reply)));
        shared.bell.ring();
    }
}
