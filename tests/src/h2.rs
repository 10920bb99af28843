//! `plimsoll-interop h2`: a server of HTTP/2 under h2spec and h2load, on the kernel's sockets and
//! on ours.
//!
//! What h2spec says of the kernel's is what it must say of ours. Each of its tests is told as one
//! of Rust's harness, so that what reads those reads these as well.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::harness::files::Scratch;
use crate::harness::process::Process;
use crate::harness::scope;
use crate::harness::web::{Sockets, WebServer};

/// After this h2spec counts an answer as missing. Its own default, two seconds, is little for a
/// machine that does other things as well.
const ANSWER_SECONDS: &str = "5";

/// When a run of h2spec or h2load is ended.
const LIMIT: Duration = Duration::from_secs(300);

/// Requests of one run of h2load, its connections and the streams of each.
const LOAD: [&str; 6] = ["-n", "20000", "-c", "10", "-m", "10"];

/// What h2spec says of one of its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Passed => "passes",
            Outcome::Failed => "fails",
            Outcome::Skipped => "is skipped",
        })
    }
}

type Outcomes = BTreeMap<String, Outcome>;

/// Runs both programs, prints what came of them, and says whether ours is as the kernel's.
pub(crate) fn run(words: &[String]) -> Result<bool> {
    let [option, h2spec] = words else { bail!("usage: h2 --h2spec PATH") };
    ensure!(option == "--h2spec", "unknown option {option}");
    scope::sweep_stale();
    let kernel = spec(h2spec, Sockets::Kernel)?;
    let mut equal = load(Sockets::Kernel)?;
    for sockets in [Sockets::Thread, Sockets::Driver] {
        equal &= compare(sockets, &kernel, &spec(h2spec, sockets)?);
        equal &= load(sockets)?;
    }
    for (name, outcome) in kernel.iter().filter(|(_, outcome)| **outcome != Outcome::Passed) {
        println!("on the kernel as well: {name} {outcome}");
    }
    Ok(equal)
}

/// Runs h2spec against a server and returns the outcome of each test.
fn spec(h2spec: &str, sockets: Sockets) -> Result<Outcomes> {
    let scratch = Scratch::new()?;
    let report = scratch.file("report.xml");
    let mut server = WebServer::start(sockets, 1)?;
    let mut command = server.client(h2spec);
    command.args(["--host", server.host(), "--port", "80", "--timeout", ANSWER_SECONDS]);
    command.arg("--strict").arg("--junit-report").arg(&report);
    // It ends with an error if a test fails; what counts is the report.
    let ended = Process::spawn("h2spec", &mut command)?.wait(LIMIT)?;
    server.check()?;
    let text = std::fs::read_to_string(&report)
        .with_context(|| format!("h2spec wrote no report:\n{}", ended.said))?;
    let outcomes = outcomes(&text);
    ensure!(!outcomes.is_empty(), "h2spec ran no test:\n{}", ended.said);
    let count = |outcome| outcomes.values().filter(|one| **one == outcome).count();
    println!(
        "h2spec, {}: {} tests, {} passed, {} skipped, {} failed",
        sockets.name(),
        outcomes.len(),
        count(Outcome::Passed),
        count(Outcome::Skipped),
        count(Outcome::Failed)
    );
    Ok(outcomes)
}

/// The outcomes in a report in the format of JUnit.
fn outcomes(report: &str) -> Outcomes {
    let cases = report.split("<testcase ").skip(1);
    cases
        .filter_map(|case| {
            let title = attribute(case, "classname")?.replace("&#34;", "\"");
            let name = format!("{}: {title}", attribute(case, "package")?);
            let outcome = if case.contains("<failure>") || case.contains("<error>") {
                Outcome::Failed
            } else if case.contains("<skipped>") {
                Outcome::Skipped
            } else {
                Outcome::Passed
            };
            Some((name, outcome))
        })
        .collect()
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Prints one line per test. Equal is what passes, whatever the outcome.
fn compare(sockets: Sockets, kernel: &Outcomes, ours: &Outcomes) -> bool {
    let mut equal = true;
    let names: std::collections::BTreeSet<&String> = kernel.keys().chain(ours.keys()).collect();
    for name in names {
        let (theirs, ours) = (kernel.get(name), ours.get(name));
        if theirs == ours {
            println!("test h2spec, {}, {name} ... ok", sockets.name());
            continue;
        }
        equal = false;
        let say =
            |outcome: Option<&Outcome>| outcome.map_or("is not run".into(), Outcome::to_string);
        println!(
            "test h2spec, {}, {name} ... FAILED\nit {}; on the kernel it {}",
            sockets.name(),
            say(ours),
            say(theirs)
        );
    }
    equal
}

/// Runs h2load: every request must be answered with success.
fn load(sockets: Sockets) -> Result<bool> {
    let mut server = WebServer::start(sockets, 1)?;
    let mut command = server.client("h2load");
    command.args(LOAD).arg(server.url());
    let ended = Process::spawn("h2load", &mut command)?.success(LIMIT)?;
    server.check()?;
    let line = |start: &str| ended.stdout.lines().find(|line| line.starts_with(start));
    let requests = line("requests: ").context("h2load says nothing of requests")?;
    let all = LOAD[1];
    let whole = requests.contains(&format!(" {all} succeeded, 0 failed"));
    println!("test h2load, {} ... {}", sockets.name(), if whole { "ok" } else { "FAILED" });
    println!("{requests}\n{}", line("finished in ").unwrap_or_default());
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<testsuites><testsuite name="3.5. Preface" tests="3">
        <testcase package="http2/3.5" classname="Sends a preface" time="0.1"></testcase>
        <testcase package="http2/3.5" classname="Sends none" time="2.0">
          <failure>timeout</failure></testcase>
        <testcase package="http2/8.1" classname="Sends a &#34;push&#34;" time="0">
          <skipped></skipped></testcase></testsuite></testsuites>"#;

    #[test]
    fn a_report_has_one_outcome_per_test() {
        let expected = [
            ("http2/3.5: Sends a preface", Outcome::Passed),
            ("http2/3.5: Sends none", Outcome::Failed),
            ("http2/8.1: Sends a \"push\"", Outcome::Skipped),
        ];
        let expected = expected.map(|(name, outcome)| (name.to_owned(), outcome));
        assert_eq!(outcomes(REPORT), Outcomes::from(expected));
    }

    #[test]
    fn what_fails_on_both_is_equal_and_what_is_missing_is_not() {
        let kernel = outcomes(REPORT);
        assert!(compare(Sockets::Thread, &kernel, &kernel));
        let mut ours = kernel.clone();
        ours.remove("http2/3.5: Sends none");
        assert!(!compare(Sockets::Thread, &kernel, &ours));
    }
}
