//! Medians, ratios and verdicts, as text.

use std::fmt::Write as _;

use super::runs::{BULK_CONNECTIONS, Bulk, IDLE_CONNECTIONS, Memory};
use super::{Both, Findings, LongFile, Plan, Row, Trial};
use crate::bench::table::{median, spread};

/// By how much bulk on the clean path must be faster, unless what is around the stack forbids it.
const FLOOR: f64 = 3.0;
/// Then by so much of what the null stack carries.
const SHARE_OF_NULL: f64 = 0.8;
/// The null stack is steady if its fastest run is at most so many times as fast as its slowest.
const STEADY: f64 = 1.5;
/// What must be held anywhere.
const NEVER_BELOW: f64 = 0.95;

const HEAD: [&str; 9] =
    ["path", "Plimsoll", "ipstack", "null", "ratio", "spread", "floor", "verdict", "CPU s/GB"];

/// Whose samples.
pub(super) type Side = fn(&Trial) -> Option<Bulk>;

pub(super) fn ours(trial: &Trial) -> Option<Bulk> {
    trial.ours
}

pub(super) fn published(trial: &Trial) -> Option<Bulk> {
    trial.published
}

pub(super) fn null(trial: &Trial) -> Option<Bulk> {
    trial.null
}

pub(super) fn rate(bulk: Bulk) -> f64 {
    bulk.bits_per_s
}

pub(super) fn cpu(bulk: Bulk) -> f64 {
    bulk.cpu_per_gb
}

impl Row {
    pub(super) fn middle(&self, side: Side, figure: fn(Bulk) -> f64) -> Option<f64> {
        median(&self.trials.iter().filter_map(side).map(figure).collect::<Vec<_>>())
    }

    /// One side's rate over the other's, by turns.
    pub(super) fn ratios(&self, side: Side, other: Side) -> Vec<f64> {
        let ratio = |trial: &Trial| Some(rate(side(trial)?) / rate(other(trial)?));
        self.trials.iter().filter_map(ratio).collect()
    }

    /// What the ratio must reach.
    pub(super) fn floor(&self) -> f64 {
        if !self.line.is_clean() {
            return NEVER_BELOW;
        }
        if !self.null_bounds() {
            return FLOOR;
        }
        let most = median(&self.ratios(null, published)).map(|ratio| ratio * SHARE_OF_NULL);
        most.map_or(FLOOR, |most| FLOOR.min(most)).max(NEVER_BELOW)
    }

    /// Whether what the null stack carries is what there is to be had. It is not if its runs differ
    /// much, since it has stalled then, or if it takes more of the processor than ours: it has a
    /// limit of its own then.
    fn null_bounds(&self) -> bool {
        let rates: Vec<f64> = self.trials.iter().filter_map(null).map(rate).collect();
        let Some((slowest, fastest)) = spread(&rates) else { return false };
        let costs = self.middle(null, cpu).zip(self.middle(ours, cpu));
        fastest <= slowest * STEADY && costs.is_some_and(|(null, ours)| null <= ours)
    }

    pub(super) fn verdict(&self) -> &'static str {
        if self.trials.iter().any(|trial| trial.ours.is_none()) {
            return "failed";
        }
        match median(&self.ratios(ours, published)) {
            None => "only Plimsoll carries it",
            Some(ratio) if ratio >= self.floor() => "floor met",
            Some(_) => "below floor",
        }
    }
}

/// A rate in Mbit/s.
fn mbits(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| {
        let mbits = value / 1e6;
        let places = usize::from(mbits < 100.0);
        format!("{mbits:.places$}")
    })
}

fn fixed(value: Option<f64>, places: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.places$}"))
}

/// The published columns.
pub(super) const PUBLISHED: [&str; 6] = [
    "round trip and loss",
    "direction",
    "on Plimsoll, Mbit/s",
    "as published, Mbit/s",
    "ratio",
    "CPU s/GB",
];

pub(super) fn cells(row: &Row) -> [String; 6] {
    [
        row.line.name(),
        row.direction.name().into(),
        mbits(row.middle(ours, rate)),
        mbits(row.middle(published, rate)),
        fixed(median(&row.ratios(ours, published)), 2),
        [ours, published].map(|side| fixed(row.middle(side, cpu), 1)).join(" : "),
    ]
}

fn line(row: &Row) -> [String; 9] {
    let ratios = row.ratios(ours, published);
    let between = spread(&ratios).map_or("-".into(), |(low, high)| format!("{low:.2}..{high:.2}"));
    [
        row.name(),
        mbits(row.middle(ours, rate)),
        mbits(row.middle(published, rate)),
        mbits(row.middle(null, rate)),
        fixed(median(&ratios), 2),
        between,
        format!("{:.2}", row.floor()),
        row.verdict().into(),
        [ours, published, null].map(|side| fixed(row.middle(side, cpu), 2)).join(" : "),
    ]
}

