//! What a stack tells of itself at one moment, in types: [`Metrics`].
//!
//! Taking it costs the sums of the counters' shards, a look at each interface and at each listener,
//! and nothing for each connection: how many there are in each state is counted where it changes.
//! It takes the lock of each listener and of each interface in turn, so no thread that works on
//! packets waits for it longer than a copy of their figures takes.

use std::net::SocketAddr;

use plimsoll_tcp::State;

use crate::device::DeviceStats;
use crate::policies::memory::MemoryUse;
use crate::policies::udp_memory::UdpMemoryUse;
use crate::qdisc::fq::FqStats;
use crate::qdisc::{Kind, QdiscStats};

/// All figures of a stack at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// All counters, in the order in which `nstat` prints them.
    pub counters: Vec<CounterValue>,
    /// Connections by state.
    pub connections: ConnectionCounts,
    /// The memory that the queues of all connections bind.
    pub memory: MemoryUse,
    /// UDP sockets, and the memory of their receive queues.
    pub udp: UdpMetrics,
    /// Each listener and its queue.
    pub listeners: Vec<ListenerMetrics>,
    /// Each interface with its device and its queueing discipline, loopback included, in the order
    /// of [`Stack::interfaces`](crate::Stack::interfaces).
    pub interfaces: Vec<InterfaceMetrics>,
}

impl Metrics {
    /// The counter with this name, as `nstat` prints it; `None` if there is none.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }

    /// The counters of a group.
    pub fn group(&self, group: CounterGroup) -> impl Iterator<Item = &CounterValue> {
        self.counters.iter().filter(move |counter| counter.group == group)
    }
}

/// The groups of counters, as in `/proc/net/snmp` and `/proc/net/netstat`, in `nstat`'s order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CounterGroup {
    /// IPv4.
    Ip,
    /// ICMP.
    Icmp,
    /// TCP.
    Tcp,
    /// UDP over IPv4.
    Udp,
    /// IPv6.
    Ip6,
    /// ICMPv6.
    Icmp6,
    /// UDP over IPv6.
    Udp6,
    /// Linux's further counters of TCP.
    TcpExt,
    /// Linux's further counters of IPv4.
    IpExt,
    /// What only this stack counts.
    Plimsoll,
}

impl CounterGroup {
    /// A group that begins as another does is before it.
    const PREFIXES: [(&str, CounterGroup); 9] = [
        ("TcpExt", CounterGroup::TcpExt),
        ("IpExt", CounterGroup::IpExt),
        ("Ip6", CounterGroup::Ip6),
        ("Icmp6", CounterGroup::Icmp6),
        ("Udp6", CounterGroup::Udp6),
        ("Ip", CounterGroup::Ip),
        ("Icmp", CounterGroup::Icmp),
        ("Tcp", CounterGroup::Tcp),
        ("Udp", CounterGroup::Udp),
    ];

    /// The group of the counter with this name.
    pub(crate) fn of(name: &str) -> CounterGroup {
        let found = CounterGroup::PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
        found.map_or(CounterGroup::Plimsoll, |&(_, group)| group)
    }
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterValue {
    /// The group that it belongs to.
    pub group: CounterGroup,
    /// The name as `nstat` prints it; [`CounterInfo`](crate::CounterInfo) tells what it counts.
    pub name: &'static str,
    /// The count since the stack was built.
    pub value: u64,
}

/// How many connections there are in each state. A connection of which the stack is at work on a
/// change may be missing or counted for the state before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionCounts {
    /// SYN-SENT.
    pub syn_sent: u64,
    /// SYN-RECEIVED, without the handshakes that only a SYN cookie represents.
    pub syn_received: u64,
    /// ESTABLISHED.
    pub established: u64,
    /// FIN-WAIT-1.
    pub fin_wait_1: u64,
    /// FIN-WAIT-2.
    pub fin_wait_2: u64,
    /// CLOSE-WAIT.
    pub close_wait: u64,
    /// CLOSING.
    pub closing: u64,
    /// LAST-ACK.
    pub last_ack: u64,
    /// TIME-WAIT.
    pub time_wait: u64,
    /// Of all but those in TIME-WAIT, what no application holds any more.
    pub orphans: u64,
}

impl ConnectionCounts {
    /// The counts of the states, each with the name that `ss` has for it.
    pub fn by_state(&self) -> [(&'static str, u64); 9] {
        [
            ("syn-sent", self.syn_sent),
            ("syn-recv", self.syn_received),
            ("established", self.established),
            ("fin-wait-1", self.fin_wait_1),
            ("fin-wait-2", self.fin_wait_2),
            ("close-wait", self.close_wait),
            ("closing", self.closing),
            ("last-ack", self.last_ack),
            ("time-wait", self.time_wait),
        ]
    }

    /// The counts that `of` tells for each state; `time_wait` are in the table of those.
    pub(crate) fn gather(
        of: impl Fn(State) -> u64,
        time_wait: u64,
        orphans: u64,
    ) -> ConnectionCounts {
        ConnectionCounts {
            syn_sent: of(State::SynSent),
            syn_received: of(State::SynReceived),
            established: of(State::Established),
            fin_wait_1: of(State::FinWait1),
            fin_wait_2: of(State::FinWait2),
            close_wait: of(State::CloseWait),
            closing: of(State::Closing),
            last_ack: of(State::LastAck),
            time_wait: of(State::TimeWait) + time_wait,
            orphans,
        }
    }
}

/// UDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpMetrics {
    /// Sockets, flows to any address among them.
    pub sockets: usize,
    /// Flows to any address that have not ended.
    pub flows: usize,
    /// What their receive queues hold.
    pub memory: UdpMemoryUse,
}

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerMetrics {
    /// Where it listens. The port is 0 if it takes every port.
    pub local: SocketAddr,
    /// Connections that wait to be accepted.
    pub accept_queue: usize,
    /// How many may.
    pub backlog: usize,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceMetrics {
    /// The device's name.
    pub name: String,
    /// Whether it works.
    pub up: bool,
    /// MTU in bytes.
    pub mtu: u16,
    /// What the sending half of the device has counted.
    pub tx: DeviceStats,
    /// What the receiving half has counted.
    pub rx: DeviceStats,
    /// The queueing discipline, with its parameters.
    pub qdisc: Kind,
    /// What the discipline has counted, and what it holds.
    pub qdisc_stats: QdiscStats,
    /// What only fair queueing counts.
    pub fq: Option<FqStats>,
}
