//! The errors of a stack and of a socket.

use std::io;

use plimsoll_tcp::ConnectionError;

use crate::platform::errno;
use crate::policies::sysctl::SysctlError;

/// The reason why a stack could not be built, or cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// A field of the configuration is wrong.
    #[error("{field}: {reason}")]
    Config {
        /// The field, as it is named in the configuration.
        field: String,
        /// The fault of the value.
        reason: String,
    },
    /// A setting was refused.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A device has gone. Every socket was notified.
    #[error("device {name} has gone: {reason}")]
    DeviceGone {
        /// The device's name.
        name: String,
        /// The device's error.
        reason: String,
    },
    /// The interface was removed. Its sockets were notified.
    #[error("the interface of device {name} was removed")]
    Removed {
        /// The device's name.
        name: String,
    },
    /// A thread that ran the stack has panicked. Every socket was notified.
    #[error("thread '{thread}' panicked while it ran the stack: {message}")]
    Panicked {
        /// The thread's name.
        thread: String,
        /// The panic message.
        message: String,
    },
    /// The application has ended the stack while it still had sockets.
    #[error("the stack was shut down")]
    ShutDown,
    /// Another thread already waits for a queue: one thread at a time can be woken for it.
    #[error(
        "another thread already waits for queue {queue}: \
         a stack with threads of its own, or with a loop for that queue, needs no other"
    )]
    AlreadyWaited {
        /// The queue.
        queue: usize,
    },
    /// There is no queue with that number.
    #[error("there is no queue {queue}: the stack has {count}, counted from 0")]
    NoSuchQueue {
        /// The requested number.
        queue: usize,
        /// How many there are.
        count: usize,
    },
    /// A system call of the stack failed.
    #[error("{call}: {reason}")]
    System {
        /// The call.
        call: &'static str,
        /// The system's error.
        reason: String,
    },
}

impl StackError {
    /// This thread has panicked, and `thrown` was caught.
    pub(crate) fn panicked(thrown: &(dyn std::any::Any + Send)) -> StackError {
        let text = thrown.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| thrown.downcast_ref::<String>().cloned());
        let thread = std::thread::current().name().unwrap_or("without a name").to_owned();
        StackError::Panicked { thread, message: text.unwrap_or_else(|| "no message".into()) }
    }
}

/// The error of a call on a socket or a listener. It converts into an [`io::Error`] of the kind
/// that the standard library's sockets return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The call would block; wait and try again. `EAGAIN`.
    #[error("the operation would block")]
    WouldBlock,
    /// The connection is being opened, and its SYN took no data. `EINPROGRESS`.
    #[error("the connection is being opened")]
    InProgress,
    /// A setting forbids it. `EOPNOTSUPP`.
    #[error("the operation is not supported")]
    NotSupported,
    /// The connection is not established yet, or never was. `ENOTCONN`.
    #[error("the socket is not connected")]
    NotConnected,
    /// The local write side was shut down. `EPIPE`.
    #[error("the connection was shut down for writing")]
    Closed,
    /// The connection ended with an error.
    #[error("{}", describe(*.0))]
    Connection(ConnectionError),
    /// Another socket has the address. `EADDRINUSE`.
    #[error("the address is already in use")]
    AddrInUse,
    /// The address is not local, or every port is in use. `EADDRNOTAVAIL`.
    #[error("the address is not available")]
    AddrNotAvailable,
    /// The number of open connections has reached `plimsoll.max_connections`. `ENOBUFS`.
    #[error("the stack has as many connections as plimsoll.max_connections allows")]
    TooManyConnections,
    /// The stack has no room for another UDP socket or membership. `ENOBUFS`.
    #[error("the stack has no place left for it")]
    NoBufferSpace,
    /// The datagram is longer than its path, or any path, allows, and must not be fragmented.
    /// `EMSGSIZE`.
    #[error("the message is too long")]
    MessageTooLong,
    /// The socket is not connected, and no destination was given. `EDESTADDRREQ`.
    #[error("a destination address is required")]
    DestinationRequired,
    /// The destination is a broadcast address, and the socket may not send to one (SO_BROADCAST).
    /// `EACCES`.
    #[error("broadcast is not allowed on this socket: set SO_BROADCAST")]
    BroadcastNotAllowed,
    /// The number of the listener's open connections has reached its [`Budget`](crate::Budget).
    /// `ENOBUFS`.
    #[error("the listener has as many connections as its budget.connections allows")]
    ListenerOverBudget,
    /// There is no route to the address. `ENETUNREACH`.
    #[error("the network is unreachable")]
    NetworkUnreachable,
    /// An argument is invalid. `EINVAL`.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The interface's device has gone, or the stack has ended;
    /// [`Stack::error`](crate::Stack::error) returns the reason. `ENETDOWN`.
    #[error("the network is down")]
    NetworkDown,
}

