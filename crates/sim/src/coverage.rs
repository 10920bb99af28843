//! Rare branches. Each must be reached once in a while, or the swarm tests less than it seems to.

use std::collections::BTreeMap;

use plimsoll_stack::Stack;
use plimsoll_tcp::Info;

use crate::link::LinkStats;

/// Counters of a stack that must be above zero in some run of a thousand.
const COUNTERS: [&str; 43] = [
    "TcpActiveOpens",
    "TcpRetransSegs",
    "TcpInCsumErrors",
    "TcpExtDelayedACKs",
    "TcpExtDelayedACKLost",
    "TcpExtTCPHPHits",
    "TcpExtTCPPureAcks",
    "TcpExtTCPOFOQueue",
    "TcpExtTCPOFOMerge",
    "TcpExtTCPRcvCoalesce",
    "TcpExtTCPFromZeroWindowAdv",
    "TcpExtTCPToZeroWindowAdv",
    "TcpExtTCPWinProbe",
    "TcpExtTCPDSACKOldSent",
    "TcpExtTCPDSACKOfoSent",
    "TcpExtTCPDSACKRecv",
    "TcpExtTCPDSACKRecvSegs",
    "TcpExtTCPDSACKOfoRecv",
    "TcpExtTCPSACKReorder",
    "TcpExtTCPRenoReorder",
    "TcpExtTCPTSReorder",
    "TcpExtTCPFullUndo",
    "TcpExtTCPPartialUndo",
    "TcpExtTCPDSACKUndo",
    "TcpExtTCPLossUndo",
    "TcpExtTCPSpuriousRTOs",
    "TcpExtTCPSackRecovery",
    "TcpExtTCPRenoRecovery",
    "TcpExtTCPSackRecoveryFail",
    "TcpExtTCPLossFailures",
    "TcpExtTCPLossProbes",
    "TcpExtTCPLossProbeRecovery",
    "TcpExtTCPFastRetrans",
    "TcpExtTCPSlowStartRetrans",
    "TcpExtTCPLostRetransmit",
    "TcpExtTCPTimeouts",
    "TcpExtTCPSynRetrans",
    "TcpExtTCPDeliveredCE",
    "TcpExtTCPMTUPFail",
    "TcpExtTCPMTUPSuccess",
    "plimsoll.BbrProbeUp",
    "plimsoll.BbrProbeRtt",
    "plimsoll.BbrExcessLoss",
];

/// What the simulator itself does.
const OWN: [&str; 21] = [
    "sim.partition",
    "sim.one-way-partition",
    "sim.healed",
    "sim.mtu",
    "sim.rate",
    "sim.stall",
    "sim.clock-step",
    "sim.crash",
    "sim.reboot",
    "link.dropped-full",
    "link.dropped-early",
    "link.lost",
    "link.dropped-down",
    "link.dropped-long",
    "link.marked",
    "link.marked-on-wire",
    "link.corrupted",
    "link.reordered",
    "link.duplicated",
    "tcp.backoff-above-3",
    "tcp.window-closed",
];

/// How often each branch was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    /// Takes note of a branch by its name.
    pub(crate) fn note(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    fn add(&mut self, name: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    /// Takes note of what the counters of a stack tell.
    pub(crate) fn count(&mut self, stack: &Stack) {
        for name in COUNTERS {
            self.add(name, stack.counter(name).unwrap_or(0));
        }
    }

    pub(crate) fn count_link(&mut self, stats: &LinkStats) {
        self.add("link.dropped-full", stats.dropped_full);
        self.add("link.dropped-early", stats.dropped_early);
        self.add("link.lost", stats.lost);
        self.add("link.dropped-down", stats.dropped_down);
        self.add("link.dropped-long", stats.dropped_long);
        self.add("link.marked", stats.marked);
        self.add("link.marked-on-wire", stats.marked_on_wire);
        self.add("link.corrupted", stats.corrupted);
        self.add("link.reordered", stats.reordered);
        self.add("link.duplicated", stats.duplicated);
    }

    /// Takes note of what TCP_INFO tells.
    pub(crate) fn look_at(&mut self, info: &Info) {
        self.add("tcp.backoff-above-3", u64::from(info.backoff > 3));
        self.add("tcp.window-closed", u64::from(info.snd_wnd == 0 && info.notsent_bytes > 0));
    }

    /// Adds those of another run.
    pub fn merge(&mut self, other: &Reached) {
        for (&name, &count) in &other.0 {
            self.add(name, count);
        }
    }

    /// Every branch with how often it was reached, 0 included.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let names = OWN.iter().chain(&COUNTERS);
        names.map(|&name| (name, self.0.get(name).copied().unwrap_or(0))).collect()
    }

    /// How often the branch of this name was reached.
    pub fn count_of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Branches that were never reached.
    pub fn missed(&self) -> Vec<&'static str> {
        self.all().into_iter().filter(|&(_, count)| count == 0).map(|(name, _)| name).collect()
    }
}
