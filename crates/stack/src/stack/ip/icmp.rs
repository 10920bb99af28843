//! ICMP and ICMPv6: echo replies, errors from the path, errors that the stack sends.
//!
//! An error from the path is accepted only if it quotes a segment that is in flight (RFC 5927,
//! section 4.1); the connection then gets it as a path event. Token buckets limit errors that the
//! stack sends, and echo replies.

use std::net::IpAddr;

use plimsoll_tcp::{ConnectionError, LearntMtu};
use plimsoll_wire::icmpv4::{self, Icmpv4Repr};
use plimsoll_wire::icmpv6::{self, Icmpv6Repr};
use plimsoll_wire::{WireError, protocol};

use crate::arrived::Arrived;
use crate::flow::is_unicast;
use crate::limits::MAX_ECHO_DATA;
use crate::packet::Packet;
use crate::policies::icmp_limits::{Bucket, IcmpSender};
use crate::pollers::poll_state::PollState;
use crate::snmp::IpCounter;
use crate::sockets::path_report::PathReport;
use crate::sockets::quote::{Quote, UdpQuote};
use crate::sockets::unhandled::UnhandledKind;
use crate::stack::Stack;
use crate::stack::ip::input::{quoted, transport_bytes};
use crate::stack::ip::output::{IpParams, to_v6};
use crate::stack::unhandled::Unwanted;
use crate::stack::work::Work;
use crate::zone;

/// The longest ICMP error, IP header included (RFC 1812, section 4.3.2.3).
pub(crate) const MAX_ERROR_V4: usize = 576;
/// The longest ICMPv6 error, IP header included (RFC 4443, section 2.4).
pub(crate) const MAX_ERROR_V6: usize = 1280;
/// Type of "echo reply", as a bit of `icmp_ratemask`.
const ECHO_REPLY: u32 = 0;
/// The least MTU of IPv6 (RFC 8200, section 5).
const MIN_MTU_V6: u16 = 1280;

impl Work<'_> {
    /// Whether `bucket` lets one more message out.
    pub(crate) fn allows(&self, bucket: &Bucket) -> bool {
        let settings = &self.settings;
        bucket.take(self.now, settings.icmp_msgs_per_sec, settings.icmp_msgs_burst)
    }
}

/// The ICMP errors that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpError {
    /// Destination unreachable, or a parameter problem of IPv6.
    Unreachable,
    /// Time exceeded in transit.
    HopLimit,
    /// Time exceeded while reassembling.
    ReassemblyTime,
}

impl IcmpError {
    /// Its type in IPv4, as a bit of `icmp_ratemask`.
    fn bit(self) -> u32 {
        match self {
            IcmpError::Unreachable => 3,
            IcmpError::HopLimit | IcmpError::ReassemblyTime => 11,
        }
    }

    /// The sender: the host that a packet was for, or the router in front of it. Each has its own
    /// limits.
    fn sender(self) -> IcmpSender {
        match self {
            IcmpError::Unreachable | IcmpError::ReassemblyTime => IcmpSender::Host,
            IcmpError::HopLimit => IcmpSender::Router,
        }
    }
}

/// The meaning of a path error for a connection or a socket.
pub(crate) enum PathError {
    Error(ConnectionError),
    /// The next hop's MTU; zero if the router does not report it.
    TooBig(u32),
}

/// Whether an error of the path was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// To a connection or a socket that may have sent the quoted packet.
    Delivered,
    NoMatch,
}

/// Why no socket accepts the ICMP message in `bytes`, which has a whole header.
fn useless(bytes: &[u8]) -> Unwanted {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    Unwanted::new(UnhandledKind::Icmp { message: byte(0), code: byte(1) })
}

