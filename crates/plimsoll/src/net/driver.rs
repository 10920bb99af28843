//! A stack that runs as a task of the runtime, and the clock for one whose time is stopped.
//!
//! # Theory of operation
//!
//! The driver does what a softirq thread does: it polls, and sleeps when there is nothing to do. It
//! is woken by its waker in place of an eventfd, so that a socket call on the same runtime costs no
//! system call and no switch to another thread. The runtime notifies it when a device is readable.
//!
//! No wake-up is lost: the driver discards the runtime's earlier notifications before it polls the
//! devices. It registers the waker before it announces that it sleeps, and checks for work once
//! more after that.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use plimsoll_stack::{Prepared, QueueWaiter, StackError};
use plimsoll_tcp::Instant;

use crate::clock::{self, Clock};
use crate::platform::{Alarm, DeviceWatcher, PreciseAlarm, RuntimeAlarm, Watch};
use crate::stack::{Inner, Stack};

/// Packets that one poll takes from each device at most, before the other tasks have their turn.
const BUDGET: usize = 64;

/// Runs a stack as a task of tokio, on one thread or on several.
///
/// It is ready when the last handle of the stack is gone, or when the stack has come to its end.
/// While it is not polled, the stack sends and receives nothing. A task that blocks the runtime
/// blocks the stack.
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
    timer: Timer,
    watcher: DeviceWatcher,
    // Not a handle of the stack, so that handles can run out.
    inner: Arc<Inner>,
}

/// The timer that wakes a [`Driver`] when a timer of the stack is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverTimer {
    /// A timerfd, as precise as the system's timers. The runtime needs its I/O driver. Other
    /// systems than Linux and Android have none: there it is the same as `Runtime`.
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
    /// If the stack already has threads, a driver or a loop.
    pub fn new(stack: &Stack) -> Result<Driver, StackError> {
        let core = stack.core();
        let waiters =
            (0..core.queue_count()).map(|queue| core.queue_waiter(queue)).collect::<Result<_, _>>();
        let (waiters, timer) = (waiters?, Timer::new(DriverTimer::default()));
        Ok(Driver {
            waiters,
            timer,
            watcher: DeviceWatcher::default(),
            inner: stack.inner().clone(),
        })
    }

    /// Chooses the timer that wakes the driver.
    pub fn timer(mut self, timer: DriverTimer) -> Driver {
        self.timer = Timer::new(timer);
        self
    }

    /// Polls once, and prepares to sleep if there was nothing to do.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<Turn, StackError> {
        self.waiters.iter_mut().for_each(QueueWaiter::resume);
        self.watcher.forget(cx)?;
        self.timer.forget(cx)?;
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
        // `Inner::stop` sets the flag before it wakes the queues.
        if self.inner.is_stopped() {
            return Ok(Turn::Over);
        }
        let devices = self.waiters.iter().flat_map(QueueWaiter::devices);
        if self.watcher.watch(devices, cx)? == Watch::Changed {
            // Readiness from before the devices were watched is not reported: poll again.
            return Ok(Turn::Again);
        }
        self.timer.set(now, until, cx)
    }
}

/// The next step after a poll.
enum Turn {
    /// There may be more work; the other tasks run first.
    Again,
    /// The driver sleeps.
    Sleep,
    /// The last handle of the stack is gone, or the stack was shut down.
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

/// The timer that wakes the driver.
enum Timer {
    Precise(PreciseAlarm),
    Runtime(RuntimeAlarm),
}

impl Timer {
    fn new(timer: DriverTimer) -> Timer {
        match timer {
            DriverTimer::Precise => Timer::Precise(PreciseAlarm::default()),
            DriverTimer::Runtime => Timer::Runtime(RuntimeAlarm::default()),
        }
    }

    /// Forgets that it has gone off.
    fn forget(&mut self, cx: &mut Context<'_>) -> Result<(), StackError> {
        match self {
            Timer::Precise(alarm) => alarm.forget(cx),
            Timer::Runtime(alarm) => alarm.forget(cx),
        }
    }

    /// Has `cx` be woken at `until`, or a little before.
    fn set(
        &mut self,
        now: Instant,
        until: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Result<Turn, StackError> {
        let Some(until) = until else { return Ok(Turn::Sleep) };
        let alarm = match self {
            Timer::Precise(alarm) => alarm.set(now, until, cx)?,
            Timer::Runtime(alarm) => alarm.set(now, until, cx)?,
        };
        Ok(if alarm == Alarm::Due { Turn::Again } else { Turn::Sleep })
    }
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
///     // The SYN is retransmitted for two minutes of virtual time, which pass at once.
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
    /// A clock that starts at the process's current time, and then advances as tokio's does.
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
