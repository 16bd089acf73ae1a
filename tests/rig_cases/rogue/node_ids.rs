//! Two nodes that their drivers know by one id.

use std::sync::Arc;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use moor::api::{AccessMode, Attachment, lock};
use moor::csi::Rpc;
use serde_json::json;

use crate::rig::fake::DRIVER;
use crate::rig::{Cluster, Options, Rig, volume, volume_claim};

const FIRST: &str = "node-1";
const SECOND: &str = "node-2";

/// Its driver was started with the id of another node.
pub(super) async fn nodes_that_a_driver_cannot_tell_apart_get_no_claims(cluster: Arc<Cluster>) {
    let nodes = vec![(FIRST, true)];
    let rig = Rig::start(&cluster, Options { nodes, supervised: false, ..Options::default() }).await;
    rig.fake.backend().node_ids.insert(SECOND.into(), FIRST.into());
    rig.add_node(SECOND, false).await;
    rig.until_out_of_order(&[FIRST, SECOND, "node id"]).await;
    for name in ["first", "second", "any"] {
        rig.make_volume(&volume(name)).await;
    }
    rig.make_claim(&volume_claim("first", "first", FIRST)).await;
    rig.make_claim(&volume_claim("second", "second", SECOND)).await;
    let mut any = volume_claim("any", "any", FIRST);
    any.spec.node_name = None;
    rig.make_claim(&any).await;
    rig.until_says("first", "NodeNotUsable", &[FIRST, SECOND, "node id"]).await;
    rig.until_says("second", "NodeNotUsable", &[FIRST, SECOND, "node id"]).await;
    rig.until_says("any", "NoNode", &[]).await;

    // Somebody says that the machine is off.
    rig.mark_out_of_service(SECOND, true).await;
    rig.until_ready("first").await;
    rig.until_ready("any").await;
    rig.delete_claim("second").await;
    rig.until_claim_gone("second").await;
    rig.remove(&["first", "any"], &["first", "second", "any"]).await;
}

fn detachments(rig: &Rig, key: &str) -> usize {
    let calls = rig.journal.calls_of(key);
    let detaching = |call: &crate::rig::Call| call.rpc == Rpc::ControllerUnpublishVolume;
    calls.iter().filter(|entry| entry.call().is_some_and(detaching)).count()
}

/// The leader has learnt of the second node too late.
pub(super) async fn nothing_is_detached_under_a_mount_of_the_same_node_id(cluster: Arc<Cluster>) {
    let rig = Rig::start(&cluster, Options::default()).await;
    let mode = AccessMode::MultiNodeMultiWriter;
    let mut shared = volume("shared");
    shared.spec.capabilities[0].access_mode = mode;
    rig.make_volume(&shared).await;
    let mut claim = volume_claim("shared", "shared", FIRST);
    claim.spec.access_mode = mode;
    rig.make_claim(&claim).await;
    rig.until_ready("shared").await;

    let attachments: Api<Attachment> = Api::all(cluster.admin.clone());
    let first = rig.read_attachment_of("shared").await;
    let name = lock::attachment_name(
        lock::DriverVolume { driver: DRIVER, handle: &first.spec.volume_handle },
        mode,
        SECOND,
    );
    let mut twin = first.clone();
    twin.metadata = kube::api::ObjectMeta {
        name: Some(name.clone()),
        finalizers: first.metadata.finalizers.clone(),
        ..kube::api::ObjectMeta::default()
    };
    twin.spec.node_name = SECOND.into();
    twin.spec.fixed.node_uid = rig.read_node(SECOND).await.uid().unwrap();
    attachments.create(&PostParams::default(), &twin).await.unwrap();
    let attached = Patch::Merge(json!({"status": {"state": "Attached"}}));
    attachments.patch_status(&name, &PatchParams::default(), &attached).await.unwrap();

    // Nobody uses it, so it is closed.
    let refused = || {
        let error = cluster.attachment(&name)?.status.as_ref()?.last_error.clone()?;
        (error.code == "SameNodeID").then_some(error.message)
    };
    let shows = || format!("{}{:?}", rig.story("shared"), cluster.attachment(&name));
    let said = cluster.until("the call is refused", refused, shows).await;
    assert!(said.contains(FIRST) && said.contains(SECOND), "{said}");
    assert_eq!(detachments(&rig, "shared"), 0);
    rig.remove(&["shared"], &["shared"]).await;
}
