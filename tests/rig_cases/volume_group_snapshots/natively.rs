//! Snapshots of several Volumes at one moment, without Kubernetes' kinds.

use std::sync::Arc;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use moor::api::{Snapshot, SnapshotState};
use moor::csi::Rpc;
use serde_json::{Value, json};

use super::{MEMBERS, whole};
use crate::rig::fake::groups;
use crate::rig::{Cluster, Options, Rig, SPACE, at, volume};
use crate::snapshots::objects::{restored, sources};

const OF: [&str; 2] = ["a", "b"];

fn api(rig: &Rig) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<Snapshot>(&());
    Api::namespaced_with(rig.cluster.admin.clone(), SPACE, &kind)
}

/// Makes a Snapshot of several Volumes, which the fake driver knows as `key`.
async fn make(rig: &Rig, key: &str, volumes: &[&str]) {
    let mut snapshot = DynamicObject::new(key, &ApiResource::erase::<Snapshot>(&()));
    snapshot.data = json!({ "spec": { "volumeNames": volumes, "parameters": { "key": key } } });
    api(rig).create(&PostParams::default(), &snapshot).await.unwrap();
}

/// Two Volumes that are Ready.
async fn start(cluster: &Arc<Cluster>, options: Options) -> Arc<Rig> {
    let rig = Rig::start(cluster, options).await;
    for key in OF {
        rig.make_volume(&volume(key)).await;
        rig.until_volume_ready(key).await;
    }
    rig
}

fn member_of(volume: &str) -> Value {
    json!({ "snapshotName": "g", "volumeName": volume })
}

/// Deletes the Snapshot and Volumes, and waits until nothing is left of anything.
async fn end(rig: &Rig, volumes: &[&str]) {
    rig.delete_snapshot("g").await;
    rig.until_snapshot_gone("g").await;
    let no_claims: [&str; 0] = [];
    rig.remove(&no_claims, volumes).await;
    assert!(rig.fake.backend().snapshots.is_empty() && rig.fake.backend().groups.is_empty());
}

pub async fn volumes_are_snapshotted_by_one_snapshot_and_restored(cluster: Arc<Cluster>) {
    let rig = start(&cluster, whole()).await;
    make(&rig, "g", &OF).await;
    rig.until_snapshot("g", SnapshotState::Ready).await;
    let found = api(&rig).get("g").await.unwrap();
    assert_eq!(at(&found, "/status/snapshotHandle"), "group-g");
    for (place, (volume, snapshot)) in [("vol-a", MEMBERS[0]), ("vol-b", MEMBERS[1])].iter().enumerate() {
        let member = at(&found, &format!("/status/members/{place}"));
        assert_eq!((&member["volumeHandle"], &member["snapshotHandle"]), (&json!(volume), &json!(snapshot)));
        assert_eq!(member["readyToUse"], true);
    }
    // It outlives the volumes that it is of.
    for key in OF {
        rig.delete_volume(key).await;
        rig.until_volume_gone(key).await;
    }
    for (key, of, member) in [("ra", "a", MEMBERS[0]), ("rb", "b", MEMBERS[1])] {
        rig.make_volume(&restored(key, &member_of(of))).await;
        rig.until_volume_ready(key).await;
        assert_eq!(sources(&rig, key), [member]);
    }
    // Whoever does not say of which, or of one that is not in it, is told.
    rig.make_volume(&restored("which", &json!({ "snapshotName": "g" }))).await;
    rig.make_volume(&restored("other", &member_of("c"))).await;
    for key in ["which", "other"] {
        rig.until_volume_told(key, "SourceNotUsable", "Snapshot g is of the Volumes a, b").await;
    }
    end(&rig, &["ra", "rb", "which", "other"]).await;
    assert_eq!(
        (rig.count("g", Rpc::CreateVolumeGroupSnapshot), rig.asked_to_delete_group("g").len()),
        (1, 1)
    );
    assert_eq!(rig.asked_to_delete_group("g"), [MEMBERS]);
    assert_eq!(rig.count("which", Rpc::CreateVolume) + rig.count("other", Rpc::CreateVolume), 0);
}

/// Whoever deletes one of them meanwhile waits for the group.
pub async fn volumes_stay_until_their_group_is_taken(cluster: Arc<Cluster>) {
    let rig = start(&cluster, whole()).await;
    rig.fake.hold("g", Rpc::CreateVolumeGroupSnapshot);
    make(&rig, "g", &OF).await;
    rig.until_called_about("g", Rpc::CreateVolumeGroupSnapshot).await;
    for key in OF {
        rig.delete_volume(key).await;
        rig.until_volume_told(key, "InUse", "Snapshot g").await;
        assert_eq!(rig.count(key, Rpc::DeleteVolume), 0);
    }
    rig.fake.let_go("g", Rpc::CreateVolumeGroupSnapshot);
    for key in OF {
        rig.until_volume_gone(key).await;
    }
    rig.until_snapshot("g", SnapshotState::Ready).await;
    end(&rig, &[]).await;
}

/// Whoever deletes the group meanwhile waits for the volume that is made of a member.
pub async fn what_a_volume_is_made_of_stays_until_it_is_made(cluster: Arc<Cluster>) {
    let rig = start(&cluster, whole()).await;
    make(&rig, "g", &OF).await;
    rig.until_snapshot("g", SnapshotState::Ready).await;
    rig.fake.hold("r", Rpc::CreateVolume);
    rig.make_volume(&restored("r", &member_of("b"))).await;
    rig.until_called_about("r", Rpc::CreateVolume).await;
    rig.delete_snapshot("g").await;
    rig.until_snapshot_told("g", "InUse", "Volume r is being made of it").await;
    assert_eq!(rig.count("g", Rpc::DeleteVolumeGroupSnapshot), 0);
    rig.fake.let_go("r", Rpc::CreateVolume);
    rig.until_snapshot_gone("g").await;
    rig.until_volume_ready("r").await;
    assert_eq!(sources(&rig, "r"), [MEMBERS[1]]);
    end(&rig, &["r", "a", "b"]).await;
}

pub async fn what_cannot_be_taken_says_so(cluster: Arc<Cluster>) {
    let rig = start(&cluster, Options { groups: false, ..whole() }).await;
    make(&rig, "early", &["a", "c"]).await;
    rig.until_snapshot_told("early", "VolumeNotFound", "has no Volume c").await;
    rig.delete_snapshot("early").await;
    rig.until_snapshot_gone("early").await;
    make(&rig, "g", &OF).await;
    rig.until_snapshot_told("g", "CannotSnapshot", "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT").await;
    end(&rig, &OF).await;
    assert_eq!(rig.count("g", Rpc::CreateVolumeGroupSnapshot), 0);
}

/// It would be restored, or deleted, in the place of the one that was asked for.
pub async fn an_answer_of_other_volumes_is_not_taken(cluster: Arc<Cluster>) {
    let rig = start(&cluster, whole()).await;
    rig.fake.backend().answers_of.insert(groups::member("g", "b"), "vol-other".into());
    make(&rig, "g", &OF).await;
    rig.until_snapshot_told("g", "CreateSnapshotFailed", "vol-b").await;
    let is = || async { rig.count("g", Rpc::CreateVolumeGroupSnapshot) > 1 };
    rig.until_so("the group is asked for again", "g", is).await;
    assert_eq!(rig.read_snapshot("g").await.handle(), None);
    rig.fake.backend().answers_of.clear();
    rig.until_snapshot("g", SnapshotState::Ready).await;
    end(&rig, &OF).await;
}
