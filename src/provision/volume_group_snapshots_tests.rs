use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::content::{Content, Seen, SourceVolume, content};
use super::super::request::Served;
use super::*;
use crate::api::Volume;
use crate::api::snapshot::SnapshotMember;

const DRIVER: &str = "d.example.com";

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn group(spec: &Value, more: &Value) -> VolumeGroupSnapshotContent {
    let mut whole = json!({
        "metadata": { "name": "groupsnapcontent-g", "uid": "c",
            "finalizers": [VolumeGroupSnapshotContent::WORDS.finalizer] },
        "spec": { "driver": DRIVER, "deletionPolicy": "Delete", "volumeGroupSnapshotClassName": "cold",
            "source": { "volumeHandles": ["vol-1", "vol-2"] },
            "volumeGroupSnapshotRef": { "name": "g", "namespace": "team", "uid": "g-uid" } },
    });
    for (into, from) in [("spec", spec), ("metadata", &more["metadata"])] {
        for (key, value) in from.as_object().into_iter().flatten() {
            whole[into][key] = value.clone();
        }
    }
    whole["status"] = more["status"].clone();
    serde_json::from_value(whole).unwrap()
}

fn ending() -> Value {
    json!({ "deletionTimestamp": "2025-01-01T00:00:00Z",
        "annotations": { VolumeGroupSnapshotContent::WORDS.being_deleted: "yes" } })
}

fn decide_with(
    of: &VolumeGroupSnapshotContent,
    snapshot: Option<&Snapshot>,
    volumes: Vec<SourceVolume<'_>>,
    has_members: bool,
) -> Content<GroupContentStatus> {
    let driver = Served {
        secrets: None,
        plugin: "plugin",
        name: DRIVER,
        places: &[],
        has_topology: Some(false),
        modifies: false,
        clones: false,
        extra_create_metadata: true,
        default_fs_type: None,
        strict_topology: false,
        is_local: false,
    };
    let class: VolumeGroupSnapshotClass = serde_json::from_value(json!({ "metadata": {}, "driver": DRIVER,
        "parameters": { "tier": "cold",
            "csi.storage.k8s.io/group-snapshotter-get-secret-name": "of-${volumegroupsnapshotcontent.name}",
            "csi.storage.k8s.io/group-snapshotter-get-secret-namespace": "keys" } }))
    .unwrap();
    let seen = Seen {
        content: of,
        driver: &driver,
        class: Some(&class),
        volumes,
        snapshot,
        is_source_gone: false,
        has_members,
        awaits_group: false,
        ordered: false,
        not_allowed: None,
        namespace: "moor",
    };
    content(&seen, &at(1000))
}

fn made(step: Content<GroupContentStatus>) -> Snapshot {
    match step {
        Content::Make(snapshot) => *snapshot,
        other => panic!("{other:?}"),
    }
}

fn volumes() -> [Volume; 2] {
    ["pvc-1", "pvc-2"].map(|name| {
        let mut volume = Volume::default();
        volume.metadata.name = Some(name.into());
        volume
    })
}

/// What was made for the content, and has come so far.
fn kept(state: SnapshotState) -> Snapshot {
    let [one, other] = volumes();
    let both = vec![SourceVolume::Kept(&one), SourceVolume::Kept(&other)];
    let mut snapshot = made(decide_with(&group(&json!({}), &json!({})), None, both, false));
    let ids = [("vol-1", "snap-1"), ("vol-2", "snap-2")];
    let member = |(of, id): (&str, &str)| SnapshotMember {
        volume_handle: Some(of.into()),
        snapshot_handle: id.into(),
    };
    snapshot.spec.assignment = Some(SnapshotAssignment {
        snapshot_handle: Some("group-1".into()),
        members: ids.into_iter().map(member).collect(),
        ..SnapshotAssignment::default()
    });
    let said = |(of, id): (&str, &str)| MemberStatus {
        volume_handle: Some(of.into()),
        snapshot_handle: id.into(),
        restore_size_bytes: Some(5),
        ready_to_use: state == SnapshotState::Ready,
    };
    let status = snapshot.status.get_or_insert_default();
    (status.state, status.creation_time) = (state, Some(at(7)));
    status.members = ids.into_iter().map(said).collect();
    snapshot
}

#[test]
fn a_group_is_taken_of_all_its_volumes_under_the_name_that_csi_snapshotter_gives() {
    let spec = kept(SnapshotState::Pending).spec;
    assert_eq!((spec.volume_name, spec.volume_names), (None, vec!["pvc-1".to_owned(), "pvc-2".into()]));
    assert_eq!(spec.create_name.as_deref(), Some("groupsnapshot-g-uid"));
    assert_eq!(spec.deletion_policy, Some(DeletionPolicy::Retain), "until the content ends");
    let of = spec.volume_snapshot_content.unwrap();
    assert_eq!(of.list_secret.as_deref(), Some("keys/of-groupsnapcontent-g"));
    let told = |key: &str, value: &str| (format!("csi.storage.k8s.io/{key}"), value.to_owned());
    let parameters = BTreeMap::from([
        ("tier".to_owned(), "cold".to_owned()),
        told("volumegroupsnapshot/name", "g"),
        told("volumegroupsnapshot/namespace", "team"),
        told("volumegroupsnapshotcontent/name", "groupsnapcontent-g"),
    ]);
    assert_eq!(spec.parameters, parameters);
}

