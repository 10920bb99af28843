//! A loop of the gateway: it serves one queue of the stack, and the connections and flows that came
//! by that queue, with their sockets of the host.
//!
//! A loop that finds work of another queue hands it over.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as HostStream, UdpSocket as HostSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use anyhow::Result;
use plimsoll::gate::{Incoming, Reject, Unreachable};
use plimsoll::{QueueLoop, UdpSocket};
use rustix::io::Errno;

use crate::connections::ListRequest;
use crate::fronts::Fronts;
use crate::mapping::{self, Mapping};
use crate::names::{Names, files};
use crate::policy::Policy;
use crate::reactor::{Reactor, Readiness, Round, Token, Tools};
use crate::reasons::Reasons;
use crate::routing::Routes;
use crate::rules::Check;
use crate::rules::rule::Protocol;
use crate::tcp::{Connection, Progress};
use crate::tcp_info::Sample;
use crate::udp::{Flow, unreachable};

/// How long data that the command has left goes out, at most.
const LINGER: Duration = Duration::from_secs(30);
/// How long a loop that is to stop takes what processes inside have sent, at most.
const LATEST_STOP: Duration = Duration::from_secs(1);
/// How long after the host's side has failed the command's is reset, at the latest.
const LATEST_RESET: Duration = Duration::from_secs(5);
/// How often a loop looks whether one of these is due.
const POLL: Duration = Duration::from_millis(20);
/// How often a loop looks for what has ended without a wake-up.
const SWEEP: Duration = Duration::from_secs(2);
/// Datagrams that one socket has passed on before others have their turn.
pub(crate) const TURN_DATAGRAMS: usize = 256;
/// Bytes of the longest datagram; a buffer has room for one behind others.
const DATAGRAM: usize = 65_535;
/// Connections that are listed in a turn.
const LISTED: usize = 256;

/// New work for a loop.
pub(crate) enum Task {
    /// An attempt to connect, not dialled yet.
    Attempt(Incoming),
    /// Datagrams to a new destination.
    Flow(UdpSocket),
    /// A connection of the host's side, the source that the command sees, and its destination.
    Visitor(HostStream, IpAddr, SocketAddr),
    /// A question about the connections.
    List(ListRequest),
}

/// Work that other threads have for a loop.
struct Inbox {
    tasks: Mutex<Vec<Task>>,
    waker: Waker,
}

/// The state that all loops share.
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    /// The kernel has figures of the host's side.
    pub(crate) has_figures: bool,
    fronts: Fronts,
    inboxes: Box<[Inbox]>,
    /// All processes inside have ended, or the gateway is to stop.
    over: AtomicBool,
    /// The gateway is to stop, while processes inside go on.
    stopped: AtomicBool,
    /// That no descriptor is left was reported.
    limit_reported: AtomicBool,
    /// Loops whose connections still have data to send.
    left: AtomicUsize,
}

impl Shared {
    /// Reports, once, that no descriptor is left, if that is the error.
    pub(crate) fn report_limit(&self, error: &io::Error) {
        let is_limit = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        if is_limit && !self.limit_reported.swap(true, Ordering::Relaxed) {
            crate::note(
                "all descriptors are in use, so new connections fail; 'ulimit -n' before \
                 'run' raises their number",
            );
        }
    }

    /// Hands work to the loop of a queue.
    pub(crate) fn hand(&self, queue: usize, task: Task) {
        let Some(inbox) = self.inboxes.get(queue) else { return };
        inbox.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        inbox.waker.wake_by_ref();
    }

    /// Wakes the loop of a queue.
    pub(crate) fn wake(&self, queue: usize) {
        if let Some(inbox) = self.inboxes.get(queue) {
            inbox.waker.wake_by_ref();
        }
    }

