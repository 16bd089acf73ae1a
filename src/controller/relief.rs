//! Relieves controller instances that are gone, or not selected any more, of the volumes whose calls they make (rule R2, docs/adr/0037): their agents are
//! told of another tenure, and what they were given in the one before moves when they say that none of those calls is running.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::caches::{BY_CONTROLLER, BY_PLUGIN};
use super::context::Context;
use super::observe::is_selected;
use crate::api::caller::ControllerRef;
use crate::api::plugin::Balancing;
use crate::api::{Plugin, PluginInstance};
use crate::k8s::ApiError;
use crate::plugin::relief::{Leaving, next_tenure};
use crate::snapshot::may_be_calling;

/// Tells the agents of all who are to be relieved.
pub(crate) async fn relieve(ctx: &Context) {
    for instance in ctx.instances.all() {
        let Some(given) = leaves(ctx, &instance) else { continue };
        let mut after = (*instance).clone();
        after.spec.tenure = next_tenure(given, Timestamp::now());
        let name = instance.metadata.name.as_deref();
        match ctx.writer.update(&ctx.instances, &*instance, &after).await {
            Ok(_) => tracing::warn!(instance = name, "it is relieved of the volumes whose calls it makes"),
            // Looked at again with the next tick.
            Err(ApiError::Conflict(_)) => {}
            Err(error) => tracing::warn!(instance = name, "cannot be relieved of its volumes: {error}"),
        }
    }
}

/// The latest tenure in which an instance was given calls of which it is to be relieved.
fn leaves(ctx: &Context, instance: &PluginInstance) -> Option<i64> {
    let plugin = ctx.plugins.get(&instance.spec.plugin_name);
    let gone = ctx.gone.left_for(instance, plugin.as_deref());
    let wanted = |one: &PluginInstance| plugin.as_ref().is_none_or(|plugin| is_selected(ctx, plugin, one));
    // Where the Plugin says so itself; else it may be taken for what it is not.
    let is_single = |plugin: &&Arc<Plugin>| plugin.spec.balancing == Some(Balancing::SingleActive);
    let active = plugin.as_ref().filter(is_single).and_then(|plugin| plugin.active());
    let active = active.filter(|active| Some(&active.instance) != instance.metadata.name.as_ref());
    let selected = wanted(instance) && active.is_none();
    let gone = gone.or_else(|| ill_for(ctx, instance, plugin.as_deref()));
    if gone.is_none() && selected {
        return None;
    }
    // Most that are not selected were given nothing, and there may be one on every node.
    let given = given(ctx, instance, plugin.as_deref())?;
    // One that is not heard cannot answer: its calls move when its silence has lasted.
    if ctx.silent_for(instance).is_some() {
        return None;
    }
    let peers = ctx.instances.by_index(BY_PLUGIN, &instance.spec.plugin_name);
    let others = peers.iter().filter(|peer| {
        let name = peer.metadata.name.as_ref();
        let takes_over = active.is_none_or(|active| Some(&active.instance) == name);
        plugin.is_some() && wanted(peer) && takes_over && ctx.silent_for(peer).is_none()
    });
    let balancing = plugin.as_ref().map(|plugin| plugin.balancing());
    let declared = plugin.as_ref().and_then(|plugin| plugin.spec.controller.as_ref());
    let is_moved = declared.is_some_and(|controller| controller.replicas == 1);
    let leaving = Leaving { instance, gone, selected, is_moved, balancing };
    leaving.is_due(ctx.longest_call, others.map(|peer| &**peer)).then_some(given)
}

/// For how long an instance that all new volumes wait for has not been well, if for so long that none of its calls is running.
fn ill_for(ctx: &Context, instance: &PluginInstance, plugin: Option<&Plugin>) -> Option<Duration> {
    let active = plugin.filter(|plugin| plugin.balancing() == Balancing::SingleActive)?.active()?;
    let is_it = Some(&active.instance) == instance.metadata.name.as_ref();
    ctx.ill.gone_for(instance).filter(|ill| is_it && *ill > ctx.longest_call)
}

/// The latest tenure in which it was given the calls of anything, if that was since it was relieved last.
fn given(ctx: &Context, instance: &PluginInstance, plugin: Option<&Plugin>) -> Option<i64> {
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    let tenure = |controller: Option<&ControllerRef>| controller.map(|given| given.tenure);
    let volumes = ctx.volumes.by_index(BY_CONTROLLER, name);
    let handles = ctx.handles.by_index(BY_CONTROLLER, name);
    let attachments = ctx.attachments.by_index(BY_CONTROLLER, name);
    let snapshots = ctx.snapshots.by_index(BY_CONTROLLER, name);
    let snapshots = snapshots.iter().filter(|snapshot| may_be_calling(snapshot));
    let active = plugin.and_then(Plugin::active).filter(|active| active.instance == name);
    let all = volumes.iter().map(|volume| tenure(volume.caller())).chain([tenure(active)]);
    let all = all.chain(handles.iter().map(|handle| tenure(handle.spec.controller.as_ref())));
    let all = all.chain(attachments.iter().map(|attachment| tenure(attachment.spec.controller.as_ref())));
    let all = all.chain(snapshots.map(|snapshot| tenure(snapshot.caller())));
    all.flatten().max().filter(|latest| *latest >= instance.spec.tenure)
}
