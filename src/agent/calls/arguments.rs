//! The arguments of CSI calls, made from objects and records. Pure, so that a repeated call is an identical one.

use std::collections::BTreeMap;

use crate::agent::host::paths::HostPath;
use crate::api::claim::VolumeClaim;
use crate::api::edit::GrantedUse;
use crate::api::names::create_name;
use crate::api::quantity::{self, QuantityError};
use crate::api::volume::CreatedWith;
use crate::api::{AccessMode, Attachment, AttachmentMode, Volume};
use crate::attachment::record::Record;
use crate::csi::capability::{SingleNode, for_group, to_proto};
use crate::csi::proto::csi::v1 as wire;
use crate::csi::{FollowUp, Secrets};
use crate::volume::calls::{VolumeCall, id_to_delete};
use crate::volume::handle_of;

/// The arguments of a call cannot be made from what a Volume says.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    /// Its size cannot be read.
    #[error("spec.capacity or spec.capacityLimit: {0}")]
    Size(#[from] QuantityError),
    /// The volume is to be in some places, and the driver knows of no places.
    #[error(
        "spec.topology.required: the driver has no VOLUME_ACCESSIBILITY_CONSTRAINTS, so nothing says where its volumes \
         are; create the Volume without"
    )]
    NoTopology,
    /// The volume is to have mutable parameters, and the driver knows of none.
    #[error(
        "spec.mutableParameters: the driver has no MODIFY_VOLUME; create the Volume without, or with spec.parameters"
    )]
    NoModify,
    /// No volume id is known.
    #[error("the Volume has no handle yet")]
    NoHandle,
}

/// How an Attachment's volume is used, with these flags and for this group.
fn capability(attachment: &Attachment, flags: &[String], group: Option<&str>) -> wire::VolumeCapability {
    let fixed = &attachment.spec.fixed;
    let modes =
        if fixed.single_node_multi_writer { SingleNode::SingleAndMulti } else { SingleNode::WriterOnly };
    let fs_type = fixed.mount_options.fs_type.as_deref();
    let capability = to_proto(attachment.spec.access_mode, fixed.attachment_mode, fs_type, flags, modes);
    match group {
        Some(group) => for_group(capability, group),
        None => capability,
    }
}

/// How it is used in every call but NodePublishVolume.
fn shared_capability(attachment: &Attachment) -> wire::VolumeCapability {
    let fixed = &attachment.spec.fixed;
    capability(attachment, &fixed.mount_options.mount_flags, fixed.volume_mount_group.as_deref())
}

/// ControllerPublishVolume for an Attachment.
#[must_use]
pub fn controller_publish(attachment: &Attachment, secrets: Secrets) -> wire::ControllerPublishVolumeRequest {
    let fixed = &attachment.spec.fixed;
    wire::ControllerPublishVolumeRequest {
        volume_id: attachment.spec.volume_handle.clone(),
        node_id: fixed.node_id.clone(),
        volume_capability: Some(shared_capability(attachment)),
        readonly: fixed.read_only,
        secrets,
        volume_context: fixed.volume_context.clone(),
    }
}

/// ControllerUnpublishVolume for an Attachment.
#[must_use]
pub fn controller_unpublish(
    attachment: &Attachment,
    secrets: Secrets,
) -> FollowUp<wire::ControllerUnpublishVolumeRequest> {
    let request = wire::ControllerUnpublishVolumeRequest {
        volume_id: attachment.spec.volume_handle.clone(),
        node_id: attachment.spec.fixed.node_id.clone(),
        secrets,
    };
    FollowUp { request, earlier_flags: attachment.spec.fixed.mount_options.mount_flags.clone() }
}

/// NodeStageVolume for an Attachment at `staging`.
#[must_use]
pub fn node_stage(
    attachment: &Attachment,
    staging: &HostPath,
    secrets: Secrets,
) -> wire::NodeStageVolumeRequest {
    let fixed = &attachment.spec.fixed;
    wire::NodeStageVolumeRequest {
        volume_id: attachment.spec.volume_handle.clone(),
        publish_context: publish_context(attachment),
        staging_target_path: staging.seen_by_plugin(),
        volume_capability: Some(shared_capability(attachment)),
        secrets,
        volume_context: fixed.volume_context.clone(),
    }
}

/// The mount flags of a claim's own mount: the claim's count here and nowhere else (trap B22).
#[must_use]
pub fn publish_flags<'a>(attachment: &'a Attachment, claim: &'a VolumeClaim) -> &'a [String] {
    let own = claim.spec.mount_options.as_ref().map(|o| o.mount_flags.as_slice());
    own.unwrap_or(&attachment.spec.fixed.mount_options.mount_flags)
}

