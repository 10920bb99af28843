//! Packets that no socket accepts, and the hook for a program that handles them.
//!
//! A stack has at most one hook: a function that is called for each such packet, or a queue that
//! the program reads. A packet that the hook does not get or does not take is handled as without a
//! hook.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use arc_swap::ArcSwapOption;

use crate::arrived::Arrived;
use crate::error::SocketError;
use crate::limits::DATAGRAM_OVERHEAD;
use crate::packet::Packet;
use crate::sockets::panics::drop_caught;
use crate::sockets::wakers::{Interest, WaitKey, WakeList, WakerSet};
use crate::sync::lock;
use crate::zone;

/// The reason why no socket accepts a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnhandledKind {
    /// It is neither IPv4 nor IPv6.
    NotIp,
    /// Its transport protocol, by IANA's number, is none that the stack has: those are TCP, UDP,
    /// and the ICMP of the packet's IP version.
    Protocol(u8),
    /// An ICMP or ICMPv6 message that no socket uses: an echo reply, an error that quotes none of
    /// the stack's packets, an unknown type.
    Icmp {
        /// The type of the message.
        message: u8,
        /// The code of the message.
        code: u8,
    },
    /// An ICMP or ICMPv6 echo request to an address that is not ours, to a stack that takes any.
    EchoRequest,
    /// A UDP datagram to a port without a socket.
    Datagram,
}

/// A packet that no socket accepts.
///
/// The packet is complete. Fragments are reassembled, without the options of an IPv4 header and
/// without the extension headers before an IPv6 fragment header. Checksums of protocols that the
/// stack supports are complete. A device's train of datagrams is passed one datagram at a time. A
/// hook never gets a packet with an error in its headers or a wrong checksum, except
/// [`NotIp`](UnhandledKind::NotIp).
pub struct Unhandled {
    pub(crate) kind: UnhandledKind,
    pub(crate) packet: Packet,
    /// Unknown if it is no IP packet.
    pub(crate) arrived: Option<Arrived>,
    /// Where an IPv6 packet names the protocol that we do not have.
    pub(crate) named_at: u32,
    pub(crate) interface: u8,
}

impl Unhandled {
    /// The reason why no socket accepts it.
    pub fn kind(&self) -> UnhandledKind {
        self.kind
    }

    /// The packet, from the IP header on.
    pub fn packet(&self) -> &Packet {
        &self.packet
    }

    /// The packet, from the IP header on.
    pub fn into_packet(self) -> Packet {
        self.packet
    }

    /// A copy of its bytes, from the IP header on.
    pub fn to_vec(&self) -> Vec<u8> {
        self.packet.to_vec()
    }

    /// The sender; `None` if it is not an IP packet.
    pub fn source(&self) -> Option<IpAddr> {
        self.arrived.map(|arrived| zone::bare(arrived.src))
    }

    /// The destination; `None` if it is not an IP packet.
    pub fn destination(&self) -> Option<IpAddr> {
        self.arrived.map(|arrived| zone::bare(arrived.dst))
    }

    /// The offset of its transport header in bytes; `None` if it is not an IP packet.
    pub fn transport_at(&self) -> Option<usize> {
        self.arrived.map(|arrived| arrived.transport_at)
    }

    /// The interface on which it arrived, as its position in
    /// [`Stack::interfaces`](crate::Stack::interfaces).
    pub fn interface(&self) -> usize {
        usize::from(self.interface)
    }

    /// The same, with its own bytes: those of `packet` may keep a large buffer of the device alive.
    fn copied(&self) -> Unhandled {
        let packet = Packet { csum: self.packet.csum, ..Packet::from(self.packet.to_vec()) };
        Unhandled { packet, ..*self }
    }

    fn cost(&self) -> usize {
        self.packet.len() + DATAGRAM_OVERHEAD
    }
}

impl fmt::Debug for Unhandled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unhandled")
            .field("kind", &self.kind)
            .field("source", &self.source())
            .field("destination", &self.destination())
            .field("len", &self.packet.len())
            .finish_non_exhaustive()
    }
}

