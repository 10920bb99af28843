//! What the stack keeps for one UDP socket: where it is bound, what has arrived, who waits.
//!
//! # Locks
//!
//! The state of a socket is under its own lock, which is a leaf: it is held for one look or for the
//! copy of one datagram, and nobody locks anything else or wakes anybody while holding it. There is
//! no owner and no backlog as there is for a connection: taking a datagram in is short.
//!
//! # The send queue
//!
//! A datagram is charged when it enters the queueing discipline of its interface and released when
//! the device is done with it ([`BelowUs`]). What is charged and not released is the send queue,
//! which SO_SNDBUF bounds. A writer that finds it full marks the socket; a completion then puts it
//! into the queue of those that may go on, as for a connection.
//!
//! A datagram that the queueing discipline refuses is the caller's again. The socket then takes no
//! writer for ready until the discipline of some interface that has refused it has space.

pub(crate) mod flow;
pub(crate) mod options;
pub(crate) mod receive_queue;
pub(crate) mod stream_rate;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use plimsoll_buf::{Pool, Slices};
use plimsoll_tcp::{Instant, Serial};

use crate::connection_id::ConnectionId;
use crate::error::SocketError;
use crate::interfaces::space::SpaceWaiter;
use crate::limits::{DATAGRAM_OVERHEAD, MAX_INTERFACES, UDP_MINIMUM};
use crate::packet::CompletionSink;
use crate::pollers::completion::{BelowUs, Completions};
use crate::sockets::summary::UdpSocketSummary;
use crate::sockets::udp::flow::Flow;
use crate::sockets::udp::options::UdpOptions;
use crate::sockets::udp::receive_queue::{DatagramInfo, ReceiveQueue, Received, cost_of};
use crate::sockets::udp::stream_rate::StreamRate;
use crate::sockets::wakers::{Interest, WaitKey, WakeList, WakerSet};
use crate::sync::lock;
use crate::zone;

/// It waits for no interface any more.
const CLOSED: u32 = 1 << MAX_INTERFACES;

/// What the tables refer to.
pub(crate) struct UdpEndpoint {
    /// Its place in the table.
    pub(crate) id: ConnectionId,
    /// The queue of the stack that works for it.
    pub(crate) home: u8,
    pub(crate) kind: UdpKind,
    below: BelowUs,
    completions: Arc<Completions>,
    /// IPv4 identification of the next packet that may be fragmented on its way.
    ident: AtomicU16,
    /// Bit `i`: it waits for space of interface `i`. Written under the lock of that one's queue.
    /// Beside them [`CLOSED`].
    waits_for: AtomicU32,
    /// A datagram was refused, and it was not called since because there is space.
    refused: AtomicBool,
    state: Mutex<State>,
}

/// Which datagrams a socket takes, and so which table has it.
pub(crate) enum UdpKind {
    /// Those to its address and port.
    Bound,
    /// Those of one peer, for as long as it lives. It ends when it is idle.
    Flow(Box<Flow>),
    /// Those to any address, ours or not, and to its port, or with port 0 to every port that no
    /// other socket has.
    AnyAddress,
}

struct State {
    local: SocketAddr,
    peer: Option<SocketAddr>,
    options: UdpOptions,
    queue: ReceiveQueue,
    /// Something was read since the devices were last left to the reader.
    has_read: bool,
    rate: StreamRate,
    /// Its reader is woken by the devices as well.
    watches_devices: bool,
    /// What the packet that arrived last cost, in bytes.
    latest_cost: usize,
    /// What the account of memory has it for, in bytes.
    charged: usize,
    /// What the next call reports, once.
    error: Option<SocketError>,
    /// Every call reports it from now on.
    end: Option<SocketError>,
    wakers: WakerSet,
}

/// What became of a datagram that is for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Queued,
    /// The queue has reached SO_RCVBUF.
    Full,
    /// All sockets together have reached `udp_mem`.
    NoMemory,
    /// The socket has been closed.
    Closed,
}

/// Who had better look into the devices next, as far as one socket is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPoll {
    ByPoller,
    /// Its reader is at work, and will look by itself when it has read what waits: half of
    /// SO_RCVBUF or more does, or it carries a stream and its reader watches the devices.
    ByReader,
}

