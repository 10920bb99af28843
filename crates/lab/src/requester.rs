//! The tasks that ask: one transaction after the other, over one connection or over many.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use hdrhistogram::Histogram;
use plimsoll::{Connector, Instant, TcpStream};

use crate::event_loop::{Around, TURN_BYTES, Task, Turn};
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

/// Transactions over one connection.
pub struct Requester {
    stream: TcpStream,
    plan: Plan,
    exchange: Exchange,
    done: u64,
}

impl Requester {
    /// Asks over `stream`.
    pub fn new(stream: TcpStream, plan: Plan) -> Requester {
        Requester { stream, plan, exchange: Exchange::default(), done: 0 }
    }
}

impl Task for Requester {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        let mut moved = 0;
        while moved < TURN_BYTES {
            if self.exchange.started.is_none() {
                if self.done == self.plan.transactions || around.phase >= self.plan.stop_phase {
                    return Turn::Done;
                }
                self.exchange.begin(self.plan.sizes);
            }
            match self.exchange.go_on(&self.stream, around, &self.plan.tally) {
                Progress::Complete => {
                    self.exchange.complete(&self.plan);
                    self.done += 1;
                    moved += self.plan.sizes.request + self.plan.sizes.response;
                }
                Progress::Blocked => return Turn::Sleep,
                Progress::Failed(error) => {
                    self.plan.tally.fail(error);
                    return Turn::Done;
                }
            }
        }
        Turn::Again
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
