//! Other stacks beside the kernel: the short table of `bench peers`, and its picture.
//!
//! Both are views of the one table of `docs/bench.json`. Its first column names the work, the one
//! whose title begins with `kernel` is the kernel's, and a cell of another stack is
//! `VALUE = RATIO (LEAST..MOST)`, of which the part in parentheses is left out where there was one
//! run. A cell without a ratio is shown as it is, and not drawn.

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use crate::pages;

/// What begins the names of lines that are neither a rate nor memory.
const COSTS: &str = "CPU";

/// What begins the title of the stack that the others are compared with.
const YARDSTICK: &str = "kernel";

/// A ratio to the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    median: f64,
    /// The least and the most.
    spread: (f64, f64),
}

impl Ratio {
    /// Of a cell. One run has no spread.
    fn of(cell: &str) -> Option<Ratio> {
        let (_, ratio) = cell.rsplit_once(" = ")?;
        let (median, spread) = ratio.split_once(' ').unwrap_or((ratio, ""));
        let median = median.parse().ok()?;
        let ends = spread.trim_matches(['(', ')']).split_once("..");
        let ends = ends.and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
        Some(Ratio { median, spread: ends.unwrap_or((median, median)) })
    }
}

/// A line of the table: what was measured, and the cells of all stacks but the kernel.
struct Work<'a> {
    name: &'a str,
    cells: Vec<&'a str>,
}

impl Work<'_> {
    /// Whether it is a rate. Memory is counted in bytes.
    fn is_rate(&self) -> bool {
        self.cells.iter().all(|cell| !cell.contains(" B = "))
    }
}

fn words(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// The names of the stacks beside the kernel, and the lines with what they did.
fn read(table: &Value) -> Option<(Vec<&str>, Vec<Work<'_>>)> {
    let mut stacks = words(&table["header"])?;
    let kernel = stacks.iter().position(|title| title.starts_with(YARDSTICK))?;
    let without_kernel = |cells: &mut Vec<_>| {
        // A line may be shorter than the header.
        if kernel < cells.len() {
            cells.remove(kernel);
        }
    };
    without_kernel(&mut stacks);
    let rows = table["rows"].as_array()?.iter();
    let works = rows.map(|row| {
        let mut cells = words(row)?;
        without_kernel(&mut cells);
        let (name, others) = cells.split_first()?;
        Some(Work { name, cells: others.to_vec() })
    });
    let works: Vec<Work<'_>> = works.collect::<Option<_>>()?;
    let (_, stacks) = stacks.split_first()?;
    Some((
        stacks.to_vec(),
        works.into_iter().filter(|work| !work.name.starts_with(COSTS)).collect(),
    ))
}

/// Above the names of the works, what is in their lines.
const HEAD: &str = "rate, times the kernel's; memory in bytes";

/// The ratios alone, as a table in Markdown; for what is no rate, the value.
pub fn ratios(table: &Value) -> Option<String> {
    let (stacks, works) = read(table)?;
    let mut out = pages::header(&[&[HEAD], &stacks[..]].concat());
    for work in works {
        let rate = work.is_rate();
        let shown = work.cells.iter().map(|cell| match cell.rsplit_once(" = ") {
            Some((_, ratio)) if rate => ratio.split(' ').next().unwrap_or_default().to_owned(),
            Some((value, _)) => value.to_owned(),
            None => (*cell).to_owned(),
        });
        let cells: Vec<String> = std::iter::once(work.name.to_owned()).chain(shown).collect();
        out += &pages::row(&cells);
    }
    Some(out)
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 96.0;
/// The height of a work, and the distance between the lines of two stacks in it.
const ROW: f64 = 44.0;
const STEP: f64 = 5.5;

/// Colours of the stacks, the first for ours, on a light page and on a dark one.
const STYLE: &str = "\
.peers{--bg:#fdfcfa;--ink:#1d2430;--dim:#5d6675;--line:#dcdfe5;--s0:#0b6e8f;--s1:#b3401f;\
--s2:#8a6d00;--s3:#7b3fa0;--s4:#2c7a3f;--s5:#a3306b;\
font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\
@media(prefers-color-scheme:dark){.peers{--bg:#11151b;--ink:#e4e8ee;--dim:#9aa5b4;--line:#313a46;\
--s0:#5cc1e0;--s1:#f08a66;--s2:#e0c04a;--s3:#c79bea;--s4:#79cf8f;--s5:#f08fc0}}\
.peers text{fill:var(--ink);font-size:14px}.peers .title{font-weight:600;font-size:15px}\
.peers .dim{fill:var(--dim);font-size:12px}.peers .grid{stroke:var(--line)}\
.peers .one{stroke:var(--dim);stroke-width:1.5}.peers .back{fill:var(--bg);stroke:var(--line)}\
.peers .s0{fill:var(--s0);stroke:var(--s0)}.peers .s1{fill:var(--s1);stroke:var(--s1)}\
.peers .s2{fill:var(--s2);stroke:var(--s2)}.peers .s3{fill:var(--s3);stroke:var(--s3)}\
.peers .s4{fill:var(--s4);stroke:var(--s4)}.peers .s5{fill:var(--s5);stroke:var(--s5)}";

/// How many stacks have a colour of their own.
const COLOURS: usize = 6;

/// The rates of all stacks as an SVG file: a dot for each ratio, in equal steps for equal factors.
pub fn svg(table: &Value) -> Option<String> {
    let (stacks, works) = read(table)?;
    let drawn = |work: &Work<'_>| work.cells.iter().any(|cell| Ratio::of(cell).is_some());
    let works: Vec<Work<'_>> =
        works.into_iter().filter(|work| drawn(work) && work.is_rate()).collect();
    let axis = Axis::of(&works);
    let bottom = TOP + works.len() as f64 * ROW;
    let height = bottom + 34.0;
    let picture = html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
        svg.peers xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height)
            viewBox=(format!("0 0 {WIDTH} {height}")) role="img"
            aria-label=(in_words(&stacks, &works)) {
            style { (PreEscaped(STYLE)) }
            rect.back x="0.5" y="0.5" width=(WIDTH - 1.0) height=(height - 1.0) rx="8" {}
            text.title x="20" y="28" { "How many times as fast as the kernel over veth" }
            (legend(&stacks))
            (grid(&axis, bottom))
            @for (index, work) in works.iter().enumerate() {
                (row(work, &axis, TOP + index as f64 * ROW))
            }
        }
    };
    Some(picture.into_string() + "\n")
}

