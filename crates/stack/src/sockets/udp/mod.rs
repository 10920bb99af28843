//! The state of one UDP socket: its addresses, its received datagrams, and its waiters.
//!
//! # Locks
//!
//! The state of a socket is under its own lock, which is a leaf: a thread holds it for one look or
//! for the copy of one datagram. It takes no other lock and calls no waker meanwhile. Unlike a
//! connection, the socket has no owner and no backlog, since queueing a datagram is short.
//!
//! # The send queue
//!
//! A datagram is charged when it enters its interface's queueing discipline and released when the
//! device has finished with it ([`BelowUs`]). The datagrams charged and not released are the send
//! queue, which SO_SNDBUF limits. A writer that finds it full flags the socket. A completion then
//! puts the socket into the queue of sockets that may continue, as for a connection.
//!
//! A datagram that the queueing discipline refuses is returned to the caller. The socket then
//! counts as not writable until the discipline of an interface that has refused it has space.

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

/// It no longer waits for any interface.
const CLOSED: u32 = 1 << MAX_INTERFACES;

/// A UDP socket, as the tables refer to it.
pub(crate) struct UdpEndpoint {
    /// Its place in the table.
    pub(crate) id: ConnectionId,
    /// The queue of the stack that works for it.
    pub(crate) home: u8,
    pub(crate) kind: UdpKind,
    below: BelowUs,
    completions: Arc<Completions>,
    /// The IPv4 identification of the next packet that may be fragmented.
    ident: AtomicU16,
    /// Bit `i`: it waits for space of interface `i`. Written under the lock of that interface's
    /// queue. [`CLOSED`] is a further bit.
    waits_for: AtomicU32,
    /// A datagram was refused, and the socket has not been woken for space since.
    refused: AtomicBool,
    state: Mutex<State>,
}

/// The datagrams that a socket accepts, which select the table that it is in.
pub(crate) enum UdpKind {
    /// Datagrams to its address and port.
    Bound,
    /// Datagrams of one peer. The flow ends when it is idle.
    Flow(Box<Flow>),
    /// Datagrams to its port at any address, local or not. With port 0, to every port that no other
    /// socket has.
    AnyAddress,
}

struct State {
    local: SocketAddr,
    peer: Option<SocketAddr>,
    options: UdpOptions,
    queue: ReceiveQueue,
    /// Data was read since the devices were last left to the reader.
    has_read: bool,
    rate: StreamRate,
    /// Devices wake its reader as well.
    watches_devices: bool,
    /// The cost of the latest packet, in bytes.
    latest_cost: usize,
    /// The bytes charged to the memory account for it.
    charged: usize,
    /// The error that the next call reports, once.
    error: Option<SocketError>,
    /// The error that every call reports from now on.
    end: Option<SocketError>,
    wakers: WakerSet,
}

/// The outcome of delivering a datagram to a socket.
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

/// The thread that should poll the devices next, as far as this socket is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPoll {
    ByPoller,
    /// Its reader is active, and will poll the devices itself when it has read the queue: at least
    /// half of SO_RCVBUF waits, or the socket carries a stream and its reader watches the devices.
    ByReader,
}

impl State {
    /// Reads with `read`, or returns the reason why nothing can be read.
    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut ReceiveQueue) -> Option<T>,
    ) -> Result<T, SocketError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        read(&mut self.queue).ok_or_else(|| self.end.unwrap_or(SocketError::WouldBlock))
    }

    /// Whether it carries a stream, during which the devices wake its reader.
    fn streams(&self, now: Instant) -> bool {
        self.watches_devices && self.rate.is_stream(now)
    }

    /// Leaves the devices to the reader once for each time that it has read, so that no thread
    /// waits for an inactive reader.
    fn next_poll(&mut self, now: Instant) -> NextPoll {
        let behind = self.queue.cost() >= self.options.rcvbuf / 2;
        match (behind || self.streams(now)) && std::mem::take(&mut self.has_read) {
            true => NextPoll::ByReader,
            false => NextPoll::ByPoller,
        }
    }
}