#[test]
fn what_keeps_a_group_from_being_taken_names_the_volume() {
    let [one, other] = volumes();
    let content = group(&json!({}), &json!({}));
    let told = |second| {
        let both = vec![SourceVolume::Kept(&one), second];
        match decide_with(&content, None, both, false) {
            Content::Say(status) => status.error.unwrap().message.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    for (second, words) in [
        (SourceVolume::Nobody, "no PersistentVolume stands for volume vol-2"),
        (SourceVolume::BeingMade, "volume vol-2 is still being made"),
        (SourceVolume::OfUsers(&other), "Volume /pvc-2 has the volume"),
    ] {
        let told = told(second);
        assert!(told.starts_with(words), "{told}");
    }
    let both = vec![SourceVolume::NotTakenUp, SourceVolume::Kept(&other)];
    assert_eq!(decide_with(&content, None, both, false), Content::TakeUp);
    let unbound = json!({ "volumeGroupSnapshotRef": { "name": "g", "namespace": "team" } });
    let Content::Say(status) = decide_with(&group(&unbound, &json!({})), None, Vec::new(), false) else {
        panic!("it says so")
    };
    let words = status.error.unwrap().message.unwrap();
    assert_eq!(words, "spec.volumeGroupSnapshotRef: the content is bound to no VolumeGroupSnapshot yet");
}

#[test]
fn the_content_says_its_members_once_they_are_known_to_be_its_own() {
    let empty = group(&json!({}), &json!({}));
    let begun = json!({ "volumeGroupSnapshotHandle": "group-1", "creationTime": "1970-01-01T00:00:07Z",
        "readyToUse": false });
    let status = empty.says(&kept(SnapshotState::Created), &at(9));
    assert_eq!(serde_json::to_value(&status).unwrap(), begun, "the members are made when all are ready");
    let told = VolumeGroupSnapshotContent { status: Some(status), ..empty.clone() };
    let mut snapshot = kept(SnapshotState::Ready);
    let stranger = MemberStatus { snapshot_handle: "victim".into(), ..MemberStatus::default() };
    snapshot.status.as_mut().unwrap().members.push(stranger);
    let info = |n: u8| {
        json!({ "volumeHandle": format!("vol-{n}"), "snapshotHandle": format!("snap-{n}"),
            "creationTime": 7_000_000_000_i64, "readyToUse": true, "restoreSize": 5 })
    };
    let said = json!({ "volumeGroupSnapshotHandle": "group-1", "creationTime": "1970-01-01T00:00:07Z",
        "readyToUse": true, "volumeSnapshotInfoList": [info(1), info(2)] });
    assert_eq!(serde_json::to_value(told.says(&snapshot, &at(99))).unwrap(), said);
    // An agent says so, and nobody has looked whose it is.
    let mut unknown = kept(SnapshotState::Ready);
    unknown.spec.assignment.as_mut().unwrap().snapshot_handle = None;
    let unready = GroupContentStatus { ready_to_use: Some(false), ..GroupContentStatus::default() };
    assert_eq!(empty.says(&unknown, &at(9)), unready);
}

#[test]
fn a_group_that_exists_is_registered_with_its_members() {
    let handles = json!({ "volumeGroupSnapshotHandle": "group-9", "volumeSnapshotHandles": ["a", "b"] });
    let given = group(&json!({ "source": { "groupSnapshotHandles": handles } }), &json!({}));
    let spec = made(decide_with(&given, None, Vec::new(), false)).spec;
    assert_eq!(spec.snapshot_handle.as_deref(), Some("group-9"));
    assert_eq!(spec.member_handles, ["a", "b"]);
    // Whoever was csi-snapshotter before has taken it.
    let info = json!([{ "volumeHandle": "vol-1", "snapshotHandle": "a" }]);
    let status = json!({ "volumeGroupSnapshotHandle": "group-9", "readyToUse": true,
        "volumeSnapshotInfoList": info });
    let taken = group(&json!({}), &json!({ "status": status }));
    assert_eq!(made(decide_with(&taken, None, Vec::new(), false)).spec.member_handles, ["a"]);
}

#[test]
fn a_group_ends_after_what_stands_for_its_members() {
    let status = json!({ "volumeGroupSnapshotHandle": "group-1", "readyToUse": true });
    let ends = group(&json!({}), &json!({ "metadata": ending(), "status": status }));
    let ready = kept(SnapshotState::Ready);
    assert_eq!(decide_with(&ends, Some(&ready), Vec::new(), true), Content::DeleteMembers);
    let policy = DeletionPolicy::Delete;
    assert_eq!(decide_with(&ends, Some(&ready), Vec::new(), false), Content::DeleteSnapshot(policy));
    let mut ordered = ready.clone();
    ordered.metadata.deletion_timestamp = Some(at(9));
    ordered.spec.deletion_policy = Some(policy);
    assert_eq!(decide_with(&ends, Some(&ordered), Vec::new(), true), Content::DeleteMembers, "made since");
    assert_eq!(decide_with(&ends, Some(&ordered), Vec::new(), false), Content::Wait(None));
    let retained = group(&json!({ "deletionPolicy": "Retain" }), &json!({ "metadata": ending() }));
    let leaves = Content::DeleteSnapshot(DeletionPolicy::Retain);
    assert_eq!(decide_with(&retained, Some(&ready), Vec::new(), true), leaves);
    // Without its members it cannot be deleted, and nobody knows any more which these are.
    let Content::Say(status) = decide_with(&ends, None, Vec::new(), false) else { panic!("it says so") };
    let words = status.error.unwrap().message.unwrap();
    assert!(words.starts_with("nothing says which members the group group-1 has"), "{words}");
}
