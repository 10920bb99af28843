//! The report as text.

use std::fmt::Write;

use crate::kinds::Kind;
use crate::report::{DirectionReport, Example, Finding, FlowReport, Report, Sum};

/// Lines of text are at most this long, in characters.
const WIDTH: usize = 100;

/// The report as text, with the first `top` flows that have findings.
pub fn text_report(report: &Report, top: usize) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, report, top);
    out
}

/// What a sum or a finding costs.
pub(crate) fn cost(packets: Option<f64>, ms: Option<f64>) -> String {
    match (packets, ms) {
        (_, Some(ms)) if ms >= 0.5 => format!("{ms:.0} ms"),
        (Some(packets), _) if packets >= 0.5 => format!("{packets:.0} packets"),
        _ => "little".into(),
    }
}

/// The round trip of a flow.
pub(crate) fn round_trip(flow: &FlowReport) -> String {
    flow.rtt_ms.map_or("round trip unknown".into(), |ms| format!("round trip {ms:.3} ms"))
}

/// What can be said instead of findings, if there are none.
pub(crate) fn no_findings(report: &Report) -> Option<&'static str> {
    match (report.totals.is_empty(), report.tcp_packets) {
        (true, 0) => Some("no TCP in this capture"),
        (true, _) => Some("nothing to complain about"),
        _ => None,
    }
}

/// What was passed over, in a sentence, if anything was.
pub(crate) fn skipped(report: &Report) -> Option<String> {
    let skipped = &report.skipped;
    let parts: Vec<String> = [
        (skipped.not_tcp, "not TCP"),
        (skipped.fragments, "fragments"),
        (skipped.broken, "with broken or cut headers"),
        (skipped.unknown_link, "of unknown link types"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    (!parts.is_empty()).then(|| format!("passed over: {}", parts.join(", ")))
}

fn write(out: &mut String, report: &Report, top: usize) -> std::fmt::Result {
    writeln!(
        out,
        "{}: {} packets, {} of TCP in {} flows, {:.3} s",
        report.file,
        report.packets,
        report.tcp_packets,
        report.flows_seen,
        report.duration_ms.unwrap_or(0.0) / 1e3
    )?;
    if let Some(skipped) = skipped(report) {
        writeln!(out, "{skipped}")?;
    }
    if let Some(note) = &report.note {
        writeln!(out, "note: {note}")?;
    }
    if let Some(said) = no_findings(report) {
        return writeln!(out, "{said}");
    }
    writeln!(out, "\nin all flows, by cost:")?;
    for Sum { kind, count, packets, ms, .. } in &report.totals {
        writeln!(out, "  {:<52}{count:>9} x   {}", kind.title(), cost(*packets, *ms))?;
    }
    let evicted = &report.evicted;
    if evicted.flows > 0 {
        writeln!(
            out,
            "  (of these {} flows with {} packets were given up and are in the sums only)",
            evicted.flows, evicted.packets
        )?;
    }
    let mut told: Vec<Kind> = Vec::new();
    let with = report.flows.iter().filter(|flow| !flow.findings.is_empty());
    let count = with.clone().count();
    for each in with.take(top) {
        flow(out, each, &mut told)?;
    }
    if count > top {
        writeln!(out, "\n{} more flows with findings; --top prints more", count - top)?;
    }
    Ok(())
}

fn flow(out: &mut String, flow: &FlowReport, told: &mut Vec<Kind>) -> std::fmt::Result {
    let FlowReport { client, server, duration_ms, .. } = flow;
    writeln!(out, "\n{client} -> {server}  {duration_ms:.1} ms, {}", round_trip(flow))?;
    for side in &flow.directions {
        let line = format!("{}: {}", side.from.name(), figures(side));
        wrapped(out, &line)?;
    }
    for (n, finding) in flow.findings.iter().enumerate() {
        let Finding { title, from, detail, .. } = finding;
        let cost = cost(finding.packets, finding.ms);
        writeln!(out, "  {}. {title} ({}): {cost}", n + 1, from.name())?;
        wrapped(out, detail)?;
        if let Some(examples) = examples(finding) {
            wrapped(out, &examples)?;
        }
        // Each explanation once.
        if !told.contains(&finding.kind) {
            told.push(finding.kind);
            wrapped(out, &format!("Why: {}", finding.cause))?;
            wrapped(out, &format!("Do: {}", finding.remedy))?;
        }
    }
    Ok(())
}

/// The packets to look at.
pub(crate) fn examples(finding: &Finding) -> Option<String> {
    let list: Vec<String> = finding
        .examples
        .iter()
        .map(|Example { packet, ms, lost_ms }| match lost_ms {
            Some(lost) => format!("packet {packet} at {ms:.3} ms ({lost:.1} ms lost)"),
            None => format!("packet {packet} at {ms:.3} ms"),
        })
        .collect();
    (!list.is_empty()).then(|| format!("See {}.", list.join(", ")))
}

/// The figures of a direction in a line.
pub(crate) fn figures(side: &DirectionReport) -> String {
    let mut line = format!(
        "{} packets, {} bytes, {} segments of up to {} bytes in {} packets",
        side.packets, side.bytes, side.wire_segments, side.mss, side.data_packets
    );
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            let _ = write!(line, ", {count} {what}");
        }
    };
    add(side.super_segments, "super-segments");
    add(side.retransmissions, "sent again");
    add(side.duplicates, "captured twice");
    if let (Some(rate), Some(stretch)) = (side.acks_per_megabyte, side.stretch) {
        let _ = write!(
            line,
            ", {} ACKs alone ({rate:.0} per MB, stretch {stretch:.1})",
            side.pure_acks
        );
    }
    line
}

/// Writes words in lines, indented.
fn wrapped(out: &mut String, text: &str) -> std::fmt::Result {
    let mut len = WIDTH;
    for word in text.split_whitespace() {
        if len + 1 + word.len() > WIDTH {
            if len < WIDTH || out.ends_with(|c: char| c != '\n') {
                writeln!(out)?;
            }
            write!(out, "     ")?;
            len = 5;
        } else {
            write!(out, " ")?;
            len += 1;
        }
        write!(out, "{word}")?;
        len += word.len();
    }
    writeln!(out)
}
