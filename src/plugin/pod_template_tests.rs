use serde_json::json;

use super::*;
use crate::api::workload::{ControllerWorkload, NodeWorkload};
use crate::api::{Plugin, PluginSpec};
use crate::plugin::workload::{Owner, Site, daemon_set, deployment, owner_of};

fn site() -> Site {
    Site::new("moor-system".into(), "/var/lib/kubelet".into(), None)
}

fn plugin(controller: Option<Value>, node: Option<Value>) -> Plugin {
    let controller = controller.map(|template| ControllerWorkload { replicas: 2, template });
    let node = node.map(|template| NodeWorkload { mount_dev: true, template });
    let mut plugin = Plugin::new("ebs.csi.aws.com", PluginSpec { controller, node, ..PluginSpec::default() });
    plugin.metadata.uid = Some("plugin-uid".into());
    plugin
}

fn template() -> Value {
    json!({ "spec": { "containers": [
        { "name": "driver", "image": "driver:1", "args": ["--endpoint=$(CSI_ENDPOINT)"] },
        { "name": "beside", "image": "beside:1", "env": [{ "name": "CSI_ENDPOINT", "value": "mine" }] },
    ] } })
}

fn rendered(of: &str, template: Value) -> Value {
    let rendered = if of == CONTROLLER {
        serde_json::to_value(deployment(&plugin(Some(template), None), &site()).unwrap().unwrap())
    } else {
        serde_json::to_value(daemon_set(&plugin(None, Some(template)), &site()).unwrap().unwrap())
    };
    rendered.unwrap()
}

fn refused(template: Value) -> String {
    let as_controller = deployment(&plugin(Some(template.clone()), None), &site()).unwrap_err();
    let as_node = daemon_set(&plugin(None, Some(template)), &site()).unwrap_err().to_string();
    let as_controller = as_controller.to_string();
    assert_eq!(as_controller.replace("spec.controller", "spec.node"), as_node);
    as_controller
}

#[test]
fn who_declares_nothing_has_nothing() {
    assert_eq!(deployment(&plugin(None, None), &site()), Ok(None));
    assert_eq!(daemon_set(&plugin(None, None), &site()), Ok(None));
}

