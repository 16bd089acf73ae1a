//! How long processes of drivers have been proven dead, or without their Controller service, while their agents live (rule R2).
//!
//! A driver's controller may leave a node for good, as a Deployment's Pod does that is scheduled elsewhere, or be started
//! anew without its Controller service. Most that end are back in a moment: one that stays away is relieved (`relief`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::instance::Service;
use crate::api::plugin::Roles;
use crate::api::{Plugin, PluginInstance, PluginInstanceStatus};

/// Since when something is gone of instances, by UID of the PluginInstance, on this process's own clock.
#[derive(Debug)]
pub(crate) struct GoneObserver {
    is_gone: fn(&PluginInstance) -> bool,
    since: Mutex<HashMap<String, Instant>>,
}

impl GoneObserver {
    /// Their Controller service.
    pub(crate) fn of_controllers() -> Self {
        Self { is_gone: has_no_controller, since: Mutex::default() }
    }

    /// All of their processes, or who could speak of them.
    pub(crate) fn of_drivers() -> Self {
        let is_gone =
            |instance: &PluginInstance| instance.status.as_ref().is_some_and(PluginInstanceStatus::has_left);
        Self { is_gone, since: Mutex::default() }
    }

    /// Takes in a PluginInstance. Fits [`crate::k8s::Cache::on_change`].
    pub(crate) fn changed(&self, before: Option<&Arc<PluginInstance>>, after: Option<&Arc<PluginInstance>>) {
        match (after, before) {
            (Some(instance), _) => self.observe(instance),
            (None, Some(gone)) => {
                self.since.lock().remove(uid(gone));
            }
            (None, None) => {}
        }
    }

    /// Takes in a PluginInstance.
    pub(crate) fn observe(&self, instance: &PluginInstance) {
        let mut since = self.since.lock();
        if (self.is_gone)(instance) {
            since.entry(uid(instance).to_owned()).or_insert_with(Instant::now);
        } else {
            since.remove(uid(instance));
        }
    }

    /// Their Controller service, or that it is well.
    pub(crate) fn of_healthy_controllers() -> Self {
        let is_ill = |instance: &PluginInstance| {
            let serves = |status: &PluginInstanceStatus| {
                status.controller && status.is_healthy_for(Service::Controller)
            };
            !instance.status.as_ref().is_some_and(serves)
        };
        Self { is_gone: is_ill, since: Mutex::default() }
    }

    /// For how long it has been gone of this instance, as far as was seen.
    pub(crate) fn gone_for(&self, instance: &PluginInstance) -> Option<Duration> {
        self.since.lock().get(uid(instance)).filter(|_| (self.is_gone)(instance)).map(Instant::elapsed)
    }

    /// For how long an instance has made no call that it was given, as far as this process has seen.
    ///
    /// Where `spec.roles` is Node, that there is no Controller service is the Plugin's word and not the driver's. Its agent
    /// goes on with the calls that it was given, and of two processes says nothing of the one that serves them.
    pub(crate) fn left_for(&self, instance: &PluginInstance, plugin: Option<&Plugin>) -> Option<Duration> {
        let left_out = plugin.is_some_and(|plugin| plugin.spec.roles == Roles::Node);
        self.gone_for(instance).filter(|_| !left_out)
    }

    /// Begins to count anew for an instance that is gone, because what it said before was not its driver's word.
    pub(crate) fn restart(&self, instance: &PluginInstance) {
        if let Some(since) = self.since.lock().get_mut(uid(instance)) {
            *since = Instant::now();
        }
    }
}

fn has_no_controller(instance: &PluginInstance) -> bool {
    let gone =
        |status: &PluginInstanceStatus| status.is_gone_for(Service::Controller) || status.has_no_controller();
    instance.status.as_ref().is_some_and(gone)
}

