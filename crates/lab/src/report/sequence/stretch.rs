//! Which stretch of a capture is shown.
//!
//! The flow with the most packets, and of its steady part (without the first and the last quarter)
//! the stretch that is most like the whole: of transactions the one with the most common number of
//! packets and the middle duration, of bulk data so many packets whose length, and the ACKs per
//! packet, are nearest to the average. What is remembered of a capture is bounded.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use plimsoll_explain::{CapturedSegment, TcpFlags, segments};

/// Flows of a capture that are told apart.
const MOST_FLOWS: usize = 4096;
/// Packets of a flow among which the stretch is chosen.
const MOST_PACKETS: usize = 20_000;
/// What a segment carries if no SYN was captured.
const USUAL_MSS: u32 = 1448;
/// Bytes of every segment that timestamps take.
const TIMESTAMPS: u32 = 12;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A request and its answer, with their ACKs.
    Transaction,
    /// So many packets of data one way, and the ACKs among them.
    Bulk {
        /// Packets of data.
        data: usize,
        /// Their average length in the runs that were measured, if it is known: a run that is
        /// captured is slower.
        octets: Option<f64>,
        /// Stretches in which a comment has these words are better.
        words: &'static str,
    },
}

/// One packet of a stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Nanoseconds since the capture began.
    pub(crate) time: u64,
    /// Whether the side that captured sent it: the client.
    pub(crate) sent: bool,
    /// Bytes of payload.
    pub(crate) len: u32,
    /// SEG.SEQ.
    pub(crate) seq: u32,
    /// SEG.ACK.
    pub(crate) ack: u32,
    /// Its flags.
    pub(crate) flags: TcpFlags,
    /// Why it left when and as it did: the first comment, if there are two.
    pub(crate) why: String,
}

/// A stretch of one flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretch {
    /// Its packets, in the order of the capture.
    pub(crate) packets: Vec<Packet>,
    /// Bytes of payload in a full segment.
    pub(crate) mss: u32,
    /// The client's end and the server's.
    pub(crate) ends: Option<[SocketAddr; 2]>,
}

/// A flow, while they are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: usize,
    /// The least MSS of the two ends.
    mss: Option<u32>,
}

/// The client's end of a segment, and the server's.
fn ends(segment: &CapturedSegment<'_>) -> [SocketAddr; 2] {
    // The client is the one that captured; elsewhere ports tell, more or less.
    let from_client = segment.sent.unwrap_or(segment.src.port() > segment.dst.port());
    if from_client { [segment.src, segment.dst] } else { [segment.dst, segment.src] }
}

/// The stretch of a capture that is shown.
///
/// # Errors
/// If the file cannot be read, or has no steady flow.
pub(crate) fn choose(path: &Path, kind: Kind) -> anyhow::Result<Stretch> {
    let open = || File::open(path).with_context(|| format!("cannot open {}", path.display()));
    let mut flows: HashMap<[SocketAddr; 2], Count> = HashMap::new();
    let mut start = None;
    segments(open()?, |segment| {
        start.get_or_insert(segment.time);
        let ends = ends(segment);
        if flows.len() >= MOST_FLOWS && !flows.contains_key(&ends) {
            return;
        }
        let count = flows.entry(ends).or_default();
        count.packets += 1;
        if let Some(mss) = segment.mss {
            let options = if segment.timestamps { TIMESTAMPS } else { 0 };
            let mss = u32::from(mss).saturating_sub(options).max(1);
            count.mss = Some(count.mss.map_or(mss, |other| other.min(mss)));
        }
    })?;
    let most = flows.iter().max_by_key(|(ends, count)| (count.packets, **ends));
    let (&flow, &Count { packets, mss }) = most.context("the capture holds no flow of TCP")?;
    let (first, last) = (packets / 4, (packets * 3 / 4).min(packets / 4 + MOST_PACKETS));
    let start = start.unwrap_or_default();
    let mut middle = Vec::new();
    let mut index = 0;
    segments(open()?, |segment| {
        if ends(segment) == flow {
            if (first..last).contains(&index) {
                let mut packet = packet(segment, flow[0], start);
                // Several queues may have been captured, each in its own order.
                let before = middle.last().map_or(0, |before: &Packet| before.time);
                packet.time = packet.time.max(before);
                middle.push(packet);
            }
            index += 1;
        }
    })?;
    let packets = match kind {
        Kind::Transaction => transaction(&middle),
        Kind::Bulk { data, octets, words } => bulk(&middle, data, octets, words),
    };
    let packets = packets.context("the flow has no steady stretch")?;
    Ok(Stretch { packets, mss: mss.unwrap_or(USUAL_MSS), ends: Some(flow) })
}

