//! From the documents of the benches to the rows of tables.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Rows, counted, median};
use crate::bench::idle::ROWS as IDLE_ROWS;
use crate::bench::million::nanos;
use crate::profile::layers::LAYERS;

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("the document of the bench is no array")
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A number, or a dash if it was not taken.
fn number(value: &Value, places: usize) -> String {
    value.as_f64().map_or_else(|| "-".into(), |value| format!("{value:.places$}"))
}

/// The table that a document of a bench holds ready.
fn ready(taken: &Value, conditions: String) -> Result<Rows> {
    let table = taken.get("table").context("the document of the bench has no table")?;
    let words =
        |value: &Value| -> Result<Vec<String>> { Ok(array(value)?.iter().map(text).collect()) };
    let rows = array(&table["rows"])?.iter().map(words).collect::<Result<_>>()?;
    Ok(Rows { conditions, header: words(&table["header"])?, rows })
}

/// The table of `bench udp`. A row of a later document takes the place of the earlier one.
pub(super) fn udp(documents: &[Value]) -> Result<Rows> {
    let (first, later) = documents.split_first().context("no document of the bench is named")?;
    let conditions = format!(
        "{} of {} s; CPU in seconds for a million datagrams or a gigabyte, ours / kernel",
        counted(pairs_of(documents, |row| &row["ours"]), "pair"),
        first["seconds"]
    );
    let mut table = ready(first, conditions)?;
    for taken in later {
        ensure!(
            taken["seconds"] == first["seconds"],
            "runs of {} s and of {} s do not go into one table",
            first["seconds"],
            taken["seconds"]
        );
        for row in ready(taken, String::new())?.rows {
            let same = table.rows.iter_mut().find(|other| other.first() == row.first());
            let Some(same) = same else { bail!("the first document has no row {row:?}") };
            *same = row;
        }
    }
    Ok(table)
}

/// The rows of a profile with what all layers take together: in it, and in the table before it.
const SUM: &str = "all";
const FORMER_SUM: &str = "all, before";

/// The table of `bench kernel`.
pub(super) fn kernel(taken: &Value) -> Result<Rows> {
    let conditions = format!(
        "{} of {} s, kernel sockets with {}",
        counted(&taken["repetitions"], "pair"),
        taken["seconds"],
        text(&taken["kernel_congestion_control"])
    );
    ready(taken, conditions)
}

/// The table of the stacks of `bench peers`, and what is not in it.
pub(super) fn peers(taken: &Value) -> Result<Rows> {
    of_peers(taken, taken, "")
}

/// The table of what forwards, of the same document.
pub(super) fn forwarders(taken: &Value) -> Result<Rows> {
    let forwarders = taken.get("forwarders").context("the document has no table of forwarders")?;
    of_peers(taken, forwarders, " of the process that forwards")
}

/// A table of `bench peers` which, with its notes, is in `part` of the document. `memory` says
/// whose memory it is.
fn of_peers(taken: &Value, part: &Value, memory: &str) -> Result<Rows> {
    let mut conditions = format!(
        "medians of {} of {} s, interleaved, = the ratio to the kernel (its spread), one client \
         on the kernel's sockets with {}; CPU is the machine's busy time, both sides; \
         memory{memory} with {} connections",
        counted(&taken["repetitions"], "run"),
        taken["seconds"],
        text(&taken["kernel_congestion_control"]),
        part["idle_connections"],
    );
    for note in array(&part["notes"])? {
        conditions += &format!("; {}", text(note).replace('|', "/"));
    }
    ready(part, conditions)
}

/// The table of `bench latency`.
pub(super) fn latency(taken: &Value) -> Result<Rows> {
    let conditions = format!(
        "all times of {} of {} s each, the servers in turn, one client on the kernel's sockets with \
         {}; a percentile with fewer than ten samples above it is -",
        counted(&taken["runs"], "run"),
        taken["seconds"],
        text(&taken["kernel_congestion_control"])
    );
    ready(taken, conditions)
}

