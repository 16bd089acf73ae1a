use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::snapshot_class::VolumeSnapshotClass;
use super::super::volume_snapshots::{ContentStatus, VolumeSnapshotContent};
use super::*;
use crate::api::snapshot::SnapshotAssignment;
use crate::api::{SnapshotState, VolumeState};

const DRIVER: &str = "d.example.com";
const HELD: &str = VolumeSnapshotContent::WORDS.finalizer;

fn now() -> Time {
    Time(Timestamp::from_second(1000).unwrap())
}

fn merge(into: &mut Value, more: &Value) {
    for (path, value) in more.as_object().unwrap() {
        let (parent, key) = path.rsplit_once('/').unwrap();
        into.pointer_mut(parent).unwrap()[key] = value.clone();
    }
}

fn content_of(more: &Value) -> VolumeSnapshotContent {
    let mut whole = json!({
        "metadata": { "name": "snapcontent-s", "uid": "c", "finalizers": [HELD], "annotations": {} },
        "spec": {
            "driver": DRIVER, "deletionPolicy": "Delete", "volumeSnapshotClassName": "cold",
            "source": { "volumeHandle": "vol-1" },
            "volumeSnapshotRef": { "name": "s", "namespace": "team", "uid": "s-uid" },
        },
    });
    merge(&mut whole, more);
    serde_json::from_value(whole).unwrap()
}

fn class() -> VolumeSnapshotClass {
    let parameters = json!({ "tier": "cold", "csi.storage.k8s.io/snapshotter-list-secret-name": "l",
        "csi.storage.k8s.io/snapshotter-list-secret-namespace": "ns" });
    serde_json::from_value(json!({ "metadata": {}, "driver": DRIVER, "parameters": parameters })).unwrap()
}

fn served() -> Served<'static> {
    Served {
        secrets: None,
        plugin: "plugin",
        name: DRIVER,
        places: &[],
        has_topology: Some(false),
        modifies: false,
        clones: false,
        extra_create_metadata: false,
        default_fs_type: None,
        strict_topology: false,
        is_local: false,
    }
}

fn volume() -> Volume {
    let mut volume = Volume::default();
    volume.metadata.name = Some("pvc-1".into());
    volume.metadata.namespace = Some("team".into());
    volume.status.get_or_insert_default().state = VolumeState::Ready;
    volume
}

/// What was made for the content, and has come so far.
fn kept(state: SnapshotState) -> Snapshot {
    let content = content_of(&json!({}));
    let mut snapshot = made(&decide(&content, None));
    if state > SnapshotState::Pending {
        let id = Some("snap-1".to_owned());
        let assignment = SnapshotAssignment { snapshot_handle: id, ..SnapshotAssignment::default() };
        snapshot.spec.assignment = Some(assignment);
    }
    let status = snapshot.status.get_or_insert_default();
    (status.state, status.restore_size_bytes) = (state, Some(5));
    status.creation_time = Some(Time(Timestamp::from_second(7).unwrap()));
    snapshot
}

fn deleted(mut snapshot: Snapshot, policy: DeletionPolicy) -> Snapshot {
    snapshot.metadata.deletion_timestamp = Some(now());
    snapshot.spec.deletion_policy = Some(policy);
    snapshot
}

fn decide(content: &VolumeSnapshotContent, snapshot: Option<&Snapshot>) -> Content<ContentStatus> {
    decide_with(content, snapshot, |_| {})
}

