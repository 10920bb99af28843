//! Medians, ratios, spread, and how they are shown.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Plan;
use super::rows::{Row, Unit};
use super::stage::Sample;
use crate::peer::CONGESTION_CONTROL;

/// All samples of one row. The two lists are paired.
pub(super) struct Measured {
    row: &'static Row,
    ours: Vec<Sample>,
    kernel: Vec<Sample>,
    errors: Vec<String>,
}

impl Measured {
    pub(super) fn new(row: &'static Row) -> Measured {
        Measured { row, ours: Vec::new(), kernel: Vec::new(), errors: Vec::new() }
    }

    pub(super) fn add(&mut self, ours: Sample, kernel: Sample) {
        self.ours.push(ours);
        self.kernel.push(kernel);
    }

    pub(super) fn fail(&mut self, error: &str) {
        self.errors.push(error.into());
    }

    fn ratios(&self) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.kernel);
        pairs.map(|(ours, kernel)| ours.value / kernel.value).collect()
    }

    /// What is held against the budget: the median ratio, or the median value.
    fn verdict(&self) -> Option<(f64, bool, bool)> {
        let Row { floor, aim, unit, .. } = *self.row;
        if unit.absolute() {
            let value = median(&values(&self.ours))?;
            // A hair above is still "2.00": retransmissions of a single packet would decide.
            let within = |budget: f64| value <= budget * 1.002;
            return Some((value, within(floor), within(aim)));
        }
        let ratio = median(&self.ratios())?;
        Some((ratio, ratio >= floor, ratio >= aim))
    }
}

fn values(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.value).collect()
}

fn cpu(samples: &[Sample]) -> Option<f64> {
    median(&samples.iter().filter_map(|sample| sample.cpu).collect::<Vec<_>>())
}

/// The middle of a list, or of its two middles.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[middle - 1] + upper) / 2.0 })
}

/// The smallest and the largest.
pub(super) fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let smallest = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((smallest, largest))
}

/// A value with its unit.
pub(super) fn show(unit: Unit, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    match unit {
        Unit::Bits => format!("{:.2} Gbit/s", value / 1e9),
        Unit::Transactions => format!("{value:.0} /s"),
        Unit::Packets => format!("{value:.2}"),
        Unit::Bytes => format!("{value:.0} B"),
    }
}

/// What the columns are.
const HEAD: [&str; 9] =
    ["work", "ours", "kernel", "ratio", "spread", "floor", "aim", "verdict", "CPU"];

