//! Explanations: a connection's decisions, stored as numbers and formatted as words when they are
//! read.
//!
//! # Theory of operation
//!
//! Every decision that keeps a byte back, cuts a packet, sends or defers an acknowledgement,
//! retransmits or wakes a waiter is a [`Decision`]. It goes to two places, both off by default. The
//! *log* of a connection keeps the latest decisions ([`SetOption::DecisionLog`], or the setting
//! `plimsoll.decision_log` for all connections). A *note* travels with a packet to the device below
//! if it takes notes ([`Below::takes_notes`]), which is a capture. While both are off, a decision
//! costs one check of a pointer; the times of holds are always kept
//! ([`Info::hold_times`](crate::Info::hold_times)).
//!
//! [`SetOption::DecisionLog`]: crate::SetOption::DecisionLog
//! [`Below::takes_notes`]: crate::Below::takes_notes

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;

use crate::congestion::bbr::state::BbrModel;
use crate::output::hold::Hold;
use crate::recv::ack_reason::AckReason;
use crate::time::{Duration, Instant};

/// The reason why a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendKind {
    /// A SYN of an active open.
    Syn,
    /// A SYN-ACK.
    SynAck,
    /// Data (or a FIN) sent for the first time.
    New,
    /// Data (or a FIN) retransmitted.
    Retransmit,
    /// A probe into a closed window.
    WindowProbe,
    /// A keepalive probe.
    Keepalive,
    /// A pure acknowledgement.
    Ack,
    /// A challenge acknowledgement (RFC 5961).
    ChallengeAck,
    /// A reset.
    Rst,
}

/// The events since output last polled, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes(u8);

impl Causes {
    /// No event was reported to the connection.
    pub const NONE: Causes = Causes(0);
    /// A segment arrived, mostly with an acknowledgement.
    pub const ACK: Causes = Causes(1);
    /// The device finished with one of our packets.
    pub const COMPLETION: Causes = Causes(2);
    /// A timer fired.
    pub const TIMER: Causes = Causes(4);
    /// The application wrote.
    pub const WRITE: Causes = Causes(8);
    /// The application set an option, or shut the stream down.
    pub const OPTION: Causes = Causes(16);

    const NAMED: [(Causes, &'static str); 5] = [
        (Causes::ACK, "ack"),
        (Causes::COMPLETION, "completion"),
        (Causes::TIMER, "timer"),
        (Causes::WRITE, "write"),
        (Causes::OPTION, "option"),
    ];

    /// Whether `cause` is among them.
    pub fn contains(self, cause: Causes) -> bool {
        self.0 & cause.0 != 0
    }

    pub(crate) fn add(&mut self, cause: Causes) {
        self.0 |= cause.0;
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (cause, name) in Causes::NAMED {
            if self.contains(cause) {
                f.write_str(if first { "" } else { "+" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        f.write_str(if first { "output" } else { "" })
    }
}

/// The end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The hold.
    pub hold: Hold,
    /// Its duration.
    pub after: Duration,
    /// The events that ended it.
    pub by: Causes,
    /// Writes since new data last left, which the packet now combines.
    pub writes: u32,
}

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held {} us by {}", self.after.as_micros(), self.hold.name())?;
        write!(f, ", released by {}", self.by)?;
        if self.writes > 1 { write!(f, ", {} writes merged", self.writes) } else { Ok(()) }
    }
}

/// The limit of a packet's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No limit: it is all waiting data.
    Queue,
    /// It ends where a record of the application, or a stretch of the send buffer, ends.
    Unit,
    /// Its tail stays behind.
    Tail,
    /// The congestion window.
    Cwnd,
    /// The peer's window.
    PeerWindow,
    /// The largest packet at this rate, and that the device takes.
    Size,
    /// The number of ranges of memory that a packet may have.
    Ranges,
    /// Urgent data leaves in single segments.
    Urgent,
    /// It is a probe of the path MTU.
    MtuProbe,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bound::Queue => "all that waits",
            Bound::Unit => "cut at the end of a buffer of the write queue",
            Bound::Tail => "all but the tail",
            Bound::Cwnd => "cut by the congestion window",
            Bound::PeerWindow => "cut by the peer's window",
            Bound::Size => "cut at the largest size",
            Bound::Ranges => "cut at the largest number of ranges",
            Bound::Urgent => "cut for urgent data",
            Bound::MtuProbe => "a probe of the path MTU",
        })
    }
}

/// The treatment of the fraction of a segment at the end of the waiting data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// There is none.
    None,
    /// It leaves with the packet.
    Along {
        /// Its length in bytes.
        len: u32,
    },
    /// It stays behind.
    Kept {
        /// Its length in bytes.
        len: u32,
        /// The reason why it is held; `None` if the policy cuts it off.
        hold: Option<Hold>,
        /// With [`Hold::Nagle`], where the small segment in flight ends, counted from the start of
        /// the connection as Wireshark does.
        small: u32,
    },
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tail::None => Ok(()),
            Tail::Along { len } => write!(f, "; tail of {len} bytes along"),
            Tail::Kept { len, hold: Some(Hold::Nagle), small } if *small > 0 => {
                write!(f, "; tail of {len} bytes kept: small segment {small} in flight")
            }
            Tail::Kept { len, hold: Some(hold), .. } => {
                write!(f, "; tail of {len} bytes kept: {}", hold.name())
            }
            Tail::Kept { len, hold: None, .. } => write!(f, "; tail of {len} bytes cut off"),
        }
    }
}

