//! The tables of the lab: from the report that `plimsoll lab --json` writes, without its samples.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Table, Tables};
use crate::session;

/// The experiments, and what their mechanisms are called.
const MECHANISMS: [(&str, &str); 9] = [
    ("tso-split", "tails leave with their packet"),
    ("autocork", "automatic corking"),
    ("tso-trim", "trimming tails"),
    ("pure-ack", "pure ACKs wake nobody"),
    ("ack-defer", "one ACK for a batch"),
    ("sack-compress", "later reports of what is out of order"),
    ("tso-defer", "waiting for an ACK that is due"),
    ("ring-window", "a window that the device can hold"),
    ("busy-loop", "polling while it pays"),
];

/// Runs the lab in its published form. Returns its report.
pub(super) fn measure(root: &Path, options: &[&str]) -> Result<PathBuf> {
    let report = session::cargo_target(root).join("figures-lab.json");
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "-p", "plimsoll-cli", "--", "lab", "--full"]);
    let status = command
        .arg("--json")
        .arg(&report)
        .args(options)
        .current_dir(root)
        .status()
        .context("starting cargo")?;
    ensure!(status.success(), "the lab failed");
    Ok(report)
}

/// All tables of a report.
pub(super) fn tables(document: &Value) -> Result<Tables> {
    let reports = document.as_array().context("the report of the lab is an array")?;
    let named = |name: &str| reports.iter().find(|report| report["experiment"] == name);
    let all: Option<Vec<&Value>> = MECHANISMS.iter().map(|(name, _)| named(name)).collect();
    let all = all.context("the report lacks an experiment: run all of them")?;
    let run = &all[0]["run"];
    let start = Table {
        command: command(run["command"].as_str().unwrap_or_default()),
        machine: format!(
            "{} CPUs ({}), {}, {}",
            run["cpus"],
            word(&run["cpu"]),
            word(&run["system"]),
            word(&run["priority"])
        ),
        conditions: format!(
            "Medians of {} pairs of runs of {} s, before and after in turn.",
            run["pairs"], run["seconds"]
        ),
        ..Table::default()
    };
    let mut tables = Tables::new();
    let mut add = |name: &str, header: &[&str], rows: Vec<Vec<String>>| {
        let header = header.iter().map(|title| (*title).to_owned()).collect();
        tables.insert(format!("lab.{name}"), Table { header, rows, ..start.clone() });
    };
    add("headlines", &HEADLINES, all.iter().zip(MECHANISMS).map(headline).collect());
    add("missed", &["mechanism", "missed", "here", "wanted"], missed(&all));
    add("policies", &POLICIES, policies(all[2]));
    for (report, (name, _)) in all.iter().zip(MECHANISMS) {
        add(name, &DETAILS, details(report));
    }
    Ok(tables)
}

/// The command of this program that runs the lab with the same options. The kernel needs root.
fn command(of_lab: &str) -> String {
    let (_, options) = of_lab.split_once(" lab").unwrap_or_default();
    let mut words: Vec<&str> =
        options.split_whitespace().filter(|word| *word != "--full").collect();
    if let Some(json) = words.iter().position(|word| *word == "--json") {
        words.drain(json..words.len().min(json + 2));
    }
    let sudo = if words.contains(&"--kernel") { "sudo -E " } else { "" };
    [&[&*format!("{sudo}cargo xtask figures lab")], &words[..]].concat().join(" ")
}

const HEADLINES: [&str; 7] =
    ["mechanism", "figure", "published", "here", "all on", "gain, published", "gain, here"];

/// Published, measured, and whether it is the published gain.
fn headline((report, (_, mechanism)): (&&Value, (&str, &str))) -> Vec<String> {
    let headline = &report["headline"];
    let gain = |ratio: &Value| {
        let Some(ratio) = ratio.as_f64() else { return "-".to_owned() };
        match headline["lower_is_better"] == true {
            true if ratio == 0.0 => "all".to_owned(),
            true => format!("{:.2}", 1.0 / ratio),
            false => format!("{ratio:.2}"),
        }
    };
    let both = |side: &Value| {
        format!("{} to {}", shown(&side["before"], headline), shown(&side["after"], headline))
    };
    let derived = if headline["derived"].is_string() { " (derived)" } else { "" };
    let short = if headline["reached"] == true { "" } else { ", short" };
    vec![
        mechanism.to_owned(),
        word(&headline["label"]),
        match headline["published"].is_object() {
            true => both(&headline["published"]) + derived,
            false => "-".to_owned(),
        },
        both(&headline["measured"]),
        shown(&headline["measured"]["best"], headline),
        gain(&headline["published"]["ratio"]),
        gain(&headline["ratio"]["median"]) + short,
    ]
}

/// What an experiment missed, and what it cannot reproduce.
fn missed(all: &[&Value]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (report, (name, _)) in all.iter().zip(MECHANISMS) {
        let list = |field: &str| report["verdict"][field].as_array().map_or(&[][..], Vec::as_slice);
        for check in list("checks").iter().filter(|check| check["reached"] != true) {
            let row = ["what", "measured", "wanted"].map(|field| word(&check[field]));
            rows.push([&[name.to_owned()], &row[..]].concat());
        }
        for what in list("not_reproduced") {
            rows.push(vec![name.to_owned(), word(what), String::new(), String::new()]);
        }
    }
    rows
}

