//! What scripts have reached, so that one sees when something cannot be reached any more.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::tally::Tally;

/// How often each thing was reached, by kind and name.
#[derive(Default)]
pub struct Reach {
    counts: BTreeMap<(&'static str, String), u64>,
    fast: BTreeMap<(&'static str, &'static str), u64>,
    /// Scripts that were run.
    pub scripts: u64,
    /// Steps that were taken.
    pub steps: u64,
    /// Packets that left.
    pub packets: u64,
    /// Segments that arrived.
    pub segments: u64,
    /// Comparisons of everything.
    pub compared: u64,
    /// What differed.
    pub tally: Tally,
    /// Counters of the engine, summed up.
    counters: Vec<u64>,
    names: Vec<&'static str>,
}

impl Reach {
    /// Something with a fixed name was reached.
    pub fn hit(&mut self, kind: &'static str, name: &'static str) {
        *self.fast.entry((kind, name)).or_default() += 1;
    }

    /// Something was reached.
    pub fn hit_named(&mut self, kind: &'static str, name: String) {
        *self.counts.entry((kind, name)).or_default() += 1;
    }

    /// Adds the counters of a connection.
    pub fn add_counters(&mut self, names: &[&'static str], counters: &[u64]) {
        if self.names.is_empty() {
            self.names = names.to_vec();
            self.counters = vec![0; names.len()];
        }
        for (sum, count) in self.counters.iter_mut().zip(counters) {
            // What a gauge counts down is not a count.
            *sum = sum.wrapping_add(*count);
        }
    }

    /// What was reached, in lines, and the counters that were not.
    pub fn report(&self) -> String {
        let mut text = String::new();
        let Reach { scripts, steps, packets, segments, compared, .. } = self;
        let _ = writeln!(
            text,
            "{scripts} scripts, {steps} steps, {segments} segments in, {packets} packets out, \
             {compared} comparisons"
        );
        let mut kinds: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
        let fast = self.fast.iter().map(|(&(kind, name), &count)| (kind, name, count));
        let slow = self.counts.iter().map(|((kind, name), &count)| (*kind, name.as_str(), count));
        for (kind, name, count) in fast.chain(slow) {
            kinds.entry(kind).or_default().push((name, count));
        }
        let counted = self.names.iter().zip(&self.counters).filter(|&(_, &count)| count > 0);
        kinds.insert("counters", counted.map(|(name, count)| (*name, *count)).collect());
        for (kind, names) in kinds {
            let _ = write!(text, "{kind}:");
            for (name, count) in names {
                let _ = write!(text, " {name} {count},");
            }
            text.pop();
            text.push('\n');
        }
        let never = self.names.iter().zip(&self.counters).filter(|&(_, &count)| count == 0);
        let never: Vec<&str> = never.map(|(name, _)| *name).collect();
        let _ = writeln!(text, "counters never reached: {}", never.join(" "));
        text += &self.tally.table();
        text
    }
}
