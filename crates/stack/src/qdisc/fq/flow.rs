//! The flows of [`Fq`](super::Fq): where they are, by number, and the lists in which they wait.

use hashbrown::HashTable;
use plimsoll_tcp::{Duration, Instant};

use super::slab::Chain;

/// No flow.
const NONE: u32 = u32::MAX;

/// The list that a flow is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It holds no packet.
    Inactive,
    /// It has just got packets.
    New,
    /// It takes turns.
    Old,
    /// It waits for a departure time, in the heap.
    Throttled,
}

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    id: u64,
    /// Its packets.
    pub(super) chain: Chain,
    /// Bytes that it may send before its turn ends.
    pub(super) credit: i64,
    /// Where it is; change it by [`Flows::move_to`].
    pub(super) place: Place,
    /// Since when it has held no packet.
    pub(super) empty_since: Instant,
    prev: u32,
    next: u32,
}

/// A list of flows, linked through them.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// All flows.
#[derive(Debug)]
pub(super) struct Flows {
    slots: Vec<Flow>,
    free: Vec<u32>,
    by_id: HashTable<u32>,
    new: List,
    old: List,
    inactive: List,
    inactive_count: usize,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashTable::new(),
            new: EMPTY,
            old: EMPTY,
            inactive: EMPTY,
            inactive_count: 0,
        }
    }
}

/// Numbers of flows are ours, not chosen by a peer: spreading them is enough.
fn hash(id: u64) -> u64 {
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Flows {
    /// Flows that are known.
    pub(super) fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Flows without a packet.
    pub(super) fn inactive(&self) -> usize {
        self.inactive_count
    }

    /// The place of the flow `id`.
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        self.by_id.find(hash(id), |&index| self.slots[index as usize].id == id).copied()
    }

    /// Adds the flow `id`, inactive, with a first credit.
    pub(super) fn add(&mut self, id: u64, credit: u32) -> u32 {
        let flow = Flow {
            id,
            chain: Chain::default(),
            credit: i64::from(credit),
            place: Place::Inactive,
            empty_since: Instant::FAR_FUTURE,
            prev: NONE,
            next: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = flow;
                index
            }
            None => {
                self.slots.push(flow);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.by_id.insert_unique(hash(id), index, |&index| hash(slots[index as usize].id));
        self.append(index, Place::Inactive);
        index
    }

    /// A flow by its place.
    pub(super) fn get_mut(&mut self, index: u32) -> &mut Flow {
        &mut self.slots[index as usize]
    }

    /// The flow that has the turn.
    pub(super) fn first(&self) -> Option<u32> {
        [self.new.first, self.old.first].into_iter().find(|&index| index != NONE)
    }

    /// Whether a flow has a turn.
    pub(super) fn has_turns(&self) -> bool {
        self.first().is_some()
    }

    /// Whether old flows take turns.
    pub(super) fn has_old(&self) -> bool {
        self.old.first != NONE
    }

    /// Moves a flow to the end of another list, or of its present one.
    pub(super) fn move_to(&mut self, index: u32, place: Place) {
        self.unlink(index);
        self.append(index, place);
    }

    /// Forgets up to `most` flows that have been empty for more than `age`; returns how many.
    pub(super) fn forget(&mut self, now: Instant, age: Duration, most: usize) -> u64 {
        let mut forgotten = 0;
        while forgotten < most as u64 && self.inactive.first != NONE {
            let index = self.inactive.first;
            let Flow { id, empty_since, .. } = self.slots[index as usize];
            if now.since(empty_since) <= age {
                break;
            }
            self.unlink(index);
            if let Ok(entry) = self.by_id.find_entry(hash(id), |&other| other == index) {
                entry.remove();
            }
            self.free.push(index);
            forgotten += 1;
        }
        forgotten
    }

    fn list(&mut self, place: Place) -> Option<&mut List> {
        match place {
            Place::Inactive => Some(&mut self.inactive),
            Place::New => Some(&mut self.new),
            Place::Old => Some(&mut self.old),
            Place::Throttled => None,
        }
    }

    fn append(&mut self, index: u32, place: Place) {
        self.inactive_count += usize::from(place == Place::Inactive);
        let last = self.list(place).map_or(NONE, |list| {
            let last = std::mem::replace(&mut list.last, index);
            if last == NONE {
                list.first = index;
            }
            last
        });
        if last != NONE {
            self.slots[last as usize].next = index;
        }
        let flow = &mut self.slots[index as usize];
        (flow.place, flow.prev, flow.next) = (place, last, NONE);
    }

    fn unlink(&mut self, index: u32) {
        let Flow { place, prev, next, .. } = self.slots[index as usize];
        self.inactive_count -= usize::from(place == Place::Inactive);
        if let Some(list) = self.list(place) {
            if list.first == index {
                list.first = next;
            }
            if list.last == index {
                list.last = prev;
            }
        }
        if prev != NONE {
            self.slots[prev as usize].next = next;
        }
        if next != NONE {
            self.slots[next as usize].prev = prev;
        }
    }
}
