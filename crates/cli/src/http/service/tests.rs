//! The service over a link in memory, with clients that take their time.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::task::Wake;

use plimsoll::device::memory_link;
use plimsoll::{Connector, Options, Stack, TcpListener};

use super::*;
use crate::http::files::MOST_OPEN;
use plimsoll_lab::event_loop::{EventLoop, Stopper, TURN_BYTES, WhenIdle};
use plimsoll_lab::tasks::Acceptor;

/// The longest wait of a test. Only a hanging test takes so long.
const BOUND: Duration = Duration::from_secs(60);

const SERVER: &str = "192.0.2.2:80";

/// Figures of a server that has been stopped.
#[derive(Debug)]
struct Seen {
    refused: u64,
    slow_requests: u64,
    slow_responses: u64,
    served: usize,
}

struct Server {
    client: Stack,
    stopper: Stopper,
    seen: mpsc::Receiver<Seen>,
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Server {
    /// Serves a directory with a short and a long file.
    fn start(limits: Limits) -> Server {
        let (here, there) = memory_link::pair(memory_link::LinkConfig::default());
        let client = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
        let server = Stack::builder().device(there).address("192.0.2.2/24");
        let server = server.build_without_thread().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("short"), "short").unwrap();
        std::fs::write(root.join("long"), vec![0; 8 << 20]).unwrap();
        let stopper = Stopper::new(&server);
        let (tell, seen) = mpsc::channel();
        let (stop, shown) = (stopper.clone(), root.clone());
        std::thread::spawn(move || {
            let tally = Rc::new(Tally::tolerant());
            let (site, root) = (Rc::new(Site::new(limits, Arc::default())), Rc::new(shown));
            let address: SocketAddr = SERVER.parse().unwrap();
            let options = Options::default();
            let listener = TcpListener::bind_with(&server, address, 4096, options).unwrap();
            listener.set_nonblocking(true).unwrap();
            let mut events = EventLoop::new(&server, WhenIdle::Sleep);
            let (all, count) = (site.clone(), tally.clone());
            let start = move |stream| -> Box<dyn Task> {
                Box::new(Web::new(stream, root.clone(), all.clone(), count.clone()))
            };
            events.spawn(Box::new(Acceptor::new(listener, start, tally)));
            events.run(None, |_| stop.is_stopped());
            tell.send(Seen {
                refused: site.refused.count(),
                slow_requests: site.slow_requests.count(),
                slow_responses: site.slow_responses.count(),
                served: site.served(),
            })
            .unwrap();
        });
        Server { client, stopper, seen, _dir: dir, root }
    }

    fn try_connect(&self) -> io::Result<TcpStream> {
        let options = Options::default().rcvbuf(Some(4096));
        let connector = Connector::new(&self.client).options(options).timeout(BOUND);
        let stream = connector.connect(SERVER.parse().unwrap())?;
        stream.set_read_timeout(Some(BOUND)).unwrap();
        Ok(stream)
    }

    fn connect(&self) -> TcpStream {
        self.try_connect().unwrap()
    }

    fn ask(&self, request: &str) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn stop(self) -> Seen {
        self.stopper.stop();
        self.seen.recv_timeout(BOUND).expect("the server hangs")
    }
}

/// Limits under which no client is late in a test.
fn patient() -> Limits {
    let hour = Duration::from_secs(3600);
    Limits { request: hour, idle: hour, send: hour, linger: hour, ..Limits::default() }
}

