//! What a run over many scripts has found, as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::duel::Difference;

/// Seeds that a line names.
const NAMED: usize = 8;

/// Differences by what differs.
#[derive(Default)]
pub struct Tally {
    found: BTreeMap<String, Vec<u64>>,
}

impl Tally {
    /// The two differ in a script. Returns whether it is the first in which this differs.
    pub fn add(&mut self, seed: u64, difference: &Difference) -> bool {
        let seeds = self.found.entry(difference.what.clone()).or_default();
        seeds.push(seed);
        seeds.len() == 1
    }

    /// Scripts in which the two differ.
    pub fn count(&self) -> usize {
        self.found.values().map(Vec::len).sum()
    }

    /// The table, in lines.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (what, seeds) in &self.found {
            let named: Vec<String> = seeds.iter().take(NAMED).map(u64::to_string).collect();
            let more = if seeds.len() > NAMED { " ..." } else { "" };
            let (count, named) = (seeds.len(), named.join(" "));
            let _ = writeln!(text, "{count:>14} scripts differ in {what}: {named}{more}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_counts_scripts_and_names_the_first_seeds() {
        let difference = |what: &str| Difference {
            step: 0,
            what: what.to_string(),
            plain: "1".to_string(),
            otherwise: "2".to_string(),
            beside: String::new(),
        };
        let mut tally = Tally::default();
        assert!(tally.add(3, &difference("rto")));
        assert!((4..20).all(|seed| !tally.add(seed, &difference("rto"))));
        assert!(tally.add(20, &difference("packet")));
        assert_eq!(tally.count(), 18);
        let table = tally.table();
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["1", "scripts", "differ", "in", "packet:", "20"]);
        let seeds = ["3", "4", "5", "6", "7", "8", "9", "10", "..."];
        assert_eq!(lines[1][..5], ["17", "scripts", "differ", "in", "rto:"]);
        assert_eq!(lines[1][5..], seeds);
    }
}
