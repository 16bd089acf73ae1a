//! The table of docs/known-traps.md: complete, and no proof in it that does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

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

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rows() -> Vec<Row> {
    let table = fs::read_to_string(root().join("docs/known-traps.md")).unwrap();
    let lines = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = lines.map(|line| line.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    let rows = cells.map(|mut cells| Row { id: cells.remove(0), cells });
    rows.filter(|row| row.id != "id").collect()
}

/// What stands between two of `mark`.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
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
    let scenarios = scenarios();
    let mut files: BTreeMap<&Path, BTreeSet<String>> = BTreeMap::new();
    let rows = rows();
    let mut wrong = Vec::new();
    for Row { id, cells } in &rows {
        let proof = &cells[2];
        if let Some(reason) = REASONS.iter().find_map(|mark| proof.strip_prefix(mark)) {
            if reason.len() < SHORTEST {
                wrong.push(format!("{id}: the reason is none"));
            }
            continue;
        }
        let mut tests = 0;
        for named in between(proof, '`') {
            tests += 1;
            let Some((file, name)) = named.split_once("::") else {
                wrong.push(format!("{id}: {named} is no file::function"));
                continue;
            };
            let known = files.entry(Path::new(file)).or_insert_with(|| {
                fs::read_to_string(root().join(file)).map(|text| tests_in(&text)).unwrap_or_default()
            });
            if !known.contains(name) {
                wrong.push(format!("{id}: there is no test {name} in {file}"));
            }
        }
        for title in between(proof, '"') {
            tests += 1;
            if !scenarios.contains(title) {
                wrong.push(format!("{id}: there is no scenario {title:?}"));
            }
        }
        if tests == 0 {
            wrong.push(format!("{id}: neither a test nor a reason"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tests_are_found_as_rust_finds_them() {
    let text = "\
        #[test]\nfn plain() {}\nfn none() {}\n#[tokio::test(start_paused = true)]\n    async fn patient() {\n\
        #[test]\n#[should_panic(expected = \"x\")]\nfn open() {\n#[test]\n#[ignore]\nfn never() {\nfn main() { rig::main(cases![\n one,\n other::two,\n]) }";
    assert_eq!(tests_in(text).into_iter().collect::<Vec<_>>(), ["one", "open", "patient", "plain", "two"]);
}
