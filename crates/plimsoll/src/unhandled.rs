//! Packets that no socket accepts: [`Stack::on_unhandled`], [`UnhandledPackets`]; and the program's
//! own packets: [`Stack::send_raw`].

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use plimsoll_buf::Slices;
use plimsoll_stack::{
    Disposition, RawTransmit, Unhandled, UnhandledConfig, UnhandledHook, UnhandledReceiver,
    Unreachable,
};

use crate::error::{refused, would_block};
use crate::park;
use crate::stack::Stack;

impl Stack {
    /// Calls `handler` for each packet of the kinds in `config` that no socket accepts, as long as
    /// the returned hook exists: packets of protocols that the stack does not have, and ICMP
    /// messages that no socket uses. If `config` asks for them, also pings to addresses that are
    /// not the stack's, datagrams to ports without a socket, and packets that are not IP.
    ///
    /// The thread that polls calls the handler at the end of a poll, and continues when it returns,
    /// so it must not block; the stack holds no lock meanwhile. That thread may be reading a UDP
    /// socket, even without blocking, since a reader whose queue fills up polls for itself. The
    /// stack then does what the handler returns: see [`Disposition`]. A panic of the handler is
    /// caught (`plimsoll.UnhandledPanics`). The handler should hold no handle of the stack, which
    /// would keep the stack alive.
    ///
    /// ```
    /// use plimsoll::{Disposition, Stack};
    /// use plimsoll::{Unhandled, UnhandledConfig, UnhandledHook, UnhandledKind};
    /// # let (device, peer) = plimsoll::device::channel(Default::default())?;
    /// # let stack = Stack::builder().device(device).any_address().build_without_thread()?;
    /// /// One host does not answer pings.
    /// fn decide(packet: &Unhandled) -> Disposition {
    ///     let silent = "198.51.100.9".parse().ok();
    ///     match packet.kind() {
    ///         UnhandledKind::EchoRequest if packet.destination() == silent => Disposition::Taken,
    ///         _ => Disposition::Default,
    ///     }
    /// }
    /// let config = UnhandledConfig::default().echo_requests(true);
    /// let hook: UnhandledHook = stack.on_unhandled(config, decide)?;
    /// drop(hook); // from here on the stack answers for that host as well
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `AddrInUse` if the stack has such a function, or [`UnhandledPackets`], already;
    /// `InvalidInput` if `config` asks for no kind.
    pub fn on_unhandled(
        &self,
        config: UnhandledConfig,
        handler: impl Fn(&Unhandled) -> Disposition + Send + Sync + 'static,
    ) -> io::Result<UnhandledHook> {
        let set = self.core().on_unhandled(config, handler);
        set.map_err(|error| refused(self.core(), error))
    }

    /// Sends an IP packet as it is, header included. Its source is an address of the stack, or any
    /// if the stack takes [any address](crate::StackBuilder::any_address). The header checksum of
    /// IPv4 is filled in. A packet that is longer than its path carries leaves in fragments, if its
    /// header allows that.
    ///
    /// ```
    /// # let (device, mut peer) = plimsoll::device::channel(Default::default())?;
    /// # let stack = plimsoll::Stack::builder().device(device).any_address();
    /// # let stack = stack.build_without_thread()?;
    /// // Protocol 253 is for experiments (RFC 3692).
    /// let mut packet = vec![0x45, 0, 0, 24, 0, 0, 0x40, 0, 64, 253, 0, 0];
    /// packet.extend([198, 51, 100, 7]); // from
    /// packet.extend([192, 0, 2, 1]); // to
    /// packet.extend([1, 2, 3, 4]);
    /// stack.send_raw(&packet)?;
    /// assert_eq!(peer.try_recv()?.to_vec()[20..], [1, 2, 3, 4]);
    /// let error = stack.send_raw(&packet[..23]).unwrap_err();
    /// assert_eq!(error.to_string(), "the total length of IPv4 is not the packet's");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` with the defect of the packet; `AddrNotAvailable` if its source is not ours;
    /// `EMSGSIZE` if it is too long and may not be fragmented; `NetworkUnreachable`, `NetworkDown`;
    /// and `ENOBUFS` if the interface's queue is full: then the packet, or some of its fragments,
    /// were not sent.
    pub fn send_raw(&self, packet: &[u8]) -> io::Result<()> {
        let sent = self.core().send_raw(self.now(), &RawTransmit::default(), packet);
        sent.map_err(|error| refused(self.core(), error))
    }

    /// As [`send_raw`](Self::send_raw), without a copy, and by an interface that is not the one
    /// that the routes say.
    ///
    /// ```
    /// # let (device, mut peer) = plimsoll::device::channel(Default::default())?;
    /// # let stack = plimsoll::Stack::builder().device(device).address("2001:db8::1/64");
    /// # let stack = stack.build_without_thread()?;
    /// use plimsoll::{RawTransmit, Slice};
    /// // Protocol 59: nothing follows. Both addresses are to be written.
    /// let mut packet = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
    /// packet.extend("2001:db8::1".parse::<std::net::Ipv6Addr>()?.octets());
    /// packet.extend("2001:db8::2".parse::<std::net::Ipv6Addr>()?.octets());
    /// let how = RawTransmit::default().interface(Some(0));
    /// stack.send_raw_with(&how, Slice::from_owner(packet).into())?;
    /// assert_eq!(peer.try_recv()?.len(), 40);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there; `InvalidInput` if there is no such interface.
    pub fn send_raw_with(&self, how: &RawTransmit, packet: Slices) -> io::Result<()> {
        let sent = self.core().send_raw_shared(self.now(), how, packet);
        sent.map_err(|error| refused(self.core(), error))
    }
}

