//! Arrived datagrams: for a socket, for all sockets of a group, for a new flow, or without a
//! receiver.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_buf::Slices;
use plimsoll_wire::udp::UdpRepr;

use crate::arrived::Arrived;
use crate::flow::FlowKey;
use crate::offload::checksum;
use crate::packet::Packet;
use crate::policies::udp_memory::limit_of;
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::udp::flow::FlowListener;
use crate::sockets::udp::receive_queue::DatagramInfo;
use crate::sockets::udp::{Delivery, NextPoll, UdpEndpoint};
use crate::sockets::unhandled::UnhandledKind;
use crate::stack::Stack;
use crate::stack::unhandled::Unwanted;
use crate::stack::work::Work;
use crate::tables::udp::Found;
use crate::zone;

/// The counters of UDP over one IP version.
pub(crate) struct UdpCounters {
    pub(crate) in_datagrams: IpCounter,
    pub(crate) no_ports: IpCounter,
    pub(crate) ignored_multi: IpCounter,
    pub(crate) in_errors: IpCounter,
    pub(crate) out_datagrams: IpCounter,
    pub(crate) rcvbuf_errors: IpCounter,
    pub(crate) sndbuf_errors: IpCounter,
    pub(crate) in_csum_errors: IpCounter,
    pub(crate) mem_errors: IpCounter,
}

const V4: UdpCounters = UdpCounters {
    in_datagrams: IpCounter::UdpInDatagrams,
    no_ports: IpCounter::UdpNoPorts,
    ignored_multi: IpCounter::UdpIgnoredMulti,
    in_errors: IpCounter::UdpInErrors,
    out_datagrams: IpCounter::UdpOutDatagrams,
    rcvbuf_errors: IpCounter::UdpRcvbufErrors,
    sndbuf_errors: IpCounter::UdpSndbufErrors,
    in_csum_errors: IpCounter::UdpInCsumErrors,
    mem_errors: IpCounter::UdpMemErrors,
};

const V6: UdpCounters = UdpCounters {
    in_datagrams: IpCounter::Udp6InDatagrams,
    no_ports: IpCounter::Udp6NoPorts,
    ignored_multi: IpCounter::Udp6IgnoredMulti,
    in_errors: IpCounter::Udp6InErrors,
    out_datagrams: IpCounter::Udp6OutDatagrams,
    rcvbuf_errors: IpCounter::Udp6RcvbufErrors,
    sndbuf_errors: IpCounter::Udp6SndbufErrors,
    in_csum_errors: IpCounter::Udp6InCsumErrors,
    mem_errors: IpCounter::Udp6MemErrors,
};

/// The counters of the IP version of `peer`.
pub(crate) fn counters_of(peer: SocketAddr) -> &'static UdpCounters {
    if peer.is_ipv4() { &V4 } else { &V6 }
}

/// A datagram, or several of one length that arrived as one.
struct Datagram {
    info: DatagramInfo,
    /// Sender and destination as the tables have them.
    from: SocketAddr,
    to: SocketAddr,
    payload: Slices,
    stride: Option<usize>,
}

impl Stack {
    /// Processes a UDP packet for the stack. Nothing is copied unless a socket accepts it.
    #[inline]
    pub(crate) fn udp_input(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        packet: &mut Packet,
        arrived: &Arrived,
    ) {
        let from = SocketAddr::new(arrived.src, 0);
        let counters = counters_of(from);
        let header = packet.headers().get(arrived.transport_at..).unwrap_or_default();
        let len = arrived.end.saturating_sub(arrived.transport_at);
        let Ok((repr, header_len)) = UdpRepr::parse_front(header, len) else {
            return work.count(counters.in_errors);
        };
        if !checksum::verify(packet) {
            work.count(counters.in_csum_errors);
            return work.count(counters.in_errors);
        }
        let from = SocketAddr::new(arrived.src, repr.src_port);
        let to = SocketAddr::new(arrived.dst, repr.dst_port);
        let data_at = arrived.transport_at + header_len;
        let routes = self.interfaces.routes();
        let ours = !routes.takes_any_address() || routes.is_ours(to.ip());
        drop(routes);
        if arrived.for_many {
            let datagram = self.datagram(packet, arrived, (from, to), (data_at, repr.payload_len));
            return self.deliver_to_all(work, state, &datagram);
        }
        let hash = || self.hash_of_datagram(from, to);
        match self.tables.udp().find(from, to, ours, hash) {
            Found::Socket(endpoint) => {
                let ends = (data_at, repr.payload_len);
                let datagram = self.datagram(packet, arrived, (from, to), ends);
                self.deliver_to(work, state, &endpoint, &datagram);
            }
            Found::New(listener) => {
                let ends = (data_at, repr.payload_len);
                let datagram = self.datagram(packet, arrived, (from, to), ends);
                self.deliver_to_new(work, state, &listener, &datagram);
            }
            Found::Nobody => {
                work.count(counters.no_ports);
                let why = Unwanted::new(UnhandledKind::Datagram);
                self.unwanted(work, state, why, packet, arrived);
            }
        }
    }

