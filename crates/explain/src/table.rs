//! The flows that are kept, the least recently seen of which give way when there are too many.

use std::collections::HashMap;

use crate::flow::{Ends, Flow};

/// No neighbour.
const NONE: u32 = u32::MAX;

struct Entry {
    flow: Flow,
    /// Neighbours in the order of use: seen later, seen earlier.
    newer: u32,
    older: u32,
}

/// Flows by their ends, in the order of use.
pub(crate) struct Table {
    entries: Vec<Entry>,
    by_ends: HashMap<Ends, u32>,
    newest: u32,
    oldest: u32,
    most: usize,
}

impl Table {
    /// A table of at most `most` flows, one at least.
    pub(crate) fn new(most: usize) -> Table {
        let most = most.clamp(1, 1 << 24);
        Table { entries: Vec::new(), by_ends: HashMap::new(), newest: NONE, oldest: NONE, most }
    }

    /// The flow between these ends, which becomes the most recently seen. `is_other` says of a
    /// flow that is there whether it has ended and another begins. With it comes the flow that had
    /// to give way for a new one.
    pub(crate) fn flow(
        &mut self,
        ends: Ends,
        time: u64,
        is_other: impl FnOnce(&Flow) -> bool,
    ) -> (&mut Flow, Option<Flow>) {
        let known = self.by_ends.get(&ends).copied();
        let known = known.filter(|&at| !is_other(&self.entries[at as usize].flow));
        let (at, gone) = match known {
            Some(at) => {
                self.unlink(at);
                (at, None)
            }
            None => self.place(Flow::new(ends, time)),
        };
        self.link(at);
        (&mut self.entries[at as usize].flow, gone)
    }

    /// The flow between these ends, if it is kept. It has not been seen because of this.
    pub(crate) fn known(&mut self, ends: Ends) -> Option<&mut Flow> {
        let at = *self.by_ends.get(&ends)?;
        self.entries.get_mut(at as usize).map(|entry| &mut entry.flow)
    }

    /// Finds room for a flow, which is not in the order of use yet.
    fn place(&mut self, flow: Flow) -> (u32, Option<Flow>) {
        let ends = flow.ends;
        let entry = Entry { flow, newer: NONE, older: NONE };
        let (at, gone) = if self.entries.len() < self.most {
            self.entries.push(entry);
            ((self.entries.len() - 1) as u32, None)
        } else {
            let at = self.oldest;
            self.unlink(at);
            let gone = std::mem::replace(&mut self.entries[at as usize], entry).flow;
            // Its ends may have been taken over by a later connection.
            if self.by_ends.get(&gone.ends) == Some(&at) {
                self.by_ends.remove(&gone.ends);
            }
            (at, Some(gone))
        };
        self.by_ends.insert(ends, at);
        (at, gone)
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = {
            let entry = &self.entries[at as usize];
            (entry.newer, entry.older)
        };
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, at: u32) {
        let older = self.newest;
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, older);
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    /// All that are kept.
    pub(crate) fn into_flows(self) -> impl Iterator<Item = Flow> {
        self.entries.into_iter().map(|entry| entry.flow)
    }
}
