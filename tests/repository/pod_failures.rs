//! The entries of docs/pod-failures.md: all ids are there, and every test exists.

use crate::entries::Document;

/// Letter and number of ids.
const IDS: [(char, usize); 3] = [('P', 35), ('K', 5), ('M', 7)];

fn failures() -> Document {
    Document::read("docs/pod-failures.md")
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
