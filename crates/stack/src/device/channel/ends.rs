//! The caller's end of a channel: packets in and out, whole or as halves.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use arrayvec::ArrayVec;
use plimsoll_buf::Pool;

use super::{MAX_PACKET, Shared, check_mtu};
use crate::device::channel::lane::Put;
use crate::offload::gso;
use crate::packet::Packet;

/// The caller's end of a channel. See [`channel`](super::channel).
///
/// The caller receives packets in the order in which the stack sent them, and the stack those of
/// the caller likewise. Dropping the end takes the interface down.
///
/// The methods of the halves are available here as well; [`split`](Self::split) makes two values of
/// them that may be used on two threads or by two tasks.
pub struct Channel {
    sender: ChannelSender,
    receiver: ChannelReceiver,
}

/// The half of a [`Channel`] by which the caller sends packets to the stack.
pub struct ChannelSender {
    pub(super) shared: Arc<Shared>,
    /// Packets on their way into the lane; empty between calls.
    scratch: VecDeque<Packet>,
    /// Where bytes that are written are copied to. It holds no memory before.
    pool: Pool,
}

/// The half of a [`Channel`] by which the caller receives packets from the stack.
pub struct ChannelReceiver {
    pub(super) shared: Arc<Shared>,
    /// Wire segments of a packet that was read as bytes, of which not all have been read.
    pub(super) segments: VecDeque<Packet>,
}

/// The device of a channel no longer exists: the stack has ended, or its interface has another
/// device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stack's end of the channel is gone")]
pub struct ChannelClosed;

/// The reason why no packet was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// There is no packet at present.
    #[error("no packet waits")]
    Empty,
    /// There will be no more packets.
    #[error(transparent)]
    Closed(#[from] ChannelClosed),
}

/// The reason why a packet was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The queue toward the stack is full. The packet is returned.
    #[error("the queue toward the stack is full")]
    Full(Box<Packet>),
    /// The device no longer exists. The packet is returned.
    #[error("the stack's end of the channel is gone")]
    Closed(Box<Packet>),
    /// The packet's length in bytes is not that of an IP packet: 0, or more than 65535. It was
    /// dropped.
    #[error("a packet has 1 to 65535 bytes, not {0}")]
    Length(usize),
}

impl From<ChannelClosed> for std::io::Error {
    fn from(error: ChannelClosed) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::BrokenPipe, error)
    }
}

impl Channel {
    pub(super) fn new(shared: Arc<Shared>) -> Channel {
        let (scratch, pool) = (VecDeque::new(), Pool::new());
        let sender = ChannelSender { shared: shared.clone(), scratch, pool };
        Channel { sender, receiver: ChannelReceiver { shared, segments: VecDeque::new() } }
    }

    /// The two halves, the sending one first. Dropping either of them takes the interface down.
    pub fn split(self) -> (ChannelSender, ChannelReceiver) {
        (self.sender, self.receiver)
    }

    /// The sending half, to use it in place.
    pub fn sender(&mut self) -> &mut ChannelSender {
        &mut self.sender
    }

    /// The receiving half, to use it in place.
    pub fn receiver(&mut self) -> &mut ChannelReceiver {
        &mut self.receiver
    }

    /// Ends the channel with a reason, which the errors of the interface and its connections
    /// include.
    pub fn close(self, reason: impl Into<String>) {
        self.sender.close(reason);
    }