/// From a ratio to a place.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    /// Powers of ten around all that is drawn, and around 1.
    fn of(works: &[Work<'_>]) -> Axis {
        let ratios = works.iter().flat_map(|work| &work.cells).filter_map(|cell| Ratio::of(cell));
        let spreads: Vec<(f64, f64)> = ratios.map(|ratio| ratio.spread).collect();
        let least = spreads.iter().map(|(least, _)| *least).fold(0.5, f64::min).max(1e-6);
        let most = spreads.iter().map(|(_, most)| *most).fold(2.0, f64::max).min(1e6);
        Axis { least: 10_f64.powf(least.log10().floor()), most: 10_f64.powf(most.log10().ceil()) }
    }

    fn x(&self, ratio: f64) -> String {
        let share = (ratio / self.least).ln() / (self.most / self.least).ln();
        px(LEFT + (WIDTH - LEFT - RIGHT) * share.clamp(0.0, 1.0))
    }

    fn ticks(&self) -> Vec<f64> {
        let (from, to) = (self.least.log10().round() as i32, self.most.log10().round() as i32);
        (from..=to).map(|power| 10_f64.powi(power)).collect()
    }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn legend(stacks: &[&str]) -> Markup {
    html! {
        @for (index, stack) in stacks.iter().enumerate() {
            @let (x, y) = (20.0 + (index % 3) as f64 * 200.0, 50.0 + (index / 3) as f64 * 20.0);
            @let class = format!("s{}", index % COLOURS);
            circle class=(class) cx=(px(x + 5.0)) cy=(px(y - 4.0)) r="4" {}
            text.dim x=(px(x + 16.0)) y=(px(y)) { (stack) }
        }
    }
}

fn grid(axis: &Axis, bottom: f64) -> Markup {
    html! {
        @for tick in axis.ticks() {
            @let is_one = (tick - 1.0).abs() < 1e-9;
            line class=(if is_one { "one" } else { "grid" }) x1=(axis.x(tick))
                y1=(px(TOP - 8.0)) x2=(axis.x(tick)) y2=(px(bottom)) {}
            text.dim x=(axis.x(tick)) y=(px(bottom + 18.0)) text-anchor="middle" { (tick) "×" }
        }
    }
}

fn row(work: &Work<'_>, axis: &Axis, top: f64) -> Markup {
    let first = top + (ROW - STEP * (work.cells.len() as f64 - 1.0)) / 2.0 - 4.0;
    html! {
        text x="20" y=(px(top + ROW / 2.0 + 1.0)) { (work.name) }
        @for (index, ratio) in work.cells.iter().map(|cell| Ratio::of(cell)).enumerate() {
            @if let Some(Ratio { median, spread: (least, most) }) = ratio {
                @let class = format!("s{}", index % COLOURS);
                @let y = px(first + index as f64 * STEP);
                line class=(class) x1=(axis.x(least)) y1=(y) x2=(axis.x(most)) y2=(y) {}
                circle class=(class) cx=(axis.x(median)) cy=(y)
                    r=(if index == 0 { "4" } else { "3" }) {}
            }
        }
    }
}

/// What the picture shows, for those who do not see it.
fn in_words(stacks: &[&str], works: &[Work<'_>]) -> String {
    let of_work = |work: &Work<'_>| {
        let ratios = stacks
            .iter()
            .zip(&work.cells)
            .filter_map(|(stack, cell)| Some(format!("{stack} {:.2}", Ratio::of(cell)?.median)));
        format!("{}: {}", work.name, ratios.collect::<Vec<_>>().join(", "))
    };
    let works: Vec<String> = works.iter().map(of_work).collect();
    format!("Times the kernel's rate. {}.", works.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> Value {
        json!({
            "header": ["work", "kernel", "ours", "theirs"],
            "rows": [
                ["bulk", "1.00 Gbit/s", "1.50 Gbit/s = 1.50 (1.25..2.00)", "0.05 Gbit/s = 0.05"],
                ["CPU for a byte", "1.00 ns", "1.00 ns", "20.00 ns"],
                ["rr", "10 /s", "20 /s = 2.00 (1.50..2.50)", "failed"],
                ["memory", "4000 B", "2000 B = 0.50", "failed"],
            ],
        })
    }

    #[test]
    fn cells() {
        let ratio = Ratio::of("1.50 Gbit/s = 1.50 (1.25..2.00)").unwrap();
        assert_eq!(ratio, Ratio { median: 1.5, spread: (1.25, 2.0) });
        let once = Ratio::of("5 /s = 0.05").unwrap();
        assert_eq!(once, Ratio { median: 0.05, spread: (0.05, 0.05) });
        assert_eq!(Ratio::of("failed"), None);
        assert_eq!(Ratio::of("1.00 Gbit/s"), None);
    }

    #[test]
    fn the_short_table_has_the_ratios_of_rates_and_bytes_of_memory() {
        let short = "| rate, times the kernel's; memory in bytes | ours | theirs |\n\
                     |---|---|---|\n| bulk | 1.50 | 0.05 |\n| rr | 2.00 | failed |\n\
                     | memory | 2000 B | failed |\n";
        assert_eq!(ratios(&table()).unwrap(), short);
        assert_eq!(ratios(&Value::Null), None);
    }

    #[test]
    fn the_kernel_is_found_by_its_name() {
        let mut table = table();
        table["header"] = json!(["work", "ours", "kernel, veth", "theirs"]);
        for row in table["rows"].as_array_mut().unwrap() {
            row.as_array_mut().unwrap().swap(1, 2);
        }
        let (stacks, works) = read(&table).unwrap();
        assert_eq!(stacks, ["ours", "theirs"]);
        assert_eq!(works[0].cells, ["1.50 Gbit/s = 1.50 (1.25..2.00)", "0.05 Gbit/s = 0.05"]);
        table["header"] = json!(["work", "ours", "theirs"]);
        assert_eq!(ratios(&table), None, "there is nothing to compare with");
    }

    #[test]
    fn the_picture_has_a_dot_for_each_rate() {
        let picture = svg(&table()).unwrap();
        assert!(picture.starts_with("<?xml"), "{picture}");
        // Three ratios, and two names.
        assert_eq!(picture.matches("<circle").count(), 5);
        assert!(picture.contains("bulk: ours 1.50, theirs 0.05; rr: ours 2.00."), "{picture}");
        assert!(!picture.contains("memory"), "memory is no rate");
        assert_eq!(picture.matches('×').count(), 4, "0.01, 0.1, 1 and 10");
        assert_eq!(svg(&Value::Null), None);
    }
}
