//! How far segments overtake each other on the way, and duplicates without SACK.
//!
//! A segment that was never sent again and arrives after later ones shows by how many segments they
//! overtook it. A connection remembers the largest such distance (`tcpi_reordering`): duplicate
//! ACKs below it do not mean loss.

use plimsoll_wire::SeqNum;

use super::{Phase, Recovery};
use crate::config::Config;
use crate::connection::Connection;
use crate::context::Context;
use crate::counters::Counter;
use crate::send::scoreboard::RenoSacks;

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
        self.snd.scoreboard.sacked_out()
    }

    /// One behind the highest number that the peer is known to hold.
    pub(crate) fn highest_sacked(&self) -> SeqNum {
        self.snd.scoreboard.highest_sacked().unwrap_or(self.snd.una())
    }

    /// What begins at `low` arrived late. `by_timestamp`: a timestamp tells.
    pub(crate) fn check_reordering(&mut self, cx: &Context, low: SeqNum, by_timestamp: bool) {
        let high = self.highest_sacked();
        if high <= low {
            return;
        }
        let mss = u32::from(self.snd.mss().max(1));
        let distance = high.since(low);
        if distance > u32::from(self.snd.recovery.reordering) * mss {
            self.snd.recovery.learn_reordering(distance.div_ceil(mss), cx.config);
        }
        self.snd.recovery.reord_seen = self.snd.recovery.reord_seen.saturating_add(1);
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
        let told = self.snd.scoreboard.add_reno_sacks(dupacks);
        self.check_reno_reordering(cx, told, 0);
        self.count_delivered(cx, told.delivered, ece);
    }

    /// Without SACK: `acked` segments are acknowledged, some of which duplicate ACKs stood for.
    pub(crate) fn remove_reno_sacks(&mut self, cx: &Context, acked: u32, ece: bool) {
        let told = self.snd.scoreboard.remove_reno_sacks(acked);
        self.count_delivered(cx, told.delivered, ece);
        self.check_reno_reordering(cx, told, acked);
    }

    /// More duplicates than segments that can have arrived: some were reordered.
    fn check_reno_reordering(&mut self, cx: &Context, told: RenoSacks, acked: u32) {
        if !told.reordered {
            return;
        }
        self.snd.recovery.learn_reordering(self.snd.scoreboard.packets_out() + acked, cx.config);
        self.snd.recovery.reord_seen = self.snd.recovery.reord_seen.saturating_add(1);
        cx.counters.bump(Counter::TcpRenoReorder);
    }

    /// So many segments have arrived for the first time.
    pub(crate) fn count_delivered(&mut self, cx: &Context, segs: u32, ece: bool) {
        self.snd.stats.delivered = self.snd.stats.delivered.wrapping_add(segs);
        cx.counters.add(Counter::TcpDelivered, u64::from(segs));
        if ece {
            self.snd.stats.delivered_ce = self.snd.stats.delivered_ce.wrapping_add(segs);
            cx.counters.add(Counter::TcpDeliveredCe, u64::from(segs));
        }
    }

    /// Whether a late arrival may be told from the order of the SACK blocks.
    pub(crate) fn may_learn_from_sack(&self) -> bool {
        self.snd.recovery.phase != Phase::Loss || self.snd.recovery.undo.marker.is_some()
    }
}
