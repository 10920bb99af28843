//! The table of open connections: a hash over four-tuples into numbered places.
//!
//! A place has a generation, so that a number that outlived its connection (in the timer wheel)
//! finds nothing rather than another connection. The hash is SipHash-1-3 with the stack's secret.

use std::mem::size_of;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashTable;

use crate::demux::FlowKey;
use crate::endpoint::Endpoint;
use crate::limits::MAX_CONNECTIONS;
use crate::listener::ListenerInner;

/// A place in the table, as long as one connection has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnectionId {
    /// The number by which a queueing discipline knows the connection. Never 0.
    pub(crate) fn flow(self) -> u64 {
        (u64::from(self.generation) << 32 | u64::from(self.slot)).wrapping_add(1)
    }
}

/// Why a connection was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertError {
    /// There is one with the same four-tuple (or one in TIME-WAIT that may not be reused).
    Taken,
    /// [`MAX_CONNECTIONS`] are open.
    Full,
}

pub(crate) struct ConnectionTable {
    key: [u8; 16],
    inner: RwLock<Places>,
}

#[derive(Default)]
struct Places {
    by_flow: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    endpoint: Option<Arc<Endpoint>>,
}

impl Places {
    fn find(&self, hash: u64, key: &FlowKey) -> Option<&Arc<Endpoint>> {
        let slot = self.by_flow.find(hash, |&slot| self.has_key(slot, key))?;
        self.slots[*slot as usize].endpoint.as_ref()
    }

    fn has_key(&self, slot: u32, key: &FlowKey) -> bool {
        self.slots[slot as usize].endpoint.as_ref().is_some_and(|there| there.key == *key)
    }

    /// A free place, made if there is none.
    fn take_slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() >= MAX_CONNECTIONS {
            return None;
        }
        self.slots.push(Slot::default());
        Some(self.slots.len() as u32 - 1)
    }
}

impl ConnectionTable {
    pub(crate) fn new(key: [u8; 16]) -> ConnectionTable {
        ConnectionTable { key, inner: RwLock::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, Places> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Places> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection with the four-tuple `key`.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<Arc<Endpoint>> {
        self.read().find(key.hash(&self.key), key).cloned()
    }

    /// The connection that has the place `id`, if it still has it.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<Arc<Endpoint>> {
        let places = self.read();
        let slot = places.slots.get(id.slot as usize)?;
        if slot.generation == id.generation { slot.endpoint.clone() } else { None }
    }

    /// Inserts the connection that `make` makes for its place.
    pub(crate) fn insert(
        &self,
        key: FlowKey,
        make: impl FnOnce(ConnectionId) -> Arc<Endpoint>,
    ) -> Result<Arc<Endpoint>, InsertError> {
        let hash = key.hash(&self.key);
        let mut places = self.write();
        if places.find(hash, &key).is_some() {
            return Err(InsertError::Taken);
        }
        let slot = places.take_slot().ok_or(InsertError::Full)?;
        let Places { by_flow, slots, .. } = &mut *places;
        let endpoint = make(ConnectionId { slot, generation: slots[slot as usize].generation });
        slots[slot as usize].endpoint = Some(endpoint.clone());
        by_flow.insert_unique(hash, slot, |&slot| {
            slots[slot as usize].endpoint.as_ref().map_or(0, |there| there.key.hash(&self.key))
        });
        Ok(endpoint)
    }

    /// Takes `endpoint` out. Its place goes to a later connection, with another generation.
    pub(crate) fn remove(&self, endpoint: &Endpoint) {
        let hash = endpoint.key.hash(&self.key);
        let id = endpoint.id;
        let removed = {
            let mut places = self.write();
            let slot = &mut places.slots[id.slot as usize];
            if slot.generation != id.generation {
                return;
            }
            slot.generation = slot.generation.wrapping_add(1);
            let removed = slot.endpoint.take();
            if let Ok(entry) = places.by_flow.find_entry(hash, |&slot| slot == id.slot) {
                entry.remove();
            }
            places.free.push(id.slot);
            removed
        };
        // The last reference may go here; not under the lock.
        drop(removed);
    }

    /// All connections, in the order of their places.
    pub(crate) fn all(&self) -> Vec<Arc<Endpoint>> {
        self.read().slots.iter().filter_map(|slot| slot.endpoint.clone()).collect()
    }

    /// All connections that came from `listener`.
    pub(crate) fn children_of(&self, listener: &Arc<ListenerInner>) -> Vec<Arc<Endpoint>> {
        let is_child = |endpoint: &&Arc<Endpoint>| {
            endpoint.listener.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, listener))
        };
        let places = self.read();
        let endpoints = places.slots.iter().filter_map(|slot| slot.endpoint.as_ref());
        endpoints.filter(is_child).cloned().collect()
    }

    /// Whether some connection has the local port `port`.
    pub(crate) fn uses_port(&self, port: u16) -> bool {
        let places = self.read();
        let mut endpoints = places.slots.iter().filter_map(|slot| slot.endpoint.as_ref());
        endpoints.any(|endpoint| endpoint.key.local_port == port)
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let places = self.read();
        places.slots.capacity() * size_of::<Slot>()
            + places.free.capacity() * size_of::<u32>()
            // One control byte per bucket.
            + places.by_flow.capacity() * (size_of::<u32>() + 1)
    }
}
