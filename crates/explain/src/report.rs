//! What a capture says, as figures: the object that is written as JSON.

use serde::Serialize;

use crate::Options;
use crate::details;
use crate::flow::Flow;
use crate::kinds::{ALL, Kind};
use crate::nagle::Rule;
use crate::notes::{self, Caveat, CaveatCount, Note};
use crate::packet::Scale;
use crate::reasons::Reason;
use crate::remedies::{Stack, remedy};
use crate::sizes::Full;
use crate::tally::{Shown, Tally};
use crate::text::plural;
use crate::unread::UnreadFrames;

/// A megabyte, as in ACKs per megabyte.
const MEGABYTE: f64 = 1e6;

/// Bytes that must have been acknowledged before a rate of ACKs means anything.
const ENOUGH_ACKED: u64 = 1_000_000;

/// ACKs, the same.
const ENOUGH_ACKS: u64 = 100;

/// Segments that an ACK is for without any delay: at least every second one is acknowledged (RFC
/// 9293, section 3.8.6.3), and receivers may do so.
const USUAL_STRETCH: f64 = 1.5;

/// What a capture says. A figure that could not be taken is null.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The name of the file, or `standard input`.
    pub file: String,
    /// The format of the capture.
    pub format: Format,
    /// Why the end of the file could not be read, if it could not.
    pub note: Option<String>,
    /// Frames in the capture.
    pub packets: u64,
    /// TCP segments and super-segments among them.
    pub tcp_packets: u64,
    /// ICMP errors among them that quote a TCP segment.
    pub icmp_errors: u64,
    /// Frames that were passed over.
    pub skipped: Skipped,
    /// What frames hold that are not TCP or whose link type is not known, the most frequent first.
    pub unread: Vec<UnreadFrames>,
    /// From the first to the last frame; null if there is none.
    pub duration_ms: Option<f64>,
    /// Flows in the capture.
    pub flows_seen: u64,
    /// The sums of all flows, those that are not kept as well, by kind, the costliest first.
    pub totals: Vec<Sum>,
    /// What the capture cannot tell of flows that are kept.
    pub notes: Vec<CaveatCount>,
    /// Flows that were given up because too many were open.
    pub evicted: Evicted,
    /// Flows that are kept, the costliest first.
    pub flows: Vec<FlowReport>,
}

/// The format of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The format of libpcap, with stamps in microseconds or nanoseconds, in either byte order.
    #[default]
    Pcap,
    /// The newer one, in either byte order.
    Pcapng,
}

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The end that connected, or the lower one if that is not known.
    Client,
    /// The other end.
    Server,
}

impl Side {
    /// Its name in JSON and for people.
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

/// Where the size of a full segment is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MssSource {
    /// The options of the SYNs.
    Syn,
    /// The sizes that occur most.
    Sizes,
    /// The same, below what the SYNs said: the path takes less.
    Path,
    /// Nothing: it is the usual one of Ethernet.
    Assumed,
}

/// Frames that were passed over, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Skipped {
    /// Neither IPv4 nor IPv6, or not TCP, nor a tunnel with TCP in it.
    pub not_tcp: u64,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Broken headers, or too little of them captured.
    pub broken: u64,
    /// Link types that are not known, or interfaces that the capture does not describe.
    pub unknown_link: u64,
}

/// Flows that were given up because too many were open: their sums.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Evicted {
    /// How many.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// Their payload.
    pub bytes: u64,
    /// Their findings, which are in the totals as well.
    pub findings: Vec<Sum>,
}

/// Findings of one kind, added up.
#[derive(Clone, Debug, Serialize)]
pub struct Sum {
    /// The kind.
    pub kind: Kind,
    /// How often.
    pub count: u64,
    /// Packets that could have been saved; null for kinds that cost time.
    pub packets: Option<f64>,
    /// Time lost; null for kinds that cost packets.
    pub ms: Option<f64>,
    /// The same as a share of the time that all flows took, or of their packets; of connections
    /// that failed, their share of all flows.
    pub share: f64,
    /// The rank: the share, weighted. A share of time counts ten times a share of packets.
    pub score: f64,
}

