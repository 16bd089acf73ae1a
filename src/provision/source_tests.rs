use serde_json::{Value, json};

use super::*;

fn claim(change: impl FnOnce(&mut Value)) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": "from", "namespace": "team", "uid": "u", "finalizers": [CLONING_PROTECTION] },
        "spec": { "volumeName": "pv", "volumeMode": "Filesystem", "resources": { "requests": { "storage": "2Mi" } } },
        "status": { "phase": "Bound" },
    });
    change(&mut claim);
    serde_json::from_value(claim).unwrap()
}

fn persistent(driver: &str, uid: &str) -> PersistentVolume {
    let spec = json!({ "csi": { "driver": driver, "volumeHandle": "h" }, "claimRef": { "uid": uid } });
    serde_json::from_value(json!({ "metadata": { "name": "pv" }, "spec": spec })).unwrap()
}

fn judged(claim: Option<&PersistentVolumeClaim>, volume: &PersistentVolume, bytes: i64) -> Copied {
    let wanted = self::claim(|wanted| wanted["metadata"]["name"] = json!("to"));
    copied(&wanted, "from", SourceNow { claim, volume: Some(volume), ..SourceNow::default() }, "d", bytes)
}

const SIZE: i64 = 2 << 20;

#[test]
fn a_claim_names_its_source_in_either_field() {
    let of = |spec: Value| {
        let claim = claim(|claim| claim["spec"] = spec);
        format!("{:?}", source(&claim))
    };
    let named = json!({ "kind": "PersistentVolumeClaim", "name": "from" });
    assert_eq!(of(json!({})), "None");
    assert_eq!(of(json!({ "dataSource": named })), r#"Claim("from")"#);
    assert_eq!(of(json!({ "dataSourceRef": named })), r#"Claim("from")"#);
    let mut other = named.clone();
    other["namespace"] = json!("team");
    assert_eq!(of(json!({ "dataSourceRef": other })), r#"Claim("from")"#);
    other["namespace"] = json!("theirs");
    assert_eq!(of(json!({ "dataSource": named, "dataSourceRef": other })), r#"Elsewhere("theirs")"#);
    let snapshot = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" });
    assert_eq!(of(json!({ "dataSource": snapshot })), r#"Snapshot("s")"#);
    let mut theirs = snapshot.clone();
    theirs["namespace"] = json!("theirs");
    assert_eq!(of(json!({ "dataSourceRef": theirs })), r#"SnapshotElsewhere("theirs")"#);
    assert_eq!(
        of(json!({ "dataSourceRef": { "apiGroup": "x", "kind": "Populator", "name": "p" } })),
        "Others"
    );
}

#[test]
fn a_volume_is_copied_of_a_bound_claim_of_its_driver() {
    let volume = persistent("d", "u");
    let Copied::Of(copy) = judged(Some(&claim(|_| {})), &volume, SIZE) else { panic!("it is not copied") };
    assert_eq!((copy.volume_handle.as_str(), copy.claim.uid.as_str()), ("h", "u"));
    let bare = claim(|claim| claim["metadata"]["finalizers"] = json!([]));
    assert_eq!(judged(Some(&bare), &volume, SIZE), Copied::Protect);
    let waits = |of: Option<&PersistentVolumeClaim>, volume: &PersistentVolume| {
        matches!(judged(of, volume, SIZE), Copied::Waits(_))
    };
    assert!(waits(None, &volume));
    assert!(waits(
        Some(&claim(|c| c["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z"))),
        &volume
    ));
    assert!(waits(Some(&claim(|c| c["status"]["phase"] = json!("Pending"))), &volume));
    assert!(waits(Some(&claim(|_| {})), &persistent("d", "other")), "it is bound to another one");
    let refused = |change: &dyn Fn(&mut Value), driver: &str, bytes: i64| match judged(
        Some(&claim(change)),
        &persistent(driver, "u"),
        bytes,
    ) {
        Copied::Refused(why) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let as_it_is = |_: &mut Value| {};
    assert!(refused(&as_it_is, "theirs", SIZE).contains("theirs"));
    assert!(refused(&as_it_is, "d", SIZE - 1).contains("2Mi"));
    assert!(refused(&|c| c["spec"]["volumeMode"] = json!("Block"), "d", SIZE).contains("spec.volumeMode"));
}
