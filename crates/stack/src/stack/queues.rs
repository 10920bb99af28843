//! A poller's own: what one thread polls, and how it sleeps.
//!
//! # Theory of operation
//!
//! A stack has one queue or several ([`StackConfig::pollers`](crate::StackConfig)), each polled by
//! one thread at a time. A queue has a timer wheel, a list of connections that may go on after a
//! completion, a kick, a pool of buffers, and the interfaces that it polls. A device with several
//! queues is several interfaces, one for each, of which only the first has addresses and is known
//! to the routes; the others are its *ways*.
//!
//! Every connection has a *home*: the queue of the interface that its packets leave by. One that
//! was opened from outside begins with the queue that its SYN came by, the others get each queue in
//! turn. The host's kernel sends the packets of a flow by the queue by which the last one from us
//! came, so they arrive at home, too, and all work of the stack for a connection is done by one
//! thread. A packet that arrives elsewhere is worked on where it arrived, which is counted
//! (`plimsoll.QueueMisses`); the socket lock makes that right. Timers and completions go to the
//! home in any case. If its data goes on to come by another queue, a connection moves there
//! (`home.rs`, `plimsoll.QueueMoves`).
//!
//! What all connections share is shared by all queues: the tables, TIME-WAIT and reassembly, whose
//! timers are the first queue's.

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

    /// Makes sure that every queue looks at its work.
    pub fn kick_all(&self) {
        self.pollers.kick_all();
    }

    /// Makes sure that one of the queues looks at its work. There is nothing to do for a queue that
    /// does not exist.
    pub fn kick(&self, queue: usize) {
        if queue < self.pollers.count() {
            self.pollers.queue(queue as u8).waiter().kick();
        }
    }
}

#[cfg(test)]
mod tests;
