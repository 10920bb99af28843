//! What news of the path does to a connection.

use plimsoll_wire::tcp::MD5_OPTION_LEN;

use super::{PathEvent, TIMESTAMP_OPTION_LEN};
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::event::ConnectionError;
use crate::state::State;

impl Connection {
    /// Recomputes SND.MSS from path, peer and options.
    pub(crate) fn sync_mss(&mut self, cx: &Context) {
        let times = if self.ts.enabled { TIMESTAMP_OPTION_LEN } else { 0 };
        let option = times + if self.is_signed() { MD5_OPTION_LEN as u16 } else { 0 };
        let mss = self.path.send_mss(cx.config.tcp_min_snd_mss.max(option + 8));
        self.snd.set_mss(mss - option);
    }

    pub(crate) fn on_path_event(&mut self, cx: &Context, event: PathEvent) {
        match event {
            PathEvent::Mtu(mtu) => self.on_mtu(cx, mtu),
            PathEvent::Link(mtu) if mtu > self.path.mtu => self.on_longer_mtu(cx, mtu),
            PathEvent::Link(mtu) => self.on_mtu(cx, mtu),
            PathEvent::SoftError(error) => self.on_soft_error(cx, error),
            PathEvent::HardError(error) => self.fail(cx, error),
        }
    }

    fn on_mtu(&mut self, cx: &Context, mtu: u16) {
        let ended = matches!(self.state, State::Closed | State::TimeWait);
        if ended || !self.path.lower_mtu(mtu) {
            return;
        }
        cx.counters.bump(Counter::TcpMtupFail);
        let old = self.snd.mss();
        self.sync_mss(cx);
        if self.state == State::SynSent {
            self.path.lower_advmss();
            self.on_syn_too_big(cx);
            return;
        }
        if self.snd.mss() < old {
            let parts = self.conn_parts(cx);
            self.snd.on_mss_lowered(cx, &parts);
        }
    }

    /// Segments grow up to what the peer takes. What is in flight stays as it is cut.
    fn on_longer_mtu(&mut self, cx: &Context, mtu: u16) {
        if matches!(self.state, State::Closed | State::TimeWait) {
            return;
        }
        self.path.mtu = mtu;
        self.sync_mss(cx);
    }

    fn on_soft_error(&mut self, cx: &Context, error: ConnectionError) {
        match self.state {
            State::SynReceived if self.is_adopted() => self.soft_error = Some(error),
            State::SynSent | State::SynReceived => self.fail(cx, error),
            State::TimeWait | State::Closed => {}
            _ => self.soft_error = Some(error),
        }
    }
}
