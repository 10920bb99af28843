//! The JSON Schema of what `plimsoll lab --json` writes, made from the types that are written.
//!
//! What is an object of figures in the documents is an untyped value in the code, so that every
//! figure is treated alike. Here the vocabulary of these objects is spelt out: the figures that all
//! commands have ([`Figures`]), and those that experiments have beside ([`NAMED`]).

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::experiment::Report;
use crate::experiment::stats::Spread;
use crate::figures::Figures;

/// The annotation of a number's unit.
const UNIT: &str = "x-unit";

/// What experiments measure beside [`Figures`]: name, unit, what it is.
pub const NAMED: [(&str, &str, &str); 19] = [
    ("data_segments", "segments", "Segments with data that was sent for the first time."),
    ("data_segments_per_unit", "segments", "The same per megabyte, or per transaction."),
    ("data_packets", "packets", "Packets with data that were handed to IP."),
    ("virtual_seconds", "s", "How long it took on the virtual clock."),
    ("cpu_ns_per_byte", "ns", "CPU time of the writing threads per byte."),
    ("cpu_ns_per_byte_with_softirq", "ns", "The same with the softirq thread of that side."),
    ("cpu_ns_per_byte_of_process", "ns", "CPU time of the whole process per byte."),
    ("softirq_cpu_seconds", "s", "CPU time of the client's softirq thread."),
    ("link_rate_bits_per_s", "bit/s", "The rate of the link."),
    ("link_share", "1", "Throughput over the rate of the link."),
    ("largest_gain", "1", "What the link can carry over what was carried."),
    ("prequeued_per_transaction", "packets", "Packets that waited for the blocked reader."),
    ("voluntary_switches_per_transaction", "switches", "Switches because a thread waited."),
    ("cpu_ns_per_transaction_of_process", "ns", "CPU time of the whole process per transaction."),
    ("context_switches_per_transaction_of_process", "switches", "Of all threads of the process."),
    ("reader_cpu_ns_per_byte", "ns", "CPU time of the reading thread per byte."),
    ("softirq_cpu_ns_per_byte", "ns", "CPU time of the receiver's softirq thread per byte."),
    ("other_work", "1", "Share of the processors' time that other programs had."),
    ("cpu_seconds_by_role", "s", "CPU time of threads whose names differ only in a number."),
];

/// Units of the fields of the types, by name.
const UNITS: [(&str, &str); 32] = [
    ("throughput_bits_per_s", "bit/s"),
    ("transactions_per_s", "1/s"),
    ("packets_per_transaction", "packets"),
    ("octets_per_packet", "bytes"),
    ("wire_segments", "segments"),
    ("super_segments", "packets"),
    ("acks_per_gigabyte", "1/GB"),
    ("acks_per_s", "1/s"),
    ("cpu_seconds", "s"),
    ("cpu_ns_per_transaction", "ns"),
    ("voluntary_context_switches", "switches"),
    ("involuntary_context_switches", "switches"),
    ("context_switches_per_transaction", "switches"),
    ("backlog_drops", "packets"),
    ("pairs", "pairs"),
    ("against", "pairs"),
    ("places", "digits"),
    ("scale", "1"),
    ("seconds", "s"),
    ("warm_up_seconds", "s"),
    ("cpus", "processors"),
    ("memory_bytes", "bytes"),
    ("bytes", "bytes"),
    ("transactions", "transactions"),
    ("beyond", "1"),
    ("ratio", "1"),
    // Of whatever stands around them.
    ("before", "that of the figure"),
    ("after", "that of the figure"),
    ("best", "that of the figure"),
    // Spreads are of ratios only.
    ("median", "1"),
    ("min", "1"),
    ("max", "1"),
];

/// Figures that a run of bulk data has, and those that transactions have, if they were taken. Of
/// the others they are null.
const BULK: [&str; 2] = ["throughput_bits_per_s", "acks_per_gigabyte"];
const TRANSACTIONS: [&str; 5] = [
    "transactions_per_s",
    "packets_per_transaction",
    "cpu_ns_per_transaction",
    "context_switches_per_transaction",
    "latency_us",
];

/// The schema of the document: an array of reports.
pub fn lab() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Vec<Report>>();
    // Latencies are spelt out wherever figures are.
    if let Some(types) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        types.remove("Latency");
    }
    let about = "What `plimsoll lab --json` writes: one object for each experiment that ran. \
                 A figure that could not be taken is null, never 0.";
    finish(schema, "plimsoll lab", about)
}

