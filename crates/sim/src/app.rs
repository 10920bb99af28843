//! The applications at both ends of a flow.

use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

use plimsoll_stack::{SocketError, TcpSocket};
use plimsoll_tcp::Instant;

use crate::journal::{Call, SocketOptions};
use crate::scenario::Application;
use crate::stream::Stream;

/// Which applications have something to do, in the order in which they were woken.
#[derive(Clone, Default)]
pub(crate) struct ReadyList(Arc<Mutex<Vec<usize>>>);

impl ReadyList {
    pub(crate) fn push(&self, app: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(app);
    }

    /// What puts `app` into the list.
    pub(crate) fn waker(&self, app: usize) -> Waker {
        Waker::from(Arc::new(WakeApp { app, list: self.clone() }))
    }

    pub(crate) fn take(&self) -> Vec<usize> {
        core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct WakeApp {
    app: usize,
    list: ReadyList,
}

impl Wake for WakeApp {
    fn wake(self: Arc<Self>) {
        self.list.push(self.app);
    }
}

/// How an application has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It wrote and read all that it was to.
    Finished,
    /// A call failed.
    Failed(String),
    /// Its host has crashed.
    Lost,
}

/// An application.
pub(crate) struct App {
    pub(crate) config: Application,
    pub(crate) host: usize,
    pub(crate) flow: usize,
    pub(crate) is_client: bool,
    socket: Option<Arc<TcpSocket>>,
    waker: Waker,
    outgoing: Stream,
    incoming: Stream,
    to_write: u64,
    to_read: u64,
    written: u64,
    read: u64,
    /// When it last read something, by the world's time.
    pub(crate) last_read: Option<Instant>,
    read_end: bool,
    shut: bool,
    stalled: bool,
    write_at: Instant,
    read_at: Instant,
    end: Option<End>,
    buffer: Vec<u8>,
    /// What it has called since somebody asked.
    calls: Vec<Call>,
}

/// What a step of an application was.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// When to call it again although nothing wakes it.
    pub(crate) again: Option<Instant>,
    /// Something is wrong that no application may see.
    pub(crate) wrong: Option<(&'static str, String)>,
}

/// What an application is made of, beside its configuration.
pub(crate) struct Place {
    pub(crate) app: usize,
    pub(crate) host: usize,
    pub(crate) flow: usize,
    pub(crate) is_client: bool,
    pub(crate) to_write: u64,
    pub(crate) to_read: u64,
}

impl App {
    pub(crate) fn new(config: Application, place: &Place, list: &ReadyList) -> App {
        App {
            buffer: vec![0; config.buffer_len()],
            config,
            host: place.host,
            flow: place.flow,
            is_client: place.is_client,
            socket: None,
            waker: list.waker(place.app),
            outgoing: Stream::new(place.flow, place.is_client),
            incoming: Stream::new(place.flow, !place.is_client),
            to_write: place.to_write,
            to_read: place.to_read,
            written: 0,
            read: 0,
            last_read: None,
            read_end: false,
            shut: false,
            stalled: false,
            write_at: Instant::ZERO,
            read_at: Instant::ZERO,
            end: None,
            calls: Vec::new(),
        }
    }

    /// What it sets before it connects or listens.
    pub(crate) fn socket_options(&self) -> SocketOptions {
        let Application { nodelay, keepalive, .. } = self.config;
        SocketOptions { nodelay, keepalive }
    }

    /// What it has called since the last time.
    pub(crate) fn take_calls(&mut self) -> Vec<Call> {
        core::mem::take(&mut self.calls)
    }