impl State {
    /// Reads with `read`, or says why nothing can be read.
    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut ReceiveQueue) -> Option<T>,
    ) -> Result<T, SocketError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        read(&mut self.queue).ok_or_else(|| self.end.unwrap_or(SocketError::WouldBlock))
    }

    /// Whether it carries a stream, and its reader is woken by the devices while it does.
    fn streams(&self, now: Instant) -> bool {
        self.watches_devices && self.rate.is_stream(now)
    }

    /// Leaves the devices to the reader once for each time that it was at work: no thread waits for
    /// a reader that does nothing.
    fn next_poll(&mut self, now: Instant) -> NextPoll {
        let behind = self.queue.cost() >= self.options.rcvbuf / 2;
        match (behind || self.streams(now)) && std::mem::take(&mut self.has_read) {
            true => NextPoll::ByReader,
            false => NextPoll::ByPoller,
        }
    }
}

/// What sending needs to know of a socket, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendView {
    pub(crate) local: SocketAddr,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) options: UdpOptions,
    /// What is sent counts for its [rate](StreamRate).
    pub(crate) watches_devices: bool,
}

impl UdpEndpoint {
    pub(crate) fn new(
        (id, home, completions): (ConnectionId, u8, Arc<Completions>),
        (local, peer): (SocketAddr, Option<SocketAddr>),
        options: UdpOptions,
        kind: UdpKind,
    ) -> UdpEndpoint {
        let state = State {
            local,
            peer,
            options,
            queue: ReceiveQueue::default(),
            has_read: false,
            rate: StreamRate::default(),
            watches_devices: false,
            latest_cost: 0,
            charged: 0,
            error: None,
            end: None,
            wakers: WakerSet::default(),
        };
        UdpEndpoint {
            id,
            home,
            kind,
            below: BelowUs::default(),
            completions,
            ident: AtomicU16::new(id.slot as u16 ^ id.generation as u16),
            waits_for: AtomicU32::new(0),
            refused: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// What makes it a flow, if it is one.
    pub(crate) fn flow(&self) -> Option<&Flow> {
        match &self.kind {
            UdpKind::Flow(flow) => Some(flow),
            UdpKind::Bound | UdpKind::AnyAddress => None,
        }
    }

    /// The address that it is bound to. After a connect it is the one that its packets come from.
    pub(crate) fn local(&self) -> SocketAddr {
        lock(&self.state).local
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        lock(&self.state).peer
    }

    /// Connects it, or takes the peer away again.
    pub(crate) fn set_addresses(&self, local: SocketAddr, peer: Option<SocketAddr>) {
        let mut state = lock(&self.state);
        state.local = local;
        state.peer = peer;
        state.error = None;
    }

    pub(crate) fn options(&self) -> UdpOptions {
        lock(&self.state).options
    }

    pub(crate) fn change_options<T>(&self, change: impl FnOnce(&mut UdpOptions) -> T) -> T {
        change(&mut lock(&self.state).options)
    }

    /// What sending needs to know.
    ///
    /// # Errors
    /// What an earlier packet met with, once, and why the socket has ended.
    pub(crate) fn send_view(&self) -> Result<SendView, SocketError> {
        let mut state = lock(&self.state);
        if let Some(error) = state.end.or(state.error.take()) {
            return Err(error);
        }
        let State { local, peer, options, watches_devices, .. } = *state;
        Ok(SendView { local, peer, options, watches_devices })
    }

    /// So many bytes were sent. Who sends a stream reads what acknowledges it.
    pub(crate) fn note_sent(&self, now: Instant, bytes: usize) {
        lock(&self.state).rate.note(now, bytes);
    }

    /// An IPv4 identification, and the `count - 1` that follow it.
    pub(crate) fn idents(&self, count: u16) -> u16 {
        self.ident.fetch_add(count, Ordering::Relaxed)
    }

    /// Takes a datagram, or a train of datagrams of `stride` bytes, in. `charge` is told what the
    /// account has for the socket and what the queue would pin, and returns what it has from now
    /// on, or `None` if there is no memory.
    pub(crate) fn deliver(
        &self,
        now: Instant,
        info: &DatagramInfo,
        (payload, stride): (&Slices, Option<usize>),
        pool: &Pool,
        charge: impl FnOnce(usize, usize) -> Option<usize>,
        wakers: &mut WakeList,
    ) -> (Delivery, NextPoll) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        if state.end.is_some() {
            return (Delivery::Closed, NextPoll::ByPoller);
        }
        if state.queue.cost() >= state.options.rcvbuf {
            return (Delivery::Full, state.next_poll(now));
        }
        state.latest_cost = cost_of(payload.len(), stride);
        match charge(state.charged, state.queue.pinned_with(payload, stride)) {
            Some(charged) => {
                state.charged = charged;
                state.queue.push(info, payload, stride, pool);
            }
            // The minimum that every socket has.
            None if state.queue.is_empty() && payload.len() <= UDP_MINIMUM => {
                state.queue.push_smallest(info, payload, stride, pool);
            }
            None => return (Delivery::NoMemory, state.next_poll(now)),
        }
        state.wakers.take(Interest::Read, wakers);
        (Delivery::Queued, state.next_poll(now))
    }

    /// How many packets as the last one an empty receive queue takes.
    pub(crate) fn takes_packets(&self) -> usize {
        let state = lock(&self.state);
        state.options.rcvbuf.div_ceil(state.latest_cost.max(DATAGRAM_OVERHEAD))
    }

    /// Says whether its reader is woken by the devices as well.
    pub(crate) fn set_watches_devices(&self, watches: bool) {
        lock(&self.state).watches_devices = watches;
    }

    /// Whether it carries a stream, and its reader is woken by the devices while it does.
    pub(crate) fn streams(&self, now: Instant) -> bool {
        lock(&self.state).streams(now)
    }

    /// Reads with `read`. `charge` is as in [`deliver`](Self::deliver), and cannot refuse.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing; what an earlier packet met with, once; why it has ended.
    pub(crate) fn receive<T>(
        &self,
        now: Instant,
        read: impl FnOnce(&mut ReceiveQueue) -> Option<T>,
        charge: impl FnOnce(usize, usize) -> usize,
    ) -> Result<T, SocketError> {
        let mut state = lock(&self.state);
        let before = state.queue.cost();
        let value = state.read(read)?;
        state.charged = charge(state.charged, state.queue.pinned());
        state.has_read = true;
        let bytes = before.saturating_sub(state.queue.cost());
        state.rate.note(now, bytes);
        Ok(value)
    }

    /// Looks at the first datagram.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> Result<Received, SocketError> {
        lock(&self.state).read(|queue| queue.peek(buf))
    }

