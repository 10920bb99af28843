//! The report as text.

use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_explain::wrapped;

use super::cause::Cause;
use super::{Book, Destination};

/// Destinations without a finding that are listed, at most.
const MAX_QUIET: usize = 10;
/// From here on a wait is noticed whatever its share is.
const LONG: Duration = Duration::from_secs(1);

/// A cause, the time that it cost, and how often.
type Finding = (Cause, Duration, u64);

/// The findings about a destination, the costliest first.
fn findings(destination: &Destination, ran: Duration) -> Vec<Finding> {
    let found = Cause::ALL.into_iter().zip(&destination.waits).filter_map(|(cause, waits)| {
        let (cost, limits) = (waits.total(), cause.limits());
        let share = cost >= ran * limits.least_percent / 100 || cost >= LONG;
        let counts = waits.count >= limits.least_count && cost >= limits.least && share;
        counts.then_some((cause, cost, waits.count))
    });
    let mut found: Vec<Finding> = found.collect();
    found.sort_by_key(|&(_, cost, _)| Reverse(cost));
    found
}

/// The report of a command that ran for so long.
pub(super) fn text(book: &Book, ran: Duration) -> String {
    let with_findings = |(to, destination)| (findings(destination, ran), to, destination);
    let mut all: Vec<(Vec<Finding>, &SocketAddr, &Destination)> =
        book.destinations.iter().map(with_findings).collect();
    let cost = |found: &[Finding]| found.first().map_or(Duration::ZERO, |&(_, cost, _)| cost);
    all.sort_by_key(|(found, to, destination)| {
        (Reverse(cost(found)), Reverse(destination.up + destination.down), *to)
    });
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, &all, ran, book.left_out);
    out
}

fn write(
    out: &mut String,
    all: &[(Vec<Finding>, &SocketAddr, &Destination)],
    ran: Duration,
    left_out: u64,
) -> fmt::Result {
    let held_up = all.iter().take_while(|(found, ..)| !found.is_empty()).count();
    match held_up {
        0 => writeln!(out, "plimsoll: nothing held it up in {}", time(ran))?,
        1 => writeln!(out, "plimsoll: 1 destination held it up, in {}", time(ran))?,
        _ => writeln!(out, "plimsoll: {held_up} destinations held it up, in {}", time(ran))?,
    }
    let mut explained = Vec::new();
    for (found, to, destination) in &all[..held_up] {
        writeln!(out, "\n{}", place(to, destination))?;
        for &(cause, cost, count) in found {
            let percent = cost.as_secs_f64() / ran.as_secs_f64().max(1e-9) * 100.0;
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            let title = cause.title();
            writeln!(out, "  {title}: {}, {percent:.0} % of the time, {times}", time(cost))?;
            if !explained.contains(&cause) {
                explained.push(cause);
                wrapped(out, cause.explanation())?;
                wrapped(out, cause.remedy())?;
            }
        }
    }
    let quiet = &all[held_up..];
    if !quiet.is_empty() {
        writeln!(out)?;
    }
    for (_, to, destination) in quiet.iter().take(MAX_QUIET) {
        writeln!(out, "{}: nothing", place(to, destination))?;
    }
    if quiet.len() > MAX_QUIET {
        writeln!(out, "{} more destinations: nothing", quiet.len() - MAX_QUIET)?;
    }
    if left_out > 0 {
        writeln!(out, "Not observed, beyond {} destinations: {left_out}", super::MAX_DESTINATIONS)?;
    }
    Ok(())
}

/// A destination and its figures.
fn place(to: &SocketAddr, destination: &Destination) -> String {
    let Destination { name, connections, up, down, rtt, .. } = destination;
    let is_lookup = to.port() == crate::names::PORT && name.as_deref() == Some("name server");
    let what = match (is_lookup, connections) {
        (true, 1) => "lookup",
        (true, _) => "lookups",
        (false, 1) => "connection",
        (false, _) => "connections",
    };
    let mut text = match name {
        Some(name) => format!("{name} ({to})"),
        None => to.to_string(),
    };
    let _ = write!(text, ": {connections} {what}, {} up, {} down", bytes(*up), bytes(*down));
    if !rtt.is_zero() {
        let _ = write!(text, ", RTT {}", time(*rtt));
    }
    text
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} kB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}

fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        secs if secs >= 1.0 => format!("{secs:.2} s"),
        secs if secs >= 0.01 => format!("{:.0} ms", secs * 1e3),
        secs if secs >= 1e-4 => format!("{:.1} ms", secs * 1e3),
        secs => format!("{:.0} us", secs * 1e6),
    }
}
