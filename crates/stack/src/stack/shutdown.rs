//! The end of a stack that the application wants: what was delivered, and what was cut off.

use plimsoll_tcp::Instant;

use crate::error::StackError;
use crate::sockets::endpoint::Stage;
use crate::stack::Stack;

/// What became of the connections of a stack that was shut down.
///
/// Connections in TIME-WAIT are not in it: they have come to their end before. Nor are those whose
/// handshake was not over and that no application knew of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Connections that the application had closed and that came to their end in order while the
    /// shutdown waited: their peers have acknowledged everything.
    pub delivered: usize,
    /// Connections that it had closed and that ended otherwise meanwhile: their peers have reset
    /// them or have not answered for too long, or we reset them because data was left unread or
    /// lingering was off.
    pub failed: usize,
    /// Connections that it had closed and that were not at their end when the time was over. They
    /// were reset.
    pub cut_off: usize,
    /// Connections that were open still, those included that waited to be accepted. They were
    /// reset.
    pub open: usize,
    /// Bytes that were written to the connections that were reset and that their peers had not
    /// acknowledged.
    pub unacknowledged_bytes: usize,
}

impl ShutdownReport {
    /// Whether all that the application had closed has been delivered.
    pub fn is_delivered(&self) -> bool {
        self.failed == 0 && self.cut_off == 0
    }
}

/// What a [`ShutdownReport`] counts from.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownBegin {
    ended: [usize; 2],
}

impl Stack {
    /// A shutdown begins to wait for connections that were closed. What is returned is for
    /// [`shut_down`](Self::shut_down) of this stack.
    pub fn begin_shutdown(&self) -> ShutdownBegin {
        ShutdownBegin { ended: self.tables.orphans().ended() }
    }

    /// Ends the stack because the application wants it: connections that are left are reset, and
    /// every socket and listener gets the error that the stack was shut down. If the stack has
    /// ended before, this only reports.
    pub fn shut_down(&self, now: Instant, begin: ShutdownBegin) -> ShutdownReport {
        let mut report = ShutdownReport::default();
        // It is published first, so that whoever is woken by a reset finds the reason.
        if self.pollers.end(StackError::ShutDown) {
            self.reset_all(now, &mut report);
            self.tell_of_end(now);
        }
        // Now, so that it counts what came to its end before it could be reset.
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
            // It may have come to its end since the table was read.
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
