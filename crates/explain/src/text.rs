//! The report as text.

use std::fmt::Write;

use crate::kinds;
use crate::report::{DirectionReport, Finding, FlowReport, Report, Sum};

/// Lines of text are at most this long, in characters.
const WIDTH: usize = 100;

/// The report as text, with the first `top` flows that have findings.
pub fn text_report(report: &Report, top: usize) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, report, top);
    out
}

/// The headline of the kind of this name.
pub(crate) fn title(name: &str) -> &'static str {
    kinds::ALL.iter().find(|kind| kind.name() == name).map_or("", |kind| kind.title())
}

/// What a sum or a finding costs.
pub(crate) fn cost(packets: f64, ms: f64) -> String {
    let mut parts = Vec::new();
    if ms >= 0.5 {
        parts.push(format!("{ms:.0} ms"));
    }
    if packets >= 0.5 {
        parts.push(format!("{packets:.0} packets"));
    }
    if parts.is_empty() { "little".into() } else { parts.join(", ") }
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
        report.duration_ms / 1e3
    )?;
    if let Some(skipped) = skipped(report) {
        writeln!(out, "{skipped}")?;
    }
    if let Some(note) = &report.note {
        writeln!(out, "note: {note}")?;
    }
    if report.totals.is_empty() {
        return writeln!(out, "nothing to complain about");
    }
    writeln!(out, "\nin all flows, by cost:")?;
    for Sum { kind, count, packets, ms, .. } in &report.totals {
        writeln!(out, "  {:<52}{count:>9} x   {}", title(kind), cost(*packets, *ms))?;
    }
    let evicted = &report.evicted;
    if evicted.flows > 0 {
        writeln!(
            out,
            "  (of these {} flows with {} packets were given up and are in the sums only)",
            evicted.flows, evicted.packets
        )?;
    }
    let mut told: Vec<&str> = Vec::new();
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

fn flow(out: &mut String, flow: &FlowReport, told: &mut Vec<&'static str>) -> std::fmt::Result {
    let FlowReport { client, server, duration_ms, rtt_ms, .. } = flow;
    writeln!(out, "\n{client} -> {server}  {duration_ms:.1} ms, round trip {rtt_ms:.3} ms")?;
    for side in &flow.directions {
        let line = format!("{}: {}", side.from, figures(side));
        wrapped(out, &line)?;
    }
    for (n, finding) in flow.findings.iter().enumerate() {
        let Finding { title, from, detail, .. } = finding;
        let cost = cost(finding.packets, finding.ms);
        writeln!(out, "  {}. {title} ({from}): {cost}", n + 1)?;
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
        .map(|example| format!("packet {} at {:.3} ms", example.packet, example.ms))
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
    if side.pure_acks > 0 {
        let _ = write!(
            line,
            ", {} ACKs alone ({:.0} per MB, stretch {:.1})",
            side.pure_acks, side.acks_per_megabyte, side.stretch
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
