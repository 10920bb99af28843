//! Arrived TCP segments: for a connection, a TIME-WAIT entry, a listener, or no receiver.

use std::net::IpAddr;
use std::sync::Arc;

use plimsoll_tcp::time_wait::TimeWaitAction;
use plimsoll_tcp::{Batch, Counter, Md5Key, Segment};
use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::{MD5_DIGEST_LEN, TcpFlags, TcpRepr};

use crate::arrived::Arrived;
use crate::flow::FlowKey;
use crate::offload::checksum;
use crate::packet::Packet;
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, ListenerInner};
use crate::sockets::md5::{self, FixedHeader};
use crate::sockets::saved_syn::SynHeaders;
use crate::stack::Stack;
use crate::stack::ip::output::{ecn_bits, ecn_of};
use crate::stack::stray_rst;
use crate::stack::work::Work;

/// The outcome of a segment for a connection.
struct Given {
    /// It is dealt with: the connection had not ended.
    taken: bool,
    /// The connection must be settled at the end of the batch, and is not listed for that yet.
    touched: bool,
}

/// Where the flags are in a TCP header.
const FLAGS_OFFSET: usize = 13;

impl Stack {
    pub(crate) fn tcp_input(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        packet: Packet,
        arrived: &Arrived,
    ) {
        let (segs, size) = (packet.segs(), packet.gso.map(|gso| gso.size));
        work.tcp().add(Counter::InSegs, segs as u64);
        if state.syns.is_spent() && is_syn(&packet, arrived) {
            if !work.spares(state, arrived.src) {
                return work.count(IpCounter::SynShed);
            }
            work.count(IpCounter::SynSpared);
        }
        if !checksum::verify(&packet) {
            work.tcp().bump(Counter::InCsumErrors);
            work.tcp().bump(Counter::InErrs);
            return;
        }
        let Some((repr, data_at)) = tcp_header(&packet, arrived) else {
            work.tcp().bump(Counter::InErrs);
            return;
        };
        let mut packet = packet;
        if !packet.head.is_empty() && packet.head.len() != data_at {
            // A head with data in it: a copy, which none of this crate's devices makes necessary.
            packet = self.linearised(packet);
        }
        // Signatures are rare: segments without them cost nothing.
        let signed = repr.options.md5.is_some() || self.policies.md5_in_use();
        let header = if signed { fixed_header(&packet, arrived) } else { None };
        let opens = asks_to_connect(repr.flags) && self.policies.saves_syns();
        work.syn_headers = opens.then(|| SynHeaders::of(&packet, data_at));
        let mut payload = packet.payload;
        if packet.head.is_empty() {
            payload.advance(data_at);
        }
        payload.truncate(arrived.end - data_at);
        let key = FlowKey {
            local: arrived.dst,
            remote: arrived.src,
            local_port: repr.dst_port,
            remote_port: repr.src_port,
        };
        let segs = u16::try_from(segs).unwrap_or(u16::MAX);
        let segment = Segment { repr, payload, segs, ecn: ecn_of(arrived.tos) };
        if let Some(fault) = header.and_then(|header| self.signature_fault(&key, &header, &segment))
        {
            return work.tcp().bump(fault);
        }
        self.tcp_gro(work, state, &key, (segment, arrived.tos), size);
    }

    /// Passes a segment, maybe several merged ones, to its receiver. `tos` is DSCP and ECN of its
    /// packet.
    pub(crate) fn tcp_demux(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        key: &FlowKey,
        (segment, tos): (Segment, u8),
    ) {
        let mut segment = segment;
        while let Some(endpoint) = self.tables.connections().find(key) {
            if self.to_connection(work, state, endpoint, &mut segment) {
                return;
            }
            // It has ended. The segments left for it arrived before this one, and may have opened
            // another.
            if !work.route_strays() {
                break;
            }
        }
        let listener = self.listener_for(key);
        let Some(least_iss) = self.to_time_wait(work, key, &segment, listener.is_some()) else {
            return;
        };
        let stray = match listener {
            Some(listener) => self.to_listener(work, state, &listener, key, segment, least_iss),
            None => {
                let flags = segment.repr.flags;
                if asks_to_connect(flags) && !flags.contains(TcpFlags::RST) {
                    work.note_refusal(key, "no listener");
                }
                Some(segment)
            }
        };
        if let Some(stray) = stray {
            self.to_nobody(work, key, &stray, tos);
        }
    }

