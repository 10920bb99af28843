//! The tasks that carry a workload: senders, sinks, requesters, responders.
//!
//! They are used by the workloads on both sides and by the services of `serve`.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use plimsoll::{BufferedStream, Slice, TcpListener, TcpStream, WriteFlags};

use crate::event_loop::{Around, SCRATCH_BYTES, Task, Turn};

/// What the tasks of one loop have moved, for whoever runs the loop.
#[derive(Default)]
pub struct Tally {
    /// Connections that were established.
    pub connected: Cell<u64>,
    /// Connections that were accepted.
    pub accepted: Cell<u64>,
    /// Payload bytes written.
    pub sent: Cell<u64>,
    /// Payload bytes read.
    pub received: Cell<u64>,
    /// Transactions completed.
    pub transactions: Cell<u64>,
    /// HTTP requests answered.
    pub requests: Cell<u64>,
    /// The first error of a task that measures.
    error: Cell<Option<io::Error>>,
    failed: Cell<bool>,
    tolerant: bool,
}

impl Tally {
    /// A tally for services: a connection that fails is its peer's loss.
    pub fn tolerant() -> Tally {
        Tally { tolerant: true, ..Tally::default() }
    }

    /// Notes that a connection has failed.
    pub fn fail(&self, error: io::Error) {
        if !self.tolerant {
            self.fatal(error);
        }
    }

    /// Keeps the first error that ends everything.
    pub fn fatal(&self, error: io::Error) {
        if !self.failed.replace(true) {
            self.error.set(Some(error));
        }
    }

    /// Whether a task has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// The first error, once.
    pub fn take_error(&self) -> Option<io::Error> {
        self.error.take()
    }
}

/// Adds to a counter.
pub fn add(cell: &Cell<u64>, amount: u64) {
    cell.set(cell.get() + amount);
}

/// How a step of a task ended: it goes on, or the whole task does something else.
pub enum Step<T> {
    /// It went on.
    Went(T),
    /// It would block; the waker is registered.
    Blocked,
    /// The peer has ended the stream.
    Ended,
    /// It failed.
    Failed(io::Error),
}

/// Reads what is there, up to `limit` bytes; registers the waker if there is nothing. One read may
/// take more than a turn's bytes: cut to these, the link in memory carried less than half.
pub fn read(stream: &TcpStream, around: &mut Around<'_>, limit: usize) -> Step<usize> {
    let limit = limit.min(around.scratch.len());
    let scratch = &mut around.scratch[..limit];
    reading(stream, around.waker, || (&*stream).read(scratch))
}

/// As [`read`], by reference: nothing is copied, and what was read is dropped at once.
fn read_by_reference(stream: &TcpStream, around: &mut Around<'_>) -> Step<usize> {
    let most = around.scratch.len();
    reading(stream, around.waker, || stream.read_shared(most).map(|data| data.len()))
}

fn reading(
    stream: &TcpStream,
    waker: &Waker,
    mut read: impl FnMut() -> io::Result<usize>,
) -> Step<usize> {
    loop {
        match read() {
            Ok(0) => return Step::Ended,
            Ok(count) => return Step::Went(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !stream.poll_readable(waker) {
                    return Step::Blocked;
                }
            }
            Err(error) => return Step::Failed(error),
        }
    }
}

/// Writes up to `count` bytes of the scratch buffer; registers the waker if nothing fits.
pub fn write(stream: &TcpStream, around: &mut Around<'_>, count: usize) -> Step<usize> {
    let count = count.min(around.scratch.len());
    loop {
        let written = (&*stream).write(&around.scratch[..count]);
        if let Some(step) = written_step(stream, around.waker, written) {
            return step;
        }
    }
}

