//! What all runs come to.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::campaign::{Outcome, Verdict};
use crate::classes::Class;

/// Of the patterns on which the kernel agrees with itself, so many in a thousand must be the same.
const SAME: usize = 980;
/// So many patterns in a thousand may be excluded.
const EXCLUDED: usize = 30;
/// Fewer patterns say nothing of shares: then only differences without a name count.
const ENOUGH: usize = 500;

/// The figures, as `--json` writes them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) first: u32,
    pub(crate) patterns: usize,
    /// Runs on the kernel for each pattern.
    pub(crate) times: usize,
    /// `uname -r` of the machine.
    pub(crate) kernel: String,
    pub(crate) total: Row,
    pub(crate) families: BTreeMap<&'static str, Row>,
    pub(crate) classes: BTreeMap<Class, Examples>,
    /// Patterns that differ and have no name.
    pub(crate) unnamed: Vec<u32>,
    /// Patterns on which the kernel does not agree with itself.
    pub(crate) excluded: Vec<u32>,
    /// Patterns that are the same, with scoreboards that differ after some ACK.
    pub(crate) marks: Vec<u32>,
    /// ACKs and retransmissions that were compared and found the same.
    pub(crate) acks: usize,
    pub(crate) retransmissions: usize,
    /// Runs that were taken again because this program was late.
    pub(crate) retaken: usize,
}

/// Counts of patterns.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) patterns: usize,
    pub(crate) excluded: usize,
    pub(crate) same: usize,
    pub(crate) named: usize,
    pub(crate) unnamed: usize,
}

/// Patterns of one class.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Examples {
    pub(crate) about: &'static str,
    pub(crate) patterns: Vec<u32>,
}

impl Report {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        let id = outcome.pattern.id;
        self.patterns += 1;
        self.retaken += outcome.retaken;
        let mut row = Row { patterns: 1, ..Row::default() };
        match &outcome.verdict {
            Verdict::Excluded(_) => {
                row.excluded = 1;
                self.excluded.push(id);
            }
            Verdict::Same { marks } => {
                row.same = 1;
                self.acks += outcome.ours.acks();
                self.retransmissions += outcome.ours.retransmissions();
                self.marks.extend(marks.map(|_| id));
            }
            Verdict::Different { class: Some(class), .. } => {
                row.named = 1;
                let entry = self.classes.entry(*class).or_default();
                entry.about = class.about();
                entry.patterns.push(id);
            }
            Verdict::Different { class: None, .. } => {
                row.unnamed = 1;
                self.unnamed.push(id);
            }
        }
        self.total.add(row);
        self.families.entry(outcome.pattern.family).or_default().add(row);
    }

    /// Whether what must hold does, if at most `accepted` patterns may differ without a name.
    pub(crate) fn holds(&self, accepted: u32) -> bool {
        let Row { patterns, excluded, same, unnamed, .. } = self.total;
        let shares =
            same * 1000 >= (patterns - excluded) * SAME && excluded * 1000 <= patterns * EXCLUDED;
        unnamed as u64 <= u64::from(accepted) && (patterns < ENOUGH || shares)
    }

    /// The figures, with the tables that are published.
    pub(crate) fn document(&self) -> serde_json::Result<Value> {
        let Row { patterns, excluded, same, named, unnamed } = self.total;
        let Report { seed, times, kernel, acks, retransmissions, .. } = self;
        let families = self.families.iter().map(|(family, row)| {
            let counts = [row.patterns, row.same, row.named, row.unnamed, row.excluded];
            let counts = counts.iter().map(ToString::to_string);
            [(*family).to_owned()].into_iter().chain(counts).collect::<Vec<_>>()
        });
        let reasons = self.classes.iter().map(|(class, Examples { about, patterns })| {
            let numbers: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            [format!("{class:?}: {about}"), numbers.join(", ")]
        });
        let mut document = serde_json::to_value(self)?;
        document["table"] = json!({
            "conditions": format!(
                "Seed {seed}: {patterns} patterns, each {times} times on Linux {kernel}. {same} are \
                 the same, {named} differ for a known reason, {unnamed} for no known reason. \
                 {excluded} are excluded, because the kernel did not repeat itself. The runs \
                 compared {acks} ACKs and {retransmissions} retransmissions."
            ),
            "header":
                ["family", "patterns", "same", "differ, reason known", "differ", "excluded"],
            "rows": families.collect::<Vec<_>>(),
        });
        document["reasons"] = json!({
            "conditions": "From the same run. `cargo xtask parity --only NUMBER,...` repeats some \
                           patterns.",
            "header": ["reason", "patterns"],
            "rows": reasons.collect::<Vec<_>>(),
        });
        Ok(document)
    }

    /// The tables, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{:24} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
            "family", "patterns", "excluded", "same", "named", "unnamed"
        );
        let total = [("all", &self.total)];
        for (name, row) in self.families.iter().map(|(name, row)| (*name, row)).chain(total) {
            let Row { patterns, excluded, same, named, unnamed } = row;
            text += &format!(
                "{name:24} {patterns:>8} {excluded:>8} {same:>8} {named:>8} {unnamed:>8}\n"
            );
        }
        for Examples { about, patterns } in self.classes.values() {
            text += &format!("named: {about}: {} {patterns:?}\n", patterns.len());
        }
        for (what, list) in [
            ("unnamed", &self.unnamed),
            ("excluded", &self.excluded),
            ("same, with other marks", &self.marks),
        ] {
            if !list.is_empty() {
                text += &format!("{what}: {} {list:?}\n", list.len());
            }
        }
        let agreed = self.total.patterns - self.total.excluded;
        text += &format!(
            "{} of {agreed} the same ({:.2} %), {} ACKs and {} retransmissions in them; {} of {} \
             excluded; {} runs taken again\n",
            self.total.same,
            100.0 * self.total.same as f64 / agreed.max(1) as f64,
            self.acks,
            self.retransmissions,
            self.total.excluded,
            self.total.patterns,
            self.retaken,
        );
        text
    }
}

impl Row {
    fn add(&mut self, row: Row) {
        self.patterns += row.patterns;
        self.excluded += row.excluded;
        self.same += row.same;
        self.named += row.named;
        self.unnamed += row.unnamed;
    }
}
