//! The entries of docs/known-traps.md: all ids are there, and every proof exists.

use std::fs;

use crate::proofs::{Proofs, root};

/// Letter and number of ids.
const IDS: [(char, usize); 4] = [('T', 67), ('L', 18), ('B', 33), ('N', 16)];
/// What a proof that is no test begins with.
const REASONS: [&str; 2] = ["*cannot occur*: ", "*not in moor yet*: "];
/// Shortest reason that says something, in bytes.
const SHORTEST: usize = 10;

struct Trap {
    id: String,
    what_goes_wrong: String,
    what_keeps_it_out: String,
    /// The entries of the list below: tests, or one reason.
    proofs: String,
}

fn traps() -> Vec<Trap> {
    let document = fs::read_to_string(root().join("docs/known-traps.md")).unwrap();
    let entries = document.split("\n### ").skip(1).filter_map(|rest| rest.split("\n## ").next());
    let traps = entries.map(|entry| {
        let (heading, text) = entry.split_once('\n').unwrap_or((entry, ""));
        let (id, what_goes_wrong) = heading.split_once(": ").unwrap_or((heading, ""));
        let (what_keeps_it_out, proofs) = text.split_once("\n- ").unwrap_or((text, ""));
        Trap {
            id: id.to_owned(),
            what_goes_wrong: what_goes_wrong.to_owned(),
            what_keeps_it_out: what_keeps_it_out.trim().to_owned(),
            proofs: proofs.to_owned(),
        }
    });
    traps.collect()
}

#[test]
fn every_id_is_there_once_and_in_order() {
    let expected: Vec<String> =
        IDS.iter().flat_map(|(letter, count)| (1..=*count).map(move |n| format!("{letter}{n}"))).collect();
    let found: Vec<String> = traps().into_iter().map(|trap| trap.id).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_trap_says_what_goes_wrong_and_what_keeps_it_out() {
    for Trap { id, what_goes_wrong, what_keeps_it_out, proofs } in traps() {
        assert!(what_goes_wrong.len() >= SHORTEST, "{id} does not say what goes wrong");
        let absent = proofs.starts_with(REASONS[1]);
        assert!(absent || what_keeps_it_out.len() >= "As T1.".len(), "{id} does not say what keeps it out");
    }
}

#[test]
fn every_trap_has_a_test_that_exists_or_a_reason() {
    let mut known = Proofs::new();
    let mut wrong = Vec::new();
    for Trap { id, proofs, .. } in &traps() {
        if let Some(reason) = REASONS.iter().find_map(|mark| proofs.strip_prefix(mark)) {
            if reason.len() < SHORTEST {
                wrong.push(format!("{id}: the reason is none"));
            }
            continue;
        }
        wrong.extend(known.wrong_in(proofs).into_iter().map(|what| format!("{id}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