/// NodePublishVolume for a claim. The driver may speak of the mount that it makes another one of, and so of the flags with
/// which the volume was staged.
#[must_use]
pub fn node_publish(
    attachment: &Attachment,
    claim: &VolumeClaim,
    staging: &HostPath,
    target: &HostPath,
    secrets: Secrets,
) -> FollowUp<wire::NodePublishVolumeRequest> {
    let fixed = &attachment.spec.fixed;
    // A Pod's own, also beside Pods of other groups.
    let group = match &claim.spec.pod {
        Some(pod) => pod.volume_mount_group.as_deref(),
        None => fixed.volume_mount_group.as_deref(),
    };
    let request = wire::NodePublishVolumeRequest {
        volume_id: attachment.spec.volume_handle.clone(),
        publish_context: publish_context(attachment),
        // Empty if the driver does not stage.
        staging_target_path: if fixed.stage { staging.seen_by_plugin() } else { String::new() },
        target_path: target.seen_by_plugin(),
        volume_capability: Some(capability(attachment, publish_flags(attachment, claim), group)),
        readonly: claim.spec.read_only,
        secrets,
        volume_context: fixed.volume_context.clone(),
    };
    FollowUp { request, earlier_flags: fixed.mount_options.mount_flags.clone() }
}

/// NodeExpandVolume for a volume that is published at `target`. The driver hears of the volume's use what it heard when it
/// was staged.
#[must_use]
pub fn node_expand(
    attachment: &Attachment,
    staging: &HostPath,
    target: &HostPath,
    range: Option<wire::CapacityRange>,
    secrets: Secrets,
) -> wire::NodeExpandVolumeRequest {
    wire::NodeExpandVolumeRequest {
        volume_id: attachment.spec.volume_handle.clone(),
        volume_path: target.seen_by_plugin(),
        capacity_range: range,
        // Empty if the driver does not stage.
        staging_target_path: if attachment.spec.fixed.stage {
            staging.seen_by_plugin()
        } else {
            String::new()
        },
        volume_capability: Some(shared_capability(attachment)),
        secrets,
    }
}

/// The mount flags of the calls that an undo undoes, which the driver may repeat in its error. They are in no record, so
/// they are known only while the objects are there.
#[must_use]
pub fn flags_to_hide(attachment: Option<&Attachment>, claim: Option<&VolumeClaim>) -> Vec<String> {
    let staged = attachment.map(|attachment| &attachment.spec.fixed.mount_options.mount_flags);
    let published = claim.and_then(|claim| Some(&claim.spec.mount_options.as_ref()?.mount_flags));
    staged.into_iter().chain(published).flatten().cloned().collect()
}

/// NodeUnpublishVolume from a record.
#[must_use]
pub fn node_unpublish(
    record: &Record,
    target: &HostPath,
    earlier_flags: Vec<String>,
) -> FollowUp<wire::NodeUnpublishVolumeRequest> {
    let (volume_id, target_path) = (record.volume_handle.clone(), target.seen_by_plugin());
    FollowUp { request: wire::NodeUnpublishVolumeRequest { volume_id, target_path }, earlier_flags }
}

/// NodeUnstageVolume from a record.
#[must_use]
pub fn node_unstage(record: &Record, earlier_flags: Vec<String>) -> FollowUp<wire::NodeUnstageVolumeRequest> {
    let staging_target_path = HostPath::recorded(&record.staging_path).seen_by_plugin();
    let volume_id = record.volume_handle.clone();
    FollowUp { request: wire::NodeUnstageVolumeRequest { volume_id, staging_target_path }, earlier_flags }
}

/// What a driver offers by which CreateVolume is made.
#[derive(Clone, Copy, Debug)]
pub struct Offers {
    /// Which single-node modes its Controller service takes.
    pub modes: SingleNode,
    /// VOLUME_ACCESSIBILITY_CONSTRAINTS.
    pub topology: bool,
    /// MODIFY_VOLUME.
    pub modifies: bool,
}

/// CreateVolume for a Volume.
pub fn create_volume(
    volume: &Volume,
    secrets: Secrets,
    driver: Offers,
) -> Result<wire::CreateVolumeRequest, ArgumentError> {
    let Offers { modes, topology, modifies } = driver;
    let (spec, with) = (&volume.spec, CreatedWith::of(volume)?);
    let range = wire::CapacityRange {
        required_bytes: with.capacity_bytes.unwrap_or_default(),
        limit_bytes: spec.capacity_limit.as_ref().map_or(Ok(0), quantity::bytes)?,
    };
    if !topology && spec.topology.as_ref().is_some_and(|request| !request.required.is_empty()) {
        return Err(ArgumentError::NoTopology);
    }
    if !modifies && !with.mutable_parameters.is_empty() {
        return Err(ArgumentError::NoModify);
    }
    let segments = |terms: &[crate::api::volume::Segments]| {
        terms.iter().map(|term| wire::Topology { segments: term.segments.clone() }).collect()
    };
    let requirement = |required, preferred| wire::TopologyRequirement {
        requisite: segments(required),
        preferred: segments(preferred),
    };
    let place = volume.place().map(std::slice::from_ref).map(|place| requirement(place, place));
    let asked = spec.topology.as_ref().map(|request| requirement(&request.required, &request.preferred));
    let accessibility_requirements = place.or(asked).filter(|_| topology);
    let made = spec.assignment.as_ref().and_then(|assignment| assignment.made.clone());
    let made = made.map_or_else(|| GrantedUse::of(volume), |made| *made);
    Ok(wire::CreateVolumeRequest {
        name: create_name(volume.spec.create_name.as_deref(), volume.metadata.uid.as_deref()),
        // Without a size no range, rather than one of zeroes: that is the driver's own choice.
        capacity_range: (range.required_bytes > 0 || range.limit_bytes > 0).then_some(range),
        volume_capabilities: uses(volume, &made, modes),
        parameters: spec.parameters.clone(),
        mutable_parameters: with.mutable_parameters,
        secrets,
        accessibility_requirements,
        volume_content_source: content_source(volume),
    })
}

