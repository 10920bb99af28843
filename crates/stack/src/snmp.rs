//! SNMP counters: the engine's and those of IP and ICMP, under Linux's names.
//!
//! Threads count in `snmp/shards.rs`: each in its own shard, without locked instructions. Reading
//! adds the shards up.
//!
//! `IpOutRequests` counts IPv4 packets passed to IP, `Ip6OutRequests` IPv6 packets; figures add the
//! two. A super-segment is one request, as on Linux, where the count is taken above the device.
//! Octet counters count whole IP packets; those of a super-segment count its bytes as they are
//! passed down, with one header.

mod shards;
mod states;

use std::rc::Rc;

use plimsoll_tcp::Counter;

use crate::metrics::CounterGroup;

pub(crate) use self::shards::Shard;
use self::shards::Shards;
pub(crate) use self::states::{STATE_COUNT, place};

macro_rules! ip_counters {
    ($($variant:ident => $name:literal, $doc:literal;)*) => {
        /// A counter of IP or ICMP.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum IpCounter {
            $(#[doc = $doc] $variant,)*
        }

        /// Their names, in `nstat`'s order.
        const IP_NAMES: &[&str] = &[$($name),*];

        /// Their descriptions, in the same order.
        const IP_DOCS: &[&str] = &[$($doc),*];

        /// How many there are.
        const IP_COUNT: usize = IP_NAMES.len();
    };
}

