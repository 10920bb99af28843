//! The gateway: starts the inside, and serves it until it ends.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Poll};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use plimsoll::device::tun::{self, FdConfig, PacketHeader};
use plimsoll::gate::{GateConfig, GatedListener, Incoming, Reject, Unreachable};
use plimsoll::{Stack, UdpListener, UdpSocket};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getpgrp, getrlimit, setrlimit};
use rustix::termios::tcgetpgrp;
use rustix::thread::{CapabilitySet, CapabilitySets};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};

use crate::handover::{End, Message};
use crate::inside;
use crate::policy::{self, Closed};
use crate::reactor::{Reactor, Readiness, Token, Tools};
use crate::tcp::{Connection, Progress};
use crate::udp::Flow;
use crate::{GATEWAY, GATEWAY_V6, GUEST, GUEST_V6, NAME_SERVER, dns};

/// The exit status if the gateway itself has failed, as of a container engine.
pub const FAILED: u8 = 125;

/// How long an attempt waits for its dial: longer than Linux dials.
const DIAL: Duration = Duration::from_secs(150);
/// Attempts that are dialled at once, at most.
const ATTEMPTS: usize = 16_384;
/// How long data that the command has left goes out, at most.
const LINGER: Duration = Duration::from_secs(30);
/// How long after the host's side has failed the command's is reset, at the latest.
const LATEST_RESET: Duration = Duration::from_secs(5);
/// How often the loop looks whether one of these is due.
const POLL: Duration = Duration::from_millis(20);
/// How often connections are looked at that have ended without a wake-up.
const SWEEP: Duration = Duration::from_secs(10);
/// Bytes of the longest datagram.
const DATAGRAM: usize = 65_535;

/// The request.
#[derive(Clone, Debug)]
pub struct Config {
    /// The MTU of the command's interface, 1280 to 65520.
    pub mtu: u16,
    /// Waits for children that outlive the command; they keep the network meanwhile.
    pub wait_for_all: bool,
    /// The gateway's own address leads to the host's loopback.
    pub host_loopback: bool,
    /// Link-local addresses may be reached, metadata services included.
    pub allow_link_local: bool,
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
    dns::write_files(files.path()).context("the files of the command's name server")?;
    let ports = config.ports.iter().map(publish).collect::<Result<Vec<_>>>()?;
    let (end, theirs) = End::pair()?;
    let mut inside = start(config, files.path().to_owned(), theirs)?;
    // No other process of the same user may look into this one.
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(hidden).context("prctl")?;
    raise_limit();
    let queues = match end.receive() {
        Ok(Some((Message::Queues, queues))) => queues,
        // It has said why.
        _ => return Ok(failed(&mut inside)),
    };
    send_input(&end)?;
    let end = Arc::new(end);
    let ended = Arc::new(AtomicBool::new(false));
    let mut gateway = Gateway::new(config, queues, (end.clone(), ended.clone()), ports)?;
    // Rights are those of a thread: another one begins without them.
    give_up_rights()?;
    pass_signals(&end, &ended)?;
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

/// As many descriptors as may be: each connection has one of the host's.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // With the lower limit fewer connections are served.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Packets of the command are processed without any right that this user has not.
fn give_up_rights() -> Result<()> {
    rustix::thread::set_no_new_privs(true).context("prctl")?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).context("capabilities")
}

/// Whether this process is in the foreground of a terminal, whose signals the command gets as well.
fn is_in_foreground() -> bool {
    let group = File::open("/dev/tty").ok().and_then(|tty| tcgetpgrp(tty).ok());
    group.is_some_and(|group| group == getpgrp())
}

