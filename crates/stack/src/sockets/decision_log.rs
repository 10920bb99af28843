//! What the stack adds to the log of a connection: whom it woke.
//!
//! All else is decided by the engine, which keeps the log. A wake-up is the stack's: it knows who
//! waits. The log is read by [`TcpSocket::decisions`](crate::TcpSocket::decisions), and for all
//! connections by [`Stack::sockets`](crate::Stack::sockets).

use crate::sockets::endpoint::Inner;

/// Those that waited to read, or to write, are woken.
pub(crate) fn log_wake(inner: &mut Inner, (readers, writers): (bool, bool)) {
    let at = inner.last();
    inner.conn.handle_wake(at, readers, writers);
}
