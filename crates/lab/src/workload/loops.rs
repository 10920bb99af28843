//! Workloads on event loops: one thread for each side, which runs its stack and all its sockets. If
//! the client's stack has several queues, its side has a thread for each.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use plimsoll::{Connector, Kicker, Stack, TcpStream};

use super::measure::{Measured, Snapshot};
use super::{Kind, Workload, phase};
use crate::event_loop::{EventLoop, Stopper, Task};
use crate::progress::Progress;
use crate::requester::{
    Alive, Asking, Latencies, Loops, Own, Plan, Reconnecter, Requester, TakeMoved, latencies,
    new_histogram,
};
use crate::tasks::{Acceptor, Connecting, Responder, Sink, Source, Tally};
use crate::workload::RequestResponse;

/// Runs the workload.
pub(super) fn run(workload: &Workload) -> anyhow::Result<Measured> {
    let Some(server) = &workload.server else { return client(workload, None) };
    // Bound here, so that no SYN comes too early.
    let listener = workload.listener(server)?;
    listener.set_nonblocking(true)?;
    let finish = Stopper::new(server);
    let server_cpu = workload.on_cpu(1)?;
    let exit = Stopper::new(server);
    let (report, reported) = mpsc::channel();
    std::thread::scope(|scope| {
        let (stop, end) = (finish.clone(), exit.clone());
        std::thread::Builder::new()
            .name("server".into())
            .spawn_scoped(scope, move || serve(workload, server, listener, &stop, &end, &report))
            .context("cannot start the server's thread")?;
        drop(server_cpu);
        let measured = client(workload, Some(&finish));
        // If the client has failed, nobody has told the server that the time is over.
        finish.stop();
        exit.stop();
        let error = reported.recv().ok().flatten();
        match (measured, error) {
            (Ok(_), Some(error)) => Err(anyhow!("the server side failed: {error}")),
            (measured, _) => measured,
        }
    })
}

/// The server side's thread.
fn serve(
    workload: &Workload,
    stack: &Stack,
    listener: plimsoll::TcpListener,
    finish: &Stopper,
    exit: &Stopper,
    report: &mpsc::Sender<Option<std::io::Error>>,
) {
    let tally = Rc::new(Tally::default());
    let mut events = EventLoop::new(stack, workload.idle);
    let (how, count) = (How::of(workload), tally.clone());
    let start = move |stream: TcpStream| server_task(how, stream, count.clone());
    events.spawn(Box::new(Acceptor::new(listener, start, tally.clone())));
    events.run(None, |_| finish.is_stopped());
    events.set_phase(phase::STOP);
    events.run(None, |_| exit.is_stopped());
    // The owner may have failed and gone.
    let _ = report.send(tally.take_error());
}

/// What flows, and how it is read and written.
#[derive(Clone, Copy)]
struct How {
    kind: Kind,
    buffer: Option<usize>,
    shared: bool,
}

impl How {
    fn of(workload: &Workload) -> How {
        let Workload { kind, write_buffer: buffer, shared, .. } = *workload;
        How { kind, buffer, shared }
    }

    /// Writes `bytes` bytes, `message` at a time.
    fn source(
        self,
        stream: TcpStream,
        (message, bytes): (usize, u64),
        tally: Rc<Tally>,
    ) -> Box<Source> {
        let source = Source::new(stream, (message, bytes), phase::STOP, tally);
        Box::new(source.buffered(self.buffer).by_reference(self.shared))
    }
}

fn server_task(how: How, stream: TcpStream, tally: Rc<Tally>) -> Box<dyn Task> {
    match how.kind {
        Kind::Send { .. } => {
            Box::new(Sink { stream, shared: how.shared, stop_phase: u32::MAX, tally })
        }
        Kind::Receive { message, bytes } => how.source(stream, (message, bytes), tally),
        Kind::Rr { sizes: RequestResponse { request, response }, reconnect, .. } => {
            Box::new(Responder::new(stream, (request, response), reconnect, tally))
        }
    }
}

/// The client side. `finish` tells the other side that the time is over.
fn client(workload: &Workload, finish: Option<&Stopper>) -> anyhow::Result<Measured> {
    let stack = &workload.client;
    let mut shares: Vec<Share> = (0..stack.queue_count()).map(|_| Share::default()).collect();
    // The loops of several queues inherit nothing: each goes to its own processor.
    let _on = if shares.len() == 1 { workload.on_cpu(0)? } else { None };
    let connector = Connector::new(stack).options(workload.options.clone());
    for flow in 0..workload.flows as usize {
        if matches!(workload.kind, Kind::Rr { reconnect: true, .. }) {
            let count = shares.len();
            shares[flow % count].reconnecters += 1;
            continue;
        }
        let stream = connector.start(workload.remote);
        let stream = stream.map_err(|error| workload.connect_error(&error))?;
        shares[stream.queue()].streams.push((stream, None));
    }
    if let [share] = shares.as_mut_slice() {
        let mut events = EventLoop::new(stack, workload.idle);
        return one_client(workload, &mut events, std::mem::take(share), finish);
    }
    several_clients(workload, shares, finish)
}

