//! Links, routers and middleboxes: how a packet gets from one host to another.

use std::net::IpAddr;

use plimsoll_stack::packet::Packet;
use plimsoll_tcp::Instant;
use plimsoll_wire::icmpv4::Icmpv4Repr;
use plimsoll_wire::icmpv6::Icmpv6Repr;
use plimsoll_wire::ipv4::{self, Ipv4Repr};
use plimsoll_wire::ipv6::{self, Ipv6Repr};
use plimsoll_wire::protocol;

use super::outcome::LinkOutcome;
use crate::coverage::Reached;
use crate::fault::{Faults, Segment, is_intact};
use crate::link::{Link, LinkConfig};
use crate::middlebox::Boxes;
use crate::rng::Rng;
use crate::scenario::{Scenario, ScenarioError, Way};

/// Bytes of a packet that an error for IPv4 quotes, at most (RFC 1812, section 4.3.2.3).
const QUOTE_V4: usize = 548;
/// The same for IPv6 (RFC 4443, section 2.4).
const QUOTE_V6: usize = 1232;

/// One direction of a link.
struct Wire {
    link: Link,
    /// As it was at the beginning, without faults.
    plain: LinkConfig,
    boxes: Boxes,
    from: usize,
    to: usize,
    /// The number of the link, and which way of it this is.
    name: (usize, Way),
}

/// All links, and who is reached by which.
pub(super) struct Net {
    wires: Vec<Wire>,
    /// By node and by host that is to be reached: the wire that leads there.
    ways: Vec<Vec<Option<usize>>>,
    hosts: usize,
    /// Routers that answer nothing.
    silent: Vec<bool>,
}

impl Net {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Result<Net, ScenarioError> {
        let mut seeds = Rng::new(seed, 500);
        let mut wires = Vec::new();
        for (number, pair) in scenario.link.iter().enumerate() {
            let ends = pair.between.each_ref().map(|name| scenario.node_index(name).unwrap_or(0));
            for backward in [false, true] {
                let config = pair.direction(backward);
                let plain = config.without_faults();
                let link = Link::new(config.clone(), seeds.bits()).map_err(|error| {
                    ScenarioError::new(format!("link[{number}]"), error.to_string())
                })?;
                let (from, to) = if backward { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
                let name = (number, if backward { Way::Backward } else { Way::Forward });
                let boxes = Boxes::new(&pair.middlebox);
                wires.push(Wire { link, plain, boxes, from, to, name });
            }
        }
        let hosts = scenario.host.len();
        let nodes = hosts + scenario.router.len();
        let mut silent = vec![false; hosts];
        silent.extend(scenario.router.iter().map(|router| router.silent));
        let mut net = Net { wires, ways: Vec::new(), hosts, silent };
        net.ways = vec![vec![None; hosts]; nodes];
        for host in 0..hosts {
            net.find_ways(host);
        }
        Ok(net)
    }

    /// The shortest ways to a host, by links.
    fn find_ways(&mut self, host: usize) {
        let mut reached = vec![host];
        let mut next = 0;
        while let Some(&node) = reached.get(next) {
            next += 1;
            for (index, wire) in self.wires.iter().enumerate() {
                // Hosts forward nothing.
                if wire.to == node && !reached.contains(&wire.from) {
                    self.ways[wire.from][host] = Some(index);
                    if wire.from >= self.hosts {
                        reached.push(wire.from);
                    }
                }
            }
        }
    }

    pub(super) fn wires(&self) -> usize {
        self.wires.len()
    }

    /// The first wire of a host's packets.
    fn access(&self, host: usize) -> Option<usize> {
        self.wires.iter().position(|wire| wire.from == host)
    }

    /// The MTU of a host's link.
    pub(super) fn mtu(&self, host: usize) -> u16 {
        self.access(host).map_or(1500, |wire| self.wires[wire].link.config().mtu)
    }

    /// The smallest MTU of all wires. What a box makes of several packets is no longer: beyond it
    /// nobody could tell the sender, whose own packets fit, what to do.
    fn smallest_mtu(&self) -> u16 {
        self.wires.iter().map(|wire| wire.link.config().mtu).min().unwrap_or(u16::MAX)
    }

    /// Whether the queue of a host's link takes a packet, if it takes `ring` in all.
    pub(super) fn has_place(&self, host: usize, ring: u64) -> bool {
        ring == 0
            || self
                .access(host)
                .is_none_or(|wire| self.wires[wire].link.stats().queue_packets < ring)
    }

