//! The Controller service.

use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::controller_server::Controller;
use moor::csi::proto::csi::v1::volume_content_source::Type;
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::backend::{Stored, check};
use super::identity::controller_capabilities;
use super::{About, Place, ZONE, key_of, room, snapshots};

type Answer<A> = Result<Response<A>, Status>;

/// What the volume is to be made from.
fn source_of(request: &wire::CreateVolumeRequest) -> Option<&Type> {
    request.volume_content_source.as_ref()?.r#type.as_ref()
}

#[tonic::async_trait]
impl Controller for Place {
    async fn controller_get_capabilities(
        &self,
        _: Request<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer<wire::ControllerGetCapabilitiesResponse> {
        if !self.controller {
            return Err(Status::unimplemented("another process serves it"));
        }
        Ok(Response::new(controller_capabilities(&self.fake.backend(), &self.node)))
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Answer<wire::CreateVolumeResponse> {
        let request = request.into_inner();
        let key = request.parameters.get("key").unwrap_or(&request.name).clone();
        let about = About { rpc: Rpc::CreateVolume, key: key.clone(), arguments: request.encode_to_vec() };
        let wanted = request.accessibility_requirements.as_ref().and_then(|r| r.preferred.first()).cloned();
        self.answer(about, |backend, _, arguments| {
            if wanted.as_ref().is_some_and(|wanted| backend.full.contains(&wanted.segments[ZONE])) {
                return Err(Status::resource_exhausted("this zone is full"));
            }
            check(&request.mutable_parameters)?;
            match source_of(&request) {
                Some(Type::Volume(of)) => drop(backend.known(&key_of(&of.volume_id))?),
                Some(Type::Snapshot(of)) => backend.restore(&snapshots::key_of(&of.snapshot_id))?,
                None => {}
            }
            let is_new = !backend.volumes.contains_key(&key);
            backend.create(&key, arguments)?;
            if is_new {
                backend.known(&key)?.modified.clone_from(&request.mutable_parameters);
            }
            let asked = request.capacity_range.map_or(0, |range| range.required_bytes);
            if let Some(left) =
                wanted.as_ref().and_then(|wanted| backend.room.get_mut(&wanted.segments[ZONE]))
            {
                *left -= asked;
            }
            let answers = backend.answers.get(&key).cloned().unwrap_or_default();
            let content_source = request.volume_content_source.clone().filter(|_| !answers.hides_source);
            let mut volume_context = answers.volume_context;
            volume_context.insert("made-for".to_owned(), key.clone());
            let volume = wire::Volume {
                volume_id: if answers.hides_id { String::new() } else { backend.id(&key) },
                capacity_bytes: answers.capacity_bytes.unwrap_or(asked),
                volume_context,
                accessible_topology: wanted.iter().cloned().collect(),
                content_source,
            };
            Ok(wire::CreateVolumeResponse { volume: Some(volume) })
        })
        .await
    }

    async fn get_capacity(
        &self,
        request: Request<wire::GetCapacityRequest>,
    ) -> Answer<wire::GetCapacityResponse> {
        let request = request.into_inner();
        let zone = request.accessible_topology.as_ref().map_or("", |place| &place.segments[ZONE]).to_owned();
        let about = About { rpc: Rpc::GetCapacity, key: room(&zone), arguments: request.encode_to_vec() };
        self.answer(about, |backend, _, _| {
            let available_capacity = backend.room.get(&zone).copied().unwrap_or_default();
            Ok(wire::GetCapacityResponse {
                available_capacity,
                maximum_volume_size: Some(available_capacity / 2),
                ..Default::default()
            })
        })
        .await
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Answer<wire::DeleteVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let about = About { rpc: Rpc::DeleteVolume, key: key.clone(), arguments: request.encode_to_vec() };
        self.answer(about, |backend, _, _| {
            backend.delete(&key)?;
            Ok(wire::DeleteVolumeResponse {})
        })
        .await
    }

    async fn create_snapshot(
        &self,
        request: Request<wire::CreateSnapshotRequest>,
    ) -> Answer<wire::CreateSnapshotResponse> {
        let request = request.into_inner();
        let of = key_of(&request.source_volume_id);
        let key = request.parameters.get("key").unwrap_or(&request.name).clone();
        let about = About { rpc: Rpc::CreateSnapshot, key: of.clone(), arguments: request.encode_to_vec() };
        self.answer(about, |backend, _, arguments| {
            let snapshot = Some(backend.take(&key, &of, arguments)?);
            Ok(wire::CreateSnapshotResponse { snapshot })
        })
        .await
    }

    async fn delete_snapshot(
        &self,
        request: Request<wire::DeleteSnapshotRequest>,
    ) -> Answer<wire::DeleteSnapshotResponse> {
        let request = request.into_inner();
        let key = snapshots::key_of(&request.snapshot_id);
        let about = About { rpc: Rpc::DeleteSnapshot, key: key.clone(), arguments: request.encode_to_vec() };
        self.answer(about, |backend, node, _| {
            if backend.listing.is_here(&key, node) {
                backend.drop_snapshot(&key)?;
            }
            Ok(wire::DeleteSnapshotResponse {})
        })
        .await
    }

    async fn list_snapshots(
        &self,
        request: Request<wire::ListSnapshotsRequest>,
    ) -> Answer<wire::ListSnapshotsResponse> {
        use wire::list_snapshots_response::Entry;
        let request = request.into_inner();
        let key = snapshots::key_of(&request.snapshot_id);
        let about = About { rpc: Rpc::ListSnapshots, key: key.clone(), arguments: request.encode_to_vec() };
        self.answer(about, |backend, node, _| {
            let listing = &backend.listing;
            let is_wanted = |known: &&String| {
                listing.is_here(known, node)
                    && if key.is_empty() { !listing.hides.contains(*known) } else { **known == key }
            };
            let entries = backend.snapshots.keys().filter(is_wanted);
            let entries = entries.map(|known| Entry { snapshot: Some(backend.told(known)) }).collect();
            let (entries, next_token) =
                backend.listing.page(entries, &request.starting_token, request.max_entries)?;
            Ok(wire::ListSnapshotsResponse { entries, next_token })
        })
        .await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<wire::ControllerExpandVolumeRequest>,
    ) -> Answer<wire::ControllerExpandVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::ControllerExpandVolume, key: key.clone(), arguments };
        let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
        self.answer(about, |backend, _, _| {
            let node_expansion_required = backend.grow(&key, capacity_bytes)?;
            Ok(wire::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required })
        })
        .await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<wire::ControllerModifyVolumeRequest>,
    ) -> Answer<wire::ControllerModifyVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::ControllerModifyVolume, key: key.clone(), arguments };
        self.answer(about, |backend, _, _| {
            backend.modify(&key, &request.mutable_parameters)?;
            Ok(wire::ControllerModifyVolumeResponse {})
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<wire::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<wire::ValidateVolumeCapabilitiesResponse> {
        use wire::validate_volume_capabilities_response::Confirmed;
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::ValidateVolumeCapabilities, key: key.clone(), arguments };
        self.answer(about, |backend, _, _| {
            backend.known(&key)?;
            let confirms = !backend.answers.get(&key).is_some_and(|answers| answers.confirms_nothing);
            let confirmed = confirms.then_some(Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: request.mutable_parameters,
            });
            let message = if confirms { String::new() } else { "no idea".to_owned() };
            Ok(wire::ValidateVolumeCapabilitiesResponse { confirmed, message })
        })
        .await
    }

    async fn list_volumes(
        &self,
        request: Request<wire::ListVolumesRequest>,
    ) -> Answer<wire::ListVolumesResponse> {
        use wire::list_volumes_response::{Entry, VolumeStatus};
        let request = request.into_inner();
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::ListVolumes, key: String::new(), arguments };
        self.answer(about, |backend, _, _| {
            let entry = |(key, stored): (&String, &Stored)| Entry {
                volume: Some(wire::Volume { volume_id: backend.id(key), ..Default::default() }),
                status: Some(VolumeStatus {
                    published_node_ids: stored.attached.keys().cloned().collect(),
                    volume_condition: backend.condition(key),
                }),
            };
            let listed = backend.volumes.iter().filter(|(key, _)| !backend.listing.hides.contains(*key));
            let entries = listed.map(entry).collect();
            let (entries, next_token) =
                backend.listing.page(entries, &request.starting_token, request.max_entries)?;
            Ok(wire::ListVolumesResponse { entries, next_token })
        })
        .await
    }

    async fn controller_get_volume(
        &self,
        request: Request<wire::ControllerGetVolumeRequest>,
    ) -> Answer<wire::ControllerGetVolumeResponse> {
        use wire::controller_get_volume_response::VolumeStatus;
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::ControllerGetVolume, key: key.clone(), arguments };
        self.answer(about, |backend, _, _| {
            let published_node_ids = backend.known(&key)?.attached.keys().cloned().collect();
            let status = VolumeStatus { published_node_ids, volume_condition: backend.condition(&key) };
            let volume = wire::Volume { volume_id: request.volume_id, ..Default::default() };
            Ok(wire::ControllerGetVolumeResponse { volume: Some(volume), status: Some(status) })
        })
        .await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<wire::ControllerPublishVolumeRequest>,
    ) -> Answer<wire::ControllerPublishVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::ControllerPublishVolume, key: key.clone(), arguments };
        self.answer(about, |backend, _, arguments| {
            let many = request.volume_capability.as_ref().is_some_and(is_multi_node);
            backend.attach(&key, &request.node_id, many, arguments)?;
            let answers = backend.answers.get(&key).cloned().unwrap_or_default();
            let mut publish_context = answers.publish_context;
            publish_context.insert("slot".to_owned(), format!("{key} at {}", request.node_id));
            Ok(wire::ControllerPublishVolumeResponse { publish_context })
        })
        .await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<wire::ControllerUnpublishVolumeRequest>,
    ) -> Answer<wire::ControllerUnpublishVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::ControllerUnpublishVolume, key: key.clone(), arguments };
        self.answer(about, |backend, _, _| {
            backend.detach(&key, &request.node_id);
            Ok(wire::ControllerUnpublishVolumeResponse {})
        })
        .await
    }
}

fn is_multi_node(capability: &wire::VolumeCapability) -> bool {
    use wire::volume_capability::access_mode::Mode;
    let mode = capability.access_mode.as_ref().map(wire::volume_capability::AccessMode::mode);
    matches!(mode, Some(Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter))
}
