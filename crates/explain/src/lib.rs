//! Reads captures and says what held their TCP flows up.
//!
//! # Theory of operation
//!
//! [`explain`] reads a capture of any origin once, from front to end, in a buffer of bounded size.
//! Each frame becomes a segment ([`packet`]: link header, IP, TCP) or is counted as skipped. Each
//! segment goes to its flow in a table of bounded size ([`table`]): the flow seen least recently
//! gives way when the table is full, and lives on as sums only. A flow has two directions
//! ([`direction`]) of constant size, where every rule compares a segment with what was
//! remembered of those before it: how data was cut into packets ([`direction`], [`sizes`]), waits
//! for ACKs ([`nagle`]), the window ([`window`]), what was lost ([`loss`]), and which sizes of
//! segments get through ([`fits`]). ICMP errors go to the flow of the segment that they quote
//! ([`icmp`]). The flow itself keeps how it opened ([`handshake`]) and ended ([`ending`]). What it
//! finds is added up by [`Kind`] with a few examples; where one kind has several causes that the
//! capture tells apart, it has a [`Reason`]. Connections that failed alike between the same hosts
//! are one finding.
//!
//! A finding is told with the share of the flow's time, or of its packets, that it costs; shares
//! rank the findings, and small ones are left out ([`kinds`]). What to do about it depends on the
//! cause and on the stack that was captured ([`remedies`]).
//!
//! A capture shows one place of the path. How long packets take from there to each end and back is
//! known from the handshake, and tells at which end it was taken. A wait counts only if the
//! packets had the time to go round; a window holds a sender only once it has reached it; how data
//! was cut is not looked at where the receiver may have merged it. What a capture cannot tell of a
//! flow is said in its notes ([`notes`]): no finding does not mean that all is well.
//!
//! The rules see packets, not programs, so they are estimates; where two causes look alike (the
//! tails of large writes and the ends of small ones) the distances between the ends of segments
//! that are not full decide, because these are where writes ended.
//!
//! Nothing that a capture holds makes this crate panic.
//!
//! TCP in tunnels is read as if it had none around it ([`layers`]); which tunnel a flow is in is
//! not kept. What is not read is counted by name ([`unread`]).
//!
//! What it does not do: reassemble fragments, decrypt, follow flows through address translation,
//! verify checksums, look into payload.
#![forbid(unsafe_code)]

mod capture;
mod details;
mod direction;
mod ending;
mod fits;
mod flow;
mod front;
mod handshake;
pub mod html;
mod html_report;
mod icmp;
mod kinds;
mod layers;
mod loss;
mod nagle;
mod notes;
mod packet;
mod reasons;
mod recent;
mod remedies;
mod report;
mod segments;
mod sizes;
mod table;
mod tally;
mod text;
mod unread;
mod window;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};

pub use html_report::html_report;
pub use kinds::{ALL as KINDS, Kind};
pub use notes::{Caveat, CaveatCount, Note};
pub use reasons::Reason;
pub use report::{
    DirectionReport, Evicted, Example, Finding, FlowReport, Format, MssSource, Report, Side,
    Skipped, Sum,
};
pub use segments::{CapturedSegment, TcpFlags, segments};
pub use text::{text_report, wrapped};
pub use unread::UnreadFrames;

use flow::Ends;
use packet::{Packet, Skip};
use report::Sums;
use table::Table;
use unread::{Counts, Unread};

/// What counts as soon, late and many. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What follows within this time could have come along.
    pub soon: u64,
    /// ACKs within this time could have been one, sent when their batch was worked off.
    pub batch: u64,
    /// The shortest time by which ACKs are delayed.
    pub stall_least: u64,
    /// The longest such time. Receivers must not delay ACKs for more than half a second (RFC 9293,
    /// section 3.8.6.3).
    pub stall_most: u64,
    /// Flows that are kept at once.
    pub most_flows: usize,
    /// What is found less often in a flow is not told, unless it cost much time; nor what cost
    /// fewer than twice as many packets.
    pub least_count: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            soon: 1_000_000,
            batch: 200_000,
            stall_least: 30_000_000,
            stall_most: 500_000_000,
            most_flows: 16_384,
            least_count: 2,
        }
    }
}

/// Explains the capture in a file.
///
/// # Errors
/// If the file cannot be read or is not a capture.
pub fn explain_file(path: &Path, options: &Options) -> Result<Report> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut report = explain(file, options).with_context(|| format!("{}", path.display()))?;
    report.file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(report)
}

