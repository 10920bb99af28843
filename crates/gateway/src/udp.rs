//! Datagrams: each new pair of addresses is a flow with a socket of the host, which is connected,
//! so that the host's errors come back. All flows of one port of the command leave from one port of
//! the host ([`mapping`]).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{SocketAddr, UdpSocket as HostSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use plimsoll::UdpSocket;
use plimsoll::UdpTransmit;
use plimsoll::gate::Unreachable;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use crate::mapping;
use crate::names::{Treatment, files};
use crate::reactor::{Readiness, Token, Tools};
use crate::tcp::Progress;

/// Calls that move datagrams in one direction before others have their turn.
const TURN_CALLS: usize = 16;
/// Datagrams that one call moves, at most.
const MAX_TRAIN: usize = 64;
/// Bytes of the datagrams of one call, at most.
const TRAIN_BYTES: usize = 60_000;
/// How long a flow on which both sides have sent more than once stays without a datagram.
const CONVERSATION: Duration = Duration::from_secs(300);
/// Queries of one flow that are kept until their answer comes.
const MAX_QUERIES: usize = 8;
/// How long a visitor's flow stays without a datagram.
const VISIT: Duration = Duration::from_secs(120);

/// A flow.
pub(crate) struct Flow {
    /// `None` once it is refused.
    guest: Option<UdpSocket>,
    host: Host,
    token: Token,
    ready: Readiness,
    exchange: Exchange,
    /// For queries to the gateway's name server.
    lookup: Option<Lookup>,
}

/// The host's side of a flow.
enum Host {
    /// A socket of the flow's own.
    Own(HostSocket),
    /// The socket of a published port, the visitor, and the time of the latest datagram.
    Published(Arc<HostSocket>, SocketAddr, Instant),
}

/// The datagrams of a flow so far: from the command, an answer, and then one more from the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exchange {
    Sent,
    Answered,
    Mutual,
}

/// The state of a flow of queries.
#[derive(Default)]
struct Lookup {
    /// Queries that have no answer, at most [`MAX_QUERIES`].
    waiting: VecDeque<Vec<u8>>,
    /// The name server, counted from the host's first one.
    server: usize,
    /// Servers that have failed one after the other.
    failed: usize,
}

/// The ICMP error for an error of the host's socket.
pub(crate) fn unreachable(kind: ErrorKind) -> Unreachable {
    match kind {
        ErrorKind::ConnectionRefused => Unreachable::Port,
        ErrorKind::NetworkUnreachable => Unreachable::Network,
        ErrorKind::PermissionDenied => Unreachable::Prohibited,
        _ => Unreachable::Host,
    }
}

/// Whether an error of a send is that of one datagram: a full queue, or too long a datagram.
pub(crate) fn loses(error: &io::Error) -> bool {
    let of_one = [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM, Errno::MSGSIZE, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|error| of_one.contains(&error))
}

