//! What the send half is shown of its connection.

use super::recovery::PeerView;
use crate::handshake::TimestampState;
use crate::mtu::search::MtuProbe;
use crate::state::State;

/// What loss recovery looks at of the connection next to its send half.
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
    /// What decides how long a silent peer is waited for.
    pub(crate) peer: PeerView,
}
