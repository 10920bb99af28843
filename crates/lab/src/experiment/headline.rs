//! The one figure by which an experiment is judged, against its publication if it has one.

use serde::Serialize;
use serde_json::Value;

use super::stats::Spread;
use super::verdict::{PAIRS_AGAINST, SAME};
use super::{Case, Check, Column, Published};

/// Which figure it is. It is one of those that were published, if any were.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// What people call it.
    pub label: &'static str,
    /// Its path among the figures of a run.
    pub path: &'static str,
    /// Decimals in tables.
    pub places: usize,
    /// What it is divided by for people, as 1e6 for Mbit/s.
    pub scale: f64,
    /// Whether less of it is better.
    pub lower_is_better: bool,
}

/// A figure before and after, and the second over the first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sides {
    /// With the knob as it was.
    pub before: f64,
    /// With the knob as it is.
    pub after: f64,
    /// After over before.
    pub ratio: f64,
}

/// What was measured of it: medians over the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// With the knob as it was.
    pub before: Option<f64>,
    /// With the knob as it is.
    pub after: Option<f64>,
    /// With everything on.
    pub best: Option<f64>,
}

/// The figure, published and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Headline {
    /// Its path among the figures.
    pub figure: &'static str,
    /// What people call it.
    pub label: &'static str,
    /// Whether less of it is better.
    pub lower_is_better: bool,
    /// The published figure; null if there is none, and then any gain counts.
    pub published: Option<Sides>,
    /// What was measured.
    pub measured: Measured,
    /// After over before, over the pairs; null if it could not be taken.
    pub ratio: Option<Spread>,
    /// How far the measured gain is beyond the published one, as a part of it; less than 0 if it
    /// falls short; null if nothing was published.
    pub beyond: Option<f64>,
    /// How many pairs show no gain.
    pub against: usize,
    /// Whether it is the published gain or more, or any if none was published, and no pair but one
    /// shows none.
    pub reached: bool,
    /// How the published values follow from what was published, if they were not themselves.
    pub derived: Option<&'static str>,
    /// Decimals in tables.
    pub places: usize,
    /// What it is divided by for people.
    pub scale: f64,
}

fn pairs_against(count: usize) -> String {
    if count == 1 {
        "1 pair shows no gain".to_owned()
    } else {
        format!("{count} pairs show no gain")
    }
}

impl Headline {
    /// Of the headline case. `None` if no case ran.
    pub(super) fn of(judged: Judged, published: &[Published], cases: &[Case]) -> Option<Headline> {
        let case = cases.first()?;
        let published = published.iter().find(|published| published.path == judged.path);
        let derived = published.and_then(|published| published.derived);
        let sides = |&Published { before, after, .. }: &Published| Sides {
            before,
            after,
            ratio: after / before,
        };
        let published = published.map(sides);
        let [before, after, best] = Column::ALL.map(|column| case.median(column, judged.path));
        let ratio = case.ratio(judged.path);
        let gain = |ratio: f64| if judged.lower_is_better { 1.0 / ratio } else { ratio };
        let measured = ratio.map(|spread| gain(spread.median));
        let beyond = measured.zip(published).map(|(is, was)| is / gain(was.ratio) - 1.0);
        // Nothing left of it is as far beyond as can be, but no number in a document.
        let beyond = beyond.map(|beyond| beyond.min(f64::from(u16::MAX)));
        let against = case.against(judged.path, |ratio| gain(ratio) <= 1.0);
        let is_gained = match published {
            Some(_) => beyond.is_some_and(|beyond| beyond >= -SAME),
            None => measured.is_some_and(|gain| gain > 1.0),
        };
        Some(Headline {
            figure: judged.path,
            label: judged.label,
            lower_is_better: judged.lower_is_better,
            published,
            measured: Measured { before, after, best },
            ratio,
            beyond,
            against,
            reached: is_gained && against <= PAIRS_AGAINST,
            derived,
            places: judged.places,
            scale: judged.scale,
        })
    }

    /// A value of this figure for people.
    pub fn show(&self, value: Option<f64>) -> String {
        crate::figures::decimal(value.map(|value| value / self.scale), self.places)
    }

    /// The verdict in a few words: how the gain compares with the published one.
    pub fn words(&self) -> String {
        if self.published.is_none() && self.ratio.is_some() {
            return match self.reached {
                true => "a gain; no figure was published".into(),
                false if self.against > PAIRS_AGAINST => pairs_against(self.against),
                false => "no gain".into(),
            };
        }
        match self.beyond.map(|beyond| (beyond, (beyond * 100.0).round())) {
            None => "the figure could not be taken".into(),
            Some((beyond, _)) if !self.reached && beyond >= -SAME => pairs_against(self.against),
            Some((_, percent)) if self.reached && percent < 1.0 => "the published gain".into(),
            Some((_, percent)) if self.reached => {
                format!("{percent:.0} % beyond the published gain")
            }
            Some((beyond, _)) => {
                format!("{:.1} % short of the published gain", -beyond * 100.0)
            }
        }
    }

    /// As a bar among the others.
    pub(super) fn check(&self) -> Check {
        Check {
            what: format!("{}, after/before", self.label),
            wanted: match self.published {
                Some(published) => format!("published {:.3}", published.ratio),
                None => "a gain".into(),
            },
            measured: match self.against {
                0 => crate::figures::decimal(self.ratio.map(|ratio| ratio.median), 3),
                against => {
                    let median = crate::figures::decimal(self.ratio.map(|ratio| ratio.median), 3);
                    format!("{median}, {}", pairs_against(against))
                }
            },
            reached: self.reached,
        }
    }

    /// The kernel's own figure in a column of a report's `kernel`.
    pub fn of_kernel(&self, kernel: &Value, column: Column) -> Option<f64> {
        super::at(kernel.get(column.name())?, self.figure)?.as_f64()
    }
}
