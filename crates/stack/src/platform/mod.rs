//! All differences between operating systems, except devices, which have their own modules.
//!
//! # Theory of operation
//!
//! A poller sleeps until one of its [`Event`]s is set, a device's descriptor is ready, or a time
//! has come ([`sleep`]). An event stays set until it is cleared. There are three implementations
//! with the same functions:
//!
//! | system | event | sleep |
//! |---|---|---|
//! | Linux, Android | `eventfd.rs`: an eventfd | `descriptors.rs`: `poll` |
//! | other Unix | `pair.rs`: a pair of sockets | `descriptors.rs`: `poll` |
//! | Windows and the rest | `bell.rs`: a mutex and a condition variable | `bell.rs`; devices kick |
//!
//! The tests check that all three behave the same, on Linux.

#[cfg(any(not(unix), test))]
mod bell;
#[cfg(unix)]
mod descriptors;
pub(crate) mod errno;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod eventfd;
#[cfg(all(unix, any(not(any(target_os = "linux", target_os = "android")), all(test, not(loom)))))]
mod pair;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) mod processors;

#[cfg(not(unix))]
pub(crate) use self::bell::{Event, sleep};
#[cfg(unix)]
pub(crate) use self::descriptors::sleep;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use self::eventfd::Event;
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) use self::pair::Event;

/// The descriptor of a device, on systems with descriptors that can be polled.
#[cfg(unix)]
pub(crate) type Descriptor = std::os::fd::OwnedFd;

/// There are none: devices wake their pollers through `Kick`.
#[cfg(not(unix))]
pub(crate) enum Descriptor {}

/// A descriptor of a device, and whether it is waited for until it is writable, too.
pub(crate) type Watched<'a> = (&'a Descriptor, bool);

#[cfg(all(test, not(loom)))]
mod tests;
