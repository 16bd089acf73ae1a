//! The Identity service, and what the other two say about themselves.

use moor::csi::proto::csi::v1 as wire;
use moor::csi::proto::csi::v1::identity_server::Identity;
use tonic::{Request, Response, Status};

use super::backend::{Backend, Expand};
use super::{DRIVER, Place};

type Answer<A> = Result<Response<A>, Status>;

#[tonic::async_trait]
impl Identity for Place {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Answer<wire::GetPluginInfoResponse> {
        Ok(Response::new(wire::GetPluginInfoResponse {
            name: DRIVER.to_owned(),
            vendor_version: "1.0.0".to_owned(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Answer<wire::GetPluginCapabilitiesResponse> {
        use wire::plugin_capability::{Service, Type, service};
        let service = Service { r#type: service::Type::ControllerService.into() };
        let capability = wire::PluginCapability { r#type: Some(Type::Service(service)) };
        let places = Service { r#type: service::Type::VolumeAccessibilityConstraints.into() };
        let places = wire::PluginCapability { r#type: Some(Type::Service(places)) };
        let places = self.fake.backend().topology.then_some(places);
        let has_controller = self.controller || self.fake.backend().says_controller;
        let unused = (self.fake.backend().expand == Expand::OnNodesUnused).then(|| {
            use wire::plugin_capability::{VolumeExpansion, volume_expansion};
            let offline = VolumeExpansion { r#type: volume_expansion::Type::Offline.into() };
            wire::PluginCapability { r#type: Some(Type::VolumeExpansion(offline)) }
        });
        let groups = Service { r#type: service::Type::GroupControllerService.into() };
        let groups = wire::PluginCapability { r#type: Some(Type::Service(groups)) };
        let groups = (has_controller && self.fake.backend().groups_snapshots).then_some(groups);
        let capability = has_controller.then_some(capability);
        let capabilities = capability.into_iter().chain(groups).chain(places).chain(unused).collect();
        Ok(Response::new(wire::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Answer<wire::ProbeResponse> {
        let hangs = self.fake.0.held.borrow().contains(&(self.node.clone(), moor::csi::Rpc::Probe));
        Ok(Response::new(wire::ProbeResponse { ready: hangs.then_some(false) }))
    }
}

pub(super) fn controller_capabilities(
    backend: &Backend,
    node: &str,
) -> wire::ControllerGetCapabilitiesResponse {
    use wire::controller_service_capability::{Rpc, Type, rpc};
    let mut offered = vec![rpc::Type::CreateDeleteVolume, rpc::Type::SingleNodeMultiWriter];
    if matches!(backend.expand, Expand::ByController | Expand::AndNodes | Expand::Unused) {
        offered.push(rpc::Type::ExpandVolume);
    }
    if backend.modify {
        offered.push(rpc::Type::ModifyVolume);
    }
    if backend.capacity && !backend.incapable.contains(node) {
        offered.push(rpc::Type::GetCapacity);
    }
    if backend.keeps {
        offered.extend([rpc::Type::CreateDeleteSnapshot, rpc::Type::ListSnapshots]);
    }
    if backend.conditions {
        offered.extend([rpc::Type::VolumeCondition, rpc::Type::GetVolume]);
    }
    if backend.clones {
        offered.push(rpc::Type::CloneVolume);
    }
    if backend.attach {
        offered.extend([
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ListVolumes,
            rpc::Type::ListVolumesPublishedNodes,
        ]);
    }
    let capability = |offered: rpc::Type| wire::ControllerServiceCapability {
        r#type: Some(Type::Rpc(Rpc { r#type: offered.into() })),
    };
    wire::ControllerGetCapabilitiesResponse { capabilities: offered.into_iter().map(capability).collect() }
}

pub(super) fn group_controller_capabilities(
    backend: &Backend,
) -> wire::GroupControllerGetCapabilitiesResponse {
    use wire::group_controller_service_capability::{Rpc, Type, rpc};
    let groups = Rpc { r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into() };
    let groups = wire::GroupControllerServiceCapability { r#type: Some(Type::Rpc(groups)) };
    let capabilities = backend.groups_snapshots.then_some(groups).into_iter().collect();
    wire::GroupControllerGetCapabilitiesResponse { capabilities }
}

pub(super) fn node_capabilities(backend: &Backend) -> wire::NodeGetCapabilitiesResponse {
    use wire::node_service_capability::{Rpc, Type, rpc};
    let offered = [rpc::Type::StageUnstageVolume, rpc::Type::SingleNodeMultiWriter];
    let on_nodes = matches!(backend.expand, Expand::AndNodes | Expand::OnNodes | Expand::OnNodesUnused);
    let grows = on_nodes.then_some(rpc::Type::ExpandVolume);
    let offered = offered.into_iter().chain(grows).chain(backend.can.iter().copied());
    let capability = |offered: rpc::Type| wire::NodeServiceCapability {
        r#type: Some(Type::Rpc(Rpc { r#type: offered.into() })),
    };
    wire::NodeGetCapabilitiesResponse { capabilities: offered.map(capability).collect() }
}
