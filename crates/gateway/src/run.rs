//! The gateway: starts the inside, and serves it until it ends.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::task::{self, Poll};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use plimsoll::device::tun::{self, FdConfig, PacketHeader};
use plimsoll::gate::{GateConfig, GatedListener, Incoming, Reject, Unreachable};
use plimsoll::{Stack, UdpListener, UdpSocket};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::handover::{End, Message};
use crate::policy::{self, Closed};
use crate::reactor::{Reactor, Readiness, Token, Tools};
use crate::tcp::{Connection, Turn};
use crate::udp::Flow;
use crate::{GATEWAY, GATEWAY_V6, GUEST, GUEST_V6, NAME_SERVER, dns};

/// The exit status if the gateway itself has failed, as of a container engine.
pub const FAILED: u8 = 125;

/// How long an attempt waits for its dial: longer than Linux dials.
const DIAL: Duration = Duration::from_secs(150);
/// Bytes of the longest datagram.
const DATAGRAM: usize = 65_535;

/// The request.
#[derive(Clone, Debug)]
pub struct Config {
    /// The MTU of the command's interface, 1280 to 65520.
    pub mtu: u16,
    /// Waits for children that outlive the command; they keep the network meanwhile.
    pub wait_for_all: bool,
    /// Ports of the host that lead to ports of the command.
    pub ports: Vec<Port>,
    /// Where a capture of the command's packets goes, with the reasons as comments.
    pub pcap: Option<PathBuf>,
    /// Says on standard error what is refused.
    pub verbose: bool,
    /// How this program is started again as [the inside](crate::inside): its first arguments.
    pub start_inside: Vec<String>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// A port of the host that leads to one of the command (TCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The address and port on the host.
    pub host: SocketAddr,
    /// The port of the command.
    pub guest: u16,
}

/// Runs the command. Returns its exit status, or 128 and the signal that has ended it.
///
/// # Errors
/// If the gateway cannot be set up, or fails.
pub fn run(config: &Config) -> Result<u8> {
    let files = tempfile::tempdir().context("cannot make a folder for files")?;
    let resolver = dns::write_files(files.path()).context("the host's name server")?;
    let ports = config.ports.iter().map(publish).collect::<Result<Vec<_>>>()?;
    let (end, theirs) = End::pair()?;
    let mut inside = start(config, files.path().to_owned(), theirs)?;
    // No other process of the same user may look into this one.
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(hidden).context("prctl")?;
    let queues = match end.receive() {
        Ok(Some((Message::Queues, queues))) => queues,
        // It has said why.
        _ => return Ok(failed(&mut inside)),
    };
    send_input(&end)?;
    let end = Arc::new(end);
    pass_signals(&end)?;
    let mut gateway = Gateway::new(config, queues, resolver, (end, ports))?;
    let status = gateway.serve()?;
    let ended = inside.wait().context("the inside")?;
    Ok(match status {
        Some(status) => status,
        None => ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED).max(1),
    })
}

/// Listens on a port of the host.
fn publish(port: &Port) -> Result<(TcpListener, u16)> {
    let listener = TcpListener::bind(port.host).with_context(|| {
        format!("cannot publish {}: choose a port that is free and allowed", port.host)
    })?;
    listener.set_nonblocking(true)?;
    Ok((listener, port.guest))
}

/// Starts the inside.
fn start(config: &Config, files: PathBuf, end: End) -> Result<Child> {
    Command::new("/proc/self/exe")
        .args(&config.start_inside)
        .arg("--mtu")
        .arg(config.mtu.to_string())
        .arg("--files")
        .arg(files)
        .args((!config.wait_for_all).then_some("--no-wait"))
        .arg("--")
        .args(&config.command)
        .stdin(end.into_fd())
        .spawn()
        .context("cannot start the program again")
}

/// The status of an inside that has ended before it was ready.
fn failed(inside: &mut Child) -> u8 {
    let _ = inside.wait();
    FAILED
}

/// Passes our standard input to the command, if we have one.
fn send_input(end: &End) -> Result<()> {
    let stdin = io::stdin();
    // A closed descriptor cannot be passed on.
    let own = stdin.as_fd().try_clone_to_owned().ok();
    let fds: Vec<_> = own.iter().map(|fd| fd.as_fd()).collect();
    end.send(Message::Input, &fds)
}

/// Passes signals for this process on to the command. A terminal sends its own to the command as
/// well, so those are not passed on.
fn pass_signals(end: &Arc<End>) -> Result<()> {
    let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
    let mut signals = Signals::new(wanted).context("signals")?;
    let end = end.clone();
    let pass = move || {
        for signal in signals.forever() {
            let from_terminal = matches!(signal, SIGINT | SIGQUIT | SIGHUP | SIGWINCH)
                && io::stderr().is_terminal();
            if !from_terminal && let Ok(number) = u8::try_from(signal) {
                // The command may have ended.
                let _ = end.send(Message::Signal(number), &[]);
            }
        }
    };
    let started = thread::Builder::new().name("signals".into()).spawn(pass);
    started.map(drop).context("cannot start a thread")
}

