//! Charts: the gain of every mechanism, and the main figures of one.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use super::about::About;
use super::values::{Better, Shows, column, kernel, number, published_ratio, spread, spread_words};
use crate::experiment::stats::Spread;
use crate::experiment::{Column, Headline, Report, at};

/// Where things are in the chart of all gains.
#[derive(Clone, Copy)]
struct Layout {
    width: f64,
    /// Left of the bars.
    left: f64,
    /// Right of the bars, where values stand.
    right: f64,
    /// The height of a mechanism.
    row: f64,
    /// Down to the first mechanism.
    top: f64,
    /// Names stand above the bars instead of beside them.
    stacked: bool,
}

/// For a page or a picture.
const WIDE: Layout =
    Layout { width: 860.0, left: 304.0, right: 164.0, row: 54.0, top: 80.0, stacked: false };
/// For a phone.
const NARROW: Layout =
    Layout { width: 360.0, left: 8.0, right: 140.0, row: 92.0, top: 74.0, stacked: true };

/// The height of a bar.
const BAR: f64 = 17.0;

/// Where the axis may have a line.
const TICKS: [f64; 15] =
    [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 256.0, 65536.0];

/// One mechanism in the chart.
struct Gain {
    title: String,
    figure: String,
    published: Option<f64>,
    measured: Option<Spread>,
    reached: bool,
}

/// How much better: at least 1 is an improvement.
fn gain(lower_is_better: bool, ratio: f64) -> f64 {
    let gain = if lower_is_better { 1.0 / ratio } else { ratio };
    // Nothing left of what should be little has no number.
    if gain.is_finite() { gain.clamp(0.01, 65536.0) } else { 65536.0 }
}

/// Of a document of the lab, which may be one that was kept.
fn gains(document: &Value) -> Vec<Gain> {
    let one = |report: &Value| {
        let (name, headline) = (report["experiment"].as_str()?, report.get("headline")?);
        let title = super::about::about(name).title;
        let less = headline["lower_is_better"].as_bool()?;
        let number = |name: &str| headline["ratio"][name].as_f64().map(|r| gain(less, r));
        let ratio = number("median").zip(number("min").zip(number("max")));
        let spread = |(median, (a, b)): (f64, (f64, f64))| Spread {
            median,
            min: f64::min(a, b),
            max: f64::max(a, b),
        };
        let way = if less { "fewer" } else { "more" };
        Some(Gain {
            title: if title.is_empty() { name } else { title }.to_owned(),
            figure: format!("{way} {}", headline["label"].as_str()?),
            published: headline["published"]["ratio"].as_f64().map(|ratio| gain(less, ratio)),
            measured: ratio.map(spread),
            reached: headline["reached"].as_bool()?,
        })
    };
    document.as_array().into_iter().flatten().filter_map(one).collect()
}

/// The chart of all gains, once for wide pages and once for phones.
pub(crate) fn overview(document: &Value) -> Markup {
    let gains = gains(document);
    html! {
        div.wide { (chart(&gains, WIDE)) }
        div.narrow { (chart(&gains, NARROW)) }
    }
}

