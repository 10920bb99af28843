//! Flows of listeners for any address, by four-tuple and by when they end.
//!
//! A datagram that goes either way does not touch this table: it only moves the time in the flow.
//! The table has each flow under a time at which it ended at the earliest when it was entered, and
//! looks then. So the first of the list may live on, but none ends later than it should.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashTable;
use plimsoll_tcp::Instant;

use crate::flow::FlowKey;
use crate::limits::UDP_FLOW_HOLDS;
use crate::sockets::udp::UdpEndpoint;
use crate::sockets::udp::flow::Flow;
use crate::sync::timed::Deadlines;

/// Flows that are looked at to make place for one.
const EVICTION_LOOKS: usize = 32;

pub(crate) struct FlowTable {
    key: [u8; 16],
    by_key: HashTable<Arc<UdpEndpoint>>,
    /// By when they end at the earliest.
    ends: BTreeMap<(Instant, u32), Arc<UdpEndpoint>>,
}

/// What became of a new flow.
#[derive(Debug)]
pub(crate) enum Inserted {
    /// It has a place, maybe that of another, which has ended.
    Yes(Option<Arc<UdpEndpoint>>),
    /// There is one with the same four-tuple.
    Taken(Arc<UdpEndpoint>),
    /// All places are taken by flows that were used lately.
    Full,
}

fn flow_of(endpoint: &UdpEndpoint) -> Option<&Flow> {
    endpoint.flow()
}

impl FlowTable {
    pub(crate) fn new(key: [u8; 16]) -> FlowTable {
        FlowTable { key, by_key: HashTable::new(), ends: BTreeMap::new() }
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
        let at = flow.ends_at();
        flow.list(at);
        self.ends.insert((at, endpoint.id.slot), endpoint.clone());
    }

    /// Takes the flow out that would end first, unless it was used lately.
    fn evict(&mut self, now: Instant) -> Option<Arc<UdpEndpoint>> {
        for _ in 0..EVICTION_LOOKS {
            let (&(listed, _), first) = self.ends.first_key_value()?;
            let flow = flow_of(first)?;
            if flow.ends_at() <= listed {
                if flow.last_used() + UDP_FLOW_HOLDS > now {
                    return None;
                }
                let first = first.clone();
                self.remove(&first);
                return Some(first);
            }
            // It was used since.
            let (_, first) = self.ends.pop_first()?;
            self.list(&first);
        }
        None
    }

    /// Takes a flow out. Returns whether it was there.
    pub(crate) fn remove(&mut self, endpoint: &Arc<UdpEndpoint>) -> bool {
        let Some(flow) = flow_of(endpoint) else { return false };
        let hash = flow.key.hash(&self.key);
        let Ok(entry) = self.by_key.find_entry(hash, |there| Arc::ptr_eq(there, endpoint)) else {
            return false;
        };
        entry.remove();
        self.ends.remove(&(flow.listed(), endpoint.id.slot));
        true
    }

    /// A flow may end earlier than the table knows: its timeout was changed.
    pub(crate) fn relist(&mut self, endpoint: &Arc<UdpEndpoint>) {
        let Some(flow) = flow_of(endpoint) else { return };
        if self.ends.remove(&(flow.listed(), endpoint.id.slot)).is_some() {
            self.list(endpoint);
        }
    }

    /// Takes out what has ended by `now`, `most` at a time.
    pub(crate) fn expire(&mut self, now: Instant, most: usize) -> Vec<Arc<UdpEndpoint>> {
        let mut ended = Vec::new();
        for _ in 0..most {
            match self.ends.first_key_value() {
                Some((&(listed, _), _)) if listed <= now => {}
                _ => break,
            }
            let Some((_, first)) = self.ends.pop_first() else { break };
            if flow_of(&first).is_some_and(|flow| flow.ends_at() > now) {
                self.list(&first);
                continue;
            }
            self.remove(&first);
            ended.push(first);
        }
        ended
    }
}

/// The published time is when somebody must look.
impl Deadlines for FlowTable {
    fn next(&self) -> Option<Instant> {
        self.ends.first_key_value().map(|(&(at, _), _)| at)
    }
}
