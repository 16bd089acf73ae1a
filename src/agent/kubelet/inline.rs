//! Volumes that Pods name themselves: `spec.volumes[].csi` with the driver moor.dev, and the name of a Volume of the Pod's
//! namespace. A claim is made for the Pod as for a PersistentVolume; kubelet has an id of its own for the volume, which says
//! nothing, stages nothing and expands nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Api, ResourceExt as _};
use tokio::time::Instant;
use tonic::{Request, Response, Status, async_trait};

use super::answer::{FinalCode, Unanswered};
use super::driver::{Driver, ForPod, OF_KUBELET, Wish, WishedVolume};
use super::facts::Facts;
use super::mounted::volume_path;
use super::publish::{answer_by, not_reached};
use super::service::timeout;
use super::target::Target;
use super::unpublish::is_mounted;
use crate::agent::context::Agent;
use crate::agent::records::store::Stored;
use crate::api::claim::{ClaimMountOptions, PodUse, VolumeClaimSpec};
use crate::api::names::{INLINE, INLINE_VOLUME};
use crate::api::ordinal::{NamingPod, volume_meant};
use crate::api::{AccessMode, AttachmentMode, Volume};
use crate::csi::capability::NodeCapability;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::identity_server::Identity;
use crate::csi::proto::csi::v1::node_server::Node;
use crate::csi::proto::csi::v1::node_service_capability::{Rpc, Type};
use crate::csi::proto::csi::v1::volume_capability::AccessType;
use crate::csi::sizes;
use crate::k8s::read;

/// What kubelet is told of a node.
pub(super) fn node_info(agent: &Agent) -> wire::NodeGetInfoResponse {
    wire::NodeGetInfoResponse { node_id: agent.node_name.clone(), ..Default::default() }
}

/// The driver moor.dev.
pub(super) struct Inline(Driver);

/// What is on the node for a claim.
#[derive(Default)]
struct Known {
    /// Name of the VolumeHandle; empty of a claim that was never granted.
    handle: String,
    /// The name of its driver, and the volume as that knows it.
    volume: Option<(String, String)>,
}

impl Inline {
    pub fn new(agent: Arc<Agent>, facts: Facts) -> Self {
        Self(Driver { agent, kubelet_name: INLINE.to_owned(), name: INLINE.to_owned(), facts })
    }

    /// The driver of a volume.
    fn of(&self, driver: String) -> Driver {
        Driver { name: driver, ..self.0.clone() }
    }

    async fn publish(&self, request: wire::NodePublishVolumeRequest, by: Instant) -> Result<(), Unanswered> {
        let asks = self.0.for_pod(&request)?;
        let _turn = self.0.turn(&asks.claim_name, by).await?;
        if self.0.is_published(&asks.target, &asks.claim_name).await {
            // Nobody has to be asked then, not even for the Volume; and kubelet brings no tokens for it.
            return Ok(());
        }
        let wish = self.wish(asks, &request).await?;
        self.0.publish_first(wish, request, by).await
    }

    /// Reads the rest of a NodePublishVolume, and the Volume that it names.
    async fn wish(&self, asks: ForPod, request: &wire::NodePublishVolumeRequest) -> Result<Wish, Unanswered> {
        let ForPod { target, claim_name, namespace, name: pod, is_inline } = asks;
        let refuse = |why| self.0.refuse(&claim_name, FinalCode::FailedPrecondition, why);
        if !is_inline {
            let why = format!("{INLINE} is the driver of no PersistentVolume: name that of the volume");
            return Err(refuse(why));
        }
        let said = named(request).map_err(refuse)?;
        let field = format!("{}.csi.volumeAttributes.{INLINE_VOLUME}", place(&target));
        // kubelet does not tell the Pod's labels: those the controller looks at.
        let name = volume_meant(said, NamingPod { name: &pod, index: None })
            .map_err(|why| refuse(format!("{field} {why}")))?;
        let api: Api<Volume> = Api::namespaced(self.0.agent.client.clone(), &namespace);
        let found = read::get_live(&api, &name).await.map_err(|error| not_reached(&error))?;
        let Some(volume) = found else {
            let of = if name == said { String::new() } else { format!(" ({said} of Pod {pod})") };
            let why = format!("there is no Volume {namespace}/{name}, which the Pod names in {field}{of}");
            return Err(refuse(why));
        };
        let mode =
            mode_of(&volume, request).map_err(|why| refuse(format!("{}.csi: {why}", place(&target))))?;
        let pod = PodUse {
            namespace,
            name: pod,
            uid: target.pod_uid.clone(),
            inline_volume: Some(target.volume.clone()),
            ..PodUse::default()
        };
        let spec = VolumeClaimSpec {
            node_name: Some(self.0.agent.node_name.clone()),
            read_only: request.readonly,
            access_mode: mode,
            attachment_mode: AttachmentMode::FileSystem,
            // A Pod's claim says all flags with which it is mounted. Here nobody but the Volume has any.
            mount_options: Some(volume.mount_flags().to_vec())
                .filter(|flags| !flags.is_empty())
                .map(|mount_flags| ClaimMountOptions { mount_flags }),
            pod: Some(pod.into()),
            ..VolumeClaimSpec::default()
        };
        let volume = WishedVolume::Named(name);
        // Drivers take what kubelet says of such a volume for one that they are to make.
        Ok(Wish { target, claim_name, volume, spec, context: BTreeMap::new() })
    }

