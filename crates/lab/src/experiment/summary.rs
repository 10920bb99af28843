//! The table at the end: one line for each mechanism, and what was missed.

use comfy_table::{CellAlignment, Table, presets};

use super::{Check, Column, Headline, Report, condition};

/// The table, and below it the knobs and what was missed.
pub fn text(reports: &[Report]) -> String {
    let with_kernel = reports.iter().any(|report| !report.kernel.is_null());
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header =
        vec!["mechanism", "figure", "published", "measured", "best", "after/before", "verdict"];
    if with_kernel {
        header.insert(5, "kernel");
    }
    table.set_header(header.iter().copied());
    for report in reports {
        table.add_row(row(report, with_kernel));
    }
    for (index, name) in header.iter().enumerate().skip(2) {
        if let Some(column) = table.column_mut(index).filter(|_| *name != "verdict") {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    out.push('\n');
    for report in reports {
        out.push_str(&format!("{}: {}\n", report.experiment, report.knob));
    }
    for report in reports {
        for line in condition::lines(&report.set_aside) {
            out.push_str(&format!("{}: {line}\n", report.experiment));
        }
    }
    out.push_str(&missed(reports));
    out
}

fn row(report: &Report, with_kernel: bool) -> Vec<String> {
    let mut row = vec![report.experiment.to_owned()];
    let Some(headline) = &report.headline else { return row };
    let Headline { published, measured, ratio, .. } = headline;
    let show = |value| headline.show(value);
    row.push(headline.label.to_owned());
    let mark = if headline.derived.is_some() { " (derived)" } else { "" };
    row.push(format!("{} -> {}{mark}", show(Some(published.before)), show(Some(published.after))));
    row.push(format!("{} -> {}", show(measured.before), show(measured.after)));
    row.push(show(measured.best));
    if with_kernel {
        row.push(kernel(report, headline, " -> ", |value| headline.show(value)));
    }
    row.push(ratio.map_or_else(
        || "-".to_owned(),
        |ratio| format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.min, ratio.max),
    ));
    let bars = missed_beside(report).map(|bars| format!("; {bars}")).unwrap_or_default();
    row.push(headline.words() + &bars);
    row
}

/// The host's own TCP: one figure, or two if it has the knob, with `arrow` between them.
pub(crate) fn kernel(
    report: &Report,
    headline: &Headline,
    arrow: &str,
    show: impl Fn(Option<f64>) -> String,
) -> String {
    let [before, after] =
        [Column::Before, Column::After].map(|column| headline.of_kernel(&report.kernel, column));
    match before {
        Some(_) => format!("{}{arrow}{}", show(before), show(after)),
        None => show(after),
    }
}

/// The bars that were missed, but for the headline itself, which is the first of the checks.
pub(crate) fn others_missed(report: &Report) -> impl Iterator<Item = &Check> {
    let first = usize::from(report.headline.is_some());
    report.verdict.checks.iter().skip(first).filter(|check| !check.reached)
}

/// How many these are, in words; `None` if there are none.
pub(crate) fn missed_beside(report: &Report) -> Option<String> {
    match others_missed(report).count() {
        0 => None,
        1 => Some("1 other bar missed".to_owned()),
        many => Some(format!("{many} other bars missed")),
    }
}

fn missed(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        for what in &report.verdict.not_reproduced {
            out.push_str(&format!("NOT REPRODUCED {}: {what}\n", report.experiment));
        }
        for check in report.verdict.checks.iter().filter(|check| !check.reached) {
            let (name, what) = (report.experiment, &check.what);
            let line = format!("{name}: {what} {}, wanted {}\n", check.measured, check.wanted);
            out.push_str(&format!("MISSED {line}"));
        }
    }
    if !out.is_empty() {
        out.insert(0, '\n');
    }
    out
}
