//! The frame of a call of the engine: the context that it gets, and the work that follows.
//!
//! A piece of work begins with [`Work::begin`], works on one or more connections one after the
//! other (never on two at once), and ends with [`Work::finish`]. That drains the interfaces with
//! queued packets, continues the connections that waited for completions, and then fires the
//! wakers. At that point the caller holds no lock.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use arrayvec::ArrayVec;
use plimsoll_buf::{ChunkWriter, PostponedDrops, Slices};
use plimsoll_tcp::{
    Below, ConnectionError, Context, Counter, Counters, Events, Input, Instant, MemoryRoom,
    ReadError, Segment, Serial, State,
};

use crate::connection_id::ConnectionId;
use crate::device::earlier;
use crate::error::{SocketError, StackError};
use crate::events::{PendingEvents, StackEvent};
use crate::flow::FlowKey;
use crate::limits::{COMPLETION_ROUNDS, READ_ROUNDS};
use crate::policies::sysctl::Settings;
use crate::pollers::queue::Queue;
use crate::snmp::{IpCounter, Shard};
use crate::sockets::backlog::Rule;
use crate::sockets::decision_log::log_wake;
use crate::sockets::endpoint::{Endpoint, Inner, Owned, Sent, Site, Stage};
use crate::sockets::panics::drop_caught;
use crate::sockets::path_report::PathReport;
use crate::sockets::saved_syn::SynHeaders;
use crate::sockets::wakers::{Interest, WakeList};
use crate::stack::Stack;
use crate::stack::ip::sender::Sender;
use crate::sync::socket_lock::COMPLETION;
use crate::tables::time_wait::SWEEP;

/// The part that sends the packets queued by a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The thread that did the work.
    Here,
    /// The poller, which is woken if it sleeps.
    Poller,
}

/// The result of a read during which the stack has panicked.
const PANICKED: ReadError = ReadError::Failed(ConnectionError::Panicked);

/// One piece of work, on one thread, at one point in time.
pub(crate) struct Work<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) now: Instant,
    pub(crate) settings: Rc<Settings>,
    /// This thread's shard, which makes a `Work` stay on its thread.
    pub(crate) counters: Rc<Shard>,
    wakers: WakeList,
    /// Events that are delivered once no socket is owned and no lock is held.
    events: PendingEvents,
    /// Bit `i`: packets were queued on interface `i`.
    queued_on: Cell<u16>,
    /// The part that sends the queued packets.
    departure: Departure,
    /// Segments that were left for connections which had ended before them.
    pub(crate) strays: Vec<(FlowKey, Segment)>,
    /// Strays are being routed.
    pub(crate) routes: bool,
    /// The headers of the SYN being processed, if some listener saves those of its connections.
    pub(crate) syn_headers: Option<SynHeaders>,
    /// The earliest timer that was armed.
    armed: Instant,
    /// The queue that this work is of: the poller's, or the home of the application's connection.
    home: u8,
    pub(crate) queue: &'a Queue,
    /// Buffers that applications have lent are dropped once no socket is owned and no lock is held.
    /// This field is the last, since it is dropped last.
    _drops: PostponedDrops,
}