    /// See [`ChannelReceiver::try_recv`].
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&mut self) -> Result<Packet, TryRecvError> {
        self.receiver.try_recv()
    }

    /// See [`ChannelReceiver::poll_recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Packet>> {
        self.receiver.poll_recv(cx)
    }

    /// See [`ChannelReceiver::recv`].
    pub fn recv(&mut self) -> Recv<'_> {
        self.receiver.recv()
    }

    /// See [`ChannelReceiver::blocking_recv`].
    pub fn blocking_recv(&mut self) -> Option<Packet> {
        self.receiver.blocking_recv()
    }

    /// See [`ChannelSender::try_send`].
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&mut self, packet: impl Into<Packet>) -> Result<(), SendError> {
        self.sender.try_send(packet)
    }

    /// See [`ChannelSender::poll_ready`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelClosed>> {
        self.sender.poll_ready(cx)
    }

    /// See [`ChannelSender::send`].
    pub fn send(&mut self, packet: impl Into<Packet>) -> Sending<'_> {
        self.sender.send(packet)
    }

    /// See [`ChannelSender::blocking_send`].
    ///
    /// # Errors
    /// As there.
    pub fn blocking_send(&mut self, packet: impl Into<Packet>) -> Result<(), SendError> {
        self.sender.blocking_send(packet)
    }

    /// See [`ChannelSender::set_mtu`].
    ///
    /// # Errors
    /// As there.
    pub fn set_mtu(&self, mtu: u16) -> std::io::Result<()> {
        self.sender.set_mtu(mtu)
    }
}

impl ChannelReceiver {
    /// Handles packets that were taken: completes them, and notifies the stack of room.
    fn taken(&self, packets: &mut [Packet], kick: bool) {
        packets.iter_mut().for_each(Packet::complete);
        if kick {
            self.shared.kick.kick_for_room();
        }
    }

    fn take_one(&self, waker: Option<&Waker>) -> Result<Packet, TryRecvError> {
        let mut one: ArrayVec<Packet, 1> = ArrayVec::new();
        let taken = match waker {
            Some(waker) => self.shared.to_caller.take_or_wait(1, &mut one, waker),
            None => self.shared.to_caller.take(1, &mut one),
        };
        let (_, kick) = taken.ok_or(ChannelClosed)?;
        self.taken(&mut one, kick);
        one.pop().ok_or(TryRecvError::Empty)
    }

    /// Takes the next packet, if there is one. For the stack it counts as transmitted from here on.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] if there is none at present, [`TryRecvError::Closed`] at the end.
    pub fn try_recv(&mut self) -> Result<Packet, TryRecvError> {
        self.take_one(None)
    }

    /// Takes the next packet. If there is none, the task that called last is woken when there may
    /// be one. `None` is the end.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Packet>> {
        match self.take_one(Some(cx.waker())) {
            Ok(packet) => Poll::Ready(Some(packet)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Closed(_)) => Poll::Ready(None),
        }
    }

    /// Appends up to `max` waiting packets to `out`, and returns their number. If there is none,
    /// the task is woken when there may be one. 0 is the end (or a `max` of 0).
    pub fn poll_recv_many(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> Poll<usize> {
        let before = out.len();
        match self.shared.to_caller.take_or_wait(max, out, cx.waker()) {
            None => Poll::Ready(0),
            Some((0, _)) if max > 0 => Poll::Pending,
            Some((count, kick)) => {
                self.taken(&mut out[before..], kick);
                Poll::Ready(count)
            }
        }
    }

    /// Waits for the next packet; `None` is the end. Dropping the future loses nothing.
    pub fn recv(&mut self) -> Recv<'_> {
        Recv { receiver: self }
    }

    /// Waits for packets, and appends up to `max` of them to `out`. Returns their number; 0 is the
    /// end. Dropping the future loses nothing.
    pub fn recv_many<'a>(&'a mut self, out: &'a mut Vec<Packet>, max: usize) -> RecvMany<'a> {
        RecvMany { receiver: self, out, max }
    }

    /// As [`recv`](Self::recv), but blocks the thread. It must not be one that runs the stack.
    pub fn blocking_recv(&mut self) -> Option<Packet> {
        block_on(|cx| self.poll_recv(cx))
    }

    /// Number of packets that wait to be received.
    pub fn waiting(&self) -> usize {
        self.shared.to_caller.len()
    }

    /// Whether the end was reached: there will be no more packets.
    pub fn has_ended(&self) -> bool {
        self.segments.is_empty() && self.shared.to_caller.has_ended()
    }

    /// Ends the channel with a reason, which the errors of the interface and its connections
    /// include.
    pub fn close(self, reason: impl Into<String>) {
        self.shared.cut(|| reason.into());
    }
}

