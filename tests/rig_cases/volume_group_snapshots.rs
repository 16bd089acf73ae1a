//! VolumeGroupSnapshots of claims that moor provisions, with a snapshot-controller, and volumes that are made of their members; and
//! Snapshots of several Volumes at one moment.

mod crashes;
mod natively;
pub mod objects;
mod there;

use std::sync::Arc;

use moor::csi::Rpc;
use serde_json::{Value, json};

use crate::cases;
use crate::rig::fake::{WORDS, groups};
use crate::rig::snapshot_kinds::{define, define_groups, undefine};
use crate::rig::{Binder, Case, Cluster, Fault, Options, Rig, SnapshotController, at};
use crate::snapshots::objects::sources;

/// The ids of the members of the group `g` of the volumes `a` and `b`.
const MEMBERS: [&str; 2] = ["snap-g-a", "snap-g-b"];

/// Kubernetes with its snapshot-controller, and moor.
struct Scene {
    rig: Arc<Rig>,
    kubernetes: (Binder, SnapshotController),
}

async fn start(cluster: &Arc<Cluster>, options: Options) -> Scene {
    define(&cluster.admin).await;
    define_groups(&cluster.admin).await;
    let rig = Rig::start(cluster, options).await;
    let controller = SnapshotController::start_with_groups(cluster).await;
    Scene { rig, kubernetes: (Binder::start(&cluster.admin), controller) }
}

/// The driver takes snapshots, and groups of them.
fn whole() -> Options {
    Options { snapshots: true, groups: true, ..Options::default() }
}

