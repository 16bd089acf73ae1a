use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;

const PV: &str = "moor-v-uid";

/// A Volume that is Ready and to be exported as `data`.
fn volume(change: impl FnOnce(&mut Value)) -> Volume {
    let mut whole = json!({
        "metadata": { "name": "files", "namespace": "team", "uid": "v-uid" },
        "spec": { "pluginName": "p", "capacity": "1Gi", "persistentVolumeClaim": { "name": "data" },
            "capabilities": [{ "accessMode": "SingleNodeWriter", "attachmentMode": "FileSystem" }] },
        "status": { "state": "Ready", "volumeHandle": "vol-1", "capacityBytes": 1_073_741_824 },
    });
    change(&mut whole);
    serde_json::from_value(whole).unwrap()
}

/// As [`volume`], with what is recorded of its export.
fn exported(uid: Option<&str>, change: impl FnOnce(&mut Value)) -> Volume {
    volume(|whole| {
        let mut export = json!({ "persistentVolumeClaim": "data", "persistentVolume": PV });
        if let Some(uid) = uid {
            export["persistentVolumeUID"] = uid.into();
        }
        whole["status"]["export"] = export;
        change(whole);
    })
}

fn ending(whole: &mut Value) {
    whole["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
}

fn seen(volume: &Volume) -> Seen<'_> {
    Seen {
        volume,
        own_namespace: "moor",
        driver: Some("d"),
        volume_handle: Some("vol-1"),
        used_by: None,
        claim: None,
        persistent: None,
    }
}

/// The two objects as the plan makes them, with UIDs and bound to each other.
fn made() -> (PersistentVolumeClaim, PersistentVolume) {
    let none = exported(None, |_| {});
    let Export::MakePersistentVolume(mut persistent) = export(&seen(&none)) else { panic!() };
    persistent.metadata.uid = Some("pv-uid".into());
    let recorded = exported(Some("pv-uid"), |_| {});
    let plan = export(&Seen { persistent: Some(&*persistent), ..seen(&recorded) });
    let Export::MakeClaim(mut claim) = plan else { panic!("{plan:?}") };
    claim.metadata.uid = Some("pvc-uid".into());
    persistent.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("pvc-uid".into());
    (*claim, *persistent)
}

fn in_phase(persistent: &PersistentVolume, phase: &str) -> PersistentVolume {
    let status = json!({ "phase": phase });
    PersistentVolume { status: serde_json::from_value(status).unwrap(), ..persistent.clone() }
}

fn says(plan: Export) -> (Reason, String) {
    match plan {
        Export::Say(desired) => (desired.reason, desired.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_volume_that_is_not_to_be_exported_is_left_alone() {
    let plain = volume(|whole| drop(whole["spec"].as_object_mut().unwrap().remove("persistentVolumeClaim")));
    assert_eq!(export(&seen(&plain)), Export::Nothing);
    assert!(!concerns(&plain) && concerns(&volume(|_| {})));
    let deleted = volume(ending);
    assert_eq!(export(&seen(&deleted)), Export::Nothing, "nothing was made");
}

/// Each step is found by what is there, so whoever leads next goes on.
#[test]
fn one_step_follows_the_other() {
    let new = volume(|_| {});
    let intent = Exported {
        persistent_volume_claim: "data".into(),
        persistent_volume: PV.into(),
        persistent_volume_uid: None,
    };
    assert_eq!(export(&seen(&new)), Export::Record(intent.clone()));
    let (claim, persistent) = made();
    // Made by a leader that could not write it down.
    let unrecorded = exported(None, |_| {});
    let recorded = Exported { persistent_volume_uid: Some("pv-uid".into()), ..intent };
    let there = Seen { persistent: Some(&persistent), ..seen(&unrecorded) };
    assert_eq!(export(&there), Export::Record(recorded));
    let all = exported(Some("pv-uid"), |_| {});
    let done = Seen { claim: Some(&claim), persistent: Some(&persistent), ..seen(&all) };
    let (reason, words) = says(export(&done));
    assert!(reason == Reason::Exported && words.contains("team/data") && words.contains(PV), "{words}");
}

#[test]
fn both_objects_are_whole() {
    let spec = |whole: &mut Value| {
        whole["spec"]["mountOptions"] = json!({ "fsType": "xfs", "mountFlags": ["noatime"] });
        whole["spec"]["secrets"] = json!({ "controller": "make", "nodeStage": "stage" });
        whole["spec"]["readOnly"] = true.into();
        whole["status"]["volumeContext"] = json!({ "a": "b" });
        whole["status"]["accessibleTopology"] = json!([{ "segments": { "zone": "a" } }]);
    };
    let none = exported(None, spec);
    let Export::MakePersistentVolume(persistent) = export(&seen(&none)) else { panic!() };
    let marks = json!({ "moor.dev/volume-uid": "v-uid", "moor.dev/volume": "team/files" });
    assert_eq!(
        serde_json::to_value(&persistent).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": PV, "annotations": marks },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "1Gi" },
                "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "team", "name": "data" },
                "csi": {
                    "driver": "d", "volumeHandle": "vol-1", "fsType": "xfs", "readOnly": true,
                    "volumeAttributes": { "a": "b" },
                    "nodeStageSecretRef": { "namespace": "team", "name": "stage" },
                },
                "mountOptions": ["noatime"],
                "nodeAffinity": { "required": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] }] } },
                "persistentVolumeReclaimPolicy": "Retain",
                "volumeMode": "Filesystem",
            },
        })
    );
    let (claim, _) = made();
    let spec = claim.spec.unwrap();
    assert_eq!(
        (claim.metadata.name.as_deref(), claim.metadata.namespace.as_deref()),
        (Some("data"), Some("team"))
    );
    assert_eq!((spec.storage_class_name.as_deref(), spec.volume_name.as_deref()), (Some(""), Some(PV)));
    assert_eq!(spec.resources.unwrap().requests.unwrap()["storage"].0, "1Gi");
}