/// The schema of the documents of the commands that run one workload: `stream`, `rr`, `crr` and
/// `get`.
pub fn figures() -> Value {
    let flag = |what: &str| json!({ "description": what, "type": "boolean" });
    let server = json!({
        "description": "The counters of the other side; null if it is not in this process.",
        "type": ["object", "null"],
        "additionalProperties": { "type": "integer", "minimum": 0 },
    });
    let both = [
        ("in_process", flag("Whether both sides are in this process.")),
        ("flows", count("Connections at once.", "connections")),
        ("server_counters", server),
    ];
    let bytes = ("bytes", count("Payload that was moved.", "bytes"));
    let mut buffer = count("Of the buffer for what is written; null if there is none.", "bytes");
    buffer["type"] = json!(["integer", "null"]);
    let stream = [
        ("reverse", flag("Whether it was received rather than sent.")),
        ("message_bytes", count("What was written at once.", "bytes")),
        ("write_buffer_bytes", buffer),
        ("shared", flag("Whether this program wrote and read by reference.")),
        bytes.clone(),
    ];
    let rr = [
        ("request_bytes", count("Of one request.", "bytes")),
        ("response_bytes", count("Of one response.", "bytes")),
        ("transactions", count("Transactions that were completed.", "transactions")),
    ];
    let stream = [&both[..], &stream].concat();
    let rr = [&both[..], &rr].concat();
    let documents = [
        document(&["stream"], &stream),
        document(&["rr", "crr"], &rr),
        document(&["get"], &[bytes]),
    ];
    let about = "What the commands that run one workload write with `--json`. A figure that could \
                 not be taken is null, never 0.";
    let mut value = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "plimsoll stream, rr, crr, get",
        "description": about,
        "oneOf": documents,
    });
    units(&mut value);
    value
}

/// A number of things.
fn count(what: &str, unit: &str) -> Value {
    json!({ "description": what, "type": "integer", "minimum": 0, UNIT: unit })
}

/// The document of commands: the figures of a run, and these fields beside.
fn document(commands: &[&str], fields: &[(&str, Value)]) -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut value = Run::json_schema(&mut generator).to_value();
    let command = json!({ "description": "The command.", "enum": commands });
    let seconds = json!({
        "description": "How long it took.", "type": "number", "exclusiveMinimum": 0, UNIT: "s",
    });
    let all = [("command", command), ("seconds", seconds)].into_iter().chain(fields.to_vec());
    let all: Vec<(String, Value)> = all.map(|(name, value)| (name.to_owned(), value)).collect();
    if let Some(required) = value["required"].as_array_mut() {
        required.extend(all.iter().map(|(name, _)| name.as_str().into()));
    }
    if let Some(properties) = value["properties"].as_object_mut() {
        properties.retain(|name, _| !NAMED.iter().any(|(named, ..)| named == name));
        properties.extend(all);
    }
    value["description"] = format!("Of `{}`.", commands.join("` and `")).into();
    value
}

/// Puts the title, the sentence and the units into a schema of the program.
fn finish(schema: Schema, title: &str, about: &str) -> Value {
    let mut value = schema.to_value();
    value["title"] = title.into();
    value["description"] = about.into();
    units(&mut value);
    value
}

/// Adds units to all numbers that have none yet.
fn units(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                for (name, property) in properties.iter_mut() {
                    let unit = UNITS.iter().find(|(known, _)| known == name);
                    if let (Some((_, unit)), Some(property)) = (unit, property.as_object_mut())
                        && is_number(property)
                        && !property.contains_key(UNIT)
                    {
                        property.insert(UNIT.to_owned(), (*unit).into());
                    }
                }
            }
            fields.values_mut().for_each(units);
        }
        Value::Array(values) => values.iter_mut().for_each(units),
        _ => {}
    }
}

fn is_number(property: &Map<String, Value>) -> bool {
    let number = |word: &Value| word == "number" || word == "integer";
    match property.get("type") {
        Some(Value::Array(words)) => words.iter().any(number),
        Some(word) => number(word),
        None => false,
    }
}

