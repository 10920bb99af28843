//! `plimsoll serve`: services on a TUN device, in event loops.
//!
//! Each loop has a thread and works for the connections of one queue of the stack; the first has
//! the thread of the command. A connection that another loop has accepted is handed over.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use plimsoll::{Options, Stack, TcpListener, TcpStream};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::ServeArgs;
use crate::http::files::MOST_OPEN;
use crate::http::service::{Limits, Places, Site, Web};
use crate::net::{self, Captures};
use crate::output::{self, print};
use crate::service::{Kind, Service};
use plimsoll_lab::event_loop::{Around, EventLoop, Stopper, Task, Turn};
use plimsoll_lab::figures::Figures;
use plimsoll_lab::hand_over::HandOver;
use plimsoll_lab::tasks::{Acceptor, Echo, Responder, Sink, Source, Tally};
use plimsoll_lab::usage::Usage;

/// How long the last packets may take after a signal.
const GRACE: Duration = Duration::from_millis(500);

/// When a silent client is asked whether it is still there, and how often then.
const KEEP_IDLE: Duration = Duration::from_secs(60);
const KEEP_INTVL: Duration = Duration::from_secs(10);

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    command: &'static str,
    seconds: f64,
    #[serde(flatten)]
    served: Served,
    #[serde(flatten)]
    figures: &'a Figures,
}

/// The service that clients got, and their refusals.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Served {
    connections: u64,
    bytes_received: u64,
    bytes_sent: u64,
    transactions: u64,
    http_requests: u64,
    /// Connections that were refused.
    http_refused: u64,
    /// Clients that took too long for a request.
    http_slow_requests: u64,
    /// Clients that did not take their response.
    http_slow_responses: u64,
    /// Files that could not be opened for want of descriptors.
    http_no_descriptor: u64,
}

impl Served {
    fn of(tally: &Tally, site: &Site) -> Served {
        Served {
            connections: tally.accepted.get(),
            bytes_received: tally.received.get(),
            bytes_sent: tally.sent.get(),
            transactions: tally.transactions.get(),
            http_requests: tally.requests.get(),
            http_refused: site.refused.count(),
            http_slow_requests: site.slow_requests.count(),
            http_slow_responses: site.slow_responses.count(),
            http_no_descriptor: site.no_descriptor.count(),
        }
    }
}

impl Served {
    fn add(&mut self, other: &Served) {
        self.connections += other.connections;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.transactions += other.transactions;
        self.http_requests += other.http_requests;
        self.http_refused += other.http_refused;
        self.http_slow_requests += other.http_slow_requests;
        self.http_slow_responses += other.http_slow_responses;
        self.http_no_descriptor += other.http_no_descriptor;
    }
}

/// Runs it until a signal comes.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    check_words(args)?;
    let roots = check_directories(&args.services)?;
    let json = output::open(args.json.as_deref())?;
    let mut captures = Captures::default();
    let stack = net::tun_stack(&args.stack, false, &mut captures)?;
    let control = net::control(&[("stack", &stack)]);
    let listeners = listen_all(&stack, args)?;
    let stopper = Stopper::new(&stack);
    stop_on_signal(&stopper)?;
    let before = Usage::now();
    let start = Instant::now();
    print(b"ready\n")?;
    let server = Arc::new(Server {
        stack: stack.clone(),
        args: args.clone(),
        roots,
        listeners,
        stopper,
        places: Arc::default(),
        hand_overs: (0..stack.queue_count()).map(|_| HandOver::new()).collect(),
    });
    let (served, result) = server.run();
    drop(server);
    let document = Document {
        command: "serve",
        seconds: start.elapsed().as_secs_f64(),
        served,
        figures: &Figures::of(net::counters(&stack), Some(Usage::now().since(before))),
    };
    drop(control);
    output::write_json(json, &document)?;
    let ended = result.context("serving has ended");
    if ended.is_ok() {
        stack.drain(GRACE);
    }
    net::name_device(&args.stack, ended)?;
    captures.finish()
}

/// How serving has ended: well, or because the stack has, or a loop.
type Ended = std::io::Result<()>;

/// The state that all loops share.
struct Server {
    stack: Stack,
    args: ServeArgs,
    /// The directories of the services.
    roots: Vec<PathBuf>,
    /// Every listener with the place of its service.
    listeners: Vec<(usize, TcpListener)>,
    stopper: Stopper,
    places: Arc<Places>,
    /// One for each loop: connections with the place of their service.
    hand_overs: Vec<HandOver<(usize, TcpStream)>>,
}

