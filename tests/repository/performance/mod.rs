//! docs/performance.md, its chart and its tables, from the figures of one run of `make bench`.
//!
//! docs/performance.json keeps the figures: of all rounds of a kind the one in the middle, the smallest and the largest.
//! `UPDATE_PERFORMANCE=FILE` makes it from what `make bench` has written, and the tables and the chart from it.

mod chart;
mod figures;
mod page;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use figures::Figures;
use serde_json::Value;

const FIGURES: &str = "docs/performance.json";
const PAGE: &str = "docs/performance.md";
const CHART: &str = "docs/performance.svg";

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn json(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_figure_of_the_page_is_of_one_run() {
    let update = std::env::var_os("UPDATE_PERFORMANCE");
    if let Some(run) = &update {
        let figures = figures::middle_of_run(&json(&path("").join(run)));
        fs::write(path(FIGURES), figures::lines(&figures)).unwrap();
    }
    let figures = Figures::of(json(&path(FIGURES)));
    let found = fs::read_to_string(path(PAGE)).unwrap();
    let (page, chart) = (page::filled(&found, &figures), chart::drawn(&figures));
    if update.is_some() {
        fs::write(path(PAGE), page).unwrap();
        fs::write(path(CHART), chart).unwrap();
        return;
    }
    let hint = "is not what docs/performance.json says; rewrite it with UPDATE_PERFORMANCE=target/bench.json after `make bench`";
    assert!(found == page, "{PAGE} {hint}");
    assert!(fs::read_to_string(path(CHART)).unwrap() == chart, "{CHART} {hint}");
}