/// What a Volume is to be made from.
#[must_use]
pub fn content_source(volume: &Volume) -> Option<wire::VolumeContentSource> {
    use wire::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let of_volume = |volume_id: &String| Type::Volume(VolumeSource { volume_id: volume_id.clone() });
    let of_snapshot = |id: &String| Type::Snapshot(SnapshotSource { snapshot_id: id.clone() });
    let copy = volume.spec.persistent_volume.as_ref().and_then(|provision| provision.copy_of.as_ref());
    let assigned = volume.spec.assignment.as_ref().and_then(|assignment| assignment.source.as_ref());
    let source = copy.map(|copy| of_volume(&copy.volume_handle)).or_else(|| {
        let source = assigned?;
        source
            .volume_handle
            .as_ref()
            .map(of_volume)
            .or_else(|| source.snapshot_handle.as_ref().map(of_snapshot))
    });
    Some(wire::VolumeContentSource { r#type: Some(source?) })
}

/// ControllerExpandVolume for a Volume, to this size in bytes. A driver may need to know how the volume is used; of several
/// uses it is told the first.
pub fn controller_expand(
    volume: &Volume,
    required_bytes: i64,
    secrets: Secrets,
    modes: SingleNode,
) -> Result<wire::ControllerExpandVolumeRequest, ArgumentError> {
    let limit_bytes = volume.spec.capacity_limit.as_ref().map_or(Ok(0), quantity::bytes)?;
    Ok(wire::ControllerExpandVolumeRequest {
        volume_id: handle_of(volume).ok_or(ArgumentError::NoHandle)?.to_owned(),
        capacity_range: Some(wire::CapacityRange { required_bytes, limit_bytes }),
        secrets,
        volume_capability: uses(volume, &GrantedUse::of(volume), modes).into_iter().next(),
    })
}

/// ControllerModifyVolume for a Volume, with these parameters.
pub fn controller_modify(
    volume: &Volume,
    mutable_parameters: BTreeMap<String, String>,
    secrets: Secrets,
) -> Result<wire::ControllerModifyVolumeRequest, ArgumentError> {
    let volume_id = handle_of(volume).ok_or(ArgumentError::NoHandle)?.to_owned();
    Ok(wire::ControllerModifyVolumeRequest { volume_id, secrets, mutable_parameters })
}

/// ValidateVolumeCapabilities for a Volume that is registered, or whose use was edited, for what is `asked` of it.
pub fn validate(
    volume: &Volume,
    asked: &GrantedUse,
    secrets: Secrets,
    modes: SingleNode,
) -> Result<wire::ValidateVolumeCapabilitiesRequest, ArgumentError> {
    let made = volume.status.as_ref().filter(|_| volume.spec.volume_handle.is_none());
    let context = made.map_or(&volume.spec.volume_context, |status| &status.volume_context);
    Ok(wire::ValidateVolumeCapabilitiesRequest {
        volume_id: handle_of(volume).ok_or(ArgumentError::NoHandle)?.to_owned(),
        volume_context: context.clone(),
        volume_capabilities: uses(volume, asked, modes),
        secrets,
        ..wire::ValidateVolumeCapabilitiesRequest::default()
    })
}

/// DeleteVolume for a Volume: one of the two calls that are a DeleteVolume.
pub fn delete_volume(
    call: VolumeCall,
    volume: &Volume,
    secrets: Secrets,
) -> Result<FollowUp<wire::DeleteVolumeRequest>, ArgumentError> {
    let volume_id = id_to_delete(call, volume).ok_or(ArgumentError::NoHandle)?.to_owned();
    let request = wire::DeleteVolumeRequest { volume_id, secrets };
    let mut earlier_flags = GrantedUse::asked(&volume.spec).mount_flags;
    earlier_flags.extend_from_slice(volume.mount_flags());
    Ok(FollowUp { request, earlier_flags })
}

fn uses(volume: &Volume, asked: &GrantedUse, modes: SingleNode) -> Vec<wire::VolumeCapability> {
    let fs_type = volume.spec.mount_options.as_ref().and_then(|options| options.fs_type.as_deref());
    let of = |access: AccessMode, attachment: AttachmentMode| {
        to_proto(access, attachment, fs_type, &asked.mount_flags, modes)
    };
    asked.capabilities.iter().map(|u| of(u.access_mode, u.attachment_mode)).collect()
}

fn publish_context(attachment: &Attachment) -> BTreeMap<String, String> {
    attachment.status.as_ref().map(|s| s.publish_context.clone()).unwrap_or_default()
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