/// A sentence for `error`.
fn describe(error: ConnectionError) -> &'static str {
    match error {
        ConnectionError::Refused => "the peer refused the connection",
        ConnectionError::Reset => "the peer reset the connection",
        ConnectionError::BrokenPipe => "the peer closed and then reset the connection",
        ConnectionError::TimedOut => "the connection timed out",
        ConnectionError::Aborted => "the connection was aborted",
        ConnectionError::HostUnreachable => "the host is unreachable",
        ConnectionError::NetworkUnreachable => "the network is unreachable",
        ConnectionError::ProtocolUnreachable => "the protocol is not available at the peer",
        ConnectionError::SourceRouteFailed => "the source route failed",
        ConnectionError::HostDown => "the host is down or unknown",
        ConnectionError::HostIsolated => "the host is isolated",
        ConnectionError::Prohibited => "the way there is prohibited",
        ConnectionError::ParameterProblem => "a host on the path did not understand our header",
        ConnectionError::DeviceGone => "the network is down",
        ConnectionError::Panicked => {
            "the stack panicked while it worked on this connection and aborted it; this is a \
             defect of the stack: please report it together with the message of the panic"
        }
    }
}

impl SocketError {
    /// The error number that Linux uses, or the system's equivalent: on Windows the nearest of
    /// Winsock's.
    pub fn errno(self) -> i32 {
        match self {
            SocketError::WouldBlock => errno::EAGAIN,
            SocketError::InProgress => errno::EINPROGRESS,
            SocketError::NotSupported => errno::EOPNOTSUPP,
            SocketError::NotConnected => errno::ENOTCONN,
            SocketError::Closed => errno::EPIPE,
            SocketError::Connection(error) => connection_errno(error),
            SocketError::AddrInUse => errno::EADDRINUSE,
            SocketError::AddrNotAvailable => errno::EADDRNOTAVAIL,
            SocketError::TooManyConnections
            | SocketError::ListenerOverBudget
            | SocketError::NoBufferSpace => errno::ENOBUFS,
            SocketError::MessageTooLong => errno::EMSGSIZE,
            SocketError::DestinationRequired => errno::EDESTADDRREQ,
            SocketError::BroadcastNotAllowed => errno::EACCES,
            SocketError::NetworkUnreachable => errno::ENETUNREACH,
            SocketError::Invalid(_) => errno::EINVAL,
            SocketError::NetworkDown => errno::ENETDOWN,
        }
    }
}

fn connection_errno(error: ConnectionError) -> i32 {
    match error {
        ConnectionError::Refused => errno::ECONNREFUSED,
        ConnectionError::Reset => errno::ECONNRESET,
        ConnectionError::BrokenPipe => errno::EPIPE,
        ConnectionError::TimedOut => errno::ETIMEDOUT,
        ConnectionError::Aborted => errno::ECONNABORTED,
        ConnectionError::HostUnreachable => errno::EHOSTUNREACH,
        ConnectionError::NetworkUnreachable => errno::ENETUNREACH,
        ConnectionError::ProtocolUnreachable => errno::ENOPROTOOPT,
        ConnectionError::SourceRouteFailed => errno::EOPNOTSUPP,
        ConnectionError::HostDown => errno::EHOSTDOWN,
        ConnectionError::HostIsolated => errno::ENONET,
        ConnectionError::Prohibited => errno::EACCES,
        ConnectionError::ParameterProblem => errno::EPROTO,
        ConnectionError::DeviceGone => errno::ENETDOWN,
        ConnectionError::Panicked => errno::ECONNABORTED,
    }
}

impl From<ConnectionError> for SocketError {
    fn from(error: ConnectionError) -> SocketError {
        SocketError::Connection(error)
    }
}

impl From<SocketError> for io::Error {
    fn from(error: SocketError) -> io::Error {
        io::Error::from_raw_os_error(error.errno())
    }
}
