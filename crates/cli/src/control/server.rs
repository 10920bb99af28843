//! The side of the control socket that answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::getuid;

use super::protocol::{Answer, MAX_LINE, Request};

/// How long a client may take for a line before it is let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers requests; the stacks of the process, in practice.
pub(crate) trait Respond: Send + Sync + 'static {
    /// Answers one request.
    fn respond(&self, request: Request) -> Answer;
}

/// An open control socket. Dropping it removes the socket's file.
pub(crate) struct ControlSocket {
    path: PathBuf,
    /// Held here and not by the thread, which nobody ends: the stacks go when this goes.
    _respond: Arc<dyn Respond>,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The file may have been removed by hand; there is nobody to tell.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens the control socket of this process and answers in a thread of its own.
pub(crate) fn open(respond: Arc<dyn Respond>) -> io::Result<ControlSocket> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in super::directories() {
        match open_in(&directory, respond.clone()) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn open_in(directory: &Path, respond: Arc<dyn Respond>) -> io::Result<ControlSocket> {
    private_directory(directory)?;
    let path = directory.join(format!("{}.sock", std::process::id()));
    // A process that died may have had our number.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    let weak = Arc::downgrade(&respond);
    let socket = ControlSocket { path, _respond: respond };
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for client in listener.incoming().flatten() {
            let Some(respond) = weak.upgrade() else { return };
            // A client that misbehaves or goes away is its own loss.
            let _ = serve(&client, &*respond);
        }
    })?;
    Ok(socket)
}

/// Makes the directory, or checks that it is ours alone: `/tmp` is open to everybody.
fn private_directory(directory: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let data = std::fs::symlink_metadata(directory)?;
    let ours = data.is_dir() && data.uid() == getuid().as_raw() && data.mode() & 0o077 == 0;
    if ours {
        Ok(())
    } else {
        let message = format!("{} is not a private directory of this user", directory.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }
}

fn serve(client: &UnixStream, respond: &dyn Respond) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(client);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(MAX_LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => respond.respond(request),
            Err(error) => Answer::Error(format!("not a request: {error}")),
        };
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        let mut writer = client;
        writer.write_all(text.as_bytes())?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::ask_at;
    use super::*;

    struct Fixed;

    impl Respond for Fixed {
        fn respond(&self, request: Request) -> Answer {
            Answer::Error(format!("no answer to {request:?}"))
        }
    }

    #[test]
    fn question_and_answer() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("private");
        let socket = open_in(&directory, Arc::new(Fixed)).unwrap();
        let answer = ask_at(&socket.path, &Request::Ss).unwrap();
        assert_eq!(answer, Answer::Error("no answer to Ss".into()));
        let mut raw = UnixStream::connect(&socket.path).unwrap();
        raw.write_all(b"hello\n").unwrap();
        let mut line = String::new();
        BufReader::new(&raw).read_line(&mut line).unwrap();
        assert!(line.contains("not a request"), "{line}");
        let path = socket.path.clone();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn an_open_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), mode).unwrap();
        let error = private_directory(dir.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
