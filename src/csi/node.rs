//! The Node service: staging and publishing a volume on the node where the plugin runs.

use std::collections::{BTreeMap, BTreeSet};

use super::capability::{NodeCapability, known};
use super::channel::Plugin;
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::node_service_capability::Type;
use super::redact::{Scrub, mount_flags};
use super::rpc::Rpc;
use super::secrets::FollowUp;
use super::sizes;

/// Where kubelet has the tokens of a Pod's service account in a volume's context.
pub(crate) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

impl Plugin {
    /// NodeGetCapabilities. Unknown ones are left out.
    pub async fn node_get_capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
        let answer = self.ask(&wire::NodeGetCapabilitiesRequest {}).await?;
        let kinds = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
        Ok(known(kinds.map(|Type::Rpc(rpc)| rpc.r#type)))
    }

    /// NodeGetInfo.
    ///
    /// Fails with `Origin::Reply` if the node id is empty or too long, the limit negative, or the topology more than a
    /// PluginInstance has room for.
    pub async fn node_get_info(&self) -> Result<wire::NodeGetInfoResponse, CallError> {
        let answer = self.ask(&wire::NodeGetInfoRequest {}).await?;
        node_info(answer)
    }

    /// NodeGetVolumeStats (needs GET_VOLUME_STATS). The message of its volume_condition can be shown.
    pub async fn node_get_volume_stats(
        &self,
        call: FollowUp<wire::NodeGetVolumeStatsRequest>,
    ) -> Result<wire::NodeGetVolumeStatsResponse, CallError> {
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::path("volume_path", &request.volume_path))
            .and_then(|()| sizes::optional_path("staging_target_path", &request.staging_target_path))
            .map_err(|error| CallError::argument(Rpc::NodeGetVolumeStats, &error))?;
        let scrub = Scrub::of_flags(&BTreeMap::new(), &earlier_flags);
        let mut answer = self.call(&[&request.volume_id], &scrub, &request).await?;
        if let Some(condition) = &mut answer.volume_condition {
            condition.message = scrub.clean(&condition.message);
        }
        Ok(answer)
    }

    /// NodeStageVolume (needs STAGE_UNSTAGE_VOLUME). Repeated with the same arguments it is success again.
    pub async fn node_stage_volume(&self, request: wire::NodeStageVolumeRequest) -> Result<(), CallError> {
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::path("staging_target_path", &request.staging_target_path))
            .and_then(|()| sizes::capabilities(request.volume_capability.as_slice()))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::NodeStageVolume, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capability);
        self.call(&[&request.volume_id], &scrub, &request).await.map(drop)
    }

    /// NodeUnstageVolume (needs STAGE_UNSTAGE_VOLUME). A volume that is not staged there is success.
    pub async fn node_unstage_volume(
        &self,
        call: FollowUp<wire::NodeUnstageVolumeRequest>,
    ) -> Result<(), CallError> {
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::path("staging_target_path", &request.staging_target_path))
            .map_err(|error| CallError::argument(Rpc::NodeUnstageVolume, &error))?;
        let scrub = Scrub::of_flags(&BTreeMap::new(), &earlier_flags);
        self.call(&[&request.volume_id], &scrub, &request).await.map(drop)
    }

    /// NodePublishVolume. Repeated with the same arguments it is success again. The flags with which it was staged are not
    /// sent, and taken out of the driver's words, which may be of the mount that it makes another one of.
    pub async fn node_publish_volume(
        &self,
        call: FollowUp<wire::NodePublishVolumeRequest>,
    ) -> Result<(), CallError> {
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::optional_path("staging_target_path", &request.staging_target_path))
            .and_then(|()| sizes::path("target_path", &request.target_path))
            .and_then(|()| sizes::capabilities(request.volume_capability.as_slice()))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::NodePublishVolume, &error))?;
        let own = request.volume_capability.iter().flat_map(mount_flags);
        let mut secrets = request.secrets.clone();
        secrets.extend(request.volume_context.get_key_value(TOKENS).map(|(k, v)| (k.clone(), v.clone())));
        let scrub = Scrub::of_flags(&secrets, own.chain(&earlier_flags));
        self.call(&[&request.volume_id], &scrub, &request).await.map(drop)
    }

    /// NodeUnpublishVolume. A path at which nothing is published is success.
    pub async fn node_unpublish_volume(
        &self,
        call: FollowUp<wire::NodeUnpublishVolumeRequest>,
    ) -> Result<(), CallError> {
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::path("target_path", &request.target_path))
            .map_err(|error| CallError::argument(Rpc::NodeUnpublishVolume, &error))?;
        let scrub = Scrub::of_flags(&BTreeMap::new(), &earlier_flags);
        self.call(&[&request.volume_id], &scrub, &request).await.map(drop)
    }

    /// NodeExpandVolume (needs EXPAND_VOLUME), with the flags with which it was mounted in its capability. A volume that is as
    /// large already is success. Returns how large it is now, and 0 if the driver does not say.
    pub async fn node_expand_volume(&self, request: wire::NodeExpandVolumeRequest) -> Result<i64, CallError> {
        const RPC: Rpc = Rpc::NodeExpandVolume;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::path("volume_path", &request.volume_path))
            .and_then(|()| sizes::optional_path("staging_target_path", &request.staging_target_path))
            .and_then(|()| sizes::range(request.capacity_range.as_ref()))
            .and_then(|()| request.volume_capability.iter().try_for_each(sizes::capability))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capability);
        let answer = self.call(&[&request.volume_id], &scrub, &request).await?;
        if answer.capacity_bytes < 0 {
            return Err(CallError::reply(RPC, format!("capacity_bytes is {}", answer.capacity_bytes)));
        }
        Ok(answer.capacity_bytes)
    }
}

