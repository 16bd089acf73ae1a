//! Observe: which controller instances could make a Volume's calls, and which of those that were given them are gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::instances::Instances;
use crate::api::attachment::ControllerRef;
use crate::api::instance::{PluginInstanceStatus, Service};
use crate::api::names::agent_lease_name;
use crate::api::{PluginInstance, Volume, VolumeHandle};
use crate::volume::InstanceSeen;

/// The controller instances that own calls, by the objects that name them.
pub(crate) fn named_controllers<'a>(
    volume: Option<&Volume>,
    handle: Option<&VolumeHandle>,
    of_attachments: impl Iterator<Item = &'a ControllerRef>,
) -> Vec<ControllerRef> {
    let of_volume = volume.and_then(|v| v.spec.assignment.as_ref()).and_then(|a| a.controller.clone());
    let of_handle = handle.and_then(|h| h.spec.controller.clone());
    of_volume.into_iter().chain(of_handle).chain(of_attachments.cloned()).collect()
}

/// Whether an instance makes the calls that it has been given.
fn serves(status: &PluginInstanceStatus, silent: Option<Duration>) -> bool {
    status.controller && status.is_healthy_for(Service::Controller) && silent.is_none()
}

/// The controller instances that a decision about a Volume has to know. Without `is_assigned` one has to be chosen,
/// and with a dead one among those that are named an heir.
pub(crate) fn controllers(
    ctx: &Context,
    instances: &Instances,
    controlling: &[Arc<PluginInstance>],
    named: &[ControllerRef],
    is_assigned: bool,
) -> Vec<InstanceSeen> {
    let instance = |c: &ControllerRef| instances.named(&c.instance);
    let controls = |name: &str| controlling.iter().find(|i| i.metadata.name.as_deref() == Some(name));
    // An instance goes with its Node, was made anew without its Controller service or is not selected any more, and the
    // calls that it owned must not wait for it for ever.
    let gone = named.iter().filter(|c| controls(&c.instance).is_none());
    let mut ghosts: Vec<InstanceSeen> = Vec::new();
    for c in gone {
        if !ghosts.iter().any(|g| g.name == c.instance) {
            let silent = match instance(c) {
                Some(known) => ctx.silent_for(known),
                None => ctx.leases.expired_for(&agent_lease_name(&c.agent)),
            };
            let status = instance(c).and_then(|i| i.status.as_ref());
            ghosts.push(InstanceSeen {
                name: c.instance.clone(),
                agent: c.agent.clone(),
                healthy: false,
                serving: status.is_some_and(|status| serves(status, silent)),
                silent: silent.is_some(),
                dead: ctx.looks_dead(&c.agent, silent) || instance(c).is_some_and(|i| ctx.has_left(i)),
                topology: std::collections::BTreeMap::new(),
            });
        }
    }
    let seen = |i: &Arc<PluginInstance>| {
        let status = i.status.as_ref()?;
        let silent = ctx.silent_for(i);
        Some(InstanceSeen {
            name: i.metadata.name.clone().unwrap_or_default(),
            agent: i.spec.agent.clone(),
            healthy: serves(status, silent),
            serving: serves(status, silent),
            silent: silent.is_some(),
            dead: ctx.looks_dead(&i.spec.agent, silent) || ctx.has_left(i),
            topology: status.topology.clone(),
        })
    };
    let once: BTreeSet<&str> = named.iter().map(|c| c.instance.as_str()).collect();
    let own: Vec<InstanceSeen> = once.iter().filter_map(|name| seen(controls(name)?)).collect();
    let is_served = is_assigned && !own.is_empty() && ghosts.is_empty() && own.iter().all(|i| !i.dead);
    let all = if is_served { own } else { controlling.iter().filter_map(seen).collect() };
    all.into_iter().chain(ghosts).collect()
}
