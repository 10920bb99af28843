//! A connection moves to the queue that its data comes by.
//!
//! # Theory of operation
//!
//! What steers packets to queues is below us: the host's kernel, which follows the queue that we
//! send by; a program in it, which follows the processor of the sender; a network card. Where it
//! does not follow us, we follow it: the connection, its timer and its packets move to the queue
//! that its data has come by several times in a row, so that all work for it is done by one thread
//! again. That is what Linux's flow steering (RFS and XPS) does with the processors of its threads.
//!
//! It moves only while no data of it lies below, as on Linux (`ooo_okay`): data in two queues would
//! overtake one another. An ACK may, which does no harm. And it stays for a while, since a device
//! may send back by one queue what comes by the other. An application that runs a loop for each
//! queue sees the new one (`TcpSocket::queue`) when it is woken next, and may follow.
//!
//! Data counts before it is checked, and before a blocked reader looks at it. Who forges it can
//! make a connection move once in 10 ms, which costs two locks.

use std::sync::Arc;

use plimsoll_tcp::Instant;

use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, Inner};
use crate::sockets::path_report::PathReport;
use crate::stack::work::Work;

impl Work<'_> {
    /// For a poller that owns the socket: data for it has come by this queue.
    pub(crate) fn note_queue(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        if endpoint.home() == self.home() {
            inner.misses.hit();
        } else if inner.misses.miss(self.home(), self.now) {
            self.follow(endpoint, inner);
        }
    }

    /// Moves a connection to the queue of this work, if it can move.
    fn follow(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        let first = self.stack.interfaces.first_way(endpoint.interface());
        let way = self.stack.interfaces.way(first, self.home());
        let there = self.stack.interfaces.get(way);
        let below = endpoint.below();
        // A device may have fewer queues than the stack.
        if there.queue() != self.home()
            || !there.is_up()
            || inner.is_gone()
            || !inner.conn.state().is_synchronized()
            || below.get().0 != 0
            || below.waits_for_space()
        {
            return;
        }
        if inner.timer != Instant::FAR_FUTURE {
            inner.timer = Instant::FAR_FUTURE;
            self.stack.pollers.queue(endpoint.home()).wheel().lock().stop(endpoint.id);
        }
        let before = self.stack.interfaces.get(endpoint.interface()).mtu();
        endpoint.move_home(way, self.home());
        inner.misses.on_move(self.now);
        self.arm_timer(endpoint, inner);
        self.count(IpCounter::QueueMoves);
        if there.mtu() != before {
            // The queues of a device hear of a change one after the other.
            let known = self.stack.known_path(endpoint.key.remote, there);
            self.leave_report(endpoint, PathReport::Link(known));
        }
    }
}
