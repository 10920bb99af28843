//! The loop of one queue of a stack.

// Only what can be watched from outside has a descriptor.
#[cfg(unix)]
mod prepared_wait;

use plimsoll_stack::{QueueWaiter, StackError};
use plimsoll_tcp::Instant;

#[cfg(unix)]
pub use self::prepared_wait::{PreparedWait, Watch};
use crate::stack::{BUDGET, Kicker, Polled, Stack};
use crate::turns;

/// Runs one of the queues of a stack that was built [without a
/// thread](crate::StackBuilder::build_without_thread). There is one for each queue at a time; it
/// may be sent to the thread that runs it. [`TcpStream::queue`](crate::TcpStream::queue) returns
/// the queue of a connection: the code that uses the connection should run in that queue's loop.
///
/// ```
/// use plimsoll::{ReadyQueue, Stack, device};
/// let (device, _peer) = device::memory_link::pair(Default::default());
/// let builder = Stack::builder().device(device).address("192.0.2.1/24").queues(2);
/// let stack = builder.build_without_thread()?;
/// let mut second = stack.queue(1)?;
/// let ready = ReadyQueue::with_kicker(second.kicker());
/// let stop = ready.waker(0);
/// assert!(stack.queue(1).is_err(), "there is one loop for a queue");
/// let runner = std::thread::spawn(move || {
///     while ready.is_empty() {
///         let polled = second.poll();
///         if polled.ended.is_some() {
///             break;
///         }
///         if !polled.worked {
///             second.wait(polled.next, || !ready.is_empty())?;
///         }
///     }
///     Ok::<(), plimsoll::StackError>(())
/// });
/// stop.wake();
/// runner.join().expect("no panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct QueueLoop {
    waiter: QueueWaiter,
    stack: Stack,
}

impl QueueLoop {
    pub(crate) fn new(stack: &Stack, queue: usize) -> Result<QueueLoop, StackError> {
        Ok(QueueLoop { waiter: stack.core().queue_waiter(queue)?, stack: stack.clone() })
    }

    /// The number of the queue.
    pub fn queue(&self) -> usize {
        self.waiter.queue()
    }

    /// The stack.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Keeps the calling thread, which is to run this loop, on one processor from now on: on one
    /// whose number is that of the queue, modulo the number of queues.
    ///
    /// Together with [`Steering::Processor`](crate::device::tun::Steering), which has the kernel
    /// hand packets to the queue of the processor that sends them, the loop, the connection and the
    /// host's thread run on one processor, and no thread is woken on another. If the thread may use
    /// no such processor, it stays on one that no queue has, or else on one in turn.
    ///
    /// # Errors
    /// If the system refuses; [`Unsupported`](std::io::ErrorKind::Unsupported) where it is not
    /// Linux.
    ///
    /// ```no_run
    /// use plimsoll::device::tun::{self, Steering, TunConfig};
    /// use plimsoll::Stack;
    /// let count = std::thread::available_parallelism()?.get().min(8);
    /// let config = TunConfig::default().name("tun0").steering(Steering::Processor);
    /// let mut devices = tun::open_queues(config, count)?.into_iter();
    /// let first = devices.next().expect("at least one");
    /// let stack = Stack::builder().device(first).more_queues(devices).address("192.0.2.1/24");
    /// let stack = stack.queues(count).build_without_thread()?;
    /// for index in 0..stack.queue_count() {
    ///     let mut queue = stack.queue(index)?;
    ///     std::thread::spawn(move || {
    ///         queue.stay_on_processor()?;
    ///         loop {
    ///             let polled = queue.poll_with(|| { /* runs what was woken */ });
    ///             if let Some(error) = polled.ended {
    ///                 return Err::<(), std::io::Error>(std::io::Error::other(error));
    ///             }
    ///             if !polled.worked {
    ///                 queue.wait(polled.next, || false).map_err(std::io::Error::other)?;
    ///             }
    ///         }
    ///     });
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stay_on_processor(&self) -> std::io::Result<()> {
        self.waiter.stay_on_processor()
    }

    /// As [`Stack::poll`], for this queue.
    pub fn poll(&mut self) -> Polled {
        turns::end();
        Polled::of(self.stack.core().poll_queue(self.queue(), self.stack.now(), BUDGET))
    }

    /// As [`Stack::poll_with`], for this queue.
    pub fn poll_with(&mut self, mut turn: impl FnMut()) -> Polled {
        turns::end();
        let core = self.stack.core();
        let mut turn = || {
            turn();
            turns::end();
        };
        Polled::of(core.poll_queue_with(self.queue(), self.stack.now(), BUDGET, &mut turn))
    }

    /// As [`Stack::wait`], for this queue.
    ///
    /// # Errors
    /// If the system refuses to wait.
    pub fn wait(
        &mut self,
        until: Option<Instant>,
        ready: impl Fn() -> bool,
    ) -> Result<(), StackError> {
        turns::end();
        self.waiter.wait(self.stack.now(), until, ready)
    }

    /// Something that ends a [`wait`](Self::wait) of this loop, now or the next one, and does not
    /// keep the stack alive.
    pub fn kicker(&self) -> Kicker {
        Kicker::of(self.stack.core(), Some(self.queue()))
    }
}
