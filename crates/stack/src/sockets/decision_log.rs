//! The stack's entries in a connection's log: the readers that it woke.
//!
//! The engine makes all other decisions, and keeps the log. A wake-up is the stack's decision,
//! since the wakers are in the stack. [`TcpSocket::decisions`](crate::TcpSocket::decisions) reads
//! the log, and [`Stack::sockets`](crate::Stack::sockets) the logs of all connections.

use plimsoll_tcp::{Context, Input};

use crate::sockets::endpoint::Inner;

/// Those that waited to read, or to write, are woken.
pub(crate) fn log_wake(inner: &mut Inner, cx: &Context, (readers, writers): (bool, bool)) {
    inner.conn.handle(cx, Input::Woken { readers, writers });
}