    /// Gives a segment to the entry in TIME-WAIT, if there is one. `None` means that it is dealt
    /// with; otherwise the least initial sequence number that a new connection may have, if the
    /// segment opens one in place of the entry.
    #[allow(clippy::option_option, reason = "the outer one is whether to go on")]
    fn to_time_wait(
        &self,
        work: &mut Work<'_>,
        key: &FlowKey,
        segment: &Segment,
        listening: bool,
    ) -> Option<Option<SeqNum>> {
        let Some(mut table) = self.tables.any_time_wait() else { return Some(None) };
        let Some(entry) = table.find(key) else { return Some(None) };
        match entry.handle_segment(&work.context_idle(), segment, listening) {
            TimeWaitAction::Ignore => {}
            TimeWaitAction::Ack(repr) => {
                let tos = entry.tos() | ecn_bits(entry.ecn());
                let md5_key = entry.md5_key().cloned();
                drop(table);
                work.send_segment(key, &repr, md5_key.as_ref(), tos);
            }
            TimeWaitAction::Ended => table.remove(key),
            TimeWaitAction::Reuse { iss } => {
                table.remove(key);
                return Some(Some(iss));
            }
        }
        None
    }

    /// The fault of a segment's signature, if there is one.
    fn signature_fault(
        &self,
        key: &FlowKey,
        header: &FixedHeader,
        segment: &Segment,
    ) -> Option<Counter> {
        let fault = |md5_key: Option<&Md5Key>| {
            md5::fault(md5_key, key, header, segment.repr.options.md5, &segment.payload)
        };
        if !self.policies.md5_in_use() {
            return fault(None);
        }
        if let Some(endpoint) = self.tables.connections().find(key) {
            return fault(endpoint.md5_key());
        }
        if let Some(mut table) = self.tables.any_time_wait()
            && let Some(entry) = table.find(key)
        {
            return fault(entry.md5_key());
        }
        fault(self.listening_key(key).as_ref())
    }

    /// The listener for packets of a flow.
    pub(crate) fn listener_for(&self, key: &FlowKey) -> Option<Arc<ListenerInner>> {
        let routes = self.interfaces.routes();
        // Unless the stack accepts any address, the packet is for a local one.
        let ours = !routes.takes_any_address() || routes.is_ours(key.local);
        let hash = || key.hash(self.policies.secrets().table_key());
        self.tables.listeners().find(key.local, key.local_port, ours, hash)
    }

    /// The key with which a listener and its peer sign segments that belong to no connection.
    fn listening_key(&self, key: &FlowKey) -> Option<Md5Key> {
        if !self.policies.md5_in_use() {
            return None;
        }
        self.listener_for(key)?.md5_key(key.remote)
    }

    /// Gives a segment to its connection. Returns false if the connection had left the tables
    /// before; the segment is as it was then.
    pub(super) fn to_connection(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        endpoint: Arc<Endpoint>,
        segment: &mut Segment,
    ) -> bool {
        if endpoint.home() != work.home() {
            work.count(IpCounter::QueueMisses);
        }
        let renews = state.syns.is_scarce();
        let given = work.contain(&endpoint, |work| self.give(work, &endpoint, segment, renews));
        let Some(Given { taken, touched }) = given else { return true };
        if touched {
            state.touched.push(endpoint);
        }
        taken
    }

    /// As [`to_connection`](Self::to_connection); a panic is not caught. `renews` is whether it
    /// proves the peer again.
    fn give(
        &self,
        work: &mut Work<'_>,
        endpoint: &Arc<Endpoint>,
        segment: &mut Segment,
        renews: bool,
    ) -> Given {
        let Some(mut inner) = endpoint.try_own() else {
            work.leave_segment(endpoint, segment.take());
            return Given { taken: true, touched: false };
        };
        // A device with one queue has nowhere to move to.
        if self.pollers.count() > 1 && !segment.payload.is_empty() {
            work.note_queue(endpoint, &mut inner);
        }
        if renews && inner.conn.state().is_synchronized() {
            work.prove(endpoint);
        }
        // Segments that arrived before this one go first.
        let left = work.run_left(endpoint, &mut inner);
        if inner.prequeue.is_some() {
            match work.prequeue(endpoint, &mut inner, segment.take()) {
                None => return Given { taken: true, touched: left && inner.touch() },
                Some(back) => *segment = back,
            }
        }
        let taken = work.take_segment(endpoint, &mut inner, (segment, Batch::Device));
        // Also if it has gone: something may be left for it that only the end of the batch finds.
        Given { taken, touched: inner.touch() }
    }

