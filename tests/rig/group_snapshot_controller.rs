//! Plays the part that the snapshot-controller has in the life of VolumeGroupSnapshots, their contents and their members.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::snapshot_controller::{at, hold, is_source, namespace, text};
use super::snapshot_kinds::{all_groups, contents, group_classes, group_contents, groups, object, snapshots};

const OF_CONTENT: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
const BOUND: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection";
const BEING_DELETED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
const SECRET: &str = "groupsnapshot.storage.kubernetes.io/deletion-secret";
const MEMBER_SECRET: &str = "snapshot.storage.kubernetes.io/deletion-secret";
const SNAPSHOTTER: &str = "csi.storage.k8s.io/group-snapshotter-secret";
/// On a member's content: the driver's id of the group.
const OF_GROUP: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
/// On a VolumeSnapshot that came with a group.
pub(super) const IN_GROUP: &str = "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";

pub(super) async fn settle(admin: &Client) -> Result<(), Error> {
    for group in all_groups(admin).list(&ListParams::default()).await?.items {
        let bound = content_of(admin, &group).await?;
        if group.metadata.deletion_timestamp.is_some() {
            end(admin, &group, bound.as_ref()).await?;
            continue;
        }
        let Some(content) = bound else {
            make(admin, &group).await?;
            continue;
        };
        if text(&group, "/status/boundVolumeGroupSnapshotContentName").is_some() {
            hold(&groups(admin, &namespace(&group)), &group, &[BOUND]).await?;
        }
        if at(&content, "/spec/source/volumeHandles").is_array() {
            make_members(admin, &group, &content).await?;
        }
        tell(admin, &group, &content).await?;
    }
    for content in group_contents(admin).list(&ListParams::default()).await?.items {
        if text(&content, "/spec/volumeGroupSnapshotRef/uid").is_some()
            && content.metadata.deletion_timestamp.is_none()
        {
            hold(&group_contents(admin), &content, &[OF_CONTENT]).await?;
        }
    }
    Ok(())
}

/// The name of the VolumeGroupSnapshot that a VolumeSnapshot came with.
pub(super) fn parent(snapshot: &DynamicObject) -> Option<String> {
    let owner = snapshot.owner_references().iter().find(|owner| owner.kind == "VolumeGroupSnapshot");
    owner.map(|owner| owner.name.clone())
}

/// The name of the VolumeGroupSnapshot whose content says to be of the same group as a member's content.
pub(super) async fn group_of(admin: &Client, content: &DynamicObject) -> Result<Option<String>, Error> {
    let Some(handle) = text(content, "/status/volumeGroupSnapshotHandle") else { return Ok(None) };
    let all = group_contents(admin).list(&ListParams::default()).await?.items;
    let of = all.iter().find(|of| text(of, "/status/volumeGroupSnapshotHandle") == Some(handle));
    Ok(of.and_then(|of| text(of, "/spec/volumeGroupSnapshotRef/name")).map(str::to_owned))
}

/// Whether a VolumeSnapshot has to stay because its VolumeGroupSnapshot is there.
pub(super) async fn is_kept(admin: &Client, snapshot: &DynamicObject) -> Result<bool, Error> {
    let Some(group) = text(snapshot, "/status/volumeGroupSnapshotName") else { return Ok(false) };
    Ok(groups(admin, &namespace(snapshot)).get_opt(group).await?.is_some())
}

/// The content of a VolumeGroupSnapshot that is for it, bound to it if it was not.
async fn content_of(admin: &Client, group: &DynamicObject) -> Result<Option<DynamicObject>, Error> {
    let made = || format!("groupsnapcontent-{}", group.uid().unwrap_or_default());
    let given = text(group, "/spec/source/volumeGroupSnapshotContentName");
    let name = given.map_or_else(made, str::to_owned);
    let Some(content) = group_contents(admin).get_opt(&name).await? else { return Ok(None) };
    let is_named = text(&content, "/spec/volumeGroupSnapshotRef/name") == Some(&group.name_any())
        && text(&content, "/spec/volumeGroupSnapshotRef/namespace") == Some(&namespace(group));
    match text(&content, "/spec/volumeGroupSnapshotRef/uid") {
        Some(uid) => Ok((is_named && Some(uid) == group.uid().as_deref()).then_some(content)),
        None if is_named => {
            let class = at(group, "/spec/volumeGroupSnapshotClassName");
            let bound = json!({ "spec": { "volumeGroupSnapshotRef": { "uid": group.uid() },
                "volumeGroupSnapshotClassName": class } });
            let patch = Patch::Merge(bound);
            group_contents(admin).patch(&name, &PatchParams::default(), &patch).await.map(Some)
        }
        None => Ok(None),
    }
}

