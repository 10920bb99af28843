//! What a run over many scripts has found, as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::duel::Difference;

/// Seeds that a line names.
const NAMED: usize = 8;

/// Differences that are meant, by finding, and those that are not, by what differs.
#[derive(Default)]
pub struct Tally {
    known: BTreeMap<&'static str, Known>,
    unknown: BTreeMap<String, Vec<u64>>,
}

/// A finding whose consequences were met.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Scripts in which they were.
    scripts: u64,
    /// Scripts whose rest was not compared because of them.
    ended: u64,
}

impl Tally {
    /// A script has met the consequences of these findings, each named once; of the last one the
    /// rest is not compared if it `ended` the script.
    pub fn add_known(&mut self, met: &[&'static str], ended: Option<&'static str>) {
        for finding in met {
            let known = self.known.entry(finding).or_default();
            known.scripts += 1;
            known.ended += u64::from(ended == Some(finding));
        }
    }

    /// A script differs and should not. Returns whether it is the first in which this differs.
    pub fn add_unknown(&mut self, seed: u64, difference: &Difference) -> bool {
        let seeds = self.unknown.entry(difference.what.clone()).or_default();
        seeds.push(seed);
        seeds.len() == 1
    }

    /// Scripts that differ and should not.
    pub fn unknown(&self) -> usize {
        self.unknown.values().map(Vec::len).sum()
    }

    /// The table, in lines.
    pub fn table(&self) -> String {
        let mut text = String::from("met in scripts   ended them   known difference\n");
        for (finding, known) in &self.known {
            let _ = writeln!(text, "{:>14} {:>12}   {finding}", known.scripts, known.ended);
        }
        for (what, seeds) in &self.unknown {
            let named: Vec<String> = seeds.iter().take(NAMED).map(u64::to_string).collect();
            let more = if seeds.len() > NAMED { " ..." } else { "" };
            let (count, named) = (seeds.len(), named.join(" "));
            let _ = writeln!(text, "{count:>14} {count:>12}   UNKNOWN: {what}: {named}{more}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duel::Past;

    #[test]
    fn a_table_counts_scripts_and_names_the_first_seeds() {
        let difference = |what: &str| Difference {
            step: 0,
            what: what.to_string(),
            old: "1".to_string(),
            new: "2".to_string(),
            now: 0,
            past: Past::default(),
            beside: String::new(),
        };
        let mut tally = Tally::default();
        tally.add_known(&["E1", "E2"], Some("E2"));
        tally.add_known(&["E1"], None);
        assert!(tally.add_unknown(3, &difference("rto")));
        assert!((4..20).all(|seed| !tally.add_unknown(seed, &difference("rto"))));
        assert!(tally.add_unknown(20, &difference("packet")));
        assert_eq!(tally.unknown(), 18);
        let table = tally.table();
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["2", "0", "E1"]);
        assert_eq!(lines[2], ["1", "1", "E2"]);
        assert_eq!(lines[3], ["1", "1", "UNKNOWN:", "packet:", "20"]);
        let seeds = ["3", "4", "5", "6", "7", "8", "9", "10", "..."];
        assert_eq!(lines[4][..4], ["17", "17", "UNKNOWN:", "rto:"]);
        assert_eq!(lines[4][4..], seeds);
    }
}
