//! Echo requests to hosts beyond the gateway, by the host's ping sockets (icmp(7)).
//!
//! A request waits until its host has answered; then the stack answers it in that host's name. An
//! error of the socket is an ICMP error for the command.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket as HostSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use plimsoll::{Unhandled, UnhandledPackets};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::policy::Policy;
use crate::reactor::{Token, Tools};
use crate::routing::Routes;
use crate::rules::rule::Protocol;
use crate::udp::{loses, unreachable};
use crate::worker::Numbered;

/// Sockets for echo requests. One more replaces the one that was used least recently.
const MAX_SOCKETS: usize = 64;
/// Requests of one socket that wait for their answer, and their bytes. More replace the oldest.
const MAX_WAITING: usize = 64;
const MAX_HELD: usize = 65_536 + 4096;
/// How long a socket without any request stays.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of an ICMP header of an echo.
const HEADER: usize = 8;

/// A command's run of echo requests: one identifier and one destination.
struct Run {
    ident: u16,
    to: IpAddr,
    socket: HostSocket,
    /// The requests, with their sequence numbers.
    waiting: VecDeque<(u16, Unhandled)>,
    used: Instant,
}

impl Run {
    /// Limits the hops of the next request to those of the command's own, less this one. The stack
    /// has answered a request that may not travel on.
    fn limit(&mut self, hops: u8) {
        let hops = hops.saturating_sub(1);
        // Without the limit the request travels further.
        let _ = match self.to {
            IpAddr::V4(_) => sockopt::set_ip_ttl(&self.socket, hops.into()),
            IpAddr::V6(_) => sockopt::set_ipv6_unicast_hops(&self.socket, Some(hops)),
        };
    }
}

/// All runs.
pub(crate) struct Pings {
    packets: UnhandledPackets,
    runs: Numbered<Run>,
    /// The system's refusal of ping sockets was reported.
    warned: bool,
}

/// The identifier, the sequence number and the data's place of an echo request or reply.
fn parse(message: &[u8]) -> Option<(u16, u16)> {
    let at =
        |place: usize| Some(u16::from_be_bytes([*message.get(place)?, *message.get(place + 1)?]));
    Some((at(4)?, at(6)?))
}

/// A socket for echo requests to `to`.
fn open(to: IpAddr) -> io::Result<HostSocket> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd =
        rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(protocol))?;
    rustix::net::connect(&socket, &SocketAddr::new(to, 0))?;
    Ok(socket.into())
}

impl Pings {
    pub(crate) fn new(packets: UnhandledPackets) -> Pings {
        Pings { packets, runs: Numbered::new(), warned: false }
    }

    /// Takes requests of the command.
    pub(crate) fn on_requests(
        &mut self,
        tools: &Tools,
        (policy, routes): (&Policy, &mut Routes),
    ) -> io::Result<()> {
        let waker = tools.ready.waker(Token::Pings.number());
        let mut cx = std::task::Context::from_waker(&waker);
        while let std::task::Poll::Ready(packet) = self.packets.poll_recv(&mut cx) {
            let packet = packet?;
            let Some(to) = packet.destination() else { continue };
            if to == IpAddr::V4(policy.network.name_server()) {
                self.packets.refuse(&packet);
                continue;
            }
            let judged = policy
                .judge(to, (&tools.names, routes))
                .and_then(|()| tools.names.access().decide(Protocol::Icmp, SocketAddr::new(to, 0)));
            match judged {
                Ok(_) => self.send(packet, to, tools),
                Err(how) => self.packets.reject(&packet, how),
            }
        }
        Ok(())
    }

    fn send(&mut self, packet: Unhandled, to: IpAddr, tools: &Tools) {
        let bytes = packet.to_vec();
        let Some(message) = packet.transport_at().and_then(|at| bytes.get(at..)) else { return };
        let Some((ident, seq)) = parse(message) else { return };
        let hops = bytes.get(if to.is_ipv4() { 8 } else { 7 }).copied().unwrap_or(64);
        let known = self.runs.all.iter().find(|(_, run)| run.ident == ident && run.to == to);
        let id = match known {
            Some((&id, _)) => id,
            None => match self.begin((ident, to), tools) {
                Ok(id) => id,
                Err(error) => return self.fail(&packet, &error),
            },
        };
        let Some(run) = self.runs.all.get_mut(&id) else { return };
        run.used = Instant::now();
        run.limit(hops);
        match run.socket.send(message) {
            Err(error) if !loses(&error) => self.fail(&packet, &error),
            _ => {
                run.waiting.push_back((seq, packet));
                while run.waiting.len() > MAX_WAITING
                    || run.waiting.iter().map(|(_, it)| it.packet().len()).sum::<usize>() > MAX_HELD
                {
                    run.waiting.pop_front();
                }
            }
        }
    }

    fn begin(&mut self, (ident, to): (u16, IpAddr), tools: &Tools) -> io::Result<usize> {
        if self.runs.all.len() >= MAX_SOCKETS {
            let oldest = self.runs.all.iter().min_by_key(|(_, run)| run.used).map(|(&id, _)| id);
            oldest.and_then(|id| self.runs.all.remove(&id));
        }
        let socket = open(to)?;
        let id = self.runs.number();
        tools.watch(&socket, Token::Ping(id))?;
        let run = Run { ident, to, socket, waiting: VecDeque::new(), used: Instant::now() };
        self.runs.all.insert(id, run);
        Ok(id)
    }

    fn fail(&mut self, packet: &Unhandled, error: &io::Error) {
        if error.kind() == ErrorKind::PermissionDenied && !self.warned {
            self.warned = true;
            crate::note(
                "the system has no ping sockets for this group; 'sysctl -w \
                 net.ipv4.ping_group_range=\"0 2147483647\"' allows pings to hosts beyond the \
                 gateway for all groups",
            );
        }
        self.packets.reject(packet, unreachable(error.kind()));
    }

    /// Takes answers of the host's side.
    pub(crate) fn on_answers(&mut self, id: usize, buf: &mut [u8]) {
        let Some(run) = self.runs.all.get_mut(&id) else { return };
        loop {
            match run.socket.recv(buf) {
                Ok(len) => {
                    let Some((_, seq)) = buf.get(..len.max(HEADER)).and_then(parse) else {
                        continue;
                    };
                    let place = run.waiting.iter().position(|&(waiting, _)| waiting == seq);
                    if let Some((_, packet)) = place.and_then(|place| run.waiting.remove(place)) {
                        self.packets.refuse(&packet);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The oldest request is the likeliest to have met the error.
                Err(error) => {
                    if let Some((_, packet)) = run.waiting.pop_front() {
                        self.packets.reject(&packet, unreachable(error.kind()));
                    }
                }
            }
        }
    }

    /// Closes sockets that were not used for long. Returns whether some are left.
    pub(crate) fn sweep(&mut self) -> bool {
        self.runs.all.retain(|_, run| run.used.elapsed() < IDLE);
        !self.runs.all.is_empty()
    }
}
