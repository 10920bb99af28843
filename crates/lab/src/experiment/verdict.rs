//! Bars, and whether they were reached.
//!
//! # Theory of operation
//!
//! A check that counts for a mechanism looks at both columns, so that no figure passes that
//! `before` passes as well. There are three of these, and each allows one pair to be against it:
//!
//! - a [change](Check::change): the figure was one thing before and is another after;
//! - a [gain](Check::gain): after over before is on the right side of a bar that 1 does not reach;
//! - [no harm](Check::unharmed): after over before is within a tolerance of 1, or better.
//!
//! A [premise](Check::premise) is about `before` alone: without it the comparison would be another
//! one than the published.

use std::fmt;

use serde::Serialize;

use super::table::Shown;
use super::{Case, Column, Pair, Published, at};
use crate::figures::decimal;

/// How many pairs may be against what the medians say: other work on the machine falls on one run
/// now and then.
pub(super) const PAIRS_AGAINST: usize = 1;

/// How much less than the published gain still counts as the same: published figures have three
/// digits.
pub(super) const SAME: f64 = 0.005;

/// What a figure should be, in the unit in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// No further from the first than the second.
    About(f64, f64),
    /// Between these, or one of them.
    Between(f64, f64),
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// More than this.
    MoreThan(f64),
}

impl Wanted {
    /// Whether a value is as wanted.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Wanted::About(wanted, tolerance) => (value - wanted).abs() <= tolerance,
            Wanted::Between(least, most) => (least..=most).contains(&value),
            Wanted::AtMost(most) => value <= most,
            Wanted::AtLeast(least) => value >= least,
            Wanted::MoreThan(least) => value > least,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::About(wanted, 0.0) => write!(f, "{wanted}"),
            Wanted::About(wanted, tolerance) => write!(f, "{wanted} +- {tolerance}"),
            Wanted::Between(least, most) => write!(f, "{least} to {most}"),
            Wanted::AtMost(most) => write!(f, "<= {most}"),
            Wanted::AtLeast(least) => write!(f, ">= {least}"),
            Wanted::MoreThan(least) => write!(f, "> {least}"),
        }
    }
}

/// A bar for after over before. Equal figures never reach it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// This part of it or less.
    DownTo(f64),
    /// So many times of it or more.
    UpTo(f64),
    /// Less of it.
    Less,
}

impl Gain {
    /// `ratio` or less.
    ///
    /// # Panics
    /// If equal figures would reach it.
    pub const fn down_to(ratio: f64) -> Gain {
        assert!(ratio < 1.0, "equal figures are no gain");
        Gain::DownTo(ratio)
    }

    /// `ratio` or more.
    ///
    /// # Panics
    /// If equal figures would reach it.
    pub const fn up_to(ratio: f64) -> Gain {
        assert!(ratio > 1.0, "equal figures are no gain");
        Gain::UpTo(ratio)
    }

    /// The published ratio, or about.
    pub const fn published(published: &Published) -> Gain {
        let ratio = published.after / published.before;
        if ratio < 1.0 {
            Gain::down_to(ratio * (1.0 + SAME))
        } else {
            Gain::up_to(ratio * (1.0 - SAME))
        }
    }

    fn holds(self, ratio: f64) -> bool {
        match self {
            Gain::DownTo(most) => ratio <= most,
            Gain::UpTo(least) => ratio >= least,
            Gain::Less => ratio < 1.0,
        }
    }

    /// Whether it went the other way, or nowhere.
    fn is_against(self, ratio: f64) -> bool {
        match self {
            Gain::DownTo(_) | Gain::Less => ratio >= 1.0,
            Gain::UpTo(_) => ratio <= 1.0,
        }
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gain::DownTo(most) => write!(f, "<= {most:.3}"),
            Gain::UpTo(least) => write!(f, ">= {least:.3}"),
            Gain::Less => write!(f, "< 1"),
        }
    }
}

/// What should not happen to a figure that the mechanism is not about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Harm {
    /// It grows by more than this part.
    More(f64),
    /// It falls by more than this part.
    Less(f64),
}

impl Harm {
    fn is_done(self, ratio: f64) -> bool {
        match self {
            Harm::More(part) => ratio > 1.0 + part,
            Harm::Less(part) => ratio < 1.0 - part,
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Harm::More(part) => write!(f, "no harm: <= {:.2}", 1.0 + part),
            Harm::Less(part) => write!(f, "no harm: >= {:.2}", 1.0 - part),
        }
    }
}

