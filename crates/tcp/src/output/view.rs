//! The inputs of a plan: all values that the gate, the cut and the tail decision may use.

use super::nagle::{NagleRule, SmallTail};
use super::small_queue::HostQueue;
use crate::config::TsoTail;
use crate::send::segmentation::Windows;
use crate::time::{Instant, Nanos};

/// A sender with data or a FIN that was never sent. All figures are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlanView {
    /// A full segment towards this peer.
    pub(crate) mss: u32,
    /// Bytes of waiting data, up to the end of its first unit: a packet never goes beyond.
    pub(crate) unsent: u32,
    /// More data waits after that.
    pub(crate) behind: bool,
    /// Our FIN follows the waiting data.
    pub(crate) fin: bool,
    /// The congestion window, and its free part. Whole segments.
    pub(crate) cwnd: u32,
    pub(crate) quota: u32,
    /// The room of the peer's window after SND.NXT.
    pub(crate) usable: u32,
    /// The Persist timer has fired: a silly window is used.
    pub(crate) force: bool,
    /// The largest packet that the layer below accepts.
    pub(crate) largest: u32,
    /// The bytes of the queue that fit into one packet as slices.
    pub(crate) contiguous: u32,
    /// Urgent data is unacknowledged.
    pub(crate) urgent: bool,
    /// TCP_NODELAY.
    pub(crate) nodelay: bool,
    /// TCP_CORK, or MSG_MORE on the last write.
    pub(crate) corked: bool,
    /// Neither Nagle's rule nor a cork holds this time.
    pub(crate) push_now: bool,
    /// The last write was cut short by the send buffer: its writer waits for space.
    pub(crate) short_write: bool,
    /// The policy for tails.
    pub(crate) policy: TsoTail,
    /// Nothing was unacknowledged when output began.
    pub(crate) was_idle: bool,
    /// An earlier packet that was not a multiple of the MSS is unacknowledged, and the bound of
    /// Nagle's rule has not passed: where that packet ends, counted from ISS.
    pub(crate) small_unacked: Option<u32>,
    /// When Nagle's rule holds no longer, if there is a bound that has not passed.
    pub(crate) nagle_ends: Option<Instant>,
    /// The departure time, if it has not come.
    pub(crate) departs: Option<Instant>,
    /// The packets below.
    pub(crate) below: HostQueue,
    /// Output follows a write that may be left to a completion.
    pub(crate) written: bool,
    /// Automatic corking is on.
    pub(crate) autocork: bool,
    /// A write may continue the waiting data.
    pub(crate) open: bool,
    /// The most of it for one packet.
    pub(crate) goal: u32,
    /// A probe of the path MTU is due, and enough waits for one.
    pub(crate) probe: Option<MtuProbeView>,
    /// The inputs of deferring only. Not set for less than a segment, nor for a probe.
    pub(crate) deferral: Deferral,
}

/// A probe of the path MTU. Both are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MtuProbeView {
    /// Its payload.
    pub(crate) len: u32,
    /// The same with the data that must follow it, so that its loss is found.
    pub(crate) needed: u32,
}

/// The inputs of [`tso_defer`](super::tso_defer) only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deferral {
    /// Waiting is allowed at all: it is enabled, and this is neither recovery nor a probe, nor data
    /// sent during a write.
    pub(crate) allowed: bool,
    /// `tcp_tso_win_divisor`.
    pub(crate) divisor: u32,
    /// SND.WND.
    pub(crate) wnd: u32,
    /// A record ends where the first unit ends.
    pub(crate) record: bool,
    /// Since data last left, or since the next packet may depart if that is later.
    pub(crate) since_sent: Nanos,
    /// When waiting is over, see [`tso_defer`](super::tso_defer).
    pub(crate) ends: Instant,
    /// Since the oldest data in flight left; nothing is in flight if there is none.
    pub(crate) age: Option<Nanos>,
    /// The smoothed round trip; zero before the first sample.
    pub(crate) srtt: Nanos,
}

impl PlanView {
    /// The windows by which everything is cut.
    #[inline(always)]
    pub(crate) fn windows(&self) -> Windows {
        let PlanView { mss, cwnd, quota, usable, .. } = *self;
        Windows { mss, cwnd, quota, usable }
    }

    /// Nagle's algorithm (`rule`) and a cork, applied to the fractional tail.
    #[inline(always)]
    pub(crate) fn small_tail(&self, rule: NagleRule) -> SmallTail {
        // Linux sends the written data before the writer sleeps. RFC 896 does not provide for it.
        let short_write = self.short_write && (rule == NagleRule::Minshall || self.was_idle);
        SmallTail {
            nodelay: self.nodelay,
            corked: self.corked,
            // Data in the middle of the queue cannot grow.
            bypass: self.push_now || short_write || self.urgent || self.fin || self.behind,
            unacked: !self.was_idle,
            small_unacked: self.small_unacked.is_some(),
        }
    }
}
