//! The tasks that ask: one transaction after the other, over one connection or over many.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use hdrhistogram::Histogram;
use plimsoll::{Connector, Instant, TcpStream};

use crate::event_loop::{Around, Task, Turn};
use crate::hand_over::HandOver;
use crate::tasks::{Step, Tally, add, read, write};
use crate::workload::RequestResponse;

/// Latencies in nanoseconds.
pub type Latencies = Rc<RefCell<Histogram<u64>>>;

/// An empty histogram of latencies, for one loop.
pub fn latencies() -> Latencies {
    Rc::new(RefCell::new(new_histogram()))
}

/// A histogram that grows as it has to, with three digits.
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

/// What all requesters of a loop have in common.
#[derive(Clone)]
pub struct Plan {
    /// Sizes of request and response.
    pub sizes: RequestResponse,
    /// Transactions of one flow; `u64::MAX` is no limit.
    pub transactions: u64,
    /// The phase in which no new transaction begins.
    pub stop_phase: u32,
    /// Where latencies go.
    pub latencies: Latencies,
    /// Where to count.
    pub tally: Rc<Tally>,
}

/// One transaction on its way.
#[derive(Default)]
struct Exchange {
    started: Option<Instant>,
    to_write: usize,
    to_read: usize,
}

enum Progress {
    Complete,
    Blocked,
    Failed(io::Error),
}

impl Exchange {
    fn begin(&mut self, sizes: RequestResponse) {
        self.started = Some(plimsoll::now());
        self.to_write = sizes.request;
        self.to_read = sizes.response;
    }

    fn go_on(&mut self, stream: &TcpStream, around: &mut Around<'_>, tally: &Tally) -> Progress {
        while self.to_write > 0 {
            match write(stream, around, self.to_write) {
                Step::Went(count) => {
                    self.to_write -= count;
                    add(&tally.sent, count as u64);
                }
                Step::Blocked => return Progress::Blocked,
                Step::Ended => return Progress::Failed(io::ErrorKind::UnexpectedEof.into()),
                Step::Failed(error) => return Progress::Failed(error),
            }
        }
        while self.to_read > 0 {
            match read(stream, around, self.to_read) {
                Step::Went(count) => {
                    self.to_read -= count;
                    add(&tally.received, count as u64);
                }
                Step::Blocked => return Progress::Blocked,
                Step::Ended => {
                    let message = "the peer closed before its response was complete";
                    let error = io::Error::new(io::ErrorKind::UnexpectedEof, message);
                    return Progress::Failed(error);
                }
                Step::Failed(error) => return Progress::Failed(error),
            }
        }
        Progress::Complete
    }

    /// Notes the transaction and its latency.
    fn complete(&mut self, plan: &Plan) {
        if let Some(started) = self.started.take() {
            add(&plan.tally.transactions, 1);
            let nanos = plimsoll::now().since(started).as_nanos();
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX).max(1);
            // A histogram that grows by itself takes every value.
            let _ = plan.latencies.borrow_mut().record(nanos);
        }
    }
}

/// A connection that asks, and how far it is: all that goes along when it moves to another loop.
pub struct Asking {
    stream: TcpStream,
    exchange: Exchange,
    done: u64,
    _alive: Option<Alive>,
}

impl Asking {
    /// Nothing has been asked yet. `alive` is its place among the loops that it may move between.
    pub fn new(stream: TcpStream, alive: Option<Alive>) -> Asking {
        Asking { stream, exchange: Exchange::default(), done: 0, _alive: alive }
    }

    /// Goes on as far as it can.
    fn run(&mut self, plan: &Plan, around: &mut Around<'_>) -> Turn {
        let mut moved = 0;
        while moved < around.turn_bytes {
            if self.exchange.started.is_none() {
                if self.done == plan.transactions || around.phase >= plan.stop_phase {
                    return Turn::Done;
                }
                self.exchange.begin(plan.sizes);
            }
            match self.exchange.go_on(&self.stream, around, &plan.tally) {
                Progress::Complete => {
                    self.exchange.complete(plan);
                    self.done += 1;
                    moved += plan.sizes.request + plan.sizes.response;
                }
                Progress::Blocked => return Turn::Sleep,
                Progress::Failed(error) => {
                    plan.tally.fail(error);
                    return Turn::Done;
                }
            }
        }
        Turn::Again
    }
}

/// The loops of a stack with several queues, between which connections move.
pub struct Loops {
    hand_overs: Vec<HandOver<Asking>>,
    alive: AtomicUsize,
    /// A loop has come to its end before its time, so that nobody waits for what it has.
    broken: AtomicBool,
}

/// A connection that has not ended, in whichever loop.
pub struct Alive(Arc<Loops>);

impl Drop for Alive {
    fn drop(&mut self) {
        if self.0.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.hand_overs.iter().for_each(HandOver::wake);
        }
    }
}

