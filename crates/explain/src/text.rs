//! The report as text.

use std::fmt::Write;

use crate::kinds::{ALL, Kind};
use crate::report::{DirectionReport, Example, Finding, FlowReport, Report, Side, Sum};
use crate::unread::UnreadFrames;

/// Lines of text are at most this long, in characters.
const WIDTH: usize = 100;

/// The cause of a finding, and its remedy.
type Explanation = (&'static str, &'static str);

/// Bytes that ACKs must be for before their rate is told.
const ENOUGH_ACKED: f64 = 1e5;

/// The report as text, with the first `top` flows that have findings.
pub fn text_report(report: &Report, top: usize) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, report, top);
    out
}

/// A count and what it counts, in the singular for one.
pub(crate) fn plural(count: u64, what: &str) -> String {
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ => format!("{count} {what}s"),
    }
}

/// What a finding of one kind costs, and which share of the whole that is.
pub(crate) fn cost(kind: Kind, packets: Option<f64>, ms: Option<f64>, share: f64) -> String {
    let amount = match (packets, ms) {
        (_, Some(ms)) if ms >= 0.5 => format!("{ms:.0} ms"),
        _ if kind.is_failure() => "at once".into(),
        (Some(packets), _) if packets >= 0.5 => plural(packets.round() as u64, "packet"),
        _ => return "little".into(),
    };
    let of = match kind {
        kind if kind.is_failure() => "the connections",
        kind if kind.costs_time() => "the time",
        Kind::Fractional | Kind::SmallWrites => "the segments",
        Kind::TailApart | Kind::WakeUps => "the data packets",
        _ => "the packets",
    };
    format!("{amount}, {} of {of}", percent(share))
}

/// A share in per cent, with a place where it is small.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// The round trip of a flow.
fn round_trip(flow: &FlowReport) -> String {
    flow.rtt_ms.map_or("round trip unknown".into(), |ms| format!("round trip {ms:.3} ms"))
}

/// What can be said instead of findings, if there are none.
pub(crate) fn no_findings(report: &Report) -> Option<String> {
    match (report.totals.is_empty(), report.tcp_packets) {
        (true, 0) => Some(match unread(report) {
            Some(unread) => format!("no TCP that can be read in this capture: it holds {unread}"),
            None => "no TCP in this capture".into(),
        }),
        (true, _) => {
            let kinds = ALL.len();
            Some(format!("none of the {kinds} kinds of trouble that are looked for was found"))
        }
        _ => None,
    }
}

/// Where a flow was captured, and its round trip.
pub(crate) fn place(flow: &FlowReport) -> String {
    let at = flow.captured_at.map_or("", |side| match side {
        Side::Client => ", captured at the client",
        Side::Server => ", captured at the server",
    });
    format!("{}{at}", round_trip(flow))
}

/// What the capture cannot tell, a line for each.
pub(crate) fn caveats(report: &Report) -> impl Iterator<Item = String> + '_ {
    report.notes.iter().map(|note| format!("{}: {}", plural(note.flows, "flow"), note.text))
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
    let parts = (!parts.is_empty()).then(|| format!("passed over: {}", parts.join(", ")));
    Some(match (parts?, unread(report)) {
        (parts, Some(unread)) => format!("{parts}; not read: {unread}"),
        (parts, None) => parts,
    })
}

/// What frames hold that were not read, by name.
fn unread(report: &Report) -> Option<String> {
    let list: Vec<String> = report
        .unread
        .iter()
        .map(|UnreadFrames { what, frames }| format!("{} of {what}", plural(*frames, "frame")))
        .collect();
    (!list.is_empty()).then(|| list.join(", "))
}

