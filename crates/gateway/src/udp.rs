//! Datagrams: each new pair of addresses is a flow with a socket of the host.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as HostSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll::UdpSocket;
use plimsoll::UdpTransmit;
use plimsoll::gate::Unreachable;

use rustix::io::Errno;

use crate::names::{Treatment, files};
use crate::reactor::{Readiness, Token, Tools};
use crate::tcp::Progress;

/// Datagrams that a turn moves in one direction.
const TURN_DATAGRAMS: usize = 64;

/// How long a flow on which both sides have sent more than once stays without a datagram.
const CONVERSATION: Duration = Duration::from_secs(300);
/// How long a visitor's flow stays without a datagram.
const VISIT: Duration = Duration::from_secs(120);

/// A flow.
pub(crate) struct Flow {
    /// `None` once it is refused.
    guest: Option<UdpSocket>,
    host: Host,
    token: Token,
    ready: Readiness,
    talk: Talk,
    /// For queries to the gateway's name server.
    lookup: Option<Lookup>,
}

/// The state of a flow of queries.
#[derive(Default)]
struct Lookup {
    /// The identifier of the latest query that has no answer.
    waiting: Option<[u8; 2]>,
    /// How often a query came again: then another name server is to answer it.
    repeated: usize,
}

/// The host's side of a flow.
enum Host {
    /// A socket of the flow's own.
    Own(HostSocket),
    /// The socket of a published port, the visitor, and the latest datagram.
    Published(Arc<HostSocket>, SocketAddr, Instant),
}

impl Host {
    fn send(&self, data: &[u8]) -> std::io::Result<usize> {
        match self {
            Host::Own(socket) => socket.send(data),
            Host::Published(socket, visitor, _) => socket.send_to(data, visitor),
        }
    }
}

/// How far the two sides talk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Talk {
    Asked,
    Answered,
    Both,
}

/// The ICMP error for an error of the host's socket.
pub(crate) fn unreachable(kind: ErrorKind) -> Unreachable {
    match kind {
        ErrorKind::ConnectionRefused => Unreachable::Port,
        ErrorKind::NetworkUnreachable => Unreachable::Network,
        ErrorKind::PermissionDenied => Unreachable::Prohibited,
        _ => Unreachable::Host,
    }
}

/// Whether an error of a send is that of one datagram: a full queue, or too long a datagram.
pub(crate) fn loses(error: &std::io::Error) -> bool {
    let of_one = [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::MSGSIZE, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|error| of_one.contains(&error))
}

/// A socket of the host for `to`, with the port of the command if it is free.
fn open(to: SocketAddr, port: u16) -> std::io::Result<HostSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let host = HostSocket::bind((any, port)).or_else(|_| HostSocket::bind((any, 0)))?;
    host.set_nonblocking(true)?;
    host.connect(to)?;
    // Before it was connected it took datagrams of anyone.
    while host.recv(&mut [0]).is_ok() {}
    Ok(host)
}

impl Lookup {
    /// Leads a query that comes again, since it had no answer, to the next of the host's servers.
    fn choose_server(&mut self, host: &Host, query: &[u8]) {
        let id = query.first_chunk().copied();
        if self.waiting != id {
            self.waiting = id;
            return;
        }
        self.repeated += 1;
        let Host::Own(socket) = host else { return };
        let is_v4 = socket.local_addr().is_ok_and(|local| local.is_ipv4());
        let mut servers = files::host_name_servers();
        servers.retain(|server| server.is_ipv4() == is_v4);
        if !servers.is_empty() {
            // Without a route it stays with the server that it has.
            let _ = socket.connect(servers[self.repeated % servers.len()]);
        }
    }
}

impl Flow {
    /// Opens the host's side of a flow to `to`. If that fails, the flow is refused.
    pub(crate) fn begin(
        guest: UdpSocket,
        to: SocketAddr,
        token: Token,
        tools: &Tools,
    ) -> Option<Flow> {
        let port = guest.peer_addr().map_or(0, |peer| peer.port());
        let host = open(to, port).and_then(|host| {
            guest.set_nonblocking(true)?;
            tools.watch(&host, token)?;
            Ok(host)
        });
        match host {
            Ok(host) => {
                let ready = Readiness { readable: true, writable: true };
                let local = guest.local_addr().ok();
                let is_lookup = local.is_some_and(|local| tools.names.serves(local));
                let lookup = is_lookup.then(Lookup::default);
                let (guest, host) = (Some(guest), Host::Own(host));
                Some(Flow { guest, host, token, ready, talk: Talk::Asked, lookup })
            }
            Err(error) => {
                let _ = guest.refuse(unreachable(error.kind()));
                None
            }
        }
    }