    pub(crate) fn socket(&self) -> Option<&Arc<TcpSocket>> {
        self.socket.as_ref()
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Bytes written and read so far, with how many there will be.
    pub(crate) fn progress(&self) -> String {
        format!("wrote {}/{}, read {}/{}", self.written, self.to_write, self.read, self.to_read)
    }

    /// It has a socket from now on.
    pub(crate) fn start(&mut self, socket: Arc<TcpSocket>) {
        self.socket = Some(socket);
    }

    /// It could not begin.
    pub(crate) fn fail(&mut self, reason: String) {
        self.socket = None;
        self.end = Some(End::Failed(reason));
    }

    /// Its host is gone, and the socket with it.
    pub(crate) fn lose(&mut self) {
        self.socket = None;
        self.end.get_or_insert(End::Lost);
    }

    /// Does what can be done now. `now` is the host's clock.
    pub(crate) fn step(&mut self, now: Instant) -> Step {
        let mut step = Step::default();
        let Some(socket) = self.socket.clone() else { return step };
        match socket.poll_connected(&self.waker) {
            Poll::Pending => return step,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => {
                self.fail(format!("connect: {error}"));
                return step;
            }
        }
        if self.stall(now, &mut step) {
            return step;
        }
        self.read_some(&socket, now, &mut step);
        if self.end.is_none() {
            self.write_some(&socket, now, &mut step);
        }
        if self.end.is_none() {
            self.close_if_done(&socket, now);
        }
        step
    }

    /// Stops once, in the middle.
    fn stall(&mut self, now: Instant, step: &mut Step) -> bool {
        let half = (self.to_write + self.to_read) / 2;
        if !self.config.stall.is_zero() && !self.stalled && self.written + self.read >= half {
            self.stalled = true;
            self.write_at = now + self.config.stall;
            self.read_at = self.write_at;
        }
        let stalls = self.stalled && now < self.write_at && now < self.read_at;
        if stalls {
            step.call_at(self.write_at);
        }
        stalls
    }

    fn read_some(&mut self, socket: &Arc<TcpSocket>, now: Instant, step: &mut Step) {
        while !self.read_end {
            if now < self.read_at {
                return step.call_at(self.read_at);
            }
            let len = self.config.read;
            match socket.read(now, &mut self.buffer[..len]) {
                Ok(0) => {
                    self.calls.push(Call::Read { size: len, got: 0 });
                    self.read_end = true;
                    if self.read < self.to_read {
                        let (read, all) = (self.read, self.to_read);
                        let what = format!("flow {}: end after {read} of {all}", self.flow);
                        step.wrong = Some(("the stream ends where it was ended", what));
                    }
                }
                Ok(count) => self.check(count, step),
                Err(SocketError::WouldBlock) => {
                    if socket.poll_readable(&self.waker).is_pending() {
                        return;
                    }
                }
                Err(error) => return self.fail_on(socket, now, format!("read: {error}")),
            }
            if !self.config.read_gap.is_zero() {
                self.read_at = now + self.config.read_gap;
            }
        }
    }

    fn check(&mut self, count: usize, step: &mut Step) {
        if let Some(at) = self.incoming.differs(self.read, &self.buffer[..count]) {
            let what = format!("flow {}: the byte at {at} is not the one written", self.flow);
            step.wrong = Some(("byte streams are equal", what));
        }
        self.calls.push(Call::Read { size: self.config.read, got: count });
        self.read += count as u64;
        if self.read > self.to_read {
            let what = format!("flow {}: {} of {} bytes", self.flow, self.read, self.to_read);
            step.wrong = Some(("byte streams are equal", what));
        }
    }

    fn write_some(&mut self, socket: &Arc<TcpSocket>, now: Instant, step: &mut Step) {
        let waits = self.config.answers && self.read < self.to_read;
        while self.written < self.to_write && !waits {
            if now < self.write_at {
                return step.call_at(self.write_at);
            }
            let len = (self.config.write as u64).min(self.to_write - self.written) as usize;
            self.outgoing.fill(self.written, &mut self.buffer[..len]);
            match socket.write(now, &self.buffer[..len]) {
                Ok(count) => {
                    self.calls.push(Call::Write(count));
                    self.written += count as u64;
                }
                Err(SocketError::WouldBlock) => {
                    if socket.poll_writable(&self.waker).is_pending() {
                        return;
                    }
                    continue;
                }
                Err(error) => return self.fail_on(socket, now, format!("write: {error}")),
            }
            if !self.config.write_gap.is_zero() {
                self.write_at = now + self.config.write_gap;
            }
        }
        if self.written == self.to_write && self.config.half_close && !self.shut {
            self.shut = true;
            // It fails if the connection has ended, which a read tells as well.
            if socket.shutdown(now, Shutdown::Write).is_ok() {
                self.calls.push(Call::Shutdown);
            }
        }
    }

    fn close_if_done(&mut self, socket: &Arc<TcpSocket>, now: Instant) {
        let read_all = self.read_end || !self.config.half_close && self.read == self.to_read;
        if self.written == self.to_write && read_all {
            socket.close(now);
            self.calls.push(Call::Close);
            self.socket = None;
            self.end = Some(End::Finished);
        }
    }

    fn fail_on(&mut self, socket: &Arc<TcpSocket>, now: Instant, reason: String) {
        socket.close(now);
        self.calls.push(Call::Close);
        self.fail(format!("{reason} ({})", self.progress()));
    }
}

impl Step {
    fn call_at(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |other| other.min(at)));
    }
}