/// One flow.
#[derive(Clone, Debug, Serialize)]
pub struct FlowReport {
    /// Address and port of the end that connected, or of the lower end if that is not known.
    pub client: String,
    /// Address and port of the other end.
    pub server: String,
    /// Whether the SYN was seen, so that it is known who connected.
    pub handshake_seen: bool,
    /// From the start of the capture to the first packet.
    pub start_ms: f64,
    /// From the first to the last packet.
    pub duration_ms: f64,
    /// The handshake's round trip as captured; null if the handshake is not in the capture.
    pub rtt_ms: Option<f64>,
    /// The end where it was captured; null if it was between them, or nothing tells.
    pub captured_at: Option<Side>,
    /// What the client sent, and what the server sent.
    pub directions: [DirectionReport; 2],
    /// What the findings cost, in packets; a millisecond counts as several.
    pub score: f64,
    /// What was found, the costliest first.
    pub findings: Vec<Finding>,
    /// What the capture cannot tell of this flow.
    pub notes: Vec<Note>,
}

/// One direction of a flow.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// Who sends.
    pub from: Side,
    /// Packets, ACKs included.
    pub packets: u64,
    /// Payload, what was sent again included.
    pub bytes: u64,
    /// Packets with new payload.
    pub data_packets: u64,
    /// Payload of a full segment.
    pub mss: u32,
    /// Where `mss` is known from.
    pub mss_source: MssSource,
    /// Packets that carry more than one segment.
    pub super_segments: u64,
    /// Segments that the data packets are on the wire.
    pub wire_segments: u64,
    /// Packets with payload that was sent before.
    pub retransmissions: u64,
    /// Segments of these that had arrived before, as the receiver says (D-SACK).
    pub needless_retransmissions: u64,
    /// Packets that overtook others, by how soon they came.
    pub reordered: u64,
    /// Payload that was sent, but is not in the capture.
    pub missing_bytes: u64,
    /// Packets that were captured twice, which are in no other figure.
    pub duplicates: u64,
    /// Probes of a closed window.
    pub probes: u64,
    /// ACKs without data that acknowledge something new.
    pub pure_acks: u64,
    /// `pure_acks` per megabyte (10^6 bytes) that they acknowledge; null if there are none.
    pub acks_per_megabyte: Option<f64>,
    /// Segments that one of them acknowledges on average; null if there are none.
    pub stretch: Option<f64>,
    /// How many of `pure_acks` deferring would leave.
    pub deferred_acks: u64,
    /// The size of the program's writes; null if the ends of segments do not tell.
    pub write_size: Option<u32>,
    /// Whether it waits for ACKs by Nagle's rule; null if no packet tells.
    pub nagle: Option<bool>,
    /// The largest window that it announced; null if the scale is not known.
    pub largest_window: Option<u32>,
}

/// A packet that shows a finding.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Example {
    /// Its number in the capture; the first is 1.
    pub packet: u64,
    /// From the start of the capture.
    pub ms: f64,
    /// Time lost here; null for kinds that cost packets.
    pub lost_ms: Option<f64>,
}

/// One finding in one direction of a flow.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// Which of the causes of this kind; null if it has only one, or the capture does not tell.
    pub reason: Option<Reason>,
    /// Whose packets.
    pub from: Side,
    /// A headline.
    pub title: &'static str,
    /// How often.
    pub count: u64,
    /// Packets that could have been saved; null for kinds that cost time.
    pub packets: Option<f64>,
    /// Time lost; null for kinds that cost packets.
    pub ms: Option<f64>,
    /// The longest single loss; null for kinds that cost packets.
    pub longest_ms: Option<f64>,
    /// What it costs as a share of the flow's time, or of the side's packets or segments; 1 if the
    /// connection failed.
    pub share: f64,
    /// The rank: the share, weighted. A share of time counts ten times a share of packets.
    pub score: f64,
    /// The figures in a sentence.
    pub detail: String,
    /// What happened.
    pub cause: &'static str,
    /// The setting to turn or the call to make, what helps most first.
    pub remedy: &'static str,
    /// The first few.
    pub examples: Vec<Example>,
}

/// What costs are shares of.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    flows: u64,
    /// Nanoseconds from the first to the last packet.
    nanos: u64,
    segments: u64,
    data_packets: u64,
    packets: u64,
}

