//! The Secrets of a Plugin, which a Volume is given when it is taken up.

use moor::api::secrets::{SecretRefs, SecretTemplates};
use moor::api::sparse::Sparse;
use moor::api::volume::VolumeOperation::{Adopt, Create, Delete, Validate};
use serde_json::{Value, json};

use super::*;

fn with(mut row: Row, secrets: &Value) -> Row {
    row.volume.metadata.namespace = Some("shop".into());
    row.secrets = Some(serde_json::from_value::<SecretTemplates>(secrets.clone()).unwrap());
    row
}

fn all() -> Value {
    json!({ "default": { "namespace": "keys", "name": "of-${pvc.namespace}" },
            "nodeStage": { "namespace": "${pvc.namespace}", "name": "${pvc.name}-${pv.name}" } })
}

fn resolved() -> Sparse<SecretRefs> {
    serde_json::from_value(json!({ "default": "keys/of-shop", "nodeStage": "shop/data-moor-v-uid" })).unwrap()
}

fn assigned(row: &Row) -> VolumeAssignment {
    match row.plan() {
        VolumeStep::Assign(assignment) => assignment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn they_are_named_with_the_first_assignment() {
    let created = assigned(&with(row(VolumeState::Pending, None), &all()));
    assert_eq!((created.operation, created.secrets), (Create, resolved()));
    let registered = assigned(&with(row(VolumeState::Pending, None).registered(), &all()));
    assert_eq!((registered.operation, registered.secrets), (Validate, resolved()));
    let mut without = with(row(VolumeState::Pending, None).registered(), &all());
    (without.controllers, without.attaches) = (Vec::new(), false);
    assert_eq!(assigned(&without).secrets, resolved(), "nodes need them where nobody controls");
}

/// What the Plugin names later is for later Volumes.
#[test]
fn they_stay_when_the_plugin_names_others() {
    let first = assigned(&with(row(VolumeState::Pending, None), &all()));
    for operation in [Create, Delete] {
        let again = json!({ "default": { "namespace": "keys", "name": "others" } });
        let mut moved = with(row(VolumeState::Pending, Some(operation)), &again);
        moved.volume.spec.assignment = Some(VolumeAssignment { operation, ..first.clone() });
        moved.controllers = vec![instance(&c1(), false, true), instance(&c2(), true, false)];
        if operation == Create {
            assert_eq!(assigned(&moved).secrets, resolved());
        }
        assert_eq!(moved.volume.assignment(Delete, Some(c2())).secrets, resolved());
    }
    // One that was taken up without any, while no instance was there, has none either.
    let mut before = with(row(VolumeState::Pending, Some(Validate)).without_controller(), &all());
    before.volume.spec.volume_handle = Some("vol-7".into());
    assert!(assigned(&before).secrets.is_empty());
}

#[test]
fn a_persistent_volume_has_its_own() {
    let mut imported = with(row(VolumeState::Pending, None).registered(), &all());
    imported.adopts = true;
    let taken = assigned(&imported);
    assert!(taken.operation == Adopt && taken.secrets.is_empty());
    let mut provisioned = with(row(VolumeState::Pending, None), &all());
    provisioned.volume.spec.persistent_volume = Some(moor::api::provision::Provision::default().into());
    assert!(assigned(&provisioned).secrets.is_empty(), "moor's own namespace is not the claim's");
}

#[test]
fn what_is_no_name_is_waited_for() {
    let long =
        json!({ "default": { "namespace": "${pv.name}-${pvc.namespace}-${pvc.namespace}", "name": "x" } });
    let mut unnamed = with(row(VolumeState::Pending, None), &long);
    unnamed.volume.metadata.namespace = Some("a".repeat(60));
    let VolumeStep::Wait(why) = unnamed.plan() else { panic!("{:?}", unnamed.plan()) };
    let (reason, message) = (why.reason(), why.message());
    assert_eq!(reason, moor::api::conditions::Reason::SecretUnreadable);
    assert!(message.contains("spec.secrets.default.namespace of Plugin loop"), "{message}");
}
