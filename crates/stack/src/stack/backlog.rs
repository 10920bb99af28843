//! The backlog of a socket: segments that arrived while it was owned. They and other work left for
//! the owner are processed when it is released.
//!
//! # Theory of operation
//!
//! A poller that finds a socket owned puts the segment here and continues (see
//! [`crate::sync::socket_lock`]). The backlog is limited like Linux's, to twice the receive buffer,
//! half the send buffer and 64 KiB, or by the older [`Rule`]. A segment beyond that is dropped and
//! counted (`TcpExtTCPBacklogDrop`), and TCP treats it as loss. A segment that continues the last
//! one is merged with it (`TcpExtTCPBacklogCoalesce`).
//!
//! [`Work::release`] is how an owner releases a socket. It takes the whole backlog at once and
//! processes it as a batch. It does the flagged work, sends the packets that are due, releases the
//! socket, and checks again. The ACKs that the segments of one batch require become one, which
//! leaves at the end of the batch (`net.ipv4.tcp_backlog_ack_defer`). ACKs that the peer must get
//! at once are the exception. All return paths send, so a deferred ACK is never forgotten.
//!
//! A thread does not work for others without end: after some rounds, the poller takes over.
//!
//! Segments that follow the end of the connection are not for it: a SYN may open the next one. The
//! thread that found such segments [routes them again](Work::route_strays) after it has released
//! the socket, since it owns no socket then.

use std::sync::Arc;

use plimsoll_tcp::{Arrival, Batch, Counter, Input, Instant, OutputDue, Reader, Segment};
use plimsoll_wire::tcp::TcpFlags;

use crate::limits::RELEASE_ROUNDS;
use crate::sockets::backlog::{Pushed, Rule, counted};
use crate::sockets::endpoint::Site;
use crate::sockets::endpoint::{Endpoint, Inner, Owned, Stage};

use crate::stack::work::Work;
use crate::sync::socket_lock::{BACKLOG, COMPLETION, PATH, REFUSED, SETTLE, TIMER};

