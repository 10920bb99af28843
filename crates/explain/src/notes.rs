//! What a capture of a flow cannot tell, so that the absence of a finding is not taken for health.

use serde::Serialize;

use crate::flow::Flow;
use crate::packet::Scale;
use crate::report::{MssSource, Side};

/// Data packets of one side below which nothing is missed.
const FEW: u64 = 20;

/// Bytes below which no window matters: none is smaller at first.
const FEW_BYTES: u64 = 50_000;

/// The share of missing bytes that is told.
const MISSING: f64 = 0.005;

/// The share of missing bytes beyond which nothing is said of how data was cut: what seems to
/// follow at once may have had an answer between.
const MANY_MISSING: f64 = 0.05;

/// What a capture cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Caveat {
    /// Packets of one side only are in the capture.
    OneWay,
    /// Bytes of the flow are not in the capture.
    PacketsMissing,
    /// The data of one side was captured where it arrives, and merged there.
    MergedByReceiver,
    /// The SYNs are not in the capture, or too little of them.
    WindowScaleUnknown,
    /// The same: those that occur most stand for it.
    MssUnknown,
}

/// All, in the order in which they are told.
pub(crate) const ALL: [Caveat; 5] = [
    Caveat::OneWay,
    Caveat::PacketsMissing,
    Caveat::MergedByReceiver,
    Caveat::WindowScaleUnknown,
    Caveat::MssUnknown,
];

impl Caveat {
    /// What cannot be told because of it.
    pub fn text(self) -> &'static str {
        match self {
            Caveat::OneWay => {
                "only one direction was captured: waits, windows and losses are not known"
            }
            Caveat::PacketsMissing => {
                "the capture lacks packets that were sent: figures are too low, and waits may be \
                 missed; with more than 5 % missing, how data was cut cannot be told; tcpdump says \
                 how many packets the kernel dropped, and -B gives it a larger buffer"
            }
            Caveat::MergedByReceiver => {
                "captured where it arrives, which merged packets before (GRO): how the sender cut \
                 its data cannot be seen; a capture at the sender shows it"
            }
            Caveat::WindowScaleUnknown => {
                "the window scale is not known, for the SYNs or their options were not captured: \
                 full, small and silly windows cannot be told"
            }
            Caveat::MssUnknown => {
                "the MSS is not known, for the SYNs or their options were not captured: it is \
                 taken from the sizes that occur most"
            }
        }
    }
}

/// A caveat and how many flows it is true of.
#[derive(Clone, Debug, Serialize)]
pub struct CaveatCount {
    /// What.
    pub kind: Caveat,
    /// In how many flows.
    pub flows: u64,
    /// What cannot be told because of it.
    pub text: &'static str,
}

/// The same of one flow.
#[derive(Clone, Debug, Serialize)]
pub struct Note {
    /// What.
    pub kind: Caveat,
    /// Whose packets it is about; null if both sides'.
    pub from: Option<Side>,
    /// The same in words, with figures.
    pub text: String,
}

/// What cannot be said of a flow; `order` has its ends, the client first.
pub(crate) fn notes(flow: &Flow, order: [usize; 2]) -> Vec<Note> {
    let mut notes = Vec::new();
    for (side, end) in [Side::Client, Side::Server].into_iter().zip(order) {
        for kind in ALL.into_iter().filter(|&kind| is_true(kind, flow, end)) {
            let from = (kind != Caveat::WindowScaleUnknown).then_some(side);
            if notes.iter().any(|note: &Note| (note.kind, note.from) == (kind, from)) {
                continue;
            }
            notes.push(Note { kind, from, text: text(kind, flow, (side, end)) });
        }
    }
    notes.sort_by_key(|note| note.kind);
    notes
}

fn text(kind: Caveat, flow: &Flow, (side, end): (Side, usize)) -> String {
    let whose = side.name();
    match kind {
        Caveat::OneWay => format!("no packet of the {whose} was captured"),
        Caveat::PacketsMissing => {
            let share = missing(flow, end) * 100.0;
            format!("{share:.0} % of the {whose}'s bytes are missing")
        }
        Caveat::MergedByReceiver => {
            format!("data of the {whose} was merged before it was captured")
        }
        Caveat::WindowScaleUnknown => "the window scale is not known".into(),
        Caveat::MssUnknown => format!("the MSS of the {whose}'s data is not known"),
    }
}

/// Whether it is true of the packets of one end.
fn is_true(kind: Caveat, flow: &Flow, end: usize) -> bool {
    let (side, peer) = (&flow.sides[end], &flow.sides[1 - end]);
    match kind {
        Caveat::OneWay => side.packets == 0 && peer.packets >= FEW,
        Caveat::PacketsMissing => missing(flow, end) >= MISSING,
        Caveat::MergedByReceiver => {
            flow.is_merged(end) && side.data_packets >= FEW && side.bytes >= FEW_BYTES
        }
        Caveat::WindowScaleUnknown => {
            flow.scale(1 - end) == Scale::Unknown && side.bytes >= FEW_BYTES
        }
        Caveat::MssUnknown => {
            let known = matches!(flow.full(end).source, MssSource::Syn | MssSource::Path);
            !known && side.data_packets >= FEW
        }
    }
}

/// Whether too much of a flow is not in the capture to say how its data was cut.
pub(crate) fn lacks_many(flow: &Flow) -> bool {
    (0..2).any(|end| missing(flow, end) > MANY_MISSING)
}

/// The share of the bytes of one end that is not in the capture.
fn missing(flow: &Flow, end: usize) -> f64 {
    let side = &flow.sides[end];
    let missing = side.missing();
    if missing == 0 { 0.0 } else { missing as f64 / (side.bytes + missing) as f64 }
}
