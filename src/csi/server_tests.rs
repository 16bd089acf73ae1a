//! The client against a small server of our own on a real unix socket, and against sockets that misbehave.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::{Service, http};
use tonic::{Code, Request, Response, Status};

use super::capability::{SingleNode, to_proto};
use super::channel::ANSWER_LIMIT;
use super::dial::connect;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::controller_server::{Controller, ControllerServer};
use super::proto::csi::v1::identity_server::{Identity, IdentityServer};
use super::proto::csi::v1::node_server::{Node, NodeServer};
use super::*;
use crate::api::capability::{AccessMode, AttachmentMode};

const PASSWORD: &str = "correct horse";
const FLAG: &str = "password=battery-staple";

/// Answers as the volume's id asks.
struct Driver;

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        let answer = wire::GetPluginInfoResponse { name: "test.moor.dev".to_owned(), ..Default::default() };
        Ok(Response::new(answer))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse { ready: None }))
    }
}

#[tonic::async_trait]
impl Controller for Driver {
    async fn controller_publish_volume(
        &self,
        request: Request<wire::ControllerPublishVolumeRequest>,
    ) -> Result<Response<wire::ControllerPublishVolumeResponse>, Status> {
        let mut answer = wire::ControllerPublishVolumeResponse::default();
        if request.get_ref().volume_id == "enormous" {
            answer.publish_context.insert("k".to_owned(), "x".repeat(ANSWER_LIMIT));
        } else if request.get_ref().volume_id == "oversize" {
            answer.publish_context.insert("k".to_owned(), "x".repeat(5000));
        }
        Ok(Response::new(answer))
    }

    async fn controller_expand_volume(
        &self,
        _: Request<wire::ControllerExpandVolumeRequest>,
    ) -> Result<Response<wire::ControllerExpandVolumeResponse>, Status> {
        let answer = wire::ControllerExpandVolumeResponse { capacity_bytes: 7, ..Default::default() };
        Ok(Response::new(answer))
    }

    async fn create_volume(
        &self,
        _: Request<wire::CreateVolumeRequest>,
    ) -> Result<Response<wire::CreateVolumeResponse>, Status> {
        Ok(Response::new(wire::CreateVolumeResponse { volume: Some(wire::Volume::default()) }))
    }

    async fn list_volumes(
        &self,
        request: Request<wire::ListVolumesRequest>,
    ) -> Result<Response<wire::ListVolumesResponse>, Status> {
        let page: usize = request.get_ref().starting_token.parse().unwrap_or_default();
        let volume = wire::Volume { volume_id: format!("vol-{page}"), ..Default::default() };
        let entry = wire::list_volumes_response::Entry { volume: Some(volume), status: None };
        let next_token = if page < 2 { (page + 1).to_string() } else { String::new() };
        Ok(Response::new(wire::ListVolumesResponse { entries: vec![entry], next_token }))
    }
}

/// Leads ControllerPublishVolume to ControllerExpandVolume, whose answer is not readable as the one expected.
#[derive(Clone)]
struct Mistaken(ControllerServer<Driver>);

impl tonic::server::NamedService for Mistaken {
    const NAME: &'static str = <ControllerServer<Driver> as tonic::server::NamedService>::NAME;
}

impl Service<http::Request<tonic::body::Body>> for Mistaken {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = <ControllerServer<Driver> as Service<http::Request<tonic::body::Body>>>::Future;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        *request.uri_mut() = http::Uri::from_static("/csi.v1.Controller/ControllerExpandVolume");
        self.0.call(request)
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_decoded_leaves_a_change_running() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let incoming = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
    let service = Mistaken(ControllerServer::new(Driver));
    let server = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
    let task = tokio::spawn(server);
    let plugin = connect(&path, Deadlines::default()).await.unwrap();
    // Bytes that the server can read as a CapacityRange, so that it is the answer that cannot be decoded.
    let args = wire::ControllerPublishVolumeRequest { node_id: "\u{8}\u{1}".to_owned(), ..publish("vol") };
    let error = plugin.controller_publish_volume(args).await.unwrap_err();
    assert_eq!((error.origin, error.meaning()), (Origin::Reply, Meaning::StillRunning), "{error}");
    assert!(error.message.contains("publish_context"), "{error}");
    task.abort();
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Result<Response<wire::NodeStageVolumeResponse>, Status> {
        if request.get_ref().volume_id == "hang" {
            std::future::pending::<()>().await;
        }
        let secret = request.get_ref().secrets.get("password").cloned().unwrap_or_default();
        Err(Status::internal(format!("mount -o {FLAG} failed:\n\u{1b}[1mlogin with {secret}")))
    }

