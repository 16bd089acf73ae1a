//! The Node service: what each call is about, and where it is done.

use tonic::{Request, Response, Status, async_trait};

use super::calls::Facts;
use super::driver::Service;
use super::{publish, stage};
use crate::csi::proto::csi::v1::node_server::Node;
use crate::csi::proto::csi::v1::node_service_capability::rpc::Type as RpcType;
use crate::csi::proto::csi::v1::node_service_capability::{Rpc, Type};
use crate::csi::proto::csi::v1::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};

const CAPABILITIES: [RpcType; 2] = [RpcType::StageUnstageVolume, RpcType::SingleNodeMultiWriter];

#[async_trait]
impl Node for Service {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts {
            staging_path: request.staging_target_path.clone(),
            ..Facts::about("NodeStageVolume", &request.volume_id)
        };
        self.call(facts, move |call| stage::stage(call, &request)).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts {
            staging_path: request.staging_target_path.clone(),
            ..Facts::about("NodeUnstageVolume", &request.volume_id)
        };
        self.call(facts, move |call| stage::unstage(call, &request)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts {
            staging_path: request.staging_target_path.clone(),
            target_path: request.target_path.clone(),
            readonly: Some(request.readonly),
            ..Facts::about("NodePublishVolume", &request.volume_id)
        };
        self.call(facts, move |call| publish::publish(call, &request)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts {
            target_path: request.target_path.clone(),
            ..Facts::about("NodeUnpublishVolume", &request.volume_id)
        };
        self.call(facts, move |call| publish::unpublish(call, &request)).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        self.call(Facts::about("NodeGetCapabilities", ""), |_| {
            let capability =
                |rpc: RpcType| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })) };
            Ok(NodeGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).to_vec() })
        })
        .await
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        self.call(Facts::about("NodeGetInfo", ""), |call| {
            Ok(NodeGetInfoResponse {
                node_id: call.driver.node_id.clone(),
                max_volumes_per_node: call.driver.max_volumes,
                accessible_topology: call.driver.own_topology(),
            })
        })
        .await
    }
}
