//! The table of listeners: those on a local address by port, and those that accept connections to
//! any address, for one port or for all.
//!
//! Listeners that share their port (SO_REUSEPORT) may be many on one address. A keyed hash of a
//! packet's four-tuple chooses among them, so that all packets of a peer go to one and no peer can
//! aim at one. The choice stays the same while the group does not change; after a change, most
//! later SYNs go elsewhere. A listener's connections, half-open or in its queue, are its own and
//! end with it, as on Linux.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use plimsoll_tcp::Instant;
use portable_atomic::AtomicU64;

use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::sockets::endpoint::ListenerInner;
use crate::sockets::gate::AttemptCount;
use crate::sockets::listening::Scope;
use crate::sockets::summary::SocketSummary;
use crate::sockets::wakers::WakeList;
use crate::zone;

#[derive(Default)]
pub(crate) struct ListenerTable {
    inner: RwLock<Inner>,
    /// The time at which the first attempt at a gate ends, or earlier. Unspecified while none
    /// waits.
    gates_end: AtomicDeadline,
    attempts: AttemptCount,
}

#[derive(Default)]
struct Inner {
    by_port: BTreeMap<u16, Vec<Arc<ListenerInner>>>,
    /// By port; 0 is any.
    any_address: BTreeMap<u16, Vec<Arc<ListenerInner>>>,
}

impl Inner {
    /// The listeners that fit best, of those that are bound to an address.
    fn bound(
        &self,
        ip: IpAddr,
        port: u16,
        ours: bool,
    ) -> Option<impl Iterator<Item = &Arc<ListenerInner>> + Clone> {
        let listeners = self.by_port.get(&port)?;
        let fits = move |listener: &&Arc<ListenerInner>| preference(listener, ip, ours);
        let best = listeners.iter().filter_map(|listener| fits(&listener)).max()?;
        Some(listeners.iter().filter(move |listener| fits(listener) == Some(best)))
    }

    /// Where a listener is, or would be.
    fn place(&mut self, listener: &ListenerInner) -> &mut Vec<Arc<ListenerInner>> {
        let by_port = match listener.scope() {
            Scope::AnyAddress => &mut self.any_address,
            Scope::Bound | Scope::OnlyV6 => &mut self.by_port,
        };
        by_port.entry(listener.local().port()).or_default()
    }
}

/// The one of `group` that `hash` chooses. Nothing is hashed for one that is alone.
pub(super) fn choose<T>(
    group: impl Iterator<Item = T> + Clone,
    hash: impl FnOnce() -> u64,
) -> Option<T> {
    let count = group.clone().count();
    if count < 2 {
        return { group }.next();
    }
    let place = ((hash() >> 32) * count as u64) >> 32;
    { group }.nth(place as usize)
}

impl ListenerTable {
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listener for `ip` and `port`: one for exactly this address, then one for any local
    /// address if `ip` is, then one for any address at all and this port, then one for everything.
    /// Of several that share their port, `hash` chooses.
    pub(crate) fn find(
        &self,
        ip: IpAddr,
        port: u16,
        ours: bool,
        hash: impl FnOnce() -> u64,
    ) -> Option<Arc<ListenerInner>> {
        let table = self.read();
        if let Some(group) = table.bound(ip, port, ours) {
            return choose(group, hash).cloned();
        }
        let any = table.any_address.get(&port).or_else(|| table.any_address.get(&0))?;
        choose(any.iter(), hash).cloned()
    }