fn decide_with<'a>(
    of: &'a VolumeSnapshotContent,
    snapshot: Option<&'a Snapshot>,
    change: impl FnOnce(&mut Seen<'a, VolumeSnapshotContent>),
) -> Content<ContentStatus> {
    // A test may put what it owns in the place of each.
    let (driver, class): (&'a Served<'a>, &'a VolumeSnapshotClass) =
        (Box::leak(Box::new(served())), Box::leak(Box::new(class())));
    let mut seen = Seen {
        content: of,
        driver,
        class: Some(class),
        volumes: vec![SourceVolume::Kept(Box::leak(Box::new(volume())))],
        snapshot,
        is_source_gone: false,
        has_members: false,
        awaits_group: false,
        ordered: false,
        not_allowed: None,
        namespace: "moor",
    };
    change(&mut seen);
    content(&seen, &now())
}

fn made(step: &Content<ContentStatus>) -> Snapshot {
    match step {
        Content::Make(snapshot) => (**snapshot).clone(),
        other => panic!("{other:?}"),
    }
}

/// What the content is told that goes wrong.
fn told(step: Content<ContentStatus>) -> String {
    match step {
        Content::Say(status) => {
            assert_eq!(status.ready_to_use, Some(false));
            status.error.unwrap().message.unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_snapshot_is_taken_under_the_name_that_csi_snapshotter_gives() {
    let secret = json!({ "/metadata/annotations": {
        "snapshot.storage.kubernetes.io/deletion-secret-name": "s",
        "snapshot.storage.kubernetes.io/deletion-secret-namespace": "vault" } });
    let content = content_of(&secret);
    let snapshot = made(&decide(&content, None));
    assert_eq!(snapshot.metadata.name.as_deref(), Some("content-c"));
    assert_eq!(snapshot.metadata.namespace.as_deref(), Some("moor"));
    let spec = snapshot.spec;
    assert_eq!(
        (spec.volume_name.as_deref(), spec.create_name.as_deref()),
        (Some("pvc-1"), Some("snapshot-s-uid"))
    );
    assert_eq!(spec.parameters, std::collections::BTreeMap::from([("tier".to_owned(), "cold".to_owned())]));
    assert_eq!(spec.secret_name.as_deref(), Some("vault/s"));
    assert_eq!(spec.deletion_policy, Some(DeletionPolicy::Retain), "until the content ends");
    let of = spec.volume_snapshot_content.unwrap();
    assert_eq!(
        (of.name.as_str(), of.uid.as_str(), of.list_secret.as_deref()),
        ("snapcontent-s", "c", Some("ns/l"))
    );
    let told = Served { extra_create_metadata: true, ..served() };
    let snapshot = made(&decide_with(&content, None, |seen| seen.driver = &told));
    assert_eq!(snapshot.spec.parameters["csi.storage.k8s.io/volumesnapshot/namespace"], "team");
    assert_eq!(snapshot.spec.parameters["csi.storage.k8s.io/volumesnapshotcontent/name"], "snapcontent-s");
}

#[test]
fn what_is_there_is_registered_and_what_is_worked_on_is_asked_for_again() {
    let given = json!({ "/spec/source": { "snapshotHandle": "snap-9" } });
    let ready = json!({ "/status": { "snapshotHandle": "snap-9", "readyToUse": true } });
    for more in [given, ready] {
        // The class of one that was taken by somebody else may be gone.
        let spec = made(&decide(&content_of(&more), None)).spec;
        assert_eq!(
            (spec.snapshot_handle.as_deref(), spec.plugin_name.as_deref()),
            (Some("snap-9"), Some("plugin"))
        );
        assert!(spec.volume_name.is_none() && spec.create_name.is_none() && spec.parameters.is_empty());
    }
    let worked_on = json!({ "/status": { "snapshotHandle": "snap-9", "readyToUse": false } });
    let spec = made(&decide(&content_of(&worked_on), None)).spec;
    assert_eq!(spec.create_name.as_deref(), Some("snapshot-s-uid"));
    // One that names no class has no Secret to be listed with; one whose class is missing waits for it.
    let classless =
        json!({ "/spec/source": { "snapshotHandle": "s" }, "/spec/volumeSnapshotClassName": null });
    let classless = content_of(&classless);
    let spec = made(&decide_with(&classless, None, |seen| seen.class = None)).spec;
    assert_eq!(spec.volume_snapshot_content.unwrap().list_secret, None);
    let classed = content_of(&json!({ "/spec/source": { "snapshotHandle": "s" } }));
    let words = told(decide_with(&classed, None, |seen| seen.class = None));
    assert!(words.starts_with("VolumeSnapshotClass cold does not exist"), "{words}");
}

#[test]
fn what_keeps_a_snapshot_from_being_taken_is_said_where_users_look() {
    let same = json!({});
    for (more, change, words) in [
        (json!({ "/spec/volumeSnapshotRef/uid": "" }), None, "bound to no VolumeSnapshot yet"),
        (json!({ "/spec/volumeSnapshotClassName": null }), None, "volumeSnapshotClassName is not set"),
        (
            json!({ "/metadata/annotations": { "snapshot.storage.kubernetes.io/deletion-secret-name": "s" } }),
            None,
            "without snapshot.storage.kubernetes.io/deletion-secret-namespace",
        ),
        (same.clone(), Some(SourceVolume::Nobody), "no PersistentVolume stands for volume vol-1"),
        (same.clone(), Some(SourceVolume::Removed), "removed by force"),
        (same.clone(), Some(SourceVolume::BeingMade), "still being made"),
    ] {
        let content = content_of(&more);
        let told = told(decide_with(&content, None, |seen| {
            if let Some(volume) = change {
                seen.volumes = vec![volume];
            }
        }));
        assert!(told.contains(words), "{told}");
    }
    let (content, volume) = (content_of(&same), volume());
    let words = told(decide_with(&content, None, |seen| seen.volumes = vec![SourceVolume::OfUsers(&volume)]));
    assert!(words.contains("Volume team/pvc-1") && words.contains("create a Snapshot (moor.dev)"), "{words}");
    let words = told(decide_with(&content, None, |seen| seen.not_allowed = Some("not in namespace team")));
    assert_eq!(words, "not in namespace team");
    assert_eq!(
        decide_with(&content, None, |seen| seen.volumes = vec![SourceVolume::NotTakenUp]),
        Content::TakeUp
    );
    // It is said once.
    let mut said = content.clone();
    let Content::Say(status) = decide_with(&content, None, |seen| seen.volumes = vec![SourceVolume::Nobody])
    else {
        panic!("it is said")
    };
    said.status = Some(*status);
    let again = decide_with(&said, None, |seen| seen.volumes = vec![SourceVolume::Nobody]);
    assert!(matches!(again, Content::Wait(Some(_))), "{again:?}");
}

#[test]
fn what_is_another_ones_is_not_touched() {
    for more in [json!({ "/spec/driver": "other" }), json!({ "/spec/source": {} })] {
        assert_eq!(decide(&content_of(&more), None), Content::Nothing, "{more}");
    }
    let theirs = VolumeSnapshotClass { driver: "other".into(), ..class() };
    let content = content_of(&json!({}));
    assert_eq!(decide_with(&content, None, |seen| seen.class = Some(&theirs)), Content::Nothing);
    // A Snapshot of the name that was not made for it, or that a user has made.
    let mut of_another = kept(SnapshotState::Ready);
    of_another.spec.volume_snapshot_content.as_mut().unwrap().uid = "other".into();
    let mut of_user = kept(SnapshotState::Ready);
    of_user.metadata.namespace = Some("team".into());
    let ending = content_of(&json!({ "/metadata/deletionTimestamp": "2025-01-01T00:00:00Z",
        "/metadata/annotations": { "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes" } }));
    for snapshot in [of_another, of_user] {
        for content in [&content, &ending] {
            let words = told(decide(content, Some(&snapshot)));
            assert!(words.starts_with("Snapshot content-c exists"), "{words}");
        }
    }
}

#[test]
fn the_secret_of_the_content_counts() {
    let content = content_of(&json!({ "/metadata/annotations": {
        "snapshot.storage.kubernetes.io/deletion-secret-name": "s",
        "snapshot.storage.kubernetes.io/deletion-secret-namespace": "vault" } }));
    let snapshot = kept(SnapshotState::Ready);
    assert_eq!(decide(&content, Some(&snapshot)), Content::UseSecret(Some("vault/s".into())));
}

#[test]
fn the_word_of_csi_snapshotter_goes_when_the_snapshot_is_there() {
    let more = json!({
        "/metadata/annotations": { "snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes" },
        "/status": { "snapshotHandle": "snap-1", "creationTime": 1, "restoreSize": 5, "readyToUse": true } });
    let content = content_of(&more);
    assert_eq!(decide(&content, Some(&kept(SnapshotState::Ready))), Content::TakeWordOff);
    assert!(!content.created().is_being_created());
}

#[test]
fn one_that_is_deleted_ends_with_its_volume_snapshot() {
    let gone = json!("2025-01-01T00:00:00Z");
    let of = |more: Value| {
        let mut whole = json!({ "/metadata/deletionTimestamp": gone,
            "/metadata/annotations": { "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes" },
            "/status": { "snapshotHandle": "snap-1", "readyToUse": true } });
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        content_of(&whole)
    };
    let (delete, retain) = (of(json!({})), of(json!({ "/spec/deletionPolicy": "Retain" })));
    let (ready, policy) = (kept(SnapshotState::Ready), DeletionPolicy::Delete);
    assert_eq!(decide(&delete, Some(&ready)), Content::DeleteSnapshot(policy));
    assert_eq!(decide(&retain, Some(&ready)), Content::DeleteSnapshot(DeletionPolicy::Retain));
    let going = deleted(ready.clone(), policy);
    assert_eq!(decide(&delete, Some(&going)), Content::Wait(None));
    // What is there is registered first, and nobody takes anything any more.
    let untaken = kept(SnapshotState::Pending);
    assert_eq!(decide(&delete, Some(&untaken)), Content::DeleteSnapshot(DeletionPolicy::Retain));
    assert_eq!(decide(&retain, Some(&untaken)), Content::DeleteSnapshot(DeletionPolicy::Retain));
    // Its driver is not there yet: who goes now is asked to delete nothing.
    let registered = made(&decide(&delete, None));
    assert_eq!(decide(&delete, Some(&registered)), Content::Wait(None));
    let unasked = of(json!({ "/status": {} }));
    assert_eq!(decide(&unasked, Some(&untaken)), Content::DeleteSnapshot(policy), "nothing was begun");
    // Somebody thinks better of it, or has deleted the Snapshot by hand before.
    assert_eq!(decide(&retain, Some(&going)), Content::DeleteSnapshot(DeletionPolicy::Retain));
    let by_hand = deleted(ready.clone(), DeletionPolicy::Retain);
    assert_eq!(decide(&delete, Some(&by_hand)), Content::DeleteSnapshot(policy));
    assert_eq!(decide(&retain, Some(&by_hand)), Content::Free);
    assert_eq!(decide(&retain, None), Content::Free);
    // Whether the storage is gone this leader does not know.
    let again = made(&decide(&delete, None)).spec;
    assert_eq!(
        (again.snapshot_handle.as_deref(), again.deletion_policy),
        (Some("snap-1"), Some(DeletionPolicy::Retain))
    );
    let Content::Say(status) = decide_with(&delete, None, |seen| seen.ordered = true) else {
        panic!("it says so")
    };
    assert_eq!(*status, ContentStatus::default());
    let done = of(json!({ "/status": {} }));
    assert_eq!(decide(&done, None), Content::Free);
    // A group's goes with the group.
    let member = of(json!({ "/status/volumeGroupSnapshotHandle": "g" }));
    assert_eq!(decide(&member, None), Content::Free);
    // Its VolumeSnapshot is there.
    let kept_by_user = of(json!({ "/metadata/annotations": {} }));
    assert_eq!(decide(&kept_by_user, None), Content::Nothing);
    assert!(matches!(decide(&kept_by_user, Some(&ready)), Content::Say(_) | Content::Wait(None)));
    // It was never bound.
    let unbound = of(json!({ "/metadata/annotations": {}, "/spec/volumeSnapshotRef/uid": "",
        "/spec/source": { "snapshotHandle": "snap-1" } }));
    assert_eq!(decide(&unbound, Some(&ready)), Content::DeleteSnapshot(policy));
    let unheld = of(json!({ "/metadata/finalizers": ["theirs"] }));
    assert_eq!(decide(&unheld, Some(&ready)), Content::Nothing);
}

#[test]
fn a_snapshot_that_somebody_deletes_by_hand_is_waited_for_and_made_anew() {
    let content = content_of(&json!({ "/status": { "snapshotHandle": "snap-1", "readyToUse": true } }));
    let going = deleted(kept(SnapshotState::Ready), DeletionPolicy::Retain);
    assert_eq!(decide(&content, Some(&going)), Content::Wait(None));
    assert_eq!(made(&decide(&content, None)).spec.snapshot_handle.as_deref(), Some("snap-1"));
}

/// A Plugin may go with which nothing was begun, and another one with the driver take its place.
#[test]
fn what_waits_for_a_plugin_that_has_the_driver_no_more_is_made_anew() {
    let (anew, status) = (
        Content::DeleteSnapshot(DeletionPolicy::Retain),
        json!({ "snapshotHandle": "snap-1", "readyToUse": true }),
    );
    let there = content_of(&json!({ "/status": status }));
    let ends = content_of(&json!({ "/status": status, "/metadata/deletionTimestamp": "2025-01-01T00:00:00Z",
        "/metadata/annotations": { "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes" } }));
    let mut snapshot = made(&decide(&there, None));
    for content in [&there, &ends] {
        assert_ne!(decide(content, Some(&snapshot)), anew);
    }
    snapshot.spec.plugin_name = Some("the one before".to_owned());
    for content in [&there, &ends] {
        assert_eq!(decide(content, Some(&snapshot)), anew);
    }
    assert_eq!(decide(&there, Some(&deleted(snapshot.clone(), DeletionPolicy::Retain))), Content::Wait(None));
    // That Plugin is kept for it.
    snapshot.spec.assignment = Some(SnapshotAssignment::default());
    assert_ne!(decide(&there, Some(&snapshot)), anew);
    assert_eq!(decide(&ends, Some(&snapshot)), Content::DeleteSnapshot(DeletionPolicy::Delete));
    // The Volume that was made of its PersistentVolume has gone with the Plugin.
    let taken = content_of(&json!({}));
    for (state, is_anew) in [(SnapshotState::Pending, true), (SnapshotState::Ready, false)] {
        let decided = decide_with(&taken, Some(&kept(state)), |seen| seen.is_source_gone = true);
        assert_eq!(decided == anew, is_anew, "{decided:?}");
    }
}

/// A member was begun with its group, which also says when all members are ready.
#[test]
fn a_member_is_registered_when_its_group_is_ready() {
    let annotations = json!({ "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle": "g" });
    let unsaid = content_of(&json!({ "/metadata/annotations": annotations }));
    assert_eq!(decide(&unsaid, None), Content::Wait(None), "the snapshot-controller says which one it is");
    let said = json!({ "/metadata/annotations": annotations, "/spec/volumeSnapshotClassName": null,
        "/status": { "snapshotHandle": "snap-1", "volumeGroupSnapshotHandle": "g", "readyToUse": false } });
    let said = content_of(&said);
    assert_eq!(decide_with(&said, None, |seen| seen.awaits_group = true), Content::Wait(None));
    let spec = made(&decide_with(&said, None, |seen| seen.class = None)).spec;
    assert_eq!((spec.snapshot_handle.as_deref(), spec.volume_name), (Some("snap-1"), None));
}
