//! One driver as kubelet knows it on this node: its name there, and what its Node service answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::{FinalCode, NoClaim, Unanswered};
use super::facts::Facts;
use super::target::Target;
use crate::agent::context::Agent;
use crate::agent::drivers::fingerprint::Fingerprint;
use crate::agent::records::store::Stored;
use crate::api::capability::{AccessMode, AttachmentMode};
use crate::api::claim::{ClaimMountOptions, PodUse, VolumeClaimSpec};
use crate::api::lock::{self, DriverVolume};
use crate::api::names::{INLINE, INLINE_VOLUME};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::volume_capability::{AccessType, access_mode::Mode};
use crate::csi::{Service, TOKENS, sizes};

/// What kubelet puts before everything that it says of the Pod, in the volume's context.
pub(super) const OF_KUBELET: &str = "csi.storage.k8s.io/";

/// A driver under the name by which kubelet asks for it.
#[derive(Clone)]
pub(crate) struct Driver {
    pub agent: Arc<Agent>,
    /// The name in PersistentVolumes, StorageClasses and the CSIDriver object.
    pub kubelet_name: String,
    /// The name that the driver gives itself.
    pub name: String,
    /// What is known of the name at kubelet.
    pub facts: Facts,
}

/// The Volume that a Pod's claim is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WishedVolume {
    /// The one that has the storage of a PersistentVolume, by the name of its VolumeHandle.
    OfHandle(String),
    /// The one of this name in the Pod's namespace.
    Named(String),
}

/// What kubelet asks of the API server's objects with a NodePublishVolume.
#[derive(Clone, PartialEq)]
pub(crate) struct Wish {
    pub target: Target,
    pub claim_name: String,
    pub volume: WishedVolume,
    /// Without the name of the Volume.
    pub spec: VolumeClaimSpec,
    /// What goes to the driver beside the volume's own context.
    pub context: BTreeMap<String, String>,
}

/// The Pod for which kubelet makes a call, and where it wants the volume.
pub(super) struct ForPod {
    pub target: Target,
    pub claim_name: String,
    pub namespace: String,
    pub name: String,
    /// Whether the Pod describes the volume itself.
    pub is_inline: bool,
}

impl Driver {
    /// What the driver's process on this node says of itself.
    pub fn fingerprint(&self) -> Result<Arc<Fingerprint>, Unanswered> {
        let serving = self.agent.process_of(&self.name, Service::Node);
        serving.map(|serving| serving.fingerprint).ok_or_else(|| {
            let (driver, node) = (&self.name, &self.agent.node_name);
            Unanswered::Again(format!("no process of driver {driver} answers on node {node}"))
        })
    }

    /// Name of the VolumeHandle of a volume.
    pub fn handle_name(&self, volume_id: &str) -> String {
        lock::handle_name(DriverVolume { driver: &self.name, handle: volume_id })
    }

    /// Reads what names a claim. Without it there can be none.
    pub fn target(&self, volume_id: &str, path: &str) -> Result<Target, Unanswered> {
        let refuse = |why| Unanswered::last_word(NoClaim::unnamed(), FinalCode::InvalidArgument, why);
        let sized = sizes::id("volume_id", volume_id).and_then(|()| sizes::path("target_path", path));
        sized.map_err(|error| refuse(error.to_string()))?;
        let kubelet = self.agent.paths.kubelet();
        Target::parse(kubelet.as_path(), path).map_err(|error| refuse(error.to_string()))
    }

    /// Refuses a call: for good only where no earlier call has made a claim.
    pub fn refuse(&self, claim_name: &str, code: FinalCode, why: String) -> Unanswered {
        let is_it = |name: Option<&str>| name == Some(claim_name);
        let claims = self.agent.caches.claims.all();
        let is_recorded =
            |stored: &Stored| stored.record.targets.values().any(|target| is_it(Some(&target.name)));
        let known = claims.iter().any(|claim| is_it(claim.metadata.name.as_deref()))
            || self.agent.records.any_with_traces(is_recorded);
        match NoClaim::unless(known) {
            Some(none) => Unanswered::last_word(none, code, why),
            None => Unanswered::Again(why),
        }
    }

