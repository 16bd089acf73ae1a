//! The dashboard and the alerts of the chart ask for metrics that docs/reference.md lists, and every panel says what to do.

use std::collections::BTreeSet;
use std::fs;
use std::iter::once;

use serde_json::Value;

use crate::proofs::root;

/// What the names of metrics begin with, of moor itself, of the sidecars and of any process.
const BEGINS: [&str; 3] = ["moor_", "csi_", "process_"];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("charts/moor/dashboards/moor.json")).unwrap()
}

/// The names by which the metrics of the reference can be asked for.
fn served() -> BTreeSet<String> {
    let page = read("docs/reference.md");
    let (_, table) = page.split_once("\n## Metrics\n").expect("the page lists the metrics");
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        Some((cells.next()?, cells.next()?))
    });
    rows.flat_map(|(name, kind)| names_of(name, kind)).collect()
}

/// The page has the names of counters with their ending, and those of histograms without.
fn names_of(name: &str, kind: &str) -> Vec<String> {
    let endings: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    endings.iter().map(|ending| format!("{name}{ending}")).collect()
}

/// The names of metrics in a text.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    words.filter(|word| BEGINS.iter().any(|begin| word.starts_with(begin)))
}

/// The texts that have this name, anywhere in a document.
fn named<'a>(name: &str, document: &'a Value) -> Vec<&'a str> {
    match document {
        Value::Object(fields) => {
            let inner = fields.values().flat_map(|value| named(name, value));
            fields.get(name).and_then(Value::as_str).into_iter().chain(inner).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| named(name, item)).collect(),
        _ => Vec::new(),
    }
}

fn panels_in(document: &Value) -> impl Iterator<Item = &Value> {
    document["panels"].as_array().into_iter().flatten()
}

/// The panels, also those of rows that are folded up.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    panels_in(dashboard).flat_map(|panel| once(panel).chain(panels_in(panel)))
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_served() {
    let dashboard = dashboard();
    let (exprs, served) = (named("expr", &dashboard), served());
    assert!(!exprs.is_empty(), "the dashboard asks for nothing");
    let empty: Vec<_> = exprs.iter().filter(|expr| names_in(expr).next().is_none()).collect();
    assert!(empty.is_empty(), "without a metric: {empty:?}");
    // The variables ask too.
    let queries = exprs.into_iter().chain(named("query", &dashboard));
    let unknown: BTreeSet<_> = queries.flat_map(names_in).filter(|name| !served.contains(*name)).collect();
    assert!(unknown.is_empty(), "not in docs/reference.md: {unknown:?}");
}

#[test]
fn the_alerts_ask_for_metrics_that_are_served() {
    let (rules, served) = (read("charts/moor/templates/rules.yaml"), served());
    assert!(names_in(&rules).next().is_some(), "the alerts ask for nothing");
    let unknown: BTreeSet<_> = names_in(&rules).filter(|name| !served.contains(*name)).collect();
    assert!(unknown.is_empty(), "not in docs/reference.md: {unknown:?}");
}

#[test]
fn every_panel_says_what_to_do_and_in_which_unit_it_is() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut wrong = Vec::new();
    for panel in panels(&dashboard) {
        let title = &panel["title"];
        if !ids.insert(panel["id"].as_u64()) {
            wrong.push(format!("{title} has the id of another panel"));
        }
        if panel["type"] == "row" {
            continue;
        }
        if !panel["description"].as_str().is_some_and(|description| description.ends_with('.')) {
            wrong.push(format!("{title} has no sentence as its description"));
        }
        if panel["fieldConfig"]["defaults"]["unit"].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("{title} has no unit"));
        }
    }
    assert!(!ids.is_empty(), "the dashboard has no panels");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_of_metrics_are_found() {
    let query = "sum by (le) (rate(moor_x_bucket{a=\"b\"}[$__rate_interval])) / process_open_fds";
    assert_eq!(names_in(query).collect::<Vec<_>>(), ["moor_x_bucket", "process_open_fds"]);
    let document = serde_json::json!({ "expr": "a", "b": [{ "expr": "c" }, { "expr": { "expr": "d" } }] });
    let found: BTreeSet<_> = named("expr", &document).into_iter().collect();
    assert_eq!(found, BTreeSet::from(["a", "c", "d"]));
    assert_eq!(names_of("a", "histogram"), ["a_bucket", "a_sum", "a_count"]);
    assert_eq!(names_of("b_total", "counter"), ["b_total"]);
}
