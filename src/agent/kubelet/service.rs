//! CSI's Identity and Node services as kubelet calls them, under one driver's name.

use std::time::Duration;

use tonic::{Request, Response, Status, async_trait};

use super::driver::Driver;
use super::facts::Told;
use super::publish::answer_by;
use crate::csi::capability::NodeCapability;
use crate::csi::proto::csi::v1 as wire;
use crate::csi::proto::csi::v1::identity_server::Identity;
use crate::csi::proto::csi::v1::node_server::Node;
use crate::csi::proto::csi::v1::node_service_capability::{Rpc, Type};
use crate::csi::sizes;

/// What is served whatever the driver has: it tells ReadWriteOncePod from ReadWriteOnce, and the agent itself can look how
/// full a file system is.
const OURS: [NodeCapability; 2] = [NodeCapability::SingleNodeMultiWriter, NodeCapability::GetVolumeStats];
/// What is served where the driver has it.
const PASSED_ON: [NodeCapability; 3] =
    [NodeCapability::StageUnstageVolume, NodeCapability::VolumeMountGroup, NodeCapability::ExpandVolume];

/// The deadline that kubelet sent with its call (gRPC over HTTP/2, `grpc-timeout`).
pub(super) fn timeout<T>(request: &Request<T>) -> Option<Duration> {
    let text = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number.saturating_mul(3600))),
        "M" => Some(Duration::from_secs(number.saturating_mul(60))),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        let vendor_version = self.fingerprint().map(|f| f.version.clone()).unwrap_or_default();
        let name = self.kubelet_name.clone();
        Ok(Response::new(wire::GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        // What is served here is the Node service; the Controller service is moor's own.
        Ok(Response::new(wire::GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse { ready: Some(self.fingerprint().is_ok()) }))
    }
}

#[async_trait]
impl Node for Driver {
    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Result<Response<wire::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let sized = sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::path("staging_target_path", &request.staging_target_path))
            .and_then(|()| sizes::capabilities(request.volume_capability.as_slice()))
            .and_then(|()| sizes::map("secrets", &request.secrets));
        sized.map_err(|error| Status::invalid_argument(error.to_string()))?;
        // No Pod is named here, so nothing is granted here: the volume is staged when the first Pod has been.
        self.agent.asked.stage(&self.kubelet_name, &request.volume_id, request.secrets);
        Ok(Response::new(wire::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Result<Response<wire::NodeUnstageVolumeResponse>, Status> {
        let by = answer_by(timeout(&request));
        let request = request.into_inner();
        let sized = sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::path("staging_target_path", &request.staging_target_path));
        sized.map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.unstage(request, by).await?;
        Ok(Response::new(wire::NodeUnstageVolumeResponse {}))
    }

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

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Result<Response<wire::NodeExpandVolumeResponse>, Status> {
        let by = answer_by(timeout(&request));
        self.expand(request.into_inner(), by).await.map(Response::new)
    }

    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<wire::NodeGetCapabilitiesResponse>, Status> {
        let fingerprint = self.fingerprint()?;
        let has =
            |one: &NodeCapability| fingerprint.capabilities.node.iter().any(|name| name == one.as_str_name());
        let all = OURS.into_iter().chain(PASSED_ON.into_iter().filter(has));
        let capability = |one: NodeCapability| wire::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: one.into() })),
        };
        Ok(Response::new(wire::NodeGetCapabilitiesResponse { capabilities: all.map(capability).collect() }))
    }

    async fn node_get_info(
        &self,
        _: Request<wire::NodeGetInfoRequest>,
    ) -> Result<Response<wire::NodeGetInfoResponse>, Status> {
        let info = match (self.fingerprint(), self.facts.told()) {
            (Ok(fingerprint), _) => fingerprint.node_info.clone().ok_or_else(|| {
                Status::unavailable(format!("driver {} has no Node service on this node", self.name))
            })?,
            // After a boot kubelet may ask before the driver has begun. If that says otherwise then kubelet is to ask again.
            (Err(_), Some(told)) => told.info(),
            (Err(none), None) => return Err(none.into()),
        };
        // kubelet writes it where it cannot be changed, so the next process has to know what it was.
        let kept = self.facts.tell(Told::of(&info)).await;
        kept.map_err(|error| Status::unavailable(format!("keep what kubelet is told: {error}")))?;
        Ok(Response::new(info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_of_a_call_is_read() {
        let of = |text: &'static str| {
            let mut request = Request::new(());
            request.metadata_mut().insert("grpc-timeout", text.parse().unwrap());
            timeout(&request)
        };
        assert_eq!(of("2M"), Some(Duration::from_secs(120)));
        assert_eq!(of("119999m"), Some(Duration::from_millis(119_999)));
        assert_eq!(of("7S"), Some(Duration::from_secs(7)));
        for wrong in ["", "S", "1", "x5S", "5 S", "1y"] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}