impl Stack {
    pub(crate) fn icmpv4_input(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        packet: &Packet,
        arrived: &Arrived,
    ) {
        work.count(IpCounter::IcmpInMsgs);
        let bytes = transport_bytes(packet, arrived);
        let message = match Icmpv4Repr::parse(&bytes) {
            Ok(message) => message,
            // Many types are not for this stack; that is no error.
            Err(WireError::Unknown) => {
                return self.unwanted(work, state, useless(&bytes), packet, arrived);
            }
            Err(error) => {
                if error == WireError::BadChecksum {
                    work.count(IpCounter::IcmpInCsumErrors);
                }
                work.count(IpCounter::IcmpInErrors);
                return;
            }
        };
        let zone = self.zone_of_quote(arrived);
        let delivery = match message {
            Icmpv4Repr::EchoRequest { .. } => {
                work.count(IpCounter::IcmpInEchos);
                return self.echo_request(work, state, packet, arrived);
            }
            Icmpv4Repr::EchoReply { .. } => {
                work.count(IpCounter::IcmpInEchoReps);
                Delivery::NoMatch
            }
            Icmpv4Repr::Unreachable { code, next_hop_mtu, packet: quoted } => {
                work.count(IpCounter::IcmpInDestUnreachs);
                self.path_report(work, state, (quoted, zone), v4_report(code, next_hop_mtu))
            }
            // A fragment was lost, which reveals nothing about the path (RFC 1122, section
            // 4.2.3.9).
            Icmpv4Repr::TimeExceeded { code: icmpv4::CODE_REASSEMBLY_TIME, .. } => {
                work.count(IpCounter::IcmpInTimeExcds);
                Delivery::NoMatch
            }
            Icmpv4Repr::TimeExceeded { packet: quoted, .. } => {
                work.count(IpCounter::IcmpInTimeExcds);
                let report = PathError::Error(ConnectionError::HostUnreachable);
                self.path_report(work, state, (quoted, zone), report)
            }
            Icmpv4Repr::ParameterProblem { packet: quoted, .. } => {
                work.count(IpCounter::IcmpInParmProbs);
                let report = PathError::Error(ConnectionError::ParameterProblem);
                self.path_report(work, state, (quoted, zone), report)
            }
        };
        if delivery == Delivery::NoMatch {
            self.unwanted(work, state, useless(&bytes), packet, arrived);
        }
    }

    pub(crate) fn icmpv6_input(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        packet: &Packet,
        arrived: &Arrived,
    ) {
        work.count(IpCounter::Icmp6InMsgs);
        let Some((src, dst)) = arrived.wire_ends_v6() else { return };
        let bytes = transport_bytes(packet, arrived);
        let message = match Icmpv6Repr::parse(src, dst, &bytes) {
            Ok(message) => message,
            Err(WireError::Unknown) => {
                return self.unwanted(work, state, useless(&bytes), packet, arrived);
            }
            Err(error) => {
                if error == WireError::BadChecksum {
                    work.count(IpCounter::Icmp6InCsumErrors);
                }
                work.count(IpCounter::Icmp6InErrors);
                return;
            }
        };
        let zone = self.zone_of_quote(arrived);
        let delivery = match message {
            Icmpv6Repr::EchoRequest { .. } => {
                work.count(IpCounter::Icmp6InEchos);
                return self.echo_request(work, state, packet, arrived);
            }
            Icmpv6Repr::EchoReply { .. } => {
                work.count(IpCounter::Icmp6InEchoReplies);
                Delivery::NoMatch
            }
            Icmpv6Repr::Unreachable { code, packet: quoted } => {
                work.count(IpCounter::Icmp6InDestUnreachs);
                self.path_report(work, state, (quoted, zone), PathError::Error(v6_error(code)))
            }
            Icmpv6Repr::PacketTooBig { mtu, packet: quoted } => {
                work.count(IpCounter::Icmp6InPktTooBigs);
                self.path_report(work, state, (quoted, zone), PathError::TooBig(mtu))
            }
            Icmpv6Repr::TimeExceeded { packet: quoted, .. } => {
                let report = PathError::Error(ConnectionError::HostUnreachable);
                self.path_report(work, state, (quoted, zone), report)
            }
            Icmpv6Repr::ParameterProblem { packet: quoted, .. } => {
                let report = PathError::Error(ConnectionError::ParameterProblem);
                self.path_report(work, state, (quoted, zone), report)
            }
            // Neighbours are those of devices that carry frames.
            Icmpv6Repr::Ndp(_) => Delivery::NoMatch,
        };
        if delivery == Delivery::NoMatch {
            self.unwanted(work, state, useless(&bytes), packet, arrived);
        }
    }

    /// An echo request has arrived. The stack answers a request to a local address, or to a group
    /// that it has joined. A stack for any address offers a request to another host to the hook
    /// first.
    fn echo_request(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        packet: &Packet,
        arrived: &Arrived,
    ) {
        if arrived.for_many || self.interfaces.routes().is_ours(arrived.dst) {
            return self.answer_echo(work, packet, arrived);
        }
        let why = Unwanted::new(UnhandledKind::EchoRequest);
        self.unwanted(work, state, why, packet, arrived);
    }

    /// The source address of an echo reply, if one is sent: the destination of the request, or a
    /// local address if that is a group (RFC 4443, section 4.2).
    fn echo_source(&self, work: &Work<'_>, arrived: &Arrived) -> Option<IpAddr> {
        let routes = self.interfaces.routes();
        if arrived.for_many {
            return routes.source_for(arrived.src);
        }
        let answers = work.settings.icmp_echo_any || routes.is_ours(arrived.dst);
        answers.then_some(arrived.dst)
    }