/// The treatment of a packet that no socket accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The hook has taken it, or it is to vanish: its sender gets no answer from the stack.
    Taken,
    /// The treatment without a hook. A protocol is answered with "protocol unreachable" (RFC 1122,
    /// section 3.2.2.1) or, over IPv6, with a parameter problem (RFC 8200, section 4). A datagram
    /// is answered with "port unreachable". The limits on ICMP apply. An echo request is answered
    /// as if its destination were this host, unless `plimsoll.icmp_echo_any` is 0. Other ICMP
    /// messages and packets that are not IP are dropped.
    Default,
}

/// The kinds of packets that a hook gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnhandledConfig {
    /// Packets of transport protocols that the stack does not have. On unless set.
    pub protocols: bool,
    /// ICMP messages that no socket uses. On unless set.
    pub icmp: bool,
    /// Echo requests to addresses that are not local. Off unless set: then the stack answers for
    /// any address that it accepts.
    pub echo_requests: bool,
    /// UDP datagrams to ports without a socket. Off unless set.
    pub datagrams: bool,
    /// Packets that are not IP. Off unless set.
    pub not_ip: bool,
    /// Limit of the cost of the packets in a queue, in bytes, with 128 for each in addition to its
    /// data. 212,992 unless set, 1 at least. A further packet is dropped
    /// (`plimsoll.UnhandledDropped`). Ignored for a function.
    pub rcvbuf: usize,
}

plimsoll_tcp::setters!(UnhandledConfig {
    protocols: bool,
    icmp: bool,
    echo_requests: bool,
    datagrams: bool,
    not_ip: bool,
    rcvbuf: usize,
});

impl Default for UnhandledConfig {
    fn default() -> UnhandledConfig {
        UnhandledConfig {
            protocols: true,
            icmp: true,
            echo_requests: false,
            datagrams: false,
            not_ip: false,
            rcvbuf: 212_992,
        }
    }
}

impl UnhandledConfig {
    /// All kinds.
    pub fn all() -> UnhandledConfig {
        UnhandledConfig { echo_requests: true, datagrams: true, not_ip: true, ..Self::default() }
    }

    /// Refuses invalid values.
    fn check(&self) -> Result<(), SocketError> {
        if self.rcvbuf == 0 {
            return Err(SocketError::Invalid("rcvbuf: it must be 1 at least"));
        }
        if !(self.protocols || self.icmp || self.echo_requests || self.datagrams || self.not_ip) {
            return Err(SocketError::Invalid("no kind of packet is asked for"));
        }
        Ok(())
    }

    fn wants(&self, kind: UnhandledKind) -> bool {
        match kind {
            UnhandledKind::NotIp => self.not_ip,
            UnhandledKind::Protocol(_) => self.protocols,
            UnhandledKind::Icmp { .. } => self.icmp,
            UnhandledKind::EchoRequest => self.echo_requests,
            UnhandledKind::Datagram => self.datagrams,
        }
    }
}

/// A function of the application that is called for each packet.
pub(crate) type Handler = Box<dyn Fn(&Unhandled) -> Disposition + Send + Sync>;

/// The outcome of offering a packet to a hook.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    Answered(Disposition),
    /// The function has panicked.
    Panicked,
    /// The queue is full.
    Full,
}

/// The hook of a stack.
pub(crate) struct Hook {
    config: UnhandledConfig,
    sink: Sink,
}

enum Sink {
    Call(Option<Handler>),
    Queue(Mutex<Queue>),
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Unhandled>,
    cost: usize,
    wakers: WakerSet,
    end: Option<SocketError>,
}

