//! Connections: dialled on the host's side first, then accepted, then carried both ways. Those to a
//! published port come from the host's side and are dialled inside.
//!
//! Data goes out from the receive queue's own memory and is taken from it once the host's socket
//! has it, so that a slow destination closes the command's window. Data comes in by reads into
//! memory that is then written by reference. Each end of stream, and each reset, is passed on.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream as HostStream};
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::{Duration, Instant};

use plimsoll::gate::{Accepting, Incoming, Reject};
use plimsoll::{Connector, MAX_SLICES, Slice, TcpStream, WriteFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
};

use crate::connections::{ConnectionSummary, Sample};
use crate::names::stream::NameStream;
use crate::reactor::{Readiness, Token, Tools};
use crate::reasons::Observer;
use crate::rules::Check;
use crate::rules::first_bytes::{FirstBytes, Holding};

/// Bytes that a turn moves in one direction, about, before others have theirs.
const TURN_BYTES: usize = 128 * 1024;
/// How long after its first SYN an attempt is dialled on without a second one.
const SYN_PATIENCE: Duration = Duration::from_secs(4);
/// Bytes that one call takes from the receive queue, at most.
const PEEK_BYTES: usize = 128 * 1024;

/// A connection.
pub(crate) struct Connection {
    state: State,
    host: HostStream,
    token: Token,
    ready: Readiness,
    /// The server has reset the connection before the command was answered.
    reset_early: bool,
    /// To be found out from the command's first bytes.
    check: Option<Check>,
    /// With `--explain`, for a connection of the command's.
    observer: Option<Box<Observer>>,
    begun: Instant,
    /// It comes from the host's side.
    is_visitor: bool,
}

enum State {
    /// The host's side is being dialled.
    Dialling(Option<Incoming>, Syns),
    /// The command's side is being answered.
    Accepting(Accepting),
    /// The command's side is being dialled, for a published port.
    Entering(TcpStream),
    /// Queries for the gateway's name server.
    Names(NameStream),
    Open(Open),
}

/// The SYNs of an attempt.
struct Syns {
    count: u32,
    first: Instant,
    latest: Instant,
}

impl Syns {
    fn new(count: u32) -> Syns {
        let now = Instant::now();
        Syns { count, first: now, latest: now }
    }

    /// Whether the command has given up: it sends no SYN where one was due. Linux sends the next
    /// one a second later, and later ones at most as long after the latest as that is after the
    /// first.
    fn have_ended(&mut self, count: u32) -> bool {
        if self.count != count {
            (self.count, self.latest) = (count, Instant::now());
        }
        self.latest.elapsed() > 2 * (self.latest - self.first) + SYN_PATIENCE
    }
}

struct Open {
    guest: TcpStream,
    /// The command's first bytes, while they are held.
    first: Option<FirstBytes>,
    /// Read from the host and not taken by the stack yet.
    pending: Option<Slice>,
    /// The command may still send.
    up: bool,
    /// The host may still send.
    down: bool,
    /// The host's side has failed.
    broken: bool,
    /// Bytes of the command that still go out before the gateway ends, once it is to stop.
    left: Option<usize>,
}

impl Open {
    fn new(guest: TcpStream, check: Option<Check>) -> Open {
        let first = check.map(FirstBytes::new);
        Open { guest, first, pending: None, up: true, down: true, broken: false, left: None }
    }

    /// The host's side has taken bytes of the command.
    fn on_sent(&mut self, count: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(count);
        }
    }
}

/// How far a turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for a wake-up.
    Sleep,
    /// It could go on.
    Again,
    /// The host's side has failed. The command is to be reset once it has what came before.
    Broken,
    /// It is over.
    Done,
}

/// Begins to dial `to`.
///
/// # Errors
/// The error that the command is to get.
fn dial(to: SocketAddr) -> io::Result<HostStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(socket.into())
}