/// The findings as text.
pub(super) fn text(findings: &Findings, plan: Plan) -> String {
    let mut out =
        format!("\n{} pairs of runs of {:?}; medians; Mbit/s\n\n", plan.pairs, plan.seconds);
    let mut lines = vec![HEAD.map(String::from)];
    lines.extend(findings.rows.iter().map(line));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(out, "{cell:width$}  ");
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    for row in &findings.rows {
        for error in &row.errors {
            let _ = writeln!(out, "\n{}: {error}", row.name());
        }
    }
    if let Some(memory) = &findings.memory {
        out.push_str(&of_memory(memory));
    }
    if let Some(file) = &findings.file {
        out.push_str(&of_file(file));
    }
    out
}

fn of_memory(memory: &Both<Memory>) -> String {
    let mut out = format!(
        "\nresident MiB: started, {IDLE_CONNECTIONS} idle connections, most with \
         {BULK_CONNECTIONS} bulk connections, after\n"
    );
    for (name, taken) in [("Plimsoll", &memory.ours), ("ipstack", &memory.published)] {
        let said = match taken {
            Ok(Memory { started, idle, load, after }) => [started, idle, load, after]
                .map(|bytes| format!("{:8.1}", bytes / 1048576.0))
                .concat(),
            Err(error) => format!("  failed: {error:#}"),
        };
        let _ = writeln!(out, "{name:10}{said}");
    }
    out
}

fn of_file(file: &LongFile) -> String {
    let mut out = format!("\na file of {} MB\n", file.bytes / 1_000_000);
    for (name, taken) in [("Plimsoll", &file.fetched.ours), ("ipstack", &file.fetched.published)] {
        let said = match taken {
            Ok(fetched) if fetched.digest == file.digest => {
                format!("{:.1} s, SHA-256 equal", fetched.seconds)
            }
            Ok(fetched) => format!("{:.1} s, SHA-256 DIFFERS", fetched.seconds),
            Err(error) => format!("failed: {error:#}"),
        };
        let _ = writeln!(out, "{name:10}  {said}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::runs::Direction;
    use super::super::stage::Line;
    use super::*;

    fn row(round_trip: u32, trials: &[[Option<f64>; 3]]) -> Row {
        let bulk = |cpu_per_gb| move |bits_per_s| Bulk { bits_per_s, cpu_per_gb };
        let trial = |[ours, published, null]: &[Option<f64>; 3]| Trial {
            ours: ours.map(bulk(2.0)),
            published: published.map(bulk(3.0)),
            null: null.map(bulk(1.0)),
        };
        Row {
            trials: trials.iter().map(trial).collect(),
            ..Row::new(Line { round_trip, loss: 0 }, Direction::Upload)
        }
    }

    #[test]
    fn the_floor_is_what_the_null_stack_leaves_of_three_times() {
        let fast = row(0, &[[Some(25.0), Some(10.0), Some(100.0)]]);
        assert_eq!((fast.floor(), fast.verdict()), (3.0, "below floor"));
        let bound = row(0, &[[Some(25.0), Some(10.0), Some(30.0)]]);
        assert!((bound.floor() - 2.4).abs() < 1e-9);
        assert_eq!(bound.verdict(), "floor met");
        let better = row(0, &[[Some(25.0), Some(10.0), Some(20.0)]]);
        assert_eq!((better.floor(), better.verdict()), (1.6, "floor met"));
        let stuck =
            row(0, &[[Some(25.0), Some(10.0), Some(20.0)], [Some(25.0), Some(10.0), Some(9.0)]]);
        assert_eq!((stuck.floor(), stuck.verdict()), (3.0, "below floor"));
        let mut costly = row(0, &[[Some(25.0), Some(10.0), Some(20.0)]]);
        costly.trials[0].null = Some(Bulk { bits_per_s: 20.0, cpu_per_gb: 2.5 });
        assert_eq!((costly.floor(), costly.verdict()), (3.0, "below floor"));
        let slow = row(0, &[[Some(9.0), Some(10.0), Some(10.0)]]);
        assert_eq!((slow.floor(), slow.verdict()), (0.95, "below floor"));
        assert_eq!(row(20, &[[Some(10.0), Some(10.0), None]]).verdict(), "floor met");
    }

    #[test]
    fn ratios_are_of_turns_in_which_both_worked() {
        let some = row(20, &[[Some(8.0), None, None], [Some(8.0), Some(2.0), None]]);
        assert_eq!(some.ratios(ours, published), [4.0]);
        assert_eq!(some.verdict(), "floor met");
        assert_eq!(row(20, &[[Some(8.0), None, None]]).verdict(), "only Plimsoll carries it");
        assert_eq!(row(20, &[[None, Some(8.0), None]]).verdict(), "failed");
    }

    #[test]
    fn the_text_has_a_line_for_each_row_and_what_failed() {
        let mut broken = row(20, &[[None, Some(5e8), None]]);
        broken.errors.push("Plimsoll: it sticks".into());
        let file = LongFile {
            bytes: 5_000_000,
            digest: "ab".into(),
            fetched: Both {
                ours: Ok(super::super::Fetched { seconds: 1.0, digest: "cd".into() }),
                published: Err(anyhow::anyhow!("gone")),
            },
        };
        let findings = Findings { rows: vec![broken], memory: None, file: Some(file) };
        assert!(!findings.ours_worked());
        let said = text(&findings, super::super::QUICK);
        for part in ["20 ms, 0 % loss, upload", "500", "it sticks", "DIFFERS", "failed: gone"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
