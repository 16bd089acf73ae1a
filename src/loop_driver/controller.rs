//! The Controller service: where each call is done.

use tonic::{Request, async_trait};

use super::calls::Recorded;
use super::driver::{Answer, Call, Service};
use super::error::Error;
use super::{attach, expand, modify, room, snapshot, volume};
use crate::csi::proto::csi::v1::controller_server::Controller;
use crate::csi::proto::csi::v1::controller_service_capability::rpc::Type as RpcType;
use crate::csi::proto::csi::v1::controller_service_capability::{Rpc, Type};
use crate::csi::proto::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest,
    CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
    DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest,
    GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse,
};

const CAPABILITIES: [RpcType; 14] = [
    RpcType::CreateDeleteVolume,
    RpcType::PublishUnpublishVolume,
    RpcType::ListVolumes,
    RpcType::ListVolumesPublishedNodes,
    RpcType::VolumeCondition,
    RpcType::PublishReadonly,
    RpcType::GetCapacity,
    RpcType::CreateDeleteSnapshot,
    RpcType::ListSnapshots,
    RpcType::GetSnapshot,
    RpcType::CloneVolume,
    RpcType::ExpandVolume,
    RpcType::ModifyVolume,
    RpcType::SingleNodeMultiWriter,
];

impl Service {
    /// Runs a call of the Controller or the GroupController service. A process that is there for its node alone has none of them.
    pub(super) async fn control<Q: Recorded + Send + 'static, A: Send + 'static>(
        &self,
        request: Request<Q>,
        work: fn(&Call<'_>, &Q) -> Result<A, Error>,
    ) -> Answer<A> {
        self.call(request, move |call, request| {
            let has_controller = call.driver.args.roles.has_controller();
            if has_controller { work(call, request) } else { Err(Error::Unimplemented(call.rpc)) }
        })
        .await
    }
}

#[async_trait]
impl Controller for Service {
    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        self.control(request, volume::create).await
    }

    async fn delete_volume(&self, request: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.control(request, volume::delete).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        self.control(request, attach::publish).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        self.control(request, attach::unpublish).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        self.control(request, volume::validate).await
    }

    async fn list_volumes(&self, request: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        self.control(request, volume::list).await
    }

    async fn get_capacity(&self, request: Request<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.control(request, room::get_capacity).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        self.control(request, expand::expand).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        self.control(request, modify::modify).await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Answer<CreateSnapshotResponse> {
        self.control(request, snapshot::create).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        self.control(request, snapshot::delete).await
    }

    async fn list_snapshots(&self, request: Request<ListSnapshotsRequest>) -> Answer<ListSnapshotsResponse> {
        self.control(request, snapshot::list).await
    }

    async fn get_snapshot(&self, request: Request<GetSnapshotRequest>) -> Answer<GetSnapshotResponse> {
        self.control(request, snapshot::get).await
    }

    /// Says what the driver as a whole can. Every process answers that, one for its node alone too: csi-sanity asks a
    /// node's socket and takes an empty list for a defect.
    async fn controller_get_capabilities(
        &self,
        request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        self.call(request, |_, _| {
            let capability = |rpc: RpcType| ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })),
            };
            Ok(ControllerGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).to_vec() })
        })
        .await
    }
}
