//! A mount that is in use, and the order to take it away all the same (rule R4).

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, ResourceExt as _};
use moor::csi::Rpc;

use super::{NODE, UNDO, course};
use crate::rig::{Cluster, Options, PATIENCE, Rig, SPACE};

/// The notes of the Events `Forced` about a claim, once there is one.
async fn until_forced(rig: &Rig, claim_uid: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(rig.cluster.admin.clone(), SPACE);
    let end = Instant::now() + PATIENCE;
    loop {
        let all = events.list(&ListParams::default()).await.unwrap();
        let about = |e: &Event| e.regarding.as_ref().is_some_and(|r| r.uid.as_deref() == Some(claim_uid));
        let forced = all.into_iter().filter(|e| e.reason.as_deref() == Some("Forced") && about(e));
        let notes: Vec<_> = forced.filter_map(|e| e.note).collect();
        if !notes.is_empty() {
            return notes;
        }
        assert!(Instant::now() < end, "no Event Forced about the claim");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

fn is_mounted(path: &str) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == Some(path))
}

/// A mounted volume and a file in it that this process has open.
async fn held_open(rig: &Rig, name: &str) -> (String, String, File) {
    let target = rig.in_use(name).await;
    let file = Path::new(&target).join("word");
    fs::write(&file, "kept").unwrap();
    let uid = rig.read_claim(name).await.uid().unwrap();
    (target, uid, File::open(file).unwrap())
}

pub async fn a_busy_mount_is_taken_by_force_on_order(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let (target, uid, mut open) = held_open(&rig, "busy").await;
    let since = rig.journal.now();
    rig.delete_claim("busy").await;
    let words = ["node node-2", "Internal", "busy", "attempt", "next in"];
    let status = rig.until_says("busy", "NodeUnpublishFailed", &words).await;
    let said = status.last_error.unwrap();
    assert_eq!((said.rpc.as_str(), said.code.as_str()), ("NodeUnpublishVolume", "Internal"));
    assert!(said.message.contains("busy"), "{}", said.message);
    assert!(status.next_retry.is_some());
    let again = || {
        let attempts = cluster.claim("busy")?.status.as_ref()?.attempts?;
        (attempts >= 2).then_some(())
    };
    cluster.until("the second attempt is counted", again, || rig.story("busy")).await;
    assert!(is_mounted(&target));
    assert_eq!(course(&rig.calls_since(since, "busy")), UNDO[..1]);

    rig.force_detach("busy").await;
    rig.until_claim_gone("busy").await;
    let notes = until_forced(&rig, &uid).await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains(&target) && notes[0].contains("busy"), "{notes:?}");
    let calls = rig.calls_since(since, "busy");
    assert_eq!(course(&calls), UNDO);
    // Each was really undone before the next began.
    for pair in UNDO.windows(2) {
        let done = calls.iter().find(|e| e.label() == pair[0] && e.is_ok()).unwrap().ended.unwrap().0;
        let next = calls.iter().find(|e| e.label() == pair[1]).unwrap().began;
        assert!(next > done, "{pair:?}");
    }
    // Whoever has it open reads on.
    let mut word = String::new();
    open.read_to_string(&mut word).unwrap();
    assert_eq!(word, "kept");
    rig.remove_volume("busy").await;
}

pub async fn force_does_not_wait_for_a_driver_and_the_hand_over_does(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let (target, uid, _open) = held_open(&rig, "alone").await;
    let since = rig.journal.now();
    rig.fake.stop(NODE, &rig.plugin_dir(NODE));
    rig.delete_claim("alone").await;
    rig.until_says("alone", "PluginNotRunning", &["fake.moor.dev", NODE]).await;
    assert!(is_mounted(&target));

    rig.force_detach("alone").await;
    let notes = until_forced(&rig, &uid).await;
    assert!(notes[0].contains(&target), "{notes:?}");
    assert!(!is_mounted(&target));
    // It is counted on, so the pass that has forced it is over.
    let generation = || {
        let claim = cluster.claim("alone")?;
        let status = claim.status.as_ref()?;
        (status.observed_generation == claim.metadata.generation && claim.spec.force_detach).then_some(())
    };
    cluster.until("the order is answered", generation, || rig.story("alone")).await;
    rig.until_says("alone", "PluginNotRunning", &["fake.moor.dev", NODE]).await;
    assert_eq!(rig.calls_since(since, "alone").len(), 0);
    assert!(!rig.was_written("volumeclaims", "alone", "NodeDetached"));
    let attachment = rig.read_attachment_of("alone").await.name_any();
    assert!(!rig.was_written("attachments", &attachment, "NodeDetached"));
    // A new agent knows what is left to do from its record.
    rig.restart(NODE);
    rig.fake.serve(NODE, &rig.plugin_dir(NODE), false);
    rig.until_claim_gone("alone").await;
    assert_eq!(course(&rig.calls_since(since, "alone")), UNDO);
    assert_eq!(rig.count("alone", Rpc::NodeUnstageVolume), 1);
    assert_eq!(until_forced(&rig, &uid).await.len(), 1);
    rig.remove_volume("alone").await;
}
