//! What `make bench-pods` has found, so that one table and one file have all figures: how Pods start on a cluster whose drivers, the
//! loop driver among them, are served by moor.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::report::aligned;

/// Reads what `make bench-pods` has written.
pub fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("--pods: {}: {error}", file.display()));
    let found: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("--pods: {}: {error}", file.display()));
    let is_it = found["figures"].is_array() && found["limits"].is_array();
    assert!(is_it, "--pods: {} was not written by `make bench-pods`", file.display());
    found
}

/// A line for each kind of Pods.
pub fn table(pods: &Value) -> String {
    let heads = ["Pods", "at once", "median s", "p99 s", "over none s", "writes", "over none"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for kind in pods["figures"].as_array().into_iter().flatten() {
        let number = |field: &str| format!("{:.2}", kind[field].as_f64().unwrap_or_default());
        lines.push(vec![
            kind["title"].as_str().unwrap_or_default().to_owned(),
            kind["atOnce"].to_string(),
            number("medianSeconds"),
            number("p99Seconds"),
            number("overNoneSeconds"),
            number("writesPerPod"),
            number("writesOverNone"),
        ]);
    }
    aligned(&lines)
}
