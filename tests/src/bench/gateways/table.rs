//! Medians, ratios and floors, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rows::{DATAGRAM, HELD, Held, Sample};
use super::world::{KINDS, Kind, Memory};
use super::{Findings, Line, MEMORY, MTUS, Request};
use crate::bench::rows::Unit;
use crate::bench::table::{aligned, median, show, spread};
use crate::peer::CONGESTION_CONTROL;

/// The most that our gateway may have at rest.
const MEMORY_LIMIT: f64 = 64.0 * MIB;
const MIB: f64 = 1048576.0;

/// A figure of a sample.
type Figure = fn(&Sample) -> f64;

fn rate(sample: &Sample) -> f64 {
    sample.rate
}

/// Seconds for 10^9 bytes.
fn cpu_per_gb(sample: &Sample) -> f64 {
    sample.cpu * 1e9
}

fn place(kind: Kind) -> usize {
    KINDS.iter().position(|other| *other == kind).unwrap_or_default()
}

impl Line {
    fn figures(&self, kind: Kind, figure: Figure) -> Vec<f64> {
        self.samples[place(kind)].iter().flatten().map(figure).collect()
    }

    /// Ours divided by another gateway's, for each round in which both worked.
    fn ratios(&self, kind: Kind, figure: Figure) -> Vec<f64> {
        let (ours, other) = (&self.samples[place(Kind::Plimsoll)], &self.samples[place(kind)]);
        let ratio = |(ours, other): (&Option<Sample>, &Option<Sample>)| {
            let ratio = figure(ours.as_ref()?) / figure(other.as_ref()?);
            // A gateway that has moved little may have no whole tick of CPU time.
            ratio.is_finite().then_some(ratio)
        };
        ours.iter().zip(other).filter_map(ratio).collect()
    }

    /// Whether our rate must be above that of another gateway.
    fn must_lead(&self, kind: Kind) -> bool {
        match kind {
            Kind::Without | Kind::Plimsoll | Kind::Before | Kind::Rules => false,
            Kind::Pasta => self.mtu == MTUS[0] || self.row.is_bulk(),
            Kind::Slirp4netns | Kind::GvisorTapVsock => true,
        }
    }

    /// The gateways whose floor is missed.
    fn missed(&self) -> Vec<Kind> {
        let behind = |kind| median(&self.ratios(kind, rate)).is_some_and(|ratio| ratio <= 1.0);
        KINDS.into_iter().filter(|&kind| self.must_lead(kind) && behind(kind)).collect()
    }

    /// The same for the CPU time of bulk, which must not be above pasta's.
    fn missed_by_cpu(&self) -> Vec<Kind> {
        let ratio = median(&self.ratios(Kind::Pasta, cpu_per_gb));
        ratio.filter(|ratio| *ratio > 1.0).map(|_| Kind::Pasta).into_iter().collect()
    }

    fn verdict(&self, missed: &[Kind], has_floor: bool) -> String {
        if self.figures(Kind::Plimsoll, rate).is_empty() {
            return "failed".to_owned();
        }
        let names: Vec<&str> = missed.iter().map(|kind| kind.name()).collect();
        match (names.is_empty(), has_floor) {
            (false, _) => format!("missed: {}", names.join(", ")),
            (true, true) => "met".to_owned(),
            (true, false) => "-".to_owned(),
        }
    }

    /// The cells of all gateways: the median and, of others, the ratio with its spread.
    fn cells(&self, kinds: &[Kind], figure: Figure, shown: impl Fn(f64) -> String) -> Vec<String> {
        let cell = |&kind: &Kind| {
            let Some(middle) = median(&self.figures(kind, figure)) else { return "-".to_owned() };
            let ratios = self.ratios(kind, figure);
            match median(&ratios).zip(spread(&ratios)).filter(|_| kind.is_other()) {
                Some((ratio, (least, most))) => {
                    format!("{}; ×{ratio:.2} ({least:.2}..{most:.2})", shown(middle))
                }
                None => shown(middle),
            }
        };
        kinds.iter().map(cell).collect()
    }

