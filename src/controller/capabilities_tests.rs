//! What an Attachment has to know of its driver.

use std::sync::Arc;

use super::*;
use crate::api::caller::ControllerRef;
use crate::api::plugin::PluginSpec;
use crate::api::workload::ControllerWorkload;

#[test]
fn an_attachment_waits_for_what_it_has_to_copy() {
    let mut handle = VolumeHandle::default();
    assert!(
        unprepared("p", None, Some(&handle), &Instances::default())
            .is_some_and(|why| why.contains("Plugin p does not"))
    );
    assert_eq!(
        unprepared("p", Some(&Plugin::default()), Some(&handle), &Instances::default()),
        None,
        "no controller service, nothing to ask"
    );
    handle.spec.controller = Some(ControllerRef::new("i", "node-1", 0));
    let waits = |instances: &[PluginInstance]| {
        let instances = Instances::of(instances.iter().cloned().map(Arc::new).collect());
        unprepared("p", Some(&Plugin::default()), Some(&handle), &instances)
    };
    assert!(waits(&[]).is_some_and(|why| why.contains("PluginInstance i on node node-1")));
    let mut instance = PluginInstance::default();
    instance.metadata.name = Some("i".into());
    assert!(waits(&[instance.clone()]).is_some(), "it has no status");
    instance.status = Some(crate::api::instance::PluginInstanceStatus::default());
    assert!(waits(&[instance.clone()]).is_some(), "it has not probed its driver");
    let mut probed = instance.clone();
    let status = probed.status.as_mut().unwrap();
    (status.controller, status.healthy) = (true, true);
    assert_eq!(waits(&[probed]), None);
    instance.status.as_mut().unwrap().capabilities.controller.push("PUBLISH_UNPUBLISH_VOLUME".into());
    assert_eq!(waits(&[instance]), None, "what it said once still holds");
}

/// The node Pods of a driver may be up before its controller.
#[test]
fn a_volume_without_controller_waits_for_the_pods_that_may_attach_it() {
    let mut plugin = Plugin::new("p", PluginSpec::default());
    plugin.spec.controller = Some(ControllerWorkload::default());
    let handle = VolumeHandle::default();
    let serving = |serves: bool| {
        let mut instance = PluginInstance::default();
        instance.status.get_or_insert_default().controller = serves;
        Instances::of(vec![Arc::new(instance)])
    };
    let waits = |plugin: &Plugin, serves| unprepared("p", Some(plugin), Some(&handle), &serving(serves));
    assert!(
        waits(&plugin, false).is_some_and(|why| why.contains("no Pod of spec.controller of Plugin p serves"))
    );
    assert_eq!(waits(&plugin, true), None, "it attaches nothing");
    let status = plugin.status.get_or_insert_default();
    status.capabilities.controller.push("CREATE_DELETE_VOLUME".into());
    assert_eq!(waits(&plugin, false), None, "nor did it before its Pod moved");
    let status = plugin.status.get_or_insert_default();
    status.capabilities.controller.push("PUBLISH_UNPUBLISH_VOLUME".into());
    assert!(waits(&plugin, false).is_some(), "its Pod moves");
    plugin.spec.controller = None;
    plugin.status = None;
    assert_eq!(waits(&plugin, false), None);
}

/// Without a word of the Controller service the volume would be used without being attached.
#[test]
fn a_volume_that_is_attached_waits_while_its_plugin_leaves_the_controller_service_out() {
    let mut handle = VolumeHandle::default();
    let plugin = Plugin::new("p", PluginSpec { roles: Roles::Node, ..PluginSpec::default() });
    let waits = |handle: &VolumeHandle, capabilities: &[&str]| {
        let mut instance = PluginInstance::default();
        instance.metadata.name = Some("i".into());
        let status = instance.status.get_or_insert_default();
        (status.node, status.healthy) = (true, true);
        status.capabilities.controller = capabilities.iter().map(|&c| c.to_owned()).collect();
        let instances = Instances::of(vec![Arc::new(instance)]);
        unprepared("p", Some(&plugin), Some(handle), &instances)
    };
    assert_eq!(waits(&handle, &[]), None, "it has never been attached");
    handle.spec.controller = Some(ControllerRef::new("i", "node-1", 0));
    for capabilities in [&[][..], &["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"]] {
        let why = waits(&handle, capabilities).expect("it is not attached");
        assert!(why.contains("spec.roles of Plugin p is Node"), "{why}");
    }
    assert_eq!(waits(&handle, &["CREATE_DELETE_VOLUME"]), None, "its driver attaches nothing");
}

/// What it does not say is not to be taken for a driver that attaches nothing.
#[test]
fn an_attachment_waits_while_its_instance_runs_without_the_controller_service() {
    let mut handle = VolumeHandle::default();
    handle.spec.controller = Some(ControllerRef::new("i", "node-1", 0));
    let waits = |controller: bool| {
        let mut instance = PluginInstance::default();
        instance.metadata.name = Some("i".into());
        let status = instance.status.get_or_insert_default();
        (status.controller, status.node, status.healthy) = (controller, true, true);
        let instances = Instances::of(vec![Arc::new(instance)]);
        unprepared("p", Some(&Plugin::default()), Some(&handle), &instances)
    };
    let why = waits(false).expect("calls have not moved off it yet");
    assert!(why.contains("PluginInstance i on node node-1") && why.contains("Controller service"), "{why}");
    assert_eq!(waits(true), None, "its driver has the service and attaches nothing");
}

/// CSI MULTI_NODE_SINGLE_WRITER: whether one node or several may be attached for writing.
#[test]
fn what_readers_are_attached_with_is_not_forgotten_while_nobody_is_healthy() {
    let mut handle = VolumeHandle::default();
    handle.spec.controller = Some(ControllerRef::new("i", "node-1", 0));
    let said = |healthy: bool, capabilities: &[&str]| {
        let mut instance = PluginInstance::default();
        instance.metadata.name = Some("i".into());
        let status = instance.status.get_or_insert_default();
        (status.controller, status.healthy) = (true, healthy);
        status.capabilities.controller = capabilities.iter().map(|&c| c.to_owned()).collect();
        let mut other = instance.clone();
        other.metadata.name = Some("other".into());
        other.status.as_mut().unwrap().capabilities.controller.clear();
        let instances = Instances::of([instance, other].map(Arc::new).into());
        attaches_read_only(Some(&handle), &instances)
    };
    for healthy in [true, false] {
        assert!(said(healthy, &["PUBLISH_UNPUBLISH_VOLUME", PUBLISH_READONLY]), "healthy={healthy}");
        assert!(!said(healthy, &["PUBLISH_UNPUBLISH_VOLUME"]), "healthy={healthy}");
    }
    assert!(said(false, &[]), "it has not said anything: one node may be all that the driver lets write");
    assert!(attaches_read_only(Some(&handle), &Instances::default()), "nor has one that is gone");
    handle.spec.controller = None;
    assert!(!attaches_read_only(Some(&handle), &Instances::default()), "nothing is attached");
    assert!(!attaches_read_only(None, &Instances::default()));
}