fn write(out: &mut String, report: &Report, top: usize) -> std::fmt::Result {
    writeln!(
        out,
        "{}: {}, {} of TCP in {}, {:.3} s",
        report.file,
        plural(report.packets, "packet"),
        report.tcp_packets,
        plural(report.flows_seen, "flow"),
        report.duration_ms.unwrap_or(0.0) / 1e3
    )?;
    if let Some(skipped) = skipped(report) {
        wrapped_at(out, "", &skipped)?;
    }
    if let Some(note) = &report.note {
        writeln!(out, "note: {note}")?;
    }
    for note in caveats(report) {
        wrapped_at(out, "note: ", &note)?;
    }
    if let Some(said) = no_findings(report) {
        return wrapped_at(out, "", &said);
    }
    writeln!(out, "\nin all flows, by cost:")?;
    for Sum { kind, count, packets, ms, share, .. } in &report.totals {
        let cost = cost(*kind, *packets, *ms, *share);
        writeln!(out, "  {:<56}{count:>7} x   {cost}", kind.title())?;
    }
    let evicted = &report.evicted;
    if evicted.flows > 0 {
        writeln!(
            out,
            "  (with {} of {} that were given up while many were open)",
            plural(evicted.flows, "flow"),
            plural(evicted.packets, "packet")
        )?;
    }
    let mut told: Vec<Explanation> = Vec::new();
    let with = report.flows.iter().filter(|flow| !flow.findings.is_empty());
    let count = with.clone().count();
    for each in with.take(top) {
        flow(out, each, &mut told)?;
    }
    if count > top {
        let more = plural((count - top) as u64, "flow");
        writeln!(out, "\n{more} more with findings; --top prints more")?;
    }
    Ok(())
}

fn flow(out: &mut String, flow: &FlowReport, told: &mut Vec<Explanation>) -> std::fmt::Result {
    let FlowReport { client, server, duration_ms, .. } = flow;
    writeln!(out, "\n{client} -> {server}  {duration_ms:.1} ms, {}", place(flow))?;
    for side in &flow.directions {
        let line = format!("{}: {}", side.from.name(), figures(side));
        wrapped(out, &line)?;
    }
    for (n, finding) in flow.findings.iter().enumerate() {
        let Finding { kind, title, from, detail, share, .. } = finding;
        let cost = cost(*kind, finding.packets, finding.ms, *share);
        writeln!(out, "  {}. {title} ({}): {cost}", n + 1, from.name())?;
        wrapped(out, detail)?;
        if let Some(examples) = examples(finding) {
            wrapped(out, &examples)?;
        }
        // Each explanation once.
        if !told.contains(&(finding.cause, finding.remedy)) {
            told.push((finding.cause, finding.remedy));
            wrapped(out, &format!("Why: {}", finding.cause))?;
            wrapped(out, &format!("Do: {}", finding.remedy))?;
        }
    }
    for note in &flow.notes {
        wrapped_at(out, "  note: ", &note.text)?;
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
        "{}, {}, {} of up to {} in {}",
        plural(side.packets, "packet"),
        plural(side.bytes, "byte"),
        plural(side.wire_segments, "segment"),
        plural(side.mss.into(), "byte"),
        plural(side.data_packets, "packet")
    );
    let mut add = |count: u64, what: String| {
        if count > 0 {
            let _ = write!(line, ", {what}");
        }
    };
    add(side.super_segments, plural(side.super_segments, "super-segment"));
    add(side.retransmissions, format!("{} sent again", side.retransmissions));
    add(side.reordered, format!("{} out of order", side.reordered));
    add(side.duplicates, format!("{} captured twice", side.duplicates));
    add(side.missing_bytes, format!("{} not captured", plural(side.missing_bytes, "byte")));
    let acked = side.acks_per_megabyte.map_or(0.0, |rate| side.pure_acks as f64 * 1e6 / rate);
    if let (Some(rate), Some(stretch)) = (side.acks_per_megabyte, side.stretch)
        && acked >= ENOUGH_ACKED
    {
        let acks = plural(side.pure_acks, "ACK");
        let _ = write!(line, ", {acks} alone ({rate:.0} per MB, stretch {stretch:.1})");
    } else if side.pure_acks > 0 {
        let _ = write!(line, ", {} alone", plural(side.pure_acks, "ACK"));
    }
    line
}

/// Writes words in lines, indented.
///
/// # Errors
/// None: writing to a string cannot fail.
pub fn wrapped(out: &mut String, text: &str) -> std::fmt::Result {
    wrapped_at(out, "     ", text)
}

/// The same behind a word; later lines are indented as far.
fn wrapped_at(out: &mut String, front: &str, text: &str) -> std::fmt::Result {
    let indent = front.len();
    write!(out, "{front}")?;
    let mut len = indent;
    for (n, word) in text.split_whitespace().enumerate() {
        if n > 0 && len + 1 + word.len() > WIDTH {
            write!(out, "\n{:indent$}", "")?;
            len = indent;
        } else if n > 0 {
            write!(out, " ")?;
            len += 1;
        }
        write!(out, "{word}")?;
        len += word.len();
    }
    writeln!(out)
}
