//! What the stack adds to the log of a connection: whom it woke.
//!
//! All else is decided by the engine, which keeps the log. A wake-up is the stack's: it knows who
//! waits. The log is read by [`TcpSocket::decisions`](crate::TcpSocket::decisions), and for all
//! connections by [`Stack::sockets`](crate::Stack::sockets).

use plimsoll_tcp::{Context, Input};

use crate::sockets::endpoint::Inner;

/// Those that waited to read, or to write, are woken.
pub(crate) fn log_wake(inner: &mut Inner, cx: &Context, (readers, writers): (bool, bool)) {
    inner.conn.handle(cx, Input::Woken { readers, writers });
}
