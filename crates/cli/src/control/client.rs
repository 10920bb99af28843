//! The client of the control socket.
//!
//! It uses only sockets in directories that belong to this user or to root, and that no other user
//! may write to. Another user who could put a socket there could answer in the place of the
//! process.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::getuid;

use super::protocol::{Answer, Request};

/// How long the asked process may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The asked process does not exist any more.
#[derive(Debug, thiserror::Error)]
#[error("process {0} has ended")]
pub(crate) struct Ended(String);

/// Asks the process `pid`, or the only one that runs.
pub(crate) fn ask(pid: Option<u32>, request: &Request) -> anyhow::Result<Answer> {
    match ask_at(&socket_of(pid)?, request)? {
        Answer::Error(message) => bail!("{message}"),
        answer => Ok(answer),
    }
}

/// The path of the socket of the process `pid`, or of the only one that runs.
pub(crate) fn socket_of(pid: Option<u32>) -> anyhow::Result<PathBuf> {
    let (directories, refused) = trusted(super::directories());
    find(pid, &directories).map_err(|error| match refused.is_empty() {
        true => error,
        false => anyhow!("{error}; {}", refused.join("; ")),
    })
}

/// The socket of the process `pid`, or of the only one that runs.
fn find(pid: Option<u32>, directories: &[PathBuf]) -> anyhow::Result<PathBuf> {
    match pid {
        Some(pid) => directories
            .iter()
            .map(|directory| directory.join(format!("{pid}.sock")))
            .find(|path| path.exists())
            .ok_or_else(|| anyhow!("{}", no_socket(pid))),
        None => only_one(&running(directories)),
    }
}

/// Why a process has no socket that this user could ask.
fn no_socket(pid: u32) -> String {
    let ours = getuid().as_raw();
    match std::fs::metadata(format!("/proc/{pid}")).map(|data| data.uid()) {
        Err(_) => format!("there is no process {pid}"),
        Ok(owner) if owner != ours => format!(
            "process {pid} belongs to another user; ask as that user, as in \
             'sudo -u \\#{owner} plimsoll ... --pid {pid}'"
        ),
        Ok(_) => format!(
            "process {pid} is not a plimsoll that runs a stack, or it was started with another \
             XDG_RUNTIME_DIR"
        ),
    }
}

/// Those of `directories` that are there and may be asked, and why others may not. Anybody can make
/// one in `/tmp`, which must not keep this user from asking in the other place.
fn trusted(directories: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<String>) {
    let (mut trusted, mut refused) = (Vec::new(), Vec::new());
    for directory in directories {
        let Ok(data) = std::fs::symlink_metadata(&directory) else { continue };
        let ours = data.uid() == getuid().as_raw() || data.uid() == 0;
        if !data.is_dir() || !ours || data.mode() & 0o022 != 0 {
            // XDG_RUNTIME_DIR has no effect on the directory in /tmp.
            let or = match directory.starts_with("/tmp") {
                true => "",
                false => ", or name another place in XDG_RUNTIME_DIR",
            };
            refused.push(format!(
                "{} was not asked: it must be a directory of this user or of root that nobody else \
                 may write to, and it belongs to user {} with mode {:o}; remove it{or}",
                directory.display(),
                data.uid(),
                data.mode() & 0o7777
            ));
            continue;
        }
        trusted.push(directory);
    }
    (trusted, refused)
}

/// Connects without waiting: the queue of a process that does not accept is full.
fn connect_now(path: &Path) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends one request to the socket at `path`.
pub(crate) fn ask_at(path: &Path, request: &Request) -> anyhow::Result<Answer> {
    ask_within(path, request, PATIENCE)
}

