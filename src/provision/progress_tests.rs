use serde_json::{Value, json};

use super::*;

fn volume(status: &Value) -> Volume {
    let provision = json!({ "name": "pvc-1", "driverName": "d", "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"], "selectedNode": "a", "inPlaces": true,
        "claim": { "namespace": "ns", "name": "data", "uid": "1" } });
    let spec = json!({ "pluginName": "p", "capacity": "1Gi", "persistentVolume": provision });
    let metadata = json!({ "name": "pvc-1", "namespace": "moor", "uid": "v" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

fn there(node: Option<&str>) -> ClaimNow<'_> {
    ClaimNow::There { selected_node: node, node_exists: true, volume_name: None }
}

const UNASKED: PersistentVolumeNow<'_> = PersistentVolumeNow::Unasked;

fn failure(code: &str) -> Value {
    json!({ "rpc": "CreateVolume", "code": code, "message": "no room" })
}

#[test]
fn a_volume_that_is_being_made_is_waited_for_as_long_as_it_is_wanted() {
    let bound =
        |name| ClaimNow::There { selected_node: Some("a"), node_exists: true, volume_name: Some(name) };
    for (state, claim, step) in [
        ("Pending", there(Some("a")), Step::Idle),
        ("Created", there(Some("a")), Step::Idle),
        ("Pending", ClaimNow::Gone, Step::DeleteVolume),
        ("Created", ClaimNow::Gone, Step::DeleteVolume),
        ("Pending", bound("other"), Step::DeleteVolume),
        ("Created", bound("other"), Step::DeleteVolume),
        // Another node was chosen meanwhile. What is made is used.
        ("Pending", there(Some("b")), Step::DeleteVolume),
        ("Pending", there(None), Step::DeleteVolume),
        ("Created", there(Some("b")), Step::Idle),
        ("Deleted", ClaimNow::Gone, Step::Idle),
    ] {
        assert_eq!(plan(&volume(&json!({ "state": state })), claim, UNASKED), step, "{state} {claim:?}");
    }
}

#[test]
fn a_full_place_sends_the_scheduler_elsewhere_once_nothing_can_have_been_made() {
    let reschedules = |status: Value, edit: fn(&mut Volume)| {
        let mut volume = volume(&status);
        edit(&mut volume);
        matches!(plan(&volume, there(Some("a")), UNASKED), Step::Reschedule(words) if words.contains("no room"))
    };
    let full = json!({ "lastError": failure("ResourceExhausted") });
    assert!(reschedules(full.clone(), |_| {}));
    assert!(!reschedules(json!({ "lastError": failure("ResourceExhausted"), "mayExist": true }), |_| {}));
    assert!(!reschedules(json!({ "lastError": failure("Internal") }), |_| {}));
    // Elsewhere is the same place, and nobody chooses.
    assert!(!reschedules(full.clone(), |v| v.spec.persistent_volume.as_mut().unwrap().in_places = false));
    let immediate = |v: &mut Volume| v.spec.persistent_volume.as_mut().unwrap().selected_node = None;
    assert!(!reschedules(full.clone(), immediate));
    let mut of_nobody = volume(&full);
    immediate(&mut of_nobody);
    assert!(matches!(plan(&of_nobody, there(None), UNASKED), Step::Tell(words) if words.contains("no room")));
}

#[test]
fn a_node_that_is_gone_is_taken_off_the_claim() {
    let gone = ClaimNow::There { selected_node: Some("a"), node_exists: false, volume_name: None };
    assert!(matches!(plan(&volume(&json!({})), gone, UNASKED), Step::Reschedule(_)));
    assert_eq!(plan(&volume(&json!({ "state": "Created" })), gone, UNASKED), Step::Idle, "it is made");
}

/// Nobody ever makes it, and the claim is told what has become of the VolumeSnapshot that it names.
#[test]
fn a_volume_whose_source_was_deleted_before_it_was_begun_goes() {
    let gone = volume(&json!({ "sourceGone": true }));
    assert_eq!(plan(&gone, there(Some("a")), UNASKED), Step::DeleteVolume);
}

#[test]
fn what_does_not_come_by_itself_is_told() {
    let condition = |reason: &str| {
        json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": reason, "message": "words",
            "lastTransitionTime": "2025-01-01T00:00:00Z" }] })
    };
    for (status, told) in [
        (condition("Creating"), false),
        (condition("Created"), false),
        (condition("NoInstance"), true),
        (condition("CannotCreate"), true),
        (json!({ "lastError": failure("Internal") }), true),
        (json!({}), false),
    ] {
        let step = plan(&volume(&status), there(Some("a")), UNASKED);
        assert_eq!(matches!(step, Step::Tell(_)), told, "{status} {step:?}");
    }
}

#[test]
fn a_ready_volume_becomes_the_persistent_volume_of_its_claim() {
    let ready = volume(&json!({ "state": "Ready", "volumeHandle": "vol-1" }));
    let wanted = persistent_volume(&ready).unwrap();
    let mut foreign = wanted.clone();
    foreign.spec.as_mut().unwrap().claim_ref = None;
    let (own, other) = (PersistentVolumeNow::There(&wanted), PersistentVolumeNow::There(&foreign));
    let bound = |name| ClaimNow::There { selected_node: None, node_exists: true, volume_name: Some(name) };
    let absent = PersistentVolumeNow::Absent;
    for claim in [ClaimNow::Gone, there(None), there(Some("b")), bound("pvc-1")] {
        assert_eq!(plan(&ready, claim, UNASKED), Step::Look, "{claim:?}");
        assert_eq!(plan(&ready, claim, own), Step::Record { by_another: false }, "{claim:?}");
    }
    for claim in [there(None), there(Some("b")), bound("pvc-1")] {
        assert_eq!(plan(&ready, claim, absent), Step::Make(Box::new(wanted.clone())), "{claim:?}");
        assert!(
            matches!(plan(&ready, claim, other), Step::Tell(words) if words.contains("pvc-1")),
            "{claim:?}"
        );
    }
    assert_eq!(plan(&ready, ClaimNow::Gone, absent), Step::DeleteVolume);
    assert_eq!(plan(&ready, ClaimNow::Gone, other), Step::DeleteVolume);
    assert_eq!(plan(&ready, bound("other"), absent), Step::DeleteVolume);
}

/// Whatever becomes of the claim: from here on it is the PersistentVolume that counts.
#[test]
fn what_is_provisioned_or_going_is_left_to_itself() {
    let made = volume(&json!({ "state": "Ready", "volumeHandle": "vol-1", "persistentVolume": "pvc-1" }));
    let mut going = volume(&json!({}));
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2025-01-01T00:00:00Z")).unwrap();
    for volume in [made, going] {
        for claim in [ClaimNow::Gone, there(None), there(Some("a"))] {
            assert_eq!(plan(&volume, claim, PersistentVolumeNow::Absent), Step::Idle);
        }
    }
}
