//! The Controller service: creating and deleting volumes, attaching them to nodes, and questions about them.

use std::collections::BTreeMap;

use super::capability::ControllerCapabilities;
use super::channel::{ANSWER_LIMIT, Plugin};
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::controller_client::ControllerClient;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::secrets::{Context, Secrets};
use super::sizes::{self, SizeError};

/// What CreateVolume is asked for. The same name has to come with the same arguments, always.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreateVolume {
    /// The idempotency key; at most 128 bytes, no control characters.
    pub name: String,
    /// Bytes that are required and the most that is allowed.
    pub capacity_range: Option<wire::CapacityRange>,
    /// Every use that the volume has to allow; at least one.
    pub capabilities: Vec<wire::VolumeCapability>,
    /// For the driver; opaque.
    pub parameters: Context,
    /// Passed and never kept.
    pub secrets: Secrets,
    /// From where it has to be reachable; only with VOLUME_ACCESSIBILITY_CONSTRAINTS.
    pub accessibility: Option<wire::TopologyRequirement>,
}

/// A volume as CreateVolume made it.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatedVolume {
    /// Its handle; not empty.
    pub volume_id: String,
    /// Bytes; nothing if the driver does not know. Less than nothing is the caller's to refuse: the volume is made.
    pub capacity_bytes: Option<i64>,
    /// To be stored and passed unchanged with every later call.
    pub volume_context: Context,
    /// Segments of each place from which it can be reached; empty is everywhere.
    pub topology: Vec<BTreeMap<String, String>>,
}

/// What DeleteVolume is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteVolume {
    /// The handle.
    pub volume_id: String,
    /// Passed and never kept.
    pub secrets: Secrets,
    /// Those with which it was created. They are not sent, and taken out of the driver's words.
    pub mount_flags: Vec<String>,
}

/// What ControllerPublishVolume is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllerPublish {
    /// The handle.
    pub volume_id: String,
    /// As NodeGetInfo gave it; at most 256 bytes.
    pub node_id: String,
    /// The use.
    pub capability: wire::VolumeCapability,
    /// Only with PUBLISH_READONLY, else false.
    pub readonly: bool,
    /// Passed and never kept.
    pub secrets: Secrets,
    /// As CreateVolume gave it, or as registered.
    pub volume_context: Context,
}

/// What ControllerUnpublishVolume is asked for. Unlike CSI's, it never means "from every node".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerUnpublish {
    /// The handle.
    pub volume_id: String,
    /// The node id with which it was published; required here.
    pub node_id: String,
    /// Passed and never kept.
    pub secrets: Secrets,
    /// Those with which it was published. They are not sent, and taken out of the driver's words.
    pub mount_flags: Vec<String>,
}

impl Plugin {
    pub(super) fn controller(&self) -> ControllerClient<tonic::transport::Channel> {
        ControllerClient::new(self.channel()).max_decoding_message_size(ANSWER_LIMIT)
    }

    /// ControllerGetCapabilities. Unknown ones are left out.
    pub async fn controller_get_capabilities(&self) -> Result<ControllerCapabilities, CallError> {
        let answer = self
            .call(
                Rpc::ControllerGetCapabilities,
                "",
                &Scrub::nothing(),
                wire::ControllerGetCapabilitiesRequest {},
                |request| async move { self.controller().controller_get_capabilities(request).await },
            )
            .await?;
        Ok(ControllerCapabilities::from_wire(&answer.capabilities))
    }

    /// CreateVolume (needs CREATE_DELETE_VOLUME).
    ///
    /// Fails with `Origin::Reply`, outcome unknown, if the answer names no volume.
    pub async fn create_volume(&self, args: CreateVolume) -> Result<CreatedVolume, CallError> {
        const RPC: Rpc = Rpc::CreateVolume;
        args.check().map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of(args.secrets.exposed(), &args.capabilities);
        let message = wire::CreateVolumeRequest {
            name: args.name.clone(),
            capacity_range: args.capacity_range,
            volume_capabilities: args.capabilities,
            parameters: args.parameters.into_map(),
            secrets: args.secrets.into_field(),
            accessibility_requirements: args.accessibility,
            ..wire::CreateVolumeRequest::default()
        };
        let answer = self
            .call(RPC, &args.name, &scrub, message, |request| async move {
                self.controller().create_volume(request).await
            })
            .await?;
        created(answer).map_err(|what| CallError::reply(RPC, what))
    }

