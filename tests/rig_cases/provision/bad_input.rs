//! What cannot be, and what is not for others to say.

use std::sync::Arc;

use kube::Api;
use moor::api::Plugin;
use moor::csi::Rpc;
use serde_json::{Value, json};

use super::objects::{class, list};
use crate::rig::fake::DRIVER;
use crate::rig::{Binder, Cluster, NAMESPACE, Options, Rig, SPACE};

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

    rig.assert_nothing_left().await;
}

/// Row 18 of what goes wrong: both make it under one name, and it is made once.
pub async fn a_provisioner_beside_moor_is_told_of(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    rig.make_class(&class("fast", &json!({ "parameters": { "key": "v" } }))).await;
    rig.fake.hold("v", Rpc::CreateVolume);
    let uid = rig.make_pvc("data", "fast", json!({})).await;
    rig.until_called("v", Rpc::CreateVolume).await;
    let attributes =
        json!({ "storage.kubernetes.io/csiProvisionerIdentity": format!("1700000000000-1-{DRIVER}") });
    let csi = json!({ "driver": DRIVER, "volumeHandle": "vol-v", "volumeAttributes": attributes });
    let to = json!({ "namespace": SPACE, "name": "data", "uid": uid });
    rig.cluster.make_persistent_volume(&format!("pvc-{uid}"), &csi, &to).await;
    rig.fake.let_go("v", Rpc::CreateVolume);
    let plugins: Api<Plugin> = Api::all(cluster.admin.clone());
    rig.until("the Plugin says that another provisioner runs", || async {
        let conditions = plugins.get(DRIVER).await.unwrap().status?.conditions;
        let said = conditions.into_iter().find(|c| c.reason == "OtherProvisioner")?;
        (said.status == "True" && said.message.contains(&format!("PersistentVolume pvc-{uid}"))).then_some(())
    })
    .await;
    rig.until_bound("data").await;
    rig.set_reclaim_policy(&format!("pvc-{uid}"), "Delete").await;
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    assert_eq!((rig.count("v", Rpc::CreateVolume), rig.count("v", Rpc::DeleteVolume)), (1, 1));
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
    for (field, value) in
        [("persistentVolume", provision), ("createName", json!("pvc-1")), ("reclaimedFor", json!("pv"))]
    {
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
