//! The driver that a Volume's call is for.

use crate::agent::context::Agent;
use crate::api::Volume;
use crate::api::caller::ControllerRef;
use crate::api::names::{DriverOn, instance_name};

/// The driver behind the assigned instance. Its name is a hash of the driver's, so this also works when the Plugin is
/// gone (rule R9).
pub(super) fn driver(agent: &Agent, volume: &Volume) -> String {
    let assigned = volume.caller().cloned().unwrap_or_default();
    let plugin = agent.caches.plugins.get(&volume.spec.plugin_name).map(|p| p.driver_name().to_owned());
    driver_of(&assigned, agent.registry.drivers().into_iter().chain(plugin))
}

/// The one of the known drivers that the assigned instance is of. If it is none of them, its Plugin was made anew for
/// another driver, and that one is asked for nothing: no driver has the name of an instance, so the call fails and
/// says so.
fn driver_of(assigned: &ControllerRef, known: impl Iterator<Item = String>) -> String {
    let mut known =
        known.filter(|driver| instance_name(DriverOn { driver, node: &assigned.agent }) == assigned.instance);
    known.next().unwrap_or_else(|| assigned.instance.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would delete what has the same id there, and is somebody else's.
    #[test]
    fn another_driver_than_the_assigned_instance_has_is_not_asked() {
        let known = || ["d1", "d2"].map(str::to_owned).into_iter();
        let instance = instance_name(DriverOn { driver: "d1", node: "node-1" });
        let assigned = ControllerRef::new(&*instance, "node-1", 0);
        assert_eq!(driver_of(&assigned, known()), "d1");
        assert_eq!(driver_of(&assigned, known().skip(1)), instance);
    }
}
