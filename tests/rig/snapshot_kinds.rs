//! The kinds of snapshot.storage.k8s.io and groupsnapshot.storage.k8s.io, as far as moor and these tests know them: the cluster
//! has them while a case wants them.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::missing_is_fine;

/// A group of kinds: its name and version, and of each kind its plural, and whether it has namespaces and a status.
struct Group {
    name: &'static str,
    version: &'static str,
    kinds: [(&'static str, &'static str, bool, bool); 3],
}

const SNAPSHOTS: Group = Group {
    name: "snapshot.storage.k8s.io",
    version: "v1",
    kinds: [
        ("VolumeSnapshotClass", "volumesnapshotclasses", false, false),
        ("VolumeSnapshotContent", "volumesnapshotcontents", false, true),
        ("VolumeSnapshot", "volumesnapshots", true, true),
    ],
};

const GROUPS: Group = Group {
    name: "groupsnapshot.storage.k8s.io",
    version: "v1beta2",
    kinds: [
        ("VolumeGroupSnapshotClass", "volumegroupsnapshotclasses", false, false),
        ("VolumeGroupSnapshotContent", "volumegroupsnapshotcontents", false, true),
        ("VolumeGroupSnapshot", "volumegroupsnapshots", true, true),
    ],
};

impl Group {
    fn kind(&self, plural: &str) -> ApiResource {
        let kind = self.kinds.iter().find(|(_, of, ..)| *of == plural).map_or("", |(kind, ..)| kind);
        ApiResource {
            group: self.name.into(),
            version: self.version.into(),
            api_version: format!("{}/{}", self.name, self.version),
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    /// Definitions that let everything through; in their place those of a folder, as Kubernetes' own project has them.
    fn definitions(&self) -> Vec<CustomResourceDefinition> {
        if let Some(folder) = std::env::var_os("MOOR_RIG_SNAPSHOT_KINDS") {
            let read = |plural: &str| {
                let file = std::path::Path::new(&folder).join(format!("{}_{plural}.yaml", self.name));
                let text = std::fs::read_to_string(file).unwrap();
                let mut read: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
                // What translates between versions is a webhook, which is not there.
                read.spec.conversion = None;
                read.spec.versions.retain(|version| version.storage);
                read
            };
            return self.kinds.iter().map(|(_, plural, ..)| read(plural)).collect();
        }
        let own = |(kind, plural, namespaced, has_status): (&str, &str, bool, bool)| {
            let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
            let subresources = if has_status { json!({ "status": {} }) } else { json!({}) };
            let version = json!({ "name": self.version, "served": true, "storage": true,
                "subresources": subresources, "schema": { "openAPIV3Schema": any } });
            let definition = json!({
                // The API server guards the group, and wants to be told who has agreed.
                "metadata": { "name": format!("{plural}.{}", self.name),
                    "annotations": { "api-approved.kubernetes.io": "unapproved, for moor's tests" } },
                "spec": { "group": self.name, "scope": if namespaced { "Namespaced" } else { "Cluster" },
                    "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                    "versions": [version] },
            });
            serde_json::from_value(definition).unwrap()
        };
        self.kinds.into_iter().map(own).collect()
    }

    async fn define(&self, admin: &Client) {
        let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
        for definition in self.definitions() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        self.until(admin, true).await;
    }

    async fn undefine(&self, admin: &Client) {
        let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
        for (_, plural, ..) in self.kinds {
            let kind = self.kind(plural);
            let all: Api<DynamicObject> = Api::all_with(admin.clone(), &kind);
            for one in all.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
                let api = match one.namespace() {
                    Some(namespace) => Api::namespaced_with(admin.clone(), &namespace, &kind),
                    None => all.clone(),
                };
                let freed = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                missing_is_fine(api.patch(&one.name_any(), &PatchParams::default(), &freed).await.map(drop));
                missing_is_fine(api.delete(&one.name_any(), &DeleteParams::default()).await.map(drop));
            }
            let name = format!("{plural}.{}", self.name);
            missing_is_fine(definitions.delete(&name, &DeleteParams::default()).await.map(drop));
        }
        self.until(admin, false).await;
    }

    /// Waits until all of them are served, or none and nothing is left of their definitions.
    async fn until(&self, admin: &Client, are_there: bool) {
        let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
        for (_, plural, ..) in self.kinds {
            let all: Api<DynamicObject> = Api::all_with(admin.clone(), &self.kind(plural));
            let name = format!("{plural}.{}", self.name);
            let is = || async {
                let is_served = all.list(&ListParams::default()).await.is_ok();
                let is_defined = definitions.get_opt(&name).await.is_ok_and(|found| found.is_some());
                is_served == are_there && is_defined == are_there
            };
            let end = std::time::Instant::now() + super::PATIENCE;
            while !is().await {
                assert!(std::time::Instant::now() < end, "{plural}: are there is not {are_there}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// All VolumeSnapshotContents.
pub fn contents(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &SNAPSHOTS.kind("volumesnapshotcontents"))
}

/// All VolumeSnapshotClasses.
pub fn classes(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &SNAPSHOTS.kind("volumesnapshotclasses"))
}

/// The VolumeSnapshots of all namespaces.
pub fn all_snapshots(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &SNAPSHOTS.kind("volumesnapshots"))
}

/// The VolumeSnapshots of one namespace.
pub fn snapshots(admin: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(admin.clone(), namespace, &SNAPSHOTS.kind("volumesnapshots"))
}

/// All VolumeGroupSnapshotContents.
pub fn group_contents(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &GROUPS.kind("volumegroupsnapshotcontents"))
}

/// All VolumeGroupSnapshotClasses.
pub fn group_classes(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &GROUPS.kind("volumegroupsnapshotclasses"))
}

/// The VolumeGroupSnapshots of all namespaces.
pub fn all_groups(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &GROUPS.kind("volumegroupsnapshots"))
}

/// The VolumeGroupSnapshots of one namespace.
pub fn groups(admin: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(admin.clone(), namespace, &GROUPS.kind("volumegroupsnapshots"))
}

/// An object of either group.
pub fn object(plural: &str, name: &str, more: Value) -> DynamicObject {
    let group = if GROUPS.kinds.iter().any(|(_, of, ..)| *of == plural) { GROUPS } else { SNAPSHOTS };
    let mut object = DynamicObject::new(name, &group.kind(plural));
    object.data = more;
    object
}

/// Installs the kinds of snapshot.storage.k8s.io, and waits until they are served.
pub async fn define(admin: &Client) {
    SNAPSHOTS.define(admin).await;
}

/// Installs those of groupsnapshot.storage.k8s.io too.
pub async fn define_groups(admin: &Client) {
    GROUPS.define(admin).await;
}

/// Takes away what there is of either, with all objects, finalizers or not.
pub async fn undefine(admin: &Client) {
    GROUPS.undefine(admin).await;
    SNAPSHOTS.undefine(admin).await;
}