#[test]
fn access_modes_are_those_that_the_volume_lists() {
    let modes = |listed: &[(&str, &str)]| {
        let listed: Vec<_> = listed
            .iter()
            .map(|(access, shown)| json!({ "accessMode": access, "attachmentMode": shown }))
            .collect();
        let volume = exported(None, |whole| whole["spec"]["capabilities"] = listed.into());
        match export(&seen(&volume)) {
            Export::MakePersistentVolume(made) => {
                let spec = made.spec.unwrap();
                Ok((spec.access_modes.unwrap().join(","), spec.volume_mode.unwrap()))
            }
            plan => Err(says(plan)),
        }
    };
    let (file, raw) = ("FileSystem", "BlockDevice");
    for (listed, expected, mode) in [
        (vec![("SingleNodeWriter", file)], "ReadWriteOnce", "Filesystem"),
        (vec![("SingleNodeSingleWriter", file)], "ReadWriteOncePod", "Filesystem"),
        (vec![("MultiNodeReader", file)], "ReadOnlyMany", "Filesystem"),
        // kubelet asks in the first one, and beside ReadWriteOncePod there is no other.
        (
            vec![("MultiNodeReader", file), ("SingleNodeWriter", file), ("MultiNodeMultiWriter", file)],
            "ReadWriteMany,ReadWriteOnce,ReadOnlyMany",
            "Filesystem",
        ),
        (vec![("SingleNodeWriter", file), ("SingleNodeSingleWriter", file)], "ReadWriteOnce", "Filesystem"),
        (vec![("SingleNodeSingleWriter", file), ("MultiNodeReader", file)], "ReadWriteOncePod", "Filesystem"),
        (vec![("SingleNodeWriter", raw)], "ReadWriteOnce", "Block"),
        (vec![("MultiNodeMultiWriter", raw), ("SingleNodeWriter", file)], "ReadWriteOnce", "Filesystem"),
    ] {
        let found = modes(&listed);
        assert_eq!(found, Ok((expected.to_owned(), mode.to_owned())), "{listed:?}");
    }
    let (reason, words) = modes(&[("SingleNodeReader", file)]).unwrap_err();
    assert!(reason == Reason::CannotExport && words.contains("spec.capabilities"), "{words}");
}

#[test]
fn what_is_missing_is_named_and_nothing_is_made() {
    type Change = fn(&mut Value);
    let cases: [(Change, Reason, &str); 3] = [
        (|whole| whole["metadata"]["namespace"] = "moor".into(), Reason::CannotExport, "namespace moor"),
        (
            |whole| whole["spec"]["secrets"] = json!({ "nodeStage": "theirs/key" }),
            Reason::CannotExport,
            "Secret of another namespace",
        ),
        (|whole| whole["status"]["state"] = "Pending".into(), Reason::ExportWaits, "not Ready"),
    ];
    for (change, reason, word) in cases {
        for volume in [volume(change), exported(None, change)] {
            let (said, words) = says(export(&seen(&volume)));
            assert!(said == reason && words.contains(word), "{words}");
        }
    }
    let volume = volume(|_| {});
    let (reason, words) = says(export(&Seen { driver: None, ..seen(&volume) }));
    assert!(reason == Reason::ExportWaits && words.contains("Plugin p"), "{words}");
    // What a status says of a handle is no lock.
    let (reason, _) = says(export(&Seen { volume_handle: None, ..seen(&volume) }));
    assert_eq!(reason, Reason::ExportWaits);
}

