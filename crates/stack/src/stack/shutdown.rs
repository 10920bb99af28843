//! Shutdown of a stack by the application, with a report of the connections that were delivered or
//! cut off.

use plimsoll_tcp::Instant;

use crate::error::StackError;
use crate::sockets::endpoint::Stage;
use crate::stack::Stack;

/// The outcome of a shutdown for the stack's connections.
///
/// It does not include connections in TIME-WAIT, which have ended before. Nor does it include those
/// in the handshake that no application held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Connections that the application had closed and that ended in order during the shutdown:
    /// their peers have acknowledged everything.
    pub delivered: usize,
    /// Connections that it had closed and that failed meanwhile. Their peers have reset them or
    /// have not answered for too long, or the stack reset them because data was left unread or
    /// lingering was off.
    pub failed: usize,
    /// Connections that it had closed and that had not ended when the time was over. They were
    /// reset.
    pub cut_off: usize,
    /// Connections that were still open, including those that waited to be accepted. They were
    /// reset.
    pub open: usize,
    /// Bytes that were written to the connections that were reset, and that their peers had not
    /// acknowledged.
    pub unacknowledged_bytes: usize,
}

impl ShutdownReport {
    /// Whether everything was delivered on the connections that the application had closed.
    pub fn is_delivered(&self) -> bool {
        self.failed == 0 && self.cut_off == 0
    }
}

/// The state at the beginning of a shutdown, from which its [`ShutdownReport`] is counted.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownBegin {
    ended: [usize; 2],
}

impl Stack {
    /// Begins a shutdown, which waits for connections that were closed. Pass the returned value to
    /// [`shut_down`](Self::shut_down) of this stack.
    pub fn begin_shutdown(&self) -> ShutdownBegin {
        ShutdownBegin { ended: self.tables.orphans().ended() }
    }

    /// Ends the stack on the application's request: resets the remaining connections, and reports
    /// to every socket and listener that the stack was shut down. If the stack has ended before,
    /// this only reports.
    pub fn shut_down(&self, now: Instant, begin: ShutdownBegin) -> ShutdownReport {
        let mut report = ShutdownReport::default();
        // The reason is published first, so that a thread woken by a reset finds it.
        if self.pollers.end(StackError::ShutDown) {
            self.reset_all(now, &mut report);
            self.tell_of_end(now);
        }
        // Read now, to count the connections that ended before they could be reset.
        let ended = self.tables.orphans().ended();
        let since = |how: usize| ended[how].saturating_sub(begin.ended[how]);
        report.delivered = since(0);
        report.failed = since(1).saturating_sub(report.cut_off);
        report
    }

    fn reset_all(&self, now: Instant, report: &mut ShutdownReport) {
        for endpoint in self.tables.connections().all() {
            let reset = self.work_on(now, &endpoint, |inner, cx| {
                if inner.conn.ending().is_some() {
                    return None;
                }
                let left = (inner.stage, inner.conn.send_queue_len());
                inner.conn.abort(cx);
                Some(left)
            });
            // It may have ended since the table was read.
            let Some((stage, unacknowledged)) = reset else { continue };
            match stage {
                Stage::HalfOpen => continue,
                Stage::Orphan => report.cut_off += 1,
                Stage::Queued | Stage::Owned => report.open += 1,
            }
            report.unacknowledged_bytes += unacknowledged;
        }
    }
}
