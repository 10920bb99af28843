//! Captures, right and wrong: as arbitrary bytes, and as conversations that are mostly plausible.
//!
//! Whatever a capture holds, it is refused with a message or explained in every form. What is
//! explained adds up, no figure is below 0 or no number, and it does not matter in which pieces the
//! input comes.

mod file;
#[path = "../../../crates/explain/tests/explain/writer.rs"]
mod writer;

use std::io::{self, Read};

use arbitrary::{Arbitrary, Unstructured};
use plimsoll_explain::{Options, Report, explain, html_report, segments, text_report};

use crate::trace;

/// One input: what the first byte chooses, made of the others.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    if choice == 0 {
        trace!("{} bytes as they are", rest.len());
        let _ = judge(rest, 7);
        return;
    }
    let mut input = Unstructured::new(rest);
    let Ok(talk) = file::Talk::arbitrary(&mut input) else { return };
    trace!("{talk:?}");
    let file = talk.file(choice);
    let report = judge(&file.bytes, usize::from(choice));
    let report = report.expect("what is a capture is read");
    assert_eq!(report.packets, file.frames, "every frame is counted");
    assert_eq!(report.note, None, "it is whole");
}

/// A pipe that gives `most` bytes at a time.
struct Pieces<'a> {
    data: &'a [u8],
    most: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(self.most);
        self.data.read(&mut buf[..len])
    }
}

fn judge(data: &[u8], most: usize) -> Option<Report> {
    let mut told = 0;
    let listed = segments(data, |segment| {
        told += 1;
        let _ = segment.comments().map(|comment| comment.len()).sum::<usize>();
    });
    let options = Options::default();
    let pieces = explain(Pieces { data, most: most.max(1) }, &options);
    let report = match explain(data, &options) {
        Ok(report) => report,
        Err(error) => {
            let refused = pieces.expect_err("the same is refused");
            assert_eq!(format!("{error:#}"), format!("{refused:#}"));
            assert!(listed.is_err());
            assert!(!format!("{error:#}").is_empty());
            return None;
        }
    };
    assert!(listed.is_ok());
    assert_eq!(told, report.tcp_packets);
    let json = serde_json::to_string(&report).expect("a report is JSON");
    let pieces = pieces.expect("the same is read");
    assert_eq!(json, serde_json::to_string(&pieces).expect("a report is JSON"));
    adds_up(&report);
    let _ = text_report(&report, 3);
    let page = html_report(&report, 3);
    assert!(page.ends_with("</html>"), "a whole page");
    // With few flows at once, others become sums.
    let few = Options { most_flows: 2, ..options };
    let few = explain(data, &few).expect("the same is read");
    adds_up(&few);
    assert_eq!(few.tcp_packets, report.tcp_packets);
    assert!(few.flows.len() <= 2 && few.flows_seen >= report.flows_seen);
    Some(report)
}

fn adds_up(report: &Report) {
    let skipped = &report.skipped;
    let skipped = skipped.not_tcp + skipped.fragments + skipped.broken + skipped.unknown_link;
    assert_eq!(report.packets, report.tcp_packets + report.icmp_errors + skipped);
    assert_eq!(report.flows_seen, report.flows.len() as u64 + report.evicted.flows);
    let mut packets = report.evicted.packets;
    let mut copies = 0;
    for side in report.flows.iter().flat_map(|flow| &flow.directions) {
        packets += side.packets;
        copies += side.duplicates;
        assert!(side.data_packets + side.retransmissions + side.pure_acks <= side.packets);
        assert!(side.deferred_acks <= side.pure_acks);
        assert!(side.super_segments <= side.data_packets);
        assert!(side.wire_segments >= side.data_packets);
        assert_eq!(side.acks_per_megabyte.is_some(), side.pure_acks > 0);
        assert_eq!(side.stretch.is_some(), side.pure_acks > 0);
        figures([side.acks_per_megabyte, side.stretch]);
    }
    if report.evicted.flows == 0 {
        assert_eq!(packets + copies, report.tcp_packets);
    }
    figures([report.duration_ms]);
    for flow in &report.flows {
        figures([Some(flow.start_ms), Some(flow.duration_ms), Some(flow.score), flow.rtt_ms]);
        for found in &flow.findings {
            assert!(found.count > 0);
            assert_ne!(found.packets.is_some(), found.ms.is_some(), "one or the other");
            figures([found.packets, found.ms, found.longest_ms, Some(found.score)]);
            assert!((0.0..=1.0).contains(&found.share), "{}", found.share);
            assert!(found.longest_ms <= found.ms);
        }
    }
    for sum in report.totals.iter().chain(&report.evicted.findings) {
        assert!(sum.count > 0);
        figures([sum.packets, sum.ms, Some(sum.score)]);
        assert!((0.0..=1.0).contains(&sum.share), "{}", sum.share);
    }
}

fn figures(all: impl IntoIterator<Item = Option<f64>>) {
    for figure in all.into_iter().flatten() {
        assert!(figure.is_finite() && figure >= 0.0, "{figure}");
    }
}
