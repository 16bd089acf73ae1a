use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::api::caller::ControllerRef;
use crate::api::instance::{PluginInstanceSpec, PluginInstanceStatus};
use crate::api::names::{DriverOn, instance_name};
use crate::api::plugin::{PluginSpec, PluginStatus};

fn orphan(kind: StorageKind, handle: &str, since: i64) -> OrphanedStorage {
    OrphanedStorage {
        kind,
        handle: handle.into(),
        uid: format!("uid-{handle}"),
        create_name: format!("moor-{handle}"),
        bytes: None,
        since: Time(Timestamp::from_second(since).unwrap()),
    }
}

fn report(orphans: &[(StorageKind, &str, i64)], missing: &[&str]) -> StorageReport {
    let count = |kind| i64::try_from(orphans.iter().filter(|(of, ..)| *of == kind).count()).unwrap();
    StorageReport {
        orphaned_volumes: count(StorageKind::Volume),
        orphaned_snapshots: count(StorageKind::Snapshot),
        orphans: orphans.iter().map(|(kind, handle, since)| orphan(*kind, handle, *since)).collect(),
        missing: missing
            .iter()
            .map(|uid| MissingStorage {
                kind: StorageKind::Volume,
                namespace: "n".into(),
                name: "v".into(),
                uid: (*uid).into(),
            })
            .collect(),
    }
}

fn instance(node: &str, storage: Option<StorageReport>) -> PluginInstance {
    let spec = PluginInstanceSpec {
        driver_name: "d".into(),
        node_name: node.into(),
        agent: node.into(),
        ..PluginInstanceSpec::default()
    };
    let mut instance = PluginInstance::new(&instance_name(DriverOn { driver: "d", node }), spec);
    instance.status =
        Some(PluginInstanceStatus { storage, controller: true, ..PluginInstanceStatus::default() });
    instance
}

fn plugin(active: Option<&str>) -> Plugin {
    let mut plugin = Plugin::new("d", PluginSpec::default());
    let active =
        active.map(|node| ControllerRef::new(instance_name(DriverOn { driver: "d", node }), node, 0));
    plugin.status = Some(PluginStatus { active, ..PluginStatus::default() });
    plugin
}

const VOLUME: StorageKind = StorageKind::Volume;
const SNAPSHOT: StorageKind = StorageKind::Snapshot;

fn handles(orphans: &Orphans) -> Vec<&str> {
    orphans.named.iter().map(|orphan| orphan.handle.as_str()).collect()
}

#[test]
fn each_orphan_is_told_once_since_it_was_found_first() {
    let all = [
        instance("a", Some(report(&[(VOLUME, "1", 5), (SNAPSHOT, "1", 2)], &[]))),
        instance("b", Some(report(&[(VOLUME, "1", 3), (VOLUME, "2", 9)], &[]))),
        instance("c", None),
    ];
    let told = orphans(&plugin(None), all.iter());
    assert_eq!((handles(&told), told.volumes, told.snapshots), (vec!["1", "2", "1"], 2, 1));
    assert_eq!(told.named[0].since.0.as_second(), 3);
    let words = told.condition(false).unwrap().message;
    assert!(
        words.contains("2 volumes and 1 snapshot") && words.contains("volume 1, volume 2, snapshot 1"),
        "{words}"
    );
}

#[test]
fn what_one_has_found_stays_told_until_the_active_one_has_looked() {
    let before = instance("a", Some(report(&[(VOLUME, "1", 5)], &["uid"])));
    let mut all = [before, instance("b", None)];
    let of = |all: &[PluginInstance]| {
        let plugin = plugin(Some("b"));
        (orphans(&plugin, all.iter()).volumes, is_missing(&plugin, all.iter(), "uid"))
    };
    assert_eq!(of(&all), (1, Some(true)));
    all[1] = instance("b", Some(report(&[], &[])));
    assert_eq!(of(&all), (0, Some(false)));
    all[1].status = None;
    all[0].status.as_mut().unwrap().controller = false;
    assert_eq!(of(&all), (0, None), "a node without the Controller service has listed nothing");
    all[0].status.as_mut().unwrap().controller = true;
    assert_eq!(of(&all), (1, Some(true)));
    all[0].metadata.name = Some("forged".into());
    assert_eq!(of(&all), (0, None), "an instance that counts nowhere says nothing");
}

#[test]
fn what_somebody_has_is_not_told_and_not_counted() {
    let mut found = report(&[(VOLUME, "1", 5), (VOLUME, "2", 5), (SNAPSHOT, "1", 5)], &[]);
    found.orphaned_volumes = 70;
    let all = [instance("a", Some(found))];
    let told = orphans(&plugin(None), all.iter()).without(|orphan| orphan.handle == "1");
    assert_eq!((handles(&told), told.volumes, told.snapshots), (vec!["2"], 69, 0));
}

#[test]
fn nothing_is_said_where_nothing_was_ever_found() {
    assert_eq!(Orphans::default().condition(false), None);
    assert_eq!(Orphans::default().condition(true).unwrap().reason, Reason::NoOrphans);
    assert_eq!(found(false, false, VOLUME, "1"), None);
    assert_eq!(found(false, true, VOLUME, "1").unwrap().reason, Reason::StorageListed);
    let missing = found(true, false, SNAPSHOT, "1").unwrap();
    assert!(
        missing.message.contains("snapshot 1") && missing.message.contains("this Snapshot"),
        "{}",
        missing.message
    );
}
