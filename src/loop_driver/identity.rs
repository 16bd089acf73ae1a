//! The Identity service.

use tonic::{Request, Response, Status, async_trait};

use super::calls::Facts;
use super::driver::{Service, check_machine};
use crate::csi::proto::csi::v1::identity_server::Identity;
use crate::csi::proto::csi::v1::plugin_capability::service::Type as ServiceType;
use crate::csi::proto::csi::v1::plugin_capability::{Service as ServiceCapability, Type};
use crate::csi::proto::csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

#[async_trait]
impl Identity for Service {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        self.call(Facts::about("GetPluginInfo", ""), |call| {
            Ok(GetPluginInfoResponse {
                name: call.driver.name.clone(),
                vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
                ..GetPluginInfoResponse::default()
            })
        })
        .await
    }

    /// What the driver as a whole offers, as drivers in two parts do: a node's process names the Controller service too,
    /// though it only serves the capabilities of it.
    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        self.call(Facts::about("GetPluginCapabilities", ""), |call| {
            let constrained = (!call.driver.shared).then_some(ServiceType::VolumeAccessibilityConstraints);
            let capability = |service: ServiceType| PluginCapability {
                r#type: Some(Type::Service(ServiceCapability { r#type: service.into() })),
            };
            let capabilities =
                [ServiceType::ControllerService].into_iter().chain(constrained).map(capability).collect();
            Ok(GetPluginCapabilitiesResponse { capabilities })
        })
        .await
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        self.call(Facts::about("Probe", ""), |_| {
            check_machine().map(|()| ProbeResponse { ready: Some(true) })
        })
        .await
    }
}
