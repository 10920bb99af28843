//! A panic while a connection is worked on ends that connection, and nothing else.
//!
//! # Theory of operation
//!
//! The thread that works on a connection owns it. An owner that unwinds has left the engine's
//! connection half changed, so nobody may call it again. The guard of the owner sees that it is
//! dropped by a panic. It puts a connection in its place that has ended with
//! `ConnectionError::Panicked` and only resets the peer (`Connection::panicked`). The prequeue and
//! the backlog are dropped with it. Such a connection is settled like any other that has ended,
//! which gives its memory and its places in tables and queues back, takes its timer away, and wakes
//! who waits. So nothing else in the stack need know of panics.
//!
//! If settling panics as well, nothing is sent for that connection: what is left to do is its
//! removal, which does each of its steps once, however often it begins.
//!
//! The guard cannot settle, since its thread unwinds. [`Work::contain`] stops the panic, settles,
//! and lets the caller go on: a poller with the next packet of its batch, a call of an application
//! with the error that the connection has now. Where nobody stops the panic, the connection is
//! handed to the poller, which settles it.
//!
//! The reset has the sequence number behind all that was sent, which the stack notes itself. If the
//! peer has not received all of that, it answers the reset with an ACK (RFC 5961, section 3.2),
//! which meets no connection and is answered with a reset that it believes.
//!
//! The message of the panic goes where the program's panic hook sends it. A panic outside of any
//! connection is not stopped here. With `panic = "abort"` none is: the process ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, Inner, MOST_PANICS, Owned, Site};
use crate::sockets::panics::{clear_remains, drop_caught, take_remains};
use crate::stack::Stack;
use crate::stack::work::Work;
use crate::sync::socket_lock::SETTLE;

impl Work<'_> {
    /// Does some work on the connection of `endpoint`, which the caller does not own outside of it.
    /// If it panics, that connection is aborted, and the answer is `None`.
    pub(crate) fn contain<T>(
        &mut self,
        endpoint: &Arc<Endpoint>,
        work: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        clear_remains();
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(done) => Some(done),
            Err(panic) => {
                take_remains(endpoint, panic);
                self.settle_panicked(endpoint);
                None
            }
        }
    }

    /// For who has released a socket for which something may have been left: it was handed to the
    /// poller. If that has gone meanwhile, it is done here.
    pub(crate) fn look_again(&mut self, endpoint: &Arc<Endpoint>) {
        // The thread that ends the stack marks it as ended before it leaves a report with each
        // socket.
        fence(Ordering::SeqCst);
        if self.stack.pollers.ended().is_some() {
            self.leave(endpoint, SETTLE);
        }
    }

    /// Settles a connection that has panicked. If that panics as well, all that is left to do is
    /// its removal, which goes on where it was.
    fn settle_panicked(&mut self, endpoint: &Arc<Endpoint>) {
        for _ in 0..=MOST_PANICS {
            let settled = catch_unwind(AssertUnwindSafe(|| {
                if let Some(owned) = endpoint.leave(SETTLE) {
                    self.release(endpoint, owned, false);
                }
            }));
            match settled {
                Ok(()) => return,
                Err(panic) => take_remains(endpoint, panic),
            }
        }
    }
}

impl Work<'_> {
    /// Does something that makes a connection. If it panics, none is made.
    pub(crate) fn contain_making<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        clear_remains();
        match catch_unwind(AssertUnwindSafe(|| make(self))) {
            Ok(made) => Some(made),
            Err(panic) => {
                drop_caught(panic);
                self.count(IpCounter::ConnectionPanics);
                None
            }
        }
    }
}

impl Stack {
    /// Something was left for a thread that only looks: it is for the poller. If no thread polls
    /// any more, or the poller could not find the connection, it is done here.
    fn hand_over(&self, endpoint: &Arc<Endpoint>, owned: Owned<'_>) {
        if owned.is_gone() || self.pollers.ended().is_some() {
            let mut work = Work::begin_at(self, self.pollers.latest_time(), endpoint.home());
            work.release(endpoint, owned, false);
            work.finish();
        } else {
            drop(owned);
            self.look_again(endpoint);
        }
    }

    /// See [`Work::look_again`].
    pub(crate) fn look_again(&self, endpoint: &Arc<Endpoint>) {
        let mut work = Work::begin_at(self, self.pollers.latest_time(), endpoint.home());
        work.look_again(endpoint);
        work.finish();
    }

    /// Owns a connection to look at it. If that panics, the connection is aborted, and `look` sees
    /// what it is then.
    pub(crate) fn inspect<T>(
        &self,
        endpoint: &Arc<Endpoint>,
        mut look: impl FnMut(&mut Inner) -> T,
    ) -> T {
        clear_remains();
        let seen = catch_unwind(AssertUnwindSafe(|| {
            let mut owned = endpoint.own();
            endpoint.at(Site::Look);
            let seen = look(&mut owned);
            if let Some(owned) = owned.release() {
                self.hand_over(endpoint, owned);
            }
            seen
        }));
        match seen {
            Ok(seen) => seen,
            Err(panic) => {
                take_remains(endpoint, panic);
                let mut work = Work::begin_at(self, self.pollers.latest_time(), endpoint.home());
                work.settle_panicked(endpoint);
                work.finish();
                let seen = look(&mut endpoint.own());
                self.look_again(endpoint);
                seen
            }
        }
    }
}
