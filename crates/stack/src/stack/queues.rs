//! A poller's queue: its interfaces, its connections, and its sleep.
//!
//! # Theory of operation
//!
//! A stack has one queue or several ([`StackConfig::pollers`](crate::StackConfig)), each polled by
//! one thread at a time. A queue has the interfaces that it polls, a timer wheel, a kick, a pool of
//! buffers, and a list of connections that may continue after a completion. A device with several
//! queues is several interfaces, one for each. Only the first of them has addresses and routes; the
//! others are its *ways*.
//!
//! Every connection has a *home*: the queue of the interface by which its packets leave. A
//! connection opened by a peer begins at the queue on which its SYN arrived; the others get each
//! queue in turn. The host's kernel sends a flow's packets on the queue on which the stack sent
//! last. So they arrive at the home, too, and one thread does all the stack's work for a
//! connection. A packet that arrives elsewhere is processed there and counted
//! (`plimsoll.QueueMisses`); the socket lock makes that safe. Timers and completions always go to
//! the home. If its data keeps arriving on another queue, a connection moves there (`home.rs`,
//! `plimsoll.QueueMoves`).
//!
//! All queues share the tables, TIME-WAIT and reassembly, whose timers belong to the first queue.

use plimsoll_tcp::Instant;

use crate::error::StackError;
use crate::stack::poll::taking_turns;
use crate::stack::{Poll, Stack};

impl Stack {
    /// How many queues there are.
    pub fn queue_count(&self) -> usize {
        self.pollers.count()
    }

    /// As [`poll`](Self::poll), for one of the queues, whose number is less than
    /// [`queue_count`](Self::queue_count). Several threads may do so for different queues.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn poll_queue(
        &self,
        queue: usize,
        now: Instant,
        budget: usize,
    ) -> Result<Poll, StackError> {
        assert!(queue < self.pollers.count(), "there is no queue {queue}");
        self.poll_around(queue as u8, now, budget, &mut None)
    }

    /// As [`poll_queue`](Self::poll_queue), for a loop that runs the applications of that queue on
    /// the same thread; see [`poll_with`](Self::poll_with).
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// # Panics
    /// If there is no such queue, and if `turn` does.
    pub fn poll_queue_with(
        &self,
        queue: usize,
        now: Instant,
        budget: usize,
        turn: &mut dyn FnMut(),
    ) -> Result<Poll, StackError> {
        assert!(queue < self.pollers.count(), "there is no queue {queue}");
        taking_turns(turn, |turn| self.poll_around(queue as u8, now, budget, &mut Some(turn)))
    }

    /// Polls all queues, one after the other.
    #[inline]
    pub(crate) fn poll_all(
        &self,
        now: Instant,
        budget: usize,
        mut turn: Option<&mut dyn FnMut()>,
    ) -> Result<Poll, StackError> {
        let first = self.poll_around(0, now, budget, &mut turn);
        if self.pollers.count() == 1 {
            return first;
        }
        let mut all = first?;
        for queue in 1..self.pollers.count() {
            let other = self.poll_around(queue as u8, now, budget, &mut turn)?;
            all.worked |= other.worked;
            all.busy &= other.busy;
            all.next = all.next.into_iter().chain(other.next).min();
        }
        Ok(all)
    }

    /// Makes sure that every queue reads its work.
    pub fn kick_all(&self) {
        self.pollers.kick_all();
    }

    /// Makes sure that one of the queues reads its work. Does nothing for a queue that does not
    /// exist.
    pub fn kick(&self, queue: usize) {
        if queue < self.pollers.count() {
            self.pollers.queue(queue as u8).waiter().kick();
        }
    }
}

#[cfg(test)]
mod tests;