/// The flows of one loop of the client's side.
#[derive(Default)]
struct Share {
    /// Connections that are being opened, with their place among the loops if there are several.
    streams: Vec<(TcpStream, Option<Alive>)>,
    /// Flows that open a connection for each transaction.
    reconnecters: u32,
    /// The loop, if there are several.
    own: Option<Own>,
}

/// The client side with a loop, and a thread, for each queue of its stack.
fn several_clients(
    workload: &Workload,
    mut shares: Vec<Share>,
    finish: Option<&Stopper>,
) -> anyhow::Result<Measured> {
    let running = Running::new(&workload.client);
    let mut loops = Vec::new();
    let all = Loops::new(shares.len());
    for (queue, share) in shares.iter_mut().enumerate() {
        share.own = Some(Own { loops: all.clone(), queue });
        share.streams.iter_mut().for_each(|(_, alive)| *alive = Some(all.enter()));
        loops.push((workload.client.queue(queue)?, running.enter()));
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (share, (own, entered)) in shares.into_iter().zip(loops) {
            let name = format!("client/{}", own.queue());
            let running = &running;
            let run = move || {
                let this = share.own.as_ref().map(Own::running);
                if workload.cpus.is_some() {
                    own.stay_on_processor().context("cannot run a loop")?;
                }
                let mut events = EventLoop::of_queue(own, workload.idle);
                let measured = one_client(workload, &mut events, share, finish);
                match (&measured, this) {
                    (Ok(_), Some(this)) => this.end_well(),
                    (_, this) => drop(this),
                }
                drop(entered);
                events.run(None, |_| running.are_none());
                measured
            };
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, run);
            threads.push(thread.context("cannot start the thread of a loop")?);
        }
        let mut all: Option<Measured> = None;
        for thread in threads {
            let measured = thread.join().map_err(|_| anyhow!("a loop has panicked"))??;
            match &mut all {
                None => all = Some(measured),
                Some(first) => first.add_flows_of(&measured)?,
            }
        }
        all.context("there is no queue")
    })
}

/// The loops of a side that have not come to the end of their share. A packet may arrive on any
/// queue, so no loop ends before the others have what they wait for.
struct Running {
    loops: AtomicUsize,
    kicker: Kicker,
}

impl Running {
    fn new(stack: &Stack) -> Running {
        Running { loops: AtomicUsize::new(0), kicker: stack.kicker() }
    }

    /// One more, until what this returns is dropped.
    fn enter(&self) -> Entered<'_> {
        self.loops.fetch_add(1, Ordering::SeqCst);
        Entered(self)
    }

    fn are_none(&self) -> bool {
        self.loops.load(Ordering::SeqCst) == 0
    }
}

/// One of the loops. A panic ends it as well.
struct Entered<'a>(&'a Running);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.loops.fetch_sub(1, Ordering::SeqCst);
        self.0.kicker.kick();
    }
}

/// The client side, or its `share` of one queue, on this thread.
fn one_client(
    workload: &Workload,
    events: &mut EventLoop,
    share: Share,
    finish: Option<&Stopper>,
) -> anyhow::Result<Measured> {
    let tally = Rc::new(Tally::default());
    let latencies = latencies();
    open(workload, events, share, (&tally, &latencies), finish.is_none())?;
    timed(workload, events, (&tally, &latencies), finish)
}

/// Starts the tasks of a loop, and waits until their connections are open.
fn open(
    workload: &Workload,
    events: &mut EventLoop,
    share: Share,
    (tally, latencies): (&Rc<Tally>, &Latencies),
    stop_early: bool,
) -> anyhow::Result<()> {
    let plan = |sizes, transactions| Plan {
        sizes,
        transactions,
        stop_phase: phase::STOP,
        latencies: latencies.clone(),
        tally: tally.clone(),
    };
    let connector = Connector::new(&workload.client).options(workload.options.clone());
    if let Kind::Rr { sizes, transactions, .. } = workload.kind {
        for _ in 0..share.reconnecters {
            let (connector, plan) = (connector.clone(), plan(sizes, transactions));
            let reconnecter = Reconnecter::new(connector, workload.remote, plan, phase::RUN);
            events.spawn(Box::new(reconnecter));
        }
    }
    let to_connect = share.streams.len() as u64;
    if let (Some(own), Kind::Rr { sizes, transactions, reconnect: false }) =
        (&share.own, workload.kind)
    {
        let (own, plan) = (own.clone(), plan(sizes, transactions));
        events.spawn(Box::new(TakeMoved { own, plan, start_phase: phase::RUN }));
    }
    for (stream, mut alive) in share.streams {
        let (tally, count, how) = (tally.clone(), tally.clone(), How::of(workload));
        let mut plan = match how.kind {
            Kind::Rr { sizes, transactions, .. } => Some(plan(sizes, transactions)),
            _ => None,
        };
        let own = share.own.clone();
        let then = move |stream| -> Box<dyn Task> {
            match plan.take() {
                Some(plan) => {
                    let asking = Asking::new(stream, alive.take());
                    Box::new(Requester::new(asking, plan, own.clone()))
                }
                None => client_task(how, stream, stop_early, count.clone()),
            }
        };
        let (stream, start_phase) = (Some(stream), phase::RUN);
        events.spawn(Box::new(Connecting { stream, then, next: None, start_phase, tally }));
    }
    let what = || {
        let left = to_connect.saturating_sub(tally.connected.get());
        format!("{left} of {to_connect} connections to {} to open", workload.remote)
    };
    let connected = |_: &EventLoop| tally.connected.get() >= to_connect || tally.has_failed();
    let waited = patiently(workload, events, what, connected);
    if let Some(error) = tally.take_error() {
        return Err(workload.connect_error(&error));
    }
    waited
}

