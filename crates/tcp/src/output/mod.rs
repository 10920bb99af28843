//! Output: what leaves next, if anything does.
//!
//! # Theory of operation
//!
//! [`Connection::poll_transmit`] is asked again and again until it has nothing. The order is fixed:
//! a reset; a SYN; answers that the peer must be able to count one by one (challenge ACKs, duplicate
//! ACKs); what recovery wants sent again; new data, if the [`gate`] lets it pass; probes; and last, a
//! pure ACK, if nothing that left has taken it along.
//!
//! When nothing more leaves, the connection waits for an ACK, for a timer, or for the application:
//! `settle` sees to it that something will restart what is held.

mod build;
mod gate;
mod nagle;
mod silly_window;
mod tso_tail;

pub use gate::Hold;

use crate::connection::{Connection, Context};
use crate::segment::{SendKind, Transmit};
use crate::state::State;

impl Connection {
    /// The next packet to hand down. Call again until it returns `None`.
    pub fn poll_transmit(&mut self, cx: &Context) -> Option<Transmit> {
        self.debug_invariants();
        let transmit = self.next_transmit(cx);
        if transmit.is_none() {
            self.settle(cx);
        }
        self.debug_invariants();
        transmit
    }

    fn next_transmit(&mut self, cx: &Context) -> Option<Transmit> {
        if let Some(rst) = self.pending.rst.take() {
            return Some(self.build_rst(cx, rst));
        }
        if let Some((repr, kind)) = self.take_syn(cx) {
            return Some(self.build_syn(cx, repr, kind));
        }
        if matches!(self.state, State::Closed | State::SynSent) {
            return None;
        }
        if core::mem::take(&mut self.pending.challenge_ack) {
            return Some(self.build_ack(cx, SendKind::ChallengeAck));
        }
        if self.rcv.dup_ack_due() {
            return Some(self.build_ack(cx, SendKind::Ack));
        }
        if self.state != State::SynReceived
            && let Some(transmit) = self.data_or_probe(cx)
        {
            return Some(transmit);
        }
        self.rcv.ack_due(cx.now).map(|_| self.build_ack(cx, SendKind::Ack))
    }

    fn data_or_probe(&mut self, cx: &Context) -> Option<Transmit> {
        self.last_hold = None;
        if let Some((start, end)) = self.next_retransmit(cx) {
            return Some(self.build_retransmit(cx, start, end));
        }
        if self.wants_to_send() {
            self.restart_after_idle(cx);
            match self.gate(cx) {
                Ok(len) => return Some(self.build_new(cx, len)),
                Err(hold) => self.last_hold = Some(hold),
            }
        }
        if core::mem::take(&mut self.pending.window_probe) {
            return Some(self.build_ack(cx, SendKind::WindowProbe));
        }
        if core::mem::take(&mut self.pending.keepalive) {
            return Some(self.build_ack(cx, SendKind::Keepalive));
        }
        None
    }

    /// Nothing leaves now: makes sure that something will restart what is held.
    fn settle(&mut self, cx: &Context) {
        if matches!(self.state, State::Closed | State::SynSent | State::SynReceived) {
            return;
        }
        self.sync_persist(cx);
        if self.snd.queue.len() == 0 && self.snd.rtx.is_empty() {
            self.snd.queue.release_idle();
        }
    }
}

#[cfg(test)]
mod tests;
