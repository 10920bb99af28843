//! The gateway's first loop: in addition to what every loop does, it accepts from the host's
//! published ports, passes pings on, and follows the command to its end.

use std::io;
use std::net::{SocketAddr, UdpSocket as HostSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};
use plimsoll::device::Device;
use plimsoll::device::tun::{self, FdConfig, PacketHeader};
use plimsoll::{Stack, UnhandledConfig, UnhandledPackets};
use rustix::io::Errno;

use crate::config::Config;
use crate::connections::ConnectionControl;
use crate::fronts::Fronts;
use crate::handover::{End, Message};
use crate::names::Names;
use crate::network::Network;
use crate::ping::Pings;
use crate::ports::{self, PortControl, Ports, Request, Socket};
use crate::reactor::{Readiness, Round, Token, Tools};
use crate::reasons::Reasons;
use crate::rules::Access;
use crate::weather::{Weather, WeatherControl};
use crate::worker::{self, Shared, TURN_DATAGRAMS, Task, Worker};

/// Visitors of published UDP ports, at most.
const VISITORS: usize = 4096;

/// The stack, the host's ports and the loop of the first queue.
pub(crate) struct FirstLoop {
    worker: Worker,
    /// The loops of the other queues.
    others: Vec<Worker>,
    running: Vec<JoinHandle<Result<()>>>,
    pings: Pings,
    ports: Ports,
    requests: Receiver<Request>,
    end: Arc<End>,
    /// How the command has ended.
    status: Option<u8>,
    /// It has.
    ended: Arc<AtomicBool>,
    next_visitor: usize,
    /// Ports whose visitors could not be accepted.
    waiting_ports: Vec<usize>,
}

/// Handles by which other threads change a gateway while it runs, and ask it.
#[derive(Clone)]
pub struct Controls {
    /// Changes its published ports.
    pub ports: PortControl,
    /// Changes its links, if it has some.
    pub weather: Option<WeatherControl>,
    /// Lists its connections.
    pub connections: ConnectionControl,
}

/// Bytes of the largest receive buffer of a connection inside. Data in flight waits in the
/// interface's queue before it is read, in front of all others: with Linux's 6 MB, eight bulk flows
/// kept a small request waiting for 15 ms, and were no faster. With a link the bound is Linux's:
/// data in flight is on the link.
fn receive_buffer(mtu: u16, has_link: bool) -> usize {
    if has_link { 6 << 20 } else { (usize::from(mtu) * 16).clamp(512 * 1024, 1024 * 1024) }
}

/// The command's interface as the stack's devices, one for each queue.
fn devices(config: &Config, queues: Vec<OwnedFd>) -> Result<Vec<Device>> {
    let config = FdConfig::with_mtu(config.mtu).name(&config.interface);
    let config = config.header(PacketHeader::Detect);
    let open = |queue| tun::from_fd(queue, config.clone());
    queues.into_iter().map(open).collect::<Result<_, _>>().context("the command's interface")
}

/// The stack on the command's interface, and the links before it if there are some.
fn stack(config: &Config, queues: Vec<OwnedFd>) -> Result<(Stack, Option<Weather>)> {
    let (count, network) = (queues.len(), config.policy.network);
    let mut devices = devices(config, queues)?.into_iter();
    let mut first = devices.next().context("the interface has no queue")?;
    let mut weather = None;
    if let Some(link) = &config.link {
        ensure!(count == 1, "a link has one queue");
        let (device, links) = link.wrap(first)?;
        (first, weather) = (device, Some(links));
    }
    let receive_buffer = receive_buffer(config.mtu, weather.is_some());
    let mut builder = Stack::builder()
        .device(first)
        .more_queues(devices)
        .queues(count)
        .address(format!("{}/{}", network.gateway(), network.prefix()))
        .address(format!("{}/{}", network.gateway_v6(), Network::PREFIX_V6))
        .any_address()
        .sysctl("net.ipv4.tcp_rmem", format!("4096 131072 {receive_buffer}"));
    if let Some(path) = &config.pcap {
        builder = builder.pcap(path);
    }
    Ok((builder.build_without_thread()?, weather))
}

