//! Plimsoll over TUN: one thread polls the stack and serves all of its sockets, with defaults.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::task::Waker;

use peer_common::polled::{Session, Socket, Turn};
use peer_common::{Args, PREFIX, SCRATCH};
use plimsoll::device::tun::{self, TunConfig};
use plimsoll::{ReadyQueue, Stack, TcpListener, TcpStream};

/// The listener's token in the ready queue. A connection's is its place, and one more.
const LISTENER: usize = 0;

struct Connection {
    stream: TcpStream,
    session: Session,
    waker: Waker,
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
    ready: ReadyQueue,
    listener: TcpListener,
    listener_waker: Waker,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    tokens: Vec<usize>,
    scratch: Vec<u8>,
}

impl Server {
    fn new(ready: ReadyQueue, listener: TcpListener) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let listener_waker = ready.waker(LISTENER);
        listener_waker.wake_by_ref();
        Ok(Server {
            ready,
            listener,
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
                token => self.serve(token - 1),
            }
        }
        self.tokens = tokens;
        worked
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    let place = self.free.pop().unwrap_or_else(|| {
                        self.connections.push(None);
                        self.connections.len() - 1
                    });
                    let (session, waker) = (Session::new(), self.ready.waker(place + 1));
                    self.connections[place] = Some(Connection { stream, session, waker });
                    self.serve(place);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.listener.poll_acceptable(&self.listener_waker) {
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

    fn serve(&mut self, place: usize) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        let Connection { stream, session, waker } = connection;
        match session.run(&mut Polled { stream, waker }, &mut self.scratch) {
            Turn::Sleep => {}
            Turn::Again => waker.wake_by_ref(),
            Turn::Done => {
                self.connections[place] = None;
                self.free.push(place);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::of_program()?;
    let device = tun::open(TunConfig::default().name(args.device))?;
    let address = format!("{}/{PREFIX}", args.address.ip());
    let stack = Stack::builder().device(device).address(address).build_without_thread()?;
    let mut queue = stack.queue(0)?;
    let listener = TcpListener::bind(&stack, args.address)?;
    let mut server = Server::new(ReadyQueue::with_kicker(queue.kicker()), listener)?;
    peer_common::ready()?;
    loop {
        let polled = queue.poll_with(|| {
            server.turn();
        });
        if server.turn() || polled.worked {
            continue;
        }
        if let Some(error) = polled.ended {
            return Err(error.into());
        }
        queue.wait(polled.next, || !server.ready.is_empty())?;
    }
}
