//! The handling of packets that no socket accepts.
//!
//! During a poll such a packet is only stored. The hook is called at the end of the poll, on the
//! polling thread, while the stack holds no lock that a call on it takes. So the hook may use
//! sockets and send packets. A poll stores no more packets than it takes from the devices, which is
//! bounded.

use std::sync::Arc;
use std::task::{Poll, Waker};

use plimsoll_tcp::Instant;
use plimsoll_wire::{icmpv4, icmpv6};

use crate::arrived::Arrived;
use crate::error::SocketError;
use crate::offload::{checksum, gso};
use crate::packet::Packet;
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::unhandled::{
    Disposition, Hook, Offered, Unhandled, UnhandledConfig, UnhandledKind,
};
use crate::sockets::wakers::WaitKey;
use crate::stack::Stack;
use crate::stack::gated::Unreachable;
use crate::stack::work::Work;

/// The reason why no socket accepts a packet, with the data that the answer needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unwanted {
    pub(crate) kind: UnhandledKind,
    /// Where an IPv6 packet names the protocol that we do not have.
    pub(crate) named_at: u32,
}

impl Unwanted {
    pub(crate) fn new(kind: UnhandledKind) -> Unwanted {
        Unwanted { kind, named_at: 0 }
    }
}

/// Keeps a function registered that is called for packets that no socket accepts. Dropping it
/// removes the function; another thread may still be calling it then.
#[must_use = "dropping it takes the function out"]
pub struct UnhandledHook {
    stack: Arc<Stack>,
    hook: Arc<Hook>,
}

/// Receives packets that no socket accepts. Dropping it removes the hook.
pub struct UnhandledReceiver {
    stack: Arc<Stack>,
    hook: Arc<Hook>,
}

impl Stack {
    /// Registers `handler`, which is called for each packet of the kinds in `config` that no socket
    /// accepts. The polling thread calls it and waits for it; if several threads poll, several may
    /// call it at a time. Its answer decides the treatment of the packet. A panic of it is caught
    /// (`plimsoll.UnhandledPanics`); the packet is treated as with [`Disposition::Default`].
    ///
    /// # Errors
    /// If the stack has such a function or a receiver already; if `config` selects no kind.
    pub fn on_unhandled(
        self: &Arc<Stack>,
        config: UnhandledConfig,
        handler: impl Fn(&Unhandled) -> Disposition + Send + Sync + 'static,
    ) -> Result<UnhandledHook, SocketError> {
        self.check_up()?;
        let hook = Arc::new(Hook::call(config, Box::new(handler))?);
        self.tables.unhandled().set(&hook)?;
        Ok(UnhandledHook { stack: self.clone(), hook })
    }

    /// From now on queues each packet of the kinds in `config` that no socket accepts, to be
    /// received.
    ///
    /// # Errors
    /// As [`on_unhandled`](Self::on_unhandled); if `config.rcvbuf` is 0.
    pub fn unhandled(
        self: &Arc<Stack>,
        config: UnhandledConfig,
    ) -> Result<UnhandledReceiver, SocketError> {
        self.check_up()?;
        let hook = Arc::new(Hook::queue(config)?);
        self.tables.unhandled().set(&hook)?;
        Ok(UnhandledReceiver { stack: self.clone(), hook })
    }

    /// Treats a received packet as without a hook; see [`Disposition::Default`].
    pub fn refuse_unhandled(&self, now: Instant, packet: &Unhandled) {
        let mut work = Work::begin(self, now);
        self.refuse_kept(&mut work, packet);
        work.finish();
    }

    /// Answers a received packet with "destination unreachable", within the limits on ICMP. An ICMP
    /// error is not answered.
    pub fn reject_unhandled(&self, now: Instant, packet: &Unhandled, how: Unreachable) {
        let Some(arrived) = &packet.arrived else { return };
        if arrived.is_icmp_error(&packet.packet) {
            return;
        }
        let mut work = Work::begin(self, now);
        let code = if arrived.src.is_ipv4() { how.v4_code() } else { how.v6_code() };
        self.send_unreachable(&mut work, arrived, code, &packet.packet);
        work.finish();
    }

    /// Stores a packet for the hook if the hook takes its kind. Otherwise answers it.
    pub(crate) fn unwanted(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        why: Unwanted,
        packet: &Packet,
        arrived: &Arrived,
    ) {
        if !self.tables.unhandled().wants(why.kind) {
            return self.refuse(work, why, packet, arrived);
        }
        state.unhandled.push(Unhandled {
            kind: why.kind,
            packet: packet.share(),
            arrived: Some(*arrived),
            named_at: why.named_at,
            interface: self.interfaces.first_way(arrived.interface),
        });
    }

    /// As [`unwanted`](Self::unwanted), for a packet that is not IP.
    pub(crate) fn no_ip(&self, state: &mut PollState, packet: Packet, interface: u8) {
        let kind = UnhandledKind::NotIp;
        if self.tables.unhandled().wants(kind) {
            let interface = self.interfaces.first_way(interface);
            state.unhandled.push(Unhandled { kind, packet, arrived: None, named_at: 0, interface });
        }
    }

