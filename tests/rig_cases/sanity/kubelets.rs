//! What stands between csi-sanity and the agent: a Pod for each volume that it publishes, and kubelet's paths in the place of
//! its own. What it says wrong on purpose goes through as it is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Api;
use kube::api::ListParams;
use moor::api::VolumeHandle;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::controller_client::ControllerClient;
use moor::csi::proto::csi::v1::controller_server::{Controller, ControllerServer};
use moor::csi::proto::csi::v1::identity_client::IdentityClient;
use moor::csi::proto::csi::v1::identity_server::{Identity, IdentityServer};
use moor::csi::proto::csi::v1::node_server::{Node, NodeServer};
use tokio::net::UnixListener;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::NODE;
use crate::rig::{Kubelet, Rig};

type Answer<A> = Result<Response<A>, Status>;

#[derive(Clone)]
struct Desk {
    rig: Arc<Rig>,
    kubelet: Kubelet,
    /// csi-sanity's own paths.
    target: PathBuf,
    staging: PathBuf,
}

/// Ends the server when it goes.
pub struct Served(AbortHandle);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens at `socket`.
pub fn serve(rig: &Arc<Rig>, kubelet: &Kubelet, socket: &Path, mounts: &Path, staging: &Path) -> Served {
    let (target, staging) = (mounts.join("target"), staging.to_owned());
    let desk = Desk { rig: rig.clone(), kubelet: kubelet.clone(), target, staging };
    let router = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(desk.clone()))
        .add_service(ControllerServer::new(desk.clone()))
        .add_service(NodeServer::new(desk));
    let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
    Served(tokio::spawn(router.serve_with_incoming(incoming)).abort_handle())
}

impl Desk {
    /// The volume's name everywhere, if it is one of those that were made. A Pod has the same.
    fn key(&self, volume_id: &str) -> Option<String> {
        let key = volume_id.strip_prefix("vol-")?;
        self.rig.has_storage(key).then(|| key.to_owned())
    }

    /// kubelet's path, where this is csi-sanity's.
    fn target(&self, volume_id: &str, path: String) -> String {
        match self.key(volume_id).filter(|_| Path::new(&path) == self.target) {
            Some(key) => text(&self.kubelet.target(&key, &key)),
            None => path,
        }
    }

    fn staging(&self, volume_id: &str, path: String) -> String {
        match self.key(volume_id).filter(|_| Path::new(&path) == self.staging) {
            Some(key) => text(&self.kubelet.staging(&key)),
            None => path,
        }
    }

    async fn driver(&self) -> Channel {
        let socket = self.rig.driver_socket(NODE);
        Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect().await.unwrap()
    }

