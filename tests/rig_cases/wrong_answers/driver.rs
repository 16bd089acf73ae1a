//! A driver that says of itself what a case has it say, and servers that are none.

use std::fs;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use axum::body::Bytes;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::controller_server::{Controller, ControllerServer};
use moor::csi::proto::csi::v1::identity_server::{Identity, IdentityServer};
use moor::csi::proto::csi::v1::node_server::{Node, NodeServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// What it answers to whoever asks who it is.
#[derive(Clone, Default)]
pub struct Driver {
    pub info: wire::GetPluginInfoResponse,
    pub services: wire::GetPluginCapabilitiesResponse,
    pub controller: wire::ControllerGetCapabilitiesResponse,
    pub node: wire::NodeGetCapabilitiesResponse,
    pub node_info: wire::NodeGetInfoResponse,
    pub probe: Probe,
    /// It never answers GetPluginInfo.
    pub is_mute: bool,
}

/// What it answers to Probe.
#[derive(Clone, Default)]
pub enum Probe {
    #[default]
    Ready,
    NotReady,
    Hangs,
    Fails(String),
}

impl Driver {
    /// One that is all right, has no Controller service, and says this name.
    pub fn named(name: &str) -> Self {
        let mut driver = Self::default();
        name.clone_into(&mut driver.info.name);
        "node".clone_into(&mut driver.node_info.node_id);
        driver
    }
}

type Answer<A> = Result<Response<A>, Status>;

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Answer<wire::GetPluginInfoResponse> {
        if self.is_mute {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Answer<wire::GetPluginCapabilitiesResponse> {
        Ok(Response::new(self.services.clone()))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Answer<wire::ProbeResponse> {
        let ready = match &self.probe {
            Probe::Ready => true,
            Probe::NotReady => false,
            Probe::Hangs => std::future::pending().await,
            Probe::Fails(words) => return Err(Status::failed_precondition(words)),
        };
        Ok(Response::new(wire::ProbeResponse { ready: Some(ready) }))
    }
}

#[tonic::async_trait]
impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer<wire::ControllerGetCapabilitiesResponse> {
        Ok(Response::new(self.controller.clone()))
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Answer<wire::NodeGetCapabilitiesResponse> {
        Ok(Response::new(self.node.clone()))
    }

    async fn node_get_info(&self, _: Request<wire::NodeGetInfoRequest>) -> Answer<wire::NodeGetInfoResponse> {
        Ok(Response::new(self.node_info.clone()))
    }
}

/// A server at a socket. Dropped it ends; its socket stays.
pub struct Server(AbortHandle);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a server does that is no driver, with each connection.
#[derive(Clone, Copy)]
pub enum Other {
    /// Closes it.
    Closes,
    /// Closes it when something was asked.
    ClosesWhenAsked,
    /// Says nothing.
    IsSilent,
    /// Sends these bytes.
    Sends(&'static [u8]),
    /// Answers every request of HTTP/2 with this status, and with these bytes of this type.
    Answers(u16, &'static str, &'static [u8]),
}

/// Starts a driver.
pub fn serve(socket: &Path, driver: Driver) -> Server {
    let router = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(driver.clone()))
        .add_service(ControllerServer::new(driver.clone()))
        .add_service(NodeServer::new(driver));
    let incoming = UnixListenerStream::new(listen(socket));
    Server(tokio::spawn(router.serve_with_incoming(incoming)).abort_handle())
}

/// Starts a server that is no driver.
pub fn serve_other(socket: &Path, other: Other) -> Server {
    let listener = listen(socket);
    let accept = async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(attend(connection, other));
        }
    };
    Server(tokio::spawn(accept).abort_handle())
}

fn listen(socket: &Path) -> UnixListener {
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = StdListener::bind(socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    UnixListener::from_std(listener).unwrap()
}

async fn attend(mut connection: UnixStream, other: Other) {
    let mut heard = [0; 4096];
    match other {
        Other::Closes => {}
        Other::ClosesWhenAsked => drop(connection.read(&mut heard).await),
        Other::IsSilent => while connection.read(&mut heard).await.is_ok_and(|bytes| bytes > 0) {},
        Other::Sends(bytes) => {
            let _ = connection.write_all(bytes).await;
            while connection.read(&mut heard).await.is_ok_and(|bytes| bytes > 0) {}
        }
        Other::Answers(status, kind, bytes) => {
            let Ok(mut requests) = h2::server::handshake(connection).await else { return };
            while let Some(Ok((_, mut respond))) = requests.accept().await {
                let response = http::Response::builder().status(status).header("content-type", kind);
                let Ok(mut body) = respond.send_response(response.body(()).unwrap(), false) else { return };
                let _ = body.send_data(Bytes::from_static(bytes), false);
                let trailers = [(http::HeaderName::from_static("grpc-status"), "0".parse().unwrap())];
                let _ = body.send_trailers(trailers.into_iter().collect());
            }
        }
    }
}