/// Answers an attempt whose dial has failed, so that the command gets the same error. Without an
/// answer its own connect ends by its own timeout.
pub(crate) fn refuse(incoming: Incoming, error: &io::Error) {
    match error.kind() {
        ErrorKind::TimedOut => incoming.ignore(),
        _ => incoming.reject(Reject::for_dial_error(error)),
    }
}

impl Connection {
    fn new(state: State, host: HostStream, token: Token) -> Connection {
        Connection {
            state,
            host,
            token,
            ready: Readiness::default(),
            reset_early: false,
            check: None,
            observer: None,
            begun: Instant::now(),
            is_visitor: false,
        }
    }

    /// Dials for an attempt. If that fails at once, the attempt is answered.
    ///
    /// # Errors
    /// The error of the dial.
    pub(crate) fn begin(
        incoming: Incoming,
        (to, check): (SocketAddr, Option<Check>),
        token: Token,
        tools: &Tools,
    ) -> io::Result<Connection> {
        let target = incoming.destination();
        let observer = tools.reasons.as_ref().map(|it| Box::new(Observer::new(it, target)));
        let host = dial(to).and_then(|host| {
            tools.watch(&host, token)?;
            Ok(host)
        });
        match host {
            Ok(host) => {
                let syns = Syns::new(incoming.syns());
                let state = State::Dialling(Some(incoming), syns);
                let connection = Connection::new(state, host, token);
                Ok(Connection { check, observer, ..connection })
            }
            Err(error) => {
                refuse(incoming, &error);
                Err(error)
            }
        }
    }

    /// Dials a port of the command for a connection of the host's side. `from` is the source that
    /// the command sees.
    ///
    /// # Errors
    /// If the dial cannot begin.
    pub(crate) fn enter(
        host: HostStream,
        (from, to): (IpAddr, SocketAddr),
        token: Token,
        tools: &Tools,
    ) -> io::Result<Connection> {
        host.set_nonblocking(true)?;
        tools.watch(&host, token)?;
        let guest = Connector::new(&tools.stack).local(SocketAddr::new(from, 0)).start(to)?;
        let connection = Connection::new(State::Entering(guest), host, token);
        Ok(Connection { is_visitor: true, ..connection })
    }

    /// Goes on as far as it can.
    pub(crate) fn turn(&mut self, news: Readiness, tools: &mut Tools) -> Progress {
        self.ready.readable |= news.readable;
        self.ready.writable |= news.writable;
        self.ready.ended |= news.ended;
        self.ready.failed |= news.failed;
        loop {
            let next = match &mut self.state {
                State::Dialling(incoming, _) => {
                    let waker = tools.ready.waker(self.token.number());
                    if incoming.as_ref().is_none_or(|it| it.poll_cancelled(&waker).is_ready()) {
                        return Progress::Done;
                    }
                    if !self.ready.writable {
                        return Progress::Sleep;
                    }
                    let Some(attempt) = incoming.take() else { return Progress::Done };
                    match sockopt::socket_error(&self.host) {
                        Ok(Ok(())) => {}
                        // It was open: the command is to see that, and the reset.
                        Ok(Err(Errno::CONNRESET)) => self.reset_early = true,
                        Ok(Err(error)) | Err(error) => {
                            let error = error.into();
                            self.observer.iter_mut().for_each(|it| it.failed(&error));
                            refuse(attempt, &error);
                            return Progress::Done;
                        }
                    }
                    State::Accepting(attempt.accept())
                }
                State::Accepting(accepting) => {
                    let waker = tools.ready.waker(self.token.number());
                    match accepting.poll_accepted(&waker) {
                        Poll::Pending => return Progress::Sleep,
                        Poll::Ready(Err(_)) => {
                            self.reset_host();
                            return Progress::Done;
                        }
                        Poll::Ready(Ok(guest)) => self.opened(guest, tools),
                    }
                }
                State::Names(names) => {
                    return names.turn(&self.host, (self.token, &mut self.ready), tools);
                }
                State::Entering(guest) => {
                    match guest.poll_connected(&tools.ready.waker(self.token.number())) {
                        Poll::Pending => return Progress::Sleep,
                        Poll::Ready(Err(_)) => {
                            self.reset_host();
                            return Progress::Done;
                        }
                        Poll::Ready(Ok(())) => match guest.try_clone() {
                            Ok(guest) => self.opened(guest, tools),
                            Err(_) => return Progress::Done,
                        },
                    }
                }
                State::Open(_) => return self.carry(tools),
            };
            self.state = next;
        }
    }

