//! Whether the tests that a document names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What stands between two of `mark`.
pub(crate) fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// The tests that a Rust file has: functions with a test attribute, and cases of a harness of our own.
fn tests_in(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_test = false;
        } else if let Some((_, rest)) = line.split_once("fn ")
            && is_test
        {
            names.extend(rest.split(['(', '<']).next().map(str::to_owned));
            is_test = false;
        }
    }
    for cases in text.split("cases![").skip(1).filter_map(|rest| rest.split(']').next()) {
        let paths = cases.split(',').map(str::trim).filter(|case| !case.is_empty());
        names.extend(paths.filter_map(|path| path.rsplit("::").next()).map(str::to_owned));
    }
    names
}

/// Titles of the scenarios that the cluster suite runs.
fn scenarios() -> BTreeSet<String> {
    let folder = root().join("e2e/suite/scenarios");
    let listed = fs::read_to_string(folder.join("__init__.py")).unwrap();
    let modules = between(&listed, '"').map(|module| folder.join(module).with_extension("py"));
    let texts: Vec<String> = modules.filter_map(|path| fs::read_to_string(path).ok()).collect();
    let titles = texts.iter().flat_map(|text| text.split("@scenario(").skip(1));
    titles.filter_map(|rest| between(rest, '"').next()).map(str::to_owned).collect()
}

/// The tests of the repository, read as they are asked for.
pub(crate) struct Proofs {
    scenarios: BTreeSet<String>,
    files: BTreeMap<String, BTreeSet<String>>,
}

impl Proofs {
    pub(crate) fn new() -> Self {
        Self { scenarios: scenarios(), files: BTreeMap::new() }
    }

    /// What is wrong with a text that names tests, as `file::function` or as the "title" of a scenario.
    pub(crate) fn wrong_in(&mut self, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut tests = 0;
        for named in between(text, '`') {
            tests += 1;
            let Some((file, name)) = named.split_once("::") else {
                wrong.push(format!("{named} is no file::function"));
                continue;
            };
            let known = self.files.entry(file.to_owned()).or_insert_with(|| {
                fs::read_to_string(root().join(file)).map(|text| tests_in(&text)).unwrap_or_default()
            });
            if !known.contains(name) {
                wrong.push(format!("there is no test {name} in {file}"));
            }
        }
        for title in between(text, '"') {
            tests += 1;
            if !self.scenarios.contains(title) {
                wrong.push(format!("there is no scenario {title:?}"));
            }
        }
        if tests == 0 {
            wrong.push("it names no test".to_owned());
        }
        wrong
    }
}

#[test]
fn tests_are_found_as_rust_finds_them() {
    let text = "\
        #[test]\nfn plain() {}\nfn none() {}\n#[tokio::test(start_paused = true)]\n    async fn patient() {\n\
        #[test]\n#[should_panic(expected = \"x\")]\nfn open() {\n#[test]\n#[ignore]\nfn never() {\nfn main() { rig::main(cases![\n one,\n other::two,\n]) }";
    assert_eq!(tests_in(text).into_iter().collect::<Vec<_>>(), ["one", "open", "patient", "plain", "two"]);
}
