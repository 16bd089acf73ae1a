//! Whether the secrets of a call reach the driver: it quotes them, and what comes back is hidden (trap T26, L12). What it
//! remembers of the mount flags of an earlier call is hidden too.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::capability::{SingleNode, to_proto};
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::controller_server::{Controller, ControllerServer};
use super::proto::csi::v1::node_server::{Node, NodeServer};
use super::*;
use crate::api::capability::{AccessMode, AttachmentMode};
use crate::trace::Trace;

/// Refuses every call, in the words of its secret. One without secrets it refuses in the words of an earlier call.
struct Driver;

macro_rules! refuse {
    ($service:ident: $($call:ident($request:ident) -> $answer:ident $(= $remembered:literal)?),+) => {
        #[tonic::async_trait]
        impl $service for Driver {$(
            async fn $call(
                &self,
                request: Request<wire::$request>,
            ) -> Result<Response<wire::$answer>, Status> {
                let said = refuse!(said request $($remembered)?);
                Err(Status::internal(format!("login with <{said}>")))
            }
        )+}
    };
    (said $request:ident) => { $request.get_ref().secrets.get("password").cloned().unwrap_or_else(|| "open sesame".to_owned()) };
    (said $request:ident $remembered:literal) => {{ let _ = $request; $remembered }};
}

refuse!(Controller:
    create_volume(CreateVolumeRequest) -> CreateVolumeResponse,
    delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse,
    validate_volume_capabilities(ValidateVolumeCapabilitiesRequest) -> ValidateVolumeCapabilitiesResponse,
    controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse,
    controller_unpublish_volume(ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse,
    controller_modify_volume(ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse,
    create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse,
    delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse,
    list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse
);
refuse!(Node:
    node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse,
    node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse = "open sesame",
    node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse,
    node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse,
    node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse = "open sesame"
);

/// A context as kubelet makes it, with a token that the driver remembers.
fn tokens() -> BTreeMap<String, String> {
    let said = r#"{"audience":{"token":"open sesame","expirationTimestamp":"2030-01-01T00:00:00Z"}}"#;
    BTreeMap::from([(TOKENS.to_owned(), said.to_owned())])
}

fn modification(volume_id: String, secrets: Secrets) -> wire::ControllerModifyVolumeRequest {
    let mutable_parameters = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
    wire::ControllerModifyVolumeRequest { volume_id, secrets, mutable_parameters }
}

/// The driver, and where its calls are kept.
async fn serve(path: &Path) -> (Plugin, Arc<Trace>) {
    let incoming = UnixListenerStream::new(UnixListener::bind(path).unwrap());
    let server = tonic::transport::Server::builder()
        .add_service(ControllerServer::new(Driver))
        .add_service(NodeServer::new(Driver))
        .serve_with_incoming(incoming);
    tokio::spawn(server);
    let trace = Arc::new(Trace::default());
    let dialled = Dial::of(path).traced(trace.clone()).connect(Deadlines::default()).await;
    (dialled.unwrap().0, trace)
}

#[tokio::test]
async fn the_secrets_of_every_call_reach_the_driver() {
    let dir = tempfile::tempdir().unwrap();
    let (plugin, trace) = serve(&dir.path().join("csi.sock")).await;
    let secrets = || Secrets::from_iter([("password".to_owned(), "correct horse".to_owned())]);
    let writer = AccessMode::SingleNodeWriter;
    let capability = to_proto(writer, AttachmentMode::FileSystem, None, &[], SingleNode::WriterOnly);
    let (volume_id, node_id, at) = ("vol".to_owned(), "node".to_owned(), "/p".to_owned());
    let create = wire::CreateVolumeRequest {
        name: "name".to_owned(),
        volume_capabilities: vec![capability.clone()],
        secrets: secrets(),
        ..wire::CreateVolumeRequest::default()
    };
    let validate = wire::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.clone(),
        volume_capabilities: vec![capability.clone()],
        secrets: secrets(),
        ..wire::ValidateVolumeCapabilitiesRequest::default()
    };
    let attach = wire::ControllerPublishVolumeRequest {
        volume_id: volume_id.clone(),
        node_id: node_id.clone(),
        volume_capability: Some(capability.clone()),
        secrets: secrets(),
        ..wire::ControllerPublishVolumeRequest::default()
    };
    let stage = wire::NodeStageVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: at.clone(),
        volume_capability: Some(capability.clone()),
        secrets: secrets(),
        ..wire::NodeStageVolumeRequest::default()
    };
    let remembered = || vec!["password=open sesame".to_owned()];
    let publish = wire::NodePublishVolumeRequest {
        volume_id: volume_id.clone(),
        target_path: at.clone(),
        volume_capability: Some(capability),
        secrets: secrets(),
        ..wire::NodePublishVolumeRequest::default()
    };
    let remembers = wire::NodePublishVolumeRequest { secrets: Secrets::none(), ..publish.clone() };
    let with_tokens = wire::NodePublishVolumeRequest { volume_context: tokens(), ..remembers.clone() };
    let expand = wire::NodeExpandVolumeRequest {
        volume_id: volume_id.clone(),
        volume_path: at.clone(),
        secrets: secrets(),
        ..wire::NodeExpandVolumeRequest::default()
    };
    let modify = modification(volume_id.clone(), secrets());
    let delete = wire::DeleteVolumeRequest { volume_id: volume_id.clone(), secrets: secrets() };
    let volume = volume_id.clone();
    let detach = wire::ControllerUnpublishVolumeRequest { volume_id: volume, node_id, secrets: secrets() };
    let unstage =
        wire::NodeUnstageVolumeRequest { volume_id: volume_id.clone(), staging_target_path: at.clone() };
    let unpublish = wire::NodeUnpublishVolumeRequest { volume_id, target_path: at };
    let errors = [
        plugin.create_volume(create).await.map(drop).unwrap_err(),
        plugin.delete_volume(FollowUp { request: delete, earlier_flags: vec![] }).await.unwrap_err(),
        plugin.validate_volume_capabilities(validate).await.map(drop).unwrap_err(),
        plugin.controller_publish_volume(attach).await.map(drop).unwrap_err(),
        plugin
            .controller_unpublish_volume(FollowUp { request: detach, earlier_flags: vec![] })
            .await
            .unwrap_err(),
        plugin.node_stage_volume(stage).await.unwrap_err(),
        plugin
            .node_publish_volume(FollowUp { request: publish, earlier_flags: remembered() })
            .await
            .unwrap_err(),
        plugin
            .node_publish_volume(FollowUp { request: remembers, earlier_flags: remembered() })
            .await
            .unwrap_err(),
        plugin
            .node_publish_volume(FollowUp { request: with_tokens, earlier_flags: vec![] })
            .await
            .unwrap_err(),
        plugin.node_expand_volume(expand).await.map(drop).unwrap_err(),
        plugin.controller_modify_volume(modify).await.unwrap_err(),
        plugin
            .node_unstage_volume(FollowUp { request: unstage, earlier_flags: remembered() })
            .await
            .unwrap_err(),
        plugin
            .node_unpublish_volume(FollowUp { request: unpublish, earlier_flags: remembered() })
            .await
            .unwrap_err(),
    ];
    let mut made = 0;
    for error in errors.into_iter().chain(snapshots(&plugin, secrets()).await) {
        assert_eq!(error.message, "login with <<hidden>>", "{error}");
        made += 1;
    }
    none_is_kept(&trace, made);
}

