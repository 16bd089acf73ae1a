//! Groups that somebody else has taken, or takes away, and volumes and drivers of which none can be taken.

use std::sync::Arc;

use moor::api::conditions::{READY, find};
use moor::csi::Rpc;
use serde_json::json;

use super::{MEMBERS, start, whole};
use crate::provision::objects::list;
use crate::rig::{Cluster, Options, Rig, SPACE, SnapshotController, at, volume};
use crate::snapshots::objects::sources;

/// An administrator names the group and its members, and a user the content.
pub async fn one_that_exists_is_registered_and_deleted(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    let (handle, members) = scene.fake.backend().add_group("old", &["a", "b"]);
    make_content(&scene, "given", "old", &handle, &members.values().collect::<Vec<_>>()).await;
    scene.make_vgs_of("old", None, json!({ "volumeGroupSnapshotContentName": "given" })).await;
    let content = scene.until_vgs_ready("old").await;
    assert_eq!(at(&content, "/status/volumeGroupSnapshotHandle"), handle.as_str());
    assert!(scene.count("old", Rpc::GetVolumeGroupSnapshot) > 0, "the driver was asked");
    // A member is registered by a content of its own, as any snapshot is.
    let of = json!({ "source": { "snapshotHandle": members["a"] }, "deletionPolicy": "Retain",
        "volumeSnapshotRef": { "name": "of-a", "namespace": SPACE } });
    scene.make_content("of-a", of).await;
    scene.make_vs_of("of-a", None, json!({ "volumeSnapshotContentName": "of-a" })).await;
    scene.until_vs_ready("of-a").await;
    scene.ask_for_restored("r", "of-a").await;
    scene.until_bound("r").await;
    assert_eq!(sources(&scene, "r"), [members["a"].clone()]);
    // Where it is known to be a member it stays until the group is gone.
    scene.delete_vs("of-a").await;
    scene.delete_content("of-a").await;
    scene.delete_vgs("old").await;
    scene.until_all_gone("old").await;
    scene.until_group_content_gone("given").await;
    scene.until_vs_gone("of-a").await;
    assert_eq!(scene.asked_to_delete_group("old"), [["snap-old-a", "snap-old-b"]]);
    assert_eq!(scene.count("old", Rpc::CreateVolumeGroupSnapshot), 0);
    assert!(scene.fake.backend().groups.is_empty() && scene.fake.backend().snapshots.is_empty());
    // One that the driver does not have is told of.
    make_content(&scene, "no", "no", "group-no", &[&"snap-no".to_owned()]).await;
    scene.make_vgs_of("no", None, json!({ "volumeGroupSnapshotContentName": "no" })).await;
    scene.until_vgs_told("no", "the driver has no group group-no").await;
    scene.delete_vgs("no").await;
    scene.until_all_gone("no").await;
    scene.fake.assert_obeyed();
}

async fn make_content(rig: &Rig, name: &str, of: &str, handle: &str, members: &[&String]) {
    let handles = json!({ "volumeGroupSnapshotHandle": handle, "volumeSnapshotHandles": members });
    let spec = json!({ "source": { "groupSnapshotHandles": handles },
        "volumeGroupSnapshotRef": { "name": of, "namespace": SPACE } });
    rig.make_group_content(name, spec).await;
}

/// Its owner has it, and nothing is taken of the other one by itself.
pub async fn a_users_volume_is_not_taken_with_others(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claim_of("a").await;
    let mut users = volume("b");
    users.spec.persistent_volume_claim = Some(serde_json::from_value(json!({ "name": "data" })).unwrap());
    scene.make_volume(&users).await;
    let made = || async { scene.pvc_api().get_opt("data").await.unwrap().map(drop) };
    scene.until("the claim is made", made).await;
    scene.until_bound("data").await;
    scene.label(&["a", "data"], "together").await;
    scene.make_group_class("cold", "g", "Delete").await;
    scene.make_vgs("g", "cold", "together").await;
    scene.until_vgs_told("g", &format!("Volume {SPACE}/b has the volume")).await;
    scene.delete_vgs("g").await;
    scene.until_all_gone("g").await;
    assert_eq!(scene.count("g", Rpc::CreateVolumeGroupSnapshot) + scene.count("a", Rpc::CreateSnapshot), 0);
}