const POLICIES: [&str; 3] =
    ["policy", "bulk, data segments (floor 7246)", "4096 bytes each way, packets per transaction"];

/// What each policy for tails makes of both workloads of `tso-trim`.
fn policies(report: &Value) -> Vec<Vec<String>> {
    let row = |(policy, cases, column): (&str, &str, &str)| {
        let column = &report[column];
        let value = |name: &str, figure: &str, places: usize| {
            let case = column["cases"].get(format!("{name}: {cases}")).unwrap_or(column);
            case[figure].as_f64().map_or_else(|| "-".into(), |value| format!("{value:.places$}"))
        };
        let segments = value("bulk", "data_segments", 0);
        vec![format!("`{policy}`"), segments, value("rr", "packets_per_transaction", 1)]
    };
    let all = [
        ("split", "split -> nagle", "before"),
        ("empty", "empty -> trim", "before"),
        ("trim", "empty -> trim", "after"),
        ("nagle", "split -> nagle", "after"),
    ];
    all.map(row).to_vec()
}

const DETAILS: [&str; 7] =
    ["case", "figure", "before", "after", "all on", "after / before", "kernel"];

/// Every figure of every case that the lab shows.
fn details(report: &Value) -> Vec<Vec<String>> {
    let row = |figure: &Value| {
        let path = figure["path"].as_str().unwrap_or_default();
        let case = figure["case"].as_str();
        let within = |part: &Value| case.map_or(part, |case| &part["cases"][case]).clone();
        let of = |part: &Value| shown(&at(part, path), figure);
        let kernel = within(&report["kernel"]);
        let kernel = match (kernel["before"].is_object(), kernel["after"].is_object()) {
            (true, _) => format!("{} to {}", of(&kernel["before"]), of(&kernel["after"])),
            (false, true) => of(&kernel["after"]),
            (false, false) => String::new(),
        };
        let ratio = at(&within(&report["ratio"]), path);
        let ratio = ["median", "min", "max"].map(|part| ratio[part].as_f64());
        vec![
            case.map_or_else(|| word(&report["before"]["case"]), str::to_owned),
            word(&figure["label"]),
            of(&within(&report["before"])),
            of(&within(&report["after"])),
            of(&within(&report["best"])),
            match ratio {
                [Some(median), Some(min), Some(max)] => {
                    format!("{median:.2} ({min:.2} to {max:.2})")
                }
                _ => "-".into(),
            },
            kernel,
        ]
    };
    report["shown"].as_array().map_or(&[][..], Vec::as_slice).iter().map(row).collect()
}

/// A value as the description of its figure has it.
fn shown(value: &Value, figure: &Value) -> String {
    let places = figure["places"].as_u64().unwrap_or(2) as usize;
    let scale = figure["scale"].as_f64().unwrap_or(1.0);
    value.as_f64().map_or_else(|| "-".into(), |value| format!("{:.places$}", value / scale))
}

/// The value at a path with dots. Names of counters have dots themselves.
fn at(value: &Value, path: &str) -> Value {
    match (value.get(path), path.split_once('.')) {
        (Some(found), _) => found.clone(),
        (None, Some((name, rest))) => at(&value[name], rest),
        (None, None) => Value::Null,
    }
}

/// A value as a cell shows it. A bar would end the cell.
fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.replace('|', "/"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_of_a_report() {
        let ratio = json!({ "median": 0.5, "min": 0.4, "max": 0.6 });
        let report = |name: &str| {
            json!({
                "experiment": name,
                "before": { "case": "c", "p": 4e6, "cases": { "d": { "p": 1e6 } } },
                "after": { "p": 2e6, "cases": { "d": { "p": 1e6 } } },
                "best": { "p": 1e6, "cases": {} },
                "ratio": { "p": ratio, "cases": {} },
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
                    "before": { "p": 6e6 }, "after": { "p": 7e6 },
                    "cases": { "d": { "before": null, "after": { "p": 8e6 } } },
                },
                "run": {
                    "command": "plimsoll lab --full --json x --kernel", "cpus": 2, "cpu": "C",
                    "system": "S", "priority": "nice 0", "pairs": 5, "seconds": 0.8,
                },
            })
        };
        let all: Vec<Value> = MECHANISMS.iter().map(|(name, _)| report(name)).collect();
        let tables = tables(&all.clone().into()).unwrap();
        let head = &tables["lab.headlines"];
        assert_eq!(
            (&*head.command, &*head.machine),
            ("sudo -E cargo xtask figures lab --kernel", "2 CPUs (C), S, nice 0")
        );
        let want = ["3.0 to 2.0 (derived)", "4.0 to 2.0", "1.0", "1.50", "2.00, short"];
        assert_eq!(head.rows[0][2..], want);
        let rows = &tables["lab.autocork"].rows;
        assert_eq!(rows[0], ["c", "l", "4.0", "2.0", "1.0", "0.50 (0.40 to 0.60)", "6.0 to 7.0"]);
        assert_eq!(rows[1], ["d", "l", "1.0", "1.0", "-", "-", "8.0"]);
        let missed = &tables["lab.missed"].rows;
        assert_eq!(missed[..2], [["tso-split", "w", "2", "1"], ["tso-split", "z", "", ""]]);
        assert!(super::tables(&all[..4].to_vec().into()).is_err());
    }
}