/// Makes the content of a VolumeGroupSnapshot of claims, when all that have its labels are bound.
async fn make(admin: &Client, group: &DynamicObject) -> Result<(), Error> {
    let labels: BTreeMap<String, String> =
        serde_json::from_value(at(group, "/spec/source/selector/matchLabels").clone()).unwrap_or_default();
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if selector.is_empty() {
        return Ok(());
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), &namespace(group));
    let volumes: Api<PersistentVolume> = Api::all(admin.clone());
    let mut handles = Vec::new();
    for claim in claims.list(&ListParams::default().labels(&selector.join(","))).await?.items {
        let is_bound = claim.status.and_then(|status| status.phase).as_deref() == Some("Bound");
        let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|_| is_bound);
        let Some(volume) = volume else { return Ok(()) };
        let csi = volumes.get(&volume).await?.spec.and_then(|spec| spec.csi);
        handles.extend(csi.map(|csi| csi.volume_handle));
    }
    let Some(class) = class_of(admin, group).await?.filter(|_| !handles.is_empty()) else { return Ok(()) };
    let name = format!("groupsnapcontent-{}", group.uid().unwrap_or_default());
    let spec = json!({ "spec": {
        "driver": at(&class, "/driver"), "deletionPolicy": at(&class, "/deletionPolicy"),
        "volumeGroupSnapshotClassName": class.name_any(), "source": { "volumeHandles": handles },
        "volumeGroupSnapshotRef": { "apiVersion": "groupsnapshot.storage.k8s.io/v1beta2",
            "kind": "VolumeGroupSnapshot", "name": group.name_any(), "namespace": namespace(group),
            "uid": group.uid() },
    } });
    let mut content = object("volumegroupsnapshotcontents", &name, spec);
    content.annotations_mut().extend(secret_of(&class, SECRET));
    group_contents(admin).create(&PostParams::default(), &content).await?;
    // Before anything is said of it: it is held from then on.
    let bound = json!({ "status": { "boundVolumeGroupSnapshotContentName": name, "readyToUse": false } });
    let api = groups(admin, &namespace(group));
    api.patch_status(&group.name_any(), &PatchParams::default(), &Patch::Merge(bound)).await.map(drop)
}

async fn class_of(admin: &Client, group: &DynamicObject) -> Result<Option<DynamicObject>, Error> {
    match text(group, "/spec/volumeGroupSnapshotClassName") {
        Some(class) => group_classes(admin).get_opt(class).await,
        None => Ok(None),
    }
}

/// The annotations that name the Secret of a class.
fn secret_of(class: &DynamicObject, annotation: &str) -> BTreeMap<String, String> {
    let half = |half: &str| {
        let key = format!("/parameters/{}", format!("{SNAPSHOTTER}-{half}").replace('/', "~1"));
        Some((format!("{annotation}-{half}"), text(class, &key)?.to_owned()))
    };
    ["name", "namespace"].into_iter().filter_map(half).collect()
}

/// Makes and binds a VolumeSnapshot and its content of everything that a group's content lists.
async fn make_members(admin: &Client, group: &DynamicObject, content: &DynamicObject) -> Result<(), Error> {
    let Some(handle) = text(content, "/status/volumeGroupSnapshotHandle") else { return Ok(()) };
    // Upstream it does so until the group is ready, and again after each change of it until then.
    if at(group, "/status/readyToUse") == true {
        return Ok(());
    }
    let Some(class) = class_of(admin, group).await? else { return Ok(()) };
    let listed = at(content, "/status/volumeSnapshotInfoList").as_array().cloned().unwrap_or_default();
    for member in &listed {
        make_member(admin, group, content, handle, (member, &class)).await?;
    }
    Ok(())
}