    /// An earlier packet has met with `error`, which the next call reports.
    pub(crate) fn fail(&self, error: SocketError, wakers: &mut WakeList) {
        let mut state = lock(&self.state);
        state.error = Some(error);
        state.wakers.take_all(wakers);
    }

    /// The error that the next call would report, which it does not then (SO_ERROR).
    pub(crate) fn take_error(&self) -> Option<SocketError> {
        lock(&self.state).error.take()
    }

    /// Every call reports `error` from now on, a read when the queue is empty. Returns whether it
    /// had not ended before.
    pub(crate) fn end(&self, error: SocketError, wakers: &mut WakeList) -> bool {
        let mut state = lock(&self.state);
        let first = state.end.is_none();
        state.end.get_or_insert(error);
        state.wakers.take_all(wakers);
        first
    }

    /// The application has released it: drops what was not read. Returns what the account has for
    /// it.
    pub(crate) fn close(&self, wakers: &mut WakeList) -> usize {
        let mut state = lock(&self.state);
        state.end.get_or_insert(SocketError::Closed);
        state.wakers.take_all(wakers);
        state.queue.clear();
        std::mem::take(&mut state.charged)
    }

    /// Whether a read would not block, which it does not either once `ended` says so; if it would,
    /// `waker` waits. Returns a waker to be dropped without a lock as well.
    pub(crate) fn register_reader(
        &self,
        key: Option<WaitKey>,
        waker: &Waker,
        ended: impl FnOnce() -> bool,
    ) -> (bool, Option<Waker>) {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        let has = !state.queue.is_empty() || state.error.is_some() || state.end.is_some();
        let ready = has || ended();
        (ready, state.wakers.answer(ready, Interest::Read, key, &mut waker))
    }

    /// As [`register_reader`](Self::register_reader), for a writer.
    pub(crate) fn register_writer(
        &self,
        key: Option<WaitKey>,
        waker: &Waker,
        ended: impl FnOnce() -> bool,
    ) -> (bool, Option<Waker>) {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        let stopped = state.error.is_some() || state.end.is_some() || ended();
        let space = !self.is_refused() && self.may_go_on(state.options.sndbuf, Level::Any);
        let ready = stopped || space;
        (ready, state.wakers.answer(ready, Interest::Write, key, &mut waker))
    }

    /// Whether a read would not block, and whether a send would not, and whether an error waits.
    pub(crate) fn readiness(&self) -> (bool, bool, bool) {
        let state = lock(&self.state);
        let (error, ended) = (state.error.is_some(), state.end.is_some());
        let readable = error || ended || !state.queue.is_empty();
        let (bytes, _) = self.below.get();
        let space = bytes == 0 || (bytes as usize) < state.options.sndbuf;
        (readable, error || ended || space && !self.is_refused(), error)
    }

