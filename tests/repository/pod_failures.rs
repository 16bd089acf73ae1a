//! The entries of docs/pod-failures.md: all ids are there, and every test exists.

use crate::entries::Document;

/// Letter and number of ids.
const IDS: [(char, usize); 3] = [('P', 35), ('K', 5), ('M', 7)];

/// The promises of the M entries, by the ids that they have elsewhere: of a consumer's mounts (A), of publishing all or nothing
/// (D), and of who is believed (E).
const PROMISES: [&str; 7] = ["A1", "D1", "D2", "D3", "D4", "E1", "E4"];

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

#[test]
fn every_promise_to_a_consumer_is_there_once() {
    assert_eq!(failures().in_brackets('M'), PROMISES);
}
