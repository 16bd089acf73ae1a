//! Whoever goes away on the way of a VolumeGroupSnapshot, the end is the same. `MOOR_RIG=all` takes every write and call about it;
//! without it the sweep takes the calls, and the leader's writes about the group and its content.

use std::sync::Arc;

use moor::csi::Rpc;

use super::{start, whole};
use crate::rig::fake::groups;
use crate::rig::{CONTROLLER, Cluster, Entry, Rig, Victim, Walk, Write, is_whole};
use crate::snapshots::objects::sources;

const AGENT: &str = "node-1";

/// A VolumeGroupSnapshot of claims that are there, a volume that is made of a member, and the end of all.
const WALK: Walk = Walk {
    prepare: |rig, key| {
        Box::pin(async move {
            let [a, b] = claims(&key);
            rig.make_claims_of(&[&a, &b], &key).await;
        })
    },
    go: |rig, key| Box::pin(async move { go(&rig, &key).await }),
    is_step,
    passes: &[
        "POST snapshots",
        "volumegroupsnapshotcontents/status",
        "CreateVolumeGroupSnapshot",
        "DELETE snapshots",
        "DeleteVolumeGroupSnapshot",
        "PUT volumegroupsnapshotcontents",
    ],
};

fn is_step(entry: &Entry) -> bool {
    let is_written = entry.actor == CONTROLLER && entry.write().is_some_and(is_about_it);
    let is_whole = entry.write().is_some_and(|write| is_whole() && write.kind == "snapshots");
    [CONTROLLER, AGENT].contains(&&*entry.actor) && (is_written || is_whole || is_call(entry))
}

/// A write about the group's content, or one by which its Snapshot comes, or it or one of a member goes.
fn is_about_it(write: &Write) -> bool {
    let comes = write.verb == "POST" && write.body.pointer("/spec/volumeNames").is_some();
    let comes_or_goes = comes || write.verb == "DELETE";
    write.kind == "volumegroupsnapshotcontents" || (write.kind == "snapshots" && comes_or_goes)
}

fn is_call(entry: &Entry) -> bool {
    entry.call().is_some_and(|call| {
        [Rpc::CreateVolumeGroupSnapshot, Rpc::DeleteVolumeGroupSnapshot].contains(&call.rpc)
    })
}

/// Whoever is at a request when the API server goes away waits for a quarter of a minute: without `MOOR_RIG=all` it goes away in
/// the calls.
fn is_long_step(entry: &Entry) -> bool {
    is_step(entry) && (is_whole() || is_call(entry))
}

pub async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, &WALK, Victim::Maker).await;
}

pub async fn the_driver_may_die_in_its_calls(cluster: Arc<Cluster>) {
    sweep(&cluster, &WALK, Victim::Driver).await;
}

pub async fn the_api_server_may_go_away_at_every_step(cluster: Arc<Cluster>) {
    let passes = &["CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"];
    sweep(&cluster, &Walk { is_step: is_long_step, passes, ..WALK }, Victim::ApiServer).await;
}

async fn sweep(cluster: &Arc<Cluster>, walk: &Walk, victim: Victim) {
    let scene = start(cluster, whole()).await;
    walk.sweep(&scene.rig, victim).await;
    scene.fake.assert_obeyed();
}

fn claims(key: &str) -> [String; 2] {
    ["a", "b"].map(|part| format!("{part}-{key}"))
}

async fn go(rig: &Rig, key: &str) {
    let [a, b] = claims(key);
    let restored = format!("restored-{key}");
    rig.make_group_class(key, key, "Delete").await;
    rig.make_vgs(key, key, key).await;
    let content = rig.until_vgs_ready(key).await;
    let [of_a, _] = rig.until_members(key, [&*a, &*b]).await;
    rig.ask_for_restored(&restored, &of_a).await;
    rig.until_bound(&restored).await;
    assert_eq!(sources(rig, &restored), [format!("snap-{}", groups::member(key, &a))]);
    rig.delete_vgs(key).await;
    rig.until_all_gone(key).await;
    rig.until_group_content_gone(&content.metadata.name.unwrap()).await;
    assert!(!rig.fake.backend().groups.contains_key(key), "the group is left");
    for volume in [&a, &b] {
        let of_member = rig.count(&groups::member(key, volume), Rpc::DeleteSnapshot);
        assert_eq!((rig.count(volume, Rpc::CreateSnapshot), of_member), (0, 0), "{volume}");
    }
    if key == Walk::UNDISTURBED {
        assert_eq!(
            (rig.count(key, Rpc::CreateVolumeGroupSnapshot), rig.count(key, Rpc::DeleteVolumeGroupSnapshot)),
            (1, 1)
        );
    }
    for claim in [&restored, &a, &b] {
        rig.delete_pvc(claim).await;
        rig.delete_class(claim).await;
    }
    rig.delete_group_class(key).await;
    rig.until_nothing_provisioned().await;
    rig.until_nothing_left().await;
}
