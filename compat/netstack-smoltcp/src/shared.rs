//! The state that all parts of a stack share, so that each is notified when another one ends.

use std::sync::Arc;
use std::time::Duration;

/// The stack below.
#[derive(Debug)]
pub(crate) struct Shared {
    stack: plimsoll::Stack,
}

impl Shared {
    pub(crate) fn new(stack: plimsoll::Stack) -> Arc<Shared> {
        Arc::new(Shared { stack })
    }

    pub(crate) fn stack(&self) -> &plimsoll::Stack {
        &self.stack
    }

    /// Ends the stack for all its users: there is no runner any more.
    pub(crate) fn end(&self) {
        // It is there unless the stack has ended; then nothing is left to be done.
        let _ = self.stack.remove_interface(0);
        self.stack.clone().shutdown(Duration::ZERO);
    }
}
