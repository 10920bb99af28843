//! A snapshot of a stack's figures: [`Metrics`].
//!
//! A snapshot costs the sums of the counters' shards, and one look at each interface and at each
//! listener. It costs nothing for each connection: the number in each state is counted where the
//! state changes. It takes the lock of each listener and interface in turn, so a thread that works
//! on packets waits only while their figures are copied.

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
    /// The memory that the queues of all connections use.
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
    /// Counters that only this stack has.
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
    /// Its group.
    pub group: CounterGroup,
    /// The name as `nstat` prints it; [`CounterInfo`](crate::CounterInfo) describes it.
    pub name: &'static str,
    /// The count since the stack was built.
    pub value: u64,
}

/// Number of connections in each state. A connection whose state is just being changed may be
/// missing or counted in the previous state.
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
    /// Connections that no application holds any more, except those in TIME-WAIT.
    pub orphans: u64,
}

impl ConnectionCounts {
    /// The counts of the states, each with the name that `ss` prints.
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

    /// The counts that `of` returns for each state; `time_wait` is the count in the TIME-WAIT
    /// table.
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
    /// Number of sockets, including flows to any address.
    pub sockets: usize,
    /// Flows to any address that have not ended.
    pub flows: usize,
    /// The contents of their receive queues.
    pub memory: UdpMemoryUse,
}

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerMetrics {
    /// The local address. The port is 0 if the listener accepts every port.
    pub local: SocketAddr,
    /// Number of connections that wait to be accepted.
    pub accept_queue: usize,
    /// The limit of that number.
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
    /// Statistics of the device's sending half.
    pub tx: DeviceStats,
    /// Statistics of the device's receiving half.
    pub rx: DeviceStats,
    /// The queueing discipline, with its parameters.
    pub qdisc: Kind,
    /// The statistics and contents of the discipline.
    pub qdisc_stats: QdiscStats,
    /// Statistics that only fair queueing has.
    pub fq: Option<FqStats>,
}
