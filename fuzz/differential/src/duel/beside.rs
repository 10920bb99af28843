//! A difference, and what it may be the consequence of.

use std::fmt::Write as _;

/// Two engines that did not do the same.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The number of the step, counted from 0.
    pub step: usize,
    /// What differs: a call, a packet, a figure, a counter.
    pub what: String,
    /// What the old engine did.
    pub old: String,
    /// What the new engine did.
    pub new: String,
    /// When.
    pub now: u64,
    /// What has happened in this script so far.
    pub past: Past,
    /// What else differs, in words.
    pub beside: String,
}

/// What a difference may be the consequence of, also if it shows late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// Memory has been short.
    pub short: bool,
    /// A segment carried two new SACK blocks, the higher one first.
    pub descending: bool,
    /// Something lower left behind something higher, at the same time.
    pub lower_behind: bool,
    /// A FIN without data has arrived.
    pub lone_fin: bool,
    /// Something left at the time zero.
    pub sent_at_zero: bool,
    /// Data has come that begins inside the window and ends beyond it.
    pub straddled: bool,
    /// A user timeout was set.
    pub user_timeout: bool,
    /// The congestion control was chosen anew on an open connection.
    pub switched: bool,
}

/// Figures and counters of both sides at one time.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The state of the new engine.
    pub state: Option<&'static str>,
    pub(super) figures: Vec<(&'static str, u64, u64)>,
    pub(super) counters: Vec<(&'static str, u64, u64)>,
    /// Counters that only the new engine has.
    pub(super) new_counters: Vec<(&'static str, u64)>,
}

impl Beside {
    /// Both values of a figure.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn figure(&self, name: &str) -> (u64, u64) {
        find(&self.figures, name)
    }

    /// Both values of a counter.
    ///
    /// # Panics
    /// If there is none of this name on both sides.
    pub fn counter(&self, name: &str) -> (u64, u64) {
        find(&self.counters, name)
    }

    /// The value of a counter that only the new engine has; 0 if both or none have it.
    pub fn new_counter(&self, name: &str) -> u64 {
        self.new_counters.iter().find(|(other, _)| *other == name).map_or(0, |&(_, value)| value)
    }

    /// Whether nothing differs but what has one of these names.
    pub fn differ_only_in(&self, names: &[&str]) -> bool {
        let all = self.figures.iter().chain(&self.counters);
        all.filter(|(_, old, new)| old != new).all(|(name, ..)| names.contains(name))
    }

    /// What differs, in words.
    pub fn differing(&self) -> String {
        let mut text = String::new();
        for (name, old, new) in self.figures.iter().chain(&self.counters) {
            if old != new {
                let _ = write!(text, " {name} {old} {new},");
            }
        }
        text
    }
}

fn find(list: &[(&'static str, u64, u64)], name: &str) -> (u64, u64) {
    let found = list.iter().find(|(other, ..)| *other == name);
    found.map_or_else(|| panic!("nothing is called {name}"), |&(_, old, new)| (old, new))
}
