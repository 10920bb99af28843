//! The inputs of recovery for each call, and the consequences for the rest of the connection.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::SackBlock;

use crate::ecn::accurate::feedback::Counted;
use crate::handshake::TimestampState;
use crate::mtu::search::{MtuProbe, ProbeOutcome};
use crate::serial::Serial;
use crate::state::State;
use crate::time::{Instant, Nanos};

/// The inputs of recovery from the connection, as it is before the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnView {
    /// The state of RFC 9293.
    pub(crate) state: State,
    /// SND.UNA. With an ACK, the former one.
    pub(crate) una: SeqNum,
    /// SND.NXT, which is SND.MAX.
    pub(crate) nxt: SeqNum,
    /// SND.WND in bytes. With an ACK, after its window was taken.
    pub(crate) wnd: u32,
    /// The largest window that the peer ever offered, in bytes.
    pub(crate) max_wnd: u32,
    /// SMSS: payload bytes of a full segment.
    pub(crate) smss: u16,
    /// SMSS without the bound by the peer's window (`tcpi_snd_mss`).
    pub(crate) mss: u16,
    /// SACK is agreed.
    pub(crate) sack: bool,
    /// The clock of our timestamps.
    pub(crate) ts: TimestampState,
    /// The probe of the path MTU that is outstanding.
    pub(crate) mtu_probe: Option<MtuProbe>,
    /// ECN as in RFC 3168 is agreed.
    pub(crate) ecn: bool,
    /// Bytes that were never sent.
    pub(crate) unsent: u32,
    /// A FIN follows them.
    pub(crate) unsent_fin: bool,
    /// Urgent data is outstanding.
    pub(crate) urgent: bool,
    /// The wait of the next packet, if the connection is paced; otherwise zero.
    pub(crate) pacing_delay: Nanos,
    /// The connection is paced.
    pub(crate) paced: bool,
    /// A writer waits for space in the send buffer.
    pub(crate) writer_waits: bool,
    /// Ranges that SACK may cut the scoreboard to.
    pub(crate) most_ranges: usize,
    /// The inputs of giving up.
    pub(crate) peer: PeerView,
}

/// The values that decide how long to wait for a silent peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerView {
    /// No application holds the connection any more.
    pub(crate) orphan: bool,
    /// An ICMP error that does not end the connection came last.
    pub(crate) soft_error: bool,
    /// TCP_USER_TIMEOUT, if it is on.
    pub(crate) user_timeout: Option<Nanos>,
    /// When a segment last came.
    pub(crate) last_heard: Instant,
}

impl ConnView {
    /// SMSS, 1 at least.
    pub(super) fn smss(&self) -> u32 {
        u32::from(self.smss).max(1)
    }

    /// The right edge of the peer's window after SND.UNA became `una`.
    pub(super) fn window_end(&self, una: SeqNum) -> SeqNum {
        una + self.wnd
    }

    /// Whether something was never sent, a FIN counted.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent > 0 || self.unsent_fin
    }
}

/// The inputs of recovery from a segment with an acceptable ACK field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckView<'a> {
    /// SEG.ACK: not above SND.NXT, and not below SND.UNA by more than the largest window.
    pub(crate) ack: SeqNum,
    /// The SACK blocks, in the order of the option.
    pub(crate) blocks: &'a [SackBlock],
    /// TSecr, if timestamps are in use.
    pub(crate) tsecr: Option<u32>,
    /// It brings a window (section 3 of docs/recovery.md, step 1).
    pub(crate) brings_window: bool,
    /// SND.WND was zero before it.
    pub(crate) window_was_closed: bool,
    /// It has data, SYN or FIN.
    pub(crate) has_text: bool,
    /// The marks that it reports.
    pub(crate) marks: Marks,
    /// Wire segments that were merged into it, 1 at least.
    pub(crate) segs: u16,
}

/// An ACK's report of marks on sent data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Nothing.
    #[default]
    None,
    /// ECE, as agreed (RFC 3168): all that it delivers counts as marked.
    Echo,
    /// A count (RFC 9768).
    Counted(Counted),
}

/// The treatment of the CWR flag of the next new data (RFC 3168, section 6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cwr {
    /// It carries CWR.
    Queue,
    /// It does not, if it has not left yet.
    Withdraw,
}

/// The consequences of an ACK for the rest of the connection. The deadline of the retransmission
/// timer is [`Flight::deadline`](super::Flight::deadline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckEffects {
    /// Sequence numbers that are acknowledged for the first time, a FIN counted. If there are any,
    /// the user timeout's timer stops.
    pub(crate) acked: u32,
    /// The treatment of CWR, if there is one.
    pub(crate) cwr: Option<Cwr>,
    /// Packets that it delivers.
    pub(crate) delivered: u32,
    /// Packets that the count reports as marked; `None` if there was no count, or an old one.
    pub(crate) marked: Option<u32>,
    /// The outcome of the path MTU probe, if it is known now.
    pub(crate) mtu_probe: Option<ProbeOutcome>,
}

/// The consequences of the timer for the rest of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerEffects {
    /// The peer does not answer: the connection is to be ended.
    pub(crate) give_up: bool,
    /// The user timeout runs since then, if it is on and does not run yet.
    pub(crate) user_timeout_since: Option<Instant>,
    /// The treatment of CWR, if there is one.
    pub(crate) cwr: Option<Cwr>,
    /// Timeouts have lasted so long that the path may drop long packets.
    pub(crate) black_hole: bool,
}

/// A packet with data or a FIN that left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    /// First sequence number.
    pub(crate) start: SeqNum,
    /// One after the last, a FIN counted.
    pub(crate) end: SeqNum,
    /// The last number is our FIN.
    pub(crate) fin: bool,
    /// Payload of each of its segments but the last.
    pub(crate) mss: u16,
    /// The number of the packet.
    pub(crate) serial: Serial,
    /// The departure time that it was given.
    pub(crate) departs: Instant,
}

/// The next data to retransmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRetransmission {
    /// Nothing.
    None,
    /// Data whose last copy is still below. New data may leave before it.
    Below,
    /// This range, which new data does not overtake.
    Lost {
        /// First sequence number.
        start: SeqNum,
        /// One after the last, a FIN counted.
        end: SeqNum,
    },
    /// This range, without pacing and small queues: a loss probe.
    Probe {
        /// First sequence number.
        start: SeqNum,
        /// One after the last, a FIN counted.
        end: SeqNum,
    },
}
