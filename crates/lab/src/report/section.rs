//! The section of one mechanism.

use maud::{Markup, html};
use serde_json::Value;

use super::about::{About, Scene, about};
use super::sequence::{self, picture};
use super::values::{Shows, column, number, published_ratio, spread, spread_words};
use super::{chart, summary};
use crate::experiment::table::Shown;
use crate::experiment::{CAPTURED, Capture, Column, Report, at, condition};

/// All that is to be shown of it.
pub(crate) fn section(report: &Report) -> Markup {
    let about = about(report.experiment);
    let title = if about.title.is_empty() { report.experiment } else { about.title };
    html! {
        section id=(report.experiment) {
            h2 {
                (title) " "
                @if let Some(headline) = &report.headline { (summary::pill(headline)) }
            }
            p.dim { code { (report.knob) } }
            p { (about.what) }
            @if !about.source.is_empty() { p.dim.small { (about.source) } }
            (chart::figures(report, about))
            (packets(report, about))
            h3 { "What it costs" }
            (costs(report, about.costs))
            h3 { "What was checked" }
            (checks(report))
            details {
                summary { "All figures" }
                (all_figures(report))
            }
            @if let Some(counters) = counters(report) {
                details {
                    summary { "All counters that moved, headline case" }
                    (counters)
                }
            }
        }
    }
}

/// The pictures of packets, before and after, and with everything on.
fn packets(report: &Report, about: &About) -> Markup {
    let case = report.before.get("case").and_then(Value::as_str).unwrap_or_default();
    let of = |column| {
        let is_it = |capture: &&Capture| capture.column == column && capture.case == case;
        report.captures.iter().find(is_it)
    };
    let [before, after, best] = Column::ALL.map(of);
    if before.is_none() && after.is_none() {
        return html! {};
    }
    html! {
        h3 { "Packets, from the captures" }
        p.dim.small { (origin(report, about)) }
        @if !about.look_at.is_empty() { p { (about.look_at) } }
        div.pair {
            (scene(report, about, before, "Before"))
            (scene(report, about, after, "After"))
        }
        (key(about.look(Column::Before).remark.is_some()))
        @if best.is_some() {
            details {
                summary { "The same with everything on" }
                div.pair { (scene(report, about, best, "Everything on")) }
            }
        }
    }
}

/// Where the pictures come from.
fn origin(report: &Report, about: &About) -> String {
    // On the virtual clock a run is as long as it is.
    let length = match at(&report.before, "virtual_seconds") {
        None => format!(" of {} ms", CAPTURED.as_millis()),
        Some(_) => String::new(),
    };
    let chosen = match about.scene {
        Scene::Transaction => {
            "a transaction with the most common number of packets and of middling duration"
        }
        Scene::Bulk(_, None) => {
            "the stretch whose packets are nearest to its average in length and in ACKs for each"
        }
        Scene::Bulk(_, Some(_)) => {
            "the stretch nearest to the average, of the measured runs in the length of packets and \
             of its own in ACKs, and rather one in which a packet was held"
        }
    };
    format!(
        "Each picture is of a separate run{length} that is captured and counts for none of the \
         figures; it shows, of the flow with the most packets, {chosen}."
    )
}

fn scene(report: &Report, about: &About, capture: Option<&Capture>, name: &str) -> Markup {
    let Some(capture) = capture else { return html! {} };
    let kind = about.kind(column(report, capture.column));
    match sequence::choose(&capture.path, kind) {
        Ok(stretch) => {
            let at = stretch.packets.first().map_or(0, |packet| packet.time);
            html! {
                figure {
                    figcaption {
                        b { (name) }
                        (sequence::title(&stretch))
                        span.dim {
                            ", " (format!("{:.0}", at as f64 / 1e6)) " ms into the capture"
                            @if let Some([client, _]) = stretch.ends { ", port " (client.port()) }
                        }
                    }
                    (picture(&stretch, about.look(capture.column), name))
                }
            }
        }
        Err(error) => html! {
            p.dim { (name) ": no picture, since " (format!("{error:#}")) "." }
        },
    }
}

/// What the colours mean.
fn key(with_rule: bool) -> Markup {
    html! {
        ul.key {
            li { i style="background:var(--full)" {} "full segments, divided where they are cut" }
            li { i style="background:var(--tail)" {} "less than a full segment" }
            li { i style="background:var(--dim);height:2px" {} "ACK without data" }
            li { i style="background:var(--hold);width:.45rem;height:1rem" {} "held" }
            @if with_rule {
                li { i.rule {} "the rule of the knob, not seen in the capture" }
            }
            li { "Times are those of the left side’s device; the slope of arrows is no time." }
        }
    }
}

fn costs(report: &Report, costs: &[Shows]) -> Markup {
    let own = |shows: &Shows, c| shows.of(column(report, c));
    let known: Vec<&Shows> =
        costs.iter().filter(|shows| Column::ALL.iter().any(|&c| own(shows, c).is_some())).collect();
    let with_kernel = !report.kernel.is_null();
    let packets = Column::ALL.map(|c| packets_per_second(report, c));
    html! {
        div.scroll {
            table.figures {
                (head(with_kernel))
                @for shows in known { (row(report, shows, None)) }
                @if packets.iter().any(Option::is_some) {
                    tr {
                        td {
                            "packets sent per second"
                            @if at(&report.before, "virtual_seconds").is_none() { ", about" }
                        }
                        @for value in packets { td { (number(value, 0)) } }
                        @if with_kernel { td { "–" } td { "–" } }
                        td {}
                    }
                }
            }
        }
        @if published_ratio(report, "cpu_seconds").is_some() {
            p.dim.small {
                "Seconds of CPU depend on how much was done meanwhile. Here every run lasts equally \
                 long and does what it can, so that the cost of a transaction or a byte tells more."
            }
        }
    }
}