    /// Gives the hook the packets of a poll. The caller holds no lock.
    pub(crate) fn hand_out(&self, now: Instant, queue: u8, packets: Vec<Unhandled>) {
        if packets.is_empty() {
            return;
        }
        let hook = self.tables.unhandled().get();
        let mut work = Work::begin_at(self, now, queue);
        for packet in packets.into_iter().flat_map(one_by_one) {
            // It may have gone since.
            match hook.as_ref().filter(|hook| hook.wants(packet.kind)) {
                Some(hook) => self.offer_unhandled(&mut work, hook, &packet),
                None => self.refuse_kept(&mut work, &packet),
            }
        }
        work.finish();
    }

    fn offer_unhandled(&self, work: &mut Work<'_>, hook: &Hook, packet: &Unhandled) {
        work.count(IpCounter::Unhandled);
        match hook.offer(packet, work.wakers()) {
            Offered::Answered(Disposition::Taken) => {}
            Offered::Answered(Disposition::Default) => self.refuse_kept(work, packet),
            Offered::Panicked => {
                work.count(IpCounter::UnhandledPanics);
                self.refuse_kept(work, packet);
            }
            Offered::Full => work.count(IpCounter::UnhandledDropped),
        }
    }

    fn refuse_kept(&self, work: &mut Work<'_>, packet: &Unhandled) {
        let Some(arrived) = &packet.arrived else { return };
        let why = Unwanted { kind: packet.kind, named_at: packet.named_at };
        self.refuse(work, why, &packet.packet, arrived);
    }

    /// Answers a packet that neither a hook nor a queue has taken.
    fn refuse(&self, work: &mut Work<'_>, why: Unwanted, packet: &Packet, arrived: &Arrived) {
        let v4 = arrived.src.is_ipv4();
        match why.kind {
            UnhandledKind::NotIp | UnhandledKind::Icmp { .. } => {}
            UnhandledKind::EchoRequest => self.answer_echo(work, packet, arrived),
            UnhandledKind::Protocol(_) if v4 => {
                let code = icmpv4::CODE_PROTOCOL_UNREACHABLE;
                self.send_unreachable(work, arrived, code, packet);
            }
            UnhandledKind::Protocol(_) => {
                let problem = (icmpv6::CODE_UNKNOWN_NEXT_HEADER, why.named_at);
                self.send_parameter_problem(work, arrived, problem, packet);
            }
            UnhandledKind::Datagram => {
                let code = match v4 {
                    true => icmpv4::CODE_PORT_UNREACHABLE,
                    false => icmpv6::CODE_PORT_UNREACHABLE,
                };
                self.send_unreachable(work, arrived, code, packet);
            }
        }
    }

    /// The hook gets no further packets.
    fn unhook(&self, hook: &Arc<Hook>) {
        self.tables.unhandled().remove(hook);
    }
}

/// The datagrams of a train as their own packets, with complete checksums.
fn one_by_one(packet: Unhandled) -> impl Iterator<Item = Unhandled> {
    let Unhandled { kind, packet, arrived, named_at, interface } = packet;
    let cut = packet.gso.is_some();
    gso::split(packet).map(move |mut packet| {
        // The headers of a packet with an incomplete checksum were checked before.
        checksum::fill(&mut packet);
        let end = if cut { packet.len() } else { arrived.map_or(packet.len(), |all| all.end) };
        let arrived = arrived.map(|all| Arrived { end, ..all });
        // A device may have padded it.
        let padding = packet.len() - end.min(packet.len());
        packet.payload.truncate(packet.payload.len().saturating_sub(padding));
        Unhandled { kind, packet, arrived, named_at, interface }
    })
}

impl Drop for UnhandledHook {
    fn drop(&mut self) {
        self.stack.unhook(&self.hook);
    }
}

impl std::fmt::Debug for UnhandledHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnhandledHook").finish_non_exhaustive()
    }
}

impl UnhandledReceiver {
    /// Takes the oldest packet, if there is one.
    ///
    /// # Errors
    /// If there is none and the stack has ended.
    pub fn recv(&self, now: Instant) -> Result<Option<Unhandled>, SocketError> {
        self.stack.pollers.tell(now);
        match self.hook.take()? {
            Some(packet) => Ok(Some(packet)),
            None if self.stack.error().is_some() => Err(SocketError::NetworkDown),
            None => Ok(None),
        }
    }

    /// Whether [`recv`](Self::recv) has a packet to return; if not, `waker` fires when it may. Only
    /// the waker of the latest call is kept.
    pub fn poll_readable(&self, waker: &Waker) -> Poll<()> {
        self.register(None, waker)
    }

    /// As [`poll_readable`](Self::poll_readable), for any number of waiters, each with its own key.
    /// [`cancel_wait`](Self::cancel_wait) ends the wait.
    pub fn wait_readable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register(Some(key), waker)
    }

    /// Removes the waker that waits under `key`, if it has not fired.
    pub fn cancel_wait(&self, key: WaitKey) {
        self.stack.discard(self.hook.cancel(key));
    }

    fn register(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let (ready, left) = self.hook.register(key, waker, || self.stack.error().is_some());
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The stack of the packets.
    pub fn stack(&self) -> &Arc<Stack> {
        &self.stack
    }
}

impl Drop for UnhandledReceiver {
    fn drop(&mut self) {
        self.stack.unhook(&self.hook);
    }
}

impl std::fmt::Debug for UnhandledReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnhandledReceiver").finish_non_exhaustive()
    }
}
