//! The kinds of snapshot.storage.k8s.io, as far as moor and these tests know them: the cluster has them while a case wants them.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::missing_is_fine;

const GROUP: &str = "snapshot.storage.k8s.io";

/// The kinds: each with its plural, and whether it has namespaces and a status.
const KINDS: [(&str, &str, bool, bool); 3] = [
    ("VolumeSnapshotClass", "volumesnapshotclasses", false, false),
    ("VolumeSnapshotContent", "volumesnapshotcontents", false, true),
    ("VolumeSnapshot", "volumesnapshots", true, true),
];

fn kind(plural: &str) -> ApiResource {
    let kind = KINDS.iter().find(|(_, of, ..)| *of == plural).map_or("", |(kind, ..)| kind);
    ApiResource {
        group: GROUP.into(),
        version: "v1".into(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.into(),
        plural: plural.into(),
    }
}

/// All VolumeSnapshotContents.
pub fn contents(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &kind("volumesnapshotcontents"))
}

/// All VolumeSnapshotClasses.
pub fn classes(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &kind("volumesnapshotclasses"))
}

/// The VolumeSnapshots of all namespaces.
pub fn all_snapshots(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &kind("volumesnapshots"))
}

/// The VolumeSnapshots of one namespace.
pub fn snapshots(admin: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(admin.clone(), namespace, &kind("volumesnapshots"))
}

/// A content or a VolumeSnapshot of this name.
pub fn object(plural: &str, name: &str, more: Value) -> DynamicObject {
    let mut object = DynamicObject::new(name, &kind(plural));
    object.data = more;
    object
}

/// Installs them, and waits until they are served.
pub async fn define(admin: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for definition in wanted() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    until(admin, true).await;
}

/// Definitions that let everything through; in their place those of a folder, as Kubernetes' own project has them.
fn wanted() -> Vec<CustomResourceDefinition> {
    if let Some(folder) = std::env::var_os("MOOR_RIG_SNAPSHOT_KINDS") {
        let read = |plural: &str| {
            let file = std::path::Path::new(&folder).join(format!("{GROUP}_{plural}.yaml"));
            serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
        };
        return KINDS.iter().map(|(_, plural, ..)| read(plural)).collect();
    }
    let own = |(kind, plural, namespaced, has_status): (&str, &str, bool, bool)| {
        let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let subresources = if has_status { json!({ "status": {} }) } else { json!({}) };
        let version = json!({ "name": "v1", "served": true, "storage": true, "subresources": subresources,
            "schema": { "openAPIV3Schema": any } });
        let definition = json!({
            // The API server guards the group, and wants to be told who has agreed.
            "metadata": { "name": format!("{plural}.{GROUP}"),
                "annotations": { "api-approved.kubernetes.io": "unapproved, for moor's tests" } },
            "spec": { "group": GROUP, "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [version] },
        });
        serde_json::from_value(definition).unwrap()
    };
    KINDS.into_iter().map(own).collect()
}

/// Takes them away, with all their objects, finalizers or not.
pub async fn undefine(admin: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for (_, plural, namespaced, _) in KINDS {
        let all: Api<DynamicObject> = Api::all_with(admin.clone(), &kind(plural));
        for one in all.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let namespace = one.namespace().unwrap_or_default();
            let api = if namespaced { snapshots(admin, &namespace) } else { all.clone() };
            let freed = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            missing_is_fine(api.patch(&one.name_any(), &PatchParams::default(), &freed).await.map(drop));
            missing_is_fine(api.delete(&one.name_any(), &DeleteParams::default()).await.map(drop));
        }
        let name = format!("{plural}.{GROUP}");
        missing_is_fine(definitions.delete(&name, &DeleteParams::default()).await.map(drop));
    }
    until(admin, false).await;
}

/// Waits until all of them are served, or none and nothing is left of their definitions.
async fn until(admin: &Client, are_there: bool) {
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for (_, plural, ..) in KINDS {
        let all: Api<DynamicObject> = Api::all_with(admin.clone(), &kind(plural));
        let is = || async {
            let is_served = all.list(&ListParams::default()).await.is_ok();
            let is_defined =
                definitions.get_opt(&format!("{plural}.{GROUP}")).await.is_ok_and(|found| found.is_some());
            is_served == are_there && is_defined == are_there
        };
        let end = std::time::Instant::now() + super::PATIENCE;
        while !is().await {
            assert!(std::time::Instant::now() < end, "{plural}: are there is not {are_there}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
