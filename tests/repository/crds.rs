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

/// What should be in `directory`, by file name.
fn expected(prefix: &str) -> BTreeMap<String, String> {
    crd::files().unwrap().into_iter().map(|(name, yaml)| (format!("{prefix}{name}"), yaml)).collect()
}

/// What is in `directory` of the files that start with `prefix`.
fn found(directory: &Path, prefix: &str) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeMap::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let yaml =
        names.filter(|name| name.starts_with(prefix) && Path::new(name).extension() == Some("yaml".as_ref()));
    yaml.map(|name| (name.clone(), fs::read_to_string(directory.join(&name)).unwrap())).collect()
}

fn check(directory: &Path, prefix: &str) {
    let (expected, found) = (expected(prefix), found(directory, prefix));
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
    check(&root().join("crds"), "");
}

#[test]
fn the_definitions_in_the_chart_are_current() {
    check(&root().join("charts/moor/templates"), "crd-");
}

#[test]
fn helm_finds_nothing_to_fill_in() {
    for (name, yaml) in expected("") {
        assert!(!yaml.contains("{{"), "{name} contains a Helm template action");
    }
}

/// kubectl reads YAML 1.1, where these words are booleans, unlike in the 1.2 that is written.
#[test]
fn no_string_turns_into_a_boolean() {
    let words = ["y", "n", "yes", "no", "on", "off"];
    for (name, yaml) in expected("") {
        for (number, line) in yaml.lines().enumerate() {
            let value = line.trim().trim_start_matches("- ").rsplit(": ").next().unwrap_or_default();
            assert!(!words.contains(&value.to_lowercase().as_str()), "{name}:{}: {line}", number + 1);
        }
    }
}
