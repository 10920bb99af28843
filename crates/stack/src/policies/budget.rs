//! Budgets: limits of the number of connections, of half-open ones, and of the memory of their
//! queues, for a whole stack and for each listener.
//!
//! # Theory of operation
//!
//! The budgets of a stack are settings (`plimsoll.max_connections`, `plimsoll.max_half_open`,
//! `net.ipv4.tcp_mem`); a program reads and writes all three through [`Budget`]. A listener has its
//! own account, to which each of its connections belongs for its lifetime, even after it was
//! accepted. A connection counts from its SYN on until it leaves the table of connections, and is
//! charged for memory until its queues are empty.
//!
//! *When a budget is spent.* A connection that exceeds it is refused, as [`Refusal`] says, and
//! counted by the spent budget. With SYN cookies on, a SYN beyond the budget of half-open
//! connections is answered with a cookie, which stores nothing. If memory is short, the existing
//! connections offer small windows and their writers wait, by the same rules as at
//! `net.ipv4.tcp_mem` (see `policies/memory.rs`). As there, each connection may always have a
//! minimum, and one packet may use the rest of its buffers, 64 KiB each. Lowering a budget ends no
//! connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_tcp::MemoryRoom;

use crate::connection_id::ConnectionId;
use crate::error::SocketError;
use crate::limits::{MAX_CONNECTIONS, MAX_MEMORY_BUDGET, MIN_MEMORY_BUDGET};
use crate::policies::memory::{MemoryAccount, QUANTUM};
use crate::pollers::completion::Completions;

/// Limits of the resources that the connections of a stack, or of one listener, may use at a time.
/// `None` means no limit except the stack's.
///
/// ```
/// use plimsoll_stack::Budget;
/// let budget = Budget::default().connections(Some(10_000)).memory(Some(64 << 20));
/// assert_eq!(budget.half_open, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Connections in any state except TIME-WAIT, including half-open ones: 1 to 4,194,304.
    pub connections: Option<usize>,
    /// Connections whose handshake is not complete, and attempts that wait at a gate: 1 to
    /// 4,194,304. Two kinds do not count here, although their handshake is not complete:
    /// connections that the application has accepted at a gate, and those that Fast Open has opened
    /// early, which [`set_fast_open_queue`](crate::Listener::set_fast_open_queue) limits.
    pub half_open: Option<usize>,
    /// Bytes of memory that the connections' queues use: 65,536 to 2^44. Memory counts as short
    /// from two thirds of it.
    pub memory: Option<usize>,
}

plimsoll_tcp::setters!(Budget {
    connections: Option<usize>,
    half_open: Option<usize>,
    memory: Option<usize>,
});

/// The resources in use of a [`Budget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUse {
    /// Connections, including half-open ones.
    pub connections: usize,
    /// Connections whose handshake is not complete, and attempts that wait at a gate, as
    /// [`Budget::half_open`] counts them.
    pub half_open: usize,
    /// Bytes that queues use. A listener without a memory budget is not charged: then it is 0.
    pub memory: usize,
}

/// The answer to a SYN that exceeds a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No answer. The peer retransmits its SYN, and succeeds if there is room by then.
    #[default]
    Drop,
    /// A reset: its connect fails at once with `ECONNREFUSED`.
    Reset,
}

impl Budget {
    /// Refuses a budget that lets nothing through.
    pub(crate) fn check(&self) -> Result<(), SocketError> {
        let invalid = |what| Err(SocketError::Invalid(what));
        match *self {
            Budget { connections: Some(0), .. } => {
                invalid("budget.connections is 0: no peer could connect; None is no bound")
            }
            Budget { half_open: Some(0), .. } => {
                invalid("budget.half_open is 0: no peer could connect; None is no bound")
            }
            Budget { memory: Some(0), .. } => {
                invalid("budget.memory is 0: no data could move; None is no bound")
            }
            Budget { connections: Some(MORE..), .. } => {
                invalid("budget.connections is more than 4194304, the most of any stack")
            }
            Budget { half_open: Some(MORE..), .. } => {
                invalid("budget.half_open is more than 4194304, the most of any stack")
            }
            Budget { memory: Some(..MIN_MEMORY_BUDGET), .. } => {
                invalid("budget.memory is less than 65536 bytes, too little for any transfer")
            }
            Budget { memory: Some(bytes), .. } if bytes as u64 > MAX_MEMORY_BUDGET => {
                invalid("budget.memory is more than 17592186044416 bytes; None is no bound")
            }
            Budget { connections: Some(all), half_open: Some(some), .. } if some > all => invalid(
                "budget.half_open is more than budget.connections, which counts them as well",
            ),
            _ => Ok(()),
        }
    }
}

const MORE: usize = MAX_CONNECTIONS + 1;

/// Refuses a bound on the memory of one connection that would let no data through.
pub(crate) fn check_flow(bytes: usize) -> Result<(), SocketError> {
    match bytes {
        0 => Err(SocketError::Invalid("memory_budget is 0: no data could move; None is no bound")),
        1..MIN_MEMORY_BUDGET => Err(SocketError::Invalid(
            "memory_budget is less than 65536 bytes, too little for any transfer",
        )),
        _ => Ok(()),
    }
}

