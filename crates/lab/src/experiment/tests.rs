//! The shape of a report, and the order of runs.

use std::cell::Cell;

use serde_json::json;

use super::*;
use crate::figures::Figures;

const PUBLISHED: [Published; 1] = [Published::new("packets_per_transaction", 3.0, 2.0)];

fn subject() -> Subject {
    Subject {
        name: "x",
        seed: "000",
        knob: "k = 0 / 1",
        pinned: Map::new(),
        published: &PUBLISHED,
        judged: Judged {
            label: "packets",
            path: "packets_per_transaction",
            places: 2,
            scale: 1.0,
            lower_is_better: true,
        },
        workload: "w",
    }
}

fn run(packets: f64) -> Run {
    let figures = Figures { packets_per_transaction: Some(packets), ..Figures::default() };
    Run { figures, more: Map::from_iter([("cpu_ns_per_byte".to_owned(), json!(packets * 2.0))]) }
}

fn case(name: &str, pairs: usize) -> (Case, Vec<Column>) {
    let mut order = Vec::new();
    let once = |column| {
        order.push(column);
        Ok(run([3.0, 2.0, 1.0][column as usize]))
    };
    let plan = Plan { pairs, ..Plan::default() };
    let case = Case::measure(name, &plan, &mut Watch::new(1), once, None, &());
    (case.unwrap(), order)
}

fn report(shown: Vec<table::Shown>, verdict: Verdict) -> Report {
    Report::new(subject(), vec![case("a", 5).0, case("b", 5).0], verdict, shown)
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

/// Accepts a pair by the number of the try.
struct Nth<'a> {
    prepared: Cell<usize>,
    accepted: &'a dyn Fn(usize) -> bool,
}

impl Condition for Nth<'_> {
    fn prepare(&self) -> anyhow::Result<()> {
        self.prepared.set(self.prepared.get() + 1);
        Ok(())
    }

    fn refuses(&self, _: &Pair) -> Option<String> {
        let attempt = self.prepared.get();
        (!(self.accepted)(attempt)).then(|| format!("try {attempt}"))
    }
}

#[test]
fn pairs_that_do_not_count_are_run_again() {
    let measure = |pairs, accepted| {
        let mut runs = 0;
        let once = |_| {
            runs += 1;
            Ok(run(1.0))
        };
        let nth = Nth { prepared: Cell::new(0), accepted };
        let plan = Plan { pairs, again: pairs, ..Plan::default() };
        let case = Case::measure("c", &plan, &mut Watch::new(1), once, None, &nth).unwrap();
        let reasons: Vec<String> = case.set_aside.iter().map(|aside| aside.why.clone()).collect();
        (case.pairs.len(), reasons, runs)
    };
    let (pairs, reasons, runs) = measure(3, &|attempt| attempt % 2 == 0);
    assert_eq!((pairs, runs), (3, 18));
    assert_eq!(reasons, ["try 1", "try 3", "try 5"]);
    // There is an end to it: then they count as they are.
    let (pairs, reasons, runs) = measure(2, &|_| false);
    assert_eq!((pairs, runs), (2, 18));
    assert_eq!(reasons, ["try 1", "try 2", "try 3", "try 4"]);
}

#[test]
fn when_the_time_is_over_pairs_count_as_they_are() {
    let measure = |until| {
        let plan = Plan { pairs: 3, until: Some(until), ..Plan::default() };
        let nth = Nth { prepared: Cell::new(0), accepted: &|attempt| attempt > 2 };
        let mut watch = Watch::new(1);
        let once = |_| Ok(run(1.0));
        let case = Case::measure("c", &plan, &mut watch, once, None, &nth).unwrap();
        (case.pairs.len(), case.set_aside.len())
    };
    let now = std::time::Instant::now();
    assert_eq!(measure(now), (1, 0));
    assert_eq!(measure(now + std::time::Duration::from_secs(3600)), (3, 2));
}