impl Base {
    /// Of one direction of a flow.
    fn of(flow: &Flow, from: usize) -> Base {
        let side = &flow.sides[from];
        Base {
            flows: 1,
            nanos: flow.last.saturating_sub(flow.first),
            segments: side.wire_segments,
            data_packets: side.data_packets,
            packets: side.packets,
        }
    }

    fn add(&mut self, flow: &Flow) {
        self.flows += 1;
        for from in 0..2 {
            let side = Base::of(flow, from);
            self.nanos = self.nanos.saturating_add(if from == 0 { side.nanos } else { 0 });
            self.segments += side.segments;
            self.data_packets += side.data_packets;
            self.packets += side.packets;
        }
    }

    /// The share that a finding costs, 1 at most.
    fn share(&self, kind: Kind, tally: &Tally) -> f64 {
        let (cost, of) = match kind {
            kind if kind.is_failure() => (tally.count as f64, self.flows),
            kind if kind.costs_time() => (tally.nanos as f64, self.nanos),
            Kind::Fractional | Kind::SmallWrites => (tally.packets, self.segments),
            Kind::TailApart | Kind::WakeUps => (tally.packets, self.data_packets),
            _ => (tally.packets, self.packets),
        };
        (cost / of.max(1) as f64).min(1.0)
    }
}

/// Sums over flows by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    tallies: [Tally; ALL.len()],
    base: Base,
}

impl Sums {
    pub(crate) fn add(&mut self, flow: &Flow, options: &Options) {
        self.base.add(flow);
        for from in 0..2 {
            for kind in ALL {
                if let Some((tally, _)) = worth(flow, from, kind, options) {
                    self.tallies[kind as usize].join(&tally);
                }
            }
        }
    }

    pub(crate) fn list(&self) -> Vec<Sum> {
        let mut list: Vec<Sum> = ALL
            .into_iter()
            .map(|kind| (kind, self.tallies[kind as usize]))
            .filter(|(_, tally)| tally.count > 0)
            .map(|(kind, tally)| (kind, tally, self.base.share(kind, &tally)))
            .map(|(kind, tally, share)| Sum {
                kind,
                count: tally.count,
                packets: (!kind.costs_time()).then_some(tally.packets),
                ms: kind.costs_time().then_some(millis(tally.nanos)),
                share,
                score: share * kind.weight(),
            })
            .collect();
        list.sort_by(|a, b| b.score.total_cmp(&a.score));
        list
    }
}

pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The findings of one kind in one direction, if they can be seen where it was captured and are
/// worth being told, and the share that they cost.
fn worth(flow: &Flow, from: usize, kind: Kind, options: &Options) -> Option<(Tally, f64)> {
    if !can_be_seen(flow, from, kind) {
        return None;
    }
    let tally = match kind {
        Kind::AckRate => ack_rate(flow, from)?,
        _ => *flow.sides[from].found.get(kind),
    };
    let enough = match kind {
        kind if kind.is_failure() => tally.count > 0,
        // Once may be by chance.
        Kind::Stall | Kind::NagleRoundTrip => tally.count >= options.least_count,
        // A few round trips pass until a buffer has grown.
        Kind::SmallBuffer => tally.count >= 2 * options.least_count,
        kind if kind.costs_time() => {
            tally.count >= options.least_count || tally.nanos >= options.stall_least
        }
        _ => tally.packets >= 2.0 * options.least_count as f64,
    };
    let share = Base::of(flow, from).share(kind, &tally);
    (enough && share >= kind.least_share()).then_some((tally, share))
}

/// Whether the capture shows enough to tell this of what `from` sends: not how data was cut, where
/// a receiver may have merged it before it was captured, or where much of it is missing.
fn can_be_seen(flow: &Flow, from: usize, kind: Kind) -> bool {
    !kind.is_of_cutting() || !flow.is_merged(from) && !notes::lacks_many(flow)
}