    /// The line of rates and, of bulk, that of CPU time.
    fn lines(&self, kinds: &[Kind]) -> Vec<Vec<String>> {
        let unit = if self.row.is_bulk() { Unit::Bits } else { Unit::Transactions };
        let line = |name: String, cells: Vec<String>, verdict: String| {
            let start = [name, self.mtu.to_string()];
            start.into_iter().chain(cells).chain([verdict]).collect::<Vec<_>>()
        };
        let others: Vec<Kind> = kinds.iter().copied().filter(|kind| kind.is_other()).collect();
        let cells = self.cells(kinds, rate, |value| show(unit, Some(value)));
        let verdict = self.verdict(&self.missed(), others.iter().any(|&kind| self.must_lead(kind)));
        let mut lines = vec![line(self.row.name.to_owned(), cells, verdict)];
        if self.row.is_bulk() {
            let mut cells = self.cells(kinds, cpu_per_gb, |value| format!("{value:.2} s/GB"));
            for (cell, kind) in cells.iter_mut().zip(kinds) {
                if *kind == Kind::Without {
                    *cell = "-".to_owned();
                }
            }
            let verdict = self.verdict(&self.missed_by_cpu(), others.contains(&Kind::Pasta));
            lines.push(line(format!("CPU, {}", self.row.name), cells, verdict));
        }
        lines
    }

    fn json(&self, kinds: &[Kind]) -> Value {
        let gateways = kinds.iter().map(|&kind| {
            let samples = self.samples[place(kind)].iter();
            let samples = samples.map(|sample| {
                sample.map(|Sample { rate, cpu }| json!({ "rate": rate, "cpu_s_each": cpu }))
            });
            let ratios = self.ratios(kind, rate);
            let (least, most) = spread(&ratios).unzip();
            json!({
                "gateway": kind.name(),
                "samples": samples.collect::<Vec<_>>(),
                "rate_median": median(&self.figures(kind, rate)),
                "ratio_median": median(&ratios),
                "ratio_min": least,
                "ratio_max": most,
                "cpu_ratio_median": median(&self.ratios(kind, cpu_per_gb)),
            })
        });
        let names = |kinds: Vec<Kind>| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>();
        json!({
            "work": self.row.name,
            "mtu": self.mtu,
            "unit": if self.row.is_bulk() { "bits_per_s" } else { "per_s" },
            "gateways": gateways.collect::<Vec<_>>(),
            "missed": names(self.missed()),
            "missed_by_cpu":
                if self.row.is_bulk() { names(self.missed_by_cpu()) } else { Vec::new() },
            "errors": errors(&self.errors),
        })
    }
}

fn errors(errors: &[(Kind, String)]) -> Vec<String> {
    errors.iter().map(|(kind, error)| format!("{}: {error}", kind.name())).collect()
}

