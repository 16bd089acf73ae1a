//! The Identity service: who the plugin is, what it has, whether it is ready.

use super::capability::PluginCapabilities;
use super::channel::{ANSWER_LIMIT, Plugin};
use super::error::CallError;
use super::proto::csi::v1::identity_client::IdentityClient;
use super::proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, GetPluginInfoResponse, ProbeRequest,
};
use super::redact::{self, Scrub};
use super::rpc::Rpc;
use super::sizes;

impl Plugin {
    fn identity(&self) -> IdentityClient<tonic::transport::Channel> {
        IdentityClient::new(self.channel()).max_decoding_message_size(ANSWER_LIMIT)
    }

    /// GetPluginInfo.
    ///
    /// Fails with `Origin::Reply` if the name is no plugin name. The version is of at most [`sizes::STRING_LIMIT`] bytes, and
    /// empty if the driver does not say, though it should.
    pub async fn get_plugin_info(&self) -> Result<GetPluginInfoResponse, CallError> {
        const RPC: Rpc = Rpc::GetPluginInfo;
        let mut answer = self
            .call(RPC, "", &Scrub::nothing(), GetPluginInfoRequest {}, |request| async move {
                self.identity().get_plugin_info(request).await
            })
            .await?;
        sizes::plugin_name(&answer.name).map_err(|error| CallError::reply(RPC, error.to_string()))?;
        // Longer than CSI allows is cut: a status with it would be refused, and with it all that the status says.
        let version = &mut answer.vendor_version;
        *version = Scrub::nothing().clean(version);
        redact::cut(version, sizes::STRING_LIMIT);
        Ok(answer)
    }

    /// GetPluginCapabilities. Unknown ones are left out.
    pub async fn get_plugin_capabilities(&self) -> Result<PluginCapabilities, CallError> {
        let answer = self
            .call(
                Rpc::GetPluginCapabilities,
                "",
                &Scrub::nothing(),
                GetPluginCapabilitiesRequest {},
                |request| async move { self.identity().get_plugin_capabilities(request).await },
            )
            .await?;
        Ok(PluginCapabilities::from_wire(&answer.capabilities))
    }

    /// Probe: true if the plugin is ready, false if it still starts. No `ready` in the answer means ready.
    pub async fn probe(&self) -> Result<bool, CallError> {
        let answer = self
            .call(Rpc::Probe, "", &Scrub::nothing(), ProbeRequest {}, |request| async move {
                self.identity().probe(request).await
            })
            .await?;
        Ok(answer.ready.unwrap_or(true))
    }
}
