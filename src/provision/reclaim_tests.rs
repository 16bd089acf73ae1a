use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "d.example.com";

fn pv(more: &Value) -> PersistentVolume {
    let mut whole = json!({
        "metadata": { "name": "pvc-1", "annotations": { PROVISIONED_BY: DRIVER }, "finalizers": [FINALIZER] },
        "spec": { "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } },
        "status": { "phase": "Released" },
    });
    for (path, value) in more.as_object().unwrap() {
        let (parent, key) = path.rsplit_once('/').unwrap();
        whole.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

fn ends(more: &Value) -> Option<(ReclaimPolicy, bool)> {
    Ends::of(&pv(more), |driver| driver == DRIVER).map(|ends| (ends.policy, ends.deleted))
}

#[test]
fn it_ends_when_nobody_claims_it_and_its_policy_or_somebody_says_so() {
    use ReclaimPolicy::{Delete, Retain};
    let deleted = json!("2025-01-01T00:00:00Z");
    for (phase, policy, is_deleted, expected) in [
        ("Bound", "Delete", false, None),
        ("Bound", "Delete", true, None),
        ("Bound", "Retain", true, None),
        ("Available", "Delete", false, None),
        ("Available", "Delete", true, Some((Delete, true))),
        ("Pending", "Delete", true, None),
        ("Released", "Delete", false, Some((Delete, false))),
        ("Released", "Delete", true, Some((Delete, true))),
        ("Released", "Retain", false, None),
        ("Released", "Retain", true, Some((Retain, true))),
        ("Released", "Recycle", false, None),
        ("Released", "Sometimes", true, None),
        ("Failed", "Delete", false, None),
        ("Failed", "Delete", true, Some((Delete, true))),
    ] {
        let mut more = json!({ "/status/phase": phase, "/spec/persistentVolumeReclaimPolicy": policy });
        if is_deleted {
            more["/metadata/deletionTimestamp"] = deleted.clone();
        }
        assert_eq!(ends(&more), expected, "{phase} {policy} {is_deleted}");
    }
}

#[test]
fn what_somebody_else_has_made_is_not_touched() {
    for more in [
        json!({ "/metadata/annotations": { PROVISIONED_BY: "other" } }),
        json!({ "/metadata/annotations": { PROVISIONED_BY: "" } }),
        json!({ "/spec/csi/driver": "other" }),
        json!({ "/spec/csi/driver": "other", "/metadata/annotations": { PROVISIONED_BY: "other" } }),
        json!({ "/spec/csi": null }),
        json!({ "/metadata/deletionTimestamp": "2025-01-01T00:00:00Z", "/metadata/finalizers": ["mine"] }),
    ] {
        assert_eq!(ends(&more), None, "{more}");
    }
    assert!(Ends::of(&pv(&json!({})), |_| false).is_none());
}

#[test]
fn one_that_somebody_has_written_by_hand_ends_like_any_other() {
    let more =
        json!({ "/metadata/annotations": null, "/metadata/finalizers": null, "/metadata/name": "data" });
    let ends = Ends::of(&pv(&more), |driver| driver == DRIVER).unwrap();
    let expected = Ends { policy: ReclaimPolicy::Delete, deleted: false, held: false };
    assert_eq!(ends, expected);
    // Somebody deletes it, and nothing has kept it: it is gone, and its storage stays.
    let gone = json!({ "/metadata/finalizers": [], "/metadata/deletionTimestamp": "2025-01-01T00:00:00Z" });
    assert!(Ends::of(&pv(&gone), |_| true).is_none());
}

#[test]
fn one_in_use_whose_storage_is_to_go_is_held() {
    let is = |more: Value| {
        let mut whole = json!({ "/status/phase": "Bound", "/metadata/finalizers": ["other"] });
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        is_to_be_held(&pv(&whole), |driver| driver == DRIVER)
    };
    assert!(is(json!({})) && is(json!({ "/metadata/annotations": null })));
    for more in [
        json!({ "/metadata/finalizers": [FINALIZER] }),
        json!({ "/metadata/deletionTimestamp": "2025-01-01T00:00:00Z" }),
        json!({ "/spec/persistentVolumeReclaimPolicy": "Retain" }),
        json!({ "/status/phase": "Available" }),
        json!({ "/spec/csi/driver": "other" }),
        json!({ "/metadata/annotations": { PROVISIONED_BY: "other" } }),
    ] {
        assert!(!is(more.clone()), "{more}");
    }
}

const NAME: &str = "pvc-1";

fn volume(change: &Value) -> Volume {
    let mut whole = json!({
        "metadata": { "name": NAME, "namespace": "moor", "uid": "v" },
        "spec": { "pluginName": "p", "capacity": "1Gi", "deletionPolicy": "Retain" },
        "status": { "state": "Ready", "lastError": { "rpc": "DeleteVolume", "code": "Internal", "message": "broken" } },
    });
    for (path, value) in change.as_object().unwrap() {
        let (parent, key) = path.rsplit_once('/').unwrap();
        whole.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

/// A Volume with this policy, that is being deleted or not. One that goes with its storage does so for `NAME`.
fn with(policy: &str, going: bool) -> Volume {
    let mut change = json!({ "/spec/deletionPolicy": policy });
    if going {
        change["/metadata/deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
    }
    if going && policy == "Delete" {
        change["/spec/reclaimedFor"] = json!(NAME);
    }
    volume(&change)
}

fn kept(volume: &Volume) -> VolumeNow<'_> {
    VolumeNow::Kept { volume, callable: true }
}

#[test]
fn the_storage_goes_first_and_the_object_after_it() {
    use ReclaimPolicy::{Delete, Retain};
    let (fresh, half, going) = (with("Retain", false), with("Delete", false), with("Delete", true));
    let by_hand = with("Retain", true);
    let delete = || Reclaim::DeleteVolume(DeletionPolicy::Delete);
    let retain = || Reclaim::DeleteVolume(DeletionPolicy::Retain);
    let away = |deleted| if deleted { Reclaim::Free } else { Reclaim::DeletePersistentVolume };
    for deleted in [false, true] {
        let of = |policy| Ends { policy, deleted, held: true };
        for (policy, volume, has_other, expected) in [
            (Delete, kept(&fresh), false, delete()),
            (Delete, kept(&half), false, delete()),
            (Delete, kept(&going), false, Reclaim::Wait(Some("DeleteVolume: Internal: broken".into()))),
            // Somebody deleted the Volume by hand, and it waits.
            (Delete, kept(&by_hand), false, delete()),
            (Delete, VolumeNow::Gone, false, away(deleted)),
            // Nobody has taken the storage up yet.
            (Delete, VolumeNow::Absent, false, Reclaim::Import),
            (Delete, VolumeNow::BeingMade, false, Reclaim::Wait(None)),
            (Retain, VolumeNow::BeingMade, false, Reclaim::Wait(None)),
            // The last one decides.
            (Delete, kept(&fresh), true, away(deleted)),
            (Retain, kept(&fresh), true, away(deleted)),
            (Retain, kept(&fresh), false, retain()),
            (Retain, kept(&half), false, retain()),
            (Retain, kept(&by_hand), false, away(deleted)),
            (Retain, VolumeNow::Gone, false, away(deleted)),
            (Retain, VolumeNow::Absent, false, away(deleted)),
            (Retain, VolumeNow::OfUsers(&fresh), false, away(deleted)),
        ] {
            let found = reclaim(NAME, of(policy), volume, has_other);
            assert_eq!(found, expected, "{policy:?} {volume:?} {has_other} {deleted}");
        }
    }
}

/// Else two that end at once would both be gone before either has found out that it is the last.
#[test]
fn it_is_held_before_anything_else() {
    let fresh = with("Retain", false);
    let ends = Ends { policy: ReclaimPolicy::Delete, deleted: false, held: false };
    for (volume, has_other) in [(kept(&fresh), false), (kept(&fresh), true), (VolumeNow::Absent, false)] {
        assert_eq!(reclaim(NAME, ends, volume, has_other), Reclaim::Hold);
    }
}

/// DeleteVolume is ordered of what is locked, at somebody who can call it.
#[test]
fn an_imported_volume_is_ready_before_it_is_deleted() {
    let ends = Ends { policy: ReclaimPolicy::Delete, deleted: false, held: true };
    let import = |change: Value| {
        let mut whole =
            json!({ "/spec/capacity": null, "/spec/volumeHandle": "vol-1", "/status/lastError": null });
        whole.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        volume(&whole)
    };
    let of = |volume: &Volume, callable| reclaim(NAME, ends, VolumeNow::Kept { volume, callable }, false);
    let ready = import(json!({}));
    assert_eq!(of(&ready, true), Reclaim::DeleteVolume(DeletionPolicy::Delete));
    assert!(matches!(of(&ready, false), Reclaim::Refuse(said) if said.contains("Controller service")));
    assert_eq!(of(&import(json!({ "/status": null })), true), Reclaim::Wait(None));
    // What keeps it from being taken up is said, and what comes by itself is not.
    let waits = |reason: &str| {
        let condition = json!({ "type": "Ready", "status": "False", "reason": reason, "message": "words",
            "lastTransitionTime": "2025-01-01T00:00:00Z" });
        of(&import(json!({ "/status": { "state": "Pending", "conditions": [condition] } })), true)
    };
    assert_eq!(waits("NoInstance"), Reclaim::Wait(Some("words".into())));
    assert_eq!(waits("Creating"), Reclaim::Wait(None));
    // Somebody has deleted it by hand, without its storage: that comes to an end first.
    let going = import(json!({ "/metadata/deletionTimestamp": "2025-01-01T00:00:00Z" }));
    assert_eq!(of(&going, true), Reclaim::Wait(None));
}

/// Whoever may write PersistentVolumes can write one with the handle of any Volume.
#[test]
fn the_volume_of_a_user_is_his_to_delete() {
    let fresh = with("Retain", false);
    let ends = Ends { policy: ReclaimPolicy::Delete, deleted: true, held: true };
    let said = reclaim(NAME, ends, VolumeNow::OfUsers(&fresh), false);
    assert!(matches!(&said, Reclaim::Refuse(words) if words.contains("moor/pvc-1")), "{said:?}");
}
