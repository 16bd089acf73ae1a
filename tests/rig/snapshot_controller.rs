//! Plays the part that the snapshot-controller has in the life of VolumeSnapshots and their contents, or runs it.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::task::AbortHandle;

use super::group_snapshot_controller::{self as of_groups, IN_GROUP};
use super::snapshot_kinds::{all_snapshots, classes, contents, object, snapshots};
use super::{Cluster, LOOK};

const OF_CONTENT: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
const AS_SOURCE: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
const SECRET: &str = "snapshot.storage.kubernetes.io/deletion-secret";
const SNAPSHOTTER: &str = "csi.storage.k8s.io/snapshotter-secret";

/// Makes contents, binds them, tells the VolumeSnapshots of them, and ends both, until it is dropped.
pub enum SnapshotController {
    Played(AbortHandle),
    /// It ends when it is dropped.
    Real(Child),
}

impl Drop for SnapshotController {
    fn drop(&mut self) {
        if let Self::Played(task) = self {
            task.abort();
        }
    }
}

impl SnapshotController {
    /// Plays it, or runs the program that is named.
    pub async fn start(cluster: &Cluster) -> Self {
        Self::start_it(cluster, false).await
    }

    /// The same, and it heeds VolumeGroupSnapshots, whose kinds have to be there.
    pub async fn start_with_groups(cluster: &Cluster) -> Self {
        Self::start_it(cluster, true).await
    }

    async fn start_it(cluster: &Cluster, groups: bool) -> Self {
        if let Some(program) = std::env::var_os("MOOR_RIG_SNAPSHOT_CONTROLLER") {
            let kubeconfig = cluster.kubeconfig("snapshot-controller", None).await;
            let log = std::fs::File::create(cluster.directory.join("logs/snapshot-controller.log")).unwrap();
            let mut command = Command::new(program);
            command.arg(format!("--kubeconfig={}", kubeconfig.display()));
            command.args(["--kube-api-qps=100", "--kube-api-burst=200", "--retry-interval-max=1s", "-v=4"]);
            if groups {
                command.arg("--feature-gates=CSIVolumeGroupSnapshot=true");
            }
            command.stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
            return Self::Real(command.spawn().unwrap());
        }
        let admin = cluster.admin.clone();
        let task = tokio::spawn(async move {
            loop {
                // What fails is looked at again.
                let _ = settle(&admin).await;
                if groups {
                    let _ = of_groups::settle(&admin).await;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Self::Played(task.abort_handle())
    }
}

/// What is at a path; null where there is nothing.
pub fn at<'a>(object: &'a DynamicObject, path: &str) -> &'a Value {
    object.data.pointer(path).unwrap_or(&Value::Null)
}

/// A text that is at a path and says something.
pub(super) fn text<'a>(object: &'a DynamicObject, path: &str) -> Option<&'a str> {
    at(object, path).as_str().filter(|text| !text.is_empty())
}

async fn settle(admin: &Client) -> Result<(), Error> {
    for snapshot in all_snapshots(admin).list(&ListParams::default()).await?.items {
        let bound = content_of(admin, &snapshot).await?;
        if snapshot.metadata.deletion_timestamp.is_some() {
            end(admin, &snapshot, bound.as_ref()).await?;
            continue;
        }
        let deletes = bound.as_ref().is_some_and(|content| at(content, "/spec/deletionPolicy") == "Delete");
        let finalizers: Vec<&str> = [AS_SOURCE].into_iter().chain(deletes.then_some(BOUND)).collect();
        hold(&snapshots(admin, &namespace(&snapshot)), &snapshot, &finalizers).await?;
        match bound {
            Some(content) => tell(admin, &snapshot, &content).await?,
            None if of_groups::parent(&snapshot).is_some() => {}
            None => make(admin, &snapshot).await?,
        }
    }
    for content in contents(admin).list(&ListParams::default()).await?.items {
        if text(&content, "/spec/volumeSnapshotRef/uid").is_some()
            && content.metadata.deletion_timestamp.is_none()
        {
            hold(&contents(admin), &content, &[OF_CONTENT]).await?;
        }
    }
    Ok(())
}

pub(super) fn namespace(snapshot: &DynamicObject) -> String {
    snapshot.namespace().unwrap_or_default()
}

/// The content of a VolumeSnapshot that is for it, bound to it if it was not.
async fn content_of(admin: &Client, snapshot: &DynamicObject) -> Result<Option<DynamicObject>, Error> {
    let made = || format!("snapcontent-{}", snapshot.uid().unwrap_or_default());
    let given = text(snapshot, "/spec/source/volumeSnapshotContentName");
    // That of a group's member is bound when it is made.
    let bound = text(snapshot, "/status/boundVolumeSnapshotContentName");
    let given = given.or(bound.filter(|_| of_groups::parent(snapshot).is_some()));
    let name = given.map_or_else(made, str::to_owned);
    let Some(content) = contents(admin).get_opt(&name).await? else { return Ok(None) };
    let is_named = text(&content, "/spec/volumeSnapshotRef/name") == Some(&snapshot.name_any())
        && text(&content, "/spec/volumeSnapshotRef/namespace") == Some(&namespace(snapshot));
    match text(&content, "/spec/volumeSnapshotRef/uid") {
        Some(uid) => Ok((is_named && Some(uid) == snapshot.uid().as_deref()).then_some(content)),
        None if is_named => {
            let class = at(snapshot, "/spec/volumeSnapshotClassName");
            let bound = json!({ "spec": { "volumeSnapshotRef": { "uid": snapshot.uid() },
                "volumeSnapshotClassName": class } });
            let patch = Patch::Merge(bound);
            contents(admin).patch(&name, &PatchParams::default(), &patch).await.map(Some)
        }
        None => Ok(None),
    }
}

