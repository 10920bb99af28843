//! The state of a listener: its options, its queues, and its waiters.
//!
//! The socket that applications hold is in `stack/listener.rs`.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use plimsoll_tcp::{Duration, Instant, Md5Key, Options};

use crate::error::SocketError;
use crate::policies::budget::{BudgetAccount, Refusal};
use crate::policies::syn_cookie::VALIDITY;
use crate::sockets::fast_open::FastOpenQueue;
use crate::sockets::gate::{AttemptCount, Gate, GateConfig};
use crate::sockets::md5::Md5Keys;
use crate::sockets::wakers::{Interest, WaitKey, WakeList, WakerSet};
use crate::sync::lock;

/// The time after a dropped ACK during which more of its flight may arrive. After an RTO the peer
/// begins with the data whose segment brings its cookie again; the initial RTO is this long (RFC
/// 6298, section 2).
const FLIGHT: Duration = Duration::from_secs(1);

/// Which addresses a listener takes connections to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The bound address, or all local ones.
    Bound,
    /// For `[::]`: those of IPv6 only (IPV6_V6ONLY).
    OnlyV6,
    /// Any address at all.
    AnyAddress,
}

/// A listener, as the tables refer to it.
pub(crate) struct Listening<E> {
    local: SocketAddr,
    scope: Scope,
    /// The settings of its gate, if it has one.
    gate: Option<GateConfig>,
    /// Others may listen on its address and port that let it do so as well.
    shares_port: bool,
    accounts: Accounts,
    state: Mutex<ListenState<E>>,
}

/// Where a listener keeps account of its connections.
pub(crate) struct Accounts {
    /// Its own budget.
    pub(crate) budget: Arc<BudgetAccount>,
    /// The half-open connections of all listeners.
    pub(crate) half_open: Arc<AtomicUsize>,
}

struct ListenState<E> {
    /// The options of connections that come from here.
    options: Options,
    backlog: usize,
    /// The answer to a SYN that exceeds a budget.
    refusal: Refusal,
    accept_queue: VecDeque<Arc<E>>,
    half_open: usize,
    /// When a SYN was last answered with a cookie.
    last_cookie: Option<Instant>,
    /// When a cookie last came back for which there was no room.
    last_unplaced: Option<Instant>,
    fast_open: FastOpenQueue,
    md5_keys: Md5Keys,
    /// Its gate with the waiting attempts, if it has one.
    gate: Option<Box<Gate>>,
    wakers: WakerSet,
    /// Connections that have come so far.
    arrivals: u32,
    end: Option<SocketError>,
}

impl<E> ListenState<E> {
    /// Connections whose handshake is not complete, and attempts that wait.
    fn pending(&self) -> usize {
        self.half_open + self.gate.as_ref().map_or(0, |gate| gate.len())
    }

    fn enqueue(&mut self, endpoint: Arc<E>, wakers: &mut WakeList) {
        self.accept_queue.push_back(endpoint);
        self.arrivals = self.arrivals.wrapping_add(1);
        self.wakers.take(Interest::Read, wakers);
    }
}

impl<E> Listening<E> {
    pub(crate) fn new(
        local: SocketAddr,
        scope: Scope,
        backlog: usize,
        options: Options,
        accounts: Accounts,
    ) -> Listening<E> {
        let state = ListenState {
            options,
            backlog,
            refusal: Refusal::Drop,
            accept_queue: VecDeque::new(),
            half_open: 0,
            last_cookie: None,
            last_unplaced: None,
            fast_open: FastOpenQueue::default(),
            md5_keys: Md5Keys::default(),
            gate: None,
            wakers: WakerSet::default(),
            arrivals: 0,
            end: None,
        };
        let state = Mutex::new(state);
        Listening { local, scope, gate: None, shares_port: false, accounts, state }
    }

    /// Gives the listener a gate. Waiting attempts are counted in `count`.
    pub(crate) fn gated(mut self, config: GateConfig, count: AttemptCount) -> Listening<E> {
        self.gate = Some(config);
        lock(&self.state).gate = Some(Box::new(Gate::new(config, count)));
        self
    }

    /// Lets others listen on its address and port that let it do so as well (SO_REUSEPORT).
    pub(crate) fn sharing_port(mut self) -> Listening<E> {
        self.shares_port = true;
        self
    }

    /// Whether others may listen on its address and port.
    pub(crate) fn shares_port(&self) -> bool {
        self.shares_port
    }

    /// The settings of its gate, if it has one.
    pub(crate) fn gate_config(&self) -> Option<&GateConfig> {
        self.gate.as_ref()
    }

    /// Whether every SYN is answered with a cookie, so that only verified peers reach the gate.
    pub(crate) fn verifies_source(&self) -> bool {
        self.gate.is_some_and(|gate| gate.verify_source)
    }

