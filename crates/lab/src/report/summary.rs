//! The top of the page: one sentence, and a table with a row for each mechanism.

use maud::{Markup, html};

use super::about::about;
use super::values::number;
use crate::experiment::summary::{kernel, missed_beside, others_missed};
use crate::experiment::{Headline, Report};

/// How many of the published gains the headline figures reach, and which bars were missed beside.
pub(crate) fn sentence(reports: &[Report]) -> Markup {
    let judged: Vec<(&Report, &Headline)> =
        reports.iter().filter_map(|report| Some((report, report.headline.as_ref()?))).collect();
    if judged.is_empty() {
        return html! { "Nothing was measured." };
    }
    let (known, others_known): (Vec<_>, Vec<_>) =
        judged.into_iter().partition(|(_, headline)| headline.published.is_some());
    let gained = others_known.iter().filter(|(_, headline)| headline.reached).count();
    let known: Vec<&Report> = known.into_iter().map(|(report, _)| report).collect();
    let short = |report: &&Report| report.headline.as_ref().filter(|h| !h.reached).is_some();
    let short: Vec<&Report> = known.iter().copied().filter(short).collect();
    let reached = known.len() - short.len();
    html! {
        @if !others_known.is_empty() {
            "Of " (others_known.len()) " without a published figure " (gained) " show a gain. "
        }
        "In " (reached) " of " (known.len()) " the headline figure reaches the published gain or \
         surpasses it, " (place(reports))
        @for (index, report) in short.iter().enumerate() {
            @if index == 0 { "; not in " } @else { ", " }
            (report.experiment)
            @if let Some(headline) = &report.headline { " (" (headline.words()) ")" }
        }
        ". "
        (others(reports))
    }
}

fn place(reports: &[Report]) -> String {
    match reports.iter().find_map(|report| Some(report.run.as_ref()?.cpus)) {
        Some(1) => "on one processor of this machine".to_owned(),
        Some(cpus) => format!("on {cpus} processors of this machine"),
        None => "on this machine".to_owned(),
    }
}

/// How many bars beside the headlines were missed.
fn others(reports: &[Report]) -> Markup {
    let missed: usize = reports.iter().map(|report| others_missed(report).count()).sum();
    let all: usize = reports.iter().map(|report| report.verdict.checks.len()).sum();
    let all = all - reports.iter().filter(|report| report.headline.is_some()).count();
    html! {
        @match missed {
            0 => "No other bar was missed.",
            1 => { "Of the " (all) " other bars 1 was missed." },
            many => { "Of the " (all) " other bars " (many) " were missed." },
        }
    }
}

/// These bars, mechanism by mechanism; nothing if there are none.
pub(crate) fn missed(reports: &[Report]) -> Markup {
    let missing = |report: &&Report| others_missed(report).next().is_some();
    let missing: Vec<&Report> = reports.iter().filter(missing).collect();
    html! {
        @if !missing.is_empty() {
            h3 { "Also missed" }
            ul.notes {
                @for report in missing {
                    li {
                        a href=(format!("#{}", report.experiment)) { (report.experiment) }
                        ul {
                            @for check in others_missed(report) {
                                li {
                                    (check.what) ": " b { (check.measured) }
                                    span.dim { " (wanted " (check.wanted) ")" }
                                }
                            }
                        }
                    }
                }
            }
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
            @match published {
                Some(published) => span {
                    (show(Some(published.before))) " → " (show(Some(published.after)))
                    span.sub { "ratio " (number(Some(published.ratio), 2)) }
                },
                None => "–",
            }
        }
        td data-label="measured" { span { (show(measured.before)) " → " (show(measured.after)) } }
        td data-label="all on" { (show(measured.best)) }
        @if with_kernel { td data-label="kernel" { (kernel(report, headline, " → ", show)) } }
        td data-label="after / before" {
            @match ratio {
                Some(r) => span {
                    b { (number(Some(r.median), 2)) }
                    span.sub { "from " (number(Some(r.min), 2)) " to " (number(Some(r.max), 2)) }
                },
                None => "–",
            }
        }
        td data-label="verdict" {
            span {
                (pill(headline))
                @if let Some(bars) = missed_beside(report) { span.sub { (bars) } }
            }
        }
    }
}

/// The verdict on the figure that decides.
pub(crate) fn pill(headline: &Headline) -> Markup {
    html! {
        span.pill.yes[headline.reached].no[!headline.reached] { (headline.words()) }
    }
}
