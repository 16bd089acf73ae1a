//! The arrows between modules, read from the source text.
//!
//! Decisions stay pure, so that they can be tested with values alone; roles stay at the top, so that nothing below
//! depends on them.

use std::collections::{BTreeSet, HashMap};
use std::fs;

use crate::sources::{Source, home, sources, starts_with};

/// Modules that only decide: no client, no gRPC, no runtime, no clock.
const PURE: [&str; 8] = ["api", "claim", "attachment", "volume", "snapshot", "plugin", "provision", "leader"];

/// What a pure module must not name.
const IMPURE: [&str; 15] = [
    "kube::Client",
    "kube::Api",
    "kube::client",
    "kube::runtime",
    "kube::config",
    "tonic",
    "tokio",
    "axum",
    "std::time::SystemTime",
    "std::time::Instant",
    "std::fs",
    "std::net",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "rand",
];

/// (module, crate paths that it must not name). Only the binary and the command line name the roles.
const ARROWS: [(&str, &[&str]); 23] = [
    (
        "api",
        &["claim", "attachment", "volume", "plugin", "csi", "k8s", "controller", "agent", "cli", "metrics"],
    ),
    ("claim", &["leader", "csi", "k8s", "controller", "agent", "cli", "metrics"]),
    ("attachment", &["leader", "csi", "k8s", "controller", "agent", "cli", "metrics"]),
    ("volume", &["leader", "csi", "k8s", "controller", "agent", "cli", "metrics"]),
    ("snapshot", &["leader", "csi", "k8s", "controller", "agent", "cli", "metrics"]),
    ("plugin", &["leader", "csi", "k8s", "controller", "agent", "cli", "metrics"]),
    ("provision", &["leader", "csi", "k8s", "controller", "agent", "cli", "metrics"]),
    ("leader", &["csi", "k8s", "controller", "agent", "cli", "metrics"]),
    (
        "k8s",
        &[
            "csi",
            "claim",
            "attachment",
            "volume",
            "plugin",
            "heartbeat",
            "controller",
            "agent",
            "cli",
            "loop_driver",
        ],
    ),
    (
        "heartbeat",
        &[
            "csi",
            "claim",
            "attachment",
            "volume",
            "plugin",
            "leader",
            "controller",
            "agent",
            "cli",
            "loop_driver",
        ],
    ),
    ("disk", &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    ("mount_table", &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    ("socket", &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    ("metrics", &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    (
        "process_metrics",
        &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"],
    ),
    ("admin", &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    ("telemetry", &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    (
        "trace",
        &[
            "csi",
            "k8s",
            "api",
            "claim",
            "attachment",
            "volume",
            "plugin",
            "heartbeat",
            "controller",
            "agent",
            "cli",
            "metrics",
        ],
    ),
    ("shutdown", &["csi", "k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    ("loop_driver", &["k8s", "claim", "attachment", "volume", "plugin", "controller", "agent", "cli"]),
    ("controller", &["agent", "loop_driver"]),
    ("kubectl", &["csi", "leader", "controller", "agent", "cli", "loop_driver", "metrics"]),
    ("agent", &["leader", "controller", "loop_driver"]),
];

/// What the CSI client may name of this crate: itself, capabilities, and where its calls are counted and kept.
const CSI_MAY: [&str; 4] = ["csi", "api::capability", "metrics", "trace"];

#[test]
fn pure_modules_name_no_io_and_no_clock() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| PURE.contains(&source.module.as_str())) {
        for (line, path) in &source.paths {
            if IMPURE.iter().any(|banned| starts_with(path, banned)) {
                wrong.push(format!("{}:{line}: {path}", source.file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_name_only_what_is_below_them() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (line, path) in &source.paths {
            let Some(path) = path.strip_prefix("crate::") else { continue };
            let arrows = ARROWS.iter().filter(|(module, _)| *module == source.module);
            if arrows.into_iter().any(|(_, banned)| banned.iter().any(|banned| starts_with(path, banned))) {
                wrong.push(format!("{}:{line}: crate::{path}", source.file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What people run on their own machines is named by its own binary alone.
#[test]
fn nothing_of_moors_processes_names_the_kubectl_plugin() {
    for source in sources().iter().filter(|source| !["kubectl", "bin"].contains(&source.module.as_str())) {
        let named = source.paths.iter().find(|(_, path)| starts_with(path, "crate::kubectl"));
        assert!(named.is_none(), "{}: {named:?}", source.file.display());
    }
}

#[test]
fn the_csi_client_knows_nothing_of_moor_but_capabilities() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| source.module == "csi") {
        for (line, path) in &source.paths {
            let Some(path) = path.strip_prefix("crate::") else { continue };
            if !CSI_MAY.iter().any(|allowed| starts_with(path, allowed)) {
                wrong.push(format!("{}:{line}: crate::{path}", source.file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nobody checks the name of a field in text: what is written is the difference of typed objects (rule R6).
#[test]
fn the_roles_write_no_field_by_its_name_in_text() {
    for source in sources().iter().filter(|source| ["controller", "agent"].contains(&source.module.as_str()))
    {
        let named = source.paths.iter().find(|(_, path)| starts_with(path, "serde_json::json"));
        assert!(named.is_none(), "{}: {named:?}", source.file.display());
    }
}

#[test]
fn every_module_has_its_place_in_this_test() {
    let known = ["csi", "cli", "lib", "main", "bin"];
    for source in sources() {
        let module = source.module.as_str();
        let placed = known.contains(&module) || ARROWS.iter().any(|(placed, _)| *placed == module);
        assert!(placed, "src/{module}: add it to tests/repository/layering.rs");
    }
}

/// What a file needs it can be read after. A parent that only exports what its children have needs nothing of them.
#[test]
fn no_files_import_each_other_in_a_circle() {
    let sources = sources();
    let files: HashMap<&str, &Source> = sources.iter().map(|source| (source.at.as_str(), source)).collect();
    let mut imports = BTreeSet::new();
    for source in &sources {
        let exported = |path: &str| source.exports.values().any(|exported| exported == path);
        for (_, path) in &source.paths {
            let below = format!("{}::{path}", source.at);
            if exported(path) || exported(&below) {
                continue;
            }
            let target = home(&files, path).or_else(|| home(&files, &below).filter(|at| *at != source.at));
            imports.extend(target.filter(|at| *at != source.at).map(|at| (source.at.as_str(), at)));
        }
    }
    // Whoever imports nothing, or is imported by nobody, is in no circle; nor is who is so once they are left out.
    loop {
        let (from, to): (BTreeSet<&str>, BTreeSet<&str>) = imports.iter().copied().unzip();
        let before = imports.len();
        imports.retain(|(file, imported)| to.contains(file) && from.contains(imported));
        if imports.len() == before {
            break;
        }
    }
    let circles: Vec<String> =
        imports.iter().map(|(file, imported)| format!("{file} -> {imported}")).collect();
    assert!(circles.is_empty(), "imports in circles:\n{}", circles.join("\n"));
}

#[test]
fn no_file_is_too_long_to_read() {
    for source in sources() {
        let lines = fs::read_to_string(&source.file).unwrap().lines().count();
        assert!(lines <= 400, "{} has {lines} lines", source.file.display());
    }
}
