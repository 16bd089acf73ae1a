use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "d.example.com";

fn pv(more: &Value) -> PersistentVolume {
    let mut whole = json!({
        "metadata": { "name": "pvc-1", "annotations": { PROVISIONED_BY: DRIVER }, "finalizers": [FINALIZER] },
        "spec": { "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": DRIVER, "volumeHandle": "vol-1",
            "volumeAttributes": { IDENTITY: "moor-d.example.com" } } },
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
        json!({ "/metadata/annotations": {} }),
        json!({ "/metadata/annotations": { PROVISIONED_BY: "other" } }),
        json!({ "/spec/csi/driver": "other" }),
        json!({ "/spec/csi/driver": "other", "/metadata/annotations": { PROVISIONED_BY: "other" } }),
        json!({ "/spec/csi": null }),
        json!({ "/metadata/deletionTimestamp": "2025-01-01T00:00:00Z", "/metadata/finalizers": ["mine"] }),
    ] {
        assert_eq!(ends(&more), None, "{more}");
    }
    assert!(Ends::of(&pv(&json!({})), |_| false).is_none());
}

fn volume(policy: &str, going: bool) -> Volume {
    let mut metadata = json!({ "name": "pvc-1", "namespace": "moor", "uid": "v" });
    if going {
        metadata["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
    }
    let status = json!({ "lastError": { "rpc": "DeleteVolume", "code": "Internal", "message": "broken" } });
    let spec = json!({ "pluginName": "p", "capacity": "1Gi", "deletionPolicy": policy });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

#[test]
fn the_storage_goes_first_and_the_object_after_it() {
    use ReclaimPolicy::{Delete, Retain};
    let (fresh, half, going) = (volume("Retain", false), volume("Delete", false), volume("Delete", true));
    let kept = volume("Retain", true);
    let delete = || Reclaim::DeleteVolume(DeletionPolicy::Delete);
    let retain = || Reclaim::DeleteVolume(DeletionPolicy::Retain);
    let away = |deleted| if deleted { Reclaim::Free } else { Reclaim::DeletePersistentVolume };
    for deleted in [false, true] {
        let of = |policy| Ends { policy, deleted, made_here: true };
        for (policy, volume, has_other, expected) in [
            (Delete, VolumeNow::There(&fresh), false, delete()),
            (Delete, VolumeNow::There(&half), false, delete()),
            (
                Delete,
                VolumeNow::There(&going),
                false,
                Reclaim::Wait(Some("DeleteVolume: Internal: broken".into())),
            ),
            // Somebody deleted the Volume by hand, and it waits.
            (Delete, VolumeNow::There(&kept), false, delete()),
            (Delete, VolumeNow::Gone, false, away(deleted)),
            // The last one decides.
            (Delete, VolumeNow::There(&fresh), true, away(deleted)),
            (Retain, VolumeNow::There(&fresh), true, away(deleted)),
            (Retain, VolumeNow::There(&fresh), false, retain()),
            (Retain, VolumeNow::There(&half), false, retain()),
            (Retain, VolumeNow::There(&kept), false, away(deleted)),
            (Retain, VolumeNow::Gone, false, away(deleted)),
            (Retain, VolumeNow::Removed, false, away(deleted)),
            (Retain, VolumeNow::OfUsers(&fresh), false, away(deleted)),
        ] {
            let found = reclaim(of(policy), volume, has_other);
            assert_eq!(found, expected, "{policy:?} {volume:?} {has_other} {deleted}");
        }
    }
}

/// Nothing may be dropped of whose storage nobody knows that it is gone.
#[test]
fn storage_that_nobody_has_deleted_keeps_its_persistent_volume() {
    let fresh = volume("Retain", false);
    for (made_here, volume, words) in [
        (false, VolumeNow::Gone, "another provisioner"),
        (true, VolumeNow::Removed, "removed by force"),
        (true, VolumeNow::OfUsers(&fresh), "moor/pvc-1"),
    ] {
        let ends = Ends { policy: ReclaimPolicy::Delete, deleted: true, made_here };
        assert!(
            matches!(reclaim(ends, volume, false), Reclaim::Refuse(said) if said.contains(words)),
            "{words}"
        );
    }
}
