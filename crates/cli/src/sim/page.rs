//! Results as one page: tables, and the curves of each cell, small and large. The page needs
//! nothing from elsewhere, and no script.

use maud::{Markup, html};
use plimsoll_explain::html::styled_page;
use plimsoll_sim::batch::{CellResults, Results};
use plimsoll_sim::{FlowSeries, Series};

use super::tables;

/// Where the curves are in their box, in units of the picture.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 90.0;

/// Flows that have a curve of their own.
const FLOWS: usize = 6;

/// Rules of the page that the frame does not have.
const STYLE: &str = "\
main{max-width:90rem}.cells{display:grid;gap:1rem;\
grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr))}\
.cell{margin:0}.cell:has(details[open]){grid-column:1/-1}.cell h3{margin-bottom:.3rem}\
.cell summary{list-style:none;color:inherit}.cell summary::-webkit-details-marker{display:none}\
.small,.large{display:grid;gap:.2rem .8rem}\
.large{gap:1.2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));\
margin-top:1rem}details[open] .small{display:none}\
.small div{display:grid;grid-template-columns:5.2rem 1fr;align-items:center;font-size:.8rem;\
color:var(--dim)}.plot{width:100%;display:block;background:var(--bg);border:1px solid var(--line)}\
.small .plot{height:2.6rem}.large .plot{height:14rem}\
.curve{fill:none;stroke-width:1.3;vector-effect:non-scaling-stroke}\
.rule{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}\
.more,.less{color:var(--accent);font-size:.85rem}.less{display:none}\
details[open] .more{display:none}details[open] .less{display:inline}\
.scroll a{color:var(--accent)}.key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.85rem}\
.key svg{width:1.6rem;height:.6rem;margin-right:.4rem}\
.f0{stroke:var(--accent)}.f1{stroke:#c4572b}.f2{stroke:#2c9a5b}.f3{stroke:#9b59d0}\
.f4{stroke:#c99a1c}.f5{stroke:#8a8f99}\
figure{margin:0}figcaption{display:flex;justify-content:space-between;font-size:.9rem}\
.axis{display:flex;justify-content:space-between;font-size:.8rem;color:var(--dim)}\
td.left,th.left{text-align:left}.failed{color:var(--bad);font-weight:600}";

/// One curve for each flow, and what it is of.
struct Chart<'a> {
    title: &'static str,
    unit: &'static str,
    /// By which a value is multiplied for its unit.
    factor: f64,
    curves: Vec<&'a [u64]>,
}

/// The whole page.
pub(super) fn page(title: &str, results: &Results) -> String {
    let runs: usize = results.cells.iter().map(|cell| cell.runs.len()).sum();
    let body = html! {
        h1 { (title) }
        p { (results.cells.len()) " cells, " (runs) " runs. Figures are medians over the seeds." }
        (table(results))
        @if results.cells.iter().any(|cell| cell.series.is_some()) {
            h2 { "Over the time" }
            p.dim {
                "Of the first seed of each cell. Each picture goes from 0 to its highest value, which \
                 its larger form tells."
            }
            div.cells { @for cell in &results.cells { (card(results, cell)) } }
        }
    };
    styled_page(title, STYLE, &body)
}

fn table(results: &Results) -> Markup {
    html! {
        div.scroll {
            table {
                tr {
                    th { "cell" }
                    @for key in &results.keys { th.left { (key) } }
                    @for figure in tables::FIGURES { th { (figure) } }
                }
                @for cell in &results.cells {
                    tr {
                        td { a href={ "#cell-" (cell.cell) } { (cell.cell) } }
                        @for value in &cell.values { td.left { (value) } }
                        @for figure in tables::figures(cell) { td { (figure) } }
                    }
                    @for run in cell.violations() {
                        tr {
                            @let what = run.violation.as_deref().unwrap_or_default();
                            td.failed colspan=(results.keys.len() + tables::FIGURES.len() + 1) {
                                "seed " (run.seed) ": " (what)
                            }
                        }
                    }
                }
            }
        }
    }
}

