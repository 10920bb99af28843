//! The kinds of findings: their names, what they mean, and what they cost.

use serde::Serialize;

use crate::nagle::Rule;
use crate::remedies::{self, Stack};

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[repr(u8)]
pub enum Kind {
    /// A server refused a connection.
    #[serde(rename = "connect_refused")]
    Refused,
    /// No host answered a SYN.
    #[serde(rename = "connect_unanswered")]
    NoAnswer,
    /// The client had to repeat its SYN.
    #[serde(rename = "repeated_syn")]
    RepeatedSyn,
    /// The server repeated its SYN-ACK, or ignored the ACK for it.
    #[serde(rename = "late_handshake")]
    LateHandshake,
    /// A reset ended a connection.
    #[serde(rename = "reset")]
    Reset,
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
    /// The same, and the ACK came at once: a round trip lost.
    #[serde(rename = "nagle_round_trip")]
    NagleRoundTrip,
    /// Segments above some size never arrived.
    #[serde(rename = "mtu_black_hole")]
    TooLarge,
    /// Data was lost, and the receiver waited for its retransmission.
    #[serde(rename = "lost_packets")]
    Loss,
    /// The sender had filled the window, which data waiting for its reader had made small.
    #[serde(rename = "full_window")]
    FullWindow,
    /// The sender had filled the window, which is smaller than what the path holds.
    #[serde(rename = "small_receive_buffer")]
    SmallBuffer,
    /// The receiver had no space left.
    #[serde(rename = "zero_window")]
    ZeroWindow,
    /// The receiver offered space in pieces below one MSS.
    #[serde(rename = "silly_window")]
    SillyWindow,
    /// Requests or responses in more packets than their size needs.
    #[serde(rename = "more_packets_than_needed")]
    WakeUps,
}

