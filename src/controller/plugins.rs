//! A pass over one Plugin: its status is what its instances add up to.

use jiff::Timestamp;

use super::caches::BY_PLUGIN;
use super::context::Context;
use super::csi_drivers;
use super::nodes::is_in_service;
use super::observe::is_selected;
use crate::api::PluginInstance;
use crate::api::conditions;
use crate::k8s::{ApiError, Next};
use crate::plugin::{aggregate, in_order, older, pods_served};

/// Brings a Plugin's status up to date; writes only what differs.
pub(crate) async fn run(ctx: &Context, name: &str) -> Next {
    let plugin = ctx.plugins.get(name);
    let conflict = match csi_drivers::settle(ctx, name, plugin.as_deref()).await {
        Ok(conflict) => conflict,
        Err(ApiError::Conflict(_)) => return Next::Again,
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot settle its CSIDriver");
            return Next::Retry;
        }
    };
    let Some(plugin) = plugin else { return Next::Done };
    let instances = ctx.instances.by_index(BY_PLUGIN, name);
    let all = ctx.plugins.all();
    let older = older(&plugin, &all);
    let selected = |i: &PluginInstance| is_selected(ctx, &plugin, i);
    let (mut status, ready) = aggregate(&plugin, &instances, older.as_deref(), selected);
    let in_order = in_order(&plugin, &instances, selected, |i| is_in_service(ctx, i));
    let by_another = ctx.provisioning.by_another(name);
    let other_volume = by_another.as_ref().map(|(volume, _)| volume.as_str());
    let pods = pods_served(&plugin, &all, &instances, conflict, other_volume);
    for desired in [ready, in_order, pods] {
        conditions::set(&mut status.conditions, &desired, plugin.metadata.generation, Timestamp::now());
    }
    match ctx.writer.update_status(&ctx.plugins, &plugin, &status).await {
        // The newer object brings another pass.
        Ok(_) | Err(ApiError::Conflict(_)) => by_another.map_or(Next::Done, |(_, told)| Next::After(told)),
        Err(error) => {
            tracing::warn!(plugin = name, %error, "cannot write status");
            Next::Retry
        }
    }
}
