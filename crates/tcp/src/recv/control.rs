//! The valid positions of a SYN or RST in the peer's stream.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use super::RecvSide;
use crate::segment::Segment;

impl RecvSide {
    /// Whether the peer sent its SYN again: our SYN-ACK was lost or is late.
    pub(crate) fn is_repeated_syn(&self, seg: &Segment) -> bool {
        let control = TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST;
        seg.repr.flags.0 & control.0 == TcpFlags::SYN.0 && seg.repr.seq == self.irs()
    }

    /// Whether a reset with this number counts (RFC 5961, section 3.2). `after_fin` if the peer's
    /// FIN was taken: some peers give a reset after their FIN the number of the FIN (Linux takes
    /// it, too).
    pub(crate) fn rst_is_exact(&self, seq: SeqNum, after_fin: bool) -> bool {
        seq == self.nxt() || (after_fin && seq + 1 == self.nxt())
    }
}
