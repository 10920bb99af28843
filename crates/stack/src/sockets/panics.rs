//! What a panic in a call of the engine leaves: the connection that it was in is replaced by one
//! that has ended.
//!
//! Who catches the panic, and what follows, is in `stack/panics.rs`.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use plimsoll_buf::Pool;
use plimsoll_tcp::{Below, Config, Connection, Context, Counters, OpenParams};
use plimsoll_wire::SeqNum;

use crate::sockets::endpoint::Site;
use crate::sockets::endpoint::{Endpoint, Inner};

thread_local! {
    /// What the last owner on this thread that unwound has left. It is dropped when that thread
    /// owns nothing any more, because the drop of what an application has written by reference is
    /// the application's code.
    static REMAINS: Cell<Option<Box<dyn Any>>> = const { Cell::new(None) };
}

/// Drops `value`, whose drop may panic.
pub(crate) fn drop_caught<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // This one, too, could panic when it is dropped.
        std::mem::forget(panic);
    }
}

/// For who has caught `panic`: ends what is left of the connection that it came from. If it came
/// from none, it goes on.
pub(crate) fn take_remains(panic: Box<dyn Any + Send>) {
    match REMAINS.try_with(Cell::take) {
        Ok(None) => resume_unwind(panic),
        remains => {
            drop_caught(remains);
            drop_caught(panic);
        }
    }
}

impl Endpoint {
    /// Work on the connection has come to `site`.
    #[cfg(test)]
    pub(crate) fn at(&self, site: Site) {
        let sprung = crate::sync::lock(&self.trap).take_if(|trap| *trap == site);
        assert!(sprung.is_none(), "the test wants a panic at {site:?}");
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
        let ended = Connection::panicked(&cx, params, inner.sent_to());
        let broken = inner.replace(ended);
        let remains = Box::new((broken, inner.prequeue.take(), self.backlog().clear()));
        let before = REMAINS.try_with(|cell| cell.replace(Some(remains)));
        drop_caught(before);
    }
}