/// It takes snapshots one by one, which is not what was asked for.
pub async fn a_driver_that_takes_no_groups_is_told_of(cluster: Arc<Cluster>) {
    let scene = start(&cluster, Options { groups: false, ..whole() }).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    scene.make_group_class("cold", "g", "Delete").await;
    scene.make_vgs("g", "cold", "together").await;
    scene.until_vgs_told("g", "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT").await;
    scene.delete_vgs("g").await;
    scene.until_all_gone("g").await;
    for volume in ["a", "b"] {
        assert_eq!(scene.count(volume, Rpc::CreateSnapshot), 0);
    }
}

/// The snapshot-controller waits for that too, and whoever deletes the content himself does not.
pub async fn what_a_volume_is_being_made_of_is_not_deleted(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    scene.make_group_class("cold", "g", "Delete").await;
    scene.make_vgs("g", "cold", "together").await;
    let content = scene.until_vgs_ready("g").await.metadata.name.unwrap();
    let [of_a, of_b] = scene.until_members("g", ["a", "b"]).await;
    scene.fake.hold("r", Rpc::CreateVolume);
    scene.ask_for_restored("r", &of_a).await;
    scene.until_called("r", Rpc::CreateVolume).await;
    // It would have it taken anew when the content is gone.
    let (_binder, controller) = scene.kubernetes;
    drop(controller);
    let scene = scene.rig;
    let word = json!({ "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted": "yes" });
    scene.patch_group_content(&content, json!({ "metadata": { "annotations": word } })).await;
    scene.delete_group_content(&content).await;
    scene
        .until("a Snapshot waits for the Volume that is made of it", || async {
            let kept = list(&scene.kept_api()).await;
            let waits = |status: &moor::api::snapshot::SnapshotStatus| {
                find(&status.conditions, READY)
                    .is_some_and(|c| c.reason == "InUse" && c.message.contains("is being made of it"))
            };
            kept.iter().filter_map(|one| one.status.as_ref()).any(waits).then_some(())
        })
        .await;
    // Nothing more is made of a member.
    scene.ask_for_restored("late", &of_b).await;
    scene.until_asked("late").await;
    assert_eq!(scene.count("g", Rpc::DeleteVolumeGroupSnapshot), 0);
    scene.fake.let_go("r", Rpc::CreateVolume);
    scene.until_bound("r").await;
    scene.until_group_content_gone(&content).await;
    assert_eq!(scene.asked_to_delete_group("g"), [MEMBERS]);
    assert!(scene.fake.backend().snapshots.is_empty());
    assert_eq!(scene.count("late", Rpc::CreateVolume), 0);
    scene.delete_pvc("late").await;
    scene.delete_vgs("g").await;
    let _controller = SnapshotController::start_with_groups(&cluster).await;
    scene.until_all_gone("g").await;
    scene.fake.assert_obeyed();
}

/// Nobody loses a snapshot by that.
pub async fn a_content_that_is_removed_by_force_leaves_its_storage(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    scene.make_group_class("cold", "g", "Delete").await;
    scene.make_vgs("g", "cold", "together").await;
    let content = scene.until_vgs_ready("g").await.metadata.name.unwrap();
    scene.until_members("g", ["a", "b"]).await;
    let members = scene.content_names().await;
    for member in &members {
        scene.until_content_held(member).await;
    }
    drop(scene.kubernetes);
    let rig = scene.rig;
    rig.delete_group_content(&content).await;
    rig.patch_group_content(&content, json!({ "metadata": { "finalizers": null } })).await;
    rig.until_group_content_gone(&content).await;
    for member in &members {
        rig.delete_content(member).await;
        rig.patch_content(member, json!({ "metadata": { "finalizers": null } })).await;
        rig.until_content_gone(member).await;
    }
    rig.until_nothing_kept().await;
    assert!(rig.fake.backend().groups.contains_key("g"));
    assert_eq!(rig.count("g", Rpc::DeleteVolumeGroupSnapshot), 0);
    rig.leaves(&["group-g", MEMBERS[0], MEMBERS[1]], "its content was removed by force");
}
