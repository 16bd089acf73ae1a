//! The Node service: staging and publishing a volume on the node where the plugin runs.

use std::collections::BTreeMap;

use super::capability::NodeCapabilities;
use super::channel::{ANSWER_LIMIT, Plugin};
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::node_client::NodeClient;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::secrets::{Context, Secrets};
use super::sizes::{self, SizeError};

/// What a plugin says about its node (CSI NodeGetInfo).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The node's name for the controller service; not empty, at most 256 bytes.
    pub node_id: String,
    /// How many volumes can be published on it; nothing if the driver leaves that to us.
    pub max_volumes: Option<i64>,
    /// Segments of the place where it is; nothing if the driver has no topology.
    pub topology: Option<BTreeMap<String, String>>,
}

/// What NodeStageVolume is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeStage {
    /// The handle.
    pub volume_id: String,
    /// As ControllerPublishVolume gave it.
    pub publish_context: Context,
    /// A directory that exists, as the plugin sees it.
    pub staging_target_path: String,
    /// The use.
    pub capability: wire::VolumeCapability,
    /// Passed and never kept.
    pub secrets: Secrets,
    /// As CreateVolume gave it, or as registered.
    pub volume_context: Context,
}

/// What NodeUnstageVolume is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUnstage {
    /// The handle.
    pub volume_id: String,
    /// The path of the NodeStageVolume that it undoes.
    pub staging_target_path: String,
    /// Those with which it was staged. They are not sent, and taken out of the driver's words.
    pub mount_flags: Vec<String>,
}

/// What NodePublishVolume is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePublish {
    /// The handle.
    pub volume_id: String,
    /// As ControllerPublishVolume gave it.
    pub publish_context: Context,
    /// The path that was staged; nothing if the driver does not stage.
    pub staging_target_path: Option<String>,
    /// Where the volume is to appear, as the plugin sees it. Only its parent exists.
    pub target_path: String,
    /// The use.
    pub capability: wire::VolumeCapability,
    /// Published for reading only.
    pub readonly: bool,
    /// Passed and never kept.
    pub secrets: Secrets,
    /// As CreateVolume gave it, or as registered.
    pub volume_context: Context,
}

/// What NodeUnpublishVolume is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUnpublish {
    /// The handle.
    pub volume_id: String,
    /// The path of the NodePublishVolume that it undoes.
    pub target_path: String,
    /// Those with which it was staged and published. They are not sent, and taken out of the driver's words.
    pub mount_flags: Vec<String>,
}

impl Plugin {
    fn node(&self) -> NodeClient<tonic::transport::Channel> {
        NodeClient::new(self.channel()).max_decoding_message_size(ANSWER_LIMIT)
    }

    /// NodeGetCapabilities. Unknown ones are left out.
    pub async fn node_get_capabilities(&self) -> Result<NodeCapabilities, CallError> {
        let answer = self
            .call(
                Rpc::NodeGetCapabilities,
                "",
                &Scrub::nothing(),
                wire::NodeGetCapabilitiesRequest {},
                |request| async move { self.node().node_get_capabilities(request).await },
            )
            .await?;
        Ok(NodeCapabilities::from_wire(&answer.capabilities))
    }

    /// NodeGetInfo.
    ///
    /// Fails with `Origin::Reply` if the node id is empty or too long, or the limit negative.
    pub async fn node_get_info(&self) -> Result<NodeInfo, CallError> {
        const RPC: Rpc = Rpc::NodeGetInfo;
        let answer = self
            .call(RPC, "", &Scrub::nothing(), wire::NodeGetInfoRequest {}, |request| async move {
                self.node().node_get_info(request).await
            })
            .await?;
        sizes::node_id(&answer.node_id).map_err(|error| CallError::reply(RPC, error.to_string()))?;
        if answer.max_volumes_per_node < 0 {
            let what = format!("max_volumes_per_node is {}", answer.max_volumes_per_node);
            return Err(CallError::reply(RPC, what));
        }
        Ok(NodeInfo {
            node_id: answer.node_id,
            max_volumes: Some(answer.max_volumes_per_node).filter(|limit| *limit > 0),
            topology: answer.accessible_topology.map(|topology| topology.segments),
        })
    }

