//! kubelet, as far as it calls CSI drivers: finds the sockets in its folder, registers them, and makes the calls of
//! kubernetes `pkg/volume/csi` with the deadlines, paths and directories that it uses.

mod paths;
mod volumes;
mod wish;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use moor::api::names::INLINE;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::node_client::NodeClient;
use moor::csi::proto::registration::v1::registration_client::RegistrationClient;
use moor::csi::proto::registration::v1::{InfoRequest, PluginInfo, RegistrationStatus};
use serde_json::json;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

pub use wish::Wish;

use paths::remove;

use super::fake::DRIVER;
use super::{Can, Cluster, PATIENCE, Rig, SPACE};

/// kubelet's own deadline for a call (`csiTimeout`).
const TIMEOUT: Duration = Duration::from_secs(120);
/// Its first wait after a call that failed.
const BACKOFF: Duration = Duration::from_millis(500);

/// The kubelet of a node.
#[derive(Clone)]
pub struct Kubelet {
    cluster: Arc<Cluster>,
    node: String,
    directory: PathBuf,
    /// UIDs of the Pods that it has, by name.
    pods: Arc<Mutex<BTreeMap<String, String>>>,
    /// Deadline of its calls.
    timeout: Duration,
    wish: Wish,
}

/// Whether kubelet takes a code for the last word, and forgets a volume that was not mounted (`isFinalError`).
pub fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
    )
}

impl Rig {
    /// The kubelet of a node, which has registered the driver.
    pub async fn kubelet(&self, node: &str) -> Kubelet {
        let kubelet = Kubelet {
            cluster: self.cluster.clone(),
            node: node.to_owned(),
            directory: self.kubelet_dir(node),
            pods: Arc::default(),
            timeout: TIMEOUT,
            wish: Wish::default(),
        };
        fs::create_dir_all(kubelet.directory.join("pods")).unwrap();
        let link = || kubelet.link();
        self.cluster.until(&format!("there is a socket for the kubelet of {node}"), link, String::new).await;
        if !self.is_registered(node) {
            kubelet.register(true, "").await;
        }
        let registered = || self.is_registered(node).then_some(());
        let what = format!("the agent on {node} says that it is registered");
        self.cluster.until(&what, registered, || format!("{:?}", self.kubelet_status(node))).await;
        kubelet
    }

    /// What the PluginInstance of a node says of its kubelet.
    pub fn kubelet_status(&self, node: &str) -> Option<moor::api::instance::KubeletStatus> {
        let all = self.cluster.instances.state();
        let instance = all.into_iter().find(|i| i.spec.node_name == node && i.spec.driver_name == DRIVER)?;
        instance.status.as_ref()?.kubelet.clone()
    }

    fn is_registered(&self, node: &str) -> bool {
        self.kubelet_status(node).is_some_and(|status| status.registered)
    }

    /// From now on a process reaches no API server.
    pub fn take_the_api_server_from(&self, actor: &str) {
        // Nobody listens there.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        self.lead(actor, &kube::Client::try_from(config).unwrap());
    }

    /// The end of [`Self::take_the_api_server_from`].
    pub fn give_the_api_server_back_to(&self, actor: &str) {
        self.lead(actor, &self.cluster.admin);
    }
}