/// Explains a capture.
///
/// # Errors
/// If `input` cannot be read or is not a capture.
pub fn explain(input: impl Read + Send, options: &Options) -> Result<Report> {
    let mut pass = Pass {
        table: Table::new(options.most_flows),
        options,
        report: Report::default(),
        sums: Sums::default(),
        evicted: Sums::default(),
        unread: Counts::default(),
        start: None,
        end: 0,
    };
    let ended = capture::read(input, |frame| {
        pass.frame(&frame);
        Ok(())
    })?;
    let mut report = pass.finish();
    report.format = if ended.ng { Format::Pcapng } else { Format::Pcap };
    report.packets = ended.frames;
    report.skipped.unknown_link += ended.unknown;
    report.note = ended.note;
    Ok(report)
}

/// One pass over a capture.
struct Pass<'a> {
    table: Table,
    options: &'a Options,
    report: Report,
    sums: Sums,
    evicted: Sums,
    /// What was not read.
    unread: Counts,
    /// When the capture began.
    start: Option<u64>,
    /// The latest time in it.
    end: u64,
}

impl Pass<'_> {
    fn frame(&mut self, frame: &capture::Frame<'_>) {
        let start = *self.start.get_or_insert(frame.time);
        // Stamps may go back a little where several queues were captured.
        self.start = Some(start.min(frame.time));
        self.end = self.end.max(frame.time);
        let segment = match packet::read(frame) {
            Ok(Packet::Tcp(segment)) => segment,
            Ok(Packet::Icmp(notice)) => {
                self.report.icmp_errors += 1;
                let (ends, from) = Ends::between(notice.src, notice.dst);
                if let Some(flow) = self.table.known(ends) {
                    flow.notice(&notice, from);
                }
                return;
            }
            Err(skip) => {
                let skipped = &mut self.report.skipped;
                let what = match skip {
                    Skip::Other(what) => Some(what),
                    Skip::Link(number) => Some(Unread::Link(number)),
                    Skip::Fragment | Skip::Broken => None,
                };
                *match skip {
                    Skip::Other(_) => &mut skipped.not_tcp,
                    Skip::Fragment => &mut skipped.fragments,
                    Skip::Broken => &mut skipped.broken,
                    Skip::Link(_) => &mut skipped.unknown_link,
                } += 1;
                what.into_iter().for_each(|what| self.unread.add(what));
                return;
            }
        };
        self.report.tcp_packets += 1;
        let (ends, from) = Ends::of(&segment);
        let is_other = |flow: &flow::Flow| flow.is_reused_by(&segment, from);
        let (flow, gone) = self.table.flow(ends, segment.time, is_other);
        flow.segment(&segment, from, self.options);
        if let Some(gone) = gone {
            self.evict(gone);
        }
    }

    fn evict(&mut self, mut flow: flow::Flow) {
        flow.end(self.end, self.options);
        self.report.flows_seen += 1;
        self.sums.add(&flow, self.options);
        self.evicted.add(&flow, self.options);
        let evicted = &mut self.report.evicted;
        evicted.flows += 1;
        for side in &flow.sides {
            evicted.packets += side.packets;
            evicted.bytes += side.bytes;
        }
    }

    fn finish(mut self) -> Report {
        let start = self.start.unwrap_or(0);
        let mut report = self.report;
        let mut flows: Vec<flow::Flow> = self.table.into_flows().collect();
        flows.sort_by_key(|flow| flow.first);
        for flow in &mut flows {
            flow.end(self.end, self.options);
            report.flows_seen += 1;
            self.sums.add(flow, self.options);
        }
        join_failures(&mut flows);
        report.flows.extend(flows.iter().map(|flow| report::flow(flow, start, self.options)));
        let bytes = |flow: &FlowReport| flow.directions.iter().map(|side| side.bytes).sum::<u64>();
        report
            .flows
            .sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| bytes(b).cmp(&bytes(a))));
        let duration = |start: u64| self.end.saturating_sub(start) as f64 / 1e6;
        report.duration_ms = self.start.map(duration);
        report.totals = self.sums.list();
        report.unread = self.unread.list();
        report.notes = report::caveats(&report.flows);
        report.evicted.findings = self.evicted.list();
        report
    }
}

/// Connections that failed in the same way between the same hosts become one finding, which the
/// first of them has.
fn join_failures(flows: &mut [flow::Flow]) {
    let mut first = HashMap::new();
    for at in 0..flows.len() {
        let (before, rest) = flows.split_at_mut(at);
        let Some(failure) = rest[0].failure() else { continue };
        match first.entry(failure) {
            Entry::Vacant(entry) => _ = entry.insert(at),
            Entry::Occupied(entry) => before[*entry.get()].join_failure(&mut rest[0]),
        }
    }
}