impl<'a> Work<'a> {
    /// Work of no queue in particular counts as the first one's.
    pub(crate) fn begin(stack: &'a Stack, now: Instant) -> Work<'a> {
        Work::begin_at(stack, now, 0)
    }

    /// Work of the queue `home`.
    #[inline]
    pub(crate) fn begin_at(stack: &'a Stack, now: Instant, home: u8) -> Work<'a> {
        let queue = stack.pollers.queue(home);
        queue.clock().advance(now);
        let counters = stack.pollers.snmp().shard();
        Work {
            stack,
            now,
            settings: stack.policies.sysctl().cached(counters.settings()),
            counters,
            wakers: WakeList::default(),
            events: PendingEvents::default(),
            queued_on: Cell::new(0),
            departure: Departure::Here,
            strays: Vec::new(),
            routes: false,
            syn_headers: None,
            armed: Instant::FAR_FUTURE,
            home,
            queue,
            _drops: PostponedDrops::begin(),
        }
    }

    /// Makes it work of another queue: that of a connection which has just been made.
    pub(crate) fn move_to(&mut self, home: u8) {
        if self.home != home {
            self.home = home;
            self.queue = self.stack.pollers.queue(home);
        }
    }

    /// The queue that this work is of.
    pub(crate) fn home(&self) -> u8 {
        self.home
    }

    /// Where the engine counts.
    pub(crate) fn tcp(&self) -> &Counters {
        self.counters.tcp()
    }

    /// Counts at IP.
    pub(crate) fn count(&self, counter: IpCounter) {
        self.counters.bump(counter);
    }

    /// How many connections may be open.
    pub(crate) fn most_connections(&self) -> usize {
        self.settings.max_connections as usize
    }

    /// Where events wait until the work is finished.
    pub(crate) fn events(&mut self) -> &mut PendingEvents {
        &mut self.events
    }

    /// Where wakers wait until the work is finished.
    pub(crate) fn wakers(&mut self) -> &mut WakeList {
        &mut self.wakers
    }

    /// Notes that a packet was queued on an interface.
    #[inline]
    pub(crate) fn note_queued(&self, interface: u8) {
        self.queued_on.set(self.queued_on.get() | 1 << interface);
    }

    /// The interfaces that packets were queued on since the last call, as a bit set.
    pub(crate) fn take_queued(&self) -> u16 {
        self.queued_on.take()
    }

    /// The context of a connection that has nothing below it.
    pub(crate) fn context_idle(&self) -> Context<'_> {
        self.context_with(self.now, Below::default())
    }

    /// The same, at the time of its last call.
    pub(crate) fn context_at(&self, inner: &Inner) -> Context<'_> {
        self.context_with(inner.last(), Below::default())
    }

