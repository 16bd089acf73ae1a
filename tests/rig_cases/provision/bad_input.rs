//! What cannot be, and what is not for others to say.

use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::{Value, json};
use tonic::Code;

use super::objects::{class, list};
use crate::rig::{Binder, Cluster, Fault, NAMESPACE, Options, Rig};

pub async fn what_cannot_be_provisioned_says_so_and_makes_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let parameters = |of: Value| json!({ "parameters": of });
    let same = json!({});
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "other" } });
    let table = [
        ("selector", same.clone(), json!({ "selector": { "matchLabels": { "a": "b" } } }), "spec.selector"),
        ("source", same.clone(), source, "spec.dataSource"),
        (
            "unknown",
            parameters(json!({ "csi.storage.k8s.io/typo": "x" })),
            same.clone(),
            "csi.storage.k8s.io/typo",
        ),
        (
            "fstypes",
            parameters(json!({ "fstype": "a", "csi.storage.k8s.io/fstype": "a" })),
            same.clone(),
            "keep one",
        ),
        (
            "half",
            parameters(json!({ "csi.storage.k8s.io/node-stage-secret-name": "a" })),
            same.clone(),
            "node-stage-secret-namespace",
        ),
        (
            "token",
            parameters(json!({ "csi.storage.k8s.io/secret-name": "${pod.name}",
            "csi.storage.k8s.io/secret-namespace": "default" })),
            same.clone(),
            "${pod.name}",
        ),
    ];
    for (name, more, spec, words) in table {
        rig.make_class(&class(name, &more)).await;
        rig.make_pvc(name, name, spec).await;
        rig.until_event(name, "ProvisioningFailed", words).await;
    }
    assert!(list(&rig.provisioned_api()).await.is_empty() && list(&rig.pv_api()).await.is_empty());
    assert!(rig.journal.since(0, |e| e.call().is_some_and(|c| c.rpc == Rpc::CreateVolume)).is_empty());

    // What only the driver knows is told in its words, and leaves nothing.
    rig.fake.fail("block", Rpc::CreateVolume, Fault::CodeBefore(Code::InvalidArgument));
    rig.make_class(&class("block", &parameters(json!({ "key": "block" })))).await;
    rig.make_pvc("block", "block", json!({ "volumeMode": "Block" })).await;
    rig.until_event("block", "ProvisioningFailed", "strike").await;
    rig.delete_pvc("block").await;
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

/// With one of them somebody's words would become a PersistentVolume, with the other another's storage would be found.
pub async fn nobody_else_says_what_a_volume_is_provisioned_for(cluster: Arc<Cluster>) {
    let _rig = Rig::start(&cluster, Options::default()).await;
    let provision = json!({ "name": "pvc-1", "driverName": "d", "storageClassName": "s", "accessModes": ["ReadWriteOnce"],
        "claim": { "namespace": "default", "name": "data", "uid": "1" } });
    let grant = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "mallory" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory" }] });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let made = http::Request::post(path).header("content-type", "application/json");
    cluster.admin.request_text(made.body(grant.to_string().into_bytes()).unwrap()).await.unwrap();
    for (field, value) in [("persistentVolume", provision), ("createName", json!("pvc-1"))] {
        let mut spec = json!({ "pluginName": "p", "capacity": "1Mi" });
        spec[field] = value;
        let volume = json!({ "apiVersion": "moor.dev/v1alpha1", "kind": "Volume", "metadata": { "name": "forged" },
            "spec": spec });
        for namespace in ["default", NAMESPACE] {
            let path = format!("/apis/moor.dev/v1alpha1/namespaces/{namespace}/volumes?dryRun=All");
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .header("impersonate-user", "mallory")
                .body(volume.to_string().into_bytes());
            let refused = cluster.admin.request_text(request.unwrap()).await.unwrap_err().to_string();
            assert!(
                refused.contains(&format!("spec.{field} is written by the moor controller")),
                "{refused}"
            );
        }
    }
    let gone = http::Request::delete(format!("{path}/mallory")).body(Vec::new()).unwrap();
    cluster.admin.request_text(gone).await.unwrap();
}