fn uid(instance: &PluginInstance) -> &str {
    instance.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::instance::{PluginInstanceSpec, ServiceStatus};
    use crate::api::plugin::PluginSpec;

    fn instance(uid: &str, gone: bool) -> Arc<PluginInstance> {
        let mut instance = PluginInstance::new(uid, PluginInstanceSpec::default());
        instance.metadata.uid = Some(uid.into());
        instance.status = Some(PluginInstanceStatus { gone, ..PluginInstanceStatus::default() });
        Arc::new(instance)
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_while_it_is_gone_without_a_break() {
        let observer = GoneObserver::of_controllers();
        let (there, gone) = (instance("a", false), instance("a", true));
        let second = Duration::from_secs(1);
        observer.changed(None, Some(&there));
        assert_eq!(observer.gone_for(&there), None);
        observer.changed(Some(&there), Some(&gone));
        tokio::time::advance(second).await;
        observer.changed(Some(&gone), Some(&gone));
        tokio::time::advance(second).await;
        assert_eq!(observer.gone_for(&gone), Some(2 * second));
        assert_eq!(observer.gone_for(&instance("b", true)), None, "never seen");
        observer.changed(Some(&gone), Some(&there));
        observer.changed(Some(&there), Some(&gone));
        assert_eq!(observer.gone_for(&gone), Some(Duration::ZERO));
        observer.changed(Some(&gone), None);
        assert_eq!(observer.gone_for(&gone), None);
    }

    /// Its driver was started anew without it: no call is made there any more, and somebody has to make them.
    #[test]
    fn a_driver_that_says_that_it_has_no_controller_service_has_left() {
        let observer = GoneObserver::of_controllers();
        let left = |change: fn(&mut PluginInstanceStatus)| {
            let mut instance = PluginInstance::clone(&instance("a", false));
            let status = instance.status.as_mut().unwrap();
            (status.healthy, status.node) = (true, true);
            change(status);
            observer.observe(&instance);
            observer.gone_for(&instance).is_some()
        };
        assert!(left(|_| {}));
        assert!(left(|status| status.healthy = false), "what it has said still holds");
        assert!(left(|status| status.node = false), "nor a Node service");
        assert!(!left(|status| status.controller = true));
        let has = |status: &mut PluginInstanceStatus| status.capabilities.controller.push("CREATE".into());
        assert!(!left(has), "it has the service, and the Plugin does not want it used there");
        assert!(!left(|status| (status.healthy, status.node) = (false, false)), "it was not asked yet");
    }

    /// Of two processes the agent then reports the node's alone, as one without a Controller service.
    #[tokio::test(start_paused = true)]
    async fn a_controller_service_that_the_plugin_leaves_out_has_not_left() {
        let observer = GoneObserver::of_controllers();
        let mut of_node = PluginInstance::clone(&instance("a", false));
        let status = of_node.status.as_mut().unwrap();
        (status.healthy, status.node) = (true, true);
        observer.observe(&of_node);
        let second = Duration::from_secs(1);
        tokio::time::advance(3 * second).await;
        let left = |roles| {
            let plugin = Plugin::new("p", PluginSpec { roles, ..PluginSpec::default() });
            observer.left_for(&of_node, Some(&plugin))
        };
        assert!(left(Roles::All) > Some(2 * second), "its driver says so");
        assert_eq!(left(Roles::Node), None, "its Plugin does");
        // The Plugin wants it used again, and the agent has yet to say that it is there.
        observer.restart(&of_node);
        assert!(left(Roles::All) < Some(second));
        tokio::time::advance(3 * second).await;
        assert!(left(Roles::All) > Some(2 * second));
        observer.restart(&instance("b", false));
        assert_eq!(observer.gone_for(&instance("b", true)), None, "it was never gone");
    }

    #[test]
    fn of_two_processes_that_of_the_controller_service_counts() {
        let row =
            |service, gone: bool| ServiceStatus { service, socket_path: "s".into(), healthy: !gone, gone };
        for (controller, node) in [(true, false), (false, true)] {
            let mut apart = PluginInstance::clone(&instance("a", false));
            let status = apart.status.as_mut().unwrap();
            (status.controller, status.node) = (true, true);
            status.services = vec![row(Service::Controller, controller), row(Service::Node, node)];
            let observer = GoneObserver::of_controllers();
            observer.observe(&apart);
            assert_eq!(observer.gone_for(&apart).is_some(), controller);
        }
    }
}
