//! What the CRDs' own schemas say can be written: every property of a kind.

use std::fmt;

use serde_json::Value;

/// One step from an object to what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field by its name.
    Field(String),
    /// An item of a list.
    Item,
    /// An entry of a map.
    Entry,
}

/// A place in an object of a kind, and what may be there.
#[derive(Clone, Debug)]
pub struct Property {
    pub path: Vec<Step>,
    pub schema: Value,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.path.iter().enumerate() {
            match step {
                Step::Field(name) if number == 0 => write!(f, "{name}")?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Item => write!(f, "[]")?,
                Step::Entry => write!(f, "{{}}")?,
            }
        }
        Ok(())
    }
}

impl Property {
    /// The field directly below `spec` or `status` in which it is.
    pub fn field(&self) -> &str {
        match self.path.get(1) {
            Some(Step::Field(name)) => name,
            other => panic!("{other:?} is no field"),
        }
    }
}

/// The schema of a kind's objects.
pub fn of_kind(kind: &str) -> Value {
    let crds = moor::api::all_crds();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap_or_else(|| panic!("no kind {kind}"));
    let schema = crd.spec.versions[0].schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
    serde_json::to_value(schema.unwrap()).unwrap()
}

/// All properties in a part of a kind's objects, `spec` or `status`, in the order of the schema.
pub fn properties(kind: &str, part: &str) -> Vec<Property> {
    let schema = of_kind(kind);
    let mut found = Vec::new();
    let below = Property { path: vec![Step::Field(part.into())], schema: schema["properties"][part].clone() };
    collect(&below, &mut found);
    found
}

fn collect(parent: &Property, found: &mut Vec<Property>) {
    let step = |step: Step, schema: &Value| {
        let path = parent.path.iter().cloned().chain([step]).collect();
        Property { path, schema: schema.clone() }
    };
    let fields = parent.schema["properties"].as_object();
    let fields = fields.into_iter().flatten().map(|(name, schema)| (Step::Field(name.clone()), schema));
    let items = parent.schema.get("items").map(|schema| (Step::Item, schema));
    let entries = parent.schema.get("additionalProperties").filter(|schema| schema.is_object());
    let entries = entries.map(|schema| (Step::Entry, schema));
    for (next, schema) in fields.chain(items).chain(entries) {
        let property = step(next, schema);
        found.push(property.clone());
        collect(&property, found);
    }
}
