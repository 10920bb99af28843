//! Charging connections to the account of memory (`policies/memory.rs`).

use plimsoll_tcp::{Counter, Input};

use std::sync::Arc;

use crate::policies::memory::MemoryUse;
use crate::snmp::IpCounter;
use crate::sockets::endpoint::{Endpoint, Inner, Stage};
use crate::stack::Stack;
use crate::stack::work::Work;
use crate::sync::socket_lock::Place;

impl Work<'_> {
    /// Charges a connection for its present memory.
    #[inline]
    pub(crate) fn account(&self, endpoint: &Endpoint, inner: &mut Inner) {
        let prequeued = inner.prequeue.as_ref().map_or(0, |prequeue| prequeue.bytes());
        // Unread data is freed with the last handle, which is about to be dropped.
        let ended = inner.is_gone() && inner.stage == Stage::Orphan;
        let left = prequeued + endpoint.backlog().bytes() as usize + inner.buffered();
        let held = if ended { 0 } else { inner.conn.memory_held() + left };
        let tcp_mem = &self.settings.tcp_mem;
        if self.stack.policies.memory().charge(&mut inner.charged, held, tcp_mem) {
            self.tcp().bump(Counter::TcpMemoryPressures);
        }
        if inner.charge_budgets(held) {
            self.count(IpCounter::BudgetPressures);
        }
    }

    /// Charges a connection, and retries a writer or a closed window that waits for memory. A
    /// window update is sent.
    #[inline]
    pub(crate) fn settle_memory(&mut self, endpoint: &Arc<Endpoint>, inner: &mut Inner) {
        self.account(endpoint, inner);
        if !inner.conn.awaits_memory() || inner.is_gone() {
            return;
        }
        let cx = self.context(endpoint, inner);
        let told = cx.below.memory.bytes;
        inner.conn.handle(&cx, Input::Memory);
        self.transmit(endpoint, inner);
        if !inner.conn.awaits_memory() {
            return;
        }
        let (memory, tcp_mem) = (self.stack.policies.memory(), &self.settings.tcp_mem);
        inner.wait_for_memory(endpoint.id, memory, tcp_mem);
        // Memory that others freed before it waited has woken no thread.
        if inner.bound_room(memory.room(tcp_mem, inner.charged)).bytes > told {
            endpoint.hand_on();
        }
    }
}

impl Stack {
    /// The memory of all connections' queues, as `net.ipv4.tcp_mem` counts it.
    pub fn memory(&self) -> MemoryUse {
        self.policies.memory().usage(&self.settings().tcp_mem, self.pollers.pooled())
    }
}