ip_counters! {
    IpInReceives => "IpInReceives", "IPv4 packets received, also those in error.";
    IpInHdrErrors => "IpInHdrErrors", "IPv4 packets with an error in the header.";
    IpInAddrErrors => "IpInAddrErrors", "IPv4 packets that are not for us, or whose source cannot be another host's.";
    IpInUnknownProtos => "IpInUnknownProtos", "IPv4 packets of a protocol that we do not have.";
    IpInDelivers => "IpInDelivers", "IPv4 packets handed to a protocol.";
    IpOutRequests => "IpOutRequests", "IPv4 packets handed down; a super-segment is one.";
    IpOutDiscards => "IpOutDiscards", "IPv4 packets dropped on the way out for want of room.";
    IpReasmTimeout => "IpReasmTimeout", "Reassemblies of IPv4 given up because a fragment was missing.";
    IpReasmReqds => "IpReasmReqds", "IPv4 fragments received.";
    IpReasmOks => "IpReasmOKs", "IPv4 packets put together from fragments.";
    IpReasmFails => "IpReasmFails", "IPv4 fragments, or reassemblies of such, dropped.";
    IpFragOks => "IpFragOKs", "IPv4 datagrams sent in fragments.";
    IpFragFails => "IpFragFails", "IPv4 datagrams of which not every fragment found room.";
    IpFragCreates => "IpFragCreates", "IPv4 fragments sent.";
    IcmpInMsgs => "IcmpInMsgs", "ICMP messages received.";
    IcmpInErrors => "IcmpInErrors", "ICMP messages dropped because of an error in them.";
    IcmpInCsumErrors => "IcmpInCsumErrors", "ICMP messages with a bad checksum.";
    IcmpInDestUnreachs => "IcmpInDestUnreachs", "ICMP messages received: destination unreachable.";
    IcmpInTimeExcds => "IcmpInTimeExcds", "ICMP messages received: time exceeded.";
    IcmpInParmProbs => "IcmpInParmProbs", "ICMP messages received: parameter problem.";
    IcmpInEchos => "IcmpInEchos", "ICMP echo requests received.";
    IcmpInEchoReps => "IcmpInEchoReps", "ICMP echo replies received.";
    IcmpOutMsgs => "IcmpOutMsgs", "ICMP messages sent.";
    IcmpOutRateLimitGlobal => "IcmpOutRateLimitGlobal", "ICMP and ICMPv6 errors left out because of `net.ipv4.icmp_msgs_per_sec`.";
    IcmpOutRateLimitHost => "IcmpOutRateLimitHost", "ICMP errors left out because of `net.ipv4.icmp_ratelimit`.";
    IcmpOutDestUnreachs => "IcmpOutDestUnreachs", "ICMP messages sent: destination unreachable.";
    IcmpOutTimeExcds => "IcmpOutTimeExcds", "ICMP messages sent: time exceeded.";
    IcmpOutEchoReps => "IcmpOutEchoReps", "ICMP echo replies sent.";
    UdpInDatagrams => "UdpInDatagrams", "UDP datagrams over IPv4 that applications have read.";
    UdpNoPorts => "UdpNoPorts", "UDP datagrams over IPv4 to a port without a socket.";
    UdpIgnoredMulti => "UdpIgnoredMulti", "UDP datagrams over IPv4 to a group or a broadcast address that no socket has joined or bound.";
    UdpInErrors => "UdpInErrors", "UDP datagrams over IPv4 that were dropped: with an error in them, or for want of room.";
    UdpOutDatagrams => "UdpOutDatagrams", "UDP datagrams over IPv4 that were sent.";
    UdpRcvbufErrors => "UdpRcvbufErrors", "UDP datagrams over IPv4 dropped because the receive queue of their socket was full.";
    UdpSndbufErrors => "UdpSndbufErrors", "Sends of UDP over IPv4 that found the send queue full; they failed with EAGAIN.";
    UdpInCsumErrors => "UdpInCsumErrors", "UDP datagrams over IPv4 with a bad checksum.";
    UdpMemErrors => "UdpMemErrors", "UDP datagrams over IPv4 dropped because `net.ipv4.udp_mem` was reached.";
    Ip6InReceives => "Ip6InReceives", "IPv6 packets received, also those in error.";
    Ip6InHdrErrors => "Ip6InHdrErrors", "IPv6 packets with an error in the headers, or with an address of the form `::ffff:a.b.c.d`.";
    Ip6InAddrErrors => "Ip6InAddrErrors", "IPv6 packets that are not for us, or whose source cannot be another host's.";
    Ip6InUnknownProtos => "Ip6InUnknownProtos", "IPv6 packets of a protocol that we do not have.";
    Ip6InDelivers => "Ip6InDelivers", "IPv6 packets handed to a protocol.";
    Ip6OutRequests => "Ip6OutRequests", "IPv6 packets handed down; a super-segment is one.";
    Ip6OutDiscards => "Ip6OutDiscards", "IPv6 packets dropped on the way out for want of room.";
    Ip6ReasmTimeout => "Ip6ReasmTimeout", "Reassemblies of IPv6 given up because a fragment was missing.";
    Ip6ReasmReqds => "Ip6ReasmReqds", "IPv6 fragments received.";
    Ip6ReasmOks => "Ip6ReasmOKs", "IPv6 packets put together from fragments.";
    Ip6ReasmFails => "Ip6ReasmFails", "IPv6 fragments, or reassemblies of such, dropped.";
    Ip6FragOks => "Ip6FragOKs", "IPv6 datagrams sent in fragments.";
    Ip6FragFails => "Ip6FragFails", "IPv6 datagrams of which not every fragment found room.";
    Ip6FragCreates => "Ip6FragCreates", "IPv6 fragments sent.";
    Ip6InOctets => "Ip6InOctets", "Bytes of IPv6 packets received.";
    Ip6OutOctets => "Ip6OutOctets", "Bytes of IPv6 packets handed down; a super-segment has one header.";
    Icmp6InMsgs => "Icmp6InMsgs", "ICMPv6 messages received.";
    Icmp6InErrors => "Icmp6InErrors", "ICMPv6 messages dropped because of an error in them.";
    Icmp6InCsumErrors => "Icmp6InCsumErrors", "ICMPv6 messages with a bad checksum.";
    Icmp6InDestUnreachs => "Icmp6InDestUnreachs", "ICMPv6 messages received: destination unreachable.";
    Icmp6InPktTooBigs => "Icmp6InPktTooBigs", "ICMPv6 messages received: packet too big.";
    Icmp6InEchos => "Icmp6InEchos", "ICMPv6 echo requests received.";
    Icmp6InEchoReplies => "Icmp6InEchoReplies", "ICMPv6 echo replies received.";
    Icmp6OutMsgs => "Icmp6OutMsgs", "ICMPv6 messages sent.";
    Icmp6OutRateLimitHost => "Icmp6OutRateLimitHost", "ICMPv6 errors left out because of `net.ipv6.icmp.ratelimit`.";
    Icmp6OutDestUnreachs => "Icmp6OutDestUnreachs", "ICMPv6 messages sent: destination unreachable.";
    Icmp6OutTimeExcds => "Icmp6OutTimeExcds", "ICMPv6 messages sent: time exceeded.";
    Icmp6OutParmProblems => "Icmp6OutParmProblems", "ICMPv6 messages sent: parameter problem.";
    Icmp6OutEchoReplies => "Icmp6OutEchoReplies", "ICMPv6 echo replies sent.";
    Udp6InDatagrams => "Udp6InDatagrams", "UDP datagrams over IPv6 that applications have read.";
    Udp6NoPorts => "Udp6NoPorts", "UDP datagrams over IPv6 to a port without a socket.";
    Udp6IgnoredMulti => "Udp6IgnoredMulti", "UDP datagrams over IPv6 to a group that no socket has joined.";
    Udp6InErrors => "Udp6InErrors", "UDP datagrams over IPv6 that were dropped: with an error in them, or for want of room.";
    Udp6OutDatagrams => "Udp6OutDatagrams", "UDP datagrams over IPv6 that were sent.";
    Udp6RcvbufErrors => "Udp6RcvbufErrors", "UDP datagrams over IPv6 dropped because the receive queue of their socket was full.";
    Udp6SndbufErrors => "Udp6SndbufErrors", "Sends of UDP over IPv6 that found the send queue full; they failed with EAGAIN.";
    Udp6InCsumErrors => "Udp6InCsumErrors", "UDP datagrams over IPv6 with a bad checksum, or without one.";
    Udp6MemErrors => "Udp6MemErrors", "UDP datagrams over IPv6 dropped because `net.ipv4.udp_mem` was reached.";
    IpExtInOctets => "IpExtInOctets", "Bytes of IPv4 packets received.";
    IpExtOutOctets => "IpExtOutOctets", "Bytes of IPv4 packets handed down; a super-segment has one header.";
    IpExtInCsumErrors => "IpExtInCsumErrors", "IPv4 packets with a bad header checksum.";
    OutOfWindowIcmps => "TcpExtOutOfWindowIcmps", "ICMP errors ignored because they quote nothing in flight.";
    StrayRstLimited => "plimsoll.StrayRstLimited", "Resets for stray segments left out because of the rate limit.";
    SynShed => "plimsoll.SynShed", "SYNs dropped unread because SYNs have had their share of a poller that cannot keep up.";
    SynSpared => "plimsoll.SynSpared", "SYNs worked on while others are shed because their source has completed a handshake before.";
    GsoSoftware => "plimsoll.GsoSoftware", "Super-segments cut up in software because the device cannot.";
    TxRingFull => "plimsoll.TxRingFull", "Times that a device took no more packets for the moment.";
    QueueMoves => "plimsoll.QueueMoves", "Connections that moved to the queue that their data comes by.";
    QueueMisses => "plimsoll.QueueMisses", "Segments worked on elsewhere than at their connection's home.";
    GroMerged => "plimsoll.GroMerged", "Segments that were merged into one before them on arrival.";
    ConnectionPanics => "plimsoll.ConnectionPanics", "Connections aborted because the stack panicked in work on them: a defect.";
    BudgetConnections => "plimsoll.BudgetConnections", "Connections refused because the stack's or a listener's number was reached.";
    BudgetHalfOpen => "plimsoll.BudgetHalfOpen", "SYNs refused or answered with a cookie: too many were half open.";
    BudgetMemory => "plimsoll.BudgetMemory", "SYNs refused because a listener's budget of memory was spent.";
    BudgetPressures => "plimsoll.BudgetPressures", "Times that the memory budget of a listener or a connection became short.";
    Polls => "plimsoll.Polls", "Turns of the loop that polls devices and runs timers.";
    TcpPrequeued => "TcpExtTCPPrequeued", "Packets that a blocked reader has worked on itself.";
    TcpPrequeueDropped => "TcpExtTCPPrequeueDropped", "Packets that a prequeue had no room for, or was emptied of for want of room.";
    UdpFlowTimeouts => "plimsoll.UdpFlowTimeouts", "UDP flows to any address that ended because they were idle.";
    UdpFlowsEvicted => "plimsoll.UdpFlowsEvicted", "UDP flows to any address that ended to make place for others.";
    UdpFlowsRefused => "plimsoll.UdpFlowsRefused", "Datagrams to any address that began no flow because there was no place for one.";
    UdpSendsLost => "plimsoll.UdpSendsLost", "Datagrams of QUIC endpoints that could not leave and are lost.";
    Unhandled => "plimsoll.Unhandled", "Packets that no socket accepted and that the hook for them was given.";
    UnhandledDropped => "plimsoll.UnhandledDropped", "Packets that no socket accepted and that found the queue for them full.";
    UnhandledPanics => "plimsoll.UnhandledPanics", "Calls of the hook for unhandled packets that panicked.";
    WakerPanics => "plimsoll.WakerPanics", "Wakers of applications that panicked when they were woken or dropped.";
    BusyPolls => "plimsoll.BusyPolls", "Polls of readers, of those that spin and of those to whom a poller has left the devices.";
    BusyPollHits => "plimsoll.BusyPollHits", "Polls of readers that found something.";
    BusyPollMicros => "plimsoll.BusyPollMicros", "Microseconds that readers have spent polling.";
    WatcherPolls => "plimsoll.WatcherPolls", "Polls of readers of a UDP stream that the devices wake; BusyPolls counts them, too.";
}

