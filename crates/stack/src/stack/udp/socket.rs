//! A UDP socket as the layer above sees it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_buf::{Slice, Slices};
use plimsoll_tcp::{Duration, Instant};

use crate::device::WaitSource;
use crate::error::SocketError;
use crate::limits::{DATAGRAM_OVERHEAD, RX_BATCH};
use crate::sockets::udp::options::UdpOptions;
use crate::sockets::udp::receive_queue::{ReceiveQueue, Received};
use crate::sockets::udp::{UdpEndpoint, UdpKind};
use crate::sockets::wakers::{Interest, WaitKey};
use crate::stack::Stack;
use crate::stack::udp::input::counters_of;
use crate::stack::udp::output::{Payload, UdpTransmit};
use crate::zone;

/// A UDP socket that an application holds. No call blocks.
///
/// Readiness is as for a [`TcpSocket`](crate::TcpSocket): call one of the `poll_*` or `wait_*`
/// methods with a waker. Several threads may use one socket at the same time.
///
/// Addresses are those of the packets: a socket that is bound to `[::]` reports an IPv4 sender by
/// its IPv4 address, and sends to IPv4 addresses. Linux uses addresses like `::ffff:192.0.2.1`,
/// which are accepted as well.
///
/// Dropping the socket closes it. Datagrams that were sent still leave.
pub struct UdpSocket {
    stack: Arc<Stack>,
    endpoint: Arc<UdpEndpoint>,
}

impl UdpSocket {
    pub(crate) fn new(stack: Arc<Stack>, endpoint: Arc<UdpEndpoint>) -> Arc<UdpSocket> {
        Arc::new(UdpSocket { stack, endpoint })
    }

    pub(super) fn endpoint(&self) -> &Arc<UdpEndpoint> {
        &self.endpoint
    }

    /// Connects it: from now on it receives datagrams of `remote` only, sends to it, and reports
    /// ICMP errors. Datagrams that arrived before stay.
    ///
    /// # Errors
    /// If there is no route, or the socket is a flow or a socket for any address.
    pub fn connect(&self, now: Instant, remote: SocketAddr) -> Result<(), SocketError> {
        self.stack.pollers.tell(now);
        // A wildcard becomes the address that the routes select; the one of an earlier connect
        // stays.
        let asked = self.endpoint.local().ip();
        self.stack.connect_udp(&self.endpoint, remote, asked)
    }

    /// Sends all of `parts` as one datagram and returns its length. With
    /// [`segment_size`](UdpTransmit::segment_size) it is several datagrams.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if the send queue or the interface's queue is full: nothing was
    /// sent then. [`SocketError::MessageTooLong`] if the datagram is longer than 65,507 bytes
    /// (IPv4) or 65,527 (IPv6), or longer than the path's MTU and must not be fragmented. The ICMP
    /// error of an earlier datagram, once. Other errors if there is no destination, no route, or
    /// the source address is not local.
    pub fn send(
        &self,
        now: Instant,
        how: &UdpTransmit,
        parts: &[&[u8]],
    ) -> Result<usize, SocketError> {
        self.known(self.stack.send_udp(now, &self.endpoint, how, Payload::Parts(parts)))
    }

