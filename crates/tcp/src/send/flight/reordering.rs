//! Reordering that is learnt: by how many segments the path reorders (section 2 of
//! docs/recovery.md, "Reordering that is learnt").

use crate::config::Config;

/// How far the path reorders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// DupThresh: segments by which reordering is expected, 1 at least.
    dup_thresh: u16,
    /// How often something arrived late.
    seen: u32,
}

impl Reordering {
    pub(super) fn new(config: &Config) -> Reordering {
        Reordering { dup_thresh: u16::from(config.tcp_reordering).max(1), seen: 0 }
    }

    /// DupThresh.
    pub(super) fn dup_thresh(&self) -> u32 {
        u32::from(self.dup_thresh)
    }

    /// How often something arrived late.
    pub(super) fn seen(&self) -> u32 {
        self.seen
    }

    /// Data arrived `distance` bytes below data that had arrived before.
    pub(super) fn on_late_bytes(&mut self, distance: u32, mss: u32, config: &Config) {
        self.seen = self.seen.saturating_add(1);
        let mss = mss.max(1);
        if u64::from(distance) > u64::from(self.dup_thresh) * u64::from(mss) {
            self.set(distance.div_ceil(mss), config);
        }
    }

    /// Without SACK: more duplicates than segments that can have arrived.
    pub(super) fn on_late_segments(&mut self, outstanding: u32, config: &Config) {
        self.seen = self.seen.saturating_add(1);
        self.set(outstanding, config);
    }

    /// A timeout: the SACKed segments were not reordered.
    pub(super) fn on_timeout(&mut self, config: &Config) {
        self.dup_thresh = self.dup_thresh.min(u16::from(config.tcp_reordering).max(1));
    }

    fn set(&mut self, segs: u32, config: &Config) {
        let segs = segs.min(u32::from(config.tcp_max_reordering));
        self.dup_thresh = u16::try_from(segs).unwrap_or(u16::MAX).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let config = Config::default();
        let cases = [
            (3000, 3, "not more than DupThresh"),
            (3001, 4, "rounded up"),
            (6000, 6, "six segments"),
            (900_000, 300, "at most tcp_max_reordering"),
        ];
        for (distance, expected, name) in cases {
            let mut learnt = Reordering::new(&config);
            learnt.on_late_bytes(distance, 1000, &config);
            assert_eq!((learnt.dup_thresh(), learnt.seen()), (expected, 1), "{name}");
        }
    }

    #[test]
    fn without_sack_it_may_fall() {
        let config = Config::default();
        let mut learnt = Reordering::new(&config);
        learnt.on_late_segments(2, &config);
        assert_eq!((learnt.dup_thresh(), learnt.seen()), (2, 1));
        learnt.on_late_segments(0, &config);
        assert_eq!(learnt.dup_thresh(), 1, "one at least");
        learnt.on_late_segments(9000, &config);
        assert_eq!(learnt.dup_thresh(), 300);
        learnt.on_timeout(&config);
        assert_eq!(learnt.dup_thresh(), 3);
    }
}
