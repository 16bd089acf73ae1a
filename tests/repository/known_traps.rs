//! The table of docs/known-traps.md: complete, and no proof in it that does not exist.

use std::fs;

use crate::proofs::{Proofs, between, root};

/// Letter and number of ids.
const IDS: [(char, usize); 4] = [('T', 67), ('L', 18), ('B', 33), ('N', 16)];
/// What a proof that is no test begins with.
const REASONS: [&str; 2] = ["*cannot occur*: ", "*not in moor yet*: "];
/// Shortest reason that says something, in bytes.
const SHORTEST: usize = 10;

struct Row {
    id: String,
    /// What goes wrong, what keeps it out, proof.
    cells: Vec<String>,
}

fn rows() -> Vec<Row> {
    let table = fs::read_to_string(root().join("docs/known-traps.md")).unwrap();
    let lines = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = lines.map(|line| line.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    let rows = cells.map(|mut cells| Row { id: cells.remove(0), cells });
    rows.filter(|row| row.id != "id").collect()
}

#[test]
fn every_id_is_there_once_and_in_order() {
    let expected: Vec<String> =
        IDS.iter().flat_map(|(letter, count)| (1..=*count).map(move |n| format!("{letter}{n}"))).collect();
    let found: Vec<String> = rows().into_iter().map(|row| row.id).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_row_says_what_goes_wrong_and_what_keeps_it_out() {
    for Row { id, cells } in rows() {
        assert_eq!(cells.len(), 3, "{id} has {} cells beside its id", cells.len());
        assert!(cells[0].len() >= SHORTEST, "{id} does not say what goes wrong");
        let absent = cells[2].starts_with(REASONS[1]);
        assert!(absent || cells[1].len() >= "as T1".len(), "{id} does not say what keeps it out");
        for file in between(&cells[1], '`').filter(|word| word.contains('/')) {
            assert!(root().join(file).exists(), "{id} names {file}, which does not exist");
        }
    }
}

#[test]
fn every_row_has_a_test_that_exists_or_a_reason() {
    let mut proofs = Proofs::new();
    let mut wrong = Vec::new();
    for Row { id, cells } in &rows() {
        let proof = &cells[2];
        if let Some(reason) = REASONS.iter().find_map(|mark| proof.strip_prefix(mark)) {
            if reason.len() < SHORTEST {
                wrong.push(format!("{id}: the reason is none"));
            }
            continue;
        }
        wrong.extend(proofs.wrong_in(proof).into_iter().map(|what| format!("{id}: {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
