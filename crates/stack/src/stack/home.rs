//! Moves a connection to the queue on which its data arrives.
//!
//! # Theory of operation
//!
//! Packets are steered to queues outside the stack: by the host's kernel, which follows the queue
//! on which the stack sends; by a program in it, which follows the sender's CPU; or by a network
//! card. Where steering does not follow the connection, the connection follows steering. The
//! connection, its timer and its packets move to the queue on which its data has arrived several
//! times in a row. So one thread does all its work again. Linux's flow steering (RFS and XPS) does
//! the same with the CPUs of its threads.
//!
//! A connection moves only while none of its data is below, as on Linux (`ooo_okay`): data in two
//! queues could be reordered. ACKs may be, which does no harm. It then stays for a while, since a
//! device may send back by one queue the packets of the other. An application that runs a loop for
//! each queue sees the new one (`TcpSocket::queue`) when it is woken next, and may follow.
//!
//! Data counts before it is checked, and before a blocked reader processes it. An attacker that
//! forges data can make a connection move once in 10 ms, which costs two locks.

use std::sync::Arc;

use plimsoll_tcp::Instant;

use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, Inner};
use crate::sockets::path_report::PathReport;
use crate::stack::work::Work;

impl Work<'_> {
    /// Called by a poller that owns the socket: data for it has arrived on this queue.
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
            // The queues of a device are notified of a change one after the other.
            let known = self.stack.known_path(endpoint.key.remote, there);
            self.leave_report(endpoint, PathReport::Link(known));
        }
    }
}