/// The table of `bench stalls`.
pub(super) fn stalls(taken: &Value) -> Result<Rows> {
    let row = |talk: &Value| {
        let ms = |name: &str, places| number(&talk["milliseconds"][name], places) + " ms";
        vec![
            text(&talk["conversation"]),
            text(&talk["begins"]),
            text(&talk["nagle"]),
            ms("p50", 3),
            ms("p99", 3),
            ms("max", 1),
            format!("{} of {}", talk["stalls"], talk["rounds"]),
            format!("{} : {}", talk["late_acks"]["ours"], talk["late_acks"]["kernel"]),
        ]
    };
    let header = [
        "conversation",
        "begins",
        "our Nagle",
        "p50",
        "p99",
        "max",
        "stalls",
        "late ACKs, ours : kernel",
    ];
    Ok(Rows {
        conditions: "one connection for each row, the kernel's Nagle on".into(),
        header: strings(&header),
        rows: array(taken)?.iter().map(row).collect(),
    })
}

/// The table of `bench attacks`, of this version.
pub(super) fn attacks(taken: &Value) -> Result<Rows> {
    let row = |found: &Value| {
        let (before, during) = (&found["before"], &found["during"]);
        let megabytes = |part: &Value| {
            part["bytes_per_s"]
                .as_f64()
                .map_or_else(String::new, |rate| format!("{:.0}", rate / 1e6))
        };
        let answered = match during["asked"].as_u64() {
            Some(asked) => format!("{} of {asked}", during["answered"]),
            None => String::new(),
        };
        let longest = match &during["longest_connect_s"] {
            Value::Null => String::new(),
            seconds => number(seconds, 3) + " s",
        };
        let resident = found["resident_bytes"].as_f64().filter(|bytes| *bytes > 0.0);
        let note = if found["error"].is_string() { &found["error"] } else { &found["note"] };
        vec![
            text(&found["what"]),
            megabytes(before),
            megabytes(during),
            longest,
            answered,
            number(&found["cpu_seconds"], 2) + " s",
            resident.map_or_else(String::new, |bytes| format!("{:.0} MiB", bytes / 1_048_576.0)),
            text(note),
        ]
    };
    let header =
        ["attack", "MB/s alone", "beside it", "longest connect", "answered", "CPU", "memory", ""];
    Ok(Rows {
        conditions: "one run of each attack".into(),
        header: strings(&header),
        rows: array(taken)?.iter().map(row).collect(),
    })
}

/// The table of `bench tun2proxy`: a column for each path, and a row for each direction.
pub(super) fn tun2proxy(taken: &Value) -> Result<Rows> {
    let found = array(&taken["rows"])?;
    let mut paths: Vec<&Value> = found.iter().map(|row| &row["path"]).collect();
    paths.dedup();
    let of_direction = |direction: &str| {
        let of_path = |path: &&Value| {
            let mut rows = found.iter().filter(|row| row["path"] == **path);
            rows.find(|row| row["direction"] == direction).map_or_else(|| "-".into(), rates)
        };
        let name = std::iter::once(format!("{direction}, Mbit/s"));
        name.chain(paths.iter().map(of_path)).collect()
    };
    let rows = ["upload", "download"].map(of_direction).to_vec();
    let mut header = vec!["round trip and loss".to_owned()];
    header.extend(paths.iter().map(|path| text(path)));
    Ok(Rows { conditions: tun2proxy_conditions(taken), header, rows })
}

/// Rates of one direction on one path, their ratio, and what it had to be if it is not that.
fn rates(row: &Value) -> String {
    let mbits = |side: &str| {
        row[side]["bits_per_s"].as_f64().map_or_else(
            || "-".into(),
            |bits| format!("{:.*}", usize::from(bits < 1e8), bits / 1e6),
        )
    };
    let ratio = &row["ratio_median"];
    let ratio = number(ratio, usize::from(ratio.as_f64() < Some(10.0)) * 2);
    let missed = match row["verdict"].as_str() {
        Some("floor met") | None => String::new(),
        Some(other) => format!(", {other} of {}", number(&row["floor"], 2)),
    };
    format!("{} : {} = {ratio}{missed}", mbits("ours"), mbits("published"))
}