    /// Answers an echo request as the host that it was sent to.
    pub(crate) fn answer_echo(&self, work: &mut Work<'_>, packet: &Packet, arrived: &Arrived) {
        let Some(own) = self.echo_source(work, arrived) else { return };
        let bytes = transport_bytes(packet, arrived);
        match arrived.wire_ends_v6() {
            Some((src, dst)) => {
                let Ok(Icmpv6Repr::EchoRequest { ident, seq, data }) =
                    Icmpv6Repr::parse(src, dst, &bytes)
                else {
                    return;
                };
                if self.may_echo(work, IpCounter::Icmp6InErrors, data) {
                    let reply = Icmpv6Repr::EchoReply { ident, seq, data };
                    let mut out = vec![0; reply.len()];
                    reply.emit(zone::bare_v6(to_v6(own)), src, &mut out);
                    let counters = (IpCounter::Icmp6OutMsgs, IpCounter::Icmp6OutEchoReplies);
                    work.answer_as(own, arrived, &out, counters);
                }
            }
            None => {
                let Ok(Icmpv4Repr::EchoRequest { ident, seq, data }) = Icmpv4Repr::parse(&bytes)
                else {
                    return;
                };
                if self.may_echo(work, IpCounter::IcmpInErrors, data) {
                    let reply = Icmpv4Repr::EchoReply { ident, seq, data };
                    let mut out = vec![0; reply.len()];
                    reply.emit(&mut out);
                    let counters = (IpCounter::IcmpOutMsgs, IpCounter::IcmpOutEchoReps);
                    work.answer_as(own, arrived, &out, counters);
                }
            }
        }
    }

    /// The zone of a message's quote: that of the message itself (RFC 4007, section 9).
    fn zone_of_quote(&self, arrived: &Arrived) -> u8 {
        // On loopback the packet has it, and otherwise the interface.
        let said = zone::zone_of(arrived.dst).or_else(|| zone::zone_of(arrived.src));
        said.unwrap_or_else(|| self.interfaces.first_way(arrived.interface))
    }

    fn may_echo(&self, work: &mut Work<'_>, errors: IpCounter, data: &[u8]) -> bool {
        if data.len() > MAX_ECHO_DATA {
            work.count(errors);
            return false;
        }
        !work.settings.icmp_echo_ignore_all
            && (work.settings.icmp_ratemask & 1 << ECHO_REPLY == 0
                || work.allows(self.policies.icmp_limits().echoes()))
    }

    /// Notifies the connection that `packet` quotes, if it has that in flight. `zone` is the zone
    /// of the quoted addresses, if they have one.
    fn path_report(
        &self,
        work: &mut Work<'_>,
        state: &mut PollState,
        (packet, zone): (&[u8], u8),
        error: PathError,
    ) -> Delivery {
        if let Some(quote) = UdpQuote::parse(packet, zone) {
            return self.udp_path_report(work, &quote, &error);
        }
        let quote = Quote::parse(packet, zone);
        let found =
            quote.and_then(|quote| Some((quote, self.tables.connections().find(quote.key())?)));
        let Some((quote, endpoint)) = found else {
            let v4 = packet.first().is_some_and(|first| first >> 4 == 4);
            let errors = if v4 { IpCounter::IcmpInErrors } else { IpCounter::Icmp6InErrors };
            work.count(errors);
            return Delivery::NoMatch;
        };
        let report = match error {
            PathError::Error(error) => PathReport::Error(quote, error),
            PathError::TooBig(mtu) => PathReport::TooBig(quote, mtu),
        };
        work.contain(&endpoint, |work| {
            let Some(mut inner) = endpoint.try_own() else {
                return work.leave_report(&endpoint, report);
            };
            let heard = work.hear(&endpoint, &mut inner, report);
            // Where it has gone, something may be left for it that only the end of the batch finds.
            if (heard || inner.is_gone()) && inner.touch() {
                state.touched.push(endpoint.clone());
            }
        });
        Delivery::Delivered
    }

