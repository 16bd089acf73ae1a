//! The Node service: where each call is done.

use tonic::{Request, async_trait};

use super::driver::{Answer, Service};
use super::{expand, publish, stage, stats};
use crate::csi::proto::csi::v1::node_server::Node;
use crate::csi::proto::csi::v1::node_service_capability::rpc::Type as RpcType;
use crate::csi::proto::csi::v1::node_service_capability::{Rpc, Type};
use crate::csi::proto::csi::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};

const CAPABILITIES: [RpcType; 5] = [
    RpcType::StageUnstageVolume,
    RpcType::SingleNodeMultiWriter,
    RpcType::ExpandVolume,
    RpcType::GetVolumeStats,
    RpcType::VolumeCondition,
];

#[async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Answer<NodeStageVolumeResponse> {
        self.call(request, stage::stage).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Answer<NodeUnstageVolumeResponse> {
        self.call(request, stage::unstage).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        self.call(request, publish::publish).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        self.call(request, publish::unpublish).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Answer<NodeExpandVolumeResponse> {
        self.call(request, expand::node_expand).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        self.call(request, stats::stats).await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        self.call(request, |_, _| {
            let capability =
                |rpc: RpcType| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })) };
            Ok(NodeGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).to_vec() })
        })
        .await
    }

    async fn node_get_info(&self, request: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        self.call(request, |call, _| {
            Ok(NodeGetInfoResponse {
                node_id: call.node_id().to_owned(),
                max_volumes_per_node: call.driver.args.max_volumes_per_node,
                accessible_topology: call.driver.own_topology(),
            })
        })
        .await
    }
}