/// A snapshot of the socket's state that sending needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendView {
    pub(crate) local: SocketAddr,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) options: UdpOptions,
    /// Sent bytes count for the socket's [rate](StreamRate).
    pub(crate) watches_devices: bool,
    /// It is a flow, which may answer from any port.
    pub(crate) is_flow: bool,
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

    /// The state of a flow, if it is one.
    pub(crate) fn flow(&self) -> Option<&Flow> {
        match &self.kind {
            UdpKind::Flow(flow) => Some(flow),
            UdpKind::Bound | UdpKind::AnyAddress => None,
        }
    }

    /// Its bound address. After a connect, the source address of its packets.
    pub(crate) fn local(&self) -> SocketAddr {
        lock(&self.state).local
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        lock(&self.state).peer
    }

    /// Sets its addresses: connects it, or removes the peer.
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

    /// The state that sending needs.
    ///
    /// # Errors
    /// The error of an earlier packet, once, and the reason why the socket has ended.
    pub(crate) fn send_view(&self) -> Result<SendView, SocketError> {
        let mut state = lock(&self.state);
        if let Some(error) = state.end.or(state.error.take()) {
            return Err(error);
        }
        let State { local, peer, options, watches_devices, .. } = *state;
        let is_flow = self.flow().is_some();
        Ok(SendView { local, peer, options, watches_devices, is_flow })
    }

    /// Records the number of bytes sent. The sender of a stream reads the acknowledgements.
    pub(crate) fn note_sent(&self, now: Instant, bytes: usize) {
        lock(&self.state).rate.note(now, bytes);
    }

    /// Reserves `count` consecutive IPv4 identifications and returns the first.
    pub(crate) fn idents(&self, count: u16) -> u16 {
        self.ident.fetch_add(count, Ordering::Relaxed)
    }

    /// Queues a datagram, or a train of datagrams of `stride` bytes. `charge` gets the bytes
    /// charged for the socket so far and the bytes that the queue would use. It returns the new
    /// charge, or `None` if there is no memory.
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
            // Every socket may queue this minimum.
            None if state.queue.is_empty() && payload.len() <= UDP_MINIMUM => {
                state.queue.push_smallest(info, payload, stride, pool);
            }
            None => return (Delivery::NoMemory, state.next_poll(now)),
        }
        state.wakers.take(Interest::Read, wakers);
        (Delivery::Queued, state.next_poll(now))
    }

    /// The number of packets as large as the latest that an empty receive queue takes.
    pub(crate) fn takes_packets(&self) -> usize {
        let state = lock(&self.state);
        state.options.rcvbuf.div_ceil(state.latest_cost.max(DATAGRAM_OVERHEAD))
    }

    /// Sets whether devices wake its reader as well.
    pub(crate) fn set_watches_devices(&self, watches: bool) {
        lock(&self.state).watches_devices = watches;
    }

    /// Whether it carries a stream, during which the devices wake its reader.
    pub(crate) fn streams(&self, now: Instant) -> bool {
        lock(&self.state).streams(now)
    }

    /// Reads with `read`. `charge` is as in [`deliver`](Self::deliver), and cannot refuse.
    ///
    /// # Errors
    /// `WouldBlock` if the queue is empty; the error of an earlier packet, once; the reason why the
    /// socket has ended.
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

    /// Copies the first datagram without removing it.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> Result<Received, SocketError> {
        lock(&self.state).read(|queue| queue.peek(buf))
    }

    /// Records the error of an earlier packet, which the next call reports.
    pub(crate) fn fail(&self, error: SocketError, wakers: &mut WakeList) {
        let mut state = lock(&self.state);
        state.error = Some(error);
        state.wakers.take_all(wakers);
    }

    /// Takes the error that the next call would report (SO_ERROR).
    pub(crate) fn take_error(&self) -> Option<SocketError> {
        lock(&self.state).error.take()
    }

    /// Every call reports `error` from now on, a read once the queue is empty. Returns whether the
    /// socket had not ended before.
    pub(crate) fn end(&self, error: SocketError, wakers: &mut WakeList) -> bool {
        let mut state = lock(&self.state);
        let first = state.end.is_none();
        state.end.get_or_insert(error);
        state.wakers.take_all(wakers);
        first
    }

    /// Called when the application has released the socket: drops its unread datagrams. Returns the
    /// bytes charged for it.
    pub(crate) fn close(&self, wakers: &mut WakeList) -> usize {
        let mut state = lock(&self.state);
        state.end.get_or_insert(SocketError::Closed);
        state.wakers.take_all(wakers);
        state.queue.clear();
        std::mem::take(&mut state.charged)
    }

    /// Whether a read would not block, or `ended` is set; otherwise `waker` is registered. Returns
    /// a waker that must be dropped without a lock as well.
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

    /// Whether a read would not block, whether a send would not block, and whether there is an
    /// error.
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

    /// Called when the application has released the socket: from now on it waits for no interface.
    /// Returns the interfaces for which it waits: bit `i` for interface `i`.
    pub(crate) fn end_waits(&self) -> u32 {
        self.waits_for.fetch_or(CLOSED, Ordering::Relaxed) & !CLOSED
    }

    /// Whether the send queue accepts a datagram now, whatever its size. If not, a later completion
    /// puts the socket into the queue of sockets that may continue.
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

    /// Called when the socket is taken from the queue of sockets that may continue, after a
    /// completion or when there is space: wakes the writers when half of the send queue is free.
    pub(crate) fn take_up(&self, wakers: &mut WakeList) {
        self.below.take_up();
        self.refused.store(false, Ordering::Relaxed);
        // A writer that registers after this thread has the lock sees that it may continue.
        let mut state = lock(&self.state);
        if !state.wakers.is_waiting(Interest::Write) {
            return;
        }
        if self.may_go_on(state.options.sndbuf, Level::Half) {
            state.wakers.take(Interest::Write, wakers);
        }
    }

    /// Charges a datagram of cost `bytes` that is passed down. Its completion releases it.
    pub(crate) fn charge_below(&self, bytes: u32) {
        self.below.charge(bytes);
    }

    /// Bytes passed down and not completed.
    pub(crate) fn send_queue_len(&self) -> usize {
        self.below.get().0 as usize
    }

    /// The length of the next datagram, and the number of queued datagrams.
    pub(crate) fn readable(&self) -> (Option<usize>, usize) {
        let state = lock(&self.state);
        (state.queue.next_len(), state.queue.len())
    }

    /// The figures that `ss` shows.
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

    /// Removes the waker that waits under `key`.
    pub(crate) fn cancel(&self, interest: Interest, key: WaitKey) -> Option<Waker> {
        lock(&self.state).wakers.cancel(interest, key)
    }

    /// Whether it is connected to `remote`.
    pub(crate) fn is_connected_to(&self, remote: SocketAddr) -> bool {
        lock(&self.state).peer == Some(remote)
    }
}

/// How much of the send queue must be free.
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
        // Another thread may have found the send queue full because of this datagram, and wait.
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
