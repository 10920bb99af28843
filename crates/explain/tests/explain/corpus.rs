//! Captures of real programs, and of programs with one known defect each.
//!
//! `tests/captures/make.py` at the root of the repository takes them; `expected.tsv` beside them
//! says what each must say, and all that it may say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_explain::{
    FlowReport, KINDS, Options, Reason, Report, explain_file, html_report, text_report,
};

/// Bytes of all captures.
const MOST_BYTES: u64 = 3 << 20;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// What is said of one capture: kind/side of each flow's findings, the costliest first.
pub(crate) fn said(report: &Report) -> String {
    let mut words = Vec::new();
    for flow in &report.flows {
        for found in &flow.findings {
            words.push(format!("{}/{}", found.kind.name(), found.from.name()));
        }
    }
    words.dedup();
    if words.is_empty() { "-".into() } else { words.join(" ") }
}

/// The end where the flow with the most packets was captured.
fn end(report: &Report) -> &'static str {
    let packets = |flow: &&FlowReport| -> u64 { flow.directions.iter().map(|d| d.packets).sum() };
    let at = report.flows.iter().max_by_key(packets).and_then(|flow| flow.captured_at);
    at.map_or("-", |side| side.name())
}

/// A line of the table.
struct Expected {
    at: String,
    /// What must be said, the costliest first.
    must: Vec<String>,
    /// What may be said beside, as true and of less weight.
    may: Vec<String>,
}

fn table() -> BTreeMap<String, Expected> {
    let text = std::fs::read_to_string(folder().join("expected.tsv")).expect("the table");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let words = |field: &str| field.split(' ').filter(|&w| w != "-").map(String::from).collect();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let &[name, at, must, may] = &fields[..] else {
                panic!("{line}: name, end, what must and what may be said, with tabs between")
            };
            let (must, may) = (words(must), words(may));
            (name.to_owned(), Expected { at: at.to_owned(), must, may })
        })
        .collect()
}

/// The captures of which nothing must be said: their names, their files, and what may be said.
pub(crate) fn healthy() -> impl Iterator<Item = (String, PathBuf, Vec<String>)> {
    let healthy = table().into_iter().filter(|(_, expected)| expected.must.is_empty());
    healthy.map(|(name, expected)| {
        let path = folder().join(format!("{name}.pcap"));
        (name, path, expected.may)
    })
}

/// The captures of which a wait for an ACK, a closed window or a loss must be said first: their
/// names, their files, and that.
pub(crate) fn waits() -> impl Iterator<Item = (String, PathBuf, String)> {
    let of_waits = ["nagle_delayed_ack_stall", "nagle_round_trip", "zero_window", "lost_packets"];
    table().into_iter().filter_map(move |(name, expected)| {
        let first = expected.must.first()?.clone();
        let known = of_waits.iter().any(|kind| first.starts_with(kind));
        let path = folder().join(format!("{name}.pcap"));
        known.then_some((name, path, first))
    })
}

/// What is wrong with what was said, if anything is.
fn wrong(report: &Report, expected: &Expected) -> Option<String> {
    let said = said(report);
    let kinds: Vec<&str> = said.split(' ').filter(|&word| word != "-").collect();
    let mut rest = kinds.iter();
    if !expected.must.iter().all(|word| rest.any(|said| said == word)) {
        return Some(format!("says {said}, which lacks {}", expected.must.join(" ")));
    }
    let known = |word: &str| expected.must.iter().chain(&expected.may).any(|each| each == word);
    if let Some(word) = kinds.iter().find(|word| !known(word)) {
        return Some(format!("says {word}, which is not so"));
    }
    let at = end(report);
    (at != expected.at).then(|| format!("captured at {at}"))
}

#[test]
fn every_capture_says_what_is_so() {
    let table = table();
    let mut bytes = 0;
    let mut bad = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder()).expect("the captures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        bytes += path.metadata().expect("its size").len();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let report = explain_file(&path, &Options::default()).expect("a capture");
        text_report(&report, 5);
        html_report(&report, 5);
        let line = format!("{name}\t{}\t{}\t-", end(&report), said(&report));
        match table.get(&name).map(|expected| wrong(&report, expected)) {
            Some(None) => {}
            Some(Some(wrong)) => bad.push(format!("{name}: {wrong}")),
            None => bad.push(format!("{line}: not in the table")),
        }
        names.push(name);
    }
    names.sort();
    assert!(bad.is_empty(), "{} of {}:\n{}", bad.len(), names.len(), bad.join("\n"));
    assert_eq!(names, table.into_keys().collect::<Vec<_>>(), "the table has the captures");
    assert!(bytes < MOST_BYTES, "{bytes} bytes of captures");
}

#[test]
fn every_kind_is_said_of_some_capture() {
    let table = table();
    let told = |name: &str| {
        let said = |word: &String| word.split('/').next() == Some(name);
        table.values().any(|expected| expected.must.iter().chain(&expected.may).any(said))
    };
    // What no kernel of today does by itself is held by captures that are made packet by packet.
    let synthetic = ["tail_sent_apart", "acks_per_megabyte", "silly_window"];
    for kind in KINDS {
        assert!(told(kind.name()) || synthetic.contains(&kind.name()), "{}", kind.name());
    }
}

/// Of a kind with several causes, the one that the capture tells, and what it cost.
#[test]
fn captures_say_why() {
    for (name, reason, count, ms) in [
        ("accept-late-40ms.client", Reason::SynLost, 1, 2055),
        ("accept-late-40ms.server", Reason::SynIgnored, 1, 2055),
        ("accept-queue-40ms.client", Reason::NotTaken, 1, 2044),
        ("accept-queue-40ms.server", Reason::AckIgnored, 1, 2007),
        ("refused-40ms.client", Reason::PortClosed, 50, 2016),
        ("refused-40ms.server", Reason::PortClosed, 50, 1),
        ("syn-ack-lost-40ms.client", Reason::AnswerLost, 1, 1025),
        ("syn-ack-lost-40ms.server", Reason::AnswerLost, 1, 1025),
        ("syn-lost-40ms.client", Reason::SynLost, 1, 2048),
        ("black-hole-40ms.client", Reason::LargeNeverCame, 17, 202),
        ("black-hole-40ms.server", Reason::BlackHole, 1, 4058),
        ("black-hole-unnoticed-40ms.server", Reason::PerhapsBlackHole, 1, 4045),
        ("path-mtu-reported-40ms.server", Reason::SizeReported, 1, 81),
        ("unanswered-40ms.client", Reason::NobodyThere, 2, 10233),
        ("unread-40ms.client", Reason::Aborted, 1, 0),
        ("unread-40ms.server", Reason::Aborted, 1, 0),
    ] {
        let path = folder().join(format!("{name}.pcap"));
        let report = explain_file(&path, &Options::default()).expect("a capture");
        let mut findings = report.flows.iter().flat_map(|flow| &flow.findings);
        let found = findings.next().expect("a finding");
        let cost = found.ms.map(|ms| ms.round() as u64);
        assert_eq!((found.reason, found.count, cost), (Some(reason), count, Some(ms)), "{name}");
        assert!(findings.next().is_none(), "{name}: one finding for all of it");
    }
}