/// Gauges that `nstat` prints next to the counters: a level, and its peak.
const GAUGES: [(&str, &str); 2] = [
    ("plimsoll.MemoryUsed", "Bytes that the queues of all connections hold now."),
    ("plimsoll.MemoryPeak", "The most bytes that they have held."),
];

/// Names of Linux's that do not mean quite the same there.
const UNLIKE_LINUX: [(&str, &str); 7] = [
    ("UdpSndbufErrors", "Linux counts sends that failed with ENOBUFS."),
    ("Udp6SndbufErrors", "Linux counts sends that failed with ENOBUFS."),
    ("IpInAddrErrors", "Linux counts such sources as `in_martian_src` of `rt_cache`."),
    (
        "Ip6InAddrErrors",
        "Linux counts loopback and multicast as source, and groups of the host alone, as Ip6InHdrErrors.",
    ),
    ("TcpExtTCPPrequeued", "Linux removed it with the prequeue in 4.14."),
    ("TcpExtTCPPrequeueDropped", "Linux removed it with the prequeue in 4.14."),
    (
        "TcpExtTCPAutoCorking",
        "Linux counts one between two completions at most, and none while small queues wait already.",
    ),
];

/// The description of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterInfo {
    /// The name, as `nstat` prints it.
    pub name: &'static str,
    /// Its meaning, in one sentence.
    pub doc: &'static str,
    /// The difference from Linux's counter of that name; empty if there is none.
    pub linux: &'static str,
}

