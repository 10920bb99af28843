//! Kinds of readiness that tokio supports on some systems only.

use tokio::io::{Interest, Ready};

/// Urgent data has come.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) const PRIORITY: Ready = Ready::PRIORITY;

/// Urgent data has arrived. This system has no word for it, and waiting tasks must be notified.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) const PRIORITY: Ready = Ready::ERROR;

/// Whether `interest` includes urgent data.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn wants_priority(interest: Interest) -> bool {
    interest.is_priority()
}

/// Tokio cannot wait for urgent data alone here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn wants_priority(_interest: Interest) -> bool {
    false
}