/// Sends datagrams of `stride` bytes each; the last may be shorter. Those that a full queue does
/// not take are lost, as by any queue.
///
/// # Errors
/// That of the host's socket, if it is not that of one datagram.
fn send_all(socket: &HostSocket, data: &[u8], stride: usize) -> io::Result<()> {
    if data.len() <= stride {
        return socket.send(data).map(drop);
    }
    match send_as_one(socket, data, stride) {
        // A device without the offload, or datagrams that are longer than the path carries.
        Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
        Ok(()) => return Ok(()),
    }
    let parts: Vec<_> = data.chunks(stride.max(1)).map(|part| [IoSlice::new(part)]).collect();
    let mut controls: Vec<_> = parts.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let messages = parts.iter().zip(&mut controls);
    let mut messages: Vec<_> = messages.map(|(part, none)| MMsgHdr::new(part, none)).collect();
    let mut sent = 0;
    while sent < messages.len() {
        match sendmmsg(socket, &mut messages[sent..], SendFlags::NOSIGNAL) {
            Ok(count) => sent += count.max(1),
            Err(Errno::INTR) => {}
            // The first of them has met it.
            Err(Errno::MSGSIZE) => sent += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends datagrams as one packet that the device cuts (UDP_SEGMENT, udp(7)).
fn send_as_one(socket: &HostSocket, data: &[u8], stride: usize) -> Result<(), Errno> {
    let size = u16::try_from(stride).map_err(|_| Errno::MSGSIZE)?;
    let control = [ControlMessage::UdpGsoSegments(&size)];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_NOSIGNAL);
    match sendmsg::<()>(fd, &[IoSlice::new(data)], &control, flags, None) {
        Ok(_) => Ok(()),
        Err(error) => Err(Errno::from_raw_os_error(error as i32)),
    }
}

/// Passes datagrams of `stride` bytes each to the command; the last may be shorter. Those that a
/// full queue does not take are lost, as by any queue.
fn pass_all(guest: &UdpSocket, data: &[u8], stride: usize) {
    let how = UdpTransmit::default();
    if data.len() > stride && guest.try_send_msg(&how.segment_size(Some(stride)), &[data]).is_ok() {
        return;
    }
    // Datagrams that are longer than the MTU leave one by one, as does a single one.
    if data.is_empty() {
        let _ = guest.try_send_msg(&how, &[data]);
    }
    for part in data.chunks(stride.max(1)) {
        let _ = guest.try_send_msg(&how, &[part]);
    }
}

impl Lookup {
    /// Keeps a query until its answer comes. Returns whether it waits already: it comes again,
    /// since the server has not answered.
    fn keep(&mut self, query: &[u8]) -> bool {
        if self.waiting.iter().any(|known| known == query) {
            return true;
        }
        if self.waiting.len() >= MAX_QUERIES {
            self.waiting.pop_front();
        }
        self.waiting.push_back(query.to_vec());
        false
    }

    /// An answer has come.
    fn answered(&mut self, answer: &[u8]) {
        self.failed = 0;
        self.waiting.retain(|query| query.first_chunk::<2>() != answer.first_chunk());
    }
}

impl Flow {
    /// Begins a flow whose host's side is `host`, connected to its destination.
    ///
    /// # Errors
    /// If the host's side cannot be watched.
    pub(crate) fn begin(
        guest: UdpSocket,
        host: HostSocket,
        token: Token,
        tools: &Tools,
    ) -> io::Result<Flow> {
        guest.set_nonblocking(true)?;
        tools.watch(&host, token)?;
        let ready = Readiness { readable: true, ..Readiness::default() };
        let is_lookup = guest.local_addr().is_ok_and(|local| tools.names.serves(local));
        let lookup = is_lookup.then(Lookup::default);
        let (guest, host) = (Some(guest), Host::Own(host));
        Ok(Flow { guest, host, token, ready, exchange: Exchange::Sent, lookup })
    }

    /// Begins a flow for a visitor of a published port: `from` is the source that the command sees.
    ///
    /// # Errors
    /// If the stack has no socket for it.
    pub(crate) fn welcome(
        (from, to): (SocketAddr, SocketAddr),
        (host, visitor): (Arc<HostSocket>, SocketAddr),
        token: Token,
        tools: &Tools,
    ) -> io::Result<Flow> {
        let stack = &tools.stack;
        // Visitors whose addresses the command sees as one may have one port.
        let bound = UdpSocket::bind(stack, from)
            .or_else(|_| UdpSocket::bind(stack, SocketAddr::new(from.ip(), 0)));
        let guest = bound?;
        guest.set_nonblocking(true)?;
        guest.connect(to)?;
        let host = Host::Published(host, visitor, Instant::now());
        let (guest, ready) = (Some(guest), Readiness::default());
        Ok(Flow { guest, host, token, ready, exchange: Exchange::Sent, lookup: None })
    }

    pub(crate) fn is_of_visitor(&self) -> bool {
        matches!(&self.host, Host::Published(..))
    }

    /// Whether a visitor's flow has had no datagram for long. The stack ends all others itself.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(&self.host, Host::Published(_, _, used) if used.elapsed() >= VISIT)
    }

    /// Passes a visitor's datagram to the command.
    pub(crate) fn pass_down(&mut self, data: &[u8]) {
        if let Host::Published(_, _, used) = &mut self.host {
            *used = Instant::now();
        }
        if let Some(guest) = &self.guest {
            pass_all(guest, data, data.len());
        }
    }

    /// Passes a datagram to the command that comes from another port of the flow's destination.
    pub(crate) fn pass_from(&self, from: SocketAddr, data: &[u8]) {
        if let Some(guest) = &self.guest {
            let how = UdpTransmit::default().from(Some(from.ip())).from_port(Some(from.port()));
            // A full queue loses it.
            let _ = guest.try_send_msg(&how, &[data]);
        }
    }

    /// Goes on as far as it can.
    pub(crate) fn turn(&mut self, news: Readiness, tools: &Tools, buf: &mut [u8]) -> Progress {
        self.ready.readable |= news.readable;
        match (self.carry_up(tools, buf), self.carry_down(tools, buf)) {
            (Progress::Done, _) | (_, Progress::Done) => Progress::Done,
            (Progress::Again, _) | (_, Progress::Again) => Progress::Again,
            _ => Progress::Sleep,
        }
    }

    fn carry_up(&mut self, tools: &Tools, buf: &mut [u8]) -> Progress {
        for _ in 0..TURN_CALLS {
            let Some(guest) = &self.guest else { return Progress::Done };
            let received = match guest.try_recv_train(buf) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waker = tools.ready.waker(self.token.number());
                    let mut cx = std::task::Context::from_waker(&waker);
                    match guest.poll_recv_ready(&mut cx) {
                        std::task::Poll::Ready(Ok(())) => continue,
                        std::task::Poll::Ready(Err(_)) => return Progress::Done,
                        std::task::Poll::Pending => return Progress::Sleep,
                    }
                }
                // It has been idle for long, or its sender has gone.
                Err(_) => return Progress::Done,
            };
            if self.exchange == Exchange::Answered && self.lookup.is_none() {
                self.exchange = Exchange::Mutual;
                // It may have ended.
                let _ = guest.set_idle_timeout(CONVERSATION);
            }
            match self.send(tools, &buf[..received.len], received.stride) {
                // A full queue loses the datagram, as any queue does.
                Err(error) if !loses(&error) => return self.fail(tools, error.kind()),
                _ => {}
            }
        }
        Progress::Again
    }

    /// Sends datagrams of `stride` bytes each; the last may be shorter.
    fn send(&mut self, tools: &Tools, data: &[u8], stride: usize) -> io::Result<()> {
        if self.lookup.is_some() {
            return data.chunks(stride.max(1)).try_for_each(|query| self.look_up(tools, query));
        }
        match &mut self.host {
            Host::Own(socket) => send_all(socket, data, stride),
            Host::Published(socket, visitor, used) => {
                *used = Instant::now();
                let mut parts = data.chunks(stride.max(1));
                // An empty datagram has no part.
                let first = parts.next().unwrap_or_default();
                socket.send_to(first, *visitor)?;
                parts.try_for_each(|part| socket.send_to(part, *visitor).map(drop))
            }
        }
    }

    /// Answers a query or passes it on.
    fn look_up(&mut self, tools: &Tools, query: &[u8]) -> io::Result<()> {
        match (tools.names.treat(query), &mut self.lookup, &self.guest) {
            (Treatment::Forward, Some(lookup), _) => {
                let again = lookup.keep(query);
                if let (Some(reasons), Some(guest)) = (&tools.reasons, &self.guest)
                    && let Ok(to) = guest.local_addr()
                {
                    reasons.asked(to, self.token.number(), query);
                }
                if again && self.change_server(tools) {
                    return Ok(());
                }
                match &self.host {
                    Host::Own(socket) => socket.send(query).map(drop),
                    Host::Published(..) => Ok(()),
                }
            }
            (Treatment::Answer(answer), _, Some(guest)) => {
                pass_all(guest, &answer, answer.len());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Leads the queries without an answer to the next of the host's name servers. Returns whether
    /// there is one that has not failed.
    fn change_server(&mut self, tools: &Tools) -> bool {
        let (Some(lookup), servers) = (&mut self.lookup, files::host_name_servers()) else {
            return false;
        };
        while lookup.failed + 1 < servers.len() {
            lookup.failed += 1;
            lookup.server = (lookup.server + 1) % servers.len();
            let Ok(socket) = mapping::connect(servers[lookup.server]) else { continue };
            if tools.watch(&socket, self.token).is_err() {
                continue;
            }
            for query in &lookup.waiting {
                // An error is met by a receive.
                let _ = socket.send(query);
            }
            self.host = Host::Own(socket);
            self.ready.readable = true;
            return true;
        }
        lookup.failed = 0;
        false
    }

    /// The host's side has an error: it is the command's, unless another name server is there.
    fn fail(&mut self, tools: &Tools, kind: ErrorKind) -> Progress {
        if self.lookup.is_some() && self.change_server(tools) {
            return Progress::Again;
        }
        self.refuse(unreachable(kind))
    }

    fn carry_down(&mut self, tools: &Tools, buf: &mut [u8]) -> Progress {
        let Host::Own(host) = &self.host else { return Progress::Sleep };
        // The datagrams before `end` have `stride` bytes each.
        let (mut end, mut stride) = (0, 0);
        for _ in 0..TURN_CALLS * MAX_TRAIN {
            let Some(guest) = &self.guest else { return Progress::Done };
            if !self.ready.readable {
                return Progress::Sleep;
            }
            let received = host.recv(&mut buf[end..]);
            let len = match received {
                Ok(len) => len,
                Err(error) if error.kind() != ErrorKind::WouldBlock && loses(&error) => continue,
                Err(error) => {
                    pass_some(guest, &buf[..end], stride);
                    end = 0;
                    // An error of IPv4 that Linux reports later than the call is a final one, and
                    // of unreachable hosts only "prohibited" is.
                    match error.kind() {
                        ErrorKind::WouldBlock => {}
                        ErrorKind::HostUnreachable => {
                            return self.refuse(Unreachable::Prohibited);
                        }
                        kind => return self.fail(tools, kind),
                    }
                    self.ready.readable = false;
                    continue;
                }
            };
            if self.exchange == Exchange::Sent {
                self.exchange = Exchange::Answered;
            }
            if let Some(lookup) = &mut self.lookup {
                lookup.answered(&buf[end..end + len]);
                if let Some(reasons) = &tools.reasons {
                    reasons.answered(self.token.number(), &buf[end..end + len]);
                }
                tools.names.learn(&buf[end..end + len], Instant::now());
            }
            if end == 0 {
                stride = len;
            }
            // A train ends by a shorter datagram, and before a longer one.
            let fits = len > 0 && len <= stride;
            if !fits {
                pass_some(guest, &buf[..end], stride);
                pass_all(guest, &buf[end..end + len], len);
                end = 0;
                continue;
            }
            end += len;
            if len < stride || end + stride > TRAIN_BYTES || end / stride >= MAX_TRAIN {
                pass_some(guest, &buf[..end], stride);
                end = 0;
            }
        }
        if let Some(guest) = &self.guest {
            pass_some(guest, &buf[..end], stride);
        }
        Progress::Again
    }

    /// The destination of the command's datagrams, if it is to be judged.
    pub(crate) fn destination(&self, tools: &Tools) -> Option<SocketAddr> {
        match (&self.host, &self.guest) {
            (Host::Own(_), Some(guest)) => {
                guest.local_addr().ok().filter(|&to| !tools.names.serves(to))
            }
            _ => None,
        }
    }

    /// Ends it with an error for the command.
    pub(crate) fn refuse(&mut self, how: Unreachable) -> Progress {
        if let Some(guest) = self.guest.take() {
            // It may have ended.
            let _ = guest.refuse(how);
        }
        Progress::Done
    }
}

/// As [`pass_all`], unless there is nothing.
fn pass_some(guest: &UdpSocket, data: &[u8], stride: usize) {
    if !data.is_empty() {
        pass_all(guest, data, stride);
    }
}