/// Each of so many calls is in the trace, which has no secret either.
fn none_is_kept(trace: &Trace, made: usize) {
    let told = trace.told("node-1");
    let text = serde_json::to_string(&told).unwrap();
    for secret in ["horse", "sesame", "gold"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(told.calls.len() == made && text.contains("secrets: <1 hidden>"), "{text}");
    assert!(told.calls.iter().all(|call| !call.of.is_empty() && call.end.is_some()), "{text}");
}

/// What the calls about snapshots come to.
async fn snapshots(plugin: &Plugin, secrets: Secrets) -> [CallError; 3] {
    let snapshot_id = "snap".to_owned();
    let take = wire::CreateSnapshotRequest {
        source_volume_id: "vol".to_owned(),
        name: "name".to_owned(),
        secrets: secrets.clone(),
        ..wire::CreateSnapshotRequest::default()
    };
    let find = wire::ListSnapshotsRequest {
        snapshot_id: snapshot_id.clone(),
        secrets: secrets.clone(),
        ..wire::ListSnapshotsRequest::default()
    };
    [
        plugin.create_snapshot(take).await.map(drop).unwrap_err(),
        plugin.delete_snapshot(wire::DeleteSnapshotRequest { snapshot_id, secrets }).await.unwrap_err(),
        plugin.find_snapshot(find).await.map(drop).unwrap_err(),
    ]
}