/// Connections and flows by their number.
struct Numbered<T> {
    all: HashMap<usize, T>,
    next: usize,
}

impl<T> Numbered<T> {
    fn new() -> Numbered<T> {
        Numbered { all: HashMap::new(), next: 0 }
    }
}

struct Gateway<'a> {
    config: &'a Config,
    reactor: Reactor,
    tools: Tools,
    gate: GatedListener,
    datagrams: UdpListener,
    connections: Numbered<Connection>,
    flows: Numbered<Flow>,
    resolver: Option<SocketAddr>,
    /// Published ports, with the command's.
    ports: Vec<(TcpListener, u16)>,
    end: Arc<End>,
    /// How the command has ended.
    status: Option<u8>,
    /// All processes inside have ended.
    over: bool,
    buf: Vec<u8>,
    /// Tokens that can go on without news.
    again: Vec<(Token, Readiness)>,
}

impl<'a> Gateway<'a> {
    fn new(
        config: &'a Config,
        queues: Vec<OwnedFd>,
        resolver: Option<SocketAddr>,
        (end, ports): (Arc<End>, Vec<(TcpListener, u16)>),
    ) -> Result<Gateway<'a>> {
        let [queue] = <[OwnedFd; 1]>::try_from(queues).map_err(|_| anyhow!("one queue"))?;
        let device = FdConfig::with_mtu(config.mtu).name(crate::INTERFACE);
        let device = tun::from_fd(queue, device.header(PacketHeader::Detect))?;
        let mut builder = Stack::builder()
            .device(device)
            .address(format!("{GATEWAY}/24"))
            .address(format!("{GATEWAY_V6}/64"))
            .any_address();
        if let Some(path) = &config.pcap {
            builder = builder.pcap(path);
        }
        let stack = builder.build_without_thread()?;
        // All attempts are of one guest. A dial ends by the host's own timeout.
        let gate = GateConfig::default().per_source(usize::MAX).wait(DIAL);
        let gate = GatedListener::bind_any(&stack, gate)?;
        let datagrams = UdpListener::bind_any(&stack)?;
        datagrams.set_nonblocking(true)?;
        let queue = stack.queue(0)?;
        let (reactor, tools) = Reactor::new(queue)?;
        end.set_nonblocking()?;
        tools.watch(&*end, Token::End)?;
        for (place, (listener, _)) in ports.iter().enumerate() {
            tools.watch(listener, Token::Port(place))?;
        }
        Ok(Gateway {
            config,
            reactor,
            tools,
            gate,
            datagrams,
            connections: Numbered::new(),
            flows: Numbered::new(),
            resolver,
            ports,
            end,
            status: None,
            over: false,
            buf: vec![0; DATAGRAM],
            again: vec![
                (Token::End, Readiness::default()),
                (Token::Gate, Readiness::default()),
                (Token::Datagrams, Readiness::default()),
            ],
        })
    }

    /// Serves until all processes inside have ended. Returns the status of the command.
    fn serve(&mut self) -> Result<Option<u8>> {
        let mut ready = Vec::new();
        while !self.over {
            ready.append(&mut self.again);
            let again = !ready.is_empty();
            self.reactor.turn(&mut self.tools, again, &mut ready)?;
            for (token, news) in ready.drain(..) {
                self.on(token, news)?;
            }
        }
        Ok(self.status)
    }

    fn on(&mut self, token: Token, news: Readiness) -> Result<()> {
        let turn = match token {
            Token::Stack => Turn::Sleep,
            Token::End => return self.on_message(),
            Token::Gate => return self.on_attempts(),
            Token::Datagrams => return self.on_datagrams(),
            Token::Port(place) => return self.on_visitors(place),
            Token::Tcp(id) => {
                let Some(connection) = self.connections.all.get_mut(&id) else { return Ok(()) };
                connection.turn(news, &mut self.tools)
            }
            Token::Udp(id) => {
                let Some(flow) = self.flows.all.get_mut(&id) else { return Ok(()) };
                flow.turn(news, &self.tools, &mut self.buf)
            }
        };
        match (turn, token) {
            (Turn::Sleep, _) => {}
            (Turn::Again, token) => self.again.push((token, Readiness::default())),
            (Turn::Done, Token::Tcp(id)) => drop(self.connections.all.remove(&id)),
            (Turn::Done, Token::Udp(id)) => drop(self.flows.all.remove(&id)),
            (Turn::Done, _) => {}
        }
        Ok(())
    }

    fn on_message(&mut self) -> Result<()> {
        loop {
            match self.end.receive() {
                Ok(Some((Message::Exited(status), _))) => self.status = Some(status),
                Ok(Some((Message::Signaled(signal), _))) => {
                    self.status = Some(128_u8.saturating_add(signal));
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(Errno::CONNRESET) => {
                    self.over = true;
                    return Ok(());
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error).context("the inside"),
            }
        }
    }

    fn on_attempts(&mut self) -> Result<()> {
        let waker = self.tools.ready.waker(Token::Gate.number());
        while let Poll::Ready(incoming) = self.gate.poll_incoming(&waker) {
            let incoming = incoming.context("the gate")?;
            self.dial(incoming)?;
        }
        Ok(())
    }

    fn dial(&mut self, incoming: Incoming) -> Result<()> {
        let to = match self.destination(incoming.destination()) {
            Ok(to) => to,
            Err(how) => {
                incoming.reject(Reject::Icmp(how));
                return Ok(());
            }
        };
        let id = self.connections.next;
        self.connections.next += 1;
        let token = Token::Tcp(id);
        if let Some(connection) = Connection::begin(incoming, to, token, &self.tools) {
            self.connections.all.insert(id, connection);
            self.on(token, Readiness::default())?;
        }
        Ok(())
    }

    /// Connections of the host's side to a published port.
    fn on_visitors(&mut self, place: usize) -> Result<()> {
        loop {
            let Some((listener, port)) = self.ports.get(place) else { return Ok(()) };
            let (host, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The visitor has gone, or descriptors are short: others are served.
                Err(_) => return Ok(()),
            };
            let port = *port;
            let (from, to) = visitor(peer.ip(), port);
            let id = self.connections.next;
            self.connections.next += 1;
            let token = Token::Tcp(id);
            // Without a connection the visitor is reset.
            if let Ok(connection) = Connection::enter(host, (from, to), token, &self.tools) {
                self.connections.all.insert(id, connection);
                self.on(token, Readiness::default())?;
            }
        }
    }

    fn on_datagrams(&mut self) -> Result<()> {
        loop {
            match self.datagrams.try_accept() {
                Ok(flow) => self.open(flow)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let waker = self.tools.ready.waker(Token::Datagrams.number());
                    let mut cx = task::Context::from_waker(&waker);
                    match self.datagrams.poll_accept(&mut cx) {
                        Poll::Ready(flow) => self.open(flow?)?,
                        Poll::Pending => return Ok(()),
                    }
                }
                Err(error) => return Err(error).context("datagrams"),
            }
        }
    }

    fn open(&mut self, guest: UdpSocket) -> Result<()> {
        let to = match self.destination(guest.local_addr()?) {
            Ok(to) => to,
            Err(how) => {
                // It may have ended.
                let _ = guest.refuse(how);
                return Ok(());
            }
        };
        let id = self.flows.next;
        self.flows.next += 1;
        let token = Token::Udp(id);
        if let Some(flow) = Flow::begin(guest, to, token, &self.tools) {
            self.flows.all.insert(id, flow);
            self.on(token, Readiness::default())?;
        }
        Ok(())
    }

    /// The host's destination for that of the command, or the error by which the command learns
    /// that it may not have it.
    fn destination(&self, to: SocketAddr) -> Result<SocketAddr, Unreachable> {
        if to == SocketAddr::new(IpAddr::V4(NAME_SERVER), dns::PORT) {
            // The host's name server is the one address that may be on the host itself.
            return self.resolver.ok_or(Unreachable::Port);
        }
        let own = [IpAddr::V4(GATEWAY), IpAddr::V4(NAME_SERVER), IpAddr::V6(GATEWAY_V6)];
        if own.contains(&to.ip()) {
            return Err(Unreachable::Port);
        }
        match policy::closed(to.ip()) {
            Ok(None) => Ok(to),
            Ok(Some(why)) => {
                self.tell(to, why.to_string());
                Err(match why {
                    Closed::NoHost => Unreachable::Network,
                    Closed::Host | Closed::LinkLocal => Unreachable::Prohibited,
                })
            }
            Err(error) => {
                self.tell(to, format!("{error:#}"));
                Err(Unreachable::Prohibited)
            }
        }
    }

    fn tell(&self, to: SocketAddr, why: String) {
        if self.config.verbose {
            eprintln!("plimsoll: {to} is closed: {why}");
        }
    }
}

/// The source and the destination that the command sees of a visitor. An address of the host's
/// loopback would be its own, so it sees the gateway's.
fn visitor(ip: IpAddr, port: u16) -> (IpAddr, SocketAddr) {
    match ip.to_canonical() {
        ip @ IpAddr::V4(v4) => {
            let from = if v4.is_loopback() { GATEWAY.into() } else { ip };
            (from, SocketAddr::new(GUEST.into(), port))
        }
        ip @ IpAddr::V6(v6) => {
            let near = v6.is_loopback() || v6.is_unicast_link_local();
            let from = if near { GATEWAY_V6.into() } else { ip };
            (from, SocketAddr::new(GUEST_V6.into(), port))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_keep_their_address_unless_it_is_the_command_s_own() {
        let seen = |ip: &str| visitor(ip.parse().unwrap(), 80).0.to_string();
        assert_eq!(seen("192.0.2.7"), "192.0.2.7");
        assert_eq!(seen("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(seen("127.0.0.1"), GATEWAY.to_string());
        assert_eq!(seen("2001:db8::7"), "2001:db8::7");
        assert_eq!(seen("::1"), GATEWAY_V6.to_string());
    }
}
