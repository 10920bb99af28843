//! The glue code of loss recovery: its inputs, and the consequences of its decisions. The rules are
//! in `send/flight/`.

use crate::connection::Connection;
use crate::context::Context;
use crate::keepalive::user_timeout;
use crate::send::ConnParts;
use crate::send::flight::{Cwr, PeerView};
use crate::state::State;
use crate::timer::Timer;

impl Connection {
    /// The parts of the connection outside the send half that loss recovery reads.
    pub(crate) fn conn_parts(&self, cx: &Context) -> ConnParts {
        ConnParts {
            state: self.state,
            sack: self.handshake.sack,
            ecn: self.ecn.tells_reductions(),
            paced: self.snd.is_paced(&cx.below, &self.options),
            ts: self.ts,
            mtu_probe: self.path.probe(),
            peer: PeerView {
                orphan: self.orphan,
                soft_error: self.soft_error.is_some(),
                user_timeout: user_timeout(&self.options),
                last_heard: self.keepalive.last_rx,
            },
        }
    }

    /// Sets the retransmission timer to recovery's deadline. Until the handshake is complete, the
    /// timer belongs to the SYN.
    pub(crate) fn sync_retransmission_timer(&mut self) {
        if !self.state.is_synchronized() || self.state == State::TimeWait {
            return;
        }
        match self.snd.flight.deadline() {
            Some(at) => self.timers.arm(Timer::Retransmit, at),
            None => self.timers.stop(Timer::Retransmit),
        }
    }

    /// The timer of retransmission fired.
    pub(crate) fn on_retransmission_timeout(&mut self, cx: &Context) {
        if !self.state.is_synchronized() {
            self.on_syn_timeout(cx);
            return;
        }
        let parts = self.conn_parts(cx);
        let retries = self.snd.flight.retries();
        let effects = self.snd.flight.on_timer(cx, &self.snd.view(cx, &parts));
        if effects.black_hole && self.path.on_black_hole(cx, self.every_option()) {
            self.change_mss(cx);
        }
        self.sync_retransmission_timer();
        self.on_cwr(effects.cwr);
        if let Some(open) = &mut self.fast_open
            && (effects.give_up || retries < self.snd.flight.retries())
        {
            open.on_timeout(retries, effects.give_up);
        }
        if effects.give_up {
            self.give_up(cx);
        } else if let Some(since) = effects.user_timeout_since {
            self.watch_user_timeout(cx, since);
        }
    }

    /// The user timeout has passed since the data at the front left, or since the window closed.
    pub(crate) fn on_user_timeout(&mut self, cx: &Context) {
        if user_timeout(&self.options).is_some() {
            self.give_up(cx);
        }
    }

    /// Applies recovery's treatment of the CWR flag of the next new data.
    pub(crate) fn on_cwr(&mut self, cwr: Option<Cwr>) {
        match cwr {
            Some(Cwr::Queue) => self.ecn.queue_cwr(),
            Some(Cwr::Withdraw) => self.ecn.withdraw_cwr(),
            None => {}
        }
    }
}