fn client_task(how: How, stream: TcpStream, stop_early: bool, tally: Rc<Tally>) -> Box<dyn Task> {
    match how.kind {
        Kind::Send { message, bytes } => how.source(stream, (message, bytes), tally),
        // A server in this process ends the stream itself when the time is over.
        _ => {
            let stop_phase = if stop_early { phase::STOP } else { u32::MAX };
            Box::new(Sink { stream, shared: how.shared, stop_phase, tally })
        }
    }
}

/// The part of the run that is measured.
fn timed(
    workload: &Workload,
    events: &mut EventLoop,
    (tally, latencies): (&Tally, &Latencies),
    finish: Option<&Stopper>,
) -> anyhow::Result<Measured> {
    let progress = RefCell::new(Progress::new());
    let transactions = matches!(workload.kind, Kind::Rr { .. });
    let bulk = || tally.sent.get().max(tally.received.get());
    let moved = || (bulk(), tally.transactions.get());
    let show = || {
        if transactions {
            progress.borrow_mut().transactions(tally.transactions.get());
        } else {
            progress.borrow_mut().bytes(bulk(), None);
        }
    };
    let over = |events: &EventLoop| tally.has_failed() || events.tasks() == 0;
    if let Some(warm_up) = workload.warm_up {
        events.set_phase(phase::RUN);
        events.run(Some(plimsoll::now() + warm_up), over);
        latencies.replace(new_histogram());
    }
    let before = Snapshot::begin(|| workload.counters());
    let (start, first) = (plimsoll::now(), moved());
    events.set_phase(phase::RUN);
    let limit = workload.limit().map(|length| start + length);
    events.run(limit, |events| {
        show();
        over(events)
    });
    let mut measured = None;
    if workload.warm_up.is_some() {
        measured =
            Some((plimsoll::now().since(start), moved(), Snapshot::take(|| workload.counters())));
    }
    if let Some(finish) = finish {
        finish.stop();
    }
    events.set_phase(phase::STOP);
    let flows = events.tasks();
    let what = || format!("what is under way on {flows} flows to arrive");
    let waited = patiently(workload, events, what, over);
    let (elapsed, last, after) = measured.unwrap_or_else(|| {
        (plimsoll::now().since(start), moved(), Snapshot::take(|| workload.counters()))
    });
    drop(progress);
    if let Some(error) = tally.take_error() {
        let reconnects = matches!(workload.kind, Kind::Rr { reconnect: true, .. });
        return Err(match reconnects {
            true => workload.connect_error(&error),
            false => anyhow!("the connection to {} failed: {error}", workload.remote),
        });
    }
    waited?;
    let moved = (last.0 - first.0, last.1 - first.1);
    let latencies = latencies.replace(new_histogram());
    Ok(Measured::between(&before, &after, elapsed, moved, latencies))
}

/// After how long it is said what is waited for.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// How long no segment may arrive while something is waited for.
const SILENCE: Duration = Duration::from_secs(45);

/// Runs until `done`. Says on standard error `what` it waits for, if that takes long, and gives up
/// when nothing arrives any more.
fn patiently(
    workload: &Workload,
    events: &mut EventLoop,
    what: impl Fn() -> String,
    done: impl Fn(&EventLoop) -> bool,
) -> anyhow::Result<()> {
    let arrived = || workload.client.core().counter("TcpInSegs");
    let mut before = arrived();
    let mut time = SAY_AFTER;
    loop {
        events.run(Some(plimsoll::now() + time), &done);
        if done(events) {
            return Ok(());
        }
        if time == SAY_AFTER {
            // Nobody may be reading any more.
            let _ = writeln!(std::io::stderr(), "plimsoll: waiting for {}", what());
            time = SILENCE;
            continue;
        }
        let now = arrived();
        if now == before {
            bail!(
                "waited for {}, but nothing has arrived for {} s: the link may lose or delay \
                 everything, or there is nobody at that address",
                what(),
                SILENCE.as_secs()
            );
        }
        before = now;
    }
}
