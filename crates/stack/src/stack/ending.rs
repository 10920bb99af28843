//! How a stack comes to its end, and who is told.
//!
//! A panic that happens while a connection is worked on, or in the calls of a device, is dealt with
//! where it happens. Any other panic of a thread that polls or waits leaves nobody to run the
//! stack, so it ends the stack with an error that names the thread and the message
//! ([`StackError::Panicked`]). From then on every call that would block fails, and whoever waits is
//! woken: the error is published first, then each connection is notified, here or by its owner, and
//! its wakers are taken. Whoever registers looks for the error while it owns the connection. So
//! either it sees the error, or its waker is found.
//!
//! With `panic = "abort"` a panic ends the process.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll_tcp::Instant;

use crate::error::{SocketError, StackError};
use crate::events::{PendingEvents, StackEvent};
use crate::snmp::IpCounter;
use crate::sockets::wakers;
use crate::stack::Stack;

impl Stack {
    /// Why the stack has come to its end, if it has.
    pub fn error(&self) -> Option<&StackError> {
        self.pollers.ended()
    }

    /// Ends the stack: every socket and listener gets an error, all waiters are woken, and every
    /// poll returns `error` from now on. If it has ended before, nothing happens.
    pub fn end(&self, now: Instant, error: StackError) {
        self.bring_down(now, error);
    }

    /// Ends the stack because this thread, which ran it, has panicked; `thrown` is what was caught.
    pub fn end_by_panic(&self, now: Instant, thrown: Box<dyn Any + Send>) -> StackError {
        let error = StackError::panicked(thrown.as_ref());
        // The value belongs to the code that panicked, and its drop may panic.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
            std::mem::forget(again);
        }
        self.bring_down(now, error.clone());
        self.error().cloned().unwrap_or(error)
    }

    /// Runs a part of what a poller does. If it panics, the stack ends.
    pub(crate) fn guarded<T>(
        &self,
        now: Instant,
        call: impl FnOnce() -> Result<T, StackError>,
    ) -> Result<T, StackError> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => result,
            Err(thrown) => Err(self.end_by_panic(now, thrown)),
        }
    }

    /// Tells of something at once. The caller holds no lock that a call on a socket takes.
    pub(crate) fn tell(&self, event: StackEvent) {
        let mut events = PendingEvents::default();
        events.stack(event);
        events.tell(self.tables.spans());
    }

    /// For a call that would block: nobody will wake it once the stack has ended.
    pub(crate) fn would_block(&self) -> SocketError {
        match self.error() {
            None => SocketError::WouldBlock,
            Some(_) => SocketError::NetworkDown,
        }
    }

    /// Drops a waker that was replaced or taken out. The caller holds no lock.
    pub(crate) fn discard(&self, waker: Option<std::task::Waker>) {
        if wakers::discard(waker) > 0 {
            self.count(IpCounter::WakerPanics);
        }
    }
}
