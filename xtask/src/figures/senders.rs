//! The tables of `cargo xtask bench senders`: our sender, or receiver, beside Linux's.
//!
//! A document has one congestion control and one direction. They can be taken in pieces: a row of
//! a later document takes the place of the same path in an earlier one of its kind.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::tables::{pairs_of, text};
use super::{Effort, Rows, counted, measured_part, median};
use crate::steps;

/// How many paths at a time: nothing of a run keeps a processor busy.
const JOBS: &str = "5";

/// Both controllers, we send.
pub(super) fn sending(root: &Path, effort: Effort) -> Result<Rows> {
    let mut taken = controls(root, effort, &[])?;
    taken.push(take(root, effort, &["--congestion", "cubic", "--kernel-twice"])?);
    paths(&taken, "send")
}

/// Both controllers, we receive.
pub(super) fn receiving(root: &Path, effort: Effort) -> Result<Rows> {
    paths(&controls(root, effort, &["--receive"])?, "receive")
}

/// Those of nsperf's scenarios that fit through a link in real time.
pub(super) fn nsperf(root: &Path, effort: Effort) -> Result<Rows> {
    let alone = ["--nsperf", "--seconds", effort.of("60", "10")];
    let beside = ["--nsperf", "--seconds", effort.of("180", "10"), "--congestion", "cubic"];
    let mut taken = Vec::new();
    for control in ["cubic", "bbr"] {
        taken.push(take(root, effort, &[&alone[..], &["--congestion", control]].concat())?);
    }
    taken.push(take(root, effort, &[&beside[..], &["--beside", "bbr"]].concat())?);
    scenarios(&taken)
}

/// Each controller beside the same of a kernel's, on the paths of nsperf's "coexist".
pub(super) fn fairness(root: &Path, effort: Effort) -> Result<Rows> {
    let seconds = effort.of("60", "10");
    let taken = ["cubic", "reno"].map(|control| {
        let options = ["--nsperf", "--seconds", seconds, "--congestion", control];
        take(root, effort, &[&options[..], &["--kernel-beside", control]].concat())
    });
    scenarios(&taken.into_iter().collect::<Result<Vec<_>>>()?)
}

fn controls(root: &Path, effort: Effort, options: &[&str]) -> Result<Vec<Value>> {
    let taken = ["cubic", "reno"]
        .map(|control| take(root, effort, &[options, &["--congestion", control]].concat()));
    taken.into_iter().collect()
}

fn take(root: &Path, effort: Effort, options: &[&str]) -> Result<Value> {
    let words: Vec<&str> = options.iter().map(|option| option.trim_start_matches("--")).collect();
    let part = [&["senders"], &words[..]].concat().join("-");
    let options = [options, &["--jobs", JOBS], effort.quick()].concat();
    measured_part(root, "senders", &part, &options, steps::bench)
}

/// The documents, those of one kind as one.
fn merged(documents: &[Value]) -> Result<Vec<Value>> {
    let kind = |taken: &Value| {
        let names = ["congestion_control", "way", "beside", "kernel_beside", "seconds"];
        // An earlier document does not say so of the kernel beside itself.
        (names.map(|name| taken[name].clone()), taken["kernel_twice"] == true)
    };
    let mut all: Vec<Value> = Vec::new();
    for taken in documents {
        let Some(earlier) = all.iter_mut().find(|other| kind(other) == kind(taken)) else {
            all.push(taken.clone());
            continue;
        };
        for (place, row) in rows(taken).iter().enumerate() {
            let same = rows(earlier).iter().position(|other| other["path"] == row["path"]);
            let same =
                same.with_context(|| format!("the first document has no path {}", row["path"]))?;
            earlier["rows"][same] = row.clone();
            earlier["table"]["rows"][same] = taken["table"]["rows"][place].clone();
        }
    }
    ensure!(!all.is_empty(), "no document of the bench is named");
    Ok(all)
}

fn rows(taken: &Value) -> &[Value] {
    taken["rows"].as_array().map_or(&[], Vec::as_slice)
}