impl CounterInfo {
    /// All counters in `nstat`'s order, followed by the gauges that it prints as well.
    pub fn all() -> Vec<CounterInfo> {
        let ip = IP_NAMES.iter().copied().zip(IP_DOCS.iter().copied());
        let tcp = Counter::ALL.iter().map(|counter| (counter.name(), counter.description()));
        let mut all: Vec<CounterInfo> = ip.chain(tcp).chain(GAUGES).map(CounterInfo::of).collect();
        all.sort_by_key(|info| group(info.name));
        all
    }

    fn of((name, doc): (&'static str, &'static str)) -> CounterInfo {
        let unlike = UNLIKE_LINUX.iter().find(|(known, _)| *known == name);
        CounterInfo { name, doc, linux: unlike.map_or("", |&(_, how)| how) }
    }
}

/// All counters of a stack.
pub(crate) struct Snmp {
    shards: Shards,
}

impl Snmp {
    pub(crate) fn new() -> Snmp {
        Snmp { shards: Shards::new() }
    }

    /// Where the calling thread counts.
    pub(crate) fn shard(&self) -> Rc<Shard> {
        self.shards.mine()
    }

    /// All names and values, in `nstat`'s order: Ip, Icmp, Tcp, Udp, Ip6, Icmp6, Udp6, TcpExt,
    /// IpExt, and our own.
    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        let sums = self.shards.sums();
        let ip = IP_NAMES.iter().copied().zip(sums.ip);
        let tcp = Counter::ALL.iter().map(|counter| counter.name()).zip(sums.tcp);
        let mut all: Vec<(&'static str, u64)> = ip.chain(tcp).collect();
        all.sort_by_key(|&(name, _)| group(name));
        all
    }

