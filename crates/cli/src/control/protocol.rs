//! The lines that go over the control socket.

use std::net::SocketAddr;

use plimsoll_sim::link::LinkStats;
use serde::{Deserialize, Serialize};

/// Most bytes of a request line. Answers may be longer.
pub(crate) const MAX_LINE: u64 = 64 * 1024;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Request {
    /// All counters.
    Nstat,
    /// Settings: all of them, or those named.
    SysctlGet {
        /// The names; empty means all.
        names: Vec<String>,
    },
    /// Changes one setting in every stack of the process.
    SysctlSet {
        /// Linux's name, as in `net.ipv4.tcp_sack`.
        name: String,
        /// The value as text.
        value: String,
    },
    /// All sockets.
    Ss,
    /// The connections with their figures, for `top`.
    Connections,
    /// The queueing disciplines.
    Qdisc,
    /// Gives interfaces with a name another discipline, in every stack that has one.
    QdiscSet {
        /// The interface.
        dev: String,
        /// The discipline with its parameters, as in `fq limit 1000`.
        qdisc: String,
    },
    /// The published ports of `plimsoll run`.
    Ports,
    /// Publishes a port.
    PortAdd {
        /// The port, as after `-p`.
        port: String,
    },
    /// The links of `plimsoll run`, and changes of them.
    Weather {
        /// The change of both directions, of up, and of down; empty is none.
        specs: [String; 3],
    },
    /// Ends a published port.
    PortRemove {
        /// The port, as after `-p`.
        port: String,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// One list of names and values for each stack of the process.
    Values(Vec<StackValues>),
    /// One list of sockets for each stack of the process.
    Sockets(Vec<StackSockets>),
    /// The connections of all stacks of the process.
    Connections(Connections),
    /// One list of queueing disciplines for each stack of the process.
    Qdiscs(Vec<StackQdiscs>),
    /// The published ports, as after `-p`.
    Ports(Vec<String>),
    /// The links of `plimsoll run`.
    Weather(Vec<LinkLine>),
    /// The error's text.
    Error(String),
}

/// Names and values of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StackValues {
    /// The name of the stack in its process.
    pub stack: String,
    /// Names and values, in the stack's order.
    pub values: Vec<(String, String)>,
}

/// Sockets of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StackSockets {
    /// The name of the stack in its process.
    pub stack: String,
    /// The sockets.
    pub sockets: Vec<SocketLine>,
}

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NetId {
    #[default]
    Tcp,
    Udp,
}

impl NetId {
    /// As `ss` writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NetId::Tcp => "tcp",
            NetId::Udp => "udp",
        }
    }
}

/// One socket, as `ss` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketLine {
    /// The protocol, as `ss` writes it.
    #[serde(default)]
    pub netid: NetId,
    /// The state, as `ss` writes it: `ESTAB`, `LISTEN`, `TIME-WAIT`; `UNCONN` for a socket of UDP
    /// without a peer.
    pub state: String,
    /// Bytes to be read; for a listener, connections to be accepted.
    pub recv_q: u64,
    /// Bytes written and not yet acknowledged, or with UDP not yet sent; for a listener, its
    /// backlog.
    pub send_q: u64,
    /// Our address.
    pub local: String,
    /// The peer's address; `*` without one.
    pub remote: String,
    /// More, as `name:value`, for `ss -i`.
    pub info: Vec<(String, String)>,
    /// The last decisions, for `ss --why`.
    #[serde(default)]
    pub why: Vec<String>,
}

/// The connections of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connections {
    /// Milliseconds since the stack was built.
    pub running_ms: u64,
    /// The flows of datagrams of `plimsoll run`; elsewhere those of UDP that have a peer.
    pub flows: usize,
    /// The connections, in no order.
    pub lines: Vec<ConnectionLine>,
}

/// One connection. *Up* is away from this machine's program, *down* is towards it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectionLine {
    /// The other host.
    pub far: SocketAddr,
    /// The name by which the command of `run` has looked it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address of the command, or of the stack.
    pub near: SocketAddr,
    /// The role of the other host.
    pub role: Role,
    /// The state, as `ss` writes it.
    pub state: String,
    /// Milliseconds since it began, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// The figures of the side of the network: the kernel's for `run`, otherwise the stack's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Leg>,
    /// The stack's figures of the side of the command of `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<Leg>,
}

/// The role of the other host of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// The command of `run` has dialled it.
    Server,
    /// It came through a published port of `run`.
    Visitor,
    /// The other end of a connection of a stack, whoever has dialled.
    Peer,
}

