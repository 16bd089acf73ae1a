//! A CSI plugin that does as little as one may: what it takes is not to be seen beside what moor takes.
//!
//! It remembers nothing: a volume's id is the name that it is created under, so the answer to every call follows from the
//! call. NodePublishVolume mounts a folder of the volume's own, because moor looks whether something is mounted there, and
//! tells one volume from another by what is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::controller_server::{Controller, ControllerServer};
use moor::csi::proto::csi::v1::identity_server::{Identity, IdentityServer};
use moor::csi::proto::csi::v1::node_server::{Node, NodeServer};
use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// The name that the plugin gives itself.
pub const DRIVER: &str = "noop.moor.dev";

/// Calls so far that change something, of all nodes.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// How many calls there have been that change something, on all nodes.
pub fn changes() -> usize {
    CHANGES.load(Ordering::Relaxed)
}

type Answer<A> = Result<Response<A>, Status>;

/// The plugin's process on one node.
#[derive(Clone)]
struct Place {
    node: String,
    /// It serves the Controller service too.
    controller: bool,
    /// Where each volume has its folder.
    content: PathBuf,
}

/// Serves the plugin on a node below the folder of plugins, for as long as this process runs, in a mount namespace that is the
/// node's own: who reads the mounts of one node does not find those of all others. Returns the namespace's file in /proc, which
/// is seen whole in `all_processes` by whoever has a /proc of his own there.
pub fn serve(
    node: &str,
    controller: bool,
    plugin_dir: &Path,
    content: &Path,
    all_processes: PathBuf,
) -> PathBuf {
    let socket = plugin_dir.join(DRIVER).join("csi.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    fs::create_dir_all(content).unwrap();
    let place = Place { node: node.to_owned(), controller, content: content.to_owned() };
    let (told, namespace) = mpsc::channel();
    thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        fs::create_dir_all(&all_processes).unwrap();
        mount_bind("/proc", &all_processes).unwrap();
        // An agent's own namespace below it learns of what the plugin mounts.
        mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
            told.send(Path::new("/proc").join(fs::read_link("/proc/thread-self").unwrap()).join("ns/mnt"))
                .unwrap();
            let router = tonic::transport::Server::builder()
                .add_service(IdentityServer::new(place.clone()))
                .add_service(ControllerServer::new(place.clone()))
                .add_service(NodeServer::new(place));
            router.serve_with_incoming(incoming).await.unwrap();
        });
    });
    namespace.recv().unwrap()
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Status {
    move |error| Status::internal(format!("{what}: {error}"))
}

impl Place {
    fn publish(&self, volume: &str, target: &Path) -> Result<(), Status> {
        let own = self.content.join(volume);
        fs::create_dir_all(&own).map_err(failed("the folder"))?;
        fs::create_dir_all(target).map_err(failed("the target"))?;
        mount_bind(&own, target).map_err(|errno| failed("the mount")(errno.into()))
    }
}

fn unpublish(target: &Path) -> Result<(), Status> {
    match unmount(target, UnmountFlags::empty()) {
        // Nothing is mounted there any more.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(failed("the mount")(errno.into())),
    }
    match fs::remove_dir(target) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed("the target")(error)),
        _ => Ok(()),
    }
}

#[tonic::async_trait]
impl Identity for Place {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Answer<wire::GetPluginInfoResponse> {
        let (name, vendor_version) = (DRIVER.to_owned(), "1.0.0".to_owned());
        Ok(Response::new(wire::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Answer<wire::GetPluginCapabilitiesResponse> {
        use wire::plugin_capability::{Service, Type, service};
        let service = Service { r#type: service::Type::ControllerService.into() };
        let capability = wire::PluginCapability { r#type: Some(Type::Service(service)) };
        let capabilities = self.controller.then_some(capability).into_iter().collect();
        Ok(Response::new(wire::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Answer<wire::ProbeResponse> {
        Ok(Response::new(wire::ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl Controller for Place {
    async fn controller_get_capabilities(
        &self,
        _: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer<wire::ControllerGetCapabilitiesResponse> {
        use wire::controller_service_capability::{Rpc, Type, rpc};
        let capability = |offered: rpc::Type| wire::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: offered.into() })),
        };
        let offered = [rpc::Type::CreateDeleteVolume, rpc::Type::PublishUnpublishVolume];
        let capabilities = offered.map(capability).into();
        Ok(Response::new(wire::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Answer<wire::CreateVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        let request = request.into_inner();
        let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        let volume = wire::Volume { volume_id: request.name, capacity_bytes, ..Default::default() };
        Ok(Response::new(wire::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        match fs::remove_dir(self.content.join(&request.get_ref().volume_id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed("the folder")(error)),
            _ => Ok(Response::new(wire::DeleteVolumeResponse {})),
        }
    }

    async fn controller_publish_volume(
        &self,
        _: Request<wire::ControllerPublishVolumeRequest>,
    ) -> Answer<wire::ControllerPublishVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(wire::ControllerPublishVolumeResponse::default()))
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<wire::ControllerUnpublishVolumeRequest>,
    ) -> Answer<wire::ControllerUnpublishVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(wire::ControllerUnpublishVolumeResponse {}))
    }
}

#[tonic::async_trait]
impl Node for Place {
    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Answer<wire::NodeGetCapabilitiesResponse> {
        use wire::node_service_capability::{Rpc, Type, rpc};
        let stages = Rpc { r#type: rpc::Type::StageUnstageVolume.into() };
        let capabilities = vec![wire::NodeServiceCapability { r#type: Some(Type::Rpc(stages)) }];
        Ok(Response::new(wire::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<wire::NodeGetInfoRequest>) -> Answer<wire::NodeGetInfoResponse> {
        let node_id = self.node.clone();
        Ok(Response::new(wire::NodeGetInfoResponse { node_id, ..Default::default() }))
    }

    async fn node_stage_volume(
        &self,
        _: Request<wire::NodeStageVolumeRequest>,
    ) -> Answer<wire::NodeStageVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(wire::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        _: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Answer<wire::NodeUnstageVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(wire::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Answer<wire::NodePublishVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        let request = request.get_ref();
        self.publish(&request.volume_id, Path::new(&request.target_path))?;
        Ok(Response::new(wire::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Answer<wire::NodeUnpublishVolumeResponse> {
        CHANGES.fetch_add(1, Ordering::Relaxed);
        unpublish(Path::new(&request.get_ref().target_path))?;
        Ok(Response::new(wire::NodeUnpublishVolumeResponse {}))
    }
}
