//! The kinds of findings: their names, what they mean, and what to do about them.

use schemars::JsonSchema;
use serde::Serialize;

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[repr(u8)]
pub enum Kind {
    /// Segments below one MSS, or super-segments that end in one, with more data right behind.
    #[serde(rename = "fractional_in_bulk")]
    Fractional,
    /// Whole segments, and at once the rest in a packet of its own.
    #[serde(rename = "tail_sent_apart")]
    TailApart,
    /// Runs of small packets that corking would have merged.
    #[serde(rename = "small_writes")]
    SmallWrites,
    /// ACKs without data right before data that could have carried them.
    #[serde(rename = "ack_could_ride")]
    AckAlone,
    /// More ACKs than deferring would leave.
    #[serde(rename = "acks_per_megabyte")]
    AckRate,
    /// A small piece waited for the ACK of the one before, and the ACK was delayed.
    #[serde(rename = "nagle_delayed_ack_stall")]
    Stall,
    /// The receiver had no room.
    #[serde(rename = "zero_window")]
    ZeroWindow,
    /// The receiver offered room in pieces below one MSS.
    #[serde(rename = "silly_window")]
    SillyWindow,
    /// Requests or responses in more packets than their size needs.
    #[serde(rename = "more_packets_than_needed")]
    WakeUps,
}

/// All kinds, in the order of their numbers.
pub const ALL: [Kind; 9] = [
    Kind::Fractional,
    Kind::TailApart,
    Kind::SmallWrites,
    Kind::AckAlone,
    Kind::AckRate,
    Kind::Stall,
    Kind::ZeroWindow,
    Kind::SillyWindow,
    Kind::WakeUps,
];

/// How many kinds there are.
pub(crate) const COUNT: usize = ALL.len();

impl Kind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fractional => "fractional_in_bulk",
            Kind::TailApart => "tail_sent_apart",
            Kind::SmallWrites => "small_writes",
            Kind::AckAlone => "ack_could_ride",
            Kind::AckRate => "acks_per_megabyte",
            Kind::Stall => "nagle_delayed_ack_stall",
            Kind::ZeroWindow => "zero_window",
            Kind::SillyWindow => "silly_window",
            Kind::WakeUps => "more_packets_than_needed",
        }
    }

    /// A headline.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Fractional => "Fractional segments inside bulk data",
            Kind::TailApart => "Tails cut off and sent apart",
            Kind::SmallWrites => "Small writes that corking would have merged",
            Kind::AckAlone => "Pure ACKs that the next data could have carried",
            Kind::AckRate => "Many ACKs per megabyte",
            Kind::Stall => "Nagle's rule waiting for delayed ACKs",
            Kind::ZeroWindow => "The receiver's window was closed",
            Kind::SillyWindow => "The window opened by less than a segment",
            Kind::WakeUps => "Messages in more packets than their size needs",
        }
    }

    /// What happened.
    pub fn cause(self) -> &'static str {
        match self {
            Kind::Fractional => {
                "A segment that is not full left although more data followed at once: the end of \
                 each write was sent along instead of being filled up by the next write."
            }
            Kind::TailApart => {
                "What did not fill a whole segment was cut off its super-segment and sent at once \
                 in a packet of its own: two packets to build, carry and wake up for, where one \
                 would do."
            }
            Kind::SmallWrites => {
                "The program writes in pieces smaller than a segment, and pieces left while \
                 earlier ones were still on their way."
            }
            Kind::AckAlone => {
                "An ACK left alone, and data of the same side with the same ACK number followed \
                 at once: the answer was not there yet when the ACK was sent."
            }
            Kind::AckRate => {
                "Each batch of arriving segments was acknowledged in several ACKs, which the \
                 sender has to process one by one."
            }
            Kind::Stall => {
                "A small piece of data waited until the small piece before it was acknowledged \
                 (Nagle's rule), and the other side delayed that ACK because it had nothing to \
                 answer yet: write, write, read."
            }
            Kind::ZeroWindow => {
                "The receiving program does not read as fast as data arrives, and its buffer is \
                 full."
            }
            Kind::SillyWindow => {
                "The receiver offered less than one segment of new room at a time, which invites \
                 tiny segments (RFC 9293, section 3.8.6.2.2)."
            }
            Kind::WakeUps => {
                "A message came in more packets than its bytes need; each of them may wake the \
                 receiver for a part that it cannot use yet."
            }
        }
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Kind::Fractional => {
                "Trim the tail while more is to come (plimsoll.tcp_tso_tail = trim or nagle); on \
                 other stacks leave Nagle on (no TCP_NODELAY) or write multiples of the MSS."
            }
            Kind::TailApart => {
                "Leave the tail in the last super-segment (plimsoll.tcp_tso_tail = nagle, not \
                 split; Linux since 3.14); write a message in one call."
            }
            Kind::SmallWrites => {
                "Turn on automatic corking (net.ipv4.tcp_autocorking = 1); in the program gather \
                 writes (writev, a buffered writer) or say MSG_MORE or TCP_CORK; do not set \
                 TCP_NODELAY for bulk data."
            }
            Kind::AckAlone => {
                "Defer ACKs until the reader has been asked (net.ipv4.tcp_backlog_ack_defer = 1, \
                 plimsoll.tcp_pingpong = 1); clear TCP_QUICKACK, and the route's quickack."
            }
            Kind::AckRate => {
                "Defer ACKs while a batch is worked off (net.ipv4.tcp_backlog_ack_defer = 1) and \
                 merge arriving segments (GRO; plimsoll.gro = 1); clear the route's quickack."
            }
            Kind::Stall => {
                "Write header and body in one call (writev), or header with MSG_MORE, or both \
                 between TCP_CORK on and off; if the program gathers its writes already, set \
                 TCP_NODELAY. On the other side TCP_QUICKACK helps, one ACK at a time."
            }
            Kind::ZeroWindow => {
                "Read faster, in larger pieces, or in a thread of its own; a larger receive \
                 buffer (net.ipv4.tcp_rmem, SO_RCVBUF) helps against bursts only."
            }
            Kind::SillyWindow => {
                "Let the receiver announce room in whole segments; read in larger pieces; make \
                 the receive buffer a few segments long at least."
            }
            Kind::WakeUps => {
                "Write a message in one call; see the findings above for what cut it. A reader \
                 that knows the size can ask to be woken late (SO_RCVLOWAT)."
            }
        }
    }

    /// Whether it costs time; the others cost packets.
    pub fn costs_time(self) -> bool {
        matches!(self, Kind::Stall | Kind::ZeroWindow)
    }

    /// The weight of a packet that could have been saved, and of a millisecond lost, when findings
    /// are ranked. A millisecond in which nothing happens is worth many packets; what only follows
    /// from another finding, or costs an ACK, is worth less than a data packet.
    pub(crate) fn weights(self) -> (f64, f64) {
        match self {
            Kind::Stall => (1.0, 20.0),
            Kind::ZeroWindow => (1.0, 2.0),
            Kind::AckRate => (0.25, 0.0),
            Kind::AckAlone => (0.75, 0.0),
            Kind::WakeUps => (0.5, 0.0),
            _ => (1.0, 0.0),
        }
    }
}
