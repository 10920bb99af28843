//! Figures of a report by their paths, and as words.

use serde_json::Value;

use crate::experiment::{Column, Report, at};

/// A figure that charts and tables show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shows {
    /// What people call it, with its unit.
    pub(crate) label: &'static str,
    /// Its path among the figures.
    pub(crate) path: &'static str,
    /// Decimals.
    pub(crate) places: usize,
    /// What it is divided by.
    pub(crate) scale: f64,
    /// Which way is better; `None` if neither is.
    pub(crate) better: Option<Better>,
}

/// Which way a figure should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

impl Shows {
    pub(crate) const fn new(label: &'static str, path: &'static str, places: usize) -> Shows {
        Shows { label, path, places, scale: 1.0, better: None }
    }

    pub(crate) const fn less(self) -> Shows {
        Shows { better: Some(Better::Less), ..self }
    }

    pub(crate) const fn more(self) -> Shows {
        Shows { better: Some(Better::More), ..self }
    }

    pub(crate) const fn scaled(self, scale: f64) -> Shows {
        Shows { scale, ..self }
    }

    /// Its value among the figures of one column.
    pub(crate) fn of(&self, figures: &Value) -> Option<f64> {
        at(figures, self.path)?.as_f64()
    }

    /// A value in words.
    pub(crate) fn show(&self, value: Option<f64>) -> String {
        number(value.map(|value| value / self.scale), self.places)
    }
}

/// The figures of one column of the headline case.
pub(crate) fn column(report: &Report, column: Column) -> &Value {
    match column {
        Column::Before => &report.before,
        Column::After => &report.after,
        Column::Best => &report.best,
    }
}

/// The figures of the host's own TCP, of the headline case; null where it did not run.
pub(crate) fn kernel(report: &Report, column: Column) -> &Value {
    report.kernel.get(column.name()).unwrap_or(&Value::Null)
}

/// A median with the least and the greatest.
pub(crate) fn spread(spread: Option<&Value>) -> Option<[f64; 3]> {
    let spread = spread?;
    let get = |name| spread.get(name)?.as_f64();
    Some([get("median")?, get("min")?, get("max")?])
}

/// The published figure after over that before, if both were published.
pub(crate) fn published_ratio(report: &Report, path: &str) -> Option<f64> {
    let side = |name| at(report.published.get(name)?, path)?.as_f64();
    crate::figures::per(side("after")?, side("before")?)
}

/// A spread in words.
pub(crate) fn spread_words([median, min, max]: [f64; 3]) -> String {
    format!("{median:.2} ({min:.2}–{max:.2})")
}

/// A number with a thin space between thousands; a dash if it was not taken.
pub(crate) fn number(value: Option<f64>, places: usize) -> String {
    let Some(value) = value else { return "–".into() };
    let text = format!("{value:.places$}");
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text.as_str(), None),
    };
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("−", digits));
    let mut out = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        // Four digits are read without a gap.
        let gap = digits.len() > 4 && index > 0 && (digits.len() - index).is_multiple_of(3);
        out.extend(gap.then_some('\u{202f}'));
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_for_people() {
        let shown = [number(None, 2), number(Some(1234.0), 0), number(Some(-1_234_567.25), 1)];
        assert_eq!(shown, ["–", "1234", "−1\u{202f}234\u{202f}567.2"]);
        let values = json!({"median": 0.666, "min": 0.66, "max": 0.7});
        assert_eq!(spread(Some(&values)).map(spread_words).as_deref(), Some("0.67 (0.66–0.70)"));
        assert_eq!(spread(Some(&json!(3))), None);
    }

    #[test]
    fn figures_by_their_paths() {
        let rate = Shows::new("Gbit/s", "a.rate", 1).scaled(1e9);
        let value = rate.of(&json!({"a": {"rate": 12.34e9}}));
        assert_eq!(rate.show(value), "12.3");
        assert_eq!(rate.show(rate.of(&json!({"a": 3}))), "–");
    }
}
