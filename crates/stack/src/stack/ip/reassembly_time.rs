//! Datagrams that are given up because some of their fragments did not arrive in time.

use plimsoll_tcp::Instant;
use plimsoll_wire::ipv6;

use crate::arrived::Arrived;
use crate::packet::Packet;
use crate::snmp::IpCounter;
use crate::stack::Stack;
use crate::stack::ip::icmp::IcmpError;
use crate::stack::work::Work;
use crate::tables::reassembly::{Expired, FirstFragment};

impl Stack {
    /// When the oldest unfinished datagram is to be given up.
    #[inline]
    pub(crate) fn reassembly_ends(&self) -> Option<Instant> {
        let since = self.tables.reassembles_since()?;
        Some(since + self.policies.sysctl().snapshot().ipfrag_time)
    }

    /// A fragment waits for others: the first queue's poller, which handles the timeout, must be
    /// awake when it expires.
    pub(crate) fn await_fragments(&self, work: &Work<'_>) {
        if let Some(since) = self.tables.reassembles_since() {
            self.pollers.queue(0).waiter().kick_before(since + work.settings.ipfrag_time);
        }
    }

    /// Gives up the datagrams whose time is over, and reports that to the senders of those whose
    /// first fragment has arrived (RFC 1122, section 3.3.2; RFC 8200, section 4.5).
    pub(crate) fn expire_fragments(&self, work: &mut Work<'_>) {
        let expired = self.tables.reassembler().expire(work.now, work.settings.ipfrag_time);
        for datagram in expired {
            let (timeouts, fails) = match datagram.src.is_ipv4() {
                true => (IpCounter::IpReasmTimeout, IpCounter::IpReasmFails),
                false => (IpCounter::Ip6ReasmTimeout, IpCounter::Ip6ReasmFails),
            };
            work.count(timeouts);
            work.count(fails);
            if let Some(first) = datagram.first {
                self.report_expired(work, datagram, first);
            }
        }
    }

    fn report_expired(&self, work: &mut Work<'_>, datagram: Expired, first: FirstFragment) {
        let Expired { src, dst, front, data_at, .. } = datagram;
        let routes = self.interfaces.routes();
        // The address may have gone meanwhile.
        let answers = routes.takes(dst) && !routes.is_for_many(dst);
        drop(routes);
        let mut arrived = Arrived {
            src,
            dst,
            protocol: first.protocol,
            transport_at: data_at,
            end: front.len(),
            tos: first.tos,
            ttl: first.ttl,
            for_many: false,
            interface: first.interface,
        };
        if src.is_ipv6() {
            // Extension headers may hide an ICMPv6 error.
            let Ok(upper) = ipv6::walk_extensions(first.protocol, &front[data_at..]) else {
                return;
            };
            arrived.protocol = upper.protocol;
            arrived.transport_at += upper.offset;
        }
        let packet = Packet::from(front);
        if answers && !arrived.is_icmp_error(&packet) {
            self.send_time_exceeded(work, dst, &arrived, &packet, IcmpError::ReassemblyTime);
        }
    }
}
