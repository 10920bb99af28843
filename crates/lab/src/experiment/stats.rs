//! Medians and spreads over the runs of an experiment.
//!
//! A run is a JSON object of figures, so that every figure is treated alike, counters and latencies
//! included. Null is "not taken" and stays null. A counter that a run does not mention has not
//! moved in it: it is zero.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

/// The object among a run's figures that has its counters.
const COUNTERS: &str = "counters";

/// The middle of some values, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; between the two middle ones if their number is even.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of `values`; `None` if there are none, or if one is not a number.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        if sorted.iter().any(|value| value.is_nan()) {
            return None;
        }
        let half = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[half - 1], sorted[half])
        } else {
            sorted[half]
        };
        Some(Spread { median, min, max })
    }
}

/// The runs' medians, figure by figure. A figure that a run did not take is null.
pub fn medians(runs: &[Value]) -> Value {
    medians_or(runs, &Value::Null)
}

/// The same; what a run does not mention is `absent`.
fn medians_or(runs: &[Value], absent: &Value) -> Value {
    let Some(first) = runs.first() else { return Value::Null };
    match first {
        Value::Object(_) if runs.iter().all(Value::is_object) => {
            let names: BTreeSet<&String> =
                runs.iter().filter_map(Value::as_object).flat_map(Map::keys).collect();
            let of = |name: &String| {
                let get = |run: &Value| run.get(name).unwrap_or(absent).clone();
                let field: Vec<Value> = runs.iter().map(get).collect();
                let absent = if name == COUNTERS { Value::from(0) } else { Value::Null };
                (name.clone(), medians_or(&field, &absent))
            };
            Value::Object(names.into_iter().map(of).collect())
        }
        Value::Number(_) => {
            let values: Option<Vec<f64>> = runs.iter().map(Value::as_f64).collect();
            let spread = values.and_then(|values| Spread::of(&values));
            spread.map_or(Value::Null, |spread| number(spread.median))
        }
        // Words are the same in every run.
        other if runs.iter().all(|run| run == other) => other.clone(),
        _ => Value::Null,
    }
}

/// A JSON number that is whole if it can be.
pub fn number(value: f64) -> Value {
    if value.fract() == 0.0 && (0.0..9e15).contains(&value) {
        return Value::from(value as u64);
    }
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// `after` divided by `before`, for every figure that both have; counters are left out, and so is
/// what was zero before.
pub fn ratios(before: &Value, after: &Value) -> Value {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return Value::Null;
    };
    let mut all = Map::new();
    for (name, was) in before {
        let Some(is) = after.get(name).filter(|_| name != COUNTERS && name != "cases") else {
            continue;
        };
        let ratio = match (was.as_f64(), is.as_f64()) {
            (Some(was), Some(is)) if was > 0.0 => number(is / was),
            _ if was.is_object() => ratios(was, is),
            _ => Value::Null,
        };
        all.insert(name.clone(), ratio);
    }
    Value::Object(all)
}

/// The spread of every figure over the runs, in the place of the figure.
pub fn spreads(runs: &[Value]) -> Value {
    let Some(first) = runs.first() else { return Value::Null };
    if let Some(fields) = first.as_object() {
        let of = |name: &String| {
            let field: Vec<Value> =
                runs.iter().map(|run| run.get(name).cloned().unwrap_or_default()).collect();
            (name.clone(), spreads(&field))
        };
        return Value::Object(fields.keys().map(of).collect());
    }
    let values: Option<Vec<f64>> = runs.iter().map(Value::as_f64).collect();
    match values.and_then(|values| Spread::of(&values)) {
        Some(Spread { median, min, max }) => {
            let fields = [("median", median), ("min", min), ("max", max)];
            let fields = fields.map(|(name, value)| (name.to_owned(), number(value)));
            Value::Object(fields.into_iter().collect())
        }
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_middle_and_the_ends() {
        let of = |values: &[f64]| Spread::of(values).map(|s| (s.median, s.min, s.max));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some((3.0, 3.0, 3.0)));
        assert_eq!(of(&[5.0, 1.0, 2.0]), Some((2.0, 1.0, 5.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn medians_of_every_figure() {
        let run = |rate: f64, tps: Option<u64>, acks: u64| {
            let counters = json!({"acks": acks});
            json!({"rate": rate, "tps": tps, "counters": counters, "mode": "x"})
        };
        let runs = [run(1.5, Some(7), 3), run(2.5, None, 4), run(9.0, Some(8), 5)];
        let expected = json!({"rate": 2.5, "tps": null, "counters": {"acks": 4}, "mode": "x"});
        assert_eq!(medians(&runs), expected);
        assert_eq!(medians(&[]), Value::Null);
    }

    #[test]
    fn what_a_run_does_not_mention() {
        let counters = |counters: Value| json!({ "counters": counters });
        let runs = [
            counters(json!({"a": 4})),
            counters(json!({"a": 2, "b": 3})),
            counters(json!({"b": 5, "c": 1})),
        ];
        // A counter that has not moved is zero, whichever run it is.
        assert_eq!(medians(&runs), counters(json!({"a": 2, "b": 3, "c": 0})));
        // Any other figure was not taken then.
        let runs = [json!({"x": 1}), json!({"x": 1, "y": 2}), json!({"x": 1, "y": 2})];
        assert_eq!(medians(&runs), json!({"x": 1, "y": null}));
        // Nor was a whole object.
        assert_eq!(medians(&[json!({"l": {"p50": 1}}), json!({"l": null})]), json!({"l": null}));
    }

    #[test]
    fn ratios_leave_out_what_they_cannot_say() {
        let before = json!({"a": 2, "b": 0, "c": null, "counters": {"x": 1}, "l": {"p50": 4}});
        let after = json!({"a": 3, "b": 1, "c": 1, "counters": {"x": 2}, "l": {"p50": 2}});
        let expected = json!({"a": 1.5, "b": null, "c": null, "l": {"p50": 0.5}});
        assert_eq!(ratios(&before, &after), expected);
        let runs = [expected.clone(), json!({"a": 2.5, "b": null, "c": null, "l": {"p50": 0.5}})];
        let spread = spreads(&runs);
        assert_eq!(spread["a"], json!({"median": 2, "min": 1.5, "max": 2.5}));
        assert_eq!(spread["b"], Value::Null);
        assert_eq!(spread["l"]["p50"]["max"], json!(0.5));
    }
}
