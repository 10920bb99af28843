//! What happens to packets that no socket accepts.
//!
//! In the middle of a poll such a packet is only kept. The hook is called when the poll has come to
//! its end, on the polling thread, while the stack holds no lock that a call on it takes; so it may
//! use sockets and send packets. A poll keeps no more packets than it takes from the devices, which
//! is bounded.

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
use crate::stack::work::Work;

/// Why nobody wants a packet, with what the answer needs.
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

/// Keeps a function in its place that is called for packets that no socket accepts. Dropping it
/// takes the function out; a call on another thread may just be under way then.
#[must_use = "dropping it takes the function out"]
pub struct UnhandledHook {
    stack: Arc<Stack>,
    hook: Arc<Hook>,
}

/// Receives packets that no socket accepts. Dropping it ends that.
pub struct UnhandledReceiver {
    stack: Arc<Stack>,
    hook: Arc<Hook>,
}

impl Stack {
    /// From now on calls `handler` for each packet of the kinds in `config` that no socket accepts.
    /// It is called by the thread that polls, which goes on when it returns, and by several at a
    /// time if several poll. What it answers is done then. A panic of it goes no further
    /// (`plimsoll.UnhandledPanics`); the packet goes the way of [`Disposition::Default`].
    ///
    /// # Errors
    /// If the stack has such a function or a receiver already; if no kind is asked for.
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

    /// From now on keeps each packet of the kinds in `config` that no socket accepts, to be
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

    /// Does with a packet that was received what is done without a hook; see
    /// [`Disposition::Default`].
    pub fn refuse_unhandled(&self, now: Instant, packet: &Unhandled) {
        let mut work = Work::begin(self, now);
        self.refuse_kept(&mut work, packet);
        work.finish();
    }

    /// Keeps a packet for the hook if there is one that wants it. Otherwise answers it.
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

    /// As [`unwanted`](Self::unwanted), for what is no IP packet.
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
        // What has a checksum to be completed has passed the look at its headers.
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
    /// Takes the packet that has waited longest, if one waits.
    ///
    /// # Errors
    /// If none waits and the stack has come to its end.
    pub fn recv(&self, now: Instant) -> Result<Option<Unhandled>, SocketError> {
        self.stack.pollers.tell(now);
        match self.hook.take()? {
            Some(packet) => Ok(Some(packet)),
            None if self.stack.error().is_some() => Err(SocketError::NetworkDown),
            None => Ok(None),
        }
    }

    /// Whether [`recv`](Self::recv) has something to return; if not, `waker` fires when it may.
    /// Only the waker of the latest call is kept.
    pub fn poll_readable(&self, waker: &Waker) -> Poll<()> {
        self.register(None, waker)
    }

    /// As [`poll_readable`](Self::poll_readable), for any number of waiters, each with its own key.
    /// To give up, call [`cancel_wait`](Self::cancel_wait).
    pub fn wait_readable(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.register(Some(key), waker)
    }

    /// Takes the waker out that waits under `key`, if it has not fired.
    pub fn cancel_wait(&self, key: WaitKey) {
        self.stack.discard(self.hook.cancel(key));
    }

    fn register(&self, key: Option<WaitKey>, waker: &Waker) -> Poll<()> {
        let (ready, left) = self.hook.register(key, waker, || self.stack.error().is_some());
        self.stack.discard(left);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The stack whose packets these are.
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