/// ACKs beyond those that a receiver owes, if deferring would leave less than half of them.
fn ack_rate(flow: &Flow, from: usize) -> Option<Tally> {
    let side = &flow.sides[from];
    let stretch = side.acked as f64 / f64::from(flow.mss(1 - from)) / side.pure_acks.max(1) as f64;
    let many = side.acked >= ENOUGH_ACKED
        && side.pure_acks >= ENOUGH_ACKS
        && stretch < USUAL_STRETCH
        && side.deferred <= side.pure_acks / 2;
    let saved = side.pure_acks.saturating_sub(side.deferred);
    many.then(|| Tally::of_packets(side.pure_acks, saved as f64))
}

/// The report of a flow that has ended, in a capture that began at `start`.
pub(crate) fn flow(flow: &Flow, start: u64, options: &Options) -> FlowReport {
    let client = flow.client.unwrap_or(0);
    let order = [client, 1 - client];
    let names = [flow.ends.0, flow.ends.1];
    let mut findings: Vec<Finding> = Vec::new();
    // The sum of nothing is -0.
    let mut score = 0.0;
    for (n, from) in order.into_iter().enumerate() {
        for kind in ALL {
            if let Some((tally, share)) = worth(flow, from, kind, options) {
                score += tally.count as f64 * kind.packets_per_failure();
                score += if kind.costs_time() {
                    millis(tally.nanos) * kind.packets_per_ms()
                } else {
                    tally.packets * kind.weight()
                };
                findings.push(finding(flow, (n, from), kind, (&tally, share), start));
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
        rtt_ms: flow.rtt.map(millis),
        captured_at: flow.captured_at().map(|at| SIDES[usize::from(at != client)]),
        directions: [direction(flow, 0, client), direction(flow, 1, 1 - client)],
        score,
        findings,
        notes: notes::notes(flow, order),
    }
}

/// How many of the flows each caveat is true of.
pub(crate) fn caveats(flows: &[FlowReport]) -> Vec<CaveatCount> {
    let count = |kind: Caveat| {
        let flows = flows.iter().filter(|flow| flow.notes.iter().any(|note| note.kind == kind));
        CaveatCount { kind, flows: flows.count() as u64, text: kind.text() }
    };
    notes::ALL.into_iter().map(count).filter(|count| count.flows > 0).collect()
}

pub(crate) const SIDES: [Side; 2] = [Side::Client, Side::Server];

fn direction(flow: &Flow, n: usize, from: usize) -> DirectionReport {
    let side = &flow.sides[from];
    let per = |a: f64, b: u64| (b > 0).then(|| a / b as f64);
    let Full { size: mss, source: mss_source, .. } = flow.full(from);
    DirectionReport {
        from: SIDES[n],
        packets: side.packets,
        bytes: side.bytes,
        data_packets: side.data_packets,
        mss,
        mss_source,
        super_segments: side.super_segments,
        wire_segments: side.wire_segments,
        retransmissions: side.retransmissions,
        needless_retransmissions: side.losses.needless(),
        reordered: side.losses.reordered(),
        missing_bytes: side.missing(),
        duplicates: side.duplicates,
        probes: side.probes,
        pure_acks: side.pure_acks,
        acks_per_megabyte: per(side.pure_acks as f64 * MEGABYTE, side.acked),
        stretch: per(side.acked as f64 / f64::from(flow.mss(1 - from)), side.pure_acks),
        deferred_acks: side.deferred,
        write_size: side.write_ends.size(),
        nagle: match side.nagle.rule() {
            Rule::Unknown => None,
            Rule::On => Some(true),
            Rule::Off => Some(false),
        },
        largest_window: (flow.scale(from) != Scale::Unknown).then(|| side.window.largest()),
    }
}

fn finding(
    flow: &Flow,
    (n, from): (usize, usize),
    kind: Kind,
    (tally, share): (&Tally, f64),
    start: u64,
) -> Finding {
    let side = &flow.sides[from];
    let stack = if side.by_plimsoll { Stack::Plimsoll } else { Stack::Other };
    let time = |nanos: u64| kind.costs_time().then_some(millis(nanos));
    let example = |Shown { mark, nanos }: Shown| Example {
        packet: mark.number,
        ms: millis(mark.time.saturating_sub(start)),
        lost_ms: time(nanos),
    };
    let reason = flow.reason(kind, from);
    Finding {
        kind,
        reason,
        from: SIDES[n],
        title: kind.title(),
        count: tally.count,
        packets: (!kind.costs_time()).then_some(tally.packets),
        ms: time(tally.nanos),
        longest_ms: time(tally.longest),
        share,
        score: share * kind.weight(),
        detail: detail(flow, (n, from), kind, tally),
        cause: reason.map_or_else(|| kind.cause(), Reason::cause),
        remedy: match reason {
            Some(reason) => reason.remedy(),
            None => remedy(kind, stack, side.nagle.rule()),
        },
        examples: tally.shown().map(example).collect(),
    }
}

/// The figures in a sentence.
fn detail(flow: &Flow, (n, from): (usize, usize), kind: Kind, tally: &Tally) -> String {
    let (side, peer) = (&flow.sides[from], &flow.sides[1 - from]);
    let (count, packets) = (tally.count, tally.packets);
    let mss = flow.mss(from);
    match kind {
        Kind::Fractional => format!(
            "{} below {mss} bytes with more data right behind; trimmed, the same data takes \
             {packets:.0} fewer segments",
            plural(count, "piece")
        ),
        Kind::TailApart => format!("{} in packets of their own", plural(count, "tail")),
        Kind::SmallWrites => {
            let size = side.write_ends.size().filter(|&size| size < mss);
            let size = size.map_or(String::new(), |size| format!("writes of {size} bytes; "));
            format!(
                "{size}{} for {} bytes, {packets:.0} more than merged",
                plural(side.data_packets, "data packet"),
                side.bytes
            )
        }
        Kind::AckAlone => {
            format!("{} that left just before data with the same ACK", plural(count, "ACK"))
        }
        Kind::AckRate => format!(
            "{} for {:.1} MB; deferring would leave {}",
            plural(count, "ACK"),
            side.acked as f64 / MEGABYTE,
            side.deferred
        ),
        Kind::WakeUps => {
            format!("{} in {packets:.0} more packets than they need", plural(count, "message"))
        }
        Kind::SillyWindow => plural(count, "time"),
        Kind::Refused | Kind::NoAnswer | Kind::RepeatedSyn | Kind::LateHandshake | Kind::Reset => {
            details::of_connection(flow, from, kind, tally)
        }
        Kind::TooLarge => details::of_sizes(flow, from, tally),
        _ => time_detail(flow, (n, from), kind, (tally, peer.probes)),
    }
}

/// The same of a kind that costs time.
fn time_detail(
    flow: &Flow,
    (n, from): (usize, usize),
    kind: Kind,
    (tally, probes): (&Tally, u64),
) -> String {
    let (side, ms, count) = (&flow.sides[from], millis(tally.nanos), tally.count);
    let waits = format!("{} of {:.0} ms on average", plural(count, "wait"), ms / count as f64);
    match kind {
        Kind::Stall | Kind::NagleRoundTrip => {
            let who = match (side.nagle.are_behind_first(), n) {
                (true, 1) => "the server writes header and body apart: ",
                (true, _) => "the client writes its request in pieces: ",
                _ => "",
            };
            format!("{who}{waits}, {ms:.0} ms in all")
        }
        Kind::Loss => format!(
            "{} of {} sent again{}; in {} the receiver waited {ms:.0} ms in all, {:.0} ms at most",
            side.retransmissions,
            plural(side.data_packets + side.retransmissions, "data packet"),
            match side.losses.needless() {
                0 => String::new(),
                needless => format!(", {} that had arrived", plural(needless, "segment")),
            },
            plural(count, "recovery"),
            millis(tally.longest)
        ),
        Kind::ZeroWindow => format!(
            "closed {}, {ms:.0} ms in all, {:.0} ms at most; {}",
            plural(count, "time"),
            millis(tally.longest),
            plural(probes, "probe")
        ),
        _ => {
            let largest = side.window.largest();
            let rate = flow.rtt.filter(|&rtt| rtt > 0).map_or(String::new(), |rtt| {
                let most = f64::from(largest) * 8e3 / rtt as f64;
                format!(": no more than {most:.1} Mbit/s over this round trip")
            });
            format!("{waits} for a window of {largest} bytes at most{rate}")
        }
    }
}