fn card(results: &Results, cell: &CellResults) -> Markup {
    let named = results.keys.iter().zip(&cell.values).map(|(key, value)| format!("{key} {value}"));
    let named: Vec<String> = named.collect();
    let charts = cell.series.as_ref().map(|series| (series, charts(cell, series)));
    html! {
        div.card.cell id={ "cell-" (cell.cell) } {
            h3 { (cell.cell) ": " (named.join(", ")) }
            @if let Some((series, charts)) = &charts {
                details {
                    summary {
                        div.small {
                            @for (number, chart) in charts.iter().enumerate() {
                                div { (chart.title) (defined(cell.cell, number, chart)) }
                            }
                        }
                        span.more { "larger" }
                        span.less { "smaller" }
                    }
                    (key(series))
                    div.large {
                        @for (number, chart) in charts.iter().enumerate() {
                            (large(cell.cell, number, chart, series))
                        }
                    }
                }
            }
        }
    }
}

/// Which curve is which flow, if there are several.
fn key(series: &Series) -> Markup {
    let flows = series.flows.len();
    html! {
        @if flows > 1 {
            div.key {
                @for flow in 0..flows.min(FLOWS) {
                    span {
                        svg viewBox="0 0 16 6" {
                            path class={ "curve f" (flow) } d="M0 3L16 3" {}
                        }
                        "flow " (flow)
                    }
                }
                @if flows > FLOWS { span.dim { (flows - FLOWS) " more are not shown" } }
            }
        }
    }
}

fn charts<'a>(cell: &'a CellResults, series: &'a Series) -> Vec<Chart<'a>> {
    let of_flows = |figure: fn(&FlowSeries) -> &Vec<u64>| -> Vec<&'a [u64]> {
        series.flows.iter().take(FLOWS).map(|flow| figure(flow).as_slice()).collect()
    };
    let chart = |title, unit, factor, curves| Chart { title, unit, factor, curves };
    let mut all = vec![
        chart("cwnd", "segments", 1.0, of_flows(|flow| &flow.cwnd)),
        chart("pacing rate", "Mbit/s", 1e-6, of_flows(|flow| &flow.pacing_rate)),
        chart("RTT", "ms", 1e-3, of_flows(|flow| &flow.rtt_us)),
        chart("in flight", "segments", 1.0, of_flows(|flow| &flow.in_flight)),
    ];
    if let Some((_, _, bytes)) = cell.fullest_queue() {
        all.push(chart("queue", "kB", 1e-3, vec![bytes]));
    }
    all
}

impl Chart<'_> {
    fn highest(&self) -> u64 {
        self.curves.iter().copied().flatten().copied().max().unwrap_or(0)
    }

    /// The points of a curve as an SVG path.
    fn path(&self, curve: &[u64]) -> String {
        let highest = self.highest().max(1) as f64;
        let last = curve.len().saturating_sub(1).max(1) as f64;
        let mut path = String::new();
        for (number, &value) in curve.iter().enumerate() {
            let x = number as f64 / last * WIDTH;
            let y = HEIGHT - value as f64 / highest * HEIGHT;
            path += &format!("{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
        }
        path
    }
}

fn view() -> String {
    format!("0 -2 {WIDTH} {}", HEIGHT + 4.0)
}

/// The small picture, which the large one refers to.
fn defined(cell: u64, number: usize, chart: &Chart<'_>) -> Markup {
    html! {
        svg.plot viewBox=(view()) preserveAspectRatio="none" role="img" aria-label=(chart.title) {
            g id={ "c" (cell) "-" (number) } {
                @for (flow, curve) in chart.curves.iter().enumerate() {
                    path class={ "curve f" (flow) } d=(chart.path(curve)) {}
                }
            }
        }
    }
}

fn large(cell: u64, number: usize, chart: &Chart<'_>, series: &Series) -> Markup {
    let count = chart.curves.first().map_or(0, |curve| curve.len().saturating_sub(1));
    let seconds = series.every_us as f64 * count as f64 / 1e6;
    html! {
        figure {
            figcaption {
                b { (chart.title) }
                @let highest = short(chart.highest() as f64 * chart.factor);
                span.dim { "up to " (highest) " " (chart.unit) }
            }
            @let title = chart.title;
            svg.plot viewBox=(view()) preserveAspectRatio="none" role="img" aria-label=(title) {
                @for quarter in 1..4 {
                    @let y = f64::from(quarter) * HEIGHT / 4.0;
                    line.rule x1="0" x2=(WIDTH) y1=(y) y2=(y) {}
                }
                use href={ "#c" (cell) "-" (number) } {}
            }
            div.axis {
                @for quarter in 0..5 { span { (short(seconds * f64::from(quarter) / 4.0)) " s" } }
            }
        }
    }
}

/// A number with three digits or so.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        value => format!("{value:.3}"),
    }
}
