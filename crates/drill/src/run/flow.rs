//! What the runner knows of a connection: addresses, initial sequence numbers, timestamps.
//!
//! Numbers in a script are relative to the first SYN of their sender, except in segments with SYN,
//! which are as written. The stack under test picks its own initial sequence number and its own
//! timestamps, so both are translated.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::packet::live::Segment;

/// How far a socket has come, as far as the runner has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// After `socket()`.
    New,
    /// After `listen()`.
    Listening,
    /// A SYN of the script has made this connection.
    SynReceived,
    /// The SYN-ACK was seen.
    SynAckSent,
    /// It was acknowledged.
    SynAckAcked,
    /// After `connect()`.
    Connecting,
    /// The SYN was seen.
    SynSent,
    /// It was acknowledged.
    SynAcked,
}

/// The most timestamps that are remembered of one connection.
const MAX_STAMPS: usize = 100_000;

/// One socket or connection.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) script_fd: Option<i32>,
    pub(super) live_fd: Option<i32>,
    pub(super) closed: bool,
    pub(super) state: State,
    /// TCP, UDP and so on.
    pub(super) protocol: i32,
    /// The addresses on the wire.
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Our initial sequence number in the script and on the wire.
    pub(super) script_local_isn: u32,
    pub(super) live_local_isn: u32,
    /// The peer's, which is the same in both.
    pub(super) remote_isn: u32,
    /// Values of our timestamps in the script, and what they were on the wire.
    stamps: HashMap<u32, u32>,
    /// The first of them.
    first_stamp: Option<(u32, u32)>,
    /// The flow label of the script and the one on the wire.
    pub(super) label: Option<(u32, u32)>,
}

impl Flow {
    pub(super) fn new(protocol: i32, state: State) -> Flow {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Flow {
            script_fd: None,
            live_fd: None,
            closed: false,
            state,
            protocol,
            local: nowhere,
            remote: nowhere,
            script_local_isn: 0,
            live_local_isn: 0,
            remote_isn: 0,
            stamps: HashMap::new(),
            first_stamp: None,
            label: None,
        }
    }

    /// What is added to our numbers of the script to get those on the wire.
    pub(super) fn local_offset(&self, syn: bool) -> u32 {
        if syn {
            self.live_local_isn.wrapping_sub(self.script_local_isn)
        } else {
            self.live_local_isn
        }
    }

    /// The same for the peer's numbers.
    pub(super) fn remote_offset(&self, syn: bool) -> u32 {
        if syn { 0 } else { self.remote_isn }
    }

    /// Turns the numbers of an outbound segment into those of the script.
    pub(super) fn to_script(&self, segment: &mut Segment, syn: bool, has_ack: bool) {
        segment.seq = segment.seq.wrapping_sub(self.local_offset(syn));
        let back = self.remote_offset(syn).wrapping_neg();
        if has_ack {
            segment.ack = segment.ack.wrapping_add(back);
        }
        for option in &mut segment.options {
            option.shift_sack(back);
        }
    }

    /// Notes that a timestamp which the script calls `script` is `live` on the wire, and returns
    /// what the script should have called it if clocks run evenly.
    pub(super) fn note_stamp(&mut self, script: u32, live: u32) -> u32 {
        if self.stamps.len() < MAX_STAMPS {
            self.stamps.insert(script, live);
        }
        let (first_script, first_live) = *self.first_stamp.get_or_insert((script, live));
        first_script.wrapping_add(live.wrapping_sub(first_live))
    }

    /// What the script would call a timestamp that is `live` on the wire, for the journal. Before
    /// the first one is known, that of the script itself.
    pub(super) fn shown_stamp(&self, live: u32, script: Option<u32>) -> u32 {
        match (self.first_stamp, script) {
            (Some((first_script, first_live)), _) => {
                first_script.wrapping_add(live.wrapping_sub(first_live))
            }
            (None, Some(script)) => script,
            (None, None) => live,
        }
    }

    /// The timestamp on the wire that an inbound segment echoes. `scaled` allows one that was never
    /// sent.
    pub(super) fn live_echo(&self, script: u32, scaled: bool) -> Option<u32> {
        let interpolated = || {
            let (first_script, first_live) = self.first_stamp.filter(|_| scaled)?;
            Some(script.wrapping_sub(first_script).wrapping_add(first_live))
        };
        self.stamps.get(&script).copied().or_else(interpolated)
    }
}
