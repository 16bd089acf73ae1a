//! The Identity service: who the plugin is, what it has, whether it is ready.

use super::capability::PluginCapabilities;
use super::channel::Plugin;
use super::error::CallError;
use super::proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, GetPluginInfoResponse, ProbeRequest,
};
use super::redact::{self, Scrub};
use super::rpc::Rpc;
use super::sizes;

impl Plugin {
    /// GetPluginInfo.
    ///
    /// Fails with `Origin::Reply` if the name is no plugin name. The version is of at most [`sizes::STRING_LIMIT`] bytes, and
    /// empty if the driver does not say, though it should.
    pub async fn get_plugin_info(&self) -> Result<GetPluginInfoResponse, CallError> {
        let mut answer = self.ask(&GetPluginInfoRequest {}).await?;
        sizes::plugin_name(&answer.name)
            .map_err(|error| CallError::reply(Rpc::GetPluginInfo, error.to_string()))?;
        // Longer than CSI allows is cut: a status with it would be refused, and with it all that the status says.
        let version = &mut answer.vendor_version;
        *version = Scrub::nothing().clean(version);
        redact::cut(version, sizes::STRING_LIMIT);
        self.is_of(&answer.name);
        Ok(answer)
    }

    /// GetPluginCapabilities. Unknown ones are left out.
    pub async fn get_plugin_capabilities(&self) -> Result<PluginCapabilities, CallError> {
        let answer = self.ask(&GetPluginCapabilitiesRequest {}).await?;
        Ok(PluginCapabilities::from_wire(&answer.capabilities))
    }

    /// Probe: true if the plugin is ready, false if it still starts. No `ready` in the answer means ready.
    pub async fn probe(&self) -> Result<bool, CallError> {
        let answer = self.ask(&ProbeRequest {}).await?;
        Ok(answer.ready.unwrap_or(true))
    }
}
