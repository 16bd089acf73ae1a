//! The Identity service.

use tonic::{Request, async_trait};

use super::driver::{Answer, Service, check_machine};
use crate::csi::proto::csi::v1::identity_server::Identity;
use crate::csi::proto::csi::v1::plugin_capability::service::Type as ServiceType;
use crate::csi::proto::csi::v1::plugin_capability::volume_expansion::Type as ExpansionType;
use crate::csi::proto::csi::v1::plugin_capability::{Service as ServiceCapability, Type, VolumeExpansion};
use crate::csi::proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

#[async_trait]
impl Identity for Service {
    async fn get_plugin_info(&self, request: Request<GetPluginInfoRequest>) -> Answer<GetPluginInfoResponse> {
        self.call(request, |call, _| {
            let (name, version) =
                (call.driver.args.driver_name.clone(), env!("CARGO_PKG_VERSION").to_owned());
            Ok(GetPluginInfoResponse { name, vendor_version: version, ..GetPluginInfoResponse::default() })
        })
        .await
    }

    /// Says what the driver as a whole offers, as drivers in two parts do: a node's process names the Controller service
    /// too, though it only serves the capabilities of that one.
    async fn get_plugin_capabilities(
        &self,
        request: Request<GetPluginCapabilitiesRequest>,
    ) -> Answer<GetPluginCapabilitiesResponse> {
        self.call(request, |call, _| {
            let constrained =
                (!call.driver.args.shared).then_some(ServiceType::VolumeAccessibilityConstraints);
            let services = [ServiceType::ControllerService, ServiceType::GroupControllerService]
                .into_iter()
                .chain(constrained);
            let services =
                services.map(|service| Type::Service(ServiceCapability { r#type: service.into() }));
            let expansion = Type::VolumeExpansion(VolumeExpansion { r#type: ExpansionType::Online.into() });
            let capability = |r#type| PluginCapability { r#type: Some(r#type) };
            let capabilities = services.chain([expansion]).map(capability).collect();
            Ok(GetPluginCapabilitiesResponse { capabilities })
        })
        .await
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Answer<ProbeResponse> {
        self.call(request, |_, _| check_machine().map(|()| ProbeResponse { ready: Some(true) })).await
    }
}