/// What a write came to; `None` if it is to be tried again.
fn written_step(
    stream: &TcpStream,
    waker: &Waker,
    written: io::Result<usize>,
) -> Option<Step<usize>> {
    match written {
        Ok(count) => Some(Step::Went(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            (!stream.poll_writable(waker)).then_some(Step::Blocked)
        }
        Err(error) => Some(Step::Failed(error)),
    }
}

/// Another handle of a connection that is at home in another queue than `own`. The task drops its.
fn elsewhere(stream: &TcpStream, own: usize) -> Option<TcpStream> {
    if stream.queue() == own { None } else { stream.try_clone().ok() }
}

/// Accepts connections and starts a task for each.
pub struct Acceptor<F> {
    listener: Rc<TcpListener>,
    start: F,
    tally: Rc<Tally>,
    /// Its place among those who wait for the listener: other loops may have acceptors as well, and
    /// the thread that is woken must not take the wake-up from the others.
    waiting: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<F> Acceptor<F> {
    /// Accepts from `listener`, which must be non-blocking; `start` makes the task of a connection.
    pub fn new(listener: TcpListener, start: F, tally: Rc<Tally>) -> Acceptor<F> {
        Acceptor { listener: Rc::new(listener), start, tally, waiting: None }
    }

    /// Whether to accept now. If not, the task is woken.
    fn is_acceptable(&mut self, waker: &Waker) -> bool {
        let listener = &self.listener;
        let waiting = self.waiting.get_or_insert_with(|| {
            let listener = listener.clone();
            Box::pin(async move { listener.acceptable().await })
        });
        let ready = waiting.as_mut().poll(&mut Context::from_waker(waker)).is_ready();
        if ready {
            self.waiting = None;
        }
        ready
    }
}

impl<F: FnMut(TcpStream) -> Box<dyn Task>> Task for Acceptor<F> {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        for _ in 0..64 {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    add(&self.tally.accepted, 1);
                    if stream.set_nonblocking(true).is_ok() {
                        around.spawn.push((self.start)(stream));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.is_acceptable(around.waker) {
                        return Turn::Sleep;
                    }
                }
                Err(error) => {
                    self.tally.fatal(error);
                    return Turn::Done;
                }
            }
        }
        Turn::Again
    }
}

/// Reads everything and forgets it; closes when the peer has ended.
pub struct Sink {
    /// The connection.
    pub stream: TcpStream,
    /// It reads by reference.
    pub shared: bool,
    /// The phase in which it stops although more may come.
    pub stop_phase: u32,
    /// Where to count.
    pub tally: Rc<Tally>,
}

impl Task for Sink {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        if around.phase >= self.stop_phase {
            return Turn::Done;
        }
        let mut moved = 0;
        while moved < around.turn_bytes {
            let step = if self.shared {
                read_by_reference(&self.stream, around)
            } else {
                read(&self.stream, around, usize::MAX)
            };
            match step {
                Step::Went(count) => {
                    add(&self.tally.received, count as u64);
                    moved += count;
                }
                Step::Blocked => return Turn::Sleep,
                Step::Ended => return Turn::Done,
                Step::Failed(error) => {
                    self.tally.fail(error);
                    return Turn::Done;
                }
            }
        }
        Turn::Again
    }

    fn moved_from(&mut self, own: usize) -> Option<TcpStream> {
        elsewhere(&self.stream, own)
    }
}

/// Writes until it is told to stop or has written its bytes, then ends its direction and waits for
/// the peer to end the other.
pub struct Source {
    /// The connection.
    stream: Output,
    /// Bytes of one write.
    message: usize,
    /// Bytes that are still to be written; `u64::MAX` is no limit.
    left: u64,
    /// The phase in which it stops.
    stop_phase: u32,
    /// Whether its direction has ended.
    ended: bool,
    /// Where to count.
    tally: Rc<Tally>,
}

/// A connection that is written to.
enum Output {
    Plain(TcpStream),
    Buffered(BufferedStream),
    /// By reference, the same block again and again.
    Shared(TcpStream, Slice),
}

impl Output {
    fn stream(&self) -> &TcpStream {
        match self {
            Output::Plain(stream) | Output::Shared(stream, _) => stream,
            Output::Buffered(stream) => stream.get_ref(),
        }
    }

    fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(stream) | Output::Shared(stream, _) => stream.shutdown(Shutdown::Write),
            Output::Buffered(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// As [`write()`], through the buffer or by reference if that is chosen.
    fn write(&mut self, around: &mut Around<'_>, count: usize) -> Step<usize> {
        let count = count.min(around.scratch.len());
        loop {
            let written = match self {
                Output::Plain(stream) => (&*stream).write(&around.scratch[..count]),
                Output::Buffered(stream) => stream.write(&around.scratch[..count]),
                Output::Shared(stream, block) => {
                    let part = block.range(0, count.min(block.len()));
                    stream.write_shared(&[part], WriteFlags::default())
                }
            };
            if let Some(step) = written_step(self.stream(), around.waker, written) {
                return step;
            }
        }
    }
}

impl Source {
    /// Writes `message` bytes at a time, all in all `bytes`; `u64::MAX` is no limit. Stops in the
    /// phase `stop_phase` all the same.
    pub fn new(
        stream: TcpStream,
        (message, bytes): (usize, u64),
        stop_phase: u32,
        tally: Rc<Tally>,
    ) -> Source {
        let stream = Output::Plain(stream);
        Source { stream, message, left: bytes, stop_phase, ended: false, tally }
    }

    /// Writes without end.
    pub fn endless(stream: TcpStream, message: usize, tally: Rc<Tally>) -> Source {
        Source::new(stream, (message, u64::MAX), u32::MAX, tally)
    }

    /// With a buffer of so many bytes, if any.
    pub fn buffered(mut self, bytes: Option<usize>) -> Source {
        self.stream = match (self.stream, bytes) {
            (Output::Plain(stream), Some(bytes)) => {
                Output::Buffered(stream.with_write_buffer(bytes))
            }
            (stream, _) => stream,
        };
        self
    }

    /// Without copying, if `shared` and there is no buffer.
    pub fn by_reference(mut self, shared: bool) -> Source {
        let bytes = self.message.min(SCRATCH_BYTES);
        self.stream = match self.stream {
            Output::Plain(stream) if shared => {
                Output::Shared(stream, Slice::from_owner(vec![0; bytes]))
            }
            stream => stream,
        };
        self
    }

    fn fail(&self, error: io::Error) -> Turn {
        self.tally.fail(error);
        Turn::Done
    }
}

impl Task for Source {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        let mut moved = 0;
        while moved < around.turn_bytes && !self.ended {
            if around.phase >= self.stop_phase || self.left == 0 {
                self.ended = true;
                if let Err(error) = self.stream.shutdown() {
                    return self.fail(error);
                }
                break;
            }
            let want = (self.message as u64).min(self.left) as usize;
            match self.stream.write(around, want) {
                Step::Went(count) => {
                    add(&self.tally.sent, count as u64);
                    if self.left != u64::MAX {
                        self.left -= count as u64;
                    }
                    moved += count;
                }
                Step::Blocked => return Turn::Sleep,
                Step::Ended => return Turn::Done,
                Step::Failed(error) => return self.fail(error),
            }
        }
        if !self.ended {
            return Turn::Again;
        }
        // What the peer sends is thrown away; its end means that it has read everything.
        loop {
            match read(self.stream.stream(), around, usize::MAX) {
                Step::Went(_) => {}
                Step::Blocked => return Turn::Sleep,
                Step::Ended => return Turn::Done,
                Step::Failed(error) => return self.fail(error),
            }
        }
    }
}

/// Sends back what it reads.
pub struct Echo {
    stream: TcpStream,
    /// What was read and not yet taken back.
    pending: Vec<u8>,
    at: usize,
    tally: Rc<Tally>,
}

/// Bytes that an echo keeps at most.
const ECHO_BYTES: usize = 64 * 1024;

impl Echo {
    /// Echoes on `stream`.
    pub fn new(stream: TcpStream, tally: Rc<Tally>) -> Echo {
        Echo { stream, pending: Vec::new(), at: 0, tally }
    }
}

