//! A stack that runs as a task of the runtime, and the clock for one whose time is stopped.
//!
//! # Theory of operation
//!
//! The driver does what a softirq thread does: it polls, and sleeps when there is nothing to do. It
//! is woken by its waker in place of an eventfd, so that a socket call on the same runtime costs no
//! system call and no switch to another thread. The runtime tells it when a device is readable.
//!
//! No wake-up is lost: what the runtime has told so far is forgotten before the devices are looked
//! at, and the waker is known before the driver announces that it sleeps and looks at all work once
//! more.

use std::fmt;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_stack::device::WaitSource;
use plimsoll_stack::{Prepared, QueueWaiter, StackError};
use plimsoll_tcp::Instant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Sleep;

use crate::clock::{self, Clock};
use crate::stack::{Inner, Stack};

/// Packets that one poll takes from each device at most, before the other tasks have their turn.
const BUDGET: usize = 64;

/// Runs a stack as a task of tokio, on one thread or on several.
///
/// It is ready when the last handle of the stack is gone, or when the stack has come to its end.
/// While nobody polls it, nothing is sent or received; who blocks the runtime blocks the stack.
///
/// ```
/// use plimsoll::net::{self, Driver, TcpListener, TcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
/// let stack = plimsoll::Stack::builder().loopback_only().build_without_thread()?;
/// runtime.block_on(async {
///     tokio::spawn(Driver::new(&stack)?);
///     let _entered = net::enter(&stack);
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let mut near = TcpStream::connect(listener.local_addr()?).await?;
///     let (mut far, _peer) = listener.accept().await?;
///     near.write_all(b"ahoy").await?;
///     let mut text = [0; 4];
///     far.read_exact(&mut text).await?;
///     assert_eq!(&text, b"ahoy");
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the stack stands still until it is polled"]
pub struct Driver {
    waiters: Vec<QueueWaiter>,
    alarm: Alarm,
    sources: Vec<Source>,
    // Not a handle of the stack, so that handles can run out.
    inner: Arc<Inner>,
}

/// By what a [`Driver`] is woken when a timer of the stack is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverTimer {
    /// A timerfd, as precise as the system's timers. The runtime needs its I/O driver.
    #[default]
    Precise,
    /// The runtime's own timer, which ticks once in a millisecond. The runtime needs its time
    /// driver. With [`TokioClock`] the time of the stack stops and jumps with that of the runtime.
    Runtime,
}

impl Driver {
    /// A driver for `stack`, which was built without a thread. It runs all of its queues.
    ///
    /// # Errors
    /// If the stack has threads, a driver or a loop of its own.
    pub fn new(stack: &Stack) -> Result<Driver, StackError> {
        let core = stack.core();
        let waiters =
            (0..core.queue_count()).map(|queue| core.queue_waiter(queue)).collect::<Result<_, _>>();
        let (waiters, alarm) = (waiters?, Alarm::new(DriverTimer::default()));
        Ok(Driver { waiters, alarm, sources: Vec::new(), inner: stack.inner().clone() })
    }

    /// Chooses what wakes it when a timer is due.
    pub fn timer(mut self, timer: DriverTimer) -> Driver {
        self.alarm = Alarm::new(timer);
        self
    }

    /// Polls once, and prepares to sleep if there was nothing to do.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<Turn, StackError> {
        self.waiters.iter_mut().for_each(QueueWaiter::resume);
        for source in &mut self.sources {
            forget_readiness(&mut source.fd, cx)?;
        }
        self.alarm.forget(cx)?;
        let now = self.inner.now();
        if self.inner.core().poll(now, BUDGET)?.worked {
            return Ok(Turn::Again);
        }
        let mut until: Option<Instant> = None;
        for waiter in &mut self.waiters {
            match waiter.prepare(now, cx.waker())? {
                Prepared::Work => return Ok(Turn::Again),
                Prepared::Sleep(deadline) => until = until.into_iter().chain(deadline).min(),
            }
        }
        // It is stopped first and kicked then.
        if self.inner.is_stopped() {
            return Ok(Turn::Over);
        }
        if self.watch_devices(cx)? == Watch::Changed {
            // What came before they were watched is not told.
            return Ok(Turn::Again);
        }
        self.alarm.set(now, until, cx)
    }

    /// Has the runtime tell when one of the devices, which may be others than before, is ready.
    fn watch_devices(&mut self, cx: &mut Context<'_>) -> Result<Watch, StackError> {
        let (mut known, mut watch) = (0, Watch::Same);
        for (wait, busy) in self.waiters.iter().flat_map(QueueWaiter::devices) {
            let Some(fd) = wait.fd() else { continue };
            let same = |source: &Source| {
                source.fd.get_ref().as_raw_fd() == fd.as_raw_fd() && source.to_send == busy
            };
            if !self.sources.get(known).is_some_and(same) {
                // One of them could be registered already, and cannot be twice.
                self.sources.truncate(known);
                let mut source = Source::new(wait.clone(), busy)?;
                forget_readiness(&mut source.fd, cx)?;
                self.sources.push(source);
                watch = Watch::Changed;
            }
            known += 1;
        }
        self.sources.truncate(known);
        Ok(watch)
    }
}

/// Whether other devices are watched than before.
#[derive(PartialEq, Eq)]
enum Watch {
    Same,
    Changed,
}

/// What is to be done after a poll.
enum Turn {
    /// There may be more; the other tasks first.
    Again,
    /// It sleeps.
    Sleep,
    /// Nobody uses the stack any more.
    Over,
}