impl std::ops::Deref for Scene {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

/// What a content says of its members, in the order of the volumes.
fn said_of_members(content: &kube::api::DynamicObject) -> Vec<Value> {
    let mut all = at(content, "/status/volumeSnapshotInfoList").as_array().cloned().unwrap_or_default();
    all.sort_by_key(|member| member["volumeHandle"].to_string());
    all
}

/// From the VolumeGroupSnapshot to the driver and back, and volumes that are made of its members and outlive it.
async fn claims_are_snapshotted_as_a_group_and_restored(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    // Of the same class of volumes, and not in the group.
    scene.make_claim_of("beside").await;
    scene.fake.backend().volumes.get_mut("a").unwrap().grown = 1 << 20;
    scene.make_group_class("cold", "g", "Delete").await;
    let uid = scene.make_vgs("g", "cold", "together").await;
    let content = scene.until_vgs_ready("g").await;
    assert_eq!(at(&content, "/status/volumeGroupSnapshotHandle"), "group-g");
    assert_eq!(at(&content, "/status/creationTime"), "2025-06-15T15:06:40Z");
    assert!(at(&content, "/status/error").is_null(), "{content:?}");
    let said = said_of_members(&content);
    for (member, (volume, snapshot)) in said.iter().zip([("vol-a", MEMBERS[0]), ("vol-b", MEMBERS[1])]) {
        assert_eq!((&member["volumeHandle"], &member["snapshotHandle"]), (&json!(volume), &json!(snapshot)));
        assert_eq!(member["readyToUse"], true);
        assert_eq!(member["creationTime"], groups::TAKEN * 1_000_000_000);
    }
    assert_eq!((said.len(), &said[0]["restoreSize"]), (2, &json!(1 << 20)));
    let asked = scene.asked_to_take_group("g");
    let mut of = asked[0].source_volume_ids.clone();
    of.sort();
    assert_eq!(of, ["vol-a", "vol-b"]);
    assert_eq!(asked[0].name, format!("groupsnapshot-{uid}"), "csi-snapshotter finds it by this name");
    assert_eq!(asked[0].parameters.keys().collect::<Vec<_>>(), ["key"]);

    let [of_a, of_b] = scene.until_members("g", ["a", "b"]).await;
    scene.ask_for_restored("ra", &of_a).await;
    scene.ask_for_restored("rb", &of_b).await;
    for (claim, member) in [("ra", MEMBERS[0]), ("rb", MEMBERS[1])] {
        scene.until_bound(claim).await;
        assert_eq!(sources(&scene, claim), [member]);
    }
    // It outlives the volumes that it is of, and what was made of it outlives it.
    for claim in ["a", "b", "beside"] {
        scene.delete_pvc(claim).await;
    }
    scene.delete_vgs("g").await;
    scene.until_all_gone("g").await;
    scene.until_group_content_gone(&content.metadata.name.unwrap()).await;
    assert!(scene.has_storage("ra") && scene.has_storage("rb"));
    scene.delete_pvc("ra").await;
    scene.delete_pvc("rb").await;
    scene.until_nothing_provisioned().await;
    assert!(scene.fake.backend().snapshots.is_empty() && scene.fake.backend().groups.is_empty());
    assert_eq!(
        (scene.count("g", Rpc::CreateVolumeGroupSnapshot), scene.count("g", Rpc::DeleteVolumeGroupSnapshot)),
        (1, 1)
    );
    assert_eq!(scene.asked_to_delete_group("g"), [MEMBERS]);
    for volume in ["a", "b"] {
        let of_member = scene.count(&groups::member("g", volume), Rpc::DeleteSnapshot);
        assert_eq!((scene.count(volume, Rpc::CreateSnapshot), of_member), (0, 0), "{volume}");
    }
    scene.assert_nothing_left().await;
}

/// The contents stay, and when an administrator deletes them the storage does.
async fn what_is_retained_stays_with_its_storage(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    scene.make_group_class("cold", "g", "Retain").await;
    scene.make_vgs("g", "cold", "together").await;
    let content = scene.until_vgs_ready("g").await.metadata.name.unwrap();
    scene.until_members("g", ["a", "b"]).await;
    scene.delete_vgs("g").await;
    scene.until_vgs_gone("g").await;
    scene.until_members_gone("g").await;
    assert!(scene.group_content(&content).await.is_some());
    let members = scene.content_names().await;
    assert_eq!(members.len(), 2);
    for member in members {
        scene.delete_content(&member).await;
        scene.until_content_gone(&member).await;
    }
    scene.delete_group_content(&content).await;
    scene.until_group_content_gone(&content).await;
    scene.until_nothing_kept().await;
    assert_eq!(scene.count("g", Rpc::DeleteVolumeGroupSnapshot), 0);
    assert!(scene.fake.backend().groups.contains_key("g"));
    scene.fake.assert_obeyed();
    scene.leaves(&["group-g", MEMBERS[0], MEMBERS[1]], "Retain");
}

/// In the words of the driver, and no longer than it is so.
async fn what_the_driver_refuses_is_told_to_who_asked(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    scene.fake.fail("g", Rpc::CreateVolumeGroupSnapshot, Fault::CodeBefore(tonic::Code::Internal));
    scene.make_group_class("cold", "g", "Delete").await;
    scene.make_vgs("g", "cold", "together").await;
    scene.until_vgs_told("g", WORDS).await;
    scene.fake.heal("g", Rpc::CreateVolumeGroupSnapshot);
    let content = scene.until_vgs_ready("g").await;
    assert!(at(&content, "/status/error").is_null(), "{content:?}");
    scene.until_members("g", ["a", "b"]).await;
    // So it is at the end.
    scene.fake.fail("g", Rpc::DeleteVolumeGroupSnapshot, Fault::CodeBefore(tonic::Code::Internal));
    scene.delete_vgs("g").await;
    let content = content.metadata.name.unwrap();
    scene
        .until("the content says what the driver refuses", || async {
            let found = scene.group_content(&content).await?;
            at(&found, "/status/error/message").as_str().filter(|said| said.contains(WORDS)).map(drop)
        })
        .await;
    assert!(scene.vgs("g").await.is_some());
    scene.fake.heal("g", Rpc::DeleteVolumeGroupSnapshot);
    scene.until_all_gone("g").await;
    assert!(scene.fake.backend().groups.is_empty());
    scene.fake.assert_obeyed();
}

/// The driver works on it: it is asked again, and until it is done no members are listed. The snapshot-controller makes its objects
/// of them when they are listed, and comes to no end when it finds them made (v8.4.0).
async fn one_that_is_not_ready_is_waited_for(cluster: Arc<Cluster>) {
    let scene = start(&cluster, whole()).await;
    scene.make_claims_of(&["a", "b"], "together").await;
    scene.fake.backend().unready.insert("g".into());
    scene.make_group_class("cold", "g", "Delete").await;
    let uid = scene.make_vgs("g", "cold", "together").await;
    let content = format!("groupsnapcontent-{uid}");
    scene
        .until("the content has its handle", || async {
            let found = scene.group_content(&content).await?;
            assert_ne!(at(&found, "/status/readyToUse"), true);
            assert!(at(&found, "/status/volumeSnapshotInfoList").is_null(), "{found:?}");
            (at(&found, "/status/volumeGroupSnapshotHandle") == "group-g").then_some(())
        })
        .await;
    // The volumes stay until then.
    scene.delete_pvc("a").await;
    scene
        .until("it was asked for again", || async {
            (scene.count("g", Rpc::CreateVolumeGroupSnapshot) + scene.count("g", Rpc::GetVolumeGroupSnapshot)
                > 1)
            .then_some(())
        })
        .await;
    assert!(scene.has_storage("a"));
    scene.fake.backend().unready.clear();
    scene.until_vgs_ready("g").await;
    scene.until("volume a is gone", || async { (!scene.has_storage("a")).then_some(()) }).await;
    scene.delete_vgs("g").await;
    scene.until_all_gone("g").await;
    scene.fake.assert_obeyed();
}

/// The definitions are not Kubernetes' own: moor runs without them, takes them up when they come, and goes on when they go.
async fn the_kinds_may_come_later_and_go(cluster: Arc<Cluster>) {
    define(&cluster.admin).await;
    let rig = Rig::start(&cluster, whole()).await;
    let binder = Binder::start(&cluster.admin);
    rig.make_claims_of(&["a", "b"], "together").await;
    define_groups(&cluster.admin).await;
    let controller = SnapshotController::start_with_groups(&cluster).await;
    rig.make_group_class("cold", "g", "Delete").await;
    rig.make_vgs("g", "cold", "together").await;
    rig.until_vgs_ready("g").await;
    let [of_a, _] = rig.until_members("g", ["a", "b"]).await;
    rig.ask_for_restored("r", &of_a).await;
    rig.until_bound("r").await;
    drop(controller);
    undefine(&cluster.admin).await;
    rig.leaves(
        &["group-g", MEMBERS[0], MEMBERS[1]],
        "all that named them went with the definitions of their kinds",
    );
    rig.make_claim_of("w").await;
    assert!(rig.ended().is_empty(), "{:?}", rig.ended());
    // A leader that comes without them leads.
    rig.restart_and_wait(crate::rig::CONTROLLER).await;
    rig.make_claim_of("x").await;
    // And with them again it finds that what they were of is gone, which is no reason to delete anything.
    define(&cluster.admin).await;
    define_groups(&cluster.admin).await;
    rig.until_nothing_kept().await;
    assert!(rig.fake.backend().groups.contains_key("g"));
    assert_eq!(rig.count("g", Rpc::DeleteVolumeGroupSnapshot), 0);
    rig.fake.assert_obeyed();
    drop(binder);
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    claims_are_snapshotted_as_a_group_and_restored,
    what_is_retained_stays_with_its_storage,
    what_the_driver_refuses_is_told_to_who_asked,
    one_that_is_not_ready_is_waited_for,
    the_kinds_may_come_later_and_go,
    there::one_that_exists_is_registered_and_deleted,
    there::a_users_volume_is_not_taken_with_others,
    there::a_driver_that_takes_no_groups_is_told_of,
    there::what_a_volume_is_being_made_of_is_not_deleted,
    there::a_content_that_is_removed_by_force_leaves_its_storage,
    natively::volumes_are_snapshotted_by_one_snapshot_and_restored,
    natively::volumes_stay_until_their_group_is_taken,
    natively::what_a_volume_is_made_of_stays_until_it_is_made,
    natively::what_cannot_be_taken_says_so,
    natively::an_answer_of_other_volumes_is_not_taken,
    crashes::the_leader_and_the_agent_may_die_at_every_step,
    crashes::the_driver_may_die_in_its_calls,
    crashes::the_api_server_may_go_away_at_every_step,
];
