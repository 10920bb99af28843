//! The urgent pointer of a segment (RFC 9293, section 3.10.7.4, sixth; RFC 6093).

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::event::Events;
use crate::segment::Segment;
use crate::state::State;

impl Connection {
    /// Takes the urgent pointer.
    pub(crate) fn on_urgent(&mut self, seg: &Segment) {
        let receiving =
            matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if !receiving || !seg.repr.flags.contains(TcpFlags::URG) || seg.repr.urgent == 0 {
            return;
        }
        // The pointer names the byte behind the urgent one.
        let mark = seg.repr.seq + u32::from(seg.repr.urgent) - 1;
        // Nothing that was read already, and no step back.
        if mark < self.rcv.queue.start() || self.rcv.urgent.mark.is_some_and(|old| mark <= old) {
            return;
        }
        self.rcv.urgent.announce(mark);
        self.events.insert(Events::READABLE);
    }

    /// In-order data has arrived: the urgent byte may be among it.
    pub(crate) fn collect_urgent(&mut self) {
        let Some(mark) = self.rcv.urgent.mark else { return };
        let arrived = mark >= self.rcv.queue.start() && mark < self.rcv.nxt;
        if arrived && !self.rcv.urgent.seen {
            let offset = mark.since(self.rcv.queue.start()) as usize;
            let byte = self.rcv.queue.byte_at(offset);
            self.rcv.urgent.collect(byte);
            self.events.insert(Events::READABLE);
        }
    }
}
