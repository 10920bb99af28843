//! `bench reasons`: the time that `plimsoll run --explain` reports as lost, and the time that a
//! program takes without its defect.
//!
//! The program is run with the defect and without it, by turns. The time that the report gives for
//! the cause is compared with the difference between the medians.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::table::{median, publish, spread};
use crate::harness::behind::{LATER, World};
use crate::harness::process::Process;
use crate::harness::veth::FAR;

/// How far the reported time may be from the difference.
const FLOOR: f64 = 0.2;

/// A client of `reasons.py`, on which link, with which name server.
struct Client {
    words: &'static [&'static str],
    /// The properties of the path to the server; none is a veth pair.
    path: Option<&'static str>,
    names: Option<&'static str>,
}

/// A defect: the words of its cause, and a program with it and without it.
struct Defect {
    title: &'static str,
    with: Client,
    without: Client,
}

const fn client(words: &'static [&'static str]) -> Client {
    Client { words, path: None, names: None }
}

const fn over(path: &'static str, words: &'static [&'static str]) -> Client {
    Client { words, path: Some(path), names: None }
}

const fn names(names: &'static str) -> Client {
    Client { words: &["looks-up"], path: None, names: Some(names) }
}

const DEFECTS: [Defect; 7] = [
    Defect {
        title: "Nagle's rule waiting for delayed ACKs",
        with: client(&["apart"]),
        without: client(&["one-write"]),
    },
    Defect {
        title: "The server answered late",
        with: client(&["asks-slow-server", "5"]),
        without: client(&["asks", "5"]),
    },
    Defect {
        title: "The server's window was full: it reads slowly",
        with: client(&["uploads-to-slow-reader"]),
        without: client(&["uploads"]),
    },
    Defect {
        title: "The command's window was full: it reads slowly",
        with: client(&["reads-slowly"]),
        without: client(&["downloads"]),
    },
    Defect {
        title: "Data lost and retransmitted",
        with: over("delay=2ms,loss=2%", &["asks", "400"]),
        without: over("delay=2ms", &["asks", "400"]),
    },
    Defect {
        title: "The name server answered late",
        with: names("slow-names"),
        without: names("names"),
    },
    Defect {
        title: "Connections one after the other where one would do",
        with: over("delay=10ms", &["reconnects"]),
        without: over("delay=10ms", &["asks", "50"]),
    },
];

/// The place where a client runs.
struct Stage {
    _servers: Vec<Process>,
    world: World,
    words: Vec<String>,
}

impl Stage {
    fn new(client: &Client) -> Result<Stage> {
        let world = match client.path {
            Some(path) => World::with_link(path)?,
            None => World::new()?,
        };
        if client.names.is_some() {
            world.write("resolv.conf", &format!("nameserver {FAR}\n"))?;
        }
        let kinds = ["serve"].into_iter().chain(client.names);
        let servers = kinds.map(|kind| world.servers(kind)).collect::<Result<_>>()?;
        let (kind, more) = client.words.split_first().context("a client has words")?;
        let mut words = world.script(kind)?;
        words.extend(more.iter().map(|&word| word.to_owned()));
        Ok(Stage { _servers: servers, world, words })
    }

    /// Runs the client once. Returns its time in seconds and the report.
    fn take(&self) -> Result<(f64, String)> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let mut command = self.world.run(&["--explain"], &words)?;
        let begin = Instant::now();
        let ended = Process::spawn("plimsoll run", &mut command)?.success(LATER)?;
        Ok((begin.elapsed().as_secs_f64(), ended.said))
    }
}

/// The seconds that a report gives for a cause, and whether it is the first one.
fn reported(report: &str, title: &str) -> Option<(f64, bool)> {
    let findings = report.lines().filter(|line| line.starts_with("  ") && line.contains(" % of "));
    let mut findings = findings.map(str::trim_start).enumerate();
    let (place, finding) = findings.find(|(_, finding)| finding.starts_with(title))?;
    let time = finding.strip_prefix(title)?.strip_prefix(": ")?.split(',').next()?;
    let (number, unit) = time.split_once(' ')?;
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        _ => 1e-6,
    };
    Some((number.parse::<f64>().ok()? * scale, place == 0))
}

/// One line of the table.
fn measure(defect: &Defect, runs: usize) -> Result<Vec<String>> {
    let stages = [Stage::new(&defect.with)?, Stage::new(&defect.without)?];
    let (mut times, mut costs, mut firsts) = ([Vec::new(), Vec::new()], Vec::new(), 0);
    for _ in 0..runs {
        for (place, stage) in stages.iter().enumerate() {
            let (time, report) = stage.take()?;
            times[place].push(time);
            if place == 0 {
                let (cost, first) = reported(&report, defect.title).unwrap_or((0.0, false));
                costs.push(cost);
                firsts += usize::from(first);
            }
        }
    }
    let [with, without] = times.map(|times| median(&times).unwrap_or_default());
    let cost = median(&costs).unwrap_or_default();
    let (least, most) = spread(&costs).unwrap_or_default();
    ensure!(
        with > without,
        "the defect costs no time: {with:.2} s with, {without:.2} s without it"
    );
    let ratio = cost / (with - without);
    let met = firsts == runs && (ratio - 1.0).abs() <= FLOOR;
    Ok(vec![
        defect.title.to_owned(),
        format!("{with:.2} s"),
        format!("{without:.2} s"),
        format!("{cost:.2} s ({least:.2}..{most:.2})"),
        format!("{ratio:.2}"),
        format!("{firsts} of {runs}"),
        if met { "met" } else { "missed" }.to_owned(),
    ])
}

/// Runs the measurement.
pub(super) fn run(words: &[String]) -> Result<()> {
    let (mut runs, mut only, mut json) = (5, Vec::new(), None::<PathBuf>);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => runs = 1,
            "--runs" => runs = value()?.parse().context("--runs: a number")?,
            "--only" => only.push(value()?),
            "--json" => json = Some(value()?.into()),
            other => bail!("unknown option {other}"),
        }
    }
    ensure!(runs > 0, "--runs is at least 1");
    let wanted = |defect: &&Defect| {
        only.is_empty() || only.iter().any(|part| defect.title.contains(part.as_str()))
    };
    let (mut lines, mut failed) = (Vec::new(), 0);
    for defect in DEFECTS.iter().filter(wanted) {
        eprintln!("{}", defect.title);
        let line = measure(defect, runs).unwrap_or_else(|error| {
            failed += 1;
            let mut line = vec![defect.title.to_owned(), format!("failed: {error:#}")];
            line.resize(7, "-".to_owned());
            line
        });
        lines.push(line);
    }
    let conditions = format!(
        "Medians of {runs} runs with the defect and {runs} without it, by turns, as an ordinary \
         user. The ratio is that of the reported time and the difference; its floor is {FLOOR} \
         around 1, with the cause first in each run."
    );
    let header = ["cause", "with", "without", "reported", "ratio", "first", "verdict"];
    publish(&conditions, &header, &lines, json.as_deref())?;
    ensure!(failed == 0, "{failed} measurements have failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_cause_is_read_from_the_report() {
        let report = "plimsoll: 1 destination held it up, in 1.63 s\n\nx (198.51.100.2:7): y\n  \
                      The server answered late: 1.58 s, 96 % of the time, 39 times\n     words\n  \
                      Data lost and retransmitted: 20 ms, 1 % of the time, once\n";
        assert_eq!(reported(report, "The server answered late"), Some((1.58, true)));
        assert_eq!(reported(report, "Data lost and retransmitted"), Some((0.02, false)));
        assert_eq!(reported(report, "Nagle"), None);
    }
}
