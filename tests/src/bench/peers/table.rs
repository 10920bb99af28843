//! Medians, ratios to the kernel and their spread, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::forwarder;
use super::stage::{STACKS, Stack};
use super::works::{HELD, Sample};
use super::{Cell, Request, Row};
use crate::bench::rows::Unit;
use crate::bench::table::{aligned, median, show, spread};
use crate::peer::CONGESTION_CONTROL;

impl Cell {
    fn figures(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().flatten().filter_map(figure).collect()
    }

    fn value(&self) -> Option<f64> {
        median(&self.figures(|sample| Some(sample.value)))
    }

    fn busy(&self) -> Option<f64> {
        median(&self.figures(|sample| sample.busy))
    }

    /// How many runs failed, in words.
    fn failures(&self) -> String {
        let failed = self.errors.len();
        let tried = failed + self.samples.iter().flatten().count();
        if tried < self.samples.len() {
            return format!("{} failed, and no more were tried", runs(failed));
        }
        format!("{failed} of {} failed", runs(tried))
    }
}

fn runs(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

/// One of the two tables that a run gives. The kernel stands in both.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    /// Stacks, each with a server on it.
    Stacks,
    /// Programs that forward to the kernel's own server.
    Forwarders,
}

impl Table {
    /// Whether it has a column for the stack.
    fn has(self, stack: &Stack) -> bool {
        is_yardstick(stack) || self.tells(stack)
    }

    /// Whether what is to be said of a stack stands beside it.
    fn tells(self, stack: &Stack) -> bool {
        stack.forwarder().is_some() == (self == Table::Forwarders)
    }

    /// Its columns, as the places of the entrants.
    fn places(self, request: &Request) -> Vec<usize> {
        let entrants = request.entrants.iter().enumerate();
        entrants.filter(|(_, (stack, _))| self.has(stack)).map(|(place, _)| place).collect()
    }
}

impl Row {
    /// What the stack at `place` reached, as a part of what the kernel did in the same repetition.
    fn ratios(&self, request: &Request, place: usize) -> Vec<f64> {
        let kernel = request.entrants.iter().position(|(stack, _)| is_yardstick(stack));
        let Some(kernel) = kernel else { return Vec::new() };
        let pairs = self.cells[place].samples.iter().zip(&self.cells[kernel].samples);
        pairs.filter_map(|(one, other)| Some((*one)?.value / (*other)?.value)).collect()
    }

    /// `figure` of the entrants at some places behind a name, as a line.
    fn line(
        &self,
        places: &[usize],
        name: &str,
        figure: impl Fn(usize, &Cell) -> String,
    ) -> Vec<String> {
        let figures = places.iter().map(|&place| {
            let cell = &self.cells[place];
            match cell.samples.iter().any(Option::is_some) {
                true => figure(place, cell),
                false => "failed".to_owned(),
            }
        });
        std::iter::once(name.to_owned()).chain(figures).collect()
    }
}

fn is_yardstick(stack: &Stack) -> bool {
    *stack == STACKS[0]
}

/// A median, and its ratio to the kernel's with the spread.
fn rate(request: &Request, row: &Row, place: usize) -> String {
    let shown = show(row.work.unit, row.cells[place].value());
    let ratios = row.ratios(request, place);
    if is_yardstick(request.entrants[place].0) {
        return shown;
    }
    match median(&ratios).zip(spread(&ratios)) {
        None => shown,
        Some((middle, (least, most))) if ratios.len() > 1 => {
            format!("{shown} = {middle:.2} ({least:.2}..{most:.2})")
        }
        Some((middle, _)) => format!("{shown} = {middle:.2}"),
    }
}

/// Processor time of the machine for a byte or a transaction.
fn cost(unit: Unit, busy: Option<f64>) -> String {
    match (unit, busy) {
        (_, None) => "-".to_owned(),
        (Unit::Bits, Some(busy)) => format!("{:.2} ns", busy * 1e9),
        (_, Some(busy)) => format!("{:.1} us", busy * 1e6),
    }
}

fn header(request: &Request, table: Table) -> Vec<String> {
    let places = table.places(request).into_iter();
    let titles = places.map(|place| request.entrants[place].0.title.to_owned());
    std::iter::once("work".to_owned()).chain(titles).collect()
}

/// The lines of a table: for each work the rates, then what a byte or a transaction costs.
fn lines(request: &Request, rows: &[Row], table: Table) -> Vec<Vec<String>> {
    let places = table.places(request);
    let of_row = |row: &Row| {
        let unit = row.work.unit;
        let rates = row.line(&places, row.work.name, |place, _| rate(request, row, place));
        let name = if unit == Unit::Bits { "CPU for a byte" } else { "CPU for each" };
        let costs = row.line(&places, name, |_, cell| cost(unit, cell.busy()));
        if unit == Unit::Bytes { vec![rates] } else { vec![rates, costs] }
    };
    rows.iter().flat_map(of_row).collect()
}

