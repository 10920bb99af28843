//! Medians, ratios to the way that this stack goes and their spread, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Cell, Kind, Processors, Row, Sample, WORKS, Work, YARDSTICK};
use crate::bench::Plan;
use crate::bench::table::{aligned, median, spread};

impl Cell {
    fn figures(&self, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().flatten().map(figure).collect()
    }

    fn median(&self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(&self.figures(figure))
    }

    /// What it reached, as a part of what the other one did in the same repetition.
    fn ratios(&self, other: &Cell) -> Vec<f64> {
        let pairs = self.samples.iter().zip(&other.samples);
        pairs.filter_map(|(one, other)| Some((*one)?.rate / (*other)?.rate)).collect()
    }
}

impl Work {
    /// Whether one processor does all: then its time is that of the transactions.
    fn on_one(&self) -> bool {
        matches!(self.kind, Kind::Echo { processors: Processors::One, .. })
    }

    /// A rate as it is shown: the time of a transaction where they come one after the other.
    fn show(&self, rate: f64) -> String {
        match self.kind {
            Kind::Echo { flows: 1, .. } => format!("{:.1} us", 1e6 / rate),
            Kind::Echo { .. } if self.on_one() => format!("{:.1} us", 1e6 / rate),
            Kind::Echo { .. } => format!("{:.1} k/s", rate / 1e3),
            Kind::Bulk => format!("{:.2} Gbit/s", rate * 8.0 / 1e9),
        }
    }

    fn show_busy(&self, seconds: f64) -> String {
        match self.kind {
            Kind::Echo { .. } => format!("{:.1} us", seconds * 1e6),
            Kind::Bulk => format!("{:.2} ns", seconds * 1e9),
        }
    }
}

fn header() -> Vec<String> {
    let mut header = vec!["way".to_owned()];
    for work in &WORKS {
        header.push(work.name.to_owned());
        header.extend((!work.on_one()).then(|| "CPU".to_owned()));
    }
    header.push("bytes in a packet".to_owned());
    header
}

fn yardstick(rows: &[Row]) -> Option<&Row> {
    rows.iter().find(|row| row.way.name == YARDSTICK)
}

fn line(row: &Row, rows: &[Row]) -> Vec<String> {
    let mut line = vec![row.way.title.to_owned()];
    for (place, (work, cell)) in WORKS.iter().zip(&row.cells).enumerate() {
        let other = yardstick(rows).map(|row| &row.cells[place]);
        line.push(value(row, work, cell, other));
        if !work.on_one() {
            let busy = cell.median(|sample| sample.busy);
            line.push(busy.map_or_else(|| "-".to_owned(), |busy| work.show_busy(busy)));
        }
    }
    let bulk = WORKS.iter().position(|work| work.kind == Kind::Bulk);
    let each = bulk.and_then(|place| row.cells[place].median(|sample| sample.each));
    line.push(each.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}")));
    line
}

/// The median, and the ratio with its spread if there is something to compare with.
fn value(row: &Row, work: &Work, cell: &Cell, other: Option<&Cell>) -> String {
    let Some(rate) = cell.median(|sample| sample.rate) else {
        return if row.unavailable.is_some() { "not available" } else { "failed" }.to_owned();
    };
    let mut out = work.show(rate);
    let ratios = other.map(|other| cell.ratios(other)).unwrap_or_default();
    if let (false, Some(ratio), Some((least, most))) =
        (row.way.name == YARDSTICK, median(&ratios), spread(&ratios))
    {
        let _ = write!(out, " = {ratio:.2} ({least:.2}..{most:.2})");
    }
    out
}

/// What has no figure, or not one of each repetition, and why.
fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    for row in rows {
        let title = row.way.name;
        notes.extend(row.unavailable.iter().map(|why| format!("{title} is not available: {why}")));
        for (work, cell) in WORKS.iter().zip(&row.cells) {
            if let Some(error) = cell.errors.last() {
                let last = error.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
                let times = cell.errors.len();
                notes.push(format!("{title}, {}: {times} failed, the last: {last}", work.name));
            }
        }
    }
    notes
}

