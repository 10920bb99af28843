//! A panic while a connection is worked on ends that connection, and nothing else.
//!
//! # Theory of operation
//!
//! Whoever works on a connection owns it. An owner that unwinds has left the engine's connection
//! half changed, so nobody may call it again. The guard of the owner sees that it is dropped by a
//! panic, and puts a connection in its place that has ended with `ConnectionError::Panicked` and
//! whose only wish is to reset the peer ([`Connection::panicked`]). What was in its prequeue and
//! backlog goes with it. Such a connection is like any other that has ended: it is settled as ever,
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

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use plimsoll_buf::Pool;
use plimsoll_tcp::{Below, Config, Connection, Context, Counters, OpenParams};
use plimsoll_wire::SeqNum;

use crate::endpoint::{Endpoint, Inner, Owned};
use crate::events::Work;
use crate::snmp::IpCounter;
use crate::stack::Stack;
use crate::sync::socket_lock::SETTLE;

thread_local! {
    /// What the last owner on this thread that unwound has left. It is dropped when that thread
    /// owns nothing any more, because the drop of what an application has written by reference is
    /// the application's code.
    static REMAINS: Cell<Option<Remains>> = const { Cell::new(None) };
}

/// What a panic has left.
struct Remains {
    /// Where the endpoint is, by which it is known.
    of: usize,
    _parts: Box<dyn Any>,
}

/// What to know an endpoint by as long as it lives. Its number may be another stack's as well.
fn known_by(endpoint: &Endpoint) -> usize {
    std::ptr::from_ref(endpoint).addr()
}

/// Drops `value`, whose drop may panic.
pub(crate) fn drop_caught<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // This one, too, could panic when it is dropped.
        std::mem::forget(panic);
    }
}

/// For who is about to catch panics: those before have nothing to do with it.
fn clear_remains() {
    drop_caught(REMAINS.try_with(Cell::take));
}

/// For who has caught `panic` while `endpoint` was worked on: ends what is left of its connection.
/// If the panic did not come from there, it goes on.
fn take_remains(endpoint: &Endpoint, panic: Box<dyn Any + Send>) {
    let remains = REMAINS.try_with(Cell::take);
    let elsewhere = match &remains {
        Ok(Some(remains)) => remains.of != known_by(endpoint),
        Ok(None) => true,
        // The thread ends, and has nowhere to keep them.
        Err(_) => false,
    };
    drop_caught(remains);
    if elsewhere {
        resume_unwind(panic);
    }
    drop_caught(panic);
}

/// Panics of one connection after which nobody touches it any more.
const MOST_PANICS: u8 = 4;

/// Where tests have the stack panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Segment,
    Timer,
    Completion,
    Settle,
    Write,
    Read,
    Look,
    /// Whenever it is settled.
    #[cfg(test)]
    EverySettle,
    /// In the middle of the removal from the tables.
    Remove,
}

#[cfg(test)]
thread_local! {
    /// How many sites this thread comes to that answer a cookie or make a cookie's connection,
    /// until the one at which the stack is to panic. Zero is none.
    pub(crate) static COOKIE_TRAP: Cell<u32> = const { Cell::new(0) };
}

/// Work on a cookie has come to a place where tests have the stack panic.
#[cfg(test)]
pub(crate) fn at_cookie() {
    let left = COOKIE_TRAP.get();
    COOKIE_TRAP.set(left.saturating_sub(1));
    assert!(left != 1, "the test wants a panic at this cookie");
}

#[cfg(not(test))]
pub(crate) fn at_cookie() {}

impl Endpoint {
    /// Work on the connection has come to `site`.
    #[cfg(test)]
    pub(crate) fn at(&self, site: Site) {
        let sprung = crate::socket_lock::lock(&self.trap).take_if(|trap| *trap == site);
        assert!(sprung.is_none(), "the test wants a panic at {site:?}");
        let every = *crate::socket_lock::lock(&self.trap) == Some(Site::EverySettle);
        assert!(site != Site::Settle || !every, "the test wants a panic at every {site:?}");
    }

    #[cfg(not(test))]
    pub(crate) fn at(&self, _: Site) {}

    /// For the owner, while it unwinds: puts a connection that has ended in the place of the one
    /// that is half changed.
    pub(crate) fn replace_connection(&self, inner: &mut Inner) {
        let (config, counters) = (Config::default(), Counters::new());
        let cx = Context {
            now: inner.last,
            below: Below::default(),
            config: &config,
            counters: &counters,
        };
        // The options are told on, and the key for signatures signs the reset. Nothing that the
        // engine does changes them in between.
        let options = inner.conn.options().clone();
        let params = OpenParams {
            local_port: self.key.local_port,
            remote_port: self.key.remote_port,
            iss: SeqNum(0),
            ts_offset: 0,
            seed: 0,
            mtu: 1280,
            ip_header_len: if self.key.local.is_ipv4() { 20 } else { 40 },
            max_super_segment: 0,
            options,
            pool: Pool::new(),
        };
        let ended = Connection::panicked(&cx, params, inner.sent_to);
        inner.panicked = true;
        inner.panics = inner.panics.saturating_add(1);
        if inner.panics > MOST_PANICS {
            // Not even its removal works. It stays where it is, and nobody touches it any more.
            inner.gone = true;
        }
        let broken = std::mem::replace(&mut inner.conn, ended);
        let parts = Box::new((broken, inner.prequeue.take(), self.backlog.clear()));
        let remains = Remains { of: known_by(self), _parts: parts };
        let before = REMAINS.try_with(|cell| cell.replace(Some(remains)));
        drop_caught(before);
    }
}

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

    /// For who has let go of a socket for which something may have been left: it was handed to the
    /// poller. If that has gone meanwhile, it is done here.
    pub(crate) fn look_again(&mut self, endpoint: &Arc<Endpoint>) {
        // Who ends the stack does so before it leaves the news of that.
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
    /// Something was left for a thread that only looks: it is for the poller. If nobody polls any
    /// more, it is done here.
    fn hand_over(&self, endpoint: &Arc<Endpoint>, owned: Owned<'_>) {
        if self.pollers.ended().is_some() {
            let mut work = Work::begin(self, self.pollers.clock().get()).at_home(endpoint.home);
            work.release(endpoint, owned, false);
            work.finish();
        } else {
            drop(owned);
            self.look_again(endpoint);
        }
    }

    /// See [`Work::look_again`].
    pub(crate) fn look_again(&self, endpoint: &Arc<Endpoint>) {
        let mut work = Work::begin(self, self.pollers.clock().get()).at_home(endpoint.home);
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
                let mut work = Work::begin(self, self.pollers.clock().get()).at_home(endpoint.home);
                work.settle_panicked(endpoint);
                work.finish();
                let seen = look(&mut endpoint.own());
                self.look_again(endpoint);
                seen
            }
        }
    }
}
