//! The states of RFC 9293, section 3.3.2, and which may follow which.

/// The state of a connection. LISTEN belongs to the stack's listener table; a connection begins in
/// SYN-SENT or SYN-RECEIVED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are RFC 9293's")]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    #[default]
    Closed,
}

/// Every transition of RFC 9293, figure 5, without those to CLOSED, which every state has;
/// `state.dot` next to this file draws them.
///
/// Three edges of the figure are walked in two steps, and one is missing. A close in SYN-RECEIVED
/// only queues the FIN, which the RFC allows, and ESTABLISHED is left at once; a segment that ends
/// the handshake and carries a FIN passes ESTABLISHED; and one that acknowledges our FIN and
/// carries the peer's passes FIN-WAIT-2. The way from LAST-ACK ends in CLOSED.
pub(crate) const TRANSITIONS: [(State, State); 10] = {
    use State::*;
    [
        (SynSent, SynReceived),
        (SynSent, Established),
        (SynReceived, Established),
        (Established, FinWait1),
        (Established, CloseWait),
        (FinWait1, FinWait2),
        (FinWait1, Closing),
        (FinWait2, TimeWait),
        (CloseWait, LastAck),
        (Closing, TimeWait),
    ]
};

impl State {
    /// Whether both sides have both sequence numbers (RFC 9293, section 3.10.7.4 lists these
    /// states; CLOSED is not one).
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Whether the handshake is not over.
    pub(crate) const fn is_opening(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived)
    }

    /// Whether the peer may send data.
    pub(crate) const fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether the connection has ended. In TIME-WAIT only a [`TimeWait`] remains.
    ///
    /// [`TimeWait`]: crate::time_wait::TimeWait
    pub const fn has_ended(self) -> bool {
        matches!(self, State::TimeWait | State::Closed)
    }

    /// Whether our FIN is queued or sent in this state.
    pub const fn sent_fin(self) -> bool {
        use State::*;
        matches!(self, FinWait1 | FinWait2 | Closing | LastAck | TimeWait)
    }

    /// Whether the peer's FIN has been accepted in this state.
    pub const fn received_fin(self) -> bool {
        use State::*;
        matches!(self, CloseWait | Closing | LastAck | TimeWait)
    }

    pub(crate) fn may_become(self, next: State) -> bool {
        next == State::Closed || TRANSITIONS.contains(&(self, next))
    }

    /// The state after our FIN was queued.
    pub(crate) const fn after_shutdown(self) -> State {
        match self {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
