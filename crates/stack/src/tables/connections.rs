//! The table of open connections: a hash from four-tuples to numbered places.
//!
//! A place has a generation, so that a number that outlived its connection (in the timer wheel)
//! finds no connection rather than another one. The hash is SipHash-1-3 with the stack's secret.
//!
//! # Locks
//!
//! The table is [`SHARDS`] tables, chosen by bits of the hash, each under its own lock. These locks
//! are leaves: four-tuples are hashed, and connections are created and dropped, outside of them. A
//! shard that grows moves its own places, or the numbers that find them, and hashes no four-tuple
//! again, since a place keeps its hash. So no thread waits for the growth of the whole table.
//!
//! A connection is created between two accesses to its shard: the first reserves the four-tuple and
//! the place, the second stores the connection. Until then no lookup finds it, and no other
//! connection gets the four-tuple.

use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;

use crate::connection_id::{ConnectionId, SHARD_BITS, SHARDS};
use crate::error::SocketError;
use crate::flow::FlowKey;
use crate::limits::MAX_CONNECTIONS;
use crate::sockets::endpoint::Endpoint;
use crate::sockets::endpoint::ListenerInner;
use crate::sync::lock;
use crate::tables::ports::PortUse;

/// Why a connection was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertError {
    /// There is one with the same four-tuple (or one in TIME-WAIT that may not be reused).
    Taken,
    /// As many are open as the stack may have.
    Full,
    /// As many are open as the listener may have.
    OverBudget,
}

impl From<InsertError> for SocketError {
    fn from(error: InsertError) -> SocketError {
        match error {
            InsertError::Taken => SocketError::AddrInUse,
            InsertError::Full => SocketError::TooManyConnections,
            InsertError::OverBudget => SocketError::ListenerOverBudget,
        }
    }
}

/// The hash of a four-tuple: one half chooses the shard, the other the place in it.
#[derive(Clone, Copy)]
struct FlowHash {
    shard: usize,
    within: u32,
}

/// The part of a hash that a shard's hash table uses.
fn spread(within: u32) -> u64 {
    // The table takes low bits for the bucket and the highest for its tag.
    u64::from(within) << 32 | u64::from(within)
}

pub(crate) struct ConnectionTable {
    key: [u8; 16],
    shards: Box<[CachePadded<Mutex<Places>>]>,
    /// Connections and reservations.
    count: AtomicUsize,
    ports: PortUse,
}

#[derive(Default)]
struct Places {
    by_flow: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Four-tuples of connections that are being made; hardly ever more than one.
    reserved: Vec<FlowKey>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    /// The hash within the shard.
    hash: u32,
    endpoint: Option<Arc<Endpoint>>,
}

impl Places {
    #[inline]
    fn find(&self, hash: u32, key: &FlowKey) -> Option<&Arc<Endpoint>> {
        let index = self.by_flow.find(spread(hash), |&index| self.has_key(index, hash, key))?;
        self.slots[*index as usize].endpoint.as_ref()
    }

    fn has_key(&self, index: u32, hash: u32, key: &FlowKey) -> bool {
        let slot = &self.slots[index as usize];
        slot.hash == hash && slot.endpoint.as_ref().is_some_and(|there| there.key == *key)
    }

    /// A free place, made if there is none.
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        })
    }

    fn end_reservation(&mut self, key: &FlowKey) {
        if let Some(at) = self.reserved.iter().position(|reserved| reserved == key) {
            self.reserved.swap_remove(at);
        }
    }

    fn put(&mut self, index: u32, hash: u32, endpoint: Arc<Endpoint>) {
        let Places { by_flow, slots, .. } = self;
        let slot = &mut slots[index as usize];
        (slot.hash, slot.endpoint) = (hash, Some(endpoint));
        by_flow.insert_unique(spread(hash), index, |&index| spread(slots[index as usize].hash));
    }

    fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.slots.iter().filter_map(|slot| slot.endpoint.as_ref())
    }

    fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<u32>()
            + self.reserved.capacity() * size_of::<FlowKey>()
            // One control byte per bucket.
            + self.by_flow.capacity() * (size_of::<u32>() + 1)
    }
}

/// A four-tuple and a place that a connection is being made for.
struct Reservation<'a> {
    table: &'a ConnectionTable,
    key: FlowKey,
    hash: FlowHash,
    index: u32,
    generation: u32,
    /// The connection is in its place.
    kept: bool,
}