    /// Whether a listener has `port` of our address `ip` to itself. Those for any address at all
    /// leave it to others.
    pub(crate) fn has_bound(&self, ip: IpAddr, port: u16) -> bool {
        self.read().bound(ip, port, true).is_some()
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// [`SocketError::AddrInUse`] if another one would take some of its connections, unless both
    /// share their port.
    pub(crate) fn insert(
        &self,
        listener: Arc<ListenerInner>,
    ) -> Result<Arc<ListenerInner>, SocketError> {
        let shared = |other: &ListenerInner| other.shares_port() && listener.shares_port();
        self.insert_beside(&listener, shared)
    }

    /// Adds a listener to a port that the stack has chosen, and that no other listener has: it
    /// joins no group that shares its port.
    ///
    /// # Errors
    /// [`SocketError::AddrInUse`] if another one would take some of its connections.
    pub(crate) fn insert_alone(
        &self,
        listener: Arc<ListenerInner>,
    ) -> Result<Arc<ListenerInner>, SocketError> {
        self.insert_beside(&listener, |_| false)
    }

    /// Adds a listener, unless it takes connections of another one that does not tolerate it.
    fn insert_beside(
        &self,
        listener: &Arc<ListenerInner>,
        tolerates: impl Fn(&ListenerInner) -> bool,
    ) -> Result<Arc<ListenerInner>, SocketError> {
        let mut table = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let there = table.place(listener);
        if there.iter().any(|other| overlap(other, listener) && !tolerates(other)) {
            return Err(SocketError::AddrInUse);
        }
        there.push(listener.clone());
        Ok(listener.clone())
    }

    /// Takes a listener out; `false` if it was out already.
    pub(crate) fn remove(&self, listener: &Arc<ListenerInner>) -> bool {
        let mut table = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let there = table.place(listener);
        let before = there.len();
        there.retain(|other| !Arc::ptr_eq(other, listener));
        let (removed, empty) = (there.len() < before, there.is_empty());
        if empty {
            let port = listener.local().port();
            match listener.scope() {
                Scope::AnyAddress => table.any_address.remove(&port),
                Scope::Bound | Scope::OnlyV6 => table.by_port.remove(&port),
            };
        }
        removed
    }

    /// How many attempts wait at the gates of listeners.
    pub(crate) fn attempts(&self) -> &AttemptCount {
        &self.attempts
    }

    /// The time at which the gates must be checked. Attempts that have ended since may make it too
    /// early, but not if none waits: a stack without attempts sleeps.
    pub(crate) fn gates_end(&self) -> Option<Instant> {
        if self.attempts.is_zero() { None } else { self.gates_end.get() }
    }

    /// An attempt waits at a gate until `at`.
    pub(crate) fn gate_ends_at(&self, at: Instant) {
        self.gates_end.lower(at);
    }

    /// Ends the attempts whose time is over by `now`. Returns the listeners at which open
    /// connections have waited too long, with their flows.
    pub(crate) fn expire_gates(
        &self,
        now: Instant,
        wakers: &mut WakeList,
    ) -> Vec<(Arc<ListenerInner>, BTreeSet<FlowKey>)> {
        // Attempts from here on lower it again.
        self.gates_end.clear();
        let mut timed_out = Vec::new();
        for listener in self.all() {
            let mut open = BTreeSet::new();
            let next = listener.at_gate(wakers, |gate, wakers| gate.expire(now, wakers, &mut open));
            if let Some(Some(at)) = next {
                self.gates_end.lower(at);
            }
            if !open.is_empty() {
                timed_out.push((listener, open));
            }
        }
        timed_out
    }

    /// All listeners, by port.
    pub(crate) fn all(&self) -> Vec<Arc<ListenerInner>> {
        let table = self.read();
        let (bound, any) = (table.by_port.values(), table.any_address.values());
        bound.chain(any).flatten().cloned().collect()
    }

    pub(crate) fn summaries(&self) -> Vec<SocketSummary> {
        let summary = |listener: Arc<ListenerInner>| {
            let (queued, _, backlog) = listener.lengths();
            SocketSummary {
                state: None,
                local: zone::show(listener.local()),
                remote: None,
                recv_queue: queued,
                send_queue: backlog,
                orphan: false,
                info: None,
                decisions: Vec::new(),
            }
        };
        self.all().into_iter().map(summary).collect()
    }
}

/// A time that any thread may lower.
struct AtomicDeadline(AtomicU64);

impl Default for AtomicDeadline {
    fn default() -> AtomicDeadline {
        AtomicDeadline(AtomicU64::new(u64::MAX))
    }
}

impl AtomicDeadline {
    fn get(&self) -> Option<Instant> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos != u64::MAX).then(|| Instant::from_nanos(nanos))
    }

    fn lower(&self, at: Instant) {
        self.0.fetch_min(at.as_nanos(), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

/// How well `listener` fits a packet to `ip`, or `None` if it does not. `ours` is whether that is a
/// local address.
fn preference(listener: &ListenerInner, ip: IpAddr, ours: bool) -> Option<u8> {
    let own = listener.local().ip();
    if own == ip {
        return Some(2);
    }
    if !ours {
        return None;
    }
    match (own, ip) {
        (IpAddr::V4(own), IpAddr::V4(_)) if own.is_unspecified() => Some(1),
        (IpAddr::V6(own), IpAddr::V6(_)) if own.is_unspecified() => Some(1),
        (IpAddr::V6(own), IpAddr::V4(_))
            if own.is_unspecified() && listener.scope() != Scope::OnlyV6 =>
        {
            Some(0)
        }
        _ => None,
    }
}

/// Whether two listeners on one port exclude each other unless both share it: equal addresses do;
/// so do, as on Linux, an address and the wildcard that covers it.
fn overlap(a: &ListenerInner, b: &ListenerInner) -> bool {
    let covers =
        |wild: &ListenerInner, other: &ListenerInner| match (wild.local().ip(), other.local().ip())
        {
            (IpAddr::V6(ip), IpAddr::V4(_)) => ip.is_unspecified() && wild.scope() != Scope::OnlyV6,
            (wild, other) => wild.is_unspecified() && wild.is_ipv4() == other.is_ipv4(),
        };
    a.local().ip() == b.local().ip() || covers(a, b) || covers(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_tcp::Options;

    use crate::kick::Kick;
    use crate::policies::budget::BudgetAccount;
    use crate::pollers::completion::Completions;
    use crate::sockets::listening::Accounts;

    fn listener(addr: &str) -> Arc<ListenerInner> {
        scoped(addr, Scope::Bound)
    }

    fn scoped(addr: &str, scope: Scope) -> Arc<ListenerInner> {
        Arc::new(one(addr, scope))
    }

    fn one(addr: &str, scope: Scope) -> ListenerInner {
        let ready = Arc::new(Completions::new(Kick::new().unwrap()));
        let budget = Arc::new(BudgetAccount::new(ready));
        let accounts = Accounts { budget, half_open: Arc::default() };
        let (local, options) = (addr.parse().unwrap(), Options::default());
        ListenerInner::new(local, scope, 1, options, accounts)
    }

    #[test]
    fn any_address_comes_last() {
        let table = ListenerTable::default();
        for addr in ["[::]:0", "[::]:443"] {
            table.insert(scoped(addr, Scope::AnyAddress)).unwrap();
        }
        let again = table.insert(scoped("[::]:443", Scope::AnyAddress));
        assert_eq!(again.err(), Some(SocketError::AddrInUse));
        table.insert(listener("0.0.0.0:80")).unwrap();
        table.insert(listener("198.51.100.1:81")).unwrap();
        let found = |ip: &str, port, ours| {
            let found = table.find(ip.parse().unwrap(), port, ours, || panic!("it is alone"));
            found.map(|found| found.local().to_string())
        };
        assert_eq!(found("192.0.2.1", 80, true).as_deref(), Some("0.0.0.0:80"));
        assert_eq!(found("192.0.2.9", 80, false).as_deref(), Some("[::]:0"));
        assert_eq!(found("198.51.100.1", 81, false).as_deref(), Some("198.51.100.1:81"));
        assert_eq!(found("2001:db8::9", 443, false).as_deref(), Some("[::]:443"));
        assert!(table.has_bound("192.0.2.1".parse().unwrap(), 80));
        assert!(!table.has_bound("192.0.2.1".parse().unwrap(), 443), "it leaves room for others");
        let all = table.find("192.0.2.1".parse().unwrap(), 9, true, || 0).unwrap();
        assert!(table.remove(&all) && !table.remove(&all));
        assert_eq!(found("192.0.2.1", 9, true), None);
    }

    #[test]
    fn wildcards_and_exact_addresses() {
        let table = ListenerTable::default();
        table.insert(listener("[::]:80")).unwrap();
        table.insert(listener("192.0.2.1:81")).unwrap();
        table.insert(listener("192.0.2.2:81")).unwrap();
        let found = |ip: &str, port| {
            let found = table.find(ip.parse().unwrap(), port, true, || panic!("it is alone"));
            found.map(|found| found.local().to_string())
        };
        assert_eq!(found("192.0.2.1", 80).as_deref(), Some("[::]:80"), "dual stack");
        assert_eq!(found("2001:db8::1", 80).as_deref(), Some("[::]:80"));
        assert_eq!(found("192.0.2.2", 81).as_deref(), Some("192.0.2.2:81"));
        assert_eq!(found("192.0.2.3", 81), None);
        for taken in ["0.0.0.0:80", "192.0.2.9:80", "[::1]:80", "0.0.0.0:81", "192.0.2.1:81"] {
            assert_eq!(
                table.insert(listener(taken)).err(),
                Some(SocketError::AddrInUse),
                "{taken}"
            );
        }
        let found = table.find("192.0.2.1".parse().unwrap(), 80, true, || 0).unwrap();
        assert!(table.remove(&found));
        assert!(!table.remove(&found));
        table.insert(listener("0.0.0.0:80")).unwrap();
        table.insert(listener("[2001:db8::1]:80")).unwrap();
    }

    #[test]
    fn a_group_shares_its_port_by_the_hash() {
        let table = ListenerTable::default();
        let sharing = |addr: &str, scope| Arc::new(one(addr, scope).sharing_port());
        let group: Vec<_> = (0..3).map(|_| sharing("192.0.2.1:80", Scope::Bound)).collect();
        for listener in &group {
            table.insert(listener.clone()).unwrap();
        }
        let wild = table.insert(sharing("0.0.0.0:80", Scope::Bound)).unwrap();
        for alone in ["192.0.2.1:80", "0.0.0.0:80", "[::]:80"] {
            assert_eq!(table.insert(listener(alone)).err(), Some(SocketError::AddrInUse));
        }
        let found = |hash: u64| {
            let found = table.find("192.0.2.1".parse().unwrap(), 80, true, || hash).unwrap();
            group.iter().position(|one| Arc::ptr_eq(one, &found))
        };
        let half = 1 << 63;
        assert_eq!([0, half, u64::MAX].map(found), [Some(0), Some(1), Some(2)]);
        let other = table.find("192.0.2.9".parse().unwrap(), 80, true, || panic!("it is alone"));
        assert!(other.is_some_and(|found| Arc::ptr_eq(&found, &wild)));
        assert!(table.remove(&group[1]) && !table.remove(&group[1]));
        assert_eq!([0, half, u64::MAX].map(found), [Some(0), Some(2), Some(2)]);
        let any = [0, 1].map(|_| sharing("[::]:0", Scope::AnyAddress));
        for listener in &any {
            table.insert(listener.clone()).unwrap();
        }
        let second = table.find("198.51.100.1".parse().unwrap(), 9, false, || u64::MAX).unwrap();
        assert!(Arc::ptr_eq(&second, &any[1]));
        let alone = scoped("[::]:0", Scope::AnyAddress);
        assert_eq!(table.insert(alone).err(), Some(SocketError::AddrInUse));
        assert_eq!(table.all().len(), 5);
    }
}
