//! What ECN does to a connection: marks that arrive, and echoes of ours.

use plimsoll_wire::tcp::TcpFlags;

use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::recv::AckReason;
use crate::segment::{Ecn, Segment};

impl Connection {
    /// Whether the segment says that one of ours was marked.
    pub(crate) fn is_ecn_echo(&self, seg: &Segment) -> bool {
        let flags = seg.repr.flags;
        self.ecn.on && flags.contains(TcpFlags::ECE) && !flags.contains(TcpFlags::SYN)
    }

    /// The peer says that it has reacted to our ECE. Its window may be tiny now, so that data gets
    /// its ACK at once. CWR on a segment without data is taken as well.
    pub(crate) fn take_cwr(&mut self, seg: &Segment) {
        if seg.repr.flags.contains(TcpFlags::CWR) {
            self.ecn.demand_cwr = false;
            if seg.seq_len() > 0 {
                self.rcv.acknowledge_now(AckReason::Congestion);
            }
        }
    }

    /// Data of a segment with this codepoint was taken.
    pub(crate) fn on_codepoint(&mut self, cx: &Context, ecn: Ecn) {
        if !self.ecn.on {
            return;
        }
        match ecn {
            Ecn::NotEct => {}
            Ecn::Ect0 | Ecn::Ect1 => self.ecn.seen = true,
            Ecn::Ce => {
                cx.counters.bump(Counter::EcnMarksReceived);
                self.ecn.seen = true;
                self.ecn.demand_cwr = true;
            }
        }
    }
}
