//! Bars, and whether they were reached.

use schemars::JsonSchema;
use serde::Serialize;

/// One bar, and whether it was reached.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// What it should be.
    pub wanted: String,
    /// What it is.
    pub measured: String,
    /// Whether it is as it should be.
    pub reached: bool,
}

impl Check {
    /// A check of a figure that may not have been taken.
    pub fn new(
        what: impl Into<String>,
        wanted: impl Into<String>,
        measured: Option<f64>,
        places: usize,
        reached: impl FnOnce(f64) -> bool,
    ) -> Check {
        Check {
            what: what.into(),
            wanted: wanted.into(),
            measured: crate::figures::decimal(measured, places),
            reached: measured.is_some_and(reached),
        }
    }

    /// A check of something that is so or not.
    pub fn so(what: impl Into<String>, reached: bool) -> Check {
        let word = |is: bool| if is { "yes" } else { "no" };
        Check { what: what.into(), wanted: "yes".into(), measured: word(reached).into(), reached }
    }
}

/// What an experiment showed.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Verdict {
    /// Whether every bar was reached.
    pub reached: bool,
    /// One sentence.
    pub summary: String,
    /// The bars.
    pub checks: Vec<Check>,
    /// What else is to be said: parts that were skipped and why, what loses where.
    pub notes: Vec<String>,
}

impl Verdict {
    /// The verdict of these checks.
    pub fn of(checks: Vec<Check>, notes: Vec<String>) -> Verdict {
        let missed: Vec<String> = checks
            .iter()
            .filter(|check| !check.reached)
            .map(|check| format!("{} {} (wanted {})", check.what, check.measured, check.wanted))
            .collect();
        let summary = match missed.as_slice() {
            [] => "reached".to_owned(),
            missed => format!("not reached: {}", missed.join("; ")),
        };
        Verdict { reached: missed.is_empty(), summary, checks, notes }
    }
}
