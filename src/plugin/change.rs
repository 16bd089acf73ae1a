//! Which decisions a change of a PluginInstance can change. Most changes are of a version, a message or a time, and
//! change none.

use crate::api::instance::{Capabilities, Service};
use crate::api::{PluginInstance, PluginInstanceSpec, PluginInstanceStatus};

/// Which decisions a change of a PluginInstance can change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// About claims for its node, and what is attached there.
    pub node: bool,
    /// About Volumes whose calls it makes, and those that wait for whoever can make theirs.
    pub controller: bool,
    /// About Volumes whose calls nobody makes: there is one now that attaches.
    pub attaches: bool,
    /// About other nodes of the driver too: it has come or gone, or the driver calls its node by another id, which can be
    /// theirs.
    pub place: bool,
    /// Decisions about what waits: whoever does not wait is not concerned.
    pub other: bool,
}

impl Change {
    /// The agent of the instance fell silent, or was heard again: all that is believed of the instance is judged
    /// anew.
    pub const HEARD: Self = Self { node: true, controller: true, attaches: false, place: false, other: true };

    /// The Node of the instance came, went, became another or was marked as off or on: then it also no longer is, or
    /// is again, one of two that a driver knows by the same id.
    pub const STANDING: Self = Self { place: true, ..Self::HEARD };

    /// What is different between two states of an instance. One of them may not be there.
    #[must_use]
    pub fn between(before: Option<&PluginInstance>, after: Option<&PluginInstance>) -> Self {
        let attaches = |i: Option<&PluginInstance>| {
            let status = i.and_then(|i| i.status.as_ref());
            status.is_some_and(|s| s.controller && s.capabilities.attaches())
        };
        Self {
            node: before.map(of_node) != after.map(of_node),
            controller: before.map(of_controller) != after.map(of_controller),
            attaches: attaches(after) && !attaches(before),
            place: before.map(of_place) != after.map(of_place),
            other: before.map(of_the_rest) != after.map(of_the_rest),
        }
    }

    /// Whether the change concerns no decision.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

fn of_node(instance: &PluginInstance) -> impl PartialEq + use<'_> {
    instance.status.as_ref().map(|s| {
        let health = (s.node, s.is_healthy_for(Service::Node), s.is_gone_for(Service::Node));
        let Capabilities { node, .. } = &s.capabilities;
        (health, s.max_volumes, &s.topology, &s.boot_id, node)
    })
}

fn of_controller(instance: &PluginInstance) -> impl PartialEq + use<'_> {
    instance.status.as_ref().map(|s| {
        let health =
            (s.controller, s.is_healthy_for(Service::Controller), s.is_gone_for(Service::Controller));
        let Capabilities { plugin, controller, group_controller, .. } = &s.capabilities;
        (health, &s.topology, plugin, controller, group_controller, s.tenure)
    })
}

fn of_place(instance: &PluginInstance) -> impl PartialEq + use<'_> {
    let meta = &instance.metadata;
    let node_id = instance.status.as_ref().map(|s| (&s.node_id, s.node));
    // What it is asked about its room concerns nobody else, nor does that it is relieved before it has answered.
    let PluginInstanceSpec {
        plugin_name,
        driver_name,
        node_name,
        node_uid,
        agent,
        socket_path,
        capacity_requests: _,
        tenure: _,
    } = &instance.spec;
    let spec = (plugin_name, driver_name, node_name, node_uid, agent, socket_path);
    (&meta.uid, spec, meta.deletion_timestamp.is_some(), node_id)
}

fn of_the_rest(instance: &PluginInstance) -> impl PartialEq + use<'_> {
    instance
        .status
        .as_ref()
        .map(|s: &PluginInstanceStatus| (s.is_healthy_for_any(), &s.forgotten, &s.forgotten_handles))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::instance::{Capacity, CapacityRequest, ForgottenMount};

    fn instance() -> PluginInstance {
        let mut instance = PluginInstance::new("i", PluginInstanceSpec::default());
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        instance.status = Some(PluginInstanceStatus {
            healthy: true,
            controller: true,
            node: true,
            node_id: "n".into(),
            capabilities: Capabilities {
                controller: names(&["PUBLISH_UNPUBLISH_VOLUME"]),
                ..Capabilities::default()
            },
            ..PluginInstanceStatus::default()
        });
        instance
    }

    fn change(edit: impl Fn(&mut PluginInstanceStatus)) -> Change {
        let (before, mut after) = (instance(), instance());
        edit(after.status.as_mut().unwrap());
        Change::between(Some(&before), Some(&after))
    }

    #[test]
    fn a_new_version_and_new_words_decide_nothing() {
        let said = change(|s| {
            s.version = "2".into();
            s.last_error = Some("once".into());
            s.writer_uid = "other".into();
            s.observed_generation = Some(2);
        });
        assert!(said.is_nothing());
    }

    #[test]
    fn what_it_is_asked_about_its_room_and_what_it_answers_decides_nothing_else() {
        let said = change(|s| {
            s.capacities.insert("csisc-1".into(), Capacity::default());
        });
        assert!(said.is_nothing());
        let mut asked = instance();
        asked.spec.capacity_requests.insert("csisc-1".into(), CapacityRequest::default());
        assert!(Change::between(Some(&instance()), Some(&asked)).is_nothing());
    }

    #[test]
    fn what_decides_is_told_from_each_other() {
        let none = Change::default();
        let both = Change { node: true, controller: true, other: true, ..none };
        assert_eq!(change(|s| s.healthy = false), both);
        assert_eq!(change(|s| s.max_volumes = 3), Change { node: true, ..none });
        assert_eq!(change(|s| s.boot_id = "b".into()), Change { node: true, ..none });
        assert_eq!(change(|s| s.node_id = "m".into()), Change { place: true, ..none });
        assert_eq!(change(|s| s.forgotten.push(ForgottenMount::default())), Change { other: true, ..none });
        let grown = change(|s| s.capabilities.controller.push("CLONE_VOLUME".into()));
        assert_eq!(grown, Change { controller: true, ..none });
    }

    #[test]
    fn one_that_comes_or_goes_decides_everything() {
        let come = Change::between(None, Some(&instance()));
        assert_eq!(come, Change { node: true, controller: true, attaches: true, place: true, other: true });
        assert_eq!(Change::between(Some(&instance()), None), Change { attaches: false, ..come });
    }
}
