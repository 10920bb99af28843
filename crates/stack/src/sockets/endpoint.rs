//! One connection in the stack: the engine's connection and the stack's own state for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use plimsoll_tcp::{
    Config, Connection, Events, Instant, Md5Key, MemoryRoom, Segment, SendKind, Serial, State,
    Transmit,
};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::connection_id::ConnectionId;
use crate::flow::FlowKey;
use crate::interfaces::space::SpaceWaiter;
use crate::packet::CompletionSink;
use crate::policies::budget::{self, BudgetShare};
use crate::policies::memory::MemoryAccount;
use crate::pollers::completion::{BelowUs, CompletionsByQueue};
use crate::sockets::backlog::Backlog;
use crate::sockets::listening::Listening;
use crate::sockets::path_report::PendingReports;
use crate::sockets::prequeue::Prequeue;
use crate::sockets::queue_misses::QueueMisses;
use crate::sockets::saved_syn::SavedSyn;
use crate::sockets::wakers::WakerSet;
use crate::sync::socket_lock::{self, Place, SocketLock};

/// A connection and its place in the stack.
pub(crate) struct Endpoint {
    /// The addresses and ports of both ends.
    pub(crate) key: FlowKey,
    /// The route of its packets: interface and queue. Written by its owner.
    way: AtomicU16,
    /// The flow label of its packets (IPv6).
    flow_label: u32,
    /// Its place in the connection table.
    pub(crate) id: ConnectionId,
    /// Bytes passed down and not completed.
    below: BelowUs,
    /// The queues into which it is put when it may continue after a completion.
    completions: CompletionsByQueue,
    /// The key that signs its segments (TCP_MD5SIG), for its lifetime. Pollers read it without
    /// owning the socket.
    md5_key: Option<Md5Key>,
    /// The listener that accepted it.
    pub(crate) listener: Option<Arc<ListenerInner>>,
    /// The state that one thread at a time works on.
    socket: SocketLock<Inner>,
    /// Packets that arrived while another thread owned it.
    backlog: Backlog,
    /// Path reports that came while another thread owned it.
    path_reports: PendingReports,
    /// The headers of the SYN that opened it, if its listener saves them.
    saved_syn: SavedSyn,
    /// The point at which the next panic happens.
    #[cfg(test)]
    pub(crate) trap: std::sync::Mutex<Option<Site>>,
}

/// The interface of a connection's packets, and the queues that their completions go to.
#[derive(Clone)]
pub(crate) struct Way {
    interface: u8,
    home: u8,
    flow_label: u32,
    completions: CompletionsByQueue,
}

fn way_bits(interface: u8, home: u8) -> u16 {
    u16::from_ne_bytes([interface, home])
}

impl Way {
    /// A way by `interface`, which belongs to the queue `home`. The completions are those of all
    /// queues.
    pub(crate) fn new(
        interface: u8,
        flow_label: u32,
        home: u8,
        completions: CompletionsByQueue,
    ) -> Way {
        Way { interface, home, flow_label, completions }
    }
}

/// The origin of a connection.
#[derive(Default)]
pub(crate) struct Origin {
    /// The listener whose queues it is in.
    pub(crate) listener: Option<Arc<ListenerInner>>,
    /// Its share of its listener's budget.
    pub(crate) share: Option<BudgetShare>,
}

/// A listener in the tables, with a queue of connections.
pub(crate) type ListenerInner = Listening<Endpoint>;

