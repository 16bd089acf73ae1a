//! The worked Plugins in docs/plugins: moor can run each of them, and nothing in them is lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use moor::api::Plugin;
use moor::plugin::workload::{Site, daemon_set, deployment};
use serde::Deserialize as _;
use serde_json::Value;

/// Where the worked Plugins are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/plugins")
}

/// The objects of each file, by the file's name.
fn files() -> Vec<(String, Vec<Value>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let objects = text.split("\n---\n").map(|part| serde_saphyr::from_str(part).unwrap()).collect();
        all.push((path.file_name().unwrap().to_string_lossy().into_owned(), objects));
    }
    all
}

/// The Plugins, with their files.
fn plugins() -> Vec<(String, Value, Plugin)> {
    let all = files().into_iter().flat_map(|(file, objects)| {
        let plugins = objects.into_iter().filter(|object| object["kind"] == "Plugin");
        plugins.map(move |object| (file.clone(), object.clone(), Plugin::deserialize(object).unwrap()))
    });
    all.collect()
}

/// The Pods that moor makes of a Plugin.
fn pods(plugin: &Plugin) -> Vec<(&'static str, PodTemplateSpec)> {
    let site = Site::new("moor-system".into(), "/var/lib/kubelet".into(), None);
    let controller =
        deployment(plugin, &site).unwrap().map(|made| ("controller", made.spec.unwrap().template));
    let node = daemon_set(plugin, &site).unwrap().map(|made| ("node", made.spec.unwrap().template));
    controller.into_iter().chain(node).collect()
}

/// Fields of `written` that `known` does not have.
fn lost(written: &Value, known: &Value, at: &str, all: &mut Vec<String>) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written {
                match known.get(key) {
                    Some(known) => lost(value, known, &format!("{at}.{key}"), all),
                    None => all.push(format!("{at}.{key}")),
                }
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            let each = written.iter().zip(known).enumerate();
            each.for_each(|(n, (written, known))| lost(written, known, &format!("{at}[{n}]"), all));
        }
        _ => assert_eq!(written, known, "{at}"),
    }
}

#[test]
fn there_is_one_for_each_driver_that_people_ask_for() {
    let names: BTreeSet<String> =
        plugins().iter().map(|(_, _, plugin)| plugin.driver_name().to_owned()).collect();
    let wanted = [
        "ebs.csi.aws.com",
        "hostpath.csi.k8s.io",
        "nfs.csi.k8s.io",
        "pd.csi.storage.gke.io",
        "rbd.csi.ceph.com",
    ];
    assert_eq!(names, wanted.map(str::to_owned).into());
}

#[test]
fn every_field_is_one_that_a_plugin_has() {
    for (file, written, plugin) in plugins() {
        let mut all = Vec::new();
        lost(&written["spec"], &serde_json::to_value(&plugin.spec).unwrap(), "spec", &mut all);
        assert!(all.is_empty(), "{file}: {all:?}");
    }
}

#[test]
fn every_driver_is_told_its_socket_and_its_node_and_has_what_it_mounts() {
    for (file, _, plugin) in plugins() {
        let made = pods(&plugin);
        assert!(!made.is_empty(), "{file} declares no Pods");
        for (part, template) in made {
            let spec: PodSpec = template.spec.unwrap();
            let text = serde_json::to_string(&spec.containers[0]).unwrap();
            assert!(text.contains("$(CSI_ENDPOINT)"), "{file}, {part}: nothing tells the driver its socket");
            let volumes: BTreeSet<&str> =
                spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
            for container in &spec.containers {
                let mounts = container.volume_mounts.iter().flatten();
                for mount in mounts {
                    assert!(
                        volumes.contains(mount.name.as_str()),
                        "{file}, {part}: no volume {}",
                        mount.name
                    );
                }
                let named: BTreeSet<&str> = container.env.iter().flatten().map(|e| e.name.as_str()).collect();
                let text = container.args.iter().chain(&container.command).flatten();
                for word in text {
                    for (_, rest) in word.match_indices("$(").map(|(at, _)| word.split_at(at + 2)) {
                        let name = rest.split(')').next().unwrap();
                        assert!(named.contains(name), "{file}, {part}: nothing says what $({name}) is");
                    }
                }
            }
        }
    }
}

/// What a Pod names and the file neither has nor speaks of, nobody would think of making.
#[test]
fn what_the_pods_name_is_in_the_file() {
    for (file, objects) in files() {
        let text = fs::read_to_string(folder().join(&file)).unwrap();
        let has = |kind: &str, name: &str| {
            objects.iter().any(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        };
        let of_file = plugins().into_iter().filter(|(of, _, _)| *of == file);
        for (part, template) in of_file.flat_map(|(_, _, plugin)| pods(&plugin)) {
            let spec = template.spec.unwrap();
            if let Some(account) = &spec.service_account_name {
                assert!(has("ServiceAccount", account), "{file}, {part}: ServiceAccount {account}");
            }
            for volume in spec.volumes.iter().flatten() {
                if let Some(map) = &volume.config_map {
                    assert!(has("ConfigMap", &map.name), "{file}, {part}: ConfigMap {}", map.name);
                }
                let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref());
                if let Some(secret) = secret {
                    let told = text.lines().any(|line| line.starts_with('#') && line.contains(secret));
                    assert!(told, "{file}, {part}: nothing is said of Secret {secret}");
                }
            }
        }
    }
}
