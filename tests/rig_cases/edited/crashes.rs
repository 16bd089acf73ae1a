//! A volume is edited while it is used, and somebody dies at each step.

use std::sync::Arc;

use futures::FutureExt;
use moor::api::AccessMode;
use moor::csi::Rpc;

use super::{change, flags, modes, staged, until_says};
use crate::rig::{Cluster, Entry, Options, Rig, Victim, Walk, volume, volume_claim};

const WALK: Walk = Walk {
    prepare: |rig, key| async move { prepare(&rig, &key).await }.boxed(),
    go: |rig, key| async move { go(&rig, &key).await }.boxed(),
    is_step,
    passes: &["ValidateVolumeCapabilities"],
};

fn is_step(entry: &Entry) -> bool {
    let is_call = entry.call().is_some_and(|call| call.rpc == Rpc::ValidateVolumeCapabilities);
    is_call || entry.write().is_some_and(|write| write.kind == "volumes")
}

pub(super) async fn the_leader_and_the_agent_may_die_at_every_step(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    WALK.sweep(&rig, Victim::Maker).await;
    rig.assert_nothing_left().await;
}

async fn prepare(rig: &Arc<Rig>, key: &str) {
    rig.make_volume(&volume(key)).await;
    rig.make_claim(&volume_claim(key, key, "node-2")).await;
    rig.until_ready(key).await;
}

/// Whatever happens on the way: the use that there is stays as it is, and the next one is as was asked.
async fn go(rig: &Arc<Rig>, key: &str) {
    let mut spec = flags(&["noatime"]);
    let more = modes(&["SingleNodeWriter", "MultiNodeReader"]);
    spec["capabilities"] = more["capabilities"].clone();
    change(rig, key, spec).await.unwrap();
    until_says(rig, key, "StagedBefore").await;
    rig.until_ready(key).await;
    rig.delete_claim(key).await;
    rig.until_claim_gone(key).await;
    let next = format!("{key}-next");
    let mut reader = volume_claim(&next, key, "node-2");
    (reader.spec.access_mode, reader.spec.read_only) = (AccessMode::MultiNodeReader, true);
    rig.make_claim(&reader).await;
    rig.until_ready(&next).await;
    let staged = staged(rig, key);
    assert!(staged.first().is_some_and(Vec::is_empty), "{staged:?}");
    assert_eq!(staged.last().unwrap(), &["noatime"], "{staged:?}");
    until_says(rig, key, "Applied").await;
    rig.remove(&[next], &[key]).await;
    rig.fake.assert_obeyed();
}