#[test]
fn what_others_have_made_is_not_touched() {
    let (own_claim, own_persistent) = made();
    let plain: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": "data", "namespace": "team", "uid": "theirs" }, "spec": { "volumeName": PV },
    }))
    .unwrap();
    let mut of_another = own_claim.clone();
    let marks = of_another.metadata.annotations.as_mut().unwrap();
    marks.insert("moor.dev/volume-uid".into(), "other-uid".into());
    marks.insert("moor.dev/volume".into(), "team/first".into());
    for (claim, word) in [(&plain, "not made for this Volume"), (&of_another, "Volume team/first")] {
        for volume in [volume(|_| {}), exported(None, |_| {}), exported(Some("pv-uid"), |_| {})] {
            let (reason, words) = says(export(&Seen { claim: Some(claim), ..seen(&volume) }));
            assert!(reason == Reason::ExportNameTaken && words.contains("team/data"), "{words}");
            assert!(words.contains(word), "{words}");
        }
        // Nor when the export ends.
        let volume = exported(Some("pv-uid"), ending);
        assert_eq!(export(&Seen { claim: Some(claim), ..seen(&volume) }), Export::End);
    }
    // A PersistentVolume under the name that is not marked, or not the one that was recorded.
    let mut foreign = own_persistent.clone();
    foreign.metadata.annotations = None;
    let mut other_storage = own_persistent.clone();
    other_storage.spec.as_mut().unwrap().csi.as_mut().unwrap().volume_handle = "vol-2".into();
    let mut other_namespace = own_persistent.clone();
    other_namespace.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().namespace = Some("theirs".into());
    for persistent in [&foreign, &other_storage, &other_namespace] {
        let begun = exported(None, |_| {});
        let (reason, words) = says(export(&Seen { persistent: Some(persistent), ..seen(&begun) }));
        assert!(reason == Reason::ExportNameTaken && words.contains(PV), "{words}");
        let ended = exported(None, ending);
        assert_eq!(export(&Seen { persistent: Some(persistent), ..seen(&ended) }), Export::End);
    }
    let recorded = exported(Some("before"), |_| {});
    let (reason, _) = says(export(&Seen { persistent: Some(&own_persistent), ..seen(&recorded) }));
    assert_eq!(reason, Reason::ExportNameTaken);
    let ended = exported(Some("before"), ending);
    assert_eq!(export(&Seen { persistent: Some(&own_persistent), ..seen(&ended) }), Export::End);
}

#[test]
fn what_was_removed_by_hand_is_made_anew() {
    let (claim, persistent) = made();
    let all = exported(Some("pv-uid"), |_| {});
    // The claim: first Kubernetes has to see it.
    let bound = in_phase(&persistent, "Bound");
    let (reason, _) = says(export(&Seen { persistent: Some(&bound), ..seen(&all) }));
    assert_eq!(reason, Reason::ExportWaits);
    let mut going = claim.clone();
    going.metadata.deletion_timestamp = some_time();
    let (reason, _) = says(export(&Seen { claim: Some(&going), persistent: Some(&bound), ..seen(&all) }));
    assert_eq!(reason, Reason::ExportWaits);
    let released = in_phase(&persistent, "Released");
    let Export::Change(free) = export(&Seen { persistent: Some(&released), ..seen(&all) }) else { panic!() };
    let claim_ref = free.spec.as_ref().unwrap().claim_ref.clone().unwrap();
    assert_eq!((claim_ref.uid, claim_ref.name.as_deref()), (None, Some("data")));
    let plan = export(&Seen { persistent: Some(&*free), ..seen(&all) });
    assert!(matches!(plan, Export::MakeClaim(_)), "{plan:?}");
    // The PersistentVolume: the one before is not recorded any more, then another one is made for the claim that is there.
    let plan = export(&Seen { claim: Some(&claim), ..seen(&all) });
    let Export::Record(Exported { persistent_volume_uid: None, .. }) = plan else { panic!("{plan:?}") };
    let none = exported(None, |_| {});
    let plan = export(&Seen { claim: Some(&claim), ..seen(&none) });
    let Export::MakePersistentVolume(anew) = plan else { panic!("{plan:?}") };
    assert_eq!(anew.spec.unwrap().claim_ref.unwrap().uid.as_deref(), Some("pvc-uid"));
}

fn some_time() -> Option<Time> {
    volume(ending).metadata.deletion_timestamp
}

#[test]
fn the_persistent_volume_follows_a_volume_that_has_grown() {
    let (claim, persistent) = made();
    let grown = exported(Some("pv-uid"), |whole| whole["status"]["capacityBytes"] = 2_147_483_648_u64.into());
    let both = Seen { claim: Some(&claim), persistent: Some(&persistent), ..seen(&grown) };
    let Export::Change(after) = export(&both) else { panic!() };
    assert_eq!(after.spec.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "2Gi");
    let (reason, _) = says(export(&Seen { persistent: Some(&*after), ..both }));
    assert_eq!(reason, Reason::Exported);
}

