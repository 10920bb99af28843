//! What the predicates of the gate may look at.

use super::nagle::Tail;

/// What the gate looks at: a sender with data or a FIN that was never sent. All figures are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Situation {
    /// A full segment towards this peer.
    pub(crate) mss: u32,
    /// What waits, up to the end of its first unit: a packet never goes beyond.
    pub(crate) unsent: u32,
    /// More waits behind that.
    pub(crate) behind: bool,
    /// Our FIN follows what waits.
    pub(crate) fin: bool,
    /// The congestion window, and what of it is free.
    pub(crate) cwnd: u32,
    pub(crate) quota: u32,
    /// What the peer's window takes behind SND.NXT.
    pub(crate) usable: u32,
    /// The Persist timer has fired: a silly window is used.
    pub(crate) force: bool,
    /// The largest packet that what lies below us takes.
    pub(crate) largest: u32,
    /// What of the queue fits into one packet as slices.
    pub(crate) contiguous: u32,
    /// Urgent data is unacknowledged.
    pub(crate) urgent: bool,
    /// TCP_NODELAY.
    pub(crate) nodelay: bool,
    /// TCP_CORK, or MSG_MORE on the last write.
    pub(crate) corked: bool,
    /// Neither Nagle's rule nor a cork holds this time.
    pub(crate) push_now: bool,
    /// Anything is unacknowledged.
    pub(crate) unacked: bool,
    /// An earlier packet that was not a multiple of the MSS is unacknowledged.
    pub(crate) small_unacked: bool,
}

impl Situation {
    /// What Nagle's rule asks of the fractional tail.
    pub(crate) fn tail(&self) -> Tail {
        Tail {
            nodelay: self.nodelay,
            corked: self.corked,
            // What lies in the middle of the queue has no chance of growing.
            bypass: self.push_now || self.urgent || self.fin || self.behind,
            unacked: self.unacked,
            small_unacked: self.small_unacked,
        }
    }
}
