//! What became of scripts, for people and for machines.
//!
//! The text is the same in every run: times of the script are virtual, and how long a script took
//! is only in JSON and JUnit.

mod junit;

use std::fmt::Write as _;

use serde::Serialize;

use crate::failure::{Blame, Failure};
use crate::lang::Diagnostic;
use crate::run::{SentSegment, Traces};

pub use junit::junit;

/// Packets that a message shows.
const SHOWN: usize = 40;

/// What became of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It passed.
    Passed,
    /// The stack did something else than the script says.
    Failed,
    /// It cannot be run on this machine.
    Skipped,
    /// The kernel of this machine is older than the one whose behaviour it states.
    Differs,
    /// The script makes no sense, or asks for something that is not known here.
    Error,
}

impl Status {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "failed",
            Status::Skipped => "skipped",
            Status::Differs => "differs",
            Status::Error => "error",
        }
    }
}

/// What became of one script.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where the script is, as it was asked for.
    pub file: String,
    /// What became of it.
    pub status: Status,
    /// Why, in one line.
    pub cause: Option<String>,
    /// How long it took in real time, in milliseconds.
    pub ms: f64,
    /// The message with the line of the script and the packets so far.
    #[serde(skip)]
    pub text: String,
    /// What code blocks printed.
    #[serde(skip)]
    pub printed: Vec<String>,
    /// All packets.
    #[serde(skip)]
    pub packets: Vec<String>,
    /// The segments that left.
    #[serde(skip)]
    pub segments: Vec<SentSegment>,
}

impl Report {
    /// A script that did not get as far as running.
    pub fn unrun(file: &str, status: Status, cause: impl Into<String>) -> Report {
        let cause = cause.into();
        Report {
            file: file.to_owned(),
            status,
            text: String::new(),
            cause: Some(cause),
            ms: 0.0,
            printed: Vec::new(),
            packets: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// A script that cannot be read.
    pub fn unreadable(file: &str, text: &str, what: &Diagnostic) -> Report {
        let mut report = Report::unrun(file, Status::Error, located(what, text));
        report.text = what.render(file, text) + "\n";
        report
    }

    /// A script that has run.
    pub fn of(file: &str, text: &str, outcome: Result<(), Failure>, traces: &Traces) -> Report {
        let mut report = Report {
            file: file.to_owned(),
            status: Status::Passed,
            cause: None,
            ms: 0.0,
            text: String::new(),
            printed: traces.printed.clone(),
            packets: traces.journal.lines().to_vec(),
            segments: traces.journal.segments().to_vec(),
        };
        if let Err(failure) = outcome {
            let told = explain(&failure, traces);
            report.status = match failure.blame {
                Blame::Stack => Status::Failed,
                Blame::Script => Status::Error,
            };
            report.cause = Some(located(&told, text));
            report.text = told.render(file, text) + "\n";
        }
        report
    }

    /// One line about it.
    pub fn summary(&self) -> String {
        match &self.cause {
            None => format!("{:<7} {}", self.status.name(), self.file),
            Some(cause) => format!("{:<7} {}: {cause}", self.status.name(), self.file),
        }
    }

    /// The segments that left, one a line: flags, offset, length.
    pub fn segment_list(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            let _ = writeln!(text, "{} {} {}", segment.flags, segment.offset, segment.len);
        }
        text
    }
}

/// The message in one line, with the line of the script.
fn located(what: &Diagnostic, text: &str) -> String {
    format!("line {}: {}", what.line(text), what.message.replace('\n', " "))
}

/// A failure in words.
fn explain(failure: &Failure, traces: &Traces) -> Diagnostic {
    let mut told = Diagnostic::new(failure.span.clone(), failure.message.clone());
    if let Some(expected) = &failure.expected {
        told = told.note(format!("expected: {expected}"));
    }
    for actual in &failure.actual {
        told = told.note(format!("came:     {actual}"));
    }
    let lines = traces.journal.lines();
    if !lines.is_empty() {
        let shown = &lines[lines.len().saturating_sub(SHOWN)..];
        let mut text = String::from("packets so far:");
        let hidden = lines.len() - shown.len();
        if hidden > 0 {
            let _ = write!(text, "\n  ({hidden} before)");
        }
        for line in shown {
            let _ = write!(text, "\n  {line}");
        }
        told = told.note(text);
    }
    for hold in &traces.holds {
        told = told.note(format!("hold: {hold}"));
    }
    told
}

/// Reports as one JSON array.
///
/// # Errors
/// If a report cannot be told in JSON, which does not happen.
pub fn json(reports: &[Report]) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(reports)? + "\n")
}

/// How many scripts came to what.
pub fn totals(reports: &[Report]) -> String {
    let count = |status: Status| reports.iter().filter(|report| report.status == status).count();
    let scripts = if reports.len() == 1 { "script" } else { "scripts" };
    let differ = match count(Status::Differs) {
        0 => String::new(),
        number => format!(", {number} expected to differ"),
    };
    format!(
        "{} {scripts}: {} passed, {} failed, {} skipped, {} in error{differ}",
        reports.len(),
        count(Status::Passed),
        count(Status::Failed),
        count(Status::Skipped),
        count(Status::Error)
    )
}