/// Makes the content of a VolumeSnapshot of a claim that is bound.
async fn make(admin: &Client, snapshot: &DynamicObject) -> Result<(), Error> {
    let Some(claim) = text(snapshot, "/spec/source/persistentVolumeClaimName") else { return Ok(()) };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), &namespace(snapshot));
    let bound = claims.get_opt(claim).await?.and_then(|claim| claim.spec?.volume_name);
    let Some(volume) = bound else { return Ok(()) };
    let volumes: Api<PersistentVolume> = Api::all(admin.clone());
    let spec = volumes.get(&volume).await?.spec.unwrap_or_default();
    let class_name = text(snapshot, "/spec/volumeSnapshotClassName").unwrap_or_default();
    let Some(class) = classes(admin).get_opt(class_name).await? else { return Ok(()) };
    let name = format!("snapcontent-{}", snapshot.uid().unwrap_or_default());
    let spec = json!({ "spec": {
        "driver": at(&class, "/driver"), "deletionPolicy": at(&class, "/deletionPolicy"),
        "volumeSnapshotClassName": class_name, "sourceVolumeMode": spec.volume_mode,
        "source": { "volumeHandle": spec.csi.map(|csi| csi.volume_handle) },
        "volumeSnapshotRef": { "kind": "VolumeSnapshot", "name": snapshot.name_any(),
            "namespace": namespace(snapshot), "uid": snapshot.uid() },
    } });
    let mut content = object("volumesnapshotcontents", &name, spec);
    for half in ["name", "namespace"] {
        let key = format!("{SNAPSHOTTER}-{half}").replace('/', "~1");
        if let Some(value) = text(&class, &format!("/parameters/{key}")) {
            content.annotations_mut().insert(format!("{SECRET}-{half}"), value.to_owned());
        }
    }
    contents(admin).create(&PostParams::default(), &content).await.map(drop)
}

/// Copies what a content says to its VolumeSnapshot.
async fn tell(admin: &Client, snapshot: &DynamicObject, content: &DynamicObject) -> Result<(), Error> {
    let said = |path: &str| at(content, &format!("/status/{path}")).clone();
    let taken = said("creationTime").as_i64();
    let taken = taken.and_then(|nanos| jiff::Timestamp::from_nanosecond(i128::from(nanos)).ok());
    let mut status = json!({ "boundVolumeSnapshotContentName": content.name_any(),
        "readyToUse": said("readyToUse") == true, "creationTime": taken.map(|at| at.to_string()),
        "restoreSize": said("restoreSize").as_i64().map(|bytes| bytes.to_string()), "error": said("error") });
    // Whose group is nowhere waits for it.
    if text(content, "/status/volumeGroupSnapshotHandle").is_some() {
        let Some(group) = of_groups::group_of(admin, content).await? else { return Ok(()) };
        status["volumeGroupSnapshotName"] = group.into();
    }
    let now = |key: &str| at(snapshot, &format!("/status/{key}"));
    if status.as_object().is_some_and(|all| all.iter().all(|(key, value)| now(key) == value)) {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "status": status }));
    let api = snapshots(admin, &namespace(snapshot));
    api.patch_status(&snapshot.name_any(), &PatchParams::default(), &patch).await.map(drop)
}

/// Whether a volume is being made of a VolumeSnapshot.
pub(super) async fn is_source(admin: &Client, snapshot: &DynamicObject) -> Result<bool, Error> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), &namespace(snapshot));
    let is = |claim: &PersistentVolumeClaim| {
        let named = claim.spec.as_ref().and_then(|spec| spec.data_source.as_ref());
        let pends = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
        pends && named.is_some_and(|of| of.kind == "VolumeSnapshot" && of.name == snapshot.name_any())
    };
    Ok(claims.list(&ListParams::default()).await?.items.iter().any(is))
}

/// Ends a VolumeSnapshot, when no volume is being made of it, and its content as its policy says.
async fn end(admin: &Client, snapshot: &DynamicObject, content: Option<&DynamicObject>) -> Result<(), Error> {
    if is_source(admin, snapshot).await? || of_groups::is_kept(admin, snapshot).await? {
        return Ok(());
    }
    let deletes = content.filter(|content| at(content, "/spec/deletionPolicy") == "Delete");
    if let Some(content) = content {
        if !content.annotations().contains_key(BEING_DELETED) {
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { BEING_DELETED: "yes" } } }));
            contents(admin).patch(&content.name_any(), &PatchParams::default(), &patch).await?;
        }
        if deletes.is_some() && content.metadata.deletion_timestamp.is_none() {
            contents(admin).delete(&content.name_any(), &DeleteParams::default()).await?;
        }
    }
    let mut left = snapshot.finalizers().to_vec();
    left.retain(|finalizer| ![AS_SOURCE, IN_GROUP].contains(&&**finalizer));
    left.retain(|finalizer| finalizer != BOUND || deletes.is_some());
    if left != snapshot.finalizers() {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": left } }));
        let api = snapshots(admin, &namespace(snapshot));
        api.patch(&snapshot.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Puts finalizers on, if they are not there.
pub(super) async fn hold(
    api: &Api<DynamicObject>,
    object: &DynamicObject,
    wanted: &[&str],
) -> Result<(), Error> {
    let mut finalizers = object.finalizers().to_vec();
    let missing = wanted.iter().filter(|wanted| !object.finalizers().iter().any(|has| has == *wanted));
    finalizers.extend(missing.map(|finalizer| (*finalizer).to_owned()));
    if finalizers == object.finalizers() {
        return Ok(());
    }
    let version = object.resource_version();
    let patch = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}