    /// Whether the queueing discipline has refused a datagram, and there was no space since.
    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// The application has released it: it begins to wait for no interface any more. Returns for
    /// which it waits: bit `i` for interface `i`.
    pub(crate) fn end_waits(&self) -> u32 {
        self.waits_for.fetch_or(CLOSED, Ordering::Relaxed) & !CLOSED
    }

    /// Whether the send queue takes a datagram now, whatever its size. If it does not, a completion
    /// has the socket gone on with.
    pub(crate) fn has_send_space(&self, sndbuf: usize) -> bool {
        self.may_go_on(sndbuf, Level::Any)
    }

    fn may_go_on(&self, sndbuf: usize, level: Level) -> bool {
        let mark = match level {
            Level::Any => sndbuf,
            Level::Half => sndbuf / 2,
        };
        loop {
            let (bytes, _) = self.below.get();
            if bytes == 0 || (bytes as usize) < mark {
                return true;
            }
            if !self.below.throttle(bytes) {
                return false;
            }
        }
    }

    /// It was taken from the queue of those that may go on, after a completion or because there is
    /// space: wakes the writers when half of the send queue is free.
    pub(crate) fn take_up(&self, wakers: &mut WakeList) {
        self.below.take_up();
        self.refused.store(false, Ordering::Relaxed);
        // Who registers after this has the lock sees that it may go on.
        let mut state = lock(&self.state);
        if !state.wakers.is_waiting(Interest::Write) {
            return;
        }
        if self.may_go_on(state.options.sndbuf, Level::Half) {
            state.wakers.take(Interest::Write, wakers);
        }
    }

    /// A datagram that costs `bytes` is on its way down. Its completion takes it off again.
    pub(crate) fn charge_below(&self, bytes: u32) {
        self.below.charge(bytes);
    }

    /// Bytes below.
    pub(crate) fn send_queue_len(&self) -> usize {
        self.below.get().0 as usize
    }

    /// Bytes of the datagram that is read next, and datagrams that wait.
    pub(crate) fn readable(&self) -> (Option<usize>, usize) {
        let state = lock(&self.state);
        (state.queue.next_len(), state.queue.len())
    }

    /// What `ss` tells of it.
    pub(crate) fn summary(&self) -> UdpSocketSummary {
        let state = lock(&self.state);
        UdpSocketSummary {
            local: zone::show(state.local),
            remote: state.peer.map(zone::show),
            recv_queue: state.queue.cost(),
            send_queue: self.below.get().0 as usize,
            datagrams: state.queue.len(),
            memory: state.charged,
        }
    }

    /// Takes the waker out that waits under `key`.
    pub(crate) fn cancel(&self, interest: Interest, key: WaitKey) -> Option<Waker> {
        lock(&self.state).wakers.cancel(interest, key)
    }

    /// Whether it is connected to `remote`.
    pub(crate) fn is_connected_to(&self, remote: SocketAddr) -> bool {
        lock(&self.state).peer == Some(remote)
    }
}

/// How empty the send queue has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Below SO_SNDBUF.
    Any,
    /// Below half of it, so that a writer is not woken for every packet.
    Half,
}

impl CompletionSink for UdpEndpoint {
    fn complete(&self, bytes: u32, serial: Serial) {
        if self.below.release(bytes, serial.0) {
            self.completions.push(self.id);
        }
    }

    fn refused(&self, bytes: u32) {
        // Another thread may have found the send queue full because of it, and wait for that.
        self.complete(bytes, Serial(0));
    }
}

impl SpaceWaiter for UdpEndpoint {
    fn begin_wait(&self, interface: u8) -> bool {
        self.refused.store(true, Ordering::Relaxed);
        let bit = 1 << interface;
        let begin = |waits: u32| (waits & (bit | CLOSED) == 0).then_some(waits | bit);
        self.waits_for.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin).is_ok()
    }

    fn end_wait(&self, interface: u8) -> bool {
        let bit = 1 << interface;
        self.waits_for.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    fn is_waiting(&self, interface: u8) -> bool {
        self.waits_for.load(Ordering::Relaxed) & (1 << interface) != 0
    }

    fn go_on(&self) {
        if self.below.enqueue() {
            self.completions.push(self.id);
        }
    }
}

impl std::fmt::Debug for UdpEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpEndpoint").field("id", &self.id).finish_non_exhaustive()
    }
}
