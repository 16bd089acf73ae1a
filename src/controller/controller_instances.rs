//! Observe: which controller instances could make a Volume's calls, and which of those that were given them are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::instances::Instances;
use super::known::Known;
use crate::api::PluginInstance;
use crate::api::caller::ControllerRef;
use crate::api::instance::{PluginInstanceStatus, Service};
use crate::api::names::agent_lease_name;
use crate::volume::InstanceSeen;

/// The controller instances that a decision about a Volume has to know: of `controlling` those that could be chosen, and
/// of `named` those that have been given its calls. If it is not `served` one has to be chosen, and with a dead
/// one among those that are named an heir.
pub(crate) fn controllers(
    known: &Known,
    instances: &Instances,
    controlling: &[Arc<PluginInstance>],
    named: &[&ControllerRef],
    served: bool,
) -> Vec<InstanceSeen> {
    let controls = |name: &str| controlling.iter().find(|i| i.metadata.name.as_deref() == Some(name));
    let once: BTreeMap<&str, &ControllerRef> = named.iter().map(|at| (&*at.instance, *at)).collect();
    let own: Vec<_> = once.keys().filter_map(|name| Some(selected(known, controls(name)?))).collect();
    // An instance goes with its Node, was made anew without its Controller service or is not selected any more, and the
    // calls that it owned must not wait for it for ever.
    let gone = once.values().filter(|at| controls(&at.instance).is_none());
    let ghosts: Vec<_> = gone
        .map(|at| not_selected(known, &at.instance, &at.agent, instances.named(&at.instance).map(|i| &**i)))
        .collect();
    let is_dead = |at: &&ControllerRef| own.iter().any(|i| i.name == at.instance && i.is_dead_for(at));
    let none_is_chosen = served && !own.is_empty() && ghosts.is_empty() && !named.iter().any(is_dead);
    let all = if none_is_chosen { own } else { controlling.iter().map(|i| selected(known, i)).collect() };
    all.into_iter().chain(ghosts).collect()
}

/// An instance that may be given new work.
fn selected(known: &Known, instance: &PluginInstance) -> InstanceSeen {
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    let seen = not_selected(known, name, &instance.spec.agent, Some(instance));
    let topology = instance.status.as_ref().map(|status| status.topology.clone());
    InstanceSeen { healthy: seen.serving, topology: topology.unwrap_or_default(), ..seen }
}

/// An instance that is given no new work, and may be known only from the objects that name it.
fn not_selected(known: &Known, name: &str, agent: &str, instance: Option<&PluginInstance>) -> InstanceSeen {
    let silent = match instance {
        Some(instance) => known.silent_for(instance),
        None => known.leases.expired_for(&agent_lease_name(agent)),
    };
    let serves = |status: &PluginInstanceStatus| {
        status.controller && status.is_healthy_for(Service::Controller) && silent.is_none()
    };
    InstanceSeen {
        name: name.to_owned(),
        agent: agent.to_owned(),
        healthy: false,
        serving: instance.and_then(|i| i.status.as_ref()).is_some_and(serves),
        silent: silent.is_some(),
        dead: known.looks_dead(agent, silent),
        tenure: instance.map_or(0, |i| i.spec.tenure),
        relieved: instance.map_or(0, PluginInstance::relieved),
        topology: BTreeMap::new(),
    }
}