    async fn agent(&self) -> Channel {
        let socket = self.kubelet.link().unwrap();
        Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect().await.unwrap()
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[tonic::async_trait]
impl Identity for Desk {
    async fn get_plugin_info(
        &self,
        request: Request<wire::GetPluginInfoRequest>,
    ) -> Answer<wire::GetPluginInfoResponse> {
        IdentityClient::new(self.agent().await).get_plugin_info(request).await
    }

    /// Those of the driver: csi-sanity makes its volumes here too, which at the agent nobody can.
    async fn get_plugin_capabilities(
        &self,
        request: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Answer<wire::GetPluginCapabilitiesResponse> {
        IdentityClient::new(self.agent().await)
            .get_plugin_capabilities(Request::new(wire::GetPluginCapabilitiesRequest {}))
            .await?;
        IdentityClient::new(self.driver().await).get_plugin_capabilities(request).await
    }

    async fn probe(&self, request: Request<wire::ProbeRequest>) -> Answer<wire::ProbeResponse> {
        IdentityClient::new(self.agent().await).probe(request).await
    }
}

#[tonic::async_trait]
impl Controller for Desk {
    async fn controller_get_capabilities(
        &self,
        request: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer<wire::ControllerGetCapabilitiesResponse> {
        ControllerClient::new(self.driver().await).controller_get_capabilities(request).await
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Answer<wire::CreateVolumeResponse> {
        let mut request = request.into_inner();
        // Kubernetes takes no capital letters in names.
        request.name = request.name.to_lowercase();
        ControllerClient::new(self.driver().await).create_volume(request).await
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        self.rig.until_no_pod_claims().await;
        let handle = &request.get_ref().volume_id;
        // What was published is a Volume by now, of a PersistentVolume that was made by hand.
        let all = Api::<VolumeHandle>::all(self.rig.cluster.admin.clone());
        let listed = all.list(&ListParams::default()).await.unwrap().items;
        if listed.iter().any(|known| known.spec.volume_handle == *handle) {
            self.rig.deleted(&[handle], "csi-sanity deletes what it has had made");
        }
        ControllerClient::new(self.driver().await).delete_volume(request).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<wire::ControllerExpandVolumeRequest>,
    ) -> Answer<wire::ControllerExpandVolumeResponse> {
        ControllerClient::new(self.driver().await).controller_expand_volume(request).await
    }
}

#[tonic::async_trait]
impl Node for Desk {
    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Answer<wire::NodeStageVolumeResponse> {
        let mut request = request.into_inner();
        request.staging_target_path = self.staging(&request.volume_id, request.staging_target_path);
        if let Some(key) = self.key(&request.volume_id) {
            self.kubelet.prepare_staging(&key);
        }
        self.kubelet.node().await?.node_stage_volume(request).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Answer<wire::NodeUnstageVolumeResponse> {
        let mut request = request.into_inner();
        request.staging_target_path = self.staging(&request.volume_id, request.staging_target_path);
        self.kubelet.node().await?.node_unstage_volume(request).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Answer<wire::NodePublishVolumeResponse> {
        let mut request = request.into_inner();
        if let Some(key) =
            self.key(&request.volume_id).filter(|_| Path::new(&request.target_path) == self.target)
        {
            self.kubelet.take(&key, &key).await;
            let kubelets = self.kubelet.publication(&key, &key);
            fs::create_dir_all(Path::new(&kubelets.target_path).parent().unwrap()).unwrap();
            // By it csi-sanity sees what is there, and what is not any more.
            let _ = fs::remove_file(&self.target);
            symlink(&kubelets.target_path, &self.target).unwrap();
            request.target_path = kubelets.target_path;
            request.staging_target_path = kubelets.staging_target_path;
            request.volume_context.extend(kubelets.volume_context);
        }
        self.kubelet.node().await?.node_publish_volume(request).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Answer<wire::NodeUnpublishVolumeResponse> {
        let mut request = request.into_inner();
        if let Some(key) = self.key(&request.volume_id) {
            // csi-sanity also clears away what it has not published.
            self.kubelet.take(&key, &key).await;
        }
        request.target_path = self.target(&request.volume_id, request.target_path);
        let target = request.target_path.clone();
        let answer = self.kubelet.node().await?.node_unpublish_volume(request).await?;
        // csi-sanity removes its folder, which has to be empty. Where something is still there it is to see that.
        if !Path::new(&target).exists() {
            let _ = fs::remove_file(&self.target);
        }
        Ok(answer)
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Answer<wire::NodeGetVolumeStatsResponse> {
        let mut request = request.into_inner();
        request.volume_path = self.target(&request.volume_id, request.volume_path);
        self.kubelet.node().await?.node_get_volume_stats(request).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Answer<wire::NodeExpandVolumeResponse> {
        let mut request = request.into_inner();
        request.volume_path = self.target(&request.volume_id, request.volume_path);
        self.kubelet.node().await?.node_expand_volume(request).await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Answer<wire::NodeGetCapabilitiesResponse> {
        self.kubelet.node().await?.node_get_capabilities(request).await
    }

    async fn node_get_info(
        &self,
        request: Request<wire::NodeGetInfoRequest>,
    ) -> Answer<wire::NodeGetInfoResponse> {
        self.kubelet.node().await?.node_get_info(request).await
    }
}
