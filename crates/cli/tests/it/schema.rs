//! The JSON documents of the program are what the schemas in `docs/` say.
//!
//! A schema allows no other field than those that it describes, so a new field fails here until it
//! has a description.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jsonschema::Validator;
use serde_json::{Value, json};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// The validator of a schema in `docs/`.
fn validator(name: &str) -> Validator {
    let schema: Value = serde_json::from_str(&fs::read_to_string(file(name)).unwrap()).unwrap();
    assert!(jsonschema::draft202012::meta::is_valid(&schema), "docs/{name} is a schema");
    described(&schema, name);
    jsonschema::draft202012::new(&schema).unwrap()
}

/// Every field has a description, and every number a unit.
fn described(schema: &Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            // Alternatives with a title of their own only narrow what is described elsewhere.
            if fields.contains_key("title") && !fields.contains_key("$schema") {
                return;
            }
            for (name, field) in
                fields.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                let place = format!("{place}: {name}");
                let said = field["description"].as_str().unwrap_or_default();
                assert!(!said.is_empty(), "{place} is not described");
                let words = field["type"].to_string();
                let is_number = words.contains("number") || words.contains("integer");
                assert!(!is_number || field["x-unit"].is_string(), "{place} has no unit");
            }
            fields.iter().for_each(|(name, value)| described(value, &format!("{place}/{name}")));
        }
        Value::Array(values) => values.iter().for_each(|value| described(value, place)),
        _ => {}
    }
}

fn document(line: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = command.args(line.split_whitespace()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn accepts(validator: &Validator, document: &Value) {
    let errors: Vec<String> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .map(|line| line.chars().take(500).collect())
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// The document with the value at `pointer` replaced, or removed, is refused.
fn refuses(validator: &Validator, document: &Value, pointer: &str, value: Option<Value>) {
    let mut wrong = document.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = wrong.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is not there"));
    let fields = parent.as_object_mut().unwrap();
    match &value {
        Some(value) => drop(fields.insert(name.to_owned(), value.clone())),
        None => drop(fields.remove(name).expect("it is there")),
    }
    assert!(!validator.is_valid(&wrong), "{pointer} = {value:?} is refused");
}

#[test]
fn the_lab_writes_what_its_schema_says() {
    let validator = validator("lab.schema.json");
    // On a virtual clock, so that no figure depends on how busy the machine is.
    let all = document("lab tso-trim --full --pairs 2 --json -");
    accepts(&validator, &all);
    let wrong = |path: &str, value: Option<Value>| {
        refuses(&validator, &all, &format!("/0/{path}"), value);
    };
    // Values that were not measured are null, not 0.
    for figures in ["before", "pairs/0/before", "best"] {
        for name in ["transactions_per_s", "packets_per_transaction", "latency_us"] {
            wrong(&format!("{figures}/{name}"), Some(json!(0)));
        }
    }
    wrong("pairs/0/after/octets_per_packet", Some(json!(0)));
    // The same with what only experiments in real time take.
    let mut timed = all.clone();
    let before = timed[0]["before"].as_object_mut().unwrap();
    for name in ["throughput_bits_per_s", "acks_per_gigabyte"] {
        before[name] = Value::Null;
    }
    for name in ["transactions_per_s", "packets_per_transaction", "cpu_seconds"] {
        before[name] = json!(2.5);
    }
    before["latency_us"] = json!({ "p50": 20.5, "p90": 21.0, "p99": 30.0, "max": 300.0 });
    accepts(&validator, &timed);
    for name in ["throughput_bits_per_s", "acks_per_gigabyte", "latency_us/p50"] {
        refuses(&validator, &timed, &format!("/0/before/{name}"), Some(json!(0)));
    }
    refuses(&validator, &timed, "/0/before/latency_us/p99", None);
    // Nothing is missing, nothing has another name or unit.
    let needed = ["after/acks_per_s", "headline/published", "run/command", "kernel", "best/cases"];
    for path in needed {
        wrong(path, None);
    }
    for path in ["before/acks_per_megabyte", "pairs/0/best/cpu_ms", "run/host", "latency_ms"] {
        wrong(path, Some(json!(1)));
    }
    wrong("pairs/0/before/counters/IpOutRequests", Some(json!(1.5)));
    wrong("pairs/0/before/counters/IpOutRequests", Some(json!("1")));
    wrong("ratio/acks_per_s", Some(json!(1)));
    wrong("headline/ratio", Some(json!(0)));
    assert!(!validator.is_valid(&all[0]), "a document is an array");
}

#[test]
fn explain_writes_what_its_schema_says() {
    let validator = validator("explain.schema.json");
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("small.pcapng");
    let capture = capture.to_string_lossy();
    // Pieces that are sent apart, and ACKs alone.
    let settings = "--sysctl plimsoll.tcp_tso_tail=split --sysctl plimsoll.tcp_pingpong=0";
    document(&format!("rr -r 4096,4096 -n 100 {settings} --json - --pcap {capture}"));
    let report = document(&format!("explain {capture} --json -"));
    accepts(&validator, &report);
    assert!(!report["totals"].as_array().unwrap().is_empty());
    for kind in plimsoll_explain::KINDS {
        let mut other = report.clone();
        other["flows"][0]["findings"][0]["kind"] = serde_json::to_value(kind).unwrap();
        accepts(&validator, &other);
    }
    let wrong = |path: &str, value: Option<Value>| refuses(&validator, &report, path, value);
    wrong("/flows/0/rtt_ms", None);
    wrong("/flows/0/rtt_us", Some(json!(1)));
    wrong("/flows/0/directions/0/acks_per_megabyte", Some(json!(0)));
    wrong("/flows/0/directions/0/stretch", Some(json!(0)));
    wrong("/flows/0/directions/0/mss_source", Some(json!("guess")));
    wrong("/flows/0/findings/0/kind", Some(json!("sunspots")));
    wrong("/flows/0/findings/0/ms", Some(json!(0)));
    wrong("/totals/0/ms", Some(json!(0)));
    wrong("/totals/0/packets", None);
    wrong("/format", Some(json!("erf")));
    wrong("/packets", Some(json!(-1)));
    wrong("/packets", Some(Value::Null));
    // A capture without any frame.
    let empty = dir.path().join("empty.pcap");
    let words: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    fs::write(&empty, words.map(u32::to_le_bytes).concat()).unwrap();
    let report = document(&format!("explain {} --json -", empty.to_string_lossy()));
    accepts(&validator, &report);
    assert_eq!((&report["packets"], &report["duration_ms"]), (&json!(0), &Value::Null));
}

#[test]
fn commands_write_what_the_schema_of_figures_says() {
    let validator = validator("figures.schema.json");
    let stream = document("stream -n 100K --json -");
    let rr = document("rr -n 20 --json -");
    let crr = document("crr -n 3 --json -");
    for document in [&stream, &rr, &crr] {
        accepts(&validator, document);
    }
    let wrong = |document, path: &str, value| refuses(&validator, document, path, value);
    wrong(&stream, "/latency_us", Some(json!(0)));
    wrong(&stream, "/transactions_per_s", Some(json!(0)));
    wrong(&stream, "/transactions", Some(json!(0)));
    wrong(&stream, "/command", Some(json!("get")));
    wrong(&rr, "/throughput_bits_per_s", Some(json!(0)));
    wrong(&rr, "/latency_us/p99", None);
    wrong(&rr, "/latency_ms", Some(json!(1)));
    wrong(&crr, "/seconds", Some(json!(0)));
    wrong(&crr, "/server_counters", None);
}