    /// The context of a call of the engine for `endpoint`. The engine's time never runs backwards,
    /// although threads read their clocks before they take the lock.
    #[inline]
    pub(crate) fn context(&self, endpoint: &Endpoint, inner: &mut Inner) -> Context<'_> {
        let now = inner.advance(self.now);
        let (bytes, completed) = endpoint.below().get();
        let interface = &self.stack.interfaces.get(endpoint.interface());
        let below = Below {
            bytes,
            completed: Serial(completed),
            completions: interface.completions(),
            takes_notes: interface.takes_notes(),
            keeps_departures: interface.tx().keeps_departures(),
            memory: self.room(inner),
        };
        self.context_with(now, below)
    }

    /// The memory by which a connection's queues may grow.
    #[inline]
    fn room(&self, inner: &Inner) -> MemoryRoom {
        let memory = self.stack.policies.memory();
        inner.bound_room(memory.room(&self.settings.tcp_mem, inner.charged))
    }

    #[inline]
    fn context_with(&self, now: Instant, below: Below) -> Context<'_> {
        Context { now, below, config: &self.settings.tcp, counters: self.tcp() }
    }

    /// Applies the results of calls of the engine: sends, moves the connection on between the
    /// tables, arms its timer, collects wakers. The caller holds the lock that `inner` is from.
    #[inline]
    pub(crate) fn settle(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        if inner.panics() > 1 {
            return self.bury(endpoint, inner);
        }
        endpoint.at(Site::Settle);
        if inner.take_panicked() {
            self.count(IpCounter::ConnectionPanics);
        }
        if inner.is_gone() {
            self.account(endpoint, inner);
            self.collect_wakers(inner, Events::NONE);
            return;
        }
        let seen = self.transmit(endpoint, inner);
        self.throttle(endpoint, inner, seen);
        self.settle_memory(endpoint, inner);
        let events = inner.conn.poll_event();
        if let Some(outcome) = inner.conn.poll_fast_open() {
            self.learn_fast_open(endpoint, outcome);
        }
        if events.contains(Events::CONNECTED) {
            self.prove(endpoint);
        }
        inner.note_edge(events);
        self.promote(endpoint, inner);
        self.note_state(endpoint, inner);
        self.collect_wakers(inner, events);
        if events.contains(Events::TIME_WAIT) && inner.conn.state() == State::TimeWait {
            self.keep_in_time_wait(endpoint, inner);
        } else if inner.conn.state() == State::Closed {
            self.remove(endpoint, inner);
        } else {
            self.arm_timer(endpoint, inner);
            // By the older rule that is done when the backlog is empty.
            if self.settings.tcp_backlog_limit == Rule::Twice {
                self.limit_backlog(endpoint, inner);
            }
        }
    }

    /// Queues all packets that the engine sends, until the queue is full. Returns the bytes below
    /// that the engine was given when it sent no more.
    #[inline]
    pub(crate) fn transmit(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) -> u32 {
        loop {
            let cx = self.context(endpoint, inner);
            let from = Sender::new(endpoint, inner, &cx.below);
            let below = cx.below.bytes;
            let mut gone = None;
            let Inner { conn, ident, .. } = inner;
            let left = conn.poll_transmit_with(&cx, |packet| {
                let (sent, charged) = (Sent::new(&packet), packet.serial.is_some());
                let offered = self.offer_tcp(&from, ident, packet);
                if offered.is_ok() || !charged {
                    gone = Some(sent);
                }
                offered
            });
            if let Some(sent) = gone {
                if cfg!(feature = "tracing") {
                    self.note_sending(endpoint, inner, &sent);
                }
                inner.note_sent(sent.end);
            }
            if !left {
                return below;
            }
        }
    }

    /// Flags a connection that waits for a completion, so that a completion continues it. If one
    /// came before it could see the flag, the engine, which was given `seen` bytes, is called
    /// again.
    #[inline]
    fn throttle(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner, seen: u32) {
        if is_throttled(inner) && endpoint.below().throttle(seen) {
            let cx = self.context(endpoint, inner);
            inner.conn.handle(&cx, Input::Completion);
            self.transmit(endpoint, inner);
        }
        if !is_throttled(inner) {
            endpoint.below().end_throttle();
        }
    }

    /// Continues connections that have waited for a completion. The caller owns no socket. Returns
    /// whether there was one.
    #[inline]
    pub(crate) fn run_completions(&mut self) -> bool {
        !self.queue.completions().is_empty() && self.take_completions()
    }

    fn take_completions(&mut self) -> bool {
        let mut ready = ArrayVec::new();
        self.queue.completions().take(&mut ready);
        for &id in &ready {
            self.go_on(id);
        }
        !ready.is_empty()
    }

    fn go_on(&mut self, id: ConnectionId) {
        if id.datagram_index().is_some() {
            if let Some(endpoint) = self.stack.tables.udp().get(id) {
                self.go_on_udp(&endpoint);
            }
            return;
        }
        // The connection may have ended since.
        let Some(endpoint) = self.stack.tables.connections().get(id) else { return };
        endpoint.below().take_up();
        #[cfg(test)]
        self.stack.pollers.visit();
        self.leave(&endpoint, COMPLETION);
    }

    /// Moves a connection whose handshake is complete to its listener's accept queue. This happens
    /// at once, not at the end of a batch, so that the queue's bound holds within a batch.
    #[inline]
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

    /// Releases the place in the Fast Open queue once the handshake has ended.
    #[inline]
    fn end_early(&self, endpoint: &Endpoint, inner: &mut Inner) {
        if !inner.is_early() || inner.conn.is_early() {
            return;
        }
        inner.end_early();
        let Some(listener) = &endpoint.listener else { return };
        let reset = inner.conn.error() == Some(ConnectionError::Reset);
        let accepted = inner.stage != Stage::Queued;
        listener.fast_open(|queue| queue.end(self.now, reset && accepted));
    }

    /// Collects the wakers of waiters that can continue.
    #[inline]
    fn collect_wakers(&mut self, inner: &mut Inner, events: Events) {
        let ended = inner.conn.state() == State::Closed;
        if inner.wakers.is_waiting(Interest::Read)
            && (ended
                || events.contains(Events::ERROR)
                || events.contains(Events::REPORT)
                || inner.is_readable())
        {
            inner.wakers.take(Interest::Read, &mut self.wakers);
            log_wake(inner, &self.context_at(inner), (true, false));
        }
        if inner.wakers.is_waiting(Interest::Write)
            && (ended
                || events.contains(Events::ERROR)
                || events.contains(Events::CONNECTED)
                || events.contains(Events::REPORT)
                || inner.is_writable(&self.settings.tcp))
        {
            inner.wakers.take(Interest::Write, &mut self.wakers);
            log_wake(inner, &self.context_at(inner), (false, true));
        }
    }

    /// Replaces a connection in TIME-WAIT by its entry in the TIME-WAIT table. An application that
    /// still holds the socket reads the arrived data; nothing else can happen to it.
    fn keep_in_time_wait(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        let time_wait = inner.conn.time_wait();
        let limit = self.settings.tcp_max_tw_buckets as usize;
        let kept = self.stack.tables.time_wait().insert(endpoint.key, time_wait, limit);
        if !kept {
            self.tcp().bump(Counter::TcpTimeWaitOverflow);
        } else if let Some(at) = self.stack.tables.time_wait_ends() {
            // The first queue handles these.
            self.stack.pollers.queue(0).waiter().kick_before(at + SWEEP);
        }
        self.remove(endpoint, inner);
    }

    /// Removes a connection whose end has panicked as well. Nothing is sent.
    fn bury(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        if inner.take_panicked() {
            self.count(IpCounter::ConnectionPanics);
        }
        drop_caught(endpoint.backlog().clear());
        self.end_early(endpoint, inner);
        if inner.is_gone() {
            self.account(endpoint, inner);
        } else {
            self.remove(endpoint, inner);
        }
        self.collect_wakers(inner, Events::NONE);
    }

    /// Takes a connection out of the tables. If it panics, it may be begun again: no step is done
    /// twice.
    fn remove(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        if inner.timer != Instant::FAR_FUTURE {
            inner.timer = Instant::FAR_FUTURE;
            self.stack.pollers.queue(endpoint.home()).wheel().lock().stop(endpoint.id);
        }
        self.leave_syn_queue(endpoint, inner);
        if inner.uncount_orphan() {
            self.stack.tables.orphans().note_end(inner.conn.ending());
            self.stack.tables.orphans().remove(&mut self.wakers);
        }
        if let Some(listener) = endpoint.listener.as_ref().filter(|from| from.verifies_source()) {
            listener.at_gate(&mut self.wakers, |gate, _| gate.leave(&endpoint.key));
        }
        endpoint.at(Site::Remove);
        if endpoint.below().waits_for_space() {
            self.stack.interfaces.get(endpoint.interface()).tx().forget(endpoint);
        }
        self.stack.policies.memory().forget(std::mem::take(&mut inner.memory_ticket));
        self.stack.tables.connections().remove(endpoint);
        self.note_removal(endpoint, inner);
        inner.leave_budget();
        inner.leave_table();
        self.account(endpoint, inner);
    }

    /// Releases the place in the SYN queue, if the connection has one.
    pub(crate) fn leave_syn_queue(&self, endpoint: &Endpoint, inner: &mut Inner) {
        if inner.stage == Stage::HalfOpen {
            inner.stage = Stage::Orphan;
            if let Some(listener) = &endpoint.listener {
                listener.end_handshake();
            }
        }
    }

    /// Sees to it that the wheel calls no later than the engine's next deadline. A later deadline
    /// than the wheel's leaves the wheel alone: it calls early, and is armed again then.
    #[inline]
    pub(crate) fn arm_timer(&mut self, endpoint: &Endpoint, inner: &mut Inner) {
        let waiting = inner.prequeue.as_ref().map(|prequeue| prequeue.due());
        let own = self.next_timer(endpoint, inner);
        let Some(deadline) = earlier(own, waiting) else { return };
        if deadline >= inner.timer {
            return;
        }
        inner.timer = deadline;
        if endpoint.home() == self.home {
            self.queue.wheel().lock().arm(endpoint.id, deadline);
            self.armed = self.armed.min(deadline);
        } else {
            let home = self.stack.pollers.queue(endpoint.home());
            home.wheel().lock().arm(endpoint.id, deadline);
            home.waiter().kick_before(deadline);
        }
    }

    /// When the connection's next timer comes.
    #[inline]
    fn next_timer(&self, endpoint: &Endpoint, inner: &Inner) -> Option<Instant> {
        let deadline = earlier(inner.conn.poll_timeout(), inner.conn.releases_at())?;
        let Some(timers) = self.stack.pollers.coarse_timers() else { return Some(deadline) };
        Some(timers.comes(endpoint.id.slot.into(), self.now, deadline).max(deadline))
    }

    /// Whether the connection's next timer has come, now that the wheel calls. A call that is too
    /// early does no harm, but that a timer which is put off would not be.
    pub(crate) fn has_timer_come(&self, endpoint: &Endpoint, inner: &Inner) -> bool {
        self.stack.pollers.coarse_timers().is_none()
            || self.next_timer(endpoint, inner).is_none_or(|at| at <= self.now)
    }

    /// Whether a wait for packets that ends at `at` is over: the time has come, and all packets
    /// that have arrived were processed.
    #[inline]
    pub(crate) fn is_wait_over(&self, at: Option<Instant>) -> bool {
        at.is_some_and(|at| at <= self.now) && self.queue.arrivals().allows_silence(self.now)
    }

    /// Whether the connection's timer may run. If not, packets have to be processed first: the
    /// connection arms its timer again, and the next poll receives more.
    pub(crate) fn may_run_timer(&self, endpoint: &Endpoint, inner: &Inner) -> bool {
        let arrivals = self.stack.pollers.queue(endpoint.home()).arrivals();
        let last = inner.last().max(self.now);
        arrivals.is_empty(self.now)
            || !inner.conn.is_silence_timeout_due(last)
            || arrivals.allows_silence(self.now)
    }

    /// Ends the work: sends the queued packets or leaves them to the poller, wakes the poller if it
    /// would sleep too long, and fires the wakers. By reference, since it is large: the caller
    /// drops it.
    #[inline]
    pub(crate) fn finish(&mut self) {
        let home = self.queue;
        if home.completions().is_attended_here() {
            // During a poll on this thread, which sends when it ends, or when enough packets are
            // queued.
            if self.queued_on.get() != 0 && home.has_enough_to_send() {
                self.stack.drain_set(self, self.take_queued());
            }
        } else if self.departure == Departure::Here {
            self.send_queued();
        } else if let Some(at) = self.stack.first_departure(self.queued_on.get()) {
            home.waiter().kick_before(at);
        }
        if self.armed != Instant::FAR_FUTURE {
            home.waiter().kick_before(self.armed);
        }
        self.fire_wakers();
    }

    /// Sends the queued packets, and those that their completions release.
    #[inline]
    fn send_queued(&mut self) {
        for _ in 0..COMPLETION_ROUNDS {
            let queued = self.take_queued();
            if queued != 0 {
                let attending = self.queue.completions().attend();
                self.stack.drain_set(self, queued);
                drop(attending);
            }
            if !self.run_completions() {
                return;
            }
        }
        // The poller does the remaining work.
        self.queue.waiter().kick();
    }

    /// Fires the wakers collected so far. The caller holds no lock.
    pub(crate) fn fire_wakers(&mut self) {
        let panics = self.wakers.fire();
        if panics > 0 {
            self.counters.add(IpCounter::WakerPanics, panics);
        }
        self.events.tell(self.stack.tables.spans());
    }
}

