use serde_json::{Map, json};

use super::*;
use crate::experiment::table::Shown;
use crate::experiment::{
    Capture, Case, Check, Column, Judged, Pair, Published, RunInfo, Subject, Verdict,
};

/// Where the page of [`reports`] is kept.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/tests/page.html");

const PUBLISHED: [Published; 1] = [Published::new("packets_per_transaction", 3.0, 2.0)];

fn pair(case: &str, before: f64, after: f64) -> Pair {
    let run = |value: f64| {
        json!({
            "packets_per_transaction": value,
            "cpu_ns_per_transaction": value * 10_000.0,
            "counters": {"IpOutRequests": value * 1000.0, "TcpRetransSegs": 0},
        })
    };
    let ratio = after / before;
    let ratio = json!({"packets_per_transaction": ratio, "cpu_ns_per_transaction": ratio});
    let (before, after, best) = (run(before), run(after), run(1.0));
    Pair { case: case.into(), before, after, best, ratio, kernel: None }
}

fn subject(name: &'static str) -> Subject {
    let mut pinned = Map::new();
    pinned.insert("seed".into(), json!(3));
    let published = &PUBLISHED;
    let judged = Judged {
        label: "packets per transaction",
        path: "packets_per_transaction",
        places: 2,
        scale: 1.0,
        lower_is_better: true,
    };
    let (knob, workload) = ("plimsoll.x = 0 / 1", "TCP_RR <4K>");
    Subject { name, seed: "000", knob, pinned, published, judged, workload }
}

fn report(name: &'static str, after: f64) -> Report {
    let case = |name: &str| {
        let pairs = vec![pair(name, 3.0, after), pair(name, 3.1, after + 0.1)];
        Case { name: name.into(), pairs, set_aside: Vec::new(), captures: Vec::new() }
    };
    let checks = vec![Check::so("it is so", true)];
    let verdict = Verdict::of(checks, vec!["a note about <this>".into()]);
    let first = Shown::new("packets/transaction", "packets_per_transaction", 2);
    let shown = vec![first.clone(), first.of("more, 20 flows")];
    let cases = vec![case("memory, 200 flows"), case("more, 20 flows")];
    Report::new(subject(name), cases, verdict, shown)
}

fn reports() -> Vec<Report> {
    let mut reports = vec![report("tso-split", 2.0), report("unknown", 2.5)];
    let path = "/nowhere/x.pcapng".into();
    let missed = Check {
        what: "CPU after/before".into(),
        wanted: "< 1".into(),
        measured: "1.25".into(),
        reached: false,
    };
    reports[0].verdict.checks.push(missed);
    let case = "memory, 200 flows".to_owned();
    reports[0].captures.push(Capture { case, column: Column::Before, path });
    reports[0].run = Some(RunInfo {
        command: "plimsoll lab --html <x>".into(),
        version: "1.2.3",
        pairs: 2,
        seconds: 0.5,
        warm_up_seconds: 0.25,
        cpu: Some("A processor".into()),
        cpus: 2,
        memory_bytes: Some(1 << 30),
        system: "Linux 1.2.3".into(),
        priority: "nice -10",
    });
    reports
}

/// What is between two words, one element a line.
fn between(page: &str, from: &str, to: &str) -> String {
    let (_, rest) = page.split_once(from).unwrap();
    rest.split_once(to).unwrap().0.replace("><", ">\n<") + "\n"
}

/// To take what is different now for right: run it with `UPDATE_PAGE=1` and read the difference.
#[test]
fn the_page_is_as_it_was() {
    let body = between(&html(&reports()), "<body>", "</body>");
    if std::env::var_os("UPDATE_PAGE").is_some() {
        std::fs::write(PAGE, &body).unwrap();
    }
    let kept = std::fs::read_to_string(PAGE).unwrap();
    let differs = kept.lines().zip(body.lines()).find(|(kept, now)| kept != now);
    assert_eq!(differs, None);
    assert_eq!(kept.lines().count(), body.lines().count());
}

#[test]
fn the_page_is_one_file_without_scripts() {
    let page = html(&reports());
    for other in ["<script", "http:", "https:", "src=", "url(", "@import", "onload"] {
        assert!(!page.contains(other), "{other}");
    }
    for name in page.split("var(--").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        assert!(page.contains(&format!("--{name}:")), "{name} has no colour");
    }
    assert!(page.contains("tso-split") && page.contains("no picture, since cannot open"));
}

#[test]
fn nothing_measured_is_a_page_too() {
    assert!(html(&[]).contains("Nothing was measured"));
    assert!(svg(&[]).starts_with("<?xml"));
    let nothing = Report::new(subject("tso-split"), Vec::new(), Verdict::default(), Vec::new());
    assert!(html(&[nothing]).contains("Refined TSO split"));
}

#[test]
fn the_picture_is_a_file_of_its_own() {
    let svg = svg(&reports());
    assert!(svg.contains("xmlns=\"http://www.w3.org/2000/svg\""));
    assert!(svg.contains("Refined TSO split: published 1.50 times, measured 1.49 times"), "{svg}");
    // Every element is closed, as XML wants it.
    let opened = svg.matches('<').count() - 1 - svg.matches("</").count();
    assert_eq!(opened, svg.matches("</").count());
    for name in svg.split("var(--").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        assert!(svg.contains(&format!("--{name}:")), "{name} has no colour");
    }
}