/// The moments at which memory is looked at, as a part of a held set of connections.
type Moment = (&'static str, fn(&Held) -> Memory);

const MOMENTS: [Moment; 3] = [
    ("memory at rest", |held| held.rest),
    ("memory, 1000 connections", |held| held.open),
    ("memory after them", |held| held.after),
];

impl Findings {
    /// The memory of each gateway at each moment, in the order of [`KINDS`].
    fn memories(&self) -> Vec<(&'static str, [Vec<Memory>; KINDS.len()])> {
        let of = |moment: fn(&Held) -> Memory| {
            self.memory.each_ref().map(|held| held.iter().map(moment).collect::<Vec<_>>())
        };
        let moments = MOMENTS.iter().map(|(name, moment)| (*name, of(*moment)));
        moments.chain([("memory after the works", self.after_work.clone())]).collect()
    }

    /// Whether our memory at rest is within its limit, if it was taken.
    fn memory_is_met(&self) -> Option<bool> {
        let resident: Vec<f64> =
            self.memory[place(Kind::Plimsoll)].iter().map(|held| held.rest.resident).collect();
        median(&resident).map(|resident| resident <= MEMORY_LIMIT)
    }

    fn memory_lines(&self, request: &Request, kinds: &[Kind]) -> Vec<Vec<String>> {
        let mut lines = Vec::new();
        for (name, memories) in self.memories() {
            let cell = |&kind: &Kind| {
                let all = &memories[place(kind)];
                let middle = |figure: fn(&Memory) -> f64| {
                    median(&all.iter().map(figure).collect::<Vec<_>>()).map(|bytes| bytes / MIB)
                };
                let both = middle(|memory| memory.resident).zip(middle(|memory| memory.share));
                both.map_or("-".to_owned(), |(resident, share)| {
                    format!("{resident:.1} MiB ({share:.1})")
                })
            };
            let verdict = match self.memory_is_met().filter(|_| name == MOMENTS[0].0) {
                None => "-",
                Some(true) => "met",
                Some(false) => "missed: the limit of 64 MiB",
            };
            let start = [name.to_owned(), request.mtus[0].to_string()];
            let cells = kinds.iter().map(cell);
            lines.push(start.into_iter().chain(cells).chain([verdict.to_owned()]).collect());
        }
        lines
    }
}

/// The columns.
fn kinds(request: &Request) -> Vec<Kind> {
    KINDS.into_iter().filter(|&kind| request.has(kind, MTUS[0])).collect()
}

fn header(kinds: &[Kind]) -> Vec<String> {
    let start = ["work", "MTU"].into_iter();
    let columns = start.chain(kinds.iter().map(|kind| kind.name())).chain(["verdict"]);
    columns.map(str::to_owned).collect()
}

/// All lines below the header.
fn lines(request: &Request, findings: &Findings) -> Vec<Vec<String>> {
    let kinds = kinds(request);
    let mut lines: Vec<Vec<String>> =
        findings.lines.iter().flat_map(|line| line.lines(&kinds)).collect();
    if request.wants(MEMORY) {
        lines.extend(findings.memory_lines(request, &kinds));
    }
    lines
}

/// The version of each program, and what is left out.
fn versions(request: &Request) -> String {
    let of = |kind: &Kind| match request.programs.version(*kind) {
        Ok(version) if version.contains(kind.name()) => version,
        Ok(version) => format!("{} ({version})", kind.name()),
        Err(error) => format!("{} (no version: {error:#})", kind.name()),
    };
    let all = kinds(request);
    let mut named: Vec<String> =
        all.iter().filter(|kind| **kind != Kind::Without).map(of).collect();
    if let Some(pasta) = named.iter_mut().find(|name| name.contains("git20230309")) {
        // Registries have no newer one.
        pasta.push_str(", which is of March 2023");
    }
    let missing = request.missing.iter();
    named.extend(missing.map(|(kind, why)| format!("without {}: {why}", kind.name())));
    named.join("; ")
}

/// How many runs of which gateway have failed, in a sentence.
fn failures(findings: &Findings) -> String {
    let errors = || findings.lines.iter().flat_map(|line| &line.errors).chain(&findings.errors);
    let count = |kind: Kind| errors().filter(|(other, _)| *other == kind).count();
    let counts = KINDS.into_iter().map(|kind| (kind.name(), count(kind)));
    let counts = counts.filter(|(_, count)| *count > 0);
    let said: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
    if said.is_empty() { String::new() } else { format!("Failed runs: {}. ", said.join(", ")) }
}

/// How it was measured, in full sentences.
fn conditions(request: &Request, findings: &Findings) -> String {
    format!(
        "Medians of {} rounds with runs of {} s. Servers are in another namespace, a veth pair \
         away; *without* is the client without a gateway{}. In each round and for each MTU the \
         gateways are started afresh, and each work runs behind one after the other; who goes \
         first changes. × is Plimsoll's figure divided by the other gateway's, the median of the \
         rounds (least to most); of CPU time less is better. Clients and servers use \
         {CONGESTION_CONTROL}, the gateways' sockets {}. Datagrams have {DATAGRAM} bytes, and \
         those that arrive count. CPU is user and system time of a gateway's own processes for \
         10^9 bytes; the kernel's work in softirqs belongs to no process. Memory is that of a \
         gateway's own processes, resident (proportional share); the {HELD} connections have \
         each carried one transaction. Floors: above slirp4netns and gvisor-tap-vsock in all \
         rates, above pasta in rates at MTU {} and in bulk at {}, no more CPU than pasta, 64 MiB \
         at rest. {}Versions: {}.",
        request.plan.repetitions,
        request.plan.seconds.as_secs_f64(),
        match request.rules {
            true =>
                ", and *with 100 rules* Plimsoll with rules, of which the last opens the server",
            false => "",
        },
        findings.congestion_control,
        MTUS[0],
        MTUS[1],
        failures(findings),
        versions(request)
    )
}

/// The findings as text.
pub(super) fn text(request: &Request, findings: &Findings) -> String {
    let lines = lines(request, findings);
    let all = std::iter::once(header(&kinds(request))).chain(lines.iter().cloned());
    let mut out = format!("\n{}\n\n{}", conditions(request, findings), aligned(all));
    let errors = findings.lines.iter().map(|line| (line.name(), &line.errors));
    for (name, errors) in errors.chain([(MEMORY.to_owned(), &findings.errors)]) {
        for (kind, error) in errors {
            let _ = writeln!(out, "\n{name}: {}: {error}", kind.name());
        }
    }
    out.push('\n');
    let missed =
        |line: &&Vec<String>| line.last().is_some_and(|verdict| verdict.contains("missed"));
    for line in lines.iter().filter(missed) {
        let verdict = line.last().map_or("", String::as_str);
        let _ = writeln!(out, "floor {verdict}; {}, MTU {}", line[0], line[1]);
    }
    if !lines.iter().any(|line| missed(&line)) {
        out.push_str("no floor is missed\n");
    }
    out
}

/// The findings as JSON, with every sample.
pub(super) fn json(request: &Request, findings: &Findings) -> Value {
    let kinds = kinds(request);
    let memory = findings.memories().into_iter().map(|(name, memories)| {
        let gateways = kinds.iter().map(|&kind| {
            let samples = memories[place(kind)]
                .iter()
                .map(|memory| json!({ "resident": memory.resident, "share": memory.share }));
            json!({ "gateway": kind.name(), "samples": samples.collect::<Vec<_>>() })
        });
        json!({ "moment": name, "gateways": gateways.collect::<Vec<_>>() })
    });
    json!({
        "repetitions": request.plan.repetitions,
        "seconds": request.plan.seconds.as_secs_f64(),
        "versions": versions(request),
        "rows": findings.lines.iter().map(|line| line.json(&kinds)).collect::<Vec<_>>(),
        "memory": memory.collect::<Vec<_>>(),
        "memory_is_met": findings.memory_is_met(),
        "errors": errors(&findings.errors),
        "table": {
            "conditions": conditions(request, findings),
            "header": header(&kinds),
            "rows": lines(request, findings),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    /// A line with a rate and CPU seconds for each round, of Plimsoll, pasta and slirp4netns.
    fn line(row: usize, mtu: u16, rounds: &[[Option<(f64, f64)>; 3]]) -> Line {
        let mut line = Line::new(&ROWS[row], mtu);
        for round in rounds {
            let kinds = [Kind::Plimsoll, Kind::Pasta, Kind::Slirp4netns];
            for (kind, sample) in kinds.into_iter().zip(round) {
                let sample = sample.map(|(rate, cpu)| Sample { rate, cpu: cpu / 1e9 });
                line.samples[place(kind)].push(sample);
            }
        }
        line
    }

    #[test]
    fn ratios_are_of_rounds_in_which_both_worked() {
        let line = line(
            0,
            1500,
            &[
                [Some((8.0, 1.0)), Some((2.0, 2.0)), None],
                [Some((6.0, 1.0)), None, None],
                [Some((9.0, 1.0)), Some((3.0, 2.0)), None],
            ],
        );
        assert_eq!(line.ratios(Kind::Pasta, rate), [4.0, 3.0]);
        assert_eq!(line.ratios(Kind::Pasta, cpu_per_gb), [0.5, 0.5]);
        assert!(line.ratios(Kind::Slirp4netns, rate).is_empty());
        assert!(line.missed().is_empty() && line.missed_by_cpu().is_empty());
        let cells = line.cells(&KINDS, rate, |value| format!("{value:.0}"));
        assert_eq!(cells, ["-", "8", "-", "-", "2; ×3.50 (3.00..4.00)", "-", "-"]);
    }

    #[test]
    fn a_tie_is_not_ahead_but_costs_no_more() {
        let tie = [[Some((2.0, 1.0)), Some((2.0, 1.0)), Some((2.0, 1.0))]];
        let bulk = line(0, 65520, &tie);
        assert_eq!(bulk.missed(), [Kind::Pasta, Kind::Slirp4netns]);
        assert!(bulk.missed_by_cpu().is_empty());
        // At the large MTU transactions have no floor against pasta.
        assert_eq!(line(4, 65520, &tie).missed(), [Kind::Slirp4netns]);
        assert_eq!(line(4, 1500, &tie).missed(), [Kind::Pasta, Kind::Slirp4netns]);
        let costly = line(0, 1500, &[[Some((2.0, 1.5)), Some((1.0, 1.0)), None]]);
        assert_eq!(costly.missed_by_cpu(), [Kind::Pasta]);
        let verdicts: Vec<String> =
            costly.lines(&KINDS).into_iter().filter_map(|line| line.last().cloned()).collect();
        assert_eq!(verdicts, ["met", "missed: pasta"]);
    }

    #[test]
    fn all_lines_have_the_columns_of_the_header() {
        let columns = header(&KINDS).len();
        let line = line(0, 1500, &[[None, Some((1.0, 1.0)), None]]);
        let lines = line.lines(&KINDS);
        assert!(lines.iter().all(|line| line.len() == columns), "{lines:?}");
        assert_eq!(lines[0].last().unwrap(), "failed");
    }
}