    /// Reads of a NodePublishVolume for which Pod it is, and where.
    pub(super) fn for_pod(&self, request: &wire::NodePublishVolumeRequest) -> Result<ForPod, Unanswered> {
        let target = self.target(&request.volume_id, &request.target_path)?;
        let claim_name = target.claim_name(&self.kubelet_name, &request.volume_id);
        let refuse = |code, why| self.refuse(&claim_name, code, why);
        let sized = sizes::optional_path("staging_target_path", &request.staging_target_path)
            .and_then(|()| request.volume_capability.iter().try_for_each(sizes::capability))
            .and_then(|()| sizes::map("secrets", &request.secrets));
        sized.map_err(|error| refuse(FinalCode::InvalidArgument, error.to_string()))?;
        let said = |key: &str| request.volume_context.get(&format!("{OF_KUBELET}{key}")).cloned();
        let (Some(namespace), Some(name), Some(uid)) =
            (said("pod.namespace"), said("pod.name"), said("pod.uid"))
        else {
            let why = format!(
                "kubelet does not say for which Pod: the CSIDriver object {} needs spec.podInfoOnMount true",
                self.kubelet_name
            );
            return Err(refuse(FinalCode::FailedPrecondition, why));
        };
        if uid != target.pod_uid {
            let why =
                format!("target_path is of Pod {}, and the volume_context names Pod {uid}", target.pod_uid);
            return Err(refuse(FinalCode::InvalidArgument, why));
        }
        let is_inline = said("ephemeral").is_some_and(|is| is == "true");
        Ok(ForPod { target, claim_name, namespace, name, is_inline })
    }

    /// Reads a NodePublishVolume. Nothing is asked of anybody.
    pub fn wish(&self, request: &wire::NodePublishVolumeRequest) -> Result<Wish, Unanswered> {
        let ForPod { target, claim_name, namespace, name, is_inline } = self.for_pod(request)?;
        let refuse = |code, why| self.refuse(&claim_name, code, why);
        if is_inline {
            let why = format!(
                "volumes that a Pod describes itself (spec.volumes[].csi) are not served: use a PersistentVolumeClaim, an \
                 ephemeral.volumeClaimTemplate in the Pod, or, for a Volume that is there, driver {INLINE} with its name in \
                 volumeAttributes.{INLINE_VOLUME}"
            );
            return Err(refuse(FinalCode::FailedPrecondition, why));
        }
        let (mode, attachment_mode, group, flags) = use_of(request.volume_capability.as_ref())
            .map_err(|why| refuse(FinalCode::InvalidArgument, why))?;
        let pod = PodUse {
            namespace,
            name,
            uid: target.pod_uid.clone(),
            persistent_volume: Some(target.volume.clone()),
            volume_mount_group: group,
            inline_volume: None,
        };
        let is_file_system = attachment_mode == AttachmentMode::FileSystem;
        let spec = VolumeClaimSpec {
            node_name: Some(self.agent.node_name.clone()),
            read_only: request.readonly,
            access_mode: mode,
            attachment_mode,
            mount_options: is_file_system.then_some(ClaimMountOptions { mount_flags: flags }),
            pod: Some(pod.into()),
            ..VolumeClaimSpec::default()
        };
        let plugin = self.agent.caches.plugin_of(&self.name);
        let passes_pod_info = plugin.is_some_and(|plugin| plugin.spec.kubernetes.pass_pod_info);
        let is_passed = |key: &str| passes_pod_info || key == TOKENS;
        let of_kubelet = request.volume_context.iter().filter(|(key, _)| key.starts_with(OF_KUBELET));
        let context = of_kubelet.filter(|(key, _)| is_passed(key));
        let context = context.map(|(key, value)| (key.clone(), value.clone())).collect();
        let volume = WishedVolume::OfHandle(self.handle_name(&request.volume_id));
        Ok(Wish { target, claim_name, volume, spec, context })
    }
}

type Use = (AccessMode, AttachmentMode, Option<String>, Vec<String>);

/// How kubelet wants to use a volume: in which mode, as what, for which group and with which flags.
fn use_of(capability: Option<&wire::VolumeCapability>) -> Result<Use, String> {
    let capability = capability.ok_or("volume_capability is missing")?;
    let mode = capability.access_mode.as_ref().map(wire::volume_capability::AccessMode::mode);
    let mode = match mode {
        // The socket says SINGLE_NODE_MULTI_WRITER, so that kubelet tells ReadWriteOncePod from ReadWriteOnce.
        Some(Mode::SingleNodeMultiWriter | Mode::SingleNodeWriter) => AccessMode::SingleNodeWriter,
        Some(Mode::SingleNodeSingleWriter) => AccessMode::SingleNodeSingleWriter,
        Some(Mode::SingleNodeReaderOnly) => AccessMode::SingleNodeReader,
        Some(Mode::MultiNodeReaderOnly) => AccessMode::MultiNodeReader,
        Some(Mode::MultiNodeSingleWriter) => AccessMode::MultiNodeSingleWriter,
        Some(Mode::MultiNodeMultiWriter) => AccessMode::MultiNodeMultiWriter,
        Some(Mode::Unknown) | None => return Err("volume_capability names no access_mode".into()),
    };
    match &capability.access_type {
        Some(AccessType::Block(_)) => Ok((mode, AttachmentMode::BlockDevice, None, Vec::new())),
        Some(AccessType::Mount(mount)) => {
            let group = Some(mount.volume_mount_group.clone()).filter(|group| !group.is_empty());
            Ok((mode, AttachmentMode::FileSystem, group, mount.mount_flags.clone()))
        }
        None => Err("volume_capability names neither mount nor block".into()),
    }
}