impl Loops {
    /// So many.
    pub fn new(count: usize) -> Arc<Loops> {
        let hand_overs = (0..count).map(|_| HandOver::new()).collect();
        Arc::new(Loops { hand_overs, alive: AtomicUsize::new(0), broken: AtomicBool::new(false) })
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// One more connection. All of them enter before the first loop runs.
    pub fn enter(self: &Arc<Loops>) -> Alive {
        self.alive.fetch_add(1, Ordering::AcqRel);
        Alive(self.clone())
    }
}

/// One of the loops.
#[derive(Clone)]
pub struct Own {
    /// All of them.
    pub loops: Arc<Loops>,
    /// The queue of this one.
    pub queue: usize,
}

impl Own {
    /// What tells the other loops if this one ends by an error or a panic.
    pub fn running(&self) -> RunningLoop {
        RunningLoop { own: self.clone(), ended_well: false }
    }
}

/// A loop that runs.
pub struct RunningLoop {
    own: Own,
    ended_well: bool,
}

impl RunningLoop {
    /// All that the loop had to do is done.
    pub fn end_well(mut self) {
        self.ended_well = true;
    }
}

impl Drop for RunningLoop {
    fn drop(&mut self) {
        let loops = &self.own.loops;
        if !self.ended_well {
            loops.broken.store(true, Ordering::Release);
            loops.hand_overs.iter().for_each(HandOver::wake);
        }
        // What came too late ends here.
        drop(loops.hand_overs[self.own.queue].take_all());
    }
}

/// Transactions over one connection.
pub struct Requester {
    asking: Option<Asking>,
    plan: Plan,
    own: Option<Own>,
}

impl Requester {
    /// Asks. If this is one of several loops, the connection follows its queue.
    pub fn new(asking: Asking, plan: Plan, own: Option<Own>) -> Requester {
        Requester { asking: Some(asking), plan, own }
    }
}

impl Task for Requester {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        let Some(asking) = &mut self.asking else { return Turn::Done };
        let queue = asking.stream.queue();
        let moved = |own: &&Own| own.queue != queue && !own.loops.is_broken();
        if let Some(own) = self.own.as_ref().filter(moved) {
            own.loops.hand_overs[queue].leave(self.asking.take().expect("it is there"));
            return Turn::Done;
        }
        asking.run(&self.plan, around)
    }
}

/// Takes the connections that have moved to its loop, until all have ended.
pub struct TakeMoved {
    /// Its loop.
    pub own: Own,
    /// What it asks.
    pub plan: Plan,
    /// The phase from which on it ends when no connection is left.
    pub start_phase: u32,
}

impl Task for TakeMoved {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        while let Some(asking) = self.own.loops.hand_overs[self.own.queue].take(around.waker) {
            let requester = Requester::new(asking, self.plan.clone(), Some(self.own.clone()));
            around.spawn.push(Box::new(requester));
        }
        let loops = &self.own.loops;
        let ended = loops.alive.load(Ordering::Acquire) == 0 && around.phase >= self.start_phase;
        if ended || loops.is_broken() { Turn::Done } else { Turn::Sleep }
    }
}

/// Transactions each over a connection of its own. The peer closes first, so it is the peer that
/// keeps the connections in TIME-WAIT.
pub struct Reconnecter {
    connector: Connector,
    remote: SocketAddr,
    plan: Plan,
    state: Crr,
    exchange: Exchange,
    done: u64,
    /// The phase from which on it connects.
    start_phase: u32,
}

enum Crr {
    Idle,
    Connecting(TcpStream),
    Exchanging(TcpStream),
    /// Reads to the end of the stream.
    Ending(TcpStream),
}

impl Reconnecter {
    /// Asks `remote`, from `start_phase` on.
    pub fn new(
        connector: Connector,
        remote: SocketAddr,
        plan: Plan,
        start_phase: u32,
    ) -> Reconnecter {
        let (state, exchange) = (Crr::Idle, Exchange::default());
        Reconnecter { connector, remote, plan, state, exchange, done: 0, start_phase }
    }

    /// One step; `None` when the next can follow at once.
    fn step(&mut self, around: &mut Around<'_>) -> Result<Option<Turn>, io::Error> {
        match std::mem::replace(&mut self.state, Crr::Idle) {
            Crr::Idle => {
                if self.done == self.plan.transactions || around.phase >= self.plan.stop_phase {
                    return Ok(Some(Turn::Done));
                }
                self.exchange.begin(self.plan.sizes);
                self.state = Crr::Connecting(self.connector.start(self.remote)?);
                Ok(None)
            }
            Crr::Connecting(stream) => match stream.poll_connected(around.waker) {
                Poll::Ready(result) => {
                    result?;
                    add(&self.plan.tally.connected, 1);
                    self.state = Crr::Exchanging(stream);
                    Ok(None)
                }
                Poll::Pending => {
                    self.state = Crr::Connecting(stream);
                    Ok(Some(Turn::Sleep))
                }
            },
            Crr::Exchanging(stream) => {
                match self.exchange.go_on(&stream, around, &self.plan.tally) {
                    Progress::Complete => {
                        self.state = Crr::Ending(stream);
                        Ok(None)
                    }
                    Progress::Blocked => {
                        self.state = Crr::Exchanging(stream);
                        Ok(Some(Turn::Sleep))
                    }
                    Progress::Failed(error) => Err(error),
                }
            }
            Crr::Ending(stream) => match read(&stream, around, usize::MAX) {
                Step::Went(_) => {
                    self.state = Crr::Ending(stream);
                    Ok(None)
                }
                Step::Blocked => {
                    self.state = Crr::Ending(stream);
                    Ok(Some(Turn::Sleep))
                }
                Step::Ended => {
                    self.exchange.complete(&self.plan);
                    self.done += 1;
                    Ok(None)
                }
                Step::Failed(error) => Err(error),
            },
        }
    }
}

impl Task for Reconnecter {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        if around.phase < self.start_phase {
            return Turn::Sleep;
        }
        for _ in 0..64 {
            match self.step(around) {
                Ok(None) => {}
                Ok(Some(turn)) => return turn,
                Err(error) => {
                    self.plan.tally.fail(error);
                    return Turn::Done;
                }
            }
        }
        Turn::Again
    }
}
