//! What happens around a call of the engine: the context it gets, and what follows from it.
//!
//! A piece of work begins with [`Work::begin`], works on one or more connections one after the
//! other (never on two at once), and ends with [`Work::finish`], which drains the interfaces that
//! packets were queued on and then fires the wakers. At that point the caller holds no lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Guard;
use plimsoll_tcp::{
    Below, ConnectionError, Context, Counter, Counters, Events, Instant, PathEvent, State,
};

use crate::endpoint::{Endpoint, Inner, Stage};
use crate::error::StackError;
use crate::snmp::{IpCounter, Shard};
use crate::socket_lock::{WakeList, lock};
use crate::stack::Stack;
use crate::sysctl::Settings;

/// One piece of work, on one thread, at one point in time.
pub(crate) struct Work<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) now: Instant,
    pub(crate) settings: Guard<Arc<Settings>>,
    pub(crate) counters: &'a Shard,
    wakers: WakeList,
    /// Bit `i`: packets were queued on interface `i`.
    queued_on: u16,
    /// The earliest timer that was armed.
    armed: Instant,
}

impl<'a> Work<'a> {
    pub(crate) fn begin(stack: &'a Stack, now: Instant) -> Work<'a> {
        stack.clock.advance(now);
        Work {
            stack,
            now,
            settings: stack.sysctl.snapshot(),
            counters: stack.snmp.shard(),
            wakers: WakeList::default(),
            queued_on: 0,
            armed: Instant::FAR_FUTURE,
        }
    }

    /// Where the engine counts.
    pub(crate) fn tcp(&self) -> &'a Counters {
        &self.counters.tcp
    }

    /// Counts at IP.
    pub(crate) fn count(&self, counter: IpCounter) {
        self.counters.bump(counter);
    }

    /// Where wakers wait until the work is finished.
    pub(crate) fn wakers(&mut self) -> &mut WakeList {
        &mut self.wakers
    }

    /// Notes that a packet was queued on an interface.
    pub(crate) fn note_queued(&mut self, interface: u8) {
        self.queued_on |= 1 << interface;
    }

    /// The interfaces that packets were queued on since the last call, as a bit set.
    pub(crate) fn take_queued(&mut self) -> u16 {
        std::mem::take(&mut self.queued_on)
    }

    /// The context of a connection that has nothing below it.
    pub(crate) fn context_idle(&self) -> Context<'_> {
        self.context_with(self.now, Below::default())
    }

    /// The context of a call of the engine for `endpoint`. The engine's time never runs backwards,
    /// although threads read their clocks before they take the lock.
    pub(crate) fn context(&self, endpoint: &Endpoint, inner: &mut Inner) -> Context<'_> {
        inner.last = inner.last.max(self.now);
        self.context_with(inner.last, endpoint.below.get())
    }

    fn context_with(&self, now: Instant, below: Below) -> Context<'_> {
        Context { now, below, config: &self.settings.tcp, counters: self.tcp() }
    }

    /// Does what follows from calls of the engine: sends, moves the connection on between the
    /// tables, arms its timer, collects wakers. The caller holds the lock that `inner` is from.
    pub(crate) fn settle(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        if inner.gone {
            self.collect_wakers(inner, Events::NONE);
            return;
        }
        self.transmit(endpoint, inner);
        let events = inner.conn.poll_event();
        if let Some(news) = inner.conn.poll_fast_open_news() {
            self.learn_fast_open(endpoint, news);
        }
        inner.note_edge(events);
        self.promote(endpoint, inner);
        self.collect_wakers(inner, events);
        if events.contains(Events::TIME_WAIT) && inner.conn.state() == State::TimeWait {
            self.keep_in_time_wait(endpoint, inner);
        } else if inner.conn.state() == State::Closed {
            self.remove(endpoint, inner);
        } else {
            self.arm_timer(endpoint, inner);
        }
    }

    /// Queues all that the engine wants sent.
    fn transmit(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        loop {
            let cx = self.context(endpoint, inner);
            let Some(transmit) = inner.conn.poll_transmit(&cx) else { return };
            self.send_tcp(endpoint, inner, transmit);
        }
    }

    /// Moves a connection whose handshake is complete to its listener's accept queue. This happens
    /// at once, not at the end of a batch, so that the queue's bound holds within a batch.
    pub(crate) fn promote(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        self.end_early(endpoint, inner);
        let opening = matches!(inner.conn.state(), State::SynReceived | State::Closed);
        if inner.stage != Stage::HalfOpen || opening {
            return;
        }
        let Some(listener) = &endpoint.listener else { return };
        inner.stage = Stage::Queued;
        if !listener.complete(endpoint.clone(), &mut self.wakers) {
            inner.stage = Stage::Orphan;
            let cx = self.context(endpoint, inner);
            inner.conn.abort(&cx);
            self.transmit(endpoint, inner);
        }
    }

    /// Gives the place in the Fast Open queue back once the handshake has ended.
    fn end_early(&self, endpoint: &Endpoint, inner: &mut Inner) {
        if !inner.early || inner.conn.is_early() {
            return;
        }
        inner.early = false;
        let Some(listener) = &endpoint.listener else { return };
        let reset = inner.conn.error() == Some(ConnectionError::Reset);
        let accepted = inner.stage != Stage::Queued;
        listener.fast_open(|queue| queue.end(self.now, reset && accepted));
    }

    /// Collects the wakers of those who can go on.
    fn collect_wakers(&mut self, inner: &mut Inner, events: Events) {
        let ended = inner.conn.state() == State::Closed;
        if !inner.readers.is_empty()
            && (ended
                || events.contains(Events::ERROR)
                || events.contains(Events::REPORT)
                || inner.is_readable())
        {
            inner.readers.take(&mut self.wakers);
        }
        if !inner.writers.is_empty()
            && (ended
                || events.contains(Events::ERROR)
                || events.contains(Events::CONNECTED)
                || events.contains(Events::REPORT)
                || inner.is_writable(&self.settings.tcp))
        {
            inner.writers.take(&mut self.wakers);
        }
    }

    /// Replaces a connection in TIME-WAIT by its entry in the table of those. An application that
    /// still holds the socket reads what has arrived; nothing else can happen to it.
    fn keep_in_time_wait(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        let time_wait = inner.conn.time_wait();
        let limit = self.settings.tcp_max_tw_buckets as usize;
        let kept = lock(&self.stack.time_wait).insert(endpoint.key, time_wait, limit);
        if !kept {
            self.tcp().bump(Counter::TcpTimeWaitOverflow);
        }
        self.remove(endpoint, inner);
    }

    /// Takes a connection out of the tables.
    fn remove(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        inner.gone = true;
        if inner.timer != Instant::FAR_FUTURE {
            inner.timer = Instant::FAR_FUTURE;
            lock(&self.stack.wheel).stop(endpoint.id);
        }
        if inner.stage == Stage::HalfOpen {
            inner.stage = Stage::Orphan;
            if let Some(listener) = &endpoint.listener {
                listener.end_handshake();
            }
        }
        if std::mem::take(&mut inner.counted_orphan) {
            self.stack.orphans.fetch_sub(1, Ordering::Relaxed);
        }
        self.stack.connections.remove(endpoint);
    }

    /// Sees to it that the wheel calls no later than the engine's next deadline. A later deadline
    /// than the wheel's leaves the wheel alone: it calls early, and is armed again then.
    fn arm_timer(&mut self, endpoint: &Endpoint, inner: &mut Inner) {
        let Some(deadline) = inner.conn.poll_timeout() else { return };
        if deadline >= inner.timer {
            return;
        }
        inner.timer = deadline;
        lock(&self.stack.wheel).arm(endpoint.id, deadline);
        self.armed = self.armed.min(deadline);
    }

    /// Ends the work: sends what was queued, wakes the poller if it would sleep too long, and fires
    /// the wakers.
    pub(crate) fn finish(mut self) {
        self.stack.drain_set(self.take_queued(), self.now);
        if self.armed != Instant::FAR_FUTURE {
            self.stack.waiter.kick_before(self.armed);
        }
        self.wakers.fire();
    }

    /// Fires the wakers collected so far.
    pub(crate) fn fire_wakers(&mut self) {
        self.wakers.fire();
    }
}

