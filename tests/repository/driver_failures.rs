//! The entries of docs/driver-failures.md: all ids are there, and every test exists.

use crate::entries::Document;

/// Letter and number of ids.
const IDS: [(char, usize); 2] = [('D', 16), ('M', 6)];

/// The promises of the M entries, by the ids that they have elsewhere: of restarts (A), of plugins that come and go (B), and of
/// controller calls (E).
const PROMISES: [&str; 6] = ["A2", "A4", "B3", "B4", "B5", "E2"];

fn failures() -> Document {
    Document::read("docs/driver-failures.md")
}

#[test]
fn every_id_is_there_once_and_in_order() {
    failures().assert_ids(&IDS);
}

#[test]
fn every_failure_says_what_goes_wrong_and_what_is_done() {
    failures().assert_worded();
}

#[test]
fn every_failure_has_a_test_that_exists() {
    failures().assert_proven();
}

#[test]
fn every_promise_to_who_runs_drivers_is_there_once() {
    assert_eq!(failures().in_brackets('M'), PROMISES);
}