/// The properties of [`Figures`].
fn common(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let schema = Figures::json_schema(generator).to_value();
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// All figures, each with the schema that `leaf` gives for its description and unit.
fn vocabulary(
    generator: &mut SchemaGenerator,
    leaf: impl Fn(&str, &Value) -> Value,
) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, schema) in common(generator) {
        let described = &schema["description"];
        let value = match name.as_str() {
            "counters" => continue,
            "latency_us" => {
                let part = |name: &str, what: &str| (name.to_owned(), leaf(name, &what.into()));
                let parts: Map<String, Value> = [
                    part("p50", "Half of the transactions took no longer."),
                    part("p90", "90 %."),
                    part("p99", "99 %."),
                    part("max", "The slowest."),
                ]
                .into_iter()
                .map(|(name, mut value)| {
                    value[UNIT] = unit_of(&value, "us");
                    (name, value)
                })
                .collect();
                json!({
                    "description": described,
                    "type": ["object", "null"],
                    "required": ["p50", "p90", "p99", "max"],
                    "additionalProperties": false,
                    "properties": parts,
                })
            }
            _ => leaf(&name, described),
        };
        all.insert(name, value);
    }
    for (name, unit, what) in NAMED {
        let mut value = leaf(name, &what.into());
        value[UNIT] = unit_of(&value, unit);
        if name == "cpu_seconds_by_role" {
            value = json!({
                "description": what,
                "type": ["object", "null"],
                "additionalProperties": value,
            });
        }
        all.insert(name.to_owned(), value);
    }
    all
}

/// The unit of a number: `unit`, unless it is known already.
fn unit_of(value: &Value, unit: &str) -> Value {
    value.get(UNIT).cloned().unwrap_or_else(|| unit.into())
}

