//! The polled queues, and their counters.
//!
//! Each [`Queue`] documents its guards.

pub(crate) mod arrivals;
pub(crate) mod clock;
pub(crate) mod coarse_timers;
pub(crate) mod completion;
pub(crate) mod poll_state;
pub(crate) mod queue;
pub(crate) mod queue_pool;
pub(crate) mod spinner;
pub(crate) mod syn_share;
pub(crate) mod timer_wheel;
pub(crate) mod waiter;
pub(crate) mod waiter_role;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use plimsoll_buf::Pool;
use plimsoll_tcp::Instant;

use crate::error::StackError;
use crate::interfaces::Interfaces;
use crate::pollers::coarse_timers::CoarseTimers;
use crate::pollers::completion::CompletionsByQueue;
use crate::pollers::queue::Queue;
use crate::snmp::Snmp;
use crate::sockets::backlog::SpareQueues;

/// The queues of a stack.
pub(crate) struct Pollers {
    /// Apart from one another in memory, so that pollers do not share cache lines.
    queues: Box<[CachePadded<Queue>]>,
    /// Those of each queue.
    completions: CompletionsByQueue,
    snmp: Snmp,
    spare_backlogs: SpareQueues,
    /// Connections that were opened so far.
    opened: AtomicUsize,
    /// Sockets that were continued because they were in a queue.
    #[cfg(test)]
    visited: portable_atomic::AtomicU64,
    /// The reason why the stack has ended.
    ended: OnceLock<StackError>,
    coarse_timers: Option<Arc<dyn CoarseTimers>>,
}

impl Pollers {
    /// `count` queues, at least one, each with its interfaces.
    ///
    /// # Errors
    /// If the system has no descriptor left for them to sleep on.
    pub(crate) fn build(
        count: usize,
        interfaces: &Interfaces,
        coarse_timers: Option<Arc<dyn CoarseTimers>>,
    ) -> Result<Pollers, StackError> {
        let queues = Queue::build_all(count, interfaces)?;
        Ok(Pollers {
            completions: Arc::new(queues.iter().map(|queue| queue.completions().clone()).collect()),
            queues,
            snmp: Snmp::new(),
            spare_backlogs: SpareQueues::default(),
            opened: AtomicUsize::new(0),
            #[cfg(test)]
            visited: portable_atomic::AtomicU64::new(0),
            ended: OnceLock::new(),
            coarse_timers,
        })
    }

    /// The policy that delays timers, if there is one.
    pub(crate) fn coarse_timers(&self) -> Option<&dyn CoarseTimers> {
        self.coarse_timers.as_deref()
    }

    /// The queue with this number, which came from an interface or a connection.
    pub(crate) fn queue(&self, index: u8) -> &Queue {
        &self.queues[usize::from(index)]
    }

    /// Connections that may continue after a completion, for each queue.
    pub(crate) fn completions(&self) -> &CompletionsByQueue {
        &self.completions
    }

    /// How many queues there are.
    pub(crate) fn count(&self) -> usize {
        self.queues.len()
    }

    /// The queue for a connection that this stack opens: each in turn, since a hash would spread
    /// few connections unevenly. The peer's packets return on the queue of the sent ones.
    pub(crate) fn next_home(&self) -> u8 {
        (self.opened.fetch_add(1, Ordering::Relaxed) % self.queues.len()) as u8
    }

    /// Notes a time that came with a call which concerns no queue in particular.
    pub(crate) fn tell(&self, now: Instant) {
        self.queues[0].clock().advance(now);
    }

    /// The approximate latest time that a caller has passed, on any queue.
    pub(crate) fn latest_time(&self) -> Instant {
        self.queues.iter().map(|queue| queue.clock().get()).max().unwrap_or_default()
    }

    /// The counters.
    pub(crate) fn snmp(&self) -> &Snmp {
        &self.snmp
    }

    /// The source of buffers for a queue's work.
    pub(crate) fn pool(&self, queue: u8) -> &Pool {
        self.queue(queue).buffers().pool()
    }

    /// Bytes of free buffers that all queues keep for later.
    pub(crate) fn pooled(&self) -> usize {
        self.queues.iter().map(|queue| queue.buffers().pool().free_bytes()).sum()
    }

    /// Empty backlogs to be used again.
    pub(crate) fn spare_backlogs(&self) -> &SpareQueues {
        &self.spare_backlogs
    }

    /// The reason why the stack has ended, if it has.
    pub(crate) fn ended(&self) -> Option<&StackError> {
        self.ended.get()
    }

    /// Ends the stack. `false` if it had ended before.
    pub(crate) fn end(&self, error: StackError) -> bool {
        self.ended.set(error).is_ok()
    }

    /// Counts a socket that is continued because it was in a queue.
    #[cfg(test)]
    pub(crate) fn visit(&self) {
        self.visited.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were so far.
    #[cfg(test)]
    pub(crate) fn visited(&self) -> u64 {
        self.visited.load(Ordering::Relaxed)
    }

    /// Makes sure that every queue reads its work.
    pub(crate) fn kick_all(&self) {
        self.queues.iter().for_each(|queue| queue.waiter().kick());
    }

    /// Bytes that the timer wheels take.
    pub(crate) fn wheel_bytes(&self) -> usize {
        self.queues.iter().map(|queue| queue.wheel().lock().memory_bytes()).sum()
    }
}
