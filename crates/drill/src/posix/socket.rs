//! A socket as a process has it: the stack knows only listeners and connections, everything before
//! and beside them is here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_stack::{FastOpenKeys, Listener, Md5Keys, TcpSocket};
use plimsoll_tcp::{Duration, Instant, Options, State};

use crate::posix::errno::Errno;
use crate::posix::numbers::{AF_INET, AF_INET6};

/// What of the stack a socket stands for.
#[derive(Default)]
pub(crate) enum Link {
    /// Nothing (CLOSED).
    #[default]
    Idle,
    /// A listener.
    Listener(Arc<Listener>),
    /// A connection, being opened or open, or what is left of it.
    Stream(Arc<TcpSocket>),
}

/// How far connect(2) has come, which is not the same as the state of the connection: a program may
/// not have asked yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Unconnected,
    /// connect was called and has not told how it ended.
    Connecting,
    /// connect, or accept, has succeeded.
    Connected,
}

/// A socket.
pub(crate) struct Socket {
    /// AF_INET or AF_INET6.
    pub(crate) domain: i32,
    pub(crate) link: Link,
    pub(crate) phase: Phase,
    /// What bind gave it. IPv4 addresses as such, also for a socket of AF_INET6.
    pub(crate) bound: Option<SocketAddr>,
    /// The engine's options, for what is opened from here.
    pub(crate) tcp: Options,
    pub(crate) set: Settings,
    /// An error to be told once that the connection does not know of.
    pub(crate) error: Option<Errno>,
    /// How often a call of this process changed what poll tells.
    pub(crate) changes: u32,
}

/// Options that the engine does not know, or that only these calls act on.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) reuse_addr: bool,
    pub(crate) reuse_port: bool,
    pub(crate) v6only: bool,
    pub(crate) freebind: bool,
    pub(crate) inq: bool,
    pub(crate) fastopen_connect: bool,
    /// TCP_SAVE_SYN.
    pub(crate) save_syn: i32,
    /// TCP_FASTOPEN, before listen.
    pub(crate) fastopen_queue: usize,
    /// TCP_FASTOPEN_KEY.
    pub(crate) fastopen_keys: Option<FastOpenKeys>,
    pub(crate) md5_keys: Md5Keys,
    /// SO_LINGER in seconds, if it is on; the time is kept when it is off.
    pub(crate) linger: (bool, i32),
    pub(crate) rcvtimeo: Option<Duration>,
    pub(crate) sndtimeo: Option<Duration>,
    /// SO_TIMESTAMPING.
    pub(crate) timestamping: u32,
    /// What is only stored and read back, by level and name.
    pub(crate) kept: BTreeMap<(i32, i32), i64>,
}

impl Socket {
    pub(crate) fn new(domain: i32) -> Socket {
        Socket {
            domain,
            link: Link::Idle,
            phase: Phase::Unconnected,
            bound: None,
            tcp: Options::default(),
            set: Settings::default(),
            error: None,
            changes: 0,
        }
    }

    /// The socket that accept makes from this listener.
    pub(crate) fn accepted(&self, stream: Arc<TcpSocket>) -> Socket {
        Socket {
            bound: Some(stream.local_addr()),
            link: Link::Stream(stream),
            phase: Phase::Connected,
            tcp: self.tcp.clone(),
            set: self.set.clone(),
            ..Socket::new(self.domain)
        }
    }

    pub(crate) fn stream(&self) -> Option<&Arc<TcpSocket>> {
        match &self.link {
            Link::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub(crate) fn listener(&self) -> Option<&Arc<Listener>> {
        match &self.link {
            Link::Listener(listener) => Some(listener),
            _ => None,
        }
    }

    /// The state as Linux has it: a connection that is in TIME-WAIT is CLOSED for its socket.
    pub(crate) fn state(&self) -> State {
        match &self.link {
            Link::Stream(stream) => match stream.state() {
                State::TimeWait => State::Closed,
                state => state,
            },
            _ => State::Closed,
        }
    }

    /// Whether the handshake is on its way.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.state(), State::SynSent | State::SynReceived)
    }

    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        let own = self.error.take();
        own.or_else(|| self.stream()?.take_error().map(connection_errno))
    }

    /// Lets go of the connection and becomes as new, but stays bound to what bind gave it.
    pub(crate) fn disconnect(&mut self, now: Instant) {
        if let Link::Stream(stream) = std::mem::take(&mut self.link) {
            if !matches!(stream.state(), State::Closed | State::TimeWait) {
                self.error = Some(Errno::ECONNRESET);
            }
            stream.abort(now);
            stream.close(now);
        }
        self.phase = Phase::Unconnected;
        self.changes += 1;
    }

    /// Our address as getsockname tells it.
    pub(crate) fn name(&self) -> SocketAddr {
        let own = match &self.link {
            Link::Stream(stream) => Some(stream.local_addr()),
            Link::Listener(listener) => Some(listener.local_addr()),
            Link::Idle => self.bound,
        };
        self.shown(own.unwrap_or(SocketAddr::new(self.unspecified(), 0)))
    }

    /// An address in the family of this socket.
    pub(crate) fn shown(&self, addr: SocketAddr) -> SocketAddr {
        match addr.ip() {
            IpAddr::V4(ip) if self.domain == AF_INET6 => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port())
            }
            _ => addr,
        }
    }

    pub(crate) fn unspecified(&self) -> IpAddr {
        if self.domain == AF_INET {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        }
    }
}

/// The number of a connection's error.
pub(crate) fn connection_errno(error: plimsoll_tcp::ConnectionError) -> Errno {
    stack_errno(error.into())
}

/// The number of an error of the stack.
pub(crate) fn stack_errno(error: plimsoll_stack::SocketError) -> Errno {
    Errno(error.errno())
}
