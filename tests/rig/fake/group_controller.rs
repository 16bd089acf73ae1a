//! The GroupController service. Its calls are known by the key of the group.

use std::collections::BTreeSet;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::group_controller_server::GroupController;
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::identity::group_controller_capabilities;
use super::{About, Flight, Place, groups, key_of};

type Answer<A> = Result<Response<A>, Status>;

impl Place {
    /// A call about these volumes runs until what is returned is dropped: no other one may that is about any of them.
    async fn fly(&self, rpc: Rpc, volumes: &BTreeSet<String>) -> Vec<Flight> {
        let mut flights = Vec::new();
        for key in volumes {
            self.after_a_question(rpc, key).await;
            flights.push(Flight::begin(&self.fake, key, key.clone(), rpc));
        }
        flights
    }
}

#[tonic::async_trait]
impl GroupController for Place {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<wire::GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<wire::GroupControllerGetCapabilitiesResponse> {
        if !self.controller {
            return Err(Status::unimplemented("another process serves it"));
        }
        Ok(Response::new(group_controller_capabilities(&self.fake.backend())))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<wire::CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<wire::CreateVolumeGroupSnapshotResponse> {
        let request = request.into_inner();
        let key = request.parameters.get("key").unwrap_or(&request.name).clone();
        let of: BTreeSet<String> = request.source_volume_ids.iter().map(|id| key_of(id)).collect();
        let _flights = self.fly(Rpc::CreateVolumeGroupSnapshot, &of).await;
        let about = About {
            rpc: Rpc::CreateVolumeGroupSnapshot,
            key: key.clone(),
            arguments: request.encode_to_vec(),
        };
        self.answer(about, |backend, _, arguments| {
            let group_snapshot = Some(backend.take_group(&key, &of, arguments)?);
            Ok(wire::CreateVolumeGroupSnapshotResponse { group_snapshot })
        })
        .await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<wire::DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<wire::DeleteVolumeGroupSnapshotResponse> {
        let request = request.into_inner();
        let key = groups::key_of(&request.group_snapshot_id);
        let about = About {
            rpc: Rpc::DeleteVolumeGroupSnapshot,
            key: key.clone(),
            arguments: request.encode_to_vec(),
        };
        self.answer(about, |backend, _, _| {
            backend.drop_group(&key, &request.snapshot_ids)?;
            Ok(wire::DeleteVolumeGroupSnapshotResponse {})
        })
        .await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<wire::GetVolumeGroupSnapshotRequest>,
    ) -> Answer<wire::GetVolumeGroupSnapshotResponse> {
        let request = request.into_inner();
        let key = groups::key_of(&request.group_snapshot_id);
        let about =
            About { rpc: Rpc::GetVolumeGroupSnapshot, key: key.clone(), arguments: request.encode_to_vec() };
        self.answer(about, |backend, _, _| {
            let group_snapshot = Some(backend.find_group(&key, &request.snapshot_ids)?);
            Ok(wire::GetVolumeGroupSnapshotResponse { group_snapshot })
        })
        .await
    }
}
