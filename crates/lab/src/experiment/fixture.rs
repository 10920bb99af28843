//! Cases with figures that were made up, for tests of the checks.

use serde_json::{Map, Value, json};

use super::{Case, Pair, Report, stats};

/// Pairs of a case.
pub(crate) const PAIRS: usize = 5;

/// A case whose pairs all have the same figures.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    name: &'static str,
    before: Value,
    after: Value,
}

impl Fixture {
    pub(crate) fn new(name: &'static str) -> Fixture {
        Fixture { name, before: json!({}), after: json!({}) }
    }

    /// With a figure, by its path.
    pub(crate) fn with(mut self, path: &str, before: f64, after: f64) -> Fixture {
        for (run, value) in [(&mut self.before, before), (&mut self.after, after)] {
            match path.split_once('.') {
                Some((object, name)) => {
                    let object = fields(run).entry(object).or_insert_with(|| json!({}));
                    fields(object).insert(name.to_owned(), value.into());
                }
                None => drop(fields(run).insert(path.to_owned(), value.into())),
            }
        }
        self
    }

    /// Without the mechanism: after is as before.
    fn off(&self) -> Fixture {
        Fixture { after: self.before.clone(), ..self.clone() }
    }

    fn pair(&self) -> Pair {
        let (before, after) = (self.before.clone(), self.after.clone());
        let ratio = stats::ratios(&before, &after);
        Pair { case: self.name.into(), best: after.clone(), before, after, ratio, kernel: None }
    }

    pub(crate) fn case(&self) -> Case {
        let pairs = (0..PAIRS).map(|_| self.pair()).collect();
        Case { name: self.name.into(), pairs, set_aside: Vec::new(), captures: Vec::new() }
    }

    /// With so many pairs as in `other`.
    pub(crate) fn case_with(&self, other: &Fixture, pairs: usize) -> Case {
        let mut case = self.case();
        case.pairs.iter_mut().take(pairs).for_each(|pair| *pair = other.pair());
        case
    }
}

fn fields(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().expect("a run is an object")
}

/// What is wrong about a figure: the case, the path, before and after, and a word of the check that
/// is to fall.
pub(crate) type Wrong = (usize, &'static str, f64, f64, &'static str);

fn cases(good: &[Fixture]) -> Vec<Case> {
    good.iter().map(Fixture::case).collect()
}

/// Every check holds for `good`, and falls by one of the wrong figures, in all pairs or in two.
pub(crate) fn every_check_falls(
    report: impl Fn(Vec<Case>) -> Report,
    good: &[Fixture],
    wrong: &[Wrong],
) {
    let held = report(cases(good)).verdict;
    assert!(held.reached, "{}", held.summary);
    let mut fallen = vec![false; held.checks.len()];
    for &(index, path, before, after, word) in wrong {
        let bad = good[index].clone().with(path, before, after);
        let with = |pairs: usize| {
            let mut cases = cases(good);
            cases[index] = good[index].case_with(&bad, pairs);
            report(cases).verdict
        };
        let found: Vec<usize> = [with(PAIRS), with(2)]
            .iter()
            .flat_map(|verdict| verdict.checks.iter().enumerate())
            .filter(|(_, check)| check.what.contains(word) && !check.reached)
            .map(|(index, _)| index)
            .collect();
        assert!(!found.is_empty(), "{path} {before} -> {after} passes {word}");
        found.into_iter().for_each(|index| fallen[index] = true);
    }
    let never: Vec<&str> = std::iter::zip(&held.checks, fallen)
        .filter(|(_, fallen)| !fallen)
        .map(|(check, _)| check.what.as_str())
        .collect();
    assert!(never.is_empty(), "no wrong figure is known for these: {never:?}");
}

/// With figures after that are those of before, the checks with these words fall.
pub(crate) fn falls_without(
    report: impl Fn(Vec<Case>) -> Report,
    good: &[Fixture],
    words: &[&str],
) {
    let off: Vec<Fixture> = good.iter().map(Fixture::off).collect();
    let verdict = report(cases(&off)).verdict;
    assert!(!verdict.reached);
    for word in words {
        let all: Vec<_> = verdict.checks.iter().filter(|c| c.what.contains(word)).collect();
        assert!(!all.is_empty(), "{word}: there is no such check");
        assert!(all.iter().any(|check| !check.reached), "{word}: {all:?}");
    }
}
