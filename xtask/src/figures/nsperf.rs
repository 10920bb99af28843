//! The table of nsperf's scenarios: the plans of `docs/plans/nsperf`, run in the simulator.
//!
//! A row has one path, with the figures of CUBIC beside those of BBR, or of both where they share
//! the path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Effort, Rows, counted, median, program, read, said};

/// Which, in the order of the table.
const SCENARIOS: [&str; 5] = ["coexist", "random_loss", "shallow", "bufferbloat", "ecn_bulk"];

/// The longest that one plan may take: "random_loss" has many cells at a gigabit a second.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

const CONTROLLERS: [&str; 2] = ["cubic", "bbr"];

/// Keys of the grids, as the table names them.
const NAMES: [(&str, &str); 4] = [
    ("loss", "loss"),
    ("buffer", "queue"),
    ("flows", "flows"),
    ("host[*].sysctl.\"net.ipv4.tcp_ecn\"", "tcp_ecn"),
];

/// Runs all plans.
pub(super) fn take(root: &Path, effort: Effort) -> Result<Rows> {
    let program = program(root)?;
    let mut taken = Vec::new();
    for scenario in SCENARIOS {
        let plan = root.join(format!("docs/plans/nsperf/{scenario}.toml"));
        let plan = plan.to_str().context("the path of the repository is text")?;
        let seeds = effort.of(&[][..], &["--seeds", "0..1"]);
        let words = [&["sim", "batch", plan], seeds].concat();
        taken.push((scenario.to_owned(), said(&program, &words, LIMIT)?));
    }
    table(&taken)
}

/// The same from documents that were taken before, each named after its scenario.
pub(super) fn from(documents: &[String]) -> Result<Rows> {
    let mut taken = Vec::new();
    for path in documents.iter().map(PathBuf::from) {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        anyhow::ensure!(
            SCENARIOS.contains(&name.as_str()),
            "{}: name the file after its scenario: {}",
            path.display(),
            SCENARIOS.join(", ")
        );
        taken.push((name, read(&path)?));
    }
    taken.sort_by_key(|(name, _)| SCENARIOS.iter().position(|scenario| scenario == name));
    table(&taken)
}

/// What the runs of one cell gave: medians.
struct Figures {
    /// Megabits per second, of each flow.
    flows: Vec<f64>,
    all: f64,
    again: f64,
    queue: [f64; 2],
}

impl Figures {
    fn of(cell: &Value) -> Result<Figures> {
        let runs = cell["runs"].as_array().context("a cell without runs")?;
        let middle =
            |figure: &dyn Fn(&Value) -> f64| median(&runs.iter().map(figure).collect::<Vec<f64>>());
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let flow = |number_of: usize| {
            middle(&|run| number(&run["flow_goodput_bits_per_s"][number_of]) / 1e6)
        };
        let count = runs.first().and_then(|run| run["flow_goodput_bits_per_s"].as_array());
        let queue = |name| middle(&|run: &Value| number(&run["queue_delay_us"][name]) / 1e3);
        Ok(Figures {
            flows: (0..count.map_or(0, Vec::len)).map(flow).collect(),
            all: middle(&|run| number(&run["goodput_bits_per_s"]) / 1e6),
            again: middle(&|run| number(&run["retransmitted"]) / number(&run["segments"]) * 100.0),
            queue: [queue("p50"), queue("p95")],
        })
    }

    /// Jain's index of fairness: 1 if all flows get the same.
    fn fairness(&self) -> String {
        if self.flows.len() < 2 {
            return String::new();
        }
        let sum: f64 = self.flows.iter().sum();
        let squares: f64 = self.flows.iter().map(|rate| rate * rate).sum();
        format!("{:.2}", sum * sum / squares / self.flows.len() as f64)
    }

    fn cells(&self, rate: f64) -> [String; 4] {
        let [p50, p95] = self.queue;
        let again = format!("{:.3} %", self.again);
        [format!("{rate:.2}"), self.fairness(), again, format!("{p50:.2}, {p95:.2} ms")]
    }
}