/// The state that the socket's lock guards.
pub(crate) struct Inner {
    pub(crate) conn: Connection,
    pub(crate) wakers: WakerSet,
    /// The latest time that the engine was given; its time never runs backwards.
    last: Instant,
    /// The time at which the timer wheel calls this connection. The engine's own deadline may be
    /// later: it moves with almost every ACK, and an early call is harmless.
    pub(crate) timer: Instant,
    pub(crate) stage: Stage,
    /// It has a place in its listener's Fast Open queue.
    early: bool,
    /// The application has shut the read side.
    read_shut: bool,
    /// Numbers of events that wake a poller.
    edges: Edges,
    /// It has left the connection table: it is CLOSED, or in TIME-WAIT, which has its own table.
    gone: bool,
    /// It counts as an orphan.
    counted_orphan: bool,
    /// The state in which it is counted; `None` while it is not in the table.
    counted: Option<State>,
    /// It will be settled at the end of the batch.
    touched: bool,
    /// The bytes charged to the memory account for it.
    pub(crate) charged: u32,
    /// Bytes of buffers that the application fills and has not yet passed to `hand_over`.
    buffered: u32,
    /// The round in which it entered the list of connections that wait for memory.
    pub(crate) memory_ticket: u32,
    /// Its share of its listener's budget.
    share: Option<BudgetShare>,
    /// Its own memory budget is nearly spent.
    short_of_own: bool,
    /// IPv4 identification of the next packet.
    pub(crate) ident: u16,
    /// The sequence number after all sent data, once something was sent.
    sent_to: Option<SeqNum>,
    /// Its connection has replaced one that a panic left half changed, and is not settled yet.
    panicked: bool,
    /// The number of such panics.
    panics: u8,
    /// Counts packets that arrive on another queue than its own.
    pub(crate) misses: QueueMisses,
    /// Packets that wait for a thread blocked in a read.
    pub(crate) prequeue: Option<Box<Prequeue<Segment>>>,
}

/// The holder of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A listener's SYN queue holds it.
    HalfOpen,
    /// A listener's accept queue holds it.
    Queued,
    /// An application holds it.
    Owned,
    /// No handle refers to it any more.
    Orphan,
}

/// The readiness of a socket, as poll(2) reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read would return at once (POLLIN).
    pub readable: bool,
    /// A write would return at once (POLLOUT).
    pub writable: bool,
    /// The peer's stream has ended, or the local read side is shut (POLLRDHUP).
    pub read_closed: bool,
    /// Both directions have ended (POLLHUP).
    pub hung_up: bool,
    /// An error is pending (POLLERR).
    pub error: bool,
    /// The error queue holds a report (POLLERR).
    pub report: bool,
    /// Numbers of events so far that wake a poller. An edge-triggered poller compares them.
    pub edges: Edges,
}

/// Numbers of events so far that wake a poller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// Data arrived, or the stream ended (wakes waiters for POLLIN).
    pub input: u32,
    /// The connection opened, or there is space again for a writer that found none (POLLOUT).
    pub output: u32,
    /// An error, a report of the error queue, or the end (wakes all).
    pub error: u32,
}

impl Endpoint {
    /// The interface of its packets: one queue of a device.
    pub(crate) fn interface(&self) -> u8 {
        self.way.load(Ordering::Relaxed).to_ne_bytes()[0]
    }

    /// The queue of that interface, which handles its timers and completions. It may change until
    /// the socket is owned.
    pub(crate) fn home(&self) -> u8 {
        self.way.load(Ordering::Relaxed).to_ne_bytes()[1]
    }

    /// Called by the owner: its packets leave by `interface` from now on, which belongs to queue
    /// `home`.
    pub(crate) fn move_home(&self, interface: u8, home: u8) {
        self.way.store(way_bits(interface, home), Ordering::Relaxed);
    }

    /// The flow label of its packets (IPv6).
    pub(crate) fn flow_label(&self) -> u32 {
        self.flow_label
    }

    /// Bytes passed down and not completed.
    pub(crate) fn below(&self) -> &BelowUs {
        &self.below
    }

    /// Packets that arrived while another thread owned it.
    pub(crate) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// Path reports that came while another thread owned it.
    pub(crate) fn path_reports(&self) -> &PendingReports {
        &self.path_reports
    }

    /// The headers of the SYN that opened it.
    pub(crate) fn saved_syn(&self) -> &SavedSyn {
        &self.saved_syn
    }

    /// The key that signs its segments.
    pub(crate) fn md5_key(&self) -> Option<&Md5Key> {
        self.md5_key.as_ref()
    }