impl Work<'_> {
    /// For a poller that found the socket of `endpoint` owned: leaves a segment.
    pub(crate) fn leave_segment(&mut self, endpoint: &Arc<Endpoint>, segment: Segment) {
        match endpoint.backlog().push(self.stack.pollers.spare_backlogs(), segment) {
            Pushed::Queued => {}
            Pushed::Coalesced => self.tcp().bump(Counter::TcpBacklogCoalesce),
            Pushed::Dropped => self.tcp().bump(Counter::TcpBacklogDrop),
        }
        self.leave(endpoint, BACKLOG);
    }

    /// Called by a poller: sets flags for the owner of `endpoint`. If there is no owner, the work
    /// is done here.
    pub(crate) fn leave(&mut self, endpoint: &Arc<Endpoint>, marks: u32) {
        if let Some(owned) = endpoint.leave(marks) {
            self.contain(endpoint, |work| work.release(endpoint, owned, false));
        }
    }

    /// Releases a socket, after the work that others have left for it. `settles` says whether the
    /// owner itself has worked on it.
    pub(crate) fn release(&mut self, endpoint: &Arc<Endpoint>, owned: Owned<'_>, settles: bool) {
        let (mut owned, mut settles) = (owned, settles);
        let mut rounds = 0;
        let once = self.settings.tcp_backlog_limit == Rule::Once;
        // Once the stack has ended, there is no poller to hand over to. Nor does the poller find a
        // connection that has left the tables.
        while rounds < RELEASE_ROUNDS || owned.is_gone() || self.stack.pollers.ended().is_some() {
            settles |= self.run_left(endpoint, &mut owned);
            // By the older rule a round lasts until the backlog is empty. It ends, since processed
            // bytes leave less and less room.
            let ends = !once || endpoint.backlog().bytes() == 0;
            rounds += usize::from(ends);
            if once && ends {
                self.limit_backlog(endpoint, &owned);
            }
            if std::mem::take(&mut settles) {
                self.settle(endpoint, &mut owned);
            }
            match owned.release() {
                Some(again) => owned = again,
                None => {
                    self.route_strays();
                    return;
                }
            }
        }
        // Dropping it passes work that is left now to the poller.
        drop(owned);
        self.route_strays();
        self.look_again(endpoint);
    }

    /// Called by an owner: does the work that others have left, except sending. Returns whether
    /// there was any.
    pub(crate) fn run_left(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Owned<'_>) -> bool {
        let left = inner.take_left();
        if left == 0 {
            return false;
        }
        if inner.panics() > 1 {
            // It is only settled, which takes it away.
            return true;
        }
        // Packets in the prequeue arrived first.
        self.run_prequeue(endpoint, inner, false);
        if left & BACKLOG != 0 {
            self.run_backlog(endpoint, inner);
        }
        if left & COMPLETION != 0 && !inner.is_gone() {
            endpoint.at(Site::Completion);
            let cx = self.context(endpoint, inner);
            inner.conn.handle(&cx, Input::Completion);
        }
        if left & TIMER != 0 && !inner.is_gone() {
            inner.timer = Instant::FAR_FUTURE;
            endpoint.at(Site::Timer);
            if self.has_timer_come(endpoint, inner) && self.may_run_timer(endpoint, inner) {
                let cx = self.context(endpoint, inner);
                inner.conn.handle(&cx, Input::Timeout);
            }
        }
        if left & PATH != 0 {
            self.run_reports(endpoint, inner);
        }
        if left & REFUSED != 0 {
            self.refuse(endpoint, inner);
        }
        if left & SETTLE != 0 {
            inner.untouch();
        }
        true
    }

    /// The listener of a connection has gone. An accepted connection no longer depends on it, even
    /// if the application has closed it and data is still in flight.
    fn refuse(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        if matches!(inner.stage, Stage::Owned | Stage::Orphan) {
            return;
        }
        self.leave_syn_queue(endpoint, inner);
        inner.stage = Stage::Orphan;
        let cx = self.context(endpoint, inner);
        inner.conn.abort(&cx);
    }

    fn run_backlog(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        let Some(mut queue) = endpoint.backlog().take() else { return };
        for mut segment in queue.drain(..) {
            let bytes = counted(&segment);
            endpoint.backlog().done(bytes);
            if self.settings.tcp_backlog_limit == Rule::Once {
                // It counts as processed until the backlog is empty, and as unread.
                endpoint.backlog().lower_limit(2 * bytes);
            }
            if !self.take_segment(endpoint, inner, (&mut segment, Batch::Backlog)) {
                self.strays.push((endpoint.key, segment));
            }
        }
        self.stack.pollers.spare_backlogs().give(queue);
    }

    /// Called by an owner: sets how much an empty backlog may hold, by the buffers as they are now.
    /// Data counts as unread until a read of it ends.
    pub(crate) fn limit_backlog(&self, endpoint: &Endpoint, inner: &Inner) {
        let (rule, conn) = (self.settings.tcp_backlog_limit, &inner.conn);
        let unread = match rule {
            Rule::Once => conn.readable() + conn.out_of_order(),
            Rule::Twice => 0,
        };
        let buffers = (conn.rcvbuf(&self.settings.tcp), conn.sndbuf());
        endpoint.backlog().set_limit(rule.limit(buffers, unread));
    }

    /// Called by an owner: the connection gets a segment of a batch. Its ACK is deferred to the end
    /// of the batch if possible. A connection that has ended leaves the tables at once, not at the
    /// end of the batch, so that the next segment finds the state of that moment. Returns false if
    /// it had ended before this segment, which is not changed then.
    pub(crate) fn take_segment(
        &mut self,
        endpoint: &Arc<Endpoint>,
        inner: &mut Inner,
        (segment, batch): (&mut Segment, Batch),
    ) -> bool {
        if inner.conn.state().has_ended() {
            // A timer, a report or a call of the application may have ended it in this batch.
            if !inner.is_gone() {
                self.settle(endpoint, inner);
            }
            return false;
        }
        let cx = self.context(endpoint, inner);
        if inner.stage == Stage::HalfOpen && completes_handshake(segment) {
            let full = endpoint.listener.as_ref().is_some_and(|l| l.accept_queue_is_full());
            if full {
                cx.counters.bump(Counter::ListenOverflows);
                cx.counters.bump(Counter::ListenDrops);
                if !cx.config.tcp_abort_on_overflow {
                    return true;
                }
                inner.conn.abort(&cx);
            }
        }
        let read = inner.prequeue.as_ref().is_some_and(|prequeue| prequeue.is_read());
        let arrival = Arrival {
            batch: cx.config.tcp_backlog_ack_defer.then_some(batch),
            reader: if read { Reader::Waiting } else { inner.wakers.reader() },
        };
        let output = inner.conn.handle(&cx, Input::Segment(segment, arrival));
        endpoint.at(Site::Segment);
        self.account(endpoint, inner);
        self.promote(endpoint, inner);
        if inner.conn.state().has_ended() {
            self.settle(endpoint, inner);
        } else if output == OutputDue::Now {
            self.transmit(endpoint, inner);
        }
        true
    }
}

/// Whether a segment may move a half-open connection to the accept queue.
fn completes_handshake(segment: &Segment) -> bool {
    let flags = segment.repr.flags;
    flags.contains(TcpFlags::ACK) && !flags.intersects(TcpFlags::SYN | TcpFlags::RST)
}

#[cfg(test)]
mod tests;
