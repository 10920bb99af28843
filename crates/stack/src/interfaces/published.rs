//! Values that the holder of a device's half publishes, so that other threads read them without the
//! token: the time at which the device must be polled, and its statistics.
//!
//! Only the holder writes, by plain stores. A reader may get figures of different packets; they are
//! exact once the holder has released the token.

use std::sync::atomic::Ordering;

use plimsoll_tcp::Instant;
use portable_atomic::AtomicU64;

use crate::device::DeviceStats;

/// A deadline, or none.
#[derive(Debug)]
pub(crate) struct Deadline(AtomicU64);

impl Deadline {
    pub(crate) fn none() -> Deadline {
        Deadline(AtomicU64::new(Instant::FAR_FUTURE.as_nanos()))
    }

    pub(crate) fn get(&self) -> Option<Instant> {
        let at = Instant::from_nanos(self.0.load(Ordering::Relaxed));
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// Publishes another deadline. Returns it if it is earlier than the previous one, which a
    /// sleeping poller may rely on.
    pub(crate) fn set(&self, at: Option<Instant>) -> Option<Instant> {
        let before = self.0.load(Ordering::Relaxed);
        let nanos = at.unwrap_or(Instant::FAR_FUTURE).as_nanos();
        if nanos != before {
            self.0.store(nanos, Ordering::Relaxed);
        }
        at.filter(|_| nanos < before)
    }
}

macro_rules! figures {
    ($($field:ident)*) => {
        /// The statistics of a half.
        #[derive(Debug, Default)]
        pub(crate) struct Figures {
            $($field: AtomicU64,)*
        }

        impl Figures {
            pub(crate) fn get(&self) -> DeviceStats {
                DeviceStats { $($field: self.$field.load(Ordering::Relaxed),)* }
            }

            pub(crate) fn set(&self, stats: &DeviceStats) {
                $(self.$field.store(stats.$field, Ordering::Relaxed);)*
            }
        }
    };
}

figures! {
    packets bytes super_segments wire_segments dropped errors duplicated reordered corrupted
    software_gso offloads_refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_deadline_is_published() {
        let deadline = Deadline::none();
        let at = |millis| Some(Instant::from_millis(millis));
        assert_eq!(deadline.set(at(5)), at(5));
        assert_eq!(deadline.set(at(6)), None);
        assert_eq!(deadline.get(), at(6));
        assert_eq!(deadline.set(at(4)), at(4));
        assert_eq!(deadline.set(None), None);
        assert_eq!(deadline.get(), None);
    }

    #[test]
    fn figures_keep_their_places() {
        let stats = DeviceStats {
            packets: 1,
            bytes: 2,
            super_segments: 3,
            wire_segments: 4,
            dropped: 5,
            errors: 6,
            duplicated: 7,
            reordered: 8,
            corrupted: 9,
            software_gso: 10,
            offloads_refused: 11,
        };
        let figures = Figures::default();
        figures.set(&stats);
        assert_eq!(figures.get(), stats);
    }
}