    pub(super) fn next(&self) -> Option<Instant> {
        let links = self.wires.iter().filter_map(|wire| wire.link.next());
        links.chain(self.wires.iter().filter_map(|wire| wire.boxes.next())).min()
    }

    /// What has arrived at the end of a wire, and at which node that is.
    pub(super) fn take(&mut self, wire: usize, now: Instant) -> Option<(usize, Packet)> {
        let wire = &mut self.wires[wire];
        wire.link.take(now).map(|arrival| (wire.to, arrival.packet))
    }

    /// What a box before a wire has held for long enough.
    pub(super) fn release(&mut self, wire: usize, now: Instant) -> Option<Packet> {
        self.wires[wire].boxes.take_due(now)
    }

    pub(super) fn set_up(&mut self, link: usize, way: Way, up: bool) {
        for wire in self.wires.iter_mut().filter(|wire| wire.name.0 == link) {
            if way == Way::Both || wire.name.1 == way {
                wire.link.set_up(up);
            }
        }
    }

    /// Changes both directions of a link.
    pub(super) fn change(&mut self, now: Instant, link: usize, change: impl Fn(&mut LinkConfig)) {
        for wire in self.wires.iter_mut().filter(|wire| wire.name.0 == link) {
            let mut config = wire.link.config().clone();
            change(&mut config);
            // It was checked with the scenario.
            let _ = wire.link.reconfigure(now, config);
        }
    }

    /// From here on there are no faults: every link is as it was meant.
    pub(super) fn end_faults(&mut self, now: Instant) {
        for wire in &mut self.wires {
            wire.link.set_up(true);
            let _ = wire.link.reconfigure(now, wire.plain.clone());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wires.iter().all(|wire| wire.link.is_empty() && wire.boxes.next().is_none())
    }

    /// Packets that wait for a wire or are on one.
    pub(super) fn packets(&self) -> u64 {
        self.wires.iter().map(|wire| wire.link.stats().present).sum()
    }

    pub(super) fn is_conserved(&self, wire: usize) -> bool {
        self.wires[wire].link.stats().is_conserved()
    }

    pub(super) fn describe(&self, wire: usize) -> String {
        format!("{:?}: {:?}", self.wires[wire].name, self.wires[wire].link.stats())
    }

    /// The number of each wire's link, and which way of it the wire is.
    pub(super) fn names(&self) -> impl Iterator<Item = (usize, Way)> {
        self.wires.iter().map(|wire| wire.name)
    }

    /// Bytes that wait for each wire.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> {
        self.wires.iter().map(|wire| wire.link.stats().queue_bytes)
    }

    pub(super) fn into_outcomes(self) -> Vec<LinkOutcome> {
        let outcome = |wire: Wire| {
            let (link, way) = wire.name;
            LinkOutcome { link, way, stats: wire.link.into_stats() }
        };
        self.wires.into_iter().map(outcome).collect()
    }

    pub(super) fn count_reached(&self, reached: &mut Reached) {
        for wire in &self.wires {
            reached.count_link(wire.link.stats());
        }
    }
}

/// A packet's way through the net at one time.
pub(super) struct Passage<'a> {
    net: &'a mut Net,
    faults: &'a mut Faults,
    now: Instant,
    flows: usize,
    passed: Passed,
}

/// What became of packets at one time.
#[derive(Default)]
pub(super) struct Passed {
    /// What routers tell hosts: it arrives at once.
    pub(super) made: Vec<Made>,
    /// Segments for which a queue had no place.
    pub(super) dropped_full: Vec<Segment>,
}

/// What a router tells a host.
pub(super) struct Made {
    pub(super) host: usize,
    pub(super) packet: Packet,
    /// The segment that was too long, and how long packets may be.
    pub(super) refused: Option<(Segment, u16)>,
}

