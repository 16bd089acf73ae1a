//! Takes a driver off a node that it has left for good: its PluginInstance is deleted, and the Plugin does not wait for it any
//! more.

use std::sync::Arc;

use super::caches::{BY_CONTROLLER, BY_NODE, BY_OWNER};
use super::context::Context;
use crate::api::volume::VolumeOperation;
use crate::api::{Attachment, PluginInstance, Volume, VolumeHandle, VolumeState};
use crate::k8s::ApiError;
use crate::k8s::events::EventReason;
use crate::plugin::deregistration::has_left;
use crate::snapshot::may_be_calling;

/// Deletes the instances of drivers that have left their nodes. A driver that comes back is registered anew by its agent.
pub(crate) async fn deregister(ctx: &Context) {
    for instance in ctx.instances.all() {
        let left = ctx.left.gone_for(&instance);
        if !left.is_some_and(|gone| has_left(&instance, gone, ctx.longest_call)) || is_used(ctx, &instance) {
            continue;
        }
        let (name, node) = (instance.metadata.name.as_deref(), &instance.spec.node_name);
        // If nobody has written it since: its driver may be back.
        match ctx.writer.delete_as_seen(&ctx.instances, &*instance).await {
            Ok(_) => {
                let who = if has_agent(&instance) { "no process of it" } else { "no agent of moor's" };
                let words = format!(
                    "the driver has left node {node}: {who} was there for a while, and nothing of it is in use there"
                );
                tracing::info!(instance = name, "{words}");
                if let Some(plugin) = ctx.plugins.get(&instance.spec.plugin_name) {
                    ctx.recorder.publish(&*plugin, EventReason::Deregistered, "Deregister", &words).await;
                }
            }
            Err(ApiError::Conflict(_)) => {}
            Err(error) => tracing::warn!(instance = name, "cannot be deregistered: {error}"),
        }
    }
}

/// Whether the calls of anything are its own, or a volume of its driver is on its node. Of one that is not heard nobody knows.
fn is_used(ctx: &Context, instance: &PluginInstance) -> bool {
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    let moved =
        |handle: &Arc<VolumeHandle>| handle.spec.controller.as_ref().is_some_and(|c| c.instance != name);
    // Where the VolumeHandle names another one, what still names this one follows when something is due.
    let volume_calls = |volume: &Arc<Volume>| {
        let handles = ctx.handles.by_index(BY_OWNER, volume.metadata.uid.as_deref().unwrap_or_default());
        !is_done(volume) || !handles.first().is_some_and(moved)
    };
    let attachment_calls = |attachment: &Arc<Attachment>| {
        !ctx.handles.get(&attachment.spec.fixed.handle_name).as_ref().is_some_and(moved)
    };
    // While it is named it cannot be told from one that is at a call, once the object is gone.
    let plugin = ctx.plugins.get(&instance.spec.plugin_name);
    let is_active = plugin.as_ref().and_then(|plugin| plugin.active()).is_some_and(|at| at.instance == name);
    let here = ctx.attachments.by_index(BY_NODE, &instance.spec.node_name);
    is_active
        || ctx.silent_for(instance).is_some() && has_agent(instance)
        || !ctx.handles.by_index(BY_CONTROLLER, name).is_empty()
        || ctx.volumes.by_index(BY_CONTROLLER, name).iter().any(volume_calls)
        || ctx.snapshots.by_index(BY_CONTROLLER, name).iter().any(|snapshot| may_be_calling(snapshot))
        || ctx.attachments.by_index(BY_CONTROLLER, name).iter().any(attachment_calls)
        || here.iter().any(|attachment| attachment.spec.fixed.driver_name == instance.spec.driver_name)
}

/// Whether the agent beside an instance has not said that it ends. What it knew of its node is told then.
fn has_agent(instance: &PluginInstance) -> bool {
    instance.status.as_ref().is_none_or(|status| status.gone || !status.agent_has_ended())
}

/// Whether what a Volume has ordered was done.
fn is_done(volume: &Volume) -> bool {
    use VolumeOperation::{Adopt, Create, Validate};
    let operation = volume.spec.assignment.as_ref().map(|assignment| assignment.operation);
    volume.state() == VolumeState::Ready && matches!(operation, Some(Adopt | Create | Validate))
}