/// How many pairs the rows have: a number, or a range where more were taken of some. `pairs` is
/// where a row has one value for each.
pub(super) fn pairs_of(documents: &[Value], pairs: impl Fn(&Value) -> &Value) -> String {
    let rows = documents.iter().filter_map(|taken| taken["rows"].as_array()).flatten();
    let pairs = rows.filter_map(|row| pairs(row).as_array().map(Vec::len));
    match (pairs.clone().min(), pairs.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(each), _) => each.to_string(),
        (None, _) => "no".into(),
    }
}

/// What was measured beside the rows.
fn tun2proxy_conditions(taken: &Value) -> String {
    let mut said = format!(
        "medians of {} of {} s, on Plimsoll : as published = median of the ratios",
        counted(pairs_of(std::slice::from_ref(taken), |row| &row["ours"]["samples"]), "pair"),
        taken["seconds"]
    );
    let rows = taken["rows"].as_array().map_or(&[][..], Vec::as_slice);
    // Only the clean path has a null stack. Its figures for one direction, of the three stacks.
    let clean = |direction: &str, figure: &dyn Fn(&Value) -> String, sides: &[&str]| {
        let mut rows = rows.iter().filter(|row| row["direction"] == direction);
        let row = rows.find(|row| row["null"]["bits_per_s"].is_number())?;
        Some(sides.iter().map(|side| figure(&row[*side])).collect::<Vec<_>>().join(" : "))
    };
    let rate =
        |side: &Value| number(&(side["bits_per_s"].as_f64().map(|bits| bits / 1e6)).into(), 0);
    let cost = |side: &Value| number(&side["cpu_s_per_gb"], 1);
    if let Some((up, down)) =
        clean("upload", &rate, &["null"]).zip(clean("download", &rate, &["null"]))
    {
        said += &format!(
            "; a stack that does next to nothing, without delay and loss: {up} up, {down} down"
        );
    }
    let all = ["ours", "published", "null"];
    if let Some((up, down)) = clean("upload", &cost, &all).zip(clean("download", &cost, &all)) {
        said += &format!("; CPU s/GB there, with that stack as the third: {up} up, {down} down");
    }
    let memory = &taken["memory"];
    let mib = |name: &str| {
        let side = |side: &str| {
            let bytes = memory[side][name].as_f64();
            bytes.map_or_else(|| "failed".into(), |bytes| format!("{:.0}", bytes / 1_048_576.0))
        };
        format!("{} : {}", side("ours"), side("published"))
    };
    if memory.is_object() {
        said += &format!(
            "; resident MiB {} at rest, {} with {} idle connections, {} under {} with bulk, {} after",
            mib("started"),
            mib("idle"),
            memory["idle_connections"],
            mib("load"),
            memory["bulk_connections"],
            mib("after"),
        );
    }
    let file = &taken["file"];
    if let Some(bytes) = file["bytes"].as_f64() {
        let side = |side: &str| match (file[side]["seconds"].as_f64(), &file[side]["equal"]) {
            (Some(seconds), Value::Bool(true)) => format!("{seconds:.0} s, SHA-256 equal"),
            (Some(_), _) => "SHA-256 differs".into(),
            (None, _) => "failed".into(),
        };
        let (ours, published) = (side("ours"), side("published"));
        said += &format!("; {} GB downloaded: {ours} : {published}", bytes / 1e9);
    }
    said
}

/// The table of `bench sacked`, of this version.
pub(super) fn sacked(taken: &Value) -> Result<Rows> {
    let row = |run: &Value| {
        let figures = &run["figures"];
        let micros = figures["ns_per_ack"].as_f64().map(|nanos| nanos / 1000.0);
        vec![
            figures["segments"].to_string(),
            figures["acks"].to_string(),
            micros.map_or_else(|| "-".into(), |micros| format!("{micros:.2} us")),
        ]
    };
    Ok(Rows {
        conditions: "the best round".into(),
        header: strings(&["segments in flight", "ACKs", "time for an ACK"]),
        rows: array(taken)?.iter().map(row).collect(),
    })
}