impl<'a> Passage<'a> {
    pub(super) fn new(
        net: &'a mut Net,
        faults: &'a mut Faults,
        now: Instant,
        flows: usize,
    ) -> Passage<'a> {
        Passage { net, faults, now, flows, passed: Passed::default() }
    }

    pub(super) fn into_passed(self) -> Passed {
        self.passed
    }

    /// A host sends a packet.
    pub(super) fn send(&mut self, host: usize, packet: Packet) {
        if let Some(wire) = self.net.access(host) {
            self.enter(wire, packet);
        }
    }

    /// A router forwards a packet. What has no way is dropped.
    pub(super) fn route(&mut self, node: usize, packet: Packet) {
        let host = destination(&packet).filter(|&host| host < self.net.hosts);
        if let Some(wire) = host.and_then(|host| self.net.ways[node][host]) {
            self.enter(wire, packet);
        }
    }

    /// Through the boxes before a wire, and into it.
    fn enter(&mut self, wire: usize, packet: Packet) {
        let mtu = self.net.smallest_mtu();
        let mut through = Vec::new();
        self.net.wires[wire].boxes.pass(self.now, packet, mtu, &mut through);
        for packet in through {
            self.offer(wire, packet);
        }
    }

    /// Into a wire, behind its boxes.
    pub(super) fn offer(&mut self, wire: usize, packet: Packet) {
        let segment = Segment::of(&packet, self.flows);
        let Wire { link, name, from, to, .. } = &mut self.net.wires[wire];
        let fate = self.faults.decide(*name, link, segment.as_ref());
        let offered = link.offer_segment(self.now, packet, fate);
        if offered.dropped_full {
            self.passed.dropped_full.extend(segment);
            return;
        }
        let Some(packet) = offered.too_long else { return };
        // Of a host's own link, the other end answers: the host does not see it.
        let (mtu, node) = (link.config().mtu, if *from < self.net.hosts { *to } else { *from });
        if !self.net.silent[node]
            && let Some((host, answer)) = too_big(&packet, mtu, node)
            && host < self.net.hosts
        {
            // Nobody knows a segment that was damaged on its way.
            let refused = segment.filter(|_| is_intact(&packet)).map(|segment| (segment, mtu));
            self.passed.made.push(Made { host, packet: answer, refused });
        }
    }
}

/// The host that an address is of.
fn node_of(address: IpAddr) -> Option<usize> {
    let last = match address {
        IpAddr::V4(v4) => usize::from(v4.octets()[3]),
        IpAddr::V6(v6) => usize::from(v6.segments()[7]),
    };
    last.checked_sub(1).filter(|&node| Scenario::address(node, address.is_ipv6()) == address)
}

/// The host that a packet is for.
fn destination(packet: &Packet) -> Option<usize> {
    let front = packet.headers();
    let address: IpAddr = match front.first()? >> 4 {
        4 => <[u8; 4]>::try_from(front.get(16..20)?).ok()?.into(),
        6 => <[u8; 16]>::try_from(front.get(24..40)?).ok()?.into(),
        _ => return None,
    };
    node_of(address)
}

/// The error that says that a packet was too long, and the host that it is for.
fn too_big(packet: &Packet, mtu: u16, node: usize) -> Option<(usize, Packet)> {
    let bytes = packet.to_vec();
    match bytes.first()? >> 4 {
        4 => {
            let (repr, _) = Ipv4Repr::parse(&bytes).ok()?;
            let icmp = Icmpv4Repr::Unreachable {
                code: plimsoll_wire::icmpv4::CODE_FRAGMENTATION_NEEDED,
                next_hop_mtu: mtu,
                packet: &bytes[..bytes.len().min(QUOTE_V4)],
            };
            let IpAddr::V4(src) = Scenario::address(node, false) else { return None };
            let mut out = vec![0; ipv4::HEADER_LEN + icmp.len()];
            let header = Ipv4Repr {
                src,
                dst: repr.src,
                protocol: protocol::ICMP,
                ttl: 64,
                tos: 0,
                ident: 0,
                dont_frag: false,
                more_frags: false,
                frag_offset: 0,
                payload_len: icmp.len(),
            };
            header.emit(&mut out);
            icmp.emit(&mut out[ipv4::HEADER_LEN..]);
            Some((node_of(repr.src.into())?, out.into()))
        }
        _ => {
            let (repr, _) = Ipv6Repr::parse(&bytes).ok()?;
            let icmp = Icmpv6Repr::PacketTooBig {
                mtu: mtu.into(),
                packet: &bytes[..bytes.len().min(QUOTE_V6)],
            };
            let IpAddr::V6(src) = Scenario::address(node, true) else { return None };
            let mut out = vec![0; ipv6::HEADER_LEN + icmp.len()];
            let header = Ipv6Repr {
                src,
                dst: repr.src,
                next_header: protocol::ICMPV6,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                payload_len: icmp.len(),
            };
            header.emit(&mut out);
            icmp.emit(src, repr.src, &mut out[ipv6::HEADER_LEN..]);
            Some((node_of(repr.src.into())?, out.into()))
        }
    }
}
