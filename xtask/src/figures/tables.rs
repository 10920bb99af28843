//! From the documents of the benches to the rows of tables.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Rows;
use crate::bench::idle::ROWS as IDLE_ROWS;

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("the document of the bench is no array")
}

fn text(value: &Value) -> String {
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

/// The table of `bench udp`.
pub(super) fn udp(taken: &Value) -> Result<Rows> {
    let conditions = format!(
        "{} pairs of {} s; CPU in seconds for a million datagrams or a gigabyte, ours / kernel",
        taken["repetitions"], taken["seconds"]
    );
    ready(taken, conditions)
}

/// The table of `bench kernel`.
pub(super) fn kernel(taken: &Value) -> Result<Rows> {
    let conditions = format!(
        "{} pairs of {} s, kernel sockets with {}",
        taken["repetitions"],
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

/// The table of `bench tun2proxy`: a row for each path, with both directions.
pub(super) fn tun2proxy(taken: &Value) -> Result<Rows> {
    let rows = array(&taken["rows"])?;
    let mut paths: Vec<&Value> = rows.iter().map(|row| &row["path"]).collect();
    paths.dedup();
    let of_path = |path: &&Value| {
        let mut cells = vec![text(path)];
        for direction in ["upload", "download"] {
            let found =
                rows.iter().find(|row| row["path"] == **path && row["direction"] == direction);
            cells.extend(tun2proxy_cells(found.unwrap_or(&Value::Null)));
        }
        cells
    };
    let header = [
        "round trip and loss",
        "upload, Mbit/s",
        "ratio (floor)",
        "CPU s/GB",
        "download, Mbit/s",
        "ratio (floor)",
        "CPU s/GB",
    ];
    Ok(Rows {
        conditions: tun2proxy_conditions(taken),
        header: strings(&header),
        rows: paths.iter().map(of_path).collect(),
    })
}

/// The cells of one direction.
fn tun2proxy_cells(row: &Value) -> [String; 3] {
    let (ours, published) = (&row["ours"], &row["published"]);
    let mbits = |side: &Value| {
        side["bits_per_s"].as_f64().map_or_else(
            || "-".into(),
            |bits| format!("{:.*}", usize::from(bits < 1e8), bits / 1e6),
        )
    };
    let verdict = match row["verdict"].as_str() {
        Some("floor met") | None => String::new(),
        Some(other) => format!(", {other}"),
    };
    [
        format!("{} : {}", mbits(ours), mbits(published)),
        format!("{} ({}){verdict}", number(&row["ratio_median"], 2), number(&row["floor"], 2)),
        format!("{} : {}", number(&ours["cpu_s_per_gb"], 2), number(&published["cpu_s_per_gb"], 2)),
    ]
}

/// What was measured beside the rows.
fn tun2proxy_conditions(taken: &Value) -> String {
    let mut said = format!(
        "{} pairs of {} s, tun2proxy on Plimsoll : as published",
        taken["pairs"], taken["seconds"]
    );
    let rows = taken["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let null = |direction: &str| {
        let mut rates = rows.iter().filter(|row| row["direction"] == direction);
        let rate = rates.find_map(|row| row["null"]["bits_per_s"].as_f64())?;
        Some(format!("{:.0}", rate / 1e6))
    };
    if let Some((up, down)) = null("upload").zip(null("download")) {
        said += &format!("; a stack that does next to nothing: {up} up, {down} down");
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
    fn a_path_has_both_directions_in_a_row() {
        let row = |direction: &str, ours: f64| {
            json!({
                "path": "0 ms, 0 % loss", "direction": direction,
                "ours": { "bits_per_s": ours, "cpu_s_per_gb": 3.0 },
                "published": { "bits_per_s": 5e7, "cpu_s_per_gb": 6.5 },
                "null": { "bits_per_s": 3e9 },
                "ratio_median": 2.0, "floor": 3.0, "verdict": "below floor",
            })
        };
        let side = json!({ "started": 1_048_576, "idle": 0, "load": 0, "after": 0 });
        let taken = json!({
            "pairs": 1, "seconds": 1.0, "rows": [row("upload", 1e9), row("download", 2e9)],
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
        let cell = ["1000 : 50.0", "2.00 (3.00), below floor", "3.00 : 6.50"];
        assert_eq!(made.rows.len(), 1);
        assert_eq!(made.rows[0][1..4], cell);
        assert_eq!(made.rows[0][4], "2000 : 50.0");
        for part in [
            "1 pairs of 1.0 s",
            "next to nothing: 3000 up, 3000 down",
            "resident MiB 1 : failed at rest",
            "10 GB downloaded: 10 s, SHA-256 equal : failed",
        ] {
            assert!(made.conditions.contains(part), "{part}: {}", made.conditions);
        }
        assert!(tun2proxy(&json!({})).is_err());
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