/// Passes signals for this process on to the command. In the foreground, those of a terminal are
/// not passed on as long as it has not `ended`: it has them already.
fn pass_signals(end: &Arc<End>, ended: &Arc<AtomicBool>) -> Result<()> {
    let wanted = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
    let mut signals = inside::take_signals(&wanted)?;
    let (end, ended) = (end.clone(), ended.clone());
    let pass = move || {
        for signal in signals.forever() {
            let from_terminal = matches!(signal, SIGINT | SIGQUIT | SIGHUP | SIGWINCH)
                && !ended.load(Ordering::Acquire)
                && is_in_foreground();
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

    /// A number that none has had.
    fn number(&mut self) -> usize {
        self.next += 1;
        self.next
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
    /// Published ports, with the command's.
    ports: Vec<(TcpListener, u16)>,
    end: Arc<End>,
    /// How the command has ended.
    status: Option<u8>,
    /// It has.
    ended: Arc<AtomicBool>,
    /// All processes inside have ended.
    over: bool,
    buf: Vec<u8>,
    /// Connections whose host's side has failed, and until when the command may take what came
    /// before.
    broken: Vec<(usize, Instant)>,
    /// Tokens that can go on without news.
    again: Vec<(Token, Readiness)>,
}

impl<'a> Gateway<'a> {
    fn new(
        config: &'a Config,
        queues: Vec<OwnedFd>,
        (end, ended): (Arc<End>, Arc<AtomicBool>),
        ports: Vec<(TcpListener, u16)>,
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
        let gate = GateConfig::default().waiting(ATTEMPTS).per_source(ATTEMPTS).wait(DIAL);
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
            ports,
            end,
            status: None,
            ended,
            over: false,
            buf: vec![0; DATAGRAM],
            broken: Vec::new(),
            again: vec![
                (Token::End, Readiness::default()),
                (Token::Gate, Readiness::default()),
                (Token::Datagrams, Readiness::default()),
            ],
        })
    }

    /// Serves until all processes inside have ended. Returns the status of the command.
    fn serve(&mut self) -> Result<Option<u8>> {
        let (mut ready, mut until, mut swept) = (Vec::new(), None, Instant::now());
        loop {
            ready.append(&mut self.again);
            let soon = self.over || !self.broken.is_empty();
            let longest = if soon { POLL } else { SWEEP };
            let longest = (soon || !self.connections.all.is_empty()).then_some(longest);
            self.reactor.turn(&mut self.tools, (!ready.is_empty(), longest), &mut ready)?;
            for (token, news) in ready.drain(..) {
                self.on(token, news)?;
            }
            self.reset_broken();
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                let dead = |connection: &mut Connection| {
                    let dead = connection.is_dead();
                    if dead {
                        connection.reset_host();
                    }
                    dead
                };
                self.connections.all.retain(|_, connection| !dead(connection));
            }
            if self.over {
                let until = *until.get_or_insert(Instant::now() + LINGER);
                let goes_out = self.connections.all.values().any(Connection::goes_out);
                if !goes_out || Instant::now() >= until {
                    break;
                }
            }
        }
        // The host's side must not take a cut for the end of a stream.
        let left = self.connections.all.values().filter(|connection| connection.goes_out());
        left.for_each(Connection::reset_host);
        Ok(self.status)
    }

    /// Resets the command's side where the host's has failed, once it has what came before.
    fn reset_broken(&mut self) {
        let connections = &mut self.connections.all;
        self.broken.retain(|&(id, until)| {
            let Some(connection) = connections.get(&id) else { return false };
            let is_due = connection.is_delivered() || Instant::now() >= until;
            if is_due {
                connection.reset_guest();
                connections.remove(&id);
            }
            !is_due
        });
    }

    fn on(&mut self, token: Token, news: Readiness) -> Result<()> {
        let turn = match token {
            Token::Stack => Progress::Sleep,
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
            (Progress::Sleep, _) => {}
            (Progress::Again, token) => self.again.push((token, Readiness::default())),
            (Progress::Broken, Token::Tcp(id)) => {
                if !self.broken.iter().any(|&(known, _)| known == id) {
                    self.broken.push((id, Instant::now() + LATEST_RESET));
                }
            }
            (Progress::Done, Token::Tcp(id)) => drop(self.connections.all.remove(&id)),
            (Progress::Done, Token::Udp(id)) => drop(self.flows.all.remove(&id)),
            (Progress::Done | Progress::Broken, _) => {}
        }
        Ok(())
    }

    fn on_message(&mut self) -> Result<()> {
        loop {
            match self.end.receive() {
                Ok(Some((Message::Exited(status), _))) => self.on_end(status),
                Ok(Some((Message::Signaled(signal), _))) => {
                    self.on_end(128_u8.saturating_add(signal));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.over = true;
                    return Ok(());
                }
                // A signal was not read; what comes before the end still is.
                Err(Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error).context("the inside"),
            }
        }
    }

    fn on_end(&mut self, status: u8) {
        self.status = Some(status);
        self.ended.store(true, Ordering::Release);
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
        let id = self.connections.number();
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
            let id = self.connections.number();
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
        // It may have ended.
        let Ok(to) = guest.local_addr() else { return Ok(()) };
        let to = match self.destination(to) {
            Ok(to) => to,
            Err(how) => {
                let _ = guest.refuse(how);
                return Ok(());
            }
        };
        let id = self.flows.number();
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
            return dns::host_name_server().ok_or(Unreachable::Port);
        }
        let loopback = match to.ip() {
            IpAddr::V4(GATEWAY) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            IpAddr::V6(GATEWAY_V6) => Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            IpAddr::V4(NAME_SERVER) => None,
            ip => return self.judged(ip, to),
        };
        let loopback = loopback.filter(|_| self.config.host_loopback);
        loopback.map(|ip| SocketAddr::new(ip, to.port())).ok_or(Unreachable::Port)
    }

    /// The same for a destination beyond the gateway.
    fn judged(&self, ip: IpAddr, to: SocketAddr) -> Result<SocketAddr, Unreachable> {
        match policy::closed(ip) {
            Ok(None) => Ok(to),
            Ok(Some(Closed::LinkLocal | Closed::Metadata)) if self.config.allow_link_local => {
                Ok(to)
            }
            Ok(Some(why)) => {
                self.report(to, &why.to_string());
                Err(match why {
                    Closed::NoHost => Unreachable::Network,
                    _ => Unreachable::Prohibited,
                })
            }
            Err(error) => {
                self.report(to, &format!("{error:#}"));
                Err(Unreachable::Prohibited)
            }
        }
    }

    fn report(&self, to: SocketAddr, why: &str) {
        if self.config.verbose {
            // The reader may be gone.
            let _ = writeln!(io::stderr(), "plimsoll: {to} is closed: {why}");
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