    /// How many connections are in each state, by its [`place`].
    pub(crate) fn states(&self) -> [u64; STATE_COUNT] {
        self.shards.states()
    }

    /// The value of the counter with the name `name`.
    pub(crate) fn by_name(&self, name: &str) -> Option<u64> {
        if let Some(index) = IP_NAMES.iter().position(|&known| known == name) {
            return Some(self.shards.sum_of_ip(index));
        }
        let index = Counter::ALL.iter().position(|counter| counter.name() == name)?;
        Some(self.shards.sum_of_tcp(index))
    }
}

/// The group of a counter, in `nstat`'s order.
fn group(name: &str) -> CounterGroup {
    CounterGroup::of(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_described() {
        let (all, infos) = (Snmp::new().all(), CounterInfo::all());
        assert_eq!(infos.len(), all.len() + GAUGES.len());
        for (info, (name, _)) in infos.iter().zip(all) {
            assert_eq!(info.name, name);
            assert!(info.doc.ends_with('.'), "{name}: {}", info.doc);
        }
        for (name, how) in UNLIKE_LINUX {
            assert!(infos.iter().any(|info| info.name == name && info.linux == how), "{name}");
        }
    }

    #[test]
    fn sums_and_names() {
        let snmp = Snmp::new();
        snmp.shard().bump(IpCounter::IpOutRequests);
        std::thread::scope(|scope| {
            scope.spawn(|| snmp.shard().add(IpCounter::IpOutRequests, 2));
        });
        snmp.shard().tcp().bump(Counter::OutSegs);
        assert_eq!(snmp.by_name("IpOutRequests"), Some(3));
        assert_eq!(snmp.by_name("TcpOutSegs"), Some(1));
        assert_eq!(snmp.by_name("Nonsense"), None);
        let all = snmp.all();
        let at = |name| all.iter().position(|&(known, _)| known == name).unwrap();
        assert!(at("IpInReceives") < at("IcmpInMsgs"));
        assert!(at("IcmpInMsgs") < at("TcpActiveOpens"));
        assert!(at("TcpExtListenDrops") < at("IpExtInOctets"));
        assert!(at("IpExtOutOctets") < at("plimsoll.Polls"));
        let mut names: Vec<_> = all.iter().map(|&(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "no name twice");
    }
}