fn all(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn get(name: &str) -> String {
    format!("GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

/// Open files of this process below `root`.
fn descriptors(root: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|path| path.starts_with(root))
        .count()
}

/// A client has gone when reading ends, one way or the other.
fn gone(mut stream: &TcpStream) -> bool {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// A thousand clients that say nothing, a thousand that send their request byte by byte, and a
/// thousand that ask for a long file and do not read it.
#[test]
fn slow_clients_leave_others_served() {
    let server = Server::start(patient());
    let silent: Vec<TcpStream> = (0..1000).map(|_| server.connect()).collect();
    let mut slow: Vec<TcpStream> = (0..1000).map(|_| server.ask("G")).collect();
    let deaf: Vec<TcpStream> = (0..1000).map(|_| server.ask(&get("long"))).collect();
    for byte in ["E", "T", " "] {
        slow.iter_mut().for_each(|stream| stream.write_all(byte.as_bytes()).unwrap());
        let answer = all(server.ask(&get("short")));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("short"), "{answer}");
    }
    let open = descriptors(&server.root);
    assert!(open <= MOST_OPEN, "{open} files are open for clients that do not read");
    let seen = server.stop();
    let served = silent.len() + slow.len() + deaf.len();
    assert_eq!((seen.refused, seen.served), (0, served), "{seen:?}");
}

/// None of them stays for ever.
#[test]
fn slow_clients_are_ended() {
    let short = Duration::from_secs(2);
    let limits = Limits { request: short, idle: short, send: short, ..Limits::default() };
    let server = Server::start(limits);
    let mut idle = server.ask("GET /short HTTP/1.1\r\nHost: x\r\n\r\n");
    let (silent, slow) = (server.connect(), server.ask("GET /short HTTP/1.1\r\n"));
    let deaf = server.ask(&get("long"));
    let mut answer = [0; 1024];
    let len = idle.read(&mut answer).unwrap();
    assert!(answer[..len].starts_with(b"HTTP/1.1 200"));
    assert!(gone(&silent) && gone(&idle));
    let answer = all(slow);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // The server reads nothing either, until it resets the connection.
    deaf.set_write_timeout(Some(BOUND)).unwrap();
    let error = (&deaf).write_all(&vec![0; 64 << 20]).unwrap_err();
    assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
    let seen = server.stop();
    assert_eq!((seen.slow_requests, seen.slow_responses), (2, 1), "{seen:?}");
}

#[test]
fn beyond_the_limit_clients_are_told() {
    let limits = Limits { connections: 3, refusals: 2, ..patient() };
    let server = Server::start(limits);
    let served: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    // These keep their place as long as they do not read to the end.
    let told: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for mut stream in &told {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 503");
    }
    // The reset may come before the call that connects has seen the end of the handshake.
    let error = server.try_connect().and_then(|stream| (&stream).read(&mut [0])).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    // Clients that were connected before are served.
    for mut stream in served {
        stream.write_all(get("short").as_bytes()).unwrap();
        assert!(all(stream).ends_with("short"));
    }
    drop(told);
    let seen = server.stop();
    assert_eq!(seen.refused, 3, "{seen:?}");
}

/// Refused clients that linger do not take a place that has become free.
#[test]
fn a_place_that_is_free_again_is_given() {
    let limits = Limits { connections: 1, refusals: 2, ..patient() };
    let server = Server::start(limits);
    let mut served = server.connect();
    let told: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    for mut stream in &told {
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    served.write_all(get("short").as_bytes()).unwrap();
    // The place is given back before the end of the connection is sent.
    assert!(all(served).ends_with("short"));
    assert!(all(server.ask(&get("short"))).ends_with("short"));
    drop(told);
    assert_eq!(server.stop().refused, 2);
}

/// Says that it was woken.
struct Tell(Mutex<mpsc::Sender<()>>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

/// A client is not ended because the server cannot open the file.
#[test]
fn a_client_does_not_pay_for_a_lack_of_descriptors() {
    let (here, there) = memory_link::pair(memory_link::LinkConfig::default());
    let client = Stack::builder().device(here).address("192.0.2.1/24").build().unwrap();
    let server = Stack::builder().device(there).address("192.0.2.2/24").build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = Rc::new(dir.path().canonicalize().unwrap());
    std::fs::File::create(root.join("long")).unwrap().set_len(64 << 20).unwrap();
    let listener = TcpListener::bind(&server, SERVER).unwrap();
    let mut asking = TcpStream::connect(&client, SERVER).unwrap();
    asking.write_all(get("long").as_bytes()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    // No answer to how much was taken would be enough.
    let limits = Limits { send_bytes: u64::MAX, ..patient() };
    let site = Rc::new(Site::new(limits, Arc::default()));
    let mut web = Web::new(stream, root, site.clone(), Rc::new(Tally::tolerant()));
    let (tell, told) = mpsc::channel();
    let waker = std::task::Waker::from(Arc::new(Tell(Mutex::new(tell))));
    let mut scratch = vec![0; 1 << 16];
    let mut run = |web: &mut Web| {
        let (mut spawn, mut deadline) = (Vec::new(), None);
        web.run(&mut Around {
            waker: &waker,
            scratch: &mut scratch,
            spawn: &mut spawn,
            deadline: &mut deadline,
            phase: 0,
            turn_bytes: TURN_BYTES,
        })
    };
    let wait = |turn| match turn {
        Turn::Sleep => told.recv_timeout(BOUND).expect("nobody wakes it"),
        other => assert_eq!(other, Turn::Again),
    };
    while web.timer.stage != Stage::Response {
        wait(run(&mut web));
    }
    site.files.replace(Files::with_opener(MOST_OPEN, |_| Err(rustix::io::Errno::MFILE.into())));
    std::thread::spawn(move || io::copy(&mut asking, &mut io::sink()));
    loop {
        let turn = run(&mut web);
        if web.waits_for_file {
            break;
        }
        wait(turn);
    }
    web.timer.at = Instant::ZERO;
    assert_eq!(run(&mut web), Turn::Sleep, "it is ended");
    assert_eq!(site.slow_responses.count(), 0);
}

/// A head that is far too long gets its answer, although most of it was not read when that left.
#[test]
fn a_head_that_is_too_long_is_answered() {
    let server = Server::start(patient());
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(200_000));
    let stream = server.ask(&long);
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = all(stream);
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let seen = server.stop();
    assert_eq!(seen.slow_requests, 0, "{seen:?}");
}