impl Reservation<'_> {
    fn id(&self) -> ConnectionId {
        let slot = self.index << SHARD_BITS | self.hash.shard as u32;
        ConnectionId { slot, generation: self.generation }
    }

    fn keep(mut self, endpoint: Arc<Endpoint>) {
        self.kept = true;
        let mut places = self.table.lock(self.hash.shard);
        places.end_reservation(&self.key);
        places.put(self.index, self.hash.within, endpoint);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // Making the connection has panicked.
        let mut places = self.table.lock(self.hash.shard);
        places.end_reservation(&self.key);
        places.free.push(self.index);
        self.table.ports.remove(self.key.local_port);
        self.table.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionTable {
    pub(crate) fn new(key: [u8; 16]) -> ConnectionTable {
        ConnectionTable {
            key,
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            count: AtomicUsize::new(0),
            ports: PortUse::default(),
        }
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Places> {
        lock(&self.shards[shard])
    }

    fn hash(&self, key: &FlowKey) -> FlowHash {
        let hash = key.hash(&self.key);
        FlowHash { shard: (hash >> 32) as usize % SHARDS, within: hash as u32 }
    }

    /// The connection with the four-tuple `key`.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<Arc<Endpoint>> {
        let hash = self.hash(key);
        self.lock(hash.shard).find(hash.within, key).cloned()
    }

    /// The connection in the place `id`, if it still has that place.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<Arc<Endpoint>> {
        let places = self.lock(id.shard());
        let slot = places.slots.get(id.index())?;
        if slot.generation == id.generation { slot.endpoint.clone() } else { None }
    }

    /// As `insert_within`, within the limit of all stacks.
    #[cfg(test)]
    pub(crate) fn insert(
        &self,
        key: FlowKey,
        make: impl FnOnce(ConnectionId) -> Arc<Endpoint>,
    ) -> Result<Arc<Endpoint>, InsertError> {
        self.insert_within(MAX_CONNECTIONS, key, make)
    }

    /// Inserts the connection that `make` makes for its place, unless `most` are open.
    pub(crate) fn insert_within(
        &self,
        most: usize,
        key: FlowKey,
        make: impl FnOnce(ConnectionId) -> Arc<Endpoint>,
    ) -> Result<Arc<Endpoint>, InsertError> {
        let reservation = self.reserve(key, most)?;
        let endpoint = make(reservation.id());
        reservation.keep(endpoint.clone());
        Ok(endpoint)
    }

    fn reserve(&self, key: FlowKey, most: usize) -> Result<Reservation<'_>, InsertError> {
        let hash = self.hash(&key);
        let mut places = self.lock(hash.shard);
        if places.find(hash.within, &key).is_some() || places.reserved.contains(&key) {
            return Err(InsertError::Taken);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) >= most.min(MAX_CONNECTIONS) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(InsertError::Full);
        }
        self.ports.add(key.local_port);
        let index = places.take_slot();
        places.reserved.push(key);
        let generation = places.slots[index as usize].generation;
        Ok(Reservation { table: self, key, hash, index, generation, kept: false })
    }

    /// Takes `endpoint` out. Its place goes to a later connection, with another generation.
    pub(crate) fn remove(&self, endpoint: &Endpoint) {
        let hash = self.hash(&endpoint.key);
        let id = endpoint.id;
        let removed = {
            let mut places = self.lock(id.shard());
            let slot = &mut places.slots[id.index()];
            if slot.generation != id.generation {
                return;
            }
            slot.generation = slot.generation.wrapping_add(1);
            let removed = slot.endpoint.take();
            let index = id.index() as u32;
            if let Ok(entry) = places.by_flow.find_entry(spread(hash.within), |&at| at == index) {
                entry.remove();
            }
            places.free.push(index);
            removed
        };
        self.ports.remove(endpoint.key.local_port);
        self.count.fetch_sub(1, Ordering::Relaxed);
        // The last reference may go here; not under the lock.
        drop(removed);
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// All connections, shard by shard in the order of their places. Those that come or go
    /// meanwhile may be among them or not.
    pub(crate) fn all(&self) -> Vec<Arc<Endpoint>> {
        self.collect(|_| true)
    }

    /// All connections that came from `listener`.
    pub(crate) fn children_of(&self, listener: &Arc<ListenerInner>) -> Vec<Arc<Endpoint>> {
        self.collect(|endpoint| {
            endpoint.listener.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, listener))
        })
    }

    fn collect(&self, wanted: impl Fn(&Endpoint) -> bool) -> Vec<Arc<Endpoint>> {
        let mut found = Vec::new();
        for shard in 0..SHARDS {
            let places = self.lock(shard);
            found.extend(places.endpoints().filter(|endpoint| wanted(endpoint)).cloned());
        }
        found
    }

    /// Whether some connection has the local port `port`.
    pub(crate) fn uses_port(&self, port: u16) -> bool {
        self.ports.is_used(port)
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let shards: usize = (0..SHARDS).map(|shard| self.lock(shard).memory_bytes()).sum();
        shards + SHARDS * size_of::<CachePadded<Mutex<Places>>>() + self.ports.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
