//! The entries of the documents that list what goes wrong: all ids are there, and every test exists.

use crate::entries::Document;

/// A document, and what it has to have.
struct Listed {
    path: &'static str,
    /// Letter and number of ids.
    ids: &'static [(char, usize)],
    /// The promises of the M entries, by the ids that they have elsewhere.
    promises: &'static [&'static str],
}

const ALL: [Listed; 4] = [
    Listed { path: "docs/known-traps.md", ids: &[('T', 67), ('L', 18), ('B', 33), ('N', 16)], promises: &[] },
    // Of restarts (A), of plugins that come and go (B), and of controller calls (E).
    Listed {
        path: "docs/driver-failures.md",
        ids: &[('D', 16), ('M', 6)],
        promises: &["A2", "A4", "B3", "B4", "B5", "E2"],
    },
    // Of claims (A), capabilities (C), and contexts (E).
    Listed {
        path: "docs/volume-failures.md",
        ids: &[('V', 37), ('H', 5), ('M', 6), ('S', 3)],
        promises: &["A3", "C1", "C2", "C3", "C4", "E3"],
    },
    // Of a consumer's mounts (A), of publishing all or nothing (D), and of who is believed (E).
    Listed {
        path: "docs/pod-failures.md",
        ids: &[('P', 36), ('K', 5), ('M', 7)],
        promises: &["A1", "D1", "D2", "D3", "D4", "E1", "E4"],
    },
];

#[test]
fn every_id_is_there_once_and_in_order() {
    for Listed { path, ids, .. } in ALL {
        Document::read(path).assert_ids(ids);
    }
}

#[test]
fn every_entry_says_what_goes_wrong_and_what_is_done() {
    for Listed { path, .. } in ALL {
        Document::read(path).assert_worded();
    }
}

#[test]
fn every_entry_has_a_test_that_exists_or_a_reason() {
    for Listed { path, .. } in ALL {
        Document::read(path).assert_proven();
    }
}

#[test]
fn every_promise_is_there_once() {
    for Listed { path, promises, .. } in ALL {
        assert_eq!(Document::read(path).in_brackets('M'), promises, "{path}");
    }
}
