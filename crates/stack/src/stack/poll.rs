//! The only loop: packets that have arrived, timers that are due, then all packets that leave.
//!
//! Packets come first, since a poll may be late: an answer may have arrived before the timer that
//! it stops was due (`pollers/arrivals.rs`).
//!
//! One thread polls at a time: the one that gets the poll token. A poll is bounded: it takes a
//! limited number of packets and timers, and returns whether more may wait. A connection that gets
//! several packets of a batch sends once, at the end of the batch. So ACKs merge by themselves, and
//! data carries them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, TryLockError};

use plimsoll_tcp::{Counter, Instant};

use crate::device::earlier;
use crate::error::StackError;
use crate::interfaces::interface::Interface;
use crate::interfaces::rx_path::Received;
use crate::limits::{RX_BATCH, TIMER_BATCH};
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::wakers::Interest;
use crate::stack::work::Work;
use crate::stack::{Poll, Stack};
use crate::sync::socket_lock::{SETTLE, TIMER};
use crate::tables::time_wait::SWEEP;

impl Stack {
    /// Does the work that is due: arrivals, timers, departures. Takes about `budget` packets from
    /// every device.
    ///
    /// # Errors
    /// If the stack has ended: its last device has gone, or a thread that ran the stack, perhaps
    /// this one, has panicked. Every socket was then notified. If only one of several devices has
    /// gone, its connections end with an error, and the stack continues; see
    /// [`interfaces`](Self::interfaces).
    pub fn poll(&self, now: Instant, budget: usize) -> Result<Poll, StackError> {
        self.poll_all(now, budget, None)
    }