/// What is not in a table, and why; and which versions of the programs are.
fn notes(request: &Request, rows: &[Row], table: Table) -> Vec<String> {
    let told = |stack: &Stack| table.tells(stack);
    let forwarders = request.entrants.iter().filter(|(stack, _)| told(stack));
    let versions = forwarders.filter_map(|(stack, _)| stack.forwarder()?.version().ok());
    let mut notes: Vec<String> = versions.collect();
    let missing = request.missing.iter().filter(|(stack, _)| told(stack));
    notes.extend(missing.map(|(stack, why)| format!("{} is left out: {why}", stack.title)));
    for row in rows {
        for ((stack, _), cell) in request.entrants.iter().zip(&row.cells) {
            if let Some(error) = cell.errors.first()
                && told(stack)
            {
                let (work, failed) = (row.work.name, cell.failures());
                notes.push(format!("{}, {work}: {failed}: {}", stack.title, one_line(error)));
            }
        }
    }
    notes
}

/// As much of an error as a line has space for.
fn one_line(error: &str) -> String {
    let words: Vec<&str> = error.split_whitespace().collect();
    words.join(" ").chars().take(240).collect()
}

/// The tables that have more to tell than the kernel, each with what stands above it.
fn tables(request: &Request) -> Vec<(Table, &'static str)> {
    let tells = |table: Table| {
        let others = request.entrants.iter().map(|(stack, _)| *stack);
        let missing = request.missing.iter().map(|(stack, _)| *stack);
        others.chain(missing).any(|stack| !is_yardstick(stack) && table.tells(stack))
    };
    let mut tables = Vec::new();
    if tells(Table::Stacks) || !tells(Table::Forwarders) {
        tables.push((Table::Stacks, ""));
    }
    if tells(Table::Forwarders) {
        tables.push((Table::Forwarders, "Programs that forward:\n\n"));
    }
    tables
}

/// The tables as text.
pub(super) fn text(request: &Request, rows: &[Row]) -> String {
    let mut out = format!(
        "\n{} of {:?} per cell, interleaved; medians, = ratio to the kernel (spread); CPU is \
         the whole machine's; kernel sockets use {CONGESTION_CONTROL}\n",
        runs(request.plan.repetitions),
        request.plan.seconds
    );
    for (table, title) in tables(request) {
        let header = std::iter::once(header(request, table));
        let _ = write!(out, "\n{title}{}", aligned(header.chain(lines(request, rows, table))));
        for note in notes(request, rows, table) {
            let _ = writeln!(out, "\n{note}");
        }
    }
    out
}

/// The tables as JSON, with every sample.
pub(super) fn json(request: &Request, rows: &[Row]) -> Value {
    let ready = |table: Table, conditions: String| {
        let notes = match &*notes(request, rows, table) {
            [] => "none".to_owned(),
            notes => notes.join(", "),
        };
        json!({
            "conditions": format!("{conditions} Notes: {notes}."),
            "header": header(request, table),
            "rows": lines(request, rows, table),
        })
    };
    let (runs, seconds) = (request.plan.repetitions, request.plan.seconds.as_secs_f64());
    json!({
        "repetitions": runs,
        "seconds": seconds,
        "kernel_congestion_control": CONGESTION_CONTROL,
        "rows": rows.iter().map(|row| row_json(request, row)).collect::<Vec<_>>(),
        "table": ready(Table::Stacks, format!(
            "Medians of {runs} interleaved runs of {seconds:?} s; after `=` the ratio to the kernel \
             (least..most). One client on kernel sockets with {CONGESTION_CONTROL} measures all \
             servers. CPU is the busy time of the whole machine, client and server. Memory is that \
             of the server with {HELD} connections."
        )),
        "forwarders": ready(Table::Forwarders, format!(
            "From the same runs as the table of the stacks. Memory is that of the process that \
             forwards, with {} connections.",
            forwarder::HELD
        )),
    })
}

