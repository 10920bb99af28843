//! Shell lines, done for real in the namespace of this thread.

use crate::host::HostError;
use crate::shell::Command;

/// Does what a shell line asks.
pub(super) fn apply(command: &Command) -> Result<(), HostError> {
    match command {
        Command::Sysctl { name, value } => sysctl(name, value),
    }
}

/// Writes a setting below `/proc/sys`, which shows the namespace of the thread that opens it.
fn sysctl(name: &str, value: &str) -> Result<(), HostError> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&path, value).map_err(|error| HostError(format!("{path}: {error}")))
}
