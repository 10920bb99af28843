//! Plimsoll over TUN: for each processor a queue of the device and a thread that stays there, polls
//! that queue and serves the sockets that are at home in it.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Waker};
use std::thread;

use peer_common::polled::{Session, Socket, Turn};
use peer_common::{Args, PREFIX, SCRATCH};
use plimsoll::device::tun::{self, Steering, TunConfig};
use plimsoll::{QueueLoop, ReadyQueue, Stack, TcpListener, TcpStream};

/// The listener's token in the ready queue.
const LISTENER: usize = 0;
/// That of the inbox.
const INBOX: usize = 1;
/// A connection's is its place, and this more.
const FIRST: usize = 2;

/// More queues than this gain nothing.
const MOST_QUEUES: usize = 8;

struct Connection {
    stream: TcpStream,
    session: Session,
    waker: Waker,
}

/// Connections that belong to a loop, from the others.
struct Inbox {
    waiting: Mutex<Vec<(TcpStream, Session)>>,
    waker: Waker,
}

impl Inbox {
    fn put(&self, stream: TcpStream, session: Session) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push((stream, session));
        drop(waiting);
        self.waker.wake_by_ref();
    }

    fn take(&self) -> Vec<(TcpStream, Session)> {
        std::mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection as the protocol sees it. Its waker is called when what would block can go on.
struct Polled<'a> {
    stream: &'a TcpStream,
    waker: &'a Waker,
}

impl Socket for Polled<'_> {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(block) {
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock
                        && self.stream.poll_readable(self.waker) => {}
                result => return result,
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.write(bytes) {
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock
                        && self.stream.poll_writable(self.waker) => {}
                result => return result,
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn set_nodelay(&mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)
    }
}

struct Server {
    own: usize,
    inboxes: Arc<[Inbox]>,
    ready: ReadyQueue,
    listener: Arc<TcpListener>,
    /// Waits for a connection to accept.
    waiting: Option<Pin<Box<dyn Future<Output = ()>>>>,
    listener_waker: Waker,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    tokens: Vec<usize>,
    scratch: Vec<u8>,
}

impl Server {
    fn new(
        own: usize,
        inboxes: Arc<[Inbox]>,
        ready: ReadyQueue,
        listener: TcpListener,
    ) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let listener_waker = ready.waker(LISTENER);
        listener_waker.wake_by_ref();
        Ok(Server {
            own,
            inboxes,
            ready,
            listener: Arc::new(listener),
            waiting: None,
            listener_waker,
            connections: Vec::new(),
            free: Vec::new(),
            tokens: Vec::new(),
            scratch: vec![0; SCRATCH],
        })
    }

    /// Serves all that can go on. Says whether there was something.
    fn turn(&mut self) -> bool {
        let mut tokens = std::mem::take(&mut self.tokens);
        self.ready.take(&mut tokens);
        let worked = !tokens.is_empty();
        for token in tokens.drain(..) {
            match token {
                LISTENER => self.accept(),
                INBOX => {
                    for (stream, session) in self.inboxes[self.own].take() {
                        self.adopt(stream, session);
                    }
                }
                token => self.serve(token - FIRST),
            }
        }
        self.tokens = tokens;
        worked
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    self.adopt(stream, Session::new());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.is_acceptable() {
                        return;
                    }
                }
                // Its client has given up.
                Ok(_) => {}
                // Without a listener there is nothing to measure, and the client's limit ends it.
                Err(error) => return eprintln!("accepting: {error}"),
            }
        }
    }

    /// Whether there may be a connection. If not, the listener's token is woken when there is. All
    /// loops wait for the same listener.
    fn is_acceptable(&mut self) -> bool {
        let listener = &self.listener;
        let waiting = self.waiting.get_or_insert_with(|| {
            let listener = listener.clone();
            Box::pin(async move { listener.acceptable().await })
        });
        let mut context = Context::from_waker(&self.listener_waker);
        let ready = waiting.as_mut().poll(&mut context).is_ready();
        if ready {
            self.waiting = None;
        }
        ready
    }

    /// Goes on with a connection, or has the loop of its queue do so.
    fn adopt(&mut self, stream: TcpStream, session: Session) {
        let queue = stream.queue();
        if queue != self.own {
            return self.inboxes[queue].put(stream, session);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let waker = self.ready.waker(place + FIRST);
        self.connections[place] = Some(Connection { stream, session, waker });
        self.serve(place);
    }

    fn serve(&mut self, place: usize) {
        let Some(slot) = self.connections.get_mut(place) else { return };
        let moved = |connection: &mut Connection| connection.stream.queue() != self.own;
        if let Some(Connection { stream, session, .. }) = slot.take_if(moved) {
            self.free.push(place);
            return self.inboxes[stream.queue()].put(stream, session);
        }
        let Some(connection) = slot else { return };
        let Connection { stream, session, waker } = connection;
        match session.run(&mut Polled { stream, waker }, &mut self.scratch) {
            Turn::Sleep => {}
            Turn::Again => waker.wake_by_ref(),
            Turn::Done => {
                *slot = None;
                self.free.push(place);
            }
        }
    }

    /// Serves until the stack ends.
    fn run(&mut self, queue: &mut QueueLoop) -> Result<(), io::Error> {
        queue.stay_on_processor()?;
        loop {
            let polled = queue.poll_with(|| {
                self.turn();
            });
            if self.turn() || polled.worked {
                continue;
            }
            if let Some(error) = polled.ended {
                return Err(io::Error::other(error));
            }
            queue.wait(polled.next, || !self.ready.is_empty()).map_err(io::Error::other)?;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::of_program()?;
    let count = thread::available_parallelism()?.get().min(MOST_QUEUES);
    let config = TunConfig::default().name(args.device).steering(Steering::Processor);
    let mut devices = tun::open_queues(config, count)?.into_iter();
    let device = devices.next().ok_or("the device has no queue")?;
    let address = format!("{}/{PREFIX}", args.address.ip());
    let builder = Stack::builder().device(device).more_queues(devices).address(address);
    let stack = builder.queues(count).build_without_thread()?;
    let listener = TcpListener::bind(&stack, args.address)?;
    let queues = (0..count).map(|index| stack.queue(index)).collect::<Result<Vec<_>, _>>()?;
    let ready: Vec<ReadyQueue> =
        queues.iter().map(|queue| ReadyQueue::with_kicker(queue.kicker())).collect();
    let (ended, first) = mpsc::channel();
    let inbox = |ready: &ReadyQueue| Inbox { waiting: Mutex::default(), waker: ready.waker(INBOX) };
    let inboxes: Arc<[Inbox]> = ready.iter().map(inbox).collect();
    for (mut queue, ready) in queues.into_iter().zip(ready) {
        let (inboxes, listener) = (inboxes.clone(), listener.try_clone()?);
        let ended = ended.clone();
        thread::spawn(move || {
            let server = Server::new(queue.queue(), inboxes, ready, listener);
            // There is nobody to tell when the program ends.
            let _ = ended.send(server.and_then(|mut server| server.run(&mut queue)));
        });
    }
    drop(ended);
    peer_common::ready()?;
    // None ends by itself: whichever does first ends all.
    Ok(first.recv()??)
}
