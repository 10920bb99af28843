//! Fast Open, the listening side (RFC 7413, section 4.2), as on Linux.
//!
//! The caller, which has the key, validates cookies. A SYN with a valid cookie makes an *early*
//! connection: it is in SYN-RECEIVED like any other, but the data of the SYN can be read and
//! answered before the handshake completes, and the SYN-ACK acknowledges it. Until then the
//! retransmission timer belongs to the SYN-ACK, even with other data in flight. SND.UNA is after
//! our SYN, so that windows and queues count as they will later. Only the SYN-ACK is retransmitted.
//!
//! Only the first SYN-ACK carries a cookie, if the caller provides one: a path that lost it may
//! have dropped it because of the option.

use alloc::boxed::Box;

use plimsoll_wire::tcp::FastOpenOption;

use crate::connection::Connection;
use crate::context::Context;
use crate::event::Events;
use crate::handshake::fast_open_client::FastOpenClient;
use crate::open_params::OpenParams;
use crate::segment::Segment;
use crate::send::Fin;
use crate::state::State;
use crate::timer::Timer;

/// The parameters of the answer to a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenAnswer {
    /// The option of the SYN-ACK: a cookie for the next time.
    pub option: Option<FastOpenOption>,
    /// The connection is early: the data of the SYN is accepted, and the application may read it.
    pub early: bool,
}

impl Connection {
    /// As [`accept`](Self::accept), with the parameters of Fast Open.
    pub fn accept_with(
        cx: &Context,
        params: OpenParams,
        syn: &Segment,
        answer: FastOpenAnswer,
    ) -> Connection {
        let mut conn = Connection::accept(cx, params, syn);
        conn.fast_open = answer.option.map(|option| Box::new(FastOpenClient::answering(option)));
        if answer.early {
            conn.begin_early(cx, syn);
        }
        conn.debug_invariants();
        conn
    }

    /// Whether the application may read and write before the handshake is complete.
    pub fn is_early(&self) -> bool {
        self.state == State::SynReceived && self.handshake.early
    }

    /// An application has accepted the connection from its listener's queue. From then on, path
    /// errors do not end an [early](Self::is_early) connection.
    pub fn adopt(&mut self) {
        self.handshake.adopted = true;
    }

    fn begin_early(&mut self, cx: &Context, syn: &Segment) {
        self.handshake.early = true;
        self.snd.begin_early();
        let parts = self.conn_parts(cx);
        self.snd.flight.on_established(cx, &self.snd.view(cx, &parts), (None, false));
        self.snd.expand_buffer(cx.config, &self.options);
        self.take_syn_data(cx, syn);
    }

    fn take_syn_data(&mut self, cx: &Context, syn: &Segment) {
        if self.rcv.take_syn_data(cx.now, &self.pool, syn) {
            self.stats.segs_in += u64::from(syn.segs);
            self.handshake.syn_data_acked = true;
            self.events.insert(Events::READABLE);
        }
        self.events.insert(Events::WRITABLE);
    }

    /// The option of the SYN-ACK that leaves now.
    pub(crate) fn take_fast_open_answer(&mut self) -> Option<FastOpenOption> {
        if self.state != State::SynReceived || !self.handshake.is_passive() {
            return None;
        }
        self.fast_open.take()?.offer().filter(|_| self.handshake.sent == 0)
    }

    /// Whether our FIN may leave after the queued data. As on Linux, that of a shutdown waits for
    /// the end of the handshake, and that of a close does not.
    pub(crate) fn fin_is_due(&self) -> bool {
        self.snd.fin() == Fin::Queued && (self.orphan || !self.is_early())
    }

    /// The SYN-ACK leaves for the third time: the data after it is considered lost, and is
    /// retransmitted when the handshake has ended.
    pub(crate) fn lose_early_data(&mut self, cx: &Context) {
        if self.is_early() && self.handshake.retries == 1 {
            let parts = self.conn_parts(cx);
            let effects = self.snd.flight.on_third_syn_ack(cx, &self.snd.view(cx, &parts));
            self.on_cwr(effects.cwr);
        }
    }

    /// The SYN of an early connection came again: as a plain one, it is before the window.
    pub(crate) fn is_repeated_early_syn(&self, cx: &Context, seg: &Segment) -> bool {
        self.is_early()
            && self.rcv.is_repeated_syn(seg)
            && !self.ts.paws_rejects(cx.now, seg.repr.options.timestamps)
    }

    /// The handshake of an early connection is complete: `seg` acknowledges our SYN, and perhaps
    /// some of the data after it.
    pub(crate) fn finish_early(&mut self, cx: &Context, seg: &Segment) {
        let crossed = !self.handshake.is_passive();
        let sample = self.handshake.round_trip(cx.now, &self.ts, (seg, crossed));
        self.timers.stop(Timer::Retransmit);
        self.pending.syn = false;
        let parts = self.conn_parts(cx);
        self.snd.on_early_syn_acked(cx, &parts, self.handshake.retries > 1);
        self.set_state(cx, State::Established);
        if self.snd.fin() != Fin::None {
            self.set_state(cx, State::FinWait1);
        }
        // The data in flight has no timer yet, and the ACK may leave all of it in flight.
        let parts = self.conn_parts(cx);
        self.snd.flight.on_early_handshake_done(cx, &self.snd.view(cx, &parts));
        self.sync_retransmission_timer();
        let news = seg.repr.ack != self.snd.una() || !seg.repr.options.sack().is_empty();
        if news {
            self.on_ack(cx, seg);
        } else {
            let wnd = u32::from(seg.repr.window) << self.snd.wscale();
            self.snd.take_window(wnd, seg.repr.seq, seg.repr.ack);
        }
        if let Some(rtt) = sample {
            let parts = self.conn_parts(cx);
            self.snd.flight.on_early_handshake_sample(cx, &self.snd.view(cx, &parts), rtt);
        }
        let parts = self.conn_parts(cx);
        self.snd.flight.restart_timeout(cx, &self.snd.view(cx, &parts));
        self.sync_retransmission_timer();
    }
}

#[cfg(test)]
mod tests;
