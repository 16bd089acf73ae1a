//! The rules of docs/rules.md and the traps of docs/known-traps.md, and where they are cited.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::proofs::{Proofs, root};

/// What a citation begins with, and the letters that its ids have.
const CITED: [(&str, &[char]); 2] = [("rule", &['R']), ("trap", &['T', 'L', 'B', 'N'])];

struct Rule {
    id: String,
    text: String,
}

fn rules() -> Vec<Rule> {
    let document = fs::read_to_string(root().join("docs/rules.md")).unwrap();
    let parts = document.split("\n## ").skip(1);
    let parts = parts.map(|part| {
        let (id, text) = part.split_once(". ").expect("a heading begins with an id");
        Rule { id: id.to_owned(), text: text.to_owned() }
    });
    parts.collect()
}

/// Files below a folder with one of these endings.
fn files_in(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_in(&path, endings, found);
        } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
            found.push(path);
        }
    }
}

fn texts(folders: &[&str], endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in folders {
        files_in(&root().join(folder), endings, &mut found);
    }
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The ids behind each `rule` and `trap` of a text: "(rules R1, R7, trap B3)" cites three.
fn cited_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut letters: &[char] = &[];
    let mut ids = BTreeSet::new();
    for word in words {
        let lower = word.to_lowercase();
        let begins = CITED
            .iter()
            .find(|(begin, _)| lower.strip_prefix(begin).is_some_and(|rest| ["", "s"].contains(&rest)));
        if let Some((_, begun)) = begins {
            letters = begun;
        } else if is_id(word, letters) {
            ids.insert(word.to_owned());
        } else if word != "and" {
            letters = &[];
        }
    }
    ids
}

fn is_id(word: &str, letters: &[char]) -> bool {
    let digits = word.strip_prefix(letters);
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[test]
fn every_rule_says_why_and_names_tests_that_exist() {
    let mut proofs = Proofs::new();
    let mut wrong = Vec::new();
    for Rule { id, text } in rules() {
        if !text.contains("*Why.*") {
            wrong.push(format!("{id} does not say why"));
        }
        match text.split_once("*Tests.*") {
            None => wrong.push(format!("{id} has no tests")),
            Some((_, tests)) => {
                wrong.extend(proofs.wrong_in(tests).into_iter().map(|what| format!("{id}: {what}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_is_cited_and_every_citation_resolves() {
    let rules: BTreeSet<String> = rules().into_iter().map(|rule| rule.id).collect();
    let traps = fs::read_to_string(root().join("docs/known-traps.md")).unwrap();
    let mut cited = BTreeSet::new();
    let mut wrong = Vec::new();
    for (path, text) in texts(&["src", "tests", "e2e", "docs/adr"], &["rs", "py", "md"]) {
        for id in cited_in(&text) {
            if !rules.contains(&id) && !traps.contains(&format!("\n### {id}: ")) {
                wrong.push(format!("{} cites {id}, which is nowhere", path.display()));
            }
            if path.starts_with(root().join("src")) {
                cited.insert(id);
            }
        }
    }
    let forgotten = rules.iter().filter(|rule| !cited.contains(*rule));
    wrong.extend(forgotten.map(|rule| format!("no code says that it keeps {rule}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_cited_that_is_not_in_the_repository() {
    let elsewhere = [
        "design R",
        "design section",
        "interleavings ",
        "csi.md",
        "nomad.md",
        "style.md",
        "pods.md section",
        "house.md",
    ];
    let mut wrong = Vec::new();
    for (path, text) in texts(
        &["src", "tests", "e2e", "docs", "charts", "crds", "proto"],
        &["rs", "py", "md", "yaml", "proto"],
    ) {
        if path.ends_with("tests/repository/rules.rs") {
            continue;
        }
        let found = elsewhere.iter().filter(|document| text.contains(*document));
        wrong.extend(found.map(|document| format!("{} refers to {document:?}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Users read `kubectl explain`, conditions and Events, and do not know the ids.
#[test]
fn what_users_read_cites_no_ids() {
    for (path, text) in texts(&["crds", "charts", "examples"], &["yaml"]) {
        let ids = cited_in(&text);
        assert!(ids.is_empty(), "{} cites {ids:?}", path.display());
    }
}

#[test]
fn citations_are_found_with_several_ids() {
    let found = cited_in("(rules R1 and R7, trap B3) Rule R2: the ruler R9 of trap 4, R5");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["B3", "R1", "R2", "R7"]);
}
