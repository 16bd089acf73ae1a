//! The definitions in `crds/` and in the chart are what `moor crd` prints. `UPDATE_CRDS=1` rewrites them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use moor::api::all_crds;
use moor::cli::crd;
use serde_json::Value;

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

/// A property of each kind is explained by itself, not by its type, which other properties have too.
#[test]
fn each_optional_enum_has_a_description_of_its_own() {
    let mut said = BTreeMap::new();
    for definition in all_crds() {
        let kind = &definition.spec.names.kind;
        for (field, description) in optional_enums(kind, &serde_json::to_value(&definition).unwrap()) {
            let before = said.insert(description.clone(), field.clone());
            assert_eq!(before, None, "{field} has the same description: {description}");
        }
    }
    assert!(said.len() > 5, "{said:?}");
}

/// The properties below `at` that may be null and take certain words, each with what is said of it.
fn optional_enums(path: &str, at: &Value) -> Vec<(String, String)> {
    let Some(fields) = at.as_object() else { return Vec::new() };
    let is_one = fields.get("nullable") == Some(&Value::Bool(true)) && fields.contains_key("enum");
    let own = is_one.then(|| (path.to_owned(), at["description"].as_str().unwrap_or_default().to_owned()));
    let below = fields.iter().flat_map(|(key, value)| match value {
        Value::Array(all) => all.iter().flat_map(|one| optional_enums(path, one)).collect(),
        _ => optional_enums(&format!("{path}.{key}"), value),
    });
    own.into_iter().chain(below).collect()
}
