//! The Controller service: creating and deleting volumes, attaching them to nodes, and questions about them.

use std::collections::BTreeSet;

use super::capability::{ControllerCapability, known};
use super::channel::{ANSWER_LIMIT, Plugin};
use super::error::CallError;
use super::proto::csi::v1 as wire;
use super::proto::csi::v1::controller_client::ControllerClient;
use super::proto::csi::v1::controller_service_capability::Type;
use super::redact::Scrub;
use super::rpc::Rpc;
use super::secrets::FollowUp;
use super::sizes;

impl Plugin {
    pub(super) fn controller(&self) -> ControllerClient<tonic::transport::Channel> {
        ControllerClient::new(self.channel()).max_decoding_message_size(ANSWER_LIMIT)
    }

    /// ControllerGetCapabilities. Unknown ones are left out.
    pub async fn controller_get_capabilities(&self) -> Result<BTreeSet<ControllerCapability>, CallError> {
        let answer = self
            .call(
                Rpc::ControllerGetCapabilities,
                "",
                &Scrub::nothing(),
                wire::ControllerGetCapabilitiesRequest {},
                |request| async move { self.controller().controller_get_capabilities(request).await },
            )
            .await?;
        let kinds = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
        Ok(known(kinds.map(|Type::Rpc(rpc)| rpc.r#type)))
    }

    /// CreateVolume (needs CREATE_DELETE_VOLUME). The same name has to come with the same arguments, always.
    ///
    /// Fails with `Origin::Reply`, outcome unknown, if the answer names no volume. A size of less than nothing is the
    /// caller's to refuse: the volume is made.
    pub async fn create_volume(&self, request: wire::CreateVolumeRequest) -> Result<wire::Volume, CallError> {
        const RPC: Rpc = Rpc::CreateVolume;
        sizes::name("name", &request.name)
            .and_then(|()| sizes::capabilities(&request.volume_capabilities))
            .and_then(|()| sizes::map("parameters", &request.parameters))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capabilities);
        let name = request.name.clone();
        let answer = self
            .call(RPC, &name, &scrub, request, |request| async move {
                self.controller().create_volume(request).await
            })
            .await?;
        created(answer).map_err(|what| CallError::reply(RPC, what))
    }

    /// DeleteVolume (needs CREATE_DELETE_VOLUME). A volume that the driver does not know is success.
    pub async fn delete_volume(&self, call: FollowUp<wire::DeleteVolumeRequest>) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::DeleteVolume;
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, &earlier_flags);
        let id = request.volume_id.clone();
        self.call(RPC, &id, &scrub, request, |request| async move {
            self.controller().delete_volume(request).await
        })
        .await?;
        Ok(())
    }

    /// ControllerPublishVolume (needs PUBLISH_UNPUBLISH_VOLUME). Returns the publish context for stage and publish.
    pub async fn controller_publish_volume(
        &self,
        request: wire::ControllerPublishVolumeRequest,
    ) -> Result<wire::ControllerPublishVolumeResponse, CallError> {
        const RPC: Rpc = Rpc::ControllerPublishVolume;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::node_id(&request.node_id))
            .and_then(|()| sizes::capabilities(request.volume_capability.as_slice()))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of(&request.secrets, &request.volume_capability);
        let id = request.volume_id.clone();
        let answer = self
            .call(RPC, &id, &scrub, request, |request| async move {
                self.controller().controller_publish_volume(request).await
            })
            .await?;
        sizes::tell_of_answer(RPC, sizes::map("publish_context", &answer.publish_context));
        Ok(answer)
    }

    /// ControllerUnpublishVolume (needs PUBLISH_UNPUBLISH_VOLUME). A volume that is not published there is success. Unlike
    /// CSI's, it never means "from every node": the node id is required here.
    pub async fn controller_unpublish_volume(
        &self,
        call: FollowUp<wire::ControllerUnpublishVolumeRequest>,
    ) -> Result<(), CallError> {
        const RPC: Rpc = Rpc::ControllerUnpublishVolume;
        let FollowUp { request, earlier_flags } = call;
        sizes::id("volume_id", &request.volume_id)
            .and_then(|()| sizes::node_id(&request.node_id))
            .and_then(|()| sizes::map("secrets", &request.secrets))
            .map_err(|error| CallError::argument(RPC, &error))?;
        let scrub = Scrub::of_flags(&request.secrets, &earlier_flags);
        let id = request.volume_id.clone();
        self.call(RPC, &id, &scrub, request, |request| async move {
            self.controller().controller_unpublish_volume(request).await
        })
        .await?;
        Ok(())
    }
}

fn created(answer: wire::CreateVolumeResponse) -> Result<wire::Volume, String> {
    let volume = answer.volume.ok_or("volume is absent")?;
    sizes::id("volume_id", &volume.volume_id).map_err(|error| error.to_string())?;
    sizes::tell_of_answer(Rpc::CreateVolume, sizes::text("volume_id", &volume.volume_id));
    sizes::tell_of_answer(Rpc::CreateVolume, sizes::map("volume_context", &volume.volume_context));
    Ok(volume)
}
