//! The end of a stack, and its notification of all waiting threads and tasks.
//!
//! A panic while a connection is worked on, or in a device's call, is handled where it happens. Any
//! other panic of a thread that polls or waits leaves no thread to run the stack. So it ends the
//! stack with an error that names the thread and the message ([`StackError::Panicked`]). From then
//! on every call that would block fails, and all waiters are woken. The error is published first;
//! then each connection is notified, here or by its owner, and its wakers are taken. A waiter that
//! registers checks for the error while it owns the connection. So either it sees the error, or its
//! waker is found.
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
    /// The reason why the stack has ended, if it has.
    pub fn error(&self) -> Option<&StackError> {
        self.pollers.ended()
    }

    /// Ends the stack: every socket and listener gets an error, all waiters are woken, and every
    /// poll returns `error` from now on. If it has ended before, nothing happens.
    pub fn end(&self, now: Instant, error: StackError) {
        self.bring_down(now, error);
    }

    /// Ends the stack because this thread, which ran it, has panicked; `thrown` is the caught
    /// payload.
    pub fn end_by_panic(&self, now: Instant, thrown: Box<dyn Any + Send>) -> StackError {
        let error = StackError::panicked(thrown.as_ref());
        // The value belongs to the code that panicked, and its drop may panic.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(thrown))) {
            std::mem::forget(again);
        }
        self.bring_down(now, error.clone());
        self.error().cloned().unwrap_or(error)
    }

    /// Runs a part of the poller's work. If it panics, the stack ends.
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

    /// Delivers an event at once. The caller holds no lock that a socket call takes.
    pub(crate) fn tell(&self, event: StackEvent) {
        let mut events = PendingEvents::default();
        events.stack(event);
        events.tell(self.tables.spans());
    }

    /// For a call that would block: after the end of the stack no thread would wake it.
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
