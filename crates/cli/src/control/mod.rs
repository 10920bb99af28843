//! The control socket: how `nstat`, `sysctl` and `ss` ask a running plimsoll process.
//!
//! A process that runs a stack listens on a Unix socket named after its process number, in a
//! directory that only its user may enter. A client connects, sends one line of JSON and gets one
//! line of JSON back; then it may send the next. See [`protocol`] for the lines.
//!
//! Limits: a line holds about [`protocol::MAX_LINE`] bytes at most.

pub(crate) mod client;
pub(crate) mod protocol;
pub(crate) mod server;

use std::path::PathBuf;

use rustix::process::getuid;

/// The directories where control sockets may be, the preferred one first.
pub(crate) fn directories() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        directories.push(PathBuf::from(runtime).join("plimsoll"));
    }
    directories.push(PathBuf::from(format!("/tmp/plimsoll-{}", getuid().as_raw())));
    directories
}