/// An object of figures. `counter` is the schema of a counter, if it has them.
fn object(
    generator: &mut SchemaGenerator,
    leaf: impl Fn(&str, &Value) -> Value,
    counter: Option<Value>,
) -> Value {
    let mut properties = vocabulary(generator, leaf);
    let named = |name: &str| NAMED.iter().any(|(known, ..)| *known == name);
    let mut required: Vec<String> =
        properties.keys().filter(|name| !named(name)).cloned().collect();
    if let Some(counter) = counter {
        let about = "The stack's counters by Linux's names, as they changed; see counters.md.";
        required.push("counters".into());
        properties.insert(
            "counters".into(),
            json!({ "description": about, "type": "object", "additionalProperties": counter }),
        );
    }
    json!({
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

/// A run has either bulk data or transactions, and the figures of the other are null.
fn either(schema: &mut Value) {
    let typed = |name: &str, word: &str| (name.to_owned(), json!({ "type": word }));
    let kind = |title: &str, own: &[&str], others: &[&str]| {
        let absent: Map<String, Value> = others.iter().map(|name| typed(name, "null")).collect();
        // Where time is not told, counts are.
        let some = own.iter().map(|name| Map::from_iter([typed(name, "number")]));
        let some: Vec<Value> = some.map(|number| json!({ "properties": number })).collect();
        json!({ "title": title, "properties": absent, "anyOf": some })
    };
    schema["oneOf"] = json!([
        kind("bulk data", &BULK, &TRANSACTIONS),
        kind("transactions", &TRANSACTIONS, &BULK),
    ]);
}

/// The least that a figure can be if it was taken.
fn least(name: &str) -> Value {
    match name {
        // A header of IPv4.
        "octets_per_packet" => json!({ "minimum": 20 }),
        "p50" | "p90" | "p99" | "max" => json!({ "exclusiveMinimum": 0 }),
        _ => json!({ "minimum": 0 }),
    }
}

fn number(name: &str, described: &Value) -> Value {
    let mut value = least(name);
    value["description"] = described.clone();
    value["type"] = json!(["number", "null"]);
    value
}

/// What is counted in a run is whole; medians of it may lie between.
fn counted(name: &str, described: &Value) -> Value {
    const WHOLE: [&str; 7] = [
        "wire_segments",
        "super_segments",
        "voluntary_context_switches",
        "involuntary_context_switches",
        "backlog_drops",
        "data_segments",
        "data_packets",
    ];
    let mut value = number(name, described);
    if WHOLE.contains(&name) {
        value["type"] = json!(["integer", "null"]);
    }
    value
}

/// A figure that was published.
fn known(_: &str, described: &Value) -> Value {
    json!({ "description": described, "type": "number", "minimum": 0 })
}

fn quotient(_: &str, described: &Value) -> Value {
    json!({ "description": described, "type": ["number", "null"], "minimum": 0, UNIT: "1" })
}

/// A type of which a value in a document is, with its name in the schema.
macro_rules! described {
    ($(#[doc = $doc:literal] $name:ident = $make:expr;)*) => {$(
        #[doc = $doc]
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let make: fn(&mut SchemaGenerator) -> Value = $make;
                let mut value = make(generator);
                value["description"] = $doc.trim().into();
                Schema::try_from(value).unwrap_or_default()
            }
        }
    )*};
}

described! {
    /// Figures of one run.
    Run = |generator| {
        let mut run = object(generator, counted, Some(json!({ "type": "integer", "minimum": 0 })));
        either(&mut run);
        run
    };
    /// Medians of the figures over the pairs of a case.
    Medians = |generator| {
        let mut medians = object(generator, number, Some(json!({ "type": ["number", "null"] })));
        either(&mut medians);
        medians
    };
    /// After over before in one pair; null where one of the two is null, or before is 0.
    Ratios = |generator| object(generator, quotient, None);
    /// The spread of each ratio over the pairs of a case.
    Spreads = |generator| {
        let spread = generator.subschema_for::<Option<Spread>>().to_value();
        object(generator, |_, described| {
            let mut spread = spread.clone();
            spread["description"] = described.clone();
            spread[UNIT] = "1".into();
            spread
        }, None)
    };
    /// The host's own TCP in one case: medians over the pairs, and the spreads of the ratios.
    KernelCase = |generator| kernel(generator);
    /// Medians with the knob in one position: of the headline case, and of the others by name.
    Column = |generator| {
        let headline = Medians::json_schema(generator).to_value();
        with_cases(headline, generator.subschema_for::<Medians>())
    };
    /// Ratios of the headline case, and of the others by name.
    RatioColumn = |generator| {
        let headline = Spreads::json_schema(generator).to_value();
        with_cases(headline, generator.subschema_for::<Spreads>())
    };
    /// The host's own TCP in the headline case, and in the others by name.
    KernelColumn = |generator| {
        let headline = kernel(generator);
        with_cases(headline, generator.subschema_for::<KernelCase>())
    };
    /// What is held still: settings and circumstances by name.
    Pinned = |_| json!({
        "type": "object",
        "additionalProperties": { "type": ["string", "number", "boolean"] },
    });
    /// What was published: the workload, and figures before and after.
    Published = |generator| published(generator);
}

fn kernel(generator: &mut SchemaGenerator) -> Value {
    let described = |schema: Schema, what: &str| {
        let mut value = schema.to_value();
        value["description"] = what.into();
        value
    };
    json!({
        "type": "object",
        "required": ["before", "after", "ratio"],
        "additionalProperties": false,
        "properties": {
            "before": described(
                generator.subschema_for::<Option<Medians>>(),
                "With its knob as it was; null if it has no such knob.",
            ),
            "after": described(
                generator.subschema_for::<Medians>(),
                "With its knob as it is, or just as it is.",
            ),
            "ratio": described(
                generator.subschema_for::<Option<Spreads>>(),
                "After over before; null if it has no such knob.",
            ),
        },
    })
}

fn published(generator: &mut SchemaGenerator) -> Value {
    let mut side = |what: &str| {
        json!({
            "description": what,
            "type": "object",
            "minProperties": 1,
            "additionalProperties": false,
            "properties": vocabulary(generator, known),
        })
    };
    let (before, after) = (side("With the knob as it was."), side("With the knob as it is."));
    json!({
        "type": "object",
        "required": ["workload", "before", "after", "derived"],
        "additionalProperties": false,
        "properties": {
            "derived": {
                "description": "How figures follow from what was published that were not \
                                published themselves, by name.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "workload": {
                "description": "What ran, and where.",
                "type": "string",
            },
            "before": before,
            "after": after,
        },
    })
}

/// The fields of the headline case, and beside them its name and the other cases.
fn with_cases(mut headline: Value, other: Schema) -> Value {
    let more = json!({
        "case": { "description": "The name of the headline case.", "type": "string" },
        "cases": {
            "description": "The other cases by their names.",
            "type": "object",
            "additionalProperties": other.to_value(),
        },
    });
    if let (Some(properties), Value::Object(more)) = (headline["properties"].as_object_mut(), more)
    {
        properties.extend(more);
    }
    if let Some(required) = headline["required"].as_array_mut() {
        required.extend(["case".into(), "cases".into()]);
    }
    headline
}
