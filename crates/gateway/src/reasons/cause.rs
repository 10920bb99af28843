//! The causes of waits, in the words of `plimsoll explain`.

use std::time::Duration;

use plimsoll_explain::{Kind, Reason};

/// The cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A SYN was retransmitted before the connection opened.
    RepeatedSyn,
    /// No SYN had an answer.
    NoAnswer,
    /// The command's next write waited for a delayed ACK.
    Nagle,
    /// Data was retransmitted, in either direction.
    Loss,
    /// The server's window held the command's data back.
    SlowReader,
    /// The command's window held the server's data back.
    SlowCommand,
    /// The server had the request and did not answer.
    SlowServer,
    /// The same for a name server.
    SlowNames,
    /// A connection was opened where an earlier one could have been used.
    Reconnects,
}

/// The conditions for a finding.
pub(super) struct Limits {
    /// Waits of the cause.
    pub(super) least_count: u64,
    /// The time that they cost.
    pub(super) least: Duration,
    /// The share of the command's time, in percent.
    pub(super) least_percent: u32,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub(super) const ALL: [Cause; 9] = [
        Cause::RepeatedSyn,
        Cause::NoAnswer,
        Cause::Nagle,
        Cause::Loss,
        Cause::SlowReader,
        Cause::SlowCommand,
        Cause::SlowServer,
        Cause::SlowNames,
        Cause::Reconnects,
    ];

    pub(super) fn limits(self) -> Limits {
        let (least_count, millis, least_percent) = match self {
            Cause::RepeatedSyn | Cause::NoAnswer => (1, 100, 2),
            Cause::Nagle => (2, 60, 5),
            Cause::Loss => (1, 50, 5),
            // A bulk transfer between fast hosts fills every window for moments.
            Cause::SlowReader | Cause::SlowCommand => (2, 100, 10),
            Cause::SlowServer | Cause::SlowNames => (1, 200, 10),
            Cause::Reconnects => (5, 100, 10),
        };
        Limits { least_count, least: Duration::from_millis(millis), least_percent }
    }

    /// A headline.
    pub(super) fn title(self) -> &'static str {
        match self {
            Cause::RepeatedSyn => Kind::RepeatedSyn.title(),
            Cause::NoAnswer => Kind::NoAnswer.title(),
            Cause::Nagle => Kind::Stall.title(),
            Cause::Loss => Kind::Loss.title(),
            Cause::SlowReader => "The server's window was full: it reads slowly",
            Cause::SlowCommand => "The command's window was full: it reads slowly",
            Cause::SlowServer => "The server answered late",
            Cause::SlowNames => "The name server answered late",
            Cause::Reconnects => "Connections one after the other where one would do",
        }
    }

    /// The events behind it.
    pub(super) fn explanation(self) -> &'static str {
        match self {
            Cause::RepeatedSyn => Reason::SynLost.cause(),
            Cause::NoAnswer => Reason::NobodyThere.cause(),
            Cause::Nagle => Kind::Stall.cause(),
            Cause::Loss => Kind::Loss.cause(),
            Cause::SlowReader => Kind::FullWindow.cause(),
            Cause::SlowCommand => Kind::FullWindow.cause(),
            Cause::SlowServer => {
                "The server's host had the request, and the first byte of the answer came much \
                 later than a round trip takes."
            }
            Cause::SlowNames => {
                "A query went to the host's name servers, and their answer came late or never."
            }
            Cause::Reconnects => {
                "Each connection opened after the one before it had ended, and its handshake took \
                 a round trip."
            }
        }
    }

    /// The remedy.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Cause::RepeatedSyn => Reason::SynLost.remedy(),
            Cause::NoAnswer => Reason::NobodyThere.remedy(),
            Cause::Nagle => Kind::Stall.remedy(),
            Cause::Loss => Kind::Loss.remedy(),
            Cause::SlowReader | Cause::SlowCommand => Kind::FullWindow.remedy(),
            Cause::SlowServer => {
                "Look at the server's own work: its log, its database, its load. Requests that do \
                 not depend on each other can be sent without waiting."
            }
            Cause::SlowNames => {
                "Compare the servers in /etc/resolv.conf (dig @SERVER NAME), and put the fast one \
                 first; a cache on the host (systemd-resolved, unbound) answers repeated queries."
            }
            Cause::Reconnects => {
                "Keep the connection open and use it again: HTTP keep-alive, one session object, a \
                 pool of connections."
            }
        }
    }
}
