//! What cannot be, and what is not for others to say.

use std::sync::Arc;

use kube::Api;
use moor::api::Plugin;
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::CreateVolumeRequest;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use super::objects::{class, list};
use crate::rig::fake::DRIVER;
use crate::rig::{Binder, Cluster, Fault, NAMESPACE, Options, Rig, SPACE};

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

/// A mode, a size, and a copy that only the driver knows that it cannot make. Nobody has to clean up after it.
pub async fn what_the_driver_refuses_is_told_in_its_words_and_leaves_nothing(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let table = [
        ("block", Code::InvalidArgument, json!({ "volumeMode": "Block" })),
        ("size", Code::OutOfRange, json!({ "resources": { "requests": { "storage": "7Ei" } } })),
        ("full", Code::ResourceExhausted, json!({})),
        ("modes", Code::InvalidArgument, json!({ "accessModes": ["ReadWriteMany", "ReadOnlyMany"] })),
    ];
    for (name, code, spec) in table.clone() {
        rig.fake.fail(name, Rpc::CreateVolume, Fault::CodeBefore(code));
        rig.make_class(&class(name, &json!({ "parameters": { "key": name } }))).await;
        rig.make_pvc(name, name, spec).await;
    }
    for (name, code, _) in table.clone() {
        rig.until_event(name, "ProvisioningFailed", &format!("CreateVolume: {code:?}")).await;
        rig.until_event(name, "ProvisioningFailed", "strike").await;
    }
    assert!(list(&rig.pv_api()).await.is_empty());
    // One whose driver thinks better of it needs nobody's help.
    rig.fake.heal("full", Rpc::CreateVolume);
    rig.until_bound("full").await;
    for (name, ..) in table {
        rig.delete_pvc(name).await;
    }
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

/// Its provisioner was asked, and the class is gone before anything was made.
pub async fn a_claim_waits_for_its_class_and_says_so(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    let asked = json!({ "volume.kubernetes.io/storage-provisioner": DRIVER });
    rig.make_annotated_pvc("data", "fast", asked).await;
    rig.until_event("data", "ProvisioningFailed", "StorageClass \"fast\" does not exist").await;
    assert!(list(&rig.provisioned_api()).await.is_empty());
    rig.make_class(&class("fast", &json!({ "parameters": { "key": "v" } }))).await;
    rig.until_bound("data").await;
    rig.delete_pvc("data").await;
    rig.until_nothing_provisioned().await;
    rig.assert_nothing_left().await;
}

/// Of another namespace nothing is copied: the API server leaves it out where it does not know it, and moor refuses it where
/// it does.
pub async fn what_another_namespace_has_is_not_copied(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    rig.make_class(&class("fast", &json!({ "parameters": { "key": "v" } }))).await;
    let theirs = json!({ "kind": "PersistentVolumeClaim", "name": "precious", "namespace": "kube-system" });
    rig.make_pvc("data", "fast", json!({ "dataSourceRef": theirs })).await;
    match rig.read_pvc("data").await.spec.unwrap().data_source_ref {
        None => {
            rig.until_bound("data").await;
            let calls = rig.journal.calls_of("v");
            let created = CreateVolumeRequest::decode(calls[0].call().unwrap().arguments.as_slice()).unwrap();
            assert!(created.volume_content_source.is_none(), "{created:?}");
        }
        Some(_) => rig.until_event("data", "ProvisioningFailed", "of namespace kube-system").await,
    }
}

/// What a namespace may not, an administrator has said on the Plugin.
pub async fn a_namespace_that_may_have_nothing_made_is_told(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let _binder = Binder::start(&cluster.admin);
    rig.patch_plugin(json!({ "allow": { "create": { "namespaces": ["elsewhere"] } } })).await;
    rig.make_class(&class("fast", &json!({ "parameters": { "key": "v" } }))).await;
    rig.make_pvc("data", "fast", json!({})).await;
    rig.until_event("data", "ProvisioningFailed", "spec.allow.create").await;
    assert!(list(&rig.provisioned_api()).await.is_empty() && rig.count("v", Rpc::CreateVolume) == 0);
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
                // Who may do everything from the first moment on: a binding is heeded some time after it was made.
                .header("impersonate-group", "system:masters")
                .body(volume.to_string().into_bytes());
            let refused = cluster.admin.request_text(request.unwrap()).await.unwrap_err().to_string();
            assert!(
                refused.contains(&format!("spec.{field} is written by the moor controller")),
                "{refused}"
            );
        }
    }
}