/// The three numbers of `tcp_mem`, in pages, for a limit of `bytes`. They are to each other as
/// Linux's are: pressure begins at two thirds of the limit and ends at half of it.
pub(crate) fn thresholds(bytes: usize) -> [u64; 3] {
    let pages = (bytes / QUANTUM) as u64;
    [pages / 2, pages * 2 / 3, pages]
}

/// The room that one connection has within its own `budget`, of which `charged` are used.
pub(crate) fn flow_room(budget: usize, charged: u32) -> MemoryRoom {
    let used = charged as usize;
    let bytes = u32::try_from(budget.saturating_sub(used)).unwrap_or(u32::MAX);
    MemoryRoom { pressure: is_short(budget, charged), bytes }
}

/// Whether so little of a connection's own budget is left that its windows are small.
pub(crate) fn is_short(budget: usize, charged: u32) -> bool {
    charged as usize >= budget / 3 * 2
}

/// The value that means no limit.
const UNBOUNDED: usize = usize::MAX;

/// The account of one listener.
pub(crate) struct BudgetAccount {
    most_connections: AtomicUsize,
    most_half_open: AtomicUsize,
    most_memory: AtomicUsize,
    connections: AtomicUsize,
    memory: MemoryAccount,
}

impl BudgetAccount {
    /// An account without a limit. `ready` gets the connections that waited for memory.
    pub(crate) fn new(ready: Arc<Completions>) -> BudgetAccount {
        BudgetAccount {
            most_connections: AtomicUsize::new(UNBOUNDED),
            most_half_open: AtomicUsize::new(UNBOUNDED),
            most_memory: AtomicUsize::new(UNBOUNDED),
            connections: AtomicUsize::new(0),
            memory: MemoryAccount::new(ready),
        }
    }

    /// The bounds.
    pub(crate) fn budget(&self) -> Budget {
        let bound = |of: &AtomicUsize| Some(of.load(Ordering::Relaxed)).filter(|&n| n != UNBOUNDED);
        Budget {
            connections: bound(&self.most_connections),
            half_open: bound(&self.most_half_open),
            memory: bound(&self.most_memory),
        }
    }

    /// Changes the limits. Connections that wait for memory are called again.
    pub(crate) fn set(&self, budget: &Budget) {
        let set = |of: &AtomicUsize, to: Option<usize>| {
            of.store(to.unwrap_or(UNBOUNDED), Ordering::Relaxed);
        };
        set(&self.most_connections, budget.connections);
        set(&self.most_half_open, budget.half_open);
        set(&self.most_memory, budget.memory);
        self.memory.wake();
    }

    /// Whether there is a place for one more connection.
    pub(crate) fn has_place(&self) -> bool {
        self.connections.load(Ordering::Relaxed) < self.most_connections.load(Ordering::Relaxed)
    }

    /// Half-open connections that there may be.
    pub(crate) fn most_half_open(&self) -> usize {
        self.most_half_open.load(Ordering::Relaxed)
    }

    /// Whether the memory is used up.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let most = self.most_memory.load(Ordering::Relaxed);
        most != UNBOUNDED && self.memory.used() >= most / QUANTUM * QUANTUM
    }

    /// Connections, and bytes that they were charged for.
    pub(crate) fn used(&self) -> (usize, usize) {
        (self.connections.load(Ordering::Relaxed), self.memory.used())
    }

    /// How often waiting connections were called again.
    #[cfg(test)]
    pub(crate) fn wakes(&self) -> u32 {
        self.memory.wakes()
    }

    fn tcp_mem(&self) -> Option<[u64; 3]> {
        let most = self.most_memory.load(Ordering::Relaxed);
        (most != UNBOUNDED).then(|| thresholds(most))
    }
}

/// The share of one connection in the budget of its listener.
pub(crate) struct BudgetShare {
    account: Arc<BudgetAccount>,
    /// It counts as a connection.
    counted: bool,
    /// Bytes that it was charged for.
    charged: u32,
    /// The round in which it entered the list of connections that wait for memory.
    ticket: u32,
}

