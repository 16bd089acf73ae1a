//! Has a driver's instances asked how much room there is, and tells the scheduler what they answer: CSIStorageCapacity
//! objects. An answer is taken from the instance that was asked and from no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kube::ResourceExt as _;

use super::caches::BY_PLUGIN;
use super::context::Context;
use super::key::Key;
use super::known::Known;
use super::nodes::is_in_service;
use super::observe::is_selected;
use super::served;
use crate::api::instance::{MAX_CAPACITIES, Service};
use crate::api::{Plugin, PluginInstance, PluginInstanceStatus};
use crate::k8s::events::EventReason;
use crate::k8s::read::get_live;
use crate::k8s::{ApiError, Named, Next};
use crate::plugin::csi_driver;
use crate::provision::capacity::{self, CapacityOf, CapacityPlan, CapacitySource, CapacityStep, MadeFor};

/// Time in which several changes become one look.
const SETTLE: Duration = Duration::from_millis(500);
/// How many writes are made at a time.
const AT_ONCE: usize = 8;

/// What the scheduler is to be told of a Plugin's driver: nothing where moor does not serve the driver's name, and of a driver
/// that does not tell places apart.
fn plan(known: &Known, plugin: &Plugin) -> CapacityPlan {
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
    let sources: Vec<_> = instances.iter().filter_map(|instance| source(known, plugin, instance)).collect();
    if !instances.iter().filter_map(|instance| instance.status.as_ref()).any(knows_places) {
        return CapacityPlan::without_places(sources.iter().any(|source| source.answers));
    }
    let of = CapacityOf { driver, balancing: plugin.balancing(), sources: &sources };
    CapacityPlan::new(&of, &known.classes.all())
}

