//! The shape of a report, and the order of runs.

use serde_json::json;

use super::*;

fn subject() -> Subject {
    Subject {
        name: "x",
        seed: "000",
        knob: "k = 0 / 1",
        pinned: Map::new(),
        published: &[Published { path: "packets_per_transaction", before: 3.0, after: 2.0 }],
        workload: "w",
    }
}

fn run(packets: f64) -> Run {
    let figures = Figures { packets_per_transaction: Some(packets), ..Figures::default() };
    Run { figures, more: Map::from_iter([("cpu_ns_per_byte".to_owned(), json!(packets * 2.0))]) }
}

fn case(name: &str, pairs: usize) -> (Case, Vec<Column>) {
    let mut order = Vec::new();
    let case = Case::measure(name, pairs, &mut Watch::new("x"), |column| {
        order.push(column);
        Ok(run([3.0, 2.0, 1.0][column as usize]))
    });
    (case.unwrap(), order)
}

#[test]
fn before_and_after_take_turns() {
    let (case, order) = case("c", 2);
    let names: Vec<&str> = order.into_iter().map(Column::name).collect();
    assert_eq!(names, ["before", "after", "best", "best", "after", "before"]);
    assert_eq!(case.median(Column::Before, "packets_per_transaction"), Some(3.0));
    assert_eq!(case.median(Column::After, "cpu_ns_per_byte"), Some(4.0));
    assert_eq!(case.median(Column::After, "throughput_bits_per_s"), None, "not taken");
    let ratio = case.ratio("packets_per_transaction").unwrap();
    assert!((ratio.median - 2.0 / 3.0).abs() < 1e-9);
}

#[test]
fn the_document_has_these_fields() {
    let verdict = Verdict::of(vec![Check::so("all is well", false)], vec!["n".into()]);
    let report = Report::new(subject(), vec![case("a", 5).0, case("b", 5).0], verdict, Vec::new());
    let value = serde_json::to_value(&report).unwrap();
    let names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "experiment",
        "seed",
        "knob",
        "pinned",
        "published",
        "pairs",
        "before",
        "after",
        "best",
        "ratio",
        "verdict",
    ];
    expected.sort_unstable();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert_eq!(value["pairs"].as_array().unwrap().len(), 10);
    assert_eq!(value["before"]["packets_per_transaction"], json!(3));
    assert_eq!(value["before"]["latency_us"], Value::Null, "not taken");
    assert_eq!(value["after"]["cases"]["b"]["packets_per_transaction"], json!(2));
    assert_eq!(value["published"]["after"]["packets_per_transaction"], json!(2));
    assert!(value["ratio"]["packets_per_transaction"]["max"].as_f64().unwrap() < 0.67);
    assert_eq!(value["verdict"]["summary"], json!("not reached: all is well no (wanted yes)"));
}

#[test]
fn the_table_shows_published_and_measured() {
    let shown = table::Shown::new("packets/transaction", "packets_per_transaction", 2);
    let shown = vec![shown.clone(), shown.of("b")];
    let verdict =
        Verdict::of(vec![Check::new("packets", "<= 2", Some(2.0), 2, |v| v <= 2.0)], vec![]);
    let report = Report::new(subject(), vec![case("a", 1).0, case("b", 1).0], verdict, shown);
    let text = table::text(&[report]);
    for part in ["3.00 -> 2.00", "0.67 (0.67-0.67)", "verdict: reached", "ok     packets: 2.00"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn paths_may_end_in_names_with_dots() {
    let document = json!({ "counters": { "plimsoll.AcksSent": 3 }, "latency_us": { "p50": 1 } });
    assert_eq!(at(&document, "counters.plimsoll.AcksSent"), Some(&json!(3)));
    assert_eq!(at(&document, "latency_us.p50"), Some(&json!(1)));
    assert_eq!(at(&document, "counters.plimsoll"), None);
}

#[test]
fn a_failed_run_says_which() {
    let failed = Case::measure("c", 1, &mut Watch::new("x"), |_| anyhow::bail!("no luck"));
    assert_eq!(format!("{:#}", failed.unwrap_err()), "c, before: no luck");
}
