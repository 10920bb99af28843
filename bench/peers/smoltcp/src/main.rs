//! smoltcp over TUN: one thread polls the interface and serves all of its sockets.
//!
//! smoltcp has no listeners: a socket that listens becomes the connection. So some sockets listen
//! at any time, and a socket whose connection is over listens again or is kept for later.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use peer_common::polled::{Session, Socket, Turn};
use peer_common::{Args, PREFIX, SCRATCH};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::socket::tcp::{self, RecvError, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

/// Sockets that listen: more than connections of a measurement of rates come at once. Each costs
/// something for each packet.
const LISTENING: usize = 24;

/// Bytes of each of the two buffers of a socket.
const BUFFER: usize = 256 * 1024;

/// A connection as the protocol sees it.
struct Polled<'a, 'b>(&'a mut tcp::Socket<'b>);

fn gone() -> io::Error {
    ErrorKind::NotConnected.into()
}

fn some(count: usize) -> io::Result<usize> {
    if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
}

impl Socket for Polled<'_, '_> {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self.0.recv_slice(block) {
            Ok(count) => some(count),
            Err(RecvError::Finished) => Ok(0),
            Err(RecvError::InvalidState) => Err(gone()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        some(self.0.send_slice(bytes).map_err(|_| gone())?)
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.close();
        Ok(())
    }

    fn set_nodelay(&mut self) -> io::Result<()> {
        self.0.set_nagle_enabled(false);
        Ok(())
    }
}

/// A socket and what it is at the moment.
struct Place {
    handle: SocketHandle,
    stage: Stage,
}

enum Stage {
    /// It listens, or its handshake is not over.
    Listening,
    Serving(Session),
    /// The session is over, the connection not yet.
    Closing,
}

struct Server {
    port: u16,
    places: Vec<Place>,
    scratch: Vec<u8>,
}

impl Server {
    /// Serves all that can go on. Says whether something could go on at once.
    fn turn(&mut self, sockets: &mut SocketSet<'_>) -> bool {
        let (mut again, mut listening, mut over) = (false, 0, Vec::new());
        for (at, place) in self.places.iter_mut().enumerate() {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(place.handle);
            if matches!(place.stage, Stage::Listening) {
                if matches!(socket.state(), State::Listen | State::SynReceived) {
                    listening += usize::from(socket.state() == State::Listen);
                    continue;
                }
                place.stage = Stage::Serving(Session::new());
            }
            if let Stage::Serving(session) = &mut place.stage {
                match session.run(&mut Polled(socket), &mut self.scratch) {
                    Turn::Sleep => {}
                    Turn::Again => again = true,
                    Turn::Done => {
                        socket.close();
                        place.stage = Stage::Closing;
                    }
                }
            }
            if matches!(place.stage, Stage::Closing) && socket.state() == State::Closed {
                over.push(at);
            }
        }
        for _ in listening..LISTENING {
            self.listen(over.pop(), sockets);
        }
        // The last one takes the place of one that is removed, so the highest goes first.
        for at in over.into_iter().rev() {
            sockets.remove(self.places.swap_remove(at).handle);
        }
        again
    }

    /// Has a socket listen: the one at `place`, or a new one.
    fn listen(&mut self, place: Option<usize>, sockets: &mut SocketSet<'_>) {
        let at = place.unwrap_or_else(|| {
            let buffer = || SocketBuffer::new(vec![0; BUFFER]);
            let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
            self.places.push(Place { handle, stage: Stage::Listening });
            self.places.len() - 1
        });
        let place = &mut self.places[at];
        let socket = sockets.get_mut::<tcp::Socket<'_>>(place.handle);
        socket.set_nagle_enabled(true);
        socket.listen(self.port).expect("a closed socket can listen on a port that is not 0");
        place.stage = Stage::Listening;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::of_program()?;
    let mut device = TunTapInterface::new(&args.device, Medium::Ip)?;
    let descriptor = device.as_raw_fd();
    let mut interface =
        Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::now());
    let IpAddr::V4(address) = args.address.ip() else { return Err("IPv4 addresses only".into()) };
    let address = IpCidr::new(IpAddress::Ipv4(address), PREFIX);
    let mut added = Ok(());
    interface.update_ip_addrs(|addresses| added = addresses.push(address));
    added.map_err(|_| "the interface has no place for an address")?;
    let mut sockets = SocketSet::new(Vec::new());
    let mut server =
        Server { port: args.address.port(), places: Vec::new(), scratch: vec![0; SCRATCH] };
    server.turn(&mut sockets);
    peer_common::ready()?;
    loop {
        interface.poll(Instant::now(), &mut device, &mut sockets);
        let again = server.turn(&mut sockets);
        let delay = interface.poll_delay(Instant::now(), &sockets);
        if !again && delay != Some(Duration::ZERO) {
            wait(descriptor, delay)?;
        }
    }
}