    /// Runs a call on the gate, if there is one. Waiters for an attempt are woken if one more has
    /// come then.
    pub(crate) fn at_gate<T>(
        &self,
        wakers: &mut WakeList,
        call: impl FnOnce(&mut Gate, &mut WakeList) -> T,
    ) -> Option<T> {
        self.changing(|state| {
            let ListenState { gate, wakers: waiting, arrivals, .. } = state;
            let gate = gate.as_mut()?;
            let before = gate.arrivals();
            let outcome = call(gate, wakers);
            if gate.arrivals() != before {
                *arrivals = arrivals.wrapping_add(1);
                waiting.take(Interest::Read, wakers);
            }
            Some(outcome)
        })
    }

    /// Runs `call` on the state, and reports the change of the number of half-open connections to
    /// the stack.
    fn changing<T>(&self, call: impl FnOnce(&mut ListenState<E>) -> T) -> T {
        let mut state = lock(&self.state);
        let before = state.pending();
        let outcome = call(&mut state);
        let change = state.pending().wrapping_sub(before);
        if change != 0 {
            self.accounts.half_open.fetch_add(change, Ordering::Relaxed);
        }
        outcome
    }

    /// The budget of its connections.
    pub(crate) fn budget(&self) -> &Arc<BudgetAccount> {
        &self.accounts.budget
    }

    /// The answer to a SYN that exceeds a budget.
    pub(crate) fn refusal(&self) -> Refusal {
        lock(&self.state).refusal
    }

    /// Changes that answer.
    pub(crate) fn set_refusal(&self, refusal: Refusal) {
        lock(&self.state).refusal = refusal;
    }

    /// Connections whose handshake is not complete, and attempts that wait.
    pub(crate) fn pending(&self) -> usize {
        lock(&self.state).pending()
    }

    /// The address and port.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Which addresses it takes connections to.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// The options of a connection that comes now.
    pub(crate) fn options(&self) -> Options {
        lock(&self.state).options.clone()
    }

    /// The options of a connection that comes now from `peer`.
    pub(crate) fn options_for(&self, peer: IpAddr) -> Options {
        let state = lock(&self.state);
        state.options.clone().md5_key(state.md5_keys.find(peer).cloned())
    }

    /// As [`options_for`](Self::options_for); notes that a SYN is answered with a cookie.
    pub(crate) fn options_for_cookie(&self, now: Instant, peer: IpAddr) -> Options {
        let mut state = lock(&self.state);
        state.last_cookie = Some(now);
        state.options.clone().md5_key(state.md5_keys.find(peer).cloned())
    }

    /// The key that signs segments from and to `peer`.
    pub(crate) fn md5_key(&self, peer: IpAddr) -> Option<Md5Key> {
        lock(&self.state).md5_keys.find(peer).cloned()
    }

    /// Whether one more connection may not complete its handshake now.
    pub(crate) fn accept_queue_is_full(&self) -> bool {
        let state = lock(&self.state);
        state.accept_queue.len() > state.backlog
    }

    /// Takes a place in the SYN queue, unless the listener has gone.
    pub(crate) fn begin_handshake(&self) -> bool {
        self.changing(|state| {
            let open = state.end.is_none();
            state.half_open += usize::from(open);
            open
        })
    }

    /// Whether a valid cookie may still come back.
    pub(crate) fn awaits_cookies(&self, now: Instant) -> bool {
        lock(&self.state).last_cookie.is_some_and(|sent| now.since(sent) <= VALIDITY)
    }

    /// Notes that a cookie has come back for which there is no room.
    pub(crate) fn left_unplaced(&self, now: Instant) {
        lock(&self.state).last_unplaced = Some(now);
    }

    /// Whether data may arrive from a peer whose cookie found no room. That peer was not stored, so
    /// this is checked for any segment that is not a cookie.
    pub(crate) fn may_be_of_unplaced(&self, now: Instant) -> bool {
        lock(&self.state).last_unplaced.is_some_and(|at| now.since(at) <= FLIGHT)
    }

    /// Releases a place in the SYN queue.
    pub(crate) fn end_handshake(&self) {
        self.changing(|state| state.half_open = state.half_open.saturating_sub(1));
    }

    /// Moves a connection whose handshake is complete to the accept queue. Returns `false` if the
    /// listener has gone; the connection must be reset then.
    pub(crate) fn complete(&self, endpoint: Arc<E>, wakers: &mut WakeList) -> bool {
        self.changing(|state| {
            state.half_open = state.half_open.saturating_sub(1);
            if state.end.is_some() {
                return false;
            }
            state.enqueue(endpoint, wakers);
            true
        })
    }

    /// Takes a place in the Fast Open queue, unless the listener has gone.
    pub(crate) fn begin_early(&self) -> bool {
        let mut state = lock(&self.state);
        let open = state.end.is_none();
        if open {
            state.fast_open.begin();
        }
        open
    }

    /// Puts a connection that opened at once into the accept queue. Returns `false` if the listener
    /// has gone.
    pub(crate) fn complete_early(&self, endpoint: Arc<E>, wakers: &mut WakeList) -> bool {
        let mut state = lock(&self.state);
        if state.end.is_some() {
            return false;
        }
        state.enqueue(endpoint, wakers);
        true
    }

