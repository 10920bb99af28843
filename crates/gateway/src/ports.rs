//! Ports of the host that lead to ports of the command.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket as HostSocket};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::Waker;

use anyhow::{Context, Result, bail};

use crate::network::Network;
use crate::reactor::{Token, Tools};
use crate::worker::Numbered;

/// The protocol of a published port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of the host that leads to one of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The address and port on the host.
    pub host: SocketAddr,
    /// The port of the command.
    pub guest: u16,
}

impl FromStr for Port {
    type Err = String;

    /// Reads `[IP:]HOST:GUEST[/udp]`, where the address is 127.0.0.1 if there is none.
    fn from_str(text: &str) -> Result<Port, String> {
        let wrong = || {
            format!(
                "'{text}' is not of the form [IP:]HOST:GUEST[/udp], as in 8080:80 or [::1]:53:53/udp"
            )
        };
        let (ports, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some(_) => return Err(wrong()),
        };
        let (host, guest) = ports.rsplit_once(':').ok_or_else(wrong)?;
        let guest = guest.parse().ok().filter(|&port: &u16| port > 0).ok_or_else(wrong)?;
        let host = match host.parse::<u16>() {
            Ok(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            Err(_) => host.parse().map_err(|_| wrong())?,
        };
        if host.port() == 0 {
            return Err(wrong());
        }
        Ok(Port { protocol, host, guest })
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Protocol::Tcp { "tcp" } else { "udp" })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.host, self.guest, self.protocol)
    }
}

/// The host's socket of a published port.
pub(crate) enum Socket {
    Tcp(TcpListener),
    Udp(Arc<HostSocket>),
}

impl Socket {
    fn open(port: &Port) -> Result<Socket> {
        let open = || -> io::Result<Socket> {
            Ok(match port.protocol {
                Protocol::Tcp => {
                    let listener = TcpListener::bind(port.host)?;
                    listener.set_nonblocking(true)?;
                    Socket::Tcp(listener)
                }
                Protocol::Udp => {
                    let socket = HostSocket::bind(port.host)?;
                    socket.set_nonblocking(true)?;
                    Socket::Udp(Arc::new(socket))
                }
            })
        };
        open().map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => "another program has that port; choose one that is free",
                ErrorKind::PermissionDenied => {
                    "the port is below net.ipv4.ip_unprivileged_port_start, and a gateway that \
                     runs has no rights, also that of root; choose a higher one"
                }
                _ => "give an address of this host and a port that is free",
            };
            anyhow::Error::new(error).context(format!("cannot publish {}: {hint}", port.host))
        })
    }
}

/// A request about the published ports, and where its answer goes.
pub(crate) enum Request {
    Add(Port, Sender<Result<usize, String>>),
    Remove(Port, Sender<Result<(), String>>),
    List(Sender<Result<Vec<(usize, Port)>, String>>),
}

/// Changes the published ports of a running gateway.
#[derive(Clone, Debug)]
pub struct PortControl {
    requests: Sender<Request>,
    waker: Waker,
}

impl PortControl {
    pub(crate) fn new(tools: &Tools) -> (PortControl, Receiver<Request>) {
        let (requests, received) = mpsc::channel();
        let waker = tools.ready.waker(Token::Requests.number());
        (PortControl { requests, waker }, received)
    }

    /// Wakes the loop.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Publishes a port. Returns its number.
    ///
    /// # Errors
    /// If the host refuses; the text says why. If the gateway has ended.
    pub fn add(&self, port: Port) -> Result<usize, String> {
        self.request(|answer| Request::Add(port, answer))
    }

    /// Ends a published port. Connections through it stay, and flows of datagrams end.
    ///
    /// # Errors
    /// If it is not published, or the gateway has ended.
    pub fn remove(&self, port: Port) -> Result<(), String> {
        self.request(|answer| Request::Remove(port, answer))
    }

    /// The published ports with their numbers, which stay and count from 1.
    ///
    /// # Errors
    /// If the gateway has ended.
    pub fn list(&self) -> Result<Vec<(usize, Port)>, String> {
        self.request(Request::List)
    }