/// The table of `bench atomics`, of this version.
pub(super) fn atomics(taken: &Value) -> Result<Rows> {
    let version = array(taken)?.last().context("no version was counted")?;
    let work = |work: &Value| {
        let (locked, fences) = (work["locked"].as_f64(), work["fences"].as_f64());
        let together = locked.zip(fences).map(|(locked, fences)| locked + fences);
        vec![
            format!("`{}`: {}", text(&work["work"]), text(&work["unit"])),
            number(&work["locked"], 1),
            number(&work["fences"], 1),
            together.map_or_else(|| "-".into(), |together| format!("{together:.1}")),
        ]
    };
    let derived = |derived: &Value| {
        vec![text(&derived["name"]), String::new(), String::new(), number(&derived["atomics"], 1)]
    };
    let work = array(&version["work"])?.iter().map(work);
    let derived = array(&version["derived"])?.iter().map(derived);
    Ok(Rows {
        conditions: "atomic instructions that one stack executes, by callgrind".into(),
        header: strings(&["work", "locked", "fences", "together"]),
        rows: work.chain(derived).collect(),
    })
}

/// The table of `bench idle`, of this version.
pub(super) fn idle(taken: &Value) -> Result<Rows> {
    let version = array(taken)?.last().context("no version was measured")?;
    let figures = &version["figures"];
    let row = |&(name, place): &(&str, &str)| {
        let places = usize::from(name == "allocations");
        let unit = if places == 0 { " B" } else { "" };
        let figure = number(figures.pointer(place).unwrap_or(&Value::Null), places) + unit;
        vec![name.to_owned(), figure]
    };
    Ok(Rows {
        conditions: format!(
            "one end of one of {} connections that were all used at once and have rested, glibc",
            figures["connections"]
        ),
        header: strings(&["of one idle end", "this version"]),
        rows: IDLE_ROWS.iter().map(row).collect(),
    })
}

/// The table of `bench million`.
pub(super) fn million(taken: &Value) -> Result<Rows> {
    let rows = array(&taken["rows"])?;
    let middle = |row: &Value| -> f64 {
        let all = row["ns_per_request"].as_array().map_or(&[][..], Vec::as_slice);
        median(&all.iter().filter_map(Value::as_f64).collect::<Vec<_>>())
    };
    let cycles = |row: &Value| row.pointer("/counted/cycles").and_then(Value::as_f64);
    let first = rows.first().context("nothing was measured")?;
    let (one, one_counted) = (middle(first), cycles(first));
    let row = |row: &Value| {
        let counted = |name: &str, places| number(&row["counted"][name], places);
        let ratio = cycles(row).zip(one_counted).map(|(cycles, one)| cycles / one);
        vec![
            row["connections"].to_string(),
            row["active"].to_string(),
            number(&row["resident_bytes"], 0) + " B",
            number(&row["opened_per_s"], 0),
            nanos(row) + " ns",
            format!("{:.2}", middle(row) / one),
            counted("instructions", 0),
            counted("first_level_misses", 0),
            counted("last_level_misses", 0),
            ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        ]
    };
    Ok(Rows {
        conditions:
            "a request of 64 bytes and its answer, the peers in a second process; time: the \
            middle of five measurements (least to most); counted by callgrind with caches of 32 \
            KiB and 32 MiB, a miss taken as 10 and 100 cycles"
                .into(),
        header: strings(&[
            "connections",
            "active",
            "resident, each",
            "opened a second",
            "time for a request",
            "to one connection",
            "instructions",
            "misses, first cache",
            "misses, last cache",
            "cycles, to one connection",
        ]),
        rows: rows.iter().map(row).collect(),
    })
}

