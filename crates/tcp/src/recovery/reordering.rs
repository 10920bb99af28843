//! How far segments overtake each other on the way, and duplicates without SACK.
//!
//! A segment that was never sent again and arrives after later ones shows by how many segments they
//! overtook it. A connection remembers the largest such distance (`tcpi_reordering`): duplicate
//! ACKs below it do not mean loss.

use plimsoll_wire::SeqNum;

use super::{Phase, Recovery};
use crate::config::Config;
use crate::connection::{Connection, Context};
use crate::counters::Counter;

impl Recovery {
    /// Segments are overtaken by as many as `distance` others.
    fn learn_reordering(&mut self, distance: u32, config: &Config) {
        let bound = u32::from(config.tcp_max_reordering);
        self.reordering = u16::try_from(distance.min(bound)).unwrap_or(u16::MAX).max(1);
    }
}

impl Connection {
    /// Segments that the peer is known to hold beyond SND.UNA.
    pub(crate) fn sacked_out(&self) -> u32 {
        if self.handshake.sack { self.snd.rtx.sacked() } else { self.recovery.reno_sacked }
    }

    /// One behind the highest number that the peer is known to hold.
    pub(crate) fn highest_sacked(&self) -> SeqNum {
        if self.snd.rtx.sacked() == 0 { self.snd.una } else { self.snd.rtx.highest_sacked }
    }

    /// What begins at `low` arrived late. `by_timestamp`: a timestamp tells.
    pub(crate) fn check_reordering(&mut self, cx: &Context, low: SeqNum, by_timestamp: bool) {
        let high = self.highest_sacked();
        if high <= low {
            return;
        }
        let mss = u32::from(self.snd.mss.max(1));
        let distance = high.since(low);
        if distance > u32::from(self.recovery.reordering) * mss {
            self.recovery.learn_reordering(distance.div_ceil(mss), cx.config);
        }
        self.recovery.reord_seen = self.recovery.reord_seen.saturating_add(1);
        cx.counters.bump(match by_timestamp {
            true => Counter::TcpTsReorder,
            false => Counter::TcpSackReorder,
        });
    }

    /// Without SACK: so many more duplicates, each of which stands for a segment that arrived.
    pub(crate) fn add_reno_sacks(&mut self, cx: &Context, dupacks: u32, ece: bool) {
        if dupacks == 0 {
            return;
        }
        let before = self.recovery.reno_sacked;
        self.recovery.reno_sacked = before.saturating_add(dupacks);
        self.check_reno_reordering(cx, 0);
        self.count_delivered(cx, self.recovery.reno_sacked.saturating_sub(before), ece);
    }

    /// Without SACK: `acked` segments are acknowledged. One filled the hole, and the others are
    /// those that duplicates had told of.
    pub(crate) fn remove_reno_sacks(&mut self, cx: &Context, acked: u32, ece: bool) {
        if acked > 0 {
            let sacked = self.recovery.reno_sacked;
            self.count_delivered(cx, acked.saturating_sub(sacked).max(1), ece);
            self.recovery.reno_sacked = sacked.saturating_sub(acked - 1);
        }
        self.check_reno_reordering(cx, acked);
    }

    /// More duplicates than segments that can have arrived: some were reordered.
    fn check_reno_reordering(&mut self, cx: &Context, acked: u32) {
        let packets = self.snd.rtx.packets;
        let holes = self.snd.rtx.lost().max(1).min(packets);
        if self.recovery.reno_sacked + holes <= packets {
            return;
        }
        self.recovery.reno_sacked = packets - holes;
        self.recovery.learn_reordering(packets + acked, cx.config);
        self.recovery.reord_seen = self.recovery.reord_seen.saturating_add(1);
        cx.counters.bump(Counter::TcpRenoReorder);
    }

    /// So many segments have arrived for the first time.
    pub(crate) fn count_delivered(&mut self, cx: &Context, segs: u32, ece: bool) {
        self.stats.delivered = self.stats.delivered.wrapping_add(segs);
        cx.counters.add(Counter::TcpDelivered, u64::from(segs));
        if ece {
            self.stats.delivered_ce = self.stats.delivered_ce.wrapping_add(segs);
            cx.counters.add(Counter::TcpDeliveredCe, u64::from(segs));
        }
    }

    /// Whether a late arrival may be told from the order of the SACK blocks.
    pub(crate) fn may_learn_from_sack(&self) -> bool {
        self.recovery.phase != Phase::Loss || self.recovery.undo.marker.is_some()
    }
}