impl Stack {
    /// One call of an application on one connection.
    pub(crate) fn work_on<T>(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        call: impl FnOnce(&mut Inner, &Context<'_>) -> T,
    ) -> T {
        self.call(now, endpoint, |_| true, call)
    }

    /// As [`work_on`](Self::work_on), for a call that asks for nothing but an ACK to be sent. While
    /// the poller works on a batch with packets of this connection, it sends that ACK at the end of
    /// the batch, if no data has taken it along by then.
    pub(crate) fn read_on<T>(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        call: impl FnOnce(&mut Inner, &Context<'_>) -> T,
    ) -> T {
        self.call(now, endpoint, |inner| !inner.touched, call)
    }

    fn call<T>(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        settles: impl FnOnce(&Inner) -> bool,
        call: impl FnOnce(&mut Inner, &Context<'_>) -> T,
    ) -> T {
        let mut work = Work::begin(self, now);
        let mut inner = lock(&endpoint.inner);
        let cx = work.context(endpoint, &mut inner);
        let result = call(&mut inner, &cx);
        if settles(&inner) {
            work.settle(endpoint, &mut inner);
        }
        drop(inner);
        work.finish();
        result
    }

    /// The application lets go of a connection.
    pub(crate) fn close_endpoint(&self, now: Instant, endpoint: &Arc<Endpoint>) {
        let mut work = Work::begin(self, now);
        let mut inner = lock(&endpoint.inner);
        if inner.stage != Stage::Owned {
            return;
        }
        inner.stage = Stage::Orphan;
        if !inner.gone {
            inner.counted_orphan = true;
            let others = self.orphans.fetch_add(1, Ordering::Relaxed);
            let cx = work.context(endpoint, &mut inner);
            inner.conn.close(&cx);
            let alive = inner.conn.state() != State::Closed;
            if alive && others >= work.settings.tcp_max_orphans as usize {
                work.tcp().bump(Counter::TcpAbortOnMemory);
                inner.conn.abort(&cx);
            }
        }
        work.settle(endpoint, &mut inner);
        drop(inner);
        work.finish();
    }

    /// Ends everything, because a device has gone: every socket gets an error.
    pub(crate) fn bring_down(&self, now: Instant, error: StackError) {
        if self.down.set(error).is_err() {
            return;
        }
        let mut work = Work::begin(self, now);
        for endpoint in self.connections.all() {
            let mut inner = lock(&endpoint.inner);
            let cx = work.context(&endpoint, &mut inner);
            let gone = ConnectionError::DeviceGone;
            inner.conn.handle_path_event(&cx, PathEvent::HardError(gone));
            work.settle(&endpoint, &mut inner);
        }
        for listener in self.listeners.all() {
            listener.end(crate::error::SocketError::NetworkDown, &mut work.wakers);
        }
        work.fire_wakers();
    }
}
