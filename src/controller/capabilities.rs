//! What the drivers behind a Volume's instances have said that they can do, as far as an Attachment has to know it.

use super::instances::Instances;
use crate::api::instance::{Capabilities, PluginInstanceStatus, Service};
use crate::api::plugin::Roles;
use crate::api::{Plugin, PluginInstance, VolumeHandle};

/// The capability of a driver that attaches read-only where it is asked to.
pub(crate) const PUBLISH_READONLY: &str = "PUBLISH_READONLY";

/// Why no Attachment can be made yet: something that it would have to copy is not known, and whether the driver
/// attaches is not to be guessed (trap B20).
pub(crate) fn unprepared(
    plugin_name: &str,
    plugin: Option<&Plugin>,
    handle: Option<&VolumeHandle>,
    instances: &Instances,
) -> Option<String> {
    let Some(plugin) = plugin else {
        return Some(format!(
            "Plugin {plugin_name} does not exist, and without it nothing is attached; create it again"
        ));
    };
    let never = |said: &Capabilities| !said.controller.is_empty() && !said.attaches();
    let never_attaches = plugin.status.as_ref().is_some_and(|status| never(&status.capabilities));
    let handle = handle?;
    let is_awaited =
        plugin.spec.controller.is_some() && !never_attaches && instances.serving().next().is_none();
    if handle.spec.controller.is_none() && is_awaited {
        return Some(format!(
            "no Pod of spec.controller of Plugin {plugin_name} serves the Controller service yet, and before one does it is not \
             known whether the volume has to be attached; see its condition Deployed"
        ));
    }
    let controller = handle.spec.controller.as_ref()?;
    let instance = instances.named(&controller.instance);
    let known = instance.and_then(|i| capabilities_of(i));
    // Of two processes nothing is said of the one that is left out, which is not to be taken for one that does not attach.
    let attaches = |c: &Capabilities| c.controller.is_empty() || c.attaches();
    if plugin.spec.roles == Roles::Node && known.is_none_or(attaches) {
        return Some(format!(
            "spec.roles of Plugin {plugin_name} is Node, which leaves out the Controller service that the volume is \
             attached by; set it to All, or delete this claim"
        ));
    }
    known.is_none().then(|| {
        let (name, node) = (&controller.instance, &controller.agent);
        if instance.and_then(|i| i.status.as_ref()).is_some_and(PluginInstanceStatus::has_no_controller) {
            return format!(
                "PluginInstance {name} on node {node}, which makes the volume's controller calls, runs its driver without \
                 the Controller service; start it there with that service, or have it run on another node, to which the \
                 calls then move"
            );
        }
        format!(
            "PluginInstance {name} on node {node} has not said what its driver can do; see `kubectl get plugininstances`"
        )
    })
}

/// Whether Attachments that only read are made so: as the instance of the handle's calls has said, which is also what they
/// copy. What it said once still holds, whoever is healthy; what it has not said yet may be so.
pub(crate) fn attaches_read_only(handle: Option<&VolumeHandle>, instances: &Instances) -> bool {
    let Some(controller) = handle.and_then(|h| h.spec.controller.as_ref()) else { return false };
    let said = instances.named(&controller.instance).and_then(|i| capabilities_of(i));
    said.is_none_or(|capabilities| capabilities.controller_has(PUBLISH_READONLY))
}

/// What the driver behind a controller instance can do, once it has said so. Of one that was started anew without its
/// Controller service nothing is said: that it names no capability of the service does not mean that it attaches nothing.
pub(crate) fn capabilities_of(instance: &PluginInstance) -> Option<&Capabilities> {
    let said = |status: &&PluginInstanceStatus| {
        !status.capabilities.controller.is_empty()
            || (status.is_healthy_for(Service::Controller) && !status.has_no_controller())
    };
    instance.status.as_ref().filter(said).map(|status| &status.capabilities)
}

#[cfg(test)]
#[path = "capabilities_tests.rs"]
mod tests;
