//! RST and SYN on a connection, with the challenge ACKs of RFC 5961; and our own resets.

use plimsoll_wire::SeqNum;
use plimsoll_wire::tcp::TcpFlags;

use crate::connection::{Connection, PendingRst};
use crate::context::Context;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::segment::Segment;
use crate::state::State;
use crate::time::Nanos;

impl Connection {
    /// Returns whether to continue with the segment: it carries neither RST nor SYN.
    pub(crate) fn check_control(&mut self, cx: &Context, seg: &Segment) -> bool {
        let flags = seg.repr.flags;
        if flags.contains(TcpFlags::RST) {
            self.on_rst(cx, seg);
            return false;
        }
        if !flags.contains(TcpFlags::SYN) {
            return true;
        }
        if self.state == State::SynReceived && self.rcv.is_repeated_syn(seg) {
            self.ecn.on_syn_again(seg);
            self.pending.syn = true;
        } else {
            cx.counters.bump(Counter::TcpSynChallenge);
            self.challenge(cx);
            if self.pending.challenge_ack && self.repeats_syn_ack(seg) {
                self.ecn.on_syn_ack_again(seg);
            }
        }
        false
    }

    /// Whether the segment is the SYN-ACK that has opened the connection.
    fn repeats_syn_ack(&self, seg: &Segment) -> bool {
        !self.handshake.is_passive()
            && seg.repr.flags.contains(TcpFlags::SYN | TcpFlags::ACK)
            && seg.repr.seq == self.rcv.irs()
    }

    /// RFC 5961, section 3.2: only a reset at exactly the expected sequence number counts.
    fn on_rst(&mut self, cx: &Context, seg: &Segment) {
        if !self.rcv.rst_is_exact(seg.repr.seq, self.state.received_fin()) {
            self.challenge(cx);
            return;
        }
        let error = match self.state {
            State::SynReceived if !self.handshake.is_passive() => ConnectionError::Refused,
            // As on Linux: reads have met the end of the stream, only writes can fail.
            State::CloseWait => ConnectionError::BrokenPipe,
            // Also in CLOSING and LAST-ACK, since our last data may not have arrived.
            _ => ConnectionError::Reset,
        };
        self.fail(cx, error);
    }

    /// Sends a challenge ACK, so that the peer confirms. Rate-limited.
    pub(crate) fn challenge(&mut self, cx: &Context) {
        if self.challenge.allow(cx.now, Nanos::from(cx.config.tcp_invalid_ratelimit)) {
            cx.counters.bump(Counter::TcpChallengeAck);
            self.pending.challenge_ack = true;
        } else {
            cx.counters.bump(Counter::TcpAckSkippedChallenge);
        }
    }

    /// A reset of our own connection leaves with the next `poll_transmit`.
    pub(crate) fn queue_rst(&mut self) {
        self.pending.rst = Some(PendingRst { seq: self.snd.nxt(), ack: Some(self.rcv.nxt()) });
    }

    /// The reset that answers a segment with this SEG.ACK, which acknowledges data that was never
    /// sent, or whose own data the application will not read.
    pub(crate) fn queue_rst_for(&mut self, ack: SeqNum) {
        self.pending.rst = Some(PendingRst { seq: ack, ack: None });
    }
}
