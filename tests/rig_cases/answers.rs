//! What a driver answers is kept, or undone with the id as it came.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1::{DeleteVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};

use crate::cases;
use crate::rig::fake::backend::Answers;
use crate::rig::{Case, Cluster, Options, Rig, volume, volume_claim};

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

    /// Uses the volume from its making to its end.
    async fn use_once(&self, key: &str) {
        self.make_volume(&volume(key)).await;
        self.make_claim(&volume_claim(key, key, NODE)).await;
        let target = self.until_ready(key).await;
        fs::write(Path::new(&target).join("word"), "kept").unwrap();
        let word = self.fake.backend().content(key).join("word");
        assert_eq!(fs::read_to_string(word).unwrap(), "kept");
        self.remove(&[key], &[key]).await;
        assert!(!self.fake.backend().volumes.contains_key(key), "the storage is left");
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

/// The cases of this module.
pub const CASES: &[Case] = cases![
    long_ids_go_all_the_way,
    large_contexts_go_all_the_way,
    what_was_attached_is_detached_although_its_context_cannot_be_stored,
];
