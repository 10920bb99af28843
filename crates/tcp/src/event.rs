//! The events and errors of a connection.

/// A set of events that have happened since
/// [`Connection::poll_event`](crate::Connection::poll_event) was last called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u8);

impl Events {
    /// Nothing happened.
    pub const NONE: Events = Events(0);
    /// The connection is established; a connect or accept may complete.
    pub const CONNECTED: Events = Events(1);
    /// A blocked reader may continue: data at or above SO_RCVLOWAT, end of stream, urgent data or
    /// error.
    pub const READABLE: Events = Events(2);
    /// A blocked writer may continue: enough space is free, or error.
    pub const WRITABLE: Events = Events(4);
    /// The connection has ended with an error; see [`Connection::error`](crate::Connection::error).
    pub const ERROR: Events = Events(8);
    /// The connection has entered TIME-WAIT; the owner may replace it by
    /// [`Connection::time_wait`](crate::Connection::time_wait).
    pub const TIME_WAIT: Events = Events(16);
    /// The connection is CLOSED; it sends nothing more once `poll_transmit` has returned `None`.
    pub const CLOSED: Events = Events(32);
    /// All data written (and the FIN, if any) has been acknowledged.
    pub const DRAINED: Events = Events(64);
    /// The error queue has a new report (POLLERR); see
    /// [`Connection::take_report`](crate::Connection::take_report).
    pub const REPORT: Events = Events(128);

    /// Whether all of `other` have happened.
    pub const fn contains(self, other: Events) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are no events.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds events.
    pub const fn insert(&mut self, other: Events) {
        self.0 |= other.0;
    }

    /// Takes all events out.
    #[must_use]
    pub const fn take(&mut self) -> Events {
        let taken = *self;
        self.0 = 0;
        taken
    }
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// In order: the peer has acknowledged everything, our FIN included.
    InOrder,
    /// Discarded when the application closed it: with a reset because the application had not read
    /// everything (RFC 1122, section 4.2.2.13) or did not linger in FIN-WAIT-2, or without a packet
    /// in SYN-SENT (RFC 9293, section 3.10.4). Not an error for the application, but the peer may
    /// not have received everything.
    Discarded,
    /// With an error.
    Failed(ConnectionError),
}

/// The reason why a connection ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionError {
    /// The peer refused the connection (RST in SYN-SENT). `ECONNREFUSED`.
    Refused,
    /// The peer reset the connection. `ECONNRESET`.
    Reset,
    /// The peer reset the connection after it had ended its stream: data that we had not delivered
    /// is lost. `EPIPE`.
    BrokenPipe,
    /// Too many retransmissions, probes, or the user timeout. `ETIMEDOUT`.
    TimedOut,
    /// The application aborted it. `ECONNABORTED`.
    Aborted,
    /// ICMP: host unreachable. `EHOSTUNREACH`.
    HostUnreachable,
    /// ICMP: network unreachable. `ENETUNREACH`.
    NetworkUnreachable,
    /// ICMP: protocol unreachable. `ENOPROTOOPT`.
    ProtocolUnreachable,
    /// ICMP: source route failed. `EOPNOTSUPP`.
    SourceRouteFailed,
    /// ICMP: host unknown. `EHOSTDOWN`.
    HostDown,
    /// ICMP: the host is isolated. `ENONET`.
    HostIsolated,
    /// ICMP: prohibited (IPv6). `EACCES`.
    Prohibited,
    /// ICMP: our header has an error. `EPROTO`.
    ParameterProblem,
    /// The device below has gone. `ENETDOWN`.
    DeviceGone,
    /// The stack panicked while it worked on the connection, which is a defect of the stack.
    /// `ECONNABORTED`.
    Panicked,
}

/// The reason why a write took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// No space now (or not connected yet); wait for [`Events::WRITABLE`]. `EAGAIN`.
    WouldBlock,
    /// Our side was shut down, or the connection has ended in order. `EPIPE`.
    Closed,
    /// The connection has ended with an error.
    Failed(ConnectionError),
}

/// The reason why a read returned nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// No data now; wait for [`Events::READABLE`]. `EAGAIN`.
    WouldBlock,
    /// The connection has ended with an error.
    Failed(ConnectionError),
}