fn packet(segment: &CapturedSegment<'_>, client: SocketAddr, start: u64) -> Packet {
    // What we send says why in a first comment, and what it is in a second.
    let about = |comment: &str| {
        comment.starts_with("checksum left") || comment.starts_with("super-segment of")
    };
    let why = segment.comments().find(|comment| !about(comment));
    Packet {
        time: segment.time.saturating_sub(start),
        sent: segment.src == client,
        len: segment.len,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        why: why.map(|why| why.into_owned()).unwrap_or_default(),
    }
}

/// A typical transaction, or two if it has no ACK of its own.
fn transaction(packets: &[Packet]) -> Option<Vec<Packet>> {
    // A request begins where the client's data follows the server's.
    let mut starts = Vec::new();
    let mut answered = false;
    for (index, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.len > 0) {
        if packet.sent && answered {
            starts.push(index);
        }
        answered = !packet.sent;
    }
    let spans: Vec<&[Packet]> = starts.windows(2).map(|pair| &packets[pair[0]..pair[1]]).collect();
    let mut sizes: HashMap<usize, usize> = HashMap::new();
    for span in &spans {
        *sizes.entry(span.len()).or_default() += 1;
    }
    let (&usual, _) = sizes.iter().max_by_key(|&(size, count)| (*count, usize::MAX - size))?;
    let mut alike: Vec<usize> = (0..spans.len()).filter(|&n| spans[n].len() == usual).collect();
    alike.sort_by_key(|&n| duration(spans[n]));
    let chosen = *alike.get(alike.len() / 2)?;
    let mut shown = spans[chosen].to_vec();
    if usual <= 2 {
        shown.extend(spans.get(chosen + 1).into_iter().flat_map(|next| next.iter().cloned()));
    }
    Some(shown)
}

fn duration(packets: &[Packet]) -> u64 {
    let time = |packet: Option<&Packet>| packet.map_or(0, |packet| packet.time);
    time(packets.last()).saturating_sub(time(packets.first()))
}

/// So many packets of data from the beginning of a chunk, and what comes before the next.
fn bulk(packets: &[Packet], data: usize, octets: Option<f64>, words: &str) -> Option<Vec<Packet>> {
    let sent: i64 = packets.iter().map(signed).sum();
    let is_data = |packet: &Packet| packet.len > 0 && packet.sent == (sent > 0);
    let wanted = Average::of(packets, is_data)?;
    let wanted = Average { octets: octets.unwrap_or(wanted.octets), ..wanted };
    // Where data follows something else, or something that left for another reason.
    let begins = |index: usize| {
        let before = index.checked_sub(1).and_then(|before| packets.get(before));
        is_data(&packets[index])
            && before.is_none_or(|before| !is_data(before) || before.why != packets[index].why)
    };
    let starts: Vec<usize> = (0..packets.len()).filter(|&index| begins(index)).collect();
    let mut best: Option<(f64, &[Packet])> = None;
    for (n, &start) in starts.iter().enumerate() {
        let enough = |&&end: &&usize| {
            packets[start..end].iter().filter(|packet| is_data(packet)).count() >= data
        };
        let Some(&end) = starts[n + 1..].iter().take(data + 1).find(enough) else { continue };
        let stretch = &packets[start..end];
        let Some(average) = Average::of(stretch, is_data) else { continue };
        // A longer one is no better picture.
        let surplus = (stretch.len() as f64 / (data as f64 * (1.0 + wanted.acks))).max(1.0);
        let telling = stretch.iter().any(|packet| packet.why.contains(words));
        let distance =
            average.distance(&wanted) + surplus.ln() / 2.0 + if telling { 0.0 } else { 0.5 };
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, stretch));
        }
    }
    best.map(|(_, stretch)| stretch.to_vec())
}

fn signed(packet: &Packet) -> i64 {
    if packet.sent { i64::from(packet.len) } else { -i64::from(packet.len) }
}

/// What bulk data looks like.
#[derive(Clone, Copy, Debug)]
struct Average {
    /// Bytes in a packet of data.
    octets: f64,
    /// ACKs for each of these.
    acks: f64,
}

impl Average {
    fn of(packets: &[Packet], is_data: impl Fn(&Packet) -> bool) -> Option<Average> {
        let lens = packets.iter().filter(|packet| is_data(packet)).map(|packet| packet.len);
        let (mut data, mut octets) = (0_u32, 0.0);
        for len in lens {
            data += 1;
            octets += f64::from(len);
        }
        let others = packets.len() as f64 - f64::from(data);
        let data = f64::from(data);
        (data > 0.0).then(|| Average { octets: octets / data, acks: others / data })
    }

    /// How different two are, 0 for none.
    fn distance(&self, other: &Average) -> f64 {
        let apart = |a: f64, b: f64| ((a + 0.05) / (b + 0.05)).ln().abs();
        apart(self.octets, other.octets) + apart(self.acks, other.acks)
    }
}

#[cfg(test)]
mod tests;
