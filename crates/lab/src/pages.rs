//! Figures in the pages of the repository.
//!
//! Every table of figures in a page stands between two marks and is made from a committed document:
//! `docs/lab.json`, which `plimsoll lab --json` wrote, or `docs/bench.json`. So a figure has one
//! source, and a page is never newer or older than it. Nothing is measured here.

use std::fmt::Write as _;

use serde_json::Value;

use crate::experiment::{SetAside, at, condition};
use crate::figures::decimal;
use crate::peers;

/// What begins a table; its name and ` -->` follow.
const BEGIN: &str = "<!-- figures: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end of figures -->";

/// A page with its tables made anew by `table`, by their names.
///
/// # Errors
/// If a mark is not closed, or there is no table with its name.
pub fn fill(page: &str, table: impl Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after
            .split_once(CLOSE)
            .ok_or_else(|| anyhow::anyhow!("a mark is not closed by `{CLOSE}`"))?;
        let (_, after) = after
            .split_once(END)
            .ok_or_else(|| anyhow::anyhow!("the figures {name} do not end with `{END}`"))?;
        let made = table(name).ok_or_else(|| anyhow::anyhow!("there are no figures {name}"))?;
        let _ = write!(out, "{before}{BEGIN}{name}{CLOSE}\n\n{}\n\n{END}", made.trim_end());
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// A table of the pages by its name: `lab.NAME` from the lab's document, `bench.NAME` from that of
/// the benches, where `bench.peers.ratios` has the ratios of `bench.peers` alone, and
/// `bench.NAME.cells` a table without its conditions.
pub fn table(lab: &Value, bench: &Value, name: &str) -> Option<String> {
    match name.split_once('.')? {
        ("lab", "headlines") => Some(headlines(lab)),
        ("lab", "details") => Some(details(lab)),
        ("lab", "missed") => Some(missed(lab)),
        ("lab", "again") => Some(again(lab)),
        ("lab", "machine") => machine(lab),
        ("lab", "policies") => policies(lab),
        ("bench", "peers.ratios") => peers::ratios(&bench["peers"]),
        ("bench", name) => match name.strip_suffix(".cells") {
            Some(name) => cells(bench.get(name)?),
            None => with_conditions(bench.get(name)?),
        },
        _ => None,
    }
}

/// Where a mechanism is described: the title of its section of `docs/mechanisms.md`.
const SECTIONS: [(&str, &str, &str); 5] = [
    ("tso-split", "tails leave with their packet", "1-tails-that-leave-with-their-packet"),
    ("autocork", "automatic corking", "2-automatic-corking"),
    ("tso-trim", "trimming tails", "4-trimming-tails"),
    ("pure-ack", "pure ACKs wake nobody", "3-pure-acks-wake-nobody"),
    ("ack-defer", "one ACK for a batch", "5-one-ack-for-a-batch"),
];

fn reports(lab: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = lab.as_array().into_iter().flatten();
    all.filter_map(|report| Some((report["experiment"].as_str()?, report)))
}

/// A line for each mechanism: published, measured, and whether it is the published gain.
fn headlines(lab: &Value) -> String {
    let mut out = header(&[
        "mechanism",
        "figure",
        "published",
        "here",
        "all on",
        "gain, published",
        "gain, here",
    ]);
    for (name, report) in reports(lab) {
        let headline = &report["headline"];
        let show = |value: &Value| shown(value, headline);
        let (published, measured) = (&headline["published"], &headline["measured"]);
        let less = headline["lower_is_better"] == true;
        let gain =
            |ratio: &Value| ratio.as_f64().map(|ratio| if less { 1.0 / ratio } else { ratio });
        let mark = if headline["derived"].is_string() { " (derived)" } else { "" };
        let title = SECTIONS.iter().find(|(known, ..)| *known == name).map_or_else(
            || name.to_owned(),
            |(_, title, anchor)| format!("[{title}](docs/mechanisms.md#{anchor})"),
        );
        let reached = if headline["reached"] == true { "" } else { ", short" };
        out += &row(&[
            title,
            headline["label"].as_str().unwrap_or_default().to_owned(),
            format!("{} to {}{mark}", show(&published["before"]), show(&published["after"])),
            format!("{} to {}", show(&measured["before"]), show(&measured["after"])),
            show(&measured["best"]),
            decimal(gain(&published["ratio"]), 2),
            format!("{}{reached}", decimal(gain(&headline["ratio"]["median"]), 2)),
        ]);
    }
    out
}

/// A value as the description of its figure has it.
fn shown(value: &Value, figure: &Value) -> String {
    let places = figure["places"].as_u64().unwrap_or(2) as usize;
    let scale = figure["scale"].as_f64().unwrap_or(1.0);
    decimal(value.as_f64().map(|value| value / scale), places)
}

/// Every figure of every case that the lab shows.
fn details(lab: &Value) -> String {
    let mut out = String::new();
    for (name, report) in reports(lab) {
        let _ = write!(out, "**`{name}`**, {}\n\n", report["knob"].as_str().unwrap_or_default());
        let mut names =
            vec!["case", "figure", "published", "before", "after", "all on", "after / before"];
        let has_kernel = !report["kernel"].is_null();
        names.extend(has_kernel.then_some("kernel"));
        out += &header(&names);
        let first = report["before"]["case"].as_str().unwrap_or_default();
        for figure in report["shown"].as_array().into_iter().flatten() {
            let path = figure["path"].as_str().unwrap_or_default();
            let case = figure["case"].as_str();
            let of = |column: &str| {
                let column = &report[column];
                let column = case.map_or(column, |case| &column["cases"][case]);
                shown(at(column, path).unwrap_or(&Value::Null), figure)
            };
            let ratios = case.map_or(&report["ratio"], |case| &report["ratio"]["cases"][case]);
            let mut cells = vec![
                case.unwrap_or(first).to_owned(),
                figure["label"].as_str().unwrap_or_default().to_owned(),
                published(report, figure, case.is_none()),
                of("before"),
                of("after"),
                of("best"),
                at(ratios, path).map_or_else(|| "-".to_owned(), spread),
            ];
            cells.extend(has_kernel.then(|| kernel(&report["kernel"], figure)));
            out += &row(&cells);
        }
        out.push('\n');
    }
    out
}

/// The host's own TCP: one value, or two if it has the knob; nothing where it did not run.
fn kernel(kernel: &Value, figure: &Value) -> String {
    let case = figure["case"].as_str();
    let columns = case.map_or(kernel, |case| &kernel["cases"][case]);
    let path = figure["path"].as_str().unwrap_or_default();
    let of = |column: &str| at(&columns[column], path);
    let show = |column: &str| shown(of(column).unwrap_or(&Value::Null), figure);
    match (columns["before"].is_object(), columns["after"].is_object()) {
        (true, _) => format!("{} to {}", show("before"), show("after")),
        (false, true) => show("after"),
        (false, false) => String::new(),
    }
}

fn published(report: &Value, figure: &Value, is_headline: bool) -> String {
    let path = figure["path"].as_str().unwrap_or_default();
    let of = |side: &str| &report["published"][side][path];
    if !is_headline || of("before").is_null() {
        return String::new();
    }
    let mark = if report["published"]["derived"][path].is_string() { " (derived)" } else { "" };
    format!("{} to {}{mark}", shown(of("before"), figure), shown(of("after"), figure))
}

fn spread(spread: &Value) -> String {
    let [median, min, max] = ["median", "min", "max"].map(|name| decimal(spread[name].as_f64(), 2));
    format!("{median} ({min} to {max})")
}

/// What was missed, what cannot be compared, and which pairs do not count.
fn missed(lab: &Value) -> String {
    let mut out = String::new();
    for (name, report) in reports(lab) {
        let verdict = &report["verdict"];
        for check in verdict["checks"].as_array().into_iter().flatten() {
            if check["reached"] == true {
                continue;
            }
            let word = |field: &str| check[field].as_str().unwrap_or_default();
            let (what, measured, wanted) = (word("what"), word("measured"), word("wanted"));
            let _ =
                writeln!(out, "- `{name}` misses {what}: {measured}, where {wanted} is wanted.");
        }
        for what in verdict["not_reproduced"].as_array().into_iter().flatten() {
            let what = what.as_str().unwrap_or_default();
            let _ = writeln!(out, "- `{name}` does not reproduce {what}.");
        }
    }
    if out.is_empty() { "Nothing was missed.".to_owned() } else { out }
}

/// The pairs that were set aside and run again, with the reasons.
fn again(lab: &Value) -> String {
    let mut out = String::new();
    for (name, report) in reports(lab) {
        for line in condition::lines(&set_aside(report)) {
            let _ = writeln!(out, "- `{name}`, {line}.");
        }
    }
    if out.is_empty() { "None.".to_owned() } else { out }
}

/// Pairs of a report that do not count.
fn set_aside(report: &Value) -> Vec<SetAside> {
    let of = |aside: &Value| {
        let word = |field: &str| aside[field].as_str().unwrap_or_default().to_owned();
        SetAside { case: word("case"), why: word("why") }
    };
    report["set_aside"].as_array().into_iter().flatten().map(of).collect()
}

/// Where and how it was measured.
fn machine(lab: &Value) -> Option<String> {
    let (_, report) = reports(lab).next()?;
    let run = &report["run"];
    let cpu = run["cpu"].as_str().unwrap_or("processor unknown");
    Some(format!(
        "`{}`: {} pairs of {} s, on {} processors ({cpu}), {}, {}. Medians of the pairs, and of \
         their ratios.",
        run["command"].as_str()?,
        run["pairs"],
        run["seconds"],
        run["cpus"],
        run["system"].as_str()?,
        run["priority"].as_str()?,
    ))
}

/// What each policy for tails makes of both workloads of `tso-trim`.
fn policies(lab: &Value) -> Option<String> {
    let (_, report) = reports(lab).find(|(name, _)| *name == "tso-trim")?;
    let value = |column: &str, case: &str, path: &str, places: usize| {
        let column = &report[column];
        let column = column["cases"].get(case).unwrap_or(column);
        decimal(at(column, path).and_then(Value::as_f64), places)
    };
    let mut out = header(&[
        "policy",
        "bulk, data segments (floor 7246)",
        "4096 bytes each way, packets per transaction",
    ]);
    for (policy, cases, column) in [
        ("split", "split -> nagle", "before"),
        ("empty", "empty -> trim", "before"),
        ("trim", "empty -> trim", "after"),
        ("nagle", "split -> nagle", "after"),
    ] {
        out += &row(&[
            format!("`{policy}`"),
            value(column, &format!("bulk: {cases}"), "data_segments", 0),
            value(column, &format!("rr: {cases}"), "packets_per_transaction", 1),
        ]);
    }
    Some(out)
}

/// A table of the benches: its conditions, and its rows.
fn with_conditions(table: &Value) -> Option<String> {
    Some(format!("{}\n\n{}", table["conditions"].as_str()?, cells(table)?))
}

/// Header and rows of a table of the benches.
fn cells(table: &Value) -> Option<String> {
    let words = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let names = words(&table["header"])?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut out = header(&names);
    for cells in table["rows"].as_array()? {
        out += &row(&words(cells)?);
    }
    Some(out)
}

/// The head of a table in Markdown.
pub(crate) fn header(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    row(&names) + "|" + &"---|".repeat(names.len()) + "\n"
}

/// A line of a table in Markdown.
pub(crate) fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |").replace("|  |", "| |")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_between_the_marks_is_made_anew() {
        let page = "a\n<!-- figures: x -->\nold\n<!-- end of figures -->\nb\n";
        let made = fill(page, |name| (name == "x").then(|| "new\n".to_owned())).unwrap();
        assert_eq!(made, "a\n<!-- figures: x -->\n\nnew\n\n<!-- end of figures -->\nb\n");
        let again = fill(&made, |_| Some("new".to_owned())).unwrap();
        assert_eq!(again, made, "doing it again changes nothing");
        assert!(fill(page, |_| None).unwrap_err().to_string().contains("no figures x"));
        assert!(fill("<!-- figures: x -->\n", |_| Some(String::new())).is_err());
        assert!(fill("<!-- figures: x", |_| Some(String::new())).is_err());
    }

    #[test]
    fn tables_of_both_documents() {
        let ratio = json!({ "median": 0.5, "min": 0.4, "max": 0.6 });
        let lab = json!([{
            "experiment": "x",
            "knob": "k = 0 / 1",
            "before": { "case": "c", "p": 4e6, "cases": { "d": { "p": 1e6 } } },
            "after": { "p": 2e6, "cases": { "d": { "p": 1e6 } } },
            "best": { "p": 1e6, "cases": {} },
            "ratio": { "p": ratio, "cases": {} },
            "published": { "before": { "p": 3e6 }, "after": { "p": 2e6 }, "derived": { "p": "y" } },
            "shown": [
                { "case": null, "label": "l", "path": "p", "places": 1, "scale": 1e6 },
                { "case": "d", "label": "l", "path": "p", "places": 1, "scale": 1e6 },
            ],
            "headline": {
                "label": "l", "lower_is_better": true, "places": 1, "scale": 1e6,
                "published": { "before": 3e6, "after": 2e6, "ratio": 0.667 },
                "measured": { "before": 4e6, "after": 2e6, "best": 1e6 },
                "ratio": ratio, "reached": false, "derived": "y",
            },
            "verdict": {
                "checks": [{ "what": "w", "wanted": "1", "measured": "2", "reached": false }],
                "not_reproduced": ["z"],
            },
            "kernel": {
                "before": { "p": 6e6 }, "after": { "p": 7e6 }, "case": "c",
                "cases": { "d": { "before": null, "after": { "p": 8e6 } } },
            },
            "set_aside": [{ "case": "c", "why": "v" }],
        }]);
        let bench = json!({ "b": { "conditions": "Once.", "header": ["h"], "rows": [["r"]] } });
        let table = |name| table(&lab, &bench, name).unwrap();
        let line = "| x | l | 3.0 to 2.0 (derived) | 4.0 to 2.0 | 1.0 | 1.50 | 2.00, short |";
        assert!(table("lab.headlines").contains(line), "{}", table("lab.headlines"));
        let line = "| c | l | 3.0 to 2.0 (derived) | 4.0 | 2.0 | 1.0 | 0.50 (0.40 to 0.60) | \
                    6.0 to 7.0 |";
        assert!(table("lab.details").contains(line), "{}", table("lab.details"));
        assert!(table("lab.details").contains("| d | l | | 1.0 | 1.0 | - | - | 8.0 |"));
        let missed = "- `x` misses w: 2, where 1 is wanted.\n- `x` does not reproduce z.\n";
        assert_eq!(table("lab.missed"), missed);
        assert_eq!(table("lab.again"), "- `x`, c: 1 pair set aside and run again: v.\n");
        assert_eq!(table("bench.b"), "Once.\n\n| h |\n|---|\n| r |\n");
        assert_eq!(table("bench.b.cells"), "| h |\n|---|\n| r |\n");
    }
}
