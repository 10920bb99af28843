//! The screen at the end: what each mechanism does, what was switched, and what that gave.

use super::{Check, Column, Headline, Report, condition};
use crate::experiments;

const YES: &str = "yes";
const UNCLEAR: &str = "unclear";

/// Four lines for each mechanism, and how many show the published gain.
pub fn text(reports: &[Report]) -> String {
    let lines: String = reports.iter().map(mechanism).collect();
    let is_published = |report: &&Report| {
        report.headline.as_ref().is_none_or(|headline| headline.published.is_some())
    };
    let (published, others): (Vec<&Report>, Vec<&Report>) = reports.iter().partition(is_published);
    let result =
        [(published, "at least the published gain"), (others, "a gain where none was published")]
            .map(|(reports, what)| result(&reports, what));
    let result: Vec<String> = result.into_iter().flatten().collect();
    format!("{lines}\nResult: {}.\n", result.join("; "))
}

/// How many of these show it; `None` without any.
fn result(reports: &[&Report], what: &str) -> Option<String> {
    let count = |word| reports.iter().filter(|report| answer(report) == word).count();
    let unclear = match count(UNCLEAR) {
        0 => String::new(),
        count => format!("; {count} unclear, as the machine was busy"),
    };
    let (all, reached) = (reports.len(), count(YES));
    (all > 0).then(|| format!("{reached} of {all} show {what} here{unclear}"))
}

fn mechanism(report: &Report) -> String {
    let about = experiments::find(report.experiment).map_or("", |known| known.about);
    let knob = report.knob.replace(" = ", " ").replace(" / ", " -> ");
    let mut out = format!("{}: {about}\n  off -> on: {knob}\n", report.experiment);
    if let Some(headline) = &report.headline {
        out.push_str(&figures(headline));
        let mut verdict = vec![format!("{}, {}", answer(report), headline.words())];
        verdict.extend(missed_beside(report));
        verdict.extend(condition::disturbance(&report.pairs));
        out.push_str(&format!("  {}\n", verdict.join("; ")));
    }
    out
}

/// Whether a mechanism shows the published gain. On a busy machine its absence proves nothing.
fn answer(report: &Report) -> &'static str {
    if report.headline.as_ref().is_some_and(|headline| headline.reached) {
        YES
    } else if condition::disturbance(&report.pairs).is_some() {
        UNCLEAR
    } else {
        "no"
    }
}

/// The figure that decides, off and on.
fn figures(headline: &Headline) -> String {
    let Headline { label, published, measured, ratio, .. } = headline;
    let show = |before, after, ratio: Option<f64>| {
        let change = ratio.map(|ratio| format!(" ({:+.0} %)", (ratio - 1.0) * 100.0));
        let (before, after) = (headline.show(before), headline.show(after));
        format!("{before} -> {after}{}", change.unwrap_or_default())
    };
    let there = published.map(|sides| {
        let there = show(Some(sides.before), Some(sides.after), Some(sides.ratio));
        format!("published {there}, ")
    });
    let here = show(measured.before, measured.after, ratio.map(|ratio| ratio.median));
    format!("  {label}: {}here {here}\n", there.unwrap_or_default())
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
        1 => Some("1 more check failed".to_owned()),
        many => Some(format!("{many} more checks failed")),
    }
}

/// What was missed and what cannot be compared, a line each.
pub fn missed(reports: &[Report]) -> String {
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