fn source<'a>(known: &Known, plugin: &Plugin, instance: &'a PluginInstance) -> Option<CapacitySource<'a>> {
    let status = instance.status.as_ref()?;
    let makes = status.controller && is_selected(known, plugin, instance);
    let is_heard = known.silent_for(instance).is_none() && is_in_service(known, instance);
    Some(CapacitySource {
        name: instance.metadata.name.as_deref().unwrap_or_default(),
        place: Some(&status.topology).filter(|place| status.node && is_there(known, instance, place)),
        is_anywhere: status.node && status.topology.is_empty(),
        makes,
        answers: makes && status.capabilities.controller_has("GET_CAPACITY"),
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

/// Asks for a look at what the scheduler is told of a driver's room. A cluster of many nodes has many changes of it, and one
/// look sees to all of a moment.
pub(crate) fn changed(known: &Known, plugin: &str) {
    known.queue.add_after(Key::Capacities(plugin.to_owned()), SETTLE);
}

/// Has the driver of a Plugin asked, and tells the scheduler what it has answered.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    let plugin = ctx.plugins.get(name);
    let plan = plugin.as_deref().map(|plugin| plan(ctx, plugin)).unwrap_or_default();
    tell_of_too_much(ctx, name, plugin.as_deref().filter(|_| plan.is_too_much)).await;
    let asked = ask(ctx, name, &plan).await;
    let told = tell(ctx, name, &plan).await;
    // The CSIDriver object counts on the others: it is written when they are there, and before they go.
    let ended = match count(ctx, name, &plan).await {
        Ok(true) => take_away(ctx, name, &plan).await,
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    if ctx.provisioning.room_untold(name, why_untold(ctx, name, &plan)) {
        ctx.queue.add(Key::Plugin(name.to_owned()));
    }
    match ended.and(told).and(asked) {
        Ok(()) => Next::Done,
        Err(error) => {
            error.log(name, "cannot tell the scheduler how much room its driver has");
            error.next()
        }
    }
}

async fn tell_of_too_much(ctx: &Context, name: &str, plugin: Option<&Plugin>) {
    let key = Key::Capacities(name.to_owned());
    let Some(plugin) = plugin else { return ctx.provisioning.forget(&key) };
    let words = format!(
        "one instance of its driver would be asked about more than {MAX_CAPACITIES} places and StorageClasses, or with more \
         parameters than a PluginInstance holds, so the scheduler is told nothing of the driver's room; have fewer classes \
         with WaitForFirstConsumer, or run the driver's Controller service in more of its places"
    );
    if ctx.provisioning.is_news(&key, &words) {
        tracing::warn!(plugin = name, "{words}");
        ctx.recorder.publish(plugin, EventReason::RoomUntold, "Tell", &words).await;
    }
}

/// Orders the questions. An instance's agent writes there too: the others are asked all the same.
async fn ask(ctx: &Context, plugin: &str, plan: &CapacityPlan) -> Result<(), ApiError> {
    let changes = ctx.instances.by_index(BY_PLUGIN, plugin).into_iter().filter_map(|before| {
        let wanted = plan.requests_of(before.metadata.name.as_deref().unwrap_or_default());
        let mut after = (before.spec.capacity_requests != wanted).then(|| (*before).clone())?;
        after.spec.capacity_requests = wanted;
        Some((before, after))
    });
    let changes: Vec<_> = changes.collect();
    all(ctx, &changes, |(before, after)| async move {
        ctx.writer.update(&ctx.instances, &**before, after).await.map(drop)
    })
    .await
}

/// Writes what was answered.
async fn tell(ctx: &Context, plugin: &str, plan: &CapacityPlan) -> Result<(), ApiError> {
    let at = MadeFor { plugin, namespace: &ctx.namespace };
    let changes = plan.questions().iter().filter_map(|question| {
        let instance = ctx.instances.get(&question.instance);
        let status = instance.as_ref().and_then(|instance| instance.status.as_ref());
        let said = status.and_then(|status| status.capacities.get(&question.name));
        let found = object(ctx, &question.name);
        let step = plan.object(question, at, said, found.as_deref());
        (step != CapacityStep::Nothing).then_some((step, found))
    });
    let changes: Vec<_> = changes.collect();
    all(ctx, &changes, |(step, found)| settle(ctx, step, found.as_deref())).await
}

async fn settle(
    ctx: &Context,
    step: &CapacityStep,
    found: Option<&CSIStorageCapacity>,
) -> Result<(), ApiError> {
    match (step, found) {
        (CapacityStep::Create(made), _) => create(ctx, made).await,
        (CapacityStep::Correct(after), Some(found)) => {
            ctx.writer.update(&ctx.csi_capacities, found, &**after).await.map(drop)
        }
        (CapacityStep::Delete, Some(found)) => {
            ctx.writer.delete_in(&ctx.csi_capacities, found).await.map(drop)
        }
        (CapacityStep::Nothing | CapacityStep::Correct(_) | CapacityStep::Delete, _) => Ok(()),
    }
}

/// Creates an object. In moor's own namespace the name, a hash of the driver, the class and the place, is moor's: what has it
/// and is not known as moor's has lost its labels, and is replaced.
async fn create(ctx: &Context, made: &CSIStorageCapacity) -> Result<(), ApiError> {
    if ctx.writer.create_in(&ctx.csi_capacities, made).await? {
        return Ok(());
    }
    let name = made.metadata.name.as_deref().unwrap_or_default();
    let found = get_live(&ctx.writer.api::<CSIStorageCapacity>(&ctx.namespace), name).await?;
    if let Some(found) = found.filter(|found| !capacity::is_ours(found)) {
        ctx.writer.delete_in(&ctx.csi_capacities, &found).await?;
        ctx.writer.create_in(&ctx.csi_capacities, made).await?;
    }
    Ok(())
}

/// Says in the CSIDriver objects of a Plugin whether the scheduler goes by what it is told. Returns whether all of them say so
/// now: one that somebody changes back each time is written again after a while.
async fn count(ctx: &Context, plugin: &str, plan: &CapacityPlan) -> Result<bool, ApiError> {
    let mut all_say_so = true;
    let is_own = |driver: &&Arc<CSIDriver>| csi_driver::plugin_of(driver) == Some(plugin);
    for driver in ctx.csi_drivers.all().iter().filter(is_own) {
        let says = csi_driver::counts_capacity(driver);
        let counts =
            driver.metadata.name.as_deref() == Some(plan.driver()) && counts(ctx, plugin, plan, says);
        if let Some(after) = csi_driver::with_capacity(driver, counts)
            && ctx.leadership.is_leading()
        {
            let what = format!("storageCapacity of {}", driver.name_any());
            if let Some(wait) = ctx.corrections.wait(&what, &counts.to_string()) {
                ctx.queue.add_after(Key::Capacities(plugin.to_owned()), wait);
                all_say_so = false;
                continue;
            }
            ctx.writer.update(&ctx.csi_drivers, &**driver, &after).await?;
            ctx.corrections.made(&what, counts.to_string());
            tracing::info!(plugin, counts, "whether the scheduler goes by the driver's room is said anew");
        }
    }
    Ok(all_say_so)
}

/// Only what was written for this Plugin goes with it, and counts for it.
fn counts(known: &Known, plugin: &str, plan: &CapacityPlan, says: bool) -> bool {
    plan.counts(|name| has(known, plugin, name), says)
}

/// Why the scheduler does not go by the room that a Plugin's driver says there is, if so.
fn why_untold(known: &Known, plugin: &str, plan: &CapacityPlan) -> Option<String> {
    let says =
        known.csi_drivers.get(plan.driver()).is_some_and(|driver| csi_driver::counts_capacity(&driver));
    plan.why_untold(|name| has(known, plugin, name), says)
}

fn has(known: &Known, plugin: &str, name: &str) -> bool {
    object(known, name)
        .is_some_and(|object| object.capacity.is_some() && capacity::plugin_of(&object) == Some(plugin))
}

fn object(known: &Known, name: &str) -> Option<Arc<CSIStorageCapacity>> {
    known.csi_capacities.get_in(Named { namespace: &known.namespace, name })
}

/// Deletes what says something of a class, a place or a driver's name that is not there any more.
async fn take_away(ctx: &Context, plugin: &str, plan: &CapacityPlan) -> Result<(), ApiError> {
    let wanted = plan.names();
    let mut left = ctx.csi_capacities.by_index(BY_PLUGIN, plugin);
    left.retain(|object| {
        let is_wanted = object.metadata.name.as_deref().is_some_and(|name| wanted.contains(name));
        !is_wanted && object.metadata.deletion_timestamp.is_none()
    });
    all(
        ctx,
        &left,
        |object| async move { ctx.writer.delete_in(&ctx.csi_capacities, &**object).await.map(drop) },
    )
    .await
}

/// Makes writes, some at a time. One that fails keeps none of the others.
async fn all<'a, W, F>(ctx: &Context, writes: &'a [W], write: impl Fn(&'a W) -> F) -> Result<(), ApiError>
where
    F: Future<Output = Result<(), ApiError>>,
{
    let mut result = Ok(());
    for some in writes.chunks(AT_ONCE) {
        if !ctx.leadership.is_leading() {
            break;
        }
        let done = join_all(some.iter().map(&write)).await;
        result = done.into_iter().fold(result, Result::and);
    }
    result
}

#[cfg(test)]
#[path = "capacities_tests.rs"]
mod tests;