/// The head of a table of figures.
fn head(with_kernel: bool) -> Markup {
    html! {
        tr {
            th { "" }
            th { "before" }
            th { "after" }
            th { "all on" }
            @if with_kernel { th { "kernel before" } th { "kernel after" } }
            th { "after / before" }
        }
    }
}

/// How many columns it has.
fn width(with_kernel: bool) -> usize {
    if with_kernel { 7 } else { 5 }
}

/// A figure of one case, by default the headline case.
fn row(report: &Report, shows: &Shows, case: Option<&str>) -> Markup {
    let own = |c| case_of(column(report, c), case).and_then(|figures| shows.of(figures));
    let host = |c: Column| {
        let kernel = case_of(&report.kernel, case)?;
        shows.of(kernel.get(c.name())?)
    };
    let published = case.is_none().then(|| published_ratio(report, shows.path)).flatten();
    html! {
        tr {
            td { (shows.label) }
            @for c in Column::ALL { td { (shows.show(own(c))) } }
            @if !report.kernel.is_null() {
                @for c in [Column::Before, Column::After] { td { (shows.show(host(c))) } }
            }
            td {
                @if let Some(r) = case_of(&report.ratio, case) { (ratio(r, shows.path)) }
                @if published.is_some() { span.sub { "published " (number(published, 2)) } }
            }
        }
    }
}

/// Packets of IP that the measured side sent. In real time a run lasts a little longer than was
/// planned.
fn packets_per_second(report: &Report, c: Column) -> Option<f64> {
    let figures = column(report, c);
    let seconds = match at(figures, "virtual_seconds").and_then(Value::as_f64) {
        Some(seconds) => seconds,
        None => report.run.as_ref()?.seconds,
    };
    let packets = at(figures, "counters.IpOutRequests")?.as_f64()?;
    crate::figures::per(packets, seconds)
}

/// A ratio, which a phone breaks before its ends and not between them.
fn ratio(ratios: &Value, path: &str) -> Markup {
    let words = spread(at(ratios, path)).map(spread_words).unwrap_or_default();
    html! {
        @if let Some((median, ends)) = words.split_once(' ') {
            (median) " " span.ends { (ends) }
        }
    }
}

fn checks(report: &Report) -> Markup {
    html! {
        ul.checks {
            @for check in &report.verdict.checks {
                li {
                    @if check.reached { span.yes { "✓ ok" } } @else { span.no { "✗ missed" } }
                    span {
                        (check.what) ": " b { (check.measured) }
                        span.dim { " (wanted " (check.wanted) ")" }
                    }
                }
            }
        }
        @if !report.verdict.not_reproduced.is_empty() {
            ul.notes {
                @for what in &report.verdict.not_reproduced {
                    li { b { "Not reproduced: " } (what) }
                }
            }
        }
        @let set_aside = condition::lines(&report.set_aside);
        @if !set_aside.is_empty() {
            ul.notes { @for line in set_aside { li { (line) } } }
        }
        @if !report.verdict.notes.is_empty() {
            ul.notes { @for note in &report.verdict.notes { li { (note) } } }
        }
    }
}

/// A document of one case.
fn case_of<'a>(document: &'a Value, case: Option<&str>) -> Option<&'a Value> {
    match case {
        Some(case) => document.get("cases")?.get(case),
        None => Some(document),
    }
}

fn all_figures(report: &Report) -> Markup {
    let with_kernel = !report.kernel.is_null();
    let headline = report.before.get("case").and_then(Value::as_str).unwrap_or_default();
    let groups = report.shown.chunk_by(|a, b| a.case == b.case);
    html! {
        div.scroll {
            table.figures {
                (head(with_kernel))
                @for group in groups {
                    @let case = group.first().and_then(|shown| shown.case.as_deref());
                    tr { td.case colspan=(width(with_kernel)) { (case.unwrap_or(headline)) } }
                    @for shown in group { (figure_row(report, shown)) }
                }
            }
        }
    }
}

fn figure_row(report: &Report, shown: &Shown) -> Markup {
    let Shown { label, path, places, scale, .. } = *shown;
    row(report, &Shows { scale, ..Shows::new(label, path, places) }, shown.case.as_deref())
}

/// Counters of the headline case that are not zero in every column.
fn counters(report: &Report) -> Option<Markup> {
    let of = |c, name: &str| {
        column(report, c).get("counters").and_then(|all| all.get(name)).and_then(Value::as_f64)
    };
    let moved =
        |name: &&String| Column::ALL.iter().any(|&c| of(c, name).is_some_and(|value| value > 0.0));
    let all = report.before.get("counters")?.as_object()?;
    let names: Vec<&String> = all.keys().filter(moved).collect();
    (!names.is_empty()).then(|| {
        html! {
            div.scroll {
                table.figures {
                    tr { th { "" } @for c in Column::ALL { th { (c.name()) } } }
                    @for name in names {
                        tr {
                            td { code { (name) } }
                            @for c in Column::ALL { td { (number(of(c, name), 0)) } }
                        }
                    }
                }
            }
        }
    })
}
