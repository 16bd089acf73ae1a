//! Whose word about a place is believed.

use std::time::Duration;

use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use serde_json::json;

use super::*;
use crate::api::instance::PluginInstanceSpec;
use crate::api::names::{DriverOn, instance_name};
use crate::controller::known::site;
use crate::k8s::node::LeanNode;
use crate::provision::capacity::CapacityQuestion;

const DRIVER: &str = "driver";

/// A driver that is served, with one late class.
fn served() -> Known {
    let known = Known::new(site(), Duration::from_secs(60), Duration::ZERO);
    let mut plugin = Plugin::new(DRIVER, crate::api::PluginSpec::default());
    (plugin.metadata.uid, plugin.metadata.resource_version) = (Some("p".into()), Some("1".into()));
    known.plugins.apply(plugin);
    let meta = |name: &str| json!({ "name": name, "uid": name, "resourceVersion": "1" });
    let mut driver = json!({ "metadata": meta(DRIVER), "spec": { "attachRequired": false } });
    driver["metadata"]["labels"] = json!({ "moor.dev/plugin": DRIVER });
    known.csi_drivers.apply(serde_json::from_value::<CSIDriver>(driver).unwrap());
    let class = json!({ "metadata": meta("late"), "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer" });
    known.classes.apply(serde_json::from_value::<StorageClass>(class).unwrap());
    known
}

/// An instance that says that its node is in this zone, and the Node with this UID and label.
fn at(known: &Known, node: &str, says: &str, uid: &str, label: Option<&str>) {
    let version = (known.nodes.highest() + 1).to_string();
    let spec = PluginInstanceSpec {
        plugin_name: DRIVER.into(),
        driver_name: DRIVER.into(),
        node_name: node.into(),
        node_uid: node.into(),
        agent: node.into(),
        ..PluginInstanceSpec::default()
    };
    let mut instance = PluginInstance::new(&instance_name(DriverOn { driver: DRIVER, node }), spec);
    (instance.metadata.uid, instance.metadata.resource_version) = (Some(node.into()), Some(version.clone()));
    let mut status =
        PluginInstanceStatus { healthy: true, node: true, controller: true, ..Default::default() };
    status.topology.insert("zone".into(), says.into());
    status.capabilities.plugin.push("VOLUME_ACCESSIBILITY_CONSTRAINTS".into());
    status.capabilities.controller.push("GET_CAPACITY".into());
    instance.status = Some(status);
    known.instances.apply(instance);
    known.by_plugin.changed(DRIVER);
    let labels = label.map(|zone| json!({ "zone": zone }));
    let metadata = json!({ "name": node, "uid": uid, "resourceVersion": version, "labels": labels });
    known.nodes.apply(serde_json::from_value::<LeanNode>(json!({ "metadata": metadata })).unwrap());
}

/// Who is asked about which zone.
fn asked(known: &Known) -> Vec<(String, String)> {
    let plan = plan(known, &known.plugins.get(DRIVER).unwrap());
    let asked = |q: &CapacityQuestion| (q.request.segments["zone"].clone(), q.instance.clone());
    plan.questions().iter().map(asked).collect()
}

#[test]
fn a_node_is_asked_about_the_place_that_its_labels_confirm() {
    let known = served();
    at(&known, "n1", "a", "n1", Some("a"));
    let own = ("a".to_owned(), instance_name(DriverOn { driver: DRIVER, node: "n1" }));
    assert_eq!(asked(&known), std::slice::from_ref(&own));
    // It says that it is where the first one is, and comes before it by its name.
    at(&known, "m", "a", "m", Some("b"));
    assert_eq!(asked(&known), std::slice::from_ref(&own), "kubelet has said otherwise");
    at(&known, "m", "a", "m", None);
    assert_eq!(asked(&known), std::slice::from_ref(&own), "kubelet has said nothing");
    at(&known, "m", "a", "another", Some("a"));
    assert_eq!(asked(&known), [own], "another machine has the label");
}

#[test]
fn nobody_is_asked_for_a_driver_that_another_installation_serves() {
    let known = served();
    at(&known, "n1", "a", "n1", Some("a"));
    let mut foreign = (*known.csi_drivers.get(DRIVER).unwrap()).clone();
    foreign.metadata.labels = None;
    foreign.metadata.resource_version = Some("2".into());
    known.csi_drivers.apply(foreign);
    assert!(asked(&known).is_empty());
    known.csi_drivers.remove_confirmed(DRIVER);
    assert!(asked(&known).is_empty());
}
