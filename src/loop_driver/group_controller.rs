//! The GroupController service: where each call is done.

use tonic::{Request, async_trait};

use super::driver::{Answer, Service};
use super::group;
use crate::csi::proto::csi::v1::group_controller_server::GroupController;
use crate::csi::proto::csi::v1::group_controller_service_capability::rpc::Type as RpcType;
use crate::csi::proto::csi::v1::group_controller_service_capability::{Rpc, Type};
use crate::csi::proto::csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse,
    GroupControllerServiceCapability,
};

#[async_trait]
impl GroupController for Service {
    /// Says what the driver as a whole can, as ControllerGetCapabilities does.
    async fn group_controller_get_capabilities(
        &self,
        request: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<GroupControllerGetCapabilitiesResponse> {
        self.call(request, |_, _| {
            let groups = Rpc { r#type: RpcType::CreateDeleteGetVolumeGroupSnapshot.into() };
            let capability = GroupControllerServiceCapability { r#type: Some(Type::Rpc(groups)) };
            Ok(GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] })
        })
        .await
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<CreateVolumeGroupSnapshotResponse> {
        self.control(request, group::create).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<DeleteVolumeGroupSnapshotResponse> {
        self.control(request, group::delete).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Answer<GetVolumeGroupSnapshotResponse> {
        self.control(request, group::get).await
    }
}