/// The same for a process that may take so long.
pub(crate) fn ask_within(
    path: &Path,
    request: &Request,
    patience: Duration,
) -> anyhow::Result<Answer> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let explain = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => anyhow!(
            "process {name} does not answer: it is stopped, or busy with other questions; ask \
             again later"
        ),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => Ended(name.clone()).into(),
        _ => anyhow::Error::from(error).context(format!("cannot talk to {}", path.display())),
    };
    let stream = connect_now(path).map_err(explain)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    (&stream).write_all(line.as_bytes()).map_err(explain)?;
    let mut answer = String::new();
    if BufReader::new(&stream).read_line(&mut answer).map_err(explain)? == 0 {
        bail!("process {name} has closed the connection without an answer; ask again");
    }
    serde_json::from_str(&answer).with_context(|| {
        format!("process {name} gave an answer that this version does not understand")
    })
}

/// The sockets in `directories` on which a process listens. Files that dead processes left behind
/// are removed.
fn running(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in directories.iter().filter_map(|directory| directory.read_dir().ok()).flatten() {
        let Ok(path) = entry.map(|entry| entry.path()) else { continue };
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match connect_now(&path) {
            Ok(_) => found.push(path),
            // It is there, but has no time for us.
            Err(error) if error.kind() == ErrorKind::WouldBlock => found.push(path),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let _ = std::fs::remove_file(&path);
            }
            Err(_) => {}
        }
    }
    found.sort();
    found
}

fn only_one(paths: &[PathBuf]) -> anyhow::Result<PathBuf> {
    match paths {
        [path] => Ok(path.clone()),
        [] => bail!(
            "no plimsoll process of this user runs a stack; start one, for example with \
             'plimsoll serve', or ask as the user who runs it"
        ),
        several => {
            let pids: Vec<_> =
                several.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
            bail!("several plimsoll processes run; choose one with --pid: {}", pids.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn finds_those_that_listen() {
        let dir = tempfile::tempdir().unwrap();
        let live = dir.path().join("1.sock");
        let stale = dir.path().join("2.sock");
        let _listener = UnixListener::bind(&live).unwrap();
        drop(UnixListener::bind(&stale).unwrap());
        std::fs::write(dir.path().join("note"), "x").unwrap();
        let directories = [dir.path().to_owned(), dir.path().join("none")];
        assert_eq!(running(&directories), [live]);
        assert!(!stale.exists());
    }

    #[test]
    fn choice() {
        let path = |name: &str| PathBuf::from(name);
        assert!(only_one(&[]).unwrap_err().to_string().contains("plimsoll serve"));
        assert_eq!(only_one(&[path("/x/1.sock")]).unwrap(), path("/x/1.sock"));
        let error = only_one(&[path("/x/1.sock"), path("/x/2.sock")]).unwrap_err().to_string();
        assert!(error.contains("--pid: 1, 2"), "{error}");
    }

    #[test]
    fn directories_of_others_are_not_asked() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (fine, open) = (dir.path().join("fine"), dir.path().join("open"));
        for (path, mode) in [(&fine, 0o700), (&open, 0o777)] {
            std::fs::create_dir(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let none = dir.path().join("none");
        assert_eq!(trusted(vec![fine.clone(), none]), (vec![fine.clone()], Vec::new()));
        let (asked, refused) = trusted(vec![open, fine.clone()]);
        assert_eq!(asked, std::slice::from_ref(&fine), "the other place is asked still");
        assert!(refused[0].contains("open was not asked") && refused[0].contains("777"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&fine, &link).unwrap();
        assert_eq!(trusted(vec![link]).0, [""; 0].map(PathBuf::from), "a link may lead anywhere");
    }

    #[test]
    fn processes_without_a_socket() {
        assert!(no_socket(std::process::id()).contains("is not a plimsoll that runs a stack"));
        assert!(no_socket(u32::MAX).contains("no process 4294967295"));
    }

    #[test]
    fn a_process_that_has_ended_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("77.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(ask_at(&path, &Request::Ss).unwrap_err().is::<Ended>());
        std::fs::remove_file(&path).unwrap();
        let error = ask_at(&path, &Request::Ss).unwrap_err();
        assert!(error.is::<Ended>() && error.to_string() == "process 77 has ended", "{error}");
    }

    #[test]
    fn a_process_that_does_not_answer_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("77.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let error = ask_within(&path, &Request::Ss, Duration::from_millis(1)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("process 77 does not answer"), "{error}");
    }
}
