//! Enforcement of budgets: the SYNs that exceed one, the answers to their peers, and the stack's
//! own budgets.
//!
//! The accounts are in `policies/budget.rs`.

use std::sync::atomic::Ordering;

use plimsoll_tcp::{Counter, Instant, Segment};

use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::limits::MAX_CONNECTIONS;
use crate::policies::budget::{Budget, BudgetUse, Refusal, thresholds};
use crate::policies::memory::QUANTUM;
use crate::snmp::IpCounter;
use crate::sockets::endpoint::ListenerInner;
use crate::stack::Stack;
use crate::stack::work::Work;
use crate::tables::connections::InsertError;

impl Work<'_> {
    /// The spent budget that prevents one more connection at `listener`, if there is one. The
    /// budget of half-open connections is not checked: a cookie does not use it.
    pub(crate) fn spent(&self, listener: &ListenerInner) -> Option<IpCounter> {
        let budget = listener.budget();
        let open = self.stack.tables.connections().len();
        if open >= self.most_connections() || !budget.has_place() {
            return Some(IpCounter::BudgetConnections);
        }
        budget.is_out_of_memory().then_some(IpCounter::BudgetMemory)
    }

    /// The spent budget that prevents one more attempt at a gate. The budget of connections is
    /// checked when the attempt is accepted.
    pub(crate) fn spent_at_gate(&self, listener: &ListenerInner) -> Option<IpCounter> {
        if self.is_half_open_spent(listener) {
            return Some(IpCounter::BudgetHalfOpen);
        }
        listener.budget().is_out_of_memory().then_some(IpCounter::BudgetMemory)
    }

    /// Whether there are as many half-open connections as the stack or `listener` may have.
    pub(crate) fn is_half_open_spent(&self, listener: &ListenerInner) -> bool {
        let all = self.stack.policies.half_open().load(Ordering::Relaxed);
        all >= self.settings.max_half_open as usize
            || listener.pending() >= listener.budget().most_half_open()
    }

    /// Refuses a SYN, or an ACK that brings a cookie back, because the budget is spent that counts
    /// so. Returns it if it is to be answered with a reset.
    pub(crate) fn refuse_syn(
        &mut self,
        (listener, key): (&ListenerInner, &FlowKey),
        spent: IpCounter,
        syn: Segment,
    ) -> Option<Segment> {
        self.note_refusal(key, "budget spent");
        self.count(spent);
        self.tcp().bump(Counter::ListenDrops);
        match listener.refusal() {
            Refusal::Drop => None,
            Refusal::Reset => Some(syn),
        }
    }

    /// Refuses a SYN, or an ACK that brings a cookie back, whose connection was not made: because
    /// of `error`, or because making it has panicked. Another SYN may have taken the place that
    /// there was when this one was admitted. Returns it if it is to be answered with a reset.
    pub(crate) fn refuse_unmade(
        &mut self,
        from: (&ListenerInner, &FlowKey),
        error: Option<InsertError>,
        syn: Segment,
    ) -> Option<Segment> {
        match error {
            Some(InsertError::Full | InsertError::OverBudget) => {
                self.refuse_syn(from, IpCounter::BudgetConnections, syn)
            }
            Some(InsertError::Taken) | None => {
                self.tcp().bump(Counter::ListenDrops);
                None
            }
        }
    }

    /// Counts a connection that was not inserted because a budget is spent.
    pub(crate) fn count_full(&self, error: InsertError) {
        match error {
            InsertError::Full | InsertError::OverBudget => self.count(IpCounter::BudgetConnections),
            InsertError::Taken => {}
        }
    }
}

impl Stack {
    /// Limits the resources that all connections may use at a time. It sets
    /// `plimsoll.max_connections`, `plimsoll.max_half_open` and `net.ipv4.tcp_mem`; a field that is
    /// `None` gets the default of this machine. A lower budget does not end existing connections.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] names the field that is out of range; nothing has changed then.
    pub fn set_budget(&self, now: Instant, budget: &Budget) -> Result<(), SocketError> {
        budget.check()?;
        let tcp_mem = match budget.memory {
            Some(bytes) => thresholds(bytes),
            None => self.sysctl().default_tcp_mem(),
        };
        let count = |bound: Option<usize>| bound.unwrap_or(MAX_CONNECTIONS) as u32;
        self.sysctl().change(|settings| {
            settings.max_connections = count(budget.connections);
            settings.max_half_open = count(budget.half_open);
            settings.tcp_mem = tcp_mem;
        });
        self.settle_all(now);
        Ok(())
    }

    /// The budget of the stack, from its settings.
    pub fn budget(&self) -> Budget {
        let settings = self.settings();
        let count = |most: u32| Some(most as usize).filter(|&most| most < MAX_CONNECTIONS);
        let bytes = settings.tcp_mem[2].saturating_mul(QUANTUM as u64);
        Budget {
            connections: count(settings.max_connections),
            half_open: count(settings.max_half_open),
            memory: usize::try_from(bytes).ok(),
        }
    }

    /// The resources that all connections use now.
    pub fn budget_use(&self) -> BudgetUse {
        BudgetUse {
            connections: self.tables.connections().len(),
            half_open: self.policies.half_open().load(Ordering::Relaxed),
            memory: self.policies.memory().used(),
        }
    }
}