impl Future for Driver {
    type Output = Result<(), StackError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.inner.is_stopped() {
            return Poll::Ready(Ok(()));
        }
        match self.turn(cx) {
            Ok(Turn::Again) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Turn::Sleep) => Poll::Pending,
            Ok(Turn::Over) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("queues", &self.waiters.len()).finish_non_exhaustive()
    }
}

/// A device that the runtime watches.
struct Source {
    fd: AsyncFd<Watched>,
    /// It is watched until it is writable, too.
    to_send: bool,
}

struct Watched(WaitSource);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd().expect("only sources with a descriptor are watched").as_raw_fd()
    }
}

impl Source {
    fn new(wait: WaitSource, to_send: bool) -> Result<Source, StackError> {
        let interest = Interest::READABLE;
        let interest = if to_send { interest | Interest::WRITABLE } else { interest };
        Ok(Source { fd: watched(Watched(wait), interest)?, to_send })
    }
}

/// Has the runtime watch a descriptor that `inner` owns, so that it stays open.
#[allow(deprecated, reason = "the successor is unsafe for the sake of types that own none")]
fn watched<T: AsRawFd>(inner: T, interest: Interest) -> Result<AsyncFd<T>, StackError> {
    AsyncFd::with_interest(inner, interest).map_err(refused("epoll_ctl"))
}

/// Forgets that `fd` was ready, and has `cx` be woken when it is so again. Returns whether it was.
fn forget_readiness<T: AsRawFd>(
    fd: &mut AsyncFd<T>,
    cx: &mut Context<'_>,
) -> Result<bool, StackError> {
    let mut was_ready = false;
    while let Poll::Ready(guard) = fd.poll_read_ready(cx) {
        guard.map_err(refused("epoll_wait"))?.clear_ready();
        was_ready = true;
    }
    while let Poll::Ready(guard) = fd.poll_write_ready(cx) {
        guard.map_err(refused("epoll_wait"))?.clear_ready();
    }
    Ok(was_ready)
}

fn refused(call: &'static str) -> impl Fn(std::io::Error) -> StackError {
    move |error| StackError::System { call, reason: error.to_string() }
}

/// What wakes the driver at a time.
enum Alarm {
    Precise {
        /// Made on the runtime, when it is needed first.
        fd: Option<AsyncFd<OwnedFd>>,
        armed: Option<Instant>,
    },
    Runtime(Option<Pin<Box<Sleep>>>),
}

impl Alarm {
    fn new(timer: DriverTimer) -> Alarm {
        match timer {
            DriverTimer::Precise => Alarm::Precise { fd: None, armed: None },
            DriverTimer::Runtime => Alarm::Runtime(None),
        }
    }

    /// Forgets that it has gone off.
    fn forget(&mut self, cx: &mut Context<'_>) -> Result<(), StackError> {
        if let Alarm::Precise { fd: Some(fd), armed } = self
            && forget_readiness(fd, cx)?
        {
            *armed = None;
        }
        Ok(())
    }

    /// Has `cx` be woken at `until`, or a little before.
    fn set(
        &mut self,
        now: Instant,
        until: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Result<Turn, StackError> {
        let Some(until) = until else { return Ok(Turn::Sleep) };
        let left = until.since(now);
        match self {
            Alarm::Precise { fd, armed } => {
                // To be woken too early costs less than to set the alarm anew each time that a
                // timer moves back.
                if armed.is_some_and(|at| at > now && at <= until) {
                    return Ok(Turn::Sleep);
                }
                *armed = Some(until);
                let fd = match fd {
                    Some(fd) => fd,
                    None => {
                        let fd = fd.insert(timer_fd()?);
                        // From here on it wakes `cx`; an old one does so since it was forgotten.
                        forget_readiness(fd, cx)?;
                        fd
                    }
                };
                arm(fd.get_ref(), left)?;
                Ok(Turn::Sleep)
            }
            Alarm::Runtime(sleep) => {
                let at = tokio::time::Instant::now() + left;
                let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
                sleep.as_mut().reset(at);
                let due = sleep.as_mut().poll(cx).is_ready();
                Ok(if due { Turn::Again } else { Turn::Sleep })
            }
        }
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

/// The clock of tokio, for [`StackBuilder::clock`](crate::StackBuilder::clock): it stops with
/// `tokio::time::pause` and jumps with `advance`. The sockets of such a stack are used on that
/// runtime only.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll::device::{fault, memory_link};
/// use plimsoll::net::{Driver, DriverTimer, TcpStream, TokioClock};
///
/// let (device, _peer) = memory_link::pair(Default::default());
/// let runtime = tokio::runtime::Builder::new_current_thread()
///     .enable_time()
///     .start_paused(true)
///     .build()?;
/// runtime.block_on(async {
///     let stack = plimsoll::Stack::builder()
///         .device(device)
///         .address("192.0.2.1/24")
///         .fault(fault::FaultConfig::default().loss(1.0))
///         .clock(Arc::new(TokioClock::new()))
///         .build_without_thread()?;
///     tokio::spawn(Driver::new(&stack)?.timer(DriverTimer::Runtime));
///     // The SYN is sent again for two minutes, which take no time.
///     let failed = TcpStream::connect_on(&stack, "192.0.2.2:7").await.unwrap_err();
///     assert_eq!(failed.kind(), std::io::ErrorKind::TimedOut);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    begin: tokio::time::Instant,
    at_begin: Instant,
}

impl TokioClock {
    /// A clock that says now what that of the process says, and goes on as tokio's does.
    #[allow(clippy::new_without_default, reason = "it looks at the clock")]
    pub fn new() -> TokioClock {
        TokioClock { begin: tokio::time::Instant::now(), at_begin: clock::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        self.at_begin + self.begin.elapsed()
    }
}