    async fn node_get_info(
        &self,
        _: Request<wire::NodeGetInfoRequest>,
    ) -> Result<Response<wire::NodeGetInfoResponse>, Status> {
        Ok(Response::new(wire::NodeGetInfoResponse::default()))
    }
}

/// Notes the `:authority` of every request on its way to the identity service.
#[derive(Clone)]
struct Authorities<S> {
    inner: S,
    seen: Arc<Mutex<Vec<String>>>,
}

impl<S: tonic::server::NamedService> tonic::server::NamedService for Authorities<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for Authorities<S>
where
    S: Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        self.seen.lock().unwrap().push(authority);
        self.inner.call(request)
    }
}

struct Running {
    _dir: tempfile::TempDir,
    path: PathBuf,
    seen: Arc<Mutex<Vec<String>>>,
}

fn serve(path: &Path, seen: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    let identity = Authorities { inner: IdentityServer::new(Driver), seen: seen.clone() };
    let server = tonic::transport::Server::builder()
        .add_service(identity)
        .add_service(ControllerServer::new(Driver).max_encoding_message_size(usize::MAX))
        .add_service(NodeServer::new(Driver))
        .serve_with_incoming(UnixListenerStream::new(listener));
    tokio::spawn(async move { server.await.unwrap() })
}

fn start() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let seen = Arc::default();
    serve(&path, &seen);
    Running { _dir: dir, path, seen }
}

fn short() -> Deadlines {
    Deadlines { stage: Duration::from_millis(300), identity: Duration::from_secs(2), ..Deadlines::default() }
}

fn stage(volume_id: &str) -> wire::NodeStageVolumeRequest {
    let capability = to_proto(
        AccessMode::SingleNodeWriter,
        AttachmentMode::FileSystem,
        Some("ext4"),
        &[FLAG.to_owned()],
        SingleNode::WriterOnly,
    );
    wire::NodeStageVolumeRequest {
        volume_id: volume_id.to_owned(),
        staging_target_path: "/staging".to_owned(),
        volume_capability: Some(capability),
        secrets: Secrets::from_iter([("password".to_owned(), PASSWORD.to_owned())]),
        ..Default::default()
    }
}

fn publish(volume_id: &str) -> wire::ControllerPublishVolumeRequest {
    wire::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: "node".to_owned(),
        volume_capability: stage("").volume_capability,
        ..Default::default()
    }
}

#[tokio::test]
async fn the_authority_of_a_call_is_localhost() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    assert_eq!(plugin.get_plugin_info().await.unwrap().name, "test.moor.dev");
    assert_eq!(*running.seen.lock().unwrap(), ["localhost"]);
}

#[tokio::test]
async fn a_probe_without_an_answer_field_is_ready() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    assert!(plugin.probe().await.unwrap());
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_deadline_with_an_unknown_outcome() {
    let running = start();
    let plugin = connect(&running.path, short()).await.unwrap();
    let error = plugin.node_stage_volume(stage("hang")).await.unwrap_err();
    assert_eq!((error.code, error.origin), (Code::DeadlineExceeded, Origin::Deadline));
    assert_eq!(error.meaning(), Meaning::StillRunning);
}

#[tokio::test]
async fn a_drivers_message_loses_secrets_flags_and_control_characters() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    let error = plugin.node_stage_volume(stage("vol")).await.unwrap_err();
    assert_eq!(error.message, "mount -o <hidden> failed: [1mlogin with <hidden>");
    assert_eq!((error.origin, error.meaning()), (Origin::Driver, Meaning::Final));
}

#[tokio::test]
async fn a_call_that_the_plugin_does_not_serve_is_unsupported() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    let error = plugin.get_plugin_capabilities().await.unwrap_err();
    assert_eq!((error.origin, error.meaning()), (Origin::Driver, Meaning::Unsupported));
}

#[tokio::test]
async fn an_argument_that_is_too_long_is_never_sent() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    let mut staged = stage("vol");
    staged.staging_target_path = format!("/{}", "p".repeat(4_095));
    let error = plugin.node_stage_volume(staged).await.unwrap_err();
    assert_eq!(error.origin, Origin::Argument);
    assert_eq!(error.message, "staging_target_path has 4096 bytes, CSI allows 4095");
}