fn row_json(request: &Request, row: &Row) -> Value {
    let unit = match row.work.unit {
        Unit::Bits => "bits_per_s",
        Unit::Transactions => "transactions_per_s",
        Unit::Packets => "packets_per_transaction",
        Unit::Bytes => "bytes",
    };
    let cells = request.entrants.iter().zip(&row.cells).enumerate();
    let cells = cells.map(|(place, ((stack, _), cell))| {
        let ratios = row.ratios(request, place);
        let (least, most) = spread(&ratios).unzip();
        let sample =
            |sample: &Option<Sample>| sample.map(|Sample { value, busy }| json!([value, busy]));
        json!({
            "stack": stack.name,
            "samples": cell.samples.iter().map(sample).collect::<Vec<_>>(),
            "median": cell.value(),
            "ratio_median": median(&ratios),
            "ratio_min": least,
            "ratio_max": most,
            "busy_seconds_median": cell.busy(),
            "errors": cell.errors,
        })
    });
    json!({ "work": row.work.name, "unit": unit, "stacks": cells.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::super::works::WORKS;
    use super::super::{FAILURES, QUICK, Request};
    use super::*;

    fn cell(values: &[Option<f64>]) -> Cell {
        let sample = |value: &Option<f64>| value.map(|value| Sample { value, busy: Some(2e-9) });
        let failed = values.iter().filter(|value| value.is_none());
        // After that many it is not tried again.
        let errors = failed.take(FAILURES).map(|_| "it stuck\nmore".to_owned()).collect();
        Cell { samples: values.iter().map(sample).collect(), errors }
    }

    /// The kernel, one that works, and one that fails.
    fn example() -> (Request, Vec<Row>) {
        let entrants = STACKS.iter().take(3).map(|stack| (stack, "/p".into())).collect();
        let missing = vec![(&STACKS[6], "no compiler".to_owned())];
        let request = Request { plan: QUICK, entrants, missing, only: Vec::new(), json: None };
        let cells = vec![
            cell(&[Some(1e9), Some(2e9), Some(4e9)]),
            cell(&[Some(2e9), Some(3e9), None]),
            cell(&[None, None, None]),
        ];
        (request, vec![Row { work: &WORKS[0], cells }])
    }

    #[test]
    fn ratios_are_those_of_one_repetition() {
        let (request, rows) = example();
        assert_eq!(rows[0].ratios(&request, 1), [2.0, 1.5]);
        let lines = lines(&request, &rows, Table::Stacks);
        let rates =
            ["kernel to stack, bulk", "2.00 Gbit/s", "2.50 Gbit/s = 1.75 (1.50..2.00)", "failed"];
        assert_eq!(lines[0], rates);
        assert_eq!(lines[1], ["CPU for a byte", "2.00 ns", "2.00 ns", "failed"]);
        let document = json(&request, &rows);
        assert_eq!(document["rows"][0]["stacks"][1]["ratio_max"], 2.0);
        assert_eq!(document["table"]["rows"][0][3], "failed");
    }

    #[test]
    fn what_failed_or_is_missing_is_told() {
        let (request, rows) = example();
        let said = text(&request, &rows);
        assert!(said.contains("lwIP, TUN is left out: no compiler"), "{said}");
        let untried = "gVisor, AF_PACKET, kernel to stack, bulk: 2 runs failed, and no more were \
                       tried: it stuck more\n";
        assert!(said.contains(untried), "{said}");
        assert!(said.contains("1 of 3 runs failed: it stuck more\n"), "{said}");
        assert!(said.contains("\n1 run of 200ms per cell"), "{said}");
        assert_eq!(cell(&[None]).failures(), "1 of 1 run failed");
        assert_eq!(cell(&[None, None]).failures(), "2 of 2 runs failed");
    }

    /// One that forwards stands in a table of its own, beside the kernel.
    #[test]
    fn what_forwards_is_no_stack() {
        let (mut request, mut rows) = example();
        let names = |request: &Request| {
            tables(request).iter().map(|(table, _)| header(request, *table)).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&request),
            [["work", "kernel, veth", "Plimsoll, TUN", "gVisor, AF_PACKET"]]
        );
        let forwards: Vec<_> = STACKS.iter().filter(|stack| stack.forwarder().is_some()).collect();
        assert_eq!(
            forwards.iter().map(|stack| stack.name).collect::<Vec<_>>(),
            ["pasta", "slirp4netns"]
        );
        request.entrants.push((forwards[0], "/p".into()));
        rows[0].cells.push(cell(&[Some(5e8), Some(1e9), None]));
        assert_eq!(names(&request)[1], ["work", "kernel, veth", "pasta"]);
        let line = &lines(&request, &rows, Table::Forwarders)[0];
        assert_eq!(line[1..], ["2.00 Gbit/s", "0.75 Gbit/s = 0.50 (0.50..0.50)"]);
        let document = json(&request, &rows);
        assert_eq!(document["table"]["header"].as_array().unwrap().len(), 4);
        assert!(document["forwarders"]["conditions"].to_string().contains("1 of 3 runs failed"));
        assert!(!document["table"]["conditions"].to_string().contains("pasta"), "{document}");
        // Nothing but the kernel and what forwards.
        request.entrants.drain(1..3);
        assert_eq!(names(&request).len(), 2, "a stack is missing, which is told");
        request.missing.clear();
        assert_eq!(names(&request), [["work", "kernel, veth", "pasta"]]);
    }
}
