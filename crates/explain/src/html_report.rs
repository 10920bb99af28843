//! The report as a page.

use maud::{Markup, html};

use crate::html::page;
use crate::report::{DirectionReport, Finding, FlowReport, Report};
use crate::text::{caveats, cost, examples, no_findings, place, plural, skipped};

/// The report as one self-contained page, with the first `top` flows that have findings.
pub fn html_report(report: &Report, top: usize) -> String {
    let flows = report.flows.iter().filter(|flow| !flow.findings.is_empty());
    let count = flows.clone().count();
    let body = html! {
        h1 { "What held " (report.file) " up" }
        p.dim {
            (plural(report.packets, "packet")) ", " (report.tcp_packets) " of TCP in "
            (plural(report.flows_seen, "flow")) ", "
            (format!("{:.3}", report.duration_ms.unwrap_or(0.0) / 1e3)) " s"
        }
        @if let Some(skipped) = skipped(report) { p.dim { (skipped) } }
        @if let Some(note) = &report.note { p.cost { (note) } }
        @for note in caveats(report) { p.dim { (note) } }
        (totals(report))
        @for each in flows.take(top) { (flow(each)) }
        @if count > top { p.dim { (plural((count - top) as u64, "flow")) " more with findings." } }
        p.dim { "Made by plimsoll explain " (env!("CARGO_PKG_VERSION")) "." }
    };
    page(&format!("{} explained", report.file), &body)
}

fn totals(report: &Report) -> Markup {
    if let Some(said) = no_findings(report) {
        return html! { p.good { (said) } };
    }
    let most = report.totals.iter().map(|sum| sum.score).fold(f64::MIN_POSITIVE, f64::max);
    html! {
        h2 { "All flows, by cost" }
        @for sum in &report.totals {
            div.card {
                h3 { (sum.kind.title()) }
                p {
                    (plural(sum.count, "time")) ", "
                    span.cost { (cost(sum.kind, sum.packets, sum.ms, sum.share)) }
                }
                div.bar style=(format!("width:{:.1}%", sum.score / most * 100.0)) {}
            }
        }
        @if report.evicted.flows > 0 {
            p.dim {
                (plural(report.evicted.flows, "flow")) " of "
                (plural(report.evicted.packets, "packet"))
                " given up while many were open; these sums have them, the rest has not."
            }
        }
    }
}

fn flow(flow: &FlowReport) -> Markup {
    html! {
        h2 { (flow.client) " → " (flow.server) }
        p.dim {
            (format!("{:.1}", flow.duration_ms)) " ms, " (place(flow))
        }
        @for each in &flow.findings { (finding(each)) }
        @for note in &flow.notes { p.dim { (note.text) } }
        details {
            summary { "Figures" }
            div.scroll { (figures(&flow.directions)) }
        }
    }
}

fn finding(finding: &Finding) -> Markup {
    html! {
        div.card {
            h3 { (finding.title) " (" (finding.from.name()) ")" }
            p {
                span.cost { (cost(finding.kind, finding.packets, finding.ms, finding.share)) }
                ": " (finding.detail) "."
            }
            p { (finding.cause) }
            p { strong { "What to do: " } (finding.remedy) }
            @if let Some(examples) = examples(finding) { p.dim { (examples) } }
        }
    }
}

/// A row of the table: its name, and how it is read from a direction.
type Row = (&'static str, fn(&DirectionReport) -> String);

const ROWS: [Row; 14] = [
    ("packets", |side| side.packets.to_string()),
    ("bytes", |side| side.bytes.to_string()),
    ("data packets", |side| side.data_packets.to_string()),
    ("MSS", |side| side.mss.to_string()),
    ("super-segments", |side| side.super_segments.to_string()),
    ("segments on the wire", |side| side.wire_segments.to_string()),
    ("sent again", |side| side.retransmissions.to_string()),
    ("out of order", |side| side.reordered.to_string()),
    ("bytes not captured", |side| side.missing_bytes.to_string()),
    ("captured twice", |side| side.duplicates.to_string()),
    ("ACKs alone", |side| side.pure_acks.to_string()),
    ("ACKs per MB", |side| known(side.acks_per_megabyte, 0)),
    ("segments per ACK", |side| known(side.stretch, 1)),
    ("ACKs if deferred", |side| side.deferred_acks.to_string()),
];

/// A figure with this many places, or a dash.
fn known(figure: Option<f64>, places: usize) -> String {
    figure.map_or("–".into(), |figure| format!("{figure:.places$}"))
}

fn figures(sides: &[DirectionReport; 2]) -> Markup {
    html! {
        table {
            tr {
                th { "" }
                @for side in sides { th { (side.from.name()) } }
            }
            @for (name, value) in ROWS {
                tr {
                    td { (name) }
                    @for side in sides { td { (value(side)) } }
                }
            }
        }
    }
}
