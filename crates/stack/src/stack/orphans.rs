//! Waiting until no connection is left that nobody holds.

use std::task::{Poll, Waker};

use crate::sockets::wakers::WaitKey;
use crate::stack::Stack;

impl Stack {
    /// Connections that no application holds.
    pub fn orphan_count(&self) -> usize {
        self.tables.orphans().count()
    }

    /// Whether every connection that was closed has come to its end, or waits in TIME-WAIT for old
    /// packets to die, or the stack has ended; if not, `waker` fires when that may be so. To give
    /// up, call [`cancel_quiet`](Self::cancel_quiet).
    pub fn wait_quiet(&self, key: WaitKey, waker: &Waker) -> Poll<()> {
        self.discard(self.tables.orphans().register(key, waker.clone()));
        if self.tables.orphans().count() > 0 && self.error().is_none() {
            return Poll::Pending;
        }
        self.cancel_quiet(key);
        Poll::Ready(())
    }

    /// Ends a wait that [`wait_quiet`](Self::wait_quiet) has left pending.
    pub fn cancel_quiet(&self, key: WaitKey) {
        self.discard(self.tables.orphans().cancel(key));
    }
}
