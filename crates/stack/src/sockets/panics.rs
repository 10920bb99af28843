//! The handling of a panic in a call of the engine: the connection is replaced by one that has
//! ended.
//!
//! The code that catches the panic, and the consequences, are in `stack/panics.rs`.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use plimsoll_buf::Pool;
use plimsoll_tcp::{Below, Config, Connection, Context, Counters, OpenParams};
use plimsoll_wire::SeqNum;

use crate::sockets::endpoint::Site;
use crate::sockets::endpoint::{Endpoint, Inner};

thread_local! {
    /// The remains of the last owner on this thread that unwound. They are dropped when that thread
    /// owns nothing any more, because dropping bytes that an application has written by reference
    /// runs the application's code.
    static REMAINS: Cell<Option<Remains>> = const { Cell::new(None) };
    /// There may be some. It has no destructor, so checking it costs next to nothing.
    static ANY_REMAINS: Cell<bool> = const { Cell::new(false) };
}

/// The remains of a panic.
struct Remains {
    /// Where the endpoint is, by which it is known.
    of: usize,
    _parts: Box<dyn Any>,
}

/// An identifier of an endpoint for its lifetime. Its number may be another stack's as well.
fn known_by(endpoint: &Endpoint) -> usize {
    std::ptr::from_ref(endpoint).addr()
}

/// Drops `value`, whose drop may panic.
pub(crate) fn drop_caught<T>(value: T) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) else { return };
    // This panic's payload is an application's value as well, which may panic again: the next one
    // is leaked.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}

/// Call before catching panics: the remains of an earlier panic do not belong to the next.
#[inline]
pub(crate) fn clear_remains() {
    if ANY_REMAINS.take() {
        drop_caught(REMAINS.try_with(Cell::take));
    }
}

/// Called when `panic` was caught while `endpoint` was worked on: ends the remains of its
/// connection. A panic from elsewhere is resumed.
pub(crate) fn take_remains(endpoint: &Endpoint, panic: Box<dyn Any + Send>) {
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

#[cfg(test)]
thread_local! {
    /// The number of sites, in which a cookie is answered or its connection made, that this thread
    /// passes until the one at which the stack must panic. Zero is none.
    pub(crate) static COOKIE_TRAP: Cell<u32> = const { Cell::new(0) };
}

/// Work on a cookie has reached a site where tests make the stack panic.
#[cfg(test)]
pub(crate) fn at_cookie() {
    let left = COOKIE_TRAP.get();
    COOKIE_TRAP.set(left.saturating_sub(1));
    assert!(left != 1, "the test wants a panic at this cookie");
}

#[cfg(not(test))]
pub(crate) fn at_cookie() {}

impl Endpoint {
    /// Work on the connection has reached `site`.
    #[cfg(test)]
    pub(crate) fn at(&self, site: Site) {
        let sprung = crate::sync::lock(&self.trap).take_if(|trap| *trap == site);
        assert!(sprung.is_none(), "the test wants a panic at {site:?}");
        let every = *crate::sync::lock(&self.trap) == Some(Site::EverySettle);
        assert!(site != Site::Settle || !every, "the test wants a panic at every {site:?}");
    }

    #[cfg(not(test))]
    pub(crate) fn at(&self, _: Site) {}

    /// For the owner, while it unwinds: puts a connection that has ended in the place of the one
    /// that is half changed.
    pub(crate) fn replace_connection(&self, inner: &mut Inner) {
        let (config, counters) = (Config::default(), Counters::new());
        let cx = Context {
            now: inner.last(),
            below: Below::default(),
            config: &config,
            counters: &counters,
        };
        // The options remain readable, and the signature key signs the reset. No engine call
        // changes them in between.
        let options = inner.conn.options().clone();
        let params = OpenParams {
            local_port: self.key.local_port,
            remote_port: self.key.remote_port,
            iss: SeqNum(0),
            ts_offset: 0,
            seed: 0,
            mtu: 1280.into(),
            ip_header_len: if self.key.local.is_ipv4() { 20 } else { 40 },
            max_super_segment: 0,
            options: options.into(),
            pool: Pool::new(),
        };
        let ended = Connection::panicked(&cx, params, inner.sent_to());
        let broken = inner.replace(ended);
        let parts = Box::new((broken, inner.prequeue.take(), self.backlog().clear()));
        let remains = Remains { of: known_by(self), _parts: parts };
        ANY_REMAINS.set(true);
        let before = REMAINS.try_with(|cell| cell.replace(Some(remains)));
        drop_caught(before);
    }
}
