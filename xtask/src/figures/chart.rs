//! The chart of the stacks: a dot for each ratio to the kernel, in equal steps for equal factors.

use std::fmt::Write as _;

use super::Table;

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

/// A cell `VALUE = RATIO (LEAST..MOST)`: the ratio, the least and the most. One run has no spread.
pub(super) fn ratio(cell: &str) -> Option<(f64, f64, f64)> {
    let (_, ratio) = cell.rsplit_once(" = ")?;
    let (median, spread) = ratio.split_once(' ').unwrap_or((ratio, ""));
    let median = median.parse().ok()?;
    let ends = spread.trim_matches(['(', ')']).split_once("..");
    let ends = ends.and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    let (least, most) = ends.unwrap_or((median, median));
    Some((median, least, most))
}

/// Whether a line of the table of the stacks is a rate: neither CPU nor memory, which are better
/// when they are less.
pub(super) fn is_rate(row: &[String]) -> bool {
    !row[0].starts_with("CPU") && !row[0].starts_with("memory")
}

/// The chart of the table of the stacks, as an SVG file. The kernel is the table's second column.
pub(super) fn svg(table: &Table) -> String {
    let stacks = table.header.get(2..).unwrap_or_default();
    let works: Vec<&Vec<String>> = table.rows.iter().filter(|row| is_rate(row)).collect();
    let all = || works.iter().flat_map(|row| &row[2..]).filter_map(|cell| ratio(cell));
    let least = all().fold(0.5, |least, ratio| ratio.1.min(least)).log10().floor();
    let most = all().fold(2.0, |most, ratio| ratio.2.max(most)).log10().ceil();
    let x = |ratio: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ratio.log10() - least) / (most - least);
    let bottom = TOP + works.len() as f64 * ROW;
    let height = bottom + 34.0;
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg class=\"peers\" \
         xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n<style>{STYLE}</style>\n\
         <rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
         <text class=\"title\" x=\"20\" y=\"28\">Rate compared with the kernel's</text>\n",
        in_words(stacks, &works),
        WIDTH - 1.0,
        height - 1.0
    );
    for (number, stack) in stacks.iter().enumerate() {
        let (x, y) = (20 + number % 3 * 200, 50 + number / 3 * 20);
        let _ = writeln!(
            out,
            "<circle class=\"s{number}\" cx=\"{}\" cy=\"{}\" r=\"4\"/>\
             <text class=\"dim\" x=\"{}\" y=\"{y}\">{stack}</text>",
            x + 5,
            y - 4,
            x + 16
        );
    }
    for power in least as i32..=most as i32 {
        let (tick, class) = (10_f64.powi(power), if power == 0 { "one" } else { "grid" });
        let _ = writeln!(
            out,
            "<line class=\"{class}\" x1=\"{0:.1}\" y1=\"{1}\" x2=\"{0:.1}\" y2=\"{bottom}\"/>\
             <text class=\"dim\" x=\"{0:.1}\" y=\"{2}\" text-anchor=\"middle\">{tick}×</text>",
            x(tick),
            TOP - 8.0,
            bottom + 18.0
        );
    }
    for (number, work) in works.iter().enumerate() {
        let middle = TOP + number as f64 * ROW + ROW / 2.0;
        let _ = writeln!(out, "<text x=\"20\" y=\"{}\">{}</text>", middle + 1.0, work[0]);
        let first = middle - STEP * (stacks.len() as f64 - 1.0) / 2.0 - 4.0;
        for (stack, cell) in work[2..].iter().enumerate() {
            let Some((median, least, most)) = ratio(cell) else { continue };
            let (y, r) = (first + stack as f64 * STEP, if stack == 0 { 4 } else { 3 });
            let _ = writeln!(
                out,
                "<line class=\"s{stack}\" x1=\"{:.1}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\"/>\
                 <circle class=\"s{stack}\" cx=\"{:.1}\" cy=\"{y}\" r=\"{r}\"/>",
                x(least),
                x(most),
                x(median)
            );
        }
    }
    out + "</svg>\n"
}

/// What the chart shows, for readers who do not see it.
fn in_words(stacks: &[String], works: &[&Vec<String>]) -> String {
    let of_work = |work: &&Vec<String>| {
        let of_stack =
            |(stack, cell): (&String, &String)| Some(format!("{stack} {}", ratio(cell)?.0));
        let ratios: Vec<String> = stacks.iter().zip(&work[2..]).filter_map(of_stack).collect();
        format!("{}: {}", work[0], ratios.join(", "))
    };
    format!(
        "Rate compared with the kernel's. {}.",
        works.iter().map(of_work).collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_cells() {
        assert_eq!(ratio("1.50 Gbit/s = 1.50 (1.25..2.00)"), Some((1.5, 1.25, 2.0)));
        assert_eq!(ratio("5 /s = 0.05"), Some((0.05, 0.05, 0.05)));
        assert_eq!((ratio("failed"), ratio("1.00 Gbit/s")), (None, None));
    }

    #[test]
    fn the_chart_has_a_dot_for_each_rate() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let table = Table {
            header: row(["work", "kernel", "ours", "theirs"]),
            rows: vec![
                row([
                    "bulk",
                    "1.00 Gbit/s",
                    "1.50 Gbit/s = 1.50 (1.25..2.00)",
                    "0.05 Gbit/s = 0.05",
                ]),
                row(["CPU for a byte", "1.00 ns", "1.00 ns", "20.00 ns"]),
                row(["rr", "10 /s", "20 /s = 2.00 (1.50..2.50)", "failed"]),
                row(["memory", "4000 B", "2000 B = 0.50", "failed"]),
            ],
            ..Table::default()
        };
        let chart = svg(&table);
        // Three ratios, and two names of stacks.
        assert_eq!(chart.matches("<circle").count(), 5, "{chart}");
        assert!(chart.contains("bulk: ours 1.5, theirs 0.05; rr: ours 2."), "{chart}");
        assert!(!chart.contains("memory"), "memory is no rate");
        assert_eq!(chart.matches('×').count(), 4, "0.01, 0.1, 1 and 10");
    }
}
