//! The report as a page.

use maud::{Markup, html};

use crate::html::page;
use crate::report::{DirectionReport, Finding, FlowReport, Report};
use crate::text::{cost, examples, no_findings, round_trip, skipped};

/// The report as one self-contained page, with the first `top` flows that have findings.
pub fn html_report(report: &Report, top: usize) -> String {
    let flows = report.flows.iter().filter(|flow| !flow.findings.is_empty());
    let count = flows.clone().count();
    let body = html! {
        h1 { "What held " (report.file) " up" }
        p.dim {
            (report.packets) " packets, " (report.tcp_packets) " of TCP in " (report.flows_seen)
            " flows, " (format!("{:.3}", report.duration_ms.unwrap_or(0.0) / 1e3)) " s"
        }
        @if let Some(skipped) = skipped(report) { p.dim { (skipped) } }
        @if let Some(note) = &report.note { p.cost { (note) } }
        (totals(report))
        @for each in flows.take(top) { (flow(each)) }
        @if count > top { p.dim { (count - top) " more flows have findings." } }
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
                p { (sum.count) " times, " span.cost { (cost(sum.packets, sum.ms)) } }
                div.bar style=(format!("width:{:.1}%", sum.score / most * 100.0)) {}
            }
        }
        @if report.evicted.flows > 0 {
            p.dim {
                (report.evicted.flows) " flows with " (report.evicted.packets)
                " packets were given up while many were open; they are in these sums only."
            }
        }
    }
}

fn flow(flow: &FlowReport) -> Markup {
    html! {
        h2 { (flow.client) " → " (flow.server) }
        p.dim {
            (format!("{:.1}", flow.duration_ms)) " ms, " (round_trip(flow))
        }
        @for each in &flow.findings { (finding(each)) }
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
            p { span.cost { (cost(finding.packets, finding.ms)) } ": " (finding.detail) "." }
            p { (finding.cause) }
            p { strong { "What to do: " } (finding.remedy) }
            @if let Some(examples) = examples(finding) { p.dim { (examples) } }
        }
    }
}

/// A row of the table: its name, and how it is read from a direction.
type Row = (&'static str, fn(&DirectionReport) -> String);

const ROWS: [Row; 12] = [
    ("packets", |side| side.packets.to_string()),
    ("bytes", |side| side.bytes.to_string()),
    ("data packets", |side| side.data_packets.to_string()),
    ("MSS", |side| side.mss.to_string()),
    ("super-segments", |side| side.super_segments.to_string()),
    ("segments on the wire", |side| side.wire_segments.to_string()),
    ("sent again", |side| side.retransmissions.to_string()),
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
