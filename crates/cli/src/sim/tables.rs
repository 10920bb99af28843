//! Results and comparisons as text for people, and results as JSON.

use comfy_table::{CellAlignment, Table, presets};
use plimsoll_sim::batch::compare::Pair;
use plimsoll_sim::batch::{CellResults, Comparison, Results, RunFigures};

/// Figures of a cell, as its row shows them: medians over the seeds, and of reductions the sum.
pub(super) const FIGURES: [&str; 7] = [
    "goodput Mbit/s",
    "retransmitted %",
    "spurious %",
    "undone",
    "queue p95 ms",
    "dropped",
    "finished",
];

/// The values of [`FIGURES`].
pub(super) fn figures(cell: &CellResults) -> [String; 7] {
    let finished = cell.runs.iter().filter(|run| run.finished).count();
    let sum = |figure: fn(&RunFigures) -> u64| cell.runs.iter().map(figure).sum::<u64>();
    [
        format!("{:.3}", cell.median(|run| run.goodput_bits_per_s as f64) / 1e6),
        format!("{:.3}", cell.median(RunFigures::retransmitted_share) * 100.0),
        format!("{:.3}", cell.median(RunFigures::spurious_share) * 100.0),
        format!("{} of {}", sum(|run| run.undone), sum(|run| run.reductions)),
        format!("{:.2}", cell.median(|run| run.queue_delay_us.p95 as f64) / 1e3),
        format!("{}", cell.median(|run| run.dropped as f64)),
        format!("{finished} of {}", cell.runs.len()),
    ]
}

fn empty(keys: &[String], figures: impl IntoIterator<Item = impl Into<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let columns: Vec<String> =
        keys.iter().cloned().chain(figures.into_iter().map(Into::into)).collect();
    table.set_header(columns);
    for column in table.column_iter_mut().skip(keys.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// The medians of each cell, and what failed.
pub(super) fn results(results: &Results) -> String {
    let mut table = empty(&results.keys, FIGURES);
    for cell in &results.cells {
        table.add_row(cell.values.iter().cloned().chain(figures(cell)));
    }
    let mut text = format!("{table}\n");
    for cell in &results.cells {
        for run in cell.violations() {
            let violation = run.violation.as_deref().unwrap_or_default();
            text += &format!("cell {}, seed {} FAILED {violation}\n", cell.cell, run.seed);
        }
    }
    text
}

/// The document, with each cell on a line of its own.
pub(super) fn json(results: &Results) -> serde_json::Result<String> {
    let cells: Vec<String> =
        results.cells.iter().map(serde_json::to_string).collect::<serde_json::Result<_>>()?;
    Ok(format!(
        "{{\"plimsoll_sim_results\":{},\"plan\":{},\"keys\":{},\"cells\":[\n{}\n]}}\n",
        results.plimsoll_sim_results,
        serde_json::to_string(&results.plan)?,
        serde_json::to_string(&results.keys)?,
        cells.join(",\n")
    ))
}

/// How the second results stand to the first, cell by cell.
pub(super) fn comparison(comparison: &Comparison, tolerance: f64) -> String {
    let mut table = empty(&comparison.keys, ["goodput", "retransmitted %", "queue p95 ms", ""]);
    for cell in &comparison.cells {
        let mut notes = Vec::new();
        for (what, pair) in [
            ("goodput", cell.goodput),
            ("retransmissions", cell.retransmitted),
            ("delay", cell.queue_delay),
        ] {
            notes.extend(pair.worse.then_some(what));
        }
        notes.extend((cell.fewer_finished > 0).then_some("finished"));
        notes.extend((cell.new_violations > 0).then_some("violations"));
        let note =
            if notes.is_empty() { String::new() } else { format!("worse: {}", notes.join(", ")) };
        let [goodput, retransmitted, delay] = match cell.compared {
            0 => ["-"; 3].map(str::to_owned),
            _ => [
                format!("x{}", ratio(cell.goodput)),
                scaled(cell.retransmitted, 100.0),
                scaled(cell.queue_delay, 1e-3),
            ],
        };
        let figures = [goodput, retransmitted, delay, note];
        table.add_row(cell.values.iter().cloned().chain(figures));
    }
    let named = |values: &[String]| -> Vec<String> {
        let pairs = comparison.keys.iter().zip(values);
        pairs.map(|(key, value)| format!("{key} = {value}")).collect()
    };
    let mut text = format!("{table}\n");
    for cell in &comparison.cells {
        for (which, seeds) in [("first", &cell.only_a), ("second", &cell.only_b)] {
            let Some(lowest) = seeds.first() else { continue };
            let mut parts = named(&cell.values);
            parts.push(format!("{} of its seeds, the lowest is {lowest}", seeds.len()));
            text += &format!("only in the {which}: {}\n", parts.join(", "));
        }
    }
    for (which, cells) in [("first", &comparison.only_a), ("second", &comparison.only_b)] {
        for values in cells {
            text += &format!("only in the {which}: {}\n", named(values).join(", "));
        }
    }
    let worse = comparison.worse().count();
    let percent = tolerance * 100.0;
    text += &format!(
        "{worse} of {} cells are worse by more than {percent} %\n",
        comparison.cells.len()
    );
    text
}

fn ratio(pair: Pair) -> String {
    pair.ratio().map_or_else(|| "inf".to_owned(), |ratio| format!("{ratio:.3}"))
}

/// Both figures and their ratio.
fn scaled(pair: Pair, factor: f64) -> String {
    format!("{:.2} -> {:.2} (x{})", pair.a * factor, pair.b * factor, ratio(pair))
}
