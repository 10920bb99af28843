//! The table at the end: figure by figure, published and measured, before, after and best.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

use super::{Report, at};

/// A figure that the table shows.
#[derive(Clone, Debug)]
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
        let column = match &self.case {
            Some(case) => column.get("cases")?.get(case)?,
            None => column,
        };
        at(column, self.path)
    }

    fn show(&self, column: &Value) -> String {
        let value = self.find(column).and_then(Value::as_f64);
        crate::figures::decimal(value.map(|value| value / self.scale), self.places)
    }

    fn ratio(&self, report: &Report) -> String {
        let Some(spread) = self.find(&report.ratio) else { return "-".into() };
        let get = |name| spread.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
        format!("{:.2} ({:.2}-{:.2})", get("median"), get("min"), get("max"))
    }

    fn published(&self, report: &Report) -> String {
        if self.case.is_some() {
            return String::new();
        }
        let get = |side: &str| report.published.get(side)?.get(self.path)?.as_f64();
        let side = |name| crate::figures::decimal(get(name).map(|v| v / self.scale), self.places);
        match get("before") {
            Some(_) => format!("{} -> {}", side("before"), side("after")),
            None => String::new(),
        }
    }
}

/// The table of some experiments, with their verdicts.
pub fn text(reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        out.push_str(&format!(
            "{} (seed {}): {}\n  published for {}\n",
            report.experiment,
            report.seed,
            report.knob,
            report.published["workload"].as_str().unwrap_or_default(),
        ));
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
    table.set_header(["case", "figure", "published", "before", "after", "best", "after/before"]);
    let headline = report.before["case"].as_str().unwrap_or_default().to_owned();
    let mut last = String::new();
    for shown in &report.shown {
        let case = shown.case.clone().unwrap_or_else(|| headline.clone());
        let label = if case == last { String::new() } else { case.clone() };
        last = case;
        table.add_row([
            label,
            shown.label.to_owned(),
            shown.published(report),
            shown.show(&report.before),
            shown.show(&report.after),
            shown.show(&report.best),
            shown.ratio(report),
        ]);
    }
    for index in 2..7 {
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
    for note in &report.verdict.notes {
        out.push_str(&format!("  note: {note}\n"));
    }
    out
}
