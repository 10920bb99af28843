//! Packets of the script: those that arrive and those that leave.

use std::net::SocketAddr;

use plimsoll_wire::protocol;

use super::compare::{self, Wanted};
use super::flow::{Flow, State};
use super::time::{Due, Kind, tolerance};
use super::{PATIENCE, Runner, broken};
use crate::failure::Failure;
use crate::host::Captured;
use crate::lang::ast::{Direction, Embedded, Icmp, Packet, PacketBody, Span, Tcp};
use crate::packet::build::{self, IcmpFields, Quote, TcpFields};
use crate::packet::live::{self, Body, Live, Segment};
use crate::packet::{flag, icmp, options, show};

const TCP: i32 = protocol::TCP as i32;
const UDP: i32 = protocol::UDP as i32;

/// A packet that has left and belongs to the flow.
struct Sniffed {
    at: i64,
    live: Live,
}

impl Runner<'_> {
    /// Which flow a packet of the script is about. A SYN for a listener makes one.
    fn flow_for(&mut self, packet: &Packet, span: &Span) -> Result<usize, Failure> {
        let state = self.under_test.map(|at| self.flows[at].state);
        if let PacketBody::Tcp(tcp) = &packet.body {
            let inbound = packet.direction == Direction::Inbound;
            if inbound && matches!(state, None | Some(State::Listening)) {
                return self.new_passive(tcp, span);
            }
            let flags = compare::flag_bits(tcp);
            let first_syn = !inbound && flags & (flag::SYN | flag::ACK) == flag::SYN;
            if let Some(at) = self.under_test
                && first_syn
                && state == Some(State::Connecting)
            {
                self.flows[at].state = State::SynSent;
                self.flows[at].script_local_isn = tcp.seq;
                return Ok(at);
            }
        }
        let at = self.under_test.ok_or_else(|| {
            Failure::script(span, "no socket of the script can have to do with this packet")
        })?;
        let fits = match (&packet.body, self.flows[at].protocol) {
            (PacketBody::Tcp(_), TCP) | (PacketBody::Udp { .. }, UDP) => true,
            (PacketBody::Icmp(_), _) => true,
            (PacketBody::Tcp(tcp), _) => tcp.ports.is_some(),
            (PacketBody::Udp { ports, .. }, _) => ports.is_some(),
        };
        if fits {
            return Ok(at);
        }
        Err(Failure::script(span, "the socket of the script has another protocol"))
    }

    /// A connection that a SYN of the script begins.
    fn new_passive(&mut self, tcp: &Tcp, span: &Span) -> Result<usize, Failure> {
        let mut flow = Flow::new(TCP, State::SynReceived);
        flow.local = SocketAddr::new(self.network.local, self.config.bind_port);
        flow.remote = SocketAddr::new(self.network.remote, self.next_port);
        self.next_port = self.next_port.checked_add(1).unwrap_or(super::FIRST_PORT);
        flow.remote_isn = tcp.seq;
        let at = self.add_flow(flow, span)?;
        self.under_test = Some(at);
        Ok(at)
    }

    /// A packet arrives.
    pub(super) fn inbound(&mut self, packet: &Packet, span: &Span) -> Result<(), Failure> {
        refuse_encapsulation(packet)?;
        let at = self.flow_for(packet, span)?;
        let bytes = match &packet.body {
            PacketBody::Tcp(tcp) => self.inbound_tcp(at, packet, tcp, span)?,
            PacketBody::Udp { ports, len } => {
                let (remote, local) = with_ports(&self.flows[at], *ports);
                build::udp(remote, local, &packet.ip, *len)
            }
            PacketBody::Icmp(icmp) => self.inbound_icmp(at, packet, icmp)?,
        };
        let too_long = || Failure::script(span, "the packet is longer than a packet can be");
        let bytes = bytes.ok_or_else(too_long)?;
        self.count_bytes(bytes.len(), span)?;
        if let Some(mut live) = live::parse(&bytes) {
            let now = self.now();
            if let (Body::Tcp(segment), PacketBody::Tcp(tcp)) = (&mut live.body, &packet.body) {
                // In the journal stand the numbers of the script.
                segment.seq = tcp.seq;
                segment.ack = tcp.ack.unwrap_or(0);
                if let Some(list) = tcp.options.as_deref() {
                    segment.options = options::encode(list).unwrap_or_default();
                }
            }
            self.traces.journal.note(now, Direction::Inbound, &live);
        }
        self.host.inject(&bytes).map_err(broken(span))?;
        self.take_returned()
    }

    fn inbound_tcp(
        &mut self,
        at: usize,
        packet: &Packet,
        tcp: &Tcp,
        span: &Span,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let wrong = |text: String| Failure::script(span, text);
        let flags = compare::flag_bits(tcp);
        let (syn, ack) = (flags & flag::SYN != 0, flags & flag::ACK != 0);
        let scaled = self.config.tcp_ts_ecr_scaled;
        let flow = &mut self.flows[at];
        match flow.state {
            State::SynAckSent if ack => flow.state = State::SynAckAcked,
            State::SynSent if syn && ack => {
                flow.state = State::SynAcked;
                flow.remote_isn = tcp.seq;
            }
            _ => {}
        }
        let list = tcp.options.as_deref().unwrap_or_default();
        let mut list = options::encode(list).map_err(wrong)?;
        let offset = flow.local_offset(syn);
        for option in &mut list {
            option.shift_sack(offset);
            let Some((val, ecr)) = option.timestamps().filter(|_| ack) else { continue };
            let live = flow.live_echo(ecr, scaled).ok_or_else(|| {
                wrong(format!("the timestamp {ecr} cannot be echoed: no segment carried it"))
            })?;
            option.set_timestamps(val, live);
        }
        let window =
            tcp.window.ok_or_else(|| wrong("an inbound segment needs a window".to_owned()))?;
        let fields = TcpFields {
            seq: tcp.seq.wrapping_add(flow.remote_offset(syn)),
            ack: if ack { tcp.ack.unwrap_or(0).wrapping_add(offset) } else { 0 },
            flags,
            window,
            urgent: tcp.urgent.unwrap_or(0),
            options: &list,
            len: tcp.len,
        };
        let (remote, local) = with_ports(flow, tcp.ports);
        Ok(build::tcp(remote, local, &packet.ip, &fields))
    }

    fn inbound_icmp(
        &mut self,
        at: usize,
        packet: &Packet,
        message: &Icmp,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let flow = &self.flows[at];
        let v6 = self.network.remote.is_ipv6();
        let code = message.code.as_ref().map(|code| code.node.as_str());
        let span = message.code.as_ref().map_or(&message.kind.span, |code| &code.span);
        let (kind, code) = icmp::numbers(v6, &message.kind.node, code)
            .map_err(|text| Failure::script(span, text))?;
        let too_big = if v6 { (kind, code) == (2, 0) } else { (kind, code) == (3, 4) };
        if message.mtu.is_some() && !too_big {
            return Err(Failure::script(span, "only a message about the size has an mtu"));
        }
        let rest = match (message.mtu, message.echo_id) {
            (Some(mtu), _) if !v6 => mtu & 0xffff,
            (Some(mtu), _) => mtu,
            (None, Some(id)) => u32::from(id) << 16,
            (None, None) => 0,
        };
        let (quote, padding) = match message.embedded {
            Some(Embedded::Raw { len }) => (None, len),
            Some(Embedded::Udp { len }) => {
                (Some(Quote { protocol: protocol::UDP, len: len.into(), seq: 0 }), 0)
            }
            Some(Embedded::Tcp { seq, len, .. }) => {
                let seq = seq.wrapping_add(flow.local_offset(false));
                (Some(Quote { protocol: protocol::TCP, len, seq }), 0)
            }
            None => {
                let protocol = flow.protocol as u8;
                let seq = flow.local_offset(false);
                (Some(Quote { protocol, len: 0, seq }), 0)
            }
        };
        let fields = IcmpFields { kind, code, rest, quote, padding };
        Ok(build::icmp(flow.remote, flow.local, &packet.ip, &fields))
    }

    /// A packet must leave.
    pub(super) fn outbound(
        &mut self,
        packet: &Packet,
        span: &Span,
        due: Due,
    ) -> Result<(), Failure> {
        refuse_encapsulation(packet)?;
        let at = self.flow_for(packet, span)?;
        match &packet.body {
            PacketBody::Tcp(tcp) => self.outbound_tcp(at, packet, tcp, span, due),
            PacketBody::Udp { len, .. } => {
                let sniffed = self.sniff(at, span, due, &format!("udp ({len})"))?;
                let now = sniffed.at;
                let came = show::packet(&sniffed.live);
                self.traces.journal.note(now, Direction::Outbound, &sniffed.live);
                compare::ip(&packet.ip, &sniffed.live)
                    .and_then(|()| match sniffed.live.body {
                        Body::Udp(have) if have == usize::from(*len) => Ok(()),
                        _ => Err("the datagram is another one".to_owned()),
                    })
                    .and_then(|()| self.in_time(due, now))
                    .map_err(|text| Failure::stack(span, text).with(format!("udp ({len})"), came))
            }
            PacketBody::Icmp(_) => {
                let text = "an outbound ICMP message cannot be looked at here";
                Err(Failure::script(span, text))
            }
        }
    }

    fn in_time(&self, due: Due, at: i64) -> Result<(), String> {
        let since = self.last.map(|last| last.at);
        due.check(self.config, self.slack(), since, at, "the outbound packet was")
    }

    fn outbound_tcp(
        &mut self,
        at: usize,
        packet: &Packet,
        tcp: &Tcp,
        span: &Span,
        due: Due,
    ) -> Result<(), Failure> {
        let wanted = Wanted::new(tcp).map_err(|text| Failure::script(span, text))?;
        let synack = wanted.flags & (flag::SYN | flag::ACK) == flag::SYN | flag::ACK;
        if synack && self.flows[at].state == State::SynReceived {
            self.flows[at].script_local_isn = tcp.seq;
        }
        let mut pieces: Vec<Segment> = Vec::new();
        let mut total = 0;
        let mut from = None;
        let whole = loop {
            let sniffed = self.sniff(at, span, due, &wanted.show())?;
            let sniffed = self.translated(at, sniffed, synack);
            self.note_outbound(at, &sniffed, &wanted);
            let Body::Tcp(segment) = &sniffed.live.body else {
                return Err(Failure::stack(span, "a packet came that is no TCP segment"));
            };
            let addresses = (sniffed.live.src, sniffed.live.dst);
            if from.replace(addresses).is_some_and(|before| before != addresses) {
                // What came before is a leftover of an earlier connection.
                pieces.clear();
                total = 0;
            }
            if let Some(before) = pieces.last() {
                self.check_piece(before, segment, tcp, total)
                    .map_err(|text| mismatch(span, text, &wanted, &pieces, segment))?;
            }
            total += segment.len;
            pieces.push(segment.clone());
            if total >= tcp.len || self.config.strict_segments {
                break sniffed;
            }
        };
        let Some(merged) = compare::merge(&pieces) else { return Ok(()) };
        let Some(last) = pieces.pop() else { return Ok(()) };
        if total != tcp.len {
            let whole = if self.config.strict_segments { " in one segment" } else { "" };
            let text = format!("{total} bytes came{whole} instead of {}", tcp.len);
            return Err(mismatch(span, text, &wanted, &pieces, &last));
        }
        self.verify(at, packet, &wanted, merged, &whole, due).map_err(|(text, shown)| {
            let mut failure = Failure::stack(span, text).with(wanted.show(), shown);
            if !pieces.is_empty() {
                failure.actual.push(format!("in {} segments", pieces.len() + 1));
            }
            failure
        })
    }

    /// A segment with the numbers of the script.
    fn translated(&mut self, at: usize, mut sniffed: Sniffed, synack: bool) -> Sniffed {
        let flow = &mut self.flows[at];
        if let Body::Tcp(segment) = &mut sniffed.live.body {
            if flow.state == State::SynReceived && synack {
                flow.state = State::SynAckSent;
                flow.live_local_isn = segment.seq;
            }
            let (syn, ack) = (segment.has(flag::SYN), segment.has(flag::ACK));
            flow.to_script(segment, syn, ack);
        }
        sniffed
    }

    /// Puts a segment into the journal, with the timestamps of the script.
    fn note_outbound(&mut self, at: usize, sniffed: &Sniffed, wanted: &Wanted<'_>) {
        let flow = &self.flows[at];
        let script = wanted.stamp();
        let mut live = sniffed.live.clone();
        if let Body::Tcp(segment) = &mut live.body {
            for option in &mut segment.options {
                if let Some((val, ecr)) = option.timestamps() {
                    option.set_timestamps(flow.shown_stamp(val, script), ecr);
                }
            }
        }
        self.traces.journal.note(sniffed.at, Direction::Outbound, &live);
    }

    /// Whether a segment goes on with what came before it.
    fn check_piece(
        &self,
        before: &Segment,
        next: &Segment,
        tcp: &Tcp,
        total: u32,
    ) -> Result<(), String> {
        compare::continues(before, next)?;
        if next.len < tcp.len - total && next.len != before.len {
            return Err(format!(
                "the pieces of a super-segment have {} and {} bytes",
                before.len, next.len
            ));
        }
        Ok(())
    }

    /// Compares a segment, merged if it came in pieces. An error has the words and the segment.
    fn verify(
        &mut self,
        at: usize,
        packet: &Packet,
        wanted: &Wanted<'_>,
        mut merged: Segment,
        sniffed: &Sniffed,
        due: Due,
    ) -> Result<(), (String, String)> {
        self.translate_stamps(at, wanted, &mut merged);
        let shown = show::segment(&merged);
        let config = self.config;
        let stamp_tolerance = tolerance(config, due.at) + self.slack();
        let live = &sniffed.live;
        let outcome = if live.checksum_ok {
            Ok(())
        } else {
            Err("the checksum of the IP header is wrong".to_owned())
        };
        outcome
            .and_then(|()| compare::ip(&packet.ip, live))
            .and_then(|()| compare::header(wanted, &merged))
            .and_then(|()| self.flow_label(at, packet, live))
            .and_then(|()| compare::options(config, stamp_tolerance, wanted, &merged))
            .and_then(|()| {
                if merged.zeroes { Ok(()) } else { Err("the data is not all zeroes".to_owned()) }
            })
            .and_then(|()| self.in_time(due, sniffed.at))
            .map_err(|text| (text, shown))
    }

    /// Remembers which live timestamp is which of the script, and translates it.
    fn translate_stamps(&mut self, at: usize, wanted: &Wanted<'_>, segment: &mut Segment) {
        let Some(script) = wanted.stamp() else { return };
        let flow = &mut self.flows[at];
        for option in &mut segment.options {
            if let Some((live, ecr)) = option.timestamps() {
                option.set_timestamps(flow.note_stamp(script, live), ecr);
            }
        }
    }

    /// The same label in the script is the same on the wire, and another one is another one.
    fn flow_label(&mut self, at: usize, packet: &Packet, live: &Live) -> Result<(), String> {
        let Some(script) = packet.ip.flow_label.filter(|&label| label != 0) else { return Ok(()) };
        if live.flow_label == 0 {
            return Err("the packet has no flow label".to_owned());
        }
        let flow = &mut self.flows[at];
        let (known, on_wire) = *flow.label.get_or_insert((script, live.flow_label));
        if script == known && live.flow_label != on_wire {
            return Err("the flow label has changed".to_owned());
        }
        if script != known && live.flow_label == on_wire {
            return Err("the flow label has not changed".to_owned());
        }
        flow.label = Some((script, live.flow_label));
        Ok(())
    }

    /// The next packet of a flow that leaves.
    fn sniff(
        &mut self,
        at: usize,
        span: &Span,
        due: Due,
        wanted: &str,
    ) -> Result<Sniffed, Failure> {
        let since = self.last.map_or(0, |last| last.at);
        let patience = match due.kind {
            Kind::Any => PATIENCE,
            // Whole seconds more than it should take.
            _ => ((due.at - since).max(due.end - since).max(0) / 1_000_000 + 2) * 1_000_000,
        };
        let until = self.now() + patience;
        loop {
            while let Some(Captured { at: when, bytes }) = self.host.sniff() {
                let Some(live) = live::parse(&bytes) else { continue };
                if self.belongs(at, &live) {
                    return Ok(Sniffed { at: self.at(when), live });
                }
            }
            if self.now() >= until {
                let text = "no packet came";
                return Err(Failure::stack(span, text).with(wanted, "nothing"));
            }
            self.wait_once(until, span)?;
        }
    }

    /// Whether a packet that left is one of the flow. The first SYN tells our address and number.
    fn belongs(&mut self, at: usize, live: &Live) -> bool {
        let flow = &mut self.flows[at];
        if live.src == flow.local && live.dst == flow.remote {
            return true;
        }
        let first = match &live.body {
            Body::Tcp(tcp) => {
                let syn = tcp.has(flag::SYN) && !tcp.has(flag::ACK);
                syn && flow.protocol == TCP && flow.state == State::SynSent
            }
            Body::Udp(_) => flow.protocol == UDP && flow.state == State::Connecting,
            _ => false,
        };
        if !first || live.dst != flow.remote {
            return false;
        }
        flow.local = live.src;
        if let Body::Tcp(tcp) = &live.body {
            flow.live_local_isn = tcp.seq;
        }
        true
    }
}

/// The addresses of a flow, remote first; ports of the script take the place of its own.
fn with_ports(flow: &Flow, ports: Option<(u16, u16)>) -> (SocketAddr, SocketAddr) {
    let (mut remote, mut local) = (flow.remote, flow.local);
    if let Some((src, dst)) = ports {
        if src != 0 {
            remote.set_port(src);
        }
        if dst != 0 {
            local.set_port(dst);
        }
    }
    (remote, local)
}

fn refuse_encapsulation(packet: &Packet) -> Result<(), Failure> {
    match packet.encapsulation.first() {
        None => Ok(()),
        Some(header) => {
            Err(Failure::script(&header.span, "headers around a packet cannot be built here"))
        }
    }
}

/// A segment came that is not the one of the script, perhaps behind others that fit.
fn mismatch(
    span: &Span,
    text: String,
    wanted: &Wanted<'_>,
    before: &[Segment],
    last: &Segment,
) -> Failure {
    let mut failure = Failure::stack(span, text);
    failure.expected = Some(wanted.show());
    failure.actual = before.iter().chain([last]).map(show::segment).collect();
    failure
}