/// All kinds, in the order of their numbers.
pub const ALL: [Kind; 19] = [
    Kind::Refused,
    Kind::NoAnswer,
    Kind::RepeatedSyn,
    Kind::LateHandshake,
    Kind::Reset,
    Kind::Fractional,
    Kind::TailApart,
    Kind::SmallWrites,
    Kind::AckAlone,
    Kind::AckRate,
    Kind::Stall,
    Kind::NagleRoundTrip,
    Kind::TooLarge,
    Kind::Loss,
    Kind::FullWindow,
    Kind::SmallBuffer,
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
            Kind::Refused => "connect_refused",
            Kind::NoAnswer => "connect_unanswered",
            Kind::RepeatedSyn => "repeated_syn",
            Kind::LateHandshake => "late_handshake",
            Kind::Reset => "reset",
            Kind::Fractional => "fractional_in_bulk",
            Kind::TailApart => "tail_sent_apart",
            Kind::SmallWrites => "small_writes",
            Kind::AckAlone => "ack_could_ride",
            Kind::AckRate => "acks_per_megabyte",
            Kind::Stall => "nagle_delayed_ack_stall",
            Kind::NagleRoundTrip => "nagle_round_trip",
            Kind::TooLarge => "mtu_black_hole",
            Kind::Loss => "lost_packets",
            Kind::FullWindow => "full_window",
            Kind::SmallBuffer => "small_receive_buffer",
            Kind::ZeroWindow => "zero_window",
            Kind::SillyWindow => "silly_window",
            Kind::WakeUps => "more_packets_than_needed",
        }
    }

    /// A headline.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Refused => "Connections refused",
            Kind::NoAnswer => "Connections without any answer",
            Kind::RepeatedSyn => "Connecting waited for a repeated SYN",
            Kind::LateHandshake => "The server took the end of the handshake late",
            Kind::Reset => "Connections ended by a reset",
            Kind::Fractional => "Fractional segments inside bulk data",
            Kind::TailApart => "Tails cut off and sent apart",
            Kind::SmallWrites => "Small writes that corking would have merged",
            Kind::AckAlone => "Pure ACKs that the next data could have carried",
            Kind::AckRate => "Many ACKs per megabyte",
            Kind::Stall => "Nagle's rule waiting for delayed ACKs",
            Kind::NagleRoundTrip => "Nagle's rule waiting for a round trip",
            Kind::TooLarge => "Segments too large for the path were lost",
            Kind::Loss => "Data lost and retransmitted",
            Kind::FullWindow => "The window was full: the reader is slower than the sender",
            Kind::SmallBuffer => "The receive buffer is smaller than what the path holds",
            Kind::ZeroWindow => "The receiver's window was closed",
            Kind::SillyWindow => "The window opened by less than a segment",
            Kind::WakeUps => "Messages in more packets than their size needs",
        }
    }

    /// The event, as far as the kind alone shows it; see [`Reason`](crate::Reason).
    pub fn cause(self) -> &'static str {
        match self {
            Kind::Refused => "The client's SYN was answered with a refusal.",
            Kind::NoAnswer => "The client's SYN had no answer.",
            Kind::RepeatedSyn => "The client repeated its SYN before the connection opened.",
            Kind::LateHandshake => "The server took the end of the handshake late.",
            Kind::Reset => "A reset ended the connection instead of a FIN of each side.",
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
            Kind::NagleRoundTrip => {
                "A small piece of data waited until the small piece before it was acknowledged \
                 (Nagle's rule). The ACK came without delay, and still the message took a round \
                 trip more: write, write, read."
            }
            Kind::TooLarge => "The path loses segments above some size and takes smaller ones.",
            Kind::Loss => {
                "Packets were lost on their way: by a queue that was full, or by a bad link. What \
                 arrived behind them waited in the receiver until they had been sent again."
            }
            Kind::FullWindow => {
                "The sender had sent all that the window allows, and the window was small because \
                 data that had arrived was waiting for the receiving program."
            }
            Kind::SmallBuffer => {
                "The sender had sent all that the window allows and waited for ACKs, although the \
                 receiving program read at once: its receive buffer holds less than what the path \
                 carries in a round trip."
            }
            Kind::ZeroWindow => {
                "The receiving program does not read as fast as data arrives, and its buffer is \
                 full."
            }
            Kind::SillyWindow => {
                "The receiver offered less than one segment of new space at a time, which invites \
                 tiny segments (RFC 9293, section 3.8.6.2.2)."
            }
            Kind::WakeUps => {
                "A message came in more packets than its bytes need; each of them may wake the \
                 receiver for a part that it cannot use yet."
            }
        }
    }

    /// The remedy that helps with any stack.
    pub fn remedy(self) -> &'static str {
        remedies::remedy(self, Stack::Other, Rule::Unknown)
    }

    /// Whether it costs time; the others cost packets.
    pub fn costs_time(self) -> bool {
        matches!(
            self,
            Kind::Refused
                | Kind::NoAnswer
                | Kind::RepeatedSyn
                | Kind::LateHandshake
                | Kind::Reset
                | Kind::Stall
                | Kind::NagleRoundTrip
                | Kind::TooLarge
                | Kind::Loss
                | Kind::FullWindow
                | Kind::SmallBuffer
                | Kind::ZeroWindow
        )
    }

    /// Whether it cost the whole connection, whatever time that took: its share is one of
    /// connections.
    pub fn is_failure(self) -> bool {
        matches!(self, Kind::Refused | Kind::NoAnswer | Kind::Reset)
    }

    /// Whether it is about how a side cuts its data into packets. The host that receives them may
    /// have merged them before they were captured.
    pub(crate) fn is_of_cutting(self) -> bool {
        matches!(self, Kind::Fractional | Kind::TailApart | Kind::SmallWrites | Kind::WakeUps)
    }

    /// The share of time or packets below which it is not reported.
    pub(crate) fn least_share(self) -> f64 {
        match self {
            Kind::Stall | Kind::RepeatedSyn | Kind::LateHandshake => 0.0,
            kind if kind.is_failure() => 0.0,
            Kind::Loss | Kind::TooLarge => 0.001,
            Kind::FullWindow | Kind::SmallBuffer => 0.1,
            _ => 0.02,
        }
    }

    /// The weight of a share of time or packets when findings are ranked. Time that is lost is
    /// worth more than packets; what only follows from another finding, or costs an ACK, is worth
    /// less than a data packet.
    pub(crate) fn weight(self) -> f64 {
        match self {
            kind if kind.costs_time() => 10.0,
            Kind::AckRate => 0.25,
            Kind::AckAlone => 0.75,
            Kind::WakeUps => 0.5,
            _ => 1.0,
        }
    }

    /// The weight of a connection that failed, in packets, when flows are ranked: as much as half a
    /// second lost.
    pub(crate) fn packets_per_failure(self) -> f64 {
        if self.is_failure() { 1000.0 } else { 0.0 }
    }

    /// The weight of a millisecond lost, in packets, when flows are ranked. A millisecond in which
    /// nothing happens is worth many packets.
    pub(crate) fn packets_per_ms(self) -> f64 {
        match self {
            Kind::Stall | Kind::NagleRoundTrip => 20.0,
            _ => 2.0,
        }
    }
}