    /// As [`poll`](Self::poll), for a loop that runs the applications on the same thread. `turn` is
    /// called after every batch with packets for a connection. At that time the readers of the
    /// batch have been woken, and the batch is not acknowledged yet. An answer written by `turn`
    /// carries the ACK, and its reads open the window that the ACK advertises. All ACKs that the
    /// batch requires leave when `turn` returns.
    ///
    /// `turn` may use sockets, but a poll of the same stack finds it busy. A panic of it is resumed
    /// at the end of the poll; it does not end the stack.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn poll_with(
        &self,
        now: Instant,
        budget: usize,
        turn: &mut dyn FnMut(),
    ) -> Result<Poll, StackError> {
        taking_turns(turn, |turn| self.poll_all(now, budget, Some(turn)))
    }

    /// One poll of one queue.
    #[inline]
    pub(crate) fn poll_around(
        &self,
        queue: u8,
        now: Instant,
        budget: usize,
        turn: &mut Option<&mut dyn FnMut()>,
    ) -> Result<Poll, StackError> {
        if let Some(error) = self.pollers.ended() {
            return Err(error.clone());
        }
        self.guarded(now, || self.poll_once(queue, now, budget, turn))
    }

    #[inline]
    fn poll_once(
        &self,
        queue: u8,
        now: Instant,
        budget: usize,
        turn: &mut Option<&mut dyn FnMut()>,
    ) -> Result<Poll, StackError> {
        let elsewhere = self.receive_elsewhere(queue, now, budget);
        let polled = self.as_poller(queue, now, |work, state| {
            self.poll_work(work, state, (budget, elsewhere), turn)
        });
        let Some(worked) = polled else {
            return Ok(Poll { busy: true, ..Poll::default() });
        };
        match self.pollers.ended() {
            Some(error) => Err(error.clone()),
            None => Ok(Poll { worked, busy: false, next: self.deadline_of(queue) }),
        }
    }

    /// Does a piece of work as the poller of a queue; `None` if another thread is the poller.
    #[inline]
    fn as_poller<T>(
        &self,
        queue: u8,
        now: Instant,
        call: impl FnOnce(&mut Work<'_>, &mut PollState) -> T,
    ) -> Option<T> {
        let mut state = match self.pollers.queue(queue).poller().try_lock() {
            Ok(state) => state,
            // A poll that panicked has reported it; the next one continues.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let (result, unhandled) = {
            let mut work = Work::begin_at(self, now, queue);
            let result = call(&mut work, &mut state);
            let unhandled = std::mem::take(&mut state.unhandled);
            drop(state);
            work.finish();
            (result, unhandled)
        };
        if !unhandled.is_empty() {
            self.hand_out(now, queue, unhandled);
        }
        Some(result)
    }

    /// The work of a poll, until packets wait that are sent when it ends. `elsewhere` is the number
    /// of packets received from other queues. Returns whether there was any work.
    #[inline]
    fn poll_work(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        (budget, elsewhere): (usize, Received),
        turn: &mut Option<&mut dyn FnMut()>,
    ) -> bool {
        let (queue, now) = (work.home(), work.now);
        work.count(IpCounter::Polls);
        let mut worked = work.run_completions();
        // Completions from here on are handled when the work ends.
        let _attending = work.queue.completions().attend();
        let mut received = self.receive_all(work, state, budget, turn);
        received.add(elsewhere);
        worked |= received.count > 0;
        work.queue.arrivals().note_poll(now, received);
        worked |= self.run_timers(work, state);
        worked |= self.pump_devices(work);
        let room = || {
            let all = self.policies.memory().room_for_pools(&work.settings.tcp_mem);
            all / self.pollers.count()
        };
        if work.queue.buffers().tend(now, worked, room) {
            state.on_idle();
            work.queue.completions().on_idle();
            for interface in self.interfaces.of(queue) {
                interface.on_idle(self.kick_of(interface));
            }
        }
        worked
    }

    /// The time of the next timer or device event of any queue.
    #[cfg(test)]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        (0..self.pollers.count()).filter_map(|queue| self.deadline_of(queue as u8)).min()
    }

    /// The time of the next timer or device event of one queue.
    #[inline]
    pub(crate) fn deadline_of(&self, queue: u8) -> Option<Instant> {
        let poller = self.pollers.queue(queue);
        let mut next = poller.wheel().next();
        for interface in self.interfaces.of(queue) {
            next = earlier(next, interface.next_event(poller.waiter().kick_ref()));
        }
        if queue == 0 {
            next = earlier(next, self.tables.time_wait_ends().map(|at| at + SWEEP));
            next = earlier(next, self.tables.listeners().gates_end());
            next = earlier(next, self.tables.udp().flows_end());
            next = earlier(next, self.reassembly_ends());
        }
        next
    }

    /// The first queue's timers that are not a connection's, each of which acts on silence. Returns
    /// whether one was due. No lock is taken while none is.
    #[inline]
    fn run_common_timers(&self, work: &mut Work<'_>) -> bool {
        let mut ended = 0;
        if work.is_wait_over(self.tables.udp().flows_end()) {
            self.expire_flows(work);
        }
        if work.is_wait_over(self.tables.listeners().gates_end()) {
            self.expire_gates(work);
        }
        if work.is_wait_over(self.tables.time_wait_ends()) {
            ended = self.tables.time_wait().expire(work.now, TIMER_BATCH);
            work.tcp().add(Counter::TimeWaitEntered, ended as u64);
        }
        if work.is_wait_over(self.reassembly_ends()) {
            self.expire_fragments(work);
        }
        ended > 0
    }

    #[inline]
    fn run_timers(&self, work: &mut Work<'_>, state: &mut PollState) -> bool {
        let ended = work.home() == 0 && self.run_common_timers(work);
        state.due.clear();
        let wheel = work.queue.wheel();
        if wheel.is_due(work.now) {
            wheel.lock().expire(work.now, TIMER_BATCH, &mut state.due);
        }
        for &id in &state.due {
            // A timer that outlived its connection finds nothing.
            let Some(endpoint) = self.tables.connections().get(id) else { continue };
            work.leave(&endpoint, TIMER);
        }
        // A deferred timer needs another poll.
        ended || !state.due.is_empty() || work.queue.arrivals().is_deferred()
    }

    /// For a poll of a queue with a deferred timer: receives from the devices of the other queues,
    /// except those that another thread polls right now.
    #[inline]
    fn receive_elsewhere(&self, queue: u8, now: Instant, budget: usize) -> Received {
        let count = self.pollers.count() as u8;
        if count == 1 {
            return Received::NOTHING;
        }
        let mut received = Received { count: 0, all: false };
        if self.pollers.queue(queue).arrivals().is_deferred() {
            received.all = true;
            for other in (0..count).filter(|&other| other != queue) {
                let taken = self.as_poller(other, now, |work, state| {
                    self.receive_all(work, state, budget, &mut None)
                });
                received.add(taken.unwrap_or(Received { count: 0, all: false }));
            }
        }
        received
    }

    /// Takes up to `budget` packets from every device of the present queue.
    #[inline]
    fn receive_all(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        budget: usize,
        turn: &mut Option<&mut dyn FnMut()>,
    ) -> Received {
        let mut received = Received::NOTHING;
        for interface in self.interfaces.of(work.home()) {
            if interface.is_silent() {
                state.syns.drained(interface.index());
            } else {
                received.add(self.receive(work, state, interface, budget, turn));
            }
        }
        received
    }

    /// Takes up to `budget` packets from one device, in batches.
    #[inline]
    fn receive(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        mut budget: usize,
        turn: &mut Option<&mut dyn FnMut()>,
    ) -> Received {
        let mut taken = Received { count: 0, all: false };
        state.syns.begin(interface.index());
        while taken.count < budget {
            let most = RX_BATCH.min(budget - taken.count);
            let (around, pool) =
                ((work.now, work.queue.waiter().kick_ref()), work.queue.buffers().pool());
            let received = interface.receive(around, pool, &mut state.packets, most);
            if !state.packets.is_empty() && self.take_batch(work, state, interface, turn) {
                budget = 0;
            }
            match received {
                // Its holder wakes this poller when it releases the token.
                Ok(None) => break,
                Ok(Some(Received { count, all })) => {
                    taken = Received { count: taken.count + count, all };
                    state.syns.end_batch(count < most);
                    if count < most {
                        break;
                    }
                    // Answers leave between batches, so that the peer does not wait for the last.
                    self.drain_set(work, work.take_queued());
                }
                Err(failure) => {
                    self.device_failed(interface, work.now, &failure);
                    taken.all = true;
                    break;
                }
            }
        }
        if let Some(event) = interface.take_link_event() {
            self.on_link_event(work.now, interface, event);
        }
        taken
    }

    /// Processes a batch of packets from one device. Returns whether the devices are left to a
    /// reader from now on.
    #[inline]
    fn take_batch(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        interface: &Interface,
        turn: &mut Option<&mut dyn FnMut()>,
    ) -> bool {
        let mut packets = std::mem::take(&mut state.packets);
        for packet in &mut packets {
            self.ip_input(work, state, interface, packet);
        }
        packets.clear();
        self.flush_gro(work, state);
        state.packets = packets;
        let datagrams = std::mem::take(&mut state.datagrams);
        if let Some(turn) = turn
            && (datagrams || !state.touched.is_empty())
        {
            wake_readers(work, state);
            work.fire_wakers();
            turn();
        }
        self.settle_touched(work, state);
        std::mem::take(&mut state.left_to_reader) && self.lend_devices(work.home(), work.now)
    }

    /// Settles every connection that got a packet.
    #[inline]
    pub(crate) fn settle_touched(&self, work: &mut Work<'_>, state: &mut PollState) {
        for endpoint in state.touched.drain(..) {
            work.contain(&endpoint, |work| match endpoint.try_own() {
                Some(mut owned) => {
                    owned.untouch();
                    work.release(&endpoint, owned, true);
                }
                None => work.leave(&endpoint, SETTLE),
            });
        }
    }

    /// Bytes below all connections: passed down and not completed. For tests and tools.
    pub fn bytes_below(&self) -> u64 {
        let below = |endpoint: Arc<Endpoint>| u64::from(endpoint.below().get().0);
        self.tables.connections().all().into_iter().map(below).sum()
    }
}

/// Polls with `turn`. A panic of `turn` belongs to the application: it is resumed at the end of the
/// poll.
pub(crate) fn taking_turns<T>(
    turn: &mut dyn FnMut(),
    poll: impl FnOnce(&mut dyn FnMut()) -> T,
) -> T {
    let mut thrown = None;
    let polled = poll(&mut || {
        if thrown.is_none() {
            thrown = catch_unwind(AssertUnwindSafe(&mut *turn)).err();
        }
    });
    match thrown {
        Some(thrown) => resume_unwind(thrown),
        None => polled,
    }
}

/// Wakes the readers of the batch's data, before the batch is acknowledged.
fn wake_readers(work: &mut Work<'_>, state: &PollState) {
    for endpoint in &state.touched {
        work.contain(endpoint, |work| {
            // Its owner wakes them otherwise.
            let Some(mut inner) = endpoint.try_own() else { return };
            if inner.is_readable() {
                inner.wakers.take(Interest::Read, work.wakers());
            }
        });
    }
}
