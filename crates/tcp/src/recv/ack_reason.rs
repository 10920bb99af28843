//! Why an acknowledgement leaves at once: the answers of [`delayed_ack`](super::delayed_ack).

/// The reason why an acknowledgement leaves at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckReason {
    /// More than one full-sized segment is unacknowledged.
    SecondSegment,
    /// The connection is young or TCP_QUICKACK is set.
    Quick,
    /// A segment arrived out of order, or twice.
    OutOfOrder,
    /// A segment filled a hole.
    HoleFilled,
    /// The peer's FIN.
    Fin,
    /// The ACK that ends the handshake.
    Handshake,
    /// Reading opened the window.
    WindowUpdate,
    /// The segment was outside of the window.
    Unacceptable,
    /// The delayed-ACK timer fired.
    Timer,
    /// The peer reports that it has reduced its congestion window.
    Congestion,
    /// Marks on arriving packets have begun, ended or been many (RFC 9768).
    Marks,
    /// All that was pushed has been read.
    Drained,
    /// The reader that was expected to answer reads again instead.
    NoAnswer,
}

impl AckReason {
    /// The reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            AckReason::SecondSegment => "more than one full segment is unacknowledged",
            AckReason::Quick => "quick, the connection is young or asks for it",
            AckReason::OutOfOrder => "out of order, or twice",
            AckReason::HoleFilled => "a hole was filled",
            AckReason::Fin => "the peer's FIN",
            AckReason::Handshake => "the end of the handshake",
            AckReason::WindowUpdate => "reading opened the window",
            AckReason::Unacceptable => "the segment was outside of the window",
            AckReason::Timer => "the delay has passed",
            AckReason::Congestion => "the peer has reduced its congestion window",
            AckReason::Marks => "congestion marks have begun, ended or been many",
            AckReason::Drained => "all that was pushed has been read",
            AckReason::NoAnswer => "the reader waits for more and has not answered",
        }
    }
}