/// The table as text.
pub(super) fn text(plan: Plan, rows: &[Row]) -> String {
    let mut out = format!(
        "\n{} rounds of {:?} for each cell, interleaved; medians, = the ratio of rates to `{YARDSTICK}` \
         (spread); CPU is the whole machine's, for a transaction or a byte\n\n",
        plan.repetitions, plan.seconds
    );
    let lines = rows.iter().map(|row| line(row, rows));
    out.push_str(&aligned(std::iter::once(header()).chain(lines)));
    for note in notes(rows) {
        let _ = writeln!(out, "\n{note}");
    }
    out
}

/// The table as JSON, with every sample.
pub(super) fn json(plan: Plan, rows: &[Row]) -> Value {
    json!({
        "repetitions": plan.repetitions,
        "seconds": plan.seconds.as_secs_f64(),
        "ways": rows.iter().map(|row| row_json(row, rows)).collect::<Vec<_>>(),
        "notes": notes(rows),
        "table": {
            "header": header(),
            "rows": rows.iter().map(|row| line(row, rows)).collect::<Vec<_>>(),
        },
    })
}

fn row_json(row: &Row, rows: &[Row]) -> Value {
    let works = WORKS.iter().zip(&row.cells).enumerate().map(|(place, (work, cell))| {
        let ratios = yardstick(rows).map(|other| cell.ratios(&other.cells[place]));
        let ratios = ratios.unwrap_or_default();
        let (least, most) = spread(&ratios).unzip();
        json!({
            "work": work.name,
            "rates": cell.figures(|sample| sample.rate),
            "busy_seconds": cell.figures(|sample| sample.busy),
            "rate_median": cell.median(|sample| sample.rate),
            "busy_seconds_median": cell.median(|sample| sample.busy),
            "ratio_median": median(&ratios),
            "ratio_min": least,
            "ratio_max": most,
            "in_a_packet": cell.median(|sample| sample.each),
            "errors": cell.errors,
        })
    });
    json!({
        "way": row.way.name,
        "unavailable": row.unavailable,
        "works": works.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{QUICK, WAYS};
    use super::*;

    fn row(name: &str, rates: &[Option<f64>]) -> Row {
        let way = WAYS.iter().find(|way| way.name == name).unwrap();
        let mut row = Row::new(way);
        for cell in &mut row.cells {
            let sample = |rate: f64| Sample { rate, busy: 2e-6, each: 1472.0 };
            cell.samples = rates.iter().map(|rate| rate.map(sample)).collect();
        }
        row
    }

    #[test]
    fn a_line_has_medians_and_the_ratio_of_each_round() {
        let base = row(YARDSTICK, &[Some(1e4), Some(2e4), Some(1e4)]);
        let rows = [base, row("tun-napi", &[Some(1e4), Some(3e4), Some(2e4)])];
        let made = line(&rows[1], &rows);
        assert_eq!(made.len(), header().len());
        assert_eq!(made[1..3], ["50.0 us = 1.50 (1.00..2.00)"; 2]);
        assert_eq!(made[5..7], ["50.0 us = 1.50 (1.00..2.00)", "2.0 us"]);
        assert_eq!(made[7..9], ["20.0 k/s = 1.50 (1.00..2.00)", "2.0 us"]);
        assert_eq!(made[13..], ["0.00 Gbit/s = 1.50 (1.00..2.00)", "2000.00 ns", "1472"]);
        assert_eq!(line(&rows[0], &rows)[1], "100.0 us");
        assert_eq!(json(QUICK, &rows)["ways"][1]["works"][0]["ratio_max"], 2.0);
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut rows = [row("uring-pair", &[None]), row("packet", &[None, Some(1e3)])];
        rows[0].unavailable = Some("io_uring_setup: EPERM".into());
        rows[1].cells[0].errors.push("it sticks\n\nunavailable\n".into());
        let made = text(QUICK, &rows);
        assert_eq!(line(&rows[0], &rows)[4..7], ["not available", "not available", "-"]);
        assert!(made.contains("\nuring-pair is not available: io_uring_setup: EPERM\n"), "{made}");
        assert!(made.contains("1 failed, the last: unavailable"), "{made}");
        // There is nothing to compare with.
        assert_eq!(line(&rows[1], &rows)[1], "1000.0 us");
        rows[0].unavailable = None;
        assert_eq!(line(&rows[0], &rows)[1], "failed");
    }
}
