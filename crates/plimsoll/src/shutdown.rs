//! The end of a stack: waiting for what was closed, and [`Stack::shutdown`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use plimsoll_stack::{ShutdownBegin, ShutdownReport, StackError, WaitKey};
use plimsoll_tcp::Instant;

use crate::park;
use crate::stack::Stack;

/// How long a drain of a stack that a loop runs leaves it to that.
const BESIDE_A_LOOP: Duration = Duration::from_millis(5);

impl Stack {
    /// Waits until every closed connection has delivered its data and has ended, but no longer than
    /// `grace`. Connections in TIME-WAIT count as closed; open streams are not waited for. Returns
    /// whether all have ended.
    ///
    /// It blocks. Without a thread it polls the stack itself, also while other loops run it. A
    /// waker must not call it.
    pub fn drain(&self, grace: Duration) -> bool {
        if self.has_threads() {
            self.park_until_quiet(grace);
        } else {
            self.poll_until_quiet(self.now() + grace);
        }
        self.core().orphan_count() == 0
    }

    /// Sleeps until all is quiet, or for `patience`.
    fn park_until_quiet(&self, patience: Duration) {
        let core = self.core();
        park::wait(
            StdInstant::now().checked_add(patience),
            |key, waker| core.wait_quiet(key, waker),
            |key| core.cancel_quiet(key),
        );
    }

    /// Polls until all is quiet, or until `limit`.
    fn poll_until_quiet(&self, limit: Instant) {
        let core = self.core();
        let quiet = || core.orphan_count() == 0;
        while !quiet() && self.now() < limit {
            let polled = self.poll();
            if polled.ended.is_some() {
                return;
            }
            if polled.worked {
                continue;
            }
            let until = polled.next.map_or(limit, |next| next.min(limit));
            if let Err(StackError::AlreadyWaited { .. }) = self.wait(Some(until), quiet) {
                // A loop of this very thread may hold the polling role; no thread polls meanwhile.
                let now = self.now();
                self.park_until_quiet(until.min(now + BESIDE_A_LOOP).since(now));
            }
        }
    }

    /// [Drains](Self::drain) the stack, and then ends it, even if other handles or sockets are
    /// left: their calls fail with the error that the stack was shut down, and remaining
    /// connections are reset. Waits for the stack's threads. If this was the last handle, its
    /// devices are closed and its captures written when this returns. Returns the outcome of the
    /// connections.
    ///
    /// It blocks for at most `grace`, and until the threads have finished their current work. A
    /// waker must not call it. A task of tokio calls `net::shutdown`; one of another runtime awaits
    /// [`drained`](Self::drained), with the runtime's timeout around it, and then calls this with a
    /// `grace` of zero.
    ///
    /// ```
    /// # use std::io::Write;
    /// # use std::time::Duration;
    /// # let (here, there) = plimsoll::device::memory_link::pair(Default::default());
    /// # let client = plimsoll::Stack::builder().device(here).address("192.0.2.1/24").build()?;
    /// # let server = plimsoll::Stack::builder().device(there).address("192.0.2.2/24").build()?;
    /// let listener = plimsoll::TcpListener::bind(&server, "192.0.2.2:7")?;
    /// let mut stream = plimsoll::TcpStream::connect(&client, "192.0.2.2:7")?;
    /// let (accepted, _) = listener.accept()?;
    /// stream.write_all(b"last words")?;
    /// let report = client.shutdown(Duration::from_millis(10));
    /// assert!(report.is_delivered(), "nothing was closed");
    /// assert_eq!(report.open, 1, "the stream is here still; it was reset");
    /// # drop(accepted);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(self, grace: Duration) -> ShutdownReport {
        let begin = self.core().begin_shutdown();
        self.drain(grace);
        self.finish_shutdown(begin)
    }

    /// Ends the stack in any state. Waits until its threads have finished their current work.
    pub(crate) fn finish_shutdown(self, begin: ShutdownBegin) -> ShutdownReport {
        self.stop_threads();
        self.core().shut_down(self.now(), begin)
    }

    /// Waits until every connection that was closed has come to its end, as [`drain`](Self::drain)
    /// without a limit; a future for any runtime. It only waits: threads, a driver or a loop must
    /// run the stack. Dropping it leaves nothing behind.
    ///
    /// ```
    /// # let stack = plimsoll::Stack::builder().loopback_only().build()?;
    /// let drained = stack.drained();
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// drained.await;
    /// # });
    /// assert!(stack.shutdown(std::time::Duration::ZERO).is_delivered());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drained(&self) -> Drained {
        Drained { stack: self.clone(), key: WaitKey::new(), waits: false }
    }
}

/// Waits until nothing is left of the connections that were closed. See [`Stack::drained`].
#[derive(Debug)]
#[must_use = "it waits for nothing until it is polled"]
pub struct Drained {
    stack: Stack,
    key: WaitKey,
    /// Its waker was handed over, and may be there still.
    waits: bool,
}

impl Future for Drained {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.waits = true;
        let polled = self.stack.core().wait_quiet(self.key, cx.waker());
        self.waits = polled.is_pending();
        polled
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        if self.waits {
            self.stack.core().cancel_quiet(self.key);
        }
    }
}