#[test]
fn the_quick_form_runs_the_headline_alone() {
    let plan = Plan { pairs: 1, ..Plan::quick() };
    let mut watch = Watch::new(1);
    let mut bench = Bench::new("x", &plan, &mut watch, 2);
    for case in ["a", "b"] {
        bench.case(case, |_, _, _| Ok(run(1.0))).unwrap();
    }
    let names: Vec<String> = bench.finish().into_iter().map(|case| case.name).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn the_document_has_these_fields() {
    let verdict = Verdict::of(vec![Check::so("all is well", false)], vec!["n".into()]);
    let report = report(Vec::new(), verdict);
    let value = serde_json::to_value(&report).unwrap();
    let names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "experiment",
        "seed",
        "knob",
        "pinned",
        "published",
        "pairs",
        "set_aside",
        "before",
        "after",
        "best",
        "ratio",
        "verdict",
        "kernel",
        "headline",
        "run",
        "shown",
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
    let verdict = Verdict::of(vec![Check::so("packets", true)], vec![]);
    let text = table::text(&[report(shown, verdict)]);
    for part in ["3.00 -> 2.00", "0.67 (0.67-0.67)", "verdict: reached", "ok     packets: yes"] {
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
    let (plan, mut watch) = (Plan::quick(), Watch::new(1));
    let failed = Case::measure("c", &plan, &mut watch, |_| anyhow::bail!("no luck"), None, &());
    assert_eq!(format!("{:#}", failed.unwrap_err()), "c, before: no luck");
}

#[test]
fn the_headline_is_held_against_the_publication() {
    let report = report(Vec::new(), Verdict::of(Vec::new(), Vec::new()));
    let headline = report.headline.clone().unwrap();
    assert!(headline.reached);
    assert_eq!(headline.words(), "the published gain");
    assert_eq!(headline.measured.best, Some(1.0));
    let beyond = |ratio: f64, lower_is_better| {
        let published = [Published::new("packets_per_transaction", 2.0, 3.0)];
        let judged = Judged { lower_is_better, ..subject().judged };
        let mut case = case("c", 1).0;
        case.pairs[0].ratio = json!({ "packets_per_transaction": ratio });
        let headline = Headline::of(judged, &published, &[case]).unwrap();
        (headline.reached, headline.words())
    };
    assert_eq!(beyond(1.5, false), (true, "the published gain".into()));
    assert_eq!(beyond(1.8, false), (true, "20 % beyond the published gain".into()));
    assert_eq!(beyond(1.2, false), (false, "20.0 % short of the published gain".into()));
    assert_eq!(beyond(3.0, true), (false, "50.0 % short of the published gain".into()));
    let expected = "x: \n  off -> on: k 0 -> 1\n  packets: published 3.00 -> 2.00 (-33 %), here \
                    3.00 -> 2.00 (-33 %)\n  yes, the published gain\n\nResult: 1 of 1 ";
    let text = summary::text(&[report]);
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_busy_machine_proves_nothing() {
    let mut report = report(Vec::new(), Verdict::of(vec![Check::so("b", false)], Vec::new()));
    report.experiment = "tso-split";
    let headline = report.headline.as_mut().unwrap();
    (headline.reached, headline.beyond) = (false, Some(-0.492));
    let said = |report: &Report| summary::text(std::slice::from_ref(report));
    assert!(said(&report).contains("\n  no, 49.2 % short"));
    assert!(said(&report).ends_with("Result: 0 of 1 show at least the published gain here.\n"));
    report.pairs[0].before[OTHER_WORK_PATH] = json!(0.5);
    let text = said(&report);
    let verdict = "  unclear, 49.2 % short of the published gain; 1 more check failed; \
                   machine busy in 1 of 5 pairs\n";
    assert!(
        text.contains(verdict) && text.contains("; 1 unclear, as the machine was busy"),
        "{text}"
    );
    // Five of these, and the report's place below, are a screen.
    assert!(text.lines().count() == 4 + 2 && text.lines().all(|line| line.len() <= 100), "{text}");
}

#[test]
fn two_pairs_without_a_gain_are_too_many() {
    let one = (true, "the published gain");
    let two = (false, "2 pairs show no gain");
    for (against, expected) in [(1, one), (2, two)] {
        let mut case = case("c", 5).0;
        for pair in &mut case.pairs[..against] {
            pair.ratio = json!({ "packets_per_transaction": 1.0 });
        }
        let headline = Headline::of(subject().judged, &PUBLISHED, &[case]).unwrap();
        assert_eq!((headline.reached, headline.words().as_str()), expected);
    }
}

#[test]
fn the_kernel_runs_in_every_pair() {
    let columns = |has_knob| {
        let mut order = Vec::new();
        let mut host = |column| {
            order.push(column);
            Ok(run(5.0))
        };
        let beside = Beside { has_knob, run: &mut host };
        let plan = Plan { pairs: 2, ..Plan::default() };
        let mut watch = Watch::new(1);
        let mut bench = Bench::new("x", &plan, &mut watch, 2);
        bench.case_beside("a", |_, _, _| Ok(run(2.0)), Some(beside)).unwrap();
        bench.case("b", |_, _, _| Ok(run(2.0))).unwrap();
        let verdict = Verdict::of(Vec::new(), Vec::new());
        let packets = table::Shown::new("packets", "packets_per_transaction", 2);
        let shown = vec![packets.clone(), packets.of("b")];
        let report = Report::new(subject(), bench.finish(), verdict, shown);
        (order, report)
    };
    let (order, report) = columns(true);
    let (before, after) = (Column::Before, Column::After);
    assert_eq!(order, [before, after, after, before]);
    assert_eq!(report.kernel["before"]["packets_per_transaction"], json!(5));
    assert_eq!(report.kernel["cases"], json!({}));
    let text = table::text(std::slice::from_ref(&report));
    // In the row of the first case only.
    assert_eq!(text.matches("5.00 -> 5.00  1.00 (1.00-1.00)").count(), 1, "{text}");
    let (order, report) = columns(false);
    assert_eq!(order, [after, after]);
    assert_eq!(report.kernel["before"], Value::Null);
    assert_eq!(report.kernel["ratio"], Value::Null);
    assert!(table::text(std::slice::from_ref(&report)).contains("  5.00\n"));
}

#[test]
fn captures_of_the_headline_or_of_all_cases() {
    let wanted = |all| {
        let dir = std::env::temp_dir().join(format!("plimsoll-captures-{}", std::process::id()));
        let plan = Plan { captures: Some(Captures { dir, all }), pairs: 1, ..Plan::default() };
        let mut watch = Watch::new(1);
        let mut bench = Bench::new("x", &plan, &mut watch, 2);
        let mut captured = Vec::new();
        for case in ["a, 1", "b"] {
            bench
                .case(case, |plan, _, path| {
                    captured.extend(path.map(|path| (path, plan.length)));
                    Ok(run(1.0))
                })
                .unwrap();
        }
        assert!(captured.iter().all(|(_, length)| *length < plan.length));
        let cases = bench.finish();
        let all = cases.iter().flat_map(|case| &case.captures);
        let names = all.map(|capture| capture.path.file_name().unwrap().to_str().unwrap());
        let names: Vec<String> = names.map(str::to_owned).collect();
        assert_eq!(names.len(), captured.len());
        // The directory was made, and nothing was written by these runs.
        std::fs::remove_dir(&plan.captures.unwrap().dir).unwrap();
        names
    };
    assert_eq!(wanted(false), ["x-a-1-before.pcapng", "x-a-1-after.pcapng", "x-a-1-best.pcapng"]);
    assert_eq!(wanted(true).len(), 6);
}
