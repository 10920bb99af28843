//! One of the queues of a stack: its poller's state, and its pending work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;

use crate::error::StackError;
use crate::interfaces::Interfaces;
use crate::limits::CALLS_PER_SEND;
use crate::pollers::arrivals::ArrivalStatus;
use crate::pollers::clock::LatestTime;
use crate::pollers::completion::Completions;
use crate::pollers::poll_state::PollState;
use crate::pollers::queue_pool::QueuePool;
use crate::pollers::spinner::Spinner;
use crate::pollers::timer_wheel::TimerWheel;
use crate::pollers::waiter::Waiter;
use crate::sync::timed::Timed;

/// One of the queues of a stack.
pub(crate) struct Queue {
    poller: Mutex<PollState>,
    wheel: Timed<TimerWheel>,
    completions: Arc<Completions>,
    waiter: Waiter,
    buffers: QueuePool,
    spinner: Spinner,
    clock: LatestTime,
    arrivals: ArrivalStatus,
    /// Calls in the middle of a poll that have queued packets so far.
    left_in_poll: AtomicUsize,
}

impl Queue {
    /// Builds `count` queues, at least one. Every interface has the number of its own.
    pub(crate) fn build_all(
        count: usize,
        interfaces: &Interfaces,
    ) -> Result<Box<[CachePadded<Queue>]>, StackError> {
        let queue = |index| Queue::new(index as u8, interfaces).map(CachePadded::new);
        (0..count.max(1)).map(queue).collect()
    }

    fn new(index: u8, interfaces: &Interfaces) -> Result<Queue, StackError> {
        let waiter = Waiter::new(interfaces.of(index))?;
        Ok(Queue {
            poller: Mutex::default(),
            wheel: Timed::default(),
            completions: Arc::new(Completions::new(waiter.handle())),
            waiter,
            buffers: QueuePool::default(),
            spinner: Spinner::default(),
            clock: LatestTime::default(),
            arrivals: ArrivalStatus::default(),
            left_in_poll: AtomicUsize::new(0),
        })
    }

    /// The poller's working state; the thread that holds the lock is the poller.
    pub(crate) fn poller(&self) -> &Mutex<PollState> {
        &self.poller
    }

    /// The timers of its connections.
    pub(crate) fn wheel(&self) -> &Timed<TimerWheel> {
        &self.wheel
    }

    /// Connections that may continue after a completion.
    pub(crate) fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    /// Where its poller sleeps.
    pub(crate) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// Where its buffers come from.
    pub(crate) fn buffers(&self) -> &QueuePool {
        &self.buffers
    }

    /// The spinner of the queue.
    pub(crate) fn spinner(&self) -> &Spinner {
        &self.spinner
    }

    /// Whether silence may be judged.
    pub(crate) fn arrivals(&self) -> &ArrivalStatus {
        &self.arrivals
    }

    /// The latest time that it was given.
    pub(crate) fn clock(&self) -> &LatestTime {
        &self.clock
    }

    /// Whether this call during a poll sends the queued packets, its own and those of earlier
    /// calls. Every nth call does, so that the peer works during the poll, and not in turn with it.
    pub(crate) fn has_enough_to_send(&self) -> bool {
        // A call from another thread may be miscounted, which does no harm.
        let left = self.left_in_poll.load(Ordering::Relaxed);
        self.left_in_poll.store(left.wrapping_add(1), Ordering::Relaxed);
        left % CALLS_PER_SEND == CALLS_PER_SEND - 1
    }
}