    pub(crate) fn new(
        key: FlowKey,
        id: ConnectionId,
        way: Way,
        (origin, stage): (Origin, Stage),
        conn: Connection,
    ) -> Arc<Endpoint> {
        let Origin { listener, share } = origin;
        let inner = Inner {
            conn,
            wakers: WakerSet::default(),
            last: Instant::ZERO,
            timer: Instant::FAR_FUTURE,
            stage,
            // Only a connection opened by Fast Open is in the accept queue from the start.
            early: stage == Stage::Queued,
            read_shut: false,
            edges: Edges::default(),
            gone: false,
            counted_orphan: false,
            counted: None,
            // The packet that created it belongs to a batch.
            touched: listener.is_some(),
            charged: 0,
            buffered: 0,
            memory_ticket: 0,
            share,
            short_of_own: false,
            ident: id.slot as u16,
            sent_to: None,
            panicked: false,
            panics: 0,
            misses: QueueMisses::default(),
            prequeue: None,
        };
        let md5_key = inner.conn.md5_key().cloned();
        let below = BelowUs::default();
        let Way { interface, home, flow_label, completions } = way;
        Arc::new(Endpoint {
            key,
            way: AtomicU16::new(way_bits(interface, home)),
            flow_label,
            id,
            below,
            completions,
            md5_key,
            listener,
            socket: SocketLock::new(inner),
            backlog: Backlog::default(),
            path_reports: PendingReports::default(),
            saved_syn: SavedSyn::default(),
            #[cfg(test)]
            trap: std::sync::Mutex::default(),
        })
    }

    /// Waits until this thread owns the socket. For application threads only.
    pub(crate) fn own(&self) -> Owned<'_> {
        Owned::wait(self)
    }

    /// Owns the socket unless another thread does.
    pub(crate) fn try_own(&self) -> Option<Owned<'_>> {
        Owned::try_own(self)
    }

    /// Sets flags for the owner; returns the socket if its owner has released it meanwhile.
    #[must_use]
    pub(crate) fn leave(&self, marks: u32) -> Option<Owned<'_>> {
        Owned::leave(self, marks)
    }
}

/// A socket that this thread owns.
///
/// A thread that works on the connection releases it with `Work::release`, which does the work that
/// other threads have left. A read-only caller may drop it; the poller then does that work.
pub(crate) type Owned<'a> = socket_lock::Owned<'a, Endpoint>;

impl Place for Endpoint {
    type Value = Inner;

    fn socket(&self) -> &SocketLock<Inner> {
        &self.socket
    }

    fn hand_on(&self) {
        if self.below.enqueue() {
            self.completions[usize::from(self.home())].push(self.id);
        }
    }

    fn owner_unwinds(&self, inner: &mut Inner) {
        self.replace_connection(inner);
    }
}

impl CompletionSink for Endpoint {
    fn complete(&self, bytes: u32, serial: Serial) {
        if self.below.release(bytes, serial.0) {
            self.completions[usize::from(self.home())].push(self.id);
        }
    }

    fn refused(&self, bytes: u32) {
        self.below.refuse(bytes);
    }
}

/// A record of a packet that is passed down.
pub(crate) struct Sent {
    pub(crate) kind: SendKind,
    pub(crate) seq: SeqNum,
    /// Bytes of data.
    pub(crate) len: usize,
    /// The sequence number after its last one, counting SYN and FIN.
    pub(crate) end: SeqNum,
}

impl Sent {
    pub(crate) fn new(out: &Transmit) -> Sent {
        let (seq, len, flags) = (out.repr.seq, out.payload.len(), out.repr.flags);
        let marks = [TcpFlags::SYN, TcpFlags::FIN].map(|flag| u32::from(flags.contains(flag)));
        Sent { kind: out.kind, seq, len, end: seq + (len as u32 + marks[0] + marks[1]) }
    }
}

impl SpaceWaiter for Endpoint {
    fn begin_wait(&self, _interface: u8) -> bool {
        !self.below.set_waits_for_space(true)
    }

    fn end_wait(&self, _interface: u8) -> bool {
        self.below.set_waits_for_space(false)
    }

    fn is_waiting(&self, _interface: u8) -> bool {
        self.below.waits_for_space()
    }

    fn go_on(&self) {
        self.hand_on();
    }
}

