//! Flows of listeners for any address, by four-tuple and by the time at which they end.
//!
//! A datagram in either direction does not touch this table: it only updates the time in the flow.
//! The table lists each flow under its earliest possible end as of its entry, and checks the flow
//! then. So the first of the list may live on, but none ends later than it should. After the first
//! answer another timeout applies, which may be shorter, so the flow is listed again.
//!
//! Flows that are assured have their own list, from which a full table evicts last. A flow that
//! became assured moves there when the table next checks it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashTable;
use plimsoll_tcp::Instant;

use crate::flow::FlowKey;
use crate::limits::UDP_FLOW_HOLDS;
use crate::sockets::udp::UdpEndpoint;
use crate::sockets::udp::flow::{EvictionRank, Flow};
use crate::sync::timed::Deadlines;

/// Flows that are looked at to make place for one.
const EVICTION_LOOKS: usize = 32;

pub(crate) struct FlowTable {
    key: [u8; 16],
    by_key: HashTable<Arc<UdpEndpoint>>,
    /// By when they end at the earliest: those that were not assured when they were listed, and
    /// those that were.
    ends: [Ends; 2],
}

/// By time and place.
type Ends = BTreeMap<(Instant, u32), Arc<UdpEndpoint>>;

/// The outcome of adding a flow.
#[derive(Debug)]
pub(crate) enum Inserted {
    /// It has a place, maybe that of another, which has ended.
    Yes(Option<Arc<UdpEndpoint>>),
    /// There is one with the same four-tuple.
    Taken(Arc<UdpEndpoint>),
    /// All places are taken by recently used flows.
    Full,
}

fn flow_of(endpoint: &UdpEndpoint) -> Option<&Flow> {
    endpoint.flow()
}

impl FlowTable {
    pub(crate) fn new(key: [u8; 16]) -> FlowTable {
        FlowTable { key, by_key: HashTable::new(), ends: Default::default() }
    }

    /// How many flows there are.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    fn has_key(endpoint: &UdpEndpoint, key: &FlowKey) -> bool {
        flow_of(endpoint).is_some_and(|flow| flow.key == *key)
    }

    /// The flow of datagrams from `from` to `to`.
    pub(crate) fn find(&self, from: SocketAddr, to: SocketAddr) -> Option<Arc<UdpEndpoint>> {
        let key = FlowKey {
            local: to.ip(),
            remote: from.ip(),
            local_port: to.port(),
            remote_port: from.port(),
        };
        let hash = key.hash(&self.key);
        self.by_key.find(hash, |there| FlowTable::has_key(there, &key)).cloned()
    }

    /// Adds a flow, of which there may be `most`.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        endpoint: &Arc<UdpEndpoint>,
        most: usize,
    ) -> Inserted {
        let Some(flow) = flow_of(endpoint) else { return Inserted::Full };
        let hash = flow.key.hash(&self.key);
        if let Some(there) = self.by_key.find(hash, |there| FlowTable::has_key(there, &flow.key)) {
            return Inserted::Taken(there.clone());
        }
        let mut evicted = None;
        if self.by_key.len() >= most {
            evicted = self.evict(now);
            if evicted.is_none() {
                return Inserted::Full;
            }
        }
        let table_key = self.key;
        self.by_key.insert_unique(hash, endpoint.clone(), |there| {
            flow_of(there).map_or(0, |flow| flow.key.hash(&table_key))
        });
        self.list(endpoint);
        Inserted::Yes(evicted)
    }

    fn list(&mut self, endpoint: &Arc<UdpEndpoint>) {
        let Some(flow) = flow_of(endpoint) else { return };
        let rank = flow.rank();
        flow.list(rank);
        self.ends_of(rank).insert((rank.ends_at, endpoint.id.slot), endpoint.clone());
    }

    /// Takes a flow out of its list. Returns whether it was there.
    fn unlist(&mut self, endpoint: &Arc<UdpEndpoint>) -> bool {
        let Some(flow) = flow_of(endpoint) else { return false };
        let rank = flow.listed();
        self.ends_of(rank).remove(&(rank.ends_at, endpoint.id.slot)).is_some()
    }

    fn ends_of(&mut self, rank: EvictionRank) -> &mut Ends {
        &mut self.ends[usize::from(rank.assured)]
    }

    /// Removes the flow that would end first of those that were not used recently. An assured flow
    /// is removed only if there is no other.
    fn evict(&mut self, now: Instant) -> Option<Arc<UdpEndpoint>> {
        let mut passed = Bound::Unbounded;
        for _ in 0..EVICTION_LOOKS {
            // Those that were passed stay in their list, so the lists do not change after that.
            let ends = self.ends.iter().find(|ends| !ends.is_empty())?;
            let (&key, first) = ends.range((passed, Bound::Unbounded)).next()?;
            let first = first.clone();
            let flow = flow_of(&first)?;
            if flow.rank() > flow.listed() {
                // It was used since.
                self.relist(&first);
            } else if flow.last_used() + UDP_FLOW_HOLDS > now {
                passed = Bound::Excluded(key);
            } else {
                self.remove(&first);
                return Some(first);
            }
        }
        None
    }

    /// The flow that the table lists as ending first, and the time.
    fn first_to_end(&self) -> Option<(Instant, &Arc<UdpEndpoint>)> {
        let firsts = self.ends.iter().filter_map(BTreeMap::first_key_value);
        firsts.map(|(&(at, _), first)| (at, first)).min_by_key(|&(at, _)| at)
    }

    /// Takes a flow out. Returns whether it was there.
    pub(crate) fn remove(&mut self, endpoint: &Arc<UdpEndpoint>) -> bool {
        let Some(flow) = flow_of(endpoint) else { return false };
        let hash = flow.key.hash(&self.key);
        let Ok(entry) = self.by_key.find_entry(hash, |there| Arc::ptr_eq(there, endpoint)) else {
            return false;
        };
        entry.remove();
        self.unlist(endpoint);
        true
    }

    /// Lists a flow again after a change of its rank.
    pub(crate) fn relist(&mut self, endpoint: &Arc<UdpEndpoint>) {
        if self.unlist(endpoint) {
            self.list(endpoint);
        }
    }

    /// Removes and returns flows that have ended by `now`, at most `most`.
    pub(crate) fn expire(&mut self, now: Instant, most: usize) -> Vec<Arc<UdpEndpoint>> {
        let mut ended = Vec::new();
        for _ in 0..most {
            let first = match self.first_to_end() {
                Some((at, first)) if at <= now => first.clone(),
                _ => break,
            };
            if flow_of(&first).is_some_and(|flow| flow.ends_at() > now) {
                self.relist(&first);
                continue;
            }
            self.remove(&first);
            ended.push(first);
        }
        ended
    }
}

/// The published time is when the table must be checked.
impl Deadlines for FlowTable {
    fn next(&self) -> Option<Instant> {
        self.first_to_end().map(|(at, _)| at)
    }
}