impl Work<'_> {
    /// For an application's call: owns the socket, and makes this the work of the queue that the
    /// connection is at home in now. It may have moved while its former owner was waited for, and
    /// the thread that is notified of queued data must be the one that sends it.
    #[inline]
    fn own_at_home<'e>(&mut self, endpoint: &'e Arc<Endpoint>) -> Owned<'e> {
        let owned = endpoint.own();
        self.move_to(endpoint.home());
        owned
    }

    /// See [`Stack::read_on`].
    #[inline]
    fn read_into(&mut self, endpoint: &Arc<Endpoint>, buf: &mut [u8]) -> Result<usize, ReadError> {
        let mut owned = self.own_at_home(endpoint);
        let mut settles = self.run_prequeue(endpoint, &mut owned, true) || !owned.is_touched();
        let mut count = 0;
        let mut last = Ok(0);
        for _ in 0..READ_ROUNDS {
            let cx = self.context(endpoint, &mut owned);
            last = owned.conn.read(&cx, &mut buf[count..]);
            endpoint.at(Site::Read);
            let once = self.settings.tcp_backlog_limit == Rule::Once;
            if once && endpoint.backlog().bytes() == 0 {
                self.limit_backlog(endpoint, &owned);
            }
            let read = *last.as_ref().unwrap_or(&0);
            count += read;
            let ended = read == 0 && !matches!(last, Err(ReadError::WouldBlock));
            // A read ends before an urgent byte.
            let ended = ended || owned.conn.readable() > 0 || owned.conn.at_urgent_mark();
            if ended || count == buf.len() || !self.run_left(endpoint, &mut owned) {
                break;
            }
            settles = true;
            if count > 0 && owned.conn.readable() == 0 {
                // A read that finds no data shows that its caller waits for more.
                break;
            }
        }
        self.release(endpoint, owned, settles);
        // An error or the end after the read data is returned by the next call.
        if count > 0 { Ok(count) } else { last }
    }

    /// See [`Stack::close_endpoint`].
    fn close(&mut self, endpoint: &Arc<Endpoint>) {
        let mut inner = self.own_at_home(endpoint);
        if inner.stage != Stage::Owned {
            return;
        }
        self.run_prequeue(endpoint, &mut inner, false);
        inner.stage = Stage::Orphan;
        // No thread waits for it any more; late waiters are woken at once.
        inner.wakers.take_all(&mut self.wakers);
        if !inner.is_gone() {
            inner.count_orphan();
            let others = self.stack.tables.orphans().add();
            let cx = self.context(endpoint, &mut inner);
            inner.conn.close(&cx);
            let alive = inner.conn.state() != State::Closed;
            if alive && others >= self.settings.tcp_max_orphans as usize {
                self.tcp().bump(Counter::TcpAbortOnMemory);
                inner.conn.abort(&cx);
            }
        }
        self.release(endpoint, inner, true);
    }
}