    /// Begins a flow for a visitor of a published port: `from` is the source that the command sees.
    ///
    /// # Errors
    /// If the stack has no socket for it.
    pub(crate) fn welcome(
        (from, to): (SocketAddr, SocketAddr),
        (host, visitor): (Arc<HostSocket>, SocketAddr),
        token: Token,
        tools: &Tools,
    ) -> std::io::Result<Flow> {
        let stack = &tools.stack;
        // Visitors whose addresses the command sees as one may have one port.
        let bound = UdpSocket::bind(stack, from)
            .or_else(|_| UdpSocket::bind(stack, SocketAddr::new(from.ip(), 0)));
        let guest = bound?;
        guest.set_nonblocking(true)?;
        guest.connect(to)?;
        let host = Host::Published(host, visitor, Instant::now());
        let (guest, ready) = (Some(guest), Readiness::default());
        Ok(Flow { guest, host, token, ready, talk: Talk::Asked, lookup: None })
    }

    /// Whether a visitor's flow has had no datagram for long. The stack ends all others itself.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(&self.host, Host::Published(_, _, used) if used.elapsed() >= VISIT)
    }

    /// Passes a visitor's datagram to the command.
    pub(crate) fn pass_down(&mut self, data: &[u8]) {
        if let Host::Published(_, _, used) = &mut self.host {
            *used = Instant::now();
        }
        if let Some(guest) = &self.guest {
            // A full queue loses it.
            let _ = guest.try_send_msg(&UdpTransmit::default(), &[data]);
        }
    }

    /// Goes on as far as it can.
    pub(crate) fn turn(&mut self, news: Readiness, tools: &Tools, buf: &mut [u8]) -> Progress {
        self.ready.readable |= news.readable;
        match (self.carry_up(tools, buf), self.carry_down(tools, buf)) {
            (Progress::Done, _) | (_, Progress::Done) => Progress::Done,
            (Progress::Again, _) | (_, Progress::Again) => Progress::Again,
            _ => Progress::Sleep,
        }
    }

    fn carry_up(&mut self, tools: &Tools, buf: &mut [u8]) -> Progress {
        for _ in 0..TURN_DATAGRAMS {
            let Some(guest) = &self.guest else { return Progress::Done };
            let len = match guest.recv(buf) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waker = tools.ready.waker(self.token.number());
                    let mut cx = std::task::Context::from_waker(&waker);
                    match guest.poll_recv_ready(&mut cx) {
                        std::task::Poll::Ready(Ok(())) => continue,
                        std::task::Poll::Ready(Err(_)) => return Progress::Done,
                        std::task::Poll::Pending => return Progress::Sleep,
                    }
                }
                // It has been idle for long, or its sender has gone.
                Err(_) => return Progress::Done,
            };
            if self.talk == Talk::Answered {
                self.talk = Talk::Both;
                // It may have ended.
                let _ = guest.set_idle_timeout(CONVERSATION);
            }
            if let Host::Published(_, _, used) = &mut self.host {
                *used = Instant::now();
            }
            if let Some(lookup) = &mut self.lookup {
                match tools.names.treat(&buf[..len]) {
                    Treatment::Forward => lookup.choose_server(&self.host, &buf[..len]),
                    Treatment::Answer(answer) => {
                        // A full queue loses it.
                        let _ = guest.try_send_msg(&UdpTransmit::default(), &[&answer]);
                        continue;
                    }
                    Treatment::Drop => continue,
                }
            }
            match self.host.send(&buf[..len]) {
                // A full queue loses the datagram, as any queue does.
                Ok(_) => {}
                Err(error) if loses(&error) => {}
                Err(error) => return self.refuse(error.kind()),
            }
        }
        Progress::Again
    }

    fn carry_down(&mut self, tools: &Tools, buf: &mut [u8]) -> Progress {
        let Host::Own(host) = &self.host else { return Progress::Sleep };
        for _ in 0..TURN_DATAGRAMS {
            if !self.ready.readable {
                return Progress::Sleep;
            }
            match host.recv(buf) {
                Ok(len) => {
                    let Some(guest) = &self.guest else { return Progress::Done };
                    if self.talk == Talk::Asked {
                        self.talk = Talk::Answered;
                    }
                    if let Some(lookup) = &mut self.lookup {
                        lookup.waiting = None;
                        tools.names.learn(&buf[..len], Instant::now());
                    }
                    // A full queue loses it.
                    let _ = guest.try_send_msg(&UdpTransmit::default(), &[&buf[..len]]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.ready.readable = false;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.refuse(error.kind()),
            }
        }
        Progress::Again
    }

    /// The host's error is the command's.
    fn refuse(&mut self, kind: ErrorKind) -> Progress {
        if let Some(guest) = self.guest.take() {
            let _ = guest.refuse(unreachable(kind));
        }
        Progress::Done
    }
}
