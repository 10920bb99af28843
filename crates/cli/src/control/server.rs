//! The server of the control socket.
//!
//! One thread serves all clients: it waits until the socket or any client is ready, and never for a
//! single client. A silent client does not delay the others, and is disconnected after
//! [`PATIENCE`]. The thread ends when the [`ControlSocket`] is dropped, which does not wait for it.
//!
//! Limits: [`MOST_CLIENTS`] clients at a time; more wait in the socket's queue. Without a free
//! descriptor no client is accepted, and the next try comes after [`PAUSE`].

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::getuid;

use super::protocol::{Answer, MAX_LINE, Request};

/// How long a client may take for a line, or for a whole answer, before it is disconnected.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time without accepting after an accept has failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Clients at a time.
const MOST_CLIENTS: usize = 32;

/// Answers requests; the stacks of the process, in practice.
pub(crate) trait Respond: Send + Sync + 'static {
    /// Answers one request.
    fn respond(&self, request: Request) -> Answer;
}

/// Where a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A request is a line. The client may send the next one after the answer.
    Lines,
    /// All that the client sends before it ends its half is one request, and the answer is the end.
    /// A longer one than [`MAX_LINE`] is cut.
    Whole,
}

/// Answers requests as bytes.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Where a request ends.
    fn framing(&self) -> Framing;
    /// The bytes that answer those of a request.
    ///
    /// # Errors
    /// The client is disconnected.
    fn answer(&self, request: &[u8]) -> io::Result<Vec<u8>>;
}