    /// All processes inside have ended: the loops end too, once data has gone out.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.inboxes.iter().for_each(|inbox| inbox.waker.wake_by_ref());
    }

    /// The same while processes inside go on: data that they have sent goes out, and no more.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.end();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn queues(&self) -> usize {
        self.inboxes.len()
    }

    fn take(&self, queue: usize) -> Vec<Task> {
        let Some(inbox) = self.inboxes.get(queue) else { return Vec::new() };
        std::mem::take(&mut *inbox.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Connections or flows by their number.
pub(crate) struct Numbered<T> {
    pub(crate) all: HashMap<usize, T>,
    next: usize,
}

impl<T> Numbered<T> {
    pub(crate) fn new() -> Numbered<T> {
        Numbered { all: HashMap::new(), next: 0 }
    }

    /// A number that none has had.
    pub(crate) fn number(&mut self) -> usize {
        self.next += 1;
        self.next
    }
}

/// A loop.
pub(crate) struct Worker {
    queue: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reactor: Reactor,
    pub(crate) tools: Tools,
    pub(crate) routes: Routes,
    connections: Numbered<Connection>,
    flows: Numbered<Flow>,
    /// Ports of the command, for datagrams.
    mappings: Numbered<Mapping>,
    by_guest: HashMap<SocketAddr, usize>,
    /// The mapping of each flow that has one.
    mapped: HashMap<usize, usize>,
    pub(crate) buf: Vec<u8>,
    /// Connections whose host's side has failed, and until when the command may take what came
    /// before.
    broken: Vec<(usize, Instant)>,
    /// Tokens that can go on without news.
    pub(crate) again: Vec<(Token, Readiness)>,
    swept: Instant,
    /// The next sweep may find something.
    has_sweep: bool,
    /// The end of the time in which data goes out.
    until: Option<Instant>,
    /// The latest round has found nothing.
    quiet: bool,
    /// It was done once.
    was_done: bool,
}

/// The loops of all queues.
pub(crate) fn all(
    queues: Vec<QueueLoop>,
    policy: Policy,
    (names, reasons): (Arc<Names>, Option<Arc<Reasons>>),
    fronts: Fronts,
) -> Result<Vec<Worker>> {
    let reactor = |queue| Reactor::new(queue, names.clone(), reasons.clone());
    let loops = queues.into_iter().map(reactor).collect::<io::Result<Vec<_>>>()?;
    let inbox = |(_, tools): &(Reactor, Tools)| Inbox {
        tasks: Mutex::default(),
        waker: tools.ready.waker(Token::Inbox.number()),
    };
    let inboxes = loops.iter().map(inbox).collect();
    let shared = Arc::new(Shared {
        policy,
        has_figures: Sample::is_available(),
        fronts,
        inboxes,
        over: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        limit_reported: AtomicBool::new(false),
        left: AtomicUsize::new(loops.len()),
    });
    let worker = |(queue, (reactor, tools))| Worker {
        queue,
        shared: shared.clone(),
        reactor,
        tools,
        routes: Routes::default(),
        connections: Numbered::new(),
        flows: Numbered::new(),
        mappings: Numbered::new(),
        by_guest: HashMap::new(),
        mapped: HashMap::new(),
        buf: vec![0; 2 * DATAGRAM],
        broken: Vec::new(),
        again: Vec::new(),
        swept: Instant::now(),
        has_sweep: false,
        until: None,
        quiet: false,
        was_done: false,
    };
    Ok(loops.into_iter().enumerate().map(worker).collect())
}

impl Worker {
    /// Serves until all processes inside have ended.
    pub(crate) fn serve(mut self) -> Result<()> {
        let mut round = Round::new();
        while !self.is_done() {
            self.turn(&mut round)?;
            for (token, news) in round.ready.drain(..) {
                self.on(token, news);
            }
        }
        Ok(())
    }

    /// One round: finds the tokens that can go on; sleeps if there is none. Returns whether it was
    /// time to look for what has ended without a wake-up.
    pub(crate) fn turn(&mut self, round: &mut Round) -> Result<bool> {
        self.reset_broken();
        let mut again = std::mem::take(&mut self.again);
        let soon = self.until.is_some() || !self.broken.is_empty();
        let longest = if soon { POLL } else { SWEEP };
        let longest = (soon || self.has_sweep).then_some(longest);
        let fronts = &self.shared.fronts;
        let how = (!again.is_empty(), longest);
        let worked = self.reactor.turn((&mut self.tools, fronts), how, round)?;
        self.quiet = !worked;
        // Connections that have news come before those that move bulk data.
        round.ready.append(&mut again);
        // Its memory is used again.
        self.again = again;
        for (queue, task) in round.tasks.drain(..) {
            self.give(queue, task);
        }
        // After the poll, so that the SYNs that have come count.
        Ok(self.sweep())
    }

    /// Whether all processes inside have ended or the gateway is to stop, and their data has gone
    /// out or had its time.
    pub(crate) fn is_done(&mut self) -> bool {
        if !self.shared.is_over() {
            return false;
        }
        let now = Instant::now();
        let until = *self.until.get_or_insert(now + LINGER);
        // Processes that go on may send without an end.
        let is_stopped =
            self.shared.is_stopped() && (self.quiet || now + LINGER >= until + LATEST_STOP);
        if is_stopped {
            self.connections.all.values_mut().for_each(Connection::stop);
        }
        let has_figures = self.shared.has_figures;
        let has_left = self.connections.all.values().any(|it| it.goes_out(has_figures));
        let is_done = !has_left && (self.quiet || is_stopped);
        if is_done && !self.was_done {
            self.was_done = true;
            self.shared.left.fetch_sub(1, Ordering::AcqRel);
        }
        // Packets of another loop's connections may come by this loop's queue.
        let is_done = (is_done && self.shared.left.load(Ordering::Acquire) == 0) || now >= until;
        if is_done {
            // The host's side must not take a cut for the end of a stream.
            let cut = self.connections.all.values().filter(|connection| connection.is_up());
            cut.for_each(Connection::reset_host);
        }
        is_done
    }

    /// The next sweep has something to do.
    pub(crate) fn needs_sweep(&mut self) {
        self.has_sweep = true;
    }

    /// Drops attempts that the command has given up, and flows that are idle. Returns whether it
    /// was time to do so.
    fn sweep(&mut self) -> bool {
        if !self.has_sweep {
            return false;
        }
        let elapsed = self.swept.elapsed();
        if elapsed < SWEEP {
            return false;
        }
        self.swept = Instant::now();
        // This process was stopped, or has slept: times say nothing.
        if elapsed > 2 * SWEEP {
            return false;
        }
        let tools = &self.tools;
        self.connections.all.retain(|_, connection| !connection.is_abandoned(tools));
        self.flows.all.retain(|_, flow| !flow.is_idle());
        self.has_sweep = self.connections.all.values().any(Connection::waits)
            || self.flows.all.values().any(Flow::is_of_visitor);
        true
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

    /// Goes on with one of the connections or flows, or takes new work.
    pub(crate) fn on(&mut self, token: Token, news: Readiness) {
        let turn = match token {
            Token::Tcp(id) => {
                let Some(connection) = self.connections.all.get_mut(&id) else { return };
                connection.turn(news, &mut self.tools)
            }
            Token::Udp(id) => {
                let Some(flow) = self.flows.all.get_mut(&id) else { return };
                // Its destination may have become an address of the host since.
                let to = flow.destination(&self.tools).map(|to| {
                    self.shared.policy.destination(to, (&self.tools.names, &mut self.routes))
                });
                match to {
                    Some(Err(how)) => flow.refuse(how),
                    _ => flow.turn(news, &self.tools, &mut self.buf),
                }
            }
            Token::Mapping(number) => return self.on_answers(number),
            Token::Inbox => {
                return self.shared.take(self.queue).into_iter().for_each(|t| self.take(t));
            }
            _ => return,
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
            (Progress::Done, Token::Udp(id)) => self.unmap(id),
            (Progress::Done | Progress::Broken, _) => {}
        }
    }

    /// Gives new work to the loop of a queue.
    pub(crate) fn give(&mut self, queue: usize, task: Task) {
        match queue == self.queue {
            true => self.take(task),
            false => self.shared.hand(queue, task),
        }
    }

    /// Takes new work of this loop's queue.
    fn take(&mut self, task: Task) {
        match task {
            Task::Attempt(incoming) if self.shared.is_stopped() => {
                incoming.reject(Reject::Icmp(Unreachable::Network));
            }
            Task::Flow(guest) if self.shared.is_stopped() => {
                // It may have ended.
                let _ = guest.refuse(Unreachable::Network);
            }
            // The visitor is reset.
            Task::Visitor(..) if self.shared.is_over() => {}
            Task::Attempt(incoming) => self.dial(incoming),
            Task::Flow(guest) => self.open(guest),
            Task::Visitor(host, from, to) => self.enter(host, from, to),
            Task::List(request) => self.list(request),
        }
    }

    /// Lists some more connections, and the rest in later turns.
    fn list(&mut self, mut request: ListRequest) {
        let all = &self.connections.all;
        let left = request.left.get_or_insert_with(|| all.keys().copied().collect());
        let part = left.split_off(left.len().saturating_sub(LISTED));
        let has_figures = self.shared.has_figures;
        let summary = |id: &usize| all.get(id)?.summary(has_figures, &self.tools);
        request.carried.connections.extend(part.iter().filter_map(summary));
        if !left.is_empty() && !request.is_late() {
            return self.shared.hand(self.queue, Task::List(request));
        }
        request.carried.flows = self.flows.all.len();
        // The requester may be gone.
        let _ = request.answer.send(request.carried);
    }

    /// The host's destination for that of the command, and the question that a connection's first
    /// bytes answer.
    ///
    /// # Errors
    /// The error by which the command learns that it may not have it.
    fn admit(
        &mut self,
        protocol: Protocol,
        asked: SocketAddr,
    ) -> Result<(SocketAddr, Option<Check>), Unreachable> {
        let names = &self.tools.names;
        let to = self.shared.policy.destination(asked, (names, &mut self.routes))?;
        // The gateway's name server has rules of its own.
        let decided = (!names.serves(asked)).then(|| names.access().decide(protocol, asked));
        Ok((to, decided.transpose()?.flatten()))
    }

    fn dial(&mut self, incoming: Incoming) {
        let to = match self.admit(Protocol::Tcp, incoming.destination()) {
            Ok(to) => to,
            Err(how) => return incoming.reject(Reject::Icmp(how)),
        };
        let id = self.connections.number();
        let token = Token::Tcp(id);
        match Connection::begin(incoming, to, token, &self.tools) {
            Ok(connection) => {
                self.connections.all.insert(id, connection);
                self.has_sweep = true;
                self.on(token, Readiness::default());
            }
            Err(error) => self.shared.report_limit(&error),
        }
    }

    fn open(&mut self, guest: UdpSocket) {
        // It may have ended.
        let Ok(asked) = guest.local_addr() else { return };
        // A flow lives on when the name that has opened its address is forgotten.
        let to = match self.admit(Protocol::Udp, asked) {
            Ok((to, _)) => to,
            Err(how) => {
                let _ = guest.refuse(how);
                return;
            }
        };
        let id = self.flows.number();
        let token = Token::Udp(id);
        match self.host_side(&guest, to, id) {
            Ok(host) => match Flow::begin(guest, host, token, &self.tools) {
                Ok(flow) => drop(self.flows.all.insert(id, flow)),
                Err(_) => return self.unmap(id),
            },
            Err(error) => {
                self.shared.report_limit(&error);
                let _ = guest.refuse(unreachable(error.kind()));
                return;
            }
        }
        self.on(token, Readiness::default());
    }

    /// The host's socket of a new flow.
    fn host_side(
        &mut self,
        guest: &UdpSocket,
        to: SocketAddr,
        id: usize,
    ) -> io::Result<HostSocket> {
        // Queries have one answer, and need no port that stays.
        if guest.local_addr().is_ok_and(|local| self.tools.names.serves(local)) {
            let mut servers = files::host_name_servers().into_iter();
            let connected = servers.find_map(|server| mapping::connect(server).ok());
            return connected.map_or_else(|| mapping::connect(to), Ok);
        }
        let from = guest.peer_addr()?;
        // The two versions of IP have their own ports.
        let number = match self.by_guest.get(&from) {
            Some(&number) => number,
            None => {
                let mapping = Mapping::new(from)?;
                let number = self.mappings.number();
                self.tools.watch(mapping.any(), Token::Mapping(number))?;
                self.mappings.all.insert(number, mapping);
                self.by_guest.insert(from, number);
                number
            }
        };
        let Some(mapping) = self.mappings.all.get_mut(&number) else { return mapping::connect(to) };
        let host = mapping.connect(to);
        if host.is_ok() {
            mapping.add(to, id);
            self.mapped.insert(id, number);
        } else if mapping.remove(id) {
            self.forget(number);
        }
        host
    }

    /// A flow has ended.
    pub(crate) fn unmap(&mut self, id: usize) {
        self.flows.all.remove(&id);
        let Some(number) = self.mapped.remove(&id) else { return };
        if self.mappings.all.get_mut(&number).is_some_and(|mapping| mapping.remove(id)) {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: usize) {
        if let Some(mapping) = self.mappings.all.remove(&number) {
            self.by_guest.remove(&mapping.guest());
        }
    }

    /// Takes answers from ports to which the command has sent nothing.
    fn on_answers(&mut self, number: usize) {
        let Some(mapping) = self.mappings.all.get(&number) else { return };
        for _ in 0..TURN_DATAGRAMS {
            match mapping.any().recv_from(&mut self.buf) {
                Ok((len, from)) => {
                    let flow = mapping.flow_to(from.ip()).and_then(|id| self.flows.all.get(&id));
                    if let Some(flow) = flow {
                        flow.pass_from(from, &self.buf[..len]);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {}
            }
        }
        self.again.push((Token::Mapping(number), Readiness::default()));
    }

    /// Begins a flow for a visitor of a published UDP port. `from` is the source that the command
    /// sees.
    pub(crate) fn welcome(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        host: (Arc<HostSocket>, SocketAddr),
    ) -> Option<usize> {
        let id = self.flows.number();
        let flow = Flow::welcome((from, to), host, Token::Udp(id), &self.tools).ok()?;
        self.flows.all.insert(id, flow);
        self.has_sweep = true;
        self.on(Token::Udp(id), Readiness::default());
        Some(id)
    }

    pub(crate) fn has_flow(&self, id: usize) -> bool {
        self.flows.all.contains_key(&id)
    }

    /// Passes a datagram that is in the buffer to the command. Returns whether the flow exists.
    pub(crate) fn pass_down(&mut self, id: usize, len: usize) -> bool {
        let Some(flow) = self.flows.all.get_mut(&id) else { return false };
        flow.pass_down(&self.buf[..len]);
        true
    }

    fn enter(&mut self, host: HostStream, from: IpAddr, to: SocketAddr) {
        let id = self.connections.number();
        let token = Token::Tcp(id);
        // Without a connection the visitor is reset.
        if let Ok(connection) = Connection::enter(host, (from, to), token, &self.tools) {
            self.connections.all.insert(id, connection);
            self.on(token, Readiness::default());
        }
    }
}