/// The figures of one side of a connection. Counts and times are those since it opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leg {
    /// The smoothed round trip in microseconds; zero if none was measured.
    pub rtt_us: u64,
    /// Segments that the congestion window allows in flight.
    pub cwnd: u32,
    /// Segments in flight.
    pub in_flight: u32,
    /// Segments that were retransmitted.
    pub retrans: u32,
    /// Segments that have arrived out of order.
    pub out_of_order: u32,
    /// Bytes that were written and not sent.
    pub unsent: u64,
    /// Bytes that were sent, each counted once.
    pub sent: u64,
    /// Bytes that have arrived.
    pub received: u64,
    /// Microseconds with unacknowledged data.
    pub busy_us: u64,
    /// Of these, those in which the window of the receiver held data back.
    pub rwnd_us: u64,
    /// Of these, those in which a larger send buffer would have had data to send.
    pub sndbuf_us: u64,
    /// Lost data is being retransmitted.
    pub recovers: bool,
    /// Milliseconds since data was last sent, or since it opened.
    pub since_sent_ms: u64,
    /// Milliseconds since data has last arrived, or since it opened.
    pub since_received_ms: u64,
    /// The stack's other holds that have occurred, as in `ss -i`: how often, and microseconds.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub holds: Vec<(String, u64, u64)>,
}

/// Queueing disciplines of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StackQdiscs {
    /// The name of the stack in its process.
    pub stack: String,
    /// One for each interface.
    pub qdiscs: Vec<QdiscLine>,
}

/// One queueing discipline, with the names that `tc -s -j qdisc show` has for its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QdiscLine {
    /// The discipline: `fq` or `pfifo`.
    pub kind: String,
    /// The interface.
    pub dev: String,
    /// The parameters as `tc` prints them.
    pub options: String,
    /// Bytes given to the device.
    pub bytes: u64,
    /// Packets given to the device.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Bytes queued now.
    pub backlog: u64,
    /// Packets queued now.
    pub qlen: u64,
    /// The counters of fair queueing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fq: Option<FqLine>,
}

/// One direction of the link of `plimsoll run`. Packets are wire segments, bytes are those of IP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkLine {
    /// `up`, from the command to the network, or `down`.
    pub direction: String,
    /// The link, as it was written.
    pub link: String,
    /// Packets that were put on it.
    pub offered: u64,
    /// Bytes of these.
    pub offered_bytes: u64,
    /// Packets that it has delivered.
    pub delivered: u64,
    /// Bytes of these.
    pub delivered_bytes: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// Dropped by a full queue.
    pub dropped_full: u64,
    /// Dropped by the queue's management.
    pub dropped_early: u64,
    /// Dropped because they were longer than the MTU.
    pub dropped_long: u64,
    /// Marked (CE).
    pub marked: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Packets that others were to overtake.
    pub reordered: u64,
    /// Packets with a wrong bit.
    pub corrupted: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
    /// Packets that wait now.
    pub queue_packets: u64,
    /// The most bytes that ever waited.
    pub queue_bytes_max: u64,
}

impl LinkLine {
    pub(crate) fn new(direction: &str, (link, stats): &(String, LinkStats)) -> LinkLine {
        LinkLine {
            direction: direction.to_owned(),
            link: link.clone(),
            offered: stats.offered,
            offered_bytes: stats.offered_bytes,
            delivered: stats.delivered,
            delivered_bytes: stats.delivered_bytes,
            lost: stats.lost,
            dropped_full: stats.dropped_full,
            dropped_early: stats.dropped_early,
            dropped_long: stats.dropped_long,
            marked: stats.marked + stats.marked_on_wire,
            duplicated: stats.duplicated,
            reordered: stats.reordered,
            corrupted: stats.corrupted,
            queue_bytes: stats.queue_bytes,
            queue_packets: stats.queue_packets,
            queue_bytes_max: stats.queue_bytes_max,
        }
    }
}

/// The counters that only fair queueing has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FqLine {
    /// Flows that are known.
    pub flows: u64,
    /// Those that hold no packet.
    pub inactive: u64,
    /// Those that wait for a departure time.
    pub throttled: u64,
    /// Empty flows forgotten.
    pub gc: u64,
    /// Packets of no flow.
    pub highprio: u64,
    /// How often a flow began to wait for a departure time.
    pub throttled_events: u64,
    /// Packets dropped because their flow was full.
    pub flows_plimit: u64,
    /// Packets dropped because they were to leave too late.
    pub horizon_drops: u64,
    /// Packets moved to the horizon.
    pub horizon_caps: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = serde_json::to_string(&Request::Nstat).unwrap();
        assert_eq!(text, r#"{"op":"nstat"}"#);
        let set = Request::SysctlSet { name: "a".into(), value: "1".into() };
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(text, r#"{"op":"sysctl_set","name":"a","value":"1"}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), set);
        let text = serde_json::to_string(&Answer::Error("no".into())).unwrap();
        assert_eq!(text, r#"{"error":"no"}"#);
    }
}
