//! What a capture says, as figures: the object that is written as JSON.

use serde::Serialize;

use crate::flow::Flow;
use crate::kinds::{ALL, Kind};
use crate::tally::{Mark, Tally};
use crate::{Options, direction::Direction};

/// A megabyte, as in ACKs per megabyte.
const MEGABYTE: f64 = 1e6;

/// Bytes that must have been acknowledged before a rate of ACKs means anything.
const ENOUGH_ACKED: u64 = 1_000_000;

/// ACKs, the same.
const ENOUGH_ACKS: u64 = 100;

/// What a capture says.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// `pcap` or `pcapng`.
    pub format: &'static str,
    /// Why the end of the file could not be read, if it could not.
    pub note: Option<String>,
    /// Frames in the capture.
    pub packets: u64,
    /// TCP segments and super-segments among them.
    pub tcp_packets: u64,
    /// Frames that were passed over.
    pub skipped: Skipped,
    /// Milliseconds from the first to the last segment.
    pub duration_ms: f64,
    /// Flows in the capture.
    pub flows_seen: u64,
    /// The sums of all flows, those that are not kept as well, by kind, the costliest first.
    pub totals: Vec<Sum>,
    /// Flows that were given up because too many were open.
    pub evicted: Evicted,
    /// Flows that are kept, the costliest first.
    pub flows: Vec<FlowReport>,
}

/// Frames that were passed over, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Skipped {
    /// Neither IPv4 nor IPv6, or not TCP.
    pub not_tcp: u64,
    /// Fragments.
    pub fragments: u64,
    /// Broken headers, or too little of them captured.
    pub broken: u64,
    /// Link types that are not known.
    pub unknown_link: u64,
}

/// Flows that were given up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Evicted {
    /// How many.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// Their findings.
    pub findings: Vec<Sum>,
}

/// Findings of one kind, added up.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// The name of the kind.
    pub kind: &'static str,
    /// How often.
    pub count: u64,
    /// Packets that could have been saved.
    pub packets: f64,
    /// Milliseconds lost.
    pub ms: f64,
    /// The rank.
    pub score: f64,
}

/// One flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    /// The end that connected, or the lower one if that is not known: address and port.
    pub client: String,
    /// The other end.
    pub server: String,
    /// Whether the SYN was seen, so that it is known who connected.
    pub handshake_seen: bool,
    /// Milliseconds from the start of the capture to the first packet.
    pub start_ms: f64,
    /// Milliseconds from the first to the last packet.
    pub duration_ms: f64,
    /// The handshake's round trip as captured, in milliseconds; 0 if unknown.
    pub rtt_ms: f64,
    /// What the client sent, and what the server sent.
    pub directions: [DirectionReport; 2],
    /// The sum of the findings' ranks.
    pub score: f64,
    /// What was found, the costliest first.
    pub findings: Vec<Finding>,
}

/// One direction of a flow.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// `client` or `server`: who sends.
    pub from: &'static str,
    /// Packets, ACKs included.
    pub packets: u64,
    /// Bytes of payload, those sent again included.
    pub bytes: u64,
    /// Packets with new payload.
    pub data_packets: u64,
    /// Payload of a full segment, from the SYNs or from the sizes seen.
    pub mss: u32,
    /// Packets that carry more than one segment.
    pub super_segments: u64,
    /// Segments that the data packets are on the wire.
    pub wire_segments: u64,
    /// Packets with payload that was sent before.
    pub retransmissions: u64,
    /// Packets that were captured twice.
    pub duplicates: u64,
    /// Probes of a closed window.
    pub probes: u64,
    /// ACKs without data that acknowledge something new.
    pub pure_acks: u64,
    /// Of these per megabyte that they acknowledge.
    pub acks_per_megabyte: f64,
    /// Segments that one of them acknowledges.
    pub stretch: f64,
    /// How many deferring would leave.
    pub deferred_acks: u64,
    /// The size of the program's writes, if the ends of segments tell.
    pub write_size: Option<u32>,
}

/// A packet that shows a finding.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Example {
    /// Its number in the capture; the first is 1.
    pub packet: u64,
    /// Milliseconds since the start of the capture.
    pub ms: f64,
}

/// One finding in one direction of a flow.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The name of the kind.
    pub kind: &'static str,
    /// `client` or `server`: whose packets.
    pub from: &'static str,
    /// A headline.
    pub title: &'static str,
    /// How often.
    pub count: u64,
    /// Packets that could have been saved.
    pub packets: f64,
    /// Milliseconds lost.
    pub ms: f64,
    /// The longest single loss in milliseconds.
    pub longest_ms: f64,
    /// The rank.
    pub score: f64,
    /// The figures in a sentence.
    pub detail: String,
    /// What happened.
    pub cause: &'static str,
    /// The knob or call.
    pub remedy: &'static str,
    /// The first few.
    pub examples: Vec<Example>,
}

/// Sums over flows by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums([Tally; ALL.len()]);

impl Sums {
    pub(crate) fn add(&mut self, flow: &Flow, options: &Options) {
        for side in &flow.sides {
            for kind in ALL {
                if let Some(tally) = worth(side, kind, options) {
                    self.0[kind as usize].join(&tally);
                }
            }
        }
    }

