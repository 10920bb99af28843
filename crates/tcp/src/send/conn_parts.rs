//! The parts of the connection that the send half may read.

use super::flight::PeerView;
use crate::handshake::TimestampState;
use crate::mtu::search::MtuProbe;
use crate::state::State;

/// The parts of the connection outside its send half that loss recovery reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnParts {
    /// The state of RFC 9293.
    pub(crate) state: State,
    /// SACK is agreed.
    pub(crate) sack: bool,
    /// ECN as in RFC 3168 is agreed.
    pub(crate) ecn: bool,
    /// Departure times matter.
    pub(crate) paced: bool,
    /// The clock of our timestamps.
    pub(crate) ts: TimestampState,
    /// The probe of the path MTU that is outstanding.
    pub(crate) mtu_probe: Option<MtuProbe>,
    /// The values that decide how long to wait for a silent peer.
    pub(crate) peer: PeerView,
}