impl Server {
    /// Serves until it is stopped, or the stack ends.
    fn run(self: &Arc<Server>) -> (Served, Ended) {
        let start = |queue| {
            let server = self.clone();
            let thread = std::thread::Builder::new().name(format!("loop/{queue}"));
            thread.spawn(move || server.serve(queue))
        };
        let others: Result<Vec<_>, _> = (1..self.hand_overs.len()).map(start).collect();
        let others = match others {
            Ok(others) => others,
            Err(error) => {
                self.stopper.stop();
                return (Served::default(), Err(error));
            }
        };
        let (mut served, mut ended) = self.serve(0);
        for other in others {
            match other.join() {
                Ok((more, end)) => {
                    served.add(&more);
                    ended = ended.and(end);
                }
                // Its hook has said why.
                Err(_) => ended = ended.and(Err(std::io::Error::other("a loop has panicked"))),
            }
        }
        (served, ended)
    }

    /// Runs the loop of one queue.
    fn serve(self: &Arc<Server>, queue: usize) -> (Served, Ended) {
        let _all = StopAll(&self.stopper);
        let tally = Rc::new(Tally::tolerant());
        let files = (MOST_OPEN / self.hand_overs.len()).max(1);
        let connections = self.args.http_connections;
        let limits = Limits { connections, files, ..Limits::default() };
        let starter = Rc::new(Starter {
            server: self.clone(),
            queue,
            roots: self.roots.iter().cloned().map(Rc::new).collect(),
            site: Rc::new(Site::new(limits, self.places.clone())),
            tally: tally.clone(),
        });
        let own = match self.stack.queue(queue) {
            Ok(own) => own,
            Err(error) => return (Served::default(), Err(std::io::Error::other(error))),
        };
        if self.args.stack.pin
            && let Err(error) = own.stay_on_processor()
        {
            return (Served::default(), Err(error));
        }
        let mut events = EventLoop::of_queue(own, self.args.stack.busy_poll.of_loop());
        for (index, listener) in &self.listeners {
            let listener = match listener.try_clone() {
                Ok(listener) => listener,
                Err(error) => return (Served::default(), Err(error)),
            };
            let (index, starter) = (*index, starter.clone());
            let start = move |stream| starter.accepted(index, stream);
            events.spawn(Box::new(Acceptor::new(listener, start, tally.clone())));
        }
        if self.hand_overs.len() > 1 {
            events.spawn(Box::new(TakeHandedOver { starter: starter.clone() }));
        }
        events.run(None, |_| self.stopper.is_stopped() || tally.has_failed());
        let ended = match (events.ended(), tally.take_error()) {
            (Some(error), _) => Err(std::io::Error::other(error.clone())),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(()),
        };
        (Served::of(&tally, &starter.site), ended)
    }
}

/// Ends all loops when one ends, also by a panic.
struct StopAll<'a>(&'a Stopper);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Starts the tasks of one loop.
struct Starter {
    server: Arc<Server>,
    queue: usize,
    roots: Vec<Rc<PathBuf>>,
    site: Rc<Site>,
    tally: Rc<Tally>,
}

impl Starter {
    /// The task of a connection that this loop has accepted for a service. If it belongs to another
    /// loop, that one gets it.
    fn accepted(self: &Rc<Starter>, index: usize, stream: TcpStream) -> Box<dyn Task> {
        match self.server.hand_overs.get(stream.queue()) {
            Some(hand_over) if stream.queue() != self.queue => {
                hand_over.leave((index, stream));
                Box::new(HandedOver)
            }
            _ => self.start(index, stream),
        }
    }

    fn start(self: &Rc<Starter>, index: usize, stream: TcpStream) -> Box<dyn Task> {
        let kind = &self.server.args.services[index].kind;
        let task = task(kind, &self.roots[index], &self.site, stream, self.tally.clone());
        if self.server.hand_overs.len() == 1 {
            return task;
        }
        Box::new(Following { index, starter: self.clone(), task })
    }
}

/// A task whose connection may move to the queue of another loop, which goes on with it then.
struct Following {
    index: usize,
    starter: Rc<Starter>,
    task: Box<dyn Task>,
}