async fn make_member(
    admin: &Client,
    group: &DynamicObject,
    content: &DynamicObject,
    handle: &str,
    (member, class): (&Value, &DynamicObject),
) -> Result<(), Error> {
    let volume = member["volumeHandle"].as_str().unwrap_or_default();
    let digest = Sha256::digest(format!("{}{volume}", group.uid().unwrap_or_default()));
    let digest = data_encoding::HEXLOWER.encode(&digest);
    let (name, content_name) = (format!("snapshot-{digest}"), format!("snapcontent-{digest}"));
    let stands = volume_of(admin, volume).await?.and_then(|volume| volume.spec).unwrap_or_default();
    let space = namespace(group);
    let spec = json!({ "spec": {
        "driver": at(content, "/spec/driver"), "deletionPolicy": at(content, "/spec/deletionPolicy"),
        "source": { "volumeHandle": volume }, "sourceVolumeMode": stands.volume_mode,
        "volumeSnapshotRef": { "kind": "VolumeSnapshot", "name": name, "namespace": space },
    } });
    let mut of = object("volumesnapshotcontents", &content_name, spec);
    of.annotations_mut().insert(OF_GROUP.to_owned(), handle.to_owned());
    of.annotations_mut().extend(secret_of(class, MEMBER_SECRET));
    // Upstream (v8.4.0) comes to no end either where one is there already: it goes on with what the API server answers then, which
    // has no name. A content that lists its members before the group is ready is listed once more when it is.
    contents(admin).create(&PostParams::default(), &of).await?;

    let claim = stands.claim_ref.and_then(|claim| claim.name).unwrap_or_default();
    let spec = json!({ "spec": { "source": { "persistentVolumeClaimName": claim } } });
    let mut snapshot = object("volumesnapshots", &name, spec);
    let owner = json!([{ "apiVersion": "groupsnapshot.storage.k8s.io/v1beta2", "kind": "VolumeGroupSnapshot",
        "name": group.name_any(), "uid": group.uid() }]);
    snapshot.metadata.owner_references = serde_json::from_value(owner).ok();
    snapshot.metadata.finalizers = Some(vec![IN_GROUP.to_owned()]);
    let api = snapshots(admin, &space);
    let uid = api.create(&PostParams::default(), &snapshot).await?.uid();

    let parameters = PatchParams::default();
    let bound = Patch::Merge(json!({ "spec": { "volumeSnapshotRef": { "uid": uid } } }));
    contents(admin).patch(&content_name, &parameters, &bound).await?;
    let bound = Patch::Merge(json!({ "status": { "boundVolumeSnapshotContentName": content_name } }));
    api.patch_status(&name, &parameters, &bound).await?;
    // What else stood there is not kept.
    let said = json!({ "status": {
        "snapshotHandle": member["snapshotHandle"], "volumeGroupSnapshotHandle": handle,
        "creationTime": member["creationTime"], "restoreSize": member["restoreSize"],
        "readyToUse": member["readyToUse"], "error": null } });
    contents(admin).patch_status(&content_name, &parameters, &Patch::Merge(said)).await.map(drop)
}

/// The PersistentVolume that stands for a volume of the driver.
async fn volume_of(admin: &Client, handle: &str) -> Result<Option<PersistentVolume>, Error> {
    let volumes: Api<PersistentVolume> = Api::all(admin.clone());
    let is = |volume: &PersistentVolume| {
        let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        csi.is_some_and(|csi| csi.volume_handle == handle)
    };
    Ok(volumes.list(&ListParams::default()).await?.items.into_iter().find(is))
}

/// Copies what a content says to its VolumeGroupSnapshot.
async fn tell(admin: &Client, group: &DynamicObject, content: &DynamicObject) -> Result<(), Error> {
    let said = |path: &str| at(content, &format!("/status/{path}")).clone();
    let status = json!({ "boundVolumeGroupSnapshotContentName": content.name_any(),
        "readyToUse": said("readyToUse") == true, "creationTime": said("creationTime"),
        "error": said("error") });
    let now = |key: &str| at(group, &format!("/status/{key}"));
    if status.as_object().is_some_and(|all| all.iter().all(|(key, value)| now(key) == value)) {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "status": status }));
    let api = groups(admin, &namespace(group));
    api.patch_status(&group.name_any(), &PatchParams::default(), &patch).await.map(drop)
}

/// Ends a VolumeGroupSnapshot, when no volume is being made of a member, and its content as its policy says. Its members end when
/// it is gone.
async fn end(admin: &Client, group: &DynamicObject, content: Option<&DynamicObject>) -> Result<(), Error> {
    if !group.finalizers().iter().any(|finalizer| finalizer == BOUND) {
        return Ok(());
    }
    let api = snapshots(admin, &namespace(group));
    let mut members = api.list(&ListParams::default()).await?.items;
    members.retain(|snapshot| parent(snapshot) == Some(group.name_any()));
    for member in &members {
        if is_source(admin, member).await? {
            return Ok(());
        }
    }
    let deletes = content.filter(|content| at(content, "/spec/deletionPolicy") == "Delete");
    if let Some(content) = content {
        if !content.annotations().contains_key(BEING_DELETED) {
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { BEING_DELETED: "yes" } } }));
            group_contents(admin).patch(&content.name_any(), &PatchParams::default(), &patch).await?;
        }
        if deletes.is_some() && content.metadata.deletion_timestamp.is_none() {
            group_contents(admin).delete(&content.name_any(), &DeleteParams::default()).await?;
        }
    }
    for member in members.iter().filter(|member| member.metadata.deletion_timestamp.is_none()) {
        api.delete(&member.name_any(), &DeleteParams::default()).await?;
    }
    if deletes.is_none() {
        let mut left = group.finalizers().to_vec();
        left.retain(|finalizer| finalizer != BOUND);
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": left } }));
        let api = groups(admin, &namespace(group));
        api.patch(&group.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}