impl FirstLoop {
    /// A gateway for the queues of the command's interface, and its controls.
    pub(crate) fn new(
        config: &Config,
        queues: Vec<OwnedFd>,
        descriptors: usize,
        (end, ended): (Arc<End>, Arc<AtomicBool>),
        ports: Ports,
    ) -> Result<(FirstLoop, Controls)> {
        let (count, policy) = (queues.len(), config.policy);
        let (stack, links) = stack(config, queues)?;
        let access = Access::new(config.rules.clone(), policy.network, policy.verbose);
        let names = Arc::new(Names::with(access));
        let reasons = config.explain.then(|| Arc::new(Reasons::new()));
        let fronts = Fronts::new(&stack, descriptors)?;
        let pings = UnhandledConfig::default().protocols(false).icmp(false).echo_requests(true);
        let pings = Pings::new(UnhandledPackets::bind(&stack, pings)?);
        let queues = (0..count).map(|queue| stack.queue(queue)).collect::<Result<Vec<_>, _>>()?;
        let mut others = worker::all(queues, policy, (names, reasons), fronts)?;
        let mut worker = others.remove(0);
        let (control, requests) = PortControl::new(&worker.tools);
        let weather = config
            .link
            .as_ref()
            .zip(links)
            .map(|(link, links)| WeatherControl::new(links, link, config.mtu, control.waker()));
        if weather.is_some() {
            worker.reactor.sleep_exactly()?;
        }
        end.set_nonblocking()?;
        worker.tools.watch(&*end, Token::End)?;
        ports.watch(&worker.tools)?;
        let first = [Token::End, Token::Pings];
        worker.again.extend(first.map(|token| (token, Readiness::default())));
        let (running, status, next_visitor) = (Vec::new(), None, 0);
        let gateway = FirstLoop {
            worker,
            others,
            running,
            pings,
            ports,
            requests,
            end,
            status,
            ended,
            next_visitor,
            waiting_ports: Vec::new(),
        };
        let connections = ConnectionControl::new(gateway.worker.shared.clone());
        Ok((gateway, Controls { ports: control, weather, connections }))
    }

    pub(crate) fn stack(&self) -> &Stack {
        &self.worker.tools.stack
    }

    /// Ends all connections. Returns the causes for which the command waited, with `--explain`.
    pub(crate) fn end(self) -> Option<String> {
        let Tools { reasons, names, .. } = &self.worker.tools;
        let (reasons, names) = (reasons.clone()?, names.clone());
        drop(self);
        Some(reasons.report(&names))
    }

    /// The rules that the run has needed, as a file for `--net-allow @FILE`.
    pub(crate) fn needed(&self) -> String {
        self.worker.tools.names.access().needed()
    }

    /// Starts the threads of the other loops.
    pub(crate) fn start(&mut self) -> Result<()> {
        for (number, worker) in (1..).zip(self.others.drain(..)) {
            let main = WakeFirstLoop(self.worker.shared.clone());
            let serve = move || {
                let _main = main;
                worker.serve()
            };
            let thread = thread::Builder::new().name(format!("queue {number}")).spawn(serve);
            self.running.push(thread.context("cannot start a thread")?);
        }
        Ok(())
    }

    /// Serves until all processes inside have ended. Returns the status of the command.
    pub(crate) fn serve(&mut self) -> Result<Option<u8>> {
        let mut round = Round::new();
        while !self.worker.is_done() {
            let is_sweep = self.worker.turn(&mut round)?;
            for (token, news) in round.ready.drain(..) {
                self.on(token, news)?;
            }
            if is_sweep {
                if self.pings.sweep() {
                    self.worker.needs_sweep();
                }
                let ports = self.waiting_ports.drain(..).map(Token::Port);
                self.worker.again.extend(ports.map(|token| (token, Readiness::default())));
            }
        }
        for thread in self.running.drain(..) {
            joined(thread)?;
        }
        Ok(self.status)
    }

