//! A panic while a connection is worked on ends only that connection.
//!
//! # Theory of operation
//!
//! The thread that works on a connection owns it. An owner that unwinds leaves the engine's
//! connection half changed, so it must not be called again. The owner's guard detects that a panic
//! drops it. It replaces the connection by one that has ended with `ConnectionError::Panicked` and
//! only resets the peer (`Connection::panicked`). The prequeue and the backlog are dropped with the
//! old one. The new connection is settled like any other that has ended. That frees its memory and
//! its places in tables and queues, removes its timer, and wakes its waiters. So no other part of
//! the stack has to handle panics.
//!
//! If settling panics as well, nothing is sent for that connection: only its removal remains, which
//! does each of its steps once, however often it begins.
//!
//! The guard cannot settle, since its thread unwinds. [`Work::contain`] catches the panic, settles,
//! and lets the caller continue: a poller with the next packet of its batch, an application's call
//! with the connection's new error. If no caller catches the panic, the connection is handed to the
//! poller, which settles it.
//!
//! The reset has the sequence number after all sent data, which the stack records itself. If the
//! peer has not received all of that, it answers the reset with an ACK (RFC 5961, section 3.2).
//! That ACK matches no connection and is answered with a reset that the peer accepts.
//!
//! The program's panic hook gets the message of the panic. A panic outside of any connection is not
//! caught here. With `panic = "abort"` none is: the process ends.

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

    /// Called after a socket was released to the poller because work may have been left for it. If
    /// the poller has gone meanwhile, the work is done here.
    pub(crate) fn look_again(&mut self, endpoint: &Arc<Endpoint>) {
        // The thread that ends the stack marks it as ended before it leaves a report with each
        // socket.
        fence(Ordering::SeqCst);
        if self.stack.pollers.ended().is_some() {
            self.leave(endpoint, SETTLE);
        }
    }

    /// Settles a connection that has panicked. If that panics as well, only its removal remains,
    /// which continues where it was.
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
    /// Work was left for a read-only owner: it is passed to the poller. If no thread polls any
    /// more, or the poller could not find the connection, it is done here.
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

    /// Owns a connection to read it. If that panics, the connection is aborted, and `look` runs
    /// again on the new state.
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
