//! The page from top to bottom.

use maud::{Markup, html};
use plimsoll_explain::html::styled_page;
use serde_json::Value;

use super::about::about;
use super::{chart, section, style, summary};
use crate::experiment::{Report, RunInfo};
use crate::show;

/// The whole page.
pub(crate) fn page(reports: &[Report]) -> String {
    let body = html! {
        h1 { "Plimsoll lab: before and after" }
        p.lead { (summary::sentence(reports)) }
        (summary::table(reports))
        @if reports.iter().any(|report| report.headline.is_some()) {
            (chart::overview(&crate::document(reports)))
        }
        (summary::missed(reports))
        @for report in reports { (section::section(report)) }
        h2 { "How this came about" }
        @if let Some(run) = reports.iter().find_map(|report| report.run.as_ref()) {
            (origin(run, reports))
        }
        h3 { "Sources" }
        ul.notes {
            @for report in reports {
                @let about = about(report.experiment);
                li {
                    (report.experiment) ": "
                    @if about.source.is_empty() { "document " (report.seed) }
                    @else { (about.source) }
                    (workload(report))
                }
            }
        }
        h3 { "What was held still" }
        @for report in reports { (pinned(report)) }
    };
    styled_page("Plimsoll lab", &format!("{}{}", style::STYLE, chart::RULES), &body)
}

fn workload(report: &Report) -> String {
    let workload = report.published.get("workload").and_then(Value::as_str);
    let workload = workload.filter(|words| !words.is_empty());
    workload.map(|workload| format!("; published for {workload}")).unwrap_or_default()
}

fn origin(run: &RunInfo, reports: &[Report]) -> Markup {
    let RunInfo { command, version, pairs, seconds, warm_up_seconds, .. } = run;
    let cpu = run.cpu.as_deref().unwrap_or("an unknown processor");
    let seed = |report: &Report| {
        let seed = report.pinned.get("seed").filter(|seed| !seed.is_null())?;
        Some(format!("{}: {seed}", report.experiment))
    };
    let seeds: Vec<String> = reports.iter().filter_map(seed).collect();
    html! {
        pre.card { code { (command) } }
        dl {
            dt { "Machine" }
            dd {
                (cpu) ", " (run.cpus) " processors used"
                @if let Some(memory) = run.memory_bytes { ", " (show::bytes(memory as f64)) }
            }
            dt { "System" }
            dd { (run.system) }
            dt { "Plimsoll" }
            dd { (version) ", running with priority “" (run.priority) "”" }
            dt { "Runs" }
            dd {
                (pairs) " pairs of each case; every run is measured for " (seconds)
                " s after a warm-up of " (warm_up_seconds) " s"
            }
            @if !seeds.is_empty() {
                dt { "Seeds" }
                dd { (seeds.join(", ")) "; the others run in real time" }
            }
        }
    }
}

fn pinned(report: &Report) -> Markup {
    let words = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    html! {
        details {
            summary { (report.experiment) ": " code { (report.knob) } }
            div.scroll {
                table {
                    @for (name, value) in report.pinned.as_object().into_iter().flatten() {
                        tr { td { code { (name) } } td { (words(value)) } }
                    }
                }
            }
        }
    }
}
