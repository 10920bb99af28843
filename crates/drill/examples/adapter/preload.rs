//! What bypasses the table: functions that stand in for the C library's when this library is also
//! preloaded, and the host that the adapter drives.
//!
//! - `getsockopt`: the tool reads `TCP_INFO` for its code blocks with it.
//! - `sendfile`: the tool has no entry for it in the table.
//! - `system`: the tool runs the shell lines of scripts with it. They must reach this stack, not
//!   the machine's kernel, so no shell is started; they are translated as the project's own runner
//!   translates them, and one that is not understood fails.
//! - `mlockall`: the tool wants all its memory locked for the sake of a real clock, which only root
//!   may ask for. The clock is virtual here.

use std::ffi::{CStr, c_char};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command as Program;

use libc::{c_int, c_long, c_void, off_t, size_t, socklen_t, ssize_t};
use plimsoll_drill::embedded::EmbeddedHost;
use plimsoll_drill::host::{Captured, Host, HostError, Network, Started};
use plimsoll_drill::posix::{Call, Errno, Out, Reply, SendVia, Source};
use plimsoll_drill::shell::Command;
use plimsoll_tcp::{Duration, Instant};

use crate::adapter::Adapter;
use crate::memory::{self, finish, finish_int};
use crate::table;

/// The embedded stack, with scratch files that are real: the tool opens them with `open(2)`.
struct WithFiles(EmbeddedHost);

/// What the adapter drives.
pub(crate) fn host(network: &Network) -> Result<Box<dyn Host + Send>, HostError> {
    Ok(Box::new(WithFiles(EmbeddedHost::new(network)?)))
}

impl Host for WithFiles {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wait(&mut self, until: Instant) -> Result<(), HostError> {
        self.0.wait(until)
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), HostError> {
        self.0.inject(packet)
    }

    fn sniff(&mut self) -> Option<Captured> {
        self.0.sniff()
    }

    fn call(&mut self, call: Call, may_sleep: bool) -> Result<Started, HostError> {
        self.0.call(call, may_sleep)
    }

    fn returned(&mut self) -> Option<(Instant, Reply)> {
        self.0.returned()
    }

    fn command(&mut self, command: &Command) -> Result<(), HostError> {
        let failed = |path: &str, error: std::io::Error| HostError(format!("{path}: {error}"));
        match command {
            Command::ZeroFile { path, len } => {
                std::fs::write(path, vec![0; *len as usize]).map_err(|error| failed(path, error))
            }
            Command::RemoveFile(path) => match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(failed(path, error))
                }
                _ => Ok(()),
            },
            _ => self.0.command(command),
        }
    }

    fn tcp_info(&mut self, fd: i32) -> Result<Vec<u8>, HostError> {
        self.0.tcp_info(fd)
    }

    fn epoch(&self) -> Duration {
        self.0.epoch()
    }
}

/// The adapter, if this descriptor is one of its own.
fn ours(fd: c_int) -> Option<&'static Adapter> {
    Adapter::get().filter(|adapter| adapter.knows(fd))
}

/// The tool's code blocks read this much, whether or not a stack has it.
const SOL_TCP: c_int = 6;
const TCP_INFO: c_int = 11;
const TCP_CC_INFO: c_int = 26;
const SO_MEMINFO: c_int = 55;

/// Stands in for `getsockopt`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if ours(fd).is_none() {
        // SAFETY: these are the arguments of the system call.
        return unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) }
            as c_int;
    }
    // SAFETY: as the caller promises.
    let Some(&room) = (unsafe { len.as_ref() }) else { return finish_int(Err(Errno::EFAULT)) };
    let (asked, null) = (room as i32, value.is_null());
    let mut reply = table::call(Call::Getsockopt { fd, level, name, len: asked, null });
    let fill = match (level, name) {
        // The tool's structure may be longer than the stack's: what is not there is zero.
        (SOL_TCP, TCP_INFO) | (libc::SOL_SOCKET, SO_MEMINFO) => room as usize,
        (SOL_TCP, TCP_CC_INFO) => 0,
        _ => usize::MAX,
    };
    if fill != usize::MAX && reply.result.is_err() && (level, name) != (SOL_TCP, TCP_INFO) {
        reply = Reply { result: Ok(0), out: Out::Option { value: Vec::new(), len: 0 } };
    }
    if let (Out::Option { value, len }, true) = (&mut reply.out, fill != usize::MAX) {
        value.resize(value.len().max(fill), 0);
        *len = value.len() as i32;
    }
    // SAFETY: as the caller promises.
    unsafe { memory::put_option(reply, value, len) }
}

/// Stands in for `sendfile`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    out_fd: c_int,
    in_fd: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    if ours(out_fd).is_none() {
        // SAFETY: these are the arguments of the system call.
        let sent = unsafe { libc::syscall(libc::SYS_sendfile, out_fd, in_fd, offset, count) };
        return sent as ssize_t;
    }
    // SAFETY: as the caller promises.
    let place = unsafe { offset.as_mut() };
    let start = place.as_deref().copied().unwrap_or(0);
    let mut data = vec![0u8; count.min(1 << 24)];
    // SAFETY: the pointer has room for as much as asked for.
    let len = unsafe { libc::pread(in_fd, data.as_mut_ptr().cast(), data.len(), start) };
    let Ok(len) = usize::try_from(len) else { return -1 };
    data.truncate(len);
    let (via, buffers) = (SendVia::Write, vec![Source::Bytes(data)]);
    let call = Call::Send { via, fd: out_fd, buffers, flags: 0, to: None, control: Vec::new() };
    let reply = table::call(call);
    if let (Ok(sent), Some(place)) = (&reply.result, place) {
        *place += sent;
    }
    finish(reply.result) as ssize_t
}

/// Stands in for `system`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(line: *const c_char) -> c_int {
    if line.is_null() {
        return 1;
    }
    // SAFETY: as the caller promises.
    let line = unsafe { CStr::from_ptr(line) }.to_string_lossy();
    match Adapter::get() {
        Some(adapter) if !is_code(&line) => match adapter.shell(&line, Path::new(".")) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("plimsoll: {error}");
                // As a shell says it: the command ended with 1.
                1 << 8
            }
        },
        _ => run(&line),
    }
}

/// Whether a line runs the file into which the tool has written the code blocks of a script.
fn is_code(line: &str) -> bool {
    line.rsplit(' ').next().is_some_and(|last| last.starts_with("/tmp/code_"))
}

/// Runs a line with the machine's shell, without this library in it.
fn run(line: &str) -> c_int {
    let mut shell = Program::new("/bin/sh");
    let status = shell.args(["-c", line]).env_remove("LD_PRELOAD").status();
    status.map_or(-1, |status| status.into_raw())
}

/// Stands in for `mlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    if std::env::var_os("LD_PRELOAD").is_some() {
        return 0;
    }
    // SAFETY: the call takes a number.
    (unsafe { libc::syscall(libc::SYS_mlockall, c_long::from(flags)) }) as c_int
}

#[cfg(test)]
mod tests {
    #[test]
    fn code_blocks_are_told_from_shell_lines() {
        assert!(super::is_code("python3 /tmp/code_Ab3xY9"));
        assert!(!super::is_code("sysctl -q net.ipv4.tcp_sack=1"));
        assert!(!super::is_code("python3 helper.py /tmp/file"));
    }
}