    /// NodeStageVolume (needs STAGE_UNSTAGE_VOLUME). Repeated with the same arguments it is success again.
    pub async fn node_stage_volume(&self, args: NodeStage) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::NodeStageVolume;
        args.check().map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of(args.secrets.exposed(), [&args.capability]);
        let message = wire::NodeStageVolumeRequest {
            volume_id: args.volume_id.clone(),
            publish_context: args.publish_context.into_map(),
            staging_target_path: args.staging_target_path,
            volume_capability: Some(args.capability),
            secrets: args.secrets.into_field(),
            volume_context: args.volume_context.into_map(),
        };
        self.call(RPC, &args.volume_id, &scrub, message, |request| async move {
            self.node().node_stage_volume(request).await
        })
        .await?;
        Ok(())
    }

    /// NodeUnstageVolume (needs STAGE_UNSTAGE_VOLUME). A volume that is not staged there is success.
    pub async fn node_unstage_volume(&self, args: NodeUnstage) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::NodeUnstageVolume;
        sizes::id("volume_id", &args.volume_id)
            .and_then(|()| sizes::path("staging_target_path", &args.staging_target_path))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of_flags(&BTreeMap::new(), &args.mount_flags);
        let message = wire::NodeUnstageVolumeRequest {
            volume_id: args.volume_id.clone(),
            staging_target_path: args.staging_target_path,
        };
        self.call(RPC, &args.volume_id, &scrub, message, |request| async move {
            self.node().node_unstage_volume(request).await
        })
        .await?;
        Ok(())
    }

    /// NodePublishVolume. Repeated with the same arguments it is success again.
    pub async fn node_publish_volume(&self, args: NodePublish) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::NodePublishVolume;
        args.check().map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of(args.secrets.exposed(), [&args.capability]);
        let message = wire::NodePublishVolumeRequest {
            volume_id: args.volume_id.clone(),
            publish_context: args.publish_context.into_map(),
            staging_target_path: args.staging_target_path.unwrap_or_default(),
            target_path: args.target_path,
            volume_capability: Some(args.capability),
            readonly: args.readonly,
            secrets: args.secrets.into_field(),
            volume_context: args.volume_context.into_map(),
        };
        self.call(RPC, &args.volume_id, &scrub, message, |request| async move {
            self.node().node_publish_volume(request).await
        })
        .await?;
        Ok(())
    }

    /// NodeUnpublishVolume. A path at which nothing is published is success.
    pub async fn node_unpublish_volume(&self, args: NodeUnpublish) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::NodeUnpublishVolume;
        sizes::id("volume_id", &args.volume_id)
            .and_then(|()| sizes::path("target_path", &args.target_path))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of_flags(&BTreeMap::new(), &args.mount_flags);
        let message = wire::NodeUnpublishVolumeRequest {
            volume_id: args.volume_id.clone(),
            target_path: args.target_path,
        };
        self.call(RPC, &args.volume_id, &scrub, message, |request| async move {
            self.node().node_unpublish_volume(request).await
        })
        .await?;
        Ok(())
    }
}

impl NodeStage {
    fn check(&self) -> Result<(), SizeError> {
        sizes::id("volume_id", &self.volume_id)?;
        sizes::path("staging_target_path", &self.staging_target_path)?;
        sizes::capability(&self.capability)?;
        sizes::secrets(&self.secrets)
    }
}

impl NodePublish {
    fn check(&self) -> Result<(), SizeError> {
        sizes::id("volume_id", &self.volume_id)?;
        optional_path("staging_target_path", self.staging_target_path.as_deref())?;
        sizes::path("target_path", &self.target_path)?;
        sizes::capability(&self.capability)?;
        sizes::secrets(&self.secrets)
    }
}

fn optional_path(field: &'static str, path: Option<&str>) -> Result<(), SizeError> {
    path.map_or(Ok(()), |path| sizes::path(field, path))
}
