//! Attacks on the program itself: its end, and its control socket.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::beside::resident;
use super::{Effort, Outcome};
use crate::harness::process::{Process, exits_within};
use crate::harness::world::{World, plimsoll_program};
use crate::peer::workload::cpu_seconds_of;

/// After which a signal counts as lost.
const LOST: Duration = Duration::from_secs(3);

/// How long a spin is watched.
const WATCHED: Duration = Duration::from_secs(3);

/// How often SIGTERM does not end a quiet `serve`.
pub(super) fn signal(effort: Effort) -> Result<Outcome> {
    let world = World::new()?;
    // Nothing of the kernel's own may wake the stack.
    world.ns.sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
    let mut lost = 0;
    for n in 0..effort.tries {
        let server = world.serve(&["discard:5001"])?;
        // The signal is to come at all points of the way from work to sleep.
        thread::sleep(Duration::from_micros(u64::from(n % 40) * 50));
        server.signal(Signal::TERM)?;
        lost += u32::from(!exits_within(server.id(), LOST)?);
    }
    let note = format!("{lost} of {} signals lost", effort.tries);
    Ok(Outcome { note, ..Outcome::default() })
}

/// Processor time after one query that found no free descriptor.
pub(super) fn control_spin(_: Effort) -> Result<Outcome> {
    let world = World::new()?;
    let server = world.serve(&["discard:5001"])?;
    let pid = server.id().to_string();
    let number = Pid::from_raw(server.id().cast_signed()).context("a process number")?;
    // What is open stays open; nothing can be opened any more.
    let limit = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Some(number), Resource::Nofile, limit).context("limiting descriptors")?;
    // It goes at once, or the control thread would wait for its question.
    drop(UnixStream::connect(control_socket(&pid)?).context("the control socket")?);
    let cpu = cpu_seconds_of(&pid);
    let start = Instant::now();
    thread::sleep(WATCHED);
    let cpu_seconds = cpu_seconds_of(&pid) - cpu;
    let share = cpu_seconds / start.elapsed().as_secs_f64() * 100.0;
    let note = format!("{share:.0} % of a processor while nothing happens");
    Ok(Outcome { cpu_seconds, resident_bytes: resident(&pid), note, ..Outcome::default() })
}

/// How long a query takes beside a client that says nothing.
pub(super) fn silent_control(_: Effort) -> Result<Outcome> {
    let world = World::new()?;
    let server = world.serve(&["discard:5001"])?;
    let pid = server.id().to_string();
    let alone = query(&pid)?;
    let _silent = UnixStream::connect(control_socket(&pid)?).context("the control socket")?;
    let beside = query(&pid)?;
    let note = format!("a query takes {alone}, beside the silent client {beside}");
    Ok(Outcome { resident_bytes: resident(&pid), note, ..Outcome::default() })
}

/// How long `plimsoll ss` takes, and whether it fails.
fn query(pid: &str) -> Result<String> {
    let mut command = Command::new(plimsoll_program()?);
    command.args(["ss", "--pid", pid]);
    let start = Instant::now();
    let process = Process::spawn("plimsoll ss", command.stdin(Stdio::null()))?;
    let ended = process.wait(Duration::from_secs(30))?;
    let failed = if ended.status.success() { "" } else { " and fails" };
    Ok(format!("{:.3} s{failed}", start.elapsed().as_secs_f64()))
}

/// Where the control socket of a process is: in a folder of this user, named after the process.
fn control_socket(pid: &str) -> Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let user = rustix::process::getuid().as_raw();
    let folders = [
        runtime.map(|folder| PathBuf::from(folder).join("plimsoll")),
        Some(PathBuf::from(format!("/tmp/plimsoll-{user}"))),
    ];
    for folder in folders.into_iter().flatten() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.split(|c: char| !c.is_ascii_digit()).any(|part| part == pid) {
                return Ok(entry.path());
            }
        }
    }
    anyhow::bail!("process {pid} has no control socket")
}