    fn on(&mut self, token: Token, news: Readiness) -> Result<()> {
        match token {
            Token::Stack => {}
            Token::End => self.on_message()?,
            Token::Pings => {
                let policy = (&self.worker.shared.policy, &mut self.worker.routes);
                self.pings.on_requests(&self.worker.tools, policy).context("echo requests")?;
                self.worker.needs_sweep();
            }
            Token::Ping(id) => self.pings.on_answers(id, &mut self.worker.buf),
            Token::Port(id) => self.on_port(id),
            Token::Requests => {
                // Without an answer the requester reports that the gateway has ended.
                let is_over = self.worker.shared.is_over();
                for request in self.requests.try_iter().filter(|_| !is_over) {
                    let ended = self.ports.on_request(request, &self.worker.tools);
                    ended.into_iter().for_each(|flow| self.worker.unmap(flow));
                }
            }
            Token::Inbox => {
                // A loop may have failed.
                while let Some(place) = self.running.iter().position(JoinHandle::is_finished) {
                    joined(self.running.swap_remove(place))?;
                }
                self.worker.on(token, news);
            }
            Token::Tcp(_) | Token::Udp(_) | Token::Mapping(_) => self.worker.on(token, news),
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
                Ok(Some((Message::Stop, _))) => {
                    self.worker.shared.stop();
                    let flows = self.ports.close();
                    flows.into_iter().for_each(|flow| self.worker.unmap(flow));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    // Answers that the command has sent still go out.
                    let _flows = self.ports.close();
                    self.worker.shared.end();
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

    /// Connections or datagrams of the host's side to a published port.
    fn on_port(&mut self, id: usize) {
        let network = self.worker.shared.policy.network;
        for _ in 0..TURN_DATAGRAMS {
            let Some((port, socket)) = self.ports.get(id) else { return };
            match socket {
                Socket::Tcp(listener) => {
                    let (host, peer) = match listener.accept() {
                        Ok(accepted) => accepted,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                        // Descriptors are short: epoll does not report again those who wait.
                        Err(_) => {
                            self.waiting_ports.push(id);
                            self.worker.needs_sweep();
                            return;
                        }
                    };
                    let (from, to) = ports::visitor(network, peer.ip(), port.guest);
                    // Visitors take turns between the queues, as the stack's own dials do.
                    self.next_visitor = (self.next_visitor + 1) % self.worker.shared.queues();
                    self.worker.give(self.next_visitor, Task::Visitor(host, from, to));
                }
                Socket::Udp(socket) => {
                    let (socket, guest) = (socket.clone(), port.guest);
                    match socket.recv_from(&mut self.worker.buf) {
                        Ok((len, visitor)) => self.deliver(id, (visitor, guest), (&socket, len)),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                        // An error that an earlier answer has met.
                        Err(_) => {}
                    }
                }
            }
        }
        self.worker.again.push((Token::Port(id), Readiness::default()));
    }

    /// Passes a datagram of a visitor, which is in the buffer, to the command.
    fn deliver(
        &mut self,
        port: usize,
        (visitor, guest): (SocketAddr, u16),
        (socket, len): (&Arc<HostSocket>, usize),
    ) {
        let known = self.ports.visitors.get(&(port, visitor)).copied();
        if known.is_some_and(|id| self.worker.pass_down(id, len)) {
            return;
        }
        if self.ports.visitors.len() >= VISITORS {
            let worker = &self.worker;
            self.ports.visitors.retain(|_, &mut id| worker.has_flow(id));
            // A visitor beyond the limit loses its datagram, as by a full queue.
            if self.ports.visitors.len() >= VISITORS {
                return;
            }
        }
        let network = self.worker.shared.policy.network;
        let (from, to) = ports::visitor(network, visitor.ip(), guest);
        let from = SocketAddr::new(from, visitor.port());
        if let Some(id) = self.worker.welcome((from, to), (socket.clone(), visitor)) {
            self.ports.visitors.insert((port, visitor), id);
            self.worker.pass_down(id, len);
        }
    }
}

/// Wakes the first loop when another one has ended, also by a panic.
struct WakeFirstLoop(Arc<Shared>);

impl Drop for WakeFirstLoop {
    fn drop(&mut self) {
        self.0.wake(0);
    }
}

fn joined(thread: JoinHandle<Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a loop has panicked")))
}
