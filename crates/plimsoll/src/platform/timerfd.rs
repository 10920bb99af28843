//! An alarm that is a timerfd.

use std::os::fd::OwnedFd;
use std::task::Context;
use std::time::Duration;

use plimsoll_stack::StackError;
use plimsoll_tcp::Instant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Alarm;
use super::watcher::{forget_readiness, refused, watched};

/// Wakes a task at a time.
#[derive(Default)]
pub(crate) struct PreciseAlarm {
    /// Made on the runtime, when it is needed first.
    fd: Option<AsyncFd<OwnedFd>>,
    armed: Option<Instant>,
}

impl PreciseAlarm {
    /// Forgets that it has gone off.
    pub(crate) fn forget(&mut self, cx: &mut Context<'_>) -> Result<(), StackError> {
        if let Some(fd) = &mut self.fd
            && forget_readiness(fd, cx)?
        {
            self.armed = None;
        }
        Ok(())
    }

    /// Has `cx` be woken at `until`, or a little before.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        until: Instant,
        cx: &mut Context<'_>,
    ) -> Result<Alarm, StackError> {
        // A wake-up that comes too early costs less than setting the alarm each time a timer moves
        // back.
        if self.armed.is_some_and(|at| at > now && at <= until) {
            return Ok(Alarm::Later);
        }
        self.armed = Some(until);
        let fd = match &mut self.fd {
            Some(fd) => fd,
            None => {
                let fd = self.fd.insert(timer_fd()?);
                // From here on it wakes `cx`; an old one does so since it was forgotten.
                forget_readiness(fd, cx)?;
                fd
            }
        };
        arm(fd.get_ref(), until.since(now))?;
        Ok(Alarm::Later)
    }
}

fn timer_fd() -> Result<AsyncFd<OwnedFd>, StackError> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let fd = timerfd_create(TimerfdClockId::Monotonic, flags)
        .map_err(|error| refused("timerfd_create")(error.into()))?;
    watched(fd, Interest::READABLE)
}

/// Sets a timer to go off after `left`, once.
fn arm(fd: &OwnedFd, left: Duration) -> Result<(), StackError> {
    // A time of zero would stop it.
    let left = left.max(Duration::from_nanos(1));
    let it_value = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Itimerspec { it_interval, it_value };
    timerfd_settime(fd, TimerfdTimerFlags::empty(), &value)
        .map_err(|error| refused("timerfd_settime")(error.into()))?;
    Ok(())
}
