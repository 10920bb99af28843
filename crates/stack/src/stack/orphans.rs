//! Waiting until all connections without a handle have ended.

use std::task::{Poll, Waker};

use crate::sockets::wakers::WaitKey;
use crate::stack::Stack;

impl Stack {
    /// Connections that no application holds.
    pub fn orphan_count(&self) -> usize {
        self.tables.orphans().count()
    }

    /// Whether every connection that was closed has ended, or waits in TIME-WAIT for old packets to
    /// expire, or the stack has ended. If not, `waker` fires when that may be so.
    /// [`cancel_quiet`](Self::cancel_quiet) ends the wait.
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
