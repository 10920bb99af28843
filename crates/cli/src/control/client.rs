//! The side of the control socket that asks.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use super::protocol::{Answer, Request};

/// How long the asked process may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the process `pid`, or the only one that runs.
pub(crate) fn ask(pid: Option<u32>, request: &Request) -> anyhow::Result<Answer> {
    let path = match pid {
        Some(pid) => super::directories()
            .into_iter()
            .map(|directory| directory.join(format!("{pid}.sock")))
            .find(|path| path.exists())
            .ok_or_else(|| anyhow!("process {pid} is not a plimsoll that runs a stack"))?,
        None => only_one(&running(&super::directories()))?,
    };
    match ask_at(&path, request)? {
        Answer::Error(message) => bail!("{message}"),
        answer => Ok(answer),
    }
}

/// Sends one request to the socket at `path`.
pub(crate) fn ask_at(path: &Path, request: &Request) -> anyhow::Result<Answer> {
    let context = || format!("cannot talk to {}", path.display());
    let mut stream = UnixStream::connect(path).with_context(context)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).with_context(context)?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).with_context(context)?;
    serde_json::from_str(&answer).with_context(context)
}

/// The sockets in `directories` that somebody listens on. Files that dead processes left behind
/// are removed.
fn running(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in directories.iter().filter_map(|directory| directory.read_dir().ok()).flatten() {
        let Ok(path) = entry.map(|entry| entry.path()) else { continue };
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match UnixStream::connect(&path) {
            Ok(_) => found.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
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
}
