//! The urgent pointer of a segment (RFC 9293, section 3.10.7.4, sixth; RFC 6093).

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::event::Events;
use crate::segment::Segment;

impl Connection {
    /// Takes the urgent pointer.
    pub(crate) fn on_urgent(&mut self, seg: &Segment) {
        let urgent = seg.repr.flags.contains(TcpFlags::URG) && seg.repr.urgent != 0;
        if !self.state.may_receive() || !urgent {
            return;
        }
        // The pointer names the byte after the urgent one.
        let mark = seg.repr.seq + u32::from(seg.repr.urgent) - 1;
        if self.rcv.announce_urgent(mark) {
            self.events.insert(Events::READABLE);
        }
    }
}
