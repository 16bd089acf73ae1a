//! Merge patches that put a value into its place, and that lead back.

use serde_json::{Map, Value, json};

use super::schema::{Property, Step};
use super::values::sample;

/// A patch of a live object after which `value` is at this property. What it needs around it is made where it is absent.
pub fn putting(schema: &Value, live: &Value, property: &Property, value: Value) -> Value {
    below(schema, Some(live), &property.path, value)
}

fn below(schema: &Value, live: Option<&Value>, path: &[Step], value: Value) -> Value {
    let Some((step, rest)) = path.split_first() else { return value };
    match step {
        Step::Field(name) => {
            let there = live.filter(|live| live.is_object());
            let mut object = match there {
                Some(_) => json!({}),
                None => sample(schema),
            };
            let inner = there.and_then(|live| live.get(name));
            object[name] = below(&schema["properties"][name], inner, rest, value);
            object
        }
        Step::Item => json!([below(&schema["items"], None, rest, value)]),
        Step::Entry => json!({ "k": below(&schema["additionalProperties"], None, rest, value) }),
    }
}

/// A patch after which what was `from` is `to`.
pub fn leading(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let other = to.iter().filter_map(|(key, to)| match from.get(key) {
        Some(from) if from == to => None,
        Some(from) => Some((key.clone(), leading(from, to))),
        None => Some((key.clone(), to.clone())),
    });
    Value::Object(gone.chain(other).collect::<Map<_, _>>())
}

/// Both patches in one; where they meet the second counts.
pub fn both(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            for (key, value) in second {
                let merged = match first.remove(&key) {
                    Some(before) => both(before, value),
                    None => value,
                };
                first.insert(key, merged);
            }
            Value::Object(first)
        }
        (_, second) => second,
    }
}