fn table(taken: &[(String, Value)]) -> Result<Rows> {
    let mut rows = Vec::new();
    let mut runs = Vec::new();
    for (scenario, document) in taken {
        let cells = document["cells"].as_array().context("the results have no cells")?;
        runs.extend(cells.iter().filter_map(|cell| cell["runs"].as_array()).map(Vec::len));
        for cell in cells {
            let (path, controller) = named(document, cell)?;
            let figures = Figures::of(cell)?;
            let start = vec![scenario.replace('_', " "), path];
            match controller.as_str() {
                // Both share the path: first the flow of CUBIC, then that of BBR.
                "" => {
                    let rate = |flow: usize| figures.flows.get(flow).copied().unwrap_or(f64::NAN);
                    let cubic = figures.cells(rate(0)).to_vec();
                    let bbr = vec![format!("{:.2}", rate(1)), String::new()];
                    rows.push([start, cubic, bbr, vec![String::new(); 2]].concat());
                }
                "cubic" => rows.push([start, figures.cells(figures.all).to_vec()].concat()),
                _ => {
                    let beside = rows.iter_mut().find(|row| row.starts_with(&start));
                    let beside = beside.context("a path without CUBIC")?;
                    beside.extend(figures.cells(figures.all));
                }
            }
        }
    }
    let mut header = vec!["scenario".to_owned(), "path".to_owned()];
    for controller in CONTROLLERS {
        let name = controller.to_uppercase();
        header.push(format!("{name}, Mbit/s"));
        header.extend(["fairness", "sent again", "queue p50, p95"].map(str::to_owned));
    }
    let (least, most) = (runs.iter().min().unwrap_or(&0), runs.iter().max().unwrap_or(&0));
    let seeds =
        if least == most { counted(*most, "seed") } else { format!("{least} to {most} seeds") };
    let conditions =
        format!("the plans of `docs/plans/nsperf` in the simulator, medians of {seeds}");
    Ok(Rows { conditions, header, rows })
}

/// What the grid says of the path of a cell, and of its controller.
fn named(document: &Value, cell: &Value) -> Result<(String, String)> {
    let keys = document["keys"].as_array().context("the results have no keys")?;
    let values = cell["values"].as_array().context("a cell has no values")?;
    let (mut path, mut controller) = (Vec::new(), String::new());
    for (key, value) in keys.iter().zip(values) {
        let (key, value) = (key.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
        if key == "controller" {
            value.clone_into(&mut controller);
            continue;
        }
        let name = NAMES.iter().find(|(long, _)| *long == key).map_or(key, |(_, name)| name);
        path.push(format!("{name} {value}"));
    }
    Ok((path.join(", "), controller))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(rates: &[u64]) -> Value {
        json!({
            "goodput_bits_per_s": rates.iter().sum::<u64>(), "flow_goodput_bits_per_s": rates,
            "segments": 1000, "retransmitted": 5,
            "queue_delay_us": { "p50": 1000, "p95": 2000, "p99": 0, "max": 0 },
        })
    }

    #[test]
    fn bbr_stands_beside_cubic() {
        let cell = |controller: &str, rate: u64| {
            let runs = [run(&[rate]), run(&[3 * rate])];
            json!({ "values": [controller, "1%"], "runs": runs })
        };
        let cells = [cell("cubic", 1_000_000), cell("bbr", 7_000_000)];
        let document = json!({ "keys": ["controller", "loss"], "cells": cells });
        let rows = table(&[("random_loss".into(), document)]).unwrap();
        let expected = [
            "random loss",
            "loss 1%",
            "2.00",
            "",
            "0.500 %",
            "1.00, 2.00 ms",
            "14.00",
            "",
            "0.500 %",
            "1.00, 2.00 ms",
        ];
        assert_eq!(rows.rows, [expected]);
        assert_eq!(rows.header.len(), expected.len());
        assert!(rows.conditions.ends_with("medians of 2 seeds"), "{}", rows.conditions);
    }

    #[test]
    fn flows_that_share_a_path_are_shown_by_themselves() {
        let cell = json!({ "values": ["1bdp"], "runs": [run(&[10_000_000, 30_000_000])] });
        let document = json!({ "keys": ["buffer"], "cells": [cell] });
        let rows = table(&[("coexist".into(), document)]).unwrap();
        assert_eq!(rows.rows[0][1..4], ["queue 1bdp", "10.00", "0.80"]);
        assert_eq!(rows.rows[0][6], "30.00");
        assert_eq!(rows.rows[0].len(), rows.header.len());
        assert!(from(&["/nowhere/other.json".into()]).is_err());
    }
}