/// No Pod can mount it any more, and nobody can change it.
#[test]
fn a_persistent_volume_that_names_what_is_not_so_any_more_is_told() {
    let (claim, persistent) = made();
    let volume = exported(Some("pv-uid"), |_| {});
    let now = Seen { claim: Some(&claim), persistent: Some(&persistent), ..seen(&volume) };
    assert_eq!(says(export(&now)).0, Reason::Exported);
    let (reason, words) = says(export(&Seen { driver: Some("d.moor"), ..now.clone() }));
    assert_eq!(reason, Reason::ExportWaits);
    assert!(words.contains(PV) && words.contains("spec.csi.driver"), "{words}");
    let secret = |whole: &mut Value| whole["spec"]["secrets"] = json!({ "nodePublish": "another" });
    let changed = exported(Some("pv-uid"), secret);
    let (reason, words) = says(export(&Seen { volume: &changed, ..now }));
    assert_eq!(reason, Reason::ExportWaits);
    assert!(words.contains("spec.csi.nodePublishSecretRef"), "{words}");
}

#[test]
fn an_export_ends_behind_its_pods_and_leaves_nothing() {
    let (claim, persistent) = made();
    let unset =
        |whole: &mut Value| drop(whole["spec"].as_object_mut().unwrap().remove("persistentVolumeClaim"));
    let renamed = |whole: &mut Value| whole["spec"]["persistentVolumeClaim"]["name"] = "other".into();
    for end in [ending as fn(&mut Value), unset, renamed] {
        let volume = exported(Some("pv-uid"), end);
        assert_eq!(claim_of(&volume), Some("data"));
        let both = Seen { claim: Some(&claim), persistent: Some(&persistent), ..seen(&volume) };
        let used = Seen { used_by: Some("Pod team/web on node n".into()), ..both.clone() };
        let (reason, words) = says(export(&used));
        assert!(reason == Reason::ExportEnds && words.contains("Pod team/web"), "{words}");
        assert_eq!(export(&both), Export::DeleteClaim);
        let mut going = claim.clone();
        going.metadata.deletion_timestamp = some_time();
        let (reason, _) = says(export(&Seen { claim: Some(&going), ..both.clone() }));
        assert_eq!(reason, Reason::ExportEnds);
        let gone = Seen { claim: None, ..both.clone() };
        assert_eq!(export(&gone), Export::DeletePersistentVolume);
        // Somebody wants the storage to go with it, which is not up to it.
        let mut reclaimed = persistent.clone();
        reclaimed.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Delete".into());
        let Export::Change(kept) = export(&Seen { persistent: Some(&reclaimed), ..gone.clone() }) else {
            panic!()
        };
        assert_eq!(kept.spec.as_ref().unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
        let mut leaving = persistent.clone();
        leaving.metadata.deletion_timestamp = some_time();
        let (reason, _) = says(export(&Seen { persistent: Some(&leaving), ..gone.clone() }));
        assert_eq!(reason, Reason::ExportEnds);
        assert_eq!(export(&Seen { persistent: None, ..gone }), Export::End);
    }
    // What is said of it ends with it.
    let told = volume(|whole| {
        unset(whole);
        let said = json!({ "type": "Exported", "status": "False", "reason": "ExportWaits", "message": "",
            "lastTransitionTime": "2025-01-01T00:00:00Z" });
        whole["status"]["conditions"] = json!([said]);
    });
    assert_eq!(export(&seen(&told)), Export::End);
    assert!(concerns(&told));
}

/// A PersistentVolumeClaim of somebody else's has been bound to the PersistentVolume in the moment between the two.
#[test]
fn one_that_others_have_bound_is_left_until_they_are_done() {
    let (mut claim, persistent) = made();
    claim.metadata.annotations = None;
    let volume = exported(Some("pv-uid"), ending);
    let both = Seen { claim: Some(&claim), persistent: Some(&persistent), ..seen(&volume) };
    let (reason, words) = says(export(&both));
    assert!(reason == Reason::ExportEnds && words.contains("team/data"), "{words}");
}

#[test]
fn a_size_that_nobody_has_said_is_the_smallest() {
    let unknown = exported(None, |whole| {
        whole["spec"].as_object_mut().unwrap().remove("capacity");
        whole["spec"]["volumeHandle"] = "vol-1".into();
        whole["status"].as_object_mut().unwrap().remove("capacityBytes");
    });
    let Export::MakePersistentVolume(made) = export(&seen(&unknown)) else { panic!() };
    assert_eq!(made.spec.unwrap().capacity.unwrap()["storage"].0, "1");
}
