//! `plimsoll serve`: services on a TUN device, all in one event loop on this thread.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use plimsoll::{Options, Stack, TcpListener, TcpStream};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::ServeArgs;
use crate::http::server::{Connection, Progress};
use crate::net;
use crate::output::print;
use crate::service::{Kind, Service};
use plimsoll_lab::event_loop::{Around, EventLoop, Stopper, Task, Turn};
use plimsoll_lab::figures::{self, Counters, Figures};
use plimsoll_lab::tasks::{Acceptor, Echo, Responder, Sink, Source, Tally, add};
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
    connections: u64,
    bytes_received: u64,
    bytes_sent: u64,
    transactions: u64,
    http_requests: u64,
    #[serde(flatten)]
    figures: &'a Figures,
}

/// Runs it until a signal comes.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let roots = check_directories(&args.services)?;
    let stack = net::tun_stack(&args.stack, false)?;
    let control = net::control(&[("stack", &stack)]);
    let tally = Rc::new(Tally::tolerant());
    let mut events = EventLoop::new(&stack, net::busy_poll(&args.stack));
    for (service, root) in args.services.iter().zip(roots) {
        for cidr in &args.stack.address {
            let address = SocketAddr::new(cidr.address, service.port);
            let listener = listen(&stack, args, service, address)?;
            let (kind, count) = (service.kind.clone(), tally.clone());
            let root = root.clone();
            let start = move |stream| task(&kind, &root, stream, count.clone());
            events.spawn(Box::new(Acceptor { listener, start, tally: tally.clone() }));
        }
    }
    let stopper = Stopper::new(&stack);
    stop_on_signal(&stopper)?;
    let before = Usage::now();
    let start = Instant::now();
    print(b"ready\n")?;
    events.run(None, |_| stopper.is_stopped() || tally.has_failed());
    let result = tally.take_error();
    let document = Document {
        command: "serve",
        seconds: start.elapsed().as_secs_f64(),
        connections: tally.accepted.get(),
        bytes_received: tally.received.get(),
        bytes_sent: tally.sent.get(),
        transactions: tally.transactions.get(),
        http_requests: tally.requests.get(),
        figures: &figures(&stack, Usage::now().since(before)),
    };
    drop(control);
    if let Some(path) = &args.json {
        figures::write_json(path, &document)?;
    }
    drop(events);
    match result {
        Some(error) => Err(error).context("the stack has ended"),
        None => {
            stack.shutdown(GRACE);
            Ok(())
        }
    }
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

fn listen(
    stack: &Stack,
    args: &ServeArgs,
    service: &Service,
    address: SocketAddr,
) -> anyhow::Result<TcpListener> {
    let nodelay = matches!(service.kind, Kind::RequestResponse { .. } | Kind::Http { .. });
    let options = Options {
        nodelay,
        sndbuf: args.sndbuf,
        // A client that vanished must not hold its connection, and an open file, for ever.
        keepalive: true,
        keep_idle: Some(KEEP_IDLE),
        keep_intvl: Some(KEEP_INTVL),
        ..Options::default()
    };
    let listener = TcpListener::bind_with(stack, address, args.backlog as usize, options)
        .with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn task(kind: &Kind, root: &Path, stream: TcpStream, tally: Rc<Tally>) -> Box<dyn Task> {
    match *kind {
        Kind::Discard => Box::new(Sink { stream, stop_phase: u32::MAX, tally }),
        Kind::Chargen { write_size } => Box::new(Source::endless(stream, write_size, tally)),
        Kind::Echo => Box::new(Echo::new(stream, tally)),
        Kind::RequestResponse { request, response } => {
            Box::new(Responder::new(stream, (request, response), false, tally))
        }
        Kind::Http { .. } => {
            Box::new(Web { connection: Connection::new(stream), root: root.to_owned(), tally })
        }
    }
}

/// Stops the loop at SIGINT or SIGTERM.
fn stop_on_signal(stopper: &Stopper) -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .context("cannot listen for signals")?;
    let stopper = stopper.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                stopper.stop();
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}

/// One HTTP connection.
struct Web {
    connection: Connection<TcpStream>,
    root: PathBuf,
    tally: Rc<Tally>,
}

impl Task for Web {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        loop {
            let before = self.connection.requests;
            let progress = self.connection.run(&self.root, around.scratch);
            add(&self.tally.requests, self.connection.requests - before);
            let stream = self.connection.stream();
            match progress {
                Ok(Progress::WantsRead) if stream.poll_readable(around.waker) => {}
                Ok(Progress::WantsWrite) if stream.poll_writable(around.waker) => {}
                Ok(Progress::WantsRead | Progress::WantsWrite) => return Turn::Sleep,
                Ok(Progress::Yield) => return Turn::Again,
                // A client that goes away is its own loss.
                Ok(Progress::Done) | Err(_) => return Turn::Done,
            }
        }
    }
}

fn figures(stack: &Stack, usage: Usage) -> Figures {
    let counters: Counters =
        stack.counters().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let get = |name: &str| counters.get(name).copied();
    Figures {
        octets_per_packet: figures::octets_per_packet(&counters),
        wire_segments: get("TcpOutSegs").map(|segs| segs + get("TcpRetransSegs").unwrap_or(0)),
        super_segments: get("plimsoll.SuperSegs"),
        cpu_seconds: Some(usage.cpu_seconds),
        voluntary_context_switches: usage.switches.map(|(voluntary, _)| voluntary),
        involuntary_context_switches: usage.switches.map(|(_, involuntary)| involuntary),
        counters,
        ..Figures::default()
    }
}