/// The table of `profile`: layers in rows, work in columns.
pub(super) fn profile(taken: &Value, (of, conditions): (&str, &str)) -> Result<Rows> {
    let all = array(taken)?;
    for entry in all {
        ensure!(entry["of"] == of, "{} is counted in {}, not in {of}", entry["row"], entry["of"]);
    }
    let of = |entry: &Value| text(&entry["row"]);
    let cells = |name: &str, cell: &dyn Fn(&Value) -> String| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(all.iter().map(cell)).collect()
    };
    let mut rows = Vec::new();
    for (at, (_, name)) in LAYERS.iter().enumerate() {
        let values = || all.iter().map(move |entry| entry["layers"][at]["value"].as_f64());
        if values().flatten().sum::<f64>() > 0.0 {
            rows.push(cells(name, &|entry| number(&entry["layers"][at]["value"], 0)));
        }
    }
    rows.push(cells(SUM, &|entry| number(&entry["total"], 0)));
    if all.iter().any(|entry| !entry["cycles_total"].is_null()) {
        rows.push(cells("estimated cycles", &|entry| number(&entry["cycles_total"], 0)));
    }
    if all.iter().any(|entry| !entry["units_per_s"].is_null()) {
        rows.push(cells("thousands a second", &|entry| {
            let rate = entry["units_per_s"].as_f64();
            rate.map_or_else(|| "-".into(), |rate| format!("{:.1}", rate / 1000.0))
        }));
        rows.push(cells("system calls", &calls));
    }
    let names = all.iter().map(|entry| format!("`{}`", of(entry)));
    let header = std::iter::once("layer".to_owned()).chain(names).collect();
    Ok(Rows { conditions: conditions.into(), header, rows })
}