impl Hook {
    /// A hook that calls `handler`.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub(crate) fn call(config: UnhandledConfig, handler: Handler) -> Result<Hook, SocketError> {
        config.check()?;
        Ok(Hook { config, sink: Sink::Call(Some(handler)) })
    }

    /// A hook that is a queue.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub(crate) fn queue(config: UnhandledConfig) -> Result<Hook, SocketError> {
        config.check()?;
        Ok(Hook { config, sink: Sink::Queue(Mutex::default()) })
    }

    /// Whether it gets packets of `kind`.
    pub(crate) fn wants(&self, kind: UnhandledKind) -> bool {
        self.config.wants(kind)
    }

    /// Offers a packet. The caller holds no lock.
    pub(crate) fn offer(&self, packet: &Unhandled, wakers: &mut WakeList) -> Offered {
        match &self.sink {
            Sink::Call(None) => Offered::Answered(Disposition::Default),
            Sink::Call(Some(handler)) => match catch_unwind(AssertUnwindSafe(|| handler(packet))) {
                Ok(disposition) => Offered::Answered(disposition),
                Err(thrown) => {
                    drop_caught(thrown);
                    Offered::Panicked
                }
            },
            Sink::Queue(queue) => self.enqueue(queue, packet, wakers),
        }
    }

    fn enqueue(&self, queue: &Mutex<Queue>, packet: &Unhandled, wakers: &mut WakeList) -> Offered {
        let cost = packet.cost();
        let has_room = |queue: &Queue| {
            // One packet fits in any case, as one datagram fits a socket.
            queue.end.is_none() && (queue.cost == 0 || queue.cost + cost <= self.config.rcvbuf)
        };
        if !has_room(&lock(queue)) {
            return Offered::Full;
        }
        let copy = packet.copied();
        let mut queue = lock(queue);
        if !has_room(&queue) {
            return Offered::Full;
        }
        queue.cost += cost;
        queue.packets.push_back(copy);
        queue.wakers.take(Interest::Read, wakers);
        Offered::Answered(Disposition::Taken)
    }

    /// Takes the packet that has waited longest.
    ///
    /// # Errors
    /// If there is none and the queue has ended.
    pub(crate) fn take(&self) -> Result<Option<Unhandled>, SocketError> {
        let Sink::Queue(queue) = &self.sink else { return Ok(None) };
        let mut queue = lock(queue);
        match (queue.packets.pop_front(), queue.end) {
            (Some(packet), _) => {
                queue.cost -= packet.cost();
                Ok(Some(packet))
            }
            (None, Some(end)) => Err(end),
            (None, None) => Ok(None),
        }
    }

    /// As for a listener.
    pub(crate) fn register(
        &self,
        key: Option<WaitKey>,
        waker: &Waker,
        ended: impl FnOnce() -> bool,
    ) -> (bool, Option<Waker>) {
        let Sink::Queue(queue) = &self.sink else { return (true, None) };
        let mut waker = Some(waker.clone());
        let mut queue = lock(queue);
        let ready = !queue.packets.is_empty() || queue.end.is_some() || ended();
        (ready, queue.wakers.answer(ready, Interest::Read, key, &mut waker))
    }

    pub(crate) fn cancel(&self, key: WaitKey) -> Option<Waker> {
        let Sink::Queue(queue) = &self.sink else { return None };
        lock(queue).wakers.cancel(Interest::Read, key)
    }

    /// No more packets come; the waiting ones can still be taken.
    pub(crate) fn end(&self, end: SocketError, wakers: &mut WakeList) {
        let Sink::Queue(queue) = &self.sink else { return };
        let mut queue = lock(queue);
        queue.end.get_or_insert(end);
        queue.wakers.take(Interest::Read, wakers);
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Sink::Call(handler) = &mut self.sink {
            // It is the application's, and may panic on a thread that is not.
            drop_caught(handler.take());
        }
    }
}

/// The hook of a stack. It is read without a lock.
#[derive(Default)]
pub(crate) struct HookPlace(ArcSwapOption<Hook>);

impl HookPlace {
    /// Whether there is a hook for packets of `kind`.
    pub(crate) fn wants(&self, kind: UnhandledKind) -> bool {
        self.0.load().as_ref().is_some_and(|hook| hook.wants(kind))
    }

    pub(crate) fn get(&self) -> Option<Arc<Hook>> {
        self.0.load_full()
    }

    /// Sets `hook`, unless there is one.
    pub(crate) fn set(&self, hook: &Arc<Hook>) -> Result<(), SocketError> {
        let before = self.0.compare_and_swap(&None::<Arc<Hook>>, Some(hook.clone()));
        if before.is_none() { Ok(()) } else { Err(SocketError::AddrInUse) }
    }

    /// Removes `hook`, if it is there.
    pub(crate) fn remove(&self, hook: &Arc<Hook>) {
        self.0.compare_and_swap(hook, None);
    }
}