    async fn unpublish(
        &self,
        request: wire::NodeUnpublishVolumeRequest,
        by: Instant,
    ) -> Result<(), Unanswered> {
        let agent = &self.0.agent;
        let target = self.0.target(&request.volume_id, &request.target_path)?;
        let name = target.claim_name(INLINE, &request.volume_id);
        // A call to publish that waits ends by it. When it has nothing begins any more of which nothing is known.
        agent.asked.release(&name, "");
        drop(self.0.turn(&name, by).await?);
        let Known { handle, volume } = self.known(&target, &name)?;
        if !handle.is_empty() {
            drop(self.0.undo_claim(&target, &name, &handle, by).await?);
        }
        if let Some((driver, volume_id)) = volume {
            let request = wire::NodeUnpublishVolumeRequest { volume_id, ..request };
            self.of(driver).clear_foreign(&request, &target.path, &handle, by).await?;
        } else if is_mounted(&target.path).await? {
            return Err(unknown(&target));
        }
        agent.queues.releases.add(name);
        Ok(())
    }

    /// What the node's records or else the API server's objects say of a claim. An error where a record says that another
    /// claim has the target.
    fn known(&self, target: &Target, claim_name: &str) -> Result<Known, Unanswered> {
        let agent = &self.0.agent;
        if let Some((Stored { record, .. }, _)) = agent.records.of_claim_at(claim_name, &target.path) {
            let volume = Some((record.driver_name, record.volume_handle));
            return Ok(Known { handle: record.handle_name, volume });
        }
        if let Some((_, at)) = agent.records.at(&target.path) {
            let why = format!("{} has the volume of VolumeClaim {}/{}", target.path, at.namespace, at.name);
            return Err(Unanswered::Again(why));
        }
        // Anybody may have a claim of that name in another namespace.
        let is_for = |pod: &PodUse| {
            pod.uid == target.pod_uid && pod.inline_volume.as_deref() == Some(target.volume.as_str())
        };
        let claims = agent.caches.claims.all();
        let claim = claims
            .iter()
            .find(|claim| claim.name_any() == claim_name && claim.spec.pod.as_deref().is_some_and(&is_for));
        let Some(assignment) = claim.and_then(|claim| claim.spec.assignment.as_ref()) else {
            return Ok(Known::default());
        };
        let attachment = agent.caches.attachments.by_uid(&assignment.attachment_uid);
        let volume = attachment.map(|attachment| {
            let spec = &attachment.spec;
            (spec.fixed.driver_name.clone(), spec.volume_handle.clone())
        });
        Ok(Known { handle: assignment.handle_name.clone(), volume })
    }

    async fn stats(
        &self,
        request: wire::NodeGetVolumeStatsRequest,
        by: Instant,
    ) -> Result<wire::NodeGetVolumeStatsResponse, Status> {
        sizes::id("volume_id", &request.volume_id)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let path = volume_path(&request.volume_path)?;
        let Some((stored, _)) = self.0.agent.records.at(&path) else {
            return Err(Status::not_found(format!("no volume is mounted at {path} on this node")));
        };
        let volume_id = stored.record.volume_handle;
        self.of(stored.record.driver_name)
            .stats(wire::NodeGetVolumeStatsRequest { volume_id, ..request }, by)
            .await
    }
}

/// Where the Pod says what it wants.
fn place(target: &Target) -> String {
    format!("spec.volumes[{}]", target.volume)
}