/// Prints a table, and writes it as JSON if that is wanted.
pub(super) fn publish(
    conditions: &str,
    header: &[&str],
    lines: &[Vec<String>],
    json: Option<&Path>,
) -> Result<()> {
    let header: Vec<String> = header.iter().map(|&name| name.to_owned()).collect();
    print!("{}", aligned([header.clone()].into_iter().chain(lines.iter().cloned())));
    let Some(path) = json else { return Ok(()) };
    let table = json!({ "conditions": conditions, "header": header, "rows": lines });
    let text = serde_json::to_string_pretty(&json!({ "table": table }))? + "\n";
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Lines of cells, in columns.
pub(super) fn aligned(lines: impl IntoIterator<Item = Vec<String>>) -> String {
    let lines: Vec<Vec<String>> = lines.into_iter().collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |line: &Vec<String>, column: usize| line.get(column).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().map(|line| width(line, column)).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for line in &lines {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(out, "{cell:width$}  ");
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out
}

/// The table as text.
pub(super) fn text(measured: &[Measured], plan: Plan) -> String {
    let mut out = format!(
        "\n{} runs of {:?} per cell, paired; medians; kernel sockets use {CONGESTION_CONTROL}\n\n",
        plan.repetitions, plan.seconds
    );
    let mut lines = vec![HEAD.map(String::from).to_vec()];
    lines.extend(measured.iter().map(|row| line(row).to_vec()));
    out.push_str(&aligned(lines));
    for row in measured.iter().filter(|row| row.row.against.ends_with("passes")) {
        let _ = writeln!(out, "\n{}: the kernel's column holds {}.", row.row.name, row.row.against);
    }
    for row in measured {
        for error in &row.errors {
            let _ = writeln!(out, "\n{}: {error}", row.row.name);
        }
    }
    out
}

fn line(measured: &Measured) -> [String; 9] {
    let row = measured.row;
    let verdict = match measured.verdict() {
        None => "failed",
        Some((_, _, true)) => "aim met",
        Some((_, true, _)) => "floor met",
        Some(_) => "below floor",
    };
    let ratio = median(&measured.ratios()).map_or("-".into(), |ratio| format!("{ratio:.2}"));
    let spread = spread(&measured.ratios())
        .map_or("-".into(), |(smallest, largest)| format!("{smallest:.2}..{largest:.2}"));
    let processors = |samples: &[Sample]| {
        cpu(samples).map_or("-".into(), |processors| format!("{processors:.2}"))
    };
    let budget =
        |value: f64| if row.unit.absolute() { value.to_string() } else { format!("{value} x") };
    [
        row.name.into(),
        show(row.unit, median(&values(&measured.ours))),
        show(row.unit, median(&values(&measured.kernel))),
        ratio,
        spread,
        budget(row.floor),
        budget(row.aim),
        verdict.into(),
        format!("{} / {}", processors(&measured.ours), processors(&measured.kernel)),
    ]
}

/// The table as JSON, with every sample.
pub(super) fn json(measured: &[Measured], plan: Plan) -> Value {
    let rows: Vec<Value> = measured.iter().map(row_json).collect();
    json!({
        "repetitions": plan.repetitions,
        "seconds": plan.seconds.as_secs_f64(),
        "kernel_congestion_control": CONGESTION_CONTROL,
        "kernel_release": std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .map(|release| release.trim().to_string()).ok(),
        "processors": std::thread::available_parallelism().map(usize::from).ok(),
        "rows": rows,
        "table": {
            "conditions": format!(
                "Medians of {} pairs of runs of {:?} s. The kernel uses {CONGESTION_CONTROL}. CPU is \
                 in CPUs kept busy: our process / the kernel's program that reads, writes or asks.",
                plan.repetitions,
                plan.seconds.as_secs_f64()
            ),
            "header": HEAD,
            "rows": measured.iter().map(line).collect::<Vec<_>>(),
        },
    })
}

fn row_json(measured: &Measured) -> Value {
    let row = measured.row;
    let unit = match row.unit {
        Unit::Bits => "bits_per_s",
        Unit::Transactions => "transactions_per_s",
        Unit::Packets => "packets_per_transaction",
        Unit::Bytes => "bytes",
    };
    let (smallest, largest) = spread(&measured.ratios()).unzip();
    json!({
        "work": row.name,
        "unit": unit,
        "against": row.against,
        "ours": values(&measured.ours),
        "kernel": values(&measured.kernel),
        "ours_median": median(&values(&measured.ours)),
        "kernel_median": median(&values(&measured.kernel)),
        "ratio_median": median(&measured.ratios()),
        "ratio_min": smallest,
        "ratio_max": largest,
        "ours_cpu": cpu(&measured.ours),
        "kernel_cpu": cpu(&measured.kernel),
        "floor": row.floor,
        "aim": row.aim,
        "floor_met": measured.verdict().map(|(_, floor, _)| floor),
        "aim_met": measured.verdict().map(|(_, _, aim)| aim),
        "errors": measured.errors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[2.0, 1.0, 3.0]), Some((1.0, 3.0)));
    }

    #[test]
    fn ratios_are_paired() {
        let mut measured = Measured::new(&super::super::rows::ALL[0]);
        for (ours, kernel) in [(10.0, 1.0), (30.0, 2.0), (12.0, 3.0)] {
            let sample = |value| Sample { value, cpu: None };
            measured.add(sample(ours), sample(kernel));
        }
        assert_eq!(measured.ratios(), [10.0, 15.0, 4.0]);
        assert_eq!(measured.verdict(), Some((10.0, true, false)));
        assert!(text(&[measured], super::super::QUICK).contains("floor met"));
    }
}
