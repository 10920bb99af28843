//! The table at the end: figure by figure, published and measured, before, after and best.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::{Report, at, condition};

/// A figure that the table shows.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// The case; `None` is the headline.
    pub case: Option<String>,
    /// What people call it.
    pub label: &'static str,
    /// Its path among the figures.
    pub path: &'static str,
    /// Decimals.
    pub places: usize,
    /// What it is divided by for people, as 1e6 for Mbit/s.
    pub scale: f64,
}

impl Shown {
    /// A figure of the headline as it is.
    pub const fn new(label: &'static str, path: &'static str, places: usize) -> Shown {
        Shown { case: None, label, path, places, scale: 1.0 }
    }

    /// The same figure of another case.
    pub fn of(&self, case: &str) -> Shown {
        Shown { case: Some(case.to_owned()), ..self.clone() }
    }

    /// Divided by `scale`.
    pub const fn scaled(mut self, scale: f64) -> Shown {
        self.scale = scale;
        self
    }

    fn find<'a>(&self, column: &'a Value) -> Option<&'a Value> {
        at(self.columns(column)?, self.path)
    }

    /// The part of a document that is this case's.
    fn columns<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        match &self.case {
            Some(case) => document.get("cases")?.get(case),
            None => Some(document),
        }
    }

    fn show(&self, column: &Value) -> String {
        let value = self.find(column).and_then(Value::as_f64);
        crate::figures::decimal(value.map(|value| value / self.scale), self.places)
    }

    /// The host's own TCP: one value, or two if it has the knob; nothing if it did not run.
    fn kernel(&self, kernel: &Value) -> String {
        let Some(columns) = self.columns(kernel) else { return String::new() };
        let show = |column: &str| {
            let value = columns.get(column).and_then(|run| at(run, self.path)?.as_f64());
            crate::figures::decimal(value.map(|value| value / self.scale), self.places)
        };
        match columns.get("before").is_some_and(|before| !before.is_null()) {
            true => format!("{} -> {}", show("before"), show("after")),
            false => show("after"),
        }
    }

    fn kernel_ratio(&self, kernel: &Value) -> String {
        let ratios = self.columns(kernel).and_then(|columns| at(columns, "ratio"));
        ratios.and_then(|ratios| at(ratios, self.path)).map_or_else(String::new, spread)
    }

    fn ratio(&self, ratios: &Value) -> String {
        self.find(ratios).map_or_else(|| "-".to_owned(), spread)
    }

    fn published(&self, report: &Report) -> String {
        if self.case.is_some() {
            return String::new();
        }
        let get = |side: &str| report.published.get(side)?.get(self.path)?.as_f64();
        let side = |name| crate::figures::decimal(get(name).map(|v| v / self.scale), self.places);
        let derived = report.published.get("derived").and_then(|all| all.get(self.path));
        let mark = if derived.is_some() { " (derived)" } else { "" };
        match get("before") {
            Some(_) => format!("{} -> {}{mark}", side("before"), side("after")),
            None => String::new(),
        }
    }
}

/// Median, least and greatest.
fn spread(spread: &Value) -> String {
    let get = |name| spread.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
    format!("{:.2} ({:.2}-{:.2})", get("median"), get("min"), get("max"))
}

/// The table of some experiments, with their verdicts.
pub fn text(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        out.push_str(&format!("{} (seed {}): {}\n", report.experiment, report.seed, report.knob,));
        let workload = report.published["workload"].as_str().filter(|words| !words.is_empty());
        out.extend(workload.map(|words| format!("  published for {words}\n")));
        for (path, how) in report.published["derived"].as_object().into_iter().flatten() {
            out.push_str(&format!("  derived: {path}, {}\n", how.as_str().unwrap_or_default()));
        }
        for (name, value) in report.pinned.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            out.push_str(&format!("  pinned: {name} = {value}\n"));
        }
        out.push_str(&rows(report));
        out.push_str(&verdict(report));
        out.push('\n');
    }
    out
}

fn rows(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let with_kernel = !report.kernel.is_null();
    let mut header = vec!["case", "figure", "published", "before", "after", "best", "after/before"];
    if with_kernel {
        header.extend(["kernel", "after/before"]);
    }
    table.set_header(header.iter().copied());
    let headline = report.before["case"].as_str().unwrap_or_default().to_owned();
    let mut last = String::new();
    for shown in &report.shown {
        let case = shown.case.clone().unwrap_or_else(|| headline.clone());
        let label = if case == last { String::new() } else { case.clone() };
        last = case;
        let mut row = vec![
            label,
            shown.label.to_owned(),
            shown.published(report),
            shown.show(&report.before),
            shown.show(&report.after),
            shown.show(&report.best),
            shown.ratio(&report.ratio),
        ];
        if with_kernel {
            row.push(shown.kernel(&report.kernel));
            row.push(shown.kernel_ratio(&report.kernel));
        }
        table.add_row(row);
    }
    for index in 2..header.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn verdict(report: &Report) -> String {
    let mut out = format!("  verdict: {}\n", report.verdict.summary);
    for check in &report.verdict.checks {
        let mark = if check.reached { "ok    " } else { "MISSED" };
        out.push_str(&format!(
            "    {mark} {}: {} (wanted {})\n",
            check.what, check.measured, check.wanted
        ));
    }
    for line in condition::lines(&report.set_aside) {
        out.push_str(&format!("  {line}\n"));
    }
    for what in &report.verdict.not_reproduced {
        out.push_str(&format!("  not reproduced: {what}\n"));
    }
    for note in &report.verdict.notes {
        out.push_str(&format!("  note: {note}\n"));
    }
    out
}