    pub(crate) fn list(&self) -> Vec<Sum> {
        let mut list: Vec<Sum> = ALL
            .into_iter()
            .map(|kind| (kind, self.0[kind as usize]))
            .filter(|(_, tally)| tally.count > 0)
            .map(|(kind, tally)| Sum {
                kind: kind.name(),
                count: tally.count,
                packets: tally.packets,
                ms: millis(tally.nanos),
                score: tally.score(kind),
            })
            .collect();
        list.sort_by(|a, b| b.score.total_cmp(&a.score));
        list
    }
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The findings of one kind in one direction, if they are worth being told.
fn worth(side: &Direction, kind: Kind, options: &Options) -> Option<Tally> {
    if kind == Kind::AckRate {
        let many = side.acked >= ENOUGH_ACKED
            && side.pure_acks >= ENOUGH_ACKS
            && side.deferred <= side.pure_acks / 2;
        let saved = side.pure_acks.saturating_sub(side.deferred);
        let tally = Tally { count: side.pure_acks, packets: saved as f64, ..Tally::default() };
        return many.then_some(tally);
    }
    let tally = *side.found.get(kind);
    // One run of small packets, or one stall, may be worth more than many small things.
    let costly = tally.nanos >= options.stall_least || tally.packets >= options.least_count as f64;
    (tally.count >= options.least_count || tally.count > 0 && costly).then_some(tally)
}

/// The report of a flow that has ended, in a capture that began at `start`.
pub(crate) fn flow(flow: &Flow, start: u64, options: &Options) -> FlowReport {
    let client = flow.client.unwrap_or(0);
    let order = [client, 1 - client];
    let names = [flow.ends.0, flow.ends.1];
    let mut findings: Vec<Finding> = Vec::new();
    for (n, from) in order.into_iter().enumerate() {
        for kind in ALL {
            if let Some(tally) = worth(&flow.sides[from], kind, options) {
                findings.push(finding(flow, (n, from), kind, &tally, start));
            }
        }
    }
    findings.sort_by(|a, b| b.score.total_cmp(&a.score));
    FlowReport {
        client: names[client].to_string(),
        server: names[1 - client].to_string(),
        handshake_seen: flow.client.is_some(),
        start_ms: millis(flow.first.saturating_sub(start)),
        duration_ms: millis(flow.last.saturating_sub(flow.first)),
        rtt_ms: millis(flow.rtt),
        directions: [direction(flow, 0, client), direction(flow, 1, 1 - client)],
        score: findings.iter().map(|finding| finding.score).sum(),
        findings,
    }
}

const NAMES: [&str; 2] = ["client", "server"];

fn direction(flow: &Flow, n: usize, from: usize) -> DirectionReport {
    let side = &flow.sides[from];
    let per = |a: f64, b: u64| if b == 0 { 0.0 } else { a / b as f64 };
    DirectionReport {
        from: NAMES[n],
        packets: side.packets,
        bytes: side.bytes,
        data_packets: side.data_packets,
        mss: flow.mss(from),
        super_segments: side.super_segments,
        wire_segments: side.wire_segments,
        retransmissions: side.retransmissions,
        duplicates: side.duplicates,
        probes: side.probes,
        pure_acks: side.pure_acks,
        acks_per_megabyte: per(side.pure_acks as f64 * MEGABYTE, side.acked),
        stretch: per(side.acked as f64 / f64::from(flow.mss(1 - from)), side.pure_acks),
        deferred_acks: side.deferred,
        write_size: side.write_ends.size(),
    }
}

fn finding(
    flow: &Flow,
    (n, from): (usize, usize),
    kind: Kind,
    tally: &Tally,
    start: u64,
) -> Finding {
    let example =
        |mark: Mark| Example { packet: mark.number, ms: millis(mark.time.saturating_sub(start)) };
    Finding {
        kind: kind.name(),
        from: NAMES[n],
        title: kind.title(),
        count: tally.count,
        packets: tally.packets,
        ms: millis(tally.nanos),
        longest_ms: millis(tally.longest),
        score: tally.score(kind),
        detail: detail(flow, (n, from), kind, tally),
        cause: kind.cause(),
        remedy: kind.remedy(),
        examples: tally.marks().map(example).collect(),
    }
}

/// The figures in a sentence.
fn detail(flow: &Flow, (n, from): (usize, usize), kind: Kind, tally: &Tally) -> String {
    let (side, peer) = (&flow.sides[from], &flow.sides[1 - from]);
    let (count, packets, ms) = (tally.count, tally.packets, millis(tally.nanos));
    let mss = flow.mss(from);
    match kind {
        Kind::Fractional => format!(
            "{count} pieces below {mss} bytes with more data right behind; trimmed, the same data \
             takes {packets:.0} segments less"
        ),
        Kind::TailApart => format!("{count} tails in packets of their own"),
        Kind::SmallWrites => {
            let size = side.write_ends.size().filter(|&size| size < mss);
            let size = size.map_or(String::new(), |size| format!("writes of {size} bytes; "));
            format!(
                "{size}{} data packets for {} bytes, {packets:.0} more than merged",
                side.data_packets, side.bytes
            )
        }
        Kind::AckAlone => format!("{count} ACKs that left just before data with the same ACK"),
        Kind::AckRate => format!(
            "{count} ACKs for {:.1} MB; deferring would leave {}",
            side.acked as f64 / MEGABYTE,
            side.deferred
        ),
        Kind::Stall => {
            let who = match (side.stalls_behind_first * 2 >= count, n) {
                (true, 1) => "the server writes header and body apart: ",
                (true, _) => "the client writes its request in pieces: ",
                _ => "",
            };
            format!(
                "{who}{count} waits of {:.0} ms on average, {ms:.0} ms in all",
                ms / count as f64
            )
        }
        Kind::ZeroWindow => format!(
            "closed {count} times, {ms:.0} ms in all, {:.0} ms at most; {} probes",
            millis(tally.longest),
            peer.probes
        ),
        Kind::SillyWindow => format!("{count} times"),
        Kind::WakeUps => format!("{count} messages in {packets:.0} packets more than they need"),
    }
}
