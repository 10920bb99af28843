//! The SYN or SYN-ACK of an open, its timer, and the end of the handshake.

use plimsoll_wire::tcp::{TcpFlags, TcpRepr};

use super::syn::linear_timeouts;
use crate::config::Config;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::keepalive::user_timeout;
use crate::recv::window::initial_window;
use crate::segment::{Ecn, Segment, SendKind};
use crate::state::State;
use crate::time::Nanos;
use crate::timer::Timer;

impl Connection {
    /// The SYN or SYN-ACK that is due, if one is (called by `output/`).
    pub(crate) fn take_syn(&mut self, cx: &Context) -> Option<((TcpRepr, Ecn), SendKind)> {
        if !core::mem::take(&mut self.pending.syn) {
            return None;
        }
        let before = self.handshake.sent;
        let ((bits, ecn), flags, kind) = match self.state {
            State::SynSent => {
                let (policy, fallback) = (self.ecn_policy(cx.config), cx.config.tcp_ecn_fallback);
                let asked = self.ecn.on_syn_leaves(before, policy, fallback);
                (asked, TcpFlags::SYN, SendKind::Syn)
            }
            State::SynReceived => {
                let answer = self.ecn.on_syn_ack_leaves(before, cx.config);
                (answer, TcpFlags::SYN | TcpFlags::ACK, SendKind::SynAck)
            }
            _ => return None,
        };
        let flags = flags | bits;
        let repr = TcpRepr {
            src_port: self.local_port,
            dst_port: self.remote_port,
            seq: self.snd.iss(),
            ack: self.rcv.nxt(),
            flags,
            window: initial_window(self.rcv.first_window() as usize),
            urgent: 0,
            options: self.syn_options(cx),
        };
        self.after_syn_sent(cx);
        Some(((repr, ecn), kind))
    }

    pub(super) fn after_syn_sent(&mut self, cx: &Context) {
        self.snd.on_syn_sent();
        if self.handshake.sent > 0 {
            self.snd.flight.on_syn_retransmitted();
        }
        self.handshake.sent = self.handshake.sent.saturating_add(1);
        self.handshake.sent_at = cx.now;
        self.stats.segs_out += 1;
        if !self.timers.is_armed(Timer::Retransmit) {
            self.timers.arm(Timer::Retransmit, cx.now + self.syn_rto(cx.config));
        }
    }

    /// The timeout of the SYN or SYN-ACK.
    pub(super) fn syn_rto(&self, config: &Config) -> Nanos {
        let most = self.snd.flight.rtt().bounds(config).max;
        self.handshake.rto(self.state, config, most)
    }

    /// The retransmission timeout of now: of the SYN, or of data.
    pub(crate) fn current_rto(&self, config: &Config) -> Nanos {
        if self.state.is_opening() { self.syn_rto(config) } else { self.snd.flight.rto(config) }
    }

    /// Timeouts since the peer last acknowledged something.
    pub(crate) fn current_retries(&self) -> u8 {
        if self.state.is_opening() { self.handshake.retries } else { self.snd.flight.retries() }
    }

    /// The retransmission timer fired in SYN-SENT or SYN-RECEIVED.
    pub(crate) fn on_syn_timeout(&mut self, cx: &Context) {
        let limit = self.options.syn_retries.unwrap_or(match self.handshake.passive {
            // As on Linux, that of an early connection may be retransmitted once more.
            true => cx.config.tcp_synack_retries.saturating_add(self.handshake.early.into()),
            false => cx.config.tcp_syn_retries,
        });
        let most = self.snd.flight.rtt().bounds(cx.config).max;
        let too_long =
            self.state == State::SynSent && self.handshake.takes_too_long(cx.now, limit, most);
        let limit = limit.saturating_add(linear_timeouts(self.state, cx.config));
        let limit =
            if self.handshake.deferred { limit.max(self.options.defer_accept) } else { limit };
        let age = cx.now.nanos_since(self.handshake.started);
        let too_old = user_timeout(&self.options).is_some_and(|timeout| age >= timeout);
        let ends = self.handshake.retries >= limit || too_old || too_long;
        if let Some(open) = &mut self.fast_open {
            open.on_timeout(self.handshake.retries, ends);
        }
        if ends {
            self.give_up(cx);
            return;
        }
        cx.counters.bump(Counter::TcpTimeouts);
        self.lose_early_data(cx);
        self.pending.syn = !self.handshake.awaits_data_only(self.options.defer_accept);
        self.handshake.retries += 1;
        self.timers.arm(Timer::Retransmit, cx.now + self.syn_rto(cx.config));
    }

    /// The handshake is complete: `seg` acknowledged our SYN. RCV is set up already.
    pub(super) fn establish(&mut self, cx: &Context, seg: &Segment) {
        let crossed = self.state == State::SynReceived && !self.handshake.is_passive();
        let sample = self.handshake.round_trip(cx.now, &self.ts, (seg, crossed));
        let lost = self.handshake.is_syn_lost(&self.ts, seg);
        self.timers.stop(Timer::Retransmit);
        self.pending.syn = false;
        self.snd.on_syn_acked(seg.repr.ack);
        self.snd.forget_old_marks();
        self.settle_mss(cx);
        let shift = if seg.repr.flags.contains(TcpFlags::SYN) { 0 } else { self.snd.wscale() };
        let wnd = u32::from(seg.repr.window) << shift;
        self.snd.take_window(wnd, seg.repr.seq, seg.repr.ack);
        let parts = self.conn_parts(cx);
        let view = self.snd.view(cx, &parts);
        self.snd.flight.on_established(cx, &view, (sample, lost));
        self.snd.expand_buffer(cx.config, &self.options);
        self.report_acked(cx);
        self.snd.end_busy(cx.now);
        self.rcv.on_open(cx.now);
        self.set_state(cx, State::Established);
        self.resume_shutdown(cx);
    }
}
