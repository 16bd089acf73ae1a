//! Has a driver's instances asked how much room there is, and tells the scheduler what they answer: CSIStorageCapacity
//! objects. An answer is taken from the instance that was asked and from no other.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::storage::v1::CSIStorageCapacity;

use super::caches::BY_PLUGIN;
use super::context::Context;
use super::known::Known;
use super::nodes::is_in_service;
use super::observe::is_selected;
use super::served;
use crate::api::instance::Service;
use crate::api::{Plugin, PluginInstance, PluginInstanceStatus};
use crate::k8s::{ApiError, Named};
use crate::provision::capacity::{
    CapacityOf, CapacityPlan, CapacityQuestion, CapacitySource, CapacityStep, MadeFor,
};

/// What the scheduler is to be told of a Plugin's driver: nothing where moor does not serve the driver's name, and of a driver
/// that does not tell places apart.
pub(crate) fn plan(known: &Known, plugin: &Plugin) -> CapacityPlan {
    let Some(driver) = plugin.kubelet_name() else { return CapacityPlan::default() };
    let serves = served::plugin_of(known, driver);
    if serves.is_none_or(|serves| serves.metadata.uid != plugin.metadata.uid) {
        return CapacityPlan::default();
    }
    let name = plugin.metadata.name.as_deref().unwrap_or_default();
    let instances = known.by_plugin.of(&known.instances, name, plugin.driver_name());
    let knows_places = |status: &PluginInstanceStatus| {
        status.capabilities.plugin.iter().any(|c| c == "VOLUME_ACCESSIBILITY_CONSTRAINTS")
    };
    if !instances.iter().filter_map(|instance| instance.status.as_ref()).any(knows_places) {
        return CapacityPlan::default();
    }
    let sources: Vec<_> = instances.iter().filter_map(|instance| source(known, plugin, instance)).collect();
    let of = CapacityOf { driver, balancing: plugin.spec.balancing, sources: &sources };
    CapacityPlan::new(&of, &known.classes.all())
}

fn source<'a>(known: &Known, plugin: &Plugin, instance: &'a PluginInstance) -> Option<CapacitySource<'a>> {
    let status = instance.status.as_ref()?;
    let can = status.controller && status.capabilities.controller_has("GET_CAPACITY");
    let is_heard = known.silent_for(instance).is_none() && is_in_service(known, instance);
    Some(CapacitySource {
        name: instance.metadata.name.as_deref().unwrap_or_default(),
        place: Some(&status.topology).filter(|place| status.node && is_there(known, instance, place)),
        answers: can && is_selected(known, plugin, instance),
        healthy: is_heard && status.is_healthy_for(Service::Controller),
    })
}

/// Whether an instance's node is where the driver says. kubelet writes that on the Node, by whose labels the scheduler goes:
/// a place that no agent but one knows of is told nobody, and nobody speaks for the place of another.
fn is_there(known: &Known, instance: &PluginInstance, place: &BTreeMap<String, String>) -> bool {
    let node = known.nodes.get(&instance.spec.node_name);
    let node = node.filter(|node| node.uid() == instance.spec.node_uid);
    let has = |(key, value): (&String, &String)| {
        let labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
        labels.is_some_and(|labels| labels.get(key) == Some(value))
    };
    !place.is_empty() && place.iter().all(has)
}

/// Whether the CSIDriver object is to say that the scheduler goes by what it is told, by what it `says` now.
pub(crate) fn counts(known: &Known, plan: &CapacityPlan, says: bool) -> bool {
    let has = |name: &str| object(known, name).is_some_and(|object| object.capacity.is_some());
    plan.counts(has, says)
}

fn object(known: &Known, name: &str) -> Option<Arc<CSIStorageCapacity>> {
    known.csi_capacities.get_in(Named { namespace: &known.namespace, name })
}

/// Orders the questions, and writes what was answered.
pub(crate) async fn tell(ctx: &Context, plugin: &str, plan: &CapacityPlan) -> Result<(), ApiError> {
    if plan.is_too_much {
        tracing::warn!(
            plugin,
            "one instance would be asked about more classes and places than a PluginInstance holds: the scheduler is told \
             nothing of the driver's room"
        );
    }
    let mut result = Ok(());
    for instance in ctx.instances.by_index(BY_PLUGIN, plugin) {
        let wanted = plan.requests_of(instance.metadata.name.as_deref().unwrap_or_default());
        if instance.spec.capacity_requests == wanted || !ctx.leadership.is_leading() {
            continue;
        }
        let mut after = (*instance).clone();
        after.spec.capacity_requests = wanted;
        // Its agent writes there too. The others are asked all the same.
        result = ctx.writer.update(&ctx.instances, &instance, &after).await.map(drop).and(result);
    }
    for question in plan.questions() {
        result = settle(ctx, plugin, plan, question).await.and(result);
    }
    result
}

async fn settle(
    ctx: &Context,
    plugin: &str,
    plan: &CapacityPlan,
    question: &CapacityQuestion,
) -> Result<(), ApiError> {
    let instance = ctx.instances.get(&question.instance);
    let status = instance.as_ref().and_then(|instance| instance.status.as_ref());
    let said = status.and_then(|status| status.capacities.get(&question.name));
    let found = object(ctx, &question.name);
    let at = MadeFor { plugin, namespace: &ctx.namespace };
    let step = plan.object(question, at, said, found.as_deref());
    if !ctx.leadership.is_leading() {
        return Ok(());
    }
    match (step, found) {
        (CapacityStep::Create(made), _) => ctx.writer.create_in(&ctx.csi_capacities, &*made).await.map(drop),
        (CapacityStep::Correct(after), Some(found)) => {
            ctx.writer.update(&ctx.csi_capacities, &*found, &*after).await.map(drop)
        }
        (CapacityStep::Delete, Some(found)) => ctx.writer.delete_in(&ctx.csi_capacities, &*found).await,
        (CapacityStep::Nothing | CapacityStep::Correct(_) | CapacityStep::Delete, _) => Ok(()),
    }
}

/// Deletes what says something of a class, a place or a driver's name that is not there any more.
pub(crate) async fn take_away(ctx: &Context, plugin: &str, plan: &CapacityPlan) -> Result<(), ApiError> {
    let wanted = plan.names();
    for object in ctx.csi_capacities.by_index(BY_PLUGIN, plugin) {
        let is_wanted = object.metadata.name.as_deref().is_some_and(|name| wanted.contains(name));
        if !is_wanted && object.metadata.deletion_timestamp.is_none() && ctx.leadership.is_leading() {
            ctx.writer.delete_in(&ctx.csi_capacities, &*object).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "capacities_tests.rs"]
mod tests;
