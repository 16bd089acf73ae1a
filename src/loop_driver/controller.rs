//! The Controller service: what each call is about, and where it is done.

use tonic::{Request, Response, Status, async_trait};

use super::attach;
use super::calls::Facts;
use super::driver::Service;
use super::error::Error;
use super::state::VolumeId;
use super::volume;
use crate::csi::proto::csi::v1::controller_server::Controller;
use crate::csi::proto::csi::v1::controller_service_capability::rpc::Type as RpcType;
use crate::csi::proto::csi::v1::controller_service_capability::{Rpc, Type};
use crate::csi::proto::csi::v1::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse,
};

const CAPABILITIES: [RpcType; 6] = [
    RpcType::CreateDeleteVolume,
    RpcType::PublishUnpublishVolume,
    RpcType::ListVolumes,
    RpcType::ListVolumesPublishedNodes,
    RpcType::PublishReadonly,
    RpcType::SingleNodeMultiWriter,
];

impl Service {
    /// A call of the Controller service. A process that is there for its node alone has none of them.
    async fn control<T: Send + 'static>(
        &self,
        facts: Facts,
        work: impl FnOnce(&super::driver::Call<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let rpc = facts.rpc;
        self.call(facts, move |call| {
            if call.driver.roles.has_controller() { work(call) } else { Err(Error::Unimplemented(rpc)) }
        })
        .await
    }
}

#[async_trait]
impl Controller for Service {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = VolumeId::of_name(&request.name);
        let facts = Facts { name: request.name.clone(), ..Facts::about("CreateVolume", id.as_str()) };
        self.control(facts, move |call| volume::create(call, &request)).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts::about("DeleteVolume", &request.volume_id);
        self.control(facts, move |call| volume::delete(call, &request)).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts {
            node: request.node_id.clone(),
            readonly: Some(request.readonly),
            ..Facts::about("ControllerPublishVolume", &request.volume_id)
        };
        self.control(facts, move |call| attach::publish(call, &request)).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts {
            node: request.node_id.clone(),
            ..Facts::about("ControllerUnpublishVolume", &request.volume_id)
        };
        self.control(facts, move |call| attach::unpublish(call, &request)).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let facts = Facts::about("ValidateVolumeCapabilities", &request.volume_id);
        self.control(facts, move |call| volume::validate(call, request)).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let request = request.into_inner();
        self.control(Facts::about("ListVolumes", ""), move |call| volume::list(call, &request)).await
    }

    /// What the driver as a whole can, so every process answers it, one for its node alone too: csi-sanity asks a node's
    /// socket and takes an empty list for a defect.
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        self.call(Facts::about("ControllerGetCapabilities", ""), |_| {
            let capability = |rpc: RpcType| ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })),
            };
            Ok(ControllerGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).to_vec() })
        })
        .await
    }
}