    /// The state once both sides are connected.
    fn opened(&mut self, guest: TcpStream, tools: &Tools) -> State {
        // The flag of a socket of the stack is always set.
        let _ = guest.set_nonblocking(true);
        // Data leaves the host as the command has sent it.
        let _ = self.host.set_nodelay(true);
        match guest.local_addr() {
            Ok(local) if tools.names.serves(local) => {
                self.observer = None;
                State::Names(NameStream::new(guest))
            }
            _ => {
                let names = &tools.names;
                self.observer.iter_mut().for_each(|it| it.opened(&self.host, &guest, names));
                State::Open(Open::new(guest, self.check.take()))
            }
        }
    }

    /// Its figures now. `None` for one to the gateway's name server, and for one whose state is
    /// about to change.
    pub(crate) fn summary(&self, has_figures: bool, tools: &Tools) -> Option<ConnectionSummary> {
        let (far, near, guest) = match &self.state {
            State::Dialling(incoming, _) => {
                let incoming = incoming.as_ref()?;
                (incoming.destination(), incoming.peer(), None)
            }
            State::Open(Open { guest, .. }) | State::Entering(guest) => {
                (guest.local_addr().ok()?, guest.peer_addr().ok()?, Some(Box::new(guest.info())))
            }
            State::Accepting(_) | State::Names(_) => return None,
        };
        Some(ConnectionSummary {
            far,
            name: tools.names.name_of(far.ip(), Instant::now()),
            near,
            is_visitor: self.is_visitor,
            state: guest.as_ref().map_or(plimsoll::State::SynSent, |guest| guest.state),
            age: self.begun.elapsed(),
            host: has_figures.then(|| Sample::read(&self.host)).flatten(),
            guest,
        })
    }

    /// Whether data of the command may still be on its way to the host's side, or from there on.
    pub(crate) fn goes_out(&self, has_figures: bool) -> bool {
        match &self.state {
            State::Open(Open { up, left: Some(left), .. }) => {
                let host = has_figures.then(|| Sample::read(&self.host)).flatten();
                let is_sent = host.is_none_or(|host| (host.not_sent, host.in_flight) == (0, 0));
                *up && (*left > 0 || !is_sent)
            }
            // Data after the handshake would have come with it.
            _ => self.is_up(),
        }
    }