/// The words of the verdict on each path of a document.
fn verdicts(taken: &Value) -> impl Iterator<Item = &str> {
    let rows = taken["table"]["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| row[7].as_str())
}

/// How many paths have which verdict.
fn sums(taken: &Value) -> String {
    let count = |start: &str| verdicts(taken).filter(|words| words.starts_with(start)).count();
    format!(
        "{} of {} no worse, {} behind, {} worse",
        count("no worse"),
        rows(taken).len(),
        count("behind"),
        count("worse")
    )
}

/// A row for each path, and columns for each controller. A document in which the kernel stands on
/// both sides says what chance does.
pub(super) fn paths(documents: &[Value], way: &str) -> Result<Rows> {
    let documents = merged(documents)?;
    for taken in &documents {
        ensure!(
            taken["way"] == way,
            "this table is about a near end that {way}s; a document has the other direction"
        );
    }
    let (twice, ours): (Vec<Value>, Vec<Value>) =
        documents.into_iter().partition(|taken| taken["kernel_twice"] == true);
    let first = ours.first().context("no document has runs of ours")?;
    let mut header = vec!["path".to_owned()];
    let mut said = format!(
        "ours / the kernel's, the near end {way}s, medians of {} of {} s",
        counted(pairs_of(&ours, |row| &row["pairs"]), "pair"),
        first["seconds"]
    );
    for taken in &ours {
        let control = text(&taken["congestion_control"]);
        header.extend([format!("{control}, Mbit/s"), "sent again".into(), "queue p95".into()]);
        said += &format!("; {control}: {}", sums(taken));
    }
    for taken in &twice {
        let control = text(&taken["congestion_control"]);
        said += &format!("; the kernel beside itself, {control}: {}", sums(taken));
    }
    said += &late(&ours);
    header.push("behind or worse".into());
    let names = rows(first).iter().map(|row| text(&row["path"]));
    let rows = names.map(|path| paths_row(&path, &ours)).collect();
    Ok(Rows { conditions: said, header, rows })
}

/// What each controller reached on one path, and where ours is behind.
fn paths_row(path: &str, documents: &[Value]) -> Vec<String> {
    let mut row = vec![path.to_owned()];
    let mut said = Vec::new();
    for taken in documents {
        let lines = taken["table"]["rows"].as_array().into_iter().flatten();
        let cells = lines.filter_map(|line| line.as_array());
        let cells = cells.map(|line| line.iter().map(text).collect::<Vec<_>>());
        let found = cells.into_iter().find(|line| line.first().is_some_and(|first| first == path));
        let Some([_, ours, kernel, ratio, spread, again, queue, verdict]) =
            found.as_ref().and_then(|line| line.first_chunk())
        else {
            row.extend(["-", "-", "-"].map(str::to_owned));
            continue;
        };
        let plain = |rate: &str| rate.trim_end_matches(" Mbit/s").to_owned();
        row.push(format!("{} / {} = {ratio} ({spread})", plain(ours), plain(kernel)));
        row.extend([again.clone(), queue.clone()]);
        if verdict != "no worse" {
            said.push(format!("{} {verdict}", text(&taken["congestion_control"])));
        }
    }
    row.push(said.join("; "));
    row
}

/// How late the link was, in milliseconds.
fn late(documents: &[Value]) -> String {
    let pairs = documents.iter().flat_map(rows).filter_map(|row| row["pairs"].as_array()).flatten();
    let runs = pairs.flat_map(|pair| [&pair["ours"], &pair["kernel"]]);
    let late: Vec<f64> = runs.filter_map(|run| run["link_late_ms_p99"].as_f64()).collect();
    if late.is_empty() {
        return String::new();
    }
    format!("; the link was late by {:.2} ms (p99 of the middle run)", median(&late))
}

const SCENARIOS: [&str; 7] = [
    "flows",
    "queue",
    "first flow, Mbit/s",
    "second flow, Mbit/s",
    "Jain's index",
    "sent again",
    "queue p50",
];

/// A row for each path of nsperf's scenarios, ours / Linux's.
pub(super) fn scenarios(documents: &[Value]) -> Result<Rows> {
    let documents = merged(documents)?;
    let has_bbr = documents
        .iter()
        .any(|taken| taken["congestion_control"] == "bbr" || taken["beside"] == "bbr");
    let mut lines = Vec::new();
    for taken in &documents {
        ensure!(taken["nsperf"] == true, "this table is of documents taken with --nsperf");
        let control = text(&taken["congestion_control"]).to_uppercase();
        let beside = text(&taken["beside"]).to_uppercase();
        let flows = match (beside.is_empty(), taken["kernel_beside"] == true) {
            (true, _) => format!("{control} alone"),
            (false, true) => format!("{control}, Linux's {beside} beside"),
            (false, false) => format!("{control}, {beside} of the same stack beside"),
        };
        let flows = format!("{flows}, {} s", taken["seconds"]);
        lines.extend(rows(taken).iter().map(|row| scenario(&flows, row)));
    }
    let conditions = format!(
        "`bench senders --nsperf`, ours / Linux's, over 50 Mbit/s and 30 ms, medians of {}{}{}",
        counted(pairs_of(&documents, |row| &row["pairs"]), "pair"),
        if has_bbr { "; Linux's BBR is version 1" } else { "" },
        late(&documents)
    );
    let header = SCENARIOS.map(str::to_owned).to_vec();
    Ok(Rows { conditions, header, rows: lines })
}

fn scenario(flows: &str, row: &Value) -> Vec<String> {
    let pairs = row["pairs"].as_array().map_or(&[][..], Vec::as_slice);
    let middle = |side: &str, name: &str| {
        let values: Vec<f64> = pairs.iter().filter_map(|pair| pair[side][name].as_f64()).collect();
        (!values.is_empty()).then(|| median(&values))
    };
    let both = |name: &str, scale: f64, unit: &str| {
        let [ours, kernel] = ["ours", "kernel"].map(|side| middle(side, name));
        ours.zip(kernel).map_or_else(String::new, |(ours, kernel)| {
            format!("{:.2} / {:.2}{unit}", ours / scale, kernel / scale)
        })
    };
    let path = text(&row["path"]);
    vec![
        flows.to_owned(),
        path.rsplit(", ").next().unwrap_or_default().to_owned(),
        both("throughput_bits_per_s", 1e6, ""),
        both("beside_bits_per_s", 1e6, ""),
        both("fairness", 1.0, ""),
        both("sent_again_percent", 1.0, " %"),
        both("queue_delay_ms_p50", 1.0, " ms"),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken(control: &str, verdict: &str) -> Value {
        json!({
            "congestion_control": control, "seconds": 15.0, "way": "send", "kernel_twice": false,
            "rows": [{ "path": "p", "pairs": [{
                "ours": { "link_late_ms_p99": 0.25 }, "kernel": { "link_late_ms_p99": 0.75 },
            }] }],
            "table": { "header": ["path"], "rows": [[
                "p", "9.00 Mbit/s", "10.00 Mbit/s", "0.90", "0.80 to 1.00",
                "1.00 / 1.10 %", "2.00 / 2.10 ms", verdict,
            ]] },
        })
    }

    #[test]
    fn two_controls_stand_beside_each_other() {
        let both = [taken("cubic", "worse: goodput (9 of 10)"), taken("reno", "no worse")];
        let made = paths(&both, "send").unwrap();
        let (rate, again, queue) =
            ("9.00 / 10.00 = 0.90 (0.80 to 1.00)", "1.00 / 1.10 %", "2.00 / 2.10 ms");
        let verdict = "cubic worse: goodput (9 of 10)";
        assert_eq!(made.rows, [["p", rate, again, queue, rate, again, queue, verdict]]);
        assert_eq!(made.header.len(), made.rows[0].len());
        let said = &made.conditions;
        assert!(said.contains("cubic: 0 of 1 no worse, 0 behind, 1 worse; reno: 1 of 1"), "{said}");
        assert!(said.contains("late by 0.50 ms"), "{said}");
        assert!(said.contains("medians of 1 pair of 15.0 s"), "{said}");
        assert!(paths(&both, "receive").is_err());
        assert!(paths(&[], "send").is_err());
    }

    #[test]
    fn later_rows_take_the_place_of_earlier_ones() {
        let mut later = taken("cubic", "no worse");
        later["rows"][0]["pairs"] = json!([{}, {}]);
        let made = paths(&[taken("cubic", "behind: queue (3 of 3)"), later.clone()], "send");
        let made = made.unwrap();
        assert_eq!(made.rows.len(), 1);
        assert!(made.conditions.contains("1 of 1 no worse"), "{}", made.conditions);
        assert!(made.conditions.contains("2 pairs"), "{}", made.conditions);
        later["rows"][0]["path"] = json!("other");
        assert!(paths(&[taken("cubic", ""), later], "send").is_err());
    }

    #[test]
    fn the_kernel_beside_itself_is_said_and_has_no_columns() {
        let mut twice = taken("cubic", "behind: queue (3 of 3)");
        twice["kernel_twice"] = json!(true);
        let made = paths(&[taken("cubic", "no worse"), twice.clone()], "send").unwrap();
        assert_eq!(made.header.len(), 5);
        let said = "the kernel beside itself, cubic: 0 of 1 no worse, 1 behind, 0 worse";
        assert!(made.conditions.contains(said), "{}", made.conditions);
        assert!(paths(&[twice], "send").is_err());
    }

    #[test]
    fn scenarios_name_their_flows() {
        let side = |rate: f64| {
            json!({ "throughput_bits_per_s": rate, "beside_bits_per_s": null, "fairness": null,
                "sent_again_percent": 0.5, "queue_delay_ms_p50": 2.0 })
        };
        let mut taken = json!({
            "congestion_control": "bbr", "beside": null, "kernel_beside": false, "nsperf": true,
            "seconds": 60.0,
            "rows": [{ "path": "50 Mbit/s, 30 ms, loss 0 %, 10 BDP",
                "pairs": [{ "ours": side(47e6), "kernel": side(46e6) }] }],
        });
        let made = scenarios(std::slice::from_ref(&taken)).unwrap();
        let want = [
            "BBR alone, 60.0 s",
            "10 BDP",
            "47.00 / 46.00",
            "",
            "",
            "0.50 / 0.50 %",
            "2.00 / 2.00 ms",
        ];
        assert_eq!(made.rows, [want]);
        taken["nsperf"] = json!(false);
        assert!(scenarios(&[taken]).is_err());
    }
}
