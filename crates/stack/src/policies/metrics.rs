//! Metrics of peers, learnt from earlier connections and used by later ones (Linux: `tcp_metrics`).
//!
//! Kept per pair of addresses: the Fast Open cookie, the MSS that the peer announced with it, and
//! failures of Fast Open. Beyond [`MAX_METRICS_ENTRIES`] a new entry replaces the oldest. Whether a
//! middlebox drops Fast Open is kept for the whole stack.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use plimsoll_tcp::{Duration, FastOpen, Instant};
use plimsoll_wire::tcp::FastOpenOption;

use crate::flow::FlowKey;
use crate::limits::MAX_METRICS_ENTRIES;
use crate::policies::sysctl::Settings;
use crate::zone;

/// Bits of `net.ipv4.tcp_fastopen`.
pub(crate) const CLIENT_ENABLE: u32 = 1;
const CLIENT_NO_COOKIE: u32 = 4;

/// The pause doubles with every black hole that is found, this often.
const MOST_DOUBLINGS: u32 = 6;

/// The metrics of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The cookie that it gave last.
    cookie: Option<FastOpenOption>,
    /// The MSS that it announced when it last answered a Fast Open.
    mss: Option<u16>,
    /// The form in which it refused a cookie: 1 that of RFC 7413, 2 both.
    refused: u8,
    /// SYNs with data in a row that seem to have been dropped.
    syn_losses: u16,
    /// When the last of them was noticed.
    last_syn_loss: Option<Instant>,
}

/// The metrics of one peer, as `ip tcp_metrics show` prints them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMetrics {
    /// The local address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// The MSS that it announced when it last answered a Fast Open.
    pub mss: Option<u16>,
    /// The Fast Open cookie that it sent last.
    pub cookie: Option<FastOpenOption>,
    /// SYNs with data in a row that seem to have been dropped.
    pub syn_losses: u16,
    /// The time of the last of them.
    pub last_syn_loss: Option<Instant>,
}

/// The metrics of all peers.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    entries: BTreeMap<(IpAddr, IpAddr), Entry>,
    /// Pairs in the order in which they were learnt first.
    order: VecDeque<(IpAddr, IpAddr)>,
    pause: Pause,
}

/// The pause of Fast Open after a middlebox has dropped it.
#[derive(Debug, Default)]
struct Pause {
    /// Black holes found since Fast Open last worked.
    found: u32,
    /// When the last one was found.
    since: Instant,
    /// The setting's generation: results from before its last write do not count.
    generation: u32,
}

impl Pause {
    fn end(&self, timeout: Duration) -> Instant {
        self.since + timeout * (1 << (self.found.max(1) - 1).min(MOST_DOUBLINGS))
    }

    /// The setting was written: earlier results are dropped.
    fn follow(&mut self, generation: u32) {
        if self.generation != generation {
            *self = Pause { generation, ..Pause::default() };
        }
    }
}

impl Metrics {
    fn entry(&self, key: &FlowKey) -> Entry {
        self.entries.get(&(key.local, key.remote)).copied().unwrap_or_default()
    }

    /// Changes an entry, which is made if there is none.
    pub(crate) fn learn(&mut self, key: &FlowKey, change: impl FnOnce(&mut Entry)) {
        let pair = (key.local, key.remote);
        if !self.entries.contains_key(&pair) {
            self.order.push_back(pair);
            if self.order.len() > MAX_METRICS_ENTRIES
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
        }
        change(self.entries.entry(pair).or_default());
    }

    /// Records `cookie` as if the peer had sent it.
    #[cfg(test)]
    pub(crate) fn teach(&mut self, key: &FlowKey, cookie: Option<FastOpenOption>) {
        self.learn(key, |entry| entry.on_syn_ack(Instant::ZERO, (1460, cookie), false, 0));
    }

    /// The forms in which the peer refused a cookie.
    #[cfg(test)]
    pub(crate) fn refusals(&self, key: &FlowKey) -> u8 {
        self.entry(key).refused
    }

    pub(crate) fn flush(&mut self) {
        self.entries.clear();
        self.order.clear();
    }

    /// All that is known, by address.
    pub(crate) fn show(&self) -> Vec<PeerMetrics> {
        let show = |(&(local, remote), entry): (&(IpAddr, IpAddr), &Entry)| PeerMetrics {
            local: zone::bare(local),
            remote: zone::bare(remote),
            mss: entry.mss,
            cookie: entry.cookie,
            syn_losses: entry.syn_losses,
            last_syn_loss: entry.last_syn_loss,
        };
        self.entries.iter().map(show).collect()
    }

    /// Something has swallowed a Fast Open.
    pub(crate) fn note_black_hole(&mut self, now: Instant, generation: u32) {
        self.pause.follow(generation);
        self.pause.found = self.pause.found.saturating_add(1);
        self.pause.since = now;
    }

    /// Fast Open works.
    pub(crate) fn note_no_black_hole(&mut self) {
        self.pause.found = 0;
    }

    /// The Fast Open parameters for opening `key`.
    pub(crate) fn fast_open(
        &mut self,
        key: &FlowKey,
        now: Instant,
        settings: &Settings,
        no_cookie: bool,
    ) -> FastOpen {
        self.pause.follow(settings.tcp_fastopen_blackhole_generation);
        let timeout = settings.tcp_fastopen_blackhole_timeout;
        let found = self.pause.found > 0;
        let entry = self.entry(key);
        if found && now < self.pause.end(timeout) {
            return FastOpen { mss: entry.mss, ..FastOpen::default() };
        }
        let known = if no_cookie || settings.tcp_fastopen & CLIENT_NO_COOKIE != 0 {
            FastOpen { data: true, ..FastOpen::default() }
        } else if entry.cookie.is_some() {
            FastOpen { option: entry.cookie, data: true, ..FastOpen::default() }
        } else {
            FastOpen::request(entry.refused == 1)
        };
        FastOpen { mss: entry.mss, probing: found, ..known }
    }
}

impl Entry {
    /// Records the results of a SYN-ACK.
    pub(crate) fn on_syn_ack(
        &mut self,
        now: Instant,
        (mss, cookie): (u16, Option<FastOpenOption>),
        syn_lost: bool,
        refused: u8,
    ) {
        self.mss = Some(mss);
        if cookie.is_some() {
            self.cookie = cookie;
        } else if refused > self.refused && self.cookie.is_none() {
            self.refused = refused;
        }
        if syn_lost {
            self.syn_losses = self.syn_losses.saturating_add(1);
            self.last_syn_loss = Some(now);
        } else {
            self.syn_losses = 0;
        }
    }
}

#[cfg(test)]
mod tests;
