//! The document that the comparison writes, with every sample.
//!
//! The whole comparison takes ten minutes or more, and a machine that does nothing else may be had
//! for less. So what several runs have taken can be put together into one document.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::runs::{BULK_CONNECTIONS, Fetched, IDLE_CONNECTIONS, Memory};
use super::table::{PUBLISHED, Side, cells, cpu, null, ours, published, rate};
use super::{Findings, LongFile, Plan, Row};
use crate::bench::table::{median, spread};

/// What is taken now, together with what a run `before` has taken and this one has not.
pub(super) fn joined(before: Value, mut now: Value) -> Result<Value> {
    ensure!(
        before["seconds"] == now["seconds"],
        "--into: the document was taken with runs of {} s, this run with {} s; give the same, or \
         write another document by --json",
        before["seconds"],
        now["seconds"]
    );
    for field in ["memory", "file"] {
        if now[field].is_null() {
            now[field] = before[field].clone();
        }
    }
    let rows = |document: &Value| document["rows"].as_array().cloned().unwrap_or_default();
    let name = |row: &Value| (row["path"].clone(), row["direction"].clone());
    let taken = rows(&now);
    let again = |row: &Value| taken.iter().find(|other| name(other) == name(row)).cloned();
    let mut all: Vec<Value> =
        rows(&before).into_iter().map(|row| again(&row).unwrap_or(row)).collect();
    let is_new = |row: &&Value| !all.iter().any(|other| name(other) == name(row));
    let new: Vec<Value> = taken.iter().filter(is_new).cloned().collect();
    all.extend(new);
    now["rows"] = all.into();
    Ok(now)
}

/// The table of a document, as it is published.
pub(super) fn table(document: &Value) -> Value {
    let at = |place: &str| document.pointer(place);
    let mib = |side: &str, when: &str| {
        let bytes = at(&format!("/memory/{side}/{when}")).and_then(Value::as_f64);
        bytes.map_or("-".to_owned(), |bytes| format!("{:.0}", bytes / 1048576.0))
    };
    let both = |when| format!("{} : {}", mib("ours", when), mib("published", when));
    let pairs = at("/rows/0/ours/samples").and_then(Value::as_array).map_or(0, Vec::len);
    let rows = document["rows"].as_array().into_iter().flatten();
    json!({
        "conditions": format!(
            "Medians of {pairs} pairs of runs of {} s. Resident memory in MiB, on Plimsoll : as \
             published: {} at the start, {} with {BULK_CONNECTIONS} bulk connections.",
            document["seconds"], both("started"), both("load")
        ),
        "header": PUBLISHED,
        "rows": rows.map(|row| &row["cells"]).collect::<Vec<_>>(),
    })
}

/// The findings as JSON, with every sample.
pub(super) fn json(findings: &Findings, plan: Plan) -> Value {
    json!({
        "seconds": plan.seconds.as_secs_f64(),
        "rows": findings.rows.iter().map(row_json).collect::<Vec<_>>(),
        "memory": findings.memory.as_ref().map(|memory| json!({
            "idle_connections": IDLE_CONNECTIONS,
            "bulk_connections": BULK_CONNECTIONS,
            "ours": memory_json(&memory.ours),
            "published": memory_json(&memory.published),
        })),
        "file": findings.file.as_ref().map(file_json),
    })
}

fn row_json(row: &Row) -> Value {
    let side = |side: Side| {
        let samples = row.trials.iter().map(|trial| {
            side(trial).map(
                |bulk| json!({ "bits_per_s": bulk.bits_per_s, "cpu_s_per_gb": bulk.cpu_per_gb }),
            )
        });
        json!({
            "samples": samples.collect::<Vec<_>>(),
            "bits_per_s": row.middle(side, rate),
            "cpu_s_per_gb": row.middle(side, cpu),
        })
    };
    let ratios = row.ratios(ours, published);
    let (smallest, largest) = spread(&ratios).unzip();
    json!({
        "path": row.line.name(),
        "round_trip_ms": row.line.round_trip,
        "loss_percent": row.line.loss,
        "direction": row.direction.name(),
        "ours": side(ours),
        "published": side(published),
        "null": side(null),
        "ratio_median": median(&ratios),
        "ratio_min": smallest,
        "ratio_max": largest,
        "floor": row.floor(),
        "verdict": row.verdict(),
        "errors": row.errors,
        "cells": cells(row),
    })
}

fn memory_json(memory: &Result<Memory>) -> Value {
    match memory {
        Ok(Memory { started, idle, load, after }) => {
            json!({ "started": started, "idle": idle, "load": load, "after": after })
        }
        Err(error) => json!({ "error": format!("{error:#}") }),
    }
}

fn file_json(file: &LongFile) -> Value {
    let side = |fetched: &Result<Fetched>| match fetched {
        Ok(fetched) => {
            json!({ "seconds": fetched.seconds, "equal": fetched.digest == file.digest })
        }
        Err(error) => json!({ "error": format!("{error:#}") }),
    };
    json!({
        "bytes": file.bytes,
        "sha256": file.digest,
        "ours": side(&file.fetched.ours),
        "published": side(&file.fetched.published),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(seconds: u64, rows: &[(&str, u64)], memory: Value) -> Value {
        let rows = rows.iter().map(|(path, ours)| json!({ "path": path, "ours": ours }));
        json!({ "seconds": seconds, "rows": rows.collect::<Vec<_>>(), "memory": memory })
    }

    #[test]
    fn what_is_taken_again_takes_the_place_of_what_was() {
        let before = document(3, &[("a", 1), ("b", 2)], json!(7));
        let now = document(3, &[("c", 5), ("b", 4)], Value::Null);
        let both = joined(before, now).unwrap();
        let rows = document(3, &[("a", 1), ("b", 4), ("c", 5)], Value::Null)["rows"].clone();
        assert_eq!((&both["rows"], &both["memory"]), (&rows, &json!(7)));
    }

    #[test]
    fn runs_of_other_lengths_are_not_put_together() {
        let (three, five) = (document(3, &[], json!(1)), document(5, &[], json!(1)));
        let error = joined(three, five).unwrap_err().to_string();
        assert!(error.contains("3 s, this run with 5 s"), "{error}");
    }
}
