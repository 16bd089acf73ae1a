//! Whoever goes away on the way through every operation: each comes to its end once, and in the end nothing is left. `MOOR_RIG=all`
//! takes every write and call; without it the sweep takes the calls.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Patch, PatchParams};
use moor::api::conditions::{APPLIED, find};
use moor::api::{SnapshotState, Volume, VolumeState};
use moor::csi::Rpc;
use serde_json::{Value, json};

use super::table::{SNAPSHOT, SOURCE};
use super::{end, start};
use crate::rig::{CONTROLLER, Call, Cluster, Entry, Rig, Victim, Walk, is_whole, registered, volume};
use crate::snapshots::objects::{self, restored, snapshot, sources};

const AGENT: &str = "node-1";

const WALK: Walk = Walk {
    prepare: Walk::nothing,
    go: |rig, key| Box::pin(async move { go(&rig, &key).await }),
    is_step,
    passes: &[
        "CreateVolume",
        "ControllerExpandVolume",
        "ControllerModifyVolume",
        "ValidateVolumeCapabilities",
        "CreateSnapshot",
        "ListSnapshots",
        "DeleteSnapshot",
        "DeleteVolume",
    ],
};

fn is_step(entry: &Entry) -> bool {
    const KINDS: [&str; 3] = ["volumes", "snapshots", "volumehandles"];
    let is_written = entry.write().is_some_and(|write| is_whole() && KINDS.contains(&&*write.kind));
    [CONTROLLER, AGENT].contains(&&*entry.actor) && (is_written || entry.call().is_some())
}

/// Whoever is at a request when the API server goes away waits for a quarter of a minute: without `MOOR_RIG=all` it goes away in
/// the calls that change a volume which is there.
fn is_long_step(entry: &Entry) -> bool {
    let changes = |call: &Call| {
        matches!(call.rpc, Rpc::ControllerExpandVolume | Rpc::ControllerModifyVolume | Rpc::DeleteVolume)
    };
    is_step(entry) && (is_whole() || entry.call().is_some_and(changes))
}

pub(super) async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    sweep(&cluster, &WALK, Victim::Maker).await;
}

pub(super) async fn the_driver_may_die_in_its_calls(cluster: Arc<Cluster>) {
    sweep(&cluster, &WALK, Victim::Driver).await;
}

pub(super) async fn the_api_server_may_go_away_at_every_step(cluster: Arc<Cluster>) {
    let passes = &["ControllerExpandVolume", "ControllerModifyVolume", "DeleteVolume"];
    sweep(&cluster, &Walk { is_step: is_long_step, passes, ..WALK }, Victim::ApiServer).await;
}

async fn sweep(cluster: &Arc<Cluster>, walk: &Walk, victim: Victim) {
    let rig = start(cluster, 5).await;
    walk.sweep(&rig, victim).await;
    end(&rig).await;
}

/// Whatever happens on the way.
async fn go(rig: &Arc<Rig>, key: &str) {
    let [made, copy, owned, taken, old] =
        ["made", "copy", "owned", "taken", "old"].map(|part| format!("{key}-{part}"));
    // Made, made larger, made otherwise, edited.
    rig.make_volume(&volume(&made)).await;
    rig.until_volume_ready(&made).await;
    change(rig, &made, json!({ "capacity": "2Mi" })).await;
    until(rig, &made, |volume| volume.status.as_ref().and_then(|s| s.capacity_bytes) == Some(2 << 20)).await;
    change(rig, &made, json!({ "mutableParameters": { "tier": "gold" } })).await;
    until(rig, &made, |volume| {
        volume.status.as_ref().is_some_and(|s| s.modification.is_none() && !s.mutable_parameters.is_empty())
    })
    .await;
    change(rig, &made, json!({ "mountOptions": { "mountFlags": ["noatime"] } })).await;
    until(rig, &made, |volume| {
        let conditions = volume.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        find(&conditions, APPLIED).is_some_and(|said| said.reason == "Applied")
    })
    .await;
    {
        let backend = rig.fake.backend();
        let stored = &backend.volumes[&made];
        assert_eq!((stored.grown, stored.modified["tier"].as_str()), (2 << 20, "gold"));
    }
    // Kept, and made of what was kept, and of what is there.
    rig.make_snapshot(&snapshot(&taken, &made)).await;
    rig.until_snapshot(&taken, SnapshotState::Ready).await;
    let mut again = restored(key, &json!({ "snapshotName": taken }));
    // As large as what was kept.
    again.spec.capacity = Some(Quantity("2Mi".into()));
    rig.make_volume(&again).await;
    rig.make_volume(&restored(&copy, &json!({ "volumeName": SOURCE }))).await;
    rig.until_volume_ready(key).await;
    rig.until_volume_ready(&copy).await;
    assert_eq!(sources(rig, key), [format!("snap-{taken}")]);
    assert_eq!(sources(rig, &copy), [format!("vol-{SOURCE}")]);
    // Registered, and left to its owner.
    let handle = rig.fake.backend().add(&owned);
    let snapshot_handle = rig.fake.backend().add_snapshot(&old, SOURCE);
    rig.make_volume(&registered(&owned, &handle)).await;
    rig.make_snapshot(&objects::registered(&old, &snapshot_handle, json!({}))).await;
    rig.until_volume_ready(&owned).await;
    rig.until_snapshot(&old, SnapshotState::Ready).await;
    for name in [&taken, &old] {
        rig.delete_snapshot(name).await;
        rig.until_snapshot_gone(name).await;
    }
    for name in [&made, &copy, &owned, &key.to_owned()] {
        rig.delete_volume(name).await;
        rig.until_volume_gone(name).await;
    }
    let mut backend = rig.fake.backend();
    assert!(backend.volumes.remove(&owned).is_some() && backend.snapshots.remove(&old).is_some());
    let left: Vec<_> = backend.volumes.keys().chain(backend.snapshots.keys()).collect();
    assert_eq!(left, [SOURCE, SNAPSHOT], "and what was there before");
    drop(backend);
    rig.fake.assert_obeyed();
}

async fn change(rig: &Rig, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    rig.volume_api().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until a Volume is so and Ready.
async fn until(rig: &Rig, name: &str, is: impl Fn(&Volume) -> bool) {
    let look = || rig.cluster.volume(name).filter(|v| v.state() == VolumeState::Ready && is(v)).map(|_| ());
    rig.cluster.until(&format!("Volume {name} is as it is asked to be"), look, || rig.story(name)).await;
}