impl BudgetShare {
    /// A place for a connection, if there is one.
    pub(crate) fn take(account: &Arc<BudgetAccount>) -> Option<BudgetShare> {
        let most = account.most_connections.load(Ordering::Relaxed);
        if account.connections.fetch_add(1, Ordering::Relaxed) >= most {
            account.connections.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(BudgetShare { account: account.clone(), counted: true, charged: 0, ticket: 0 })
    }

    /// Releases the place. The memory that the queues still use stays charged.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.counted) {
            self.account.connections.fetch_sub(1, Ordering::Relaxed);
        }
        self.account.memory.forget(std::mem::take(&mut self.ticket));
    }

    /// The memory by which the connection's queues may grow, if memory is limited.
    #[inline]
    pub(crate) fn room(&self) -> Option<MemoryRoom> {
        let tcp_mem = self.account.tcp_mem()?;
        Some(self.account.memory.room(&tcp_mem, self.charged))
    }

    /// Whether memory is short.
    pub(crate) fn is_pressed(&self) -> bool {
        self.account.memory.is_pressed()
    }

    /// Charges `held` bytes of the connection's queues. Returns whether that has made memory short.
    #[inline]
    pub(crate) fn charge(&mut self, held: usize) -> bool {
        match self.account.tcp_mem() {
            Some(tcp_mem) => self.account.memory.charge(&mut self.charged, held, &tcp_mem),
            None => {
                self.discharge();
                false
            }
        }
    }

    /// Registers the connection to be called again when there is memory.
    pub(crate) fn wait(&mut self, id: ConnectionId) {
        if let Some(tcp_mem) = self.account.tcp_mem() {
            self.account.memory.wait(id, &mut self.ticket, &tcp_mem);
        }
    }

    fn discharge(&mut self) {
        if self.charged != 0 {
            // Without a limit memory is never short. With one it stays short for the others.
            let tcp_mem = self.account.tcp_mem().unwrap_or([u64::MAX; 3]);
            self.account.memory.charge(&mut self.charged, 0, &tcp_mem);
        }
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.leave();
        self.discharge();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kick::Kick;

    #[test]
    fn what_lets_nothing_through_is_named() {
        let none = Budget::default();
        for (budget, field) in [
            (Budget { connections: Some(0), ..none }, "budget.connections is 0"),
            (Budget { half_open: Some(0), ..none }, "budget.half_open is 0"),
            (Budget { memory: Some(0), ..none }, "budget.memory is 0"),
            (Budget { memory: Some(65_535), ..none }, "budget.memory is less"),
            (Budget { memory: Some((1 << 44) + 1), ..none }, "budget.memory is more"),
            (Budget { memory: Some(usize::MAX), ..none }, "budget.memory is more"),
            (Budget { connections: Some(4_194_305), ..none }, "budget.connections is more"),
            (Budget { half_open: Some(4_194_305), ..none }, "budget.half_open is more"),
            (
                Budget { connections: Some(3), half_open: Some(4), ..none },
                "budget.half_open is more than budget.connections",
            ),
        ] {
            match budget.check() {
                Err(SocketError::Invalid(text)) => assert!(text.starts_with(field), "{text}"),
                other => panic!("{budget:?}: {other:?}"),
            }
        }
        assert_eq!(none.check(), Ok(()));
        for memory in [65_536, 1 << 44] {
            let bounds = Budget { connections: Some(1), half_open: Some(1), memory: Some(memory) };
            assert_eq!(bounds.check(), Ok(()));
        }
        assert!(check_flow(0).is_err() && check_flow(65_535).is_err());
        assert_eq!(check_flow(65_536), Ok(()));
    }

    #[test]
    fn a_share_gives_back_what_it_took() {
        let ready = Arc::new(Completions::new(Kick::new().expect("a descriptor")));
        let account = Arc::new(BudgetAccount::new(ready));
        account.set(&Budget { connections: Some(2), memory: Some(1 << 20), ..Budget::default() });
        let mut first = BudgetShare::take(&account).expect("a place");
        let second = BudgetShare::take(&account).expect("a place");
        assert!(BudgetShare::take(&account).is_none() && !account.has_place());
        assert!(!first.charge(300_000));
        assert_eq!(account.used(), (2, 303_104));
        assert!(first.charge(700_000), "two thirds");
        assert!(first.room().is_some_and(|room| room.pressure));
        first.leave();
        assert_eq!(account.used().0, 1, "its place is free, its memory is not");
        assert!(account.used().1 >= 700_000);
        drop((first, second));
        assert_eq!(account.used(), (0, 0));
    }

    #[test]
    fn a_share_that_goes_leaves_memory_short_for_the_others() {
        let ready = Arc::new(Completions::new(Kick::new().expect("a descriptor")));
        let account = Arc::new(BudgetAccount::new(ready));
        account.set(&Budget { memory: Some(1 << 20), ..Budget::default() });
        let [mut first, mut second] = [(); 2].map(|()| BudgetShare::take(&account).expect("one"));
        assert!(!second.charge(8192) && first.charge(700_000) && second.is_pressed());
        drop(second);
        assert!(first.is_pressed(), "two thirds are in use still");
        let third = BudgetShare::take(&account).expect("a place");
        drop(first);
        assert!(!third.is_pressed());
    }

    #[test]
    fn a_bound_that_is_taken_away_leaves_no_charge() {
        let ready = Arc::new(Completions::new(Kick::new().expect("a descriptor")));
        let account = Arc::new(BudgetAccount::new(ready));
        account.set(&Budget { memory: Some(1 << 20), ..Budget::default() });
        let mut share = BudgetShare::take(&account).expect("a place");
        share.charge(1 << 20);
        assert!(account.is_out_of_memory());
        account.set(&Budget::default());
        assert!(!account.is_out_of_memory() && share.room().is_none());
        share.charge(1 << 20);
        assert_eq!(account.used(), (1, 0));
        assert_eq!(account.budget(), Budget::default());
    }
}
