//! Explicit Congestion Notification (RFC 3168).
//!
//! Both ends agree in the handshake: a SYN with ECE and CWR asks, a SYN-ACK with ECE alone agrees.
//! From then on data that is sent for the first time carries ECT(0); a router that is about to drop
//! marks it CE instead. Who receives the mark sets ECE on everything it sends, until a segment with
//! CWR says that the sender has reacted. Who receives ECE reduces its window once per window of
//! data and sets CWR on the next data.
//!
//! The reduction itself is recovery's business (`send/recovery/`). A SYN that is sent again does
//! not ask, since some path may have swallowed the one that did (`tcp_ecn_fallback`).

mod signals;

use plimsoll_wire::tcp::TcpFlags;

use crate::config::Config;
use crate::segment::{Ecn, Segment};

/// The bits that a SYN asks with.
pub(crate) const ASK: TcpFlags = TcpFlags(TcpFlags::ECE.0 | TcpFlags::CWR.0);

/// How much is ECN used: `tcp_ecn`.
const ASK_AND_AGREE: u8 = 1;

/// What one connection knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnState {
    /// Our SYN has asked, and no answer is known.
    asked: bool,
    /// Both ends agreed.
    pub(crate) on: bool,
    /// A CE mark came, and no CWR since: what we send carries ECE.
    demand_cwr: bool,
    /// Whether the last ACK that left carried ECE.
    echo_sent: bool,
    /// The window was reduced: the next new data carries CWR.
    queue_cwr: bool,
    /// The peer has sent a packet with an ECN codepoint.
    pub(crate) seen: bool,
}

impl EcnState {
    /// Whether a segment with `codepoint`, if its data is taken, and the next get their ACKs at
    /// once.
    pub(crate) fn wants_quick_acks(&self, codepoint: Ecn) -> bool {
        self.on
            && match codepoint {
                // The peer marks everything but what it sends again: it has lost something.
                Ecn::NotEct => self.seen,
                Ecn::Ect0 | Ecn::Ect1 => false,
                Ecn::Ce => !self.demand_cwr,
            }
    }

    /// The window was reduced, or the timer fired.
    pub(crate) fn queue_cwr(&mut self) {
        self.queue_cwr = self.on;
    }

    /// The reduction is undone.
    pub(crate) fn withdraw_cwr(&mut self) {
        self.queue_cwr = false;
    }

    /// The bits of our SYN, sent for the first time or again.
    pub(crate) fn syn_flags(&mut self, again: bool, config: &Config) -> TcpFlags {
        let asks = config.tcp_ecn == ASK_AND_AGREE && !(again && config.tcp_ecn_fallback);
        self.asked |= asks;
        if asks { ASK } else { TcpFlags::default() }
    }

    /// The bits of our SYN-ACK.
    pub(crate) fn syn_ack_flags(self) -> TcpFlags {
        if self.on { TcpFlags::ECE } else { TcpFlags::default() }
    }

    /// The peer's SYN came. One that is itself marked comes through something that does not keep
    /// to the rules.
    pub(crate) fn on_syn(&mut self, seg: &Segment, config: &Config) {
        let asks = seg.repr.flags.contains(ASK) && seg.ecn == Ecn::NotEct;
        self.on = asks && config.tcp_ecn != 0;
    }

    /// The peer's SYN-ACK came.
    pub(crate) fn on_syn_ack(&mut self, flags: TcpFlags) {
        let agrees = flags.contains(TcpFlags::ECE) && !flags.contains(TcpFlags::CWR);
        self.on = self.asked && agrees;
    }

    /// Whether the next ACK says something else of congestion than the last one said.
    pub(crate) fn has_news(self) -> bool {
        self.on && self.demand_cwr != self.echo_sent
    }

    /// The codepoint and the bits of an outgoing segment. `news` if it carries data that was never
    /// sent before.
    pub(crate) fn marks(self, news: bool) -> (Ecn, TcpFlags) {
        let mut flags = TcpFlags::default();
        if !self.on {
            return (Ecn::NotEct, flags);
        }
        if self.demand_cwr {
            flags |= TcpFlags::ECE;
        }
        if !news {
            return (Ecn::NotEct, flags);
        }
        if self.queue_cwr {
            flags |= TcpFlags::CWR;
        }
        (Ecn::Ect0, flags)
    }

    /// A segment with these [`marks`](Self::marks) has left.
    pub(crate) fn on_sent(&mut self, flags: TcpFlags) {
        if self.on {
            self.echo_sent = self.demand_cwr;
            self.queue_cwr &= !flags.contains(TcpFlags::CWR);
        }
    }
}

#[cfg(test)]
mod tests;