/// Receives the packets that no socket accepts; see [`Stack::on_unhandled`] for which these are.
/// They wait in a queue that is bounded by [`UnhandledConfig::rcvbuf`]; beyond it packets are
/// dropped (`plimsoll.UnhandledDropped`). The stack does not answer packets in the queue, unless
/// [`refuse`](Self::refuse) is called. Dropping this ends it.
///
/// ```
/// use plimsoll::{Stack, UnhandledConfig, UnhandledKind, UnhandledPackets};
/// # let (device, mut peer) = plimsoll::device::channel(Default::default())?;
/// let stack = Stack::builder().device(device).any_address().build()?;
/// let packets = UnhandledPackets::bind(&stack, UnhandledConfig::default())?;
/// # let mut bytes = vec![0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 253, 0, 0];
/// # bytes.extend([192, 0, 2, 1, 198, 51, 100, 7]);
/// # let sum: u32 = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
/// # let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
/// # bytes[10..12].copy_from_slice(&sum.to_be_bytes());
/// # peer.try_send(bytes)?;
/// let packet = packets.recv()?;
/// assert_eq!(packet.kind(), UnhandledKind::Protocol(253));
/// packets.refuse(&packet); // "protocol unreachable"
/// # let answer = loop { if let Ok(packet) = peer.try_recv() { break packet.to_vec(); } };
/// # assert_eq!(answer[20..22], [3, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UnhandledPackets {
    receiver: UnhandledReceiver,
    stack: Stack,
    nonblocking: AtomicBool,
}

impl UnhandledPackets {
    /// Receives packets of the kinds in `config`.
    ///
    /// # Errors
    /// `AddrInUse` if the stack has such a receiver, or a function, already; `InvalidInput` names
    /// the part of `config` that makes no sense.
    pub fn bind(stack: &Stack, config: UnhandledConfig) -> io::Result<UnhandledPackets> {
        let receiver = stack.core().unhandled(config);
        let receiver = receiver.map_err(|error| refused(stack.core(), error))?;
        let nonblocking = AtomicBool::new(false);
        Ok(UnhandledPackets { receiver, stack: stack.clone(), nonblocking })
    }

    pub(crate) fn receiver(&self) -> &UnhandledReceiver {
        &self.receiver
    }

    /// Takes the packet that has waited longest; waits for one unless it is non-blocking.
    ///
    /// # Errors
    /// `WouldBlock` if it is non-blocking and there is none; if the stack has come to its end.
    pub fn recv(&self) -> io::Result<Unhandled> {
        loop {
            match self.try_recv() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.nonblocking.load(Ordering::Relaxed) {
                        return Err(error);
                    }
                }
                done => return done,
            }
            park::wait(
                None,
                |key, waker| self.receiver.wait_readable(key, waker),
                |key| self.receiver.cancel_wait(key),
            );
        }
    }

    /// As [`recv`](Self::recv), but never waits.
    ///
    /// # Errors
    /// As there.
    pub fn try_recv(&self) -> io::Result<Unhandled> {
        let received = self.receiver.recv(self.stack.now());
        received.map_err(|error| refused(self.stack.core(), error))?.ok_or_else(would_block)
    }

    /// As [`recv`](Self::recv), in a future. Any number may wait.
    ///
    /// # Errors
    /// If the stack has come to its end.
    pub async fn recv_async(&self) -> io::Result<Unhandled> {
        let mut registration = self.readable();
        poll_fn(|cx| {
            loop {
                match self.try_recv() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        ready!(registration.poll_ready(cx.waker()));
                    }
                    done => return Poll::Ready(done),
                }
            }
        })
        .await
    }

    /// As [`recv_async`](Self::recv_async), for one task: only the last waker is kept.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Unhandled>> {
        loop {
            match self.try_recv() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.receiver.poll_readable(cx.waker()));
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// Handles a packet as the stack does without a receiver: see [`Disposition::Default`].
    pub fn refuse(&self, packet: &Unhandled) {
        self.stack.core().refuse_unhandled(self.stack.now(), packet);
    }

    /// Answers a packet with an ICMP error of this kind, within the limits on ICMP. An echo request
    /// whose destination cannot be reached is answered like this. An ICMP error, and a packet that
    /// is not IP, are not answered.
    pub fn reject(&self, packet: &Unhandled, how: Unreachable) {
        self.stack.core().reject_unhandled(self.stack.now(), packet, how);
    }

    /// `recv` returns `WouldBlock` rather than wait.
    ///
    /// # Errors
    /// None; the result is there because sockets have it.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// The stack whose packets these are.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }
}

impl fmt::Debug for UnhandledPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnhandledPackets").finish_non_exhaustive()
    }
}
