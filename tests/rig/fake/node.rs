//! The Node service. File systems only: a raw device would be another driver's test.

use std::path::Path;

use moor::csi::Rpc;
use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::node_server::Node;
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::super::Can;
use super::backend::{Backend, Expand, condition};
use super::identity::node_capabilities;
use super::{About, Place, ZONE, key_of};

type Answer<A> = Result<Response<A>, Status>;

#[tonic::async_trait]
impl Node for Place {
    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Answer<wire::NodeGetCapabilitiesResponse> {
        Ok(Response::new(node_capabilities(&self.fake.backend())))
    }

    async fn node_get_info(&self, _: Request<wire::NodeGetInfoRequest>) -> Answer<wire::NodeGetInfoResponse> {
        let max_volumes_per_node = self.fake.backend().max_volumes;
        let node_id = self.fake.backend().node_ids.get(&self.node).unwrap_or(&self.node).clone();
        let segments = [(ZONE.to_owned(), self.node.clone())].into();
        let accessible_topology = self.fake.backend().topology.then_some(wire::Topology { segments });
        Ok(Response::new(wire::NodeGetInfoResponse { node_id, max_volumes_per_node, accessible_topology }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<wire::NodeStageVolumeRequest>,
    ) -> Answer<wire::NodeStageVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let about = About { rpc: Rpc::NodeStageVolume, key: key.clone(), arguments: request.encode_to_vec() };
        self.answer(about, |backend, node, arguments| {
            backend.slot(&key, node, "NodeStageVolume", &request.publish_context)?;
            backend.stage(&key, node, Path::new(&request.staging_target_path), arguments)?;
            Ok(wire::NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<wire::NodeUnstageVolumeRequest>,
    ) -> Answer<wire::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::NodeUnstageVolume, key: key.clone(), arguments };
        self.answer(about, |backend, node, _| {
            backend.unstage(&key, node, Path::new(&request.staging_target_path))?;
            Ok(wire::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Answer<wire::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::NodePublishVolume, key: key.clone(), arguments };
        // Of a call that is repeated the tokens alone may be others.
        let mut lasting = request.clone();
        lasting.volume_context.retain(|name, _| !name.ends_with("serviceAccount.tokens"));
        let lasting = lasting.encode_to_vec();
        self.answer(about, |backend, node, _| {
            backend.slot(&key, node, "NodePublishVolume", &request.publish_context)?;
            let (staging, target) =
                (Path::new(&request.staging_target_path), Path::new(&request.target_path));
            backend.publish(&key, node, staging, target, request.readonly, &lasting)?;
            Ok(wire::NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Answer<wire::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::NodeUnpublishVolume, key: key.clone(), arguments };
        self.answer(about, |backend, node, _| {
            backend.unpublish(&key, node, Path::new(&request.target_path))?;
            Ok(wire::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Answer<wire::NodeExpandVolumeResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::NodeExpandVolume, key: key.clone(), arguments };
        self.answer(about, |backend, node, _| {
            let (staging, path) = (Path::new(&request.staging_target_path), Path::new(&request.volume_path));
            let capacity_bytes = request.capacity_range.map_or(0, |range| range.required_bytes);
            backend.expand(&key, node, (staging, path), capacity_bytes)?;
            Ok(wire::NodeExpandVolumeResponse { capacity_bytes })
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Answer<wire::NodeGetVolumeStatsResponse> {
        let request = request.into_inner();
        let key = key_of(&request.volume_id);
        let arguments = request.encode_to_vec();
        let about = About { rpc: Rpc::NodeGetVolumeStats, key: key.clone(), arguments };
        self.answer(about, |backend, node, _| {
            let at = (node.to_owned(), Path::new(&request.volume_path).to_owned());
            if !backend.known(&key)?.published.contains_key(&at) {
                return Err(Status::not_found(format!("{} is not published there", request.volume_id)));
            }
            let unit = wire::volume_usage::Unit::Bytes.into();
            let answers = backend.answers.get(&key).cloned().unwrap_or_default();
            let [total, used, available] = answers.usage.unwrap_or([8, 3, 5]);
            let usage = vec![wire::VolumeUsage { total, used, available, unit }];
            let says = backend.can.contains(&Can::VolumeCondition);
            let volume_condition = says.then(|| condition(answers.ill));
            Ok(wire::NodeGetVolumeStatsResponse { usage, volume_condition })
        })
        .await
    }
}

impl Backend {
    /// The volume is to be larger where it is used.
    fn expand(
        &mut self,
        key: &str,
        node: &str,
        (staging, path): (&Path, &Path),
        bytes: i64,
    ) -> Result<(), Status> {
        let (by_controller, most) = (self.expand == Expand::AndNodes, self.most);
        let volume = self.known(key)?;
        let is_staged = volume.staged.get(node).is_some_and(|(staged, _)| staged == staging);
        if is_staged && volume.published.contains_key(&(node.to_owned(), path.to_owned())) {
            if by_controller && bytes > volume.grown {
                let what = format!("NodeExpandVolume of {key} to {bytes} before ControllerExpandVolume");
                return Err(self.forbidden(key, what));
            }
            if bytes > most {
                return Err(Status::out_of_range("the storage is smaller"));
            }
            let has = volume.grown_on.entry(node.to_owned()).or_default();
            *has = bytes.max(*has);
            return Ok(());
        }
        Err(self.forbidden(key, format!("NodeExpandVolume of {key} on {node} at paths where it is not")))
    }
}
