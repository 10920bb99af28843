//! The top of the page: one sentence, and a table with a row for each mechanism.

use maud::{Markup, html};

use super::about::about;
use super::values::number;
use crate::experiment::{Column, Headline, Report};

/// How many of the published gains were reached.
pub(crate) fn sentence(reports: &[Report]) -> Markup {
    let known: Vec<&Report> = reports.iter().filter(|report| report.headline.is_some()).collect();
    let reached = |report: &&Report| report.headline.as_ref().is_some_and(|h| h.reached);
    let short: Vec<&Report> = known.iter().copied().filter(|report| !reached(report)).collect();
    let cpus = reports.iter().find_map(|report| Some(report.run.as_ref()?.cpus));
    let place = match cpus {
        Some(1) => "on one processor of this machine".to_owned(),
        Some(cpus) => format!("on {cpus} processors of this machine"),
        None => "on this machine".to_owned(),
    };
    html! {
        @match (known.len(), short.len()) {
            (0, _) => "Nothing was measured.",
            (1, 0) => { "The published result is reached or surpassed " (place) "." },
            (all, 0) => { "All " (all) " published results are reached or surpassed " (place) "." },
            (all, missed) => {
                (all - missed) " of " (all) " published results are reached or surpassed "
                (place) "; not reached: "
                @for (index, report) in short.iter().enumerate() {
                    @if index > 0 { ", " }
                    (report.experiment)
                    @if let Some(headline) = &report.headline { " (" (headline.words()) ")" }
                }
                "."
            },
        }
    }
}

/// The table; a card for each mechanism on a phone.
pub(crate) fn table(reports: &[Report]) -> Markup {
    let with_kernel = reports.iter().any(|report| !report.kernel.is_null());
    html! {
        div.scroll { table.sum {
            thead {
                tr {
                    th { "mechanism" }
                    th { "published" }
                    th { "measured" }
                    th { "all on" }
                    @if with_kernel { th { "kernel" } }
                    th { "after / before" }
                    th { "verdict" }
                }
            }
            tbody {
                @for report in reports { (row(report, with_kernel)) }
            }
        } }
    }
}

fn row(report: &Report, with_kernel: bool) -> Markup {
    let about = about(report.experiment);
    let title = if about.title.is_empty() { report.experiment } else { about.title };
    html! {
        tr {
            td {
                a href=(format!("#{}", report.experiment)) { (title) }
                span.sub { code { (report.knob) } }
                @if let Some(headline) = &report.headline { span.sub { (headline.label) } }
            }
            @if let Some(headline) = &report.headline {
                (figures(report, headline, with_kernel))
            }
        }
    }
}

fn figures(report: &Report, headline: &Headline, with_kernel: bool) -> Markup {
    let Headline { published, measured, ratio, .. } = headline;
    let show =
        |value: Option<f64>| number(value.map(|value| value / headline.scale), headline.places);
    html! {
        td data-label="published" {
            span {
                (show(Some(published.before))) " → " (show(Some(published.after)))
                span.sub { "ratio " (number(Some(published.ratio), 2)) }
            }
        }
        td data-label="measured" { span { (show(measured.before)) " → " (show(measured.after)) } }
        td data-label="all on" { (show(measured.best)) }
        @if with_kernel { td data-label="kernel" { (kernel(report, headline)) } }
        td data-label="after / before" {
            @match ratio {
                Some(r) => span {
                    b { (number(Some(r.median), 2)) }
                    span.sub { "from " (number(Some(r.min), 2)) " to " (number(Some(r.max), 2)) }
                },
                None => "–",
            }
        }
        td data-label="verdict" { span { (pill(headline)) (bars(report, headline)) } }
    }
}

/// The host's own TCP: two figures if it has the knob.
fn kernel(report: &Report, headline: &Headline) -> String {
    let value = |column| headline.of_kernel(&report.kernel, column);
    let show =
        |value: Option<f64>| number(value.map(|value| value / headline.scale), headline.places);
    let after = show(value(Column::After));
    match value(Column::Before) {
        Some(before) => format!("{} → {after}", show(Some(before))),
        None => after,
    }
}

/// The verdict on the figure that decides.
pub(crate) fn pill(headline: &Headline) -> Markup {
    html! {
        span.pill.yes[headline.reached].no[!headline.reached] { (headline.words()) }
    }
}

/// Bars beside the headline that were missed.
fn bars(report: &Report, headline: &Headline) -> Markup {
    let missed = report.verdict.checks.iter().filter(|check| !check.reached).count();
    let missed = missed.saturating_sub(usize::from(!headline.reached));
    html! {
        @match missed {
            0 => {},
            1 => span.sub { "1 other bar missed" },
            many => span.sub { (many) " other bars missed" },
        }
    }
}
