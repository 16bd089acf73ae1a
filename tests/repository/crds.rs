//! The definitions in `crds/` and in the chart are what `moor crd` prints. `UPDATE_CRDS=1` rewrites them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use moor::cli::crd;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What should be in a directory of definitions, by file name.
fn expected() -> BTreeMap<String, String> {
    crd::files().unwrap().into_iter().collect()
}

/// What is in `directory`.
fn found(directory: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeMap::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let yaml = names.filter(|name| Path::new(name).extension() == Some("yaml".as_ref()));
    yaml.map(|name| (name.clone(), fs::read_to_string(directory.join(&name)).unwrap())).collect()
}

fn check(directory: &Path) {
    let (expected, found) = (expected(), found(directory));
    if std::env::var_os("UPDATE_CRDS").is_some() {
        fs::create_dir_all(directory).unwrap();
        for name in found.keys().filter(|name| !expected.contains_key(*name)) {
            fs::remove_file(directory.join(name)).unwrap();
        }
        for (name, yaml) in expected {
            fs::write(directory.join(name), yaml).unwrap();
        }
        return;
    }
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected), "in {}; rewrite with UPDATE_CRDS=1", directory.display());
    for (name, yaml) in &expected {
        assert!(
            found[name] == *yaml,
            "{} differs; rewrite with UPDATE_CRDS=1",
            directory.join(name).display()
        );
    }
}

#[test]
fn the_definitions_in_crds_are_current() {
    check(&root().join("crds"));
}

#[test]
fn the_definitions_in_the_chart_are_current() {
    check(&root().join("charts/moor/files/crds"));
}

/// By these lines `templates/crds.yaml` finds where labels belong, and the annotation that it takes off.
#[test]
fn the_annotation_is_where_the_chart_looks_for_it() {
    for (name, yaml) in expected() {
        let lines = "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name: ";
        assert_eq!(yaml.matches(lines).count(), 1, "{name} has its metadata in another form");
    }
}

/// kubectl reads YAML 1.1, where these words are booleans, unlike in the 1.2 that is written.
#[test]
fn no_string_turns_into_a_boolean() {
    let words = ["y", "n", "yes", "no", "on", "off"];
    for (name, yaml) in expected() {
        for (number, line) in yaml.lines().enumerate() {
            let value = line.trim().trim_start_matches("- ").rsplit(": ").next().unwrap_or_default();
            assert!(!words.contains(&value.to_lowercase().as_str()), "{name}:{}: {line}", number + 1);
        }
    }
}