impl<R: Respond> Serve for R {
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn answer(&self, line: &[u8]) -> io::Result<Vec<u8>> {
        let answer = match serde_json::from_slice(line) {
            Ok(request) => self.respond(request),
            Err(error) => Answer::Error(format!("not a request: {error}")),
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// An open control socket. Dropping it removes the socket's file and ends the thread that answers.
pub(crate) struct ControlSocket {
    /// None if the file is not this process's to remove.
    path: Option<PathBuf>,
    /// Held here and not by the thread: the stacks go when this goes.
    _respond: Arc<dyn Serve>,
    /// Readable once the thread is to end.
    end: Arc<OwnedFd>,
    #[cfg(test)]
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The file may have been removed by hand; there is no place to report that.
        let _ = self.path.as_ref().map(std::fs::remove_file);
        // It is written to once, so it cannot be full.
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
    }
}

/// Opens the control socket of this process and answers in another thread.
pub(crate) fn open(respond: Arc<dyn Serve>) -> io::Result<ControlSocket> {
    let mut last = io::Error::from(ErrorKind::NotFound);
    for directory in super::directories() {
        match open_in(&directory, respond.clone(), PATIENCE) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes the folder for the control socket, and names those folders of this user that may hold one.
pub(crate) fn folders() -> Vec<PathBuf> {
    let all = super::directories();
    if let Some(first) = all.iter().find(|folder| folder.parent().is_some_and(Path::is_dir)) {
        // If that fails, opening the socket says why.
        let _ = private_directory(first);
    }
    all.into_iter().filter(|folder| is_private(folder).is_ok_and(|private| private)).collect()
}

fn open_in(
    directory: &Path,
    respond: Arc<dyn Serve>,
    patience: Duration,
) -> io::Result<ControlSocket> {
    private_directory(directory)?;
    let path = directory.join(format!("{}.sock", std::process::id()));
    // A process that died may have had our number.
    let _ = std::fs::remove_file(&path);
    let mut socket = serve_within(listen(&path)?, respond, patience)?;
    socket.path = Some(path);
    Ok(socket)
}

/// Opens a socket that only this user may use.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers at an open socket in another thread. The file stays.
pub(crate) fn serve(listener: UnixListener, respond: Arc<dyn Serve>) -> io::Result<ControlSocket> {
    serve_within(listener, respond, PATIENCE)
}

fn serve_within(
    listener: UnixListener,
    respond: Arc<dyn Serve>,
    patience: Duration,
) -> io::Result<ControlSocket> {
    let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let mut server = Server::new(Arc::downgrade(&respond), patience);
    let stop = end.clone();
    let thread = std::thread::Builder::new().name("control".into());
    let thread = thread.spawn(move || server.run(&listener, &stop))?;
    // Only a test waits for the thread.
    #[cfg(not(test))]
    drop(thread);
    Ok(ControlSocket {
        path: None,
        _respond: respond,
        end,
        #[cfg(test)]
        thread: Some(thread),
    })
}

/// Whether a path is a directory of this user that no other user may enter. A link is none.
fn is_private(directory: &Path) -> io::Result<bool> {
    let data = std::fs::symlink_metadata(directory)?;
    Ok(data.is_dir() && data.uid() == getuid().as_raw() && data.mode() & 0o077 == 0)
}

/// Makes the directory, or checks that it is ours alone: `/tmp` is open to everybody.
fn private_directory(directory: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_private(directory)? {
        Ok(())
    } else {
        let message = format!(
            "{} is not a directory that belongs to this user and that nobody else may enter; \
             remove it, or name another place in XDG_RUNTIME_DIR",
            directory.display()
        );
        Err(io::Error::new(ErrorKind::PermissionDenied, message))
    }
}

/// Whether a client is of this process's user or root, and in its user namespace and process
/// namespace. A command inside `plimsoll run` is not, and has the same user number.
fn is_allowed(client: &UnixStream) -> bool {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(client) else { return false };
    // The socket is open to all for a moment before it has its mode.
    if peer.uid != getuid() && !peer.uid.is_root() {
        return false;
    }
    let of = |pid: &str| {
        let users = std::fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        // A number for each namespace from that of /proc down to that of the process.
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Some((users, numbers.split_whitespace().count()))
    };
    let theirs = of(&peer.pid.as_raw_nonzero().to_string());
    theirs.is_some() && theirs == of("self")
}

/// The state of the thread.
struct Server {
    respond: Weak<dyn Serve>,
    clients: Vec<Client>,
    /// See [`PATIENCE`].
    patience: Duration,
    /// The end of the pause in accepting.
    pause: Option<Instant>,
}

/// A client, and what was read of it or is to be written to it.
struct Client {
    stream: UnixStream,
    line: Vec<u8>,
    /// The client has ended its half.
    is_ended: bool,
    answer: Vec<u8>,
    /// Bytes of the answer that were taken.
    sent: usize,
    deadline: Instant,
    patience: Duration,
}

impl Server {
    fn new(respond: Weak<dyn Serve>, patience: Duration) -> Server {
        Server { respond, clients: Vec::new(), patience, pause: None }
    }

    /// Serves until `end` is readable, or the stacks have gone.
    fn run(&mut self, listener: &UnixListener, end: &OwnedFd) {
        loop {
            match self.wait(listener, end, Instant::now()) {
                Ok((true, _)) => return,
                Ok((false, true)) => self.accept(|| Ok(listener.accept()?.0), Instant::now()),
                Ok((false, false)) => {}
                // The system cannot wait for want of memory: later.
                Err(_) => std::thread::park_timeout(PAUSE),
            }
            if !self.serve(Instant::now()) {
                return;
            }
        }
    }

    /// Whether the server accepts clients now.
    fn accepts(&self, now: Instant) -> bool {
        self.clients.len() < MOST_CLIENTS && self.pause.is_none_or(|pause| pause <= now)
    }

    /// Waits for something to do. Returns whether the thread must end, and whether a client waits
    /// to be accepted.
    fn wait(
        &self,
        listener: &UnixListener,
        end: &OwnedFd,
        now: Instant,
    ) -> io::Result<(bool, bool)> {
        let accepts = self.accepts(now);
        let mut fds = vec![PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
        if accepts {
            fds.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        for client in &self.clients {
            let flags = if client.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), flags));
        }
        let pause = self.pause.filter(|_| !accepts && self.clients.len() < MOST_CLIENTS);
        let deadlines = self.clients.iter().map(|client| client.deadline);
        let next = deadlines.chain(pause).min().map(|at| at.saturating_duration_since(now));
        let timeout = next.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok((false, false)),
            other => other?,
        };
        let has = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ok((has(0), accepts && has(1)))
    }

    /// Takes one client from `accept`. If that fails, pauses accepting for a while.
    fn accept(&mut self, accept: impl FnOnce() -> io::Result<UnixStream>, now: Instant) {
        match accept().and_then(|stream| stream.set_nonblocking(true).map(|()| stream)) {
            Ok(stream) if is_allowed(&stream) => {
                self.clients.push(Client::new(stream, now, self.patience));
            }
            Ok(_refused) => {}
            // It went before it was accepted.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.pause = Some(now + PAUSE),
        }
    }

    /// Serves every client until it would block. Returns whether the stacks to answer for still
    /// exist.
    fn serve(&mut self, now: Instant) -> bool {
        let mut alive = self.respond.strong_count() > 0;
        let respond = &self.respond;
        self.clients.retain_mut(|client| {
            // A client that misbehaves or goes away is its own loss.
            client.deadline > now && client.go_on(respond, now, &mut alive).is_ok()
        });
        alive
    }
}

impl Client {
    fn new(stream: UnixStream, now: Instant, patience: Duration) -> Client {
        let (line, answer, deadline) = (Vec::new(), Vec::new(), now + patience);
        Client { stream, line, is_ended: false, answer, sent: 0, deadline, patience }
    }

    /// The next request, if all of it was read.
    fn request(&mut self, framing: Framing) -> Option<Vec<u8>> {
        match framing {
            Framing::Lines => {
                let end = self.line.iter().position(|&byte| byte == b'\n')?;
                Some(self.line.drain(..=end).collect())
            }
            Framing::Whole if self.is_ended || self.line.len() as u64 >= MAX_LINE => {
                self.is_ended = true;
                (!self.line.is_empty()).then(|| std::mem::take(&mut self.line))
            }
            Framing::Whole => None,
        }
    }

    /// Reads, answers and writes until it would block.
    fn go_on(
        &mut self,
        respond: &Weak<dyn Serve>,
        now: Instant,
        alive: &mut bool,
    ) -> io::Result<()> {
        let Some(respond) = respond.upgrade() else {
            *alive = false;
            return Err(ErrorKind::ConnectionAborted.into());
        };
        loop {
            let stepped = if !self.answer.is_empty() {
                self.write(now)
            } else if let Some(request) = self.request(respond.framing()) {
                self.answer = respond.answer(&request)?;
                self.deadline = now + self.patience;
                continue;
            } else if self.is_ended {
                // There is nothing left to be answered.
                return Err(ErrorKind::UnexpectedEof.into());
            } else {
                self.read()
            };
            match stepped {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => other?,
            }
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer)? {
            0 => {
                self.is_ended = true;
                Ok(())
            }
            _ if self.line.len() as u64 >= MAX_LINE => Err(ErrorKind::InvalidData.into()),
            count => {
                self.line.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }

    fn write(&mut self, now: Instant) -> io::Result<()> {
        self.sent += self.stream.write(&self.answer[self.sent..])?;
        if self.sent == self.answer.len() {
            (self.answer, self.sent) = (Vec::new(), 0);
            self.deadline = now + self.patience;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::ask_at;
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc;

    /// No client is late in a test.
    const HOUR: Duration = Duration::from_secs(3600);

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
        let socket = open_in(&directory, Arc::new(Fixed), HOUR).unwrap();
        let answer = ask_at(socket.path.as_ref().unwrap(), &Request::Ss).unwrap();
        assert_eq!(answer, Answer::Error("no answer to Ss".into()));
        let mut raw = UnixStream::connect(socket.path.as_ref().unwrap()).unwrap();
        raw.write_all(b"hello\n").unwrap();
        let mut line = String::new();
        BufReader::new(&raw).read_line(&mut line).unwrap();
        assert!(line.contains("not a request"), "{line}");
        let path = socket.path.clone().unwrap();
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn an_open_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), mode).unwrap();
        let error = private_directory(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }

    /// Silent clients, one less than the limit, do not delay another client.
    #[test]
    fn silent_clients_do_not_keep_others_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let socket = open_in(&dir.path().join("private"), Arc::new(Fixed), HOUR).unwrap();
        let connect = || UnixStream::connect(socket.path.as_ref().unwrap()).unwrap();
        let silent: Vec<UnixStream> = (1..MOST_CLIENTS).map(|_| connect()).collect();
        let mut asking = connect();
        asking.write_all(b"{\"op\":\"ss\"}\n{\"op\":\"nstat\"}\n").unwrap();
        let mut lines = BufReader::new(&asking).lines();
        assert!(lines.next().unwrap().unwrap().contains("no answer to Ss"));
        assert!(lines.next().unwrap().unwrap().contains("no answer to Nstat"));
        // None of them was disconnected to make that possible.
        for client in &silent {
            client.set_nonblocking(true).unwrap();
            let error = (&mut &*client).read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn the_thread_ends_with_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let mut socket = open_in(&dir.path().join("private"), Arc::new(Fixed), HOUR).unwrap();
        let _silent = UnixStream::connect(socket.path.as_ref().unwrap()).unwrap();
        let thread = socket.thread.take().unwrap();
        drop(socket);
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(thread.join().is_ok()));
        assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(true));
    }

    #[test]
    fn without_descriptors_nobody_is_accepted_for_a_while() {
        let respond: Arc<dyn Serve> = Arc::new(Fixed);
        let mut server = Server::new(Arc::downgrade(&respond), PATIENCE);
        let now = Instant::now();
        assert!(server.accepts(now));
        server.accept(|| Err(rustix::io::Errno::MFILE.into()), now);
        assert!(!server.accepts(now), "it would be asked again and again");
        assert!(server.accepts(now + PAUSE));
    }

    /// A client that takes a byte now and then gets no more time for it.
    #[test]
    fn the_whole_answer_has_a_deadline() {
        let respond: Arc<dyn Serve> = Arc::new(Fixed);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let start = Instant::now();
        let mut client = Client::new(ours, start, HOUR);
        client.answer = vec![b'x'; 4 << 20];
        let mut taken = 0;
        let mut alive = true;
        let mut go_on = |client: &mut Client, now| {
            client.go_on(&Arc::downgrade(&respond), now, &mut alive).unwrap();
        };
        go_on(&mut client, start);
        while !client.answer.is_empty() {
            assert_eq!(client.deadline, start + HOUR);
            taken += theirs.read(&mut [0; 1 << 16]).unwrap();
            go_on(&mut client, start + HOUR / 2);
        }
        assert!(taken > 0);
        assert_eq!(client.deadline, start + HOUR / 2 + HOUR, "the next line has its own time");
    }

    /// Answers with the number of bytes.
    struct Count;

    impl Serve for Count {
        fn framing(&self) -> Framing {
            Framing::Whole
        }

        fn answer(&self, request: &[u8]) -> io::Result<Vec<u8>> {
            Ok(request.len().to_string().into_bytes())
        }
    }

    #[test]
    fn a_whole_request_is_all_that_a_client_sends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let _socket = serve(listen(&path).unwrap(), Arc::new(Count)).unwrap();
        for (parts, answer) in [(&["ab\n", "c\n"][..], "5"), (&[][..], "")] {
            let mut client = UnixStream::connect(&path).unwrap();
            parts.iter().for_each(|part| client.write_all(part.as_bytes()).unwrap());
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, answer);
        }
        // One that goes on without an end is answered all the same.
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(&vec![b'x'; MAX_LINE as usize]).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, MAX_LINE.to_string());
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let socket = open_in(&dir.path().join("private"), Arc::new(Fixed), HOUR).unwrap();
        let mut client = UnixStream::connect(socket.path.as_ref().unwrap()).unwrap();
        let long = vec![b'x'; 2 * MAX_LINE as usize];
        // The server may disconnect before all of it was written.
        let _ = client.write_all(&long);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
}