impl Inner {
    /// Sets the engine's time to `now`, or keeps the latest earlier time if that is later. Returns
    /// the time set.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant) -> Instant {
        self.last = self.last.max(now);
        self.last
    }

    /// The latest time that the engine was given.
    pub(crate) fn last(&self) -> Instant {
        self.last
    }

    /// Whether it has a place in its listener's Fast Open queue.
    pub(crate) fn is_early(&self) -> bool {
        self.early
    }

    /// Releases its place in the Fast Open queue.
    pub(crate) fn end_early(&mut self) {
        self.early = false;
    }

    /// Shuts the read side.
    pub(crate) fn shut_read(&mut self) {
        self.read_shut = true;
        self.conn.shutdown_read();
    }

    /// Whether the application has shut the read side.
    pub(crate) fn is_read_shut(&self) -> bool {
        self.read_shut
    }

    /// Numbers of events so far that wake a poller.
    pub(crate) fn edges(&self) -> Edges {
        self.edges
    }

    /// Removes it from the connection table.
    pub(crate) fn leave_table(&mut self) {
        self.gone = true;
    }

    /// Whether it has left the connection table.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// The memory by which its queues may grow: the stack's `room`, limited by its listener's
    /// budget and its own.
    #[inline]
    pub(crate) fn bound_room(&self, room: MemoryRoom) -> MemoryRoom {
        let within = |room: MemoryRoom, bound: MemoryRoom| MemoryRoom {
            pressure: room.pressure || bound.pressure,
            bytes: room.bytes.min(bound.bytes),
        };
        let mut room = room;
        if let Some(bound) = self.share.as_ref().and_then(BudgetShare::room) {
            room = within(room, bound);
        }
        if let Some(most) = self.conn.options().memory_budget {
            room = within(room, budget::flow_room(most, self.charged));
        }
        room
    }

    /// Charges `held` bytes of its queues to the budgets. Returns whether that has made memory
    /// short, for its listener or for itself.
    #[inline]
    pub(crate) fn charge_budgets(&mut self, held: usize) -> bool {
        let of_listener = self.share.as_mut().is_some_and(|share| share.charge(held));
        let own = self.conn.options().memory_budget;
        let short = own.is_some_and(|most| budget::is_short(most, self.charged));
        let before = std::mem::replace(&mut self.short_of_own, short);
        of_listener || (short && !before)
    }

    /// Whether memory is short because of its listener's budget or its own.
    pub(crate) fn is_short_of_budget(&self) -> bool {
        self.short_of_own || self.share.as_ref().is_some_and(BudgetShare::is_pressed)
    }

    /// Registers it to be called again when the account that limits it has memory: the stack's,
    /// with the limits `tcp_mem`, or its listener's. It does not wait for an account that has more
    /// memory for it than the other, since each release there would call it in vain. Its own budget
    /// is not an account; the memory that it frees itself settles it.
    pub(crate) fn wait_for_memory(
        &mut self,
        id: ConnectionId,
        stack: &MemoryAccount,
        tcp_mem: &[u64; 3],
    ) {
        // Each is read once: other threads change them, and one of the values read must be the
        // least.
        let of_stack = stack.room(tcp_mem, self.charged).bytes;
        let of_listener = self.share.as_ref().and_then(BudgetShare::room).map(|room| room.bytes);
        let own = self.conn.options().memory_budget;
        let own = own.map(|most| budget::flow_room(most, self.charged).bytes);
        let least = of_listener.into_iter().chain(own).fold(of_stack, u32::min);
        if of_stack == least {
            stack.wait(id, &mut self.memory_ticket, tcp_mem);
        }
        if of_listener == Some(least)
            && let Some(share) = &mut self.share
        {
            share.wait(id);
        }
    }

    /// The application begins to fill a buffer of `bytes`.
    pub(crate) fn begin_buffer(&mut self, bytes: usize) {
        self.buffered = self.buffered.saturating_add(bytes as u32);
    }

    /// The application has passed a buffer of `bytes` to `hand_over`.
    pub(crate) fn end_buffer(&mut self, bytes: usize) {
        self.buffered = self.buffered.saturating_sub(bytes as u32);
    }

    /// Bytes of buffers that the application fills.
    pub(crate) fn buffered(&self) -> usize {
        self.buffered as usize
    }

    /// Releases its place in its listener's budget.
    pub(crate) fn leave_budget(&mut self) {
        if let Some(share) = &mut self.share {
            share.leave();
        }
    }

    /// Counts it as an orphan from now on.
    pub(crate) fn count_orphan(&mut self) {
        self.counted_orphan = true;
    }

    /// Ends its count as an orphan. Returns whether it was counted.
    pub(crate) fn uncount_orphan(&mut self) -> bool {
        std::mem::take(&mut self.counted_orphan)
    }

    /// The state in which it is counted.
    pub(crate) fn counted(&self) -> Option<State> {
        self.counted
    }

    /// Counts it in `state` from now on. Returns the previous state.
    pub(crate) fn count_in(&mut self, state: Option<State>) -> Option<State> {
        std::mem::replace(&mut self.counted, state)
    }

    /// Flags it to be settled at the end of the batch. Returns whether it was not flagged before.
    pub(crate) fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.touched, true)
    }

    /// Whether it will be settled at the end of the batch.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Clears the flag before it is settled.
    pub(crate) fn untouch(&mut self) {
        self.touched = false;
    }

    /// The sequence number after all sent data, once something was sent.
    pub(crate) fn sent_to(&self) -> Option<SeqNum> {
        self.sent_to
    }

    /// Replaces a connection that a panic left half changed by the connection `ended`.
    pub(crate) fn replace(&mut self, ended: Connection) -> Connection {
        self.panicked = true;
        self.panics = self.panics.saturating_add(1);
        if self.panics > MOST_PANICS {
            // Even its removal panics. It stays in the table, and no thread uses it any more.
            self.gone = true;
        }
        std::mem::replace(&mut self.conn, ended)
    }

    /// Whether its connection was replaced since the last call.
    pub(crate) fn take_panicked(&mut self) -> bool {
        std::mem::take(&mut self.panicked)
    }

    /// The number of panics that have left its connection half changed.
    pub(crate) fn panics(&self) -> u8 {
        self.panics
    }

    /// Records the end of the sent stream.
    #[inline]
    pub(crate) fn note_sent(&mut self, end: SeqNum) {
        self.sent_to = Some(self.sent_to.map_or(end, |before| before.max(end)));
    }

    /// Counts the events that wake a poller.
    #[inline]
    pub(crate) fn note_edge(&mut self, events: Events) {
        let any = |of: &[Events]| u32::from(of.iter().any(|&event| events.contains(event)));
        let edges = &mut self.edges;
        edges.input = edges.input.wrapping_add(any(&[Events::READABLE]));
        edges.output = edges.output.wrapping_add(any(&[Events::CONNECTED, Events::WRITABLE]));
        let ended = any(&[Events::ERROR, Events::REPORT, Events::CLOSED]);
        edges.error = edges.error.wrapping_add(ended);
    }

    /// Whether a read would return at once.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        let conn = &self.conn;
        conn.is_readable()
            || conn.read_closed()
            || self.read_shut
            || conn.error().is_some()
            || conn.state() == State::Closed
    }

    /// See [`TcpSocket::readiness`](crate::TcpSocket::readiness).
    pub(crate) fn readiness(&mut self, config: &Config) -> Readiness {
        let writable = self.is_writable(config);
        if !writable {
            self.conn.poll_writable(config);
        }
        let read_closed = self.conn.read_closed() || self.read_shut;
        let closed = self.conn.state() == State::Closed;
        Readiness {
            readable: self.is_readable(),
            writable,
            read_closed: read_closed || closed,
            hung_up: closed || (read_closed && self.conn.state().sent_fin()),
            error: self.conn.has_error(),
            report: self.conn.has_report(),
            edges: self.edges,
        }
    }

    /// Whether a write would return at once.
    pub(crate) fn is_writable(&self, config: &Config) -> bool {
        let conn = &self.conn;
        let ended = matches!(
            conn.state(),
            State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
                | State::TimeWait
                | State::Closed
        );
        ended || conn.error().is_some() || conn.is_deferred() || conn.writable(config) > 0
    }
}

/// After this many panics of one connection no thread uses it any more.
pub(crate) const MOST_PANICS: u8 = 4;

/// The point at which a test makes the stack panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Segment,
    Timer,
    Completion,
    Settle,
    Write,
    Read,
    Look,
    /// Each time that it is settled.
    #[cfg_attr(not(test), allow(dead_code, reason = "only tests set it"))]
    EverySettle,
    /// During the removal from the tables.
    Remove,
}