    /// Whether the command has not ended its half.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Open(Open { up: true, .. }))
    }

    /// The gateway is to end: data goes out that has come from the command, and no more.
    pub(crate) fn stop(&mut self) {
        if let State::Open(Open { guest, first, left, .. }) = &mut self.state {
            let held = first.as_ref().map_or(0, FirstBytes::held_bytes);
            left.get_or_insert_with(|| held + guest.readable_bytes());
        }
    }

    /// Whether it waits for something that may never come.
    pub(crate) fn waits(&self) -> bool {
        match &self.state {
            State::Dialling(..) => true,
            State::Accepting(_) => self.check.is_some(),
            State::Open(open) => open.first.is_some(),
            _ => false,
        }
    }

    /// Whether it has waited too long: the command waits no longer for the dial, or its first bytes
    /// are late. The command's side says nothing then, or is reset.
    pub(crate) fn is_abandoned(&mut self, tools: &Tools) -> bool {
        match &mut self.state {
            State::Dialling(Some(incoming), syns) => {
                let have_ended = syns.have_ended(incoming.syns());
                if have_ended && let Some(observer) = &mut self.observer {
                    observer.abandoned(syns.latest);
                }
                have_ended
            }
            State::Open(Open { first: Some(first), .. }) if first.are_late() => {
                first.refuse(tools.names.access());
                self.reset_guest();
                self.reset_host();
                true
            }
            _ => false,
        }
    }

    /// Whether the command has all that came before the host's side failed.
    pub(crate) fn is_delivered(&self) -> bool {
        let State::Open(Open { guest, pending, down, .. }) = &self.state else { return true };
        !down && guest.unacknowledged_bytes() == 0 && pending.is_none()
    }

    /// Dropping it then resets the command's side.
    pub(crate) fn reset_guest(&self) {
        if let State::Open(open) = &self.state {
            let _ = open.guest.set_linger(Some(Duration::ZERO));
        }
    }

    fn carry(&mut self, tools: &mut Tools) -> Progress {
        if let State::Open(Open { broken: true, .. }) = &self.state {
            let turn = self.carry_down(tools);
            let State::Open(open) = &mut self.state else { return Progress::Done };
            return match turn {
                Ok(true) => Progress::Again,
                Ok(false) => Progress::Broken,
                Err(Side::Host) => {
                    open.down = false;
                    Progress::Broken
                }
                Err(Side::Guest) => Progress::Done,
            };
        }
        let mut up = self.carry_up(tools);
        let mut down = self.carry_down(tools);
        if up == Err(Side::Host) {
            // Data that it has sent before is still to be read.
            self.ready.readable = true;
            down = self.carry_down(tools);
        }
        if let State::Open(open) = &self.state
            && !open.down
            && self.ready.failed
            && matches!(sockopt::socket_error(&self.host), Ok(Err(_)))
        {
            up = Err(Side::Host);
        }
        let State::Open(open) = &mut self.state else { return Progress::Done };
        match (up, down) {
            (Ok(_), Ok(_)) if !open.up && !open.down => Progress::Done,
            (Ok(false), Ok(false)) => {
                let waker = tools.ready.waker(self.token.number());
                // One who waits to read is woken. Data that came before the end is for the host.
                let reads = open.up && self.ready.writable;
                if !reads && open.guest.poll_ended(&waker) && open.guest.readable_bytes() == 0 {
                    self.reset_host();
                    return Progress::Done;
                }
                Progress::Sleep
            }
            (Ok(_), Ok(_)) => Progress::Again,
            (Err(Side::Guest), _) | (Ok(_), Err(Side::Guest)) => {
                self.reset_host();
                Progress::Done
            }
            (Ok(_), Err(Side::Host)) | (Err(Side::Host), Err(Side::Host)) => {
                (open.up, open.down, open.broken) = (false, false, true);
                Progress::Broken
            }
            // The host's side takes no more, and what it has sent is still read.
            (Err(Side::Host), down) => {
                (open.up, open.broken) = (false, true);
                if down == Ok(true) { Progress::Again } else { Progress::Broken }
            }
        }
    }

    /// Holds the command's first bytes until they may go on. Returns whether they have.
    fn pass_first(&mut self, tools: &Tools) -> Result<bool, Side> {
        let State::Open(open) = &mut self.state else { return Ok(false) };
        let Some(first) = &mut open.first else { return Ok(true) };
        match first.turn(&open.guest, &self.host, (self.token, tools)) {
            Holding::Waits => Ok(false),
            Holding::Full => {
                self.ready.writable = false;
                Ok(false)
            }
            Holding::Passed(count) => {
                open.first = None;
                open.on_sent(count);
                if count > 0
                    && let Some(observer) = &mut self.observer
                {
                    observer.sent(count, &self.host, &open.guest);
                }
                Ok(true)
            }
            Holding::Refused => {
                self.reset_guest();
                Err(Side::Guest)
            }
            Holding::GuestFailed => Err(Side::Guest),
            Holding::HostFailed => Err(Side::Host),
        }
    }

    /// From the command to the host. Returns whether it could go on.
    fn carry_up(&mut self, tools: &Tools) -> Result<bool, Side> {
        if self.ready.writable && !self.pass_first(tools)? {
            return Ok(false);
        }
        let State::Open(open) = &mut self.state else { return Ok(false) };
        let mut moved = 0;
        while open.up && self.ready.writable {
            if moved >= TURN_BYTES {
                return Ok(true);
            }
            let seen = match open.guest.peek_shared(PEEK_BYTES) {
                Ok(seen) => seen,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if open.guest.poll_readable(&tools.ready.waker(self.token.number())) {
                        continue;
                    }
                    return Ok(false);
                }
                Err(_) => return Err(Side::Guest),
            };
            if seen.is_empty() {
                open.up = false;
                self.observer.iter_mut().for_each(|it| it.ended());
                self.host.shutdown(Shutdown::Write).map_err(|_| Side::Host)?;
                break;
            }
            if open.left == Some(0) {
                return Ok(false);
            }
            let mut parts = [IoSlice::new(&[]); MAX_SLICES];
            for (place, part) in parts.iter_mut().zip(seen.parts()) {
                *place = IoSlice::new(part);
            }
            let parts = &parts[..seen.parts().len()];
            let none = &mut SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.host, parts, none, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    moved += count;
                    self.ready.writable = count == seen.len();
                    take(&open.guest, count)?;
                    open.on_sent(count);
                    if let Some(observer) = &mut self.observer {
                        observer.sent(count, &self.host, &open.guest);
                        if !self.ready.writable {
                            observer.host_is_full();
                        }
                    }
                }
                Err(Errno::AGAIN) => {
                    self.ready.writable = false;
                    self.observer.iter_mut().for_each(|it| it.host_is_full());
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(Side::Host),
            }
        }
        Ok(false)
    }

    /// From the host to the command.
    fn carry_down(&mut self, tools: &mut Tools) -> Result<bool, Side> {
        let State::Open(open) = &mut self.state else { return Ok(false) };
        let mut moved = 0;
        loop {
            while let Some(part) = open.pending.take() {
                match open.guest.write_shared(std::slice::from_ref(&part), WriteFlags::default()) {
                    Ok(count) => {
                        moved += count;
                        self.observer.iter_mut().for_each(|it| it.delivered(&open.guest));
                        let rest = part.range(count, part.len());
                        open.pending = (!rest.is_empty()).then_some(rest);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        open.pending = Some(part);
                        let waker = tools.ready.waker(self.token.number());
                        if !open.guest.poll_writable(&waker) {
                            self.observer.iter_mut().for_each(|it| it.command_is_full());
                            return Ok(false);
                        }
                    }
                    Err(_) => return Err(Side::Guest),
                }
            }
            if !open.down || !self.ready.readable {
                return Ok(false);
            }
            if moved >= TURN_BYTES {
                return Ok(true);
            }
            match tools.read(&self.host) {
                Ok((data, _)) if data.is_empty() && (self.reset_early || open.broken) => {
                    return Err(Side::Host);
                }
                Ok((data, _)) if data.is_empty() => {
                    open.down = false;
                    self.observer.iter_mut().for_each(|it| it.ended());
                    open.guest.shutdown(Shutdown::Write).map_err(|_| Side::Guest)?;
                }
                Ok((data, may_have_more)) => {
                    // The end of the stream comes with its own event.
                    self.ready.readable = may_have_more || self.ready.ended;
                    let len = data.len();
                    self.observer.iter_mut().for_each(|it| it.received(len, &self.host));
                    open.pending = Some(data);
                }
                Err(Errno::AGAIN) => self.ready.readable = false,
                Err(_) => return Err(Side::Host),
            }
        }
    }

    /// Closing it sends a reset.
    pub(crate) fn reset_host(&self) {
        let _ = sockopt::set_socket_linger(&self.host, Some(Duration::ZERO));
    }
}

/// Takes bytes that were passed on.
fn take(guest: &TcpStream, mut count: usize) -> Result<(), Side> {
    while count > 0 {
        count -= guest.read_shared(count).map_err(|_| Side::Guest)?.len();
    }
    Ok(())
}

/// The side that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Guest,
    Host,
}
