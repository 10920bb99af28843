//! `plimsoll serve`: services on a TUN device, all in one event loop on this thread.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use plimsoll::{Options, Stack, TcpListener, TcpStream};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::ServeArgs;
use crate::http::service::{Limits, Site, Web};
use crate::net::{self, Captures};
use crate::output::{self, print};
use crate::service::{Kind, Service};
use plimsoll_lab::event_loop::{EventLoop, Stopper, Task};
use plimsoll_lab::figures::{self, Counters, Figures};
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

/// What clients were given, and what they were refused.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Served {
    connections: u64,
    bytes_received: u64,
    bytes_sent: u64,
    transactions: u64,
    http_requests: u64,
    /// Connections that found no room.
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
    let (served, result) = serve(&stack, args, &roots, listeners, &stopper);
    let document = Document {
        command: "serve",
        seconds: start.elapsed().as_secs_f64(),
        served,
        figures: &figures(&stack, Usage::now().since(before)),
    };
    drop(control);
    output::write_json(json, &document)?;
    let ended = result.context("the stack has ended");
    if ended.is_ok() {
        stack.drain(GRACE);
    }
    net::name_device(&args.stack, ended)?;
    captures.finish()
}

/// Serves in an event loop on this thread until it is stopped, or the stack ends.
fn serve(
    stack: &Stack,
    args: &ServeArgs,
    roots: &[Rc<PathBuf>],
    listeners: Vec<(usize, TcpListener)>,
    stopper: &Stopper,
) -> (Served, std::io::Result<()>) {
    let tally = Rc::new(Tally::tolerant());
    let limits = Limits { connections: args.http_connections, ..Limits::default() };
    let site = Rc::new(Site::new(limits));
    let mut events = EventLoop::new(stack, net::busy_poll(&args.stack));
    for (index, listener) in listeners {
        let (kind, root) = (args.services[index].kind.clone(), roots[index].clone());
        let (count, site) = (tally.clone(), site.clone());
        let start = move |stream| task(&kind, &root, &site, stream, count.clone());
        events.spawn(Box::new(Acceptor { listener, start, tally: tally.clone() }));
    }
    events.run(None, |_| stopper.is_stopped() || tally.has_failed());
    (Served::of(&tally, &site), tally.take_error().map_or(Ok(()), Err))
}

/// Whether all is there that a server needs, and nothing twice. Everything that is missing is named
/// at once.
fn check_words(args: &ServeArgs) -> anyhow::Result<()> {
    let mut missing = net::missing(&args.stack);
    if args.services.is_empty() {
        missing.push("what to serve, as in echo:7 or http:80:/srv/www".to_owned());
    }
    if !missing.is_empty() {
        return Err(net::usage(&format!("missing: {}", missing.join("; "))));
    }
    for (index, service) in args.services.iter().enumerate() {
        let same = |earlier: &&Service| earlier.port == service.port;
        if let Some(earlier) = args.services[..index].iter().find(same) {
            return Err(net::usage(&format!(
                "port {} is given to two services, {} and {}; give each a port of its own",
                service.port,
                earlier.kind.name(),
                service.kind.name()
            )));
        }
    }
    Ok(())
}

/// The directories of the http services, canonical; an empty path for the others.
fn check_directories(services: &[Service]) -> anyhow::Result<Vec<Rc<PathBuf>>> {
    let check = |service: &Service| match &service.kind {
        Kind::Http { root } => {
            let full = root
                .canonicalize()
                .with_context(|| format!("cannot serve directory {}", root.display()))?;
            anyhow::ensure!(full.is_dir(), "cannot serve {}: not a directory", root.display());
            Ok(Rc::new(full))
        }
        _ => Ok(Rc::default()),
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

fn task(
    kind: &Kind,
    root: &Rc<PathBuf>,
    site: &Rc<Site>,
    stream: TcpStream,
    tally: Rc<Tally>,
) -> Box<dyn Task> {
    match *kind {
        Kind::Discard => Box::new(Sink { stream, stop_phase: u32::MAX, tally }),
        Kind::Chargen { write_size } => Box::new(Source::endless(stream, write_size, tally)),
        Kind::Echo => Box::new(Echo::new(stream, tally)),
        Kind::RequestResponse { request, response } => {
            Box::new(Responder::new(stream, (request, response), false, tally))
        }
        Kind::Http { .. } => Box::new(Web::new(stream, root.clone(), site.clone(), tally)),
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
