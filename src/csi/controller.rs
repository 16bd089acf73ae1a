//! The Controller service: creating, growing, changing and deleting volumes, attaching them to nodes, and questions about them.

use std::collections::BTreeSet;

use super::capability::{ControllerCapability, known};
use super::channel::Plugin;
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::controller_service_capability::Type;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::secrets::FollowUp;
use super::sizes;

impl Plugin {
    /// ControllerGetCapabilities. Unknown ones are left out.
    pub async fn controller_get_capabilities(&self) -> Result<BTreeSet<ControllerCapability>, CallError> {
        let answer = self.ask(&wire::ControllerGetCapabilitiesRequest {}).await?;
        let kinds = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
        Ok(known(kinds.map(|Type::Rpc(rpc)| rpc.r#type)))
    }

    /// CreateVolume (needs CREATE_DELETE_VOLUME). The same name has to come with the same arguments, always.
    ///
    /// Fails with `Origin::Reply`, outcome unknown, if the answer names no volume. A size of less than nothing is the
    /// caller's to refuse: the volume is made.
    pub async fn create_volume(&self, request: wire::CreateVolumeRequest) -> Result<wire::Volume, CallError> {
        sizes::name("name", &request.name)
            .and_then(|()| sizes::capabilities(&request.volume_capabilities))
            .and_then(|()| sizes::map("parameters", &request.parameters))
            .and_then(|()| sizes::map("mutable_parameters", &request.mutable_parameters))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::CreateVolume, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capabilities);
        let answer = self.call(&[&request.name], &scrub, &request).await?;
        created(answer).map_err(|what| CallError::reply(Rpc::CreateVolume, what))
    }

    /// DeleteVolume (needs CREATE_DELETE_VOLUME). A volume that the driver does not know is success.
    pub async fn delete_volume(&self, call: FollowUp<wire::DeleteVolumeRequest>) -> Result<(), CallError> {
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::DeleteVolume, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, &earlier_flags);
        self.call(&[&request.volume_id], &scrub, &request).await.map(drop)
    }

    /// ControllerGetVolume (needs GET_VOLUME): how the volume is, where the driver says that (VOLUME_CONDITION). The message
    /// can be shown.
    ///
    /// Fails with `Origin::Reply` if the answer is about another volume.
    pub async fn controller_get_volume(
        &self,
        volume_id: &str,
    ) -> Result<Option<wire::VolumeCondition>, CallError> {
        sizes::id("volume_id", volume_id)
            .map_err(|error| CallError::argument(Rpc::ControllerGetVolume, &error))?;
        let request = wire::ControllerGetVolumeRequest { volume_id: volume_id.to_owned() };
        let answer = self.call(&[volume_id], &Scrub::nothing(), &request).await?;
        if answer.volume.is_none_or(|volume| volume.volume_id != volume_id) {
            return Err(CallError::reply(Rpc::ControllerGetVolume, "it is about another volume"));
        }
        Ok(answer.status.and_then(|status| status.volume_condition).map(shown))
    }

    /// ControllerPublishVolume (needs PUBLISH_UNPUBLISH_VOLUME). Returns the publish context for stage and publish.
    pub async fn controller_publish_volume(
        &self,
        request: wire::ControllerPublishVolumeRequest,
    ) -> Result<wire::ControllerPublishVolumeResponse, CallError> {
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::node_id(&request.node_id))
            .and_then(|()| sizes::capabilities(request.volume_capability.as_slice()))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::ControllerPublishVolume, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capability);
        let answer = self.call(&[&request.volume_id], &scrub, &request).await?;
        sizes::tell_of_answer(
            Rpc::ControllerPublishVolume,
            sizes::map("publish_context", &answer.publish_context),
        );
        Ok(answer)
    }

    /// ControllerUnpublishVolume (needs PUBLISH_UNPUBLISH_VOLUME). A volume that is not published there is success. Unlike
    /// CSI's, it never means "from every node": the node id is required here.
    pub async fn controller_unpublish_volume(
        &self,
        call: FollowUp<wire::ControllerUnpublishVolumeRequest>,
    ) -> Result<(), CallError> {
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::node_id(&request.node_id))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::ControllerUnpublishVolume, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, &earlier_flags);
        self.call(&[&request.volume_id], &scrub, &request).await.map(drop)
    }

    /// ControllerExpandVolume (needs EXPAND_VOLUME of the Controller service). A volume that has the size is success.
    pub async fn controller_expand_volume(
        &self,
        request: wire::ControllerExpandVolumeRequest,
    ) -> Result<wire::ControllerExpandVolumeResponse, CallError> {
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::capabilities(request.volume_capability.as_slice()))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::ControllerExpandVolume, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capability);
        self.call(&[&request.volume_id], &scrub, &request).await
    }

    /// ControllerModifyVolume (needs MODIFY_VOLUME). A volume that is as asked for is success.
    pub async fn controller_modify_volume(
        &self,
        request: wire::ControllerModifyVolumeRequest,
    ) -> Result<(), CallError> {
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::map("mutable_parameters", &request.mutable_parameters))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(Rpc::ControllerModifyVolume, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, []);
        self.call(&[&request.volume_id], &scrub, &request).await.map(drop)
    }

    /// GetCapacity (needs GET_CAPACITY).
    ///
    /// Fails with `Origin::Reply` if the answer has a size of less than nothing.
    pub async fn get_capacity(
        &self,
        request: wire::GetCapacityRequest,
    ) -> Result<wire::GetCapacityResponse, CallError> {
        sizes::map("parameters", &request.parameters)
            .and_then(|()| request.volume_capabilities.iter().try_for_each(sizes::capability))
            .map_err(|error| CallError::argument(Rpc::GetCapacity, &error))?;
        let answer = self.ask(&request).await?;
        if answer.available_capacity < 0 || answer.maximum_volume_size.is_some_and(|size| size < 0) {
            return Err(CallError::reply(Rpc::GetCapacity, "a size is negative"));
        }
        Ok(answer)
    }
}

fn shown(mut condition: wire::VolumeCondition) -> wire::VolumeCondition {
    condition.message = Scrub::nothing().clean(&condition.message);
    condition
}

fn created(answer: wire::CreateVolumeResponse) -> Result<wire::Volume, String> {
    let volume = answer.volume.ok_or("volume is absent")?;
    sizes::id("volume_id", &volume.volume_id).map_err(|error| error.to_string())?;
    sizes::tell_of_answer(Rpc::CreateVolume, sizes::text("volume_id", &volume.volume_id));
    sizes::tell_of_answer(Rpc::CreateVolume, sizes::map("volume_context", &volume.volume_context));
    Ok(volume)
}
