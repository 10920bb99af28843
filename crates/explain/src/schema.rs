//! The JSON Schema of a report, made from its types.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::Report;

/// Figures that are null rather than 0.
const NEVER_ZERO: [&str; 4] = ["acks_per_megabyte", "stretch", "write_size", "mss"];

/// The schema of the document that `plimsoll explain --json` writes.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Report>().to_value();
    schema["title"] = "plimsoll explain".into();
    schema["description"] = "What `plimsoll explain --json` writes about a capture. A figure that \
                             could not be taken is null, never 0."
        .into();
    bounds(&mut schema);
    for name in ["Sum", "Finding"] {
        packets_or_time(&mut schema["$defs"][name]);
    }
    schema
}

/// No figure is below 0, and some are not 0 either.
fn bounds(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                for (name, property) in properties.iter_mut() {
                    let Some(property) = property.as_object_mut() else { continue };
                    if !property.contains_key("x-unit") {
                        continue;
                    }
                    property.insert("minimum".into(), 0.into());
                    if NEVER_ZERO.contains(&name.as_str()) {
                        property.remove("minimum");
                        property.insert("exclusiveMinimum".into(), 0.into());
                    }
                }
            }
            fields.values_mut().for_each(bounds);
        }
        Value::Array(values) => values.iter_mut().for_each(bounds),
        _ => {}
    }
}

/// A finding costs packets or time, and the other is null.
fn packets_or_time(schema: &mut Value) {
    schema["oneOf"] = json!([
        {
            "title": "costs packets",
            "properties": { "packets": { "type": "number" }, "ms": { "type": "null" } },
        },
        {
            "title": "costs time",
            "properties": { "packets": { "type": "null" }, "ms": { "type": "number" } },
        },
    ]);
}