#[test]
fn a_controller_has_its_socket_in_the_pod() {
    let made = rendered(CONTROLLER, template());
    assert_eq!(made["metadata"]["name"], "plugin-ebs.csi.aws.com-controller");
    assert_eq!(made["metadata"]["namespace"], "moor-system");
    assert_eq!(made["metadata"]["labels"]["moor.dev/plugin-uid"], "plugin-uid");
    assert_eq!(made["metadata"].get("ownerReferences"), None);
    let labels = json!({ "moor.dev/plugin": "ebs.csi.aws.com", "moor.dev/service": "controller" });
    assert_eq!(made["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(made["spec"]["replicas"], 2);
    let spec = &made["spec"]["template"]["spec"];
    assert_eq!(spec["volumes"], json!([{ "name": "csi", "emptyDir": {} }]));
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([{ "name": "csi", "mountPath": "/csi" }]));
    let endpoint = json!({ "name": "CSI_ENDPOINT", "value": "unix:///csi/csi.sock" });
    let node = json!({ "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } });
    assert_eq!(spec["containers"][0]["env"], json!([endpoint, node]));
    let own = json!({ "name": "CSI_ENDPOINT", "value": "mine" });
    assert_eq!(spec["containers"][1]["env"], json!([node, own]), "what it says itself stands");
    assert_eq!(spec["priorityClassName"], "system-cluster-critical");
    assert_eq!(spec["nodeSelector"], json!({ "kubernetes.io/os": "linux" }));
    assert_eq!(spec.get("tolerations"), None);
    let apart = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
    let term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": labels } });
    assert_eq!(spec.pointer(apart), Some(&term));
    let rolled = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    assert_eq!(made["spec"]["strategy"], rolled);
    assert_eq!(spec["containers"][0].get("securityContext"), None);
}

#[test]
fn a_node_driver_has_what_it_mounts_into() {
    let made = rendered(NODE, template());
    assert_eq!(made["metadata"]["name"], "plugin-ebs.csi.aws.com-node");
    let spec = &made["spec"]["template"]["spec"];
    let volumes = json!([
        { "name": "csi", "hostPath": { "path": "/var/lib/kubelet/plugins/moor.ebs.csi.aws.com", "type": "DirectoryOrCreate" } },
        { "name": "moor-kubelet", "hostPath": { "path": "/var/lib/kubelet", "type": "Directory" } },
        { "name": "moor-dev", "hostPath": { "path": "/dev", "type": "Directory" } },
    ]);
    assert_eq!(spec["volumes"], volumes);
    let mounts = json!([
        { "name": "csi", "mountPath": "/csi" },
        { "name": "moor-kubelet", "mountPath": "/var/lib/kubelet", "mountPropagation": "Bidirectional" },
        { "name": "moor-dev", "mountPath": "/dev", "mountPropagation": "HostToContainer" },
    ]);
    assert_eq!(spec["containers"][0]["volumeMounts"], mounts);
    assert_eq!(spec["containers"][0]["securityContext"], json!({ "privileged": true }));
    let beside = &spec["containers"][1];
    assert_eq!(beside["volumeMounts"], json!([{ "name": "csi", "mountPath": "/csi" }]), "it mounts nothing");
    assert_eq!(beside.get("securityContext"), None);
    assert_eq!(spec["tolerations"], json!([{ "operator": "Exists" }]));
    assert_eq!(spec["priorityClassName"], "system-node-critical");
}

#[test]
fn what_the_template_says_itself_stands() {
    let own = json!({
        "metadata": { "labels": { "app": "mine", "moor.dev/plugin": "lie" }, "annotations": { "a": "b" } },
        "spec": {
            "nodeSelector": { "disk": "fast" },
            "tolerations": [],
            "priorityClassName": "mine",
            "affinity": {},
            "volumes": [{ "name": "k", "hostPath": { "path": "/var/lib/kubelet" } }],
            "containers": [{
                "name": "driver",
                "securityContext": { "privileged": false },
                "volumeMounts": [{ "name": "k", "mountPath": "/var/lib/kubelet", "mountPropagation": "Bidirectional" }],
            }],
        },
    });
    let made = rendered(NODE, own);
    let pods = &made["spec"]["template"];
    let labels = json!({ "app": "mine", "moor.dev/plugin": "ebs.csi.aws.com", "moor.dev/service": "node" });
    assert_eq!(pods["metadata"], json!({ "labels": labels, "annotations": { "a": "b" } }));
    let spec = &pods["spec"];
    assert_eq!(spec["nodeSelector"], json!({ "disk": "fast" }));
    assert_eq!((&spec["tolerations"], &spec["affinity"]), (&json!([]), &json!({})));
    assert_eq!(spec["priorityClassName"], "mine");
    assert_eq!(spec["containers"][0]["securityContext"], json!({ "privileged": false }));
    let names: Vec<_> = spec["volumes"].as_array().unwrap().iter().map(|v| v["name"].clone()).collect();
    assert_eq!(names, ["k", "csi", "moor-dev"]);
}

/// It would be lost without a word where Kubernetes' types have no place for it.
#[test]
fn a_field_that_pods_do_not_have_is_refused_by_its_name() {
    let mut wrong = template();
    wrong["spec"]["containers"][1]["livenesProbe"] = json!({});
    assert_eq!(
        refused(wrong),
        "spec.controller.template.spec.containers[1].livenesProbe: Pods have no such field; correct its name, or take it out"
    );
    let mut wrong = template();
    wrong["spec"]["hostNetwork"] = json!("yes");
    let words = refused(wrong);
    assert!(words.starts_with("spec.controller.template.spec.hostNetwork: invalid type: string"), "{words}");
    let mut null = template();
    null["spec"]["schedulerName"] = Value::Null;
    null["metadata"] = json!({ "creationTimestamp": null });
    rendered(NODE, null);
}

#[test]
fn what_would_hide_the_drivers_socket_is_refused() {
    for (field, what, template) in [
        (
            "spec.volumes[0].name",
            "csi",
            json!({ "volumes": [{ "name": "csi", "emptyDir": {} }], "containers": [{ "name": "d" }] }),
        ),
        (
            "spec.containers[0].volumeMounts[1].mountPath",
            "/csi/",
            json!({ "containers": [{ "name": "d", "volumeMounts": [
                { "name": "a", "mountPath": "/a" }, { "name": "b", "mountPath": "/csi/" },
            ] }] }),
        ),
    ] {
        let words = refused(json!({ "spec": template }));
        let begin =
            format!("spec.controller.template.{field}: {what} is where moor puts the driver's socket");
        assert!(words.starts_with(&begin), "{words}");
    }
    let placed = refused(json!({ "spec": { "nodeName": "n", "containers": [{ "name": "d" }] } }));
    assert!(placed.starts_with("spec.controller.template.spec.nodeName: n is chosen past"), "{placed}");
    for nothing in [json!({ "spec": {} }), json!({ "spec": { "containers": [] } })] {
        assert!(refused(nothing).contains("spec.containers"));
    }
}

#[test]
fn a_workload_is_known_by_the_uid_of_its_plugin() {
    let plugin = plugin(Some(template()), None);
    let mut made = *deployment(&plugin, &site()).unwrap().unwrap();
    assert_eq!(owner_of(&made, Some(&plugin)), Owner::This);
    assert_eq!(owner_of(&made, None), Owner::Before);
    made.metadata.labels.as_mut().unwrap().insert("moor.dev/plugin-uid".into(), "another".into());
    assert_eq!(owner_of(&made, Some(&plugin)), Owner::Before);
    made.metadata.labels.as_mut().unwrap().remove("moor.dev/plugin-uid");
    assert_eq!(owner_of(&made, Some(&plugin)), Owner::Foreign);
}