    /// As [`send`](Self::send), but the bytes are sent by reference.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_shared(
        &self,
        now: Instant,
        how: &UdpTransmit,
        payload: &Slices,
    ) -> Result<usize, SocketError> {
        self.known(self.stack.send_udp(now, &self.endpoint, how, Payload::Shared(payload)))
    }

    /// Sends `data` for a protocol that expects loss, as QUIC does. With
    /// [`segment_size`](UdpTransmit::segment_size) it may be longer than one [send](Self::send)
    /// takes, and leaves as several. Datagrams that cannot be sent are lost
    /// (`plimsoll.UdpSendsLost`): they are too long for the path, there is no route, or an ICMP
    /// error was pending.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if the send queue or the queue of the interface is full, and
    /// [`SocketError::NetworkDown`]: nothing was sent then.
    pub fn send_or_lose(
        &self,
        now: Instant,
        how: &UdpTransmit,
        data: &[u8],
    ) -> Result<(), SocketError> {
        self.known(self.stack.send_udp_or_lose(now, &self.endpoint, how, data))
    }

    /// Reads the next datagram. Bytes that do not fit `buf` are lost; [`Received::stride`] is its
    /// whole length.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is none. An ICMP error, once. `ETIMEDOUT` if it is a
    /// flow that has ended.
    pub fn recv(&self, now: Instant, buf: &mut [u8]) -> Result<Received, SocketError> {
        self.receive(now, |queue| queue.read(buf))
    }

    /// As [`recv`](Self::recv), but reads several consecutive datagrams of one sender and one
    /// length, if they fit `buf`: each except the last has [`Received::stride`] bytes. A `buf` of
    /// 65,535 bytes always suffices.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_train(&self, now: Instant, buf: &mut [u8]) -> Result<Received, SocketError> {
        self.receive(now, |queue| queue.read_train(buf))
    }

    /// As [`recv_train`](Self::recv_train), without a copy.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_shared(&self, now: Instant) -> Result<(Slice, Received), SocketError> {
        let mut data = None;
        let received = self.receive(now, |queue| {
            let (slice, received) = queue.take_train()?;
            data = Some(slice);
            Some(received)
        })?;
        data.map(|data| (data, received)).ok_or(SocketError::WouldBlock)
    }

    /// As [`recv`](Self::recv), but leaves the datagram in the queue (MSG_PEEK).
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek(&self, buf: &mut [u8]) -> Result<Received, SocketError> {
        self.known(self.endpoint.peek(buf))
    }

    /// As [`recv_train`](Self::recv_train), but takes only datagrams that are queued already, and
    /// never polls the devices: for a caller that has more than one buffer to fill.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_queued_train(&self, now: Instant, buf: &mut [u8]) -> Result<Received, SocketError> {
        self.known(self.receive_queued(now, |queue| queue.read_train(buf)))
    }

    fn receive(
        &self,
        now: Instant,
        mut read: impl FnMut(&mut ReceiveQueue) -> Option<Received>,
    ) -> Result<Received, SocketError> {
        self.known(match self.receive_queued(now, &mut read) {
            Err(SocketError::WouldBlock) if self.polls_for_itself(now) => {
                self.receive_queued(now, &mut read)
            }
            received => received,
        })
    }

    fn receive_queued(
        &self,
        now: Instant,
        read: impl FnOnce(&mut ReceiveQueue) -> Option<Received>,
    ) -> Result<Received, SocketError> {
        let memory = self.stack.policies.udp_memory();
        let received =
            self.endpoint.receive(now, read, |charged, cost| memory.shrink(charged, cost))?;
        let count = match received.stride {
            0 => 1,
            stride => received.len.div_ceil(stride).max(1),
        };
        let shard = self.stack.pollers.snmp().shard();
        shard.add(counters_of(received.info.from).in_datagrams, count as u64);
        if let Some(flow) = self.endpoint.flow() {
            flow.note_use(now);
        }
        Ok(received)
    }

    /// There is nothing to read: looks into the devices if the poller has left them to readers, or
    /// if it carries a stream. Returns whether that has brought something.
    fn polls_for_itself(&self, now: Instant) -> bool {
        let (home, stack) = (self.endpoint.home, &self.stack);
        let budget = || self.endpoint.takes_packets().clamp(1, RX_BATCH);
        let found = || self.endpoint.readiness().0;
        match self.polls_devices(now) {
            true => stack.poll_for_watcher(home, now, budget(), found),
            false => stack.poll_for_reader(home, now, budget, found),
        }
    }

    /// Sets whether this socket's reader is woken by its [devices](Self::devices) as well as by its
    /// waker, for as long as it [polls them](Self::polls_devices).
    pub fn watch_devices(&self, watches: bool) {
        self.endpoint.set_watches_devices(watches);
    }

    /// Whether a read that finds no datagram polls the devices by itself, and the poller leaves
    /// them to the reader. This is so while a [watcher](Self::watch_devices) reads or sends a
    /// [stream](crate::limits::STREAM_BYTES), if the poller
    /// [lends](crate::QueueWaiter::lend_to_readers) the devices at all.
    pub fn polls_devices(&self, now: Instant) -> bool {
        self.stack.pollers.queue(self.endpoint.home).spinner().lends() && self.endpoint.streams(now)
    }

    /// The queue of the stack that works for the socket; for a flow, the one by which its first
    /// datagram came.
    pub fn queue(&self) -> usize {
        usize::from(self.endpoint.home)
    }

    /// The wait sources of the devices from which this socket receives, each with a flag: the
    /// device could not take all packets. The poller does not wait for those devices while the
    /// reader polls them, so the reader also waits until they are writable.
    pub fn devices(&self) -> impl Iterator<Item = (WaitSource, bool)> {
        self.stack.wait_sources(self.endpoint.home)
    }

    /// A call that would block fails when the stack has ended.
    fn known<T>(&self, result: Result<T, SocketError>) -> Result<T, SocketError> {
        match result {
            Err(SocketError::WouldBlock) => Err(self.stack.would_block()),
            other => other,
        }
    }

    /// The local address and port. The address is unspecified while the socket is bound to none and
    /// is not connected; the port is 0 if the socket is for every port.
    pub fn local_addr(&self) -> SocketAddr {
        zone::show(self.endpoint.local())
    }

    /// The peer, if it is connected.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.endpoint.peer().map(zone::show)
    }

    /// The stack of the socket.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }

    /// The present options.
    pub fn options(&self) -> UdpOptions {
        self.endpoint.options()
    }

    /// Changes options. The buffers are limited to at least [`DATAGRAM_OVERHEAD`] bytes and at most
    /// `net.core.rmem_max` and `net.core.wmem_max`.
    ///
    /// # Errors
    /// If the multicast interface does not exist; nothing has changed then.
    pub fn change_options(&self, change: impl FnOnce(&mut UdpOptions)) -> Result<(), SocketError> {
        let settings = self.stack.settings();
        self.endpoint.change_options(|options| {
            let mut changed = *options;
            change(&mut changed);
            if let Some(interface) = changed.multicast_interface
                && self.stack.interfaces.find(usize::from(interface)).is_none()
            {
                return Err(SocketError::Invalid("there is no interface with that number"));
            }
            let most = (settings.rmem_max as usize, settings.wmem_max as usize);
            changed.rcvbuf = changed.rcvbuf.clamp(DATAGRAM_OVERHEAD, most.0.max(options.rcvbuf));
            changed.sndbuf = changed.sndbuf.clamp(DATAGRAM_OVERHEAD, most.1.max(options.sndbuf));
            *options = changed;
            Ok(())
        })
    }

    /// Joins a group: datagrams to it and to this socket's port are received from now on. No router
    /// is notified (no IGMP, no MLD): the devices of a stack have one neighbour, which sends
    /// everything to it. The groups of all hosts are `224.0.0.1`, `ff02::1`, and `ff01::1`, which
    /// does not leave the host. A socket bound to such a group or to the unspecified address of its
    /// version receives them without joining.
    ///
    /// # Errors
    /// `EINVAL` if the address is not a group or the socket is for any address, `EADDRINUSE` if the
    /// socket is already a member, `ENOBUFS` if it is in
    /// [`MAX_MEMBERSHIPS`](crate::limits::MAX_MEMBERSHIPS) groups.
    pub fn join_group(&self, group: IpAddr) -> Result<(), SocketError> {
        if !group.is_multicast() {
            return Err(SocketError::Invalid("the address is no group's"));
        }
        if matches!(self.endpoint.kind, UdpKind::AnyAddress) {
            return Err(SocketError::Invalid("a socket for any address is in every group"));
        }
        self.stack.tables.udp().join(&self.endpoint, group)
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if the socket is not a member.
    pub fn leave_group(&self, group: IpAddr) -> Result<(), SocketError> {
        self.stack.tables.udp().leave(&self.endpoint, group)
    }

    /// SO_ERROR: the pending ICMP error, once.
    pub fn take_error(&self) -> Option<SocketError> {
        self.endpoint.take_error()
    }

    /// Length of the next datagram in bytes (FIONREAD), if there is one.
    pub fn next_len(&self) -> Option<usize> {
        self.endpoint.readable().0
    }

    /// Number of datagrams that wait to be read.
    pub fn queued(&self) -> usize {
        self.endpoint.readable().1
    }

    /// Bytes that were sent and have not left the device, counted as for SO_SNDBUF.
    pub fn send_queue_len(&self) -> usize {
        self.endpoint.send_queue_len()
    }

    /// The idle timeout of a flow: it ends after this time without a datagram in either direction.
    /// Until the flow is answered it is at most [30 s](crate::limits::UDP_UNANSWERED_TIMEOUT).
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.endpoint.flow().map(|flow| flow.idle_timeout())
    }

    /// Sets the idle timeout of a flow: 1 ms at least.
    ///
    /// # Errors
    /// If it is not a flow, or the time is shorter.
    pub fn set_idle_timeout(&self, timeout: Duration) -> Result<(), SocketError> {
        let Some(flow) = self.endpoint.flow() else {
            return Err(SocketError::Invalid("only flows to any address end when they are idle"));
        };
        if timeout < Duration::from_millis(1) {
            return Err(SocketError::Invalid("idle_timeout: it must be 1 ms at least"));
        }
        flow.set_idle_timeout(timeout);
        self.stack.relist_flow(&self.endpoint);
        Ok(())
    }

    /// Whether a read would not block now.
    pub fn is_readable(&self) -> bool {
        self.endpoint.readiness().0 || self.stack.error().is_some()
    }

    /// Whether a send would not block now.
    pub fn is_writable(&self) -> bool {
        self.endpoint.readiness().1 || self.stack.error().is_some()
    }

    /// Whether an ICMP error is pending, which the next call reports.
    pub fn has_error(&self) -> bool {
        self.endpoint.readiness().2 || self.stack.error().is_some()
    }

    /// Whether a read would not block; if it would, `waker` fires when that may have changed. Only
    /// the waker of the latest call is kept.
    pub fn poll_readable(&self, waker: &Waker) -> Poll<()> {
        self.register(Interest::Read, None, waker)
    }

    /// As [`poll_readable`](Self::poll_readable), for any number of waiters, each with its own key.
    /// [`cancel_wait`](Self::cancel_wait) ends the wait.
    pub fn wait_readable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register(Interest::Read, Some(key), waker)
    }

    /// Whether a send would not block; if it would, `waker` fires when that may have changed. Only
    /// the waker of the latest call is kept.
    pub fn poll_writable(&self, waker: &Waker) -> Poll<()> {
        self.register(Interest::Write, None, waker)
    }

    /// As [`poll_writable`](Self::poll_writable), for any number of waiters.
    pub fn wait_writable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register(Interest::Write, Some(key), waker)
    }

    fn register(&self, interest: Interest, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let ended = || self.stack.error().is_some();
        let (ready, left) = match interest {
            Interest::Read => self.endpoint.register_reader(key, waker, ended),
            Interest::Write => self.endpoint.register_writer(key, waker, ended),
        };
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Removes the waker that waits under `key`, if it has not fired.
    pub fn cancel_wait(&self, interest: Interest, key: WaitKey) {
        self.stack.discard(self.endpoint.cancel(interest, key));
    }

    /// Closes the socket, as dropping it does. Later calls find it closed.
    pub fn close(&self, now: Instant) {
        self.stack.close_udp(now, &self.endpoint);
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.close(self.stack.pollers.latest_time());
    }
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpSocket({}", self.local_addr())?;
        match self.peer_addr() {
            Some(peer) => write!(f, " -> {peer})"),
            None => f.write_str(")"),
        }
    }
}
