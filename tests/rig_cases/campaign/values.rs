//! Values for a property, inside and outside of what its schema allows.

use serde_json::{Map, Value, json};

/// A value that is tried.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub value: Value,
    /// The property's own schema does not allow it, so the API server must refuse it whatever else is so.
    pub outside: bool,
}

fn inside(value: impl Into<Value>) -> Candidate {
    Candidate { value: value.into(), outside: false }
}

fn outside(value: impl Into<Value>) -> Candidate {
    Candidate { value: value.into(), outside: true }
}

/// The values that are tried for a property of this schema. `null` takes it away.
pub fn candidates(schema: &Value) -> Vec<Candidate> {
    let mut all = vec![inside(Value::Null)];
    if schema.get("x-kubernetes-int-or-string").is_some() {
        all.extend(["2Mi", "3Gi"].map(inside));
        all.push(inside(2_097_152));
        all.extend(["0", "-1", "much", ""].map(outside));
        all.push(outside(0));
        return all;
    }
    match schema["type"].as_str() {
        Some("string") => strings(schema, &mut all),
        Some("integer") => integers(schema, &mut all),
        Some("boolean") => {
            all.extend([true, false].map(inside));
            all.push(outside("yes"));
        }
        Some("array") => lists(schema, &mut all),
        Some("object") => objects(schema, &mut all),
        other => panic!("no values for the type {other:?}"),
    }
    all
}

fn strings(schema: &Value, all: &mut Vec<Candidate>) {
    all.push(outside(7));
    if let Some(words) = schema["enum"].as_array() {
        all.extend(words.iter().filter(|word| !word.is_null()).cloned().map(inside));
        all.push(outside("NoSuchWord"));
        return;
    }
    if schema["format"] == "date-time" {
        all.extend([inside("2026-01-01T00:00:00Z"), outside("yesterday")]);
        return;
    }
    let is_bound_to_words = schema.get("pattern").is_some() || !schema["x-kubernetes-validations"].is_null();
    all.push(inside("a"));
    if schema["minLength"].as_u64().is_some_and(|least| least > 0) {
        all.push(outside(""));
    }
    if is_bound_to_words {
        all.push(outside(" "));
    } else {
        all.push(inside("\u{fc} \u{7}"));
    }
    if let Some(most) = schema["maxLength"].as_u64() {
        let most = usize::try_from(most).unwrap();
        all.extend([inside("a".repeat(most)), outside("a".repeat(most + 1))]);
    }
}

fn integers(schema: &Value, all: &mut Vec<Candidate>) {
    all.push(outside("1"));
    // The schema has its bounds as floating point numbers.
    let bound = |name: &str| schema[name].as_f64().map(|bound| serde_json::Number::from_f64(bound).unwrap());
    let whole = |bound: &serde_json::Number| bound.to_string().trim_end_matches(".0").parse::<i64>().unwrap();
    let (least, most) = (bound("minimum"), bound("maximum"));
    if let Some(least) = least.as_ref().map(whole) {
        all.extend([inside(least), outside(least - 1)]);
    }
    if let Some(most) = most.as_ref().map(whole) {
        all.extend([inside(most), outside(most + 1)]);
    }
    if most.is_none() {
        all.push(inside(1_i64 << 40));
    }
}

fn lists(schema: &Value, all: &mut Vec<Candidate>) {
    let item = sample(&schema["items"]);
    all.push(if schema["minItems"].as_u64().is_some_and(|least| least > 0) {
        outside(json!([]))
    } else {
        inside(json!([]))
    });
    all.push(inside(json!([item])));
    all.push(outside("list"));
    if schema["x-kubernetes-list-type"] == "set" {
        all.push(outside(json!([item, item])));
    }
    if let Some(most) = schema["maxItems"].as_u64() {
        let too_many: Vec<_> = (0..=most).map(|number| numbered(&item, number)).collect();
        all.push(outside(too_many));
    }
}

fn objects(schema: &Value, all: &mut Vec<Candidate>) {
    all.push(outside("object"));
    if let Some(entry) = schema.get("additionalProperties") {
        let entry = sample(entry);
        all.push(inside(json!({ "k": entry })));
        if let Some(most) = schema["maxProperties"].as_u64() {
            let keys = (0..=most).map(|number| (format!("k{number}"), entry.clone()));
            all.push(outside(Value::Object(keys.collect())));
        }
        return;
    }
    let whole = sample(schema);
    all.push(inside(whole.clone()));
    for name in required(schema) {
        // In a merge patch null takes a field away that is there.
        let mut lacking = whole.clone();
        lacking[name] = Value::Null;
        all.push(outside(lacking));
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The same as `item`, another one for each number where it is a text.
fn numbered(item: &Value, number: u64) -> Value {
    match item {
        Value::String(text) => format!("{text}{number}").into(),
        other => other.clone(),
    }
}

/// The smallest value that a schema allows, or one close to it.
pub fn sample(schema: &Value) -> Value {
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return "2Mi".into();
    }
    match schema["type"].as_str() {
        Some("string") if schema["enum"].is_array() => schema["enum"][0].clone(),
        Some("string") if schema["format"] == "date-time" => "2026-01-01T00:00:00Z".into(),
        Some("string") => "a".into(),
        Some("integer") => {
            let least = schema["minimum"].as_f64().unwrap_or(1.0);
            format!("{least:.0}").parse::<i64>().unwrap().into()
        }
        Some("boolean") => true.into(),
        Some("array") => json!([sample(&schema["items"])]),
        Some("object") if schema["additionalProperties"].is_object() => {
            json!({ "k": sample(&schema["additionalProperties"]) })
        }
        Some("object") => {
            let fields = required(schema).map(|name| (name.to_owned(), sample(&schema["properties"][name])));
            let mut fields: Map<_, _> = fields.collect();
            if schema["x-kubernetes-preserve-unknown-fields"] == true {
                // The only places where anything may stand are the two of a template of Pods.
                fields.insert("containers".into(), json!([{ "name": "driver", "image": "a:1" }]));
            }
            Value::Object(fields)
        }
        other => panic!("no sample for the type {other:?}"),
    }
}
