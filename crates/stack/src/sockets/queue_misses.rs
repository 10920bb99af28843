//! Whether a connection's data comes by another queue than the connection is at home in.

use plimsoll_tcp::Instant;

use crate::limits::{HOME_LEAST_MS, STRAYS};

/// Data that has come by other queues, and when the connection moved last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strays {
    /// Segments with data in a row.
    count: u8,
    /// In milliseconds, modulo 2^16: once a minute a connection may have to wait for some more.
    moved: u16,
}

impl Strays {
    /// Data has come by the connection's own queue.
    pub(crate) fn at_home(&mut self) {
        self.count = 0;
    }

    /// Data has come by another one, `now`. Returns whether the connection is to move there, if it
    /// can.
    #[must_use]
    pub(crate) fn elsewhere(&mut self, now: Instant) -> bool {
        self.count = self.count.saturating_add(1);
        let stayed = (now.as_millis() as u16).wrapping_sub(self.moved);
        self.count >= STRAYS && stayed >= HOME_LEAST_MS
    }

    /// It has moved.
    pub(crate) fn moved(&mut self, now: Instant) {
        *self = Strays { count: 0, moved: now.as_millis() as u16 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_in_a_row_and_not_too_often() {
        let mut strays = Strays::default();
        let now = Instant::from_millis(1000);
        assert!(!strays.elsewhere(now));
        strays.at_home();
        assert!((1..STRAYS).all(|_| !strays.elsewhere(now)) && strays.elsewhere(now));
        strays.moved(now);
        assert!((0..=STRAYS).all(|_| !strays.elsewhere(now)), "it has moved just now");
        assert!(strays.elsewhere(Instant::from_millis(1000 + u64::from(HOME_LEAST_MS))));
    }
}