/// The reason for a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// A tail loss probe: no ACK came for two round trips.
    LossProbe,
    /// After a retransmission timeout.
    Timeout,
    /// Lost by SACK and the time since it was sent.
    Lost,
    /// Lost by duplicate ACKs, or a partial one.
    DuplicateAcks,
}

impl fmt::Display for Resend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resend::LossProbe => "tail loss probe",
            Resend::Timeout => "after a timeout",
            Resend::Lost => "SACK and time say that it is lost",
            Resend::DuplicateAcks => "duplicate ACKs say that it is lost",
        })
    }
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Data waits.
    Held {
        /// Why.
        hold: Hold,
        /// Bytes that wait.
        bytes: u32,
    },
    /// A hold ended.
    Released(Released),
    /// A packet with new data leaves.
    Cut {
        /// Its bytes of data.
        len: u32,
        /// Its wire segments.
        segs: u16,
        /// The limit of its length.
        bound: Bound,
        /// The treatment of its tail.
        tail: Tail,
    },
    /// A pure acknowledgement leaves.
    Ack(AckReason),
    /// An acknowledgement waits this long for data to take it along, or for more to acknowledge.
    AckDeferred(Duration),
    /// Data leaves again.
    Resent {
        /// Bytes of data.
        len: u32,
        /// Why.
        reason: Resend,
    },
    /// A packet leaves that has no data and is no plain acknowledgement.
    Bare(SendKind),
    /// The congestion controller has gone to another state.
    Bbr(BbrModel),
    /// A thread or task that waited for the socket is woken.
    Woke {
        /// Those that wait to read.
        readers: bool,
        /// Those that wait to write, or to connect.
        writers: bool,
    },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Held { hold, bytes } => {
                write!(f, "{bytes} bytes held by {}, until {}", hold.name(), hold.restarted_by())
            }
            Decision::Released(released) => released.fmt(f),
            Decision::Cut { len, segs: 1, bound, tail } => write!(f, "{len} bytes, {bound}{tail}"),
            Decision::Cut { len, segs, bound, tail } => {
                write!(f, "{len} bytes in {segs} segments, {bound}{tail}")
            }
            Decision::Ack(reason) => write!(f, "ACK: {}", reason.text()),
            Decision::AckDeferred(time) => write!(f, "ACK deferred for {} us", time.as_micros()),
            Decision::Resent { len, reason } => write!(f, "{len} bytes again: {reason}"),
            Decision::Bare(kind) => f.write_str(match kind {
                SendKind::WindowProbe => "probe of a closed window",
                SendKind::Keepalive => "keepalive probe",
                SendKind::ChallengeAck => "ACK: answers a segment that is not acceptable",
                _ => "control segment",
            }),
            Decision::Bbr(model) => model.fmt(f),
            Decision::Woke { readers, writers } => f.write_str(match (readers, writers) {
                (true, true) => "woke readers and writers",
                (true, false) => "woke readers",
                _ => "woke writers",
            }),
        }
    }
}

/// The reason why a packet leaves, and the hold before it: a capture writes them next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The hold that ended, if there was one.
    pub released: Option<Released>,
    /// The decision that made it.
    pub decision: Decision,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(released) = &self.released {
            write!(f, "{released}; ")?;
        }
        self.decision.fmt(f)
    }
}

/// A decision and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The time.
    pub at: Instant,
    /// The decision.
    pub decision: Decision,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.at.as_nanos();
        let (secs, micros) = (nanos / 1_000_000_000, nanos / 1000 % 1_000_000);
        write!(f, "{secs}.{micros:06} {}", self.decision)
    }
}

/// The last decisions of a connection.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    ring: VecDeque<Record>,
    most: usize,
    /// The deadline of the deferred ACK that was noted last.
    pub(crate) deferred: Instant,
}

impl Decisions {
    /// A log of `most` entries; none for 0.
    pub(crate) fn new(most: u32) -> Option<Box<Decisions>> {
        let most = most.min(MAX_DECISIONS) as usize;
        (most > 0).then(|| {
            Box::new(Decisions {
                ring: VecDeque::with_capacity(most),
                most,
                deferred: Instant::ZERO,
            })
        })
    }

    /// Adds one; the oldest goes if there are too many.
    pub(crate) fn push(&mut self, at: Instant, decision: Decision) {
        if self.ring.len() >= self.most {
            self.ring.pop_front();
        }
        self.ring.push_back(Record { at, decision });
    }

    /// The oldest first.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.ring.iter()
    }

    /// Bytes of heap held.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Decisions>() + self.ring.capacity() * size_of::<Record>()
    }
}

/// Entries of one log, at most.
pub(crate) const MAX_DECISIONS: u32 = 65_536;

/// The counts and times of a connection's holds.
#[derive(Clone, Debug)]
pub(crate) struct HoldTimes {
    /// When the hold of now began.
    pub(crate) since: Instant,
    /// How often each was met.
    pub(crate) met: [u32; Hold::ALL.len()],
    /// How long each has held in all, ended holds only, in nanoseconds.
    pub(crate) nanos: [u64; Hold::ALL.len()],
}

#[cfg(test)]
mod tests;