/// The volume is attached by then, and nobody but us knows what belongs to it.
#[tokio::test]
async fn an_answer_that_is_larger_than_csi_allows_is_kept() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    let answer = plugin.controller_publish_volume(publish("oversize")).await.unwrap();
    assert_eq!(answer.publish_context.get("k").map(String::len), Some(5_000));
}

#[tokio::test]
async fn an_answer_that_breaks_csi_leaves_a_change_running() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    let create = wire::CreateVolumeRequest {
        name: "vol".to_owned(),
        volume_capabilities: stage("").volume_capability.into_iter().collect(),
        ..Default::default()
    };
    let errors = [
        plugin.create_volume(create).await.unwrap_err(),
        // Larger than what is read at all: tonic ends this one, and must not pass for the driver's own code.
        plugin.controller_publish_volume(publish("enormous")).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.origin, error.meaning()), (Origin::Reply, Meaning::StillRunning), "{error}");
    }
    let error = plugin.node_get_info().await.unwrap_err();
    assert_eq!((error.origin, error.meaning()), (Origin::Reply, Meaning::Final), "{error}");
}

#[tokio::test]
async fn all_pages_of_a_listing_are_read() {
    let running = start();
    let plugin = connect(&running.path, Deadlines::default()).await.unwrap();
    let published =
        plugin.list_volumes(1, |volume| (volume.volume_id != "vol-1").then_some(())).await.unwrap();
    let ids: BTreeSet<_> = published.keys().map(String::as_str).collect();
    assert_eq!(ids, ["vol-0", "vol-2"].into());
}

#[tokio::test]
async fn connecting_tells_a_missing_socket_from_one_that_nobody_listens_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let error = connect(&path, Deadlines::default()).await.unwrap_err();
    assert!(error.gone && error.to_string().ends_with("there is no such socket"), "{error}");
    drop(UnixListener::bind(&path).unwrap());
    let error = connect(&path, Deadlines::default()).await.unwrap_err();
    assert!(error.gone && error.to_string().ends_with("nobody listens"), "{error}");
    let error = connect(Path::new("csi.sock"), Deadlines::default()).await.unwrap_err();
    assert!(!error.gone && error.to_string().contains("not an absolute path"), "{error}");
}

#[tokio::test]
async fn a_call_to_a_socket_that_nobody_listens_on_any_more_was_never_sent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let plugin = connect(&path, short()).await.unwrap();
    // Takes the connection, closes it and stops listening; the file stays, as after a kill.
    drop(listener.accept().await.unwrap());
    drop(listener);
    // The client may still have to notice that the connection broke; that call may count as sent.
    let _ = plugin.node_stage_volume(stage("vol")).await;
    let error = plugin.node_stage_volume(stage("vol")).await.unwrap_err();
    assert_eq!((error.origin, error.meaning()), (Origin::Dial, Meaning::NeverSent), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_during_a_call_leaves_the_outcome_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let plugin = connect(&path, Deadlines::default()).await.unwrap();
    let (connection, _) = listener.accept().await.unwrap();
    let breaks = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(connection);
    };
    let (result, ()) = tokio::join!(plugin.node_stage_volume(stage("vol")), breaks);
    let error = result.unwrap_err();
    assert_eq!((error.origin, error.meaning()), (Origin::Connection, Meaning::StillRunning), "{error}");
    assert!(error.is_transport());
}

#[tokio::test]
async fn a_plugin_that_came_back_at_the_same_path_is_not_called_through_the_old_handle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (plugin, ended) = Dial::of(&path).connect(Deadlines::default()).await.unwrap();
    drop(listener.accept().await.unwrap());
    drop(listener);
    ended.await;
    let gone = plugin.node_stage_volume(stage("vol")).await.unwrap_err();
    assert_eq!((gone.origin, gone.meaning()), (Origin::Dial, Meaning::NeverSent), "{gone}");
    assert_eq!(gone.to_string(), "NodeStageVolume: Unavailable: the connection to the plugin was lost");

    std::fs::remove_file(&path).unwrap();
    let again = serve(&path, &Arc::default());
    let error = plugin.node_stage_volume(stage("vol")).await.unwrap_err();
    assert_eq!((error.origin, error.meaning()), (Origin::Dial, Meaning::NeverSent));
    assert!(connect(&path, Deadlines::default()).await.unwrap().probe().await.unwrap());
    again.abort();
}