fn node_info(answer: wire::NodeGetInfoResponse) -> Result<wire::NodeGetInfoResponse, CallError> {
    const RPC: Rpc = Rpc::NodeGetInfo;
    sizes::node_id(&answer.node_id).map_err(|error| CallError::reply(RPC, error.to_string()))?;
    if answer.max_volumes_per_node < 0 {
        let what = format!("max_volumes_per_node is {}", answer.max_volumes_per_node);
        return Err(CallError::reply(RPC, what));
    }
    if let Some(topology) = &answer.accessible_topology {
        sizes::topology(&topology.segments).map_err(|error| CallError::not_taken(RPC, error.to_string()))?;
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::error::Origin;
    use super::*;

    fn said(segments: BTreeMap<String, String>) -> Result<wire::NodeGetInfoResponse, CallError> {
        node_info(wire::NodeGetInfoResponse {
            node_id: "node".to_owned(),
            max_volumes_per_node: 3,
            accessible_topology: Some(wire::Topology { segments }),
        })
    }

    fn segments(count: usize, length: usize) -> BTreeMap<String, String> {
        (0..count).map(|n| (format!("{n:0>length$}"), "v".repeat(length))).collect()
    }

    /// One write of a status tells all that there is to tell of a driver.
    #[test]
    fn what_a_status_has_no_room_for_is_not_taken() {
        let fits = said(segments(64, 4096)).unwrap();
        assert_eq!(fits.accessible_topology.unwrap().segments.len(), 64);
        for (broken, word) in [
            (segments(65, 2), "accessible_topology has 65 segments"),
            (BTreeMap::from([("k".to_owned(), "v".repeat(4097))]), "a key or a value of 4097 bytes"),
            (BTreeMap::from([("k".repeat(4097), "v".to_owned())]), "a key or a value of 4097 bytes"),
        ] {
            let error = said(broken).unwrap_err();
            assert!(error.origin == Origin::Reply && error.message.contains(word), "{error}");
        }
    }
}