/// Whether the engine waits for something below it to complete.
fn is_throttled(inner: &Inner) -> bool {
    inner.conn.awaits_completion()
}

impl Stack {
    /// One call of an application on one connection.
    pub(crate) fn work_on<T>(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        call: impl FnMut(&mut Inner, &Context<'_>) -> T,
    ) -> T {
        self.call(now, endpoint, |_| Departure::Here, call)
    }

    /// As [`work_on`](Self::work_on), for a call that writes bytes.
    ///
    /// If the connection had no unacknowledged data, this thread sends the packets that the call
    /// has queued: a lone small request leaves without waiting for another thread. Otherwise the
    /// poller sends them, and is woken if it sleeps. So a thread that writes a little at a time
    /// pays no system call for each write, and data queued meanwhile is below.
    pub(crate) fn write_on<T>(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        call: impl FnMut(&mut Inner, &Context<'_>) -> T,
    ) -> T {
        let departure = |inner: &Inner| match inner.conn.send_queue_len() > inner.conn.unsent_len()
        {
            true => Departure::Poller,
            false => Departure::Here,
        };
        self.call(now, endpoint, departure, call)
    }

    /// Reads into `buf`, with `read` as the read call, until it is full or the queue is empty. Data
    /// that arrives meanwhile is processed and read, too.
    ///
    /// The only packet that such a call can cause is an ACK. While the poller works on a batch with
    /// packets of this connection, it sends that ACK at the end of the batch, unless data has
    /// carried it by then.
    pub(crate) fn read_on(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        buf: &mut [u8],
    ) -> Result<usize, ReadError> {
        let mut work = Work::begin_at(self, now, endpoint.home());
        let read = work.contain(endpoint, |work| work.read_into(endpoint, buf));
        work.finish();
        read.unwrap_or(Err(PANICKED))
    }

    /// As [`read_on`](Self::read_on), by reference.
    pub(crate) fn read_shared_on(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        max: usize,
    ) -> Result<Slices, ReadError> {
        let mut work = Work::begin_at(self, now, endpoint.home());
        let read = work.contain(endpoint, |work| {
            let mut owned = work.own_at_home(endpoint);
            let settles = work.run_prequeue(endpoint, &mut owned, true) || !owned.is_touched();
            let cx = work.context(endpoint, &mut owned);
            let result = owned.conn.read_shared(&cx, max);
            endpoint.at(Site::Read);
            work.release(endpoint, owned, settles);
            result
        });
        work.finish();
        read.unwrap_or(Err(PANICKED))
    }

    /// See [`TcpSocket::begin_buffer`](crate::TcpSocket::begin_buffer).
    pub(crate) fn begin_buffer(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        bytes: usize,
    ) -> Option<ChunkWriter> {
        let mut work = Work::begin_at(self, now, endpoint.home());
        let begun = work.contain(endpoint, |work| {
            let mut owned = work.own_at_home(endpoint);
            let room = work.room(&owned).bytes as usize;
            let may = owned.conn.may_buffer(&work.settings.tcp)
                && !owned.is_short_of_budget()
                && bytes <= room;
            let writer = may.then(|| self.pollers.pool(work.home()).chunk(bytes));
            if let Some(writer) = &writer {
                owned.begin_buffer(writer.capacity());
                work.account(endpoint, &mut owned);
            }
            work.release(endpoint, owned, false);
            writer
        });
        work.finish();
        begun.flatten()
    }

    fn call<T>(
        &self,
        now: Instant,
        endpoint: &Arc<Endpoint>,
        departure: impl FnOnce(&Inner) -> Departure,
        mut call: impl FnMut(&mut Inner, &Context<'_>) -> T,
    ) -> T {
        let mut work = Work::begin_at(self, now, endpoint.home());
        let result = work.contain(endpoint, |work| {
            let mut inner = work.own_at_home(endpoint);
            work.run_prequeue(endpoint, &mut inner, false);
            work.departure = departure(&inner);
            let cx = work.context(endpoint, &mut inner);
            let result = call(&mut inner, &cx);
            endpoint.at(Site::Write);
            work.release(endpoint, inner, true);
            result
        });
        work.finish();
        result.unwrap_or_else(|| {
            // The connection has been aborted, and returns that error.
            let work = Work::begin(self, now);
            let mut inner = endpoint.own();
            let cx = work.context(endpoint, &mut inner);
            let result = call(&mut inner, &cx);
            drop(inner);
            self.look_again(endpoint);
            result
        })
    }

    /// The application releases a connection.
    pub(crate) fn close_endpoint(&self, now: Instant, endpoint: &Arc<Endpoint>) {
        let mut work = Work::begin_at(self, now, endpoint.home());
        if work.contain(endpoint, |work| work.close(endpoint)).is_none() {
            // It is aborted, but perhaps not released yet.
            work.contain(endpoint, |work| work.close(endpoint));
        }
        work.finish();
    }

    /// Ends everything: every socket gets an error.
    pub(crate) fn bring_down(&self, now: Instant, error: StackError) {
        if self.pollers.end(error) {
            self.tell_of_end(now);
        }
    }

    /// Notifies all sockets of the end of the stack, which has been published.
    pub(crate) fn tell_of_end(&self, now: Instant) {
        let mut work = Work::begin(self, now);
        let reason = self.error().map(ToString::to_string).unwrap_or_default();
        work.events().stack(StackEvent::Ended { reason });
        for endpoint in self.tables.connections().all() {
            work.leave_report(&endpoint, PathReport::Gone(ConnectionError::DeviceGone));
        }
        for listener in self.tables.listeners().all() {
            listener.end(SocketError::NetworkDown, &mut work.wakers);
        }
        for endpoint in self.tables.udp().all() {
            endpoint.end(SocketError::NetworkDown, &mut work.wakers);
        }
        for listener in self.tables.udp().listeners() {
            listener.end(SocketError::NetworkDown, &mut work.wakers);
        }
        if let Some(hook) = self.tables.unhandled().get() {
            hook.end(SocketError::NetworkDown, &mut work.wakers);
        }
        self.tables.orphans().wake(&mut work.wakers);
        work.fire_wakers();
        self.pollers.kick_all();
    }
}
