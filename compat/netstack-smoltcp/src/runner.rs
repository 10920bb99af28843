//! [`Runner`]: the task of a stack.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use plimsoll::StackError;
use plimsoll::net::Driver;

use crate::shared::Shared;

/// Runs a stack: nothing is received or sent unless it is polled. It is ready when the last handle
/// of the stack is gone, or the [`Stack`](crate::Stack) was dropped; dropping it ends the stack.
///
/// ```
/// # use netstack_smoltcp::StackBuilder;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let (stack, runner, _udp, _tcp) = StackBuilder::default().enable_tcp(true).build()?;
/// let running = tokio::spawn(runner.expect("TCP needs it"));
/// drop(stack);
/// running.await??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the stack stands still until it is polled"]
pub struct Runner {
    driver: Driver,
    shared: Weak<Shared>,
}

impl Runner {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Runner, StackError> {
        let driver = Driver::new(shared.stack())?;
        Ok(Runner { driver, shared: Arc::downgrade(shared) })
    }
}

impl Future for Runner {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match ready!(Pin::new(&mut self.driver).poll(cx)) {
            // The only device is ours, and has gone with the `Stack`.
            Ok(()) | Err(StackError::DeviceGone { .. } | StackError::ShutDown) => Ok(()),
            Err(error) => Err(io::Error::other(error)),
        })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end();
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}
