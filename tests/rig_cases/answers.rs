//! What a driver answers is kept, or undone with the id as it came.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use moor::api::{Volume, VolumeState};
use moor::csi::Rpc;
use moor::csi::proto::csi::v1::{DeleteVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};
use serde_json::Value;

use crate::cases;
use crate::rig::fake::backend::Answers;
use crate::rig::{
    CONTROLLER, Case, Cluster, Entry, LOOK, Options, PATIENCE, Point, Rig, Side, volume, volume_claim,
};

const NODE: &str = "node-2";

impl Rig {
    fn answer(&self, key: &str, answers: Answers) {
        self.fake.backend().answers.insert(key.to_owned(), answers);
    }

    /// The arguments of the calls of this kind about a volume.
    fn arguments<M: prost::Message + Default>(&self, key: &str, rpc: Rpc) -> Vec<M> {
        let calls = self.journal.calls_of(key);
        let calls = calls.iter().filter_map(|entry| entry.call()).filter(|call| call.rpc == rpc);
        calls.map(|call| M::decode(call.arguments.as_slice()).unwrap()).collect()
    }

    async fn until_volume(&self, name: &str, what: &str, wanted: impl Fn(&Volume) -> bool) {
        let look = async {
            while !wanted(&self.volume_api().get(name).await.unwrap()) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{what}: {}", self.story(name)));
    }

    /// Uses the volume from its making to its end.
    async fn use_once(&self, key: &str) {
        self.make_volume(&volume(key)).await;
        self.make_claim(&volume_claim(key, key, NODE)).await;
        let target = self.until_ready(key).await;
        fs::write(Path::new(&target).join("word"), "kept").unwrap();
        let word = self.fake.backend().content(key).join("word");
        assert_eq!(fs::read_to_string(word).unwrap(), "kept");
        self.remove(&[key], &[key]).await;
        assert!(!self.has_storage(key), "the storage is left");
    }
}

/// As cloud drivers give them, and as long as a VolumeHandle can hold.
async fn long_ids_go_all_the_way(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    for (key, id_bytes) in [("cloud", 154), ("longest", 1024)] {
        rig.answer(key, Answers { id_bytes, ..Answers::default() });
        rig.use_once(key).await;
        let deleted: Vec<DeleteVolumeRequest> = rig.arguments(key, Rpc::DeleteVolume);
        assert_eq!(deleted[0].volume_id.len(), id_bytes);
    }
}

/// Larger than CSI wants them: they are handed on as they came.
async fn large_contexts_go_all_the_way(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let large = |word: &str| {
        let long = |n: usize| (format!("{word}-{n}"), n.to_string().repeat(2048));
        [long(1), long(2), long(3)].into()
    };
    let answers =
        Answers { volume_context: large("volume"), publish_context: large("publish"), ..Answers::default() };
    rig.answer("v", answers.clone());
    rig.use_once("v").await;
    let staged: Vec<NodeStageVolumeRequest> = rig.arguments("v", Rpc::NodeStageVolume);
    let published: Vec<NodePublishVolumeRequest> = rig.arguments("v", Rpc::NodePublishVolume);
    for (key, value) in &answers.volume_context {
        assert_eq!(staged[0].volume_context.get(key), Some(value));
        assert_eq!(published[0].volume_context.get(key), Some(value));
    }
    for (key, value) in &answers.publish_context {
        assert_eq!(staged[0].publish_context.get(key), Some(value));
        assert_eq!(published[0].publish_context.get(key), Some(value));
    }
}

/// Whatever a driver puts into a publish context: blanks, other scripts, control characters, nothing at all.
fn odd_context() -> BTreeMap<String, String> {
    let pairs = [
        ("", "nothing names it"),
        (" ", " "),
        ("empty", ""),
        ("a/b.c_d-e", "{\"json\": [1, \"two\"]}"),
        ("устройство", "диск \u{1f4be}"),
        ("lines", "one\ntwo\r\n\tthree"),
        ("bell", "\u{7}\u{1b}[31m"),
        ("quotes", "'\"`$(id)\\"),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// It reaches NodeStageVolume and NodePublishVolume bit by bit, also where controller and agents were started anew in between.
async fn a_publish_context_arrives_as_it_was_also_after_restarts(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.answer("v", Answers { publish_context: odd_context(), ..Answers::default() });
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("first", "v", NODE)).await;
    rig.until_ready("first").await;
    for actor in [CONTROLLER, "node-1", NODE] {
        rig.restart_and_wait(actor).await;
    }
    // A second target of what was staged before, and then all of it again.
    rig.make_claim(&volume_claim("second", "v", NODE)).await;
    rig.until_ready("second").await;
    for claim in ["first", "second"] {
        rig.delete_claim(claim).await;
        rig.until_claim_gone(claim).await;
    }
    rig.make_claim(&volume_claim("third", "v", NODE)).await;
    rig.until_ready("third").await;
    let staged: Vec<NodeStageVolumeRequest> = rig.arguments("v", Rpc::NodeStageVolume);
    let published: Vec<NodePublishVolumeRequest> = rig.arguments("v", Rpc::NodePublishVolume);
    assert!(staged.len() >= 2 && published.len() >= 3, "{} {}", staged.len(), published.len());
    let contexts = staged.into_iter().map(|call| call.publish_context);
    for mut context in contexts.chain(published.into_iter().map(|call| call.publish_context)) {
        // The driver's own, which it gives with every answer.
        assert!(context.remove("slot").is_some());
        assert_eq!(context, odd_context());
    }
    rig.remove(&["third"], &["v"]).await;
}

/// No object can hold it, so nobody could use or delete the volume later.
async fn a_volume_whose_id_cannot_be_stored_is_deleted_again(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.answer("v", Answers { id_bytes: 1_100, ..Answers::default() });
    rig.make_volume(&volume("v")).await;
    rig.until_volume_says(
        "v",
        "CreateVolumeFailed",
        &["volumeHandle", "TooLong", "deleted again", "next in"],
    )
    .await;
    let deleted: Vec<DeleteVolumeRequest> = rig.arguments("v", Rpc::DeleteVolume);
    assert_eq!(deleted.iter().map(|d| d.volume_id.len()).collect::<Vec<_>>(), [1_100]);
    assert!(!rig.has_storage("v"), "the storage is left");
    // Known to be deleted, so nothing holds the Volume.
    rig.delete_volume("v").await;
    rig.until_volume_gone("v").await;
    rig.assert_nothing_left().await;
    assert!(!rig.has_storage("v"), "the storage is left");
}

/// The same of a context that no object can hold.
async fn a_volume_whose_context_cannot_be_stored_is_deleted_again(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let volume_context = [("one".to_owned(), "1".repeat(5_000))].into();
    rig.answer("v", Answers { volume_context, ..Answers::default() });
    rig.make_volume(&volume("v")).await;
    rig.until_volume_says("v", "CreateVolumeFailed", &["volumeContext", "deleted again", "next in"]).await;
    assert!(!rig.has_storage("v"), "the storage is left");
    rig.remove(&[""; 0], &["v"]).await;
}

/// The volume is attached, and what the node would need cannot be stored: it is detached when nobody wants it any more.
async fn what_was_attached_is_detached_although_its_context_cannot_be_stored(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let publish_context = [("one".to_owned(), "1".repeat(5_000))].into();
    rig.answer("v", Answers { publish_context, ..Answers::default() });
    rig.make_volume(&volume("v")).await;
    rig.make_claim(&volume_claim("v", "v", NODE)).await;
    let told = || {
        let attachment = cluster.attachment_of("v")?;
        let failed = attachment.status.as_ref()?.last_error.as_ref()?.message.clone();
        failed.contains("publishContext").then_some(())
    };
    cluster.until("the Attachment says what cannot be stored", told, || rig.story("v")).await;
    assert_eq!(rig.count("v", Rpc::NodeStageVolume), 0);
    rig.remove(&["v"], &["v"]).await;
    assert_eq!(rig.count("v", Rpc::ControllerUnpublishVolume), 1);
}

fn rejected(volume: &Volume) -> Option<String> {
    let status = serde_json::to_value(&volume.status).unwrap();
    status.pointer("/rejected/volumeHandle").and_then(Value::as_str).map(str::to_owned)
}

/// A volume of the wrong size is deleted by a call of its own. That it is to be deleted is known before, also to a
/// process that comes after.
async fn what_is_to_be_deleted_again_survives_a_crash(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    rig.answer("v", Answers { capacity_bytes: Some(1), ..Answers::default() });
    let point = Point { actor: "node-1".to_owned(), label: "DeleteVolume".to_owned(), ordinal: 0 };
    for (key, side) in [("v", Side::Before), ("w", Side::After)] {
        rig.answer(key, Answers { capacity_bytes: Some(1), ..Answers::default() });
        let hit = rig.gate.arm(point.clone(), side);
        rig.make_volume(&volume(key)).await;
        rig.gate.reached(&point, hit).await;
        let made = rig.volume_api().get(key).await.unwrap();
        assert_eq!(rejected(&made), Some(format!("vol-{key}")));
        assert_eq!(made.status.unwrap().state, VolumeState::Pending);
        rig.kill("node-1");
        rig.gate.disarm();
        // Whatever the driver would answer now: that one is not wanted.
        rig.fake.backend().answers.remove(key);
        rig.run("node-1");
        rig.until_volume(key, "it says so", |volume| {
            let failed = volume.status.as_ref().and_then(|s| s.last_error.as_ref());
            failed.is_some_and(|failed| failed.message.contains("deleted again"))
        })
        .await;
        assert!(!rig.has_storage(key), "the storage is left");
        assert_eq!(rig.count(key, Rpc::CreateVolume), 1, "{}", rig.story(key));
    }
    rig.remove(&[""; 0], &["v", "w"]).await;
}

/// The answer comes when the call has been given to another agent, whose volume it is by then.
async fn nobody_deletes_again_what_has_become_anothers(cluster: Arc<Cluster>) {
    let nodes = vec![("node-1", true), ("node-2", true)];
    // So long that the agent that comes back still takes the answer.
    let rig = Rig::start(&cluster, Options { nodes, longest_call: 600, ..Options::default() }).await;
    rig.answer("v", Answers { capacity_bytes: Some(1), ..Answers::default() });
    rig.fake.hold("v", Rpc::CreateVolume);
    rig.make_volume(&volume("v")).await;
    let called = || rig.journal.calls_of("v").first().map(|call| call.actor.clone());
    let old = cluster.until("CreateVolume is called", called, || rig.story("v")).await;
    rig.freeze(&old);
    rig.fake.let_go("v", Rpc::CreateVolume);
    let made = || rig.journal.calls_of("v").first().is_some_and(Entry::is_ok).then_some(());
    cluster.until("the answer is on its way", made, || rig.story("v")).await;
    rig.fake.backend().answers.remove("v");
    rig.expire_lease(&old).await;
    rig.mark_out_of_service(&old, true).await;
    rig.until_volume_ready("v").await;
    rig.mark_out_of_service(&old, false).await;

    let since = rig.journal.now();
    rig.thaw(&old);
    let acted = || {
        let of = |e: &Entry| {
            let writes = e.write().is_some_and(|w| w.kind == "volumes" && w.name == "v");
            e.actor == old && (writes || e.call().is_some_and(|c| c.rpc == Rpc::DeleteVolume))
        };
        (!rig.journal.since(since, of).is_empty()).then_some(())
    };
    cluster.until("the old agent makes something of the answer", acted, || rig.story("v")).await;
    // Both agents work, on other volumes.
    rig.use_once("other").await;
    assert_eq!(rig.count("v", Rpc::DeleteVolume), 0, "{}", rig.story("v"));
    assert!(rig.has_storage("v"), "the storage of a Ready Volume was deleted");
    rig.remove(&[""; 0], &["v"]).await;
}

/// The cases of this module.
pub const CASES: &[Case] = cases![
    long_ids_go_all_the_way,
    large_contexts_go_all_the_way,
    a_publish_context_arrives_as_it_was_also_after_restarts,
    a_volume_whose_id_cannot_be_stored_is_deleted_again,
    a_volume_whose_context_cannot_be_stored_is_deleted_again,
    what_was_attached_is_detached_although_its_context_cannot_be_stored,
    what_is_to_be_deleted_again_survives_a_crash,
    nobody_deletes_again_what_has_become_anothers,
];