    /// DeleteVolume (needs CREATE_DELETE_VOLUME). A volume that the driver does not know is success.
    pub async fn delete_volume(&self, args: DeleteVolume) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::DeleteVolume;
        sizes::id("volume_id", &args.volume_id)
            .and_then(|()| sizes::secrets(&args.secrets))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of_flags(args.secrets.exposed(), &args.mount_flags);
        let message = wire::DeleteVolumeRequest {
            volume_id: args.volume_id.clone(),
            secrets: args.secrets.into_field(),
        };
        self.call(RPC, &args.volume_id, &scrub, message, |request| async move {
            self.controller().delete_volume(request).await
        })
        .await?;
        Ok(())
    }

    /// ControllerPublishVolume (needs PUBLISH_UNPUBLISH_VOLUME). Returns the publish context for stage and publish.
    pub async fn controller_publish_volume(&self, args: ControllerPublish) -> Result<Context, CallError> {
        const RPC: Rpc = Rpc::ControllerPublishVolume;
        args.check().map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of(args.secrets.exposed(), [&args.capability]);
        let message = wire::ControllerPublishVolumeRequest {
            volume_id: args.volume_id.clone(),
            node_id: args.node_id,
            volume_capability: Some(args.capability),
            readonly: args.readonly,
            secrets: args.secrets.into_field(),
            volume_context: args.volume_context.into_map(),
        };
        let answer = self
            .call(RPC, &args.volume_id, &scrub, message, |request| async move {
                self.controller().controller_publish_volume(request).await
            })
            .await?;
        sizes::tell_of_answer(RPC, sizes::map("publish_context", &answer.publish_context));
        Ok(answer.publish_context.into())
    }

    /// ControllerUnpublishVolume (needs PUBLISH_UNPUBLISH_VOLUME). A volume that is not published there is success.
    pub async fn controller_unpublish_volume(&self, args: ControllerUnpublish) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::ControllerUnpublishVolume;
        sizes::id("volume_id", &args.volume_id)
            .and_then(|()| sizes::node_id(&args.node_id))
            .and_then(|()| sizes::secrets(&args.secrets))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of_flags(args.secrets.exposed(), &args.mount_flags);
        let message = wire::ControllerUnpublishVolumeRequest {
            volume_id: args.volume_id.clone(),
            node_id: args.node_id,
            secrets: args.secrets.into_field(),
        };
        self.call(RPC, &args.volume_id, &scrub, message, |request| async move {
            self.controller().controller_unpublish_volume(request).await
        })
        .await?;
        Ok(())
    }
}

impl CreateVolume {
    fn check(&self) -> Result<(), SizeError> {
        sizes::name("name", &self.name)?;
        sizes::capabilities(&self.capabilities)?;
        sizes::map("parameters", &self.parameters)?;
        sizes::secrets(&self.secrets)
    }
}

impl ControllerPublish {
    fn check(&self) -> Result<(), SizeError> {
        sizes::id("volume_id", &self.volume_id)?;
        sizes::node_id(&self.node_id)?;
        sizes::capability(&self.capability)?;
        sizes::secrets(&self.secrets)
    }
}

fn created(answer: wire::CreateVolumeResponse) -> Result<CreatedVolume, String> {
    let volume = answer.volume.ok_or("volume is absent")?;
    sizes::id("volume_id", &volume.volume_id).map_err(|error| error.to_string())?;
    sizes::tell_of_answer(Rpc::CreateVolume, sizes::text("volume_id", &volume.volume_id));
    sizes::tell_of_answer(Rpc::CreateVolume, sizes::map("volume_context", &volume.volume_context));
    Ok(CreatedVolume {
        volume_id: volume.volume_id,
        capacity_bytes: Some(volume.capacity_bytes).filter(|bytes| *bytes != 0),
        volume_context: volume.volume_context.into(),
        topology: volume.accessible_topology.into_iter().map(|topology| topology.segments).collect(),
    })
}
