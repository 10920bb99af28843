//! Connections in TIME-WAIT: the few numbers that are kept of each, for 2 MSL.
//!
//! The table holds at most `tcp_max_tw_buckets` entries; a connection that finds it full ends at
//! once (`TcpExtTCPTimeWaitOverflow`), as on Linux. Entries have one length of life, so a queue in
//! the order of entering is also the order of ending; an entry that began its wait again goes to
//! the back when its turn comes. An entry that was removed leaves its place in the queue behind;
//! when such places outnumber the entries they are swept out, so that four-tuples that are reused
//! again and again do not make the queue grow.

use std::collections::VecDeque;

use hashbrown::HashTable;
use plimsoll_tcp::time_wait::TimeWait;
use plimsoll_tcp::{Duration, Instant, State};
use plimsoll_wire::SeqNum;

use crate::flow::FlowKey;
use crate::sockets::summary::SocketSummary;
use crate::sync::timed::Deadlines;
use crate::tables::connections::InsertError;

/// The poller is not woken for ends more often than this, so that a thousand of them cost one
/// wake-up.
pub(crate) const SWEEP: Duration = Duration::from_millis(250);

/// Places of removed entries that the queue may hold in addition to as many as there are entries.
const SPARE_PLACES: usize = 16;

/// When the first place in the queue ends. An entry always has a place, so without a deadline there
/// is no entry.
impl Deadlines for TimeWaitTable {
    fn next(&self) -> Option<Instant> {
        self.order.front().map(|&(at, _)| at)
    }
}

#[derive(Clone)]
struct Entry {
    key: FlowKey,
    time_wait: TimeWait,
    /// The time of its place in the queue; a place with another one was a former entry's.
    place: Instant,
}

pub(crate) struct TimeWaitTable {
    hash_key: [u8; 16],
    entries: HashTable<Entry>,
    /// In the order in which they end, as known when they were put here.
    order: VecDeque<(Instant, FlowKey)>,
}

impl TimeWaitTable {
    pub(crate) fn new(hash_key: [u8; 16]) -> TimeWaitTable {
        TimeWaitTable { hash_key, entries: HashTable::new(), order: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry; `false` if `limit` are there already.
    pub(crate) fn insert(&mut self, key: FlowKey, time_wait: TimeWait, limit: usize) -> bool {
        self.remove(&key);
        if self.entries.len() >= limit {
            return false;
        }
        self.sweep_places();
        let hash_key = self.hash_key;
        let place = time_wait.expires();
        self.order.push_back((place, key));
        let entry = Entry { key, time_wait, place };
        self.entries.insert_unique(key.hash(&hash_key), entry, |e| e.key.hash(&hash_key));
        true
    }

    /// Takes the places of removed entries out of the queue, if they outnumber the others.
    fn sweep_places(&mut self) {
        if self.order.len() <= 2 * self.entries.len() + SPARE_PLACES {
            return;
        }
        let (entries, hash_key) = (&self.entries, &self.hash_key);
        self.order.retain(|(place, key)| {
            entries.find(key.hash(hash_key), |e| e.key == *key && e.place == *place).is_some()
        });
    }

    /// The entry of `key`.
    pub(crate) fn find(&mut self, key: &FlowKey) -> Option<&mut TimeWait> {
        self.find_entry(key).map(|entry| &mut entry.time_wait)
    }

    fn find_entry(&mut self, key: &FlowKey) -> Option<&mut Entry> {
        if self.entries.is_empty() {
            return None;
        }
        let hash = key.hash(&self.hash_key);
        self.entries.find_mut(hash, |entry| entry.key == *key)
    }

    /// Takes the entry of `key` out. Its place in the order is found empty later.
    pub(crate) fn remove(&mut self, key: &FlowKey) {
        let hash = key.hash(&self.hash_key);
        if let Ok(entry) = self.entries.find_entry(hash, |entry| entry.key == *key) {
            entry.remove();
        }
    }

    /// Whether a connect may have the four-tuple `key`: `None` if nothing is in the way, the least
    /// initial sequence number if an entry was that may be reused. The entry is removed then.
    pub(crate) fn reuse_for_connect(
        &mut self,
        key: &FlowKey,
        now: Instant,
        tcp_tw_reuse: u8,
    ) -> Result<Option<SeqNum>, InsertError> {
        let Some(entry) = self.find(key) else { return Ok(None) };
        let allowed = match tcp_tw_reuse {
            0 => false,
            1 => true,
            _ => key.remote.is_loopback(),
        };
        let iss = entry.may_connect_again(now).filter(|_| allowed).ok_or(InsertError::Taken)?;
        self.remove(key);
        Ok(Some(iss))
    }

    /// Removes entries that have ended by `now`, at most `most`, and returns their number.
    pub(crate) fn expire(&mut self, now: Instant, most: usize) -> usize {
        let mut ended = 0;
        for _ in 0..most {
            let Some(&(at, key)) = self.order.front() else { break };
            if at > now {
                break;
            }
            self.order.pop_front();
            let Some(entry) = self.find_entry(&key).filter(|entry| entry.place == at) else {
                continue;
            };
            let expires = entry.time_wait.expires();
            if expires > now {
                entry.place = expires;
                self.order.push_back((expires, key));
            } else {
                self.remove(&key);
                ended += 1;
            }
        }
        ended
    }

    pub(crate) fn summaries(&self) -> Vec<SocketSummary> {
        let summary = |entry: &Entry| SocketSummary {
            state: Some(State::TimeWait),
            local: entry.key.local_addr(),
            remote: Some(entry.key.remote_addr()),
            recv_queue: 0,
            send_queue: 0,
            orphan: true,
            info: None,
            decisions: Vec::new(),
        };
        self.entries.iter().map(summary).collect()
    }

    /// Places in the queue, also those of entries that have gone.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.order.len()
    }
}