impl Task for Following {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        match self.task.moved_from(self.starter.queue) {
            Some(stream) => {
                self.starter.server.hand_overs[stream.queue()].leave((self.index, stream));
                Turn::Done
            }
            None => self.task.run(around),
        }
    }
}

/// The connection was handed to another loop.
struct HandedOver;

impl Task for HandedOver {
    fn run(&mut self, _around: &mut Around<'_>) -> Turn {
        Turn::Done
    }
}

/// Takes the connections that other loops have accepted for this one.
struct TakeHandedOver {
    starter: Rc<Starter>,
}

impl Task for TakeHandedOver {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        let hand_over = &self.starter.server.hand_overs[self.starter.queue];
        while let Some((index, stream)) = hand_over.take(around.waker) {
            around.spawn.push(self.starter.start(index, stream));
        }
        Turn::Sleep
    }
}

/// Whether all is there that a server needs, and nothing twice. Everything that is missing is named
/// at once.
fn check_words(args: &ServeArgs) -> anyhow::Result<()> {
    let mut missing = net::missing(&args.stack);
    if args.services.is_empty() {
        missing.push("SERVICE is missing: say what to offer, as in echo:7 or http:80:/srv".into());
    }
    if !missing.is_empty() {
        return Err(net::usage(&missing.join("; ")));
    }
    for (index, service) in args.services.iter().enumerate() {
        let same = |earlier: &&Service| earlier.port == service.port;
        if let Some(earlier) = args.services[..index].iter().find(same) {
            return Err(net::usage(&format!(
                "port {} is given to two services, {} and {}; give each its own port",
                service.port,
                earlier.kind.name(),
                service.kind.name()
            )));
        }
    }
    Ok(())
}

/// The directories of the http services, canonical; an empty path for the others.
fn check_directories(services: &[Service]) -> anyhow::Result<Vec<PathBuf>> {
    let check = |service: &Service| match &service.kind {
        Kind::Http { root } => {
            let full = root
                .canonicalize()
                .with_context(|| format!("cannot serve directory {}", root.display()))?;
            anyhow::ensure!(full.is_dir(), "cannot serve {}: not a directory", root.display());
            Ok(full)
        }
        _ => Ok(PathBuf::new()),
    };
    services.iter().map(check).collect()
}

/// A listener for every service on every address, with the place of its service.
fn listen_all(stack: &Stack, args: &ServeArgs) -> anyhow::Result<Vec<(usize, TcpListener)>> {
    let mut listeners = Vec::new();
    for (index, service) in args.services.iter().enumerate() {
        for cidr in &args.stack.address {
            let address = SocketAddr::new(cidr.address, service.port);
            listeners.push((index, listen(stack, args, service, address)?));
        }
    }
    Ok(listeners)
}

fn listen(
    stack: &Stack,
    args: &ServeArgs,
    service: &Service,
    address: SocketAddr,
) -> anyhow::Result<TcpListener> {
    let nodelay = matches!(service.kind, Kind::RequestResponse { .. } | Kind::Http { .. });
    // A client that vanished must not hold its connection, and an open file, for ever.
    let options = Options::default()
        .nodelay(nodelay)
        .sndbuf(args.sndbuf)
        .keepalive(true)
        .keep_idle(Some(KEEP_IDLE))
        .keep_intvl(Some(KEEP_INTVL));
    let listener = TcpListener::bind_with(stack, address, args.backlog as usize, options)
        .with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn task(
    kind: &Kind,
    root: &Rc<PathBuf>,
    site: &Rc<Site>,
    stream: TcpStream,
    tally: Rc<Tally>,
) -> Box<dyn Task> {
    match *kind {
        Kind::Discard { shared } => Box::new(Sink { stream, shared, stop_phase: u32::MAX, tally }),
        Kind::Chargen { write_size } => Box::new(Source::endless(stream, write_size, tally)),
        Kind::Echo => Box::new(Echo::new(stream, tally)),
        Kind::RequestResponse { request, response } => {
            Box::new(Responder::new(stream, (request, response), false, tally))
        }
        Kind::Http { .. } => Box::new(Web::new(stream, root.clone(), site.clone(), tally)),
    }
}

/// Stops the loops at SIGINT or SIGTERM; a second one ends the process.
fn stop_on_signal(stopper: &Stopper) -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .context("cannot listen for signals")?;
    let stopper = stopper.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                stopper.stop();
            }
            // A second signal asks for an immediate end.
            if signals.next().is_some() {
                std::process::exit(130);
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}