    fn request<T>(
        &self,
        request: impl FnOnce(Sender<Result<T, String>>) -> Request,
    ) -> Result<T, String> {
        let (answer, answered) = mpsc::channel();
        let ended = || "the gateway has ended".to_owned();
        self.requests.send(request(answer)).map_err(|_| ended())?;
        self.waker.wake_by_ref();
        answered.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// The published ports.
pub(crate) struct Ports {
    open: Numbered<(Port, Socket)>,
    /// Flows of visitors, by the port and the visitor's address.
    pub(crate) visitors: HashMap<(usize, SocketAddr), usize>,
}

impl Ports {
    /// Opens the host's sockets.
    pub(crate) fn open(ports: &[Port]) -> Result<Ports> {
        let mut open = Numbered::new();
        for port in ports {
            let id = open.number();
            open.all.insert(id, (*port, Socket::open(port)?));
        }
        Ok(Ports { open, visitors: HashMap::new() })
    }

    /// Watches all of them.
    pub(crate) fn watch(&self, tools: &Tools) -> io::Result<()> {
        self.open.all.iter().try_for_each(|(&id, (_, socket))| watch(id, socket, tools))
    }

    pub(crate) fn get(&self, id: usize) -> Option<&(Port, Socket)> {
        self.open.all.get(&id)
    }

    /// Carries out a request and answers it. Returns the flows that end by it.
    pub(crate) fn on_request(&mut self, request: Request, tools: &Tools) -> Vec<usize> {
        let mut ended = Vec::new();
        let text = |error: anyhow::Error| format!("{error:#}");
        // The requester may be gone.
        match request {
            Request::Add(port, answer) => {
                let _ = answer.send(self.add(port, tools).map_err(text));
            }
            Request::Remove(port, answer) => {
                let removed = self.remove(port).map(|flows| ended = flows);
                let _ = answer.send(removed.map_err(text));
            }
            Request::List(answer) => {
                let of = |(&number, (port, _)): (&usize, &(Port, Socket))| (number, *port);
                let mut all: Vec<(usize, Port)> = self.open.all.iter().map(of).collect();
                all.sort_by_key(|(_, port)| (port.host, port.guest));
                let _ = answer.send(Ok(all));
            }
        }
        ended
    }

    /// Closes the host's sockets. Connections through them stay. Returns the flows, which keep the
    /// socket of their port.
    pub(crate) fn close(&mut self) -> Vec<usize> {
        self.open.all.clear();
        self.visitors.drain().map(|(_, flow)| flow).collect()
    }

    fn add(&mut self, port: Port, tools: &Tools) -> Result<usize> {
        let socket = Socket::open(&port)?;
        let id = self.open.number();
        watch(id, &socket, tools).context("epoll")?;
        self.open.all.insert(id, (port, socket));
        Ok(id)
    }

    fn remove(&mut self, port: Port) -> Result<Vec<usize>> {
        let found = self.open.all.iter().find(|(_, (open, _))| *open == port);
        let Some((&id, _)) = found else { bail!("{port} is not published") };
        self.open.all.remove(&id);
        let ended = self.visitors.extract_if(|&(port, _), _| port == id);
        Ok(ended.map(|(_, flow)| flow).collect())
    }
}

fn watch(id: usize, socket: &Socket, tools: &Tools) -> io::Result<()> {
    match socket {
        Socket::Tcp(listener) => tools.watch(listener, Token::Port(id)),
        Socket::Udp(socket) => tools.watch(socket, Token::Port(id)),
    }
}

/// The source and the destination that the command sees of a visitor. An address of the host's
/// loopback would be its own, so it sees the gateway's.
pub(crate) fn visitor(network: Network, ip: IpAddr, port: u16) -> (IpAddr, SocketAddr) {
    match ip.to_canonical() {
        ip @ IpAddr::V4(v4) => {
            let from = if v4.is_loopback() { network.gateway().into() } else { ip };
            (from, SocketAddr::new(network.guest().into(), port))
        }
        ip @ IpAddr::V6(v6) => {
            let near = v6.is_loopback() || v6.is_unicast_link_local();
            let from = if near { network.gateway_v6().into() } else { ip };
            (from, SocketAddr::new(network.guest_v6().into(), port))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ports() {
        let of = |text: &str| text.parse::<Port>().map(|port| port.to_string());
        assert_eq!(of("8080:80"), Ok("127.0.0.1:8080:80/tcp".to_owned()));
        assert_eq!(of("192.0.2.1:8080:80/tcp"), Ok("192.0.2.1:8080:80/tcp".to_owned()));
        assert_eq!(of("[::1]:53:5353/udp"), Ok("[::1]:53:5353/udp".to_owned()));
        let wrong = ["80", "0:80", "8080:0", "8080:http", "::1:80:80:", "8080:80/sctp", "99999:80"];
        for wrong in wrong {
            assert!(of(wrong).unwrap_err().contains("[IP:]HOST:GUEST[/udp]"), "{wrong}");
        }
    }

    #[test]
    fn visitors_keep_their_address_unless_it_is_the_command_s_own() {
        let network: Network = "10.0.2.0/24".parse().unwrap();
        let seen = |ip: &str| visitor(network, ip.parse().unwrap(), 80).0.to_string();
        assert_eq!(seen("192.0.2.7"), "192.0.2.7");
        assert_eq!(seen("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(seen("127.0.0.1"), network.gateway().to_string());
        assert_eq!(seen("2001:db8::7"), "2001:db8::7");
        assert_eq!(seen("::1"), network.gateway_v6().to_string());
    }
}