impl Kubelet {
    /// The link, or socket, in kubelet's folder of plugins.
    pub fn link(&self) -> Option<PathBuf> {
        let found = fs::read_dir(self.directory.join("plugins_registry")).into_iter().flatten().flatten();
        let is_inline = |path: &Path| path.to_string_lossy().ends_with(&format!("@{INLINE}.sock"));
        let mut all =
            found.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "sock"));
        all.find(|path| is_inline(path) == self.wish.inline.is_some())
    }

    /// The same, with another deadline of its calls. What waits is answered 5 s before it.
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The same, with Pods that use volumes otherwise.
    pub fn wishing(&self, wish: Wish) -> Self {
        Self { wish, ..self.clone() }
    }

    async fn connect(&self) -> Result<Channel, Status> {
        let link = self.link().ok_or_else(|| Status::unavailable("the driver is not registered"))?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", link.display())).unwrap();
        endpoint.connect().await.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// As kubelet does while nobody answers at a socket that it knows: a process of the agent that has just begun.
    async fn until_served(&self) -> Channel {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.connect().await {
                Ok(channel) => return channel,
                Err(status) => assert!(Instant::now() < end, "nobody serves kubelet: {status}"),
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }

    /// The handshake, at the end of which kubelet says whether it takes the driver. Returns what was learnt of it.
    pub async fn register(&self, taken: bool, why: &str) -> (PluginInfo, wire::NodeGetInfoResponse) {
        let channel = self.until_served().await;
        let mut registration = RegistrationClient::new(channel.clone());
        let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER));
        assert_eq!(info.supported_versions, ["1.0.0"]);
        let request = self.request(wire::NodeGetInfoRequest {});
        let node = NodeClient::new(channel).node_get_info(request).await.unwrap().into_inner();
        let said = RegistrationStatus { plugin_registered: taken, error: why.to_owned() };
        registration.notify_registration_status(said).await.unwrap();
        (info, node)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    /// A client over a connection of its own, as for each of kubelet's calls.
    pub async fn node(&self) -> Result<NodeClient<Channel>, Status> {
        Ok(NodeClient::new(self.connect().await?))
    }

    /// Has a Pod with a volume of this key come to the node, unless it is there: with the PersistentVolume and what is bound
    /// to it.
    pub async fn take(&self, pod: &str, key: &str) {
        if self.pods.lock().unwrap().contains_key(pod) {
            return;
        }
        if self.wish.persistent_volume.is_none() && self.wish.inline.is_none() {
            let csi = json!({"driver": DRIVER, "volumeHandle": format!("vol-{key}")});
            self.cluster.bind_once(&self.wish.volume(key), key, &csi, self.wish.is_block).await;
        }
        let made = self.cluster.make_pod(pod, &self.node, &self.wish.in_pod(key)).await;
        self.pods.lock().unwrap().insert(pod.to_owned(), made.metadata.uid.unwrap());
    }

    /// What kubelet has on its disk before it has a volume staged.
    pub fn prepare_staging(&self, key: &str) {
        fs::create_dir_all(self.staging(key)).unwrap();
        let data = json!({"driverName": DRIVER, "volumeHandle": format!("vol-{key}")});
        fs::write(self.volume_data(key), data.to_string()).unwrap();
    }

    /// NodeStageVolume.
    pub async fn stage(&self, key: &str) -> Result<(), Status> {
        self.prepare_staging(key);
        let request = wire::NodeStageVolumeRequest {
            volume_id: format!("vol-{key}"),
            staging_target_path: text(&self.staging(key)),
            volume_capability: Some(self.wish.capability()),
            secrets: self.wish.stage_secrets.clone().into(),
            ..Default::default()
        };
        self.node().await?.node_stage_volume(self.request(request)).await.map(drop).map_err(as_kubelets)
    }

    /// The request of NodePublishVolume.
    pub fn publication(&self, pod: &str, key: &str) -> wire::NodePublishVolumeRequest {
        let uid = self.uid(pod);
        let said = [("pod.name", pod), ("pod.namespace", SPACE), ("pod.uid", uid.as_str())];
        let said = said.map(|(key, value)| (key, value.to_owned())).into_iter();
        let tokens = self.wish.tokens.clone().map(|tokens| ("serviceAccount.tokens", tokens));
        let context = said.chain(tokens).map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value));
        wire::NodePublishVolumeRequest {
            volume_id: self.wish.volume_id(key),
            staging_target_path: if self.wish.inline.is_some() {
                String::new()
            } else {
                text(&self.staging(key))
            },
            target_path: text(&self.target(pod, key)),
            volume_capability: Some(self.wish.capability()),
            volume_context: context.chain(self.wish.context()).collect(),
            readonly: self.wish.read_only,
            ..Default::default()
        }
    }

    /// NodePublishVolume.
    pub async fn publish(&self, pod: &str, key: &str) -> Result<(), Status> {
        self.take(pod, key).await;
        let target = self.target(pod, key);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::create_dir_all(self.pod_dir(pod)).unwrap();
        if !self.wish.is_block {
            let driver = if self.wish.inline.is_some() { INLINE } else { DRIVER };
            let data = json!({"driverName": driver, "volumeHandle": self.wish.volume_id(key)});
            fs::write(self.pods_data(pod, key), data.to_string()).unwrap();
        }
        let answer = self.send(self.publication(pod, key)).await;
        if answer.as_ref().is_err_and(|status| is_final(status.code())) {
            remove(&target);
        }
        answer
    }

    /// NodePublishVolume with any request.
    pub async fn send(&self, request: wire::NodePublishVolumeRequest) -> Result<(), Status> {
        self.node().await?.node_publish_volume(self.request(request)).await.map(drop).map_err(as_kubelets)
    }

    /// NodeUnpublishVolume, after which kubelet removes what it has made.
    pub async fn unpublish(&self, pod: &str, key: &str) -> Result<(), Status> {
        let target = self.target(pod, key);
        let (volume_id, target_path) = (self.wish.volume_id(key), text(&target));
        let request = wire::NodeUnpublishVolumeRequest { volume_id, target_path };
        self.node().await?.node_unpublish_volume(self.request(request)).await.map_err(as_kubelets)?;
        if self.wish.is_block {
            assert!(!target.exists(), "{} is there", target.display());
            return Ok(());
        }
        remove(&target);
        let _ = fs::remove_file(self.pods_data(pod, key));
        remove(target.parent().unwrap());
        Ok(())
    }

    /// NodeUnstageVolume, after which kubelet removes what it has made.
    pub async fn unstage(&self, key: &str) -> Result<(), Status> {
        let staging = self.staging(key);
        let (volume_id, staging_target_path) = (format!("vol-{key}"), text(&staging));
        let request = wire::NodeUnstageVolumeRequest { volume_id, staging_target_path };
        self.node().await?.node_unstage_volume(self.request(request)).await.map_err(as_kubelets)?;
        let _ = fs::remove_file(self.volume_data(key));
        if self.wish.is_block {
            // With all that is in it, whatever it is.
            fs::remove_dir_all(&staging).unwrap();
            return Ok(());
        }
        remove(&staging);
        Ok(())
    }

    /// NodeExpandVolume: the volume of a Pod is to have so many bytes. Returns how many it has.
    pub async fn expand(&self, pod: &str, key: &str, bytes: i64) -> Result<i64, Status> {
        let request = wire::NodeExpandVolumeRequest {
            volume_id: format!("vol-{key}"),
            volume_path: text(&self.target(pod, key)),
            staging_target_path: text(&self.staging(key)),
            capacity_range: Some(wire::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capability: Some(self.wish.capability()),
            ..Default::default()
        };
        let answer = self.node().await?.node_expand_volume(self.request(request)).await;
        answer.map(|answer| answer.into_inner().capacity_bytes).map_err(as_kubelets)
    }

    /// What the driver can do on the node.
    pub async fn capabilities(&self) -> Vec<Can> {
        let request = self.request(wire::NodeGetCapabilitiesRequest {});
        let answer = self.node().await.unwrap().node_get_capabilities(request).await.unwrap().into_inner();
        let kinds = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
        kinds.map(|wire::node_service_capability::Type::Rpc(rpc)| rpc.r#type()).collect()
    }

    /// NodeGetVolumeStats.
    pub async fn stats(&self, key: &str, path: &Path) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
        let (volume_id, volume_path) = (self.wish.volume_id(key), text(path));
        let request = wire::NodeGetVolumeStatsRequest { volume_id, volume_path, ..Default::default() };
        let answer = self.node().await?.node_get_volume_stats(self.request(request)).await;
        answer.map(tonic::Response::into_inner)
    }

    /// A Pod starts: kubelet calls until the volume is mounted.
    pub async fn mount(&self, pod: &str, key: &str) -> PathBuf {
        repeat(&format!("Pod {pod} has {key}"), || async {
            if self.wish.inline.is_none() {
                self.stage(key).await?;
            }
            self.publish(pod, key).await
        })
        .await;
        self.target(pod, key)
    }

    /// A Pod ends: kubelet calls until the volume is not mounted, and removes the Pod's folder.
    pub async fn unmount(&self, pod: &str, key: &str) {
        repeat(&format!("Pod {pod} has given {key} up"), || self.unpublish(pod, key)).await;
        self.forget(pod);
    }

    /// Nobody on the node has the volume any more: kubelet calls until it is not staged.
    pub async fn give_up(&self, key: &str) {
        repeat(&format!("{key} is not staged"), || self.unstage(key)).await;
    }
}

/// As kubelet does: after an error that is none of the last word it calls again.
async fn repeat<F: Future<Output = Result<(), Status>>>(what: &str, mut call: impl FnMut() -> F) {
    let end = Instant::now() + PATIENCE;
    loop {
        let Err(status) = call().await else { return };
        assert!(!is_final(status.code()), "{what}: {status}");
        assert!(Instant::now() < end, "never happened: {what}; the last answer is {status}");
        tokio::time::sleep(BACKOFF).await;
    }
}

/// Of a connection that breaks kubelet's own client says that the driver is unavailable; this one says this and that.
fn as_kubelets(status: Status) -> Status {
    if status.source().is_some() { Status::unavailable(status.message()) } else { status }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
