//! The exchange of peer metrics between connections and the cache (`policies/metrics.rs`).

use plimsoll_tcp::{Counter, FastOpen, FastOpenOutcome, Options};

use crate::flow::FlowKey;
use crate::policies::metrics::{CLIENT_ENABLE, PeerMetrics};
use crate::sockets::endpoint::Endpoint;
use crate::stack::Stack;
use crate::stack::work::Work;

impl Work<'_> {
    /// The Fast Open parameters for opening `key`.
    pub(crate) fn fast_open(&self, key: &FlowKey, options: &Options) -> FastOpen {
        let route = self.stack.interfaces.routes().metrics(key.remote);
        let no_cookie = options.fastopen_no_cookie || route.fastopen_no_cookie;
        self.stack.policies.metrics().fast_open(key, self.now, &self.settings, no_cookie)
    }

    /// Whether connections may open with Fast Open.
    pub(crate) fn fast_open_enabled(&self) -> bool {
        self.settings.tcp_fastopen & CLIENT_ENABLE != 0
    }

    /// Stores the outcome of an open with Fast Open.
    pub(crate) fn learn_fast_open(&self, endpoint: &Endpoint, outcome: FastOpenOutcome) {
        let now = self.now;
        let mut metrics = self.stack.policies.metrics();
        match outcome {
            FastOpenOutcome::SynAck { mss, cookie, syn_lost, refused } => {
                metrics.learn(&endpoint.key, |entry| {
                    entry.on_syn_ack(now, (mss, cookie), syn_lost, refused);
                });
            }
            FastOpenOutcome::Blackhole
                if self.settings.tcp_fastopen_blackhole_timeout.is_zero() => {}
            FastOpenOutcome::Blackhole => {
                metrics.note_black_hole(now, self.settings.tcp_fastopen_blackhole_generation);
                self.tcp().bump(Counter::TcpFastOpenBlackhole);
            }
            // Loopback has no middlebox, so the result reveals nothing.
            FastOpenOutcome::Works
                if endpoint.interface() == self.stack.interfaces.routes().loopback() => {}
            FastOpenOutcome::Works => metrics.note_no_black_hole(),
        }
    }
}

impl Stack {
    /// Forgets everything that was learnt about peers (`ip tcp_metrics flush`).
    pub fn flush_metrics(&self) {
        self.policies.metrics().flush();
    }

    /// The metrics of all peers (`ip tcp_metrics show`), by address.
    pub fn peer_metrics(&self) -> Vec<PeerMetrics> {
        self.policies.metrics().show()
    }
}
