//! All that differs between operating systems, for the sockets and the [`Driver`](crate::net)'s
//! task. How a thread sleeps is the stack's (`crates/stack/src/platform`).

mod files;

#[cfg(feature = "tokio")]
mod readiness;
#[cfg(feature = "tokio")]
mod runtime_alarm;
#[cfg(all(feature = "tokio", any(target_os = "linux", target_os = "android")))]
mod timerfd;
#[cfg(all(feature = "tokio", unix))]
#[path = "descriptors.rs"]
mod watcher;
#[cfg(all(feature = "tokio", not(unix)))]
#[path = "no_descriptors.rs"]
mod watcher;

pub(crate) use self::files::read_at;
#[cfg(feature = "tokio")]
pub(crate) use self::readiness::{PRIORITY, wants_priority};
#[cfg(feature = "tokio")]
pub(crate) use self::runtime_alarm::RuntimeAlarm;
/// Where there are no timers with descriptors, the runtime's is all there is.
#[cfg(all(feature = "tokio", not(any(target_os = "linux", target_os = "android"))))]
pub(crate) use self::runtime_alarm::RuntimeAlarm as PreciseAlarm;
#[cfg(all(feature = "tokio", any(target_os = "linux", target_os = "android")))]
pub(crate) use self::timerfd::PreciseAlarm;
#[cfg(feature = "tokio")]
pub(crate) use self::watcher::DeviceWatcher;

/// Whether other devices are watched than before.
#[cfg(feature = "tokio")]
#[derive(Default, PartialEq, Eq)]
pub(crate) enum Watch {
    #[default]
    Same,
    Changed,
}

/// Whether an alarm that was set will go off.
#[cfg(feature = "tokio")]
#[derive(PartialEq, Eq)]
pub(crate) enum Alarm {
    Later,
    /// Its time has come already.
    Due,
}