    /// Stores a path MTU that a router reported, if it is not above the known one. Returns whether
    /// the route allows it: with `mtu lock` it does not, and nothing is stored.
    pub(crate) fn learn_mtu(&self, work: &Work<'_>, remote: IpAddr, told: LearntMtu) -> bool {
        if self.interfaces.routes().metrics(remote).mtu_lock {
            return false;
        }
        // Our end is in the peer's zone, if that has one.
        let interface = self.interfaces.get(self.interfaces.between(remote, remote));
        let mut cache = self.policies.learn_mtu();
        let learnt = cache.get(remote, work.now);
        if learnt.is_some_and(|learnt| learnt.locked) {
            return true;
        }
        let known = learnt.map_or(u16::MAX, |learnt| learnt.mtu).min(interface.mtu());
        // A path with a smaller MTU keeps it, and is locked.
        if told.mtu <= known || told.locked {
            cache.learn(remote, LearntMtu { mtu: told.mtu.min(known), ..told });
        }
        true
    }

    /// Answers `packet` with "destination unreachable", within limits.
    pub(crate) fn send_unreachable(
        &self,
        work: &mut Work<'_>,
        arrived: &Arrived,
        code: u8,
        packet: &Packet,
    ) {
        if !work.may_send_error(arrived, IcmpError::Unreachable) {
            return;
        }
        match (arrived.src, arrived.dst) {
            (IpAddr::V4(_), _) => {
                let quote = quoted(packet, arrived, MAX_ERROR_V4 - 20 - icmpv4::HEADER_LEN);
                let error = Icmpv4Repr::Unreachable { code, next_hop_mtu: 0, packet: &quote };
                let mut out = vec![0; error.len()];
                error.emit(&mut out);
                let this = IpCounter::IcmpOutDestUnreachs;
                work.answer(arrived, &out, IpCounter::IcmpOutMsgs, this);
            }
            (IpAddr::V6(_), IpAddr::V6(_)) => {
                let quote = quoted(packet, arrived, MAX_ERROR_V6 - 40 - icmpv6::HEADER_LEN);
                let error = Icmpv6Repr::Unreachable { code, packet: &quote };
                work.send_v6_error(arrived, &error, IpCounter::Icmp6OutDestUnreachs);
            }
            _ => {}
        }
    }

    /// Answers `packet` as `own` with "time exceeded", within limits. `error` is the kind.
    pub(crate) fn send_time_exceeded(
        &self,
        work: &mut Work<'_>,
        own: IpAddr,
        arrived: &Arrived,
        packet: &Packet,
        error: IcmpError,
    ) {
        if !work.may_send_error(arrived, error) {
            return;
        }
        let in_transit = error == IcmpError::HopLimit;
        match (own, arrived.src) {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                let quote = quoted(packet, arrived, MAX_ERROR_V4 - 20 - icmpv4::HEADER_LEN);
                let code = if in_transit { 0 } else { icmpv4::CODE_REASSEMBLY_TIME };
                let message = Icmpv4Repr::TimeExceeded { code, packet: &quote };
                let mut out = vec![0; message.len()];
                message.emit(&mut out);
                let counters = (IpCounter::IcmpOutMsgs, IpCounter::IcmpOutTimeExcds);
                work.answer_as(own, arrived, &out, counters);
            }
            (IpAddr::V6(from), IpAddr::V6(src)) => {
                let quote = quoted(packet, arrived, MAX_ERROR_V6 - 40 - icmpv6::HEADER_LEN);
                let code = if in_transit { 0 } else { icmpv6::CODE_REASSEMBLY_TIME };
                let message = Icmpv6Repr::TimeExceeded { code, packet: &quote };
                let mut out = vec![0; message.len()];
                message.emit(zone::bare_v6(from), zone::bare_v6(src), &mut out);
                let counters = (IpCounter::Icmp6OutMsgs, IpCounter::Icmp6OutTimeExcds);
                work.answer_as(own, arrived, &out, counters);
            }
            _ => {}
        }
    }

    /// Answers `packet` with an ICMPv6 parameter problem, within limits.
    pub(crate) fn send_parameter_problem(
        &self,
        work: &mut Work<'_>,
        arrived: &Arrived,
        (code, pointer): (u8, u32),
        packet: &Packet,
    ) {
        if !work.may_send_error(arrived, IcmpError::Unreachable) {
            return;
        }
        let quote = quoted(packet, arrived, MAX_ERROR_V6 - 40 - icmpv6::HEADER_LEN);
        let error = Icmpv6Repr::ParameterProblem { code, pointer, packet: &quote };
        work.send_v6_error(arrived, &error, IpCounter::Icmp6OutParmProblems);
    }
}