impl Drop for ChannelReceiver {
    fn drop(&mut self) {
        self.shared.cut(|| "the caller has ended the channel".to_owned());
        self.shared.to_caller.end_take();
        self.shared.kick.kick_for_room();
    }
}

impl ChannelSender {
    /// Sends a packet to the stack, if there is room. Its fields describe it:
    /// [`csum`](Packet::csum), and for a super-segment [`gso`](Packet::gso), whose number of
    /// segments is computed again. It may be longer than the MTU. All other fields are ignored.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn try_send(&mut self, packet: impl Into<Packet>) -> Result<(), SendError> {
        let mut packet = packet.into();
        prepare(&mut packet)?;
        self.scratch.push_back(packet);
        let put = self.shared.to_stack.offer(&mut self.scratch);
        let left = self.scratch.pop_front();
        match (put, left) {
            (Ok(_), None) => {
                self.shared.kick.kick();
                Ok(())
            }
            (Err(_), Some(packet)) => Err(SendError::Closed(Box::new(packet))),
            (_, left) => Err(SendError::Full(Box::new(left.unwrap_or_default()))),
        }
    }

    /// Whether there is room for a packet, so that [`try_send`](Self::try_send) does not find the
    /// queue full. If not, the task that called last is woken when there is.
    ///
    /// # Errors
    /// If the device no longer exists.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ChannelClosed>> {
        match self.shared.to_stack.poll_room(cx.waker()) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(_) => Poll::Ready(Err(ChannelClosed)),
        }
    }

    /// Sends packets from the front of `packets`, as many as there is room for, and returns the
    /// number taken out. If there is no room at all, the task is woken when there is. Packets of an
    /// impossible length are taken out and dropped.
    ///
    /// # Errors
    /// If the device no longer exists. `packets` keeps the packets that were not sent.
    pub fn poll_send_many(
        &mut self,
        cx: &mut Context<'_>,
        packets: &mut VecDeque<Packet>,
    ) -> Poll<Result<usize, ChannelClosed>> {
        let before = packets.len();
        packets.retain_mut(|packet| prepare(packet).is_ok());
        let dropped = before - packets.len();
        if packets.is_empty() {
            return Poll::Ready(Ok(dropped));
        }
        loop {
            match self.shared.to_stack.offer(packets) {
                Err(_) => return Poll::Ready(Err(ChannelClosed)),
                Ok(Put { count: 0, .. }) if dropped == 0 => {}
                Ok(Put { count, .. }) => {
                    self.shared.kick.kick();
                    return Poll::Ready(Ok(count + dropped));
                }
            }
            match self.poll_ready(cx) {
                // There is room since a moment ago.
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(closed)) => return Poll::Ready(Err(closed)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Waits until there is room and sends a packet to the stack. If the future is dropped before,
    /// the packet was not sent.
    pub fn send(&mut self, packet: impl Into<Packet>) -> Sending<'_> {
        Sending { sender: self, packet: Some(packet.into()) }
    }

    /// As [`send`](Self::send), but blocks the thread. It must not be one that runs the stack.
    ///
    /// # Errors
    /// See [`SendError`]; the queue is never found full.
    pub fn blocking_send(&mut self, packet: impl Into<Packet>) -> Result<(), SendError> {
        let mut packet = Some(packet.into());
        block_on(|cx| self.poll_send(cx, &mut packet))
    }

    /// Sends `packet`, which is taken out when it was.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        packet: &mut Option<Packet>,
    ) -> Poll<Result<(), SendError>> {
        loop {
            let Some(next) = packet.take() else { return Poll::Ready(Ok(())) };
            match self.try_send(next) {
                Err(SendError::Full(back)) => *packet = Some(*back),
                other => return Poll::Ready(other),
            }
            if self.poll_ready(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Changes the longest IP packet of the link, in bytes. Connections adapt: they send shorter
    /// segments, or longer ones if the peer accepts them. Packets that are queued stay as they are.
    ///
    /// # Errors
    /// `InvalidInput` if it is less than 576.
    pub fn set_mtu(&self, mtu: u16) -> std::io::Result<()> {
        let bad = |reason| std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
        check_mtu(mtu).map_err(|reason| bad(format!("mtu: {reason}")))?;
        self.shared.mtu.store(mtu, Ordering::Relaxed);
        self.shared.kick.kick_for_room();
        Ok(())
    }

    /// The longest IP packet of the link, in bytes.
    pub fn mtu(&self) -> u16 {
        self.shared.mtu.load(Ordering::Relaxed)
    }

    /// Ends the channel with a reason, which the errors of the interface and its connections
    /// include.
    pub fn close(self, reason: impl Into<String>) {
        self.shared.cut(|| reason.into());
    }
}

impl ChannelSender {
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The caller sends nothing any more, unless it has ended the channel already.
    pub(super) fn end(&mut self) {
        self.shared.cut(|| "the caller has ended the channel".to_owned());
        self.shared.to_caller.end_put();
        self.shared.kick.kick_for_room();
    }
}

impl Drop for ChannelSender {
    fn drop(&mut self) {
        self.end();
    }
}

/// Checks a packet from the caller, and resets the fields that do not concern the stack.
fn prepare(packet: &mut Packet) -> Result<(), SendError> {
    let len = packet.len();
    if len == 0 || len > MAX_PACKET {
        return Err(SendError::Length(len));
    }
    packet.complete();
    packet.note = None;
    packet.flow = 0;
    if let Some(cut) = packet.gso.take() {
        gso::describe(packet, cut.size);
    }
    Ok(())
}

/// The future of [`ChannelReceiver::recv`].
#[must_use = "a future does nothing until it is polled"]
pub struct Recv<'a> {
    receiver: &'a mut ChannelReceiver,
}

impl Future for Recv<'_> {
    type Output = Option<Packet>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Packet>> {
        self.receiver.poll_recv(cx)
    }
}

impl Drop for Recv<'_> {
    fn drop(&mut self) {
        self.receiver.shared.to_caller.forget_waker();
    }
}

