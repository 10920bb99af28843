//! Cells and sentences made from a JSON document.
//!
//! In a template, `{/rows/0/rate:2:1e-6}` is the value at that JSON pointer, with two decimals, in
//! millionths. The segment `*` stands for all entries of an array, whose median is shown, and `#`
//! for their count. A pointer that begins with `^` looks in the whole document, not in the row.
//! A value that was not measured is a dash.

use serde_json::Value;

/// The template with its values, which are in `row` or in `document`.
pub(super) fn fill(template: &str, row: &Value, document: &Value) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (place, after) = after.split_once('}').unwrap_or((after, ""));
        out += before;
        out += &value(place, row, document);
        rest = after;
    }
    out + rest
}

fn value(place: &str, row: &Value, document: &Value) -> String {
    let mut parts = place.split(':');
    let pointer = parts.next().unwrap_or_default();
    let places = parts.next().and_then(|places| places.parse::<usize>().ok());
    let scale = parts.next().and_then(|scale| scale.parse().ok()).unwrap_or(1.0);
    let (within, pointer) = match pointer.strip_prefix('^') {
        Some(pointer) => (document, pointer),
        None => (row, pointer),
    };
    let found = at(within, pointer);
    match places {
        None => text(found.first().unwrap_or(&Value::Null)),
        Some(places) => {
            let middle = median(&found.iter().filter_map(Value::as_f64).collect::<Vec<_>>());
            middle.map_or_else(|| "-".into(), |middle| format!("{:.places$}", middle * scale))
        }
    }
}

/// All values at a pointer.
fn at(value: &Value, pointer: &str) -> Vec<Value> {
    let mut found = vec![value.clone()];
    for segment in pointer.split('/').skip(1) {
        let step = |value: &Value| match (segment, value) {
            ("*", Value::Array(all)) => all.clone(),
            ("#", Value::Array(all)) => vec![all.len().into()],
            _ => value.pointer(&format!("/{segment}")).cloned().into_iter().collect(),
        };
        found = found.iter().flat_map(step).collect();
    }
    found
}

/// A value as a cell shows it. A bar would end the cell.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.replace('|', "/"),
        Value::Array(all) if all.is_empty() => "none".into(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (lower, upper) =
        (sorted.get(sorted.len().saturating_sub(1) / 2)?, sorted[sorted.len() / 2]);
    Some(f64::midpoint(*lower, upper))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_found_and_shown() {
        let row = json!({
            "name": "a|b", "rate": 2_500_000, "none": null, "list": [1, "x"],
            "runs": [{ "ns": 3.0 }, { "ns": 1.0 }, { "ns": null }, { "ns": 4.0 }],
        });
        let document = json!({ "seconds": 1.5, "pairs": [[1, 2, 3], [1]] });
        for (template, filled) in [
            ("{/name}: {/list}", "a/b: 1, x"),
            ("{/rate:1:1e-6} Mbit/s", "2.5 Mbit/s"),
            ("{/runs/*/ns:0} ns of {^/pairs/0/#}", "3 ns of 3"),
            ("{/none} {/none:2} {/other} {/runs/9/ns:1}", "- - - -"),
            ("{^/seconds} s", "1.5 s"),
        ] {
            assert_eq!(fill(template, &row, &document), filled);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