fn unknown(target: &Target) -> Unanswered {
    Unanswered::Again(format!(
        "{} is mounted, and neither a record of this node nor a VolumeClaim says of which volume: unmount it by hand",
        target.path
    ))
}

/// What a Pod names its Volume, and that it says nothing else.
fn named(request: &wire::NodePublishVolumeRequest) -> Result<&str, String> {
    let attributes = request.volume_context.iter().filter(|(key, _)| !key.starts_with(OF_KUBELET));
    let (name, others): (Vec<_>, Vec<_>) = attributes.partition(|(key, _)| *key == INLINE_VOLUME);
    let field = "spec.volumes[].csi.volumeAttributes";
    if !others.is_empty() {
        let keys: Vec<_> = others.into_iter().map(|(key, _)| key.as_str()).collect();
        return Err(format!(
            "{field} takes nothing but {INLINE_VOLUME}, the name of a Volume: remove {}",
            keys.join(", ")
        ));
    }
    if !request.secrets.is_empty() {
        return Err(
            "spec.volumes[].csi.nodePublishSecretRef is not used: the Volume names its Secrets itself \
                    (spec.secrets); remove it"
                .to_owned(),
        );
    }
    let name = name.first().map(|(_, name)| name.as_str()).filter(|name| !name.is_empty());
    name.ok_or_else(|| {
        format!("{field}.{INLINE_VOLUME} is missing: the name of a Volume in the Pod's namespace")
    })
}

/// The mode in which a Pod uses a Volume that it names: the first of the Volume's that is one to read, or to write.
fn mode_of(volume: &Volume, request: &wire::NodePublishVolumeRequest) -> Result<AccessMode, String> {
    let name = volume.name_any();
    let uses = volume.uses();
    let modes = || {
        uses.iter().filter(|one| one.attachment_mode == AttachmentMode::FileSystem).map(|one| one.access_mode)
    };
    if modes().next().is_none() {
        return Err(format!(
            "spec.capabilities of Volume {name} lists no FileSystem, and a Pod gets no device in this way: use \
             spec.persistentVolumeClaim of the Volume, and volumeDevices in the Pod"
        ));
    }
    let wanted =
        match request.volume_capability.as_ref().and_then(|capability| capability.access_type.as_ref()) {
            Some(AccessType::Mount(mount)) => mount.fs_type.as_str(),
            Some(AccessType::Block(_)) | None => "",
        };
    let made = volume.spec.mount_options.as_ref().and_then(|options| options.fs_type.as_deref());
    if let Some(made) = made.filter(|made| !wanted.is_empty() && *made != wanted) {
        return Err(format!(
            "fsType is {wanted}, and Volume {name} is {made} (spec.mountOptions.fsType): say that, or nothing"
        ));
    }
    let found = if request.readonly {
        modes().find(|mode| mode.is_reader_only()).or_else(|| modes().next())
    } else {
        modes().find(|mode| !mode.is_reader_only()).filter(|_| !volume.spec.read_only)
    };
    found.ok_or_else(|| {
        format!("Volume {name} is only read (spec.capabilities or spec.readOnly of the Volume): set readOnly: true")
    })
}

#[async_trait]
impl Identity for Inline {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        let (name, vendor_version) = (INLINE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Ok(Response::new(wire::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(wire::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse { ready: Some(true) }))
    }
}

/// Of what is not here tonic says that it is not implemented.
#[async_trait]
impl Node for Inline {
    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Result<Response<wire::NodePublishVolumeResponse>, Status> {
        let by = answer_by(timeout(&request));
        self.publish(request.into_inner(), by).await?;
        Ok(Response::new(wire::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<wire::NodeUnpublishVolumeResponse>, Status> {
        let by = answer_by(timeout(&request));
        self.unpublish(request.into_inner(), by).await?;
        Ok(Response::new(wire::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<wire::NodeGetVolumeStatsResponse>, Status> {
        let by = answer_by(timeout(&request));
        self.stats(request.into_inner(), by).await.map(Response::new)
    }

    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<wire::NodeGetCapabilitiesResponse>, Status> {
        let r#type = Some(Type::Rpc(Rpc { r#type: NodeCapability::GetVolumeStats.into() }));
        let capabilities = vec![wire::NodeServiceCapability { r#type }];
        Ok(Response::new(wire::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<wire::NodeGetInfoRequest>,
    ) -> Result<Response<wire::NodeGetInfoResponse>, Status> {
        Ok(Response::new(node_info(&self.0.agent)))
    }
}

#[cfg(test)]
#[path = "inline_tests.rs"]
mod tests;
