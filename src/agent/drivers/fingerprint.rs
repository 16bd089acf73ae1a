//! What a plugin process says about itself, read once per connection (after a restart
//! capabilities and node id come before anything else).

use crate::api::instance::Capabilities;
use crate::api::plugin::Roles;
use crate::csi::capability::{
    ControllerCapability, Expansion, GroupCapability, NodeCapability, PluginService, SingleNode,
};
use crate::csi::proto::csi::v1::{GetPluginInfoResponse, NodeGetInfoResponse};
use crate::csi::{CallError, Meaning, Plugin, Service};

/// The answers of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Fingerprint {
    /// GetPluginInfo: the driver's name.
    pub driver: String,
    /// GetPluginInfo: the vendor's version.
    pub version: String,
    /// The services' capabilities by CSI's names.
    pub capabilities: Capabilities,
    /// Whether the process serves the Controller service.
    pub controller: bool,
    /// Whether the process serves the Node service.
    pub node: bool,
    /// Which single-node modes its Controller service takes.
    pub controller_modes: SingleNode,
    /// Whether volumes of the driver are not reachable from everywhere.
    pub topology: bool,
    /// NodeGetInfo.
    pub node_info: Option<NodeGetInfoResponse>,
}

impl Fingerprint {
    /// Asks a process that has said who it is. Nothing that it answers changes anything, so this may be repeated at will.
    pub async fn read(plugin: &Plugin, info: GetPluginInfoResponse) -> Result<Self, CallError> {
        let general = plugin.get_plugin_capabilities().await?;
        // One Identity server may speak for a controller process and a node process: what counts is what answers here.
        let controller_rpcs = if general.services.contains(&PluginService::ControllerService) {
            offered(plugin.controller_get_capabilities().await)?
        } else {
            None
        };
        let controller = controller_rpcs.is_some();
        let groups = if controller && general.services.contains(&PluginService::GroupControllerService) {
            offered(plugin.group_controller_get_capabilities().await)?
        } else {
            None
        };
        let rpcs = controller_rpcs.unwrap_or_default();
        let node_rpcs = offered(plugin.node_get_capabilities().await)?;
        let node_info = match node_rpcs {
            Some(_) => offered(plugin.node_get_info().await)?,
            None => None,
        };
        let names = |names: &mut dyn Iterator<Item = &'static str>| names.map(str::to_owned).collect();
        let expansion = general.expansion.iter().map(|when| match when {
            Expansion::Online => "VOLUME_EXPANSION_ONLINE",
            Expansion::Offline | Expansion::Unknown => "VOLUME_EXPANSION_OFFLINE",
        });
        let services = general.services.iter().map(PluginService::as_str_name);
        Ok(Self {
            driver: info.name,
            version: info.vendor_version,
            capabilities: Capabilities {
                plugin: names(&mut services.chain(expansion)),
                controller: names(&mut rpcs.iter().map(ControllerCapability::as_str_name)),
                group_controller: names(&mut groups.iter().flatten().map(GroupCapability::as_str_name)),
                node: names(&mut node_rpcs.iter().flatten().map(NodeCapability::as_str_name)),
            },
            controller,
            node: node_rpcs.is_some(),
            controller_modes: SingleNode::of(&rpcs),
            topology: general.services.contains(&PluginService::VolumeAccessibilityConstraints),
            node_info,
        })
    }

    /// Whether the process serves this service.
    #[must_use]
    pub fn has(&self, service: Service) -> bool {
        match service {
            Service::Identity => true,
            Service::Controller => self.controller,
            Service::Node => self.node,
        }
    }

    /// Whether the process serves the Controller service and its Plugin wants that used.
    #[must_use]
    pub fn is_controller(&self, roles: Roles) -> bool {
        self.controller && roles != Roles::Node
    }

    /// Whether the process serves the Node service and its Plugin wants that used.
    #[must_use]
    pub fn is_node(&self, roles: Roles) -> bool {
        self.node && roles != Roles::Controller
    }
}

/// The answer of a service, if the socket has that service: one without it answers UNIMPLEMENTED.
fn offered<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.meaning() == Meaning::Unsupported => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;
    use serde_json::json;

    use crate::api::PluginInstance;
    use crate::csi::sizes;

    /// Were they apart, an answer that is taken could still have the whole status refused.
    #[test]
    fn the_bounds_of_an_answer_are_those_of_the_schema() {
        let crd = serde_json::to_value(PluginInstance::crd()).unwrap();
        let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        for (field, bound) in [
            ("topology/maxProperties", sizes::TOPOLOGY_SEGMENTS),
            ("topology/additionalProperties/maxLength", sizes::TOPOLOGY_TEXT),
            ("nodeID/maxLength", sizes::NODE_ID_LIMIT),
            ("version/maxLength", sizes::STRING_LIMIT),
        ] {
            assert_eq!(crd.pointer(&format!("{schema}/{field}")), Some(&json!(bound)), "{field}");
        }
    }
}