/// The future of [`ChannelReceiver::recv_many`].
#[must_use = "a future does nothing until it is polled"]
pub struct RecvMany<'a> {
    receiver: &'a mut ChannelReceiver,
    out: &'a mut Vec<Packet>,
    max: usize,
}

impl Future for RecvMany<'_> {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let RecvMany { receiver, out, max } = &mut *self;
        receiver.poll_recv_many(cx, out, *max)
    }
}

impl Drop for RecvMany<'_> {
    fn drop(&mut self) {
        self.receiver.shared.to_caller.forget_waker();
    }
}

/// The future of [`ChannelSender::send`].
#[must_use = "it sends nothing until it is polled"]
pub struct Sending<'a> {
    sender: &'a mut ChannelSender,
    packet: Option<Packet>,
}

impl Future for Sending<'_> {
    type Output = Result<(), SendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let Sending { sender, packet } = &mut *self;
        sender.poll_send(cx, packet)
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.sender.shared.to_stack.forget_waker();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until it is ready; the thread sleeps in between.
fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = poll(&mut cx) {
            return value;
        }
        // A wake-up that came before is kept by the thread.
        thread::park();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

impl fmt::Debug for ChannelSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.shared.to_stack.len();
        f.debug_struct("ChannelSender").field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl fmt::Debug for ChannelReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.shared.to_caller.len();
        f.debug_struct("ChannelReceiver").field("waiting", &waiting).finish_non_exhaustive()
    }
}
