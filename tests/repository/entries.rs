//! Documents that are lists of what goes wrong: each entry has an id, says what is done about it, and names the tests that show
//! that.

use std::fs;

use crate::proofs::{Proofs, root};

/// What a proof that is no test begins with.
const CANNOT_OCCUR: &str = "*cannot occur*: ";
/// Shortest reason that says something, in bytes.
const SHORTEST: usize = 10;

/// One entry of such a document.
struct Entry {
    id: String,
    what_goes_wrong: String,
    what_is_done: String,
    /// The entries of the list below: tests, or one reason.
    proofs: String,
}

/// A document with such entries.
pub(crate) struct Document(Vec<Entry>);

impl Document {
    pub fn read(path: &str) -> Self {
        let document = fs::read_to_string(root().join(path)).unwrap();
        let entries = document.split("\n### ").skip(1).filter_map(|rest| rest.split("\n## ").next());
        let entries = entries.map(|entry| {
            let (heading, text) = entry.split_once('\n').unwrap_or((entry, ""));
            let (id, what_goes_wrong) = heading.split_once(": ").unwrap_or((heading, ""));
            let (what_is_done, proofs) = text.split_once("\n- ").unwrap_or((text, ""));
            Entry {
                id: id.to_owned(),
                what_goes_wrong: what_goes_wrong.to_owned(),
                what_is_done: what_is_done.trim().to_owned(),
                proofs: proofs.to_owned(),
            }
        });
        Self(entries.collect())
    }

    /// `ids` are letters, and how many ids each has.
    pub fn assert_ids(&self, ids: &[(char, usize)]) {
        let expected: Vec<String> = ids
            .iter()
            .flat_map(|(letter, count)| (1..=*count).map(move |n| format!("{letter}{n}")))
            .collect();
        let found: Vec<&String> = self.0.iter().map(|entry| &entry.id).collect();
        assert_eq!(found, expected.iter().collect::<Vec<_>>());
    }

    /// What entries with this letter have in brackets at the end of what goes wrong, in their order.
    pub fn in_brackets(&self, letter: char) -> Vec<&str> {
        let those = self.0.iter().filter(|entry| entry.id.starts_with(letter));
        let told = those.filter_map(|entry| entry.what_goes_wrong.strip_suffix(')')?.rsplit_once(" ("));
        told.map(|(_, id)| id).collect()
    }

    pub fn assert_worded(&self) {
        for Entry { id, what_goes_wrong, what_is_done, .. } in &self.0 {
            assert!(what_goes_wrong.len() >= SHORTEST, "{id} does not say what goes wrong");
            assert!(what_is_done.len() >= "As T1.".len(), "{id} does not say what is done about it");
        }
    }

    pub fn assert_proven(&self) {
        let mut known = Proofs::new();
        let mut wrong = Vec::new();
        for Entry { id, proofs, .. } in &self.0 {
            if let Some(reason) = proofs.strip_prefix(CANNOT_OCCUR) {
                if reason.len() < SHORTEST {
                    wrong.push(format!("{id}: the reason is none"));
                }
                continue;
            }
            wrong.extend(known.wrong_in(proofs).into_iter().map(|what| format!("{id}: {what}")));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
