//! The SYN: its data, and what its answer shows (Fast Open, RFC 7413).

use plimsoll_wire::SeqNum;

use super::Flight;
use super::scoreboard::{Arrivals, SentRange};
use super::view::ConnView;
use crate::context::Context;
use crate::counters::Counter;
use crate::time::Nanos;

/// Ignores arrivals: the data of a SYN reveals nothing about the path.
struct Unheard;

impl Arrivals for Unheard {
    fn high_seq(&self) -> SeqNum {
        SeqNum(0)
    }

    fn is_spurious(&self, _range: &SentRange) -> bool {
        false
    }

    fn on_delivered(&mut self, _range: &SentRange) {}

    fn on_spurious(&mut self, _range: &SentRange) {}

    fn awaits_dsack(&self) -> bool {
        false
    }

    fn may_undo_from(&self, _left: SeqNum) -> bool {
        false
    }

    fn on_dsack(&mut self, _range: &SentRange) {}
}

impl Flight {
    /// Data of our SYN left with it.
    pub(crate) fn on_syn_data_sent(&mut self, range: SentRange) {
        self.board.on_sent(range);
    }

    /// `ack` covers our SYN and perhaps some of its data. Returns the bytes of data that it covers.
    pub(crate) fn on_syn_acked(&mut self, ack: SeqNum) -> u32 {
        let delivered = self.board.on_cumulative_ack(ack, &mut Unheard);
        self.on_syn_delivered();
        delivered.acked
    }

    /// Our SYN-ACK of an early connection is acknowledged. `restarts` if the window starts from one
    /// segment.
    pub(crate) fn on_early_syn_acked(&mut self, cx: &Context, conn: &ConnView, restarts: bool) {
        self.on_syn_delivered();
        if restarts {
            let path = (conn.smss, self.srtt());
            self.cc.on_established((cx.now, conn.nxt), true, path);
        }
    }

    /// The handshake of an early connection gave a round trip: it counts if there is none yet.
    pub(crate) fn on_early_handshake_sample(&mut self, cx: &Context, conn: &ConnView, rtt: Nanos) {
        if self.rtt.srtt().is_none() {
            self.on_handshake_sample(cx, conn, rtt);
        }
    }

    /// A SYN or a SYN-ACK left again.
    pub(crate) fn on_syn_retransmitted(&mut self) {
        self.figures.total_retrans = self.figures.total_retrans.saturating_add(1);
    }

    /// Our SYN-ACK was marked on its way (RFC 9768, section 3.2.2.2).
    pub(crate) fn on_syn_ack_marked(&mut self, cx: &Context) {
        self.figures.delivered_ce = self.figures.delivered_ce.wrapping_add(1);
        cx.counters.bump(Counter::TcpDeliveredCe);
    }

    /// Our SYN was delivered: it counts as a segment.
    fn on_syn_delivered(&mut self) {
        self.figures.delivered = self.figures.delivered.wrapping_add(1);
    }
}