/// `rows` with the sums of the table that they replace, as far as it had these columns.
pub(super) fn with_former(mut rows: Rows, former: &Value) -> Rows {
    let cells =
        |row: &Value| row.as_array().map_or(Vec::new(), |row| row.iter().map(text).collect());
    let header: Vec<String> = cells(&former["header"]);
    let lines = former["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(sums) = lines.iter().map(cells).find(|row| row.first().is_some_and(|of| of == SUM))
    else {
        return rows;
    };
    let sum = |column: &String| {
        let at = header.iter().position(|name| name == column);
        at.and_then(|at| sums.get(at).cloned()).unwrap_or_else(|| "-".into())
    };
    let mut line = vec![FORMER_SUM.to_owned()];
    line.extend(rows.header.iter().skip(1).map(sum));
    let at = rows.rows.iter().position(|row| row.first().is_some_and(|of| of == SUM));
    rows.rows.insert(at.map_or(rows.rows.len(), |at| at + 1), line);
    rows
}

/// The most frequent system calls for each unit of work.
fn calls(entry: &Value) -> String {
    let all = entry["system_calls"].as_array().map_or(&[][..], Vec::as_slice);
    let call = |call: &Value| format!("{} {}", text(&call[0]), number(&call[1], 2));
    all.iter().take(3).map(call).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_says_how_it_was_taken() {
        let taken = json!({
            "repetitions": 5, "seconds": 1.0, "kernel_congestion_control": "cubic",
            "table": { "header": ["work"], "rows": [["bulk"]] },
        });
        let made = kernel(&taken).unwrap();
        assert_eq!(made.rows, [["bulk"]]);
        assert_eq!(made.conditions, "5 pairs of 1.0 s, kernel sockets with cubic");
        assert!(kernel(&json!({})).is_err());
    }

    #[test]
    fn peers_that_failed_are_told_beside_the_table() {
        let taken = json!({
            "repetitions": 5, "seconds": 1.0, "kernel_congestion_control": "cubic",
            "idle_connections": 10, "notes": ["lwIP is left out: no | compiler"],
            "table": { "header": ["work"], "rows": [["bulk"]] },
        });
        let made = peers(&taken).unwrap();
        assert_eq!(made.rows, [["bulk"]]);
        assert!(made.conditions.starts_with("medians of 5 runs of 1.0 s"), "{}", made.conditions);
        assert!(made.conditions.ends_with("; lwIP is left out: no / compiler"));
        assert!(forwarders(&taken).is_err(), "the document is older than its second table");
    }

    #[test]
    fn what_forwards_has_a_table_of_the_same_document() {
        let taken = json!({
            "repetitions": 5, "seconds": 1.0, "kernel_congestion_control": "cubic",
            "idle_connections": 10, "notes": [],
            "table": { "header": ["work"], "rows": [["of stacks"]] },
            "forwarders": {
                "idle_connections": 5, "notes": ["pasta 1"],
                "table": { "header": ["work"], "rows": [["bulk"]] },
            },
        });
        let made = forwarders(&taken).unwrap();
        assert_eq!(made.rows, [["bulk"]]);
        let end = "; memory of the process that forwards with 5 connections; pasta 1";
        assert!(made.conditions.ends_with(end), "{}", made.conditions);
        assert!(peers(&taken).unwrap().conditions.ends_with("; memory with 10 connections"));
    }

    #[test]
    fn sums_of_the_former_table_stand_below_the_new_ones() {
        let rows = |names: &[&str], sums: &[&str]| Rows {
            conditions: String::new(),
            header: strings(names),
            rows: vec![strings(&["engine", "1", "1"]), strings(sums), strings(&["calls", "", ""])],
        };
        let former = json!({ "header": ["layer", "`b`"], "rows": [["x", "7"], ["all", "9"]] });
        let new = || rows(&["layer", "`a`", "`b`"], &["all", "3", "4"]);
        let made = with_former(new(), &former);
        assert_eq!(made.rows[2], ["all, before", "-", "9"]);
        assert_eq!(made.rows.len(), 4);
        assert_eq!(with_former(new(), &Value::Null).rows.len(), 3);
    }

    #[test]
    fn latencies() {
        let taken = json!({
            "runs": 5, "seconds": 3.0, "kernel_congestion_control": "cubic",
            "table": { "header": ["p50"], "rows": [["9 us"]] },
        });
        let made = latency(&taken).unwrap();
        assert_eq!(made.rows, [["9 us"]]);
        assert!(made.conditions.starts_with("all times of 5 runs of 3.0 s each"));
    }

    #[test]
    fn conversations() {
        let taken = json!([{
            "conversation": "c", "begins": "ours", "nagle": "on",
            "milliseconds": { "p50": 1.0, "p99": 2.25, "max": 3.0 },
            "stalls": 1, "rounds": 9, "late_acks": { "ours": 0, "kernel": 4 },
        }]);
        let row = ["c", "ours", "on", "1.000 ms", "2.250 ms", "3.0 ms", "1 of 9", "0 : 4"];
        assert_eq!(stalls(&taken).unwrap().rows, [row]);
    }

    #[test]
    fn a_path_is_a_column_of_both_directions() {
        let row = |direction: &str, ours: f64| {
            json!({
                "path": "0 ms, 0 % loss", "direction": direction,
                "ours": { "bits_per_s": ours, "cpu_s_per_gb": 3.0, "samples": [{}] },
                "published": { "bits_per_s": 5e7, "cpu_s_per_gb": 6.5 },
                "null": { "bits_per_s": 3e9, "cpu_s_per_gb": 2.0 },
                "ratio_median": 2.0, "floor": 3.0, "verdict": "below floor",
            })
        };
        let side = json!({ "started": 1_048_576, "idle": 0, "load": 0, "after": 0 });
        let taken = json!({
            "seconds": 1.0, "rows": [row("upload", 1e9), row("download", 2e9)],
            "memory": {
                "idle_connections": 100, "bulk_connections": 8, "ours": side,
                "published": { "error": "gone" },
            },
            "file": {
                "bytes": 1e10, "ours": { "seconds": 9.6, "equal": true },
                "published": { "error": "sticks" },
            },
        });
        let made = tun2proxy(&taken).unwrap();
        assert_eq!(made.header, ["round trip and loss", "0 ms, 0 % loss"]);
        let missed = "= 2.00, below floor of 3.00";
        assert_eq!(made.rows[0], ["upload, Mbit/s", &format!("1000 : 50.0 {missed}")]);
        assert_eq!(made.rows[1], ["download, Mbit/s", &format!("2000 : 50.0 {missed}")]);
        for part in [
            "1 pair of 1.0 s",
            "without delay and loss: 3000 up, 3000 down",
            "the third: 3.0 : 6.5 : 2.0 up, 3.0 : 6.5 : 2.0 down",
            "resident MiB 1 : failed at rest",
            "10 GB downloaded: 10 s, SHA-256 equal : failed",
        ] {
            assert!(made.conditions.contains(part), "{part}: {}", made.conditions);
        }
        assert!(tun2proxy(&json!({})).is_err());
    }

    #[test]
    fn a_row_that_was_taken_again_takes_the_place_of_the_first() {
        let taken = |seconds: f64, pairs: usize, rows: &[(&str, &str)]| {
            json!({
                "seconds": seconds,
                "rows": rows.iter().map(|_| json!({ "ours": vec![1; pairs] })).collect::<Vec<_>>(),
                "table": { "header": ["work", "ratio"], "rows": rows },
            })
        };
        let first = taken(1.0, 5, &[("a", "0.9"), ("b", "2.0")]);
        let made = udp(&[first.clone(), taken(1.0, 9, &[("a", "1.1")])]).unwrap();
        assert_eq!(made.rows, [["a", "1.1"], ["b", "2.0"]]);
        assert!(made.conditions.starts_with("5 to 9 pairs of 1.0 s; "), "{}", made.conditions);
        for other in [taken(1.0, 9, &[("c", "1.1")]), taken(2.0, 9, &[("a", "1.1")])] {
            assert!(udp(&[first.clone(), other]).is_err());
        }
    }

    #[test]
    fn attacks_with_and_without_a_bystander() {
        let taken = json!([
            {
                "what": "a", "before": { "bytes_per_s": 64e6 }, "note": "n",
                "during": {
                    "bytes_per_s": 1e6, "longest_connect_s": 0.5, "answered": 3, "asked": 4,
                },
                "cpu_seconds": 1.5, "resident_bytes": 2_097_152,
            },
            { "what": "b", "cpu_seconds": 0.0, "resident_bytes": 0, "note": "" },
            { "what": "c", "error": "no luck" },
        ]);
        let rows = attacks(&taken).unwrap().rows;
        assert_eq!(rows[0], ["a", "64", "1", "0.500 s", "3 of 4", "1.50 s", "2 MiB", "n"]);
        assert_eq!(rows[1], ["b", "", "", "", "", "0.00 s", "", ""]);
        assert_eq!(rows[2], ["c", "", "", "", "", "- s", "", "no luck"]);
    }

    #[test]
    fn counts_of_this_version() {
        let figures = json!({ "segments": 100, "acks": 46, "ns_per_ack": 920.0 });
        let taken = json!([{ "version": "this tree", "figures": figures }]);
        assert_eq!(sacked(&taken).unwrap().rows, [["100", "46", "0.92 us"]]);
        let taken = json!([{
            "work": [{ "work": "idle", "unit": "u", "locked": 4.0, "fences": 2.0 }],
            "derived": [{ "name": "d", "atomics": 1.25 }],
        }]);
        let rows = atomics(&taken).unwrap().rows;
        assert_eq!(rows[0], ["`idle`: u", "4.0", "2.0", "6.0"]);
        assert_eq!(rows[1], ["d", "", "", "1.2"]);
        assert!(atomics(&json!([])).is_err());
    }
    #[test]
    fn idle_connections() {
        let taken = json!([{ "version": "this tree", "figures": {
            "connections": 10, "own_count": 1566.4, "idle": { "allocations": 3.02 },
        }}]);
        let made = idle(&taken).unwrap();
        assert_eq!(made.rows[0], ["by the stack's own count", "1566 B"]);
        assert_eq!(made.rows[1], ["allocations", "3.0"]);
        assert_eq!(made.rows[2], ["bytes that were asked for", "- B"]);
        assert!(idle(&json!([])).is_err());
    }
}
