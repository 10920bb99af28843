//! What a SYN offers and what an offer makes of the connection.

use plimsoll_wire::tcp::{MAX_HEADER_LEN, SynOptions, SynOrSack, TcpOptions, Timestamps};

use crate::connection::Connection;
use crate::context::Context;
use crate::limits::MAX_WINDOW_SHIFT;
use crate::state::State;

impl Connection {
    /// The options of our SYN or SYN-ACK. A SYN-ACK repeats only what the SYN offered.
    pub(crate) fn syn_options(&mut self, cx: &Context) -> TcpOptions {
        let offer = self.state == State::SynSent;
        let answer = self.take_fast_open_answer();
        let config = cx.config;
        let wanted = config.tcp_timestamps && !self.is_signed();
        let timestamps = if offer { wanted } else { self.ts.enabled };
        let scaling = if offer { config.tcp_window_scaling } else { self.handshake.window_scaling };
        let mut options = TcpOptions {
            timestamps: timestamps
                .then(|| Timestamps { val: self.ts.val(cx.now), ecr: self.ts.recent }),
            md5: self.md5_option(),
            syn_or_sack: SynOrSack::Syn(SynOptions {
                mss: Some(self.path.advmss()),
                window_scale: scaling.then_some(self.handshake.shift),
                sack_permitted: if offer { config.tcp_sack } else { self.handshake.sack },
                fast_open: self.fast_open_option().or(answer),
            }),
            acc_ecn: None,
        };
        if !offer {
            let space = options.acc_ecn_space(MAX_HEADER_LEN);
            let before = self.handshake.sent;
            options.acc_ecn =
                space.and_then(|space| self.ecn.syn_ack_option(before, cx.config, space));
        }
        options
    }

    /// Takes the options of the peer's SYN or SYN-ACK: in use is what both sides want.
    pub(crate) fn on_syn_options(&mut self, cx: &Context, options: &TcpOptions) {
        let config = cx.config;
        if let Some(mss) = options.syn().mss {
            self.path.peer_mss = mss.max(1);
        }
        self.handshake.sack = config.tcp_sack && options.syn().sack_permitted;
        let scale = options.syn().window_scale.filter(|_| config.tcp_window_scaling);
        self.handshake.window_scaling = scale.is_some();
        self.snd.set_wscale(scale.map_or(0, |shift| shift.min(MAX_WINDOW_SHIFT)));
        let shift = scale.map_or(0, |_| self.handshake.shift);
        self.rcv.negotiate(shift, self.handshake.sack);
        if let Some(stamps) =
            options.timestamps.filter(|_| config.tcp_timestamps && !self.is_signed())
        {
            self.ts.enabled = true;
            self.ts.remember(cx.now, stamps);
        }
        self.sync_mss(cx);
    }
}
