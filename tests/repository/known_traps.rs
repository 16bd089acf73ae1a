//! The entries of docs/known-traps.md: all ids are there, and every proof exists.

use crate::entries::Document;

/// Letter and number of ids.
const IDS: [(char, usize); 4] = [('T', 67), ('L', 18), ('B', 33), ('N', 16)];

fn traps() -> Document {
    Document::read("docs/known-traps.md")
}

#[test]
fn every_id_is_there_once_and_in_order() {
    traps().assert_ids(&IDS);
}

#[test]
fn every_trap_says_what_goes_wrong_and_what_keeps_it_out() {
    traps().assert_worded();
}

#[test]
fn every_trap_has_a_test_that_exists_or_a_reason() {
    traps().assert_proven();
}
