//! Many claims of one volume that only one of them can have.

use std::sync::Arc;

use moor::api::AccessMode::SingleNodeSingleWriter;
use moor::api::VolumeClaim;
use moor::api::capability::VolumeUse;
use moor::api::claim::VolumeClaimStatus;

use crate::rig::{
    CONTROLLER, Cluster, Entry, Journal, Options, Rig, condition, is_whole, volume, volume_claim,
};

/// So many writes may tell those who wait that the volume has changed hands.
const MOST_WRITES: usize = 10;

fn name(place: usize) -> String {
    format!("w-{place:04}")
}

/// One that shares the volume with nobody.
fn claim(name: &str, node: &str) -> VolumeClaim {
    let mut claim = volume_claim(name, "db", node);
    claim.spec.access_mode = SingleNodeSingleWriter;
    claim
}

/// The claim is told that it waits for `holder`, in these words.
fn waits_for(status: &VolumeClaimStatus, holder: &str, words: &str) -> bool {
    let named = status.waiting_for.as_ref().is_some_and(|w| w.holder == format!("default/{holder}"));
    named && condition(&status.conditions).is_some_and(|c| c.status == "False" && c.message.contains(words))
}

async fn until_waits(rig: &Rig, claim: &str, holder: &str, words: &str) {
    let look = || {
        let status = rig.cluster.claim(claim)?.status.clone()?;
        waits_for(&status, holder, words).then_some(())
    };
    let what = format!("claim {claim} waits for {holder}: {words}");
    rig.cluster.until(&what, look, || rig.story(claim)).await;
}

/// What was written to tell claims in the line what they wait for.
fn told(rig: &Rig, since: usize) -> Vec<Entry> {
    rig.journal.since(since, |e| {
        let write = e.write().filter(|_| e.actor == CONTROLLER);
        write.is_some_and(|w| {
            w.kind == "volumeclaims"
                && w.subresource == "status"
                && w.name.starts_with("w-")
                && w.name != name(0)
        })
    })
}

pub async fn a_hand_over_in_a_long_line_costs_few_writes(cluster: Arc<Cluster>) {
    let length = if is_whole() { 1000 } else { 200 };
    let rig = Rig::start(&cluster, Options::default()).await;
    let mut db = volume("db");
    db.spec.capabilities = vec![VolumeUse { access_mode: SingleNodeSingleWriter, ..VolumeUse::default() }];
    rig.make_volume(&db).await;
    rig.until_volume_ready("db").await;
    rig.make_claim(&claim("first", "node-2")).await;
    rig.until_ready("first").await;
    // One after the other, so that their order is that of their names.
    for place in 0..length {
        rig.make_claim(&claim(&name(place), "node-1")).await;
    }
    let untold = || {
        (0..length).map(name).find(|claim| {
            let status = rig.cluster.claim(claim).and_then(|c| c.status.clone()).unwrap_or_default();
            condition(&status.conditions).is_none()
        })
    };
    let all_told = || untold().is_none().then_some(());
    rig.cluster.until("everybody in line is told whom they wait for", all_told, || rig.story(&name(0))).await;

    let since = rig.journal.now();
    rig.delete_claim("first").await;
    rig.until_ready(&name(0)).await;
    // The next in line is told how far the holder is, those near the front who it is.
    until_waits(&rig, &name(1), &name(0), "default/w-0000 on node node-1 (Ready)").await;
    for place in 2..5 {
        until_waits(&rig, &name(place), &name(0), "default/w-0000 on node node-1").await;
    }
    rig.until_claim_gone("first").await;
    let writes = told(&rig, since);
    assert!(writes.len() <= MOST_WRITES, "{} writes:\n{}", writes.len(), Journal::text(&writes));

    // Whoever leaves the line costs one: who was behind it is behind another now.
    until_waits(&rig, &name(101), &name(100), "is older").await;
    let since = rig.journal.now();
    rig.delete_claim(&name(100)).await;
    until_waits(&rig, &name(101), &name(99), "is older").await;
    rig.until_claim_gone(&name(100)).await;
    let writes = told(&rig, since);
    assert_eq!(writes.len(), 1, "{}", Journal::text(&writes));
    rig.fake.assert_obeyed();
}
