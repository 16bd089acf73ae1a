use serde_json::{Value, json};

use super::*;
use crate::api::snapshot::{SnapshotAssignment, SnapshotOf};

const SIZE: i64 = 1 << 30;

/// A claim, a VolumeSnapshot, its content, and what moor has made for that: all as they should be.
struct Case {
    claim: Value,
    snapshot: Value,
    content: Value,
    kept: Option<Snapshot>,
    is_defined: bool,
}

impl Case {
    fn new() -> Self {
        let mut kept = Snapshot::default();
        kept.metadata.name = Some("content-c".into());
        let of = SnapshotOf { uid: "c".into(), ..SnapshotOf::default() };
        kept.spec.volume_snapshot_content = Some(of);
        let assignment =
            SnapshotAssignment { snapshot_handle: Some("snap-1".into()), ..SnapshotAssignment::default() };
        kept.spec.assignment = Some(assignment);
        let status = kept.status.get_or_insert_default();
        (status.state, status.restore_size_bytes) = (SnapshotState::Ready, Some(SIZE));
        Self {
            claim: json!({ "metadata": {}, "spec": { "volumeMode": "Filesystem" } }),
            snapshot: json!({ "metadata": { "name": "s", "namespace": "team", "uid": "s-uid" },
                "spec": {}, "status": { "boundVolumeSnapshotContentName": "sc" } }),
            content: json!({ "metadata": { "name": "sc", "uid": "c" },
                "spec": { "driver": "d", "sourceVolumeMode": "Filesystem", "source": { "volumeHandle": "v" },
                    "volumeSnapshotRef": { "name": "s", "namespace": "team", "uid": "s-uid" } },
                "status": { "readyToUse": true, "snapshotHandle": "snap-1", "restoreSize": SIZE } }),
            kept: Some(kept),
            is_defined: true,
        }
    }

    fn judged(&self) -> Restored {
        let claim: PersistentVolumeClaim = serde_json::from_value(self.claim.clone()).unwrap();
        let snapshot: Option<VolumeSnapshot> = serde_json::from_value(self.snapshot.clone()).unwrap();
        let content: Option<VolumeSnapshotContent> = serde_json::from_value(self.content.clone()).unwrap();
        let now = RestoreNow {
            is_defined: self.is_defined,
            snapshot: snapshot.as_ref(),
            content: content.as_ref(),
            kept: self.kept.as_ref(),
        };
        restored(&claim, "s", now, "d", SIZE)
    }
}

fn after(change: impl FnOnce(&mut Case)) -> Restored {
    let mut case = Case::new();
    change(&mut case);
    case.judged()
}

#[test]
fn a_volume_is_made_of_what_moor_has_made_for_the_content() {
    assert_eq!(Case::new().judged(), Restored::From("content-c".into()));
    // The driver has not said how much is needed.
    let unsized_one = after(|case| {
        case.content["status"]["restoreSize"] = json!(null);
        case.kept.as_mut().unwrap().status.as_mut().unwrap().restore_size_bytes = None;
    });
    assert_eq!(unsized_one, Restored::From("content-c".into()));
}

#[test]
fn what_is_not_there_yet_is_waited_for() {
    for (words, judged) in [
        ("no such kind", after(|case| case.is_defined = false)),
        ("does not exist", after(|case| case.snapshot = json!(null))),
        (
            "is being deleted",
            after(|case| case.snapshot["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z")),
        ),
        ("not bound", after(|case| case.snapshot["status"] = json!(null))),
        ("not bound", after(|case| case.content = json!(null))),
        ("not bound", after(|case| case.content["spec"]["volumeSnapshotRef"]["uid"] = json!(""))),
        ("not ready to use", after(|case| case.content["status"]["readyToUse"] = json!(false))),
        ("not ready to use", after(|case| case.kept = None)),
        (
            "not ready to use",
            after(|case| case.kept.as_mut().unwrap().status.as_mut().unwrap().state = SnapshotState::Pending),
        ),
        (
            "not ready to use: no room",
            after(|case| {
                case.content["status"] = json!({ "readyToUse": false, "error": { "message": "no room" } });
            }),
        ),
    ] {
        match judged {
            Restored::Waits(why) => assert!(why.to_string().contains(words), "{why}"),
            other => panic!("{words}: {other:?}"),
        }
    }
}

/// What a VolumeSnapshot says of a content is a user's word, and what another content says of it is nobody's.
#[test]
fn what_is_not_bound_both_ways_is_not_restored() {
    for (field, value) in [("uid", "other"), ("name", "other"), ("namespace", "theirs")] {
        let judged = after(|case| case.content["spec"]["volumeSnapshotRef"][field] = json!(value));
        let Restored::Refused(refused) = judged else { panic!("{field}: {judged:?}") };
        assert!(
            refused.to_string().contains("names VolumeSnapshotContent sc, and that is not for it"),
            "{refused}"
        );
        assert!(!refused.to_string().contains("theirs"), "whose it is is nothing for this namespace");
    }
    // The Snapshot of the name was made for another content, or a user has made it.
    let judged = after(|case| case.kept.as_mut().unwrap().spec.volume_snapshot_content = None);
    assert!(matches!(judged, Restored::Waits(RestoreWaits::NotReady(..))), "{judged:?}");
}

#[test]
fn what_cannot_be_restored_so_is_refused() {
    let refused = |judged: Restored| match judged {
        Restored::Refused(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let other = refused(after(|case| case.content["spec"]["driver"] = json!("other")));
    assert!(other.contains("is of other, and only d"), "{other}");
    let larger = refused(after(|case| case.content["status"]["restoreSize"] = json!(SIZE + 1)));
    assert!(larger.contains("VolumeSnapshot s needs"), "{larger}");
    let by_snapshot = after(|case| {
        case.kept.as_mut().unwrap().status.as_mut().unwrap().restore_size_bytes = Some(2 * SIZE);
    });
    assert!(refused(by_snapshot).contains("needs 2Gi"));
    let block = |case: &mut Case| case.claim["spec"]["volumeMode"] = json!("Block");
    assert!(refused(after(block)).contains("allow-volume-mode-change"));
    let allowed = after(|case| {
        block(case);
        let key = "snapshot.storage.kubernetes.io/allow-volume-mode-change";
        case.content["metadata"]["annotations"] = json!({ key: "true" });
    });
    assert_eq!(allowed, Restored::From("content-c".into()));
    // Nobody has said which mode it is of.
    let unknown = after(|case| {
        block(case);
        case.content["spec"]["sourceVolumeMode"] = json!(null);
    });
    assert_eq!(unknown, Restored::From("content-c".into()));
}

#[test]
fn a_place_has_a_snapshot_that_is_to_be_reached_from_there_alone() {
    let mut kept = Case::new().kept.unwrap();
    let place = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
    assert!(!is_at(&kept, &place("a")), "it is everywhere, or nobody knows");
    let assignment = kept.spec.assignment.as_mut().unwrap();
    assignment.accessible_topology = vec![crate::api::volume::Segments { segments: place("a") }];
    assert!(is_at(&kept, &place("a")) && !is_at(&kept, &place("b")));
}