/// What the picture brings along where no page gives it a style.
const STYLE: &str = "\
.over{--bg:#fdfcfa;--ink:#1d2430;--dim:#5d6675;--line:#dcdfe5;--was:#a3a9b5;--accent:#0b6e8f;\
--bad:#b3401f;font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
@media(prefers-color-scheme:dark){.over{--bg:#11151b;--ink:#e4e8ee;--dim:#9aa5b4;--line:#313a46;\
--was:#6b7686;--accent:#5cc1e0;--bad:#f08a66}}";

/// Rules of the chart, for a page too.
pub(crate) const RULES: &str = "\
.over text{fill:var(--ink);font-size:14px}.over .name{font-weight:600;font-size:15px}\
.over .dim{fill:var(--dim);font-size:13px}.over .tick{fill:var(--dim);font-size:12px}\
.over .grid{stroke:var(--line)}.over .one{stroke:var(--dim);stroke-width:1.5}\
.over .was{fill:var(--was)}.over .is{fill:var(--accent)}.over .short{fill:var(--bad)}\
.over .spread{stroke:var(--ink);stroke-width:1.5}";

/// The same as a file of its own.
pub(crate) fn standalone(document: &Value) -> String {
    let gains = gains(document);
    let height = height(&gains, WIDE);
    let style = format!("{STYLE}{RULES}.over .back{{fill:var(--bg);stroke:var(--line)}}");
    html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
        svg.over xmlns="http://www.w3.org/2000/svg" width=(WIDE.width) height=(height)
            viewBox=(view(WIDE, height)) role="img" aria-label=(words(&gains)) {
            style { (PreEscaped(style)) }
            rect.back x="0.5" y="0.5" width=(WIDE.width - 1.0) height=(height - 1.0) rx="8" {}
            (inner(&gains, WIDE, height))
        }
    }
    .into_string()
}

fn chart(gains: &[Gain], layout: Layout) -> Markup {
    let height = height(gains, layout);
    html! {
        svg.over viewBox=(view(layout, height)) role="img" aria-label=(words(gains)) {
            (inner(gains, layout, height))
        }
    }
}

fn view(layout: Layout, height: f64) -> String {
    format!("0 0 {} {height}", layout.width)
}

fn height(gains: &[Gain], layout: Layout) -> f64 {
    layout.top + gains.len() as f64 * layout.row + 34.0
}

/// What the chart shows, for those who do not see it.
fn words(gains: &[Gain]) -> String {
    let one = |gain: &Gain| {
        let measured = number(gain.measured.map(|spread| spread.median), 2);
        let published =
            gain.published.map(|gain| format!("published {} times, ", number(Some(gain), 2)));
        format!("{}: {}measured {measured} times", gain.title, published.unwrap_or_default())
    };
    let all: Vec<String> = gains.iter().map(one).collect();
    format!("Gain after over before. {}.", all.join("; "))
}

/// From a gain to a place: in equal steps for equal factors.
struct Axis {
    least: f64,
    most: f64,
    left: f64,
    width: f64,
}

impl Axis {
    fn of(gains: &[Gain], layout: Layout) -> Axis {
        let ends = |gain: &Gain| {
            let measured = gain.measured;
            [gain.published, measured.map(|m| m.min), measured.map(|m| m.max)]
        };
        let all: Vec<f64> = gains.iter().flat_map(ends).flatten().collect();
        let most = all.iter().copied().fold(2.0, f64::max);
        let least = all.iter().copied().fold(1.0, f64::min);
        let up = TICKS.iter().copied().find(|&tick| tick >= most).unwrap_or(most);
        let down = TICKS.iter().rev().copied().find(|&tick| tick <= least).unwrap_or(least);
        let width = layout.width - layout.left - layout.right;
        Axis { least: down, most: up, left: layout.left, width }
    }

    fn x(&self, gain: f64) -> f64 {
        let share = (gain / self.least).ln() / (self.most / self.least).ln();
        self.left + self.width * share.clamp(0.0, 1.0)
    }

    /// Lines that have room for their numbers.
    fn ticks(&self) -> Vec<f64> {
        let mut shown: Vec<f64> = Vec::new();
        for tick in TICKS.into_iter().filter(|&tick| tick >= self.least && tick <= self.most) {
            if shown.last().is_none_or(|&last| self.x(tick) - self.x(last) >= 30.0) {
                shown.push(tick);
            }
        }
        shown
    }
}

fn inner(gains: &[Gain], layout: Layout, height: f64) -> Markup {
    let axis = Axis::of(gains, layout);
    let bottom = height - 30.0;
    html! {
        (head(layout))
        @for tick in axis.ticks() {
            @for (from, to) in lines(gains, layout, bottom) {
                line class=(if tick == 1.0 { "one" } else { "grid" }) x1=(px(axis.x(tick)))
                    y1=(px(from)) x2=(px(axis.x(tick))) y2=(px(to)) {}
            }
            @let anchor = if layout.stacked && tick == axis.least { "start" } else { "middle" };
            text.tick x=(px(axis.x(tick))) y=(px(bottom + 16.0)) text-anchor=(anchor) {
                (tick) "×"
            }
        }
        @for (index, gain) in gains.iter().enumerate() {
            (row(gain, layout, &axis, layout.top + index as f64 * layout.row))
        }
    }
}

/// From where to where the lines of the axis go: not through names.
fn lines(gains: &[Gain], layout: Layout, bottom: f64) -> Vec<(f64, f64)> {
    if !layout.stacked {
        return vec![(layout.top - 8.0, bottom)];
    }
    let of = |index: usize| {
        let top = layout.top + index as f64 * layout.row;
        (top + 34.0, top + 42.0 + 2.0 * BAR + 3.0)
    };
    (0..gains.len()).map(of).collect()
}

fn head(layout: Layout) -> Markup {
    let left = if layout.stacked { 8.0 } else { 20.0 };
    let (x, y) = if layout.stacked { (left, 50.0) } else { (layout.left, 54.0) };
    html! {
        text.name x=(px(left)) y="28" { "How many times better, after over before" }
        rect.was x=(px(x)) y=(px(y - 10.0)) width="12" height="12" rx="2" {}
        text.dim x=(px(x + 18.0)) y=(px(y)) { "published" }
        rect.is x=(px(x + 98.0)) y=(px(y - 10.0)) width="12" height="12" rx="2" {}
        text.dim x=(px(x + 116.0)) y=(px(y)) { "measured" }
        line.spread x1=(px(x + 192.0)) y1=(px(y - 4.0)) x2=(px(x + 212.0)) y2=(px(y - 4.0)) {}
        text.dim x=(px(x + 218.0)) y=(px(y)) { "spread of the pairs" }
    }
}

fn row(gain: &Gain, layout: Layout, axis: &Axis, top: f64) -> Markup {
    let (x, name, figure, first) = match layout.stacked {
        true => (8.0, top + 12.0, top + 29.0, top + 38.0),
        false => (20.0, top + 16.0, top + 35.0, top + 4.0),
    };
    let second = first + BAR + 3.0;
    let class = if gain.reached { "is" } else { "is short" };
    html! {
        text.name x=(px(x)) y=(px(name)) { (gain.title) }
        text.dim x=(px(x)) y=(px(figure)) { (gain.figure) }
        @if let Some(published) = gain.published {
            (bar("was", published, axis, first))
            text x=(px(axis.x(published).max(axis.x(1.0)) + 7.0)) y=(px(first + 13.0)) {
                (number(Some(published), 2)) "×"
            }
        } @else {
            text.dim x=(px(axis.x(1.0) + 7.0)) y=(px(first + 13.0)) { "not published" }
        }
        @if let Some(Spread { median, min, max }) = gain.measured {
            (bar(class, median, axis, second))
            line.spread x1=(px(axis.x(min))) y1=(px(second + BAR / 2.0)) x2=(px(axis.x(max)))
                y2=(px(second + BAR / 2.0)) {}
            text x=(px(axis.x(median).max(axis.x(max)).max(axis.x(1.0)) + 7.0))
                y=(px(second + 13.0)) {
                (number(Some(median), 2)) "× ("
                (number(Some(min), 2)) "–" (number(Some(max), 2)) ")"
            }
        } @else {
            text.dim x=(px(axis.x(1.0) + 7.0)) y=(px(second + 13.0)) { "not taken" }
        }
    }
}

fn bar(class: &str, value: f64, axis: &Axis, y: f64) -> Markup {
    let (from, to) = (axis.x(1.0).min(axis.x(value)), axis.x(1.0).max(axis.x(value)));
    html! {
        rect class=(class) x=(px(from)) y=(px(y)) width=(px((to - from).max(1.5)))
            height=(px(BAR)) rx="2" {}
    }
}

fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The main figures of a mechanism, each as a chart of bars in text.
pub(crate) fn figures(report: &Report, about: &About) -> Markup {
    let headline = headline_figure(report);
    let known = |shows: &&Shows| Column::ALL.iter().any(|&c| shows.of(column(report, c)).is_some());
    let all: Vec<&Shows> = match about.figures {
        [] => headline.iter().collect(),
        figures => figures.iter().filter(known).collect(),
    };
    html! {
        div.figs { @for shows in all { (figure(report, shows)) } }
    }
}

/// The figure that decides, for an experiment without a description.
fn headline_figure(report: &Report) -> Option<Shows> {
    let headline = report.headline.as_ref()?;
    let better = if headline.lower_is_better { Better::Less } else { Better::More };
    let Headline { label, figure, places, scale, .. } = *headline;
    Some(Shows { label, path: figure, places, scale, better: Some(better) })
}

fn figure(report: &Report, shows: &Shows) -> Markup {
    let published = |side: &str| report.published.get(side).and_then(|side| shows.of(side));
    let own = |c| shows.of(column(report, c));
    let host = |c| shows.of(kernel(report, c));
    let has_knob = host(Column::Before).is_some();
    let rows = [
        ("published before", "was", published("before")),
        ("published after", "was", published("after")),
        ("before", "before", own(Column::Before)),
        ("after", "after", own(Column::After)),
        ("all on", "best", own(Column::Best)),
        ("kernel before", "kern", host(Column::Before)),
        (if has_knob { "kernel after" } else { "kernel" }, "kern", host(Column::After)),
    ];
    let most = rows.iter().filter_map(|row| row.2).fold(f64::MIN_POSITIVE, f64::max);
    let ratio = spread(at(&report.ratio, shows.path));
    html! {
        div.fig {
            h4 { (shows.label)
                @match shows.better {
                    Some(Better::Less) => span.dim { ", less is better" },
                    Some(Better::More) => span.dim { ", more is better" },
                    None => {},
                }
            }
            @for (name, class, value) in rows.iter().filter(|row| row.2.is_some()) {
                div.bars {
                    span.who { (name) }
                    span.track {
                        span.fill.(class) style=(width(*value, most)) {}
                    }
                    span.val { (shows.show(*value)) }
                }
            }
            @if let Some(ratio) = ratio {
                p.dim.small {
                    "after / before " (spread_words(ratio))
                    @if let Some(published) = published_ratio(report, shows.path) {
                        ", published " (number(Some(published), 2))
                    }
                }
            }
        }
    }
}

fn width(value: Option<f64>, most: f64) -> String {
    format!("width:{:.1}%", (value.unwrap_or_default() / most * 100.0).clamp(0.0, 100.0))
}
