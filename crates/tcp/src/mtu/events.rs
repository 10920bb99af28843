//! Reports about the path, and their effect on a connection.

use plimsoll_wire::tcp::MD5_OPTION_LEN;

use super::{PathEvent, PathMtu, TIMESTAMP_OPTION_LEN};
use crate::connection::Connection;
use crate::context::Context;
use crate::event::ConnectionError;
use crate::state::State;
use crate::time::Nanos;

impl Connection {
    /// Recomputes SND.MSS from path, peer and options.
    pub(crate) fn sync_mss(&mut self, cx: &Context) {
        let option = self.every_option();
        let mss = self.path.send_mss(cx.config.tcp_min_snd_mss.max(option + 8));
        self.snd.set_mss(mss - option);
    }

    /// The handshake is complete, and so the MSS is known. If a search for the path MTU begins, the
    /// active side sends small segments at once; the passive side uses the MSS agreed in the SYNs
    /// until a probe or timeouts show more (as on Linux).
    pub(crate) fn settle_mss(&mut self, cx: &Context) {
        self.sync_mss(cx);
        if self.path.on_established(cx, self.every_option()) && !self.handshake.is_passive() {
            self.sync_mss(cx);
        }
    }

    /// The MSS has changed in the middle of a connection, perhaps.
    pub(crate) fn change_mss(&mut self, cx: &Context) {
        self.sync_mss(cx);
        self.snd.flight.set_smss(self.snd.segment_size());
    }

    /// Bytes of the options that every segment carries.
    pub(crate) fn every_option(&self) -> u16 {
        let times = if self.ts.enabled { TIMESTAMP_OPTION_LEN } else { 0 };
        times + if self.options.md5_key.is_some() { MD5_OPTION_LEN as u16 } else { 0 }
    }

    pub(crate) fn on_path_event(&mut self, cx: &Context, event: PathEvent) {
        match event {
            PathEvent::Mtu(mtu) => self.on_packet_too_big(cx, mtu, false),
            PathEvent::LockedMtu(mtu) => self.on_packet_too_big(cx, mtu, true),
            PathEvent::Link(known) => self.on_link_mtu(cx, known),
            PathEvent::SoftError(error) => self.on_soft_error(cx, error),
            PathEvent::HardError(error) => self.fail(cx, error),
        }
    }

    /// A router has reported an MTU, which is valid for some time. Once the MTU is locked, all
    /// reports are ignored.
    fn on_packet_too_big(&mut self, cx: &Context, mtu: u16, locks: bool) {
        if self.path.is_locked() {
            return;
        }
        if self.on_mtu(cx, mtu) || locks {
            let learnt = self.path.learnt();
            learnt.lowered_until = cx.now + Nanos::from(cx.config.mtu_expires);
            learnt.locked = locks;
        }
    }

    fn on_link_mtu(&mut self, cx: &Context, known: PathMtu) {
        if self.state.has_ended() {
            return;
        }
        let mtu = known.current();
        if mtu > self.path.mtu {
            self.raise_mtu(cx, mtu);
        } else {
            self.on_mtu(cx, mtu);
        }
        self.path.set_known(known);
    }

    /// The path carries `mtu` bytes at most. Returns whether that is news.
    fn on_mtu(&mut self, cx: &Context, mtu: u16) -> bool {
        let ended = self.state.has_ended();
        if ended || !self.path.lower_mtu(mtu) {
            return false;
        }
        self.sync_mss(cx);
        if self.state == State::SynSent {
            if self.options.route.advmss.is_none() {
                self.path.lower_advmss();
            }
            self.on_syn_too_big(cx);
        } else {
            // Also if the MSS is the same: a probe may be outstanding.
            let parts = self.conn_parts(cx);
            self.snd.flight.on_mss_lowered(cx, &self.snd.view(cx, &parts));
        }
        true
    }

    /// Segments grow up to the peer's limit, or a search for the path MTU continues from its
    /// present state. Data in flight stays as it is cut.
    fn raise_mtu(&mut self, cx: &Context, mtu: u16) {
        self.path.mtu = mtu;
        if !self.path.raise_search() {
            self.change_mss(cx);
        }
    }

    /// Must be called before new data is planned: a router's report is valid no longer than
    /// `mtu_expires` (RFC 1191, section 6.3).
    pub(crate) fn forget_old_mtu(&mut self, cx: &Context) {
        if let Some(mtu) = self.path.outdated(cx.now) {
            self.raise_mtu(cx, mtu);
        }
    }

    fn on_soft_error(&mut self, cx: &Context, error: ConnectionError) {
        match self.state {
            State::SynReceived if self.handshake.is_adopted() => self.soft_error = Some(error),
            State::SynSent | State::SynReceived => self.fail(cx, error),
            State::TimeWait | State::Closed => {}
            _ => self.soft_error = Some(error),
        }
    }
}