    /// Runs `look` on the Fast Open queue.
    pub(crate) fn fast_open<T>(&self, look: impl FnOnce(&mut FastOpenQueue) -> T) -> T {
        look(&mut lock(&self.state).fast_open)
    }

    /// Takes the next connection out of the accept queue, if there is one.
    ///
    /// # Errors
    /// If there is none and the listener has ended.
    pub(crate) fn accept(&self) -> Result<Option<Arc<E>>, SocketError> {
        let mut state = lock(&self.state);
        match (state.accept_queue.pop_front(), state.end) {
            (Some(endpoint), _) => Ok(Some(endpoint)),
            (None, Some(end)) => Err(end),
            (None, None) => Ok(None),
        }
    }

    /// Removes the connections that are not `kept` from the accept queue, and returns them, so that
    /// their last handles are dropped without the lock.
    #[must_use]
    pub(crate) fn retain(&self, kept: impl FnMut(&Arc<E>) -> bool) -> VecDeque<Arc<E>> {
        let mut state = lock(&self.state);
        let queue = std::mem::take(&mut state.accept_queue);
        let (kept, removed) = queue.into_iter().partition(kept);
        state.accept_queue = kept;
        removed
    }

    /// Whether there is something to accept, or the listener or the stack has `ended`; if not,
    /// `waker` waits. Returns a waker to be dropped without a lock as well.
    pub(crate) fn register(
        &self,
        key: Option<WaitKey>,
        waker: &Waker,
        ended: impl FnOnce() -> bool,
    ) -> (bool, Option<Waker>) {
        let mut waker = Some(waker.clone());
        let mut state = lock(&self.state);
        let asks = state.gate.as_ref().is_some_and(|gate| gate.has_untaken());
        let ready = asks || state.end.is_some() || ended() || !state.accept_queue.is_empty();
        let left = state.wakers.answer(ready, Interest::Read, key, &mut waker);
        (ready, left)
    }

    /// Takes the waker out that waits under `key`.
    pub(crate) fn cancel(&self, key: WaitKey) -> Option<Waker> {
        lock(&self.state).wakers.cancel(Interest::Read, key)
    }

    /// Connections that have come so far.
    pub(crate) fn arrivals(&self) -> u32 {
        lock(&self.state).arrivals
    }

    /// Changes the backlog.
    pub(crate) fn set_backlog(&self, backlog: usize) {
        lock(&self.state).backlog = backlog;
    }

    /// Changes the keys that sign segments from and to peers.
    pub(crate) fn set_md5_keys(&self, keys: Md5Keys) {
        lock(&self.state).md5_keys = keys;
    }

    /// Changes the options of connections to come.
    pub(crate) fn change_options(&self, change: impl FnOnce(&mut Options)) {
        change(&mut lock(&self.state).options);
    }

    /// Ends listening, with the reason `end`, and returns the connections that were not accepted.
    pub(crate) fn end(&self, end: SocketError, wakers: &mut WakeList) -> VecDeque<Arc<E>> {
        self.changing(|state| {
            state.end.get_or_insert(end);
            state.wakers.take(Interest::Read, wakers);
            if let Some(gate) = &mut state.gate {
                gate.close(wakers);
            }
            std::mem::take(&mut state.accept_queue)
        })
    }

    /// Connections in the accept queue and in the SYN queue, and the backlog.
    pub(crate) fn lengths(&self) -> (usize, usize, usize) {
        let state = lock(&self.state);
        (state.accept_queue.len(), state.half_open, state.backlog)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::kick::Kick;
    use crate::pollers::completion::Completions;

    /// Locks its listener when it is dropped.
    struct Child(Weak<Listening<Child>>, u8);

    impl Drop for Child {
        fn drop(&mut self) {
            if let Some(listener) = self.0.upgrade() {
                let state = listener.state.try_lock();
                assert!(state.is_ok(), "child {} is dropped under the listener's lock", self.1);
            }
        }
    }

    #[test]
    fn what_is_taken_out_of_the_accept_queue_is_dropped_without_the_lock() {
        let ready = Arc::new(Completions::new(Kick::new().expect("a descriptor")));
        let budget = Arc::new(BudgetAccount::new(ready));
        let accounts = Accounts { budget, half_open: Arc::default() };
        let local = SocketAddr::from(([192, 0, 2, 1], 80));
        let (scope, options) = (Scope::Bound, Options::default());
        let listener = Arc::new(Listening::new(local, scope, 8, options, accounts));
        let mut wakers = WakeList::default();
        for number in 0..4 {
            let child = Arc::new(Child(Arc::downgrade(&listener), number));
            assert!(listener.begin_handshake() && listener.complete(child, &mut wakers));
        }
        let removed = listener.retain(|child| child.1 % 2 == 0);
        assert_eq!(removed.iter().map(|child| child.1).collect::<Vec<_>>(), [1, 3]);
        drop(removed);
        let left: Vec<_> = std::iter::from_fn(|| listener.accept().expect("it listens")).collect();
        assert_eq!(left.iter().map(|child| child.1).collect::<Vec<_>>(), [0, 2]);
    }
}
