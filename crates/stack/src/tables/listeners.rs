//! The table of listeners, by port. Ports that take any destination are a later room.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::error::SocketError;
use crate::sockets::endpoint::ListenerInner;
use crate::sockets::summary::SocketSummary;

#[derive(Default)]
pub(crate) struct ListenerTable {
    by_port: RwLock<BTreeMap<u16, Vec<Arc<ListenerInner>>>>,
}

impl ListenerTable {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u16, Vec<Arc<ListenerInner>>>> {
        self.by_port.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listener for `ip` and `port`: one for exactly this address before one for any.
    pub(crate) fn find(&self, ip: IpAddr, port: u16) -> Option<Arc<ListenerInner>> {
        let table = self.read();
        let listeners = table.get(&port)?;
        listeners
            .iter()
            .filter_map(|listener| Some((preference(listener, ip)?, listener)))
            .max_by_key(|&(preference, _)| preference)
            .map(|(_, listener)| listener.clone())
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// [`SocketError::AddrInUse`] if another one would take some of its connections.
    pub(crate) fn insert(
        &self,
        listener: Arc<ListenerInner>,
    ) -> Result<Arc<ListenerInner>, SocketError> {
        let mut table = self.by_port.write().unwrap_or_else(PoisonError::into_inner);
        let there = table.entry(listener.local().port()).or_default();
        if there.iter().any(|other| overlap(other, &listener)) {
            return Err(SocketError::AddrInUse);
        }
        there.push(listener.clone());
        Ok(listener)
    }

    /// Takes a listener out; `false` if it was out already.
    pub(crate) fn remove(&self, listener: &Arc<ListenerInner>) -> bool {
        let mut table = self.by_port.write().unwrap_or_else(PoisonError::into_inner);
        let port = listener.local().port();
        let Some(there) = table.get_mut(&port) else { return false };
        let before = there.len();
        there.retain(|other| !Arc::ptr_eq(other, listener));
        let removed = there.len() < before;
        if there.is_empty() {
            table.remove(&port);
        }
        removed
    }

    /// All listeners, by port.
    pub(crate) fn all(&self) -> Vec<Arc<ListenerInner>> {
        self.read().values().flatten().cloned().collect()
    }

    pub(crate) fn summaries(&self) -> Vec<SocketSummary> {
        let summary = |listener: Arc<ListenerInner>| {
            let (queued, _, backlog) = listener.lengths();
            SocketSummary {
                state: None,
                local: listener.local(),
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

/// How well `listener` fits a packet to `ip`, or `None` if it does not.
fn preference(listener: &ListenerInner, ip: IpAddr) -> Option<u8> {
    let own = listener.local().ip();
    if own == ip {
        return Some(2);
    }
    match (own, ip) {
        (IpAddr::V4(own), IpAddr::V4(_)) if own.is_unspecified() => Some(1),
        (IpAddr::V6(own), IpAddr::V6(_)) if own.is_unspecified() => Some(1),
        (IpAddr::V6(own), IpAddr::V4(_)) if own.is_unspecified() && !listener.is_only_v6() => {
            Some(0)
        }
        _ => None,
    }
}

/// Whether two listeners on one port exclude each other: equal addresses do; so do, as on Linux
/// without SO_REUSEPORT, an address and the wildcard that covers it.
fn overlap(a: &ListenerInner, b: &ListenerInner) -> bool {
    let covers =
        |wild: &ListenerInner, other: &ListenerInner| match (wild.local().ip(), other.local().ip())
        {
            (IpAddr::V6(ip), IpAddr::V4(_)) => ip.is_unspecified() && !wild.is_only_v6(),
            (wild, other) => wild.is_unspecified() && wild.is_ipv4() == other.is_ipv4(),
        };
    a.local().ip() == b.local().ip() || covers(a, b) || covers(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_tcp::Options;

    fn listener(addr: &str) -> Arc<ListenerInner> {
        Arc::new(ListenerInner::new(addr.parse().unwrap(), false, 1, Options::default()))
    }

    #[test]
    fn wildcards_and_exact_addresses() {
        let table = ListenerTable::default();
        table.insert(listener("[::]:80")).unwrap();
        table.insert(listener("192.0.2.1:81")).unwrap();
        table.insert(listener("192.0.2.2:81")).unwrap();
        let found = |ip: &str, port| {
            table.find(ip.parse().unwrap(), port).map(|found| found.local().to_string())
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
        let found = table.find("192.0.2.1".parse().unwrap(), 80).unwrap();
        assert!(table.remove(&found));
        assert!(!table.remove(&found));
        table.insert(listener("0.0.0.0:80")).unwrap();
        table.insert(listener("[2001:db8::1]:80")).unwrap();
    }
}
