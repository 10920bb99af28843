//! Shell lines, run for real in the namespace of this thread.

use std::path::Path;
use std::process::Command as Program;

use super::{DEVICE, run};
use crate::host::HostError;
use crate::shell::Command;

/// Runs shell lines with the machine's shell, as the original tool does.
pub(super) fn shell(text: &str, folder: Option<&Path>) -> Result<(), HostError> {
    let mut program = Program::new("sh");
    // Helper scripts name files after it.
    program.args(["-c", text]).env("PACKETDRILL_PID", std::process::id().to_string());
    // A script without a folder in its path lies in the current one.
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
        program.current_dir(folder);
    }
    let line = || text.trim().lines().next().unwrap_or_default().to_string();
    let out = program.output().map_err(|error| HostError(format!("{}: {error}", line())))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(HostError(format!("`{}` ended with {}: {}", line(), out.status, said.trim())))
}

/// Does what a translated shell line asks, as far as it is no matter of the shell.
pub(super) fn apply(command: &Command) -> Result<(), HostError> {
    match command {
        Command::Sysctl { name, value } => sysctl(name, value),
        Command::FlushMetrics => run("ip", &["tcp_metrics", "flush", "all"]),
        Command::LinkMtu(mtu) => run("ip", &["link", "set", DEVICE, "mtu", &mtu.to_string()]),
        other => Err(HostError(format!("{other:?} is a matter of the shell"))),
    }
}

/// Writes a setting below `/proc/sys`, which shows the namespace of the thread that opens it.
fn sysctl(name: &str, value: &str) -> Result<(), HostError> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&path, value).map_err(|error| HostError(format!("{path}: {error}")))
}