impl Work<'_> {
    /// The path MTU to `remote` after a message with the MTU `told`. An IPv4 message with less than
    /// `min_pmtu`, or without an MTU, means that the path carries less than the stack's minimum. So
    /// routers may fragment packets from then on, as on Linux.
    pub(crate) fn told_mtu(&self, remote: IpAddr, told: u32) -> LearntMtu {
        let v4 = remote.is_ipv4();
        let least = if v4 { self.settings.min_pmtu } else { MIN_MTU_V6 };
        let mtu = u16::try_from(told).unwrap_or(u16::MAX);
        LearntMtu {
            mtu: mtu.max(least),
            until: self.now + self.settings.tcp.mtu_expires,
            locked: v4 && mtu < least,
        }
    }

    /// Whether an error may be sent to the source of `arrived`: it is one host, and the limit
    /// allows it. Checked before anything is copied; after `true` the caller sends one.
    pub(crate) fn may_send_error(&mut self, arrived: &Arrived, error: IcmpError) -> bool {
        if !is_unicast(arrived.src) || !is_unicast(arrived.dst) {
            return false;
        }
        let v4 = arrived.src.is_ipv4();
        if v4 && self.settings.icmp_ratemask & 1 << error.bit() == 0 {
            return true;
        }
        let policies = &self.stack.policies;
        let gap = if v4 { self.settings.icmp_ratelimit } else { self.settings.icmp6_ratelimit };
        let host = (arrived.src, error.sender(), policies.secrets().table_key());
        let inside = self.stack.interfaces.get(arrived.interface).is_loopback();
        if !inside && !policies.icmp_limits().allows_host(self.now, host, gap) {
            self.count(match v4 {
                true => IpCounter::IcmpOutRateLimitHost,
                false => IpCounter::Icmp6OutRateLimitHost,
            });
            return false;
        }
        let allowed = self.allows(policies.icmp_limits().errors());
        if !allowed {
            self.count(IpCounter::IcmpOutRateLimitGlobal);
        }
        allowed
    }

    fn send_v6_error(&mut self, arrived: &Arrived, error: &Icmpv6Repr<'_>, counter: IpCounter) {
        let Some((src, dst)) = arrived.wire_ends_v6() else { return };
        let mut out = vec![0; error.len()];
        error.emit(dst, src, &mut out);
        self.answer(arrived, &out, IpCounter::Icmp6OutMsgs, counter);
    }

    /// Sends an ICMP message to the source of `arrived`, from its destination.
    fn answer(&mut self, arrived: &Arrived, message: &[u8], all: IpCounter, this: IpCounter) {
        self.answer_as(arrived.dst, arrived, message, (all, this));
    }

    /// The same, as `own`.
    pub(crate) fn answer_as(
        &mut self,
        own: IpAddr,
        arrived: &Arrived,
        message: &[u8],
        counters: (IpCounter, IpCounter),
    ) {
        let v4 = arrived.src.is_ipv4();
        let ip = IpParams {
            src: own,
            dst: arrived.src,
            protocol: if v4 { protocol::ICMP } else { protocol::ICMPV6 },
            tos: 0,
            ttl: 0,
            flow_label: 0,
            ident: 0,
            may_fragment: false,
        };
        if self.send_message(&ip, message) {
            self.count(counters.0);
            self.count(counters.1);
        }
    }
}

/// The meaning of an ICMP "destination unreachable" (RFC 792, RFC 1122, section 3.2.2.1), by the
/// error numbers to which Linux maps its codes.
fn v4_report(code: u8, next_hop_mtu: u16) -> PathError {
    PathError::Error(match code {
        icmpv4::CODE_FRAGMENTATION_NEEDED => return PathError::TooBig(u32::from(next_hop_mtu)),
        icmpv4::CODE_PORT_UNREACHABLE => ConnectionError::Refused,
        icmpv4::CODE_PROTOCOL_UNREACHABLE => ConnectionError::ProtocolUnreachable,
        5 => ConnectionError::SourceRouteFailed,
        // Network: unreachable, unknown, prohibited, unreachable for this type of service.
        icmpv4::CODE_NETWORK_UNREACHABLE | 6 | 9 | 11 => ConnectionError::NetworkUnreachable,
        7 => ConnectionError::HostDown,
        8 => ConnectionError::HostIsolated,
        _ => ConnectionError::HostUnreachable,
    })
}

fn v6_error(code: u8) -> ConnectionError {
    match code {
        icmpv6::CODE_NO_ROUTE => ConnectionError::NetworkUnreachable,
        icmpv6::CODE_PORT_UNREACHABLE => ConnectionError::Refused,
        // Prohibited, against the policy for the source, a route that rejects.
        icmpv6::CODE_PROHIBITED | 5 | 6 => ConnectionError::Prohibited,
        _ => ConnectionError::HostUnreachable,
    }
}