impl Task for Echo {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        let mut moved = 0;
        while moved < around.turn_bytes {
            if self.at < self.pending.len() {
                match (&self.stream).write(&self.pending[self.at..]) {
                    Ok(count) => {
                        self.at += count;
                        add(&self.tally.sent, count as u64);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if !self.stream.poll_writable(around.waker) {
                            return Turn::Sleep;
                        }
                    }
                    Err(_) => return Turn::Done,
                }
                continue;
            }
            // An idle connection keeps no buffer.
            self.pending = Vec::new();
            self.at = 0;
            match read(&self.stream, around, ECHO_BYTES) {
                Step::Went(count) => {
                    add(&self.tally.received, count as u64);
                    self.pending.extend_from_slice(&around.scratch[..count]);
                    moved += count;
                }
                Step::Blocked => return Turn::Sleep,
                Step::Ended | Step::Failed(_) => return Turn::Done,
            }
        }
        Turn::Again
    }

    fn moved_from(&mut self, own: usize) -> Option<TcpStream> {
        if self.pending.is_empty() { elsewhere(&self.stream, own) } else { None }
    }
}

/// Answers requests of a fixed size with responses of a fixed size.
pub struct Responder {
    /// The connection.
    pub stream: TcpStream,
    /// Bytes of a request.
    pub request: usize,
    /// Bytes of a response.
    pub response: usize,
    /// Bytes of the present request that have arrived.
    pub got: usize,
    /// Bytes of responses that are still to be written.
    pub owed: usize,
    /// Whether it closes after one response.
    pub once: bool,
    /// Where to count.
    pub tally: Rc<Tally>,
}

impl Responder {
    /// Answers on `stream`.
    pub fn new(
        stream: TcpStream,
        (request, response): (usize, usize),
        once: bool,
        tally: Rc<Tally>,
    ) -> Responder {
        Responder { stream, request, response, got: 0, owed: 0, once, tally }
    }
}

impl Task for Responder {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        let mut moved = 0;
        while moved < around.turn_bytes {
            if self.owed > 0 {
                match write(&self.stream, around, self.owed) {
                    Step::Went(count) => {
                        self.owed -= count;
                        moved += count;
                        add(&self.tally.sent, count as u64);
                    }
                    Step::Blocked => return Turn::Sleep,
                    Step::Ended | Step::Failed(_) => return Turn::Done,
                }
                if self.owed == 0 {
                    add(&self.tally.transactions, 1);
                    if self.once {
                        return Turn::Done;
                    }
                }
                continue;
            }
            // A client that pipelines is answered one request at a time.
            match read(&self.stream, around, self.request - self.got) {
                Step::Went(count) => {
                    add(&self.tally.received, count as u64);
                    moved += count;
                    self.got += count;
                    if self.got == self.request {
                        self.got = 0;
                        self.owed = self.response;
                    }
                }
                Step::Blocked => return Turn::Sleep,
                Step::Ended | Step::Failed(_) => return Turn::Done,
            }
        }
        Turn::Again
    }

    fn moved_from(&mut self, own: usize) -> Option<TcpStream> {
        let idle = self.got == 0 && self.owed == 0;
        if idle { elsewhere(&self.stream, own) } else { None }
    }
}

/// Waits for a connection, then becomes another task.
pub struct Connecting<F> {
    /// The connection, not yet established.
    pub stream: Option<TcpStream>,
    /// Makes the task.
    pub then: F,
    /// The task, once it is made.
    pub next: Option<Box<dyn Task>>,
    /// The phase from which on the task may run.
    pub start_phase: u32,
    /// Where to count.
    pub tally: Rc<Tally>,
}

impl<F: FnMut(TcpStream) -> Box<dyn Task>> Task for Connecting<F> {
    fn run(&mut self, around: &mut Around<'_>) -> Turn {
        if let Some(stream) = self.stream.take() {
            match stream.poll_connected(around.waker) {
                Poll::Pending => {
                    self.stream = Some(stream);
                    return Turn::Sleep;
                }
                Poll::Ready(Err(error)) => {
                    self.tally.fail(error);
                    return Turn::Done;
                }
                Poll::Ready(Ok(())) => {
                    add(&self.tally.connected, 1);
                    self.next = Some((self.then)(stream));
                }
            }
        }
        match &mut self.next {
            Some(next) if around.phase >= self.start_phase => next.run(around),
            _ => Turn::Sleep,
        }
    }
}

#[cfg(test)]
mod tests;
