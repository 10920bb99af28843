//! The options of a SYN, and their effect on the connection.

use plimsoll_wire::tcp::{MAX_HEADER_LEN, SynOptions, SynOrSack, TcpOptions, Timestamps};

use crate::config::Config;
use crate::connection::Connection;
use crate::context::Context;
use crate::ecn::negotiation::Policy;
use crate::limits::MAX_WINDOW_SHIFT;
use crate::signature::room_for_digest;
use crate::state::State;

impl Connection {
    /// The options of our SYN or SYN-ACK. A SYN-ACK repeats only options of the SYN.
    pub(crate) fn syn_options(&mut self, cx: &Context) -> TcpOptions {
        let offer = self.state == State::SynSent;
        let answer = self.take_fast_open_answer();
        // A SYN that is retransmitted has no such option.
        let first = offer && self.handshake.sent == 0;
        let open = self.fast_open.as_ref().filter(|_| first);
        let config = cx.config;
        let wanted = config.tcp_timestamps && self.options.md5_key.is_none();
        let timestamps = if offer { wanted } else { self.ts.enabled };
        let scaling = if offer { config.tcp_window_scaling } else { self.handshake.window_scaling };
        let mut options = TcpOptions {
            timestamps: timestamps
                .then(|| Timestamps { val: self.ts.val(cx.now), ecr: self.ts.recent }),
            md5: room_for_digest(self.md5_key()),
            syn_or_sack: SynOrSack::Syn(SynOptions {
                mss: Some(self.path.advmss()),
                window_scale: scaling.then_some(self.handshake.shift),
                sack_permitted: if offer { config.tcp_sack } else { self.handshake.sack },
                fast_open: open.and_then(|open| open.offer()).or(answer),
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

    /// The ECN modes that are requested and accepted.
    pub(crate) fn ecn_policy(&self, config: &Config) -> Policy {
        let algorithm = self.snd.flight.cc().algorithm();
        Policy::new(config.tcp_ecn, algorithm, self.options.route.ecn)
    }

    /// Processes the options of the peer's SYN or SYN-ACK: an option is in use if both sides offer
    /// it.
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
            options.timestamps.filter(|_| config.tcp_timestamps && self.options.md5_key.is_none())
        {
            self.ts.enabled = true;
            self.ts.remember(cx.now, stamps);
        }
        self.sync_mss(cx);
    }
}
