//! The conditions under which a pair counts.
//!
//! A pair that was not measured under them is set aside and run again. Whether it counts is never
//! decided by what the mechanism does:
//!
//! - other programs had the processors, whichever column ran;
//! - `before` is not what it was in the publication, for an experiment that says so.
//!
//! What was set aside is counted, shown and written with its reason. When there is no try left,
//! pairs count as they are, so that a premise that never holds fails in the verdict.

use serde::Serialize;

use super::{Case, Column, Pair, at};
use crate::figures::percent;

/// The share of the processors that other programs may have during a run.
const OTHER_WORK: f64 = 0.1;

/// The path of that share among the figures of a run.
pub(crate) const OTHER_WORK_PATH: &str = "other_work";

/// A pair that does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// The case.
    pub case: String,
    /// Why it does not count.
    pub why: String,
}

/// What a case asks of its pairs, beside that nobody else had the processors.
pub trait Condition {
    /// Gets ready for the next pair.
    ///
    /// # Errors
    /// If something that has to run for it fails.
    fn prepare(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Why a pair does not count; `None` if it does. Every pair is shown, also one that does not
    /// count for another reason.
    fn refuses(&self, _pair: &Pair) -> Option<String> {
        None
    }
}

/// Every pair counts.
impl Condition for () {}

/// How often pairs of a case may still be set aside, by reason. On a machine that is always busy no
/// pair is undisturbed, but `before` can still be what it was.
pub(super) struct Tries {
    disturbed: usize,
    refused: usize,
}

impl Tries {
    /// `again` pairs may be set aside because of other programs, and twice as many for another
    /// reason.
    pub(super) fn new(again: usize) -> Tries {
        Tries { disturbed: again, refused: 2 * again }
    }

    /// Why a pair does not count; `None` if it does, or if there is no try left.
    pub(super) fn why_not(&mut self, pair: &Pair, condition: &dyn Condition) -> Option<String> {
        // Both are asked: a condition may learn from what it sees.
        let (disturbed, refused) = (undisturbed(pair), condition.refuses(pair));
        let once = |left: &mut usize, why: Option<String>| {
            let why = why.filter(|_| *left > 0)?;
            *left -= 1;
            Some(why)
        };
        once(&mut self.disturbed, disturbed).or_else(|| once(&mut self.refused, refused))
    }
}

/// The condition of every case: nobody else had the processors.
fn undisturbed(pair: &Pair) -> Option<String> {
    let of = |column: Column| {
        let run = if column == Column::Before { &pair.before } else { &pair.after };
        Some((column, at(run, OTHER_WORK_PATH)?.as_f64()?))
    };
    let disturbed = |&(_, share): &(Column, f64)| share > OTHER_WORK;
    let (column, share) =
        [Column::Before, Column::After].into_iter().filter_map(of).find(disturbed)?;
    Some(format!("other programs had {} of the processors ({})", percent(share), column.name()))
}

/// What is to be said of a case whose pairs count although other programs had the processors, as
/// there was no try left. `None` if there is no such pair.
pub(super) fn disturbed(case: &Case) -> Option<String> {
    disturbance(&case.pairs).map(|words| format!("{}: {words}", case.name))
}

/// The same of the first case among `pairs`, without its name.
pub(super) fn disturbance(pairs: &[Pair]) -> Option<String> {
    let first = &pairs.first()?.case;
    let pairs: Vec<&Pair> = pairs.iter().filter(|pair| pair.case == *first).collect();
    let all = pairs.len();
    let count = pairs.into_iter().filter(|pair| undisturbed(pair).is_some()).count();
    (count > 0).then(|| format!("machine busy in {count} of {all} pairs"))
}

/// What was set aside, for people: a line for each case, with each reason once.
pub(crate) fn lines(all: &[SetAside]) -> Vec<String> {
    let mut cases: Vec<(&str, Vec<&str>)> = Vec::new();
    for SetAside { case, why } in all {
        match cases.iter_mut().find(|(known, _)| *known == case) {
            Some((_, reasons)) => reasons.push(why),
            None => cases.push((case, vec![why])),
        }
    }
    let line = |(case, reasons): (&str, Vec<&str>)| {
        let pairs = if reasons.len() == 1 { "1 pair" } else { &format!("{} pairs", reasons.len()) };
        format!("{case}: {pairs} set aside and run again: {}", reasons.join("; "))
    };
    cases.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pair(before: f64, after: f64) -> Pair {
        let run = |share: f64| json!({ OTHER_WORK_PATH: share });
        let (before, after) = (run(before), run(after));
        let (best, ratio) = (json!({}), json!({}));
        Pair { case: "a".into(), before, after, best, ratio, kernel: None }
    }

    #[test]
    fn either_column_can_be_disturbed() {
        assert_eq!(undisturbed(&pair(0.02, OTHER_WORK)), None);
        let why = |before, after| undisturbed(&pair(before, after)).unwrap();
        assert_eq!(why(0.31, 0.0), "other programs had 31 % of the processors (before)");
        assert_eq!(why(0.0, 0.2), "other programs had 20 % of the processors (after)");
        // On a system that does not tell, nothing is set aside for it.
        let unknown = Pair { before: json!({}), after: json!({}), ..pair(0.9, 0.9) };
        assert_eq!(undisturbed(&unknown), None);
    }

    #[test]
    fn either_reason_has_its_tries() {
        struct Never;
        impl Condition for Never {
            fn refuses(&self, _: &Pair) -> Option<String> {
                Some("never".into())
            }
        }
        let mut tries = Tries::new(1);
        let busy = pair(0.5, 0.5);
        assert!(tries.why_not(&busy, &Never).unwrap().starts_with("other programs"));
        assert_eq!(tries.why_not(&busy, &Never).unwrap(), "never");
        assert_eq!(tries.why_not(&busy, &Never).unwrap(), "never");
        assert_eq!(tries.why_not(&busy, &Never), None);
        assert_eq!(Tries::new(9).why_not(&pair(0.0, 0.0), &()), None);
    }

    #[test]
    fn a_busy_machine_is_told_of() {
        let case = |pairs: Vec<Pair>| Case {
            name: "a".into(),
            pairs,
            set_aside: Vec::new(),
            captures: Vec::new(),
        };
        assert_eq!(disturbed(&case(vec![pair(0.0, 0.0)])), None);
        let mut pairs = vec![pair(0.0, 0.0), pair(0.5, 0.0)];
        let words = "machine busy in 1 of 2 pairs";
        assert_eq!(disturbed(&case(pairs.clone())).unwrap(), format!("a: {words}"));
        // Of the first case only.
        pairs.push(Pair { case: "b".into(), ..pair(0.5, 0.5) });
        assert_eq!(disturbance(&pairs).unwrap(), words);
    }

    #[test]
    fn a_line_for_each_case() {
        let aside = |case: &str, why: &str| SetAside { case: case.into(), why: why.into() };
        let all = [aside("a", "x"), aside("b", "z"), aside("a", "y")];
        let expected =
            ["a: 2 pairs set aside and run again: x; y", "b: 1 pair set aside and run again: z"];
        assert_eq!(lines(&all), expected);
    }
}