/// One bar, and whether it was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The figure is `from` before and `to` after, in the medians and in all pairs but one, and
    /// what it was before is not `to` as well.
    pub fn change(case: &Case, figure: &Shown, from: Wanted, to: Wanted) -> Check {
        let is_so =
            |before: f64, after: f64| from.holds(before) && to.holds(after) && !to.holds(before);
        let of = |column| case.median(column, figure.path).map(|value| value / figure.scale);
        let medians = of(Column::Before).zip(of(Column::After));
        let against = |pair: &Pair| {
            let value = |run| Some(at(run, figure.path)?.as_f64()? / figure.scale);
            !value(&pair.before).zip(value(&pair.after)).is_some_and(|(b, a)| is_so(b, a))
        };
        let against = case.pairs.iter().filter(|pair| against(pair)).count();
        let mut measured = match medians {
            Some((before, after)) => {
                let show = |value| decimal(Some(value), figure.places);
                format!("{} -> {}", show(before), show(after))
            }
            None => "-".to_owned(),
        };
        if medians.is_some_and(|(before, _)| to.holds(before)) {
            measured += ", which it was before as well";
        }
        let what = format!("{}, {}", figure.label, case.name);
        let so = medians.is_some_and(|(before, after)| is_so(before, after));
        Check::counted(what, format!("{from} -> {to}"), measured, (so, against, case))
    }

    /// The figure's median ratio, after over before, reaches the bar, and no pair but one went the
    /// other way.
    pub fn gain(case: &Case, figure: &Shown, bar: Gain) -> Check {
        Check::ratio(case, figure, bar, |ratio| bar.holds(ratio), |ratio| bar.is_against(ratio))
    }

    /// The harm is not done: not in the median, and in no pair but one.
    pub fn unharmed(case: &Case, figure: &Shown, harm: Harm) -> Check {
        Check::ratio(case, figure, harm, |ratio| !harm.is_done(ratio), |ratio| harm.is_done(ratio))
    }

    fn ratio(
        case: &Case,
        figure: &Shown,
        bar: impl fmt::Display,
        holds: impl Fn(f64) -> bool,
        is_against: impl Fn(f64) -> bool,
    ) -> Check {
        let ratio = case.ratio(figure.path).map(|ratio| ratio.median);
        let against = case.against(figure.path, is_against);
        let what = format!("{}, after/before, {}", figure.label, case.name);
        let so = ratio.is_some_and(holds);
        Check::counted(what, bar.to_string(), decimal(ratio, 3), (so, against, case))
    }

    /// `before` is as it was in the publication, in the median and in all pairs but one.
    pub fn premise(case: &Case, figure: &Shown, wanted: Wanted) -> Check {
        let value = |run| Some(at(run, figure.path)?.as_f64()? / figure.scale);
        let is_against = |run| !value(run).is_some_and(|value| wanted.holds(value));
        let against = case.runs(Column::Before).filter(|run| is_against(run)).count();
        let median = case.median(Column::Before, figure.path).map(|value| value / figure.scale);
        let what = format!("premise: {} before, {}", figure.label, case.name);
        let so = median.is_some_and(|median| wanted.holds(median));
        let measured = decimal(median, figure.places);
        Check::counted(what, wanted.to_string(), measured, (so, against, case))
    }

    /// A premise that holds or not.
    pub fn so(what: impl Into<String>, reached: bool) -> Check {
        let word = |is: bool| if is { "yes" } else { "no" };
        Check { what: what.into(), wanted: "yes".into(), measured: word(reached).into(), reached }
    }

    /// With what the medians say, and the number of pairs that say otherwise.
    pub(super) fn counted(
        what: String,
        wanted: String,
        mut measured: String,
        (so, against, case): (bool, usize, &Case),
    ) -> Check {
        if so && against > 0 {
            measured += &format!(", {against} of {} pairs against", case.pairs.len());
        }
        Check { what, wanted, measured, reached: so && against <= PAIRS_AGAINST }
    }
}

/// What an experiment showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether every bar was reached.
    pub reached: bool,
    /// One sentence.
    pub summary: String,
    /// The bars.
    pub checks: Vec<Check>,
    /// What was published and cannot be compared here, and why.
    pub not_reproduced: Vec<String>,
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
        let (reached, not_reproduced) = (missed.is_empty(), Vec::new());
        Verdict { reached, summary, checks, not_reproduced, notes }
    }

    /// The same with what cannot be compared.
    pub fn without(self, not_reproduced: Vec<String>) -> Verdict {
        Verdict { not_reproduced, ..self }
    }
}

#[cfg(test)]
mod tests;