    /// Answers a segment that no socket accepts with a reset, within limits. Where a listener has a
    /// key for the peer, the reset is signed, since the peer would not believe it otherwise. It
    /// leaves with the DSCP of `tos`, which the segment came with, as on Linux.
    fn to_nobody(&self, work: &mut Work<'_>, key: &FlowKey, segment: &Segment, tos: u8) {
        let Some(mut repr) = stray_rst::answer(key, &segment.repr, segment.payload.len()) else {
            return;
        };
        if work.allows(self.policies.icmp_limits().resets()) {
            let md5_key = self.listening_key(key);
            repr.options.md5 = md5_key.as_ref().map(|_| [0; MD5_DIGEST_LEN]);
            work.send_segment(key, &repr, md5_key.as_ref(), tos & !3);
        } else {
            work.count(IpCounter::StrayRstLimited);
        }
    }
}

impl Work<'_> {
    /// Called by a thread that owns no socket: passes segments that were left after the end of
    /// their connections to their present receivers. Returns whether there were any.
    #[inline]
    pub(crate) fn route_strays(&mut self) -> bool {
        !self.strays.is_empty() && self.route_all_strays()
    }

    #[cold]
    fn route_all_strays(&mut self) -> bool {
        // Connections that they open are settled in between, which may find more segments: those
        // are left to the first call.
        if std::mem::replace(&mut self.routes, true) {
            return false;
        }
        // They are of another packet, and those of the strays were not kept.
        let headers = self.syn_headers.take();
        // This may not be the thread that polls.
        let mut state = PollState::default();
        while !self.strays.is_empty() {
            for (key, segment) in std::mem::take(&mut self.strays) {
                // The TOS of its packet was not kept.
                self.stack.tcp_demux(self, &mut state, &key, (segment, 0));
                self.stack.settle_touched(self, &mut state);
            }
        }
        self.syn_headers = headers;
        self.routes = false;
        true
    }

    /// Whether a SYN from `source` is processed although SYNs have had their share.
    fn spares(&self, state: &mut PollState, source: IpAddr) -> bool {
        let peers = self.stack.policies.proven_peers();
        state.syns.may_spare()
            && peers.find(source, self.now).is_some_and(|peer| state.syns.spare(peer))
    }

    /// The address of an established connection's peer is proven.
    pub(crate) fn prove(&self, endpoint: &Endpoint) {
        self.stack.policies.proven_peers().note(endpoint.key.remote, self.now);
    }
}

/// Whether it is a SYN that requests a connection. Nothing else is checked.
fn is_syn(packet: &Packet, arrived: &Arrived) -> bool {
    let flags = packet.headers().get(arrived.transport_at + FLAGS_OFFSET);
    flags.is_some_and(|&flags| asks_to_connect(TcpFlags(u16::from(flags))))
}

fn asks_to_connect(flags: TcpFlags) -> bool {
    flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags::ACK)
}

/// Parses the TCP header of a packet and returns it with where the data begins.
fn tcp_header(packet: &Packet, arrived: &Arrived) -> Option<(TcpRepr, usize)> {
    let front = packet.headers();
    let header = front.get(arrived.transport_at..arrived.end.min(front.len()))?;
    let (repr, header_len) = TcpRepr::parse(header).ok()?;
    Some((repr, arrived.transport_at + header_len))
}

/// The start of the TCP header of a packet whose header has been parsed.
fn fixed_header(packet: &Packet, arrived: &Arrived) -> Option<FixedHeader> {
    packet.headers().get(arrived.transport_at..)?.first_chunk().copied()
}