    /// The hash that chooses one of several sockets that share a port, for datagrams from `from` to
    /// `to`.
    pub(crate) fn hash_of_datagram(&self, from: SocketAddr, to: SocketAddr) -> u64 {
        let key = FlowKey {
            local: to.ip(),
            remote: from.ip(),
            local_port: to.port(),
            remote_port: from.port(),
        };
        key.hash(self.policies.secrets().table_key())
    }

    /// The data of a packet, which begins at `data_at`.
    #[inline]
    fn datagram(
        &self,
        packet: &mut Packet,
        arrived: &Arrived,
        (from, to): (SocketAddr, SocketAddr),
        (data_at, len): (usize, usize),
    ) -> Datagram {
        let info = DatagramInfo {
            from: zone::show(from),
            to: zone::bare(to.ip()),
            to_port: to.port(),
            tos: arrived.tos,
            ttl: arrived.ttl,
            interface: usize::from(self.interfaces.first_way(arrived.interface)),
        };
        let stride = packet.gso.map(|gso| usize::from(gso.size));
        // A head with data in it: a copy, which none of this crate's devices makes necessary.
        if !packet.head.is_empty() && packet.head.len() != data_at {
            *packet = self.linearised(std::mem::take(packet));
        }
        let mut payload = std::mem::take(&mut packet.payload);
        if packet.head.is_empty() {
            payload.advance(data_at.min(payload.len()));
        }
        payload.truncate(len);
        Datagram { info, from, to, payload, stride }
    }

    #[inline]
    fn deliver_to(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        endpoint: &Arc<UdpEndpoint>,
        datagram: &Datagram,
    ) {
        if let Some(flow) = endpoint.flow() {
            flow.note_arrival(work.now);
        }
        let at_home = endpoint.home == work.home();
        if !at_home {
            work.count(IpCounter::QueueMisses);
        }
        let limit = limit_of(&work.settings.udp_mem);
        let memory = self.policies.udp_memory();
        let pool = self.pollers.pool(work.home());
        let (delivery, next_poll) = endpoint.deliver(
            work.now,
            &datagram.info,
            (&datagram.payload, datagram.stride),
            pool,
            |charged, cost| memory.grow(charged, cost, limit),
            work.wakers(),
        );
        // A reader polls only the devices of its own queue.
        state.left_to_reader |= at_home && next_poll == NextPoll::ByReader;
        let counters = counters_of(datagram.info.from);
        let dropped = match delivery {
            Delivery::Queued => return state.datagrams = true,
            Delivery::Full => counters.rcvbuf_errors,
            Delivery::NoMemory => counters.mem_errors,
            Delivery::Closed => return work.count(counters.no_ports),
        };
        work.count(dropped);
        work.count(counters.in_errors);
    }

    /// Begins a flow with a datagram, if there is a place for one.
    fn deliver_to_new(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        listener: &Arc<FlowListener>,
        datagram: &Datagram,
    ) {
        let flow = self.begin_flow(work, listener, datagram.from, datagram.to);
        if let Some(flow) = flow {
            self.deliver_to(work, state, &flow, datagram);
        }
    }

    /// Delivers a datagram to a group or a broadcast address to all sockets that receive it.
    fn deliver_to_all(&self, work: &mut Work<'_>, state: &mut PollState, datagram: &Datagram) {
        let all = self.tables.udp().find_all(datagram.from, datagram.to);
        if all.is_empty() {
            return work.count(counters_of(datagram.info.from).ignored_multi);
        }
        for found in all {
            match found {
                Found::Socket(endpoint) => self.deliver_to(work, state, &endpoint, datagram),
                Found::New(listener) => self.deliver_to_new(work, state, &listener, datagram),
                Found::Nobody => {}
            }
        }
    }
}
