//! What is looked at before storage is deleted.

use super::*;

fn assigned(operation: VolumeOperation, agent: &str, driver: &str) -> Volume {
    let mut volume = Volume::default();
    let controller = ControllerRef { instance: instance_name(agent, driver), agent: agent.into() };
    volume.spec.assignment = Some(VolumeAssignment { operation, controller: Some(controller) });
    volume
}

/// A PersistentVolume that names the storage may have come since the first look.
#[test]
fn an_order_to_delete_stands_for_the_instance_that_has_it() {
    let order = |agent| assigned(VolumeOperation::Delete, agent, "d").spec.assignment.unwrap();
    let created = assigned(VolumeOperation::Create, "node-1", "d");
    let ordered = assigned(VolumeOperation::Delete, "node-1", "d");
    assert!(is_new_order(&created, &order("node-1")));
    assert!(!is_new_order(&ordered, &order("node-1")), "its call may be running");
    assert!(is_new_order(&ordered, &order("node-2")), "it is looked at again for the heir");
}

/// The Plugin was made anew, and another driver knows another volume by the same handle.
#[test]
fn an_instance_is_of_the_driver_that_its_name_is_made_of() {
    let volume = assigned(VolumeOperation::Create, "node-1", "d1");
    assert!(is_of_driver(&volume, "d1") && !is_of_driver(&volume, "d2"));
}

/// Of a Plugin that is gone the instance is left, and says whose it is; any other driver's name is not believed.
#[test]
fn what_nobody_can_use_is_judged_without_the_plugin() {
    let volume = assigned(VolumeOperation::Create, "node-1", "d1");
    assert_eq!(driver_of_calls(&volume, ["", "d1"]), Some("d1"));
    assert_eq!(driver_of_calls(&volume, ["d2", "d1"]), Some("d1"), "it was made anew");
    assert_eq!(driver_of_calls(&volume, ["", "d2"]), None);
}
